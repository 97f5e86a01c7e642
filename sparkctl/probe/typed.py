"""What a node said in JSON, as our dataclasses: sceptical, because it is data and is not trusted."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from functools import cache

_MOST = 1 << 64  # no counter of a kernel or a driver goes further


@cache
def _hints(kind: type) -> dict[str, object]:
    return typing.get_type_hints(kind)


def build(hint: object, value: object) -> object:
    """Return ``value`` as the type ``hint`` asks for, None where it is something else: not known.

    Dataclasses from mappings (fields that we do not have are passed over), tuples from lists, enums from their words. A
    number of more than 64 bits is none.
    """
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return build(next(part for part in parts if part is not type(None)), value)
    if origin is tuple:
        return _tuple(parts, value)
    if is_dataclass(hint) and isinstance(hint, type):
        return _whole(hint, value) if isinstance(value, Mapping) else None
    if hint is float:
        return _number(value)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return next((member for member in hint if member.value == value), None)
    if hint is int:
        return value if type(value) is int and abs(value) < _MOST else None
    return value if type(value) is hint else None


def _number(value: typing.Any) -> float | None:
    return float(value) if type(value) in (int, float) and abs(value) < _MOST else None  # NaN is not less, either


def _tuple(parts: tuple[object, ...], value: object) -> object:
    if isinstance(value, Mapping):  # errors and settings by name
        value = [[key, item] for key, item in value.items()]
    if not isinstance(value, list):
        return None
    if parts[-1] is not Ellipsis:
        return tuple(build(part, item) for part, item in zip(parts, value, strict=False))
    item_may_be_none = type(None) in typing.get_args(parts[0])
    built = [build(parts[0], item) for item in value]
    return tuple(item for item in built if item is not None or item_may_be_none)


def _whole(kind: type, data: Mapping[str, object]) -> object:
    """Return the dataclass, None where a field that it cannot be without is not there."""
    hints = _hints(kind)
    built: dict[str, object] = {}
    for field in fields(kind):
        value = build(hints[field.name], data[field.name]) if field.name in data else None
        if value is not None:
            built[field.name] = value
        elif field.default is MISSING:
            return None
    return kind(**built)
