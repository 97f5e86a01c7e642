"""What an engine was seen to do: means over the readings in which it generated, and its own counters at the end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkctl.model.engine_metrics import DraftAcceptance, EngineActivity, EngineMeter, EngineMetrics, MeterSource
from sparkctl.monitor.meters.engine_meters import EngineAverages, compute_accept_length, compute_tokens_per_second


def make_decoding_meter(rate: float | None, length: float | None = None) -> EngineMeter:
    acceptance = None if length is None else DraftAcceptance(length, None, None, MeterSource.COUNTERS)
    return EngineMeter(activity=EngineActivity.DECODING, generation_rate=rate, acceptance=acceptance)


@given(st.lists(st.floats(0.1, 500.0), min_size=1, max_size=50))
def test_a_mean_over_what_was_seen(rates: list[float]) -> None:
    watching = EngineAverages()
    for rate in rates:
        watching.add_reading("a", make_decoding_meter(rate))
    ((container, length, rate),) = watching.pop_changed()  # type: ignore[assignment]
    assert (container, length) == ("a", None)
    assert rate == pytest.approx(sum(rates) / len(rates))
    assert watching.pop_changed() == []


def test_what_idles_or_is_not_known_counts_for_nothing() -> None:
    watching = EngineAverages()
    for numbers in (
        None,
        EngineMeter(),
        EngineMeter(activity=EngineActivity.IDLE, generation_rate=0.0),
        make_decoding_meter(0.0),
        make_decoding_meter(None),
    ):
        watching.add_reading("a", numbers)
    assert watching.pop_changed() == []
    watching.add_reading("a", make_decoding_meter(20.0, 3.0))
    watching.add_reading("b", make_decoding_meter(None, 2.0))
    assert watching.pop_changed() == [("a", 3.0, 20.0), ("b", 2.0, None)]


def test_counters_at_the_end_tell_of_the_engine_s_whole_life() -> None:
    counted = EngineMetrics(drafts=100.0, accepted_tokens=210.0, accept_length=9.0, generation_tokens=600.0)
    assert compute_accept_length(counted) == pytest.approx(3.1)
    assert compute_accept_length(EngineMetrics(accept_length=2.4)) == 2.4
    assert compute_tokens_per_second(EngineMetrics(generation_tokens=600.0, generation_seconds=30.0)) == 20.0
    assert compute_tokens_per_second(EngineMetrics(generation_rate=12.7)) == 12.7


def test_what_was_never_asked_anything_has_no_figures() -> None:
    idle = EngineMetrics(drafts=0.0, accepted_tokens=0.0, accept_length=0.0, generation_tokens=0.0, generation_rate=0.0)
    assert compute_accept_length(idle) is None
    assert compute_tokens_per_second(idle) is None
