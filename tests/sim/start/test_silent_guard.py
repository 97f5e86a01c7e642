"""A guard that hangs is said at once, and a start never ends as if it had been guarded when it was not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing

import pytest

from sparkctl.commands.arm_guard import read_guard_status
from sparkctl.commands.start.start_instance import start_instance
from sparkctl.context import CommandContext
from sparkctl.errors import NodeError
from sparkctl.model.events import CommandEnded, Event, Outcome, PhaseChanged, WarningEmitted
from sparkctl.model.guard_state import GuardCoverage, GuardRunState
from sparkctl.model.json_codec import to_json_data
from sparkctl.model.phase import Phase
from sparkctl.monitor import guard_client
from sparkctl.simulator import SimulatedSparks
from sparkctl.simulator.node_programs.sim_guard import SimGuard
from sparkctl.views.event_log_view import describe_command_result
from sparkctl.views.guard_view import format_guard_status
from tests.sim.start.test_start_guard import make_start_request

# as slow as a start has to be for a guard to be missed in the middle of it: some twelve seconds
pytestmark = pytest.mark.simulation(speed=0.7)


async def start_and_act_at_phase(
    events: AsyncIterator[Event],
    at: Phase,
    do: Callable[[], None],
    then: Callable[[WarningEmitted], None] = lambda event: None,
) -> tuple[list[Event], CommandEnded]:
    """Do something when a phase begins, and something at each warning after it."""
    seen: list[Event] = []
    async for event in events:
        seen.append(event)
        if isinstance(event, PhaseChanged) and event.phase is at and do is not None:
            do()
            do = lambda: None  # noqa: E731
        if isinstance(event, WarningEmitted):
            then(event)
    assert isinstance(event, CommandEnded)
    return seen, event


async def test_a_guard_that_hangs_is_said_while_it_loads(sparks: SimulatedSparks, ctx: CommandContext) -> None:
    guard = sparks.guards["spark1"]

    def hang() -> None:
        guard.is_hung = True

    async with aclosing(start_instance(ctx, make_start_request(sparks))) as events:
        seen, ended = await start_and_act_at_phase(events, Phase.LOADING, hang)
    (said,) = [
        at for at, event in enumerate(seen) if isinstance(event, WarningEmitted) and "did not answer" in event.message
    ]
    phases = [event.phase for event in seen[:said] if isinstance(event, PhaseChanged)]
    assert Phase.READY not in phases, "said while it loads, not after"
    warning = seen[said]
    assert isinstance(warning, WarningEmitted)
    assert "may load unguarded" in warning.message
    assert "kill -CONT" in (warning.hint or "")
    assert (ended.outcome, ended.guard) == (Outcome.READY, GuardCoverage.PARTLY)
    assert json.loads(json.dumps(to_json_data(ended)))["guard"] == "partly"
    line, _ = describe_command_result("up", ended, [])
    assert "its guard did not answer for part of the start" in line
    (view,) = await read_guard_status(ctx, make_start_request(sparks).nodes)
    assert view.answer is GuardRunState.SILENT
    assert "a guard runs, but does not answer" in format_guard_status([view])[0]
    assert any("is stopped" in line for line in format_guard_status([view]))
    guard.is_hung = False


async def test_a_guard_that_answers_again_is_reported(sparks: SimulatedSparks, ctx: CommandContext) -> None:
    guard = sparks.guards["spark1"]

    def hang() -> None:
        guard.is_hung = True

    def go_on(event: WarningEmitted) -> None:
        if "did not answer" in event.message:
            guard.is_hung = False

    async with aclosing(start_instance(ctx, make_start_request(sparks))) as events:
        seen, ended = await start_and_act_at_phase(events, Phase.LOADING, hang, go_on)
    warnings = [event.message for event in seen if isinstance(event, WarningEmitted)]
    assert any("answers again, and watches qwen36-vllm" in one for one in warnings), warnings
    assert ended.guard is GuardCoverage.PARTLY
    assert not guard.daemon.watches, "its watch ended with the start"


@pytest.mark.parametrize(("guarded", "expected"), [(True, GuardCoverage.FULL), (False, GuardCoverage.OFF)])
async def test_the_result_tells_how_it_was_guarded(ctx: CommandContext, guarded: bool, expected: GuardCoverage) -> None:
    async with (
        SimulatedSparks(speed=20) as sparks,
        aclosing(start_instance(ctx, make_start_request(sparks, guarded=guarded))) as events,
    ):
        _, ended = await start_and_act_at_phase(events, Phase.LOADING, lambda: None)
        assert (ended.outcome, ended.guard) == (Outcome.READY, expected)
        line, _ = describe_command_result("up", ended, [])
        assert "guard" not in line


async def test_a_start_without_a_guard_says_so_at_its_end(ctx: CommandContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """It hangs before the start: said before anything is created."""
    async with SimulatedSparks(speed=20) as sparks:
        guard = sparks.guards["spark1"]
        guard.is_running = guard.is_hung = True
        async with aclosing(start_instance(ctx, make_start_request(sparks))) as events:
            seen, ended = await start_and_act_at_phase(events, Phase.LOADING, lambda: None)
        kinds = [
            "created" if isinstance(event, PhaseChanged) and event.phase is Phase.CREATING else "warned"
            for event in seen
            if (isinstance(event, WarningEmitted) and "starts without one" in event.message)
            or (isinstance(event, PhaseChanged) and event.phase is Phase.CREATING)
        ]
        assert kinds == ["warned", "created"]
        assert ended.guard is GuardCoverage.NONE
        line, _ = describe_command_result("up", ended, [])
        assert "no guard watched its start" in line
        guard.is_hung = False


async def test_a_node_that_answers_something_else_has_no_guard_that_is_known(ctx: CommandContext) -> None:
    """As under ForceCommand: nothing is concluded from an answer that is none."""
    async with SimulatedSparks(speed=20) as sparks:
        sparks.guards["spark1"].list_directory = lambda: b"this account is for backups only\n"  # type: ignore[method-assign]
        (view,) = await read_guard_status(ctx, make_start_request(sparks).nodes)
        assert view.answer is None
        assert "no guard runs" not in "\n".join(format_guard_status([view]))
        async with ctx.create_session(make_start_request(sparks).nodes[0]) as session:
            await session.link.connect()
            with pytest.raises(NodeError, match="unexpected output"):
                await guard_client.read_guard_directory(session)


async def test_a_guard_whose_socket_cannot_be_opened_is_no_absent_one(ctx: CommandContext) -> None:
    """As with AllowStreamLocalForwarding no: its process is seen, and cannot be asked."""
    async with SimulatedSparks(speed=20) as sparks:
        guard: SimGuard = sparks.guards["spark1"]
        guard.list_directory = lambda: b"@@ own S\n@@ dir /tmp/sparkctl-guard-1000\n@@ socket\n@@ end\n"  # type: ignore[method-assign]
        (view,) = await read_guard_status(ctx, make_start_request(sparks).nodes)
        assert view.answer is GuardRunState.SILENT
        assert "cannot be opened" in (view.detail or "")
        assert "AllowStreamLocalForwarding" in (view.hint or "")
        await asyncio.sleep(0)
