"""The profiles of the panel: the list, and the one that is selected in full. Pure."""

from __future__ import annotations

from sparkctl.present.frame import filled
from sparkctl.present.profile_detail import detail
from sparkctl.present.profile_list import list_rows
from sparkctl.present.scrolled import Page, seen
from sparkctl.present.shelf import Shelf
from sparkctl.present.spans import Row, Span, Tone, row


def shelf_rows(shelf: Shelf, columns: int, lines: int) -> Page:
    """Return exactly ``lines`` rows: the list on top, below it the selected one with its command."""
    further, top, there = 0, 1 + (shelf.pattern is not None), range(0)
    if shelf.entries is None:
        rows: list[Row] = [(), row("  ", Span("reading the profiles ...", Tone.STALE))]
    elif not shelf.entries:
        rows = [
            (),
            row("  ", Span("There is no profile.", Tone.STRONG)),
            row("  ", Span("sparkctl profiles schema", Tone.KEY)),
        ]
    else:
        upper = min(len(shelf.shown) + top, max(4, lines // 2 - 1))
        rows = list_rows(shelf, columns, upper)
        there = seen(len(shelf.shown), shelf.at, max(1, upper - top))
        if shelf.selected is not None and lines - upper >= 4:
            below = detail(shelf, shelf.selected, columns, lines - upper)
            rows, further = [*rows, *below.rows], below.further
    return Page(filled(rows, columns, lines, shelf.ascii_only), further, top, there)
