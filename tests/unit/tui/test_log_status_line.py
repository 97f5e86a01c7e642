"""The line under the log."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from sparkctl.tui.log_viewer.log_pane import LogViewState, format_status_line
from sparkctl.views.text.styled_text import to_ascii

FULL = LogViewState(
    is_following=False, new=124, total=1204, shown=17, find="oom", found=17, at=3, only="!info",
    is_wrapped=True, has_times=True, left=24, source="spark1",
)  # fmt: skip


def test_a_wide_status_line_shows_everything() -> None:
    text = format_status_line(FULL, 100).plain
    assert text.startswith(" ‖ paused +124 new   17 of 1,204  ")
    assert text.rstrip().endswith("find oom   3/17   only !info   spark1   → 24   wrap   times")
    assert cell_len(text) == 100


@pytest.mark.parametrize(("width", "kept"), [(80, "3/17"), (60, "3/17"), (40, "3/17"), (24, "paused +124")])
def test_a_narrow_status_line_drops_the_least_important(width: int, kept: str) -> None:
    text = format_status_line(FULL, width).plain
    assert kept in text
    assert cell_len(text) <= width


def test_work_in_progress_and_faults() -> None:
    assert "no match" in format_status_line(LogViewState(find="x", found=0), 80).plain
    assert "43%" in format_status_line(LogViewState(find="x", found=0, finding=0.43), 80).plain
    assert "no match" not in format_status_line(LogViewState(find="x", found=0, finding=0.43), 80).plain
    assert "—/9 50%" in format_status_line(LogViewState(find="x", found=9, finding=0.5), 80).plain
    assert "only x 12%" in format_status_line(LogViewState(only="x", narrowing=0.12), 80).plain
    assert "▲ missing ): filters nothing" in format_status_line(LogViewState(only="/(/", fault="missing )"), 80).plain


def test_what_is_hidden_and_what_was_not_found_are_said_once() -> None:
    assert (
        "165 of 276, own requests hidden"
        in format_status_line(LogViewState(total=165, shown=165, hidden=111), 100).plain
    )
    missed = LogViewState(find="error", found=0, note="no match")
    assert format_status_line(missed, 100).plain.count("no match") == 1


WORDS = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=200)


@settings(deadline=None)
@given(
    st.builds(LogViewState, note=st.none() | WORDS, fault=st.none() | WORDS, find=WORDS, only=WORDS, source=WORDS),
    st.integers(40, 150),
)
def test_the_status_line_fits_from_40_columns(state: LogViewState, width: int) -> None:
    line = format_status_line(state, width).plain
    assert cell_len(line) == cell_len(to_ascii(line)) == width
    assert to_ascii(line).count("?") == line.count("?")
