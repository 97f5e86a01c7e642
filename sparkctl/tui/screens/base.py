"""Base classes of the screens: header, footer, key bindings from the action table, a message in tiny terminals; pages that
scroll; lists with a selected entry and its detail below."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.reactive import Reactive
from textual.screen import Screen
from textual.widget import Widget

from sparkctl.commands.actions import (
    ACTIONS,
    OVERVIEW,
    Action,
    ActionContext,
    ActionId,
    ActionRole,
    list_screen_actions,
    parse_key,
)
from sparkctl.tui.key_hints import FooterKey, render_key_footer
from sparkctl.tui.search_prompt import PromptMode, SearchPrompt
from sparkctl.tui.text_surface import TextSurface
from sparkctl.views.text.frame_layout import describe_guard_coverage, render_header, render_too_small
from sparkctl.views.text.styled_text import ScrollPage, Span, TextRow, TextStyle, sanitize_span

if TYPE_CHECKING:
    from sparkctl.model.node import NodeName
    from sparkctl.tui.controller import PanelController
    from sparkctl.tui.panel import Panel
    from sparkctl.views.overview.tile_model import NodeTileModel


MIN_TERMINAL_SIZE = (50, 12)
ActionHandlers = Mapping[ActionId, Callable[[], object]]


def build_bindings(place: str | None) -> list[BindingType]:
    """Return the bindings of one screen's actions, which call `Panel.action_act`; None: of the actions that are the same everywhere.

    An action without a key is bound to a name that no terminal sends, so that the keymap can give it one.
    """
    return [
        Binding(
            ",".join(map(parse_key, one.keys)) or f"none-{one.id}",
            f"app.act('{one.id}')",
            one.short,
            show=False,
            id=one.id,
        )
        for one in ACTIONS
        if (place in one.on if place else not one.on)
    ]


class KeyFooter(TextSurface):
    """The footer with the keys. A click on a key runs its action."""

    places: tuple[FooterKey, ...] = ()

    def on_click(self, event: events.Click) -> None:
        """Run the clicked action."""
        for place in self.places:
            if place.start <= event.x < place.stop:
                panel: Panel = self.app  # type: ignore[assignment]
                panel.perform_action(place.action)


class StaticFocusScreen(Screen[None]):
    """A screen that is not repainted when the focus moves: the two widgets paint themselves."""

    BLANK = True  # its widgets cover it: what lies below them needs no styling at each paint
    focused: Reactive[Widget | None] = Reactive(None, repaint=False)


class PanelScreen(StaticFocusScreen):
    """A screen of the panel. Subclasses set `SCREEN_ID` and `BINDINGS` and implement `create_body` and `paint_body`.

    Actions without an entry in `action_handlers` are the same on every screen (`global_actions`).
    """

    SCREEN_ID: ClassVar[str]
    HOLDS_FIGURES: ClassVar[bool] = False  # whether it can be paused; what plays a recording is paused on any screen
    frozen_at: float | None = None  # since when the screen is paused, unix seconds; None where it is not

    @property
    def panel(self) -> Panel:
        """The app, as a `Panel`."""
        return self.app  # type: ignore[return-value]

    @property
    def breadcrumb(self) -> str:
        """The text behind the program's name in the header."""
        return ""

    @property
    def actions(self) -> tuple[Action, ...]:
        """The actions of this screen, in the order of the help."""
        found = list_screen_actions(self.panel.actions, self.SCREEN_ID)
        if self.HOLDS_FIGURES or self.panel.setup.recording is not None:
            return found
        return tuple(one for one in found if one.id is not ActionId.PAUSE)

    def action_handlers(self) -> ActionHandlers:
        """Return what this screen does itself, by action."""
        return {}

    def add_selection(self, now: ActionContext) -> ActionContext:
        """Return the action context with this screen's selection."""
        return now

    def build_node_tile(self, controller: PanelController, name: NodeName, chosen: str | None) -> NodeTileModel:
        """Return what the store knows of a node; ``chosen``: the selected instance. Raises KeyError."""
        from sparkctl.views.overview.tile_model import build_tile_model

        panel = self.panel
        return build_tile_model(
            controller.store, name, panel.displayed_time(), chosen=chosen, recent=controller.recent, start_key=panel.start_key,
            offers=() if panel.start_key is None else controller.list_start_offers(name),
            address=next((node.host for node in panel.config_nodes if node.name == name), None),
        )  # fmt: skip

    def create_body(self) -> Widget:
        """Return the widget between header and footer."""
        raise NotImplementedError

    def paint_body(self) -> None:
        """Paint the body in its current state."""

    def already_shows(self, message: str) -> bool:
        """Tell whether this screen shows the message already, so that it needs no toast."""
        del message
        return False

    def toggle_freeze(self) -> None:
        """Pause this screen, or continue it. Other screens are not affected."""
        self.frozen_at = self.panel.displayed_time() if self.frozen_at is None else None

    def compose(self) -> ComposeResult:
        """Create header, body and footer, and the message for tiny terminals."""
        tones = self.panel.tones
        yield TextSurface(tones, id="head")
        body = self.create_body()
        body.add_class("body")
        yield body
        yield KeyFooter(tones, id="foot")
        yield TextSurface(tones, id="small")

    def on_resize(self, event: events.Resize) -> None:
        """Show the minimum size where the terminal is too small."""
        wide, high = event.size
        self.set_class(wide < MIN_TERMINAL_SIZE[0] or high < MIN_TERMINAL_SIZE[1], "-tiny")
        self.repaint()

    def on_screen_resume(self) -> None:
        """Repaint when the screen is visible again."""
        self.repaint()
        self.panel.show_pending_toasts()

    def apply_theme_styles(self) -> None:
        """Apply the theme's styles to all text surfaces."""
        for surface in self.query(TextSurface):
            surface.set_text_styles(self.panel.tones)

    def repaint(self) -> None:
        """Paint header, body and footer in their current state."""
        if not self.size.width or self.query_one_optional("#head") is None:  # not mounted
            return
        wide, high = self.size
        if self.has_class("-tiny"):
            self.query_one("#small", TextSurface).set_rows(render_too_small(wide, high, MIN_TERMINAL_SIZE))
            return
        self.query_one("#head", TextSurface).set_rows(
            (render_header(self._render_header_title(), self._render_header_status(), wide),)
        )
        foot = self.query_one("#foot", KeyFooter)
        line, foot.places = render_key_footer(self.actions, self.panel.build_action_context(), wide)
        foot.set_rows((line,))
        self.paint_body()

    def _render_header_title(self) -> TextRow:
        crumb = self.breadcrumb
        title = (Span("sparkctl", TextStyle.TITLE),)
        return (*title, Span(" › ", TextStyle.LABEL), sanitize_span(crumb, TextStyle.LABEL)) if crumb else title

    def _render_header_status(self) -> TextRow:
        panel = self.panel
        badges = [
            (panel.config_fault is not None, "config has faults", TextStyle.BAD),
            (self.frozen_at is not None, "paused", TextStyle.ATTENTION),
            (self.SCREEN_ID != OVERVIEW and bool(panel.progress_summary), panel.progress_summary, TextStyle.ATTENTION),
            (bool(panel.header_badge), panel.header_badge, TextStyle.ACCENT),
            (panel.setup.readonly, "read-only", TextStyle.ACCENT),
        ]
        count = len(panel.node_names)
        spans = [Span(f"{count} Spark{'s' if count != 1 else ''} · ", TextStyle.LABEL)]
        if (guard := describe_guard_coverage(panel.list_guarded_instances())) is not None:
            spans.append(Span(f"{guard} · ", TextStyle.LABEL))
        # a narrow header drops badges from the left, so that the badge of a recording stays
        spans += [Span(f"{word} · ", tone) for on, word, tone in badges if on]
        if self.SCREEN_ID != OVERVIEW:  # the tiles of the overview show it
            from sparkctl.views.overview.tile_model import list_unreachable_nodes

            spans += [
                sanitize_span(f"{words} · ", tone)
                for words, tone in list_unreachable_nodes(panel.build_action_context().views)
            ]
        return (
            *spans,
            Span(time.strftime("%H:%M:%S", time.localtime(self.frozen_at or panel.displayed_time())), TextStyle.VALUE),
        )


_PAGE_ROWS = 5
_WHEEL_ROWS = 2  # rows for a notch of the wheel
_MANY_ROWS = 9999  # more than any page has


class ScrollSurface(TextSurface):
    """A text surface that the wheel scrolls."""

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Scroll down by the wheel."""
        self._handle_wheel(event, _WHEEL_ROWS)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Scroll up by the wheel."""
        self._handle_wheel(event, -_WHEEL_ROWS)

    def _handle_wheel(self, event: events.MouseEvent, by: int) -> None:
        screen = self.screen
        assert isinstance(screen, ScrollScreen)
        event.stop()
        screen.scroll_rows(by)


class ScrollScreen(PanelScreen):
    """A screen of one long page. Subclasses implement `scroll_rows`."""

    def scroll_rows(self, by: int) -> None:
        """Scroll down by so many rows; up where negative."""
        raise NotImplementedError

    def on_resize(self, event: events.Resize) -> None:
        """Repaint once the surface has its new size."""
        super().on_resize(event)
        self.call_after_refresh(self.repaint)

    def action_handlers(self) -> ActionHandlers:
        """Return the handlers that scroll."""
        return {
            ActionId.LOWER: lambda: self.scroll_rows(1),
            ActionId.UPPER: lambda: self.scroll_rows(-1),
            ActionId.FURTHER: lambda: self.scroll_rows(_PAGE_ROWS),
            ActionId.NEARER: lambda: self.scroll_rows(-_PAGE_ROWS),
            ActionId.FIRST: lambda: self.scroll_rows(-_MANY_ROWS),
            ActionId.LAST: lambda: self.scroll_rows(_MANY_ROWS),
        }


KeyT = TypeVar("KeyT", bound=Hashable)


class _ListSurface(TextSurface):
    """The list. A click selects, a double click is enter; the wheel moves the selection or scrolls the detail."""

    def on_click(self, event: events.Click) -> None:
        """Select the entry under the pointer."""
        screen = self.screen
        assert isinstance(screen, ListScreen)
        screen.select_at(event.x, event.y, twice=event.chain > 1)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Scroll down by the wheel."""
        self._handle_wheel(event, 1)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Scroll up by the wheel."""
        self._handle_wheel(event, -1)

    def _handle_wheel(self, event: events.MouseEvent, by: int) -> None:
        screen = self.screen
        assert isinstance(screen, ListScreen)
        event.stop()
        screen.handle_wheel(event.y, by)


class _ListBody(Vertical):
    """The list and the prompt for its filter."""

    BLANK = True
    DEFAULT_CSS = """
    _ListBody > #list { height: 1fr; }
    _ListBody > SearchPrompt { display: none; }
    _ListBody > SearchPrompt.-open { display: block; }
    """

    def compose(self) -> ComposeResult:
        """Create the list and the prompt."""
        screen = self.screen
        assert isinstance(screen, PanelScreen)
        yield _ListSurface(screen.panel.tones, id="list")
        yield SearchPrompt()


class ListScreen(PanelScreen, Generic[KeyT]):
    """A screen with a list. Subclasses implement `list_keys`.

    ``_selected_key`` is the key that the operator selected, ``_scroll_offset`` the scrolled rows of the detail, and
    ``_typed`` the filter.
    """

    AUTO_FOCUS = ""  # the prompt is mounted, but closed

    def __init__(self) -> None:
        super().__init__()
        self._selected_key: KeyT | None = None
        self._scroll_offset = 0
        self._typed = ""
        self._page = ScrollPage(())

    def create_body(self) -> Widget:
        """Return the list and its prompt."""
        return _ListBody()

    @property
    def list_surface(self) -> TextSurface:
        """The text surface of the list."""
        return self.query_one("#list", TextSurface)

    def on_resize(self, event: events.Resize) -> None:
        """Repaint once the surface has its new size."""
        super().on_resize(event)
        self.call_after_refresh(self.repaint)

    def show_page(self, page: ScrollPage) -> None:
        """Show a page."""
        self._page, self._scroll_offset = page, page.further
        self.list_surface.set_rows(page.rows)

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
            self._scroll_detail(by * _WHEEL_ROWS)

    def list_keys(self) -> tuple[Sequence[KeyT], KeyT | None]:
        """Return the keys of the visible entries in order, and the selected key; None where there is none."""
        raise NotImplementedError

    def surface_size(self, surface: Widget) -> tuple[int, int]:
        """Return width and height of the list's surface, estimated before its first layout."""
        wide, high = surface.size
        return (wide, high) if wide and high else (self.size.width, self.size.height - 2)

    def action_handlers(self) -> ActionHandlers:
        """Return the handlers of the list, of its detail and of its filter."""
        return {
            ActionId.LOWER: lambda: self._move_selection(1),
            ActionId.UPPER: lambda: self._move_selection(-1),
            ActionId.FIRST: lambda: self._move_selection(-len(self.list_keys()[0])),
            ActionId.LAST: lambda: self._move_selection(len(self.list_keys()[0])),
            ActionId.FURTHER: lambda: self._scroll_detail(_PAGE_ROWS),
            ActionId.NEARER: lambda: self._scroll_detail(-_PAGE_ROWS),
            ActionId.FILTER: lambda: self.query_one(SearchPrompt).open_prompt(PromptMode.ONLY, self._typed),
            ActionId.BACK: self._clear_filter_or_close,
        }

    def _clear_filter_or_close(self) -> None:
        if self._typed:
            self._set_filter_text("")
        else:
            self.panel.pop_screen()

    @on(SearchPrompt.Typed)
    def _apply_typed_filter(self, event: SearchPrompt.Typed) -> None:
        self._set_filter_text(event.text)

    @on(SearchPrompt.Closed)
    def _apply_closed_filter(self, event: SearchPrompt.Closed) -> None:
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

    def _scroll_detail(self, by: int) -> None:
        self._scroll_offset = max(0, self._scroll_offset + by)
        self.repaint()
