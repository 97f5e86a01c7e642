"""The log view: a million lines under a reader's hands, while thousands a second arrive.

It knows its place by the line at the top, not by a scroll offset: lines may drop, the filter may change and the screen
may be resized, and the reader still reads the same line.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from datetime import tzinfo
from pathlib import Path
from typing import ClassVar

from rich.cells import cell_len
from rich.style import Style
from textual.actions import SkipAction
from textual.binding import Binding, BindingType
from textual.events import Key as KeyPress
from textual.events import MouseScrollDown, MouseScrollLeft, MouseScrollRight, MouseScrollUp
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip
from textual.timer import Timer
from textual.widget import Widget

from sparkctl.core import logscan
from sparkctl.core.logbook import LogBook
from sparkctl.core.logorder import Key, Rows
from sparkctl.core.logsight import LogSight, next_of
from sparkctl.model.log import LogLine
from sparkctl.model.text import clean
from sparkctl.tui import log_copy
from sparkctl.tui.log_layout import LONGEST_SHOWN, Layout, Place, Row
from sparkctl.tui.log_paint import STYLES, Painter, Span
from sparkctl.tui.log_state import LogState

PAINTS = 1 / 20  # s between two paints of what arrived; a key is painted at once
FLOOD_PAINTS = 1 / 8  # the same where more than a screen has come since: nobody reads that
TURN = 0.003  # s of searching between two looks at the keyboard
NOTED = 6.0  # s that a note stands
_WHEEL = 3
_SIDEWAYS = 12


class LogView(ScrollView, can_focus=True):
    """Shows a `LogBook`. Give it lines with `add`: at 20,000 lines a second at most some hundreds a call."""

    DEFAULT_CSS = """
    LogView {
        overflow-x: hidden;
        overflow-y: scroll;
        scrollbar-size-vertical: 1;
        scrollbar-color: $foreground 25%;
        scrollbar-color-hover: $primary;
        scrollbar-color-active: $primary;
        scrollbar-background: $foreground 6%;
        scrollbar-background-hover: $foreground 6%;
        scrollbar-background-active: $foreground 6%;
        color: $foreground;
        & > .log-view--dim { color: $foreground 50%; }
        & > .log-view--debug { color: $foreground 60%; }
        & > .log-view--warning { color: $text-warning; }
        & > .log-view--error { color: $text-error; }
        & > .log-view--failure { color: $text-error; text-style: bold; }
        & > .log-view--ready { color: $text-success; text-style: bold; }
        & > .log-view--match { color: $text-primary; text-style: bold underline; }
        & > .log-view--current { background: $primary 25%; text-style: bold; }
        & > .log-view--selected { text-style: reverse; }
    }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {f"log-view--{name}" for name in STYLES}
    HELP = "Reads a log. `/` finds, `&` keeps matching lines only, `f` follows. A pattern may be `!text` or `/regex/`."
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f", "follow", "follow", id="log.follow"),
        Binding("n", "next_match", "next", id="log.next", show=False),
        Binding("N", "next_match(True)", "previous", id="log.previous", show=False),
        Binding("E", "first_error", "first error", id="log.first_error"),
        Binding("right_square_bracket", "next_mark", "next mark", id="log.next_mark", show=False),
        Binding("left_square_bracket", "next_mark(True)", "previous mark", id="log.previous_mark", show=False),
        Binding("w", "wrap", "wrap", id="log.wrap"),
        Binding("t", "times", "times", id="log.times", show=False),
        Binding("m", "source", "merged or one", id="log.source", show=False),
        Binding("y", "copy", "copy", id="log.copy", show=False),
        Binding("k", "scroll_up", "up", id="log.up", show=False),
        Binding("j", "scroll_down", "down", id="log.down", show=False),
        Binding("space", "page_down", "page down", id="log.page_down", show=False),
        Binding("g", "scroll_home", "first line", id="log.home", show=False),
        Binding("G", "scroll_end", "last line", id="log.end", show=False),
        Binding("escape", "clear", "clear", id="log.clear", show=False),
    ]

    class Changed(Message):
        """The view says something new of itself."""

        def __init__(self, view: LogView, state: LogState) -> None:
            super().__init__()
            self.view = view
            self.state = state

        @property
        def control(self) -> LogView:
            """The view."""
            return self.view

        def can_replace(self, message: Message) -> bool:
            """The newest word is enough."""
            return isinstance(message, LogView.Changed) and message.view is self.view

    def __init__(
        self,
        book: LogBook,
        *,
        ascii_only: bool = False,
        zone: tzinfo | None = None,
        id: str | None = None,
        classes: str | None = None,
    ) -> None:
        super().__init__(id=id, classes=classes)
        self.book = book
        self.sight = LogSight(book)
        self.state = LogState()
        self.is_following = True
        self.divert: Callable[[KeyPress], bool] | None = None  # asked about every key; True: it is not for the view
        self._lines_layout = Layout(book)
        self._painter = Painter(book.sources, ascii_only=ascii_only, zone=zone)
        self._painter.has_sources = len(book.sources) > 1
        self._place: Place = (0, 0)
        self._top: tuple[Key, int] | None = None  # the line at the top and its first character seen
        self._current: Key | None = None
        self._left = 0
        self._current_left = (
            0  # of the current line alone: the rest stays where it is while a match is far to the right
        )
        self._marked: tuple[tuple[Key, int] | None, Key | None, int, bool] | None = None
        self._paused_at: Key = (0, 0)
        self._page: list[Row] | None = None
        self._painted = 0.0
        self._painted_end = 0
        self._painted_to: Key = (0, 0)  # where the first line would stand that came after the last paint
        self._paint_timer: Timer | None = None
        self._note: str | None = None
        self._note_timer: Timer | None = None
        self._is_placing = False
        self._is_working = False

    # lines arrive

    def add(self, source: int, lines: Iterable[LogLine]) -> None:
        """Take lines of a source of the book, in their order."""
        self.book.add(source, lines)
        self.catch_up()

    def catch_up(self) -> None:
        """Take notice of lines that were added to the book elsewhere."""
        self.sight.catch_up()
        if self._paint_timer is not None or not self.is_attached:
            return
        is_flood = self.is_following and self.book.spool.end - self._painted_end > self._lines_layout.height
        wait = self._painted + (FLOOD_PAINTS if is_flood else PAINTS) - time.monotonic()
        if wait <= 0:
            self._settle()
        else:
            self._paint_timer = self.set_timer(wait, self._settle)

    # what is shown

    def keep(self, typed: str) -> None:
        """Show only the lines that match; an empty pattern shows all. A faulty one says so and filters nothing."""
        self.sight.keep(clean(typed))
        self._work()

    def find(self, typed: str, *, jump: bool = False) -> None:
        """Show where a pattern is, and go to the next such line if asked to. An empty one ends the search."""
        self.sight.find(clean(typed), self._jump_if_any if jump else None)
        self._work()

    def show_source(self, source: int | None) -> None:
        """Show one source alone, or all of them merged (None)."""
        self.sight.choose(source)
        self._painter.has_sources = source is None and len(self.book.sources) > 1
        self._resized()
        self._work()

    def show_evidence(self, source: int, line: int) -> None:
        """Go to a line by its number in its own log, as a verdict names it; a filter that hides it is taken away."""

        def arrive(rows: Rows) -> None:
            if not len(rows):
                self.say(f"line {line:,} is not in this log any more")
                return
            if not self.sight.shows(rows.key(0)):
                self.sight.keep("")
                if self.sight.source not in (None, source):
                    self.show_source(None)
            self.go_to(rows.key(0))

        self.sight.look(logscan.evidence(source, line), arrive, everywhere=True)
        self._work()

    def mark_place(self) -> None:
        """Remember where the reader is, for `back_to_mark`."""
        self._marked = (self._top, self._current, self._left, self.is_following)

    def back_to_mark(self) -> None:
        """Go where the reader was."""
        if self._marked is not None:
            self._top, self._current, self._left, self.is_following = self._marked
            self._repaint()

    def _work(self) -> None:
        """Do what the sight has to do: at once what is short, the rest between keys."""
        if not self.is_attached:
            return
        rows = self.sight.rows
        if self.sight.work(TURN) and not self._is_working:
            self._is_working = True
            self.run_worker(self._work_on(), group="sight", exit_on_error=True)
        self._take_rows(rows)

    async def _work_on(self) -> None:
        try:
            rows, is_left, told = self.sight.rows, True, 0.0
            while is_left:
                await asyncio.sleep(0.001)
                is_left = self.sight.work(TURN)
                if rows is not self.sight.rows or not is_left:
                    self._take_rows(rows)
                    rows = self.sight.rows
                elif time.monotonic() - told > PAINTS:
                    told = time.monotonic()
                    self._tell()  # how much of it is done
        finally:
            self._is_working = False

    def _take_rows(self, before: Rows) -> None:
        if self.sight.rows is not before:
            self.screen.clear_selection()
        self._repaint()

    # where the reader is

    def go_to(self, key: Key) -> None:
        """Make a line the current one and bring it onto the screen, with some lines before it."""
        self.pause()
        self._current, self._current_left = key, self._left
        layout = self._lines_layout
        layout.rows = self.sight.rows
        if not any(row.line.key == key for row in layout.page(self._place)) and len(layout.rows):
            index = min(layout.rows.index(key), len(layout.rows) - 1)
            self._stand(layout.moved((index, 0), -(layout.height // 3)))
        self._repaint()

    def follow(self) -> None:
        """Show the newest line, from now on."""
        self.is_following = True
        self._repaint()

    def pause(self) -> None:
        """Stay where the reader is."""
        if self.is_following:
            self.is_following = False
            self._paused_at = self._painted_to
            self._tell()  # the log itself stays as it is painted

    def _move(self, rows: int) -> None:
        if rows > 0 and self._place >= self._lines_layout.bottom():
            self.follow()
            return
        if rows < 0 or not self.is_following:
            self.pause()
            self._stand(self._lines_layout.moved(self._place, rows))
        self._repaint()

    def _stand(self, place: Place) -> None:
        """Put a place at the top."""
        layout = self._lines_layout
        self._place = place
        lines = layout.lines(place[0], 1)
        self._top = (layout.rows.key(place[0]), layout.start_of(lines[0], place[1])) if lines else None

    def _find_place(self) -> None:
        """Find the top line again after anything changed."""
        layout = self._lines_layout
        layout.rows = rows = self.sight.rows
        if self.is_following or self._top is None or not len(rows):
            self._stand(layout.bottom())
            return
        key, character = self._top
        index = min(rows.index(key), len(rows) - 1)
        row = layout.row_of(layout.lines(index, 1)[0], character) if rows.key(index) == key else 0
        # The top line is not forgotten where a filter or the end of the log lets another be at the top for now.
        self._place = layout.clamped((index, row))

    # painting

    def _repaint(self) -> None:
        if self.is_attached:
            self._settle()

    def _settle(self) -> None:
        """Bring place, scrollbar and state up to date and have the screen painted."""
        if self._paint_timer is not None:
            self._paint_timer.stop()
            self._paint_timer = None
        self._painted, self._painted_end = time.monotonic(), self.book.spool.end
        layout = self._lines_layout
        if layout.height <= 0:
            return
        self._find_place()
        last = layout.rows.key(len(layout.rows) - 1) if len(layout.rows) else (0, -1)
        self._painted_to = last[0], last[1] + 1
        self._page = None
        # Not through the reactive: a new height of the log is no reason to lay the screen out anew.
        self.set_reactive(Widget.virtual_size, Size(self.size.width, layout.bottom()[0] + layout.height))
        self._is_placing = True
        try:
            self._fit_scrollbar()
            if round(self.scroll_y) != self._place[0]:
                self.scroll_y = self.scroll_target_y = self._place[0]
        finally:
            self._is_placing = False
        self.refresh()
        self._tell()

    def _fit_scrollbar(self) -> None:
        bar, whole = self.vertical_scrollbar, self.virtual_size.height
        known = bar.window_virtual_size
        is_near = self.is_following and 0.99 * whole <= known <= whole and bar.position >= known - bar.window_size
        if is_near and bar.window_size == self._lines_layout.height:
            return  # its thumb would not move by a cell, and to paint it costs as much as to paint the log
        bar.window_virtual_size = whole
        bar.window_size = self._lines_layout.height
        bar.position = self._place[0]

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Go where the scrollbar, or a selection that is drawn over the edge, was moved to."""
        if self._is_placing:
            return
        super().watch_scroll_y(old_value, new_value)
        if round(new_value) == self._place[0]:
            return
        if self.scrollable_content_region.height != self._lines_layout.height:
            return  # Textual fits it to another size; `on_resize` knows better where the reader was
        if round(new_value) < self._place[0] or not self.is_following:
            self.pause()
            self._stand(self._lines_layout.clamped((round(new_value), 0)))
        self._repaint()

    def render_line(self, y: int) -> Strip:
        """Return one row of the screen."""
        if not self._painter.styles:
            self._dress()
        if self._page is None:
            self._page = self._lines_layout.page(self._place)
        if y >= len(self._page):
            return self._painter.blank()
        row = self._page[y]
        spans: list[Span] = []
        if (pattern := self.sight.pattern) is not None:
            style = self._painter.styles["match"]
            spans += [(start, stop, style) for start, stop in pattern.spans(row.line.text[:LONGEST_SHOWN])]
        selection = self.text_selection
        if selection is not None and (span := selection.get_span(row.serial)) is not None:
            start, stop = span
            spans.append((start, len(row.line.text) if stop < 0 else stop, self._painter.styles["selected"]))
        above = self._page[y - 1].line if y else None
        goes_on = above is not None and above.level is row.line.level and above.source == row.line.source
        is_current = row.line.key == self._current
        left = self._current_left if is_current else self._left
        return self._painter.strip(row, left, spans, is_current=is_current, goes_on=goes_on)

    def notify_style_update(self) -> None:
        """Take the theme's colours."""
        super().notify_style_update()
        self._painter.styles = {}  # those of the parts are not there yet

    def _dress(self) -> None:
        """Take the colours of the parts. Only the current line has a background of its own."""
        self._painter.base = self.rich_style
        for name in STYLES:
            style = self.get_component_rich_style(f"log-view--{name}")
            is_ground = name == "current"
            self._painter.styles[name] = Style(
                color=None if is_ground else style.color,
                bgcolor=style.bgcolor if is_ground else None,
                bold=False if name == "dim" else style.bold,
                underline=style.underline,
                reverse=style.reverse,
            )

    def on_mount(self) -> None:
        """Begin."""
        self._resized()
        self._work()

    def on_resize(self) -> None:
        """Keep the place on another screen."""
        self._resized()

    def _resized(self) -> None:
        region = self.scrollable_content_region
        self._painter.width = max(1, region.width)
        self._lines_layout.height = region.height
        self._lines_layout.width = self._painter.text_width
        self._repaint()

    # what the view says of itself

    def say(self, note: str) -> None:
        """Have a note shown for a while."""
        self._note = clean(note)
        if self._note_timer is not None:
            self._note_timer.stop()
        self._note_timer = self.set_timer(NOTED, self._unsay)
        self._tell()

    def _unsay(self) -> None:
        self._note = self._note_timer = None
        self._tell()

    def _tell(self) -> None:
        sight, found = self.sight, self.sight.found
        state = LogState(
            is_following=self.is_following,
            new=self._new_lines(),
            total=len(self.book.spool),
            shown=len(sight.rows),
            find=sight.sought,
            found=None if found is None else len(found),
            at=self._at(),
            finding=sight.finding,
            only=sight.only,
            narrowing=sight.narrowing,
            fault=sight.fault,
            is_wrapped=self._lines_layout.is_wrapped,
            has_times=self._painter.has_times,
            left=self._left,
            source=None if sight.source is None else self.book.sources[sight.source],
            trouble=self.book.spool.trouble,
            note=self._note,
        )
        if state != self.state:
            self.state = state
            self.post_message(self.Changed(self, state))

    def _at(self) -> int | None:
        found = self.sight.found
        if found is None or self._current is None:
            return None
        at = found.index(self._current)
        return at + 1 if at < len(found) and found.key(at) == self._current else None

    def _new_lines(self) -> int:
        """Count the lines that came since the reader paused and that are still below the screen."""
        if self.is_following:
            return 0
        rows = self.sight.rows
        seen = self._place[0] + len({row.serial for row in self._lines_layout.page(self._place)})
        return max(0, len(rows) - max(seen, rows.index(self._paused_at)))

    # selecting and copying

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """Return what is selected, as far as a clipboard takes it."""
        text, is_whole = log_copy.selected(self._lines_layout, selection)
        if not is_whole:
            self.say("more than a clipboard takes; ctrl+s saves all shown lines to a file")
        return text, "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        """Hold still while somebody selects."""
        if selection is not None:
            self.pause()
        self.refresh()

    def action_copy(self) -> None:
        """Copy the selection; without one the current line; without that what is on the screen."""
        if selected := self.screen.get_selected_text():
            self._copy(selected, selected.count("\n") + 1)
            return
        lines = {row.serial: row.line for row in self._lines_layout.page(self._place)}.values()
        chosen = [line for line in lines if line.key == self._current] or list(lines)
        self._copy("\n".join(line.text for line in chosen), len(chosen))

    def _copy(self, text: str, count: int) -> None:
        if len(text.encode()) > log_copy.CLIPBOARD:
            self.say("that is more than a clipboard takes; ctrl+s saves all shown lines to a file")
            return
        self.app.copy_to_clipboard(text)
        self.say(f"{count:,} {'line' if count == 1 else 'lines'} copied")

    def save(self, path: Path) -> None:
        """Write the shown lines to a new file of mode 0600, in the background; a note says where they are."""

        async def work() -> None:
            self.say(await log_copy.save(self.book, self.sight.rows, path))

        self.run_worker(work(), group="save", exclusive=True)

    # keys

    def on_key(self, event: KeyPress) -> None:
        """Let whoever is around the view have a key first."""
        if self.divert is not None and self.divert(event):
            event.prevent_default().stop()

    def action_follow(self) -> None:
        """Follow or pause."""
        (self.pause if self.is_following else self.follow)()

    def action_next_match(self, backwards: bool = False) -> None:
        """Go to the next match, round the end of the log if need be."""
        found = self.sight.found
        if found is None:
            self.say("nothing is looked for yet: / finds")
        elif not len(found):
            self.say("no match" if self.sight.finding is None else "no match yet")
        else:
            self._jump(found, backwards=backwards)

    def action_next_mark(self, backwards: bool = False) -> None:
        """Go to the next ready line or failure."""

        def arrive(rows: Rows) -> None:
            if len(rows):
                self._jump(rows, backwards=backwards)
            else:
                self.say("no ready line and no failure among the shown lines")

        self.sight.look(logscan.marked, arrive)
        self._work()

    def action_first_error(self) -> None:
        """Go to the first error of the shown lines."""

        def arrive(rows: Rows) -> None:
            if len(rows):
                self.go_to(rows.key(0))
            else:
                self.say("no error among the shown lines")

        self.sight.look(logscan.errors, arrive)
        self._work()

    def _jump_if_any(self, rows: Rows) -> None:
        """Go to the match that is next to the reader; whoever follows is nearest to the newest."""
        if len(rows):
            self._jump(rows, backwards=self.is_following, is_quiet=True)

    def _jump(self, rows: Rows, *, backwards: bool, is_quiet: bool = False) -> None:
        start = self._current
        visible = [row.line.key for row in self._lines_layout.page(self._place)]
        if start is None or (visible and not visible[0] <= start <= visible[-1]):
            # the reader has gone elsewhere since: from there
            if backwards:
                start = (visible[-1][0], visible[-1][1] + 1) if visible else (0, 0)
            else:
                start = (visible[0][0], visible[0][1] - 1) if visible else (0, 0)
        elif is_quiet:  # a pattern in the making may well be in the line where the reader is
            start = start[0], start[1] - 1
        key, went_round = next_of(rows, start, backwards=backwards)
        if went_round and not is_quiet:
            self.say("from the end again" if backwards else "from the beginning again")
        self.go_to(key)
        self._reveal(key)

    def _reveal(self, key: Key) -> None:
        """Bring what is sought in a line onto the screen, sideways."""
        line, pattern = self.book.line(key[1]), self.sight.pattern
        if line is None or pattern is None or self._lines_layout.is_wrapped:
            return
        text, width = line.text[:LONGEST_SHOWN], self._painter.text_width
        for start, stop in pattern.spans(text)[:1]:
            begin, end = cell_len(text[:start]), cell_len(text[:stop])
            if not self._left <= begin <= end < self._left + width:
                self._current_left = max(0, begin - width // 3) if end >= width else 0
                self._repaint()

    def action_wrap(self) -> None:
        """Wrap long lines, or not."""
        self._lines_layout.is_wrapped = not self._lines_layout.is_wrapped
        self._left = self._current_left = 0
        self._repaint()

    def action_times(self) -> None:
        """Show the time of each line, or not."""
        self._painter.has_times = not self._painter.has_times
        self._resized()

    def action_source(self) -> None:
        """Show all sources merged, then each alone."""
        if len(self.book.sources) == 1:
            self.say("this log has one source")
            return
        source = self.sight.source
        after = 0 if source is None else source + 1
        self.show_source(after if after < len(self.book.sources) else None)

    def action_clear(self) -> None:
        """End the search, then the filter; with neither the key is somebody else's."""
        if self.text_selection is not None:
            self.screen.clear_selection()
        elif self.sight.sought:
            self._current = None
            self.find("")
        elif self.sight.only:
            self.keep("")
        else:
            raise SkipAction

    def action_scroll_up(self) -> None:
        """A row up."""
        self._move(-1)

    def action_scroll_down(self) -> None:
        """A row down."""
        self._move(1)

    def action_page_up(self) -> None:
        """A screen up, less a row."""
        self._move(-max(1, self._lines_layout.height - 1))

    def action_page_down(self) -> None:
        """A screen down, less a row."""
        self._move(max(1, self._lines_layout.height - 1))

    def action_scroll_home(self) -> None:
        """To the first line that is kept."""
        self.pause()
        self._stand((0, 0))
        self._repaint()

    def action_scroll_end(self) -> None:
        """To the newest line, and follow."""
        self.follow()

    def action_scroll_left(self) -> None:
        """Towards the beginning of long lines."""
        self._shift(-_SIDEWAYS)

    def action_scroll_right(self) -> None:
        """Towards the end of long lines."""
        self._shift(_SIDEWAYS)

    def _shift(self, cells: int) -> None:
        if self._lines_layout.is_wrapped:
            return
        page = self._lines_layout.page(self._place)
        longest = max((cell_len(row.line.text[:LONGEST_SHOWN]) for row in page), default=0)
        most = max(0, longest - self._painter.text_width // 2)
        self._left = self._current_left = max(0, min(self._left + cells, max(most, self._left)))
        self._repaint()

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        """Up, as the wheel says; sideways with a modifier."""
        self._wheel(event, -1)

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        """Down, as the wheel says; sideways with a modifier."""
        self._wheel(event, 1)

    def on_mouse_scroll_left(self, event: MouseScrollLeft) -> None:
        """Left, as the wheel says."""
        event.prevent_default().stop()
        self._shift(-_SIDEWAYS)

    def on_mouse_scroll_right(self, event: MouseScrollRight) -> None:
        """Right, as the wheel says."""
        event.prevent_default().stop()
        self._shift(_SIDEWAYS)

    def _wheel(self, event: MouseScrollUp | MouseScrollDown, way: int) -> None:
        event.prevent_default().stop()
        if event.shift or event.ctrl:
            self._shift(way * _SIDEWAYS)
        else:
            self._move(way * _WHEEL)
