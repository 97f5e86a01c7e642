"""One value set in the text of a YAML file: comments, order and spelling stay, and what it then means is proved. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from sparkctl.core.faults import InvalidFile, Place
from sparkctl.core.textedit import Edit, offset
from sparkctl.core.yamlfile import Entry, Item, parse_yaml


def proved(text: str, edit: Edit, intended: object) -> str | None:
    """Return the text with an edit made, None where it cannot be made or would mean anything else than ``intended``."""
    if not text.startswith(edit.old, edit.start):
        return None
    result = text[: edit.start] + edit.new + text[edit.start + len(edit.old) :]
    try:
        means = parse_yaml(result.encode("utf-8"), "").root.data()
    except InvalidFile:
        return None
    return result if means == intended else None


def setting(text: str, tree: Item, steps: Sequence[str], value: str) -> Edit | None:
    """Return the one edit that sets a value, given as YAML: in its place, as the first entry of its section, or with its
    section at the end of the file."""
    section, rest = tree, list(steps)
    entry: Entry | None = None
    while rest and rest[0] in section.entries:
        entry = section.entries[rest.pop(0)]
        section = entry.item
    if entry is None:
        return _at_the_end(text, steps, value)
    if not rest:
        return _in_place(text, entry.item, value)
    first = next(iter(section.entries.values()), None)
    if len(rest) > 1 or first is None or first.place.line is None or entry.place.line is None:
        return None
    if first.place.line == entry.place.line:  # {tp: 1}
        start = offset(text, first.place)
        return None if start is None else Edit(start, "", f"{rest[0]}: {value}, ")
    # Behind the section's own line: a comment above its first entry stays with that.
    start = offset(text, Place(first.place.file, entry.place.line + 1, 1))
    indent = " " * ((first.place.column or 1) - 1)
    return None if start is None else Edit(start, "", f"{indent}{rest[0]}: {value}{_end(text)}")


def replacing(text: str, place: Place, old: str, new: str) -> Edit | None:
    """Return the edit that puts ``new`` in place of a key or scalar, plain or in quotes."""
    start = offset(text, place)
    if start is None:
        return None
    quote = text[start : start + 1] if text[start : start + 1] in ("'", '"') else ""
    return Edit(start, f"{quote}{old}{quote}", new)


def _in_place(text: str, item: Item, value: str) -> Edit | None:
    edit = None if item.raw is None else replacing(text, item.place, item.raw, value)
    if edit is None or edit.old or text[edit.start - 1 : edit.start] != ":":
        return edit
    return Edit(edit.start, "", f" {value}")  # nothing stood there, not even a space


def _at_the_end(text: str, steps: Sequence[str], value: str) -> Edit:
    end, lines = _end(text), []
    for depth, step in enumerate(steps):
        lines.append(f"{'  ' * depth}{step}:" + (f" {value}" if depth == len(steps) - 1 else ""))
    gap = "" if not text or text.endswith("\n") else end
    return Edit(len(text), "", gap + "".join(f"{line}{end}" for line in lines))


def _end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"
