"""Metadata for what a `docker run`, a compose file or a recipe cannot express: JSON that sparkctl's exports add.

The launch itself (image, command, environment, mounts) is always read from the form, so that edits there count.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import MISSING, fields, replace
from typing import Any

from sparkctl.engines import FALLBACK_ENGINE
from sparkctl.engines.engine_flags import find_profile_script
from sparkctl.model.profile import ArgValue, JsonValue, Profile, map_arg_texts
from sparkctl.model.profile_field import FieldKind
from sparkctl.profiles.env_references import escape_references
from sparkctl.profiles.field_types import FIELD_TYPES
from sparkctl.profiles.importers import docker_flags, foreign_yaml
from sparkctl.profiles.importers.profile_draft import ImportResult, ProfileDraft, SourceFormat
from sparkctl.profiles.schema import FileField, FileSection, load_file_shape
from sparkctl.profiles.validation import read_section_list
from sparkctl.profiles.yaml_reader import InvalidFile

_FIRST_FIELDS = ("name", "engine", "port", "title", "nodes")  # in the JSON; the rest in the order of its type


def format_metadata_json(profile: Profile, **more: object) -> str:
    """Return what an import of the exported form could not find out, as JSON on one line."""
    found = _collect_metadata(load_file_shape(), profile) | more
    return json.dumps(found, ensure_ascii=True, separators=(",", ":"))


def _collect_metadata(section: FileSection, owner: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, field in _list_metadata_fields(section).items():
        value = _get_json_value(field, getattr(owner, name))
        if value not in (None, [], {}) or (value is None and field.can_be_off):
            found[name] = value
    return found


def _list_metadata_fields(section: FileSection) -> dict[str, FileField]:
    """Return the fields that a `docker run` does not tell, by their attributes, in the order of the JSON."""
    found: dict[str, FileField] = {}
    for field in section.fields.values():
        if field.name is None:
            found |= {} if field.section is None else _list_metadata_fields(field.section)
        elif not field.spec.is_in_launch:
            found[field.name] = field
    if section.type is None:
        return found
    names = [one.name for one in fields(section.type) if one.name in found]
    if section.type is Profile:
        names = [*_FIRST_FIELDS, *(name for name in names if name not in _FIRST_FIELDS)]
    names.sort(key=lambda name: (found[name].is_collection, found[name].section is not None, name == "container"))
    return {name: found[name] for name in names}


def _is_map_in_json(field: FileField) -> bool:
    """Whether a field is a map in the JSON: a section of the file's top level. One below it is the list of its values."""
    return field.section is not None and not field.is_list and field.key in load_file_shape().fields


def _get_json_value(field: FileField, value: Any) -> Any:
    if field.section is None:
        pairs = field.spec.kind is FieldKind.EXTRA
        return [[key, kept.text] for key, kept in value] if pairs else list(value) if field.is_list else value
    if field.is_list:
        return [_collect_section_texts(field.section, one) for one in value]
    if _is_map_in_json(field):
        return _collect_metadata(field.section, value)
    if value is None or value == field.default:
        return None if field.can_be_off and value is None else []
    return [getattr(value, one.name or "") for one in field.section.fields.values()]


def _collect_section_texts(section: FileSection, one: Any) -> dict[str, Any]:
    """Return an entry of a list of sections as it stands in a file."""
    found: dict[str, Any] = {}
    for key, field in section.fields.items():
        value = getattr(one, field.name or "")
        if value == field.default:
            continue
        if field.section is not None:
            found[key] = [_collect_section_texts(field.section, each) for each in value]
        else:
            write = FIELD_TYPES[field.spec.kind].format
            found[key] = value if write is None or isinstance(value, int) else write(value)
    return found


# --- and back ---


def read_metadata(draft: ProfileDraft) -> dict[str, Any] | None:
    """Return the metadata of a source, None if there is none.

    The report covers every field; a field of another type than an export writes is left out. The content is not
    trusted: anybody can write it.
    """
    if draft.beside is None:
        return None
    try:
        metadata = json.loads(draft.beside)
    except (ValueError, RecursionError) as error:
        metadata = str(error)
    if not isinstance(metadata, dict):
        why = metadata if isinstance(metadata, str) else "it is not a map"
        draft.ledger.add_malformed(draft.beside_key, f"what an export of sparkctl wrote cannot be read: {why}")
        return None
    if not _TEXT_TYPE.holds(metadata.get("engine")):
        draft.ledger.add_malformed(draft.beside_key, "engine must be a text; without it the other fields are not used")
        return None
    form = _build_section_rules(load_file_shape())
    return _check_fields(metadata, form | (_RECIPE_RULES if draft.kind is SourceFormat.SPARKRUN else {}), "", draft)


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


def _is_valid_extra(value: Any) -> bool:
    if not _list_type(_TEXT_TYPE, 2).holds(value):
        return False
    try:
        json.loads(value[1])
    except (ValueError, RecursionError):
        return False
    return True


def _build_section_rules(section: FileSection) -> dict[str, Any]:
    """Return the rule of each field in the JSON; of a map the rules of its fields."""
    return {name: _build_rule(field) for name, field in _list_metadata_fields(section).items()}


def _build_rule(field: FileField) -> Any:
    if field.section is None:
        return _build_value_rule(field)
    if field.is_list:
        return _FieldType("a list of maps as in a profile", lambda value: _holds_sections(field, value))
    if _is_map_in_json(field):
        return _build_section_rules(field.section)
    inner = [(_build_value_rule(one), one.default is None) for one in field.section.fields.values()]

    def holds(value: Any) -> bool:
        if value is None or not isinstance(value, list) or len(value) != len(inner):
            return value is None and field.can_be_off
        return all(
            rule.holds(own) or (own is None and may_lack) for own, (rule, may_lack) in zip(value, inner, strict=True)
        )

    words = " or ".join(dict.fromkeys(rule.words for rule, _ in inner))
    return _FieldType(f"{'null, or ' if field.can_be_off else ''}a list of {words}", holds)


def _holds_sections(field: FileField, value: Any) -> bool:
    try:
        return isinstance(value, list) and read_section_list(field, value) is not None
    except InvalidFile:
        return False


def _build_value_rule(field: FileField) -> _FieldType:
    spec = field.spec
    if spec.kind is FieldKind.EXTRA:
        return _FieldType(
            "a list of names with JSON", lambda value: isinstance(value, list) and all(map(_is_valid_extra, value))
        )
    if spec.choices:
        return _choice_type(*spec.choices)
    if spec.limits is not None:
        low, high = spec.limits
        return _FieldType(f"{low} to {high}", lambda value: type(value) is int and low <= value <= high)
    by_type = {int: _WHOLE_NUMBER_TYPE, float: _SECONDS_TYPE, bool: _BOOLEAN_TYPE}
    rule = _NAME_TYPE if spec.kind is FieldKind.NAME else by_type.get(field.value_type, _TEXT_TYPE)
    return _list_type(rule) if field.is_list else rule


# What only a sparkrun recipe cannot express.
_RECIPE_RULES: dict[str, Any] = {
    "mounts": _list_type(_TEXT_TYPE),
    "env": _FieldType("a list of pairs of text", _list_type(_list_type(_TEXT_TYPE, 2)).holds),
    "env_file": _TEXT_TYPE,
    "placeholders": _FieldType(
        "a map of texts",
        lambda value: isinstance(value, dict) and all(_TEXT_TYPE.holds(one) for pair in value.items() for one in pair),
    ),
    "unsaid": _list_type(_choice_type("ipc", "shm_size")),
}


def _check_fields(fields: dict[str, Any], form: dict[str, Any], above: str, draft: ProfileDraft) -> dict[str, Any]:
    found: dict[str, Any] = {}
    place = draft.ledger.locate(draft.beside_key)
    for name, value in fields.items():
        field, rule = f"{above}{name}"[:80], form.get(name)
        key = f"{draft.beside_key}: {field}"
        if value is None and above + name != "start.guard":
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
                draft.ledger.add_mapped(key, _name_profile_field(field))
    return found


def _name_profile_field(name: str) -> str:
    """Return the profile's field that a field of the JSON gives."""
    own = _list_metadata_fields(load_file_shape()).get(name)
    return {"placeholders": "args", "unsaid": "container"}.get(name, name if own is None else own.spec.key or name)


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


def restore_profile(imported: ImportResult, metadata: dict[str, Any]) -> ImportResult:
    """Add to an imported profile the fields that its form cannot express."""
    one = imported.profile
    # A container, or a shell with its script: the form does not say these by flags of the engine's.
    own = one.engine == FALLBACK_ENGINE or find_profile_script(one) is not None
    path, name = metadata.get("model", {}).get("path"), metadata.get("model", {}).get("served_name")
    if one.command and one.model.path is None and one.command[-1] == path and not own:
        one = replace(one, command=one.command[:-1])  # launch words of somebody's own, with the model behind them
    placeholders, unsaid = metadata.get("placeholders", {}), metadata.get("unsaid", [])
    filled: Profile = _restore_fields(
        load_file_shape(), one, {"nodes": one.nodes, "stop_grace": one.stop_grace} | metadata
    )
    profile = replace(
        filled,
        port=filled.port if own else one.port,
        args=tuple((key, _restore_references(value, placeholders)) for key, value in one.args),
        model=replace(
            filled.model,
            path=path if own else one.model.path or path,
            served_name=name if own else one.model.served_name or name,
        ),
        container=replace(
            filled.container,
            ipc=None if "ipc" in unsaid else filled.container.ipc,
            shm_size=None if "shm_size" in unsaid else filled.container.shm_size,
        ),
    )
    return replace(imported, profile=profile)


def _restore_fields(section: FileSection, owner: Any, metadata: dict[str, Any]) -> Any:
    """Return a part of a profile with the fields of the metadata; what is not there gets its default."""
    found: dict[str, Any] = {}
    for name, field in _list_metadata_fields(section).items():
        if field.section is not None and _is_map_in_json(field):
            found[name] = _restore_fields(field.section, getattr(owner, name), metadata.get(name, {}))
        elif field.default is not MISSING:  # the draft has name and engine
            found[name] = _parse_json_value(field, metadata[name]) if name in metadata else field.default
    return replace(owner, **found)


def _parse_json_value(field: FileField, value: Any) -> Any:
    if field.section is not None and field.is_list:
        return read_section_list(field, value)
    if field.section is not None and field.section.type is not None:
        return None if value is None else field.section.type(*value)
    if field.spec.kind is FieldKind.EXTRA:
        return tuple((key, JsonValue(text)) for key, text in value)
    return tuple(value) if field.is_list else float(value) if field.value_type is float else value


def _restore_references(value: ArgValue, placeholders: dict[str, str]) -> ArgValue:
    """Return a flag's value with the references that a recipe has only placeholders for."""
    return map_arg_texts(
        value, lambda text: re.sub(r"\{([^{}]*)\}", lambda found: placeholders.get(found[1], found[0]), text)
    )
