"""Rows keep their width whatever is in them, and nothing of a node gets through uncleaned."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparkctl.model.sample import MemoryBar
from sparkctl.views.text.charts import render_memory_bar
from sparkctl.views.text.frame_layout import draw_frame
from sparkctl.views.text.styled_text import (
    Span,
    join_text,
    justify_row,
    measure_row,
    pad_row,
    sanitize_span,
    to_ascii_row,
    truncate_row,
)

ROWS = st.lists(st.text(max_size=12).map(sanitize_span), max_size=5).map(tuple)


@given(ROWS, st.integers(0, 40))
def test_a_fitted_row_is_exactly_as_wide_as_asked(spans: tuple[Span, ...], columns: int) -> None:
    assert measure_row(pad_row(spans, columns)) == columns


@given(ROWS, st.integers(1, 40))
def test_a_cut_row_is_never_wider(spans: tuple[Span, ...], columns: int) -> None:
    assert measure_row(truncate_row(spans, columns)) <= columns


@given(ROWS, ROWS, st.integers(0, 40))
def test_ends_keep_the_right_one(left: tuple[Span, ...], right: tuple[Span, ...], columns: int) -> None:
    assert measure_row(justify_row(left, right, columns)) == columns


@given(st.text())
def test_what_a_node_says_has_no_control_in_it(words: str) -> None:
    assert sanitize_span(words).text.isprintable()


def test_our_signs_have_plain_ones() -> None:
    assert join_text(to_ascii_row((Span("≈ 196 GB/s · 71 °C → —"),))) == "~ 196 GB/s, 71 C > -"


@given(*[st.integers(0, 1 << 37)] * 4, st.integers(1, 100))
def test_the_memory_bar_is_as_wide_as_asked(gpu: int, other: int, cache: int, free: int, columns: int) -> None:
    total = max(1, gpu + other + cache + free)
    bar = MemoryBar(
        total=total,
        available=cache + free,
        gpu_processes=gpu,
        other_used=other,
        page_cache=cache,
        free=free,
        swap_used=0,
    )
    row = render_memory_bar(bar, columns)
    assert measure_row(row) == (columns if gpu + other + cache + free else 0)
    assert [span.text[0] for span in row] == [mark for mark in "█▓▒░" if mark in join_text(row)], (
        "the order never changes"
    )


@given(ROWS)
def test_plain_signs_are_never_wider(spans: tuple[Span, ...]) -> None:
    plain = to_ascii_row(spans)
    assert join_text(plain).isascii()
    assert measure_row(plain) <= measure_row(spans)


@given(st.sampled_from(("\u0301", "漢字", "a\u0301·", "x · y")), st.integers(8, 40))
def test_a_frame_of_plain_signs_has_its_right_side(line: str, columns: int) -> None:
    rows = draw_frame((), [(sanitize_span(line),)], columns, 3, chosen=False, ascii_only=True)
    assert [join_text(row)[-1] for row in rows] == ["+", "|", "+"]
    assert {len(join_text(row)) for row in rows} == {columns}
