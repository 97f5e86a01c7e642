"""Rows broken between words: nothing is lost, no row is wider than asked, and what is wide stays whole."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.views.text.line_wrap import wrap_row, wrap_rows, wrap_text
from sparkctl.views.text.styled_text import (
    Span,
    TextStyle,
    join_text,
    make_row,
    measure_row,
    measure_text,
    split_graphemes,
)

WORDS = st.text(st.sampled_from("abc日é-"), min_size=1, max_size=9)
ROWS = st.lists(st.tuples(st.lists(WORDS, max_size=4).map(" ".join), st.sampled_from(list(TextStyle))), max_size=5)
HOSTILE = st.lists(
    st.sampled_from(
        ["a", " ", "日本", "👍🏽", "⚠️", "नि", "e\u0301", "שלום", "🇩🇪", "한", "sparkctl up x", ": ", "/a/b", "\u0301"]
    )
    | st.text(max_size=6).map(lambda text: sanitize_line(text.replace("\n", "").replace("\r", ""))),
    max_size=24,
).map("".join)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)  # the machine may be busy
@given(ROWS, st.integers(6, 30), st.integers(0, 6))
def test_wrapping_keeps_letters_and_styles(spans: list[tuple[str, TextStyle]], columns: int, indent: int) -> None:
    one = make_row(" " * indent, *(Span(f"{words} ", tone) for words, tone in spans))
    lines = wrap_rows([one], columns)
    kept = [(char, span.tone) for line in lines for span in line for char in span.text if char != " "]
    assert kept == [(char, span.tone) for span in one for char in span.text if char != " "]
    assert all(measure_row(line) <= columns for line in lines)
    longest = max((measure_text(word) for word in join_text(one).split()), default=0)
    if longest + columns // 3 <= columns:
        words = [word for line in lines for word in join_text(line).split()]
        assert words == join_text(one).split(), "a word that fits stays whole"


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=60)
@given(HOSTILE, st.integers(12, 80))
def test_nothing_from_a_node_is_wider_than_asked_or_torn(words: str, columns: int) -> None:
    rows = wrap_text(words, columns, head=make_row("▲ "))
    assert all(measure_row(row) <= columns for row in rows)
    graphemes = set(split_graphemes(sanitize_line(words)))
    shown = {part for row in rows for part in split_graphemes(join_text(row)[2:])}
    assert {part for part in shown if f" {part}" not in graphemes} <= graphemes | {" ", "\\"}
    assert "".join(join_text(row)[2:] for row in rows).replace(" ", "").replace("\\", "") == "".join(
        char for char in sanitize_line(words) if char not in " \\"
    )


def test_wrapped_rows_are_indented() -> None:
    one = make_row("  ", Span("start a profile of yours", TextStyle.VALUE))
    assert [join_text(line) for line in wrap_rows([one], 12)] == ["  start a", "  profile of", "  yours"]


def test_rows_that_fit_are_unchanged() -> None:
    one = make_row("  a  b", Span("   c", TextStyle.KEY))
    assert wrap_rows([one, ()], 20) == [one, ()]


def test_a_command_across_styles_goes_on_below_a_backslash() -> None:
    one = make_row(
        Span("do: ", TextStyle.LABEL), Span("sparkctl up qwen36 --node spark1 --set port=8004", TextStyle.KEY)
    )
    rows = wrap_row(one, 30, 2)
    assert [join_text(row) for row in rows] == [
        "do:", "  sparkctl up qwen36 \\", "    --node spark1 \\", "    --set port=8004"
    ]  # fmt: skip
    assert rows[1][-1].tone is TextStyle.KEY
