"""How an engine is asked, against servers on a port of this machine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import pytest

from sparkctl.core.own_questions import MARK
from sparkctl.model.node import Node, NodeName
from sparkctl.model.plan import ReadyRule, Service
from sparkctl.operations.following.numbers import _Meter
from sparkctl.operations.starting import readiness
from sparkctl.operations.starting.asking import Manners, ask
from sparkctl.wire.local import LocalLink

LINK = LocalLink(Node(NodeName("spark1"), "local"))


@dataclass
class Steps:
    """A clock that is set by hand."""

    seconds: float = 100.0

    def monotonic(self) -> float:
        return self.seconds


@dataclass
class Asked:
    """What asking an engine takes of a session."""

    link: LocalLink
    clock: Steps


@asynccontextmanager
async def server(status: Callable[[str], str]) -> AsyncIterator[tuple[int, list[str]]]:
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
        async with server(lambda _, said=status: said) as (port, heard):  # type: ignore[misc]
            answer = await ask(LINK, port, "GET", "/health", timeout=5.0)
        assert answer.status == int(status[:3])
        assert heard == [f"GET /health?{MARK}"]


async def test_a_server_that_takes_no_query_is_asked_without() -> None:
    async with server(lambda target: "200 OK" if target == "/health" else "404 Not Found") as (port, heard):
        answer = await ask(LINK, port, "GET", "/health", timeout=5.0)
    assert answer.ok
    assert heard == [f"GET /health?{MARK}", "GET /health"]


async def test_what_is_not_there_either_way_is_asked_for_unmarked_once() -> None:
    sglang = Node(NodeName("spark1"), "local")
    async with server(lambda _: "404 Not Found") as (port, heard):
        clock = Steps()
        meter = _Meter(Asked(LocalLink(sglang), clock), "c", port, "sglang")  # type: ignore[arg-type]
        for _ in range(4):
            await meter.count()
            clock.seconds += 61.0
    assert heard == [f"GET /metrics?{MARK}", "GET /metrics", *[f"GET /metrics?{MARK}"] * 3]


async def test_a_server_that_has_answered_one_question_of_ours_is_asked_no_other_twice() -> None:
    """What it has not is not there; an unmarked line in its log would be nobody's."""
    service = Service(0, ReadyRule(None, "/health"), "m")
    async with server(lambda target: "200 OK" if target.startswith("/health") else "404 Not Found") as (port, heard):
        service, manners = replace(service, port=port), Manners()
        assert (await readiness.health(LINK, service, manners=manners)).good
        assert not (await readiness.one_token(LINK, service, manners)).good
    assert heard == [f"GET /health?{MARK}", f"POST /v1/completions?{MARK}", f"POST /v1/chat/completions?{MARK}"]


@pytest.mark.parametrize("early", ["404 Not Found", "503 Loading"])
async def test_one_that_compares_whole_targets_is_asked_without_a_query_however_often(early: str) -> None:
    loaded: list[bool] = []

    def status(target: str) -> str:
        return early if not loaded else "200 OK" if target == "/health" else "404 Not Found"

    async with server(status) as (port, heard):
        service, manners = Service(port, ReadyRule(None, "/health"), "m"), Manners()
        assert not (await readiness.health(LINK, service, manners=manners)).good
        loaded.append(True)
        for _ in range(2):
            assert (await readiness.health(LINK, service, manners=manners)).good
    assert heard[-4:] == [f"GET /health?{MARK}", "GET /health"] * 2
