"""The log of one instance, all of it, followed until somebody wants to read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from textual.binding import BindingType
from textual.containers import Vertical
from textual.widget import Widget

from sparkctl.core.actions import LOGS, Action, ActionId, Situation
from sparkctl.core.logbook import LogBook
from sparkctl.core.logmarks import LineMarker
from sparkctl.model.finding import Severity
from sparkctl.model.log import LogLine
from sparkctl.model.node import NodeName
from sparkctl.present.instance_parts import evidence_line
from sparkctl.present.spans import Span, Tone, row, said
from sparkctl.present.symbols import symbol
from sparkctl.tui.log_feed import LogFeed, Reader
from sparkctl.tui.log_pane import LogPane
from sparkctl.tui.log_view import LogView
from sparkctl.tui.screen import PanelScreen, bound
from sparkctl.tui.sheet import Sheet

if TYPE_CHECKING:
    from sparkctl.engines.base import Engine

_NOT_HERE = (ActionId.PAUSE,)  # space turns a page here


def logs_screen(now: Situation) -> PanelScreen:
    """Return the screen for the selected instance."""
    assert now.node is not None
    assert now.instance is not None
    return Logs(now.node, now.instance)


class Logs(PanelScreen):
    """Opens at the line that proves a verdict where there is one."""

    PLACE = LOGS
    BINDINGS: ClassVar[list[BindingType]] = bound(LOGS)
    CSS = """
    Logs .body > #trouble { height: 1; display: none; }
    Logs .body > #trouble.-said { display: block; }
    """

    def __init__(self, node: NodeName, instance: str) -> None:
        super().__init__()
        self._node, self._instance = node, instance
        self._pane: LogPane | None = None
        self._feed: LogFeed | None = None
        self._wanted: int | None = None  # a line to go to when it comes
        self._trouble: str | None = None

    @property
    def crumb(self) -> str:
        """Which log this is."""
        return f"{self._node} › {self._instance} › log"

    @property
    def actions(self) -> tuple[Action, ...]:
        """What can be done here."""
        return tuple(one for one in super().actions if one.id not in _NOT_HERE)

    def selected(self, now: Situation) -> Situation:
        """The instance whose log this is."""
        return replace(now, node=self._node, instance=self._instance)

    def body(self) -> Widget:
        """Return what is said about the log, and the log."""
        return Vertical(Sheet(self.panel.tones, id="trouble"), id="log")

    def on_mount(self) -> None:
        """Begin to read."""
        room = self.panel.room
        if room is None:
            return
        end = room.failure(self._node, self._instance)
        self._wanted = evidence_line(end.verdict) if end is not None and end.verdict is not None else None
        self._feed = LogFeed(
            room, self._node, self._instance, Reader(self._begin, self._take, self._tell, self._is_whole)
        )

    def on_unmount(self) -> None:
        """End reading, and give the disk space back."""
        if self._feed is not None:
            self._feed.close()
        if self._pane is not None:
            self._pane.view.book.close()

    def picture(self) -> None:
        """Say what is the matter with the log; the log paints itself."""
        sheet = self.query_one("#trouble", Sheet)
        sheet.set_class(self._trouble is not None, "-said")
        if self._trouble is not None:
            sign = symbol(Severity.WARNING, self.panel.ascii_only)
            sheet.show((row(" ", Span(f"{sign} ", Tone.ATTENTION), said(self._trouble, Tone.VALUE)),))

    # --- keys ---

    def do_log_follow(self, _: Action) -> None:
        """Follow, or pause."""
        self._view(LogView.action_follow)

    def do_log_find(self, _: Action) -> None:
        """Ask what to find."""
        self._asks("find")

    def do_log_only(self, _: Action) -> None:
        """Ask which lines to show."""
        self._asks("only")

    def do_log_next(self, _: Action) -> None:
        """Go to the next match."""
        self._view(LogView.action_next_match)

    def do_log_previous(self, _: Action) -> None:
        """Go to the match before."""
        self._view(lambda view: view.action_next_match(backwards=True))

    def do_log_first_error(self, _: Action) -> None:
        """Go to the first error."""
        self._view(LogView.action_first_error)

    def do_log_next_mark(self, _: Action) -> None:
        """Go to the next ready line or failure."""
        self._view(LogView.action_next_mark)

    def do_log_previous_mark(self, _: Action) -> None:
        """Go to the one before."""
        self._view(lambda view: view.action_next_mark(backwards=True))

    def do_log_wrap(self, _: Action) -> None:
        """Wrap, or not."""
        self._view(LogView.action_wrap)

    def do_log_times(self, _: Action) -> None:
        """Show times, or not."""
        self._view(LogView.action_times)

    def do_log_copy(self, _: Action) -> None:
        """Copy."""
        self._view(LogView.action_copy)

    def do_log_save(self, _: Action) -> None:
        """Save to a file."""
        if self._pane is not None:
            self._pane.action_save()

    def _view(self, do: Callable[[LogView], None]) -> None:
        if self._pane is not None:
            do(self._pane.view)

    def _asks(self, what: str) -> None:
        if self._pane is not None:
            self._pane.action_ask(what)

    # --- what the feed calls ---

    def _begin(self) -> None:
        """Show an empty log: of this container nothing came yet."""
        old = self._pane
        book = LogBook((self._instance,), (self._marker(),))
        self._pane = LogPane(book, instance=self._instance, ascii_only=self.panel.ascii_only)
        if old is not None:
            old.remove()
            old.view.book.close()
        self.query_one("#log").mount(self._pane)
        self.call_after_refresh(self._pane.view.focus)

    def _marker(self) -> LineMarker:
        """Return what marks the ready line and failures, as far as it is known which engine it is."""
        room = self.panel.room
        assert room is not None
        engine, ready = None, room.ready_line(self._node, self._instance)
        view = room.instance(self._node, self._instance)
        if view is not None and view.engine is not None:
            engine = _engine(view.engine)
        return LineMarker(engine, ready or (engine.defaults.ready_line if engine is not None else None))

    def _take(self, lines: Sequence[LogLine]) -> None:
        assert self._pane is not None
        self._pane.view.add(0, lines)
        if self._wanted is not None and lines[-1].number >= self._wanted:
            self._go_to_wanted()

    def _tell(self, words: str | None) -> None:
        if words != self._trouble:
            self._trouble = words
            self.picture()

    def _is_whole(self) -> None:
        if self._wanted is not None:
            self._go_to_wanted()

    def _go_to_wanted(self) -> None:
        line, self._wanted = self._wanted, None
        if line is not None and self._pane is not None:
            self.call_after_refresh(self._pane.view.show_evidence, 0, line)


def _engine(name: str) -> Engine | None:
    from sparkctl import engines

    return engines.load(name) if name in engines.names() else None
