"""A switch is known by what it tells, whoever tells it and from wherever it is told."""

from __future__ import annotations

from sparkctl.model.events import CachesDropped, CommandEnded, Event, Outcome, SwitchPlanned, SwitchStepReported
from sparkctl.model.memory_reading import MemoryReading
from sparkctl.model.node import NodeName
from sparkctl.model.switch_plan import NodeSwitchPlan, SwitchPlan, SwitchStep
from sparkctl.monitor.switch_progress import StepEvidence, SwitchProgress, advance_switch

NODE = NodeName("spark1")
PLAN = SwitchPlan("qwen36", "qwen36", (NODE,), (NodeSwitchPlan(NODE, 1, 1, ()),), ("minimax-m27",))


def stepped(ts: float, step: SwitchStep, proof: str | None = None, instance: str = "qwen36") -> SwitchStepReported:
    return SwitchStepReported(ts, NODE, step, instance, proof, ts - 100.0)


def told(*events: Event, course: SwitchProgress | None = None) -> SwitchProgress:
    for event in events:
        course = advance_switch(course, event)
    assert course is not None
    return course


def test_each_step_has_its_time_and_what_proved_it() -> None:
    course = told(
        SwitchPlanned(100.0, NODE, PLAN), stepped(101.0, SwitchStep.CHECKING), stepped(103.0, SwitchStep.CHECKING, "all there"),
        stepped(104.0, SwitchStep.STOPPING),
    )  # fmt: skip
    checking, stopping = course.steps
    assert (checking.began, checking.ended, checking.proofs) == (101.0, 103.0, (StepEvidence("all there", NODE),))
    assert (stopping.began, stopping.ended) == (104.0, None)
    assert course.plan is PLAN
    assert course.began == 100.0
    assert not course.is_rolling_back


def test_a_start_that_failed_is_not_done_when_the_way_back_begins() -> None:
    course = told(stepped(110.0, SwitchStep.STARTING), stepped(150.0, SwitchStep.UNDOING))
    assert course.steps[0].ended is None
    assert course.is_rolling_back
    assert course.began == 100.0, "told from the middle: by its own count of seconds"


def test_its_end_is_that_of_its_own_verb_and_what_comes_then_is_another() -> None:
    memory = MemoryReading(10, 2, 1, 1, 0, 0)
    begun = told(stepped(101.0, SwitchStep.CHECKING))
    assert advance_switch(begun, CachesDropped(102.0, NODE, memory, memory, proven=True)) is begun
    assert advance_switch(begun, CommandEnded(102.0, Outcome.DONE, 0, 1.0, "spark2", "orpheus-tts")) is begun
    over = told(CommandEnded(103.0, Outcome.READY, 0, 3.0, NODE, "qwen36"), course=begun)
    assert over.is_over
    again = told(stepped(201.0, SwitchStep.CHECKING), course=over)
    assert (again.is_over, again.began, len(again.steps)) == (False, 100.0, 1)
    assert advance_switch(None, CommandEnded(103.0, Outcome.READY, 0, 3.0, NODE, "qwen36")) is None


def test_a_proof_that_is_told_twice_stands_once() -> None:
    course = told(stepped(101.0, SwitchStep.DONE, "it answers"), stepped(102.0, SwitchStep.DONE, "it answers"))
    assert course.steps[0].proofs == (StepEvidence("it answers", NODE),)
