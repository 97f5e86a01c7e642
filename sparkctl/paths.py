"""Where sparkctl's files are on the operator's machine.

XDG variables count wherever they are set, on macOS too: whoever sets them means them.
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


def user_profiles_dir() -> Path:
    """Return the directory of the operator's own profiles (it may not exist)."""
    return config_dir() / "profiles"


def read_only_profiles_dir() -> Path | None:
    """Return a directory of profiles that are read and never written: ``$SPARKCTL_PROFILES_BENEATH``, which the demo sets."""
    return _read_absolute_path("SPARKCTL_PROFILES_BENEATH")


def shipped_profiles_dir() -> Path:
    """Return the directory of the profiles that are part of sparkctl: inside the wheel, or beside it in a checkout."""
    package = Path(__file__).resolve().parent
    installed = package / "_profiles"
    return installed if installed.is_dir() else package.parent / "profiles"


def _read_absolute_path(variable: str) -> Path | None:
    """Return the variable's path; the XDG specification says that a relative one is to be ignored."""
    value = os.environ.get(variable, "")
    return Path(value) if Path(value).is_absolute() else None
