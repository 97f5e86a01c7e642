"""Base classes of the screens: header, footer, key bindings. Imports little: the first picture waits for it."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Self, TypeVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widget import Widget

from sparkctl.commands.actions import (
    ACTIONS,
    OVERVIEW,
    ActionContext,
    parse_key,
)
from sparkctl.model.text.units import format_time_of_day
from sparkctl.tui.key_hints import FooterKey, render_key_footer
from sparkctl.tui.panel import ActionHandlers as ActionHandlers
from sparkctl.tui.panel import FrontScreen, Panel
from sparkctl.tui.text_surface import TextSurface
from sparkctl.views.text.frame_layout import describe_guard_coverage, render_header, render_too_small
from sparkctl.views.text.styled_text import Span, TextRow, TextStyle, sanitize_span

if TYPE_CHECKING:
    from sparkctl.model.node import NodeName
    from sparkctl.tui.controller import PanelController
    from sparkctl.views.overview.tile_model import NodeTileModel


_Member = TypeVar("_Member", bound=Enum)
MIN_TERMINAL_SIZE = (50, 12)


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


def get_next_member(member: _Member) -> _Member:
    """Return the member of an enumeration after this one; after the last one the first."""
    every = list(type(member))
    return every[(every.index(member) + 1) % len(every)]


class KeyFooter(TextSurface):
    """The footer with the keys. A click on a key runs its action."""

    places: tuple[FooterKey, ...] = ()

    def on_click(self, event: events.Click) -> None:
        for place in self.places:
            if place.start <= event.x < place.stop:
                panel: Panel = self.app  # type: ignore[assignment]
                panel.perform_action(place.action)


class PanelScreen(FrontScreen):
    """A screen of the panel. Subclasses set `SCREEN_ID` and `BINDINGS` and implement `create_body` and `paint_body`."""

    @classmethod
    def create(cls, now: ActionContext) -> Self:
        """Return the screen for what is selected."""
        return cls()

    def build_node_tile(self, controller: PanelController, name: NodeName, chosen: str | None) -> NodeTileModel:
        """Return what the store knows of a node; ``chosen``: the selected instance. Raises KeyError."""
        from sparkctl.views.overview.tile_model import build_tile_model

        panel = self.panel
        return build_tile_model(
            controller.store, name, panel.displayed_time(), chosen=chosen, recent=controller.recent, start_key=panel.start_key,
            offers=() if panel.start_key is None else controller.list_start_offers(name),
            address=next((node.host for node in panel.config_nodes if node.name == name), None),
        )  # fmt: skip

    def list_styled_notices(self, since: float = 0.0) -> tuple[tuple[str, TextStyle], ...]:
        """Return the notices that hold, those of this time (unix seconds) and later, the latest last."""
        from sparkctl.views.event_log_view import style_notice

        return tuple(style_notice(one) for one in self.panel.list_notices() if one.when >= since)

    def create_body(self) -> Widget:
        """Return the widget between header and footer."""
        raise NotImplementedError

    def surface_size(self, surface: Widget | None) -> tuple[int, int]:
        """Return width and height of the body's surface, estimated before its first layout. None: not mounted yet."""
        wide, high = (0, 0) if surface is None else surface.size
        return (wide, high) if wide and high else (self.size.width, self.size.height - 2)

    def paint_body(self) -> None:
        """Paint the body in its current state."""

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
            Span(format_time_of_day(self.frozen_at or panel.displayed_time(), has_seconds=True), TextStyle.VALUE),
        )
