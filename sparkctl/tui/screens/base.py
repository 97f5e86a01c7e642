"""What every screen of the panel has: a header, a footer, keys out of the one table, and a word for tiny terminals."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.reactive import Reactive
from textual.screen import Screen
from textual.widget import Widget

from sparkctl.commands.actions import ACTIONS, OVERVIEW, Action, ActionContext, list_screen_actions, parse_key
from sparkctl.tui.key_hints import FooterKey, render_key_footer
from sparkctl.tui.widgets.text_surface import TextSurface
from sparkctl.views.text.frame_layout import describe_guard_coverage, render_header, render_too_small
from sparkctl.views.text.styled_text import Span, TextRow, TextStyle, sanitize_span

if TYPE_CHECKING:
    from sparkctl.tui.panel_interface import Panel

MIN_TERMINAL_SIZE = (50, 12)


def build_bindings(place: str | None) -> list[BindingType]:
    """Return the keys of the actions of one screen; None: of those that mean the same everywhere. What has no key has a name
    that no terminal sends: an operator may give it one."""
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
    """The last line. A click on a key is that key."""

    places: tuple[FooterKey, ...] = ()

    def on_click(self, event: events.Click) -> None:
        """Do what was clicked."""
        for place in self.places:
            if place.start <= event.x < place.stop:
                panel: Panel = self.app  # type: ignore[assignment]
                panel.perform_action(place.action)


class StaticFocusScreen(Screen[None]):
    """Is not painted anew, all of it, where the focus goes from one widget to another: those two paint themselves."""

    focused: Reactive[Widget | None] = Reactive(None, repaint=False)


class PanelScreen(StaticFocusScreen):
    """A screen with ``body``. Subclasses give `PLACE`, their ``bound`` keys, `body` and `picture`; an action of which they
    have a ``do_`` method (by the name of its id) is theirs to do."""

    SCREEN_ID: ClassVar[str]
    frozen_at: float | None = None  # since when nothing but the operator's own moves is painted here, unix seconds

    @property
    def panel(self) -> Panel:
        """The app, by its own type."""
        return self.app  # type: ignore[return-value]

    @property
    def breadcrumb(self) -> str:
        """What stands behind the program's name in the header."""
        return ""

    @property
    def actions(self) -> tuple[Action, ...]:
        """The actions that mean something here, in the order of the help."""
        return list_screen_actions(self.panel.actions, self.SCREEN_ID)

    def add_selection(self, now: ActionContext) -> ActionContext:
        """Return the situation with what is selected here."""
        return now

    def create_body(self) -> Widget:
        """Return what is between header and footer."""
        raise NotImplementedError

    def paint_body(self) -> None:
        """Show the state as it is now."""

    def already_shows(self, message: str) -> bool:
        """Tell whether this very thing is said here anyway, so that it needs no corner."""
        del message
        return False

    def toggle_freeze(self) -> None:
        """Hold the picture, or let it go on. Another screen goes on by itself."""
        self.frozen_at = self.panel.displayed_time() if self.frozen_at is None else None

    def compose(self) -> ComposeResult:
        """Header, body, footer, and what takes their place in a tiny terminal."""
        tones = self.panel.tones
        yield TextSurface(tones, id="head")
        body = self.create_body()
        body.add_class("body")
        yield body
        yield KeyFooter(tones, id="foot")
        yield TextSurface(tones, id="small")

    def on_resize(self, event: events.Resize) -> None:
        """Say what is needed where there is not enough."""
        wide, high = event.size
        self.set_class(wide < MIN_TERMINAL_SIZE[0] or high < MIN_TERMINAL_SIZE[1], "-tiny")
        self.repaint()

    def on_screen_resume(self) -> None:
        """Be up to date when it is seen again."""
        self.repaint()
        self.panel.show_pending_toasts()

    def apply_theme_styles(self) -> None:
        """Paint everything in the theme's colours."""
        for sheet in self.query(TextSurface):
            sheet.set_text_styles(self.panel.tones)

    def repaint(self) -> None:
        """Show the state as it is now, header and footer included."""
        if not self.size.width or self.query_one_optional("#head") is None:  # not there yet, or not any more
            return
        wide, high = self.size
        ascii_only = self.panel.ascii_only
        if self.has_class("-tiny"):
            self.query_one("#small", TextSurface).set_rows(render_too_small(wide, high, MIN_TERMINAL_SIZE, ascii_only))
            return
        self.query_one("#head", TextSurface).set_rows(
            (render_header(self._render_header_title(), self._render_header_status(), wide, ascii_only),)
        )
        foot = self.query_one("#foot", KeyFooter)
        line, foot.places = render_key_footer(self.actions, self.panel.build_action_context(), wide, ascii_only)
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
        # what stands left goes first where it gets narrow: nobody is to take a recording for what is now
        spans += [Span(f"{word} · ", tone) for on, word, tone in badges if on]
        if self.SCREEN_ID != OVERVIEW:  # there the tiles say it
            from sparkctl.views.overview.tile_model import list_unreachable_nodes

            spans += [
                sanitize_span(f"{words} · ", tone)
                for words, tone in list_unreachable_nodes(panel.build_action_context().views, panel.ascii_only)
            ]
        return (
            *spans,
            Span(time.strftime("%H:%M:%S", time.localtime(self.frozen_at or panel.displayed_time())), TextStyle.VALUE),
        )


_PAGE_ROWS = 5
_WHEEL_ROWS = 2  # rows for a notch of the wheel
_MANY_ROWS = 9999  # rows, more than there are


class ScrollSurface(TextSurface):
    """The wheel reads on."""

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Go on."""
        self._handle_wheel(event, _WHEEL_ROWS)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Go back."""
        self._handle_wheel(event, -_WHEEL_ROWS)

    def _handle_wheel(self, event: events.MouseEvent, by: int) -> None:
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

    def do_further(self, _: Action) -> None:
        """Read on."""
        self.scroll_rows(_PAGE_ROWS)

    def do_nearer(self, _: Action) -> None:
        """Read what was above."""
        self.scroll_rows(-_PAGE_ROWS)

    def do_first(self, _: Action) -> None:
        """Go to the beginning."""
        self.scroll_rows(-_MANY_ROWS)

    def do_last(self, _: Action) -> None:
        """Go to the end."""
        self.scroll_rows(_MANY_ROWS)
