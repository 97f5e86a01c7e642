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

from sparkctl.core.actions import ACTIONS, OVERVIEW, Action, Situation, key_name, meant_on
from sparkctl.present.frame import guard_words, header, too_small
from sparkctl.present.keys import Key, footer
from sparkctl.present.spans import Row, Span, Tone, said
from sparkctl.tui.sheet import Sheet

if TYPE_CHECKING:
    from sparkctl.tui.app import Panel

LEAST = (50, 12)


def bound(place: str | None) -> list[BindingType]:
    """Return the keys of the actions of one screen; None: of those that mean the same everywhere. What has no key has a name
    that no terminal sends: an operator may give it one."""
    return [
        Binding(
            ",".join(map(key_name, one.keys)) or f"none-{one.id}",
            f"app.act('{one.id}')",
            one.short,
            show=False,
            id=one.id,
        )
        for one in ACTIONS
        if (place in one.on if place else not one.on)
    ]


class Footer(Sheet):
    """The last line. A click on a key is that key."""

    places: tuple[Key, ...] = ()

    def on_click(self, event: events.Click) -> None:
        """Do what was clicked."""
        for place in self.places:
            if place.start <= event.x < place.stop:
                panel: Panel = self.app  # type: ignore[assignment]
                panel.act(place.action)


class CalmScreen(Screen[None]):
    """Is not painted anew, all of it, where the focus goes from one widget to another: those two paint themselves."""

    focused: Reactive[Widget | None] = Reactive(None, repaint=False)


class PanelScreen(CalmScreen):
    """A screen with ``body``. Subclasses give `PLACE`, their ``bound`` keys, `body` and `picture`; an action of which they
    have a ``do_`` method (by the name of its id) is theirs to do."""

    PLACE: ClassVar[str]
    held_at: float | None = None  # since when nothing but the operator's own moves is painted here, unix seconds

    @property
    def panel(self) -> Panel:
        """The app, by its own type."""
        return self.app  # type: ignore[return-value]

    @property
    def crumb(self) -> str:
        """What stands behind the program's name in the header."""
        return ""

    @property
    def actions(self) -> tuple[Action, ...]:
        """The actions that mean something here, in the order of the help."""
        return meant_on(self.panel.actions, self.PLACE)

    def selected(self, now: Situation) -> Situation:
        """Return the situation with what is selected here."""
        return now

    def body(self) -> Widget:
        """Return what is between header and footer."""
        raise NotImplementedError

    def picture(self) -> None:
        """Show the state as it is now."""

    def tells(self, message: str) -> bool:
        """Tell whether this very thing is said here anyway, so that it needs no corner."""
        del message
        return False

    def hold(self) -> None:
        """Hold the picture, or let it go on. Another screen goes on by itself."""
        self.held_at = self.panel.now() if self.held_at is None else None

    def compose(self) -> ComposeResult:
        """Header, body, footer, and what takes their place in a tiny terminal."""
        tones = self.panel.tones
        yield Sheet(tones, id="head")
        body = self.body()
        body.add_class("body")
        yield body
        yield Footer(tones, id="foot")
        yield Sheet(tones, id="small")

    def on_resize(self, event: events.Resize) -> None:
        """Say what is needed where there is not enough."""
        wide, high = event.size
        self.set_class(wide < LEAST[0] or high < LEAST[1], "-tiny")
        self.repaint()

    def on_screen_resume(self) -> None:
        """Be up to date when it is seen again."""
        self.repaint()
        self.panel.say_what_waited()

    def recolour(self) -> None:
        """Paint everything in the theme's colours."""
        for sheet in self.query(Sheet):
            sheet.paint(self.panel.tones)

    def repaint(self) -> None:
        """Show the state as it is now, header and footer included."""
        if not self.size.width or self.query_one_optional("#head") is None:  # not there yet, or not any more
            return
        wide, high = self.size
        ascii_only = self.panel.ascii_only
        if self.has_class("-tiny"):
            self.query_one("#small", Sheet).show(too_small(wide, high, LEAST, ascii_only))
            return
        self.query_one("#head", Sheet).show((header(self._title(), self._standing(), wide, ascii_only),))
        foot = self.query_one("#foot", Footer)
        line, foot.places = footer(self.actions, self.panel.situation(), wide, ascii_only)
        foot.show((line,))
        self.picture()

    def _title(self) -> Row:
        crumb = self.crumb
        title = (Span("sparkctl", Tone.TITLE),)
        return (*title, Span(" › ", Tone.LABEL), said(crumb, Tone.LABEL)) if crumb else title

    def _standing(self) -> Row:
        panel = self.panel
        badges = [
            (panel.config_fault is not None, "config has faults", Tone.BAD),
            (self.held_at is not None, "paused", Tone.ATTENTION),
            (self.PLACE != OVERVIEW and bool(panel.progress), panel.progress, Tone.ATTENTION),
            (bool(panel.badge), panel.badge, Tone.ACCENT),
            (panel.setup.readonly, "read-only", Tone.ACCENT),
        ]
        count = len(panel.names)
        spans = [Span(f"{count} Spark{'s' if count != 1 else ''} · ", Tone.LABEL)]
        if (guard := guard_words(panel.guarded())) is not None:
            spans.append(Span(f"{guard} · ", Tone.LABEL))
        # what stands left goes first where it gets narrow: nobody is to take a recording for what is now
        spans += [Span(f"{word} · ", tone) for on, word, tone in badges if on]
        if self.PLACE != OVERVIEW:  # there the tiles say it
            from sparkctl.present.glance import troubled

            spans += [said(f"{words} · ", tone) for words, tone in troubled(panel.situation().views, panel.ascii_only)]
        return (*spans, Span(time.strftime("%H:%M:%S", time.localtime(self.held_at or panel.now())), Tone.VALUE))
