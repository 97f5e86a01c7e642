"""Keeping a ``--set`` in a profile's file: one value of its text, so that comments, order and spelling stay as they are.

What it would mean is known before anything is written: the same as with ``--set``, or nothing is changed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sparkctl.core.faults import InvalidFile, Place
from sparkctl.core.profile_tree import override_tree
from sparkctl.core.profiles import ProfileLibrary
from sparkctl.core.textedit import Edit, offset, read, write
from sparkctl.core.yamlfile import Entry, Item, parse_yaml
from sparkctl.errors import InvalidInput


def amend(library: ProfileLibrary, name: str, setting: str) -> tuple[Path, bool]:
    """Write ``field=value`` into the operator's own file of a profile; return that, and whether it was made as a copy of the
    shipped one.

    Raises `InvalidInput` where the profile does not take it or the file cannot be changed for certain, OSError.
    """
    library.load(name, [setting])
    path, copied = library.own(name)
    try:
        mark, before = read(path)
        write(path, mark + amended(before, setting, str(path)).encode("utf-8"))
    except BaseException:
        if copied:
            path.unlink()
        raise
    return path, copied


def amended(text: str, setting: str, file: str) -> str:
    """Return the text with one field set. Raises `InvalidInput` where it cannot be done for certain."""
    steps, wanted = _steps(override_tree(setting))
    tree = parse_yaml(text.encode("utf-8"), file).root
    edit = _edit(text, tree, steps, _spelt(wanted))
    result = text[: edit.start] + edit.new + text[edit.start + len(edit.old) :] if edit is not None else None
    if (
        edit is None
        or result is None
        or not text.startswith(edit.old, edit.start)
        or not _means(result, tree, steps, wanted)
    ):
        raise InvalidInput(f"{file}: {'.'.join(steps)} cannot be changed there for certain", "e edits the file")
    return result


def _steps(item: Item) -> tuple[list[str], Item]:
    """Return the keys that lead to the one value of an override, and the value."""
    steps: list[str] = []
    while len(item.entries) == 1 and item.raw is None:
        key, entry = next(iter(item.entries.items()))
        steps.append(key)
        item = entry.item
    return steps, item


def _spelt(item: Item) -> str:
    """Return a value as YAML has it: as it was typed where that means the same."""
    if item.raw is not None:
        try:
            if parse_yaml(f"x: {item.raw}\n".encode(), "").root.data() == {"x": item.value}:
                return item.raw
        except InvalidFile:
            pass
    return item.json()  # JSON is YAML


def _edit(text: str, tree: Item, steps: list[str], value: str) -> Edit | None:
    """Return the one edit that sets a value: in its place, as a new entry of its section, or with its section at the end."""
    section, rest = tree, list(steps)
    entry: Entry | None = None
    while rest and rest[0] in section.entries:
        entry = section.entries[rest.pop(0)]
        section = entry.item
    if not rest:
        return None if entry is None else _in_place(text, entry.item, value)
    first = next(iter(section.entries.values()), None)
    if entry is None:
        return _at_the_end(text, steps, value)
    if first is None or first.place.line is None or entry.place.line is None:
        return None
    if len(rest) > 1 or first.place.line == entry.place.line:
        return _in_flow(text, first, rest, value)
    start = offset(text, Place(first.place.file, first.place.line, 1))
    indent = " " * ((first.place.column or 1) - 1)
    return None if start is None else Edit(start, "", f"{indent}{rest[0]}: {value}{_end(text)}")


def _in_place(text: str, item: Item, value: str) -> Edit | None:
    start = offset(text, item.place)
    if start is None or item.raw is None:
        return None
    quote = text[start : start + 1] if text[start : start + 1] in ("'", '"') else ""
    old = f"{quote}{item.raw}{quote}"
    return Edit(start, old, f" {value}" if not old and text[start - 1 : start] == ":" else value)


def _in_flow(text: str, first: Entry, rest: list[str], value: str) -> Edit | None:
    """``{tp: 1}``"""
    start = offset(text, first.place)
    return None if start is None or len(rest) > 1 else Edit(start, "", f"{rest[0]}: {value}, ")


def _at_the_end(text: str, steps: list[str], value: str) -> Edit:
    end, lines = _end(text), []
    for depth, step in enumerate(steps):
        lines.append(f"{'  ' * depth}{step}:" + (f" {value}" if depth == len(steps) - 1 else ""))
    gap = "" if not text or text.endswith("\n") else end
    return Edit(len(text), "", gap + "".join(f"{line}{end}" for line in lines))


def _end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _means(result: str, tree: Item, steps: list[str], wanted: Item) -> bool:
    """Tell whether a text means what was there before with the one value changed."""
    try:
        means = parse_yaml(result.encode("utf-8"), "").root.data()
    except InvalidFile:
        return False
    intended: Any = tree.data()
    at = intended
    for step in steps[:-1]:
        at = at.setdefault(step, {})
    at[steps[-1]] = wanted.data()
    return bool(means == intended)
