"""The one-line prompt in which a pattern is typed: what it does is seen while typing."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Input, Label


class Asked(StrEnum):
    """What the pattern is for."""

    FIND = "find"
    ONLY = "only"


class LogPrompt(Horizontal):
    """Hidden until `ask`; posts `Typed` on every change and `Closed` at the end, with what was there before on escape."""

    DEFAULT_CSS = """
    LogPrompt {
        height: 1;
        display: none;
        background: $foreground 6%;
        &.-open { display: block; }
        & > Label { width: auto; padding: 0 1; color: $text-primary; text-style: bold; }
        & > Input { width: 1fr; background: transparent; padding: 0; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "give_up", "back", id="log.prompt.back", show=False)]

    class Typed(Message):
        """The pattern, as it is now."""

        def __init__(self, asked: Asked, text: str) -> None:
            super().__init__()
            self.asked = asked
            self.text = text

    class Closed(Message):
        """The pattern holds (enter), or what was before it does (escape)."""

        def __init__(self, asked: Asked, text: str, *, is_kept: bool) -> None:
            super().__init__()
            self.asked = asked
            self.text = text
            self.is_kept = is_kept

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._asked = Asked.FIND
        self._before = ""

    def compose(self) -> ComposeResult:
        """The word, and the field."""
        yield Label("", markup=False)
        yield Input(compact=True, select_on_focus=True)

    def ask(self, what: Asked, before: str) -> None:
        """Open for a new pattern; ``before`` is what holds now."""
        self._asked, self._before = what, before
        self.query_one(Label).update(what)
        field = self.query_one(Input)
        field.placeholder = "text, !text or /regex/"
        with self.prevent(Input.Changed):
            field.value = before
        self.add_class("-open")
        field.focus()

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        self.post_message(self.Typed(self._asked, event.value))

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._close(event.value, is_kept=True)

    def action_give_up(self) -> None:
        """Close, and let hold what held before."""
        self._close(self._before, is_kept=False)

    def _close(self, text: str, *, is_kept: bool) -> None:
        self.remove_class("-open")
        self.post_message(self.Closed(self._asked, text, is_kept=is_kept))
