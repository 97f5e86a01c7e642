"""The log pane that a screen mounts: a log view with its prompt and its status line."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from functools import partial
from pathlib import Path

from rich.cells import cell_len
from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.events import Key
from textual.message import Message
from textual.widget import Widget

from sparkctl.commands.actions import ActionId
from sparkctl.logs.buffer import LogBuffer
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.text.sanitize import truncate_text
from sparkctl.tui.log_viewer.log_view import LogView, LogViewState
from sparkctl.tui.search_prompt import PromptMode, SearchPrompt

_PROMPT_MODES: dict[str, PromptMode] = {ActionId.LOG_FIND: PromptMode.FIND, ActionId.LOG_ONLY: PromptMode.ONLY}
_MAX_PATTERN_COLUMNS = 24
_GAP = "   "


@dataclass(frozen=True, slots=True)
class StatusSegment:
    """A part of the line. The parts of the highest ``rank`` are left out first where the line is too narrow."""

    text: str
    style: str
    rank: int = 0


def build_mode_segments(state: LogViewState) -> list[StatusSegment]:
    """Return the mode and the number of lines, which are always shown."""
    if state.is_following:
        mode = [StatusSegment("● following", "$text-success")]
    else:
        new = f" +{state.new:,} new" if state.new else ""
        mode = [StatusSegment(f"‖ paused{new}", "bold $text-warning")]
    if not state.total:
        count = "no line yet" if state.was_waited_for else "reading ..."
    elif state.hidden and state.shown == state.total:
        count = f"{state.total:,} of {state.total + state.hidden:,}, own requests hidden"
    elif state.shown == state.total:
        count = f"{state.total:,} {'line' if state.total == 1 else 'lines'}"
    else:
        count = f"{state.shown:,} of {state.total:,}"
    return [*mode, StatusSegment(count, "$foreground 75%", rank=4)]


def build_setting_segments(state: LogViewState) -> list[StatusSegment]:
    """Return the search, the filter, the source and the settings."""
    found: list[StatusSegment] = []
    if state.find:
        found.append(
            StatusSegment(f"find {truncate_text(state.find, _MAX_PATTERN_COLUMNS)}", "$foreground 75%", rank=5)
        )
        if state.found is not None:
            found.append(StatusSegment(_format_match_count(state), "bold $text-primary", rank=1))
    if state.only:
        share = "" if state.narrowing is None else f" {state.narrowing:.0%}"
        found.append(
            StatusSegment(f"only {truncate_text(state.only, _MAX_PATTERN_COLUMNS)}{share}", "$text-primary", rank=2)
        )
    if state.source is not None:
        found.append(StatusSegment(state.source, "$text-primary", rank=3))
    elif state.sources > 1:
        found.append(StatusSegment(f"{state.sources} by time", "$foreground 75%", rank=6))
    if state.left:
        found.append(StatusSegment(f"→ {state.left}", "$foreground 75%", rank=6))
    set_to = (("wrap", state.is_wrapped), ("times", state.has_times), ("numbers", state.has_numbers))
    settings = [name for name, is_on in set_to if is_on]
    found += [StatusSegment(name, "$foreground 75%", rank=7) for name in settings]
    if state.trouble is not None:
        found.append(StatusSegment("▲ in memory only", "$text-warning", rank=2))
    return found


def _format_match_count(state: LogViewState) -> str:
    share = "" if state.finding is None else f" {state.finding:.0%}"
    if not state.found:
        return f"no match{share}" if not share else share.strip()
    return f"{state.at if state.at is not None else '—'}/{state.found:,}{share}"


def format_status_line(state: LogViewState, width: int) -> Content:
    """Return the whole line; a note, or the error of a pattern, takes the place of the settings."""
    left = build_mode_segments(state)
    right = build_setting_segments(state)
    if state.fault is not None:
        right = [StatusSegment(f"▲ {state.fault}: filters nothing", "$text-error")]
    elif state.note is not None:
        right = [StatusSegment(state.note, "bold"), *(piece for piece in right if piece.text != state.note)]
    room = width - 2
    while _measure_segments(left) + _measure_segments(right) + len(_GAP) > room:
        least = max((piece for piece in (*left, *right)), key=lambda piece: piece.rank)
        if least.rank == 0:
            break
        (left if least in left else right).remove(least)
    over = _measure_segments(left) + _measure_segments(right) + len(_GAP) - room
    if right and right[0].rank == 0 and over > 0:  # a note or an error
        right[0] = StatusSegment(truncate_text(right[0].text, max(1, len(right[0].text) - over)), right[0].style)
    space = " " * max(1, room - _measure_segments(left) - _measure_segments(right))
    return Content.assemble(" ", *_join_segments(left), space, *_join_segments(right), " ")


def _measure_segments(pieces: list[StatusSegment]) -> int:
    return sum(cell_len(piece.text) for piece in pieces) + len(_GAP) * max(0, len(pieces) - 1)


def _join_segments(pieces: list[StatusSegment]) -> list[str | tuple[str, str]]:
    found: list[str | tuple[str, str]] = []
    for piece in pieces:
        found += [_GAP] if found else []
        found.append((piece.text, piece.style))
    return found


class LogStatusLine(Widget):
    """Shows a `LogViewState` on one line."""

    DEFAULT_CSS = """
    LogStatusLine { height: 1; width: 1fr; background: $foreground 6%; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._state = LogViewState()

    def show_state(self, state: LogViewState) -> None:
        if state != self._state:
            self._state = state
            self.refresh()

    def render(self) -> Content:
        return format_status_line(self._state, self.size.width)


def _utc_now() -> datetime:
    return datetime.now(UTC)


class LogPane(Vertical):
    """A log view with prompt and status line. Saved files are named after ``instance`` and go to ``directory``."""

    class PatternChanged(Message):
        """What is searched for, or shown alone, is another: keys of the search appear or go."""

    BLANK = True  # view, prompt and status line cover it
    DEFAULT_CSS = """
    LogPane { height: 1fr; }
    LogPane > LogView { height: 1fr; }
    """

    def __init__(
        self,
        buffer: LogBuffer,
        *,
        instance: str = "log",
        directory: Path | None = None,
        zone: tzinfo | None = None,
        now: Callable[[], datetime] = _utc_now,
    ) -> None:
        super().__init__()
        self.view = LogView(buffer, zone=zone)
        self.view.key_filter = self._route_key_to_prompt
        self._status = LogStatusLine()
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
        mode = None if active is None else _PROMPT_MODES.get(active.binding.id or "")
        if mode is None:
            return False
        self.open_prompt(mode)
        return True

    def _apply_pattern(self, mode: PromptMode, text: str, *, jump: bool = False) -> None:
        if mode is PromptMode.FIND:
            self.view.set_search(text, jump=jump)
        else:
            self.view.set_filter(text)
        self.post_message(self.PatternChanged())

    def action_handlers(self) -> dict[ActionId, Callable[[], None]]:
        """Return what the actions of a log do, by their ids."""
        view = self.view
        return {
            ActionId.LOG_FOLLOW: view.toggle_following,
            ActionId.LOG_FIND: partial(self.open_prompt, PromptMode.FIND),
            ActionId.LOG_ONLY: partial(self.open_prompt, PromptMode.ONLY),
            ActionId.LOG_NEXT: view.go_to_next_match,
            ActionId.LOG_PREVIOUS: partial(view.go_to_next_match, backwards=True),
            ActionId.LOG_FIRST_ERROR: view.go_to_first_error,
            ActionId.LOG_NEXT_MARK: view.go_to_next_mark,
            ActionId.LOG_PREVIOUS_MARK: partial(view.go_to_next_mark, backwards=True),
            ActionId.LOG_WRAP: view.toggle_wrap,
            ActionId.LOG_TIMES: view.toggle_times,
            ActionId.LOG_NUMBERS: view.toggle_numbers,
            ActionId.LOG_BACK: view.go_further_back,
            ActionId.LOG_SOURCE: view.show_next_source,
            ActionId.LOG_COPY: view.copy_lines,
            ActionId.LOG_SAVE: self.save_lines,
        }

    def open_prompt(self, mode: PromptMode) -> None:
        self.view.save_position()
        self._has_typed = False
        self._prompt.open_prompt(mode, self.view.filter.sought if mode is PromptMode.FIND else self.view.filter.only)

    def save_lines(self) -> None:
        """Save the shown lines to a file named after the instance and the time."""
        stamp = self._now().astimezone(self._zone).strftime("%Y%m%d-%H%M%S")
        name = "".join(char if char.isalnum() or char in "-_." else "-" for char in self._instance).lstrip(".") or "log"
        try:
            folder = self._directory or Path.cwd()
        except OSError as gone:
            self.view.show_note(f"not saved: the directory that sparkctl was started in: {gone.strerror or gone}")
        else:
            self.view.save_to_file(folder / f"{name}-{stamp}.log")
