"""The log pane that a screen mounts: a log view with its prompt and its status line."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.events import Key
from textual.scrollbar import ScrollBarRender

from sparkctl.logs.buffer import LogBuffer
from sparkctl.tui.log_viewer.log_view import LogView
from sparkctl.tui.log_viewer.status_line import LogStatusLine
from sparkctl.tui.widgets.search_prompt import PromptMode, SearchPrompt


def _utc_now() -> datetime:
    return datetime.now(UTC)


class AsciiScrollBarRender(ScrollBarRender):
    """A scrollbar without the block characters that draw its ends in eighths of a cell."""

    VERTICAL_BARS: ClassVar[list[str]] = [" "] * 8
    HORIZONTAL_BARS: ClassVar[list[str]] = [" "] * 8


class LogPane(Vertical):
    """A log view with prompt and status line. Saved files are named after ``instance`` and go to ``directory``."""

    DEFAULT_CSS = """
    LogPane { height: 1fr; }
    LogPane > LogView { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "ask('find')", "find", id="log.find"),
        Binding("ampersand", "ask('only')", "only", id="log.only"),
        Binding("ctrl+s", "save", "save", id="log.save", show=False),
    ]

    def __init__(
        self,
        book: LogBuffer,
        *,
        instance: str = "log",
        directory: Path | None = None,
        ascii_only: bool = False,
        zone: tzinfo | None = None,
        now: Callable[[], datetime] = _utc_now,
        id: str | None = None,
    ) -> None:
        super().__init__(id=id)
        self.view = LogView(book, ascii_only=ascii_only, zone=zone)
        self.view.key_filter = self._route_key_to_prompt
        self._ascii_only = ascii_only
        self._status = LogStatusLine(ascii_only=ascii_only)
        self._prompt = SearchPrompt()
        self._has_typed = False  # whether anything was typed since the prompt opened
        self._instance = instance
        self._directory = directory
        self._zone = zone
        self._now = now

    def compose(self) -> ComposeResult:
        """Create the log view, the prompt and the status line."""
        yield self.view
        yield self._prompt
        yield self._status

    def on_mount(self) -> None:
        """Use ASCII scrollbars where the terminal needs them."""
        if self._ascii_only:
            for bar in (self.view.vertical_scrollbar, self.view.horizontal_scrollbar):
                bar.renderer = AsciiScrollBarRender  # type: ignore[misc]

    @on(LogView.Changed)
    def _show_state(self, event: LogView.Changed) -> None:
        event.stop()
        self._status.show_state(event.state)

    @on(SearchPrompt.Typed)
    def _apply_typed_pattern(self, event: SearchPrompt.Typed) -> None:
        event.stop()
        self._has_typed = True
        if event.mode is PromptMode.FIND:
            self.view.return_to_saved()  # every letter searches from the position before the prompt
        self._apply_pattern(event.mode, event.text, jump=True)

    @on(SearchPrompt.Closed)
    def _handle_prompt_close(self, event: SearchPrompt.Closed) -> None:
        event.stop()
        if not event.is_kept and self._has_typed:  # without typed text nothing has changed
            self._apply_pattern(event.mode, event.text)
            if event.mode is PromptMode.FIND:
                self.view.return_to_saved()

    def _route_key_to_prompt(self, event: Key) -> bool:
        """Handle the key that opens the prompt, and keys typed right after it; return whether the key was handled.

        Textual looks up a binding when its key has bubbled up to the app; the next letters would reach the log before that.
        """
        if self._prompt.is_open:
            self._prompt.accept_key(event)
            return True
        active = self.screen.active_bindings.get(event.key)
        if active is None or active.node is not self or not active.binding.action.startswith("ask("):
            return False
        self.action_ask(active.binding.action.split("'")[1])
        return True

    def _apply_pattern(self, mode: PromptMode, text: str, *, jump: bool = False) -> None:
        if mode is PromptMode.FIND:
            self.view.set_search(text, jump=jump)
        else:
            self.view.set_filter(text)

    def action_ask(self, what: str) -> None:
        """Open the prompt to find or to filter."""
        mode = PromptMode(what)
        self.view.save_position()
        self._has_typed = False
        self._prompt.open_prompt(mode, self.view.sight.sought if mode is PromptMode.FIND else self.view.sight.only)

    def action_save(self) -> None:
        """Save the shown lines to a file named after the instance and the time."""
        stamp = self._now().astimezone(self._zone).strftime("%Y%m%d-%H%M%S")
        name = "".join(char if char.isalnum() or char in "-_." else "-" for char in self._instance).lstrip(".") or "log"
        try:
            folder = self._directory or Path.cwd()
        except OSError as gone:
            self.view.show_note(f"not saved: the directory that sparkctl was started in: {gone.strerror or gone}")
        else:
            self.view.save_to_file(folder / f"{name}-{stamp}.log")
