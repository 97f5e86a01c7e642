"""Screens that scroll: a long page; a list with a selected entry and its detail below."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Generic, TypeVar

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widget import Widget

from sparkctl.commands.actions import ActionId, ActionRole
from sparkctl.tui.screens.base import ActionHandlers, PanelScreen
from sparkctl.tui.search_prompt import PromptMode, SearchPrompt
from sparkctl.tui.text_surface import TextSurface
from sparkctl.views.text.styled_text import ScrollPage

_PAGE_ROWS = 5
_WHEEL_ROWS = 2  # rows for a notch of the wheel
_MANY_ROWS = 9999  # more than any page has


class PageSurface(TextSurface):
    """The rows of a `PageScreen`; clicks and the wheel are the screen's."""

    def on_click(self, event: events.Click) -> None:
        self._get_screen().select_at(event.x, event.y, twice=event.chain > 1)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self._get_screen().handle_wheel(event.y, 1)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self._get_screen().handle_wheel(event.y, -1)

    def _get_screen(self) -> PageScreen:
        screen = self.screen
        assert isinstance(screen, PageScreen)
        return screen


class PageScreen(PanelScreen):
    """A screen of one page. ``_scroll_offset``: by how many rows its part that scrolls is scrolled."""

    def __init__(self) -> None:
        super().__init__()
        self._scroll_offset = 0
        self._page = ScrollPage(())

    def create_body(self) -> Widget:
        return PageSurface(self.panel.tones)

    @property
    def page_surface(self) -> PageSurface:
        return self.query_one(PageSurface)

    @property
    def page_size(self) -> tuple[int, int]:
        """The columns and rows of the page, of which a key that was typed ahead may ask before its surface is there."""
        return self.surface_size(self.query_one_optional(PageSurface))

    def on_resize(self, event: events.Resize) -> None:
        """Repaint once the surface has its new size."""
        super().on_resize(event)
        self.call_after_refresh(self.repaint)

    def repaint(self) -> None:
        """Paint it, once its surface is there: keys that were typed ahead may come before."""
        if self.query_one_optional(PageSurface) is not None:
            super().repaint()

    def show_page(self, page: ScrollPage) -> None:
        self._page, self._scroll_offset = page, page.further
        self.page_surface.set_rows(page.rows)

    def scroll_rows(self, by: int) -> None:
        """Scroll down by so many rows; up where negative."""
        self._scroll_offset = max(0, self._scroll_offset + by)
        self.repaint()

    def handle_pages(self, count_rows: Callable[[], int], move: Callable[[int], None]) -> ActionHandlers:
        """Return the handlers of pages and half pages: ``count_rows`` tells the rows of a page, ``move`` goes down by so many."""
        shares = {
            ActionId.PAGE_DOWN: 1.0,
            ActionId.PAGE_UP: -1.0,
            ActionId.HALF_PAGE_DOWN: 0.5,
            ActionId.HALF_PAGE_UP: -0.5,
        }

        def move_by(share: float) -> None:
            rows = max(1, int(abs(share) * count_rows()))
            move(rows if share > 0 else -rows)

        return {action: partial(move_by, share) for action, share in shares.items()}

    def handle_wheel(self, y: int, by: int) -> None:
        """Handle so many notches of the wheel at a row."""
        self.scroll_rows(by * _WHEEL_ROWS)

    def select_at(self, x: int, y: int, *, twice: bool) -> None:
        """Handle a click; ``twice``: a double one."""


class ScrollScreen(PageScreen):
    """A screen of one long page."""

    def action_handlers(self) -> ActionHandlers:
        return {
            ActionId.LOWER: lambda: self.scroll_rows(1),
            ActionId.UPPER: lambda: self.scroll_rows(-1),
            ActionId.FURTHER: lambda: self.scroll_rows(_PAGE_ROWS),
            ActionId.NEARER: lambda: self.scroll_rows(-_PAGE_ROWS),
            **self.handle_pages(lambda: self.page_size[1] - 2, self.scroll_rows),  # two rows stay in sight
            ActionId.FIRST: lambda: self.scroll_rows(-_MANY_ROWS),
            ActionId.LAST: lambda: self.scroll_rows(_MANY_ROWS),
        }


KeyT = TypeVar("KeyT", bound=Hashable)


class _ListBody(Vertical):
    """The list and the prompt for its filter."""

    BLANK = True
    DEFAULT_CSS = """
    _ListBody > #list { height: 1fr; }
    _ListBody > SearchPrompt { display: none; }
    _ListBody > SearchPrompt.-open { display: block; }
    """

    def compose(self) -> ComposeResult:
        screen = self.screen
        assert isinstance(screen, PanelScreen)
        yield PageSurface(screen.panel.tones, id="list")
        yield SearchPrompt()


class ListScreen(PageScreen, Generic[KeyT]):
    """A screen with a list, of which a click selects an entry and a double click is enter; its detail below scrolls. Subclasses
    implement `list_keys`.

    ``_selected_key`` is the key that the operator selected, ``_typed`` the filter.
    """

    AUTO_FOCUS = ""  # the prompt is mounted, but closed

    def __init__(self) -> None:
        super().__init__()
        self._selected_key: KeyT | None = None
        self._typed = ""

    def create_body(self) -> Widget:
        return _ListBody()

    def select_at(self, x: int, y: int, *, twice: bool) -> None:
        """Select the entry at a position; ``twice`` runs the action of enter."""
        entry, (keys, _) = self._page.entry_at(y), self.list_keys()
        if entry is not None and entry < len(keys):
            self._selected_key, self._scroll_offset = keys[entry], 0
            self.repaint()
            if twice and (take := next((one for one in self.actions if one.role is ActionRole.TAKE), None)) is not None:
                self.panel.perform_action(take.id)
        elif y == self._page.top - 1:
            self.on_header_click(x)

    def on_header_click(self, x: int) -> None:
        """Handle a click on the header of the list."""

    def handle_wheel(self, y: int, by: int) -> None:
        """Move the selection, or scroll the detail where the pointer is below the list."""
        if y < self._page.top + len(self._page.entries):
            self._move_selection(by)
        else:
            self.scroll_rows(by * _WHEEL_ROWS)

    @property
    def breadcrumb(self) -> str:
        return self.SCREEN_ID

    def list_keys(self) -> tuple[Sequence[KeyT], KeyT | None]:
        """Return the keys of the visible entries in order, and the selected key; None where there is none."""
        raise NotImplementedError

    def action_handlers(self) -> ActionHandlers:
        return {
            ActionId.LOWER: lambda: self._move_selection(1),
            ActionId.UPPER: lambda: self._move_selection(-1),
            **self.handle_pages(lambda: len(self._page.entries), self._move_selection),
            ActionId.FIRST: lambda: self._move_selection(-len(self.list_keys()[0])),
            ActionId.LAST: lambda: self._move_selection(len(self.list_keys()[0])),
            ActionId.FURTHER: lambda: self.scroll_rows(_PAGE_ROWS),
            ActionId.NEARER: lambda: self.scroll_rows(-_PAGE_ROWS),
            ActionId.FILTER: lambda: self.query_one(SearchPrompt).open_prompt(PromptMode.ONLY, self._typed),
            ActionId.BACK: self._clear_filter_or_close,
        }

    def _clear_filter_or_close(self) -> None:
        if self._typed:
            self._set_filter_text("")
        else:
            self.panel.pop_screen()

    @on(SearchPrompt.Typed)
    @on(SearchPrompt.Closed)
    def _apply_filter(self, event: SearchPrompt.Typed | SearchPrompt.Closed) -> None:
        self._set_filter_text(event.text)

    def _set_filter_text(self, text: str) -> None:
        self._typed, self._scroll_offset = text, 0
        self.call_after_refresh(self.repaint)

    def _move_selection(self, by: int) -> None:
        keys, selected = self.list_keys()
        if selected is not None:
            self._selected_key = keys[max(0, min(len(keys) - 1, keys.index(selected) + by))]
            self._scroll_offset = 0
            self.repaint()
