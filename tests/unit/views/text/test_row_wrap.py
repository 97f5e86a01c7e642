"""Rows broken between words: nothing is lost, and no line is longer than its longest word makes it."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparkctl.views.text.styled_text import Span, TextStyle, join_text, make_row, measure_row, measure_text, wrap_rows

WORDS = st.text(st.sampled_from("abc日é-"), min_size=1, max_size=9)
ROWS = st.lists(st.tuples(st.lists(WORDS, max_size=4).map(" ".join), st.sampled_from(list(TextStyle))), max_size=5)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)  # the machine may be busy
@given(ROWS, st.integers(1, 30), st.integers(0, 6))
def test_wrapping_keeps_words_and_styles(spans: list[tuple[str, TextStyle]], columns: int, indent: int) -> None:
    one = make_row(" " * indent, *(Span(f"{words} ", tone) for words, tone in spans))
    lines = wrap_rows([one], columns)
    assert [word for line in lines for word in join_text(line).split()] == join_text(one).split()
    kept = [(char, span.tone) for line in lines for span in line for char in span.text if char != " "]
    assert kept == [(char, span.tone) for span in one for char in span.text if char != " "]
    longest = max((measure_text(word) for word in join_text(one).split()), default=0)
    assert all(measure_row(line) <= max(columns, columns // 3 + longest) for line in lines)


def test_wrapped_rows_are_indented() -> None:
    one = make_row("  ", Span("start a profile of yours", TextStyle.VALUE))
    assert [join_text(line) for line in wrap_rows([one], 12)] == ["  start a", "  profile of", "  yours"]


def test_rows_that_fit_are_unchanged() -> None:
    one = make_row("  a  b", Span("   c", TextStyle.KEY))
    assert wrap_rows([one, ()], 20) == [one, ()]
