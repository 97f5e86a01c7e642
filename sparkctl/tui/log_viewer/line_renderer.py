"""Renders a row of a log as a Textual strip: symbol, number, time, source, and text with matches and selection."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, tzinfo
from itertools import pairwise

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.selection import Selection
from textual.strip import Strip

from sparkctl.logs.buffer import BufferedLine
from sparkctl.logs.line_marker import LineMark, LogLevel, parse_level_header
from sparkctl.logs.search import FilterPattern
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.text.sanitize import truncate_text
from sparkctl.tui.log_viewer.log_navigation import MAX_SHOWN_CHARACTERS, LogRow, find_fit_end, wrap_indent

SOURCE_STYLES = ("source-1", "source-2", "source-3")  # the sources use these in turn
STYLE_NAMES = ("dim", "debug", "warning", "error", "failure", "ready", "match", "current", "selected", *SOURCE_STYLES)
StyleRange = tuple[int, int, Style]
_NARROW_COLUMNS, _TINY_COLUMNS = 60, 30  # columns below which the time has no milliseconds, or is hidden
_MAX_NAME_COLUMNS = 16
_LINE_NUMBER_DIGITS = 6  # the buffer keeps a million lines


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSymbols:
    """The symbols of a log row, one character each."""

    ready: str = "●"
    failure: str = "✕"
    error: str = "▲"
    warning: str = "△"
    goes_on: str = "·"
    here: str = "›"
    more: str = "›"
    less: str = "‹"
    stdout: str = "│"
    stderr: str = "╎"
    cut: str = "…"


_SYMBOLS = LogSymbols()


class LogLineRenderer:
    """Renders rows of ``width`` columns. ``styles`` has a style for each of `STYLE_NAMES`; ``base`` is for other text."""

    def __init__(self, sources: Sequence[str], *, zone: tzinfo | None) -> None:
        self.width = 80
        self.has_times = False
        self.has_sources = False
        self.has_numbers = False
        self.base = Style()
        self.styles: dict[str, Style] = {}
        self.proofs: frozenset[tuple[int, int]] = frozenset()  # source and number of the lines that prove a verdict
        self._zone = zone
        names = [truncate_text(name, _MAX_NAME_COLUMNS) for name in sources]
        self._wide = max(map(cell_len, names))
        self._names = [name + " " * (self._wide - cell_len(name)) for name in names]

    @property
    def gutter_width(self) -> int:
        """Columns before the text."""
        time, number = self._time_width(), self._number_width()
        source = self._wide + 1 if self._shows_sources else 0
        return 2 + (number + 1 if number else 0) + (time + 1 if time else 0) + source + (2 if time or source else 0)

    @property
    def text_width(self) -> int:
        """Columns for text."""
        return max(1, self.width - self.gutter_width)

    def render_strip(
        self, row: LogRow, left: int, spans: Sequence[StyleRange], *, is_current: bool, goes_on: bool
    ) -> Strip:
        """Return the strip of a row; ``left`` is the first visible cell of the text, ``spans`` are styles over the line's own.

        ``goes_on``: the row continues an error of the row above, so that a traceback has one symbol only.
        """
        line = row.line
        text = line.text[:MAX_SHOWN_CHARACTERS]
        start = row.start if not left else find_fit_end(text, row.start, left)
        stop = min(row.stop, find_fit_end(text, start, self.text_width))
        tail = ""
        if text[stop : row.stop].strip():
            tail = _SYMBOLS.more
        elif stop == len(text) < len(line.text):
            tail = f"{_SYMBOLS.cut}+{len(line.text) - len(text):,}"
        if tail:
            stop = max(start, min(stop, find_fit_end(text, start, self.text_width - cell_len(tail))))
        gutter = self._render_gutter(row, is_current=is_current, goes_on=goes_on)
        own = self._line_styles(line, is_current=is_current)
        pieces = self._build_segments(text, start, stop, [*own, *spans], self._base_style(line, is_current=is_current))
        if left and start:
            gutter[-1] = Segment(f"{gutter[-1].text[:-1]}{_SYMBOLS.less}", self.base + self.styles["dim"])
        room = self.text_width - cell_len(text[start:stop]) - cell_len(tail)
        rest = [Segment(" " * max(0, room), self._base_style(line, is_current=is_current))]
        if tail:
            rest.append(Segment(tail, self.base + self.styles["dim"]))
        if row.start:
            rest[0] = Segment(
                " " * max(0, room - wrap_indent(self.text_width)), self._base_style(line, is_current=is_current)
            )
            gutter.append(Segment(" " * wrap_indent(self.text_width), self._base_style(line, is_current=is_current)))
        strip = Strip([*gutter, *_attach_offsets(pieces, start, row.serial), *rest])
        return strip if strip.cell_length == self.width else strip.adjust_cell_length(self.width, self.base)

    def render_blank_strip(self) -> Strip:
        return Strip.blank(self.width, self.base)

    def find_overlay_ranges(
        self, row: LogRow, pattern: FilterPattern | None, selection: Selection | None
    ) -> list[StyleRange]:
        """Return the styles of the matches and of the selection in a row."""
        spans: list[StyleRange] = []
        if pattern is not None:
            style = self.styles["match"]
            spans += [
                (start, stop, style) for start, stop in pattern.find_matches(row.line.text[:MAX_SHOWN_CHARACTERS])
            ]
        if selection is not None and (span := selection.get_span(row.serial)) is not None:
            start, stop = span
            spans.append((start, len(row.line.text) if stop < 0 else stop, self.styles["selected"]))
        return spans

    # --- parts of a row ---

    def _render_gutter(self, row: LogRow, *, is_current: bool, goes_on: bool) -> list[Segment]:
        line = row.line
        is_first = row.start == 0
        symbol, style = self._choose_symbol(line, is_current=is_current) if is_first else (" ", self.base)
        if goes_on and symbol == _SYMBOLS.error:
            symbol = _SYMBOLS.goes_on
        dim = self.base + self.styles["dim"]
        found = [Segment(f"{symbol} ", style)]
        time, number = self._time_width(), self._number_width()
        if number:
            proves = (line.source, line.line) in self.proofs
            tone = self.base + self.styles["failure"] if proves else dim
            found.append(Segment(f"{line.line if is_first else '':>{number}} ", tone))
        if time:
            found.append(Segment(f"{self._format_time(line) if is_first else '':{time}} ", dim))
        if self._shows_sources:
            colour = self.base + self.styles[SOURCE_STYLES[line.source % len(SOURCE_STYLES)]]
            found.append(Segment(self._names[line.source] if is_first else " " * self._wide, colour))
            found.append(Segment(" ", dim))
        if time or self._shows_sources:
            found.append(Segment(f"{_SYMBOLS.stderr if line.is_stderr else _SYMBOLS.stdout} ", dim))
        return found

    def _choose_symbol(self, line: BufferedLine, *, is_current: bool) -> tuple[str, Style]:
        if line.mark is LineMark.FAILURE:
            return _SYMBOLS.failure, self.base + self.styles["failure"]
        if line.mark is LineMark.READY:
            return _SYMBOLS.ready, self.base + self.styles["ready"]
        if is_current:
            return _SYMBOLS.here, self.base + self.styles["current"]
        if line.level is LogLevel.ERROR:
            return _SYMBOLS.error, self.base + self.styles["error"]
        if line.level is LogLevel.WARNING:
            return _SYMBOLS.warning, self.base + self.styles["warning"]
        return " ", self.base

    def _base_style(self, line: BufferedLine, *, is_current: bool) -> Style:
        style = self.base
        if line.mark is LineMark.FAILURE:
            style += self.styles["failure"]
        elif line.mark is LineMark.READY:
            style += self.styles["ready"]
        elif line.level is LogLevel.ERROR:
            style += self.styles["error"]
        elif line.level is LogLevel.WARNING:
            style += self.styles["warning"]
        elif line.level is LogLevel.DEBUG:
            style += self.styles["debug"]
        return style + self.styles["current"] if is_current else style

    def _line_styles(self, line: BufferedLine, *, is_current: bool) -> list[StyleRange]:
        """Return the line's own styles: the prefix that the engine prints before every line is dim."""
        _, head = parse_level_header(line.text)
        dim = self.base + self.styles["dim"]
        return [(0, head, dim + self.styles["current"] if is_current else dim)] if head else []

    def _build_segments(
        self, text: str, start: int, stop: int, spans: Sequence[StyleRange], plain: Style
    ) -> list[Segment]:
        near = [(max(start, a), min(stop, b), style) for a, b, style in spans if a < stop and b > start]
        cuts = sorted({start, stop, *(a for a, _, _ in near), *(b for _, b, _ in near)})
        found = []
        for begin, end in pairwise(cuts):
            style = plain
            for a, b, over in near:
                if a <= begin and end <= b:
                    style += over
            found.append(Segment(text[begin:end], style))
        # an empty segment carries the offset that a selection over several lines needs
        return found or [Segment("", plain)]

    @property
    def _shows_sources(self) -> bool:
        return self.has_sources and self.width >= _NARROW_COLUMNS

    def _number_width(self) -> int:
        return _LINE_NUMBER_DIGITS if self.has_numbers and self.width >= _TINY_COLUMNS else 0

    def _time_width(self) -> int:
        if not self.has_times or self.width < _TINY_COLUMNS:
            return 0
        return 12 if self.width >= _NARROW_COLUMNS else 8

    def _format_time(self, line: BufferedLine) -> str:
        try:
            local = datetime.fromisoformat(line.when).astimezone(self._zone)
        except (ValueError, OverflowError, OSError):
            return ""
        return local.strftime("%H:%M:%S.%f")[: self._time_width()]


def resolve_log_style(name: str, given: Style) -> Style:
    """Return the style of a part in the theme. Only the current line has a background of its own."""
    is_ground = name == "current"
    return Style(
        color=None if is_ground else given.color,
        bgcolor=given.bgcolor if is_ground else None,
        bold=False if name == "dim" else given.bold,
        underline=given.underline,
        reverse=given.reverse,
    )


def _attach_offsets(pieces: Sequence[Segment], start: int, serial: int) -> list[Segment]:
    """Return the segments with the offsets that Textual needs for a selection: character and line."""
    found = []
    for text, style, _ in pieces:
        found.append(Segment(text, (style or Style.null()) + Style.from_meta({"offset": (start, serial)})))
        start += len(text)
    return found
