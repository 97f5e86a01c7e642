"""A line from the probe as what it means. Strict about the protocol, tolerant of fields that a newer probe may add.

A field that is missing or of another type than ours is None: not known. What a node sends is data and is not trusted.
"""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache

from sparkctl.model.sample import Sample
from sparkctl.probe.agent import PROTOCOL


@dataclass(frozen=True, slots=True)
class Hello:
    """Who the node is. ``settings`` are kernel settings by name."""

    host: str | None = None
    kernel: str | None = None
    machine: str | None = None
    boot_id: str | None = None
    product: str | None = None
    product_name: str | None = None
    driver: str | None = None
    os: str | None = None
    distribution: str | None = None
    python: str | None = None
    page_size: int | None = None
    sysctl: tuple[tuple[str, int | None], ...] = ()


def decode(line: bytes) -> Hello | Sample:
    """Return what a line says. Raises ValueError for what is no line of this protocol."""
    try:
        data = json.loads(line)
    except ValueError as wrong:
        raise ValueError(f"not a line of the probe: {line[:80]!r}") from wrong
    if not isinstance(data, dict) or data.get("probe") != PROTOCOL:
        raise ValueError(f"not protocol {PROTOCOL} of the probe: {line[:80]!r}")
    kind, hint = (data.get("kind"), {"hello": Hello, "sample": Sample}.get(str(data.get("kind"))))
    if hint is None:
        raise ValueError(f"the probe does not say such things: {kind!r}")
    found = _build(hint, data.get("identity") if hint is Hello else data)
    if not isinstance(found, Hello | Sample):
        raise ValueError(f"not a whole {kind} of the probe")
    return found


@cache
def _hints(kind: type) -> dict[str, object]:
    return typing.get_type_hints(kind)


def _build(hint: object, value: object) -> object:
    """Return ``value`` as ``hint`` asks for, None where it is something else."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _build(next(part for part in parts if part is not type(None)), value)
    if origin is tuple:
        return _tuple(parts, value)
    if is_dataclass(hint) and isinstance(hint, type):
        return _whole(hint, value) if isinstance(value, Mapping) else None
    if hint is float and type(value) is int:
        return float(value)
    return value if type(value) is hint else None


def _tuple(parts: tuple[object, ...], value: object) -> object:
    if isinstance(value, Mapping):  # errors and settings by name
        value = [[key, item] for key, item in value.items()]
    if not isinstance(value, list):
        return None
    if parts[-1] is not Ellipsis:
        return tuple(_build(part, item) for part, item in zip(parts, value, strict=False))
    item_may_be_none = type(None) in typing.get_args(parts[0])
    built = [_build(parts[0], item) for item in value]
    return tuple(item for item in built if item is not None or item_may_be_none)


def _whole(kind: type, data: Mapping[str, object]) -> object:
    """Return the dataclass, None where a field that it cannot be without is not there."""
    hints = _hints(kind)
    built: dict[str, object] = {}
    for field in fields(kind):
        value = _build(hints[field.name], data[field.name]) if field.name in data else None
        if value is not None:
            built[field.name] = value
        elif field.default is MISSING:
            return None
    return kind(**built)
