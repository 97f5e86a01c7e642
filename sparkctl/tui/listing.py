"""A screen of a list: one is selected, and what is told of it stands below and can be read on."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Generic, TypeVar

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widget import Widget

from sparkctl.core.actions import Action
from sparkctl.tui.log_prompt import Asked, LogPrompt
from sparkctl.tui.screen import PanelScreen
from sparkctl.tui.sheet import Sheet

_PAGE = 5
KeyT = TypeVar("KeyT", bound=Hashable)


class _Body(Vertical):
    """The sheet, and the line in which a filter is typed."""

    DEFAULT_CSS = "_Body > #list { height: 1fr; }"

    def compose(self) -> ComposeResult:
        screen = self.screen
        assert isinstance(screen, PanelScreen)
        yield Sheet(screen.panel.tones, id="list")
        yield LogPrompt()


class ListScreen(PanelScreen, Generic[KeyT]):
    """Subclasses give `listed`; ``_chosen`` is the key that was selected by hand, ``_further`` how far was read, and
    ``_typed`` the filter."""

    AUTO_FOCUS = ""  # the filter's line is there, but not open

    def __init__(self) -> None:
        super().__init__()
        self._chosen: KeyT | None = None
        self._further = 0
        self._typed = ""

    def body(self) -> Widget:
        """Return the list with the selected one below it."""
        return _Body()

    @property
    def sheet(self) -> Sheet:
        """What the list is painted on."""
        return self.query_one("#list", Sheet)

    def on_resize(self, event: events.Resize) -> None:
        """Fit, once the sheet has its new size."""
        super().on_resize(event)
        self.call_after_refresh(self.repaint)

    def listed(self) -> tuple[Sequence[KeyT], KeyT | None]:
        """Return the keys as they stand, and the selected one; None where there is none."""
        raise NotImplementedError

    def room_of(self, sheet: Widget) -> tuple[int, int]:
        """Return width and height of the list's sheet, also before it has been laid out."""
        wide, high = sheet.size
        return (wide, high) if wide and high else (self.size.width, self.size.height - 2)

    def do_lower(self, _: Action) -> None:
        """Select the next one."""
        self._step(1)

    def do_upper(self, _: Action) -> None:
        """Select the one before."""
        self._step(-1)

    def do_first(self, _: Action) -> None:
        """Select the first one."""
        self._step(-len(self.listed()[0]))

    def do_last(self, _: Action) -> None:
        """Select the last one."""
        self._step(len(self.listed()[0]))

    def do_further(self, _: Action) -> None:
        """Read on."""
        self._scroll(_PAGE)

    def do_nearer(self, _: Action) -> None:
        """Read what was above."""
        self._scroll(-_PAGE)

    def do_filter(self, _: Action) -> None:
        """Let a filter be typed."""
        self.query_one(LogPrompt).ask(Asked.ONLY, self._typed)

    def do_back(self, _: Action) -> None:
        """Drop the filter; without one, leave."""
        if self._typed:
            self._filter("")
        else:
            self.panel.pop_screen()

    @on(LogPrompt.Typed)
    def _is_typed(self, event: LogPrompt.Typed) -> None:
        self._filter(event.text)

    @on(LogPrompt.Closed)
    def _was_typed(self, event: LogPrompt.Closed) -> None:
        self._filter(event.text)

    def _filter(self, text: str) -> None:
        self._typed, self._further = text, 0
        self.call_after_refresh(self.repaint)

    def _step(self, by: int) -> None:
        keys, selected = self.listed()
        if selected is not None:
            self._chosen = keys[max(0, min(len(keys) - 1, keys.index(selected) + by))]
            self._further = 0
            self.repaint()

    def _scroll(self, by: int) -> None:
        self._further = max(0, self._further + by)
        self.repaint()
