"""The bench of `pull`: what is left out of a rate is left out on both sides."""

from __future__ import annotations

import pytest

from tests.tools.bench.bench_report import Series
from tests.tools.bench.pull import build_goals


def test_the_ratio_is_told_as_it_is_and_without_what_both_commands_need_anyway() -> None:
    found = (
        Series("ours", "MB/s", (100.0, 100.0, 50.0)), Series("theirs", "MB/s", (125.0, 125.0, 500.0)),
        Series("ours, small", "s", (1.0, 1.0, 1.0)), Series("theirs, small", "s", (2.0, 2.0, 1.0)),
    )  # fmt: skip
    whole, alone = build_goals(found, 500_000_000)
    assert whole.value == pytest.approx(0.8)
    assert (whole.bound, whole.holds) == (0.95, False)
    assert alone.value == pytest.approx(2 / 4), "5 - 1 s against 4 - 2 s"
    assert alone.bound is None
    assert build_goals(found, 500_000_000, bound=None)[0].holds, "a ratio that is only told"
