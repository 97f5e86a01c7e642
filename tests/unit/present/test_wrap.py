"""Rows broken between words: nothing is lost, and no line is longer than its longest word makes it."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparkctl.present.spans import Span, Tone, cells, row, text, width
from sparkctl.present.wrap import wrapped

WORDS = st.text(st.sampled_from("abc日é-"), min_size=1, max_size=9)
ROWS = st.lists(st.tuples(st.lists(WORDS, max_size=4).map(" ".join), st.sampled_from(list(Tone))), max_size=5)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)  # the machine may be busy
@given(ROWS, st.integers(1, 30), st.integers(0, 6))
def test_words_and_their_tones_stay(spans: list[tuple[str, Tone]], columns: int, indent: int) -> None:
    one = row(" " * indent, *(Span(f"{words} ", tone) for words, tone in spans))
    lines = wrapped([one], columns)
    assert [word for line in lines for word in text(line).split()] == text(one).split()
    kept = [(char, span.tone) for line in lines for span in line for char in span.text if char != " "]
    assert kept == [(char, span.tone) for span in one for char in span.text if char != " "]
    longest = max((cells(word) for word in text(one).split()), default=0)
    assert all(width(line) <= max(columns, columns // 3 + longest) for line in lines)


def test_what_goes_on_hangs_under_its_beginning() -> None:
    one = row("  ", Span("start a profile of yours", Tone.VALUE))
    assert [text(line) for line in wrapped([one], 12)] == ["  start a", "  profile of", "  yours"]


def test_what_fits_is_left_as_it_is() -> None:
    one = row("  a  b", Span("   c", Tone.KEY))
    assert wrapped([one, ()], 20) == [one, ()]
