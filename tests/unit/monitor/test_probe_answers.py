"""What an engine answers is evidence, without the secrets it repeats. Asked of a real server on the loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from sparkctl.commands.start.start_watch import collect_plan_secrets
from sparkctl.engines import load_engine
from sparkctl.logs.analyzer import LogAnalyzer
from sparkctl.logs.verdict_builder import build_verdict_from_line
from sparkctl.model.launch_plan import LaunchPlan, ReadinessTarget
from sparkctl.model.node import Node, NodeName
from sparkctl.model.text.log_line import LogLine
from sparkctl.model.text.secrets import MASK, mask_log_lines
from sparkctl.monitor import engine_probe
from sparkctl.transport.node_connection import NodeConnection
from sparkctl.transport.node_session import open_connection

KEY = "sesame-open-0123456789"


@asynccontextmanager
async def serve_one_answer(body: bytes, status: str = "500 Oops") -> AsyncIterator[int]:
    """A server that gives the same answer to everything; yields its port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@pytest.fixture
async def link() -> NodeConnection:
    link = open_connection(Node(name=NodeName("here"), host="local"))
    await link.connect()
    return link


@pytest.mark.parametrize("ask", [engine_probe.check_health, engine_probe.request_token])
@pytest.mark.parametrize("before", [0, 150, 175, 180, 5000])
async def test_the_answer_is_masked_before_it_is_cut(
    plan: LaunchPlan, link: NodeConnection, ask: Callable[..., Awaitable[engine_probe.ProbeResult]], before: int
) -> None:
    plan = replace(plan, env=(("VLLM_API_KEY", KEY),))
    async with serve_one_answer(b"." * before + f"no such key {KEY}; key was {KEY}".encode()) as port:
        answer = await ask(link, ReadinessTarget(port, plan.ready, api_key=KEY))
    assert not answer.good
    text = answer.format_masked(collect_plan_secrets(plan))
    assert "answered 500 " in text
    assert not any(KEY[:length] in text for length in (6, len(KEY)))
    assert KEY not in answer.what + repr(answer)
    assert (MASK in text) == (before <= 180)


async def test_an_answer_without_words_is_only_ours(link: NodeConnection, plan: LaunchPlan) -> None:
    async with serve_one_answer(b"", "503 Later") as port:
        answer = await engine_probe.check_health(link, ReadinessTarget(port, plan.ready))
    assert answer.format_masked(()) == "GET /health answered 503"


def test_a_verdict_quotes_masked_lines_only(plan: LaunchPlan) -> None:
    plan = replace(plan, env=(("VLLM_API_KEY", KEY),), engine="vllm")
    said = f"api_server.py: error: argument --max-model-len: invalid int value: '{KEY}'"
    lines = mask_log_lines([LogLine(when="2026-05-01T10:00:00Z", text=said, number=1)], collect_plan_secrets(plan))
    log = LogAnalyzer(engine=load_engine("vllm"), ready=plan.ready)
    log.feed_lines(lines)
    assert log.fatal_line is not None
    verdict = build_verdict_from_line(log.fatal_line, plan)
    assert KEY not in repr(verdict)
    assert MASK in repr(verdict)


@pytest.mark.parametrize(
    ("status", "good"), [("401 No", True), ("403 No", True), ("400 Bad", False), ("200 OK", False)]
)
async def test_a_request_without_the_key_must_be_refused(
    link: NodeConnection, plan: LaunchPlan, status: str, good: bool
) -> None:
    async with serve_one_answer(b"{}", status) as port:
        answer = await engine_probe.check_key_required(link, ReadinessTarget(port, plan.ready, api_key=KEY))
    assert answer.good is good
    assert KEY not in repr(answer)
