"""Change single values in a profile's file and keep its comments, order and spelling.

The result is parsed before anything is written: it must mean the same as with ``--set``, or nothing changes.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sparkctl.engines.lint import LintFix, LintFixKind
from sparkctl.errors import InvalidInput
from sparkctl.files import read_regular_file
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.profiles.profile_lint import LintDiagnostic
from sparkctl.profiles.validation import parse_setting
from sparkctl.profiles.yaml_reader import FilePosition, InvalidFile, YamlEntry, YamlValue, parse_yaml

_LINE_END = re.compile("\r\n|\r|\n|\u2028|\u2029")  # line ends, as YAML counts them
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_MAX_FILE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class TextEdit:
    """Replace ``old`` at offset ``start`` by ``new``."""

    start: int
    old: str
    new: str


def read_source(path: Path) -> tuple[bytes, str]:
    """Return a file's byte order mark, if it has one, and its text. Raises `InvalidInput` if it cannot be read."""
    try:
        raw = read_regular_file(path, _MAX_FILE_BYTES)
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be read: {error.strerror or error}") from error
    mark = _BYTE_ORDER_MARK if raw.startswith(_BYTE_ORDER_MARK) else b""
    return mark, raw[len(mark) :].decode("utf-8")


def position_to_offset(text: str, place: FilePosition) -> int | None:
    """Return the offset of a position in the text."""
    starts = [0, *(found.end() for found in _LINE_END.finditer(text))]
    if place.line is None or place.column is None or place.line > len(starts):
        return None
    return starts[place.line - 1] + place.column - 1


def replace_file(path: Path, raw: bytes) -> None:
    """Replace a file atomically: write a new one beside it and rename it; the mode is kept."""
    real = path.resolve()
    fresh = real.with_name(f".{real.name}.{secrets.token_hex(4)}")
    try:
        file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(file, "wb") as stream:
                stream.write(raw)
            fresh.chmod(real.stat().st_mode & 0o777)
            fresh.replace(real)
        finally:
            fresh.unlink(missing_ok=True)
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be written: {error.strerror or error}") from error


def apply_checked_edit(text: str, edit: TextEdit, intended: object) -> str | None:
    """Return the text with an edit applied, None if it does not apply or the result differs from ``intended``."""
    if not text.startswith(edit.old, edit.start):
        return None
    result = text[: edit.start] + edit.new + text[edit.start + len(edit.old) :]
    try:
        means = parse_yaml(result.encode("utf-8"), "").to_plain_data()
    except InvalidFile:
        return None
    return result if means == intended else None


def plan_value_edit(text: str, tree: YamlValue, steps: Sequence[str], value: str) -> TextEdit | None:
    """Return the one edit that sets a value (as YAML): in its place, at the head of its section, or with a new section at the end."""
    section, rest = tree, list(steps)
    entry: YamlEntry | None = None
    while rest and rest[0] in section.entries:
        entry = section.entries[rest.pop(0)]
        section = entry.item
    if entry is None:
        return _plan_appended_section(text, steps, value)
    if not rest:
        return _plan_scalar_edit(text, entry.item, value)
    first = next(iter(section.entries.values()), None)
    if len(rest) > 1 or first is None or first.place.line is None or entry.place.line is None:
        return None
    if first.place.line == entry.place.line:  # {tp: 1}
        start = position_to_offset(text, first.place)
        return None if start is None else TextEdit(start, "", f"{rest[0]}: {value}, ")
    # Behind the section's own line, so that a comment above its first entry stays with that entry.
    start = position_to_offset(text, FilePosition(first.place.file, entry.place.line + 1, 1))
    indent = " " * ((first.place.column or 1) - 1)
    return None if start is None else TextEdit(start, "", f"{indent}{rest[0]}: {value}{_detect_line_ending(text)}")


def plan_replacement(text: str, place: FilePosition, old: str, new: str) -> TextEdit | None:
    """Return the edit that replaces a key or scalar, plain or quoted, by ``new``."""
    start = position_to_offset(text, place)
    if start is None:
        return None
    quote = text[start : start + 1] if text[start : start + 1] in ("'", '"') else ""
    return TextEdit(start, f"{quote}{old}{quote}", new)


def _plan_scalar_edit(text: str, item: YamlValue, value: str) -> TextEdit | None:
    edit = None if item.raw is None else plan_replacement(text, item.place, item.raw, value)
    if edit is None or edit.old or text[edit.start - 1 : edit.start] != ":":
        return edit
    return TextEdit(edit.start, "", f" {value}")  # there was nothing before, not even a space


def _plan_appended_section(text: str, steps: Sequence[str], value: str) -> TextEdit:
    end, lines = _detect_line_ending(text), []
    for depth, step in enumerate(steps):
        lines.append(f"{'  ' * depth}{step}:" + (f" {value}" if depth == len(steps) - 1 else ""))
    gap = "" if not text or text.endswith("\n") else end
    return TextEdit(len(text), "", gap + "".join(f"{line}{end}" for line in lines))


def _detect_line_ending(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def save_setting(library: ProfileLibrary, name: str, setting: str) -> tuple[Path, bool]:
    """Write ``field=value`` into the operator's file of a profile. Return the file, and whether it is a new copy of the
    shipped one.

    Raises `InvalidInput` if the profile does not accept the value or the file cannot be edited safely; OSError.
    """
    library.load_profile(name, [setting])
    path, copied = library.get_or_copy_user_file(name)
    try:
        mark, before = read_source(path)
        replace_file(path, mark + set_field_in_text(before, setting, str(path)).encode("utf-8"))
    except BaseException:
        if copied:
            path.unlink()
        raise
    return path, copied


def set_field_in_text(text: str, setting: str, file: str) -> str:
    """Return the text with one field set. Raises `InvalidInput` if that cannot be done safely."""
    steps, wanted = _split_setting_tree(parse_setting(setting))
    tree = parse_yaml(text.encode("utf-8"), file)
    edit = plan_value_edit(text, tree, steps, _format_setting_value(wanted))
    result = None if edit is None else apply_checked_edit(text, edit, _compute_intended_data(tree, steps, wanted))
    if result is None:
        raise InvalidInput(f"{file}: {'.'.join(steps)} cannot be edited there safely", "e edits the file")
    return result


def _split_setting_tree(item: YamlValue) -> tuple[list[str], YamlValue]:
    """Return the keys that lead to the one value of an override, and the value."""
    steps: list[str] = []
    while len(item.entries) == 1 and item.raw is None:
        key, entry = next(iter(item.entries.items()))
        steps.append(key)
        item = entry.item
    return steps, item


def _format_setting_value(item: YamlValue) -> str:
    """Return a value as YAML: as typed if that means the same."""
    if item.raw is not None:
        try:
            if parse_yaml(f"x: {item.raw}\n".encode(), "").to_plain_data() == {"x": item.value}:
                return item.raw
        except InvalidFile:
            pass
    return item.to_json_text()  # JSON is YAML


def _compute_intended_data(tree: YamlValue, steps: list[str], wanted: YamlValue) -> Any:
    """Return what the file must mean after the edit: its content with the one value changed."""
    intended: Any = tree.to_plain_data()
    at = intended
    for step in steps[:-1]:
        at = at.setdefault(step, {})
    at[steps[-1]] = wanted.to_plain_data()
    return intended


def apply_lint_fixes(path: Path, diagnostics: Sequence[LintDiagnostic]) -> tuple[LintDiagnostic, ...]:
    """Fix what can be fixed safely in one file, and return the diagnostics that were fixed.

    Problems in a file that it extends are left alone. Raises `InvalidInput` if the file cannot be read or written.
    """
    mark, before = read_source(path)
    text = before
    done: list[LintDiagnostic] = []
    # Work from the end to the beginning, so that earlier positions stay valid.
    for one in sorted(diagnostics, key=lambda one: (one.place.line or 0, one.place.column or 0), reverse=True):
        if one.change is None or (one.place.file != str(path) and one.change.kind is not LintFixKind.ADD):
            continue
        edited = _apply_lint_fix(text, one.place, one.change, path)
        if edited is not None:
            text = edited
            done.append(one)
    if text != before:
        replace_file(path, mark + text.encode("utf-8"))
    return tuple(reversed(done))


def _apply_lint_fix(text: str, place: FilePosition, change: LintFix, path: Path) -> str | None:
    """Return the text with one fix applied, None if that cannot be done safely."""
    tree = parse_yaml(text.encode("utf-8"), str(path))
    section = tree.entries.get(str(change.where[0]))
    entry = None if section is None else section.item.entries.get(str(change.where[1]))
    if change.kind is LintFixKind.ADD:
        steps = [str(step) for step in change.where]
        is_free = entry is None or (
            entry.item.raw is not None and entry.item.value is None
        )  # null: the base's is left out
        edit = plan_value_edit(text, tree, steps, change.text) if is_free else None
    else:
        old = None if entry is None else str(change.where[1]) if change.kind is LintFixKind.RENAME else entry.item.raw
        edit = None if old is None else plan_replacement(text, place, old, change.text)
    return None if edit is None else apply_checked_edit(text, edit, _apply_lint_change(tree.to_plain_data(), change))


def _apply_lint_change(data: Any, change: LintFix) -> Any:
    """Return what the file must mean after a fix."""
    section, key = str(change.where[0]), str(change.where[1])
    entries = dict(data.get(section) or {})
    value: object = change.text == "true" or change.text
    if change.kind is LintFixKind.RENAME:
        entries = {change.text if name == key else name: kept for name, kept in entries.items()}
        if len(entries) < len(data[section]):
            return None  # it exists under both names
    else:
        entries[key] = value
    return {**data, section: entries}
