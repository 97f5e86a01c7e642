"""Lines from the guard: strict about the protocol, tolerant of what is new, and nothing wrong becomes a number or a path."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparkctl.model.guard_state import (
    GuardAction,
    GuardEvent,
    GuardMemoryReading,
    GuardPermissions,
    GuardProcess,
    GuardReceipt,
    GuardRefusal,
    GuardRole,
    GuardState,
)
from sparkctl.monitor.guard_client import MAX_LINE_BYTES, decode_guard_line, decode_guard_start

ID = "ab" * 32
EVENT = {"at": 1.5, "what": "warned", "container": ID, "instance": "qwen", "available": 900, "free": 40, "rate": 2e9,
         "to_zero": 0.5, "why": "memory falls"}  # fmt: skip
WATCH = {"container": ID, "instance": "qwen", "floor": 5, "since": 1, "ends": 601.0, "role": "loading", "weights": True,
         "level": "warned", "port": None}  # fmt: skip


def make_guard_line(kind: str, **fields: Any) -> bytes:
    return json.dumps({"guard": 1, "kind": kind, **fields}).encode() + b"\n"


def make_start_line(**fields: Any) -> bytes:
    return json.dumps({"probe": 1, "kind": "guard", "socket": "/tmp/g-0/guard.sock", "pid": 7, **fields}).encode()


def test_a_start() -> None:
    assert decode_guard_start(make_start_line(already=True, moon=1)) == GuardProcess("/tmp/g-0/guard.sock", 7, True)
    assert decode_guard_start(b'{"probe":1,"kind":"refused","what":"no"}\n') == GuardRefusal("no")


@pytest.mark.parametrize("wrong", [b"", b"Welcome\n", b"[1]", make_start_line(probe=2), make_start_line(kind="hello"),
                                   make_start_line(socket="x"), make_start_line(socket="/tmp/a\x1bb"), make_start_line(socket="/" + "a" * 200),
                                   make_start_line(probe=True)])  # fmt: skip
def test_other_text_is_no_guard_start(wrong: bytes) -> None:
    with pytest.raises(ValueError, match="guard"):
        decode_guard_start(wrong)


def test_a_state_with_news_and_gaps() -> None:
    found = decode_guard_line(
        make_guard_line("state", since=3, pid=7, available="x", free=9, rights={"drop": True, "compact": 1}, docker=None, new=[],
             watches=[WATCH, WATCH | {"container": "../../etc"}, WATCH | {"floor": None}, WATCH | {"role": "eating"}],
             events=[EVENT, EVENT | {"what": "sang"}, EVENT | {"rate": None}], receipts=[ID[:12], "../x", 3, "z" * 12])
    )  # fmt: skip
    assert isinstance(found, GuardState)
    assert (found.available, found.free, found.docker, found.rights) == (None, 9, None, GuardPermissions(True, None))
    assert [(watch.role, watch.weights, watch.since) for watch in found.watches] == [
        (GuardRole.LOADING, True, 1.0), (None, True, 1.0)]  # fmt: skip
    assert [(event.what, event.rate) for event in found.events] == [
        (GuardAction.WARNED, 2e9),
        (GuardAction.WARNED, None),
    ]
    assert found.receipts == (ID[:12],)


def test_an_event_a_receipt_and_none() -> None:
    event = decode_guard_line(make_guard_line("event", event=EVENT))
    assert isinstance(event, GuardEvent)
    assert (event.instance, event.to_zero) == ("qwen", 0.5)
    receipt = {"container": ID, "at": 2, "did": "killed", "why": "w", "available": 5, "floor": 9, "reaction": 0.012,
               "answer": 204, "samples": [[1.5, 9, 8, 7, 6], [1.6, 9, 8], "x"], "events": [EVENT]}  # fmt: skip
    found = decode_guard_line(make_guard_line("receipt", receipt=receipt))
    assert isinstance(found, GuardReceipt)
    assert found.samples == (GuardMemoryReading(at=1.5, available=9, free=8, page_cache=7, swap_free=6),)
    assert (found.reaction, found.answer, found.events[0].what) == (0.012, 204, GuardAction.WARNED)
    assert decode_guard_line(make_guard_line("receipt", receipt=None)) is None
    for wrong in ({"container": "../../x"}, {"did": "sang"}, {"floor": float("nan")}):
        with pytest.raises(ValueError, match="receipt"):
            decode_guard_line(make_guard_line("receipt", receipt=receipt | wrong))


@pytest.mark.parametrize("wrong", [b"", b"{", b"[" * 100_000, b'{"guard":2,"kind":"state"}', make_guard_line("state"), make_guard_line("song"),
                                   make_guard_line("event", event=3), b'{"guard":1,"kind":"state","since":NaN,"pid":1}',
                                   b'{"guard":1,"kind":"state","since":1e999,"pid":1}', b" " * (MAX_LINE_BYTES + 1),
                                   b'{"guard":1,"kind":"state","pid":1,"since":1' + b"0" * 400 + b"}"])  # fmt: skip
def test_other_lines_are_refused(wrong: bytes) -> None:
    with pytest.raises(ValueError, match="guard"):
        decode_guard_line(wrong)
