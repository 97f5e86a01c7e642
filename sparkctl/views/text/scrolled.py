"""As many rows as there is room for, and how many more there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparkctl.views.text.styled_text import Span, TextRow, TextStyle, make_row


@dataclass(frozen=True, slots=True)
class ScrollPage:
    """Rows, and from which row on the part that can be scrolled is really shown. Of a list, its ``entries`` stand in the rows
    from ``top`` on."""

    rows: tuple[TextRow, ...]
    further: int = 0
    top: int = 0
    entries: range = range(0)

    def entry(self, y: int) -> int | None:
        """Return the number of the list's entry that stands in a row."""
        return self.entries[y - self.top] if 0 <= y - self.top < len(self.entries) else None


def visible_range(count: int, at: int, lines: int) -> range:
    """Return which of ``count`` entries are seen, the one at ``at`` among them, near the middle where there is more around."""
    first = max(0, min(at - lines // 2, count - lines))
    return range(first, min(count, first + lines))


def rows_around(rows: Sequence[TextRow], at: int, lines: int) -> list[TextRow]:
    """Return at most ``lines`` rows with the one at ``at`` among them."""
    return [rows[each] for each in visible_range(len(rows), at, lines)]


def scroll_rows(
    rows: Sequence[TextRow], further: int, lines: int, ascii_only: bool = False, by: tuple[str, str] = ("pgup", "pgdn")
) -> ScrollPage:
    """Return the rows from ``further`` on, as far as there are any; where not all fit, the last row says what is above and
    below, and ``by`` which keys it is reached."""
    if len(rows) <= lines or lines < 2:
        return ScrollPage(tuple(rows[: max(0, lines)]))
    shown = lines - 1
    first = max(0, min(further, len(rows) - shown))
    below = len(rows) - first - shown
    up, down = ("^", "v") if ascii_only else ("↑", "↓")
    words = [f"{up} {first}"] if first else []
    words += [f"{down} {below} more"] if below else ["the end"]
    keys = " and ".join([*([by[0]] if first else []), *([by[1]] if below else [])])
    says = make_row(Span("   ".join(words), TextStyle.LABEL), Span(f"   {keys}", TextStyle.KEY))
    return ScrollPage((*rows[first : first + shown], says), first)
