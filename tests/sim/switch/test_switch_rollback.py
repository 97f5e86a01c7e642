"""What a switch brings back, on the simulated Sparks: watched as a start is, and said why it does not come."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from pathlib import Path

import pytest

from sparkctl.commands.start.start_instance import start_instance
from sparkctl.commands.stop.pending_stops import PendingStopFiles
from sparkctl.commands.stop.stop_instance import StopInstance, stop_instance
from sparkctl.commands.switch.rollback import order_restarts
from sparkctl.commands.switch.switch_instance import switch_instance
from sparkctl.commands.switch.switch_request import SwitchInstance
from sparkctl.config import load_config
from sparkctl.context import CommandContext
from sparkctl.files import shipped_profiles_dir
from sparkctl.history.model import OperationKind
from sparkctl.history.operation_history import OperationHistory
from sparkctl.model.events import (
    CachesDropped,
    CommandEnded,
    Outcome,
    PhaseChanged,
    SwitchPlanned,
    SwitchStepReported,
)
from sparkctl.model.phase import Phase
from sparkctl.model.switch_plan import SwitchStep
from sparkctl.model.verdict import FailureCause
from sparkctl.monitor.switch_journal_io import decode_switch_journal
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.simulator import SimulatedSparks
from sparkctl.simulator.sim_node import SudoRule
from sparkctl.views.history_view import describe_reason
from sparkctl.views.switch_plan_view import describe_rollback_window
from tests.support.events import collect_events_and_end
from tests.support.sim_clients import FAST, wait_until_true
from tests.support.switch_scene import (
    FAULT,
    NEW,
    OLD,
    SwitchScene,
    abandon_switch,
    abort_switch,
    open_two_rank_model,
    resume_switch,
)

pytestmark = pytest.mark.usefixtures("own_profiles")


async def test_a_rollback_is_watched_like_a_start(tmp_path: Path) -> None:
    """Its log, from where it was started again: phases, steps of both ranks, and the guard's word that weights are read."""
    async with open_two_rank_model(tmp_path / "state", speed=4.0) as scene:  # slow enough to see it load
        await _watch_rollback(scene)


async def _watch_rollback(scene: SwitchScene) -> None:
    guards, seen = scene.sparks.guards, []

    def is_told() -> bool:
        return any(one.weights_until > 0 for guard in guards.values() for one in guard.daemon.watches)

    result: asyncio.Task[None] | None = None
    async with aclosing(switch_instance(scene.ctx(), replace(scene.request(FAULT), guarded=True))) as events:
        async for event in events:
            seen.append(event)
            if isinstance(event, SwitchStepReported) and event.step is SwitchStep.RESTORING and result is None:
                result = asyncio.create_task(wait_until_true(is_told))
    assert result is not None
    await result
    back = [one for one in seen if isinstance(one, PhaseChanged) and one.instance == OLD]
    back = back[[one.phase for one in back].index(Phase.STARTING) :]
    for node in ("spark1", "spark2"):
        phases = list(dict.fromkeys(one.phase for one in back if one.node == node))
        assert phases[0] is Phase.STARTING
        assert phases[-1] is Phase.READY
        assert Phase.LOADING in phases
    steps_ = {one.step.name for one in back if one.node == "spark1" and one.step}
    assert "weights" in steps_, steps_
    assert [one.detail for one in back if one.phase is Phase.READY] == ["rank 0 of 2", "rank 1 of 2"]


async def test_without_the_right_a_rollback_drops_the_files_of_both_models(scene: SwitchScene) -> None:
    """As a start does; a model that was loaded once fills the memory that the next one needs."""
    for node in scene.sparks.nodes.values():
        node.options = replace(node.options, sudo=SudoRule.DENIED)
    cached: list[set[str]] = []
    async with aclosing(switch_instance(scene.ctx(), scene.request(FAULT))) as events:
        async for event in events:
            if isinstance(event, SwitchStepReported) and event.step is SwitchStep.RESTORING and event.proof is None:
                cached.append(set(scene.sparks.nodes["spark1"].memory.files))
            if isinstance(event, CachesDropped) and event.node == "spark1" and cached:
                cached.append(set(scene.sparks.nodes["spark1"].memory.files))
    assert scene.is_old()
    before, after = cached
    assert {path.rpartition("/")[2] for path in before - after} == {"Qwen3.6-27B-FP8"}, cached
    assert after <= {""}


async def test_a_failed_rollback_has_a_verdict(scene: SwitchScene) -> None:
    """The old one runs out of memory when it is started again: said with its cause, kept in its row, and tried once more."""
    old = set().union(*scene.old.values())
    there = [one for docker in scene.sparks.docker.values() for one in docker.containers.values() if one.id in old]
    seen = []
    async with aclosing(switch_instance(scene.ctx(), scene.request(FAULT))) as events:
        async for event in events:
            seen.append(event)
            if isinstance(event, SwitchStepReported) and event.step is SwitchStep.UNDOING and event.proof is None:
                for one in there:
                    one.body = {**one.body, "Env": [*(one.body.get("Env") or []), "SIM_FAULT=cuda-oom"]}
    (ended,) = [one for one in seen if isinstance(one, CommandEnded)]
    assert ended.exit_code == 1
    assert f"{NEW} did not start; and {OLD} did not come back: Rank " in (ended.message or "")
    assert "CUDA ran out of memory" in (ended.message or "")
    assert f"sparkctl diagnose {OLD}" in (ended.hint or "")
    assert "sparkctl resume" in (ended.hint or "")
    assert any(one.phase is Phase.FAILED for one in seen if isinstance(one, PhaseChanged) and one.instance == OLD)
    again = next(
        one
        for one in OperationHistory(scene.state).list_operations()
        if one.instance == OLD and one.kind is OperationKind.START
    )
    assert again.verdict is not None
    assert again.verdict.cause is FailureCause.CUDA_OUT_OF_MEMORY
    row = next(one for one in OperationHistory(scene.state).list_operations() if one.kind is OperationKind.SWITCH)
    of_new = {one.container for one in row.shares if one.instance == NEW}
    assert not of_new & old, "what was brought back is not what was switched to"
    for one in there:
        one.body = {**one.body, "Env": [word for word in one.body["Env"] if word != "SIM_FAULT=cuda-oom"]}
    _, ended = await collect_events_and_end(resume_switch(scene.ctx(), scene.finish()))
    assert ended.exit_code == 0, ended
    assert scene.is_old()


async def test_that_the_old_one_serves_again_is_said_once(scene: SwitchScene) -> None:
    await collect_events_and_end(switch_instance(scene.ctx(), scene.request(FAULT, rolls_back=False)))
    seen, ended = await collect_events_and_end(abort_switch(scene.ctx(), scene.finish()))
    assert ended.exit_code == 0
    messages = [one.proof or "" for one in seen if isinstance(one, SwitchStepReported)] + [ended.message or ""]
    assert sum("serves again" in one for one in messages) == 1, messages


def _repeat_out_of_memory(scene: SwitchScene, *, is_bad: bool) -> None:
    """Let the old one's containers run out of memory when they are started again, or not any more."""
    old = set().union(*scene.old.values())
    for one in (one for docker in scene.sparks.docker.values() for one in docker.containers.values() if one.id in old):
        env = [word for word in one.body.get("Env") or [] if word != "SIM_FAULT=cuda-oom"]
        one.body = {**one.body, "Env": [*env, *(["SIM_FAULT=cuda-oom"] if is_bad else [])]}


async def test_a_failed_rollback_can_be_given_up(scene: SwitchScene) -> None:
    """The way back fails each time; giving up puts both away, logs saved, and the Sparks are open again."""
    async with aclosing(switch_instance(scene.ctx(), scene.request(FAULT))) as events:
        async for event in events:
            if isinstance(event, SwitchStepReported) and event.step is SwitchStep.UNDOING and event.proof is None:
                _repeat_out_of_memory(scene, is_bad=True)
    assert isinstance(event, CommandEnded)
    assert "sparkctl abort --give-up --node spark1" in (event.hint or "")
    _, ended = await collect_events_and_end(abort_switch(scene.ctx(), scene.finish()))
    assert ended.exit_code == 1, "it does not come back this time, either"
    assert all(scene.journals)
    _, ended = await collect_events_and_end(stop_instance(scene.ctx(), StopInstance(instance=OLD, nodes=scene.nodes)))
    assert ended.exit_code == 6
    assert "sparkctl abort --give-up" in (ended.hint or "")
    _, ended = await collect_events_and_end(abandon_switch(scene.ctx("ada@desk"), scene.finish()))
    assert (ended.outcome, ended.exit_code) == (Outcome.DONE, 0), ended
    assert f"nothing of {OLD} and {NEW} is left" in (ended.message or "")
    assert scene.all() == set()
    assert scene.journals == [None, None]
    assert len(OperationHistory(scene.state).list_saved_logs(OLD)) >= 2, "of both ranks"
    row, *_ = (one for one in OperationHistory(scene.state).list_operations() if one.kind is OperationKind.SWITCH)
    assert row.has_succeeded
    assert row.command == "sparkctl abort --give-up"
    _, ended = await collect_events_and_end(start_instance(scene.ctx(), scene.request().to_start_request()))
    assert ended.exit_code == 0, ended


async def test_the_wreck_that_was_left_for_study_is_put_away(scene: SwitchScene) -> None:
    _, ended = await collect_events_and_end(switch_instance(scene.ctx(), scene.request(FAULT, rolls_back=False)))
    assert "sparkctl abort --give-up" in (ended.hint or "")
    for dry_run in (True, False):  # what it would do is not said where it would be refused
        _, ended = await collect_events_and_end(
            stop_instance(scene.ctx(), StopInstance(instance=None, nodes=scene.nodes, frees=True, dry_run=dry_run))
        )
        assert (ended.outcome, ended.exit_code) == (Outcome.REFUSED, 6)
        assert "kept for analysis" in (ended.message or "")
        assert "sparkctl abort --give-up" in (ended.hint or "")
    _, ended = await collect_events_and_end(abandon_switch(scene.ctx(), scene.finish()))
    assert ended.exit_code == 0, ended
    assert scene.all() == set()
    assert scene.journals == [None, None]


@pytest.mark.parametrize("step", [SwitchStep.STOPPING, SwitchStep.STARTING, SwitchStep.RESTORING])
async def test_a_switch_that_was_left_is_given_up_at_its_step_and_nothing_of_others_is_touched(
    scene: SwitchScene, step: SwitchStep
) -> None:
    """Also what is alive of it goes: neither serves afterwards. A speech model beside it stays."""
    beside = await scene.speech_beside()
    overrides = FAULT if step is SwitchStep.RESTORING else ()
    assert await scene.crash(
        switch_instance(scene.ctx(), scene.request(overrides)), lambda event: getattr(event, "step", None) is step
    )
    _, ended = await collect_events_and_end(abandon_switch(scene.ctx(), scene.finish()))
    assert ended.exit_code == 0, ended
    assert scene.all() == beside
    assert scene.running() == {"kokoro-tts": beside}
    assert scene.journals == [None, None]


async def test_a_serving_instance_is_not_given_up(scene: SwitchScene) -> None:
    assert await scene.crash(
        switch_instance(scene.ctx(), scene.request()), lambda event: getattr(event, "step", None) is SwitchStep.CLEARING
    )
    _, ended = await collect_events_and_end(abandon_switch(scene.ctx(), scene.finish()))
    assert ended.exit_code == 6
    assert set(scene.running()) == {NEW}


async def test_ctrl_c_on_the_way_back_says_where_it_was_left(scene: SwitchScene) -> None:
    ctx = scene.ctx()
    async with aclosing(switch_instance(ctx, scene.request(FAULT))) as events:
        async for event in events:
            if isinstance(event, SwitchStepReported) and event.step is SwitchStep.RESTORING:
                ctx.interrupt.record_press()
    assert isinstance(event, CommandEnded)
    assert f"the switch to {NEW} is left on its way back (restoring)" in (event.message or "")
    left = next(one for one in OperationHistory(scene.state).list_operations() if one.kind is OperationKind.SWITCH)
    assert left.verdict is not None
    assert "is left on its way back" in describe_reason(left), "not the verdict alone"
    _, ended = await collect_events_and_end(resume_switch(scene.ctx(), scene.finish()))
    assert ended.exit_code == 0, ended
    left = [one for one in OperationHistory(scene.state).list_operations() if one.kind is OperationKind.SWITCH][-1]
    assert "finished by sparkctl resume" in describe_reason(left)


async def test_what_a_verdict_offers_is_said_for_after_the_switch_that_was_left(scene: SwitchScene) -> None:
    """As long as its journal lies there the command would be refused."""
    _, ended = await collect_events_and_end(switch_instance(scene.ctx(), scene.request(FAULT, rolls_back=False)))
    assert ended.verdict is not None
    assert (ended.verdict.edit, ended.verdict.again) == (None, None)
    *ways, last = (ended.hint or "").splitlines()
    assert any("sparkctl abort" in one for one in ways)
    assert last.startswith(f"after that, with the change: sparkctl switch {NEW}")


async def test_ctrl_c_before_anything_was_stopped_leaves_no_journal(scene: SwitchScene) -> None:
    event = await scene.interrupted(SwitchStep.STOPPING)
    assert (event.outcome, event.exit_code) == (Outcome.INTERRUPTED, 130)
    assert event.message == "interrupted before anything was stopped"
    assert scene.is_old()
    assert scene.journals == [None, None]


async def test_the_row_of_whom_another_overtook_keeps_what_that_one_wrote(scene: SwitchScene) -> None:
    """And says of nothing that the other did that it was proved here."""
    seen = []
    async with aclosing(switch_instance(scene.ctx(), scene.request())) as events:
        async for event in events:
            seen.append(event)
            if isinstance(event, SwitchStepReported) and event.step is SwitchStep.CLEARING:
                row = next(
                    one for one in OperationHistory(scene.state).list_operations() if one.kind is OperationKind.SWITCH
                )
                assert row.outcome is None
                (id_,) = {decode_switch_journal(text).id for text in scene.journals if text}
                for node in scene.sparks.nodes.values():
                    node.journal = None  # as another's resume leaves it
                OperationHistory(scene.state).close_operation(id_, "finished by sparkctl resume: it serves", 1.0)
    assert isinstance(event, CommandEnded)
    assert event.exit_code == 6
    assert not [
        one for one in seen if isinstance(one, SwitchStepReported) and one.step is SwitchStep.CLEARING and one.proof
    ]
    row = next(one for one in OperationHistory(scene.state).list_operations() if one.kind is OperationKind.SWITCH)
    assert (row.outcome, row.ended, row.why) == ("interrupted", 1.0, "finished by sparkctl resume: it serves")


async def test_an_overtaken_switch_is_not_recorded_as_refused(scene: SwitchScene) -> None:
    async with aclosing(switch_instance(scene.ctx(), scene.request())) as events:
        async for event in events:
            if isinstance(event, SwitchStepReported) and event.step is SwitchStep.RELEASING:
                for node in scene.sparks.nodes.values():
                    node.journal = None
    assert isinstance(event, CommandEnded)
    assert event.exit_code == 6
    row = next(one for one in OperationHistory(scene.state).list_operations() if one.kind is OperationKind.SWITCH)
    assert row.outcome == "interrupted"


async def test_half_a_model_is_not_started_again(scene: SwitchScene) -> None:
    """Its other rank is on a silent Spark: the plan says that there is no way back, and none is tried; it stops later."""
    await scene.sparks.sshd["spark2"].close()
    seen, ended = await collect_events_and_end(switch_instance(scene.ctx(), scene.request(FAULT, keep_going=True)))
    (plan,) = [one.plan for one in seen if isinstance(one, SwitchPlanned)]
    assert plan.halves == (OLD,)
    assert "there is no rollback" in (describe_rollback_window(plan) or "")
    assert ended.exit_code == 1
    assert f"{NEW} did not start; and {OLD} cannot be started again: its rank on spark2" in (ended.message or "")
    assert f"sparkctl up {OLD}" in (ended.hint or "")
    assert SwitchStep.RESTORING not in [one.step for one in seen if isinstance(one, SwitchStepReported)]
    assert scene.journals == [None, None], "nothing is shut"
    (owed,) = PendingStopFiles(scene.state).list_all(scene.ctx().clock.unix_time())
    assert (owed.node, owed.instance) == ("spark2", OLD)


async def test_the_plan_of_a_switch_that_does_not_roll_back_promises_no_way_back(scene: SwitchScene) -> None:
    seen, _ = await collect_events_and_end(switch_instance(scene.ctx(), scene.request(rolls_back=False, dry_run=True)))
    (plan,) = [one.plan for one in seen if isinstance(one, SwitchPlanned)]
    assert "they stay stopped until sparkctl abort (--no-rollback)" in (describe_rollback_window(plan) or "")


async def test_every_step_names_what_goes_also_where_another_goes_on_with_it(scene: SwitchScene) -> None:
    await collect_events_and_end(switch_instance(scene.ctx(), scene.request(FAULT, rolls_back=False)))
    seen, _ = await collect_events_and_end(abort_switch(scene.ctx(), scene.finish()))
    steps_ = [one for one in seen if isinstance(one, SwitchStepReported)]
    assert steps_
    assert {one.stops for one in steps_} == {(OLD,)}


@pytest.mark.parametrize("trouble", ["disk full", "an old one runs again"])
async def test_one_that_serves_is_not_taken_down_because_its_predecessor_cannot_be_cleared_away(
    scene: SwitchScene, trouble: str
) -> None:
    """What fails once the new one has proved itself is housekeeping: it stays, and `resume` goes on with the rest."""
    spark = scene.sparks.nodes["spark1"]
    daemon = scene.sparks.docker["spark1"]
    old = next(one for one in daemon.containers.values() if one.id in scene.old[OLD])
    async with aclosing(switch_instance(scene.ctx(), scene.request())) as events:
        async for event in events:
            if isinstance(event, SwitchStepReported) and event.step is SwitchStep.STARTING and event.proof is not None:
                if trouble == "disk full":
                    spark.is_home_full = True
                else:
                    daemon.start_container(old)
    assert isinstance(event, CommandEnded)
    assert (event.outcome, event.exit_code) == (Outcome.UNHEALTHY, 5), event
    assert f"{NEW} serves, but what it replaced is not cleared away" in (event.message or "")
    assert f"{NEW} serves; clear away the rest of {OLD}: sparkctl resume --node spark1" in (event.hint or "")
    assert len(scene.running()[NEW]) == 1
    spark.is_home_full = False
    if old.state == "running":
        await daemon.stop_container(old, 0.0)
    _, ended = await collect_events_and_end(resume_switch(scene.ctx(), scene.finish()))
    assert ended.exit_code == 0, ended
    assert scene.is_new()


async def test_a_disk_that_takes_no_writes_does_not_end_a_rollback(scene: SwitchScene) -> None:
    async with aclosing(switch_instance(scene.ctx(), scene.request(FAULT))) as events:
        async for event in events:
            if isinstance(event, SwitchStepReported) and event.step is SwitchStep.RESTORING:
                scene.sparks.nodes["spark1"].is_disk_stuck = True
    assert isinstance(event, CommandEnded)
    assert f"{OLD} serves again" in (event.message or "")
    assert scene.is_old()


async def test_what_comes_back_is_started_in_the_order_of_its_start(ctx: CommandContext) -> None:
    async with SimulatedSparks("two-stacks", **FAST) as sparks, AsyncExitStack() as stack:
        sessions = {}
        for node in load_config(sparks.config_path).nodes:
            sessions[node.name] = await stack.enter_async_context(ctx.create_session(node))
            await sessions[node.name].link.connect()
        found = [(name, one) for name, each in sessions.items() for one in await each.docker.list_containers()]
        for old in (found, found[::-1]):
            ordered = [one.instance_name for _, one in await order_restarts(sessions, old)]
            assert ordered == ["qwen36-ngram", "qwen36-vllm"]


async def test_ranks_that_wait_for_each_other_come_back_head_last(scene: SwitchScene) -> None:
    """Only Ray wants the head first: any other head looks for its workers at once, and the last one to start has none to
    wait for.
    """
    async with AsyncExitStack() as stack:
        sessions = {}
        for node in scene.nodes:
            sessions[node.name] = await stack.enter_async_context(scene.ctx().create_session(node))
            await sessions[node.name].link.connect()
        found = [(name, one) for name, each in sessions.items() for one in await each.docker.list_containers()]
        for old in (found, found[::-1]):
            assert [node for node, _ in await order_restarts(sessions, old)] == ["spark2", "spark1"]


async def test_a_rollback_waits_for_no_model_that_was_not_proved_before(
    sparks: SimulatedSparks, ctx: CommandContext
) -> None:
    """It comes back as it was found: started, and without the wait of up to an hour for a token that never came."""
    nodes = load_config(sparks.config_path).nodes
    profiles = ProfileLibrary(shipped_profiles_dir())

    def make_switch(name: str, fault: str) -> SwitchInstance:
        profile = profiles.load_profile(name, overrides=(f"env.SIM_FAULT={fault}",))
        words = (name, "--set", f"env.SIM_FAULT={fault}")
        return SwitchInstance(
            profile=profile, nodes=nodes[:1], known=nodes, words=words, guarded=False, timeout=60.0
        )  # fmt: skip

    hung = make_switch("qwen36-vllm", "no-token").to_start_request()
    _, ended = await collect_events_and_end(start_instance(ctx, hung))
    assert ended.outcome is Outcome.TIMED_OUT
    (old,) = sparks.docker["spark1"].containers
    seen, ended = await collect_events_and_end(switch_instance(ctx, make_switch(NEW, "cuda-oom")))
    (plan,) = [one.plan for one in seen if isinstance(one, SwitchPlanned)]
    assert plan.unproved == plan.stops == ("qwen36-vllm",)
    assert "qwen36-vllm: not proved so far, so nobody waits for it then" in (describe_rollback_window(plan) or "")
    again = "qwen36-vllm runs again; nobody waited for qwen36-vllm, not proved before the switch"
    assert (ended.outcome, again in (ended.message or "")) == (Outcome.FAILED, True), ended
    assert [(one.id, one.state) for one in sparks.docker["spark1"].containers.values()] == [(old, "running")]
    rows = [one for one in ctx.history.list_operations() if (one.why or "").startswith("the same containers")]
    assert [(one.instance, one.outcome, one.seconds, describe_reason(one)) for one in rows] == [
        ("qwen36-vllm", Outcome.UNPROVED, None, "the same containers, started again; not proved")
    ]
