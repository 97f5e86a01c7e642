"""The one-line prompt in which a pattern is typed: what it does is seen while typing."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.events import Key
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input, Label


class PromptMode(StrEnum):
    """What the pattern is for."""

    FIND = "find"
    ONLY = "only"


class _PromptInput(Input):
    """Closes its prompt the moment enter is there: a key right behind it is for the log again."""

    def on_key(self, event: Key) -> None:
        prompt = self.parent
        assert isinstance(prompt, SearchPrompt)
        if not prompt.is_open:
            event.prevent_default().stop()
            prompt.return_key(event)
        elif event.key == "enter":
            event.prevent_default().stop()
            prompt.accept_pattern()


class SearchPrompt(Horizontal):
    """Blank until `ask`; posts `Typed` on every change and `Closed` at the end, with what was there before on escape.

    It keeps its row while it is closed: what stands above it is as high as before, and nothing is laid out anew.
    """

    DEFAULT_CSS = """
    SearchPrompt {
        height: 1;
        background: $foreground 0%;
        & > Label { width: 6; padding: 0 1; color: $text-primary; text-style: bold; }
        & > Input { width: 1fr; background: transparent; padding: 0; }
    }
    SearchPrompt.-open { background: $foreground 6%; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "give_up", "back", id="log.prompt.back", show=False)]

    class Typed(Message):
        """The pattern, as it is now."""

        def __init__(self, asked: PromptMode, text: str) -> None:
            super().__init__()
            self.asked = asked
            self.text = text

    class Closed(Message):
        """The pattern holds (enter), or what was before it does (escape)."""

        def __init__(self, asked: PromptMode, text: str, *, is_kept: bool) -> None:
            super().__init__()
            self.asked = asked
            self.text = text
            self.is_kept = is_kept

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._asked = PromptMode.FIND
        self._before = ""
        self._back: Widget | None = None  # whom the keys are for when this is closed
        self._is_open = False

    @property
    def is_open(self) -> bool:
        """Whether a pattern is being typed."""
        return self._is_open

    def compose(self) -> ComposeResult:
        """The word, and the field."""
        yield Label("", markup=False)
        field = _PromptInput(compact=True, select_on_focus=True)
        field.can_focus = False
        yield field

    def open_prompt(self, what: PromptMode, before: str) -> None:
        """Open for a new pattern; ``before`` is what holds now."""
        self._asked, self._before = what, before
        self._back = self.screen.focused
        self._set_open(is_open=True)
        self.screen.set_focus(self.query_one(Input))  # now, not after the next refresh: letters follow at once

    def _set_open(self, *, is_open: bool) -> None:
        field = self.query_one(Input)
        self._is_open = field.can_focus = is_open
        self.set_class(is_open, "-open")
        self.query_one(Label).update(self._asked if is_open else "", layout=False)
        field.placeholder = "text, !text or /regex/" if is_open else ""
        with self.prevent(Input.Changed):
            field.value = self._before if is_open else ""

    def accept_key(self, event: Key) -> None:
        """Take a key that was on its way to somebody else when this opened."""
        self.query_one(Input).post_message(Key(event.key, event.character))

    def return_key(self, event: Key) -> None:
        """Give away a key that was on its way here when this closed."""
        if self._back is not None:
            self._back.post_message(Key(event.key, event.character))

    @on(Input.Changed)
    def _forward_change(self, event: Input.Changed) -> None:
        event.stop()
        self.post_message(self.Typed(self._asked, event.value))

    def accept_pattern(self) -> None:
        """Close, and let hold what was typed."""
        self._close_prompt(self.query_one(Input).value, is_kept=True)

    def action_give_up(self) -> None:
        """Close, and let hold what held before."""
        self._close_prompt(self._before, is_kept=False)

    def _close_prompt(self, text: str, *, is_kept: bool) -> None:
        self._set_open(is_open=False)
        self.screen.set_focus(self._back)
        self.post_message(self.Closed(self._asked, text, is_kept=is_kept))
