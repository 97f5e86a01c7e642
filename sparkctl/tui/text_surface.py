"""A widget that shows rows of styled text. It repaints only changed cells and never causes a layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from sparkctl.views.text.styled_text import TextRow, TextStyle, join_text, measure_row


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
        self._base = Style.null()
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
            self.refresh(*(_find_changed_region(at, before[at], rows[at]) for at in changed))

    def set_text_styles(self, tones: Mapping[TextStyle, Style]) -> None:
        """Use other styles."""
        self._tones, self._styles = tones, {}
        self.refresh()

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return the lines of a region, without Textual's look for borders, padding and opacity, which no surface has. The style is
        looked up once: each look asks all widgets around it."""
        base, wide = self.rich_style, self.size.width
        if base != self._base or not self._styles or wide != self._strip_columns:
            self._base, self._strip_columns = base, wide
            self._styles = {tone: base + style for tone, style in self._tones.items()}
            self._strips.clear()
        strips = [self._strips.get(y) or self._keep_line(y) for y in crop.line_range]
        start, end = crop.column_span
        return strips if (start, end) == (0, wide) else [strip.crop(start, end) for strip in strips]

    def _keep_line(self, y: int) -> Strip:
        strip, background = self.render_line(y), self.background_colors[1]
        for each in self.get_line_filters():
            strip = strip.apply_filter(each, background)
        self._strips[y] = strip
        return strip

    def render_line(self, y: int) -> Strip:
        """Return one line, as wide as the widget."""
        wide, styles = self.size.width, self._styles
        if y >= len(self._rows):
            return Strip.blank(wide, self._base)
        strip = Strip([Segment(span.text, styles[span.tone]) for span in self._rows[y] if span.text])
        return strip.adjust_cell_length(wide, self._base)


def _find_changed_region(y: int, old: TextRow, new: TextRow) -> Region:
    """Return the cells of a row that differ, without the equal spans at both ends."""
    first = 0
    while first < min(len(old), len(new)) and old[first] == new[first]:
        first += 1
    start, wide_before, wide_now = measure_row(new[:first]), measure_row(old), measure_row(new)
    last = 0
    if wide_before == wide_now:
        most = min(len(old), len(new)) - first
        while last < most and old[-1 - last] == new[-1 - last]:
            last += 1
    end = max(wide_before, wide_now) - measure_row(new[len(new) - last :])
    return Region(start, y, max(1, end - start), 1)
