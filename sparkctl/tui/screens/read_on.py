"""A screen of one sheet that may be longer than it is tall: keys and the wheel read on."""

from __future__ import annotations

from textual import events

from sparkctl.commands.actions import Action
from sparkctl.tui.screens.base import PanelScreen
from sparkctl.tui.widgets.text_surface import TextSurface

_PAGE = 5
_NOTCH = 2  # rows for a notch of the wheel
_ALL = 9999  # rows, more than there are


class ScrollSurface(TextSurface):
    """The wheel reads on."""

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Go on."""
        self._wheel(event, _NOTCH)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Go back."""
        self._wheel(event, -_NOTCH)

    def _wheel(self, event: events.MouseEvent, by: int) -> None:
        screen = self.screen
        assert isinstance(screen, ScrollScreen)
        event.stop()
        screen.scroll_rows(by)


class ScrollScreen(PanelScreen):
    """Subclasses give `read_on`."""

    def scroll_rows(self, by: int) -> None:
        """Read on by so many rows, or back."""
        raise NotImplementedError

    def on_resize(self, event: events.Resize) -> None:
        """Fit, once the sheet has its new size."""
        super().on_resize(event)
        self.call_after_refresh(self.repaint)

    def do_lower(self, _: Action) -> None:
        """Read on."""
        self.scroll_rows(1)

    def do_upper(self, _: Action) -> None:
        """Read what was above."""
        self.scroll_rows(-1)

    def handle_page_down(self, _: Action) -> None:
        """Read on."""
        self.scroll_rows(_PAGE)

    def handle_page_up(self, _: Action) -> None:
        """Read what was above."""
        self.scroll_rows(-_PAGE)

    def do_first(self, _: Action) -> None:
        """Go to the beginning."""
        self.scroll_rows(-_ALL)

    def do_last(self, _: Action) -> None:
        """Go to the end."""
        self.scroll_rows(_ALL)
