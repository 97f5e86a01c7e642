"""What an engine was seen to do: the mean accept length over the readings in which it generated, and its own counters at the end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkctl.model.engine_metrics import DraftAcceptance, EngineActivity, EngineMeter, EngineMetrics, MeterSource
from sparkctl.monitor.meters.engine_meters import AcceptLengths, compute_accept_length


def make_decoding_meter(length: float | None) -> EngineMeter:
    acceptance = None if length is None else DraftAcceptance(length, None, None, MeterSource.COUNTERS)
    return EngineMeter(activity=EngineActivity.DECODING, generation_rate=20.0, acceptance=acceptance)


@given(st.lists(st.floats(1.0, 16.0), min_size=1, max_size=50))
def test_a_mean_over_what_was_seen(lengths: list[float]) -> None:
    watching = AcceptLengths()
    for length in lengths:
        watching.add_reading("a", make_decoding_meter(length))
    ((container, mean),) = watching.pop_changed()
    assert container == "a"
    assert mean == pytest.approx(sum(lengths) / len(lengths))
    assert watching.pop_changed() == []


def test_what_idles_or_is_not_known_counts_for_nothing() -> None:
    watching = AcceptLengths()
    for numbers in (None, EngineMeter(), EngineMeter(activity=EngineActivity.IDLE), make_decoding_meter(None)):
        watching.add_reading("a", numbers)
    assert watching.pop_changed() == []
    watching.add_reading("a", make_decoding_meter(3.0))
    watching.add_reading("b", make_decoding_meter(2.0))
    assert watching.pop_changed() == [("a", 3.0), ("b", 2.0)]


def test_counters_at_the_end_tell_of_the_engine_s_whole_life() -> None:
    counted = EngineMetrics(drafts=100.0, accepted_tokens=210.0, accept_length=9.0, generation_tokens=600.0)
    assert compute_accept_length(counted) == pytest.approx(3.1)
    assert compute_accept_length(EngineMetrics(accept_length=2.4)) == 2.4


def test_what_was_never_asked_anything_has_no_figures() -> None:
    idle = EngineMetrics(drafts=0.0, accepted_tokens=0.0, accept_length=0.0)
    assert compute_accept_length(idle) is None
