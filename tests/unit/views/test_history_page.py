"""The history's screen at any width, whatever was done: always whole, always at an end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkctl.history.model import OperationKind, OperationRecord
from sparkctl.model.node import NodeName
from sparkctl.model.phase import ExpectedDurations
from sparkctl.views.history_view import HistoryScreenModel, render_history_page
from sparkctl.views.text.styled_text import join_text, measure_row

_NAMES = st.text(st.characters(codec="utf-8"), max_size=40)
_SECONDS = st.none() | st.floats(0, 1e6)
_OPERATIONS = st.builds(
    OperationRecord,
    id=st.integers(1, 99_999), kind=st.sampled_from(OperationKind), began=st.floats(0, 4e9), operator=st.just("milo@desk"),
    nodes=st.lists(_NAMES.map(NodeName), max_size=4).map(tuple), profile=st.none() | _NAMES,
    outcome=st.none() | st.sampled_from(["ready", "timed-out", "failed", "rolled-back"]), seconds=_SECONDS,
    usual=st.builds(ExpectedDurations, _SECONDS), is_running=st.none() | st.booleans(), why=st.none() | _NAMES,
)  # fmt: skip


@given(st.lists(_OPERATIONS, max_size=6), st.integers(20, 300), st.integers(1, 60))
def test_the_page_fills_any_width(done: list[OperationRecord], columns: int, lines: int) -> None:
    rows = render_history_page(HistoryScreenModel(operations=tuple(done)), columns, lines).rows
    assert [measure_row(each) for each in rows] == [columns] * lines


@pytest.mark.parametrize("columns", range(20, 301))
def test_a_switch_over_two_sparks_is_told_at_every_width(columns: int) -> None:
    two = OperationRecord(
        id=1,
        kind=OperationKind.START,
        began=1_777_000_000.0,
        operator="milo@desk",
        nodes=(NodeName("spark1"), NodeName("spark2")),
        profile="qwen36",
        outcome="ready",
        seconds=11.0,
        usual=ExpectedDurations(11.0),
        is_running=False,
    )
    head, entry = (
        join_text(each) for each in render_history_page(HistoryScreenModel(operations=(two,)), columns, 12).rows[:2]
    )
    assert ("11 s of about 11 s" in entry) == (columns >= 84)
    assert ("11 s" in entry) == ("took" in head) == (columns >= 57)
    assert ("qwen36" in entry) == (columns >= 32)
