"""Metadata for what a `docker run`, a compose file or a recipe cannot express: JSON that sparkctl's exports add.

The launch itself (image, command, environment, mounts) is always read from the form, so that edits there count.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sparkctl.engines import FALLBACK_ENGINE
from sparkctl.engines.flags.command_flags import find_shell_script
from sparkctl.model.decode_step import RoutedExperts
from sparkctl.model.launch_plan import GuardRule, PhaseTimeouts
from sparkctl.model.profile import ArgValue, FlagValues, JsonValue, ModelSpec, Profile, StartOptions
from sparkctl.profiles.env_references import escape_references
from sparkctl.profiles.importers import docker_flags, foreign_yaml
from sparkctl.profiles.importers.profile_draft import ImportResult, ProfileDraft, SourceFormat

_TOP_LEVEL_FIELDS = (
    "title",
    "nodes",
    "engine_version",
    "expected_memory",
    "floor_memory",
    "draft_workspace",
    "stop_grace",
    "liveness",
    "group",
    "notes",
    "source",
)
_MODEL_FIGURES = ("weights", "active_parameters", "parameters", "draft_weights", "kv_per_token")
_START_FIELDS = ("drop_caches", "ready_line", "health", "probe", "prompt", "expected")


def format_metadata_json(profile: Profile, **more: object) -> str:
    """Return what an import of the exported form could not find out, as JSON on one line."""
    model, rules, box = profile.model, profile.start, profile.container
    limits, guard, experts = rules.timeouts, rules.guard, model.experts
    said: dict[str, Any] = {"name": profile.name, "engine": profile.engine, "port": profile.port}
    said |= {key: getattr(profile, key) for key in _TOP_LEVEL_FIELDS}
    said["model"] = _drop_empty_values(
        {key: getattr(model, key) for key in ("path", "served_name", *_MODEL_FIGURES)}
    ) | _drop_empty_values({"experts": experts and [experts.weights, experts.count, experts.per_token]})
    said["start"] = _drop_empty_values({key: getattr(rules, key) for key in _START_FIELDS})
    if limits != PhaseTimeouts():
        said["start"]["timeouts"] = [limits.creating, limits.starting, limits.loading, limits.warming]
    if guard != GuardRule():
        said["start"]["guard"] = guard and [guard.floor, guard.cache_below, guard.limit]
    said["container"] = _drop_empty_values({"name": box.name, "gpus": box.gpus, "network": box.network})
    said["patched_flags"] = list(profile.patched_flags)
    said["extra"] = [[key, kept.text] for key, kept in profile.extra]
    return json.dumps(_drop_empty_values(said) | more, ensure_ascii=True, separators=(",", ":"))


def _drop_empty_values(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value not in (None, [], {})}


# --- and back ---

_RECIPE_ONLY_FIELDS = (
    "mounts",
    "env",
    "env_file",
    "placeholders",
    "unsaid",
)  # only a sparkrun recipe cannot express these


def read_metadata(draft: ProfileDraft) -> dict[str, Any] | None:
    """Return the metadata of a source, None if there is none.

    The report covers every field; a field of another type than an export writes is left out. The content is not
    trusted: anybody can write it.
    """
    if draft.beside is None:
        return None
    try:
        said = json.loads(draft.beside)
    except (ValueError, RecursionError) as error:
        said = str(error)
    if not isinstance(said, dict):
        why = said if isinstance(said, str) else "it is no map"
        draft.ledger.add_malformed(draft.beside_key, f"what an export of sparkctl wrote cannot be read: {why}")
        return None
    if not _TEXT_TYPE.holds(said.get("engine")):
        draft.ledger.add_malformed(draft.beside_key, "engine must be a text; without it the other fields are not used")
        return None
    form = {
        key: rule
        for key, rule in _FIELD_TYPES.items()
        if draft.kind is SourceFormat.SPARKRUN or key not in _RECIPE_ONLY_FIELDS
    }
    return _check_fields(said, form, "", draft)


class _FieldType:
    """The type of a field: its name in messages, and the check of a value."""

    def __init__(self, words: str, holds: Callable[[Any], bool]) -> None:
        self.words, self.holds = words, holds


_TEXT_TYPE = _FieldType(
    "text", lambda value: isinstance(value, str) and not foreign_yaml.FORBIDDEN_CHARACTERS.search(value)
)
_NAME_PATTERN = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{1,63}")
_NAME_TYPE = _FieldType("a name", lambda value: isinstance(value, str) and _NAME_PATTERN.fullmatch(value) is not None)
_WHOLE_NUMBER_TYPE = _FieldType("a whole number", lambda value: type(value) is int and 0 <= value < 1 << 62)
_SECONDS_TYPE = _FieldType("a number of seconds", lambda value: type(value) in (int, float) and 0 <= value < 1e9)
_BOOLEAN_TYPE = _FieldType("true or false", lambda value: isinstance(value, bool))


def _list_type(wanted: _FieldType, length: int | None = None) -> _FieldType:
    return _FieldType(
        f"a list of {wanted.words}",
        lambda value: isinstance(value, list) and length in (None, len(value)) and all(map(wanted.holds, value)),
    )


def _choice_type(*words: str) -> _FieldType:
    return _FieldType(" or ".join(words), lambda value: value in words and isinstance(value, str))


def _is_valid_guard(value: Any) -> bool:
    """Return whether a guard is valid: off, or with its floor, its page cache limit and its time limit."""
    if value is None:
        return True
    if not isinstance(value, list) or len(value) != 3:
        return False
    return (
        _WHOLE_NUMBER_TYPE.holds(value[0])
        and (value[1] is None or _WHOLE_NUMBER_TYPE.holds(value[1]))
        and (value[2] is None or _SECONDS_TYPE.holds(value[2]))
    )


def _is_valid_extra(value: Any) -> bool:
    if not _list_type(_TEXT_TYPE, 2).holds(value):
        return False
    try:
        json.loads(value[1])
    except (ValueError, RecursionError):
        return False
    return True


_FIELD_TYPES: dict[str, Any] = {
    "name": _NAME_TYPE,
    "engine": _TEXT_TYPE,
    "port": _FieldType("a port", lambda value: type(value) is int and 0 < value < 65536),
    "title": _TEXT_TYPE,
    "nodes": _FieldType("1 to 8", lambda value: type(value) is int and 0 < value < 9),
    "engine_version": _TEXT_TYPE,
    "expected_memory": _WHOLE_NUMBER_TYPE,
    "floor_memory": _WHOLE_NUMBER_TYPE,
    "draft_workspace": _choice_type("before-weights"),
    "stop_grace": _SECONDS_TYPE,
    "liveness": _choice_type("none"),
    "group": _NAME_TYPE,
    "notes": _TEXT_TYPE,
    "source": _TEXT_TYPE,
    "patched_flags": _list_type(_TEXT_TYPE),
    "extra": _FieldType(
        "a list of names with JSON", lambda value: isinstance(value, list) and all(map(_is_valid_extra, value))
    ),
    "model": {
        "path": _TEXT_TYPE,
        "served_name": _TEXT_TYPE,
        **dict.fromkeys(_MODEL_FIGURES, _WHOLE_NUMBER_TYPE),
        "experts": _list_type(_WHOLE_NUMBER_TYPE, 3),
    },
    "start": {
        "drop_caches": _BOOLEAN_TYPE,
        "ready_line": _TEXT_TYPE,
        "health": _TEXT_TYPE,
        "probe": _choice_type("completions", "chat", "none"),
        "prompt": _TEXT_TYPE,
        "expected": _SECONDS_TYPE,
        "timeouts": _list_type(_SECONDS_TYPE, 4),
        "guard": _FieldType("null, or three numbers", _is_valid_guard),
    },
    "container": {"name": _NAME_TYPE, "gpus": _TEXT_TYPE, "network": _TEXT_TYPE},
    "mounts": _list_type(_TEXT_TYPE),
    "env": _FieldType("a list of pairs of text", _list_type(_list_type(_TEXT_TYPE, 2)).holds),
    "env_file": _TEXT_TYPE,
    "placeholders": _FieldType(
        "a map of texts",
        lambda value: isinstance(value, dict) and all(_TEXT_TYPE.holds(one) for pair in value.items() for one in pair),
    ),
    "unsaid": _list_type(_choice_type("ipc", "shm_size")),
}


def _check_fields(said: dict[str, Any], form: dict[str, Any], above: str, draft: ProfileDraft) -> dict[str, Any]:
    """Return the fields that an export writes."""
    found: dict[str, Any] = {}
    place = draft.ledger.locate(draft.beside_key)
    for name, value in said.items():
        field, rule = f"{above}{name}"[:80], form.get(name)
        key = f"{draft.beside_key}: {field}"
        if value is None and name != "guard":
            continue
        if rule is None:
            draft.ledger.add_unsupported(key, f"{place}: exports of sparkctl as {draft.kind.value} write no such field")
        elif isinstance(rule, dict) and isinstance(value, dict):
            found[name] = _check_fields(value, rule, f"{field}.", draft)
        elif isinstance(rule, dict) or not rule.holds(value):
            words = "a map" if isinstance(rule, dict) else rule.words
            draft.ledger.add_unsupported(key, f"{place}: {field} must be {words}")
        else:
            found[name] = value
            if name not in ("mounts", "env", "env_file"):  # they pass the same checks as those of the form
                draft.ledger.add_mapped(key, _PROFILE_FIELD_NAMES.get(field, field))
    return found


_PROFILE_FIELD_NAMES = {
    "expected_memory": "memory.expected",
    "floor_memory": "memory.floor",
    "draft_workspace": "memory.draft_workspace",
    "stop_grace": "stop.grace",
    "placeholders": "args",
    "unsaid": "container",
}


def complete_draft(draft: ProfileDraft, fields: dict[str, Any]) -> None:
    """Add to a draft what its form cannot express; variables and files go through the same checks as those of the form."""
    draft.engine, draft.name = fields["engine"], fields.get("name", draft.name)
    for name, text in fields.get("env", []):
        if name not in draft.env:
            docker_flags.apply_docker_flag(draft, "env", f"{name}={text}", f"{draft.beside_key}: env.{name}")
    if "env_file" in fields and draft.env_file is None:
        docker_flags.apply_docker_flag(
            draft, "env-file", escape_references(fields["env_file"]), f"{draft.beside_key}: env_file"
        )
    if "mounts" in fields:
        # The recipe's tool mounts a cache of its own accord; a profile that has none says so here. It adds none.
        named = [mount.removesuffix(":rw") for mount in fields["mounts"]]
        draft.mounts = [one for one in draft.mounts if one in named or draft.ledger.has_mapped_field("mounts", one)]
        for lost in sorted(set(named) - set(draft.mounts)):
            draft.ledger.add_unsupported(
                f"{draft.beside_key}: mounts {lost}", "the recipe itself does not mount it: write it there"
            )


def restore_profile(imported: ImportResult, fields: dict[str, Any]) -> ImportResult:
    """Add to an imported profile the fields that its form cannot express."""
    one, said = imported.profile, fields
    model, box = said.get("model", {}), said.get("container", {})
    # A container, or a shell with its script: the form does not say these by flags of the engine's.
    own = one.engine == FALLBACK_ENGINE or find_shell_script(one.command or ()) is not None
    path, name, experts = model.get("path"), model.get("served_name"), model.get("experts")
    if one.command and one.model.path is None and one.command[-1] == path and not own:
        one = replace(one, command=one.command[:-1])  # launch words of somebody's own, with the model behind them
    placeholders, unsaid = said.get("placeholders", {}), said.get("unsaid", [])
    same: dict[str, Any] = {key: said.get(key) for key in _TOP_LEVEL_FIELDS} | {
        "nodes": said.get("nodes", one.nodes), "stop_grace": float(said.get("stop_grace", one.stop_grace)),
    }  # fmt: skip
    profile = replace(
        one, **same, patched_flags=tuple(said.get("patched_flags", [])),
        port=said.get("port") if own else one.port,
        args=tuple((key, _restore_references(value, placeholders)) for key, value in one.args),
        model=ModelSpec(
            path=path if own else one.model.path or path, served_name=name if own else one.model.served_name or name,
            experts=RoutedExperts(*experts) if experts else None, **{key: model.get(key) for key in _MODEL_FIGURES},
        ),
        container=replace(
            one.container, name=box.get("name"), gpus=box.get("gpus"), network=box.get("network"),
            ipc=None if "ipc" in unsaid else one.container.ipc,
            shm_size=None if "shm_size" in unsaid else one.container.shm_size,
        ),
        start=_restore_start_options(said.get("start", {})),
        extra=tuple((key, JsonValue(text)) for key, text in said.get("extra", [])),
    )  # fmt: skip
    return replace(imported, profile=profile)


def _restore_start_options(rules: dict[str, Any]) -> StartOptions:
    guard: GuardRule | None = GuardRule()
    if "guard" in rules:
        guard = GuardRule(*rules["guard"]) if rules["guard"] else None
    same: dict[str, Any] = {key: rules.get(key) for key in _START_FIELDS} | {
        "drop_caches": rules.get("drop_caches", True)
    }
    return StartOptions(timeouts=PhaseTimeouts(*rules.get("timeouts", [])), guard=guard, **same)


def _restore_references(value: ArgValue, placeholders: dict[str, str]) -> ArgValue:
    """Return a flag's value with the references that a recipe has only placeholders for."""
    if isinstance(value, str):
        return re.sub(r"\{([^{}]*)\}", lambda found: placeholders.get(found[1], found[0]), value)
    if isinstance(value, FlagValues):
        return FlagValues(tuple(str(_restore_references(word, placeholders)) for word in value.words))
    return tuple(str(_restore_references(word, placeholders)) for word in value) if isinstance(value, tuple) else value
