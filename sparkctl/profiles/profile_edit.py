"""Keeping a ``--set`` in a profile's file: one value of its text, so that comments, order and spelling stay as they are.

What it would mean is known before anything is written: the same as with ``--set``, or nothing is changed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sparkctl.errors import InvalidInput
from sparkctl.profiles import yamledit
from sparkctl.profiles.file_issues import InvalidFile
from sparkctl.profiles.library import ProfileLibrary
from sparkctl.profiles.overlays import parse_setting
from sparkctl.profiles.textedit import read_source, replace_file
from sparkctl.profiles.yaml_reader import YamlValue, parse_yaml
from sparkctl.profiles.yamledit import apply_checked_edit


def save_setting(library: ProfileLibrary, name: str, setting: str) -> tuple[Path, bool]:
    """Write ``field=value`` into the operator's own file of a profile; return that, and whether it was made as a copy of the
    shipped one.

    Raises `InvalidInput` where the profile does not take it or the file cannot be changed for certain, OSError.
    """
    library.load(name, [setting])
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
    """Return the text with one field set. Raises `InvalidInput` where it cannot be done for certain."""
    steps, wanted = _steps(parse_setting(setting))
    tree = parse_yaml(text.encode("utf-8"), file).root
    edit = yamledit.plan_value_edit(text, tree, steps, _spelt(wanted))
    result = None if edit is None else apply_checked_edit(text, edit, _intended(tree, steps, wanted))
    if result is None:
        raise InvalidInput(f"{file}: {'.'.join(steps)} cannot be changed there for certain", "e edits the file")
    return result


def _steps(item: YamlValue) -> tuple[list[str], YamlValue]:
    """Return the keys that lead to the one value of an override, and the value."""
    steps: list[str] = []
    while len(item.entries) == 1 and item.raw is None:
        key, entry = next(iter(item.entries.items()))
        steps.append(key)
        item = entry.item
    return steps, item


def _spelt(item: YamlValue) -> str:
    """Return a value as YAML has it: as it was typed where that means the same."""
    if item.raw is not None:
        try:
            if parse_yaml(f"x: {item.raw}\n".encode(), "").root.data() == {"x": item.value}:
                return item.raw
        except InvalidFile:
            pass
    return item.json()  # JSON is YAML


def _intended(tree: YamlValue, steps: list[str], wanted: YamlValue) -> Any:
    """Return what the file should mean: what it did, with the one value changed."""
    intended: Any = tree.data()
    at = intended
    for step in steps[:-1]:
        at = at.setdefault(step, {})
    at[steps[-1]] = wanted.data()
    return intended
