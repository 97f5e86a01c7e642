"""A switch on the simulated Sparks: done, undone, and left at each of its steps."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from sparkctl import engines
from sparkctl.commands.start.start_instance import start_instance
from sparkctl.commands.start.start_request import StartInstance
from sparkctl.commands.stop.pending_stops import PendingStopFiles
from sparkctl.commands.stop.stop_instance import StopInstance, stop_instance
from sparkctl.commands.switch.finish_switch import FinishSwitch, abort_switch, resume_switch
from sparkctl.commands.switch.switch_instance import switch_instance
from sparkctl.commands.switch.switch_request import SwitchInstance
from sparkctl.commands.switch.switch_transaction import OwnershipLost, SwitchTransaction
from sparkctl.concurrency import gather_or_cancel
from sparkctl.config import load_config
from sparkctl.context import CommandContext
from sparkctl.history.model import OperationKind
from sparkctl.history.operation_history import OperationHistory
from sparkctl.model.events import CommandEnded, Event, Outcome, PhaseChanged, SwitchStepReported, WarningEmitted
from sparkctl.model.launch_plan import ContainerLabel
from sparkctl.model.phase import Phase
from sparkctl.model.switch_plan import SwitchStep
from sparkctl.monitor.node_status import read_node_statuses
from sparkctl.monitor.switch_journal_io import SwitchInProgress
from sparkctl.node.switch_journal_codec import decode_switch_journal, encode_switch_journal
from sparkctl.paths import shipped_profiles_dir
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.simulator import SimClock, SimulatedSparks
from sparkctl.simulator.scenarios import _plan_ranks as ranks
from sparkctl.simulator.scenarios import _start_ready_engine as start
from sparkctl.views.status_view import format_status
from tests.sim.sim_clients import wait_until_true

OLD, NEW = "qwen36-tp2", "qwen36-ngram"
SPEED = 16.0  # ten minutes, as long as ranks wait for each other, are nearly a second
FAULT = ("env.SIM_FAULT=cuda-oom",)


@pytest.fixture(autouse=True)
def _own_profiles(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`resume` loads the profile that the journal names."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


class SwitchScene:
    """Two simulated Sparks with the big model on both, and an operator."""

    def __init__(self, sparks: SimulatedSparks, state: Path) -> None:
        self.sparks = sparks
        self.state = state
        self.nodes = load_config(sparks.config_path).nodes
        self.old = self.running()

    def ctx(self, operator: str = "milo@laptop") -> CommandContext:
        return CommandContext(history=OperationHistory(self.state), operator=operator)

    def request(self, overrides: tuple[str, ...] = (), **more: bool) -> SwitchInstance:
        profile = ProfileLibrary(shipped_profiles_dir()).load_profile(NEW, overrides=overrides)
        words = (NEW, *(word for one in overrides for word in ("--set", one)))
        return SwitchInstance(
            profile=profile,
            engine=engines.load_engine(profile.engine),
            nodes=(self.nodes[0],),
            known=self.nodes,
            words=words,
            guarded=False,
            **more,
        )

    async def speech_beside(self) -> set[str]:
        """Start a small model on the second Spark, which stays where another is switched; return its containers."""
        profile = ProfileLibrary(shipped_profiles_dir()).load_profile("orpheus-tts")
        tts = replace(
            self.request().to_start_request(), profile=profile, engine=engines.load_engine(profile.engine), nodes=(self.nodes[1],),
            words=("orpheus-tts",), forced=True,
        )  # fmt: skip
        _, ended = await collect_events_and_end(start_instance(self.ctx(), tts))
        assert ended.exit_code == 0, ended
        return self.running()["orpheus-tts"]

    def finish(self) -> FinishSwitch:
        return FinishSwitch(nodes=self.nodes, known=self.nodes, guarded=False)

    def running(self) -> dict[str, set[str]]:
        """Return the ids of what runs, by instance."""
        found: dict[str, set[str]] = {}
        for docker in self.sparks.docker.values():
            for one in docker.containers.values():
                if one.state == "running":
                    found.setdefault(one.labels[ContainerLabel.INSTANCE], set()).add(one.id)
        return found

    def all(self) -> set[str]:
        return {one.id for docker in self.sparks.docker.values() for one in docker.containers.values()}

    @property
    def journals(self) -> list[str | None]:
        return [node.journal for node in self.sparks.nodes.values()]

    def is_old(self) -> bool:
        """Whether exactly the old model runs, whole, in the very same containers, and nothing else is left."""
        return self.running() == self.old and self.all() == set().union(*self.old.values())

    def is_new(self) -> bool:
        """Whether exactly the new one runs, and nothing of the old one is left."""
        return set(self.running()) == {NEW} and len(self.all()) == 1

    async def interrupted(self, at: SwitchStep) -> CommandEnded:
        """Switch, press Ctrl-C at each event of a step, and return the end."""
        ctx = self.ctx()
        async with aclosing(switch_instance(ctx, self.request())) as events:
            async for event in events:
                if isinstance(event, SwitchStepReported) and event.step is at:
                    ctx.interrupt.record_press()
        assert isinstance(event, CommandEnded)
        return event

    async def crash(self, events: AsyncGenerator[Event, None], at: Callable[[Event], bool]) -> bool:
        """Run until an event, then end as a killed process does: its connections break, its work is abandoned.

        Returns whether the event came."""
        seen = False
        async with aclosing(events):
            async for event in events:
                if at(event):
                    seen = True
                    for sshd in self.sparks.sshd.values():
                        sshd.drop_connections()
                    break
        await wait_until_true(lambda: not any(node.locks for node in self.sparks.nodes.values()))
        return seen


@asynccontextmanager
async def open_two_rank_model(
    state: Path, speed: float = SPEED, clock: SimClock | None = None
) -> AsyncGenerator[SwitchScene, None]:
    """Two Sparks that share one model, ranks of SGLang: they wait ten minutes for each other, those of Ray half a minute."""
    async with SimulatedSparks("empty", speed=speed, decode_speed=200.0, clock=clock) as sparks:
        nodes = list(sparks.docker.values())
        begun = [start(docker, made, 3600.0) for docker, made in zip(nodes, ranks(OLD, nodes), strict=True)]
        for process in begun:
            await process.ready.wait()
        yield SwitchScene(sparks, state)


@pytest.fixture
async def bed(tmp_path: Path) -> AsyncGenerator[SwitchScene, None]:
    async with open_two_rank_model(tmp_path / "state") as made:
        yield made


async def collect_events_and_end(events: AsyncGenerator[Event, None]) -> tuple[list[Event], CommandEnded]:
    seen = [event async for event in events]
    assert isinstance(seen[-1], CommandEnded)
    return seen, seen[-1]


def list_switch_steps(events: list[Event]) -> list[SwitchStep]:
    return [event.step for event in events if isinstance(event, SwitchStepReported) and event.proof is None]


async def test_the_new_one_serves_and_nothing_of_the_old_one_is_left(bed: SwitchScene) -> None:
    seen, ended = await collect_events_and_end(switch_instance(bed.ctx(), bed.request()))
    assert (ended.outcome, ended.exit_code) == (Outcome.READY, 0), ended
    assert ended.endpoint
    assert list_switch_steps(seen) == [
        SwitchStep.CHECKING, SwitchStep.STOPPING, SwitchStep.RELEASING, SwitchStep.STARTING, SwitchStep.CLEARING,
    ]  # fmt: skip
    proofs = {event.step: event.proof for event in seen if isinstance(event, SwitchStepReported) and event.proof}
    assert set(proofs) == {*list_switch_steps(seen), SwitchStep.DONE}
    assert bed.is_new()
    assert bed.journals == [None, None]


async def test_one_that_fails_gives_way_to_the_very_containers_that_were_there(bed: SwitchScene) -> None:
    seen, ended = await collect_events_and_end(switch_instance(bed.ctx(), bed.request(FAULT)))
    assert (ended.outcome, ended.exit_code) == (Outcome.FAILED, 1)
    assert ended.verdict is not None, "the new one's story"
    (name,) = bed.old
    assert f"{name} serves again" in (ended.message or ""), "and the old one's"
    assert list_switch_steps(seen)[-2:] == [SwitchStep.UNDOING, SwitchStep.RESTORING]
    assert bed.is_old()
    assert bed.journals == [None, None]


async def test_the_big_model_comes_back_head_first_as_ray_wants_it(tmp_path: Path) -> None:
    async with SimulatedSparks("big-model", speed=SPEED, decode_speed=200.0) as sparks:
        bed = SwitchScene(sparks, tmp_path / "state")
        _, ended = await collect_events_and_end(switch_instance(bed.ctx(), bed.request(FAULT)))
        assert "minimax-m27 serves again" in (ended.message or ""), ended
        assert bed.is_old()


async def test_no_rollback_leaves_the_wreck_and_abort_brings_the_old_one_back(bed: SwitchScene) -> None:
    _, ended = await collect_events_and_end(switch_instance(bed.ctx(), bed.request(FAULT, rolls_back=False)))
    assert ended.exit_code == 1
    assert "sparkctl abort" in (ended.hint or "")
    assert all(bed.journals)
    assert len(bed.all()) == 3
    _, ended = await collect_events_and_end(abort_switch(bed.ctx(), bed.finish()))
    assert ended.exit_code == 0, ended
    assert bed.is_old()
    assert bed.journals == [None, None]


FORWARD = (
    SwitchStep.CHECKING, SwitchStep.STOPPING, SwitchStep.RELEASING, SwitchStep.STARTING, SwitchStep.CLEARING, SwitchStep.DONE,
)  # fmt: skip


@pytest.mark.parametrize("finish", ["resume", "abort"])
@pytest.mark.parametrize("is_done", [False, True], ids=["begun", "done"])
@pytest.mark.parametrize("step", FORWARD)
async def test_killed_at_each_step_it_is_finished_or_undone(
    bed: SwitchScene, step: SwitchStep, is_done: bool, finish: str
) -> None:
    """Begun: right after the journal says so. Done: when it is proved, right before the next one is written."""

    def at(event: Event) -> bool:
        return isinstance(event, SwitchStepReported) and event.step is step and (event.proof is not None) == is_done

    assert await bed.crash(switch_instance(bed.ctx(), bed.request()), at) or (step is SwitchStep.DONE and not is_done)
    verb = resume_switch if finish == "resume" else abort_switch
    _, ended = await collect_events_and_end(verb(bed.ctx("ada@desk"), bed.finish()))
    is_cleared = step in (SwitchStep.CLEARING, SwitchStep.DONE)
    if finish == "resume" or is_cleared:
        if ended.exit_code == 6:
            assert "has passed its checks" in (ended.message or "")
            _, ended = await collect_events_and_end(resume_switch(bed.ctx(), bed.finish()))
        assert ended.exit_code == 0, ended
        assert bed.is_new()
    else:
        assert ended.exit_code == 0, ended
        assert bed.is_old()
    assert bed.journals == [None, None]


@pytest.mark.parametrize("finish", ["resume", "abort"])
@pytest.mark.parametrize("is_done", [False, True], ids=["begun", "done"])
@pytest.mark.parametrize("step", [SwitchStep.UNDOING, SwitchStep.RESTORING])
async def test_killed_on_its_way_back_it_goes_back(
    bed: SwitchScene, step: SwitchStep, is_done: bool, finish: str
) -> None:
    def at(event: Event) -> bool:
        return isinstance(event, SwitchStepReported) and event.step is step and (event.proof is not None) == is_done

    assert await bed.crash(switch_instance(bed.ctx(), bed.request(FAULT)), at)
    _, ended = await collect_events_and_end(
        (resume_switch if finish == "resume" else abort_switch)(bed.ctx("ada@desk"), bed.finish())
    )
    assert ended.exit_code == 0, ended
    assert bed.is_old()
    assert bed.journals == [None, None]


async def test_ctrl_c_says_where_it_was_left_and_how_it_goes_on(bed: SwitchScene) -> None:
    event = await bed.interrupted(SwitchStep.STARTING)
    assert event.exit_code == 130
    assert "step 4 of 6 (starting)" in (event.message or "")
    assert "sparkctl resume" in (event.hint or "")
    _, ended = await collect_events_and_end(resume_switch(bed.ctx(), bed.finish()))
    assert ended.exit_code == 0
    assert bed.is_new()


@pytest.mark.parametrize("at", [SwitchStep.STOPPING, SwitchStep.STARTING])
async def test_a_switch_that_another_ended_offers_no_way_to_finish_it(bed: SwitchScene, at: SwitchStep) -> None:
    """Its journal is gone from the nodes: whatever ends this one, it says so, and not that it can be resumed."""
    ctx = bed.ctx()
    async with aclosing(switch_instance(ctx, bed.request())) as events:
        async for event in events:
            if isinstance(event, SwitchStepReported) and event.step is at:
                for node in bed.sparks.nodes.values():
                    node.journal = None
                ctx.interrupt.record_press()
    assert isinstance(event, CommandEnded)
    assert event.exit_code == 6, event
    assert "no longer belongs to this sparkctl" in (event.message or "")
    assert "resume" not in f"{event.message} {event.hint}"
    _, ended = await collect_events_and_end(resume_switch(bed.ctx(), bed.finish()))
    assert "there is no unfinished switch" in (ended.message or "")


async def test_ctrl_c_once_it_is_done_changes_nothing_of_what_is_said(bed: SwitchScene) -> None:
    event = await bed.interrupted(SwitchStep.DONE)
    assert (event.outcome, event.exit_code) == (Outcome.READY, 0), event
    assert bed.is_new()
    assert bed.journals == [None, None]


async def test_others_are_refused_while_it_goes_on_and_when_it_was_left(tmp_path: Path) -> None:
    async with open_two_rank_model(tmp_path / "state", speed=4.0) as bed:
        other = bed.request()
        start = StartInstance(
            profile=other.profile, engine=other.engine, nodes=other.nodes, words=(NEW,), guarded=False
        )
        async with aclosing(switch_instance(bed.ctx(), bed.request())) as events:
            async for event in events:
                if isinstance(event, SwitchStepReported) and event.step is SwitchStep.STARTING:
                    break
            for verb in (start_instance(bed.ctx("ada@desk"), start), resume_switch(bed.ctx("ada@desk"), bed.finish())):
                _, ended = await collect_events_and_end(verb)
                assert ended.exit_code == 6
                assert "switch to qwen36-ngram in progress, step 4 of 6 (starting)" in (ended.message or "")
                assert "by milo@laptop since" in (ended.message or "")
            views = await read_node_statuses(bed.ctx("ada@desk"), bed.nodes)
            assert all(view.switch is not None and view.switch.is_held for view in views)
            assert any("in progress, step 4 of 6" in line for line in format_status(views))
            old = [one for view in views for one in view.instances if one.name == OLD]
            assert old
            assert all(one.phase is Phase.STOPPED and one.is_kept for one in old)
        await wait_until_true(lambda: not any(node.locks for node in bed.sparks.nodes.values()))
        views = await read_node_statuses(bed.ctx("ada@desk"), bed.nodes)
        assert not any(view.is_healthy for view in views)
        assert any("was left, step 4 of 6" in line for line in format_status(views))
        stop = StopInstance(instance=next(iter(bed.old)), nodes=bed.nodes)
        for verb in (start_instance(bed.ctx("ada@desk"), start), stop_instance(bed.ctx("ada@desk"), stop)):
            _, ended = await collect_events_and_end(verb)
            assert ended.exit_code == 6, ended
            assert "switch to qwen36-ngram was left, step 4 of 6 (starting), by milo@laptop" in (ended.message or "")
            assert "sparkctl resume" in (ended.hint or "")
        _, ended = await collect_events_and_end(abort_switch(bed.ctx("ada@desk"), bed.finish()))
        assert bed.is_old()


async def test_a_damaged_journal_is_unknown_and_not_absent(bed: SwitchScene) -> None:
    bed.sparks.nodes["spark1"].journal = '{"schema": 1, "id": "zz"}'
    for verb in (
        switch_instance(bed.ctx(), bed.request()),
        resume_switch(bed.ctx(), bed.finish()),
        abort_switch(bed.ctx(), bed.finish()),
    ):
        _, ended = await collect_events_and_end(verb)
        assert ended.exit_code == 6
        assert "it is damaged" in (ended.message or "")
    assert bed.running() == bed.old


async def test_another_profile_by_now_is_not_resumed(bed: SwitchScene, tmp_path: Path) -> None:
    def started(event: Event) -> bool:
        return isinstance(event, SwitchStepReported) and event.step is SwitchStep.STARTING

    assert await bed.crash(switch_instance(bed.ctx(), bed.request(("port=8123",))), started)
    for name, node in bed.sparks.nodes.items():
        assert node.journal is not None, name
        node.journal = node.journal.replace("port=8123", "port=8124")
    _, ended = await collect_events_and_end(resume_switch(bed.ctx(), bed.finish()))
    assert ended.exit_code == 6
    assert "is another profile here" in (ended.message or "")
    assert "sparkctl abort" in (ended.hint or "")
    _, ended = await collect_events_and_end(abort_switch(bed.ctx(), bed.finish()))
    assert ended.exit_code == 0
    assert bed.is_old()


async def test_where_nothing_was_left_there_is_nothing_to_finish(bed: SwitchScene) -> None:
    for verb in (resume_switch(bed.ctx(), bed.finish()), abort_switch(bed.ctx(), bed.finish())):
        _, ended = await collect_events_and_end(verb)
        assert ended.exit_code == 0
        assert "there is no unfinished switch" in (ended.message or "")


async def test_a_silent_spark_that_holds_a_rank_is_refused_and_with_keep_going_it_is_stopped_later(
    bed: SwitchScene,
) -> None:
    await bed.sparks.sshd["spark2"].close()
    _, ended = await collect_events_and_end(switch_instance(bed.ctx(), bed.request()))
    assert ended.exit_code == 6
    assert f"{OLD} has a rank on spark2" in (ended.message or "")
    assert "--keep-going" in (ended.message or "")
    assert bed.running() == bed.old
    _, ended = await collect_events_and_end(switch_instance(bed.ctx(), bed.request(keep_going=True)))
    assert ended.exit_code == 0, ended
    assert NEW in bed.running()
    (owed,) = PendingStopFiles(bed.state).list_all(bed.ctx().clock.unix_time())
    assert (owed.node, owed.instance) == ("spark2", OLD)


@pytest.mark.parametrize("step", [SwitchStep.CHECKING, SwitchStep.STARTING])
async def test_resume_keeps_going_where_the_switch_was_to(bed: SwitchScene, step: SwitchStep) -> None:
    """Begun anew with a Spark still silent, or finished from the middle: its rank is stopped at the next contact."""

    def at(event: Event) -> bool:
        return isinstance(event, SwitchStepReported) and event.step is step

    await bed.sparks.sshd["spark2"].close()
    assert await bed.crash(switch_instance(bed.ctx(), bed.request(keep_going=True)), at)
    _, ended = await collect_events_and_end(resume_switch(bed.ctx("ada@desk"), bed.finish()))
    assert ended.exit_code == 0, ended
    assert NEW in bed.running()
    (owed,) = PendingStopFiles(bed.state).list_all(bed.ctx().clock.unix_time())
    assert (owed.node, owed.instance) == ("spark2", OLD)


async def test_up_refuses_and_names_the_switch_that_makes_room(bed: SwitchScene) -> None:
    other = bed.request()
    start = StartInstance(profile=other.profile, engine=other.engine, nodes=other.nodes, words=(NEW,), guarded=False)
    _, ended = await collect_events_and_end(start_instance(bed.ctx(), start))
    assert ended.exit_code == 6
    assert f"sparkctl switch {NEW} --node spark1" in (ended.hint or "")
    assert bed.running() == bed.old


async def test_a_model_that_is_not_there_is_found_while_the_old_one_serves(bed: SwitchScene) -> None:
    node = bed.sparks.nodes["spark1"]
    node.options = replace(node.options, missing=("/home/milo/models/Qwen3.6-27B-FP8",))
    seen, ended = await collect_events_and_end(switch_instance(bed.ctx(), bed.request()))
    assert ended.exit_code == 6
    assert "there are no weights in" in (ended.message or "")
    assert list_switch_steps(seen) == []
    assert bed.running() == bed.old
    assert bed.journals == [None, None]


MODEL = "/home/milo/models/Qwen3.6-27B-FP8"


async def test_what_the_ssh_user_may_not_look_at_is_a_caution_and_the_switch_goes_on(bed: SwitchScene) -> None:
    node = bed.sparks.nodes["spark1"]
    node.options = replace(node.options, hidden=(MODEL, "/home/milo/models"))
    seen, ended = await collect_events_and_end(switch_instance(bed.ctx(), bed.request()))
    assert ended.exit_code == 0, ended
    told = [one.message for one in seen if isinstance(one, WarningEmitted)]
    assert any("cannot tell whether" in words and "exists on spark1" in words for words in told), told
    assert any("files are complete: this user may not read" in words for words in told), told
    assert not any("does not exist" in words or "is not whole" in words for words in told), told
    assert bed.is_new()


async def test_a_model_that_is_cut_off_is_refused_and_keep_going_goes_on(bed: SwitchScene) -> None:
    node = bed.sparks.nodes["spark1"]
    node.options = replace(node.options, cut=(MODEL,))
    _, ended = await collect_events_and_end(switch_instance(bed.ctx(), bed.request()))
    assert ended.exit_code == 6
    assert "is not whole: " in (ended.message or "")
    assert "--keep-going" in (ended.hint or "")
    assert bed.is_old()
    seen, ended = await collect_events_and_end(switch_instance(bed.ctx(), bed.request(keep_going=True)))
    assert ended.exit_code == 0, ended
    assert any("is not whole" in one.message for one in seen if isinstance(one, WarningEmitted))


async def test_of_a_left_switch_only_what_works_there_is_offered(bed: SwitchScene) -> None:
    def clearing(event: Event) -> bool:
        return isinstance(event, SwitchStepReported) and event.step is SwitchStep.CLEARING

    assert await bed.crash(switch_instance(bed.ctx(), bed.request()), clearing)
    said = "\n".join(format_status(await read_node_statuses(bed.ctx(), bed.nodes)))
    assert "sparkctl resume --node spark1" in said
    assert "abort" not in said, "it would be refused"
    _, ended = await collect_events_and_end(abort_switch(bed.ctx(), bed.finish()))
    assert ended.exit_code == 6
    assert f"sparkctl switch {OLD}" in (ended.hint or "")
    assert "abort" not in (ended.hint or "")


async def test_what_failed_and_was_left_for_study_is_called_so(bed: SwitchScene) -> None:
    _, ended = await collect_events_and_end(switch_instance(bed.ctx(), bed.request(FAULT, rolls_back=False)))
    assert ended.exit_code == 1
    said = "\n".join(format_status(await read_node_statuses(bed.ctx(), bed.nodes)))
    assert "failed and is left for study (--no-rollback)" in said
    assert "on its way back" not in said


async def test_what_tries_the_change_after_a_failed_switch_is_a_switch(bed: SwitchScene) -> None:
    _, ended = await collect_events_and_end(switch_instance(bed.ctx(), bed.request(FAULT)))
    assert ended.verdict is not None
    assert (ended.verdict.again or "").startswith(f"sparkctl switch {NEW} --node spark1")
    assert "--again" not in (ended.verdict.again or "")


async def test_a_kept_container_that_somebody_removed_ends_in_words_and_not_in_a_journal_for_ever(
    bed: SwitchScene,
) -> None:
    def started(event: Event) -> bool:
        return isinstance(event, SwitchStepReported) and event.step is SwitchStep.STARTING and event.proof is not None

    assert await bed.crash(switch_instance(bed.ctx(), bed.request()), started)
    docker = bed.sparks.docker["spark2"]
    (gone,) = [one for one in docker.containers if one in set().union(*bed.old.values())]
    del docker.containers[gone]
    _, ended = await collect_events_and_end(abort_switch(bed.ctx(), bed.finish()))
    assert ended.exit_code == 6, "the new one is not taken away for nothing"
    assert set(bed.running()) == {NEW}
    assert "sparkctl resume" in (ended.hint or "")
    _, ended = await collect_events_and_end(resume_switch(bed.ctx(), bed.finish()))
    assert ended.exit_code == 0, ended
    assert bed.is_new()
    assert bed.journals == [None, None]


async def test_where_the_new_one_fails_and_the_old_one_is_gone_nothing_stays_shut(bed: SwitchScene) -> None:
    def restoring(event: Event) -> bool:
        return isinstance(event, SwitchStepReported) and event.step is SwitchStep.RESTORING

    assert await bed.crash(switch_instance(bed.ctx(), bed.request(FAULT)), restoring)
    docker = bed.sparks.docker["spark2"]
    (gone,) = [one for one in docker.containers if one in set().union(*bed.old.values())]
    del docker.containers[gone]
    _, ended = await collect_events_and_end(resume_switch(bed.ctx(), bed.finish()))
    assert ended.exit_code == 1
    assert "is no longer on spark2" in (ended.message or "")
    assert f"sparkctl up {OLD}" in (ended.hint or "")
    assert bed.journals == [None, None]


async def test_a_shell_that_lacks_a_variable_of_the_profile_takes_nothing_down(
    bed: SwitchScene, tmp_path: Path
) -> None:
    own = tmp_path / "config" / "sparkctl" / "profiles" / "mine.yaml"
    own.parent.mkdir(parents=True)
    own.write_text(f'name: mine\nextends: {NEW}\nenv: {{HF_TOKEN: "${{HF_TOKEN}}"}}\n')
    profile = ProfileLibrary().load_profile("mine")
    request = replace(bed.request(), profile=profile, words=("mine",), environ={"HF_TOKEN": "hf_x"})

    def ready(event: Event) -> bool:
        return isinstance(event, SwitchStepReported) and event.step is SwitchStep.STARTING and event.proof is not None

    assert await bed.crash(switch_instance(bed.ctx(), request), ready)
    running = bed.running()
    _, ended = await collect_events_and_end(resume_switch(bed.ctx("ada@desk"), bed.finish()))
    assert ended.exit_code == 6, ended
    assert "HF_TOKEN" in (ended.message or "")
    assert bed.running() == running
    _, ended = await collect_events_and_end(
        resume_switch(bed.ctx("ada@desk"), replace(bed.finish(), environ={"HF_TOKEN": "hf_x"}))
    )
    assert ended.exit_code == 0, ended


@pytest.mark.parametrize("verb", ["resume", "abort"])
async def test_the_history_knows_who_finished_a_switch_and_what_became_of_it(bed: SwitchScene, verb: str) -> None:
    def starting(event: Event) -> bool:
        return isinstance(event, SwitchStepReported) and event.step is SwitchStep.STARTING

    assert await bed.crash(switch_instance(bed.ctx(), bed.request()), starting)
    _, ended = await collect_events_and_end(
        (resume_switch if verb == "resume" else abort_switch)(bed.ctx(), bed.finish())
    )
    assert ended.exit_code == 0, ended
    rows = OperationHistory(bed.state).list_operations()
    finishing, left = [one for one in rows if one.kind is OperationKind.SWITCH]
    assert set(left.nodes) == set(finishing.nodes) == {"spark1", "spark2"}
    assert left.outcome == "interrupted"
    assert f"finished by sparkctl {verb}" in (left.why or "")
    assert left.hint is None, "what it advised is over"
    assert all(one.outcome is not None for one in rows)
    assert finishing.has_succeeded
    assert finishing.instance == (NEW if verb == "resume" else OLD)
    parts = OperationHistory(bed.state).list_switch_parts(finishing)
    assert [(one.kind, one.instance) for one in parts][-1] == (OperationKind.START, finishing.instance)


async def test_where_nothing_was_left_the_history_has_no_row(bed: SwitchScene) -> None:
    await collect_events_and_end(resume_switch(bed.ctx(), bed.finish()))
    await collect_events_and_end(abort_switch(bed.ctx(), bed.finish()))
    assert OperationHistory(bed.state).list_operations() == ()


async def test_the_old_one_loads_again_under_a_guard_as_a_start_does(bed: SwitchScene) -> None:
    guards = bed.sparks.guards
    watched = []
    async with aclosing(switch_instance(bed.ctx(), replace(bed.request(FAULT), guarded=True))) as events:
        async for event in events:
            if isinstance(event, PhaseChanged) and event.instance == OLD and event.phase is Phase.LOADING:
                watched.append({name: set(one.watches) for name, one in guards.items()})
    assert isinstance(event, CommandEnded)
    assert "serves again" in (event.message or "")
    assert watched, "it loaded"
    assert set().union(*watched[0].values()) == set().union(*bed.old.values())
    assert not any(one.watches for one in guards.values()), "and no further"


async def test_resume_keeps_to_what_was_asked_of_the_start(bed: SwitchScene) -> None:
    def stopping(event: Event) -> bool:
        return isinstance(event, SwitchStepReported) and event.step is SwitchStep.STOPPING

    assert await bed.crash(switch_instance(bed.ctx(), replace(bed.request(), timeout=1200.0)), stopping)
    _, ended = await collect_events_and_end(resume_switch(bed.ctx(), replace(bed.finish(), guarded=True)))
    assert ended.exit_code == 0, ended
    assert not any(guard.is_running for guard in bed.sparks.guards.values()), "--no-guard was said"


async def test_over_what_another_wrote_meanwhile_nothing_is_written_and_nothing_removed(bed: SwitchScene) -> None:
    """Whoever stands still before the first journal of his own may find that the switch was taken over, and left again."""
    await bed.crash(
        switch_instance(bed.ctx(), bed.request()), lambda event: getattr(event, "step", None) is SwitchStep.STARTING
    )
    (left, *_) = (one for one in bed.journals if one)
    there = decode_switch_journal(left)
    async with AsyncExitStack() as stack:
        ctx = bed.ctx("ann@desk")
        sessions = {node.name: await stack.enter_async_context(ctx.create_session(node)) for node in bed.nodes}
        await gather_or_cancel(*(session.link.connect() for session in sessions.values()))
        crew = SwitchTransaction(
            ctx, sessions, replace(there, operator="ann@desk", since=there.since + 60), lambda event: None, 0.0
        )
        await crew.acquire_locks("aborting")
        stack.push_async_callback(crew.release_locks)
        for name in there.affected_nodes:
            crew.adopt_journal(name, left)
        bobs = encode_switch_journal(replace(there, operator="bob@shed", since=there.since + 90))
        for node in bed.sparks.nodes.values():
            node.journal = bobs
        with pytest.raises(OwnershipLost, match="by bob@shed"):
            await crew.begin_step(SwitchStep.UNDOING)
        with pytest.raises(OwnershipLost, match="by bob@shed"):
            await crew.delete_journal()
        assert bed.journals == [bobs, bobs]


async def test_a_new_switch_is_not_written_over_one_that_lies_there(bed: SwitchScene) -> None:
    await bed.crash(
        switch_instance(bed.ctx(), bed.request()), lambda event: getattr(event, "step", None) is SwitchStep.STARTING
    )
    (left, *_) = (one for one in bed.journals if one)
    spark1, spark2 = bed.sparks.nodes.values()
    spark1.journal = None
    async with AsyncExitStack() as stack:
        ctx = bed.ctx("ann@desk")
        sessions = {node.name: await stack.enter_async_context(ctx.create_session(node)) for node in bed.nodes}
        await gather_or_cancel(*(session.link.connect() for session in sessions.values()))
        mine = replace(decode_switch_journal(left), id="a" * 32, operator="ann@desk")
        crew = SwitchTransaction(ctx, sessions, mine, lambda event: None, 0.0)
        await crew.acquire_locks("switching")
        stack.push_async_callback(crew.release_locks)
        with pytest.raises(SwitchInProgress, match="by milo@laptop"):
            await crew.begin_step(SwitchStep.CHECKING)
        await crew.delete_journal()
        assert (spark1.journal, spark2.journal) == (None, left), "ours is gone again, the other's lies there as it did"
