"""One value set in the text of a YAML file: comments, order and spelling stay, and what it then means is proved. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from sparkctl.profiles.file_issues import FilePosition, InvalidFile
from sparkctl.profiles.textedit import TextEdit, position_to_offset
from sparkctl.profiles.yaml_reader import YamlEntry, YamlValue, parse_yaml


def apply_checked_edit(text: str, edit: TextEdit, intended: object) -> str | None:
    """Return the text with an edit made, None where it cannot be made or would mean anything else than ``intended``."""
    if not text.startswith(edit.old, edit.start):
        return None
    result = text[: edit.start] + edit.new + text[edit.start + len(edit.old) :]
    try:
        means = parse_yaml(result.encode("utf-8"), "").root.data()
    except InvalidFile:
        return None
    return result if means == intended else None


def plan_value_edit(text: str, tree: YamlValue, steps: Sequence[str], value: str) -> TextEdit | None:
    """Return the one edit that sets a value, given as YAML: in its place, as the first entry of its section, or with its
    section at the end of the file."""
    section, rest = tree, list(steps)
    entry: YamlEntry | None = None
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
        start = position_to_offset(text, first.place)
        return None if start is None else TextEdit(start, "", f"{rest[0]}: {value}, ")
    # Behind the section's own line: a comment above its first entry stays with that.
    start = position_to_offset(text, FilePosition(first.place.file, entry.place.line + 1, 1))
    indent = " " * ((first.place.column or 1) - 1)
    return None if start is None else TextEdit(start, "", f"{indent}{rest[0]}: {value}{_end(text)}")


def plan_replacement(text: str, place: FilePosition, old: str, new: str) -> TextEdit | None:
    """Return the edit that puts ``new`` in place of a key or scalar, plain or in quotes."""
    start = position_to_offset(text, place)
    if start is None:
        return None
    quote = text[start : start + 1] if text[start : start + 1] in ("'", '"') else ""
    return TextEdit(start, f"{quote}{old}{quote}", new)


def _in_place(text: str, item: YamlValue, value: str) -> TextEdit | None:
    edit = None if item.raw is None else plan_replacement(text, item.place, item.raw, value)
    if edit is None or edit.old or text[edit.start - 1 : edit.start] != ":":
        return edit
    return TextEdit(edit.start, "", f" {value}")  # nothing stood there, not even a space


def _at_the_end(text: str, steps: Sequence[str], value: str) -> TextEdit:
    end, lines = _end(text), []
    for depth, step in enumerate(steps):
        lines.append(f"{'  ' * depth}{step}:" + (f" {value}" if depth == len(steps) - 1 else ""))
    gap = "" if not text or text.endswith("\n") else end
    return TextEdit(len(text), "", gap + "".join(f"{line}{end}" for line in lines))


def _end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"
