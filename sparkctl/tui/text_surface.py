"""A widget that shows rows of styled text. It repaints only changed cells and never causes a layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from sparkctl.views.text.styled_text import TextRow, TextStyle, join_text, measure_text


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

    @property
    def plain_lines(self) -> list[str]:
        """The text of the rows without styles."""
        return [join_text(each) for each in self._rows]

    def set_rows(self, rows: Sequence[TextRow]) -> None:
        """Show other rows; repaint only the cells that differ."""
        before, self._rows = self._rows, rows
        if len(before) != len(rows):
            self.refresh()
            return
        regions = [
            _find_changed_region(at, old, new)
            for at, (old, new) in enumerate(zip(before, rows, strict=True))
            if old != new
        ]
        if regions:
            self.refresh(*regions)

    def set_text_styles(self, tones: Mapping[TextStyle, Style]) -> None:
        """Use other styles."""
        self._tones, self._styles = tones, {}
        self.refresh()

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return the lines of a region. Its style is looked up once: each look asks all widgets around it."""
        base = self.rich_style
        if base != self._base or not self._styles:
            self._base = base
            self._styles = {tone: base + style for tone, style in self._tones.items()}
        return super().render_lines(crop)

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
    start = sum(measure_text(span.text) for span in new[:first])
    wide = max(sum(measure_text(span.text) for span in old), sum(measure_text(span.text) for span in new))
    last = 0
    if wide == sum(measure_text(span.text) for span in old) == sum(measure_text(span.text) for span in new):
        most = min(len(old), len(new)) - first
        while last < most and old[-1 - last] == new[-1 - last]:
            last += 1
    end = wide - sum(measure_text(span.text) for span in new[len(new) - last :])
    return Region(start, y, max(1, end - start), 1)
