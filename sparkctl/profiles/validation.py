"""From a profile's tree to the frozen `Profile`, or to every fault in it with its place."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from sparkctl.model.decode_step import RoutedExperts
from sparkctl.model.launch_plan import GuardRule, PhaseTimeouts
from sparkctl.model.profile import ContainerOptions, ModelSpec, Profile, StartOptions
from sparkctl.model.suggest import find_closest_match, format_did_you_mean
from sparkctl.profiles.file_issues import FileIssue, FilePosition, InvalidFile, quote_source
from sparkctl.profiles.profile_maps import ENTRY_PARSERS, parse_map_entries
from sparkctl.profiles.schema import (
    ConflictingFieldError,
    ExpertsSection,
    GuardDisabled,
    ProfileFile,
    StartSection,
    list_valid_keys,
)
from sparkctl.profiles.yaml_reader import YamlValue, find_position, find_value

# Numbers are numbers here; everywhere else a number is the text it was written as (1.10 stays 1.10).
_NUMBERS = (("schema",), ("nodes",), ("port",))
# What the profile hash does not see.
_NOT_CONTENT = (
    "engine_version", "patched_flags", "title", "notes", "source", "extra", "origin", "shipped", "digest",
    "draft_workspace",
)  # fmt: skip
_WANTED = {
    "int_type": "must be a whole number",
    "bool_type": "must be true or false",
    "list_type": "must be a list",
    "tuple_type": "must be a map",
    "model_type": "must be a map",
}


def validate_profile(tree: YamlValue, origin: Path, *, shipped: bool) -> Profile:
    """Return the profile a tree describes. Raises `InvalidFile` with every fault."""
    if not isinstance(tree.value, dict):
        raise InvalidFile([FileIssue(tree.place, "a profile is a map that begins with `schema: 1`")])
    faults: list[FileIssue] = []
    data = _plain(tree, (), faults)
    try:
        file = ProfileFile.model_validate(data)
    except ValidationError as error:
        faults += [_fault(tree, detail) for detail in error.errors(include_url=False, include_context=True)]
    if faults:
        raise InvalidFile(faults)
    profile = _profile(file, str(origin), shipped)
    return dataclasses.replace(profile, digest=compute_profile_hash(profile))


def compute_profile_hash(profile: Profile) -> str:
    """Return the profile hash: 12 hex digits over everything that is not at its default and not just words."""
    content = {key: value for key, value in _changed(profile).items() if key not in _NOT_CONTENT}
    text = json.dumps(content, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _changed(value: Any) -> Any:
    """Return the fields that differ from their defaults: a field added later leaves older hashes as they were."""
    if isinstance(value, tuple):
        return [_changed(each) for each in value]
    if not dataclasses.is_dataclass(value):
        return value
    found: dict[str, Any] = {}
    for field in dataclasses.fields(value):
        default = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        own = getattr(value, field.name)
        if own != default:
            found[field.name] = _changed(own)
    return found


def _plain(item: YamlValue, path: tuple[str, ...], faults: list[FileIssue]) -> Any:
    """Return data for the schema: free maps as pairs, null as absent, numbers as text where text is wanted."""
    if isinstance(item.value, dict):
        if path in ENTRY_PARSERS:
            return parse_map_entries(path, item.value, faults)
        return {
            key: _plain(entry.item, (*path, key), faults)
            for key, entry in item.value.items()
            if entry.item.value is not None or entry.item.raw is None
        }
    if isinstance(item.value, tuple):
        return [_plain(each, (*path, "[]"), faults) for each in item.value]
    if isinstance(item.value, int | float) and not isinstance(item.value, bool) and path not in _NUMBERS:
        return item.raw
    return item.value


def _fault(tree: YamlValue, detail: ErrorDetails) -> FileIssue:
    """Return what the schema found, in our words and in its place."""
    path, kind = detail["loc"], detail["type"]
    field = _dotted(path)
    if kind == "extra_forbidden":
        return FileIssue(find_position(tree, path, key=True), f"{field}: unknown key{_meant(path)}")
    if kind == "missing":
        return FileIssue(find_position(tree, path, key=True), f"{field}: is missing")
    place = find_position(tree, path)
    if kind == "value_error":
        return FileIssue(_changed_last(tree, path, detail["ctx"]["error"]), f"{field}: {detail['ctx']['error']}")
    if kind == "literal_error":
        return FileIssue(place, f"{field}: {_literal(tree, path, detail['ctx']['expected'])}")
    if kind in ("greater_than_equal", "less_than_equal"):
        return FileIssue(place, f"{field}: {_range(path)}, not {_seen(find_value(tree, path))}")
    if kind == "string_type":
        seen = find_value(tree, path)
        quote = "; put it in quotes" if seen is not None and isinstance(seen.value, bool) else ""
        return FileIssue(place, f"{field}: must be text, not {_seen(seen)}{quote}")
    if kind in _WANTED:
        return FileIssue(place, f"{field}: {_WANTED[kind]}, not {_seen(find_value(tree, path))}")
    return FileIssue(place, f"{field}: {detail['msg']}")


def _changed_last(tree: YamlValue, path: tuple[str | int, ...], error: Exception) -> FilePosition:
    """Return the place of a field; of two that do not go together the one that was set on the command line."""
    place = find_position(tree, path)
    if isinstance(error, ConflictingFieldError) and place.line is not None:
        other = find_position(tree, (*path[:-1], error.other))
        return other if other.line is None else place
    return place


def _dotted(path: tuple[str | int, ...]) -> str:
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def _meant(path: tuple[str | int, ...]) -> str:
    """Return where a key that is not known here belongs, or what it is a misspelling of."""
    key = str(path[-1])
    for section in ("container", "model", "memory", "start", "stop"):
        if path[:-1] != (section,) and key.replace("-", "_") in list_valid_keys([section]):
            return f"; it belongs under `{section}`"
    if len(path) > 1 and key in list_valid_keys([]):
        return "; it belongs at the top level"
    return format_did_you_mean(key, list_valid_keys(path[:-1]))


def _literal(tree: YamlValue, path: tuple[str | int, ...], expected: str) -> str:
    seen = find_value(tree, path)
    if path == ("schema",):
        return f"is {_seen(seen)}; this sparkctl reads `schema: 1`"
    choices = [word.strip("' ") for word in expected.replace(" or ", ",").split(",")]
    near = find_closest_match(seen.raw, choices) if seen is not None and seen.raw else None
    listed = " or ".join(filter(None, (", ".join(choices[:-1]), choices[-1])))
    return f"must be {listed}, not {_seen(seen)}" + (f"; did you mean `{near}`?" if near else "")


def _range(path: tuple[str | int, ...]) -> str:
    return "must be 1 to 65535" if path == ("port",) else "must be 1 to 8"


def _seen(item: YamlValue | None) -> str:
    if item is None:
        return "nothing"
    if isinstance(item.value, dict):
        return "a map"
    if isinstance(item.value, tuple):
        return "a list"
    return quote_source(item.raw)


def _profile(file: ProfileFile, origin: str, shipped: bool) -> Profile:
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
            experts=_experts(file.model.experts),
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
        start=_start(file.start),
        stop_grace=file.stop.grace,
        liveness=file.liveness,
        group=file.group,
        notes=file.notes,
        source=file.source,
        extra=file.extra,
    )


def _experts(section: ExpertsSection | None) -> RoutedExperts | None:
    return None if section is None else RoutedExperts(section.weights, section.count, section.per_token)


def _start(section: StartSection) -> StartOptions:
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
