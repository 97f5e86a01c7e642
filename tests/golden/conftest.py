"""An operator of the tests' own: no config, profile or state of whoever runs them, and always the same name and width."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "SPARKCTL_STATE"):
        monkeypatch.setenv(name, str(tmp_path / name))
    for name in ("SPARKCTL_CONFIG", "SPARKCTL_ASCII", "SPARKCTL_DEBUG", "SPARKCTL_PROFILES_BENEATH", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPARKCTL_OPERATOR", "milo@laptop")
    monkeypatch.setenv("COLUMNS", "100")
