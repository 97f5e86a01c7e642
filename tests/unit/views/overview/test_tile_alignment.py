"""Tiles beside each other are read across: the same figure in the same row, curves of one height and one scale."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from sparkctl.model.engine_metrics import EngineMeter
from sparkctl.model.events import PhaseChanged
from sparkctl.model.instance import InstanceView
from sparkctl.model.node import NodeName
from sparkctl.model.phase import Phase, Step
from sparkctl.monitor.event_log import RecentLogLine
from sparkctl.monitor.sample_series import MeterSeries, SampleSeries
from sparkctl.views.overview.overview_view import OverviewScreenModel, render_overview
from sparkctl.views.overview.tile_model import NodeTileModel
from sparkctl.views.overview.tile_rows import compute_power_scale
from sparkctl.views.text.charts import distribute_chart_rows, round_above
from sparkctl.views.text.styled_text import join_text
from tests.unit.views.overview.test_node_tile import DRAFTED, NOW, READY, SAMPLE, make_tile, render_tile

COMING = replace(READY, phase=Phase.LOADING, step=Step("weights", 12, 18), numbers=None)
START = PhaseChanged(
    ts=NOW - 10,
    node=NodeName("spark1"),
    instance="qwen36",
    phase=Phase.LOADING,
    step=COMING.step,
    elapsed=240.0,
    expected=415.0,
)


def make_power_series(power: float, swing: float = 0.0) -> SampleSeries:
    made = SampleSeries()
    for second in range(60):
        gpus = (replace(SAMPLE.gpus[0], power=power + (swing if second > 30 else 0.0)),) if SAMPLE.gpus else None
        made.add_sample(replace(SAMPLE, uptime=5000.0 + second, sequence=second, gpus=gpus), NOW - 60 + second)
    return made


def make_meter_series(*rates: float) -> MeterSeries:
    made = MeterSeries()
    for at, rate in enumerate(rates):
        made.add_meter(NOW - 2 * (len(rates) - at), replace(DRAFTED, generation_rate=rate))
    return made


def make_busy_tile(
    *rates: float, now: float = 12.5, power: SampleSeries | None = None, one: InstanceView = READY
) -> NodeTileModel:
    numbers: EngineMeter = replace(DRAFTED, generation_rate=now)
    return make_tile(
        replace(one, numbers=numbers),
        series=power or make_power_series(60.0),
        drafting={"c1": make_meter_series(*rates)},
    )


@pytest.mark.parametrize(("columns", "high"), [(120, 40), (200, 50), (200, 60), (140, 30)])
def test_the_same_figure_stands_in_the_same_row_of_both(columns: int, high: int) -> None:
    loads = make_tile(COMING, starts={"qwen36": START}, series=make_power_series(10.0, 50.0))
    rows = [
        join_text(row)
        for row in render_overview(
            OverviewScreenModel(glances=(make_busy_tile(*[12.5] * 30), loads)), columns, high
        ).rows
    ]
    for name in ("memory", "GPU  ", "W power"):
        halves = [
            [at for at, row in enumerate(rows) if f" {name}" in half(row)] for half in (get_left_half, get_right_half)
        ]
        assert halves[0] == halves[1] != [], name


def get_left_half(row: str) -> str:
    return row[: len(row) // 2]


def get_right_half(row: str) -> str:
    return row[len(row) // 2 :]


def test_power_begins_at_nothing_and_has_one_end_on_all_sparks() -> None:
    hot, cool = make_busy_tile(power=make_power_series(30.0, 52.0)), make_busy_tile(power=make_power_series(10.0))
    assert compute_power_scale([hot, cool]) == 100.0
    rows = [join_text(row) for row in render_overview(OverviewScreenModel(glances=(hot, cool)), 120, 40).rows]
    begin = next(at for at, row in enumerate(rows) if "100 W power" in row)
    end = next(at for at, row in enumerate(rows) if at > begin and re.match(r". 0 ", row))
    for half in (get_left_half, get_right_half):
        assert "100 W power" in half(rows[begin])
        assert " 0 " in half(rows[end])
    assert "100 % busy" in rows[begin]


def test_the_figure_beside_a_curve_is_on_its_scale() -> None:
    shown = render_tile(make_busy_tile(*[24.0] * 30, now=31.0), 100, 19)
    assert re.search(r"^. +40 tok/s", shown, re.MULTILINE), shown


@pytest.mark.parametrize("rates", [(9.0, 17.0), (0.0, 13.0), (12.5, 12.5), (11.0, 14.0)])
def test_throughput_has_one_kind_of_curve_from_nothing_to_a_round_figure(rates: tuple[float, ...]) -> None:
    shown = render_tile(make_busy_tile(*rates * 15), 100, 44)
    most = {17.0: 20, 13.0: 15, 12.5: 15, 14.0: 15}[rates[1]]
    assert re.search(rf"^. {most} tok/s [^\n]*\n(?:[^\n]*\n)*?. 0 ", shown, re.MULTILINE), shown


@pytest.mark.parametrize("count", [19, 24, 30, 44])
def test_a_curve_is_as_tall_whatever_it_shows(count: int) -> None:
    steady, swings = (
        render_tile(make_busy_tile(*[12.5] * 30), 100, count),
        render_tile(make_busy_tile(*[0.0, 15.0] * 15), 100, count),
    )
    for name in ("decode", "accept", "GPU"):
        assert find_row_of(steady, name) == find_row_of(swings, name), name


def find_row_of(shown: str, name: str) -> int:
    return next(at for at, line in enumerate(shown.splitlines()) if line[2:].startswith(f"{name} "))


def test_a_tall_screen_is_filled() -> None:
    said = tuple(RecentLogLine(NodeName("spark1"), "q", f"line {at}") for at in range(40))
    glances = (make_busy_tile(*[12.5] * 30), make_busy_tile(*[12.5] * 30))
    rows = [join_text(row) for row in render_overview(OverviewScreenModel(glances=glances, lines=said), 200, 57).rows]
    assert sum(not row.strip() for row in rows) <= 3


def test_scales_end_at_round_figures() -> None:
    assert [round_above(value, 10.0) for value in (0.0, 9.9, 12.5, 15.0, 28.7, 101.0)] == [10, 10, 15, 15, 30, 120]


def test_curves_share_what_is_to_spare() -> None:
    assert distribute_chart_rows([("a", 10), ("b", 1), ("c", 10)], 2) == {"a": 1, "b": 1, "c": 0}
    assert distribute_chart_rows([("a", 10), ("b", 1), ("c", 10)], 12) == {"a": 6, "b": 1, "c": 5}
    assert distribute_chart_rows([("a", 3), ("b", 1)], 99) == {"a": 3, "b": 1}
