"""The `:` line: an input field for commands, with completion and the lines typed before."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.screen import ModalScreen
from textual.widgets import Input

from sparkctl.tui.key_hints import press_hint_key
from sparkctl.tui.text_surface import TextSurface
from sparkctl.views.event_log_view import render_refused_line
from sparkctl.views.text.styled_text import (
    Span,
    TextRow,
    TextStyle,
    find_span,
    join_text,
    make_row,
    measure_row,
    measure_text,
    sanitize_span,
    truncate_row,
)

if TYPE_CHECKING:
    from sparkctl.errors import SparkctlError
    from sparkctl.tui.panel import Panel
    from sparkctl.tui.panel_options import CommandParser

_MAX_COMPLETIONS = 6


class CommandLineDialog(ModalScreen[str]):
    """Returns the typed line; None where it was cancelled.

    ``refused`` is the error of ``line``, which is shown to be edited. ``instances`` returns the instance names that a verb
    may take, the selected one first.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", show=False),
        Binding("tab", "complete", show=False, priority=True),
        Binding("up", "earlier(-1)", show=False, priority=True),
        Binding("down", "earlier(1)", show=False, priority=True),
        Binding("ctrl+q", "app.quit", show=False),
    ]

    def __init__(
        self,
        commands: CommandParser,
        typed: Sequence[str],
        line: str,
        refused: SparkctlError | None,
        instances: Callable[[str], Sequence[str]] = lambda verb: (),
    ) -> None:
        super().__init__()
        self._refused = refused
        self._instances = instances
        self._commands, self._typed, self._begun = commands, typed, line
        self._at = len(typed)
        self._found: tuple[str, ...] = ()
        self._cycle = -1
        self._stem = ""
        self._first, self._painted = 0, make_row()  # the first visible completion, and their row

    def compose(self) -> ComposeResult:
        """Create the error, the completions and the input field."""
        panel: Panel = self.app  # type: ignore[assignment]
        yield TextSurface(panel.tones, id="refused")
        yield TextSurface(panel.tones, id="found")
        with Horizontal():
            yield TextSurface(panel.tones, [make_row(Span(" :", TextStyle.KEY))], id="colon")
            yield Input(self._begun, placeholder="up qwen36 --node spark1", compact=True, select_on_focus=False)

    def on_mount(self) -> None:
        """Show the completions and the error of a refused line."""
        self._show_refusal()
        self._show_completions(self._begun)

    def on_resize(self, event: events.Resize) -> None:
        """Draw both rows in their new width."""
        self._show_refusal()
        self._paint_completions()

    def _show_refusal(self) -> None:
        surface = self.query_one("#refused", TextSurface)
        surface.display = self._refused is not None
        if self._refused is not None:
            wide, high = self.app.size
            rows = render_refused_line(self._refused.message, self._refused.hint, wide, max(1, high // 2))
            surface.styles.height = len(rows)
            surface.set_rows(rows)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Update the completions, except after a completion was inserted."""
        if event.value != self._apply_completion():
            self._show_completions(event.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip().removeprefix(":"))

    def action_complete(self) -> None:
        """Insert what all completions begin with; where that is typed already, the next completion."""
        if not self._found:
            return
        typed, common = self.query_one(Input).value[len(self._stem) :], _find_common_start(self._found)
        if typed and self._cycle < 0 and len(self._found) > 1 and len(common) > len(typed) and common.startswith(typed):
            self._set_line(f"{self._stem}{common}")
        else:
            self._insert_completion((self._cycle + 1) % len(self._found))

    def on_click(self, event: events.Click) -> None:
        """Insert the clicked completion, or do what the clicked hint says."""
        surface = self.query_one("#found", TextSurface)
        if not surface.region.contains(event.screen_x, event.screen_y):
            return
        x = event.screen_x - surface.region.x
        at = None if not self._found else find_span(self._painted, x)
        self.query_one(Input).focus()  # which the click has left
        if not self._found:
            press_hint_key(self.app, join_text(self._painted), x)
        elif at is not None and at % 2 and self._first + at // 2 < len(self._found):  # each word is between two blanks
            self._insert_completion(self._first + at // 2)

    def action_earlier(self, by: int) -> None:
        """Insert an earlier line, or a later one."""
        self._at = max(0, min(len(self._typed), self._at + by))
        self._set_line(self._typed[self._at] if self._at < len(self._typed) else "")

    def _set_line(self, text: str) -> None:
        line = self.query_one(Input)
        line.value, line.cursor_position = text, len(text)

    def _insert_completion(self, at: int) -> None:
        self._cycle = at
        self._set_line(self._apply_completion() or "")
        self._paint_completions()

    def _apply_completion(self) -> str | None:
        if self._cycle < 0 or not self._found:
            return None
        return f"{self._stem}{shlex.quote(self._found[self._cycle])}"

    def _show_completions(self, line: str) -> None:
        line = line.removeprefix(":")
        self._found = self._commands.complete_line(line, self._instances)
        self._stem = line[: line.rfind(" ") + 1]
        self._cycle = -1
        self._paint_completions()

    def _paint_completions(self) -> None:
        surface = self.query_one("#found", TextSurface)
        first = self._first = max(0, self._cycle - _MAX_COMPLETIONS + 1)
        spans: list[Span] = [Span(" ")]
        for at, word in enumerate(self._found[first:], first):
            spans += [sanitize_span(word, TextStyle.KEY if at == self._cycle else TextStyle.LABEL), Span("   ")]
        panel: Panel = self.app  # type: ignore[assignment]
        wide, hidden = max(4, panel.size.width), 0
        while len(spans) > 3 and measure_row(tuple(spans)) + measure_text(_format_hidden(hidden)) > wide:
            del spans[-2:]
            hidden += 1
        shown: TextRow = (
            make_row(*spans, Span(_format_hidden(hidden), TextStyle.STALE))
            if self._found
            else make_row(Span(" tab completes, enter does it, esc leaves", TextStyle.STALE))
        )
        self._painted = truncate_row(shown, wide, "…")
        surface.set_rows((self._painted,))


def _find_common_start(words: Sequence[str]) -> str:
    """Return what all words begin with."""
    first, last = min(words), max(words)
    at = next((at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
    return first[:at]


def _format_hidden(number: int) -> str:
    return f"… {number} more" if number else ""
