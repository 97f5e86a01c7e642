"""The middle of several values, against Python's own."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkctl.model.median import compute_median


@given(st.lists(st.floats(-1e9, 1e9), min_size=1))
def test_it_is_pythons_own(values: list[float]) -> None:
    assert compute_median(values) == statistics.median(values)


def test_nothing_has_no_middle() -> None:
    with pytest.raises(IndexError):
        compute_median(())
