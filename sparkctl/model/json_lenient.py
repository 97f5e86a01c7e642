"""Decode JSON from a node into frozen dataclasses. The data is not trusted: what does not fit its type becomes None."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from functools import cache

_NUMBER_LIMIT = 1 << 64  # no counter of a kernel or a driver exceeds 64 bits


ValueDecoder = Callable[[typing.Any], object]


def decode_lenient(hint: object, value: object) -> object:
    """Return ``value`` as the type ``hint``, None if it has another type.

    Dataclasses from mappings (unknown fields are ignored), tuples from lists, enums from their values. A number of more
    than 64 bits is None.
    """
    return build_decoder(hint)(value)


@cache
def build_decoder(hint: typing.Any) -> ValueDecoder:
    """Return a decoder for a type. The type is examined once, not for each sample."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return build_decoder(next(part for part in parts if part is not type(None)))
    if origin is tuple:
        return _build_tuple_decoder(parts)
    if is_dataclass(hint) and isinstance(hint, type):
        return _build_dataclass_decoder(hint)
    if hint is float:
        return _decode_number
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        words = {member.value: member for member in hint}
        return lambda value: words.get(value) if isinstance(value, str) else None
    if hint is int:
        return lambda value: value if type(value) is int and abs(value) < _NUMBER_LIMIT else None
    return lambda value: value if type(value) is hint else None


def _decode_number(value: typing.Any) -> float | None:
    return (
        float(value) if type(value) in (int, float) and abs(value) < _NUMBER_LIMIT else None
    )  # NaN fails this comparison too


def _build_tuple_decoder(parts: tuple[typing.Any, ...]) -> ValueDecoder:
    each = [build_decoder(part) for part in parts if part is not Ellipsis]
    item_may_be_none = type(None) in typing.get_args(parts[0])

    def decode_tuple(value: typing.Any) -> object:
        if isinstance(value, Mapping):  # errors and settings by name
            value = [[key, item] for key, item in value.items()]
        if not isinstance(value, list):
            return None
        if parts[-1] is not Ellipsis:
            return tuple(one(item) for one, item in zip(each, value, strict=False))
        built = map(each[0], value)
        return tuple(built) if item_may_be_none else tuple(item for item in built if item is not None)

    return decode_tuple


def _build_dataclass_decoder(kind: type) -> ValueDecoder:
    """Return a decoder for the dataclass; it returns None if a required field is missing."""
    hints = typing.get_type_hints(kind)
    wanted = [(field.name, build_decoder(hints[field.name]), field.default is MISSING) for field in fields(kind)]

    def decode_dataclass(data: typing.Any) -> object:
        if not isinstance(data, Mapping):
            return None
        built: dict[str, object] = {}
        for name, one, is_needed in wanted:
            value = one(data[name]) if name in data else None
            if value is not None:
                built[name] = value
            elif is_needed:
                return None
        return kind(**built)

    return decode_dataclass
