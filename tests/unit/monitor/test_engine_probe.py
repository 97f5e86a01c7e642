"""How an engine is asked, against servers on a port of this machine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import pytest

from sparkctl.model.launch_plan import REQUEST_MARK, ReadinessRule, ReadinessTarget
from sparkctl.model.node import Node, NodeName
from sparkctl.monitor import engine_probe
from sparkctl.monitor.engine_probe import QueryMarkerSupport, request_engine
from sparkctl.monitor.meters.engine_meters import InstanceMeter
from sparkctl.transport.local_connection import LocalConnection

LINK = LocalConnection(Node(name=NodeName("spark1"), host="local"))


@dataclass
class SteppingClock:
    """A clock that is set by hand."""

    seconds: float = 100.0

    def monotonic(self) -> float:
        return self.seconds


@dataclass
class AskedEngine:
    """What asking an engine takes of a session."""

    link: LocalConnection
    clock: SteppingClock


@asynccontextmanager
async def serve_by_target(status: Callable[[str], str]) -> AsyncIterator[tuple[int, list[str]]]:
    """Answer by the target; yield the port and the first lines of all requests."""
    heard: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        method, target, _ = (await reader.readuntil(b"\r\n\r\n")).decode().split(" ", 2)
        heard.append(f"{method} {target}")
        writer.write(f"HTTP/1.1 {status(target)}\r\nContent-Length: 0\r\n\r\n".encode())
        writer.close()

    opened = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with opened:
        yield opened.sockets[0].getsockname()[1], heard


async def test_an_engine_is_asked_once() -> None:
    for status in ("200 OK", "503 Loading", "401 Unauthorized", "500 Oh"):
        async with serve_by_target(lambda _, said=status: said) as (port, heard):  # type: ignore[misc]
            answer = await request_engine(LINK, port, "GET", "/health", timeout=5.0)
        assert answer.status == int(status[:3])
        assert heard == [f"GET /health?{REQUEST_MARK}"]


async def test_a_server_that_takes_no_query_is_asked_without() -> None:
    async with serve_by_target(lambda target: "200 OK" if target == "/health" else "404 Not Found") as (port, heard):
        answer = await request_engine(LINK, port, "GET", "/health", timeout=5.0)
    assert answer.is_success
    assert heard == [f"GET /health?{REQUEST_MARK}", "GET /health"]


async def test_metrics_that_are_off_are_never_asked_for_without_our_mark() -> None:
    sglang = Node(name=NodeName("spark1"), host="local")
    async with serve_by_target(lambda _: "404 Not Found") as (port, heard):
        clock = SteppingClock()
        meter = InstanceMeter(AskedEngine(LocalConnection(sglang), clock), "c", port, "sglang")  # type: ignore[arg-type]
        for _ in range(4):
            await meter.read_metrics()
            clock.seconds += 61.0
    assert heard == [f"GET /metrics?{REQUEST_MARK}"] * 4


async def test_a_server_that_has_answered_one_question_of_ours_is_asked_no_other_twice() -> None:
    """What it has not is not there; an unmarked line in its log would be nobody's."""
    service = ReadinessTarget(0, ReadinessRule(line=None, health="/health"), "m")
    async with serve_by_target(lambda target: "200 OK" if target.startswith("/health") else "404 Not Found") as (
        port,
        heard,
    ):
        service, marker_support = replace(service, port=port), QueryMarkerSupport()
        assert (await engine_probe.check_health(LINK, service, marker_support=marker_support)).good
        assert not (await engine_probe.request_token(LINK, service, marker_support)).good
    assert heard == [
        f"GET /health?{REQUEST_MARK}",
        f"POST /v1/completions?{REQUEST_MARK}",
        f"POST /v1/chat/completions?{REQUEST_MARK}",
    ]


@pytest.mark.parametrize("early", ["404 Not Found", "503 Loading"])
async def test_one_that_compares_whole_targets_is_asked_without_a_query_however_often(early: str) -> None:
    loaded: list[bool] = []

    def status(target: str) -> str:
        return early if not loaded else "200 OK" if target == "/health" else "404 Not Found"

    async with serve_by_target(status) as (port, heard):
        service, marker_support = (
            ReadinessTarget(port, ReadinessRule(line=None, health="/health"), "m"),
            QueryMarkerSupport(),
        )
        assert not (await engine_probe.check_health(LINK, service, marker_support=marker_support)).good
        loaded.append(True)
        for _ in range(2):
            assert (await engine_probe.check_health(LINK, service, marker_support=marker_support)).good
    assert heard[-4:] == [f"GET /health?{REQUEST_MARK}", "GET /health"] * 2


@pytest.mark.parametrize(
    ("status", "is_alive"),
    [
        (None, False),
        (199, False),
        (200, True),
        (299, True),
        (300, False),
        (401, True),
        (403, True),
        (404, False),
        (503, False),
    ],
)
def test_success_and_a_question_for_a_key_come_from_a_server_that_is_up(status: int | None, is_alive: bool) -> None:
    assert engine_probe.is_alive_status(status) is is_alive


@pytest.mark.parametrize(
    ("body", "has_token"),
    [
        ('{"usage": {"completion_tokens": 1}}', True),
        ('{"usage": {"completion_tokens": 0}}', False),
        ('{"usage": {"completion_tokens": null}}', False),
        ('{"usage": null, "choices": [{"text": "a"}]}', True),
        ('{"choices": [{"text": ""}]}', False),
        ('{"choices": [{"message": {"content": "a"}}]}', True),
        ('{"choices": [{"message": {"content": null, "reasoning_content": "a"}}]}', True),
        ('{"choices": []}', False),
        (
            'data: {"choices": [{"delta": {}}]}\n\ndata: {"choices": [{"delta": {"content": "a"}}]}\n\ndata: [DONE]',
            True,
        ),
        ('data: {"choices": [{"delta": {}}]}\n\ndata: [DONE]', False),
        ("[]", False),
        ("no JSON", False),
    ],
)
def test_one_token_is_enough_and_less_is_none(body: str, has_token: bool) -> None:
    assert engine_probe.contains_token(body.encode()) is has_token
