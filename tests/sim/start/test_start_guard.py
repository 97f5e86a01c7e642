"""The guard of a start on the simulated Sparks: the same commands over real SSH, the same decisions, a verdict with proof."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest

from sparkctl.commands.arm_guard import ArmGuard, arm_guard, disarm_guard, read_guard_status
from sparkctl.commands.diagnose_log import diagnose_instance
from sparkctl.commands.drop_page_cache import drop_page_cache
from sparkctl.commands.list_endpoints import list_endpoints
from sparkctl.commands.show_log import ShowLog, show_log
from sparkctl.commands.start.start_instance import start_instance
from sparkctl.commands.start.start_request import StartInstance
from sparkctl.commands.stop.stop_instance import StopInstance, stop_instance
from sparkctl.config import load_config
from sparkctl.context import CommandContext
from sparkctl.files import shipped_profiles_dir
from sparkctl.model.events import Event, GuardActed, LaunchPlanned, Outcome, PhaseChanged, WarningEmitted
from sparkctl.model.guard_state import GuardAction, GuardRole
from sparkctl.model.launch_plan import GuardRule
from sparkctl.model.node import Node, NodeName
from sparkctl.model.phase import Phase
from sparkctl.model.questions import HostKeyQuestion, NonInteractivePrompter, RetryStartQuestion
from sparkctl.model.text.units import GIB
from sparkctl.model.verdict import FailureCause, FieldChange
from sparkctl.monitor.node_monitor import read_container_list
from sparkctl.monitor.node_status import ContainerInspections
from sparkctl.monitor.node_status import read_node_statuses as node_status
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.simulator import SimNodeOptions, SimulatedSparks, SudoRule
from sparkctl.simulator.node_programs.sim_guard import SimGuard
from sparkctl.transport.node_session import NodeSession
from sparkctl.views.diagnosis_view import format_diagnosis
from sparkctl.views.guard_view import format_guard_status
from tests.support import sim_clients
from tests.support.events import collect_events, collect_events_and_end, find_command_end, list_warnings
from tests.support.run_command import parse_result, run_demo
from tests.support.sim_clients import FAST

pytestmark = pytest.mark.simulation(speed=5)  # a start can be met in the middle

RUNAWAY = ("env.SIM_FAULT=memory-runaway",)
RULE = GuardRule(limit=3600.0, cache_below=0)


def get_first_node(sparks: SimulatedSparks) -> Node:
    return load_config(sparks.config_path).nodes[0]


def make_start_request(
    sparks: SimulatedSparks, *sets: str, profile: str = "qwen36-vllm", **more: object
) -> StartInstance:
    chosen = ProfileLibrary(user=shipped_profiles_dir()).load_profile(profile, overrides=sets)
    words = (profile, *(word for one in sets for word in ("--set", one)))
    return StartInstance(profile=chosen, nodes=(get_first_node(sparks),), words=words, **more)  # type: ignore[arg-type]


def list_guard_actions(events: Sequence[Event]) -> list[GuardAction]:
    return [event.what for event in events if isinstance(event, GuardActed)]


async def wait_for_guard_event(sparks: SimulatedSparks, what: str) -> None:
    """Wait until the guard of spark1 has told ``what``."""
    async with asyncio.timeout(sim_clients.PATIENCE):
        while what not in [event["what"] for event in sparks.guards["spark1"].daemon.events.last]:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def wait_for_freed_memory(sparks: SimulatedSparks) -> None:
    """Wait until what a killed engine held has come back, which is after it: until then nothing else fits."""
    async with asyncio.timeout(sim_clients.PATIENCE):
        while sparks.nodes["spark1"].memory.available_bytes < 100 * GIB:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_a_runaway_is_stopped_and_said_to_be(sparks: SimulatedSparks, ctx: CommandContext) -> None:
    events = await collect_events(start_instance(ctx, make_start_request(sparks, *RUNAWAY)))
    ended = find_command_end(events)
    assert (ended.outcome, ended.exit_code) == (Outcome.FAILED, 1)
    assert ended.verdict is not None
    assert ended.verdict.cause is FailureCause.GUARD_STOPPED
    assert ended.verdict.field == "args.gpu-memory-utilization"
    assert "now 0.8" in ended.verdict.remedy
    proofs = [evidence.text for evidence in ended.verdict.evidence if evidence.origin == "guard"]
    assert proofs[0].startswith("MemAvailable fell from ")
    took = float(proofs[0].rpartition(" in ")[2].split()[0])
    assert took <= ended.seconds + 0.1, (proofs[0], ended.seconds)  # nothing from before the start is its proof
    assert ended.verdict.edit == FieldChange("args.gpu-memory-utilization", "0.72", "0.8", is_first_try=True)
    assert ended.verdict.again == (
        "sparkctl up qwen36-vllm --node spark1 --set env.SIM_FAULT=memory-runaway --set args.gpu-memory-utilization=0.72"
    )
    assert GuardAction.WARNED in list_guard_actions(events)
    assert GuardAction.KILLED in list_guard_actions(events)
    killed = next(event for event in events if isinstance(event, GuardActed) and event.what is GuardAction.KILLED)
    assert killed.available is not None
    assert 0 < killed.available < GIB // 2
    (container,) = sparks.docker["spark1"].containers.values()
    assert (container.state, container.exit_code) == ("exited", 137)  # nothing started it again


async def test_the_receipt_lies_beside_the_log_for_the_operator_alone(
    sparks: SimulatedSparks, ctx: CommandContext
) -> None:
    ended = find_command_end(await collect_events(start_instance(ctx, make_start_request(sparks, *RUNAWAY))))
    assert ended.log is not None
    receipt = Path(ended.log).with_suffix(".guard.json")
    assert stat.S_IMODE(receipt.stat().st_mode) == 0o600
    kept = json.loads(receipt.read_text())
    assert (kept["instance"], kept["did"], kept["floor"]) == ("qwen36-vllm", "killed", GIB // 2)
    assert any(sample["at"] > kept["at"] for sample in kept["samples"])  # the readings after the act, too


async def test_a_good_start_is_guarded_to_its_end_and_no_further(sparks: SimulatedSparks, ctx: CommandContext) -> None:
    events = await collect_events(start_instance(ctx, make_start_request(sparks)))
    assert find_command_end(events).outcome is Outcome.READY
    assert GuardAction.KILLED not in list_guard_actions(events)
    guard = sparks.guards["spark1"]
    assert [event["why"] for event in guard.daemon.events.last if event["what"] == "ended"] == ["ready"]
    assert not guard.daemon.watches


@pytest.mark.simulation(speed=2)  # a drop is to be told before the phase that follows, also by a busy machine
async def test_page_cache_is_dropped_only_while_weights_load(sparks: SimulatedSparks, ctx: CommandContext) -> None:
    sparks.nodes["spark1"].memory.drop_caches(3)
    wanted = make_start_request(sparks, "start.guard.cache_below=90g", profile="qwen36-ngram")
    events = await collect_events(start_instance(ctx, wanted))
    assert find_command_end(events).outcome is Outcome.READY
    assert GuardAction.DROPPED in list_guard_actions(events)
    seen = Phase.PLANNED, None
    for event in events:
        if isinstance(event, PhaseChanged):
            seen = event.phase, event.step.name if event.step else None
        if isinstance(event, GuardActed) and event.what is GuardAction.DROPPED:
            assert seen in ((Phase.LOADING, "weights"), (Phase.LOADING, "profiling"))  # told a moment after it was done


async def test_no_guard_is_no_guard(sparks: SimulatedSparks, ctx: CommandContext) -> None:
    for wanted in (
        make_start_request(sparks, guarded=False, dry_run=True),
        make_start_request(sparks, "start.guard=off", dry_run=True),
    ):
        events = await collect_events(start_instance(ctx, wanted))
        assert [event.plan.guard for event in events if isinstance(event, LaunchPlanned)] == [None]
    await collect_events(start_instance(ctx, make_start_request(sparks, guarded=False)))
    assert not sparks.guards["spark1"].is_running


@pytest.mark.simulation("empty", **{**FAST, "speed": 5.0})  # faster, a starved process reads the whole load at once
async def test_a_lost_link_costs_no_guard_and_no_event(sparks: SimulatedSparks, ctx: CommandContext) -> None:
    events: list[Event] = []
    cuts = 0
    async for event in start_instance(ctx, make_start_request(sparks)):
        events.append(event)
        if not cuts and isinstance(event, PhaseChanged) and event.step is not None and event.step.name == "weights":
            cuts += 1
            sparks.sshd["spark1"].drop_connections()
    assert cuts == 1
    assert find_command_end(events).outcome is Outcome.READY
    guard = sparks.guards["spark1"]
    assert [event["why"] for event in guard.daemon.events.last if event["what"] == "ended"] == ["ready"]
    assert not [event for event in events if isinstance(event, WarningEmitted) and "guard" in event.message]


async def test_the_guard_acts_while_nobody_is_there_and_the_next_one_tells(
    sparks: SimulatedSparks, ctx: CommandContext
) -> None:
    ended = find_command_end(
        await collect_events(start_instance(ctx, make_start_request(sparks, *RUNAWAY, detach=True)))
    )
    assert ended.outcome is Outcome.DETACHED
    assert [watch.role for watch in sparks.guards["spark1"].daemon.watches] == ["loading"]
    await wait_for_guard_event(sparks, "killed")
    (view,) = await node_status(ctx, [get_first_node(sparks)])
    assert "stopped by the guard" in (view.instances[0].detail or "")
    read = await collect_events(show_log(ctx, ShowLog(instance="qwen36-vllm", nodes=[get_first_node(sparks)])))
    assert any("the guard stopped qwen36-vllm" in event.message for event in read if isinstance(event, WarningEmitted))
    # kept by now: the next one has no news of it, and counts it as a failed start
    await wait_for_freed_memory(sparks)
    events = await collect_events(start_instance(ctx, make_start_request(sparks, *RUNAWAY)))
    again = getattr(find_command_end(events).verdict, "again", None)
    assert again is not None
    assert "--again" in again.split(), "without it the command that the verdict prints would be refused"
    await wait_for_freed_memory(sparks)
    refused = find_command_end(await collect_events(start_instance(ctx, make_start_request(sparks))))
    assert (refused.outcome, refused.exit_code) == (Outcome.REFUSED, 6)
    assert "(each time: guard-stopped)" in (refused.message or ""), "the names that help takes"


async def test_an_up_that_was_cut_off_is_told_of_by_the_next(sparks: SimulatedSparks, ctx: CommandContext) -> None:
    await collect_events(start_instance(ctx, make_start_request(sparks, *RUNAWAY, detach=True)))
    await wait_for_guard_event(sparks, "killed")
    await wait_for_freed_memory(sparks)
    events = await collect_events(start_instance(ctx, make_start_request(sparks)))
    warned = [event.message for event in events if isinstance(event, WarningEmitted)]
    assert any(text.startswith("the guard stopped qwen36-vllm at ") for text in warned), warned
    assert find_command_end(events).outcome is Outcome.READY


async def test_what_became_of_an_earlier_start_is_told_before_a_refusal(
    sparks: SimulatedSparks, ctx: CommandContext
) -> None:
    await collect_events(start_instance(ctx, make_start_request(sparks, *RUNAWAY, detach=True)))
    await wait_for_guard_event(sparks, "killed")
    too_much = ("args.gpu-memory-utilization=0.99",)
    events = await collect_events(start_instance(ctx, make_start_request(sparks, *too_much)))
    assert find_command_end(events).outcome is Outcome.REFUSED
    assert any(isinstance(event, WarningEmitted) and event.message.startswith("the guard stopped ") for event in events)


async def test_down_keeps_what_the_guard_left_of_a_container(sparks: SimulatedSparks, ctx: CommandContext) -> None:
    await collect_events(start_instance(ctx, make_start_request(sparks, *RUNAWAY, detach=True)))
    await wait_for_guard_event(sparks, "killed")
    (container,) = sparks.docker["spark1"].containers
    assert (
        find_command_end(
            await collect_events(
                stop_instance(ctx, StopInstance(instance="qwen36-vllm", nodes=[get_first_node(sparks)]))
            )
        ).outcome
        is Outcome.DONE
    )
    assert ctx.history.find_receipt("qwen36-vllm", "spark1", container) is not None
    read = await collect_events(
        show_log(ctx, ShowLog(instance="qwen36-vllm", nodes=[get_first_node(sparks)]))
    )  # from the disk by now
    assert any("the guard stopped qwen36-vllm" in event.message for event in read if isinstance(event, WarningEmitted))


async def test_a_detached_start_is_left_alone_once_it_is_ready(sparks: SimulatedSparks, ctx: CommandContext) -> None:
    await collect_events(start_instance(ctx, make_start_request(sparks, detach=True)))
    await wait_for_guard_event(sparks, "ended")
    whys = [event["why"] for event in sparks.guards["spark1"].daemon.events.last if event["what"] == "ended"]
    assert whys == ["it is ready, and nobody is attached"]


class Answering(NonInteractivePrompter):
    """Says yes or no to a third start, and remembers what was asked."""

    def __init__(self, answer: bool) -> None:
        self.answer = answer
        self.asked: list[RetryStartQuestion] = []

    async def ask_yes_no(self, question: HostKeyQuestion | RetryStartQuestion) -> bool:
        assert isinstance(question, RetryStartQuestion)
        self.asked.append(question)
        return self.answer


@pytest.mark.parametrize("answer", [False, True])
async def test_a_third_start_is_asked_about(sparks: SimulatedSparks, ctx: CommandContext, answer: bool) -> None:
    now = ctx.clock.unix_time()
    for number in range(2):
        ctx.history.record_failure("qwen36-vllm", "x", "spark1", "crashed", f"{number:012d}", now - 600 + number)
    asking = Answering(answer)
    ended = find_command_end(
        await collect_events(start_instance(replace(ctx, prompter=asking), make_start_request(sparks)))
    )
    assert ended.outcome is (Outcome.READY if answer else Outcome.REFUSED)
    (question,) = asking.asked
    assert [how for _, how in question.failures] == ["crashed", "crashed"]
    assert bool(sparks.docker["spark1"].containers) is answer
    if answer:  # it was good: nobody is asked any more
        await collect_events(stop_instance(ctx, StopInstance(instance="qwen36-vllm", nodes=[get_first_node(sparks)])))
        assert (
            find_command_end(await collect_events(start_instance(ctx, make_start_request(sparks)))).outcome
            is Outcome.READY
        )


async def test_once_more_needs_no_answer(sparks: SimulatedSparks, ctx: CommandContext) -> None:
    for number in range(2):
        ctx.history.record_failure("qwen36-vllm", "x", "spark1", "crashed", f"{number:012d}", ctx.clock.unix_time())
    assert (
        find_command_end(await collect_events(start_instance(ctx, make_start_request(sparks, once_more=True)))).outcome
        is Outcome.READY
    )


async def test_what_gave_its_start_no_token_is_not_ready_until_it_gives_one(
    sparks: SimulatedSparks, ctx: CommandContext
) -> None:
    request = make_start_request(sparks, "env.SIM_FAULT=no-token", timeout=6.0)
    ended = find_command_end(await collect_events(start_instance(ctx, request)))
    assert (ended.outcome, getattr(ended.verdict, "cause", None)) == (Outcome.TIMED_OUT, FailureCause.WEDGED)
    nodes = [get_first_node(sparks)]
    (view,) = await node_status(ctx, nodes)
    assert view.instances[0].phase is Phase.UNPROVED
    assert "answered 500" in (view.instances[0].detail or "")
    assert not view.is_healthy
    report = await diagnose_instance(ctx, "qwen36-vllm", nodes, None)
    assert report.diagnosis.verdict is not None
    assert report.diagnosis.verdict.cause is FailureCause.WEDGED
    await collect_events(stop_instance(ctx, StopInstance(instance="qwen36-vllm", nodes=nodes)))
    await collect_events(start_instance(ctx, make_start_request(sparks)))
    (container,) = sparks.docker["spark1"].containers
    assert ended.verdict is not None
    assert container[:12] not in ctx.history.list_awaited_tokens("spark1"), "the start saw one"
    ctx.history.save_verdict("qwen36-vllm", "spark1", container, ended.verdict)
    ctx.history.note_awaited_token("spark1", container)
    (view,) = await node_status(ctx, nodes)
    assert view.instances[0].phase is Phase.READY, "it gives a token now"
    assert container[:12] not in ctx.history.list_awaited_tokens("spark1")
    kept = [one for one in ctx.history.list_saved_logs("qwen36-vllm") if container.startswith(one.short_container_id)]
    assert [ctx.history.load_verdict(one) for one in kept] == [None]


async def test_no_front_end_takes_a_model_as_ready_before_its_start_saw_a_token(
    sparks: SimulatedSparks, ctx: CommandContext
) -> None:
    """The table, the live list and the endpoints: while the start is watched it warms up, where it was left it is not proved."""
    nodes = [get_first_node(sparks)]

    async def read_phases() -> list[Phase | None]:
        async with NodeSession(nodes[0], ctx.prompter, ctx.clock) as session:
            await session.link.connect()
            listed = await read_container_list(session, ContainerInspections(session), ctx)
        (view,) = await node_status(ctx, nodes)
        served, silent = await list_endpoints(ctx, nodes)
        assert not served
        assert "no answer of its model was seen yet" in silent[0].message
        return [one.phase for one in (*listed.instances, *view.instances)]

    watched: list[Phase | None] = []
    async with aclosing(start_instance(ctx, make_start_request(sparks, "env.SIM_FAULT=no-token"))) as events:
        async for event in events:
            if isinstance(event, PhaseChanged) and event.step is not None and event.step.name == "first token":
                while not watched or watched[0] is not Phase.WARMING:  # until its health path answers
                    watched = await read_phases()
                break
    assert watched == [Phase.WARMING] * 2
    assert await read_phases() == [Phase.UNPROVED] * 2
    found = (await diagnose_instance(ctx, "qwen36-vllm", nodes, None)).diagnosis
    assert (found.verdict, found.ready, found.phase) == (None, False, Phase.UNPROVED)
    said = format_diagnosis(found, str, "qwen36-vllm")
    assert said[-1].startswith("Nothing has failed so far, but its start is not proved: ")
    assert "answered 500" in said[-1]


async def test_a_start_that_was_left_while_it_loads_is_diagnosed_as_under_way(
    sparks: SimulatedSparks, ctx: CommandContext
) -> None:
    nodes = [get_first_node(sparks)]
    async with aclosing(start_instance(ctx, make_start_request(sparks))) as events:
        async for event in events:
            if isinstance(event, PhaseChanged) and event.step is not None and event.step.name == "weights":
                break
    found = (await diagnose_instance(ctx, "qwen36-vllm", nodes, None)).diagnosis
    assert (found.verdict, found.ready, found.phase) == (None, False, Phase.LOADING)
    assert format_diagnosis(found, str, "qwen36-vllm")[-1].startswith(
        "Nothing has failed so far, but its start is not proved"
    )


async def test_without_the_right_to_drop_it_is_said_once_with_the_line_that_gives_it(ctx: CommandContext) -> None:
    async with SimulatedSparks(speed=20, options={"spark1": SimNodeOptions(sudo=SudoRule.DENIED)}) as sparks:
        events = await collect_events(start_instance(ctx, make_start_request(sparks)))
    hints = [event.hint or "" for event in events if isinstance(event, WarningEmitted)]
    assert sum("NOPASSWD" in hint for hint in hints) == 1
    assert find_command_end(events).outcome is Outcome.READY


async def test_a_floor_that_is_crossed_already_is_refused_before_anything_is_there(
    sparks: SimulatedSparks, ctx: CommandContext
) -> None:
    ended = find_command_end(
        await collect_events(start_instance(ctx, make_start_request(sparks, "start.guard.floor=1000g")))
    )
    assert (ended.outcome, ended.exit_code) == (Outcome.REFUSED, 6)
    assert "floor of 1000.0 GiB is above the" in (ended.message or "")
    assert not sparks.docker["spark1"].containers


async def cut_link_at_weights(
    sparks: SimulatedSparks, ctx: CommandContext, meanwhile: Callable[[SimGuard], None]
) -> list[Event]:
    """Start one, and lose the link once while weights load; return what was told."""
    events: list[Event] = []
    is_cut = False
    async for event in start_instance(ctx, make_start_request(sparks)):
        events.append(event)
        if not is_cut and isinstance(event, PhaseChanged) and event.step is not None and event.step.name == "weights":
            is_cut = True
            meanwhile(sparks.guards["spark1"])
            sparks.sshd["spark1"].drop_connections()
    assert is_cut
    return events


async def test_another_guard_that_somebody_else_started_is_told_to_watch(
    sparks: SimulatedSparks, ctx: CommandContext
) -> None:
    def replace_it(guard: SimGuard) -> None:
        guard.daemon.watches.by_container.clear()
        guard.daemon.events.last.clear()
        guard.daemon.since += 5

    result = await cut_link_at_weights(sparks, ctx, replace_it)
    assert [
        event.message
        for event in result
        if isinstance(event, WarningEmitted) and "a new one watches now" in event.message
    ]
    assert [event["why"] for event in sparks.guards["spark1"].daemon.events.last if event["what"] == "ended"] == [
        "ready"
    ]


async def test_what_was_missed_is_told_whatever_the_nodes_clock_says(
    sparks: SimulatedSparks, ctx: CommandContext
) -> None:
    def set_back(guard: SimGuard) -> None:
        guard.daemon.events.last.append({"at": 1.0, "what": "drop-failed", "why": "in 1970"})

    result = await cut_link_at_weights(sparks, ctx, set_back)
    assert [event.why for event in result if isinstance(event, GuardActed) and event.at == 1.0] == ["in 1970"]


# armed by hand


async def test_a_floor_above_what_is_available_is_refused_by_hand_too(ctx: CommandContext) -> None:
    async with SimulatedSparks("two-stacks", speed=FAST["speed"], decode_speed=FAST["decode_speed"]) as sparks:
        nodes = load_config(sparks.config_path).nodes
        rule = GuardRule(floor=1000 * GIB, limit=3600.0)
        ended = find_command_end(await collect_events(arm_guard(ctx, ArmGuard(nodes, None, (), rule))))
        assert ended.exit_code == 6
        assert "is above the" in (ended.message or "")
        assert not [watch for guard in sparks.guards.values() for watch in guard.daemon.watches]


async def test_arm_watches_what_runs_and_stops_nothing_that_is_well(ctx: CommandContext) -> None:
    async with SimulatedSparks("two-stacks", speed=FAST["speed"], decode_speed=FAST["decode_speed"]) as sparks:
        nodes = load_config(sparks.config_path).nodes
        assert [view.guard for view in await read_guard_status(ctx, nodes)] == [None, None]
        ended = find_command_end(await collect_events(arm_guard(ctx, ArmGuard(nodes, None, (), RULE))))
        assert ended.exit_code == 0
        assert "qwen36-ngram on spark1" in (ended.message or "")
        views = await read_guard_status(ctx, nodes)
        watched = [watch for view in views if view.guard for watch in view.guard.watches]
        assert [watch.role for watch in watched] == [GuardRole.SERVING, GuardRole.SERVING]
        await asyncio.sleep(0.6)  # two rounds of the guard's own clock
        assert not [event for guard in sparks.guards.values() for event in guard.daemon.events.last]
        ended = find_command_end(await collect_events(disarm_guard(ctx, nodes, "qwen36-vllm")))
        assert ended.message == "no longer guarded: qwen36-vllm on spark2"
        assert "not guarded" in (
            find_command_end(await collect_events(disarm_guard(ctx, nodes, "qwen36-vllm"))).message or ""
        )
        assert [len(view.guard.watches) for view in await read_guard_status(ctx, nodes) if view.guard] == [1, 0]
        # down says it before it stops
        await collect_events(stop_instance(ctx, StopInstance(instance=None, nodes=nodes)))
        assert [event["why"] for event in sparks.guards["spark1"].daemon.events.last] == ["stopped"]


async def test_arm_is_refused_where_nothing_runs(sparks: SimulatedSparks, ctx: CommandContext) -> None:
    nodes = load_config(sparks.config_path).nodes
    ended = find_command_end(await collect_events(arm_guard(ctx, ArmGuard(nodes, None, (), RULE))))
    assert (ended.outcome, ended.exit_code) == (Outcome.REFUSED, 6)
    ended = find_command_end(await collect_events(arm_guard(ctx, ArmGuard(nodes, None, ("nobody",), RULE))))
    assert ended.exit_code == 2
    assert not any(guard.is_running for guard in sparks.guards.values())


async def test_what_was_done_is_said_where_another_node_is_away(ctx: CommandContext) -> None:
    async with SimulatedSparks("two-stacks", speed=FAST["speed"], decode_speed=FAST["decode_speed"]) as sparks:
        (there, other) = load_config(sparks.config_path).nodes
        away = replace(other, name=NodeName("spark9"), port=1)
        events = await collect_events(arm_guard(ctx, ArmGuard([there, away], None, (), RULE)))
        ended = find_command_end(events)
        assert (ended.outcome, ended.exit_code, ended.node) == (Outcome.UNREACHABLE, 3, "spark9")
        assert "guarded until" in (ended.message or "")
        assert "qwen36-ngram on spark1" in (ended.message or "")
        assert [event.node for event in events if isinstance(event, WarningEmitted)] == ["spark9"]
        ended = find_command_end(await collect_events(disarm_guard(ctx, [there, away], None)))
        assert ended.exit_code == 3
        assert ended.message == "no longer guarded: qwen36-ngram on spark1; this could not be done on spark9"
        nothing = find_command_end(await collect_events(arm_guard(ctx, ArmGuard([away], None, (), RULE))))
        assert (nothing.outcome, nothing.node) == (Outcome.UNREACHABLE, "spark9")


async def test_a_guard_that_is_out_of_time_says_so(sparks: SimulatedSparks, ctx: CommandContext) -> None:
    ended = find_command_end(
        await collect_events(start_instance(ctx, make_start_request(sparks, "start.guard.limit=1s", detach=True)))
    )
    assert "until it is ready, for at most 1.0 s." in (ended.message or "")
    await wait_for_guard_event(sparks, "ended")
    result = format_guard_status(await read_guard_status(ctx, [get_first_node(sparks)]))
    assert any("qwen36-vllm is no longer guarded: its time limit of 1 s" in line for line in result), result


def test_advice_repeats_what_was_asked_for_without_its_secrets(sparks: SimulatedSparks) -> None:
    asked = make_start_request(
        sparks, "env.HF_TOK=sesame", "args.max-model-len=4096", guarded=False, once_more=True, timeout=90.0
    )
    masked_word = "'env.HF_TOK=••••••'"
    assert asked.retry_command == (
        f"sparkctl up qwen36-vllm --node spark1 --set {masked_word} --set args.max-model-len=4096 --no-guard --again "
        "--timeout=90s"
    )
    assert asked.build_retry_command(FieldChange("args.max-model-len", "2048")).count("max-model-len") == 1


# as a command


def test_a_detached_start_ends_in_two_lines() -> None:
    started = run_demo("up", "qwen36-vllm", "--node", "spark1", "-d")
    assert started.returncode == 0, started
    assert "\N{REPLACEMENT CHARACTER}" not in started.stderr
    assert [line for line in started.stderr.splitlines() if line.startswith("Stop it: sparkctl down qwen36-vllm")]


def test_the_verb_prints_a_table_and_a_document() -> None:
    shown = run_demo("guard", "status", scenario="two-stacks")
    assert (shown.returncode, shown.stdout.count("no guard runs")) == (0, 2), shown
    document = json.loads(run_demo("guard", "status", "--node", "spark2", "--json").stdout)
    assert document["schema"] == 1
    assert [(node["name"], node["state"], node["guard"]) for node in document["nodes"]] == [("spark2", "ok", None)]


def test_the_verb_arms_and_says_until_when() -> None:
    ended = parse_result(run_demo("guard", "arm", "--for", "2h", "--floor", "1GiB", "--json", scenario="two-stacks"))
    assert ended["outcome"] == "done"
    assert "stopped below 1.0 GiB available: qwen36-ngram on spark1, qwen36-vllm on spark2" in ended["message"]
    unknown = run_demo("guard", "arm", "nosuch")
    assert (unknown.returncode, "no running instance is called nosuch" in unknown.stderr) == (2, True), "as other verbs"
    wrong = run_demo("guard", "arm", "--floor", "1")
    assert wrong.returncode == 2
    assert "`1` is 1 bytes; write for example 512MiB" in wrong.stderr


def test_a_dry_run_says_how_it_is_guarded() -> None:
    assert "guarded until it is ready" in run_demo("up", "qwen36", "--node", "spark1", "--dry-run").stdout
    assert "no guard: " in run_demo("up", "qwen36", "--node", "spark1", "--dry-run", "--no-guard").stdout


async def test_a_disk_that_takes_no_writes_delays_a_start_and_does_not_end_it(
    sparks: SimulatedSparks, ctx: CommandContext
) -> None:
    """The page cache is dropped after a sync, which never ends: the start warns and goes on, `drop-caches` fails."""
    sparks.nodes["spark1"].is_disk_stuck = True
    request = make_start_request(sparks)
    request = replace(request, profile=replace(request.profile, start=replace(request.profile.start, drop_caches=True)))
    events, ended = await collect_events_and_end(start_instance(ctx, request))
    assert (ended.outcome, ended.exit_code) == (Outcome.READY, 0), ended
    assert [one for one in list_warnings(events) if "page cache not dropped" in one]
    _, ended = await collect_events_and_end(drop_page_cache(ctx, request.nodes))
    assert ended.exit_code == 3


async def test_what_is_not_written_yet_is_written_before_the_page_cache_is_dropped(
    sparks: SimulatedSparks, ctx: CommandContext
) -> None:
    """A drop leaves pages that are not on the disk yet, such as those of a model that has just been copied."""
    memory = sparks.nodes["spark1"].memory
    memory.dirty = memory.files[""] // 2
    _, ended = await collect_events_and_end(drop_page_cache(ctx, make_start_request(sparks).nodes))
    assert ended.exit_code == 0, ended
    assert memory.file_cache_bytes < GIB
