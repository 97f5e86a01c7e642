"""Nobody's own files: the panel reads no config, profile or state of whoever runs the tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fast_forward import forward_clock


@pytest.fixture(autouse=True)
def _forwarded_clock() -> Iterator[None]:
    with forward_clock():
        yield


@pytest.fixture(autouse=True)
def _operator(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "SPARKCTL_STATE"):
        monkeypatch.setenv(name, str(tmp_path / name))
