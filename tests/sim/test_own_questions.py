"""What sparkctl asks of an engine again and again is in the engine's log, and not in what is shown of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sparkctl.core.config import load_config
from sparkctl.core.context import Context
from sparkctl.core.history import History
from sparkctl.core.own_questions import MARK
from sparkctl.core.session import Session
from sparkctl.model.events import Event, LogArrived
from sparkctl.model.log import LogLine
from sparkctl.model.node import Node
from sparkctl.operations.down import DownRequest, down
from sparkctl.operations.following.follow import listing
from sparkctl.operations.following.inspecting import Inspections
from sparkctl.operations.following.numbers import Meters
from sparkctl.operations.logs import LogsRequest, logs
from sparkctl.sim import SimulatedSparks
from sparkctl.wire import http
from tests.sim.clients import FAST

INSTANCE = "qwen36-vllm"
ASKED = 30


@pytest.fixture
async def sparks() -> AsyncIterator[SimulatedSparks]:
    async with SimulatedSparks("two-stacks", speed=FAST["speed"], decode_speed=FAST["decode_speed"]) as opened:
        yield opened


@pytest.fixture
def node(sparks: SimulatedSparks) -> Node:
    return load_config(sparks.config_path).nodes[1]


@pytest.fixture
def ctx(tmp_path: Path) -> Context:
    return Context(History(tmp_path / "state"), "milo@desk")


async def lines(events: AsyncIterator[Event]) -> list[LogLine]:
    return [line for event in [each async for each in events] if isinstance(event, LogArrived) for line in event.lines]


async def ask(node: Node) -> None:
    """Read its figures as the panel does, and once as somebody else on that node would."""
    async with Session(node) as session:
        await session.link.connect()
        (one,) = (await listing(session, Inspections(session))).instances
        meters = Meters(session)
        for _ in range(ASKED):
            await meters.read([one])
        assert meters.told(0.0)[one.container_id or ""].numbers is not None
        await meters.aclose()
        assert (await http.request(session.link, one.port or 0, "GET", "/metrics")).ok


async def test_our_questions_are_left_out_and_nobody_elses(sparks: SimulatedSparks, node: Node, ctx: Context) -> None:
    await ask(node)
    whole = await lines(logs(ctx, LogsRequest(INSTANCE, [node], everything=True)))
    shown = await lines(logs(ctx, LogsRequest(INSTANCE, [node])))
    assert sum(f"GET /metrics?{MARK} HTTP" in line.text for line in whole) == ASKED
    rest = [line for line in whole if MARK not in line.text]
    assert shown[: len(rest)] == rest
    assert sum('"GET /metrics HTTP/1.1" 200' in line.text for line in shown) == 1
    by_number = {line.number: line.text for line in whole}
    assert all(by_number.get(line.number, line.text) == line.text for line in shown), "numbers are the log's own"


@pytest.mark.parametrize("follow", [False, True])
async def test_the_last_lines_are_the_last_that_are_shown(
    sparks: SimulatedSparks, node: Node, ctx: Context, follow: bool
) -> None:
    (process,) = sparks.docker["spark2"].running.values()
    process.decoding.background = 0  # it says once more how fast it was, at most, and that in two lines
    for count in range(3):
        process._write(f"before {count}\n", "stdout")
    for count in range(700):
        process._write(f'INFO:     127.0.0.1:{count} - "GET /metrics?{MARK} HTTP/1.1" 200 OK\n', "stdout")
    found: list[str] = []
    async for event in logs(ctx, LogsRequest(INSTANCE, [node], tail=5, follow=follow)):
        if isinstance(event, LogArrived):
            found += [line.text for line in event.lines]
            if follow and "later" not in found:
                process._write(f'INFO:     127.0.0.1:1 - "GET /health?{MARK} HTTP/1.1" 200 OK\nlater\n', "stdout")
        if "later" in found:
            break
    assert [text for text in found if text.startswith("before ")] == ["before 0", "before 1", "before 2"]
    assert len(found) == 5 or follow
    assert "later" in found or not follow
    assert not any(MARK in text for text in found)


async def test_the_saved_log_is_whole_and_shown_without_them(sparks: SimulatedSparks, node: Node, ctx: Context) -> None:
    await ask(node)
    async for _ in down(ctx, DownRequest(INSTANCE, [node])):
        pass
    (saved,) = ctx.history.saved_logs(INSTANCE, [node.name])
    kept = (await asyncio.to_thread(saved.path.read_text)).count(MARK)
    assert kept >= ASKED
    assert not any(MARK in line.text for line in await lines(logs(ctx, LogsRequest(INSTANCE, [node]))))
    whole = await lines(logs(ctx, LogsRequest(INSTANCE, [node], everything=True)))
    assert sum(MARK in line.text for line in whole) == kept
