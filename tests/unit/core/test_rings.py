"""The history of a node: fixed in size, ordered by the node's own clock, honest about gaps."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkctl.core.rings import COARSE_SPAN, FINE_SPAN, Rings, Series, Spread, readings
from sparkctl.model.memory import Memory
from sparkctl.model.sample import Cpu, Gpu, GpuProcess, MemoryDetail, NetLink, Pressure, RdmaPort, Sample
from sparkctl.model.units import GIB

BOOT, NEXT_BOOT = "b0", "b1"


def sample(uptime: float, available: int | None = 100, wall: float = 1e9) -> Sample:
    memory = None if available is None else Memory(120 * GIB, available * GIB, 60 * GIB, 30 * GIB, 0, 0)
    return Sample(1, wall + uptime, uptime, memory)


def taken(*samples: Sample, boot: str | None = BOOT) -> Rings:
    rings = Rings()
    for one in samples:
        rings.take(one, one.time, boot)
    return rings


def fine(rings: Rings) -> list[tuple[float, float]]:
    """Each sample of the last 15 minutes: seconds before the newest, and GiB that were available."""
    return [(rings._now - at, value / GIB) for at, value in rings._recent(Series.AVAILABLE)]


def ages(rings: Rings) -> list[float]:
    return [round(age, 3) for age, _ in fine(rings)]


def values(rings: Rings) -> list[float | None]:
    return [None if math.isnan(value) else value for _, value in fine(rings)]


def test_every_series_has_its_reading() -> None:
    whole = Sample(
        1, 5.0, 5.0, Memory(120, 90, 60, 30, 16, 15), MemoryDetail(pressure=Pressure(some=0.25)), Cpu(busy=0.5),
        gpus=(Gpu(0, busy=0.96, sm_clock=2411, power=61.0, celsius=71.0, processes=(GpuProcess(7, 20),)),),
        links=(NetLink("a", receive_rate=1.0, send_rate=2.0), NetLink("b", receive_rate=10.0)),
        rdma=(RdmaPort("r", receive_rate=3.0, send_rate=4.0),),
    )  # fmt: skip
    assert readings(whole) == [90, 20, 10, 30, 60, 1, 0.25, 0.5, 0.96, 2411, 61, 71, 11, 2, 3, 4]
    assert len(readings(whole)) == len(Series)


def test_what_is_not_known_is_no_number() -> None:
    assert all(math.isnan(value) for value in readings(Sample(1, 5.0, 5.0)))
    rings = taken(sample(1), sample(2, None), sample(3))
    assert values(rings) == [100, None, 100]
    assert rings.cells(Series.POWER, 60, 4) == (None,) * 4


def test_a_sample_per_second_is_kept_for_15_minutes_and_a_quarter_minute_for_6_hours() -> None:
    rings = taken(*(sample(t, t % 100) for t in range(30_000)))
    every, coarse = ages(rings), rings.coarse(Series.AVAILABLE)
    assert (len(every), every[0], every[-1]) == (900, 899, 0)
    assert len(coarse) == 1440
    assert COARSE_SPAN - 30 < coarse[0][0] < COARSE_SPAN
    (spread,) = {one for _, one in coarse[-2:-1]}
    assert spread is not None
    assert spread.least < spread.mean < spread.most


def test_its_size_does_not_depend_on_what_it_holds() -> None:
    rings = Rings()
    empty = rings.size
    for t in range(5000):
        rings.take(sample(t), float(t), BOOT)
    assert rings.size == empty
    assert empty == 398_880  # bytes a node; docs/architecture.md says 0.4 MB


def test_a_clock_that_is_set_moves_nothing() -> None:
    steady = taken(*(sample(t) for t in range(60)))
    jumping = taken(*(sample(t, wall=1e9 + (86_400 if t >= 30 else 0) - (7200 if t >= 45 else 0)) for t in range(60)))
    assert fine(jumping) == fine(steady)


def test_a_gap_stays_a_gap() -> None:
    rings = taken(*(sample(t) for t in (*range(100), *range(400, 500))))
    cells = rings.cells(Series.AVAILABLE, 500, 5)
    assert [cell is None for cell in cells] == [False, True, True, True, False]
    rings = taken(*(sample(t) for t in (*range(100), *range(4000, 4100))))
    assert None in rings.cells(Series.AVAILABLE, 4100, 41)


def test_a_late_or_repeated_sample_is_not_taken() -> None:
    rings = taken(sample(1), sample(2))
    assert not rings.take(sample(2), 2.0, BOOT)
    assert not rings.take(sample(1.5), 3.0, BOOT)
    assert ages(rings) == [1, 0]


@pytest.mark.parametrize("uptime", [5.0, 90_000.0], ids=["shorter uptime", "longer uptime, told by the boot id"])
def test_a_reboot_begins_anew_and_what_was_before_it_stays(uptime: float) -> None:
    rings = taken(sample(1000), sample(1001))
    assert rings.take(replace(sample(uptime), time=0.0), 1e9 + 1001 + 120, NEXT_BOOT)
    assert rings.take(sample(uptime + 1), 1e9 + 1001 + 121, NEXT_BOOT)
    assert ages(rings) == [122, 121, 1, 0]


def test_a_reboot_is_seen_without_a_boot_id_too() -> None:
    rings = taken(sample(1000), boot=None)
    assert rings.take(sample(3), 5e8, None)  # and our own clock was set back meanwhile
    assert ages(rings) == [15, 0]


def test_a_faster_rate_does_not_shorten_the_history() -> None:
    rings = taken(*(sample(t / 10) for t in range(40_000)))
    every = ages(rings)
    assert FINE_SPAN - 2 < every[0] <= FINE_SPAN
    assert every[-1] == 0


@given(st.lists(st.tuples(st.floats(0.8, 90), st.none() | st.integers(1, 119)), min_size=1, max_size=200))
def test_cells_are_what_a_plain_list_would_give(steps: list[tuple[float, int | None]]) -> None:
    rings, uptime, plain = Rings(), 1000.0, []
    for step, available in steps:
        uptime += step
        rings.take(sample(uptime, available), uptime, BOOT)
        plain.append((uptime, available))
    expected: list[Spread | None] = []
    for cell in range(30):
        number = (uptime - plain[0][0]) // 30 - 29 + cell  # of 30 s each since the first sample
        inside = [v * GIB for at, v in plain if v is not None and (at - plain[0][0]) // 30 == number]
        expected.append(Spread(sum(inside) / len(inside), min(inside), max(inside)) if inside else None)
    found = rings.cells(Series.AVAILABLE, 900, 30)
    for mine, theirs in zip(found, expected, strict=True):
        assert (mine is None) == (theirs is None)
        if mine is not None and theirs is not None:
            assert mine.mean == pytest.approx(theirs.mean, rel=1e-6)
            assert (mine.least, mine.most) == (theirs.least, theirs.most)


@given(
    st.lists(st.tuples(st.floats(0.1, 90), st.none() | st.integers(1, 119), st.booleans()), min_size=1, max_size=120)
)
def test_who_looks_at_every_picture_sees_what_one_who_looks_once_does(
    steps: list[tuple[float, int | None, bool]],
) -> None:
    rings, uptime, samples = Rings(), 1000.0, []
    for step, available, is_looked_at in steps:
        uptime += step
        samples.append(sample(uptime, available))
        rings.take(samples[-1], uptime, BOOT)
        if is_looked_at:
            for seconds, count in ((60.0, 20), (900.0, 33)):
                assert rings.cells(Series.AVAILABLE, seconds, count) == taken(*samples).cells(
                    Series.AVAILABLE, seconds, count
                )
