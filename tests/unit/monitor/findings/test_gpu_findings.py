"""A GPU's curves: what is trouble, what only looks like it, and that the unknown is never evidence."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkctl.model.engine_metrics import EngineActivity, EngineMeter
from sparkctl.model.finding import FindingKind, Severity
from sparkctl.model.phase import Phase
from sparkctl.model.sample import Gpu, GpuEvents
from sparkctl.monitor.findings import MAX_SAMPLE_GAP, ConditionTimer
from sparkctl.monitor.findings.host_detectors import BusyWaitDetector, StuckClockDetector, ThermalDetector
from tests.unit.monitor.findings.node_snapshots import (
    BEGIN,
    HEALTHY,
    HOT,
    IDLE,
    SPINNING,
    STUCK,
    WORKING,
    make_gpu_snapshot,
    make_instance_view,
    make_snapshot,
    make_snapshot_series,
    run_detector,
)


def test_a_stuck_clock_is_told_after_twenty_seconds_with_its_figures() -> None:
    said = run_detector(
        StuckClockDetector(),
        [make_gpu_snapshot(0, IDLE), *make_snapshot_series(2, 30, lambda at: make_gpu_snapshot(at, STUCK), begin=2)],
    )
    assert [bool(found) for found in said].index(True) == 11, "began at 2 s, told at 22 s"
    (finding,) = said[-1]
    assert (finding.kind, finding.severity) == (FindingKind.STUCK_CLOCK, Severity.PROBLEM)
    assert finding.since == BEGIN + 2
    words = " · ".join(map(str, finding.evidence))
    assert "SM clock 799 MHz" in words
    assert "power 19.5 W" in words
    assert {figure.origin for figure in finding.evidence} == {"nvml"}
    assert finding.remedy is not None
    assert "unplug" in finding.remedy


def test_what_held_at_the_first_sight_is_since_before_we_looked() -> None:
    assert (
        run_detector(StuckClockDetector(), make_snapshot_series(2, 20, lambda at: make_gpu_snapshot(at, STUCK)))[-1][
            0
        ].since
        is None
    )


NOT_STUCK = {
    "idle": IDLE,
    "healthy": HEALTHY,
    "at work": WORKING,
    "throttled by heat": replace(STUCK, reasons=0x20),
    "held back by a power cap": replace(STUCK, reasons=0x4),
    "hot": replace(STUCK, celsius=85),
    "strong": replace(STUCK, power=48.0),
    "hardly busy": replace(STUCK, busy=0.3),
    "at half its clock": replace(STUCK, sm_clock=1450),
}


@pytest.mark.parametrize("one", NOT_STUCK.values(), ids=list(NOT_STUCK))
def test_each_of_the_five_conditions_must_hold(one: Gpu) -> None:
    assert not any(
        run_detector(StuckClockDetector(), make_snapshot_series(2, 120, lambda at: make_gpu_snapshot(at, one)))
    )


def test_a_short_kernel_on_an_idle_gpu_leaves_a_stale_clock_and_is_not_stuck() -> None:
    kernel = replace(STUCK, sm_clock=208, busy=0.7)
    curve = [make_gpu_snapshot(at, kernel if at % 20 < 8 else IDLE) for at in range(0, 200, 2)]
    assert not any(run_detector(StuckClockDetector(), curve))


def test_once_stuck_it_stays_so_until_fifty_five_percent() -> None:
    detector = StuckClockDetector()
    between = replace(STUCK, sm_clock=int(3003 * 0.50))
    assert not any(run_detector(detector, make_snapshot_series(2, 60, lambda at: make_gpu_snapshot(at, between)))), (
        "not below 45 %"
    )
    assert run_detector(detector, make_snapshot_series(2, 90, lambda at: make_gpu_snapshot(at, STUCK), begin=62))[-1]
    assert all(
        run_detector(detector, make_snapshot_series(2, 100, lambda at: make_gpu_snapshot(at, between), begin=92))
    )
    assert not any(
        run_detector(
            detector,
            make_snapshot_series(2, 130, lambda at: make_gpu_snapshot(at, replace(between, sm_clock=1700)), begin=102),
        )
    )


@given(st.sampled_from(["busy", "sm_clock", "sm_clock_max", "power", "celsius", "reasons"]))
def test_a_stuck_clock_with_one_figure_unknown_is_no_finding(name: str) -> None:
    assert name in {field.name for field in fields(Gpu)}
    assert not any(
        run_detector(
            StuckClockDetector(),
            make_snapshot_series(2, 60, lambda at: make_gpu_snapshot(at, replace(STUCK, **{name: None}))),
        )
    )


def test_a_driver_that_owes_an_answer_says_nothing_and_forgets_nothing_at_once() -> None:
    detector = StuckClockDetector()
    assert run_detector(
        detector,
        [make_gpu_snapshot(0, IDLE), *make_snapshot_series(2, 30, lambda at: make_gpu_snapshot(at, STUCK), begin=2)],
    )[-1]
    assert not any(
        run_detector(detector, make_snapshot_series(2, 40, lambda at: make_gpu_snapshot(at, None), begin=32))
    )
    (back,) = detector.detect(make_gpu_snapshot(42, STUCK))
    assert back.since == BEGIN + 2


def test_a_long_gap_resets_the_timer() -> None:
    detector = StuckClockDetector()
    run_detector(detector, make_snapshot_series(2, 30, lambda at: make_gpu_snapshot(at, STUCK)))
    assert not detector.detect(make_gpu_snapshot(30 + MAX_SAMPLE_GAP + 1, STUCK))
    assert not detector.detect(make_gpu_snapshot(1, STUCK)), "a node that was restarted counts from zero"


def test_conditions_of_gone_processes_are_forgotten() -> None:
    lasting = ConditionTimer(10.0)
    for pid in range(2000):
        lasting.update_condition(pid, True, make_gpu_snapshot(pid * 0.1, None).sample)
    assert len(lasting._judged) <= 257
    assert len(lasting._began) <= 257


@given(st.lists(st.tuples(st.floats(0.1, 10), st.booleans()), max_size=60))
def test_nothing_is_told_before_it_has_lasted_in_one_piece(steps: list[tuple[float, bool]]) -> None:
    detector, now, memory = StuckClockDetector(), 0.0, None
    for seconds, is_stuck in steps:
        now += seconds
        found = detector.detect(make_gpu_snapshot(now, STUCK if is_stuck else HEALTHY))
        memory = None if not is_stuck else now if memory is None else memory
        assert bool(found) == (memory is not None and now - memory >= StuckClockDetector.SECONDS)


def add_throttle_events(at: float, one: Gpu, grown: int) -> Gpu:
    return replace(one, events=GpuEvents(sw_thermal=27_600_000_000 + grown, hw_thermal=0))


def test_heat_is_a_reason_bit_and_a_growing_counter() -> None:
    cool = make_gpu_snapshot(0, add_throttle_events(0, WORKING, 0))
    hot = make_snapshot_series(
        2, 40, lambda at: make_gpu_snapshot(at, add_throttle_events(at, HOT, int(at // 10) * 400_000_000)), begin=2
    )
    said = run_detector(ThermalDetector(), [cool, *hot])
    assert not said[4], "no growth has been read yet"
    (finding,) = said[-1]
    assert finding.kind is FindingKind.THERMAL
    assert "92 °C" in finding.summary
    assert finding.since == BEGIN + 2, "the heat's own beginning, not that of our knowing"
    assert str(finding.evidence[-1]) == "slowed by heat so far 29 s"
    (finding,) = run_detector(ThermalDetector(), hot)[-1]
    assert finding.since is None, "it was there before we looked"
    assert "-lgc 0,2100" in (finding.remedy or "")


def test_a_bit_without_growth_and_growth_without_a_bit_are_no_throttling() -> None:
    assert not any(
        run_detector(
            ThermalDetector(),
            make_snapshot_series(2, 60, lambda at: make_gpu_snapshot(at, add_throttle_events(at, HOT, 0))),
        )
    )
    assert not any(
        run_detector(
            ThermalDetector(),
            make_snapshot_series(
                2, 60, lambda at: make_gpu_snapshot(at, add_throttle_events(at, WORKING, int(at) * 1000))
            ),
        )
    )


def test_where_there_are_no_counters_the_bit_has_to_last() -> None:
    said = run_detector(
        ThermalDetector(),
        [make_gpu_snapshot(0, WORKING), *make_snapshot_series(2, 20, lambda at: make_gpu_snapshot(at, HOT), begin=2)],
    )
    assert [bool(found) for found in said].index(True) == 6
    assert not any(
        run_detector(
            ThermalDetector(), [make_gpu_snapshot(at, HOT if at % 8 == 0 else WORKING) for at in range(0, 60, 2)]
        )
    )
    assert not any(
        run_detector(
            ThermalDetector(), make_snapshot_series(2, 60, lambda at: make_gpu_snapshot(at, replace(HOT, reasons=None)))
        )
    )


def test_spinning_at_eighteen_watts_is_waiting_not_work() -> None:
    said = run_detector(
        BusyWaitDetector(),
        [
            make_gpu_snapshot(0, WORKING),
            *make_snapshot_series(2, 64, lambda at: make_gpu_snapshot(at, SPINNING), begin=2),
        ],
    )
    assert [bool(found) for found in said].index(True) == 31
    (finding,) = said[-1]
    assert finding.kind is FindingKind.BUSY_WAIT
    assert "18 W" in finding.summary


@pytest.mark.parametrize("one", [IDLE, WORKING, HEALTHY, STUCK, replace(SPINNING, power=None)])
def test_what_works_idles_is_stuck_or_unknown_does_not_spin(one: Gpu) -> None:
    assert not any(
        run_detector(BusyWaitDetector(), make_snapshot_series(2, 120, lambda at: make_gpu_snapshot(at, one)))
    )


def test_an_engine_that_makes_tokens_does_not_spin() -> None:
    decoding = make_instance_view(
        Phase.READY, numbers=EngineMeter(activity=EngineActivity.DECODING, generation_rate=3.0)
    )
    idle = make_instance_view(Phase.READY, numbers=EngineMeter(activity=EngineActivity.IDLE))
    for one, expected in ((decoding, False), (idle, True)):
        curve = make_snapshot_series(2, 90, lambda at, one=one: make_snapshot(at, gpus=(SPINNING,), instances=(one,)))  # type: ignore[misc]
        assert any(run_detector(BusyWaitDetector(), curve)) is expected


def test_a_stuck_clock_and_a_spinning_gpu_are_never_both() -> None:
    for one in (STUCK, SPINNING):
        curve = make_snapshot_series(2, 120, lambda at, one=one: make_gpu_snapshot(at, one))  # type: ignore[misc]
        assert bool(run_detector(StuckClockDetector(), curve)[-1]) != bool(run_detector(BusyWaitDetector(), curve)[-1])
