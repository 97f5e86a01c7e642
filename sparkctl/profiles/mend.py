"""Mending a profile's file: single edits in its text, so that comments, order and spelling stay as they are.

What an edit made is read again: where it means anything else than what was intended, nothing is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sparkctl.engines.lint.model import LintFix, LintFixKind
from sparkctl.profiles import yamledit
from sparkctl.profiles.file_issues import FilePosition
from sparkctl.profiles.profile_lint import Diagnostic
from sparkctl.profiles.textedit import read_source, replace_file
from sparkctl.profiles.yaml_reader import parse_yaml


def apply_lint_fixes(path: Path, diagnostics: Sequence[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Mend what can be mended safely in one file, and return what was.

    What stands in a file that it extends is left alone. Raises `InvalidInput` where the file cannot be read or written.
    """
    mark, before = read_source(path)
    text = before
    done: list[Diagnostic] = []
    # From the end to the beginning: the places before an edit stay where they were.
    for one in sorted(diagnostics, key=lambda one: (one.place.line or 0, one.place.column or 0), reverse=True):
        if one.change is None or (one.place.file != str(path) and one.change.kind is not LintFixKind.ADD):
            continue
        edited = _edited(text, one.place, one.change, path)
        if edited is not None:
            text = edited
            done.append(one)
    if text != before:
        replace_file(path, mark + text.encode("utf-8"))
    return tuple(reversed(done))


def _edited(text: str, place: FilePosition, change: LintFix, path: Path) -> str | None:
    """Return the text with one change made, None where it cannot be made for certain."""
    tree = parse_yaml(text.encode("utf-8"), str(path)).root
    section = tree.entries.get(str(change.where[0]))
    entry = None if section is None else section.item.entries.get(str(change.where[1]))
    if change.kind is LintFixKind.ADD:
        steps = [str(step) for step in change.where]
        edit = yamledit.plan_value_edit(text, tree, steps, change.text) if entry is None else None
    else:
        old = None if entry is None else str(change.where[1]) if change.kind is LintFixKind.RENAME else entry.item.raw
        edit = None if old is None else yamledit.plan_replacement(text, place, old, change.text)
    return None if edit is None else yamledit.apply_checked_edit(text, edit, _apply_lint_change(tree.data(), change))


def _apply_lint_change(data: Any, change: LintFix) -> Any:
    """Return what the file should mean after a change."""
    section, key = str(change.where[0]), str(change.where[1])
    entries = dict(data.get(section) or {})
    value: object = change.text == "true" or change.text
    if change.kind is LintFixKind.RENAME:
        entries = {change.text if name == key else name: kept for name, kept in entries.items()}
        if len(entries) < len(data[section]):
            return None  # it is there under both names
    else:
        entries[key] = value
    return {**data, section: entries}
