"""A switch is known by what it tells, whoever tells it and from wherever it is told."""

from __future__ import annotations

from dataclasses import replace

from sparkctl.model.events import (
    CachesDropped,
    CommandEnded,
    Event,
    Outcome,
    PhaseChanged,
    SwitchPlanned,
    SwitchStepReported,
)
from sparkctl.model.node import NodeName
from sparkctl.model.phase import Phase
from sparkctl.model.sample import MemoryReading
from sparkctl.model.switch_plan import NodeSwitchPlan, SwitchPlan, SwitchStep
from sparkctl.monitor.switch_progress import StepEvidence, SwitchProgress, SwitchState, advance_switch

NODE = NodeName("spark1")
PLAN = SwitchPlan(
    profile="qwen36",
    instance="qwen36",
    nodes=(NODE,),
    changes=(NodeSwitchPlan(node=NODE, total=1, available=1, tenants=()),),
    stops=("minimax-m27",),
)


def make_step_event(
    ts: float, step: SwitchStep, proof: str | None = None, instance: str = "qwen36"
) -> SwitchStepReported:
    return SwitchStepReported(ts=ts, node=NODE, step=step, instance=instance, proof=proof, elapsed=ts - 100.0)


def advance_all(*events: Event, progress: SwitchProgress | None = None) -> SwitchProgress:
    for event in events:
        progress = advance_switch(progress, event)
    assert progress is not None
    return progress


def test_each_step_has_its_time_and_what_proved_it() -> None:
    progress = advance_all(
        SwitchPlanned(100.0, NODE, PLAN), make_step_event(101.0, SwitchStep.CHECKING), make_step_event(103.0, SwitchStep.CHECKING, "all there"),
        make_step_event(104.0, SwitchStep.STOPPING),
    )  # fmt: skip
    checking, stopping = progress.steps
    assert (checking.began, checking.ended, checking.proofs) == (101.0, 103.0, (StepEvidence("all there", NODE),))
    assert (stopping.began, stopping.ended) == (104.0, None)
    assert progress.plan is PLAN
    assert progress.began == 100.0
    assert not progress.is_rolling_back


def test_a_start_that_failed_is_not_done_when_the_way_back_begins() -> None:
    progress = advance_all(make_step_event(110.0, SwitchStep.STARTING), make_step_event(150.0, SwitchStep.UNDOING))
    assert progress.steps[0].ended is None
    assert progress.is_rolling_back
    assert progress.began == 100.0, "told from the middle: by its own count of seconds"


def test_a_switch_ends_with_its_own_command() -> None:
    memory = MemoryReading(total=10, available=2, free=1, page_cache=1, swap_total=0, swap_free=0)
    begun = advance_all(make_step_event(101.0, SwitchStep.CHECKING))
    assert advance_switch(begun, CachesDropped(ts=102.0, node=NODE, before=memory, after=memory, proven=True)) is begun
    assert (
        advance_switch(
            begun,
            CommandEnded(
                ts=102.0, outcome=Outcome.DONE, exit_code=0, seconds=1.0, node="spark2", instance="orpheus-tts"
            ),
        )
        is begun
    )
    over = advance_all(
        CommandEnded(ts=103.0, outcome=Outcome.READY, exit_code=0, seconds=3.0, node=NODE, instance="qwen36"),
        progress=begun,
    )
    assert over.is_over
    again = advance_all(make_step_event(201.0, SwitchStep.CHECKING), progress=over)
    assert (again.is_over, again.began, len(again.steps)) == (False, 100.0, 1)
    assert (
        advance_switch(
            None, CommandEnded(ts=103.0, outcome=Outcome.READY, exit_code=0, seconds=3.0, node=NODE, instance="qwen36")
        )
        is None
    )


def test_a_repeated_proof_is_listed_once() -> None:
    progress = advance_all(
        make_step_event(101.0, SwitchStep.DONE, "it answers"), make_step_event(102.0, SwitchStep.DONE, "it answers")
    )
    assert progress.steps[0].proofs == (StepEvidence("it answers", NODE),)


FREE_PLAN = SwitchPlan(
    profile="orpheus-tts", instance="orpheus-tts", nodes=(NODE,), changes=(NodeSwitchPlan(node=NODE, total=1, available=1, tenants=()),)
)  # fmt: skip


def make_phase_event(ts: float, instance: str) -> PhaseChanged:
    return PhaseChanged(ts=ts, node=NODE, instance=instance, phase=Phase.LOADING)


def make_end(ts: float, outcome: Outcome, instance: str) -> CommandEnded:
    return CommandEnded(ts=ts, outcome=outcome, exit_code=1, seconds=ts - 100.0, node=NODE, instance=instance)


def test_where_nothing_stops_it_is_its_start_which_goes_on_until_its_end() -> None:
    progress = advance_all(SwitchPlanned(100.0, NODE, FREE_PLAN))
    assert [one.step for one in progress.steps] == [SwitchStep.STARTING]
    assert progress.is_only_start
    failed = advance_all(make_end(130.0, Outcome.FAILED, "orpheus-tts"), progress=progress)
    assert (failed.is_over, failed.steps[0].ended) == (True, None), "a start that failed is not done"
    ready = advance_all(make_end(130.0, Outcome.READY, "orpheus-tts"), progress=progress)
    assert ready.steps[0].ended == 130.0
    refused = advance_all(SwitchPlanned(100.0, NODE, replace(FREE_PLAN, obstacles=("no room",))))
    assert refused.steps == (), "nothing begins"


def test_the_end_of_what_the_new_one_needs_is_the_end_of_the_switch_if_it_is_of_its_command() -> None:
    state, own, other = SwitchState(), 3, 4
    state.apply_event(SwitchPlanned(100.0, NODE, FREE_PLAN), own, dict)
    state.apply_event(make_phase_event(101.0, "orpheus-llm"), own, dict)
    assert not state.apply_event(make_phase_event(101.0, "qwen36"), other, dict)
    assert state.last is not None
    assert state.last.needs == ("orpheus-llm",)
    assert not state.apply_event(make_end(110.0, Outcome.FAILED, "orpheus-llm"), other, dict)
    assert state.running is not None
    assert state.apply_event(make_end(111.0, Outcome.FAILED, "orpheus-llm"), own, dict)
    assert state.running is None
    last = state.last
    assert last is not None
    assert last.end is not None
    assert last.end.instance == "orpheus-llm"
