"""How editors are told where to begin."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkctl.errors import InvalidInput
from sparkctl.profiles.profile_editor import build_editor_argv, find_editor

FILE = Path("/x/own.yaml")


@pytest.mark.parametrize(
    ("words", "opened"),
    [
        (["vi"], ["vi", "+5", "/x/own.yaml"]),
        (["/usr/bin/nvim", "-u", "NONE"], ["/usr/bin/nvim", "-u", "NONE", "+5", "/x/own.yaml"]),
        (["nano"], ["nano", "+5", "/x/own.yaml"]),
        (["emacs", "-nw"], ["emacs", "-nw", "+5", "/x/own.yaml"]),
        (["hx"], ["hx", "/x/own.yaml:5:7"]),
        (["code", "--wait"], ["code", "--wait", "--goto", "/x/own.yaml:5:7"]),
        (["code"], ["code", "--wait", "--goto", "/x/own.yaml:5:7"]),
        (["subl", "-w"], ["subl", "-w", "/x/own.yaml:5:7"]),
        (["my-editor", "-x"], ["my-editor", "-x", "/x/own.yaml"]),
    ],
)
def test_each_editor_gets_its_line_argument(words: list[str], opened: list[str]) -> None:
    assert build_editor_argv(words, FILE, 5, 7) == opened


def test_without_a_line_only_the_file_is_named() -> None:
    assert build_editor_argv(["nano"], FILE, line=None, column=None) == ["nano", "/x/own.yaml"]
    assert build_editor_argv(["code"], FILE, line=None, column=None) == ["code", "--wait", "/x/own.yaml"]


def test_the_operators_words_are_taken_apart_as_a_shell_would(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISUAL", "")
    monkeypatch.setenv("EDITOR", "'/opt/my editor/ed' --wait")
    assert find_editor() == ["/opt/my editor/ed", "--wait"]
    monkeypatch.setenv("EDITOR", "vi '")
    with pytest.raises(InvalidInput, match="EDITOR"):
        find_editor()


def test_no_editor_at_all_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("VISUAL", "EDITOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InvalidInput, match="no editor is known"):
        find_editor()
