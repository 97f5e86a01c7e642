"""Write events as JSON lines and read them back. This is what ``--json`` prints: schema version 1, see docs/scripting.md.

Secrets never pass: plans are written as `redact_launch_plan` returns them.
"""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from enum import Enum
from functools import cache
from pathlib import PurePath

from sparkctl.model import events
from sparkctl.model.launch_plan import LaunchPlan
from sparkctl.model.text.secrets import MASK, is_secret_name, redact, redact_word, redact_words

EVENT_SCHEMA_VERSION = 1
T = typing.TypeVar("T")
_EVENT_TYPES: dict[str, type] = {
    "node": events.NodeStateChanged,
    "memory": events.MemorySampled,
    "sample": events.SampleArrived,
    "caches": events.CachesDropped,
    "containers": events.ContainersListed,
    "numbers": events.MeterArrived,
    "facts": events.EngineFactsReported,
    "plan": events.LaunchPlanned,
    "fit": events.MemoryFitEvaluated,
    "phase": events.PhaseChanged,
    "log": events.LogArrived,
    "guard": events.GuardActed,
    "guarded": events.GuardStatusChanged,
    "warning": events.WarningEmitted,
    "finding": events.FindingReported,
    "moved": events.TransferProgressed,
    "released": events.MemoryReleased,
    "switch-plan": events.SwitchPlanned,
    "switch": events.SwitchStepReported,
    "switch-found": events.SwitchJournalReported,
    "examined": events.CheckCompleted,
    "result": events.CommandEnded,
}
_EVENT_NAMES = {kind: name for name, kind in _EVENT_TYPES.items()}


def encode_event(event: events.Event) -> dict[str, object]:
    """Return an event as plain JSON data: ``ts``, ``event`` and ``node`` first, then its own fields."""
    if isinstance(event, events.LaunchPlanned):
        event = replace(event, plan=redact_launch_plan(event.plan))
    body = to_json_data(event)
    assert isinstance(body, dict)
    head = {"ts": round(event.ts, 6), "event": _EVENT_NAMES[type(event)], "node": body.get("node")}
    if isinstance(event, events.CommandEnded):
        head["schema"] = EVENT_SCHEMA_VERSION
    return head | {key: value for key, value in body.items() if key not in head}


def decode_event(data: Mapping[str, object]) -> events.Event:
    """Return the event that `encode_event` wrote. Raises ValueError if the data is not an event of this schema."""
    kind = _EVENT_TYPES.get(str(data.get("event")))
    if kind is None:
        raise ValueError(f"no such event: {data.get('event')!r}")
    try:
        return typing.cast(
            "events.Event", _decode_value(kind, {k: v for k, v in data.items() if k not in ("event", "schema")})
        )
    except (TypeError, ValueError, OverflowError) as wrong:
        raise ValueError(f"not a whole {data.get('event')} event: {wrong}") from wrong


def redact_launch_plan(plan: LaunchPlan) -> LaunchPlan:
    """Return a plan that may be shown: every secret value in it is masked."""
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
    if isinstance(value, tuple | list):
        return [to_json_data(item) for item in value]
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else None  # JSON has no other numbers
    if isinstance(value, PurePath):
        return str(value)
    return value


def from_json_data(kind: type[T], data: Mapping[str, object]) -> T:
    """Return the dataclass that `to_json_data` wrote. Raises ValueError if the data is not one."""
    try:
        built = _decode_value(kind, data)
    except (TypeError, KeyError) as wrong:
        raise ValueError(f"not a whole {kind.__name__}: {wrong}") from wrong
    assert isinstance(built, kind)
    return built


@cache
def _get_type_hints(kind: type) -> dict[str, object]:
    return typing.get_type_hints(kind)


def _decode_value(hint: object, value: object) -> object:
    """Return ``value`` as the type ``hint``. Raises TypeError or ValueError if it has another type."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in parts:
            return None
        return _decode_value(next(part for part in parts if part is not type(None)), value)
    if origin is tuple and isinstance(value, list):
        if parts[-1] is Ellipsis:
            return tuple(_decode_value(parts[0], item) for item in value)
        return tuple(_decode_value(part, item) for part, item in zip(parts, value, strict=True))
    if isinstance(hint, typing.NewType):
        return _decode_value(hint.__supertype__, value)
    if isinstance(hint, type) and is_dataclass(hint) and isinstance(value, Mapping):
        return _decode_dataclass(hint, value)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(value)
    if hint is float and type(value) is int:
        return float(value)
    if not isinstance(hint, type) or type(value) is not hint:
        raise TypeError(f"{_describe_type(value)} where {getattr(hint, '__name__', hint)} belongs")
    return value


def _decode_dataclass(kind: type, data: Mapping[str, object]) -> object:
    hints, built = _get_type_hints(kind), {}
    for name in data.keys() & hints.keys():  # ignore fields that a newer version added
        try:
            built[name] = _decode_value(hints[name], data[name])
        except (TypeError, ValueError) as wrong:
            raise ValueError(f"{name}: {wrong}") from wrong
    missing = [each.name for each in fields(kind) if each.default is MISSING and each.name not in built]
    if missing:
        raise ValueError(f"{missing[0]} is missing")
    return kind(**built)


def _describe_type(value: object) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"
