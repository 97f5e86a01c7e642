"""Write events as JSON lines and read them back. This is what ``--json`` prints: schema version 1, see docs/scripting.md.

Secrets never pass: plans are written as `redact_launch_plan` returns them.
"""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass, replace
from enum import Enum
from functools import cache
from pathlib import PurePath

if typing.TYPE_CHECKING:
    from sparkctl.model.events import Event
    from sparkctl.model.launch_plan import LaunchPlan

EVENT_SCHEMA_VERSION = 1
_NUMBER_LIMIT = 1 << 64  # no counter of a kernel or a driver exceeds 64 bits
T = typing.TypeVar("T")
ValueDecoder = Callable[[typing.Any], object]


def encode_event(event: Event) -> dict[str, object]:
    """Return an event as plain JSON data: ``ts``, ``event`` and ``node`` first, then its own fields."""
    from sparkctl.model import events  # imported late: the decoders of a node's answers need no events

    if isinstance(event, events.LaunchPlanned):
        event = replace(event, plan=redact_launch_plan(event.plan))
    body = to_json_data(event)
    assert isinstance(body, dict)
    head = {"ts": round(event.ts, 6), "event": _get_event_names()[type(event)], "node": body.get("node")}
    if isinstance(event, events.CommandEnded):
        head["schema"] = EVENT_SCHEMA_VERSION
    return head | {key: value for key, value in body.items() if key not in head}


def decode_event(data: Mapping[str, object]) -> Event:
    """Return the event that `encode_event` wrote. Raises ValueError if the data is not an event of this schema."""
    from sparkctl.model.events import EVENT_TYPES

    kind = EVENT_TYPES.get(str(data.get("event")))
    if kind is None:
        raise ValueError(f"no such event: {data.get('event')!r}")
    try:
        body = {name: value for name, value in data.items() if name not in ("event", "schema")}
        return typing.cast("Event", _build_decoder(kind, True)(body))
    except (TypeError, ValueError, OverflowError) as wrong:
        raise ValueError(f"not a whole {data.get('event')} event: {wrong}") from wrong


@cache
def _get_event_names() -> dict[type, str]:
    from sparkctl.model.events import EVENT_TYPES

    return {kind: name for name, kind in EVENT_TYPES.items()}


def redact_launch_plan(plan: LaunchPlan) -> LaunchPlan:
    """Return a plan that may be shown: every secret value in it is masked."""
    from sparkctl.model.text.secrets import MASK, is_secret_name, redact, redact_word, redact_words

    known = plan.secret_values

    def redact_pairs(some: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
        return tuple((name, MASK if is_secret_name(name) else redact_word(value, known)) for name, value in some)

    return replace(
        plan,
        image=redact(plan.image, known),
        entrypoint=None if plan.entrypoint is None else redact_word(plan.entrypoint, known),
        command=redact_words(plan.command, known),
        env=redact_pairs(plan.env),
        mounts=tuple(replace(m, source=redact(m.source, known), target=redact(m.target, known)) for m in plan.mounts),
        options=redact_pairs(plan.options),
        labels=tuple((name, redact(value, known)) for name, value in plan.labels),
        served_model=None if plan.served_model is None else redact(plan.served_model, known),
        api_key=MASK if plan.api_key else None,
        ready=replace(
            plan.ready,
            line=None if plan.ready.line is None else redact(plan.ready.line, known),
            health=None if plan.ready.health is None else redact_word(plan.ready.health, known),
            prompt=redact(plan.ready.prompt, known),
        ),
        secrets=(),
    )


def to_json_data(value: object) -> object:
    """Return dataclasses as dicts, tuples as lists, enums as their values, floats to six places."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_json_data(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [to_json_data(item) for item in value]
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else None  # JSON has no other numbers
    if isinstance(value, PurePath):
        return str(value)
    return value


@typing.overload
def from_json_data(kind: type[T], data: object) -> T: ...
@typing.overload
def from_json_data(kind: type[T], data: object, *, is_strict: typing.Literal[False]) -> T | None: ...
def from_json_data(kind: type[T], data: object, *, is_strict: bool = True) -> T | None:
    """Return the dataclass that `to_json_data` wrote; fields that it does not have are ignored.

    Raises ValueError if the data is not one. With ``is_strict=False``, for what a node sent, a value that does not fit its
    type is None instead, and so is the dataclass if that value has no default; a number of more than 64 bits fits no type there.
    """
    try:
        return typing.cast("T | None", _build_decoder(typing.cast("typing.Any", kind), is_strict)(data))
    except (TypeError, ValueError, OverflowError) as wrong:
        raise ValueError(f"not a whole {kind.__name__}: {wrong}") from wrong


@cache
def _build_decoder(hint: typing.Any, is_strict: bool) -> ValueDecoder:
    """Return a decoder for a type, which is examined once. What does not fit raises TypeError or ValueError, or is None."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        decode = _build_decoder(next(part for part in parts if part is not type(None)), is_strict)
        return (lambda value: None if value is None else decode(value)) if type(None) in parts else decode
    if isinstance(hint, typing.NewType):
        return _build_decoder(hint.__supertype__, is_strict)
    if origin in (tuple, Sequence):
        return _build_tuple_decoder(hint, parts if origin is tuple else (*parts, ...), is_strict)
    if is_dataclass(hint) and isinstance(hint, type):
        return _build_dataclass_decoder(hint, is_strict)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return lambda value: _decode_member(hint, value, is_strict)
    if hint in (int, float):
        accepted = (int,) if hint is int else (int, float)
        return lambda value: (
            hint(value)
            if type(value) in accepted and (is_strict or abs(value) < _NUMBER_LIMIT)  # NaN fails this comparison too
            else _refuse_value(hint, value, is_strict)
        )
    return lambda value: value if type(value) is hint else _refuse_value(hint, value, is_strict)


def _refuse_value(hint: typing.Any, value: object, is_strict: bool) -> object:
    if not is_strict:
        return None
    shown = "nothing" if value is None else f"a {type(value).__name__}"
    raise TypeError(f"{shown} where {getattr(hint, '__name__', hint)} belongs")


def _decode_member(kind: type[Enum], value: object, is_strict: bool) -> object:
    try:
        return kind(value)
    except ValueError:
        if is_strict:
            raise
        return None


def _build_tuple_decoder(hint: object, parts: tuple[typing.Any, ...], is_strict: bool) -> ValueDecoder:
    decoders = [_build_decoder(part, is_strict) for part in parts if part is not Ellipsis]
    item_may_be_none = type(None) in typing.get_args(parts[0])

    def decode_tuple(value: typing.Any) -> object:
        if isinstance(value, Mapping) and not is_strict:  # errors and settings by name
            value = [[key, item] for key, item in value.items()]
        if not isinstance(value, list):
            return _refuse_value(hint, value, is_strict)
        if parts[-1] is not Ellipsis:
            return tuple(decode(item) for decode, item in zip(decoders, value, strict=is_strict))
        items = map(decoders[0], value)
        return tuple(items) if item_may_be_none else tuple(item for item in items if item is not None)

    return decode_tuple


def _build_dataclass_decoder(kind: type, is_strict: bool) -> ValueDecoder:
    def decode_tolerantly(data: typing.Any) -> object:
        if type(data) is not dict and not isinstance(data, Mapping):
            return None
        built: dict[str, object] = {}
        for name, decode, is_needed in _list_fields(kind, is_strict):
            given = data.get(name)
            value = None if given is None else decode(given)
            if value is not None:
                built[name] = value
            elif is_needed:
                return None
        return kind(**built)

    def decode_dataclass(data: typing.Any) -> object:
        if not isinstance(data, Mapping):
            return _refuse_value(kind, data, is_strict)
        built: dict[str, object] = {}
        for name, decode, is_needed in _list_fields(kind, is_strict):
            try:
                value = decode(data[name]) if name in data else None
            except (TypeError, ValueError, OverflowError) as wrong:
                raise ValueError(f"{name}: {wrong}") from wrong
            if value is not None or name in data:
                built[name] = value
            elif is_needed:
                raise ValueError(f"{name} is missing")
        return kind(**built)

    return decode_dataclass if is_strict else decode_tolerantly  # samples, several a second, are read by the second one


@cache
def _list_fields(kind: type, is_strict: bool) -> list[tuple[str, ValueDecoder, bool]]:
    """Return name, decoder and whether it has no default, at the first use: a verdict holds other verdicts."""
    hints = typing.get_type_hints(kind)
    return [(one.name, _build_decoder(hints[one.name], is_strict), one.default is MISSING) for one in fields(kind)]
