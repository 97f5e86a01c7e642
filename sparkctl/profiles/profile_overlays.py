"""Merge profiles as trees before they are checked: a variant over its base, ``--set`` over both, positions kept."""

from __future__ import annotations

from sparkctl.model.text.secrets import contains_token, redact
from sparkctl.profiles.file_issues import FileIssue, FilePosition, InvalidFile, quote_source
from sparkctl.profiles.yaml_reader import YamlEntry, YamlValue, find_forbidden_character, parse_yaml, resolve_scalar

FIELDS_NOT_SETTABLE = ("schema", "name", "extends")  # fields that --set cannot change


def merge_profile_trees(base: YamlValue, top: YamlValue) -> YamlValue:
    """Merge ``top`` over ``base``: maps merge, lists and scalars replace, null removes what the base has."""
    if not isinstance(base.value, dict) or not isinstance(top.value, dict):
        return top
    merged = dict(base.value)
    for key, entry in top.value.items():
        below = merged.get(key)
        if below is not None and entry.item.value is None:
            del merged[key]
        else:
            merged[key] = YamlEntry(entry.place, merge_profile_trees(below.item, entry.item)) if below else entry
    return YamlValue(top.place if top.place.line else base.place, merged)  # a missing field has no position in a flag


def strip_base_fields(item: YamlValue) -> YamlValue:
    """Return what a variant inherits from its base: everything but its name and its own base."""
    return YamlValue(item.place, {key: entry for key, entry in item.entries.items() if key not in ("name", "extends")})


def find_token_issues(item: YamlValue, path: str = "") -> list[FileIssue]:
    """Return a fault for every scalar or key that has the shape of a token. The token is not repeated."""
    if isinstance(item.value, dict):
        found = []
        for key, entry in item.value.items():
            below = f"{path}.{redact(key)}" if path else redact(key)
            found += [FileIssue(entry.place, "a key holds a token")] if contains_token(key) else []
            found += find_token_issues(entry.item, below)
        return found
    if isinstance(item.value, tuple):
        return [fault for index, each in enumerate(item.value) for fault in find_token_issues(each, f"{path}[{index}]")]
    if item.raw is None or not contains_token(item.raw):
        return []
    return [
        FileIssue(
            item.place,
            f"{path}: this is a token; do not store one in a profile: write ${{HF_TOKEN}} under env (your own "
            "environment's), or name an env_file",
        )
    ]


def parse_setting(text: str) -> YamlValue:
    """Return ``args.mem-fraction-static=0.7`` as the tree to merge over the profile. Raises `InvalidFile`."""
    place = FilePosition(f"--set {redact(text)}")
    if bad := find_forbidden_character(text):
        raise InvalidFile([FileIssue(place, f"a control character (U+{ord(bad[0]):04X}) is not allowed here")])
    path, equals, value = text.partition("=")
    steps = path.strip().split(".")
    if not equals or not all(steps):
        raise InvalidFile([FileIssue(place, "write --set field=value, as in --set args.mem-fraction-static=0.7")])
    if steps[0] in FIELDS_NOT_SETTABLE:
        raise InvalidFile(
            [FileIssue(place, f"{quote_source(steps[0])} cannot be set here; write a profile that extends this one")]
        )
    if steps[0] == "env" and len(steps) > 2:
        steps = ["env", ".".join(steps[1:])]
    item = _parse_setting_value(value, place, is_text=steps[0] == "env")
    for step in reversed(steps):
        item = YamlValue(place, {step: YamlEntry(place, item)})
    return item


def _parse_setting_value(text: str, place: FilePosition, *, is_text: bool) -> YamlValue:
    """Return an override's value: a YAML scalar, or a list or map in brackets."""
    if is_text:
        return YamlValue(place, text, text)
    stripped = text.strip()
    if not stripped.startswith(("[", "{", '"', "'")):
        return YamlValue(place, resolve_scalar(stripped), stripped)
    try:
        return _with_single_position(parse_yaml(stripped.encode("utf-8", "replace"), place.file).root, place)
    except InvalidFile as error:
        raise InvalidFile(FileIssue(place, fault.message) for fault in error.faults) from None


def _with_single_position(item: YamlValue, place: FilePosition) -> YamlValue:
    """Return the same tree with one position for all of it: lines and columns mean nothing inside a flag."""
    if isinstance(item.value, dict):
        return YamlValue(
            place, {k: YamlEntry(place, _with_single_position(entry.item, place)) for k, entry in item.value.items()}
        )
    if isinstance(item.value, tuple):
        return YamlValue(place, tuple(_with_single_position(each, place) for each in item.value))
    return YamlValue(place, item.value, item.raw)
