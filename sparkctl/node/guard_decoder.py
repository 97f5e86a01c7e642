"""Decode a line from the guard: the one that its start prints, and those on its socket.

Strict about the protocol, tolerant of fields that a newer guard may add; what is missing or has another type is None. A
container's id becomes a file name here, so a line with an invalid one is refused.
"""

from __future__ import annotations

import re
from dataclasses import fields, replace

from sparkctl.model.guard_state import (
    GuardEvent,
    GuardMemoryReading,
    GuardProcess,
    GuardReceipt,
    GuardRefusal,
    GuardState,
)
from sparkctl.model.json_codec import from_json_data
from sparkctl.model.text.sanitize import load_json
from sparkctl.node.agent import AGENT_PROTOCOL

GUARD_PROTOCOL = 1
MAX_LINE_BYTES = 1 << 20  # bytes: a receipt has some hundred readings, never this many
_CONTAINER_ID_PATTERN = re.compile(r"[0-9a-f]{64}")
_SHORT_ID_PATTERN = re.compile(r"[0-9a-f]{12}")
_SOCKET_PATH_PATTERN = re.compile(r"/[\w./-]{1,100}")  # a socket's path: the kernel's own limit is 108 bytes
_MAX_EVENTS = 64  # events and receipts: the guard keeps fewer
_MAX_SAMPLES = 4096


def decode_guard_start(line: bytes) -> GuardProcess | GuardRefusal:
    """Return what the start of a guard printed. Raises ValueError if it is not such a line."""
    data = _decode_object(line, "probe", AGENT_PROTOCOL)
    if data.get("kind") == "refused":
        return _decode_refusal(data)
    started = from_json_data(GuardProcess, data, is_strict=False) if data.get("kind") == "guard" else None
    if started is None or not _SOCKET_PATH_PATTERN.fullmatch(started.socket):
        raise ValueError(f"not the start of a guard: {line[:80]!r}")
    return started


def decode_guard_line(line: bytes) -> GuardState | GuardEvent | GuardReceipt | GuardRefusal | None:
    """Return the content of a line on the guard's socket; None is the answer "there is no such receipt".

    Raises ValueError if it is not a line of this protocol.
    """
    data = _decode_object(line, "guard", GUARD_PROTOCOL)
    kind = data.get("kind")
    if kind == "refused":
        return _decode_refusal(data)
    if kind == "receipt" and data.get("receipt") is None:
        return None
    found: GuardState | GuardEvent | GuardReceipt | None = None
    if kind == "state":
        found = _limit_state(from_json_data(GuardState, data, is_strict=False))
    elif kind == "event":
        found = from_json_data(GuardEvent, data.get("event"), is_strict=False)
    elif kind == "receipt":
        found = _decode_receipt(data.get("receipt"))
    if found is None:
        raise ValueError(f"not a whole {kind} of the guard: {line[:80]!r}")
    return found


def _decode_object(line: bytes, name: str, protocol: int) -> dict[str, object]:
    if len(line) > MAX_LINE_BYTES:
        raise ValueError(f"a line of {len(line)} bytes: the guard says nothing that long")
    try:
        data = load_json(line)
    except (ValueError, RecursionError) as wrong:
        raise ValueError(f"not a line of the guard: {line[:80]!r}") from wrong
    if not isinstance(data, dict) or type(data.get(name)) is not int or data[name] != protocol:
        raise ValueError(f"not protocol {protocol} of the guard: {line[:80]!r}")
    return data


def _decode_refusal(data: dict[str, object]) -> GuardRefusal:
    return from_json_data(GuardRefusal, data, is_strict=False) or GuardRefusal("the guard refused, and did not say why")


def _limit_state(found: GuardState | None) -> GuardState | None:
    if found is None:
        return None
    return replace(
        found,
        watches=tuple(watch for watch in found.watches if _CONTAINER_ID_PATTERN.fullmatch(watch.container)),
        events=found.events[-_MAX_EVENTS:],
        receipts=tuple(one for one in found.receipts if _SHORT_ID_PATTERN.fullmatch(one))[:_MAX_EVENTS],
    )


def _decode_receipt(data: object) -> GuardReceipt | None:
    """Decode a receipt; its readings come as rows, in the order of `MeminfoReading`."""
    if not isinstance(data, dict):
        return None
    rows = data.get("samples")
    names = [field.name for field in fields(GuardMemoryReading)]
    named = [
        dict(zip(names, row, strict=False)) for row in (rows if isinstance(rows, list) else ()) if isinstance(row, list)
    ]
    found = from_json_data(GuardReceipt, {**data, "samples": named[-_MAX_SAMPLES:]}, is_strict=False)
    if found is None or not _CONTAINER_ID_PATTERN.fullmatch(found.container):
        return None
    return replace(found, events=found.events[-_MAX_EVENTS:])
