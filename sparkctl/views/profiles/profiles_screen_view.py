"""The profiles of the panel: the list, and the one that is selected in full. Pure."""

from __future__ import annotations

from sparkctl.views.profiles.profile_detail import render_profile_detail
from sparkctl.views.profiles.profile_list import render_profile_list
from sparkctl.views.profiles.profiles_screen_model import ProfilesScreenModel
from sparkctl.views.text.frame_layout import pad_screen
from sparkctl.views.text.scrolled import ScrollPage, visible_range
from sparkctl.views.text.styled_text import Span, TextRow, TextStyle, make_row


def render_profiles_screen(shelf: ProfilesScreenModel, columns: int, lines: int) -> ScrollPage:
    """Return exactly ``lines`` rows: the list on top, below it the selected one with its command."""
    further, top, there = 0, 1 + (shelf.pattern is not None), range(0)
    if shelf.entries is None:
        rows: list[TextRow] = [(), make_row("  ", Span("reading the profiles ...", TextStyle.STALE))]
    elif not shelf.entries:
        rows = [
            (),
            make_row("  ", Span("There is no profile.", TextStyle.STRONG)),
            make_row("  ", Span("sparkctl profiles schema", TextStyle.KEY)),
        ]
    else:
        upper = min(len(shelf.shown) + top, max(4, lines // 2 - 1))
        rows = render_profile_list(shelf, columns, upper)
        there = visible_range(len(shelf.shown), shelf.at, max(1, upper - top))
        if shelf.selected is not None and lines - upper >= 4:
            below = render_profile_detail(shelf, shelf.selected, columns, lines - upper)
            rows, further = [*rows, *below.rows], below.further
    return ScrollPage(pad_screen(rows, columns, lines, shelf.ascii_only), further, top, there)
