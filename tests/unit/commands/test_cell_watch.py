"""What stands beside a cell of a benchmark: the engine's counters between two readings, and the node's samples."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkctl.commands.bench.cell_watch import add_bandwidth, add_engine_figures, add_node_figures, select_readings
from sparkctl.model.bench import BenchCell, CellResult, Measurements
from sparkctl.model.engine_metrics import EngineMetrics
from sparkctl.model.sample import Gpu, Sample
from sparkctl.monitor.meters.bandwidth import GB10
from sparkctl.monitor.meters.metrics_window import MetricsReading

CELL = CellResult(cell=BenchCell(pp=64, tg=100), generation_rate=Measurements((30.0, 20.0, 25.0)))
THERMAL, POWER_CAP = 0x20, 0x4  # NVML's bits
BEFORE = EngineMetrics(
    generation_tokens=1000.0, prompt_tokens=50.0, drafts=200.0, draft_tokens=600.0, accepted_tokens=300.0, passes=400.0,
    accepted_per_position=(150.0, 100.0, 50.0),
)  # fmt: skip
AFTER = EngineMetrics(
    generation_tokens=1300.0, prompt_tokens=250.0, drafts=300.0, draft_tokens=900.0, accepted_tokens=500.0, passes=500.0,
    accepted_per_position=(240.0, 170.0, 90.0),
)  # fmt: skip


def read_engine(after: EngineMetrics, own_tokens: int = 300) -> CellResult:
    readings = [MetricsReading(10.0, BEFORE), MetricsReading(20.0, after)]
    return add_engine_figures(CELL, readings, own_tokens, own_prompt_tokens=200)


def sample(number: int, **gpu: float | int | None) -> Sample:
    return Sample(sequence=number, time=float(number), uptime=float(number), gpus=(replace(Gpu(index=0), **gpu),))  # type: ignore[arg-type]


def test_acceptance_is_that_of_the_counters_between_both_readings() -> None:
    found = read_engine(AFTER)
    assert found.accept_length == pytest.approx(1 + 200 / 100)
    assert found.accept_rate == pytest.approx(200 / 300)
    assert found.accept_positions == pytest.approx((0.9, 0.7, 0.4))
    assert found.disturbed is False


@pytest.mark.parametrize(("made", "is_disturbed"), [(316.0, False), (331.0, False), (400.0, True)])
def test_more_tokens_than_ours_are_somebody_elses(made: float, is_disturbed: bool) -> None:
    assert read_engine(replace(AFTER, generation_tokens=1000.0 + made)).disturbed is is_disturbed


@pytest.mark.parametrize(("read", "is_disturbed"), [(200.0, False), (2250.0, False), (30_000.0, True)])
def test_long_prompts_with_short_answers_are_somebody_elses(read: float, is_disturbed: bool) -> None:
    assert read_engine(replace(AFTER, prompt_tokens=50.0 + read)).disturbed is is_disturbed


def test_an_engine_that_started_again_tells_nothing() -> None:
    found = read_engine(replace(AFTER, generation_tokens=5.0, drafts=1.0, accepted_tokens=1.0))
    assert (found.accept_length, found.steps, found.disturbed) == (None, None, None)


def test_what_is_not_told_is_not_known() -> None:
    found = add_node_figures(read_engine(EngineMetrics()), [sample(1)])
    result = (
        found.accept_length,
        found.accept_rate,
        found.disturbed,
        found.power,
        found.clock,
        found.celsius,
        found.throttled,
    )
    assert result == (None,) * 7
    assert (found.memory_peak, found.tokens_per_joule) == (None, None)


def test_power_and_clock_are_means_and_the_temperature_is_the_highest() -> None:
    found = add_node_figures(
        CELL,
        [
            sample(1, power=60.0, sm_clock=2400, celsius=70.0, reasons=POWER_CAP),
            sample(2, power=40.0, sm_clock=2000, celsius=75.0, reasons=0),
        ],
    )
    assert (found.power, found.clock, found.celsius, found.throttled) == (50.0, 2200.0, 75.0, False)
    assert found.tokens_per_joule == pytest.approx(25.0 / 50.0)


def test_a_gpu_that_was_hot_once_is_throttled() -> None:
    assert add_node_figures(CELL, [sample(1, reasons=0), sample(2, reasons=THERMAL), sample(3, reasons=0)]).throttled


def test_what_was_read_last_before_a_cell_holds_for_its_beginning() -> None:
    """The reading that the beginning causes comes when some steps are counted already."""
    first, before, early, last = (
        MetricsReading(when, replace(BEFORE, drafts=drafts))
        for when, drafts in ((8.0, 200.0), (9.5, 200.0), (10.4, 215.0), (20.0, 300.0))
    )
    assert select_readings([first, before, early, last], 10.0) == [replace(before, when=10.0), early, last]
    assert select_readings([early, last], 10.0) == [early, last]


def test_an_estimate_beyond_the_specification_is_no_figure() -> None:
    """A cell of a mixture of experts told 338 GB/s once, the middle of 240 and 436: the memory does 273."""
    ranged = add_bandwidth(CELL, [(230e9, 400e9), (250e9, 472e9)], GB10)
    assert ranged.bandwidth_range == (240e9, 273e9)
    assert ranged.bandwidth == pytest.approx(256.5e9)
    assert add_bandwidth(CELL, [(300e9, 400e9), (320e9, 330e9)], GB10) == CELL
    assert add_bandwidth(CELL, [], GB10) == CELL
