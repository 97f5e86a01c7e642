"""The first line: where one is and how it stands, also where it is narrow and where there is ASCII alone."""

from __future__ import annotations

import re

from sparkctl.views.text.frame_layout import render_header
from sparkctl.views.text.styled_text import Span, TextRow, join_text, measure_row, to_ascii

TITLE: TextRow = (Span("sparkctl"), Span(" › "), Span("minimax-m27 on 2 Sparks › log"))
RIGHT: TextRow = (Span("2 Sparks · "), Span("guard armed · "), Span("simulated, time ×8 · "), Span("14:02:31"))


def test_where_it_is_narrow_the_simulation_is_still_said() -> None:
    made = render_header((Span("sparkctl"),), RIGHT, 60)
    assert "simulated, time ×8" in join_text(made)
    inside = render_header((Span("sparkctl"), Span(" › "), Span("spark1 › q")), RIGHT, 60)
    assert "guard armed · simulated, time ×8 · 14:02:31" in join_text(inside)
    assert "spark1 › q " in join_text(inside)


def test_plain_signs_and_a_gap() -> None:
    for columns in range(30, 110):
        made = render_header(TITLE, RIGHT, columns)
        line = to_ascii(join_text(made))
        assert measure_row(made) == columns
        assert re.search(r"\S  +\S", line), "two blanks between the path and how it stands"
        assert line.isascii()
        assert "?" not in line
        assert "log2" not in line
        assert line.endswith("14:02:31 ")
    assert "sparkctl > minimax-m27 on 2 Sparks > log " in to_ascii(join_text(render_header(TITLE, RIGHT, 109)))


def test_plain_signs_are_as_wide() -> None:
    assert to_ascii("52 °C") == "52 oC"
    assert to_ascii("798 of 3003 MHz · a") == "798 of 3003 MHz . a"
