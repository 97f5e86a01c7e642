"""Only cells that differ are painted again, and all that differ."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.segment import Segment
from textual._compositor import ChopsUpdate
from textual.strip import Strip

from sparkctl.tui.terminal_driver import ChangedCells
from sparkctl.tui.text_surface import find_changed_regions
from sparkctl.views.text.styled_text import Span, TextRow, TextStyle, measure_row, measure_text, split_graphemes

TEXTS = st.text(alphabet=" ab─⣿⣀●字é\u0301", max_size=6)
ROWS = st.lists(st.builds(Span, TEXTS, st.sampled_from([TextStyle.RATE, TextStyle.LABEL])), max_size=5).map(tuple)


def list_cells(row: TextRow) -> list[tuple[str, TextStyle, int]]:
    cells = [
        (part, span.tone, at) for span in row for part in split_graphemes(span.text) for at in range(measure_text(part))
    ]
    assert len(cells) == measure_row(row)
    return cells


@given(ROWS, ROWS)
def test_no_changed_cell_is_left_out(old: TextRow, new: TextRow) -> None:
    before, now = list_cells(old), list_cells(new)
    wide = max(len(before), len(now))
    cells = [(row + [None] * wide)[:wide] for row in (before, now)]
    changed = {at for at, (one, other) in enumerate(zip(*cells, strict=True)) if one != other}
    regions = find_changed_regions(3, old, new)
    painted = {at for one in regions for at in range(one.x, one.right)}
    assert changed <= painted
    assert {one.y for one in regions} <= {3}


def test_a_curve_that_moves_by_a_column_is_painted_at_its_ends() -> None:
    rows = [
        (Span("│ ", TextStyle.FRAME), Span(" " * blank, TextStyle.LABEL), Span("⣿" * (60 - blank), TextStyle.RATE_BODY),
         Span(" │", TextStyle.FRAME), Span(" " * blank, TextStyle.LABEL), Span("⣿" * (60 - blank), TextStyle.RATE_BODY))
        for blank in (40, 39)
    ]  # fmt: skip
    assert [(one.x, one.width) for one in find_changed_regions(0, *rows)] == [(41, 1), (103, 1)]


def test_the_terminal_gets_the_changed_cells_alone() -> None:
    strips = [
        {0: Strip([Segment("spark1 ")]), 7: Strip([Segment("96 % busy")])},
        {0: None, 7: Strip([Segment("字字 W     ")])},
    ]
    update = ChopsUpdate(strips, [(0, 5, 9), (1, 9, 11)], [[7, 16], [7, 16]])
    written = ChangedCells(update).render_segments(Console(color_system=None))
    assert re.findall(r"\x1b\[(\d+);(\d+)H([^\x1b]*)", written) == [
        ("1", "6", "1 "),
        ("1", "8", "96"),
        ("2", "10", "字"),
    ]
