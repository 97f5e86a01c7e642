"""The reader's position in a log, and the ways to move it: search, errors, markers, times. No Textual here.

The position is kept by the line at the top, not by a scroll offset: lines may be dropped, the filter may change and the
screen may be resized, and the same line stays at the top.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence

from rich.cells import cell_len, get_character_cell_size

from sparkctl.logs import search
from sparkctl.logs.buffer import BufferedLine, LineKey, LineOrder, LogBuffer
from sparkctl.logs.search import LogFilter, find_next_line
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.text.units import format_duration

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

    def __init__(self, buffer: LogBuffer) -> None:
        self.buffer = buffer
        self.rows: LineOrder = buffer.order
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
        return bisect_right(self._find_row_starts(line), character) - 1 if self.is_wrapped else 0

    def find_row_start(self, line: BufferedLine, row: int) -> int:
        """Return the offset of the first character of a row."""
        starts = self._find_row_starts(line) if self.is_wrapped else (0,)
        return starts[min(row, len(starts) - 1)]

    def build_page(self, position: RowPosition) -> list[LogRow]:
        """Return the rows of the screen from a position on; fewer than its height at the end of the log."""
        index, skip = position
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

    def move_position(self, position: RowPosition, by: int) -> RowPosition:
        """Return the position ``by`` rows further down (negative: up), within the log."""
        index, row = position
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

    def clamp_position(self, position: RowPosition) -> RowPosition:
        """Return the nearest position that fills the screen."""
        return max((0, 0), min(position, self.find_bottom_position()))

    def _count_line_rows(self, index: int) -> int:
        return sum(len(self._find_row_starts(line)) for line in self.get_lines(index, 1))

    def _find_row_starts(self, line: BufferedLine) -> tuple[int, ...]:
        return wrap_offsets(line.text[:MAX_SHOWN_CHARACTERS], self.width)

    def _load_lines(self, numbers: list[int]) -> None:
        if len(self._lines) > _MAX_CACHED_LINES:
            self._lines.clear()
        low, high = min(numbers), max(numbers) + 1
        if high - low <= 4 * len(numbers):
            found = self.buffer.read_lines(low, high)
        else:
            found = [line for number in numbers for line in self.buffer.read_lines(number, number + 1)]
        self._lines.update((line.number, line) for line in found)


class LogViewPosition:
    """The position in the lines that ``log_filter`` shows, as ``layout`` lays them out.

    ``current`` is the line of the last jump, ``left`` the first visible cell of every line, ``current_left`` that of the
    current line alone: other lines do not move for a match that is far to the right.
    """

    def __init__(self, log_filter: LogFilter, layout: LogLayout) -> None:
        self.layout = layout
        self.is_following = True
        self.top: RowPosition = (0, 0)
        self.current: LineKey | None = None
        self.left = 0
        self.current_left = 0
        self._filter = log_filter
        self._anchor: tuple[LineKey, int] | None = None  # the line at the top and its first visible character
        self._marked: tuple[tuple[LineKey, int] | None, LineKey | None, int, bool] | None = None
        self._seen_to: LineKey = (0, 0)  # the key of the first line after the last `restore_position`
        self._paused_at: LineKey = (0, 0)

    def build_page(self) -> list[LogRow]:
        """Return the rows of the screen."""
        return self.layout.build_page(self.top)

    def left_cell_of(self, row: LogRow) -> int:
        """Return the first visible cell of a row."""
        return self.current_left if row.line.line_key == self.current else self.left

    def restore_position(self) -> None:
        """Restore the position after any change."""
        layout = self.layout
        layout.rows = rows = self._filter.rows
        last = rows.get_key(len(rows) - 1) if len(rows) else (0, -1)
        self._seen_to = last[0], last[1] + 1
        if self.is_following or self._anchor is None or not len(rows):
            self._set_top(layout.find_bottom_position())
            return
        key, character = self._anchor
        index = min(rows.find_index(key), len(rows) - 1)
        row = layout.find_row(layout.get_lines(index, 1)[0], character) if rows.get_key(index) == key else 0
        # The anchor stays, although a filter or the end of the log may put another line at the top for now.
        self.top = layout.clamp_position((index, row))

    # --- moving ---

    def follow_end(self) -> None:
        self.is_following = True

    def pause_following(self) -> bool:
        """Stop following; return whether it was following before."""
        if not self.is_following:
            return False
        self.is_following = False
        self._paused_at = self._seen_to
        return True

    def move_rows(self, rows: int) -> None:
        """Move so many rows down (negative: up); moving down at the end follows again."""
        if rows > 0 and self.top >= self.layout.find_bottom_position():
            self.follow_end()
        elif rows < 0 or not self.is_following:
            self.scroll_to_position(self.layout.move_position(self.top, rows))

    def scroll_to_position(self, position: RowPosition) -> None:
        self.pause_following()
        self._set_top(position)

    def scroll_to_line(self, key: LineKey) -> None:
        """Make a line the current one and scroll to it, with some lines above it."""
        self.pause_following()
        self.current, self.current_left = key, self.left
        self.layout.rows = self._filter.rows
        if not self._is_on_screen(key):
            self._scroll_into_view(key)

    def resize_page(self, width: int, height: int) -> None:
        """Change the size; the current line stays visible."""
        was_seen = not self.is_following and self.current is not None and self._is_on_screen(self.current)
        self.layout.width, self.layout.height = width, height
        if was_seen and self.current is not None and height > 0 and not self._is_on_screen(self.current):
            self._scroll_into_view(self.current)

    def _is_on_screen(self, key: LineKey) -> bool:
        return any(row.line.line_key == key for row in self.build_page())

    def _scroll_into_view(self, key: LineKey) -> None:
        layout = self.layout
        if len(layout.rows):
            index = min(layout.rows.find_index(key), len(layout.rows) - 1)
            self._set_top(layout.move_position((index, 0), -(layout.height // 3)))

    def jump_to_next(self, rows: LineOrder, *, backwards: bool, is_quiet: bool = False) -> bool:
        """Go to the next of these lines, at least one, from the current line or the screen.

        Returns whether the search wrapped around the end of the log. ``is_quiet``: the current line itself may match.
        """
        start = self.current
        visible = [row.line.line_key for row in self.build_page()]
        if start is None or (visible and not visible[0] <= start <= visible[-1]):
            # the current line is not visible: start from the screen
            if backwards:
                start = (visible[-1][0], visible[-1][1] + 1) if visible else (0, 0)
            else:
                start = (visible[0][0], visible[0][1] - 1) if visible else (0, 0)
        elif is_quiet:  # a pattern that is being typed may match the current line
            start = start[0], start[1] - 1
        key, went_round = find_next_line(rows, start, backwards=backwards)
        self.scroll_to_line(key)
        self._reveal_match(key)
        return went_round

    def scroll_sideways(self, cells: int) -> None:
        """Scroll sideways, as far as the visible text reaches."""
        if self.layout.is_wrapped:
            return
        longest = max((cell_len(row.line.text[:MAX_SHOWN_CHARACTERS]) for row in self.build_page()), default=0)
        most = max(0, longest - self.layout.width // 2)
        self.left = self.current_left = max(0, min(self.left + cells, max(most, self.left)))

    def toggle_wrap(self) -> None:
        """Wrap long lines, or not."""
        self.layout.is_wrapped = not self.layout.is_wrapped
        self.left = self.current_left = 0

    # --- saved position ---

    def save_position(self) -> None:
        """Save the position."""
        self._marked = (self._anchor, self.current, self.left, self.is_following)

    def return_to_saved(self) -> None:
        if self._marked is not None:
            self._anchor, self.current, self.left, self.is_following = self._marked

    # --- state ---

    def match_index(self) -> int | None:
        """Return the number of the current line among the matches, from 1; None where it is no match."""
        found = self._filter.found_rows
        if found is None or self.current is None:
            return None
        at = found.find_index(self.current)
        return at + 1 if at < len(found) and found.get_key(at) == self.current else None

    def count_new_lines(self) -> int:
        """Return how many lines arrived since the reader paused and are still below the screen."""
        if self.is_following:
            return 0
        rows = self._filter.rows
        seen = self.top[0] + len({row.serial for row in self.build_page()})
        return max(0, len(rows) - max(seen, rows.find_index(self._paused_at)))

    def _set_top(self, position: RowPosition) -> None:
        layout = self.layout
        self.top = position
        lines = layout.get_lines(position[0], 1)
        self._anchor = (
            (layout.rows.get_key(position[0]), layout.find_row_start(lines[0], position[1])) if lines else None
        )

    def _reveal_match(self, key: LineKey) -> None:
        """Scroll the current line sideways to its first match."""
        line, pattern = self._filter.buffer.get_line(key[1]), self._filter.pattern
        if line is None or pattern is None or self.layout.is_wrapped:
            return
        text, width = line.text[:MAX_SHOWN_CHARACTERS], self.layout.width
        for start, stop in pattern.find_matches(text)[:1]:
            begin, end = cell_len(text[:start]), cell_len(text[:stop])
            if not self.left <= begin <= end < self.left + width:
                self.current_left = max(0, begin - width // 3) if end >= width else 0


class LogNavigator:
    """Moves ``position`` as soon as ``log_filter`` has found the target; ``say`` gets messages for the reader."""

    def __init__(self, log_filter: LogFilter, position: LogViewPosition, say: Callable[[str], None]) -> None:
        self._filter, self._position, self._say = log_filter, position, say
        self._source, self._at = 0, 0
        self._lines: tuple[int, ...] = ()  # the lines that prove a verdict; `_at` is the last one visited

    def search_pattern(self, pattern: str, *, jump: bool) -> None:
        """Search for a pattern; with ``jump`` go to the nearest match, the newest one while following."""

        def jump_to_nearest(rows: LineOrder) -> None:
            if len(rows):
                self._position.jump_to_next(rows, backwards=self._position.is_following, is_quiet=True)

        self._filter.set_search(pattern, jump_to_nearest if jump else None)

    def go_to_match(self, *, backwards: bool) -> None:
        """Go to the next match, or the next line of evidence without a search; wrap around the end of the log."""
        found = self._filter.found_rows
        if found is None and self._lines:
            self._at = (self._at + (-1 if backwards else 1)) % len(self._lines)
            self._go_to_evidence_line()
        elif found is None:
            self._say("no search yet: / finds")
        elif not len(found):
            self._say("no match" if self._filter.search_progress is None else "no match yet")
        else:
            self._jump_and_report(found, backwards=backwards)

    def go_to_marker(self, *, backwards: bool) -> None:
        """Go to the next ready line or failure."""

        def jump_to_marker(rows: LineOrder) -> None:
            if len(rows):
                self._jump_and_report(rows, backwards=backwards)
            else:
                self._say("no ready line and no failure among the shown lines")

        self._filter.search_once(search.select_marks, jump_to_marker)

    def go_to_first_error(self) -> None:
        def scroll_to_first(rows: LineOrder) -> None:
            if len(rows):
                self._position.scroll_to_line(rows.get_key(0))
            else:
                self._say("no error among the shown lines")

        self._filter.search_once(search.select_errors, scroll_to_first)

    def go_to_evidence(self, source: int, line: int, others: Sequence[int]) -> None:
        """Go to the line that proves a verdict best; `go_to_match` continues to the others, in the order of the log."""
        self._source, self._lines = source, tuple(sorted({line, *others}))
        self._at = self._lines.index(line)
        self._go_to_evidence_line()

    def _go_to_evidence_line(self) -> None:
        if len(self._lines) > 1:
            self._say(f"proof {self._at + 1} of {len(self._lines)}: n and N go to the others")
        self.go_to_line_number(self._source, self._lines[self._at])

    def go_to_line_number(self, source: int, line: int) -> None:
        """Go to a line by its number in its own log; clear a filter that hides it."""

        def scroll_to_found_line(rows: LineOrder) -> None:
            if not len(rows):
                self._say(f"line {line:,} is not in this log any more")
                return
            if not self._filter.is_shown(rows.get_key(0)):
                self._filter.set_filter("")
                if self._filter.source not in (None, source):
                    self._filter.select_source(None)
            self._position.scroll_to_line(rows.get_key(0))

        self._filter.search_once(search.select_evidence_line(source, line), scroll_to_found_line, everywhere=True)

    def go_back_seconds(self, seconds: float) -> None:
        """Go to the first line of the last so many seconds before the newest line."""
        index = self._filter.find_index_since(seconds)
        if index is None:
            self._say("no line here has a time")
        else:
            self._position.scroll_to_position(self._position.layout.clamp_position((index, 0)))
            self._say(
                f"the last {format_duration(seconds)} of this log begin here" if index else "the whole log is newer"
            )

    def _jump_and_report(self, rows: LineOrder, *, backwards: bool) -> None:
        if self._position.jump_to_next(rows, backwards=backwards):
            self._say("from the end again" if backwards else "from the beginning again")
