"""When the bench of the sampling calls its figures settled."""

from __future__ import annotations

import pytest

from tests.tools.bench.sampling import find_median_interval, judge_interval


def test_the_interval_holds_the_median_and_narrows_with_more_pairs() -> None:
    few = [0.9, 0.96, 1.0, 1.02, 1.1]
    low, high = find_median_interval(few)
    assert 0.9 <= low < 1.0 < high <= 1.1
    more_low, more_high = find_median_interval(few * 20)
    assert more_high - more_low < (high - low) / 2
    assert find_median_interval([1.0] * 9) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("low", "high", "says"), [(0.98, 1.01, "at least"), (0.9, 0.96, "less than"), (0.9, 0.99, "not settled")]
)
def test_a_bound_inside_the_interval_is_not_settled(low: float, high: float, says: str) -> None:
    assert judge_interval(low, high, 0.97).startswith(says)
