"""Which part of which line is on which row."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from sparkctl.logs.buffer import LogBuffer
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.tui.log_viewer.log_navigation import LogLayout, wrap_indent, wrap_offsets
from tests.unit.tui.log_app import make_log_lines

TEXT = st.text(st.sampled_from("ab  -宽é\N{COMBINING ACUTE ACCENT}🦀"), max_size=80).map(sanitize_line)


@settings(deadline=None)
@given(TEXT, st.integers(1, 40))
def test_wrapped_rows_fit_and_nothing_is_lost(text: str, width: int) -> None:
    starts = wrap_offsets(text, width)
    assert starts[0] == 0
    assert list(starts) == sorted(set(starts))
    rows = [text[start:stop] for start, stop in zip(starts, (*starts[1:], len(text)), strict=True)]
    assert "".join(rows) == text
    for number, row in enumerate(rows):
        room = width - (wrap_indent(width) if number else 0)
        assert cell_len(row.rstrip(" ")) <= room or len(row.rstrip(" ")) == 1, "one wide character in one column"


@settings(deadline=None)
@given(st.lists(TEXT, max_size=30), st.integers(1, 30), st.integers(1, 12), st.booleans(), st.data())
def test_moving_is_walking_along_all_rows(
    texts: list[str], width: int, height: int, wrapped: bool, data: st.DataObject
) -> None:
    buffer = LogBuffer()
    buffer.add_lines(0, make_log_lines(texts))
    layout = LogLayout(buffer)
    layout.width, layout.height, layout.is_wrapped = width, height, wrapped
    places = [
        (index, row)
        for index, text in enumerate(texts)
        for row in range(len(wrap_offsets(text, width)) if wrapped else 1)
    ]  # fmt: skip
    last = max(0, len(places) - height)
    assert layout.find_bottom_position() == (places[last] if places else (0, 0))
    if not places:
        assert layout.build_page((0, 0)) == []
        return
    at = data.draw(st.integers(0, last))
    by = data.draw(st.integers(-len(places), len(places)))
    assert layout.move_position(places[at], by) == places[max(0, min(last, at + by))]
    page = layout.build_page(places[at])
    assert len(page) == min(height, len(places) - at)
    expected = places[at : at + height]
    assert [(row.serial, layout.find_row(row.line, row.start)) for row in page] == expected
    buffer.close()
