"""Swap that does not settle, and page cache in an engine's way."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkctl.model.finding import FindingKind, Severity
from sparkctl.model.phase import Phase
from sparkctl.model.sample import MemoryReading
from sparkctl.model.text.units import GIB, MIB
from sparkctl.monitor.findings import NodeSnapshot
from sparkctl.monitor.findings.host_detectors import PageCacheDetector, SwapGrowthDetector
from tests.unit.monitor.findings.node_snapshots import (
    BEGIN,
    MEMORY,
    make_instance_view,
    make_snapshot,
    make_snapshot_series,
    run_detector,
)


def make_swap_snapshot(at: float, used: float) -> NodeSnapshot:
    return make_snapshot(at, memory=replace(MEMORY, swap_free=MEMORY.swap_total - int(used)))


def test_swap_that_grows_for_a_minute_is_told() -> None:
    quiet = make_snapshot_series(2, 60, lambda at: make_swap_snapshot(at, 0))
    growing = make_snapshot_series(2, 140, lambda at: make_swap_snapshot(at, (at - 60) * 8 * MIB), begin=62)
    said = run_detector(SwapGrowthDetector(), [*quiet, *growing])
    first = [bool(found) for found in said].index(True)
    assert 100 <= first * 2 <= 122, "each quarter of a minute has to have grown"
    (finding,) = said[-1]
    assert (finding.kind, finding.severity) == (FindingKind.SWAP, Severity.WARNING)
    assert finding.since is not None
    assert finding.since >= BEGIN + 100
    assert "480 MiB in a minute" in " ".join(map(str, finding.evidence))


def test_the_last_quarter_of_swap_makes_it_a_problem() -> None:
    curve = make_snapshot_series(2, 90, lambda at: make_swap_snapshot(at, 13 * GIB + at * 8 * MIB))
    assert run_detector(SwapGrowthDetector(), curve)[-1][0].severity is Severity.PROBLEM


def test_a_load_that_swaps_once_and_stays_is_normal() -> None:
    burst = make_snapshot_series(
        2, 300, lambda at: make_swap_snapshot(at, min(2 * GIB, max(0.0, at - 100) * 100 * MIB))
    )
    assert not any(run_detector(SwapGrowthDetector(), burst))


@pytest.mark.parametrize("used", [0, 9 * GIB])
def test_swap_that_stays_or_shrinks_is_no_finding(used: int) -> None:
    assert not any(
        run_detector(SwapGrowthDetector(), make_snapshot_series(2, 200, lambda at: make_swap_snapshot(at, used)))
    )
    assert not any(
        run_detector(
            SwapGrowthDetector(),
            make_snapshot_series(2, 200, lambda at: make_swap_snapshot(at, max(0.0, used - at * 20 * MIB))),
        )
    )


@given(st.lists(st.integers(0, 16 * GIB), min_size=1, max_size=30))
def test_less_than_a_minute_is_never_enough(levels: list[int]) -> None:
    assert not any(
        run_detector(SwapGrowthDetector(), [make_swap_snapshot(at * 2.0, used) for at, used in enumerate(levels)])
    )


def test_without_a_reading_of_memory_nothing_is_said_and_a_gap_begins_anew() -> None:
    detector = SwapGrowthDetector()
    assert run_detector(detector, make_snapshot_series(2, 80, lambda at: make_swap_snapshot(at, at * 8 * MIB)))[-1]
    assert not detector.detect(make_snapshot(82, memory=None))
    assert not any(
        run_detector(detector, make_snapshot_series(2, 180, lambda at: make_swap_snapshot(at, at * 8 * MIB), begin=130))
    )


def make_loading_snapshot(at: float, phase: Phase | None, memory: MemoryReading | None = MEMORY) -> NodeSnapshot:
    return make_snapshot(at, memory=memory, instances=(make_instance_view(phase),))


def test_an_engine_that_loads_into_page_cache_is_told_once_it_lasts() -> None:
    said = run_detector(
        PageCacheDetector(),
        [
            make_loading_snapshot(0, Phase.CREATING),
            *make_snapshot_series(2, 20, lambda at: make_loading_snapshot(at, Phase.LOADING), 2),
        ],
    )
    assert [bool(found) for found in said].index(True) == 6
    (finding,) = said[-1]
    assert (finding.kind, finding.instance) == (FindingKind.PAGE_CACHE, "qwen36")
    assert "3.0 GiB free, 49.0 GiB of cache" in finding.summary
    assert finding.remedy == "sparkctl drop-caches --node spark1"
    assert finding.since == BEGIN + 2


FINE = {
    "ready": (Phase.READY, MEMORY),
    "foreign": (None, MEMORY),
    "room enough": (Phase.LOADING, replace(MEMORY, free=20 * GIB)),
    "no cache to give back: the engine itself took it": (Phase.LOADING, replace(MEMORY, available=4 * GIB)),
    "memory unknown": (Phase.LOADING, None),
}


@pytest.mark.parametrize(("phase", "memory"), FINE.values(), ids=list(FINE))
def test_page_cache_is_no_trouble_by_itself(phase: Phase | None, memory: MemoryReading | None) -> None:
    assert not any(
        run_detector(
            PageCacheDetector(), make_snapshot_series(2, 60, lambda at: make_loading_snapshot(at, phase, memory))
        )
    )


def test_nothing_is_said_while_docker_does_not_tell_what_runs() -> None:
    assert not any(
        run_detector(
            PageCacheDetector(),
            make_snapshot_series(2, 60, lambda at: make_snapshot(at, memory=MEMORY, instances=None)),
        )
    )
