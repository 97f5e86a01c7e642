"""The shape of a profile file, ``schema: 1``, as the declarations in `model.profile` give it, and its JSON Schema."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, fields
from functools import cache
from types import NoneType, UnionType
from typing import Any, get_args, get_type_hints

from sparkctl.engines import engine_names
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.profile import FIELDS_OF_FILE, SECTIONS_OF_PROFILE, Profile
from sparkctl.model.profile_field import FieldKind, ProfileField
from sparkctl.profiles.field_types import FIELD_TYPES, MAP_TYPES


@dataclass(frozen=True, slots=True, kw_only=True)
class FileField:
    """A field of the file.

    ``name``: the attribute that holds its value; None for a section whose fields are attributes of `Profile` itself, and for a
    field that only the file has. ``value_type``: of the value, or of each element of a list. ``default``: MISSING for a required
    field. ``section``: the fields of a section, None for a value.
    """

    key: str
    name: str | None
    spec: ProfileField
    value_type: Any = None
    default: Any = None
    allows_none: bool = True
    is_list: bool = False
    section: FileSection | None = None

    @property
    def is_collection(self) -> bool:
        """Whether the value is a list or a map with free keys."""
        return self.is_list or self.spec.kind in MAP_TYPES

    @property
    def can_be_off(self) -> bool:
        """Whether the field is a section for which ``off`` may stand, which is None in the profile."""
        return self.section is not None and self.allows_none and self.default is not None


@dataclass(frozen=True, slots=True)
class FileSection:
    """The fields of a section, in the order of a file. ``type``: the class that holds them; None where `Profile` itself does."""

    type: type | None
    fields: dict[str, FileField]


@cache
def load_file_shape() -> FileSection:
    shape = _build_section(Profile)
    for key, spec in FIELDS_OF_FILE.items():
        default = None if spec.follows else MISSING
        shape.fields[key] = FileField(key=key, name=None, spec=spec, default=default)
    keys = ["schema", *(key for key in shape.fields if key not in FIELDS_OF_FILE)]
    keys.insert(keys.index("title") + 1, "extends")
    return FileSection(Profile, {key: shape.fields[key] for key in keys})


def _build_section(kind: type) -> FileSection:
    found: dict[str, FileField] = {}
    hints = get_type_hints(kind, include_extras=True)
    for attribute in fields(kind):
        hint = hints[attribute.name]
        spec = next((one for one in getattr(hint, "__metadata__", ()) if isinstance(one, ProfileField)), None)
        if spec is None:
            continue
        default = attribute.default if attribute.default_factory is MISSING else attribute.default_factory()
        field = _build_field(attribute.name, spec, get_args(hint)[0], default)
        above, _, key = (spec.key or "").rpartition(".")
        if above:
            section = ProfileField(kind=FieldKind.SECTION, help=SECTIONS_OF_PROFILE[above])
            empty = FileField(key=above, name=None, spec=section, allows_none=False, section=FileSection(None, {}))
            below = found.setdefault(above, empty).section
            assert below is not None
            below.fields[key] = field
        else:
            found[field.key] = field
    return FileSection(kind, dict(_iter_in_file_order(found)))


def _build_field(name: str, spec: ProfileField, hint: Any, default: Any) -> FileField:
    choices = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    own = next(one for one in choices if one is not NoneType)
    is_list = getattr(own, "__origin__", None) is tuple and spec.kind not in MAP_TYPES
    return FileField(
        key=(spec.key or name).rpartition(".")[2],
        name=name,
        spec=spec,
        value_type=get_args(own)[0] if is_list else own,
        default=default,
        allows_none=NoneType in choices,
        is_list=is_list,
        section=_build_section(get_args(own)[0] if is_list else own) if spec.kind is FieldKind.SECTION else None,
    )


def _iter_in_file_order(found: dict[str, FileField]) -> Iterator[tuple[str, FileField]]:
    for key, field in found.items():
        if field.spec.follows is None:
            yield key, field
            yield from ((name, one) for name, one in found.items() if one.spec.follows == key)


def list_valid_keys(path: Iterable[str | int]) -> tuple[str, ...]:
    """Return the valid keys of the map at ``path``."""
    section = load_file_shape()
    for step in path:
        if isinstance(step, int):
            continue  # an entry of a list of sections
        field = section.fields.get(step)
        if field is None or field.section is None:
            return ()
        section = field.section
    return tuple(section.fields)


def iter_value_fields(section: FileSection | None = None, prefix: str = "") -> Iterator[tuple[str, FileField]]:
    """Yield each field that holds a value, by its path (``model.weights``), in the order of a file."""
    for key, field in (section or load_file_shape()).fields.items():
        if field.section is None:
            yield prefix + key, field
        else:
            yield from iter_value_fields(field.section, f"{prefix}{key}{'[]' if field.is_list else ''}.")


def build_json_schema() -> dict[str, Any]:
    """Return the JSON Schema with which an editor checks profiles."""
    definitions: dict[str, Any] = {}
    shape = load_file_shape()
    root = _build_section_schema(
        shape, "sparkctl profile", "A sparkctl profile: everything a start of one model needs.", definitions
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:sparkctl:profile:1",
        "title": root.pop("title"),
        "$defs": dict(sorted(definitions.items())),
        **root,
        "required": ["schema", "name"],
        "type": root["type"],
        "anyOf": [{"required": ["extends"]}, {"required": ["engine", "image"]}],
    }


def _build_section_schema(section: FileSection, title: str, words: str, definitions: dict[str, Any]) -> dict[str, Any]:
    required = [key for key, field in section.fields.items() if field.default is MISSING]
    return {
        "additionalProperties": False,
        "description": words,
        "properties": {key: build_field_schema(field, definitions) for key, field in section.fields.items()},
        **({"required": required} if required else {}),
        "title": title,
        "type": "object",
    }


def build_field_schema(field: FileField, definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of a field, and add those of the sections below it to ``definitions``."""
    if field.section is not None:
        return _build_reference_schema(field, field.section, definitions)
    own = _build_value_schema(field)
    words = re.sub(r"\[([^][]*)\]\([^()]*\)", r"\1", field.spec.help)  # without links: they are of the documentation
    about = f"{words}. {own['description']}" if "description" in own else words
    title = {"title": field.key.replace("_", " ").title(), "description": about}
    if field.default is None or not field.spec.shows_default:
        return {"anyOf": [own, {"type": "null"}], "default": None, **title}
    if field.default is MISSING or field.is_list:
        return _sort_keys(own | title)
    return _sort_keys(own | title | {"default": [] if field.default == () else field.default})


def _build_reference_schema(field: FileField, section: FileSection, definitions: dict[str, Any]) -> dict[str, Any]:
    title = f"{field.key.title()}Section"
    made = _build_section_schema(section, title, field.spec.help, definitions)
    if field.can_be_off:
        made = {"anyOf": [made, {"enum": ["off", False]}], "description": field.spec.help}
    definitions[title] = made
    reference: dict[str, Any] = {"$ref": f"#/$defs/{title}"}
    if field.is_list:
        return {"items": reference, "title": field.key.title(), "type": "array"}
    if field.allows_none and field.default is None:
        return {"anyOf": [reference, {"type": "null"}], "default": None}
    return reference


def _build_value_schema(field: FileField) -> dict[str, Any]:
    """Return the JSON Schema of a field's value, without its name and default."""
    spec = field.spec
    if spec.kind in MAP_TYPES:
        return _sort_keys({"type": "object", **MAP_TYPES[spec.kind].schema})
    if spec.choices:
        several: dict[str, Any] = {"enum": list(spec.choices)}
        own = (several if len(spec.choices) > 1 else {"const": spec.choices[0]}) | {"type": "string"}
    elif spec.limits is not None:
        low, high = spec.limits
        own = ({"const": low} if low == high else {"maximum": high, "minimum": low}) | {"type": "integer"}
    elif spec.kind is FieldKind.ENGINE:
        own = {"enum": list(engine_names()), "type": "string"}
    else:
        own = dict(FIELD_TYPES[spec.kind].schema)
    return {"items": own, "type": "array"} if field.is_list else own


def _sort_keys(schema: dict[str, Any]) -> dict[str, Any]:
    return dict(sorted(schema.items()))
