"""The layout of a log: which part of which line is on which row of the screen. No Textual here, lines and numbers only.

A position is (index of a shown line, row within that line). Without wrapping the row is always 0.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from rich.cells import get_character_cell_size

from sparkctl.logs.buffer import BufferedLine, LineOrder, LogBuffer

MAX_SHOWN_CHARACTERS = 4096  # characters; the rest of a longer line is still searched, copied and saved
_MAX_CACHED_LINES = 1024  # decoded lines
RowPosition = tuple[int, int]


@dataclass(frozen=True, slots=True)
class LogRow:
    """A row: the characters ``start`` to ``stop`` of a line. ``serial`` counts shown lines, including dropped ones."""

    line: BufferedLine
    serial: int
    start: int
    stop: int


def find_fit_end(text: str, start: int, width: int) -> int:
    """Return the index of the first character from ``start`` on that does not fit into ``width`` cells."""
    if text.isascii():
        return min(len(text), start + width)
    room = width
    for at in range(start, len(text)):
        room -= get_character_cell_size(text[at])
        if room < 0:
            return at
    return len(text)


def wrap_indent(width: int) -> int:
    """Return the indent, in cells, of the second and further rows of a wrapped line."""
    return 2 if width >= 24 else 0


def wrap_offsets(text: str, width: int) -> tuple[int, ...]:
    """Return the offset of each row of a wrapped text: after a space in the last third of the row, else at its end."""
    starts = [0]
    if len(text) <= width and text.isascii():
        return (0,)
    start, room = 0, width
    while (end := max(start + 1, find_fit_end(text, start, room))) < len(text):
        space = text.rfind(" ", start + max(1, (end - start) * 2 // 3), end + 1)
        start = space + 1 if space > 0 else end
        if start >= len(text):
            break
        starts.append(start)
        room = width - wrap_indent(width)
    return tuple(starts)


class LogLayout:
    """Lays out the lines of ``rows`` on ``height`` rows of ``width`` cells."""

    def __init__(self, book: LogBuffer) -> None:
        self.book = book
        self.rows: LineOrder = book.order
        self.width = 80
        self.height = 24
        self.is_wrapped = False
        self._lines: dict[int, BufferedLine] = {}

    def get_lines(self, index: int, count: int) -> list[BufferedLine]:
        """Return shown lines; a line that was just dropped is empty."""
        keys = [self.rows.get_key(at) for at in range(max(0, index), min(len(self.rows), index + count))]
        missing = [number for _, number in keys if number not in self._lines]
        if missing:
            self._load_lines(missing)
        return [
            self._lines.get(number) or BufferedLine(number=number, source=0, line=0, when="", text="", moment=moment)
            for moment, number in keys
        ]

    def find_row(self, line: BufferedLine, character: int) -> int:
        """Return the row of a line that contains a character."""
        return bisect_right(self._find_row_starts(line), character) - 1 if self.is_wrapped else 0

    def find_row_start(self, line: BufferedLine, row: int) -> int:
        """Return the offset of the first character of a row."""
        starts = self._find_row_starts(line) if self.is_wrapped else (0,)
        return starts[min(row, len(starts) - 1)]

    def build_page(self, place: RowPosition) -> list[LogRow]:
        """Return the rows of the screen from a position on; fewer than its height at the end of the log."""
        index, skip = place
        found: list[LogRow] = []
        for offset, line in enumerate(self.get_lines(index, self.height)):
            serial = self.rows.dropped + max(0, index) + offset
            length = min(len(line.text), MAX_SHOWN_CHARACTERS)
            if not self.is_wrapped:
                found.append(LogRow(line, serial, 0, length))
                continue
            starts = (*self._find_row_starts(line), length)
            found += [
                LogRow(line, serial, start, stop)
                for start, stop in zip(starts[skip:-1], starts[skip + 1 :], strict=True)
            ]
            skip = 0
            if len(found) >= self.height:
                break
        return found[: self.height]

    def find_bottom_position(self) -> RowPosition:
        """Return the position that shows the end of the log on the last row."""
        first = max(0, len(self.rows) - self.height)
        if not self.is_wrapped:
            return first, 0
        room = self.height
        for back, line in enumerate(reversed(self.get_lines(first, self.height)), 1):
            room -= len(self._find_row_starts(line))
            if room <= 0:
                return len(self.rows) - back, -room
        return 0, 0

    def move_position(self, place: RowPosition, by: int) -> RowPosition:
        """Return the position ``by`` rows further down (negative: up), within the log."""
        index, row = place
        if not self.is_wrapped:
            return self.clamp_position((index + by, 0))
        row += by
        while row < 0 and index > 0:
            index -= 1
            row += self._count_line_rows(index)
        while index < len(self.rows) - 1 and row >= (height := self._count_line_rows(index)):
            index += 1
            row -= height
        return self.clamp_position((index, row))

    def clamp_position(self, place: RowPosition) -> RowPosition:
        """Return the nearest position that fills the screen."""
        return max((0, 0), min(place, self.find_bottom_position()))

    def _count_line_rows(self, index: int) -> int:
        return sum(len(self._find_row_starts(line)) for line in self.get_lines(index, 1))

    def _find_row_starts(self, line: BufferedLine) -> tuple[int, ...]:
        return wrap_offsets(line.text[:MAX_SHOWN_CHARACTERS], self.width)

    def _load_lines(self, numbers: list[int]) -> None:
        if len(self._lines) > _MAX_CACHED_LINES:
            self._lines.clear()
        low, high = min(numbers), max(numbers) + 1
        if high - low <= 4 * len(numbers):
            found = self.book.read_lines(low, high)
        else:
            found = [line for number in numbers for line in self.book.read_lines(number, number + 1)]
        self._lines.update((line.number, line) for line in found)
