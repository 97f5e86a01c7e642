"""Which part of which line stands on which row of the screen. No Textual here: lines and numbers only.

A place is (index of a line among those shown, row within that line). Without wrapping the row is always 0.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from rich.cells import get_character_cell_size

from sparkctl.logs.buffer import BufferedLine, LineOrder, LogBuffer

LONGEST_SHOWN = 4096  # characters; the rest of a longer line is in what is searched, copied and saved
_KEPT = 1024  # decoded lines
RowPosition = tuple[int, int]


@dataclass(frozen=True, slots=True)
class LogRow:
    """``start`` to ``stop`` are characters of the line's text; ``serial`` numbers the shown lines, whatever drops."""

    line: BufferedLine
    serial: int
    start: int
    stop: int


def find_fit_end(text: str, start: int, width: int) -> int:
    """Return the index of the first character from ``start`` on that ``width`` cells have no room for."""
    if text.isascii():
        return min(len(text), start + width)
    room = width
    for at in range(start, len(text)):
        room -= get_character_cell_size(text[at])
        if room < 0:
            return at
    return len(text)


def wrap_indent(width: int) -> int:
    """Return by how many cells the further rows of a wrapped line stand in."""
    return 2 if width >= 24 else 0


def wrap_offsets(text: str, width: int) -> tuple[int, ...]:
    """Return where each row of a wrapped text begins: after a space of its last third, or where the width ends."""
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
    """The lines of ``rows`` on a screen of ``width`` cells for text and ``height`` rows."""

    def __init__(self, book: LogBuffer) -> None:
        self.book = book
        self.rows: LineOrder = book.order
        self.width = 80
        self.height = 24
        self.is_wrapped = False
        self._lines: dict[int, BufferedLine] = {}

    def lines(self, index: int, count: int) -> list[BufferedLine]:
        """Return shown lines; one that went this moment is an empty line."""
        keys = [self.rows.key(at) for at in range(max(0, index), min(len(self.rows), index + count))]
        missing = [number for _, number in keys if number not in self._lines]
        if missing:
            self._fetch(missing)
        return [self._lines.get(number) or BufferedLine(number, 0, 0, "", "", moment) for moment, number in keys]

    def row_of(self, line: BufferedLine, character: int) -> int:
        """Return the row of a line on which a character stands."""
        return bisect_right(self._breaks(line), character) - 1 if self.is_wrapped else 0

    def start_of(self, line: BufferedLine, row: int) -> int:
        """Return the character with which a row of a line begins."""
        starts = self._breaks(line) if self.is_wrapped else (0,)
        return starts[min(row, len(starts) - 1)]

    def page(self, place: RowPosition) -> list[LogRow]:
        """Return the rows of the screen from this place on; fewer than its height where the log ends."""
        index, skip = place
        found: list[LogRow] = []
        for offset, line in enumerate(self.lines(index, self.height)):
            serial = self.rows.dropped + max(0, index) + offset
            length = min(len(line.text), LONGEST_SHOWN)
            if not self.is_wrapped:
                found.append(LogRow(line, serial, 0, length))
                continue
            starts = (*self._breaks(line), length)
            found += [
                LogRow(line, serial, start, stop)
                for start, stop in zip(starts[skip:-1], starts[skip + 1 :], strict=True)
            ]
            skip = 0
            if len(found) >= self.height:
                break
        return found[: self.height]

    def bottom(self) -> RowPosition:
        """Return the place that shows the end of the log on the last row."""
        first = max(0, len(self.rows) - self.height)
        if not self.is_wrapped:
            return first, 0
        room = self.height
        for back, line in enumerate(reversed(self.lines(first, self.height)), 1):
            room -= len(self._breaks(line))
            if room <= 0:
                return len(self.rows) - back, -room
        return 0, 0

    def move_position(self, place: RowPosition, by: int) -> RowPosition:
        """Return the place ``by`` rows further down (negative: up), within the log."""
        index, row = place
        if not self.is_wrapped:
            return self.clamp_position((index + by, 0))
        row += by
        while row < 0 and index > 0:
            index -= 1
            row += self._height_of(index)
        while index < len(self.rows) - 1 and row >= (height := self._height_of(index)):
            index += 1
            row -= height
        return self.clamp_position((index, row))

    def clamp_position(self, place: RowPosition) -> RowPosition:
        """Return the nearest place that leaves no row empty which could show a line."""
        return max((0, 0), min(place, self.bottom()))

    def _height_of(self, index: int) -> int:
        return sum(len(self._breaks(line)) for line in self.lines(index, 1))

    def _breaks(self, line: BufferedLine) -> tuple[int, ...]:
        return wrap_offsets(line.text[:LONGEST_SHOWN], self.width)

    def _fetch(self, numbers: list[int]) -> None:
        if len(self._lines) > _KEPT:
            self._lines.clear()
        low, high = min(numbers), max(numbers) + 1
        if high - low <= 4 * len(numbers):
            found = self.book.read(low, high)
        else:
            found = [line for number in numbers for line in self.book.read(number, number + 1)]
        self._lines.update((line.number, line) for line in found)
