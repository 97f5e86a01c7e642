"""What sparkctl asks of an engine again and again is in the engine's log, and not in what is shown of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import pytest

from sparkctl.clock import SystemClock
from sparkctl.commands.list_endpoints import list_endpoints
from sparkctl.commands.show_log import ShowLog, show_log
from sparkctl.commands.stop.stop_instance import StopInstance, stop_instance
from sparkctl.config import load_config
from sparkctl.context import CommandContext
from sparkctl.model.engine_metrics import EngineMeter
from sparkctl.model.events import Event, LogArrived
from sparkctl.model.launch_plan import REQUEST_MARK
from sparkctl.model.node import Node
from sparkctl.model.phase import Phase
from sparkctl.model.text.log_line import LogLine
from sparkctl.monitor.meters.engine_meters import EngineMeters
from sparkctl.monitor.node_monitor import is_idle, read_container_list
from sparkctl.monitor.node_status import ContainerInspections, read_node_statuses
from sparkctl.simulator import SimulatedSparks
from sparkctl.transport import http_client
from sparkctl.transport.node_session import NodeSession
from tests.support.sim_clients import FAST

pytestmark = pytest.mark.simulation("two-stacks", **FAST)

INSTANCE = "qwen36-vllm"
ASKED = 30


@pytest.fixture
def node(sparks: SimulatedSparks) -> Node:
    return load_config(sparks.config_path).nodes[1]


async def collect_log_lines(events: AsyncIterator[Event]) -> list[LogLine]:
    return [line for event in [each async for each in events] if isinstance(event, LogArrived) for line in event.lines]


async def query_engine(node: Node) -> None:
    """Read its figures as the panel does, and once as somebody else on that node would."""
    async with NodeSession(node) as session:
        await session.link.connect()
        (one,) = (await read_container_list(session, ContainerInspections(session))).instances
        meters = EngineMeters(session)
        for _ in range(ASKED):
            await meters.read_metrics([one])
        assert meters.get_current_readings(0.0)[one.container_id or ""].numbers is not None
        await meters.aclose()
        assert (await http_client.request_tcp(session.link, one.port or 0, "GET", "/metrics")).is_success


async def test_our_questions_are_left_out_and_nobody_elses(
    sparks: SimulatedSparks, node: Node, ctx: CommandContext
) -> None:
    await query_engine(node)
    whole = await collect_log_lines(show_log(ctx, ShowLog(instance=INSTANCE, nodes=[node], everything=True)))
    shown = await collect_log_lines(show_log(ctx, ShowLog(instance=INSTANCE, nodes=[node])))
    assert sum(f"GET /metrics?{REQUEST_MARK} HTTP" in line.text for line in whole) == ASKED
    rest = [line for line in whole if REQUEST_MARK not in line.text]
    assert shown[: len(rest)] == rest
    assert sum('"GET /metrics HTTP/1.1" 200' in line.text for line in shown) == 1
    by_number = {line.number: line.text for line in whole}
    assert all(by_number.get(line.number, line.text) == line.text for line in shown), "numbers are the log's own"


@pytest.mark.parametrize("follow", [False, True])
async def test_the_last_lines_are_the_last_that_are_shown(
    sparks: SimulatedSparks, node: Node, ctx: CommandContext, follow: bool
) -> None:
    (process,) = sparks.docker["spark2"].running.values()
    process.decoding.background = 0  # it says once more how fast it was, at most, and that in two lines
    for count in range(3):
        process._write_log(f"before {count}\n", "stdout")
    for count in range(700):
        process._write_log(f'INFO:     127.0.0.1:{count} - "GET /metrics?{REQUEST_MARK} HTTP/1.1" 200 OK\n', "stdout")
    found: list[str] = []
    async for event in show_log(ctx, ShowLog(instance=INSTANCE, nodes=[node], tail=5, follow=follow)):
        if isinstance(event, LogArrived):
            found += [line.text for line in event.lines]
            if follow and "later" not in found:
                process._write_log(
                    f'INFO:     127.0.0.1:1 - "GET /health?{REQUEST_MARK} HTTP/1.1" 200 OK\nlater\n', "stdout"
                )
        if "later" in found:
            break
    assert [text for text in found if text.startswith("before ")] == ["before 0", "before 1", "before 2"]
    assert len(found) == 5 or follow
    assert "later" in found or not follow
    assert not any(REQUEST_MARK in text for text in found)


async def test_the_saved_log_is_whole_and_shown_without_them(
    sparks: SimulatedSparks, node: Node, ctx: CommandContext
) -> None:
    await query_engine(node)
    async for _ in stop_instance(ctx, StopInstance(instance=INSTANCE, nodes=[node])):
        pass
    (saved,) = ctx.history.list_saved_logs(INSTANCE, [node.name])
    kept = (await asyncio.to_thread(saved.path.read_text)).count(REQUEST_MARK)
    assert kept >= ASKED
    assert not any(
        REQUEST_MARK in line.text
        for line in await collect_log_lines(show_log(ctx, ShowLog(instance=INSTANCE, nodes=[node])))
    )
    whole = await collect_log_lines(show_log(ctx, ShowLog(instance=INSTANCE, nodes=[node], everything=True)))
    assert sum(REQUEST_MARK in line.text for line in whole) == kept


class ClockAhead(SystemClock):
    """The true clock, and as far ahead of it as the test wants."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.seconds


async def watch_engine(
    sparks: SimulatedSparks, ask: Callable[[NodeSession, int], Awaitable[None]] | None = None
) -> EngineMeter:
    """Watch the SGLang of the first Spark at rest for a minute as the panel does, and return its last figures."""
    (process,) = sparks.docker["spark1"].running.values()
    process.decoding.background = 0
    process.serving.launch = replace(process.serving.launch, metrics=True)
    clock = ClockAhead()
    async with NodeSession(load_config(sparks.config_path).nodes[0], None, clock) as session:
        await session.link.connect()
        inspections, meters = ContainerInspections(session), EngineMeters(session)
        for _ in range(20):
            clock.seconds += 3.0
            (one,) = (await read_container_list(session, inspections)).instances
            assert one.phase is Phase.READY
            if ask is not None:
                await ask(session, one.port or 0)
            await meters.read_metrics([one])
        numbers = meters.get_current_readings(0.0)[one.container_id or ""].numbers
        await meters.aclose()
    assert numbers is not None
    return numbers


async def test_an_engine_that_only_we_ask_is_idle_and_generates_nothing_for_it(sparks: SimulatedSparks) -> None:
    (process,) = sparks.docker["spark1"].running.values()
    assert process.launch.kind == "sglang"
    numbers = await watch_engine(sparks)
    assert is_idle(numbers), numbers
    assert process.decoding.health_checks <= 1, "until it was found ready, and never again"


async def test_an_engine_that_anybody_asks_for_its_health_is_idle(sparks: SimulatedSparks) -> None:
    async def ask(session: NodeSession, port: int) -> None:
        for path in (
            "/health",
            "/health_generate",
            "/health",
        ):  # a load balancer, Docker's health check, another operator
            assert (await http_client.request_tcp(session.link, port, "GET", path)).is_success

    numbers = await watch_engine(sparks, ask)
    (process,) = sparks.docker["spark1"].running.values()
    assert process.decoding.health_checks > 20
    assert is_idle(numbers), numbers
    assert numbers.prompt_rate == 0


async def test_status_says_that_a_ready_engine_stops_once_its_log_says_so(
    sparks: SimulatedSparks, ctx: CommandContext
) -> None:
    """By whichever way: the first Spark's SGLang answers on while it drains, the second's vLLM has closed its port."""
    nodes = load_config(sparks.config_path).nodes
    (sglang,), (vllm,) = (sparks.docker[node.name].running.values() for node in nodes)
    assert all(view.is_healthy for view in await read_node_statuses(ctx, nodes))
    async with NodeSession(nodes[0]) as session:
        await session.link.connect()
        inspections = ContainerInspections(session)
        assert [one.phase for one in (await read_container_list(session, inspections)).instances] == [Phase.READY]
        line = (
            "[2026-11-22 10:05:00] SIGTERM received. signum=None frame=None. Draining requests and shutting down...\n"
        )
        sglang._write_log(line, "stderr")
        assert [one.phase for one in (await read_container_list(session, inspections)).instances] == [Phase.STOPPING]
    vllm.serving.ready = False
    vllm._write_log(
        "(APIServer pid=1) INFO 11-22 10:05:00 [launcher.py:254] [shutdown] API server: shutdown triggered\n", "stdout"
    )
    vllm._write_log("INFO:     Waiting for connections to close. (CTRL+C to force quit)\n", "stderr")
    (view,) = await read_node_statuses(ctx, nodes[1:])
    (one,) = view.instances
    assert one.phase is Phase.STOPPING
    assert (one.detail or "").startswith("it was asked to stop; ")
    assert not view.is_healthy, "`status --check` is not 0"


@pytest.mark.simulation("speech", **FAST)
async def test_a_voice_without_a_list_of_models_is_asked_with_our_mark_alone(
    sparks: SimulatedSparks, ctx: CommandContext
) -> None:
    nodes = load_config(sparks.config_path).nodes
    await read_node_statuses(ctx, nodes)
    await list_endpoints(ctx, nodes)
    whole = await collect_log_lines(show_log(ctx, ShowLog(instance="orpheus-tts", nodes=nodes[1:], everything=True)))
    asked = [line.text for line in whole if "HTTP/1.1" in line.text]
    assert any(f"/v1/models?{REQUEST_MARK}" in text for text in asked), asked
    assert [text for text in asked if REQUEST_MARK not in text] == []
