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


def make_phase_event(ts: float, phase: Phase, step: Step | None = None, expected: float | None = 415.0) -> PhaseChanged:
    return PhaseChanged(
        ts=ts, node=NODE, instance="qwen36", phase=phase, step=step, elapsed=ts - 100, expected=expected
    )


def build_timeline(*events: PhaseChanged) -> StartupTimeline:
    timeline: StartupTimeline | None = None
    for event in events:
        timeline = advance_timeline(timeline, event)
    assert timeline is not None
    return timeline


def test_each_phase_has_what_it_took_and_steps_are_stretches_of_their_own() -> None:
    timeline = build_timeline(
        make_phase_event(100, Phase.DROPPING_CACHES, expected=None),
        make_phase_event(103, Phase.CREATING, expected=None),
        make_phase_event(105, Phase.STARTING),
        make_phase_event(120, Phase.LOADING),
        make_phase_event(125, Phase.LOADING, Step("weights", 1, 18)),
        make_phase_event(140, Phase.LOADING, Step("weights", 9, 18)),
        make_phase_event(200, Phase.LOADING, Step("compile")),
        make_phase_event(230, Phase.WARMING),
    )
    took = [(one.phase, one.step.name if one.step else None, one.compute_duration(236)) for one in timeline.stretches]
    assert took == [
        (Phase.DROPPING_CACHES, None, 3), (Phase.CREATING, None, 2), (Phase.STARTING, None, 15),
        (Phase.LOADING, "weights", 80), (Phase.LOADING, "compile", 30), (Phase.WARMING, None, 6),
    ]  # fmt: skip
    assert timeline.stretches[3].step == Step("weights", 9, 18)
    assert timeline.compute_duration(236) == 136
    assert timeline.expected == 415
    done = build_timeline(make_phase_event(230, Phase.WARMING), make_phase_event(240, Phase.READY))
    assert done.is_over
    assert done.compute_duration(900) == 140, "a start that is over takes no longer"


def test_a_new_start_begins_a_new_timeline_and_a_stop_has_none() -> None:
    first = build_timeline(
        make_phase_event(100, Phase.CREATING), make_phase_event(110, Phase.LOADING), make_phase_event(120, Phase.FAILED)
    )
    again = advance_timeline(first, make_phase_event(300, Phase.DROPPING_CACHES))
    assert again is not None
    assert [one.began for one in again.stretches] == [300]
    assert advance_timeline(first, make_phase_event(130, Phase.STOPPING)) is None


def test_an_instance_that_was_ready_has_no_timeline() -> None:
    assert advance_timeline(None, make_phase_event(100, Phase.READY)) is None
    done = build_timeline(make_phase_event(100, Phase.CREATING), make_phase_event(150, Phase.READY))
    assert advance_timeline(done, make_phase_event(400, Phase.READY)) is done


def test_an_engine_that_goes_to_and_fro_makes_no_endless_list() -> None:
    steps = [make_phase_event(100 + at, Phase.LOADING, Step("ab"[at % 2])) for at in range(500)]
    assert len(build_timeline(*steps).stretches) <= 32


USUAL = (
    PhaseDuration(Phase.STARTING, None, 15.0),
    PhaseDuration(Phase.LOADING, "weights", 130.0),
    PhaseDuration(Phase.LOADING, "draft", 9.0),
    PhaseDuration(Phase.LOADING, "weights", 8.0),
    PhaseDuration(Phase.WARMING, None, 20.0),
)


def test_each_part_has_its_own_expectation_and_what_is_ahead_is_known() -> None:
    first = PhaseChanged(
        ts=100,
        node=NODE,
        instance="qwen36",
        phase=Phase.STARTING,
        step=None,
        elapsed=0.0,
        expected=182.0,
        detail=None,
        expected_parts=USUAL,
    )
    timeline = build_timeline(
        first, make_phase_event(110, Phase.LOADING), make_phase_event(112, Phase.LOADING, Step("weights", 1, 9))
    )
    assert match_expected_seconds(timeline) == [15.0, 130.0]
    assert list_remaining_parts(timeline) == USUAL[2:]
    timeline = build_timeline(
        first, make_phase_event(110, Phase.LOADING, Step("weights")), make_phase_event(240, Phase.LOADING, Step("draft")),
        make_phase_event(250, Phase.LOADING, Step("weights")),
    )  # fmt: skip
    assert match_expected_seconds(timeline) == [15.0, 130.0, 9.0, 8.0], "the second reading of weights is another part"
    assert list_remaining_parts(timeline) == USUAL[4:]
    unknown = build_timeline(first, make_phase_event(110, Phase.LOADING, Step("something new")))
    assert match_expected_seconds(unknown) == [15.0, None]
    assert list_remaining_parts(unknown) == USUAL[1:]
    assert match_expected_seconds(build_timeline(make_phase_event(110, Phase.LOADING))) == [None]


def time_phases(watch: PhaseTimer, *phases: tuple[float, Phase, Step | None]) -> PhaseTimer:
    for elapsed, phase, step in phases:
        watch.record_event(
            PhaseChanged(ts=1e9 - 7 * elapsed, node=NODE, instance="qwen36", phase=phase, step=step, elapsed=elapsed)
        )  # a wall clock that goes back
    return watch


START = ((2.0, Phase.CREATING, None), (4.0, Phase.LOADING, None), (5.0, Phase.LOADING, Step("weights", 1, 9)))
REST = ((90.0, Phase.LOADING, Step("weights", 9, 9)), (94.0, Phase.WARMING, None), (100.0, Phase.READY, None))


def test_a_stopwatch_goes_by_elapsed_time() -> None:
    assert time_phases(PhaseTimer(), *START).get_durations() == (), "it is not over"
    assert time_phases(PhaseTimer(), *START, *REST).get_durations() == (
        PhaseDuration(Phase.CREATING, None, 2.0),
        PhaseDuration(Phase.LOADING, "weights", 90.0),
        PhaseDuration(Phase.WARMING, None, 6.0),
    )


def test_phases_missed_while_disconnected_have_no_duration() -> None:
    watch = PhaseTimer()
    watch.record_event(NodeStateChanged(ts=1.0, node=NODE, state=NodeState.UNKNOWN))  # before there was one
    time_phases(watch, *START)
    watch.record_event(NodeStateChanged(ts=30.0, node=NODE, state=NodeState.UNREACHABLE))
    watch.record_event(NodeStateChanged(ts=50.0, node=NODE, state=NodeState.OK))
    assert time_phases(watch, *REST).get_durations() == ()
