"""A switch on the simulated Sparks: done, undone, and left at each of its steps."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from pathlib import Path

import pytest

from sparkctl.commands.start.start_instance import start_instance
from sparkctl.commands.start.start_request import StartInstance
from sparkctl.commands.stop.pending_stops import PendingStopFiles
from sparkctl.commands.stop.stop_instance import StopInstance, stop_instance
from sparkctl.commands.switch.switch_instance import switch_instance
from sparkctl.commands.switch.switch_transaction import OwnershipLost, SwitchTransaction
from sparkctl.concurrency import gather_or_cancel
from sparkctl.errors import ConnectionLost, OperationRefused
from sparkctl.history.model import OperationKind
from sparkctl.history.operation_history import OperationHistory
from sparkctl.model.events import CommandEnded, Event, Outcome, PhaseChanged, SwitchStepReported, WarningEmitted
from sparkctl.model.launch_plan import ContainerLabel
from sparkctl.model.phase import Phase
from sparkctl.model.switch_plan import SwitchStep
from sparkctl.monitor.node_status import read_node_statuses
from sparkctl.monitor.switch_journal_io import SwitchInProgress, decode_switch_journal, encode_switch_journal
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.simulator import SimulatedSparks
from sparkctl.views.status_view import format_status
from tests.support.events import collect_events_and_end, list_warnings
from tests.support.sim_clients import wait_until_true
from tests.support.switch_scene import (
    FAULT,
    NEW,
    OLD,
    SPEED,
    SwitchScene,
    abort_switch,
    list_switch_steps,
    open_two_rank_model,
    resume_switch,
)

pytestmark = pytest.mark.usefixtures("own_profiles")


async def test_the_new_one_serves_and_nothing_of_the_old_one_is_left(scene: SwitchScene) -> None:
    seen, ended = await collect_events_and_end(switch_instance(scene.ctx(), scene.request()))
    assert (ended.outcome, ended.exit_code) == (Outcome.READY, 0), ended
    assert ended.endpoint
    assert list_switch_steps(seen) == [
        SwitchStep.CHECKING, SwitchStep.STOPPING, SwitchStep.RELEASING, SwitchStep.STARTING, SwitchStep.CLEARING,
    ]  # fmt: skip
    proofs = {event.step: event.proof for event in seen if isinstance(event, SwitchStepReported) and event.proof}
    assert set(proofs) == {*list_switch_steps(seen), SwitchStep.DONE}
    assert scene.is_new()
    assert scene.journals == [None, None]


async def test_one_that_fails_gives_way_to_the_very_containers_that_were_there(scene: SwitchScene) -> None:
    seen, ended = await collect_events_and_end(switch_instance(scene.ctx(), scene.request(FAULT)))
    assert (ended.outcome, ended.exit_code) == (Outcome.FAILED, 1)
    assert ended.verdict is not None, "the new one's story"
    (name,) = scene.old
    assert f"{name} serves again" in (ended.message or ""), "and the old one's"
    assert list_switch_steps(seen)[-2:] == [SwitchStep.UNDOING, SwitchStep.RESTORING]
    assert scene.is_old()
    assert scene.journals == [None, None]


async def test_the_big_model_comes_back_head_first_as_ray_wants_it(tmp_path: Path) -> None:
    async with SimulatedSparks("big-model", speed=SPEED, decode_speed=200.0) as sparks:
        scene = SwitchScene(sparks, tmp_path / "state")
        _, ended = await collect_events_and_end(switch_instance(scene.ctx(), scene.request(FAULT)))
        assert "minimax-m27 serves again" in (ended.message or ""), ended
        assert scene.is_old()


async def test_no_rollback_leaves_the_wreck_and_abort_brings_the_old_one_back(scene: SwitchScene) -> None:
    _, ended = await collect_events_and_end(switch_instance(scene.ctx(), scene.request(FAULT, rolls_back=False)))
    assert ended.exit_code == 1
    assert "sparkctl abort" in (ended.hint or "")
    assert all(scene.journals)
    assert len(scene.all()) == 3
    _, ended = await collect_events_and_end(abort_switch(scene.ctx(), scene.finish()))
    assert ended.exit_code == 0, ended
    assert scene.is_old()
    assert scene.journals == [None, None]


FORWARD = (
    SwitchStep.CHECKING, SwitchStep.STOPPING, SwitchStep.RELEASING, SwitchStep.STARTING, SwitchStep.CLEARING, SwitchStep.DONE,
)  # fmt: skip


@pytest.mark.parametrize("finish", ["resume", "abort"])
@pytest.mark.parametrize("is_done", [False, True], ids=["begun", "done"])
@pytest.mark.parametrize("step", FORWARD)
async def test_killed_at_each_step_it_is_finished_or_undone(
    scene: SwitchScene, step: SwitchStep, is_done: bool, finish: str
) -> None:
    """Begun: right after the journal says so. Done: when it is proved, right before the next one is written."""

    def at(event: Event) -> bool:
        return isinstance(event, SwitchStepReported) and event.step is step and (event.proof is not None) == is_done

    assert await scene.crash(switch_instance(scene.ctx(), scene.request()), at) or (
        step is SwitchStep.DONE and not is_done
    )
    verb = resume_switch if finish == "resume" else abort_switch
    _, ended = await collect_events_and_end(verb(scene.ctx("ada@desk"), scene.finish()))
    is_cleared = step in (SwitchStep.CLEARING, SwitchStep.DONE)
    if finish == "resume" or is_cleared:
        if ended.exit_code == 6:
            assert "has passed its checks" in (ended.message or "")
            _, ended = await collect_events_and_end(resume_switch(scene.ctx(), scene.finish()))
        assert ended.exit_code == 0, ended
        assert scene.is_new()
    else:
        assert ended.exit_code == 0, ended
        assert scene.is_old()
    assert scene.journals == [None, None]


@pytest.mark.parametrize("finish", ["resume", "abort"])
@pytest.mark.parametrize("is_done", [False, True], ids=["begun", "done"])
@pytest.mark.parametrize("step", [SwitchStep.UNDOING, SwitchStep.RESTORING])
async def test_killed_on_its_way_back_it_goes_back(
    scene: SwitchScene, step: SwitchStep, is_done: bool, finish: str
) -> None:
    def at(event: Event) -> bool:
        return isinstance(event, SwitchStepReported) and event.step is step and (event.proof is not None) == is_done

    assert await scene.crash(switch_instance(scene.ctx(), scene.request(FAULT)), at)
    _, ended = await collect_events_and_end(
        (resume_switch if finish == "resume" else abort_switch)(scene.ctx("ada@desk"), scene.finish())
    )
    assert ended.exit_code == 0, ended
    assert scene.is_old()
    assert scene.journals == [None, None]


async def test_ctrl_c_says_where_it_was_left_and_how_it_goes_on(scene: SwitchScene) -> None:
    event = await scene.interrupted(SwitchStep.STARTING)
    assert event.exit_code == 130
    assert "step 4 of 6 (starting)" in (event.message or "")
    assert "sparkctl resume" in (event.hint or "")
    _, ended = await collect_events_and_end(resume_switch(scene.ctx(), scene.finish()))
    assert ended.exit_code == 0
    assert scene.is_new()


async def test_ctrl_c_while_it_connects_leaves_nothing_behind(scene: SwitchScene) -> None:
    ctx = scene.ctx()
    ctx.interrupt.record_press()
    _, ended = await collect_events_and_end(switch_instance(ctx, scene.request()))
    assert (ended.exit_code, ended.message) == (130, "interrupted before anything was changed")
    assert [task for task in asyncio.all_tasks() if "connect_and_inspect" in repr(task)] == []
    assert scene.journals == [None, None]


async def test_a_start_that_is_a_step_does_not_say_that_nothing_was_changed(scene: SwitchScene) -> None:
    """A switch has stopped the old one before, and what it needs may run."""
    ctx = scene.ctx()
    ctx.interrupt.record_press()
    _, ended = await collect_events_and_end(start_instance(ctx, scene.request().to_start_request()))
    assert (ended.exit_code, ended.message) == (130, f"interrupted before {NEW} was started")


@pytest.mark.parametrize("at", [SwitchStep.STOPPING, SwitchStep.STARTING])
async def test_a_switch_that_another_ended_offers_no_way_to_finish_it(scene: SwitchScene, at: SwitchStep) -> None:
    """Its journal is gone from the nodes: whatever ends this one, it says so, and not that it can be resumed."""
    ctx = scene.ctx()
    async with aclosing(switch_instance(ctx, scene.request())) as events:
        async for event in events:
            if isinstance(event, SwitchStepReported) and event.step is at:
                for node in scene.sparks.nodes.values():
                    node.journal = None
                ctx.interrupt.record_press()
    assert isinstance(event, CommandEnded)
    assert event.exit_code == 6, event
    assert "no longer belongs to this sparkctl" in (event.message or "")
    assert "resume" not in f"{event.message} {event.hint}"
    _, ended = await collect_events_and_end(resume_switch(scene.ctx(), scene.finish()))
    assert "there is no unfinished switch" in (ended.message or "")


async def test_ctrl_c_once_it_is_done_changes_nothing_of_what_is_said(scene: SwitchScene) -> None:
    event = await scene.interrupted(SwitchStep.DONE)
    assert (event.outcome, event.exit_code) == (Outcome.READY, 0), event
    assert scene.is_new()
    assert scene.journals == [None, None]


async def test_others_are_refused_while_it_goes_on_and_when_it_was_left(tmp_path: Path) -> None:
    async with open_two_rank_model(tmp_path / "state", speed=4.0) as scene:
        other = scene.request()
        start = StartInstance(profile=other.profile, nodes=other.nodes, words=(NEW,), guarded=False)
        async with aclosing(switch_instance(scene.ctx(), scene.request())) as events:
            async for event in events:
                if isinstance(event, SwitchStepReported) and event.step is SwitchStep.STARTING:
                    break
            for verb in (
                start_instance(scene.ctx("ada@desk"), start),
                resume_switch(scene.ctx("ada@desk"), scene.finish()),
            ):
                _, ended = await collect_events_and_end(verb)
                assert ended.exit_code == 6
                assert "switch to qwen36-ngram in progress, step 4 of 6 (starting)" in (ended.message or "")
                assert "by milo@laptop since" in (ended.message or "")
            for looks in (
                start_instance(scene.ctx("ada@desk"), replace(start, dry_run=True)),
                switch_instance(scene.ctx("ada@desk"), scene.request(dry_run=True)),
            ):
                seen, ended = await collect_events_and_end(looks)
                assert (ended.outcome, ended.exit_code) == (Outcome.PLANNED, 0), "a dry run changes nothing"
                assert any("switch to qwen36-ngram in progress" in one for one in list_warnings(seen))
            views = await read_node_statuses(scene.ctx("ada@desk"), scene.nodes)
            assert all(view.switch is not None and view.switch.is_held for view in views)
            assert any("in progress, step 4 of 6" in line for line in format_status(views))
            old = [one for view in views for one in view.instances if one.name == OLD]
            assert old
            assert all(one.phase is Phase.STOPPED and one.is_kept for one in old)
        await wait_until_true(lambda: not any(node.locks for node in scene.sparks.nodes.values()))
        views = await read_node_statuses(scene.ctx("ada@desk"), scene.nodes)
        assert not any(view.is_healthy for view in views)
        assert any("was left, step 4 of 6" in line for line in format_status(views))
        stop = StopInstance(instance=next(iter(scene.old)), nodes=scene.nodes)
        for verb in (
            start_instance(scene.ctx("ada@desk"), start),
            start_instance(scene.ctx("ada@desk"), replace(start, dry_run=True)),
            stop_instance(scene.ctx("ada@desk"), stop),
        ):
            _, ended = await collect_events_and_end(verb)
            assert ended.exit_code == 6, ended
            assert "switch to qwen36-ngram was left, step 4 of 6 (starting), by milo@laptop" in (ended.message or "")
            assert "sparkctl resume" in (ended.hint or "")
        _, ended = await collect_events_and_end(abort_switch(scene.ctx("ada@desk"), scene.finish()))
        assert scene.is_old()


async def test_a_damaged_journal_is_unknown_and_not_absent(scene: SwitchScene) -> None:
    scene.sparks.nodes["spark1"].journal = '{"schema": 1, "id": "zz"}'
    for verb in (
        switch_instance(scene.ctx(), scene.request()),
        resume_switch(scene.ctx(), scene.finish()),
        abort_switch(scene.ctx(), scene.finish()),
    ):
        _, ended = await collect_events_and_end(verb)
        assert ended.exit_code == 6
        assert "it is damaged" in (ended.message or "")
    assert scene.running() == scene.old


@pytest.mark.parametrize("missing", ["spark1", "spark2"])
async def test_resume_after_a_kill_between_the_starts_of_two_ranks_starts_both(
    scene: SwitchScene, missing: str
) -> None:
    _, ended = await collect_events_and_end(switch_instance(scene.ctx(), scene.request()))
    assert ended.exit_code == 0, ended
    profile = ProfileLibrary().load_profile(OLD)
    both = replace(scene.request(), profile=profile, nodes=scene.nodes, words=(OLD,))

    def loading(event: Event) -> bool:
        return isinstance(event, PhaseChanged) and event.instance == OLD and event.phase is Phase.LOADING

    assert await scene.crash(switch_instance(scene.ctx(), both), loading)
    containers = scene.sparks.docker[missing].containers
    for one in [one.id for one in containers.values() if one.labels[ContainerLabel.INSTANCE] == OLD]:
        del containers[one]  # as if the kill had come before it was created
    (left,) = scene.running()[OLD]
    seen, ended = await collect_events_and_end(resume_switch(scene.ctx(), scene.finish()))
    assert ended.exit_code == 0, ended
    assert set(scene.running()) == {OLD}
    assert len(scene.all()) == 2
    assert left not in scene.all(), "it has waited for a rank of another start"
    assert any(isinstance(event, WarningEmitted) and "without the others" in event.message for event in seen)
    assert scene.journals == [None, None]


async def test_another_profile_by_now_is_not_resumed(scene: SwitchScene, tmp_path: Path) -> None:
    def started(event: Event) -> bool:
        return isinstance(event, SwitchStepReported) and event.step is SwitchStep.STARTING

    assert await scene.crash(switch_instance(scene.ctx(), scene.request(("port=8123",))), started)
    for name, node in scene.sparks.nodes.items():
        assert node.journal is not None, name
        node.journal = node.journal.replace("port=8123", "port=8124")
    _, ended = await collect_events_and_end(resume_switch(scene.ctx(), scene.finish()))
    assert ended.exit_code == 6
    assert "is another profile here" in (ended.message or "")
    assert "sparkctl abort" in (ended.hint or "")
    _, ended = await collect_events_and_end(abort_switch(scene.ctx(), scene.finish()))
    assert ended.exit_code == 0
    assert scene.is_old()


async def test_where_nothing_was_left_there_is_nothing_to_finish(scene: SwitchScene) -> None:
    for verb in (resume_switch(scene.ctx(), scene.finish()), abort_switch(scene.ctx(), scene.finish())):
        _, ended = await collect_events_and_end(verb)
        assert ended.exit_code == 0
        assert "there is no unfinished switch" in (ended.message or "")


async def test_a_silent_spark_that_holds_a_rank_is_refused_and_with_keep_going_it_is_stopped_later(
    scene: SwitchScene,
) -> None:
    await scene.sparks.sshd["spark2"].close()
    _, ended = await collect_events_and_end(switch_instance(scene.ctx(), scene.request()))
    assert ended.exit_code == 6
    assert f"{OLD} has a rank on spark2" in (ended.message or "")
    assert "--keep-going" in (ended.message or "")
    assert scene.running() == scene.old
    _, ended = await collect_events_and_end(switch_instance(scene.ctx(), scene.request(keep_going=True)))
    assert ended.exit_code == 0, ended
    assert NEW in scene.running()
    (owed,) = PendingStopFiles(scene.state).list_all(scene.ctx().clock.unix_time())
    assert (owed.node, owed.instance) == ("spark2", OLD)


async def test_a_silent_spark_that_must_start_it_is_unreachable_as_for_a_start(scene: SwitchScene) -> None:
    await scene.sparks.sshd["spark1"].close()
    _, ended = await collect_events_and_end(switch_instance(scene.ctx(), scene.request()))
    assert (ended.exit_code, ended.outcome) == (3, Outcome.UNREACHABLE)
    assert ended.hint, "what to do"
    assert scene.running() == scene.old


@pytest.mark.parametrize("step", [SwitchStep.CHECKING, SwitchStep.STARTING])
async def test_resume_keeps_going_where_the_switch_was_to(scene: SwitchScene, step: SwitchStep) -> None:
    """Begun anew with a Spark still silent, or finished from the middle: its rank is stopped at the next contact."""

    def at(event: Event) -> bool:
        return isinstance(event, SwitchStepReported) and event.step is step

    await scene.sparks.sshd["spark2"].close()
    assert await scene.crash(switch_instance(scene.ctx(), scene.request(keep_going=True)), at)
    _, ended = await collect_events_and_end(resume_switch(scene.ctx("ada@desk"), scene.finish()))
    assert ended.exit_code == 0, ended
    assert NEW in scene.running()
    (owed,) = PendingStopFiles(scene.state).list_all(scene.ctx().clock.unix_time())
    assert (owed.node, owed.instance) == ("spark2", OLD)


async def test_up_refuses_and_names_the_switch_that_makes_room(scene: SwitchScene) -> None:
    other = scene.request()
    start = StartInstance(profile=other.profile, nodes=other.nodes, words=(NEW,), guarded=False)
    _, ended = await collect_events_and_end(start_instance(scene.ctx(), start))
    assert ended.exit_code == 6
    assert f"sparkctl switch {NEW} --node spark1" in (ended.hint or "")
    assert scene.running() == scene.old


async def test_a_model_that_is_not_there_is_found_while_the_old_one_serves(scene: SwitchScene) -> None:
    node = scene.sparks.nodes["spark1"]
    node.options = replace(node.options, missing=("/home/milo/models/Qwen3.6-27B-FP8",))
    seen, ended = await collect_events_and_end(switch_instance(scene.ctx(), scene.request()))
    assert ended.exit_code == 6
    assert (ended.message or "").endswith("is missing or incomplete on spark1")
    assert ended.hint == f"sparkctl pull {NEW} --node spark1"
    assert list_switch_steps(seen) == []
    assert scene.running() == scene.old
    assert scene.journals == [None, None]


MODEL = "/home/milo/models/Qwen3.6-27B-FP8"


async def test_what_the_ssh_user_may_not_look_at_is_a_caution_and_the_switch_goes_on(scene: SwitchScene) -> None:
    node = scene.sparks.nodes["spark1"]
    node.options = replace(node.options, hidden=(MODEL, "/home/milo/models"))
    seen, ended = await collect_events_and_end(switch_instance(scene.ctx(), scene.request()))
    assert ended.exit_code == 0, ended
    messages = [one.message for one in seen if isinstance(one, WarningEmitted)]
    assert any("cannot tell whether" in words and "exists on spark1" in words for words in messages), messages
    assert any("files are complete: this user may not read" in words for words in messages), messages
    assert not any("does not exist" in words or "is incomplete" in words for words in messages), messages
    assert scene.is_new()


async def test_a_model_that_is_cut_off_is_refused_and_keep_going_goes_on(scene: SwitchScene) -> None:
    node = scene.sparks.nodes["spark1"]
    node.options = replace(node.options, cut=(MODEL,))
    _, ended = await collect_events_and_end(switch_instance(scene.ctx(), scene.request()))
    assert ended.exit_code == 6
    assert "is incomplete: " in (ended.message or "")
    assert "--keep-going" in (ended.hint or "")
    assert scene.is_old()
    seen, ended = await collect_events_and_end(switch_instance(scene.ctx(), scene.request(keep_going=True)))
    assert ended.exit_code == 0, ended
    assert any("is incomplete" in one.message for one in seen if isinstance(one, WarningEmitted))


async def test_of_a_left_switch_only_what_works_there_is_offered(scene: SwitchScene) -> None:
    def clearing(event: Event) -> bool:
        return isinstance(event, SwitchStepReported) and event.step is SwitchStep.CLEARING

    assert await scene.crash(switch_instance(scene.ctx(), scene.request()), clearing)
    said = "\n".join(format_status(await read_node_statuses(scene.ctx(), scene.nodes)))
    assert "sparkctl resume --node spark1" in said
    assert "abort" not in said, "it would be refused"
    _, ended = await collect_events_and_end(abort_switch(scene.ctx(), scene.finish()))
    assert ended.exit_code == 6
    assert f"sparkctl switch {OLD}" in (ended.hint or "")
    assert "abort" not in (ended.hint or "")


async def test_what_failed_and_was_left_for_study_is_called_so(scene: SwitchScene) -> None:
    _, ended = await collect_events_and_end(switch_instance(scene.ctx(), scene.request(FAULT, rolls_back=False)))
    assert ended.exit_code == 1
    said = "\n".join(format_status(await read_node_statuses(scene.ctx(), scene.nodes)))
    assert "failed and is kept for analysis (--no-rollback)" in said
    assert "on its way back" not in said


async def test_what_tries_the_change_after_a_failed_switch_is_a_switch(scene: SwitchScene) -> None:
    _, ended = await collect_events_and_end(switch_instance(scene.ctx(), scene.request(FAULT)))
    assert ended.verdict is not None
    assert (ended.verdict.again or "").startswith(f"sparkctl switch {NEW} --node spark1")
    assert "--again" not in (ended.verdict.again or "")
    _, ended = await collect_events_and_end(switch_instance(scene.ctx(), scene.request(FAULT)))
    assert ended.verdict is not None
    assert "--again" in (ended.verdict.again or ""), "two failures: a third start without it would be refused"


async def test_a_kept_container_that_somebody_removed_ends_in_words_and_not_in_a_journal_for_ever(
    scene: SwitchScene,
) -> None:
    def started(event: Event) -> bool:
        return isinstance(event, SwitchStepReported) and event.step is SwitchStep.STARTING and event.proof is not None

    assert await scene.crash(switch_instance(scene.ctx(), scene.request()), started)
    docker = scene.sparks.docker["spark2"]
    (gone,) = [one for one in docker.containers if one in set().union(*scene.old.values())]
    del docker.containers[gone]
    _, ended = await collect_events_and_end(abort_switch(scene.ctx(), scene.finish()))
    assert ended.exit_code == 6, "the new one is not taken away for nothing"
    assert set(scene.running()) == {NEW}
    assert "sparkctl resume" in (ended.hint or "")
    _, ended = await collect_events_and_end(resume_switch(scene.ctx(), scene.finish()))
    assert ended.exit_code == 0, ended
    assert scene.is_new()
    assert scene.journals == [None, None]


async def test_where_the_new_one_fails_and_the_old_one_is_gone_nothing_stays_shut(scene: SwitchScene) -> None:
    def restoring(event: Event) -> bool:
        return isinstance(event, SwitchStepReported) and event.step is SwitchStep.RESTORING

    assert await scene.crash(switch_instance(scene.ctx(), scene.request(FAULT)), restoring)
    docker = scene.sparks.docker["spark2"]
    (gone,) = [one for one in docker.containers if one in set().union(*scene.old.values())]
    del docker.containers[gone]
    _, ended = await collect_events_and_end(resume_switch(scene.ctx(), scene.finish()))
    assert ended.exit_code == 1
    assert "is no longer on spark2" in (ended.message or "")
    assert f"sparkctl up {OLD}" in (ended.hint or "")
    assert f"or try the new one: sparkctl up {NEW} --node spark1 --set env.SIM_FAULT" in (ended.hint or "")
    assert scene.journals == [None, None]


async def test_a_shell_that_lacks_a_variable_of_the_profile_takes_nothing_down(
    scene: SwitchScene, tmp_path: Path
) -> None:
    own = tmp_path / "config" / "sparkctl" / "profiles" / "mine.yaml"
    own.parent.mkdir(parents=True)
    own.write_text(f'name: mine\nextends: {NEW}\nenv: {{HF_TOKEN: "${{HF_TOKEN}}"}}\n')
    profile = ProfileLibrary().load_profile("mine")
    request = replace(scene.request(), profile=profile, words=("mine",), environ={"HF_TOKEN": "hf_x"})

    def ready(event: Event) -> bool:
        return isinstance(event, SwitchStepReported) and event.step is SwitchStep.STARTING and event.proof is not None

    assert await scene.crash(switch_instance(scene.ctx(), request), ready)
    running = scene.running()
    _, ended = await collect_events_and_end(resume_switch(scene.ctx("ada@desk"), scene.finish()))
    assert ended.exit_code == 6, ended
    assert "HF_TOKEN" in (ended.message or "")
    assert scene.running() == running
    _, ended = await collect_events_and_end(
        resume_switch(scene.ctx("ada@desk"), replace(scene.finish(), environ={"HF_TOKEN": "hf_x"}))
    )
    assert ended.exit_code == 0, ended


@pytest.mark.parametrize("verb", ["resume", "abort"])
async def test_the_history_knows_who_finished_a_switch_and_what_became_of_it(scene: SwitchScene, verb: str) -> None:
    def starting(event: Event) -> bool:
        return isinstance(event, SwitchStepReported) and event.step is SwitchStep.STARTING

    assert await scene.crash(switch_instance(scene.ctx(), scene.request()), starting)
    _, ended = await collect_events_and_end(
        (resume_switch if verb == "resume" else abort_switch)(scene.ctx(), scene.finish())
    )
    assert ended.exit_code == 0, ended
    rows = OperationHistory(scene.state).list_operations()
    finishing, left = [one for one in rows if one.kind is OperationKind.SWITCH]
    assert set(left.nodes) == set(finishing.nodes) == {"spark1", "spark2"}
    assert left.outcome == "interrupted"
    assert f"finished by sparkctl {verb}" in (left.why or "")
    assert left.hint is None, "what it advised is over"
    assert all(one.outcome is not None for one in rows)
    assert finishing.has_succeeded
    assert finishing.instance == (NEW if verb == "resume" else OLD)
    parts = OperationHistory(scene.state).list_switch_parts(finishing)
    assert [(one.kind, one.instance) for one in parts][-1] == (OperationKind.START, finishing.instance)


async def test_where_nothing_was_left_the_history_has_no_row(scene: SwitchScene) -> None:
    await collect_events_and_end(resume_switch(scene.ctx(), scene.finish()))
    await collect_events_and_end(abort_switch(scene.ctx(), scene.finish()))
    assert OperationHistory(scene.state).list_operations() == ()


async def test_the_old_one_loads_again_under_a_guard_as_a_start_does(scene: SwitchScene) -> None:
    guards = scene.sparks.guards
    watched = []
    async with aclosing(switch_instance(scene.ctx(), replace(scene.request(FAULT), guarded=True))) as events:
        async for event in events:
            if isinstance(event, PhaseChanged) and event.instance == OLD and event.phase is Phase.LOADING:
                watched.append({name: set(one.daemon.watches.by_container) for name, one in guards.items()})
    assert isinstance(event, CommandEnded)
    assert "serves again" in (event.message or "")
    assert watched, "it loaded"
    assert set().union(*watched[0].values()) == set().union(*scene.old.values())
    assert not any(one.daemon.watches for one in guards.values()), "and no further"


async def test_resume_keeps_to_what_was_asked_of_the_start(scene: SwitchScene) -> None:
    def stopping(event: Event) -> bool:
        return isinstance(event, SwitchStepReported) and event.step is SwitchStep.STOPPING

    assert await scene.crash(switch_instance(scene.ctx(), replace(scene.request(), timeout=1200.0)), stopping)
    _, ended = await collect_events_and_end(resume_switch(scene.ctx(), replace(scene.finish(), guarded=True)))
    assert ended.exit_code == 0, ended
    assert not any(guard.is_running for guard in scene.sparks.guards.values()), "--no-guard was said"


async def test_over_what_another_wrote_meanwhile_nothing_is_written_and_nothing_removed(scene: SwitchScene) -> None:
    """Whoever stands still before the first journal of his own may find that the switch was taken over, and left again."""
    await scene.crash(
        switch_instance(scene.ctx(), scene.request()), lambda event: getattr(event, "step", None) is SwitchStep.STARTING
    )
    (left, *_) = (one for one in scene.journals if one)
    there = decode_switch_journal(left)
    async with AsyncExitStack() as stack:
        ctx = scene.ctx("ann@desk")
        sessions = {node.name: await stack.enter_async_context(ctx.create_session(node)) for node in scene.nodes}
        await gather_or_cancel(*(session.link.connect() for session in sessions.values()))
        crew = SwitchTransaction(
            ctx, sessions, replace(there, operator="ann@desk", since=there.since + 60), lambda event: None, 0.0
        )
        await crew.acquire_locks("aborting")
        stack.push_async_callback(crew.release_locks)
        for name in there.affected_nodes:
            crew.adopt_journal(name, left)
        bobs = encode_switch_journal(replace(there, operator="bob@shed", since=there.since + 90))
        for node in scene.sparks.nodes.values():
            node.journal = bobs
        with pytest.raises(OwnershipLost, match="by bob@shed"):
            await crew.begin_step(SwitchStep.UNDOING)
        with pytest.raises(OwnershipLost, match="by bob@shed"):
            await crew.delete_journal()
        assert scene.journals == [bobs, bobs]


async def test_what_is_read_at_the_beginning_of_a_step_waits_for_no_journal_and_fails_after_it(
    scene: SwitchScene,
) -> None:
    await scene.crash(
        switch_instance(scene.ctx(), scene.request()), lambda event: getattr(event, "step", None) is SwitchStep.STARTING
    )
    (left, *_) = (one for one in scene.journals if one)
    steps: list[SwitchStep] = []

    def read_steps() -> list[SwitchStep]:
        return [decode_switch_journal(one).step for one in scene.journals if one]

    async def read() -> str:
        steps.extend(read_steps())
        if len(steps) <= len(scene.journals):
            raise ConnectionLost("spark1", "the connection broke")
        return "read"

    async def refuse() -> None:
        raise OperationRefused("not here")

    async with AsyncExitStack() as stack:
        ctx = scene.ctx()
        sessions = {node.name: await stack.enter_async_context(ctx.create_session(node)) for node in scene.nodes}
        await gather_or_cancel(*(session.link.connect() for session in sessions.values()))
        crew = SwitchTransaction(ctx, sessions, decode_switch_journal(left), lambda event: None, 0.0)
        await crew.acquire_locks("aborting")
        stack.push_async_callback(crew.release_locks)
        for name in crew.journal.affected_nodes:
            crew.adopt_journal(name, left)
        assert await crew.read_while_beginning(SwitchStep.UNDOING, read) == "read"
        before, after = [SwitchStep.STARTING] * 2, [SwitchStep.UNDOING] * 2
        assert steps == [*before, *after], "once more, over the connection that the writing made again"
        with pytest.raises(OperationRefused, match="not here"):
            await crew.read_while_beginning(SwitchStep.RESTORING, refuse)
        assert read_steps() == [SwitchStep.RESTORING] * 2, "the journals say where it stands"


async def test_the_guard_runs_by_the_time_the_new_one_starts(scene: SwitchScene) -> None:
    running: list[bool] = []
    async with aclosing(switch_instance(scene.ctx(), replace(scene.request(), guarded=True))) as events:
        async for event in events:
            if isinstance(event, SwitchStepReported) and event.step is SwitchStep.STARTING and event.proof is None:
                running = [guard.is_running for guard in scene.sparks.guards.values()]
    assert running == [True, False], "on the Spark of the new one, while the old one stopped"


async def test_a_new_switch_is_not_written_over_one_that_lies_there(scene: SwitchScene) -> None:
    await scene.crash(
        switch_instance(scene.ctx(), scene.request()), lambda event: getattr(event, "step", None) is SwitchStep.STARTING
    )
    (left, *_) = (one for one in scene.journals if one)
    spark1, spark2 = scene.sparks.nodes.values()
    spark1.journal = None
    async with AsyncExitStack() as stack:
        ctx = scene.ctx("ann@desk")
        sessions = {node.name: await stack.enter_async_context(ctx.create_session(node)) for node in scene.nodes}
        await gather_or_cancel(*(session.link.connect() for session in sessions.values()))
        mine = replace(decode_switch_journal(left), id="a" * 32, operator="ann@desk")
        crew = SwitchTransaction(ctx, sessions, mine, lambda event: None, 0.0)
        await crew.acquire_locks("switching")
        stack.push_async_callback(crew.release_locks)
        with pytest.raises(SwitchInProgress, match="by milo@laptop"):
            await crew.begin_step(SwitchStep.CHECKING)
        await crew.delete_journal()
        assert (spark1.journal, spark2.journal) == (None, left), "ours is gone again, the other's lies there as it did"
