"""Merge profiles: a variant over its base, ``--set`` over both. Build the `Profile`; every fault is reported, with its position."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from sparkctl.engines import load_engine
from sparkctl.errors import find_closest_match, format_did_you_mean
from sparkctl.model.decode_step import RoutedExperts
from sparkctl.model.profile import ModelSpec, Profile
from sparkctl.model.profile_field import FieldKind, ProfileField
from sparkctl.model.text.secrets import contains_token, is_secret_name, redact
from sparkctl.profiles.field_types import FIELD_TYPES, MAP_TYPES
from sparkctl.profiles.schema import FileField, FileSection, list_valid_keys, load_file_shape
from sparkctl.profiles.yaml_reader import (
    FileIssue,
    FilePosition,
    InvalidFile,
    YamlEntry,
    YamlPath,
    YamlValue,
    describe_value,
    find_forbidden_character,
    find_position,
    find_value,
    parse_yaml,
    quote_source,
    resolve_scalar,
)


def validate_profile(tree: YamlValue, origin: Path, *, shipped: bool) -> Profile:
    """Return the profile that a tree describes. Raises `InvalidFile` with every fault."""
    if not isinstance(tree.value, dict):
        raise InvalidFile([FileIssue(tree.place, "a profile is a map that begins with `schema: 1`")])
    reader = _ProfileReader(tree)
    values = reader.read_section(load_file_shape(), tree, ())
    if reader.faults:
        raise InvalidFile(reader.faults)
    profile = Profile(**values, origin=str(origin), shipped=shipped)
    if profile.api_key is not None and (fault := _find_api_key_fault(profile)) is not None:
        item = find_value(tree, ("api_key",))
        raise InvalidFile([FileIssue(item.place if item else tree.place, f"no key can be generated: {fault}")])
    return dataclasses.replace(profile, digest=compute_profile_hash(profile))


def _find_api_key_fault(profile: Profile) -> str | None:
    """Return why no key can be made for this profile, None if one can."""
    engine = load_engine(profile.engine)
    if not engine.api_key_variables:
        return (
            f"{engine.title} takes none that stays secret ({engine.api_key_obstacle}); leave it out, let it listen on "
            f"127.0.0.1 (usually args.host), and reach it with: sparkctl tunnel {profile.name}"
        )
    if engine.find_api_key(profile) is not None:
        return "args.api-key gives it a key already; leave one of them out"
    if (own := next((name for name, _ in profile.env if name in engine.api_key_variables), None)) is not None:
        return f"env.{own} gives it a key already; leave one of them out"
    return None


def compute_profile_hash(profile: Profile) -> str:
    """Return the profile hash: 12 hex digits over every field that differs from its default and affects the start."""
    content = _collect_nondefault_fields(profile, _list_hashed_names())
    text = json.dumps(content, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@cache
def _list_hashed_names() -> frozenset[str]:
    return frozenset(field.name for field in _iter_hashed_fields(load_file_shape()) if field.name is not None)


def _iter_hashed_fields(section: FileSection) -> Iterator[FileField]:
    for field in section.fields.values():
        if field.name is None and field.section is not None:
            yield from _iter_hashed_fields(field.section)
        elif field.spec.is_hashed:
            yield field


def _collect_nondefault_fields(value: Any, names: frozenset[str] | None = None) -> Any:
    """Return the fields that differ from their defaults: a new field changes no older hash. ``names``: of the value itself, these alone."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, tuple):
        return [_collect_nondefault_fields(each) for each in value]
    return {
        name: _collect_nondefault_fields(own)
        for name, default in _list_defaults(value.__class__)
        if (names is None or name in names) and (own := getattr(value, name)) != default
    }


@cache
def _list_defaults(kind: type) -> tuple[tuple[str, Any], ...]:
    """Return the fields of a dataclass with their defaults."""
    return tuple(
        (one.name, one.default if one.default_factory is dataclasses.MISSING else one.default_factory())
        for one in dataclasses.fields(kind)
    )


def read_section_list(field: FileField, data: list[Any]) -> tuple[Any, ...]:
    """Return the value of a list of sections from the JSON of an export. Raises `InvalidFile` with every fault."""
    assert field.section is not None
    tree = parse_yaml(json.dumps({field.key: data}, ensure_ascii=False).encode("utf-8", "replace"), "an export")
    reader = _ProfileReader(tree)
    found = reader.read_section_list(field.section, tree.entries[field.key].item, (field.key,))
    if reader.faults:
        raise InvalidFile(reader.faults)
    return found


class _ProfileReader:
    """Reads values for the attributes of `Profile` from a tree, and collects the faults."""

    def __init__(self, tree: YamlValue) -> None:
        self.tree = tree
        self.faults: list[FileIssue] = []

    def read_section(self, section: FileSection, item: YamlValue, path: YamlPath) -> dict[str, Any]:
        """Return the attributes of a section's type; a null counts as absent."""
        entries = {
            key: below for key, (_, below) in item.entries.items() if below.value is not None or below.raw is None
        }
        found: dict[str, Any] = {}
        for key, field in section.fields.items():
            if key in entries:
                self._read_field(field, entries[key], (*path, key), found)
            elif field.default is dataclasses.MISSING:
                more = "; add `schema: 1` as the first line" if (*path, key) == ("schema",) else ""
                self._add_fault((*path, key), f"is missing{more}", at_key=True)
        for key in [one for one in entries if one not in section.fields]:
            self._add_fault((*path, key), f"unknown key{_suggest_key((*path, key))}", at_key=True)
        for key, other, message in _find_conflicts(section.type, found):
            self._add_conflict((*path, key), (*path, other), message)
        return found

    def _read_field(self, field: FileField, item: YamlValue, path: YamlPath, found: dict[str, Any]) -> None:
        before = len(self.faults)
        value: Any = None
        if field.section is not None and field.is_list:
            value = self.read_section_list(field.section, item, path)
        elif field.section is not None:
            if field.can_be_off and (item.value is False or item.value == "off"):
                value = None
            elif not isinstance(item.value, dict):
                self._add_fault(path, _describe_bad_section(field, field.section, item))
            else:
                inner = self.read_section(field.section, item, path)
                if field.section.type is None:
                    found |= inner
                elif len(self.faults) == before:
                    value = field.section.type(**inner)
        elif field.spec.kind in MAP_TYPES:
            value = self._read_map(field.spec, item, path)
        elif not field.is_list:
            value = self._read_value(field.spec, item, path)
        elif isinstance(item.value, tuple):
            value = tuple(self._read_value(field.spec, each, (*path, at)) for at, each in enumerate(item.value))
        else:
            self._add_fault(path, f"must be a list, not {describe_value(item)}")
        if field.name is not None and len(self.faults) == before:
            found[field.name] = value

    def read_section_list(self, section: FileSection, item: YamlValue, path: YamlPath) -> tuple[Any, ...]:
        """Return the values of a list of maps of one type."""
        if not isinstance(item.value, tuple):
            self._add_fault(path, f"must be a list of maps ({', '.join(section.fields)}), not {describe_value(item)}")
            return ()
        assert section.type is not None
        found = []
        for at, each in enumerate(item.value):
            before = len(self.faults)
            if not isinstance(each.value, dict):
                self._add_fault((*path, at), f"must be a map ({', '.join(section.fields)}), not {describe_value(each)}")
                continue
            inner = self.read_section(section, each, (*path, at))
            if len(self.faults) == before:
                found.append(section.type(**inner))
        return tuple(found)

    def _read_map(self, spec: ProfileField, item: YamlValue, path: YamlPath) -> tuple[tuple[str, Any], ...]:
        """Return a map with free keys as pairs in the order of the file."""
        if not isinstance(item.value, dict):
            self._add_fault(path, f"must be a map, not {describe_value(item)}")
        found: list[tuple[str, Any]] = []
        for key, entry in item.entries.items():
            try:
                found += MAP_TYPES[spec.kind].parse_entry(key, entry.item)
            except ValueError as error:
                # A fault of the key itself is shown at the key.
                place = entry.item.place if entry.item.value is not None else entry.place
                self.faults.append(FileIssue(place, f"{_format_dotted_path((*path, key))}: {error}"))
        return tuple(found)

    def _read_value(self, spec: ProfileField, item: YamlValue, path: YamlPath) -> Any:
        try:
            return _parse_value(spec, item, path)
        except ValueError as error:
            name = _format_dotted_path(path)
            colon = "" if is_secret_name(name) else ":"  # what follows `api_key:` would be masked
            self.faults.append(FileIssue(item.place, f"{name}{colon} {error}"))
            return None

    def _add_fault(self, path: YamlPath, message: str, *, at_key: bool = False) -> None:
        place = find_position(self.tree, path, key=at_key)
        self.faults.append(FileIssue(place, f"{_format_dotted_path(path)}: {message}"))

    def _add_conflict(self, path: YamlPath, other: YamlPath, message: str) -> None:
        """Add a fault of two fields at the position of the first, or of the one that was set on the command line."""
        place, others = find_position(self.tree, path), find_position(self.tree, other)
        if place.line is not None and others.line is None:
            place = others
        self.faults.append(FileIssue(place, f"{_format_dotted_path(path)}: {message}"))


def _parse_value(spec: ProfileField, item: YamlValue, path: YamlPath) -> Any:
    """Return a field's value. Numbers are read only where a field is one: elsewhere 1.10 stays 1.10."""
    is_number = isinstance(item.value, int | float) and not isinstance(item.value, bool)
    if spec.kind is FieldKind.BOOLEAN:
        if not isinstance(item.value, bool):
            raise ValueError(f"must be true or false, not {describe_value(item)}")
        return item.value
    if spec.limits is not None:
        return _parse_integer(item, spec.limits, path)
    if spec.kind is FieldKind.CHOICE:
        if item.raw is None or item.raw not in spec.choices:
            raise ValueError(_describe_bad_choice(item, spec.choices))
        return item.raw
    if not isinstance(item.value, str) and not is_number:
        quotes = "; put it in quotes" if isinstance(item.value, bool) else ""
        raise ValueError(f"must be text, not {describe_value(item)}{quotes}")
    text = item.raw or ""
    if not text.strip() and spec.kind not in (FieldKind.WORD, FieldKind.ENGINE):
        raise ValueError("must not be empty")
    return FIELD_TYPES[spec.kind].parse(text)


def _parse_integer(item: YamlValue, limits: tuple[int, int], path: YamlPath) -> int:
    low, high = limits
    is_integer = isinstance(item.value, int) and not isinstance(item.value, bool)
    if path == ("schema",) and not (is_integer and item.value == high):
        raise ValueError(f"is {describe_value(item)}; this sparkctl reads `schema: {high}`")
    if not is_integer:
        raise ValueError(f"must be a whole number, not {describe_value(item)}")
    if not low <= int(str(item.value)) <= high:
        raise ValueError(f"must be {low} to {high}, not {describe_value(item)}")
    return int(str(item.value))


def _find_conflicts(kind: type | None, found: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield fields that conflict with another one of their section: both names, and the message."""
    if kind is RoutedExperts and {"count", "per_token"} <= found.keys() and found["per_token"] > found["count"]:
        yield "per_token", "count", f"a token uses {found['per_token']} experts, but there are only {found['count']}"
    if kind is not ModelSpec:
        return
    active, total = found.get("active_parameters"), found.get("parameters")
    if active is not None and total is not None and active > total:
        message = f"{active} parameters are active, but the model has only {total}"
        yield "active_parameters", "parameters", message
    experts, weights = found.get("experts"), found.get("weights")
    if experts is not None and weights is not None and experts.weights > weights:
        yield (
            "experts",
            "weights",
            f"the experts' weights ({experts.weights}) are larger than the model's ({weights}); `weights` is the whole model",
        )


def _describe_bad_section(field: FileField, section: FileSection, item: YamlValue) -> str:
    if not field.can_be_off:
        return f"must be a map, not {describe_value(item)}"
    return f"must be a map ({', '.join(section.fields)}) or off, not {describe_value(item)}"


def _format_dotted_path(path: YamlPath) -> str:
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def _suggest_key(path: YamlPath) -> str:
    """Return where an unknown key belongs, or which key it resembles."""
    key = str(path[-1])
    for section in ("container", "model", "memory", "start", "stop"):
        if path[:-1] != (section,) and key.replace("-", "_") in list_valid_keys([section]):
            return f"; it belongs under `{section}`"
    if len(path) > 1 and key in list_valid_keys([]):
        return "; it belongs at the top level"
    near = format_did_you_mean(key, list_valid_keys(path[:-1]))
    return near or ("; a flag of the engine belongs under `args`" if len(path) == 1 else "")


def _describe_bad_choice(item: YamlValue, choices: tuple[str, ...]) -> str:
    near = find_closest_match(item.raw, choices) if item.raw else None
    listed = " or ".join(filter(None, (", ".join(choices[:-1]), choices[-1])))
    return f"must be {listed}, not {describe_value(item)}" + (f"; did you mean `{near}`?" if near else "")


# --- trees before they are checked ---

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


_MEASURED_WITH = ("engine", "image", "model", "nodes", "command", "args", "env")  # what a measured speed hangs on


def merge_profile_layer(base: YamlValue, top: YamlValue) -> YamlValue:
    """Merge a variant or ``--set`` over a profile; a kept ``reference`` is one of other settings where they change the speed."""
    merged = merge_profile_trees(base, top)
    kept = merged.entries.get("reference")
    changed = [
        f"{key}.{name}" if isinstance(entry.item.value, dict) else key
        for key, entry in top.entries.items()
        if key in _MEASURED_WITH
        for name in (entry.item.entries or (key,))
    ]
    if kept is None or "reference" in top.entries or not changed or not isinstance(kept.item.value, tuple):
        return merged
    words = f"another {', '.join(changed[:3])}{' and more' if len(changed) > 3 else ''}"
    note = YamlEntry(top.place, YamlValue(top.place, words, words))
    marked = tuple(
        YamlValue(one.place, {"differs": note, **one.value}) if isinstance(one.value, dict) else one
        for one in kept.item.value
    )
    return YamlValue(
        merged.place, {**merged.entries, "reference": YamlEntry(kept.place, YamlValue(kept.item.place, marked))}
    )


def strip_base_fields(item: YamlValue) -> YamlValue:
    """Return what a variant inherits from its base: everything but its name and its own base."""
    return YamlValue(item.place, {key: entry for key, entry in item.entries.items() if key not in ("name", "extends")})


def find_token_issues(item: YamlValue, path: tuple[str | int, ...] = ()) -> list[FileIssue]:
    """Return a fault for every scalar or key that has the shape of a token. The token is not repeated."""
    if item.raw is None:
        found = []
        for key, entry in item.entries.items():
            if contains_token(key):
                found.append(FileIssue(entry.place, "a key holds a token"))
            if entry.item.raw is None or contains_token(entry.item.raw):
                found += find_token_issues(entry.item, (*path, key))
        for index, each in enumerate(item.value if isinstance(item.value, tuple) else ()):
            found += find_token_issues(each, (*path, index))
        return found
    if not contains_token(item.raw):
        return []
    words = "".join(f"[{step}]" if isinstance(step, int) else f".{redact(step)}" for step in path).removeprefix(".")
    return [
        FileIssue(
            item.place,
            f"{words}: this is a token; do not store one in a profile: write ${{HF_TOKEN}} under env (your own "
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
    if steps[0] != "env" and not value.strip():  # a shell's variable that is not set, more often than a wish
        raise InvalidFile([FileIssue(place, "it has no value; write null to take the profile's own away")])
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
        return _with_single_position(parse_yaml(stripped.encode("utf-8", "replace"), place.file), place)
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
