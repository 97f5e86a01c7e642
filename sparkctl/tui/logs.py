"""The log of an instance, all of it, followed until somebody wants to read; of all its parts, and of others beside it."""

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
from sparkctl.present.instance_parts import evidence_line, evidence_lines, matter_lines
from sparkctl.present.spans import Span, Tone, row
from sparkctl.present.symbols import symbol
from sparkctl.tui.log_feed import LogFeed, Reader
from sparkctl.tui.log_pane import LogPane
from sparkctl.tui.log_sources import Scope, Source, clocks, names, sources, title
from sparkctl.tui.log_view import LogView
from sparkctl.tui.screen import PanelScreen, bound
from sparkctl.tui.sheet import Sheet

if TYPE_CHECKING:
    from sparkctl.core.log_files import SavedLog
    from sparkctl.engines.base import Engine
    from sparkctl.tui.room import Room

_MOST_MATTER = 3  # rows of what is the matter
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
        self._chosen = Source(node, instance)
        self._scope = Scope.INSTANCE
        self._sources: tuple[Source, ...] = ()
        self._earlier = 0  # which of its saved logs is shown, the newest being 1; 0: the live one
        self._pane: LogPane | None = None
        self._feeds: list[LogFeed] = []
        self._wanted: int | None = None  # a line to go to when it comes
        self._proofs: tuple[int, ...] = ()  # all that prove what it is
        self._troubles: dict[Source, str] = {}

    @property
    def crumb(self) -> str:
        """Which log this is."""
        if self._earlier:
            return f"{self._node} › {self._instance} › earlier log"
        return title(self._scope, self._sources, self._chosen)

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
        if end is not None and end.verdict is not None:
            self._wanted, self._proofs = evidence_line(end.verdict), evidence_lines(end.verdict)
        self._read()

    def on_unmount(self) -> None:
        """End reading, and give the disk space back."""
        self._end_reading()
        if self._pane is not None:
            self._pane.view.book.close()

    def picture(self) -> None:
        """Say what is the matter with the log; the log paints itself."""
        self._look_for_more()
        sheet, words = self.query_one("#trouble", Sheet), self._matter()
        sheet.set_class(words is not None, "-said")
        if words is not None:
            sign = symbol(Severity.WARNING, self.panel.ascii_only)
            lines = matter_lines(words, self.size.width - 4)[:_MOST_MATTER]
            sheet.styles.height = len(lines)
            head = row(" ", Span(f"{sign} ", Tone.ATTENTION))
            sheet.show(
                tuple(row(*(head if not at else "   "), Span(line, Tone.VALUE)) for at, line in enumerate(lines))
            )

    def _matter(self) -> str | None:
        """Return what is to be said about these logs: what keeps one from coming, else whose clocks they go by."""
        room = self.panel.room
        if self._troubles and room is not None:
            named = zip(self._sources, names(self._sources, room.bridge.store), strict=True)
            told = [(name, self._troubles[one]) for one, name in named if one in self._troubles]
            is_one = len(self._sources) == 1
            return "; ".join(words if is_one or words.startswith(name) else f"{name}: {words}" for name, words in told)
        return None if room is None or len(self._sources) == 1 else clocks(room.bridge.store, self._sources)

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

    def do_log_numbers(self, _: Action) -> None:
        """Show numbers, or not."""
        self._view(LogView.action_numbers)

    def do_log_back(self, _: Action) -> None:
        """Go back in time."""
        self._view(LogView.action_back)

    def do_log_source(self, _: Action) -> None:
        """Show all merged, or one alone."""
        self._view(LogView.action_source)

    def do_log_scope(self, _: Action) -> None:
        """Show the logs of more instances, or of fewer again."""
        room, scopes = self.panel.room, list(Scope)
        assert room is not None
        at = scopes.index(self._scope)
        for scope in (*scopes[at + 1 :], *scopes[:at]):
            if set(sources(room.bridge.store, scope, self._chosen)) != set(self._sources):
                self._earlier, self._scope = 0, scope
                self._read()
                self.repaint()
                return
        self.panel.say("no other log is there now")

    def do_log_earlier(self, _: Action) -> None:
        """Show the log of the start before."""
        if not (kept := self._kept()):
            self.panel.say(f"no log of an earlier start of {self._instance} on {self._node} is kept here")
            return
        self._earlier, self._scope = (self._earlier + 1) % (len(kept) + 1), Scope.INSTANCE
        self._read()
        self.repaint()

    def do_log_copy(self, _: Action) -> None:
        """Copy."""
        self._view(LogView.action_copy)

    def do_log_save(self, _: Action) -> None:
        """Save to a file."""
        if self._pane is not None:
            self._pane.action_save()

    def on_log_view_saved(self, event: LogView.Saved) -> None:
        """Say where the file is, in full."""
        self.panel.say(event.words)

    def _view(self, do: Callable[[LogView], None]) -> None:
        if self._pane is not None:
            do(self._pane.view)

    def _asks(self, what: str) -> None:
        if self._pane is not None:
            self._pane.action_ask(what)

    # --- whose logs these are ---

    def _read(self) -> None:
        """Begin anew, with an empty log."""
        room = self.panel.room
        if room is None:
            return
        self._end_reading()
        self._troubles.clear()
        saved = self._kept()[self._earlier - 1] if self._earlier else None
        self._sources = (self._chosen,) if saved is not None else sources(room.bridge.store, self._scope, self._chosen)
        self._show(LogBook(names(self._sources, room.bridge.store), [self._marker(room, one) for one in self._sources]))
        self._feeds = [
            LogFeed(room, one.node, one.instance, self._reader(at, one), saved=saved)
            for at, one in enumerate(self._sources)
        ]

    def _end_reading(self) -> None:
        for feed in self._feeds:
            feed.close()
        self._feeds = []

    def _kept(self) -> list[SavedLog]:
        """Return the saved logs of earlier starts, the newest first."""
        room = self.panel.room
        if room is None or room.is_replaying:
            return []
        now = room.instance(self._node, self._instance)
        mine = None if now is None or now.container_id is None else now.container_id[:12]
        saved = room.context.history.saved_logs(self._instance, [self._node])
        return [one for one in saved if one.container != mine]

    def _look_for_more(self) -> None:
        """Read what has come since as well; whoever reads is not disturbed, only who follows."""
        room = self.panel.room
        if room is None or self._pane is None or self._earlier or not self._pane.view.is_following:
            return
        if set(sources(room.bridge.store, self._scope, self._chosen)) - set(self._sources):
            self._read()

    def _show(self, book: LogBook) -> None:
        old = self._pane
        self._pane = LogPane(book, instance=self._instance, ascii_only=self.panel.ascii_only)
        if old is not None:
            old.remove()
            old.view.book.close()
        self.panel.keyboard.hold_for(self._come(self._pane))

    async def _come(self, pane: LogPane) -> None:
        """Mount a log; keys wait for it, since a prompt can be opened only in what is there."""
        await self.query_one("#log").mount(pane)
        if pane is self._pane:
            self.set_focus(pane.view)

    def _marker(self, room: Room, one: Source) -> LineMarker:
        """Return what marks the ready line and failures, as far as it is known which engine it is."""
        engine, ready = None, room.ready_line(one.node, one.instance)
        view = room.instance(one.node, one.instance)
        if view is not None and view.engine is not None:
            engine = _engine(view.engine)
        return LineMarker(engine, ready or (engine.defaults.ready_line if engine is not None else None))

    # --- what the feeds call ---

    def _reader(self, at: int, one: Source) -> Reader:
        has_begun = False

        def begin() -> None:
            """A container after another, or the same one read again: nothing of before may stand twice."""
            nonlocal has_begun
            if has_begun:
                self._read()
            has_begun = True

        def take(lines: Sequence[LogLine]) -> None:
            assert self._pane is not None
            self._pane.view.add(at, lines)
            if one == self._chosen and self._wanted is not None and lines[-1].number >= self._wanted:
                self._go_to_wanted()

        def tell(words: str | None) -> None:
            if words != self._troubles.get(one):
                self._troubles.pop(one, None)
                if words is not None:
                    self._troubles[one] = words
                self.picture()

        def over() -> None:
            if self._pane is not None and not self._earlier:
                self._pane.view.wait_no_more()
            if one == self._chosen:
                self._go_to_wanted()

        return Reader(begin, take, tell, over, self.panel.keyboard.is_ahead)

    def _go_to_wanted(self) -> None:
        line, self._wanted = self._wanted, None
        if line is not None and self._pane is not None:
            at = self._sources.index(self._chosen)
            self.call_after_refresh(self._pane.view.show_evidence, at, line, self._proofs)


def _engine(name: str) -> Engine | None:
    from sparkctl import engines

    return engines.load(name) if name in engines.names() else None
