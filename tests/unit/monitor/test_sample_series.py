"""The history of a node: fixed in size, ordered by the node's own clock, honest about gaps."""

from __future__ import annotations

import math
import random
from array import array
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkctl.model.engine_metrics import EngineActivity, EngineMeter, Quantiles
from sparkctl.model.sample import (
    Cpu,
    Gpu,
    GpuProcess,
    MemoryDetail,
    MemoryPressure,
    MemoryReading,
    NetworkInterface,
    RdmaLane,
    Sample,
)
from sparkctl.model.text.units import GIB
from sparkctl.monitor.sample_series import (
    COARSE_SPAN,
    FINE_SPAN,
    MeterSeries,
    SampleSeries,
    SeriesName,
    ValueRange,
    extract_values,
)

BOOT, NEXT_BOOT = "b0", "b1"


def make_sample(uptime: float, available: int | None = 100, wall: float = 1e9) -> Sample:
    memory = (
        None
        if available is None
        else MemoryReading(
            total=120 * GIB, available=available * GIB, free=60 * GIB, page_cache=30 * GIB, swap_total=0, swap_free=0
        )
    )
    return Sample(sequence=1, time=wall + uptime, uptime=uptime, memory=memory)


def make_series(*samples: Sample, boot: str | None = BOOT) -> SampleSeries:
    series = SampleSeries()
    for one in samples:
        series.add_sample(one, one.time, boot)
    return series


def list_fine_values(series: SampleSeries) -> list[tuple[float, float]]:
    """Each sample of the last 15 minutes: seconds before the newest, and GiB that were available."""
    return [(series._now - at, value / GIB) for at, value in series._iterate_fine_values(SeriesName.AVAILABLE)]


def list_ages(series: SampleSeries) -> list[float]:
    return [round(age, 3) for age, _ in list_fine_values(series)]


def list_values(series: SampleSeries) -> list[float | None]:
    return [None if math.isnan(value) else value for _, value in list_fine_values(series)]


def test_every_series_has_its_reading() -> None:
    whole = Sample(
        sequence=1,
        time=5.0,
        uptime=5.0,
        memory=MemoryReading(total=120, available=90, free=60, page_cache=30, swap_total=16, swap_free=15),
        detail=MemoryDetail(pressure=MemoryPressure(some=0.25)),
        cpu=Cpu(busy=0.5),
        gpus=(Gpu(index=0, busy=0.96, sm_clock=2411, power=61.0, celsius=71.0, processes=(GpuProcess(7, 20),)),),
        links=(
            NetworkInterface(name="a", receive_rate=1.0, send_rate=2.0),
            NetworkInterface(name="b", receive_rate=10.0),
        ),
        rdma=(RdmaLane(name="r", receive_rate=3.0, send_rate=4.0),),
    )
    assert extract_values(whole) == [90, 20, 10, 30, 60, 1, 0.25, 0.5, 0.96, 2411, 61, 71, 11, 2, 3, 4]
    assert len(extract_values(whole)) == len(SeriesName)


def test_unknown_values_are_left_out() -> None:
    assert all(math.isnan(value) for value in extract_values(Sample(sequence=1, time=5.0, uptime=5.0)))
    series = make_series(make_sample(1), make_sample(2, None), make_sample(3))
    assert list_values(series) == [100, None, 100]
    assert series.get_buckets(SeriesName.POWER, 60, 4) == (None,) * 4


def test_a_sample_per_second_is_kept_for_15_minutes_and_a_quarter_minute_for_6_hours() -> None:
    series = make_series(*(make_sample(t, t % 100) for t in range(30_000)))
    every, coarse = list_ages(series), series.get_long_history(SeriesName.AVAILABLE)
    assert (len(every), every[0], every[-1]) == (900, 899, 0)
    assert len(coarse) == 1440
    assert COARSE_SPAN - 30 < coarse[0][0] < COARSE_SPAN
    (spread,) = {one for _, one in coarse[-2:-1]}
    assert spread is not None
    assert spread.least < spread.mean < spread.most


def count_array_bytes(series: SampleSeries) -> int:
    values = (value for ring in (series._fine, series._coarse) for value in vars(ring).values())
    return sum(len(one) * one.itemsize for one in values if isinstance(one, array))


def test_series_size_is_fixed() -> None:
    series = SampleSeries()
    empty = count_array_bytes(series)
    for t in range(5000):
        series.add_sample(make_sample(t), float(t), BOOT)
    assert count_array_bytes(series) == empty
    assert empty == 398_880  # bytes a node; docs/architecture.md says 0.4 MB


def test_a_clock_that_is_set_moves_nothing() -> None:
    steady = make_series(*(make_sample(t) for t in range(60)))
    jumping = make_series(
        *(make_sample(t, wall=1e9 + (86_400 if t >= 30 else 0) - (7200 if t >= 45 else 0)) for t in range(60))
    )
    assert list_fine_values(jumping) == list_fine_values(steady)


def test_a_gap_stays_a_gap() -> None:
    series = make_series(*(make_sample(t) for t in (*range(100), *range(400, 500))))
    cells = series.get_buckets(SeriesName.AVAILABLE, 500, 5)
    assert [cell is None for cell in cells] == [False, True, True, True, False]
    series = make_series(*(make_sample(t) for t in (*range(100), *range(4000, 4100))))
    assert None in series.get_buckets(SeriesName.AVAILABLE, 4100, 41)


def test_a_late_or_repeated_sample_is_not_taken() -> None:
    series = make_series(make_sample(1), make_sample(2))
    assert not series.add_sample(make_sample(2), 2.0, BOOT)
    assert not series.add_sample(make_sample(1.5), 3.0, BOOT)
    assert list_ages(series) == [1, 0]


@pytest.mark.parametrize("uptime", [5.0, 90_000.0], ids=["shorter uptime", "longer uptime, told by the boot id"])
def test_a_reboot_begins_anew_and_what_was_before_it_stays(uptime: float) -> None:
    series = make_series(make_sample(1000), make_sample(1001))
    assert series.add_sample(replace(make_sample(uptime), time=0.0), 1e9 + 1001 + 120, NEXT_BOOT)
    assert series.add_sample(make_sample(uptime + 1), 1e9 + 1001 + 121, NEXT_BOOT)
    assert list_ages(series) == [122, 121, 1, 0]


def test_a_reboot_is_seen_without_a_boot_id_too() -> None:
    series = make_series(make_sample(1000), boot=None)
    assert series.add_sample(make_sample(3), 5e8, None)  # and our own clock was set back meanwhile
    assert list_ages(series) == [15, 0]


def test_a_faster_rate_does_not_shorten_the_history() -> None:
    series = make_series(*(make_sample(t / 10) for t in range(40_000)))
    every = list_ages(series)
    assert FINE_SPAN - 2 < every[0] <= FINE_SPAN
    assert every[-1] == 0


@given(st.lists(st.tuples(st.floats(0.8, 90), st.none() | st.integers(1, 119)), min_size=1, max_size=200))
def test_cells_are_what_a_plain_list_would_give(steps: list[tuple[float, int | None]]) -> None:
    series, uptime, plain = SampleSeries(), 1000.0, []
    for step, available in steps:
        uptime += step
        series.add_sample(make_sample(uptime, available), uptime, BOOT)
        plain.append((uptime, available))
    expected: list[ValueRange | None] = []
    for cell in range(30):
        number = (uptime - plain[0][0]) // 30 - 29 + cell  # of 30 s each since the first sample
        inside = [v * GIB for at, v in plain if v is not None and (at - plain[0][0]) // 30 == number]
        expected.append(ValueRange(sum(inside) / len(inside), min(inside), max(inside)) if inside else None)
    found = series.get_buckets(SeriesName.AVAILABLE, 900, 30)
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
    series, uptime, samples = SampleSeries(), 1000.0, []
    for step, available, is_looked_at in steps:
        uptime += step
        samples.append(make_sample(uptime, available))
        series.add_sample(samples[-1], uptime, BOOT)
        if is_looked_at:
            for seconds, count in ((60.0, 20), (900.0, 33)):
                assert series.get_buckets(SeriesName.AVAILABLE, seconds, count) == make_series(*samples).get_buckets(
                    SeriesName.AVAILABLE, seconds, count
                )


def test_a_meter_series_keeps_steps_cache_and_first_tokens_with_gaps_where_nothing_was_said() -> None:
    series = MeterSeries()
    first = EngineMeter(
        activity=EngineActivity.DECODING, generation_rate=12.0, steps=7.0, kv_usage=0.25, ttft=Quantiles(0.4, 0.9, 3)
    )
    series.add_meter(100.5, first)
    series.add_meter(101.5, EngineMeter(activity=EngineActivity.DECODING, generation_rate=14.0, kv_usage=0.5))
    series.add_meter(102.5, None)
    series.add_meter(103.5, EngineMeter(activity=EngineActivity.IDLE, kv_usage=0.0))
    ask = (103.9, 4.0, 4)
    assert series.get_step_rates(*ask) == (7.0, None, None, None)
    assert series.get_kv_usages(*ask) == (0.25, 0.5, None, 0.0), "an empty cache is a reading"
    assert series.get_first_token_times(*ask) == (0.4, None, None, None)
    assert series.get_generation_rates(*ask) == (12.0, 14.0, None, 0.0), "idle is zero, unknown is a gap"
    assert series.get_kv_usages(103.9, 4.0, 2) == (0.375, 0.0)


@pytest.mark.parametrize("is_set_back", [False, True])
def test_kept_buckets_are_those_that_all_readings_would_give(is_set_back: bool) -> None:
    chance, series, now = random.Random(7), MeterSeries(), 1_800_000_000.0
    readings: list[tuple[float, float]] = []
    for step in range(500):
        now += chance.choice((0.5, 1.0, 2.0, 20.0 if step % 50 == 0 else 2.0))
        if is_set_back and step == 300:
            now -= 90.0
        if chance.random() < 0.7:
            rate = chance.uniform(1.0, 50.0)
            series.add_meter(now, EngineMeter(activity=EngineActivity.DECODING, generation_rate=rate))
            readings.append((now, rate))
        for seconds, count in ((60.0, 66), (900.0, 66), (900.0, 2)) if step % 23 == 0 else ():
            width = seconds / count
            last = int(now / width)
            wanted = []
            for at in range(last - count + 1, last + 1):
                there = [rate for ts, rate in readings if min(last, int(ts / width)) == at]
                wanted.append(sum(there) / len(there) if there else None)
            assert series.get_generation_rates(now, seconds, count) == pytest.approx(wanted)
