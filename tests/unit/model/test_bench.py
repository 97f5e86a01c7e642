"""How long a benchmark takes, by what was measured."""

from __future__ import annotations

import pytest

from sparkctl.model.bench import BenchCell, CellResult, Measurements, estimate_seconds


def seen(cell: BenchCell, rate: float, prompt_rate: float) -> CellResult:
    return CellResult(cell=cell, generation_rate=Measurements((rate,)), prompt_rate=Measurements((prompt_rate,)))


ONE, FOUR = BenchCell(pp=1000, tg=100), BenchCell(pp=1000, tg=100, concurrency=4)


def test_a_measured_cell_takes_its_prompts_and_its_answers() -> None:
    assert estimate_seconds([ONE], 3, [seen(ONE, 20.0, 500.0)]) == pytest.approx(3 * (2.0 + 5.0))
    assert estimate_seconds([ONE, FOUR], 1, [seen(ONE, 20.0, 500.0), seen(FOUR, 50.0, 500.0)]) == pytest.approx(
        7.0 + 4 * 2.0 + 8.0
    )


def test_more_requests_at_a_time_are_faster_together_and_slower_each() -> None:
    """Four at a time: twice the tokens/s of one."""
    assert estimate_seconds([FOUR], 1, [seen(ONE, 20.0, 500.0)]) == pytest.approx(4 * 2.0 + 400 / 40.0)


def test_without_a_figure_there_is_no_estimate_and_nothing_left_takes_no_time() -> None:
    failed = CellResult(cell=ONE, error="no")
    assert estimate_seconds([ONE], 1, [failed]) is None
    assert estimate_seconds([], 1, []) == 0.0
