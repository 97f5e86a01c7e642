"""Paths of sparkctl's files on the operator's machine.

XDG variables are used wherever they are set, on macOS too.
"""

from __future__ import annotations

import os
from pathlib import Path

APP_NAME = "sparkctl"


def config_dir() -> Path:
    """Return the directory of the config file and of the operator's own profiles (it may not exist)."""
    if base := _read_absolute_path("XDG_CONFIG_HOME"):
        return base / APP_NAME
    import platformdirs

    return Path(platformdirs.user_config_dir(APP_NAME))


def config_file() -> Path:
    """Return the config file: ``$SPARKCTL_CONFIG`` when set, else ``config.yaml`` in the config directory."""
    if named := os.environ.get("SPARKCTL_CONFIG"):
        return Path(named).expanduser()
    return config_dir() / "config.yaml"


def state_dir() -> Path:
    """Return the directory of history and saved logs: ``$SPARKCTL_STATE`` when set (it may not exist)."""
    if named := os.environ.get("SPARKCTL_STATE"):
        return Path(named).expanduser()
    if base := _read_absolute_path("XDG_STATE_HOME"):
        return base / APP_NAME
    import platformdirs

    return Path(platformdirs.user_state_dir(APP_NAME))


def cache_dir() -> Path:
    """Return the directory of what may be deleted at any time (it may not exist)."""
    if base := _read_absolute_path("XDG_CACHE_HOME"):
        return base / APP_NAME
    import platformdirs

    return Path(platformdirs.user_cache_dir(APP_NAME))


def user_profiles_dir() -> Path:
    """Return the directory of the operator's own profiles (it may not exist)."""
    return config_dir() / "profiles"


def read_only_profiles_dir() -> Path | None:
    """Return the directory of profiles that are only read: ``$SPARKCTL_PROFILES_BENEATH``, set by the demo."""
    return _read_absolute_path("SPARKCTL_PROFILES_BENEATH")


def shipped_profiles_dir() -> Path:
    """Return the directory of the shipped profiles: inside the wheel, or beside the package in a checkout."""
    return _find_shipped("profiles")


def docs_dir() -> Path:
    """Return the directory of the documentation's pages: inside the wheel, or beside the package in a checkout."""
    return _find_shipped("docs")


def _find_shipped(name: str) -> Path:
    package = Path(__file__).resolve().parent
    installed = package / f"_{name}"
    return installed if installed.is_dir() else package.parent / name


def _read_absolute_path(variable: str) -> Path | None:
    """Return the variable's path, None if it is relative: the XDG specification says to ignore those."""
    value = os.environ.get(variable, "")
    return Path(value) if Path(value).is_absolute() else None
