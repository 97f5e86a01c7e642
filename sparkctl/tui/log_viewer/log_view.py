"""The log view: shows, searches, filters, copies and saves a log of up to a million lines, with thousands new per second.

`LogViewPosition` keeps the reader's position, `LogNavigator` moves it, `LogLineRenderer` renders a row.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import tzinfo
from pathlib import Path
from typing import ClassVar

from textual.actions import SkipAction
from textual.binding import Binding, BindingType
from textual.events import (
    Blur,
    DescendantBlur,
    DescendantFocus,
    Focus,
    MouseScrollDown,
    MouseScrollLeft,
    MouseScrollRight,
    MouseScrollUp,
)
from textual.events import Key as KeyPress
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip
from textual.timer import Timer
from textual.widget import Widget

from sparkctl.logs.buffer import BufferedLine, LineOrder, LogBuffer
from sparkctl.logs.search import LogFilter
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.text.log_line import LogLine
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.tui.log_viewer.line_renderer import STYLE_NAMES, LogLineRenderer, resolve_log_style
from sparkctl.tui.log_viewer.log_navigation import LogLayout, LogNavigator, LogRow, LogViewPosition


@dataclass(frozen=True, slots=True, kw_only=True)
class LogViewState:
    """What the status line shows.

    ``shown`` of ``total`` lines pass the filter and the choice of source; ``new`` arrived since the reader paused;
    ``hidden`` lines are requests of sparkctl itself, which the view leaves out.

    ``found`` is the number of matches, None without a search; ``at`` counts them from 1 and is None before the first jump.
    ``finding`` and ``narrowing`` are the progress (0 to 1) of search and filter, None when done. ``fault`` is the error of
    a pattern, ``note`` a short message. ``was_waited_for``: the first lines had enough time to arrive.
    """

    is_following: bool = True
    new: int = 0
    total: int = 0
    hidden: int = 0
    shown: int = 0
    find: str = ""
    found: int | None = None
    at: int | None = None
    finding: float | None = None
    only: str = ""
    narrowing: float | None = None
    fault: str | None = None
    is_wrapped: bool = False
    has_times: bool = False
    has_numbers: bool = False
    left: int = 0
    source: str | None = None
    sources: int = 1
    trouble: str | None = None
    note: str | None = None
    was_waited_for: bool = False


PAINT_SECONDS = 1 / 20  # s between two paints of new lines; a key paints at once
FLOOD_PAINT_SECONDS = 1 / 5  # the same where more than a screen of lines has arrived since: nobody can read them
PAUSED_PAINT_SECONDS = 1 / 4  # the same while paused: only a count changes
_WHEEL_ROWS = 3
_SIDEWAYS_CELLS = 12


class LogScrollView(ScrollView, can_focus=True):
    """Shows a `LogBuffer` at a `LogViewPosition`. Add at most some hundred lines per call at 20,000 lines a second."""

    DEFAULT_CSS = """
    LogScrollView {
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
        & > .log-view--dim { color: $foreground 65%; }
        & > .log-view--debug { color: $foreground 75%; }
        & > .log-view--warning { color: $text-warning; }
        & > .log-view--error { color: $text-error; }
        & > .log-view--failure { color: $text-error; text-style: bold; }
        & > .log-view--ready { color: $text-success; text-style: bold; }
        & > .log-view--match { color: $text-primary; text-style: bold underline; }
        & > .log-view--current { background: $primary 25%; text-style: bold; }
        & > .log-view--source-1 { color: $text-primary; }
        & > .log-view--source-2 { color: $foreground; text-style: bold; }
        & > .log-view--source-3 { color: $foreground 70%; }
        & > .log-view--selected { text-style: reverse; }
    }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {f"log-view--{name}" for name in STYLE_NAMES}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("k", "scroll_up", "up", id="log.up", show=False),
        Binding("j", "scroll_down", "down", id="log.down", show=False),
        Binding("space,ctrl+f", "page_down", "page down", id="log.page_down", show=False),
        Binding("ctrl+b", "page_up", "page up", id="log.page_up", show=False),
        Binding("ctrl+d", "half_page(1)", "half a page down", id="log.half_page_down", show=False),
        Binding("ctrl+u", "half_page(-1)", "half a page up", id="log.half_page_up", show=False),
        Binding("g", "scroll_home", "first line", id="log.home", show=False),
        Binding("G", "scroll_end", "last line", id="log.end", show=False),
    ]

    def __init__(self, buffer: LogBuffer, renderer: LogLineRenderer) -> None:
        super().__init__()
        self.buffer = buffer
        self.filter = LogFilter(buffer)
        self.position = LogViewPosition(self.filter, LogLayout(buffer))
        self.renderer = renderer
        renderer.has_sources = len(buffer.sources) > 1
        self._page: list[LogRow] | None = None
        self._painted = 0.0
        self._painted_end = 0
        self._paint_timer: Timer | None = None
        self._is_placing = False

    def report_state(self) -> None:
        """Publish the state of the view; subclasses implement this."""

    # --- new lines ---

    def add_lines(self, source: int, lines: Iterable[LogLine]) -> None:
        self.buffer.add_lines(source, lines)
        self.apply_new_lines()

    def apply_new_lines(self) -> None:
        """Show lines that were added to the buffer elsewhere."""
        self.filter.catch_up()
        if self._paint_timer is not None or not self.is_attached:
            return
        pause = PAINT_SECONDS if self.is_following else PAUSED_PAINT_SECONDS
        if self.is_following and self.buffer.spool.end - self._painted_end > self.position.layout.height:
            pause = FLOOD_PAINT_SECONDS
        wait = self._painted + pause - time.monotonic()
        if wait <= 0:
            self._paint_new_lines()
        else:
            self._paint_timer = self.set_timer(wait, self._paint_new_lines)

    # --- position ---

    @property
    def is_following(self) -> bool:
        """Whether the view follows the newest line."""
        return self.position.is_following

    def follow_end(self) -> None:
        self.position.follow_end()
        if self.is_attached:
            self._paint_new_lines()

    def pause_following(self) -> None:
        if self.position.pause_following():
            self.report_state()  # the painted rows do not change

    def _move_rows(self, rows: int) -> None:
        self.position.move_rows(rows)
        self.repaint()

    # painting

    def repaint(self) -> None:
        """Paint now, after a key or another change."""
        if self.is_attached:
            self._refresh_rows()
            self.refresh()

    def _paint_new_lines(self) -> None:
        """Paint new lines if they are visible; otherwise only the count changes."""
        before = self._page
        self._refresh_rows()
        self._page = self.position.build_page()
        if before != self._page:
            self.refresh()

    def _refresh_rows(self) -> None:
        """Update position, scrollbar and state."""
        if self._paint_timer is not None:
            self._paint_timer.stop()
            self._paint_timer = None
        self._painted, self._painted_end = time.monotonic(), self.buffer.spool.end
        layout = self.position.layout
        if layout.height <= 0 and not self._measure_page():
            return
        self.position.restore_position()
        self._page = None
        # Not through the reactive: a new height of the log needs no new layout of the screen.
        self.set_reactive(Widget.virtual_size, Size(self.size.width, layout.find_bottom_position()[0] + layout.height))
        self._is_placing = True
        try:
            self._update_scrollbar()
            if round(self.scroll_y) != self.position.top[0]:
                self.scroll_y = self.scroll_target_y = self.position.top[0]
        finally:
            self._is_placing = False
        self.report_state()

    def _update_scrollbar(self) -> None:
        bar, whole = self.vertical_scrollbar, self.virtual_size.height
        known = bar.window_virtual_size
        is_near = self.is_following and 0.99 * whole <= known <= whole and bar.position >= known - bar.window_size
        if is_near and bar.window_size == self.position.layout.height:
            return  # the thumb would not move by a cell, and painting it costs as much as painting the log
        bar.window_virtual_size = whole
        bar.window_size = self.position.layout.height
        bar.position = self.position.top[0]

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Follow the scrollbar, or a selection that is dragged over the edge."""
        if self._is_placing:
            return
        super().watch_scroll_y(old_value, new_value)
        if round(new_value) == self.position.top[0]:
            return
        if self.scrollable_content_region.height != self.position.layout.height:
            return  # Textual adapts to a new size; `on_resize` restores the position
        if round(new_value) < self.position.top[0] or not self.is_following:
            self.position.scroll_to_position(self.position.layout.clamp_position((round(new_value), 0)))
        self.repaint()

    def render_line(self, y: int) -> Strip:
        renderer = self.renderer
        if not renderer.styles:
            renderer.base = self.rich_style
            renderer.styles = {
                name: resolve_log_style(name, self.get_component_rich_style(f"log-view--{name}"))
                for name in STYLE_NAMES
            }
        if self._page is None:
            self._page = self.position.build_page()
        if y >= len(self._page):
            return renderer.render_blank_strip()
        row = self._page[y]
        above = self._page[y - 1].line if y else None
        return renderer.render_strip(
            row,
            self.position.left_cell_of(row),
            renderer.find_overlay_ranges(row, self.filter.pattern, self.text_selection),
            is_current=row.line.line_key == self.position.current,
            goes_on=above is not None and above.level is row.line.level and above.source == row.line.source,
        )

    def notify_style_update(self) -> None:
        """Use the colours of a new theme."""
        super().notify_style_update()
        self.renderer.styles = {}  # `render_line` reads them again: the component styles are not updated yet

    def on_mount(self) -> None:
        """Fit to the size after the first layout: asked now, Textual would lay this out alone and send no `Resize` later."""
        self.call_after_refresh(self.fit_to_size)

    def on_focus(self, event: Focus) -> None:
        """Take the focus without a repaint: Textual would look up every style and paint the whole log."""
        self._set_focus_state(event, DescendantFocus(self), has_focus=True)

    def on_blur(self, event: Blur) -> None:
        """Lose the focus without a repaint."""
        self._set_focus_state(event, DescendantBlur(self), has_focus=False)

    def _set_focus_state(self, event: Focus | Blur, news: DescendantFocus | DescendantBlur, *, has_focus: bool) -> None:
        event.prevent_default()
        self.set_reactive(Widget.has_focus, has_focus)
        if self.parent is not None:
            self.parent.post_message(news)

    def on_resize(self) -> None:
        """Keep the position in the new size."""
        self.fit_to_size()

    def fit_to_size(self) -> None:
        self._measure_page()
        self.repaint()

    def _measure_page(self) -> bool:
        """Update the size of the page; return False before the first layout."""
        region = self.scrollable_content_region
        self.renderer.width = max(1, region.width)
        self.position.resize_page(self.renderer.text_width, region.height)
        return region.height > 0

    def action_scroll_up(self) -> None:
        self._move_rows(-1)

    def action_scroll_down(self) -> None:
        self._move_rows(1)

    def action_page_up(self) -> None:
        """Scroll up by a screen less a row."""
        self._move_rows(-max(1, self.position.layout.height - 1))

    def action_page_down(self) -> None:
        """Scroll down by a screen less a row."""
        self._move_rows(max(1, self.position.layout.height - 1))

    def action_half_page(self, way: int) -> None:
        """Scroll down by half a screen, up where ``way`` is negative."""
        self._move_rows(way * max(1, self.position.layout.height // 2))

    def action_scroll_home(self) -> None:
        """Scroll to the first line in the buffer."""
        self.position.scroll_to_position((0, 0))
        self.repaint()

    def action_scroll_end(self) -> None:
        """Scroll to the newest line and follow."""
        self.follow_end()

    def action_scroll_left(self) -> None:
        """Scroll towards the beginning of long lines."""
        self._shift_sideways(-_SIDEWAYS_CELLS)

    def action_scroll_right(self) -> None:
        """Scroll towards the end of long lines."""
        self._shift_sideways(_SIDEWAYS_CELLS)

    def _shift_sideways(self, cells: int) -> None:
        self.position.scroll_sideways(cells)
        self.repaint()

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        """Scroll up; sideways with shift or ctrl."""
        self._handle_wheel(event, -1)

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        """Scroll down; sideways with shift or ctrl."""
        self._handle_wheel(event, 1)

    def on_mouse_scroll_left(self, event: MouseScrollLeft) -> None:
        event.prevent_default().stop()
        self._shift_sideways(-_SIDEWAYS_CELLS)

    def on_mouse_scroll_right(self, event: MouseScrollRight) -> None:
        event.prevent_default().stop()
        self._shift_sideways(_SIDEWAYS_CELLS)

    def _handle_wheel(self, event: MouseScrollUp | MouseScrollDown, way: int) -> None:
        event.prevent_default().stop()
        if event.shift or event.ctrl:
            self._shift_sideways(way * _SIDEWAYS_CELLS)
        else:
            self._move_rows(way * _WHEEL_ROWS)


MAX_CLIPBOARD_BYTES = 74_994  # bytes; as base64 just below 100,000, the limit of many terminals
_LINES_PER_WRITE = 256


def extract_selected_text(layout: LogLayout, selection: Selection) -> tuple[str, bool]:
    """Return the selected text, and whether it is complete: a clipboard has a limit.

    The rows of the selection are serial numbers of shown lines, its columns characters of their text.
    """
    rows = layout.rows
    first = 0 if selection.start is None else max(0, selection.start.y - rows.dropped)
    last = len(rows) - 1 if selection.end is None else min(len(rows) - 1, selection.end.y - rows.dropped)
    parts: list[str] = []
    size = 0
    for index in range(first, last + 1):
        line = layout.get_lines(index, 1)[0]
        span = selection.get_span(rows.dropped + index)
        start, stop = span if span is not None else (0, -1)
        parts.append(line.text[start:] if stop < 0 else line.text[start:stop])
        size += len(parts[-1].encode()) + 1
        if size > MAX_CLIPBOARD_BYTES:
            return "\n".join(parts[:-1]), False
    return "\n".join(parts), True


async def save_lines(buffer: LogBuffer, rows: LineOrder, path: Path) -> str:
    """Write the lines to a new file, as ``TIME [SOURCE] TEXT``; return a message about the result."""
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return f"not saved: {path.name} exists already"
    except OSError as broken:
        return f"not saved: {path}: {broken.strerror or broken}"
    count = 0
    try:
        with os.fdopen(file, "w", encoding="utf-8") as out:
            key, last = (rows.get_key(0), rows.get_key(len(rows) - 1)) if len(rows) else ((0, 0), (0, -1))
            while key <= last and (index := rows.find_index(key)) < len(rows):
                keys = [rows.get_key(at) for at in range(index, min(len(rows), index + _LINES_PER_WRITE))]
                lines = [line for each in keys if each <= last and (line := buffer.get_line(each[1])) is not None]
                out.writelines(f"{_format_saved_line(buffer, line)}\n" for line in lines)
                count += len(lines)
                key = keys[-1][0], keys[-1][1] + 1
                await asyncio.sleep(0)
    except OSError as broken:
        return f"only the first lines are in {path}: {broken.strerror or broken}"
    return f"{count:,} {'line' if count == 1 else 'lines'} in {path}"


def _format_saved_line(buffer: LogBuffer, line: BufferedLine) -> str:
    source = f"{buffer.sources[line.source]} " if len(buffer.sources) > 1 else ""
    return f"{line.when} {source}{line.text}"


SEARCH_SLICE_SECONDS = 0.003  # s of searching between two checks for keys
BACK_STEPS_SECONDS = (60, 300, 900, 3600)  # s before the newest line
NOTE_SECONDS = 6.0  # s for which a note is shown
LOAD_WAIT_SECONDS = 4.0  # s after which a log without lines counts as empty


class LogView(LogScrollView, can_focus=True):
    """Shows a `LogBuffer` with search, filter, copy and save. See `LogScrollView` about adding lines."""

    HELP = "Reads a log. `/` finds, `&` keeps matching lines only, `f` follows. A pattern may be `!text` or `/regex/`."
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "clear", "clear", id="log.clear", show=False),
    ]

    class Saved(Message):
        """The result of a save. ``words`` contains the whole path, which may not fit into the status line."""

        def __init__(self, words: str) -> None:
            super().__init__()
            self.words = words

    class Changed(Message):
        """The state of the view has changed."""

        def __init__(self, view: LogView, state: LogViewState) -> None:
            super().__init__()
            self.view = view
            self.state = state

        @property
        def control(self) -> LogView:
            """The view."""
            return self.view

        def can_replace(self, message: Message) -> bool:
            """Return whether a newer message of this view replaces this one."""
            return isinstance(message, LogView.Changed) and message.view is self.view

    def __init__(self, buffer: LogBuffer, *, zone: tzinfo | None) -> None:
        super().__init__(buffer, LogLineRenderer(buffer.sources, zone=zone))
        self.state = LogViewState()
        self.key_filter: Callable[[KeyPress], bool] | None = None  # called with every key; True: the key is handled
        self.navigator = LogNavigator(self.filter, self.position, self.show_note)
        self._note: str | None = None
        self._note_timer: Timer | None = None
        self._is_working = False
        self._was_waited_for = False
        self._backs = 0  # how many steps back in time were taken

    # --- filter, search and sources ---

    def set_filter(self, typed: str) -> None:
        """Show only matching lines; an empty pattern shows all. A faulty one shows its error and filters nothing."""
        self.filter.set_filter(sanitize_line(typed))
        self._run_search_step()

    def set_search(self, typed: str, *, jump: bool = False) -> None:
        """Search for a pattern; with ``jump`` go to the nearest match. An empty pattern ends the search."""
        self.navigator.search_pattern(sanitize_line(typed), jump=jump)
        self._run_search_step()

    def show_source(self, source: int | None) -> None:
        """Show one source alone, or all merged (None)."""
        self.filter.select_source(source)
        self.renderer.has_sources = source is None and len(self.buffer.sources) > 1
        self.fit_to_size()
        self._run_search_step()

    def show_evidence(self, source: int, line: int, others: Sequence[int] = ()) -> None:
        """Go to the line that a verdict names by its number in its own log, and show line numbers.

        Without a search, the keys for matches visit this line and the ``others`` that prove the verdict.
        """
        self.renderer.has_numbers = True
        self.renderer.proofs = frozenset((source, one) for one in (line, *others))
        self.navigator.go_to_evidence(source, line, others)
        self.renderer.has_sources = self.filter.source is None and len(self.buffer.sources) > 1
        self.fit_to_size()
        self._run_search_step()

    def save_position(self) -> None:
        """Save the position for `return_to_saved`."""
        self.position.save_position()

    def return_to_saved(self) -> None:
        self.position.return_to_saved()
        self.repaint()

    def _run_search_step(self) -> None:
        """Run the search and the filter: a short slice at once, the rest in a worker between keys."""
        if not self.is_attached:
            return
        rows = self.filter.rows
        if self.filter.run_for(SEARCH_SLICE_SECONDS) and not self._is_working:
            self._is_working = True
            self.run_worker(self._continue_search(), group="filter", exit_on_error=True)
        self._repaint_rows(rows)

    async def _continue_search(self) -> None:
        try:
            rows, is_left, reported = self.filter.rows, True, 0.0
            while is_left:
                await asyncio.sleep(0.001)
                is_left = self.filter.run_for(SEARCH_SLICE_SECONDS)
                if rows is not self.filter.rows or not is_left:
                    self._repaint_rows(rows)
                    rows = self.filter.rows
                elif time.monotonic() - reported > PAINT_SECONDS:
                    reported = time.monotonic()
                    self.report_state()  # shows the progress
        finally:
            self._is_working = False

    def _repaint_rows(self, before: LineOrder) -> None:
        if self.filter.rows is not before:
            self.screen.clear_selection()
        self.repaint()

    def on_mount(self) -> None:
        """Show the lines that are in the buffer already."""
        self._run_search_step()
        self.set_timer(LOAD_WAIT_SECONDS, self.mark_loaded)

    def mark_loaded(self) -> None:
        """Note that the first lines had enough time to arrive."""
        self._was_waited_for = True
        self.report_state()

    # --- state and notes ---

    def show_note(self, note: str) -> None:
        """Show a note in the status line for some seconds."""
        self._note = sanitize_line(note)
        if self._note_timer is not None:
            self._note_timer.stop()
        self._note_timer = self.set_timer(NOTE_SECONDS, self._clear_note)
        self.report_state()

    def _clear_note(self) -> None:
        self._note = self._note_timer = None
        self.report_state()

    def report_state(self) -> None:
        """Post `Changed` if the state has changed."""
        log_filter, found = self.filter, self.filter.found_rows
        state = LogViewState(
            is_following=self.is_following,
            new=self.position.count_new_lines(),
            total=len(self.buffer.spool),
            hidden=self.buffer.omitted if self.buffer.spool.first == 0 else 0,
            shown=len(log_filter.rows),
            find=log_filter.sought,
            found=None if found is None else len(found),
            at=self.position.match_index(),
            finding=log_filter.search_progress,
            only=log_filter.only,
            narrowing=log_filter.filter_progress,
            fault=log_filter.fault,
            is_wrapped=self.position.layout.is_wrapped,
            has_times=self.renderer.has_times,
            has_numbers=self.renderer.has_numbers,
            left=self.position.left,
            sources=len(self.buffer.sources),
            source=None if log_filter.source is None else self.buffer.sources[log_filter.source],
            trouble=self.buffer.spool.write_error,
            note=self._note,
            was_waited_for=self._was_waited_for,
        )
        if state != self.state:
            self.state = state
            self.post_message(self.Changed(self, state))

    # --- selecting, copying and saving ---

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """Return the selected text, up to the limit of the clipboard."""
        text, is_whole = extract_selected_text(self.position.layout, selection)
        if not is_whole:
            self.show_note("more than a clipboard takes; ctrl+s saves all shown lines to a file")
        return text, "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        """Stop following while text is selected."""
        if selection is not None:
            self.pause_following()
        self.refresh()

    def copy_lines(self) -> None:
        """Copy the selection, else the current line, else the visible lines."""
        if selected := self.screen.get_selected_text():
            self._copy_to_clipboard(selected, selected.count("\n") + 1)
            return
        lines = {row.serial: row.line for row in self.position.build_page()}.values()
        chosen = [line for line in lines if line.line_key == self.position.current] or list(lines)
        self._copy_to_clipboard("\n".join(line.text for line in chosen), len(chosen))

    def _copy_to_clipboard(self, text: str, count: int) -> None:
        if len(text.encode()) > MAX_CLIPBOARD_BYTES:
            self.show_note("that is more than a clipboard takes; ctrl+s saves all shown lines to a file")
            return
        self.app.copy_to_clipboard(text)
        self.show_note(f"{count:,} {'line' if count == 1 else 'lines'} copied")

    def save_to_file(self, path: Path) -> None:
        """Write the shown lines to a new file of mode 0600 in the background; a note shows its path."""

        async def write_and_report() -> None:
            words = await save_lines(self.buffer, self.filter.rows, path)
            self.show_note(words)
            self.post_message(LogView.Saved(words))

        self.run_worker(write_and_report(), group="save", exclusive=True)

    # --- keys ---

    def on_key(self, event: KeyPress) -> None:
        """Let `key_filter` handle a key first."""
        if self.key_filter is not None and self.key_filter(event):
            event.prevent_default().stop()

    def toggle_following(self) -> None:
        (self.pause_following if self.is_following else self.follow_end)()

    def go_to_next_match(self, backwards: bool = False) -> None:
        """Go to the next match, or without a search to the next line that proves the verdict."""
        self.navigator.go_to_match(backwards=backwards)
        self._run_search_step()
        self.repaint()

    def go_to_next_mark(self, backwards: bool = False) -> None:
        """Go to the next ready line or failure."""
        self.navigator.go_to_marker(backwards=backwards)
        self._run_search_step()

    def go_to_first_error(self) -> None:
        self.navigator.go_to_first_error()
        self._run_search_step()

    def go_further_back(self) -> None:
        """Go back to where the last minute of the log begins; each further call goes further back, at last to the first line."""
        if self.is_following:
            self._backs = 0
        if self._backs < len(BACK_STEPS_SECONDS):
            self.navigator.go_back_seconds(BACK_STEPS_SECONDS[self._backs])
        else:
            self.position.scroll_to_position((0, 0))
            self.show_note("the first line that is kept")
        self._backs = (self._backs + 1) % (len(BACK_STEPS_SECONDS) + 1)
        self.repaint()

    def adopt_settings(self, other: LogView) -> None:
        """Wrap lines, show times and numbers, and filter as another view does."""
        self.position.layout.is_wrapped = other.position.layout.is_wrapped
        self.renderer.has_times, self.renderer.has_numbers = other.renderer.has_times, other.renderer.has_numbers
        self.filter.set_filter(other.filter.only)

    def toggle_wrap(self) -> None:
        """Wrap long lines, or not."""
        self.position.toggle_wrap()
        self.repaint()

    def toggle_times(self) -> None:
        """Show the time of each line, or hide it."""
        self.renderer.has_times = not self.renderer.has_times
        self.fit_to_size()

    def toggle_numbers(self) -> None:
        """Show the number of each line in its own log, as verdicts name it, or hide it."""
        self.renderer.has_numbers = not self.renderer.has_numbers
        self.fit_to_size()

    def show_next_source(self) -> None:
        """Show all sources merged, then each alone."""
        if len(self.buffer.sources) == 1:
            self.show_note("this is a single log; M shows more logs")
            return
        source = self.filter.source
        after = 0 if source is None else source + 1
        self.show_source(after if after < len(self.buffer.sources) else None)

    def action_clear(self) -> None:
        """Clear the selection, else the search, else the filter; without any leave the key to others."""
        if self.text_selection is not None:
            self.screen.clear_selection()
        elif self.filter.sought:
            self.position.current = None
            self.set_search("")
        elif self.filter.only:
            self.set_filter("")
        else:
            raise SkipAction
