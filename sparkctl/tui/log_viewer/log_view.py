"""The log view: shows, searches, filters, copies and saves a log of up to a million lines, with thousands new per second.

`LogViewPosition` keeps the reader's position, `LogNavigator` moves it, `LogLineRenderer` renders a row.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from datetime import tzinfo
from pathlib import Path
from typing import ClassVar

from textual.actions import SkipAction
from textual.binding import Binding, BindingType
from textual.events import Key as KeyPress
from textual.message import Message
from textual.selection import Selection
from textual.timer import Timer

from sparkctl.logs.buffer import BufferedLine, LineOrder, LogBuffer
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.tui.log_viewer.line_layout import LogLayout
from sparkctl.tui.log_viewer.line_renderer import LogLineRenderer
from sparkctl.tui.log_viewer.log_navigation import LogNavigator
from sparkctl.tui.log_viewer.log_scroll import PAINT_SECONDS, LogScrollView
from sparkctl.tui.log_viewer.status_line import LogViewState

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


async def save_lines(book: LogBuffer, rows: LineOrder, path: Path) -> str:
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
                lines = [line for each in keys if each <= last and (line := book.get_line(each[1])) is not None]
                out.writelines(f"{_format_saved_line(book, line)}\n" for line in lines)
                count += len(lines)
                key = keys[-1][0], keys[-1][1] + 1
                await asyncio.sleep(0)
    except OSError as broken:
        return f"only the first lines are in {path}: {broken.strerror or broken}"
    return f"{count:,} {'line' if count == 1 else 'lines'} in {path}"


def _format_saved_line(book: LogBuffer, line: BufferedLine) -> str:
    source = f"{book.sources[line.source]} " if len(book.sources) > 1 else ""
    return f"{line.when} {source}{line.text}"


SEARCH_SLICE_SECONDS = 0.003  # s of searching between two checks for keys
BACK_STEPS_SECONDS = (60, 300, 900, 3600)  # s before the newest line
NOTE_SECONDS = 6.0  # s for which a note is shown
LOAD_WAIT_SECONDS = 4.0  # s after which a log without lines counts as empty


class LogView(LogScrollView, can_focus=True):
    """Shows a `LogBuffer` with search, filter, copy and save. See `LogScrollView` about adding lines."""

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
        Binding("number_sign", "numbers", "numbers", id="log.numbers", show=False),
        Binding("T", "back", "further back", id="log.back", show=False),
        Binding("y", "copy", "copy", id="log.copy", show=False),
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

    def __init__(
        self,
        book: LogBuffer,
        *,
        ascii_only: bool = False,
        zone: tzinfo | None = None,
        id: str | None = None,
        classes: str | None = None,
    ) -> None:
        super().__init__(book, LogLineRenderer(book.sources, ascii_only=ascii_only, zone=zone), id=id, classes=classes)
        self.state = LogViewState()
        self.key_filter: Callable[[KeyPress], bool] | None = None  # called with every key; True: the key is handled
        self.seek = LogNavigator(self.sight, self.place, self.show_note)
        self._note: str | None = None
        self._note_timer: Timer | None = None
        self._is_working = False
        self._was_waited_for = False
        self._backs = 0  # how many steps back in time were taken

    # --- filter, search and sources ---

    def set_filter(self, typed: str) -> None:
        """Show only matching lines; an empty pattern shows all. A faulty one shows its error and filters nothing."""
        self.sight.set_filter(sanitize_line(typed))
        self._run_search_step()

    def set_search(self, typed: str, *, jump: bool = False) -> None:
        """Search for a pattern; with ``jump`` go to the nearest match. An empty pattern ends the search."""
        self.seek.search_pattern(sanitize_line(typed), jump=jump)
        self._run_search_step()

    def show_source(self, source: int | None) -> None:
        """Show one source alone, or all merged (None)."""
        self.sight.select_source(source)
        self.painter.has_sources = source is None and len(self.book.sources) > 1
        self.fit_to_size()
        self._run_search_step()

    def show_evidence(self, source: int, line: int, others: Sequence[int] = ()) -> None:
        """Go to the line that a verdict names by its number in its own log, and show line numbers.

        Without a search, the keys for matches visit this line and the ``others`` that prove the verdict.
        """
        self.painter.has_numbers = True
        self.painter.proofs = frozenset((source, one) for one in (line, *others))
        self.seek.go_to_evidence(source, line, others)
        self.painter.has_sources = self.sight.source is None and len(self.book.sources) > 1
        self.fit_to_size()
        self._run_search_step()

    def save_position(self) -> None:
        """Save the position for `return_to_saved`."""
        self.place.save_position()

    def return_to_saved(self) -> None:
        """Return to the saved position."""
        self.place.return_to_saved()
        self.repaint()

    def _run_search_step(self) -> None:
        """Run the search and the filter: a short slice at once, the rest in a worker between keys."""
        if not self.is_attached:
            return
        rows = self.sight.rows
        if self.sight.run_for(SEARCH_SLICE_SECONDS) and not self._is_working:
            self._is_working = True
            self.run_worker(self._continue_search(), group="sight", exit_on_error=True)
        self._repaint_rows(rows)

    async def _continue_search(self) -> None:
        try:
            rows, is_left, reported = self.sight.rows, True, 0.0
            while is_left:
                await asyncio.sleep(0.001)
                is_left = self.sight.run_for(SEARCH_SLICE_SECONDS)
                if rows is not self.sight.rows or not is_left:
                    self._repaint_rows(rows)
                    rows = self.sight.rows
                elif time.monotonic() - reported > PAINT_SECONDS:
                    reported = time.monotonic()
                    self.report_state()  # shows the progress
        finally:
            self._is_working = False

    def _repaint_rows(self, before: LineOrder) -> None:
        if self.sight.rows is not before:
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
        sight, found = self.sight, self.sight.found_rows
        state = LogViewState(
            is_following=self.is_following,
            new=self.place.count_new_lines(),
            total=len(self.book.spool),
            hidden=self.book.omitted if self.book.spool.first == 0 else 0,
            shown=len(sight.rows),
            find=sight.sought,
            found=None if found is None else len(found),
            at=self.place.match_index(),
            finding=sight.search_progress,
            only=sight.only,
            narrowing=sight.filter_progress,
            fault=sight.fault,
            is_wrapped=self.place.layout.is_wrapped,
            has_times=self.painter.has_times,
            has_numbers=self.painter.has_numbers,
            left=self.place.left,
            sources=len(self.book.sources),
            source=None if sight.source is None else self.book.sources[sight.source],
            trouble=self.book.spool.write_error,
            note=self._note,
            was_waited_for=self._was_waited_for,
        )
        if state != self.state:
            self.state = state
            self.post_message(self.Changed(self, state))

    # --- selecting, copying and saving ---

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """Return the selected text, up to the limit of the clipboard."""
        text, is_whole = extract_selected_text(self.place.layout, selection)
        if not is_whole:
            self.show_note("more than a clipboard takes; ctrl+s saves all shown lines to a file")
        return text, "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        """Stop following while text is selected."""
        if selection is not None:
            self.pause_following()
        self.refresh()

    def action_copy(self) -> None:
        """Copy the selection, else the current line, else the visible lines."""
        if selected := self.screen.get_selected_text():
            self._copy_to_clipboard(selected, selected.count("\n") + 1)
            return
        lines = {row.serial: row.line for row in self.place.build_page()}.values()
        chosen = [line for line in lines if line.line_key == self.place.current] or list(lines)
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
            words = await save_lines(self.book, self.sight.rows, path)
            self.show_note(words)
            self.post_message(LogView.Saved(words))

        self.run_worker(write_and_report(), group="save", exclusive=True)

    # --- keys ---

    def on_key(self, event: KeyPress) -> None:
        """Let `key_filter` handle a key first."""
        if self.key_filter is not None and self.key_filter(event):
            event.prevent_default().stop()

    def action_follow(self) -> None:
        """Follow or pause."""
        (self.pause_following if self.is_following else self.follow_end)()

    def action_next_match(self, backwards: bool = False) -> None:
        """Go to the next match, or without a search to the next line that proves the verdict."""
        self.seek.go_to_match(backwards=backwards)
        self._run_search_step()
        self.repaint()

    def action_next_mark(self, backwards: bool = False) -> None:
        """Go to the next ready line or failure."""
        self.seek.go_to_marker(backwards=backwards)
        self._run_search_step()

    def action_first_error(self) -> None:
        """Go to the first error of the shown lines."""
        self.seek.go_to_first_error()
        self._run_search_step()

    def action_back(self) -> None:
        """Go back to where the last minute of the log begins; each further call goes further back, at last to the first line."""
        if self.is_following:
            self._backs = 0
        if self._backs < len(BACK_STEPS_SECONDS):
            self.seek.go_back_seconds(BACK_STEPS_SECONDS[self._backs])
        else:
            self.place.scroll_to_position((0, 0))
            self.show_note("the first line that is kept")
        self._backs = (self._backs + 1) % (len(BACK_STEPS_SECONDS) + 1)
        self.repaint()

    def action_wrap(self) -> None:
        """Wrap long lines, or not."""
        self.place.toggle_wrap()
        self.repaint()

    def action_times(self) -> None:
        """Show the time of each line, or hide it."""
        self.painter.has_times = not self.painter.has_times
        self.fit_to_size()

    def action_numbers(self) -> None:
        """Show the number of each line in its own log, as verdicts name it, or hide it."""
        self.painter.has_numbers = not self.painter.has_numbers
        self.fit_to_size()

    def action_source(self) -> None:
        """Show all sources merged, then each alone."""
        if len(self.book.sources) == 1:
            self.show_note("this is a single log; M shows more logs")
            return
        source = self.sight.source
        after = 0 if source is None else source + 1
        self.show_source(after if after < len(self.book.sources) else None)

    def action_clear(self) -> None:
        """Clear the selection, else the search, else the filter; without any leave the key to others."""
        if self.text_selection is not None:
            self.screen.clear_selection()
        elif self.sight.sought:
            self.place.current = None
            self.set_search("")
        elif self.sight.only:
            self.set_filter("")
        else:
            raise SkipAction
