"""Mending a profile's file: single edits in its text, so that comments, order and spelling stay as they are.

What an edit made is read again: where it means anything else than what was intended, nothing is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sparkctl.core.faults import InvalidFile, Place
from sparkctl.core.linting import Diagnostic
from sparkctl.core.textedit import Edit, offset, read, write
from sparkctl.core.yamlfile import Item, parse_yaml
from sparkctl.model.lint import Change, ChangeKind


def mend(path: Path, diagnostics: Sequence[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Mend what can be mended safely in one file, and return what was.

    What stands in a file that it extends is left alone. Raises `InvalidInput` where the file cannot be read or written.
    """
    mark, before = read(path)
    text = before
    done: list[Diagnostic] = []
    # From the end to the beginning: the places before an edit stay where they were.
    for one in sorted(diagnostics, key=lambda one: (one.place.line or 0, one.place.column or 0), reverse=True):
        if one.change is None or (one.place.file != str(path) and one.change.kind is not ChangeKind.ADD):
            continue
        edited = _edited(text, one.place, one.change, path)
        if edited is not None:
            text = edited
            done.append(one)
    if text != before:
        write(path, mark + text.encode("utf-8"))
    return tuple(reversed(done))


def _edited(text: str, place: Place, change: Change, path: Path) -> str | None:
    """Return the text with one change made, None where it cannot be made for certain."""
    tree = parse_yaml(text.encode("utf-8"), str(path)).root
    edit = _added(text, tree, change) if change.kind is ChangeKind.ADD else _replaced(text, place, change, tree)
    if edit is None or not text.startswith(edit.old, edit.start):
        return None
    result = text[: edit.start] + edit.new + text[edit.start + len(edit.old) :]
    try:
        means = parse_yaml(result.encode("utf-8"), str(path)).root.data()
    except InvalidFile:
        return None
    return result if means == _intended(tree.data(), change) else None


def _replaced(text: str, place: Place, change: Change, tree: Item) -> Edit | None:
    """A key or a scalar, plain or in quotes."""
    entry = tree.entries["args"].item.entries.get(str(change.where[1])) if "args" in tree.entries else None
    if entry is None or place.line is None or place.column is None:
        return None
    old = str(change.where[1]) if change.kind is ChangeKind.RENAME else entry.item.raw
    start = offset(text, place)
    if old is None or start is None:
        return None
    quote = text[start : start + 1] if text[start : start + 1] in ("'", '"') else ""
    return Edit(start, f"{quote}{old}{quote}", change.text)


def _added(text: str, tree: Item, change: Change) -> Edit | None:
    """An entry of ``args``: before its first one, or as a map of its own at the end."""
    key = str(change.where[1])
    end = "\r\n" if "\r\n" in text else "\n"
    args = tree.entries.get("args")
    if args is None:
        gap = "" if text.endswith("\n") else end
        return Edit(len(text), "", f"{gap}args:{end}  {key}: {change.text}{end}")
    first = next(iter(args.item.entries.values()), None)
    if first is None or first.place.line is None or args.place.line is None:
        return None
    if first.place.line == args.place.line:  # {tp: 1}
        start = offset(text, first.place)
        return None if start is None else Edit(start, "", f"{key}: {change.text}, ")
    start = offset(text, Place(first.place.file, args.place.line + 1, 1))
    return (
        None if start is None else Edit(start, "", f"{' ' * ((first.place.column or 1) - 1)}{key}: {change.text}{end}")
    )


def _intended(data: Any, change: Change) -> Any:
    """Return what the file should mean after a change."""
    section, key = str(change.where[0]), str(change.where[1])
    entries = dict(data.get(section) or {})
    value: object = change.text == "true" or change.text
    if change.kind is ChangeKind.RENAME:
        entries = {change.text if name == key else name: kept for name, kept in entries.items()}
        if len(entries) < len(data[section]):
            return None  # it is there under both names
    else:
        entries[key] = value
    return {**data, section: entries}
