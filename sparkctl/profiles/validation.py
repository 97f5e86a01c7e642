"""Build the frozen `Profile` from a profile's tree, or report every fault in it with its position."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from sparkctl.model.decode_step import RoutedExperts
from sparkctl.model.launch_plan import GuardRule, PhaseTimeouts
from sparkctl.model.profile import ArgValue, ContainerOptions, FlagValues, JsonValue, ModelSpec, Profile, StartOptions
from sparkctl.model.text.suggestions import find_closest_match, format_did_you_mean
from sparkctl.profiles import field_types as kinds
from sparkctl.profiles.docker_options import BARE_FLAG_VALUE, DockerOptionKind
from sparkctl.profiles.file_issues import FileIssue, FilePosition, InvalidFile, quote_source
from sparkctl.profiles.schema import (
    ConflictingFieldError,
    ExpertsSection,
    GuardDisabled,
    ProfileFile,
    StartSection,
    list_valid_keys,
)
from sparkctl.profiles.yaml_reader import YamlEntry, YamlValue, find_position, find_value

SectionPath = tuple[str, ...]
EntryPairs = list[tuple[str, Any]]


class _MissingValueError(ValueError):
    """The entry has no value."""


def parse_arg_entry(key: str, item: YamlValue) -> EntryPairs:
    """One engine flag with its value as it will be on the command line."""
    kinds.check_arg_key(key)
    return [(key, _parse_arg_value(item))]


def _parse_arg_value(item: YamlValue) -> ArgValue:
    if item.value is None:
        raise _MissingValueError("has no value; write true for a bare flag, false to leave it out")
    if isinstance(item.value, bool):
        return item.value
    if isinstance(item.value, dict):
        return JsonValue(item.to_json_text())
    if isinstance(item.value, tuple):
        if len(item.value) == 1 and isinstance(item.value[0].value, tuple):
            return FlagValues(tuple(_parse_repeated_value(each) for each in item.value[0].value))
        return tuple(_parse_repeated_value(each) for each in item.value)
    return item.raw or ""


def _parse_repeated_value(item: YamlValue) -> str:
    if isinstance(item.value, dict):
        return item.to_json_text()
    if isinstance(item.value, tuple) or item.value is None or isinstance(item.value, bool):
        raise ValueError("a list repeats the flag, so each of its entries is text or a number (or a map, as JSON)")
    return item.raw or ""


def parse_env_entry(key: str, item: YamlValue) -> EntryPairs:
    """One environment variable; any scalar by its text."""
    if item.raw is None:
        raise ValueError("must be text")
    if item.value is None and item.raw != "":
        raise _MissingValueError('has no value; write "" for an empty one')
    if item.value is None:
        raise _MissingValueError(f'has no value; write "" for an empty one, ${{{key}}} for your own')
    return [(key, kinds.check_env_value(key, item.raw))]


def parse_extra_entry(key: str, item: YamlValue) -> EntryPairs:
    """One value that an import kept, of any type."""
    return [(key, JsonValue(item.to_json_text()))]


def parse_ulimit_entry(key: str, item: YamlValue) -> EntryPairs:
    """One ulimit."""
    if item.raw is None:
        raise ValueError("must be a number or soft:hard")
    return [(key, kinds.check_ulimit(key, item.raw))]


def parse_docker_option_entry(key: str, item: YamlValue) -> EntryPairs:
    """One docker run flag; a list repeats it."""
    kind = kinds.find_docker_option_kind(key)
    if kind is DockerOptionKind.FLAG:
        if not isinstance(item.value, bool):
            raise ValueError("must be true or false")
        return [(key, BARE_FLAG_VALUE)] if item.value else []
    several = item.value if isinstance(item.value, tuple) else (item,)
    if isinstance(item.value, tuple) and kind is not DockerOptionKind.LIST:
        raise ValueError("takes one value, not a list")
    if any(each.raw is None or isinstance(each.value, bool) or not each.raw.strip() for each in several):
        raise ValueError("must be text" if kind is DockerOptionKind.TEXT else "must be text or a list of text")
    return [(key, kinds.check_docker_option_value(key, each.raw or "")) for each in several]


ENTRY_PARSERS: dict[SectionPath, Callable[[str, YamlValue], EntryPairs]] = {
    ("args",): parse_arg_entry,
    ("env",): parse_env_entry,
    ("extra",): parse_extra_entry,
    ("container", "ulimits"): parse_ulimit_entry,
    ("container", "options"): parse_docker_option_entry,
}


def parse_map_entries(
    path: SectionPath, entries: dict[str, YamlEntry], faults: list[FileIssue]
) -> tuple[tuple[str, Any], ...]:
    """Return a free map as pairs in the order of the file; faults of its entries are collected."""
    rule = ENTRY_PARSERS[path]
    found: EntryPairs = []
    for key, entry in entries.items():
        try:
            found += rule(key, entry.item)
        except ValueError as error:
            # A fault of the key itself is shown at the key.
            place = entry.item.place if entry.item.value is not None else entry.place
            faults.append(FileIssue(place, f"{'.'.join((*path, key))}: {error}"))
    return tuple(found)


# Only these are numbers; everywhere else a number stays the text that was written (1.10 stays 1.10).
_NUMBER_FIELDS = (("schema",), ("nodes",), ("port",))
# Fields that the profile hash ignores.
_UNHASHED_FIELDS = (
    "engine_version", "patched_flags", "title", "notes", "source", "extra", "origin", "shipped", "digest",
    "draft_workspace",
)  # fmt: skip
_TYPE_ERROR_MESSAGES = {
    "int_type": "must be a whole number",
    "bool_type": "must be true or false",
    "list_type": "must be a list",
    "tuple_type": "must be a map",
    "model_type": "must be a map",
}


def validate_profile(tree: YamlValue, origin: Path, *, shipped: bool) -> Profile:
    """Return the profile that a tree describes. Raises `InvalidFile` with every fault."""
    if not isinstance(tree.value, dict):
        raise InvalidFile([FileIssue(tree.place, "a profile is a map that begins with `schema: 1`")])
    faults: list[FileIssue] = []
    data = _tree_to_schema_data(tree, (), faults)
    try:
        file = ProfileFile.model_validate(data)
    except ValidationError as error:
        faults += [
            _build_schema_issue(tree, detail) for detail in error.errors(include_url=False, include_context=True)
        ]
    if faults:
        raise InvalidFile(faults)
    profile = _build_profile(file, str(origin), shipped)
    return dataclasses.replace(profile, digest=compute_profile_hash(profile))


def compute_profile_hash(profile: Profile) -> str:
    """Return the profile hash: 12 hex digits over every field that differs from its default and affects the start."""
    content = {key: value for key, value in _collect_nondefault_fields(profile).items() if key not in _UNHASHED_FIELDS}
    text = json.dumps(content, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _collect_nondefault_fields(value: Any) -> Any:
    """Return the fields that differ from their defaults, so that a field added later does not change older hashes."""
    if isinstance(value, tuple):
        return [_collect_nondefault_fields(each) for each in value]
    if not dataclasses.is_dataclass(value):
        return value
    found: dict[str, Any] = {}
    for field in dataclasses.fields(value):
        default = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        own = getattr(value, field.name)
        if own != default:
            found[field.name] = _collect_nondefault_fields(own)
    return found


def _tree_to_schema_data(item: YamlValue, path: tuple[str, ...], faults: list[FileIssue]) -> Any:
    """Return data for the schema: free maps as pairs, null as absent, numbers as text for text fields."""
    if isinstance(item.value, dict):
        if path in ENTRY_PARSERS:
            return parse_map_entries(path, item.value, faults)
        return {
            key: _tree_to_schema_data(entry.item, (*path, key), faults)
            for key, entry in item.value.items()
            if entry.item.value is not None or entry.item.raw is None
        }
    if isinstance(item.value, tuple):
        return [_tree_to_schema_data(each, (*path, "[]"), faults) for each in item.value]
    if isinstance(item.value, int | float) and not isinstance(item.value, bool) and path not in _NUMBER_FIELDS:
        return item.raw
    return item.value


def _build_schema_issue(tree: YamlValue, detail: ErrorDetails) -> FileIssue:
    """Return a schema error as an issue, in plain words and with its position."""
    path, kind = detail["loc"], detail["type"]
    field = _format_dotted_path(path)
    if kind == "extra_forbidden":
        return FileIssue(find_position(tree, path, key=True), f"{field}: unknown key{_suggest_key(path)}")
    if kind == "missing":
        return FileIssue(find_position(tree, path, key=True), f"{field}: is missing")
    place = find_position(tree, path)
    if kind == "value_error":
        return FileIssue(
            _find_conflict_position(tree, path, detail["ctx"]["error"]), f"{field}: {detail['ctx']['error']}"
        )
    if kind == "literal_error":
        return FileIssue(place, f"{field}: {_describe_bad_literal(tree, path, detail['ctx']['expected'])}")
    if kind in ("greater_than_equal", "less_than_equal"):
        return FileIssue(place, f"{field}: {_describe_range(path)}, not {_describe_value(find_value(tree, path))}")
    if kind == "string_type":
        seen = find_value(tree, path)
        quote = "; put it in quotes" if seen is not None and isinstance(seen.value, bool) else ""
        return FileIssue(place, f"{field}: must be text, not {_describe_value(seen)}{quote}")
    if kind in _TYPE_ERROR_MESSAGES:
        return FileIssue(place, f"{field}: {_TYPE_ERROR_MESSAGES[kind]}, not {_describe_value(find_value(tree, path))}")
    return FileIssue(place, f"{field}: {detail['msg']}")


def _find_conflict_position(tree: YamlValue, path: tuple[str | int, ...], error: Exception) -> FilePosition:
    """Return the position of a field; of two conflicting fields, that of the one set on the command line."""
    place = find_position(tree, path)
    if isinstance(error, ConflictingFieldError) and place.line is not None:
        other = find_position(tree, (*path[:-1], error.other))
        return other if other.line is None else place
    return place


def _format_dotted_path(path: tuple[str | int, ...]) -> str:
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def _suggest_key(path: tuple[str | int, ...]) -> str:
    """Return where an unknown key belongs, or which key it resembles."""
    key = str(path[-1])
    for section in ("container", "model", "memory", "start", "stop"):
        if path[:-1] != (section,) and key.replace("-", "_") in list_valid_keys([section]):
            return f"; it belongs under `{section}`"
    if len(path) > 1 and key in list_valid_keys([]):
        return "; it belongs at the top level"
    return format_did_you_mean(key, list_valid_keys(path[:-1]))


def _describe_bad_literal(tree: YamlValue, path: tuple[str | int, ...], expected: str) -> str:
    seen = find_value(tree, path)
    if path == ("schema",):
        return f"is {_describe_value(seen)}; this sparkctl reads `schema: 1`"
    choices = [word.strip("' ") for word in expected.replace(" or ", ",").split(",")]
    near = find_closest_match(seen.raw, choices) if seen is not None and seen.raw else None
    listed = " or ".join(filter(None, (", ".join(choices[:-1]), choices[-1])))
    return f"must be {listed}, not {_describe_value(seen)}" + (f"; did you mean `{near}`?" if near else "")


def _describe_range(path: tuple[str | int, ...]) -> str:
    return "must be 1 to 65535" if path == ("port",) else "must be 1 to 8"


def _describe_value(item: YamlValue | None) -> str:
    if item is None:
        return "nothing"
    if isinstance(item.value, dict):
        return "a map"
    if isinstance(item.value, tuple):
        return "a list"
    return quote_source(item.raw)


def _build_profile(file: ProfileFile, origin: str, shipped: bool) -> Profile:
    box = file.container
    return Profile(
        name=file.name,
        engine=file.engine,
        engine_version=file.engine_version,
        patched_flags=tuple(file.patched_flags),
        image=file.image,
        origin=origin,
        shipped=shipped,
        title=file.title,
        model=ModelSpec(
            path=file.model.path,
            served_name=file.model.served_name,
            weights=file.model.weights,
            active_parameters=file.model.active_parameters,
            parameters=file.model.parameters,
            experts=_build_routed_experts(file.model.experts),
            draft_weights=file.model.draft_weights,
            kv_per_token=file.model.kv_per_token,
        ),
        nodes=file.nodes,
        port=file.port,
        command=None if file.command is None else tuple(file.command),
        args=file.args,
        env=file.env,
        env_file=file.env_file,
        mounts=tuple(file.mounts),
        container=ContainerOptions(
            name=box.name,
            gpus=box.gpus,
            shm_size=box.shm_size,
            ipc=box.ipc,
            network=box.network,
            entrypoint=box.entrypoint,
            ulimits=box.ulimits,
            devices=tuple(box.devices),
            options=box.options,
        ),
        expected_memory=file.memory.expected,
        floor_memory=file.memory.floor,
        draft_workspace=file.memory.draft_workspace,
        start=_build_start_options(file.start),
        stop_grace=file.stop.grace,
        liveness=file.liveness,
        group=file.group,
        notes=file.notes,
        source=file.source,
        extra=file.extra,
    )


def _build_routed_experts(section: ExpertsSection | None) -> RoutedExperts | None:
    return None if section is None else RoutedExperts(section.weights, section.count, section.per_token)


def _build_start_options(section: StartSection) -> StartOptions:
    given = section.timeouts.model_dump(exclude_none=True)
    return StartOptions(
        drop_caches=section.drop_caches,
        ready_line=section.ready_line,
        health=section.health,
        probe=section.probe,
        prompt=section.prompt,
        timeouts=PhaseTimeouts(**given),
        expected=section.expected,
        guard=None
        if isinstance(section.guard, GuardDisabled)
        else GuardRule(**section.guard.model_dump(exclude_none=True)),
    )
