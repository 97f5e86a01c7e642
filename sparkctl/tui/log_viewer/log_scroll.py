"""The scrolling widget of a log: when it paints, its scrollbar, and the keys and wheel that scroll it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import ClassVar

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
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.timer import Timer
from textual.widget import Widget

from sparkctl.logs.buffer import LineKey, LogBuffer
from sparkctl.logs.search import LogFilter
from sparkctl.model.log_line import LogLine
from sparkctl.tui.log_viewer.line_layout import LogLayout, LogRow
from sparkctl.tui.log_viewer.line_renderer import STYLE_NAMES, LogLineRenderer, resolve_log_style
from sparkctl.tui.log_viewer.log_navigation import LogViewPosition

PAINT_SECONDS = 1 / 20  # s between two paints of new lines; a key paints at once
FLOOD_PAINT_SECONDS = 1 / 8  # the same where more than a screen of lines has arrived since
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
        Binding("space", "page_down", "page down", id="log.page_down", show=False),
        Binding("g", "scroll_home", "first line", id="log.home", show=False),
        Binding("G", "scroll_end", "last line", id="log.end", show=False),
    ]

    def __init__(
        self, book: LogBuffer, painter: LogLineRenderer, *, id: str | None = None, classes: str | None = None
    ) -> None:
        super().__init__(id=id, classes=classes)
        self.book = book
        self.sight = LogFilter(book)
        self.place = LogViewPosition(self.sight, LogLayout(book))
        self.painter = painter
        painter.has_sources = len(book.sources) > 1
        self._page: list[LogRow] | None = None
        self._painted = 0.0
        self._painted_end = 0
        self._paint_timer: Timer | None = None
        self._is_placing = False

    def report_state(self) -> None:
        """Publish the state of the view; subclasses implement this."""

    # --- new lines ---

    def add_lines(self, source: int, lines: Iterable[LogLine]) -> None:
        """Add lines of a source, in their order."""
        self.book.add_lines(source, lines)
        self.apply_new_lines()

    def apply_new_lines(self) -> None:
        """Show lines that were added to the buffer elsewhere."""
        self.sight.catch_up()
        if self._paint_timer is not None or not self.is_attached:
            return
        pause = PAINT_SECONDS if self.is_following else PAUSED_PAINT_SECONDS
        if self.is_following and self.book.spool.end - self._painted_end > self.place.layout.height:
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
        return self.place.is_following

    def go_to_line(self, key: LineKey) -> None:
        """Make a line the current one and scroll to it."""
        self.place.scroll_to_line(key)
        self.repaint()

    def follow_end(self) -> None:
        """Follow the newest line."""
        self.place.follow_end()
        self.repaint()

    def pause_following(self) -> None:
        """Stop following."""
        if self.place.pause_following():
            self.report_state()  # the painted rows do not change

    def _move_rows(self, rows: int) -> None:
        self.place.move_rows(rows)
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
        self._page = self.place.build_page()
        if before != self._page:
            self.refresh()

    def _refresh_rows(self) -> None:
        """Update position, scrollbar and state."""
        if self._paint_timer is not None:
            self._paint_timer.stop()
            self._paint_timer = None
        self._painted, self._painted_end = time.monotonic(), self.book.spool.end
        layout = self.place.layout
        if layout.height <= 0 and not self._measure_page():
            return
        self.place.restore_position()
        self._page = None
        # Not through the reactive: a new height of the log needs no new layout of the screen.
        self.set_reactive(Widget.virtual_size, Size(self.size.width, layout.find_bottom_position()[0] + layout.height))
        self._is_placing = True
        try:
            self._update_scrollbar()
            if round(self.scroll_y) != self.place.top[0]:
                self.scroll_y = self.scroll_target_y = self.place.top[0]
        finally:
            self._is_placing = False
        self.report_state()

    def _update_scrollbar(self) -> None:
        bar, whole = self.vertical_scrollbar, self.virtual_size.height
        known = bar.window_virtual_size
        is_near = self.is_following and 0.99 * whole <= known <= whole and bar.position >= known - bar.window_size
        if is_near and bar.window_size == self.place.layout.height:
            return  # the thumb would not move by a cell, and painting it costs as much as painting the log
        bar.window_virtual_size = whole
        bar.window_size = self.place.layout.height
        bar.position = self.place.top[0]

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Follow the scrollbar, or a selection that is dragged over the edge."""
        if self._is_placing:
            return
        super().watch_scroll_y(old_value, new_value)
        if round(new_value) == self.place.top[0]:
            return
        if self.scrollable_content_region.height != self.place.layout.height:
            return  # Textual adapts to a new size; `on_resize` restores the position
        if round(new_value) < self.place.top[0] or not self.is_following:
            self.place.scroll_to_position(self.place.layout.clamp_position((round(new_value), 0)))
        self.repaint()

    def render_line(self, y: int) -> Strip:
        """Return one row of the screen."""
        painter = self.painter
        if not painter.styles:
            painter.base = self.rich_style
            painter.styles = {
                name: resolve_log_style(name, self.get_component_rich_style(f"log-view--{name}"))
                for name in STYLE_NAMES
            }
        if self._page is None:
            self._page = self.place.build_page()
        if y >= len(self._page):
            return painter.render_blank_strip()
        row = self._page[y]
        above = self._page[y - 1].line if y else None
        return painter.render_strip(
            row,
            self.place.left_cell_of(row),
            painter.find_overlay_ranges(row, self.sight.pattern, self.text_selection),
            is_current=row.line.line_key == self.place.current,
            goes_on=above is not None and above.level is row.line.level and above.source == row.line.source,
        )

    def notify_style_update(self) -> None:
        """Use the colours of a new theme."""
        super().notify_style_update()
        self.painter.styles = {}  # `render_line` reads them again: the component styles are not updated yet

    def on_mount(self) -> None:
        """Fit to the size after the first layout.

        Asking for the size now would make Textual lay this out outside of the screen's own layout, which then sends no
        `Resize`.
        """
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
        """Fit the page to the current size."""
        self._measure_page()
        self.repaint()

    def _measure_page(self) -> bool:
        """Update the size of the page; return False before the first layout."""
        region = self.scrollable_content_region
        self.painter.width = max(1, region.width)
        self.place.resize_page(self.painter.text_width, region.height)
        return region.height > 0

    def action_scroll_up(self) -> None:
        """Scroll up by a row."""
        self._move_rows(-1)

    def action_scroll_down(self) -> None:
        """Scroll down by a row."""
        self._move_rows(1)

    def action_page_up(self) -> None:
        """Scroll up by a screen less a row."""
        self._move_rows(-max(1, self.place.layout.height - 1))

    def action_page_down(self) -> None:
        """Scroll down by a screen less a row."""
        self._move_rows(max(1, self.place.layout.height - 1))

    def action_scroll_home(self) -> None:
        """Scroll to the first line in the buffer."""
        self.place.scroll_to_position((0, 0))
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
        self.place.scroll_sideways(cells)
        self.repaint()

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        """Scroll up; sideways with shift or ctrl."""
        self._handle_wheel(event, -1)

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        """Scroll down; sideways with shift or ctrl."""
        self._handle_wheel(event, 1)

    def on_mouse_scroll_left(self, event: MouseScrollLeft) -> None:
        """Scroll left."""
        event.prevent_default().stop()
        self._shift_sideways(-_SIDEWAYS_CELLS)

    def on_mouse_scroll_right(self, event: MouseScrollRight) -> None:
        """Scroll right."""
        event.prevent_default().stop()
        self._shift_sideways(_SIDEWAYS_CELLS)

    def _handle_wheel(self, event: MouseScrollUp | MouseScrollDown, way: int) -> None:
        event.prevent_default().stop()
        if event.shift or event.ctrl:
            self._shift_sideways(way * _SIDEWAYS_CELLS)
        else:
            self._move_rows(way * _WHEEL_ROWS)
