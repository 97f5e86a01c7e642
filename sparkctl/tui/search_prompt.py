"""The one-line prompt for a search or filter pattern, which takes effect while it is typed."""

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
    """An input field that closes its prompt at once on enter, so that the next key is for the log."""

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
    """Blank until `open_prompt`; posts `Typed` on every change and `Closed` at the end, with the old pattern on escape.

    It keeps its row while it is closed, so that the widgets above need no new layout.
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
        """The pattern has changed."""

        def __init__(self, mode: PromptMode, text: str) -> None:
            super().__init__()
            self.mode = mode
            self.text = text

    class Closed(Message):
        """The prompt was closed: with the new pattern (enter) or the old one (escape)."""

        def __init__(self, mode: PromptMode, text: str, *, is_kept: bool) -> None:
            super().__init__()
            self.mode = mode
            self.text = text
            self.is_kept = is_kept

    def __init__(self) -> None:
        super().__init__()
        self._mode = PromptMode.FIND
        self._before = ""
        self._back: Widget | None = None  # the widget that had the focus before
        self._is_open = False

    @property
    def is_open(self) -> bool:
        """Whether a pattern is being typed."""
        return self._is_open

    def compose(self) -> ComposeResult:
        """Create the label and the field."""
        yield Label("", markup=False)
        field = _PromptInput(compact=True, select_on_focus=True)
        field.can_focus = False
        yield field

    def open_prompt(self, what: PromptMode, before: str) -> None:
        """Open for a new pattern; ``before`` is the current one."""
        self._mode, self._before = what, before
        self._back = self.screen.focused
        self._set_open(is_open=True)
        self.screen.set_focus(self.query_one(Input))  # at once, not after the next refresh: letters follow immediately

    def _set_open(self, *, is_open: bool) -> None:
        field = self.query_one(Input)
        self._is_open = field.can_focus = is_open
        self.set_class(is_open, "-open")
        self.query_one(Label).update(self._mode if is_open else "", layout=False)
        field.placeholder = "text, !text or /regex/" if is_open else ""
        with self.prevent(Input.Changed):
            field.value = self._before if is_open else ""

    def accept_key(self, event: Key) -> None:
        """Take a key that was sent to another widget when this opened."""
        self.query_one(Input).post_message(Key(event.key, event.character))

    def return_key(self, event: Key) -> None:
        """Pass on a key that was sent here when this closed."""
        if self._back is not None:
            self._back.post_message(Key(event.key, event.character))

    @on(Input.Changed)
    def _forward_change(self, event: Input.Changed) -> None:
        event.stop()
        self.post_message(self.Typed(self._mode, event.value))

    def accept_pattern(self) -> None:
        self._close_prompt(self.query_one(Input).value, is_kept=True)

    def action_give_up(self) -> None:
        """Close with the old pattern."""
        self._close_prompt(self._before, is_kept=False)

    def _close_prompt(self, text: str, *, is_kept: bool) -> None:
        self._set_open(is_open=False)
        self.screen.set_focus(self._back)
        self.post_message(self.Closed(self._mode, text, is_kept=is_kept))
