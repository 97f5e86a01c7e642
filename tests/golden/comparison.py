"""Compares a text with its golden file, or writes the file where GOLDEN_UPDATE is set."""

from __future__ import annotations

import os
from collections.abc import Iterable
from difflib import unified_diff
from pathlib import Path

FILES = Path(__file__).with_name("files")


def is_updating() -> bool:
    """Return whether golden files are to be written instead of compared."""
    return bool(os.environ.get("GOLDEN_UPDATE"))


def read_golden(name: str) -> str:
    """Return the text of a golden file; an empty text where there is none."""
    path = FILES / name
    return path.read_text(encoding="utf-8") if path.exists() else ""


def write_golden(name: str, text: str) -> None:
    """Write a golden file."""
    path = FILES / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def diff_golden(name: str, text: str) -> str:
    """Return how ``text`` differs from its golden file, as a unified diff: empty where it does not."""
    text = text.rstrip("\n") + "\n"
    if is_updating():
        write_golden(name, text)
        return ""
    golden = read_golden(name)
    lines = unified_diff(golden.splitlines(), text.splitlines(), f"golden/{name}", f"now/{name}", lineterm="", n=2)
    return "\n".join(lines)


def assert_golden(name: str, text: str) -> None:
    """Fail with a diff where ``text`` is not what its golden file holds."""
    assert_no_diffs([diff_golden(name, text)])


def assert_no_diffs(diffs: Iterable[str]) -> None:
    """Fail with all diffs that are not empty."""
    found = [diff for diff in diffs if diff]
    assert not found, "\n".join(["what a user relies on has changed:", *found])


def assert_same_files(folder: str, names: Iterable[str]) -> None:
    """Fail where a folder of golden files lacks one of these, or holds one that nothing produces. Updating removes it."""
    expected = set(names)
    there = {str(path.relative_to(FILES / folder)) for path in (FILES / folder).rglob("*.*")}
    if is_updating():
        for name in there - expected:
            (FILES / folder / name).unlink()
        return
    assert there == expected, f"missing: {sorted(expected - there)}; produced by nothing: {sorted(there - expected)}"
