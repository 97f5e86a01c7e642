"""The first line: where one is and how it stands, also where it is narrow and where there is ASCII alone."""

from __future__ import annotations

import re

from sparkctl.present.frame import header
from sparkctl.present.spans import Row, Span, plain_ascii, text, width

TITLE: Row = (Span("sparkctl"), Span(" › "), Span("minimax-m27 on 2 Sparks › log"))
RIGHT: Row = (Span("2 Sparks · "), Span("guard armed · "), Span("simulated, time ×8 · "), Span("14:02:31"))


def test_where_it_is_narrow_the_simulation_is_still_said() -> None:
    made = header((Span("sparkctl"),), RIGHT, 60)
    assert "simulated, time ×8" in text(made)
    inside = header((Span("sparkctl"), Span(" › "), Span("spark1 › q")), RIGHT, 60)
    assert "guard armed · simulated, time ×8 · 14:02:31" in text(inside)
    assert "spark1 › q " in text(inside)


def test_plain_signs_and_a_gap() -> None:
    for columns in range(30, 110):
        made = header(TITLE, RIGHT, columns, ascii_only=True)
        line = text(made)
        assert width(made) == columns
        assert re.search(r"\S  +\S", line), "two blanks between the path and how it stands"
        assert line.isascii()
        assert "?" not in line
        assert "log2" not in line
        assert line.endswith("14:02:31 ")
    assert "sparkctl > minimax-m27 on 2 Sparks > log " in text(header(TITLE, RIGHT, 109, ascii_only=True))


def test_a_degree_sign_and_a_dot_leave_nothing_behind() -> None:
    assert text(plain_ascii((Span("52 °C"),))) == "52 C"
    assert text(plain_ascii((Span("798 of 3003 MHz ·"),))) == "798 of 3003 MHz,"
