"""A stop that had to wait never stops what was asked for later."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from sparkctl.commands.start.start_instance import start_instance
from sparkctl.commands.stop.pending_stops import PendingStop, PendingStopFiles
from sparkctl.commands.stop.stop_instance import StopInstance, stop_instance
from sparkctl.commands.switch.switch_instance import switch_instance
from sparkctl.context import CommandContext
from sparkctl.history.operation_history import OperationHistory
from sparkctl.model.events import CommandEnded, Event, Outcome, PhaseChanged, SwitchStepReported, WarningEmitted
from sparkctl.model.phase import Phase
from sparkctl.model.switch_plan import SwitchStep
from sparkctl.simulator import SimNodeOptions, SimulatedSparks
from tests.sim.start.test_start_guard import make_start_request
from tests.support.events import collect_events_and_end
from tests.support.sim_clients import wait_until_true
from tests.support.switch_scene import FAULT, NEW, OLD, SwitchScene, abort_switch

pytestmark = [pytest.mark.simulation(speed=20), pytest.mark.usefixtures("own_profiles")]


def write_pending_stop(sparks: SimulatedSparks, ctx: CommandContext, node: str = "spark1", ago: float = 0.0) -> str:
    """Owe the stop of what runs on a node, as `down` does when it cannot be asked; return its container."""
    (one,) = sparks.docker[node].containers.values()
    instance = one.labels["dev.sparkctl.instance"]
    PendingStopFiles(ctx.history.directory).save_stop(
        PendingStop(node=node, instance=instance, since=ctx.clock.unix_time() - ago, containers=(one.id[:12],))
    )  # type: ignore[arg-type]
    return one.id


def list_pending_stops(ctx: CommandContext) -> tuple[PendingStop, ...]:
    return PendingStopFiles(ctx.history.directory).list_all(ctx.clock.unix_time())


def join_warnings(events: list[Event]) -> str:
    return "\n".join(event.message for event in events if isinstance(event, WarningEmitted))


async def test_up_of_what_runs_ends_the_stop_that_is_owed(sparks: SimulatedSparks, ctx: CommandContext) -> None:
    await collect_events_and_end(start_instance(ctx, make_start_request(sparks)))
    container = write_pending_stop(sparks, ctx)
    seen, ended = await collect_events_and_end(start_instance(ctx, make_start_request(sparks)))
    assert (ended.outcome, ended.exit_code) == (Outcome.READY, 0)
    assert "the stop of qwen36-vllm on spark1" in join_warnings(seen)
    assert "a new start was asked for" in join_warnings(seen)
    assert list_pending_stops(ctx) == ()
    await collect_events_and_end(
        stop_instance(ctx, StopInstance(instance=None, nodes=make_start_request(sparks).nodes, dry_run=True))
    )
    _, ended = await collect_events_and_end(
        start_instance(ctx, make_start_request(sparks, "port=8999", replace=False))
    )  # refused, under no lock
    assert sparks.docker["spark1"].containers[container].state == "running"


async def test_a_dry_run_is_no_later_wish(sparks: SimulatedSparks, ctx: CommandContext) -> None:
    await collect_events_and_end(start_instance(ctx, make_start_request(sparks)))
    write_pending_stop(sparks, ctx)
    await collect_events_and_end(start_instance(ctx, make_start_request(sparks, dry_run=True)))
    assert len(list_pending_stops(ctx)) == 1


async def test_up_joins_a_start_that_was_to_be_stopped(sparks: SimulatedSparks, ctx: CommandContext) -> None:
    """It loads still: the very container goes on, and no other is started."""
    async with aclosing(start_instance(ctx, make_start_request(sparks))) as events:
        async for event in events:
            if isinstance(event, PhaseChanged) and event.phase is Phase.LOADING:
                break
    container = write_pending_stop(sparks, ctx)
    _, ended = await collect_events_and_end(start_instance(ctx, make_start_request(sparks)))
    assert ended.exit_code == 0, ended
    assert list(sparks.docker["spark1"].containers) == [container]


async def test_a_stop_is_not_owed_of_what_was_started_again_whatever_the_nodes_clock_says(ctx: CommandContext) -> None:
    """Its clock is ten minutes behind: by it, the container was started before the stop was asked for."""
    async with SimulatedSparks(speed=20, options={"spark1": SimNodeOptions(clock_ahead=-600.0)}) as sparks:
        await collect_events_and_end(start_instance(ctx, make_start_request(sparks)))
        container = write_pending_stop(sparks, ctx, ago=300.0)
        async with aclosing(
            start_instance(ctx, make_start_request(sparks, profile="kokoro-tts", forced=True))
        ) as events:
            async for event in events:
                if isinstance(event, PhaseChanged) and event.phase is Phase.CREATING:
                    break
        assert sparks.docker["spark1"].containers[container].state == "running"


async def test_a_switch_decides_on_what_was_to_be_stopped(scene: SwitchScene) -> None:
    """The old one gives way and is kept; where the new one fails it comes back, as the switch promises."""
    ctx = scene.ctx()
    for docker in scene.sparks.docker.values():
        (one,) = docker.containers.values()
        PendingStopFiles(ctx.history.directory).save_stop(
            PendingStop(node=docker.node.name, instance=OLD, since=ctx.clock.unix_time(), containers=(one.id,))
        )  # type: ignore[arg-type]
    seen, ended = await collect_events_and_end(switch_instance(ctx, scene.request(FAULT)))
    assert ended.exit_code == 1, ended
    assert f"{OLD} serves again" in (ended.message or "")
    assert f"the switch to {NEW} decides on it now" in join_warnings(seen)
    assert scene.is_old()
    assert list_pending_stops(ctx) == ()


async def test_abort_brings_back_what_another_had_wanted_stopped_before(scene: SwitchScene) -> None:
    """Ada's stop waits; milo switches and is cut off; ada's `abort` does not remove the container that it is to start."""
    ada = CommandContext(history=OperationHistory(scene.state.parent / "ada"), operator="ada@desk")
    for docker in scene.sparks.docker.values():
        (one,) = docker.containers.values()
        PendingStopFiles(ada.history.directory).save_stop(
            PendingStop(node=docker.node.name, instance=OLD, since=ada.clock.unix_time(), containers=(one.id,))
        )  # type: ignore[arg-type]
    assert await scene.crash(
        switch_instance(scene.ctx(), scene.request()),
        lambda event: isinstance(event, SwitchStepReported) and event.step is SwitchStep.STARTING,
    )
    _, ended = await asyncio.wait_for(collect_events_and_end(abort_switch(ada, scene.finish())), 60)
    assert ended.exit_code == 0, ended
    assert scene.is_old()


async def test_ctrl_c_between_two_locks_gives_back_the_first(scene: SwitchScene) -> None:
    """Under the second lock an owed stop is done first; whoever lends connections would hold the first for good."""
    await scene.speech_beside()
    ctx, daemon = scene.ctx(), scene.sparks.docker["spark2"]
    (speech,) = [one for one in daemon.containers.values() if one.labels["dev.sparkctl.instance"] == "kokoro-tts"]
    PendingStopFiles(ctx.history.directory).save_stop(
        PendingStop(
            node=scene.nodes[1].name, instance="kokoro-tts", since=ctx.clock.unix_time(), containers=(speech.id,)
        )
    )
    seen = []
    async with aclosing(stop_instance(ctx, StopInstance(instance=OLD, nodes=scene.nodes))) as events:
        async for event in events:
            seen.append(event)
            if isinstance(event, WarningEmitted) and "finishing what was asked" in event.message:
                assert len(ctx.locks) == 2
                ctx.interrupt.record_press()
    assert (event.outcome, event.exit_code) == (Outcome.INTERRUPTED, 130)  # type: ignore[union-attr]
    assert "interrupted before anything was asked to stop" in (event.message or "")  # type: ignore[union-attr]
    assert ctx.locks == set()
    assert OLD in scene.running()


async def test_ctrl_c_tells_what_docker_goes_on_to_stop_and_what_runs_on(scene: SwitchScene) -> None:
    """The head takes its time to end, and its worker waits for it: that was not asked yet."""
    ctx, seen, head = scene.ctx(), list[Event](), scene.sparks.docker["spark1"]
    for daemon in scene.sparks.docker.values():
        for process in daemon.running.values():
            process.deaf = True  # type: ignore[union-attr]
    (container,) = head.containers

    async def press_when_asked() -> None:
        await wait_until_true(lambda: head.encode_past_events(container, ["kill"]) != b"")
        ctx.interrupt.record_press()

    pressing = asyncio.create_task(press_when_asked())
    async with aclosing(stop_instance(ctx, StopInstance(instance=OLD, nodes=scene.nodes, grace=600.0))) as events:
        async for event in events:
            seen.append(event)
    await pressing
    assert isinstance(event, CommandEnded)
    assert event.exit_code == 130
    assert f"Docker goes on to stop {OLD} on spark1; {OLD} on spark2 runs on" in (event.message or "")
    runs_on = [one for one in seen if isinstance(one, WarningEmitted) and "not asked to stop" in one.message]
    assert [(one.node, one.hint) for one in runs_on] == [("spark2", f"sparkctl down {OLD} --node spark2")]
