"""A widget that shows rows of styled text. It repaints only changed cells and never causes a layout."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from sparkctl.views.text.styled_text import TextRow, TextStyle, join_text, measure_row, measure_text, to_ascii


class AsciiFilter(LineFilter):
    """Paints every widget in ASCII, of equal width, for a terminal that has nothing else."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [Segment(to_ascii(text), style, control) for text, style, control in segments]


class TextSurface(Widget, can_focus=False):
    """Shows rows of spans as they are, without markup. Text from a node was sanitized before it became a span.

    Why no stock widget shows lists and dialogs: in CPU time, 40 rows on 120x40 with Textual 8.2.8, a key takes 4.3 ms here,
    8.4 ms in an `OptionList` and 6.5 ms in a `DataTable`; the first paint 18, 49 and 58 ms.
    """

    ALLOW_SELECT = False

    def __init__(self, tones: Mapping[TextStyle, Style], rows: Sequence[TextRow] = (), id: str | None = None) -> None:
        super().__init__(id=id)
        self._tones = tones
        self._rows: Sequence[TextRow] = rows
        self._base = self._blank = Style.null()  # without filters, and as they leave it
        self._filters: Sequence[LineFilter] = ()
        self._styles: dict[TextStyle, Style] = {}  # on the background
        self._strips: dict[int, Strip] = {}  # the rows that were painted, as wide as ``_strip_columns``
        self._strip_columns = 0

    @property
    def plain_lines(self) -> list[str]:
        """The text of the rows without styles."""
        return [join_text(each) for each in self._rows]

    def set_rows(self, rows: Sequence[TextRow]) -> None:
        """Show other rows; repaint only the cells that differ."""
        before, self._rows = self._rows, rows
        if len(before) != len(rows):
            self._strips.clear()
            self.refresh()
            return
        changed = [at for at, (old, new) in enumerate(zip(before, rows, strict=True)) if old != new]
        for at in changed:
            self._strips.pop(at, None)
        if changed:
            self.refresh(*(one for at in changed for one in find_changed_regions(at, before[at], rows[at])))

    def set_text_styles(self, tones: Mapping[TextStyle, Style]) -> None:
        self._tones, self._styles = tones, {}
        self.refresh()

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return the lines of a region, without Textual's look for borders, padding and opacity, which no surface has. The style is
        looked up once: each look asks all widgets around it."""
        base, wide = self.rich_style, self.size.width
        if base != self._base or not self._styles or wide != self._strip_columns:
            self._base, self._strip_columns = base, wide
            self._filters = self.get_line_filters()
            background = self.background_colors[1]
            styles = {tone: base + style for tone, style in self._tones.items()}
            self._styles = {tone: self._filter_style(style, background) for tone, style in styles.items()}
            self._blank = self._filter_style(base, background)
            self._strips.clear()
        strips = [self._strips.get(y) or self._keep_line(y) for y in crop.line_range]
        start, end = crop.column_span
        return strips if (start, end) == (0, wide) else [strip.crop(start, end) for strip in strips]

    def _filter_style(self, style: Style, background: Color) -> Style:
        """Return a style as Textual's filters leave it: once here, not for each segment of each line."""
        segments = [Segment(" ", style)]
        for each in self._filters:
            segments = each.apply(segments, background)
        return segments[0].style or style

    def _keep_line(self, y: int) -> Strip:
        strip = self.render_line(y)
        for each in self._filters:
            if isinstance(each, AsciiFilter):
                strip = strip.apply_filter(each, self.background_colors[1])
        self._strips[y] = strip
        return strip

    def render_line(self, y: int) -> Strip:
        wide, styles = self._strip_columns, self._styles
        if y >= len(self._rows):
            return Strip.blank(wide, self._blank)
        row = self._rows[y]
        strip = Strip([Segment(text, styles[tone]) for text, tone in row if text], measure_row(row))
        return strip.adjust_cell_length(wide, self._blank)


_MIN_GAP_COLUMNS = 12  # equal cells between two changed ones; to go over fewer costs as much as to write them
_ONE_COLUMN_TEXT = re.compile("[ -~·°─-▟⠀-⣿]*")  # each character takes one column, and none joins another


def find_changed_regions(y: int, old: TextRow, new: TextRow) -> list[Region]:
    """Return the cells of a row that differ: of a curve that moved by a column, its ends. Between spans that did not move it looks
    for each part; if their number differs, for one part from the first to the last."""
    if len(old) != len(new):
        first = next(
            (at for at, (one, other) in enumerate(zip(old, new, strict=False)) if one != other), min(len(old), len(new))
        )
        return [_trim_region(y, measure_row(new[:first]), old[first:], new[first:])]
    found: list[Region] = []
    begin, start, at_old, at_new = 0, 0, 0, 0
    is_open = False
    for at, (before, now) in enumerate(zip(old, new, strict=True)):
        is_equal = at_old == at_new and before == now
        if is_open and is_equal:
            found.append(_trim_region(y, start, old[begin:at], new[begin:at]))
        elif not is_open and not is_equal:
            begin, start = at, at_new
        is_open = not is_equal
        at_old, at_new = at_old + measure_text(before.text), at_new + measure_text(now.text)
    if is_open:
        found.append(_trim_region(y, start, old[begin:], new[begin:]))
    joined = found[:1]
    for one in found[1:]:
        if one.x - joined[-1].right < _MIN_GAP_COLUMNS:
            joined[-1] = joined[-1].union(one)
        else:
            joined.append(one)
    return joined


def _trim_region(y: int, x: int, old: TextRow, new: TextRow) -> Region:
    """Return the cells from the first to the last that differ in spans which begin in the same column, ``x``."""
    wide_before, wide = measure_row(old), measure_row(new)
    left = right = 0
    if wide_before == wide and old and new:
        while right < min(len(old), len(new)) - 1 and old[-1 - right] == new[-1 - right]:
            right += 1
        old, new = old[: len(old) - right], new[: len(new) - right]
        right = wide - measure_row(new)
        (first, last), (first_old, last_old) = (new[0], new[-1]), (old[0], old[-1])
        left = _count_common(first_old.text, first.text) if first_old.tone is first.tone else 0
        most = min(len(last_old.text) - (left if len(old) == 1 else 0), len(last.text) - (left if len(new) == 1 else 0))
        if last_old.tone is last.tone:
            right += min(most, _count_common(last_old.text[::-1], last.text[::-1]))
    return Region(x + left, y, max(1, max(wide, wide_before) - left - right), 1)


def _count_common(one: str, other: str) -> int:
    """Return how many columns two texts have in common at their beginning; 0 where a character may take more than one."""
    if not (_ONE_COLUMN_TEXT.fullmatch(one) and _ONE_COLUMN_TEXT.fullmatch(other)):
        return 0
    known, most = 0, min(len(one), len(other))
    while known < most:
        middle = (known + most + 1) // 2
        if one[known:middle] == other[known:middle]:
            known = middle
        else:
            most = middle - 1
    return known
