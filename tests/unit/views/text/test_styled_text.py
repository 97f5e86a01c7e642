"""Rows keep their width whatever is in them, and nothing of a node gets through uncleaned."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from textual.scrollbar import ScrollBarRender

from sparkctl.model.sample import MemoryBar
from sparkctl.views.text.charts import render_memory_bar
from sparkctl.views.text.frame_layout import draw_frame, render_header
from sparkctl.views.text.line_wrap import align_cells
from sparkctl.views.text.styled_text import (
    _ASCII_SYMBOLS,
    _NARROW_PATTERN,
    Span,
    join_text,
    justify_row,
    make_row,
    measure_row,
    measure_text,
    pad_row,
    sanitize_span,
    split_graphemes,
    to_ascii,
    truncate_row,
    truncate_text,
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
    assert to_ascii("≈ 196 GB/s · 71 °C → —") == "~ 196 GB/s . 71 oC > -"


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
def test_plain_signs_are_as_wide(spans: tuple[Span, ...]) -> None:
    plain = [to_ascii(span.text) for span in spans]
    assert all(text.isascii() for text in plain)
    assert [len(text) for text in plain] == [measure_text(span.text) for span in spans]


@given(st.sampled_from(("\u0301", "漢字", "a\u0301·", "x · y")), st.integers(8, 40))
def test_a_frame_of_plain_signs_has_its_right_side(line: str, columns: int) -> None:
    rows = [to_ascii(join_text(row)) for row in draw_frame((), [(sanitize_span(line),)], columns, 3, chosen=False)]
    assert [row[-1] for row in rows] == ["+", "|", "+"]
    assert {len(row) for row in rows} == {columns}


HOSTILE_NAMES = (
    "⚠️",
    "👍🏽",
    "नि",
    "日本語",
    "\u0301",
    "e\u0301" * 9,
    "שלום",
    "🇩🇪",
    "한국",
    "1️⃣",
    "\u200b\u202e",
    "a" * 300,
    "",
)


def test_a_scrollbar_has_no_question_marks_in_ascii() -> None:
    bars = "".join((*ScrollBarRender.VERTICAL_BARS, *ScrollBarRender.HORIZONTAL_BARS))
    assert "?" not in to_ascii(bars)
    assert len(to_ascii(bars)) == len(bars)


def test_our_symbols_are_narrow_by_the_table_of_rich() -> None:
    narrow = [chr(at) for at in range(0x20, 0x3100) if _NARROW_PATTERN.fullmatch(chr(at))]
    assert [char for char in narrow if cell_len(char) != 1] == []
    assert set(_ASCII_SYMBOLS) <= set(map(ord, narrow)), "no picture of ours needs the table"


@settings(deadline=None)
@given(st.lists(st.sampled_from(HOSTILE_NAMES) | st.text(max_size=9), max_size=6).map("".join), st.integers(0, 20))
def test_widths_are_those_of_rich_and_graphemes_add_up(words: str, columns: int) -> None:
    text = sanitize_span(words).text
    assert measure_text(text) == cell_len(text)
    parts = split_graphemes(text)
    assert "".join(parts) == text
    assert sum(map(measure_text, parts)) == measure_text(text)
    kept = truncate_text(text, columns)
    assert measure_text(kept) <= columns
    assert split_graphemes(kept) == parts[: len(split_graphemes(kept))], "no grapheme is split"


@settings(deadline=None)
@given(st.sampled_from(HOSTILE_NAMES), st.integers(8, 80), st.integers(3, 24))
def test_no_name_breaks_a_frame(name: str, columns: int, lines: int) -> None:
    title, body = make_row(sanitize_span(name)), [make_row(sanitize_span(f"{name} {name}"), "x")] * 3
    rows = draw_frame(title, body, columns, lines, chosen=True)
    assert {cell_len(join_text(row)) for row in rows} == {columns}
    assert {join_text(row)[-1] for row in rows[1:-1]} == {"┃"}
    header = render_header((Span("sparkctl"), *title), (Span("2 Sparks · "), *title), columns)
    assert cell_len(join_text(header)) == columns


@given(st.lists(st.tuples(*[st.sampled_from(HOSTILE_NAMES[:-2])] * 3), min_size=1, max_size=5))
def test_no_name_breaks_a_table(names: list[tuple[str, str, str]]) -> None:
    cells = align_cells([[sanitize_span(cell).text for cell in row] for row in names], right=(1,))
    assert len({cell_len("".join(row[:2])) for row in cells}) == 1
