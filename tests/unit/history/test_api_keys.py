"""The key of an instance is made once, and only its owner reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkctl.commands.start.launch_plans import ensure_api_key, get_api_key_path, read_api_key
from sparkctl.errors import InvalidInput


def test_a_key_is_made_once_for_each_instance(tmp_path: Path) -> None:
    assert read_api_key(tmp_path, "qwen36", "spark1") is None
    made = ensure_api_key(tmp_path, "qwen36", "spark1")
    assert made.startswith("sk-")
    assert ensure_api_key(tmp_path, "qwen36", "spark1") == made == read_api_key(tmp_path, "qwen36", "spark1")
    assert ensure_api_key(tmp_path, "qwen36", "spark2") != made
    path = get_api_key_path(tmp_path, "qwen36", "spark1")
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o077) == (0o600, 0)
    assert [one.name for one in path.parent.iterdir()] == ["qwen36"]


@pytest.mark.parametrize("text", ["", "short", "x" * 20 + " " + "y" * 20, "ü" * 40])
def test_a_damaged_key_is_named_and_not_used(tmp_path: Path, text: str) -> None:
    path = get_api_key_path(tmp_path, "qwen36", "spark1")
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInput, match="API key") as raised:
        ensure_api_key(tmp_path, "qwen36", "spark1")
    assert str(path) in raised.value.message
