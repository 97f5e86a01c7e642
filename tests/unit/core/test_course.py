"""How a start went, phase by phase: what each took, and that nothing is told of what was not watched."""

from __future__ import annotations

from sparkctl.model.events import NodeStateChanged, PhaseChanged
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.phase import Phase, PhaseDuration, Step
from sparkctl.monitor.startup_timeline import (
    PhaseTimer,
    StartupTimeline,
    advance_timeline,
    list_remaining_parts,
    match_expected_seconds,
)

NODE = NodeName("spark1")


def told(ts: float, phase: Phase, step: Step | None = None, expected: float | None = 415.0) -> PhaseChanged:
    return PhaseChanged(ts, NODE, "qwen36", phase, step, ts - 100, expected)


def course_of(*events: PhaseChanged) -> StartupTimeline:
    course: StartupTimeline | None = None
    for event in events:
        course = advance_timeline(course, event)
    assert course is not None
    return course


def test_each_phase_has_what_it_took_and_steps_are_stretches_of_their_own() -> None:
    course = course_of(
        told(100, Phase.DROPPING_CACHES, expected=None), told(103, Phase.CREATING, expected=None), told(105, Phase.STARTING),
        told(120, Phase.LOADING), told(125, Phase.LOADING, Step("weights", 1, 18)),
        told(140, Phase.LOADING, Step("weights", 9, 18)),
        told(200, Phase.LOADING, Step("compile")), told(230, Phase.WARMING),
    )  # fmt: skip
    took = [(one.phase, one.step.name if one.step else None, one.compute_duration(236)) for one in course.stretches]
    assert took == [
        (Phase.DROPPING_CACHES, None, 3), (Phase.CREATING, None, 2), (Phase.STARTING, None, 15),
        (Phase.LOADING, "weights", 80), (Phase.LOADING, "compile", 30), (Phase.WARMING, None, 6),
    ]  # fmt: skip
    assert course.stretches[3].step == Step("weights", 9, 18)
    assert course.compute_duration(236) == 136
    assert course.expected == 415
    done = course_of(told(230, Phase.WARMING), told(240, Phase.READY))
    assert done.is_over
    assert done.compute_duration(900) == 140, "a start that is over takes no longer"


def test_another_start_is_another_course_and_a_stop_is_none() -> None:
    first = course_of(told(100, Phase.CREATING), told(110, Phase.LOADING), told(120, Phase.FAILED))
    again = advance_timeline(first, told(300, Phase.DROPPING_CACHES))
    assert again is not None
    assert [one.began for one in again.stretches] == [300]
    assert advance_timeline(first, told(130, Phase.STOPPING)) is None


def test_what_was_ready_already_has_no_course() -> None:
    assert advance_timeline(None, told(100, Phase.READY)) is None
    done = course_of(told(100, Phase.CREATING), told(150, Phase.READY))
    assert advance_timeline(done, told(400, Phase.READY)) is done


def test_an_engine_that_goes_to_and_fro_makes_no_endless_list() -> None:
    steps = [told(100 + at, Phase.LOADING, Step("ab"[at % 2])) for at in range(500)]
    assert len(course_of(*steps).stretches) <= 32


USUAL = (
    PhaseDuration(Phase.STARTING, None, 15.0),
    PhaseDuration(Phase.LOADING, "weights", 130.0),
    PhaseDuration(Phase.LOADING, "draft", 9.0),
    PhaseDuration(Phase.LOADING, "weights", 8.0),
    PhaseDuration(Phase.WARMING, None, 20.0),
)


def test_each_part_has_its_own_expectation_and_what_is_ahead_is_known() -> None:
    first = PhaseChanged(100, NODE, "qwen36", Phase.STARTING, None, 0.0, 182.0, None, USUAL)
    course = course_of(first, told(110, Phase.LOADING), told(112, Phase.LOADING, Step("weights", 1, 9)))
    assert match_expected_seconds(course) == [15.0, 130.0]
    assert list_remaining_parts(course) == USUAL[2:]
    course = course_of(
        first, told(110, Phase.LOADING, Step("weights")), told(240, Phase.LOADING, Step("draft")),
        told(250, Phase.LOADING, Step("weights")),
    )  # fmt: skip
    assert match_expected_seconds(course) == [15.0, 130.0, 9.0, 8.0], "the second reading of weights is another part"
    assert list_remaining_parts(course) == USUAL[4:]
    unknown = course_of(first, told(110, Phase.LOADING, Step("something new")))
    assert match_expected_seconds(unknown) == [15.0, None]
    assert list_remaining_parts(unknown) == USUAL[1:]
    assert match_expected_seconds(course_of(told(110, Phase.LOADING))) == [None]


def timed(watch: PhaseTimer, *phases: tuple[float, Phase, Step | None]) -> PhaseTimer:
    for elapsed, phase, step in phases:
        watch.record_event(
            PhaseChanged(1e9 - 7 * elapsed, NODE, "qwen36", phase, step, elapsed)
        )  # a wall clock that goes back
    return watch


START = ((2.0, Phase.CREATING, None), (4.0, Phase.LOADING, None), (5.0, Phase.LOADING, Step("weights", 1, 9)))
REST = ((90.0, Phase.LOADING, Step("weights", 9, 9)), (94.0, Phase.WARMING, None), (100.0, Phase.READY, None))


def test_a_stopwatch_goes_by_elapsed_time() -> None:
    assert timed(PhaseTimer(), *START).get_durations() == (), "it is not over"
    assert timed(PhaseTimer(), *START, *REST).get_durations() == (
        PhaseDuration(Phase.CREATING, None, 2.0),
        PhaseDuration(Phase.LOADING, "weights", 90.0),
        PhaseDuration(Phase.WARMING, None, 6.0),
    )


def test_what_a_lost_connection_hid_is_not_told() -> None:
    watch = PhaseTimer()
    watch.record_event(NodeStateChanged(1.0, NODE, NodeState.UNKNOWN))  # before there was one
    timed(watch, *START)
    watch.record_event(NodeStateChanged(30.0, NODE, NodeState.UNREACHABLE))
    watch.record_event(NodeStateChanged(50.0, NODE, NodeState.OK))
    assert timed(watch, *REST).get_durations() == ()
