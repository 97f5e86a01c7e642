"""The log screen: the logs of an instance and its ranks, of one node or of all nodes, merged by time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Self

from textual.binding import BindingType
from textual.containers import Vertical
from textual.widget import Widget

from sparkctl.commands.actions import LOGS, Action, ActionContext, ActionId
from sparkctl.engines import find_engine
from sparkctl.logs.buffer import LogBuffer
from sparkctl.logs.line_marker import LineMarker
from sparkctl.model.container import shorten_id
from sparkctl.model.finding import Severity
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import NodeName
from sparkctl.model.text.log_line import LogLine
from sparkctl.model.text.units import format_duration
from sparkctl.tui.log_viewer.log_pane import LogPane
from sparkctl.tui.log_viewer.log_subscription import LogConsumer, LogSubscription
from sparkctl.tui.log_viewer.log_view import LogView
from sparkctl.tui.screens.base import ActionHandlers, PanelScreen, build_bindings
from sparkctl.tui.text_surface import TextSurface
from sparkctl.views.instance_view import find_evidence_line, list_evidence_lines, render_log_status
from sparkctl.views.text.styled_text import Span, TextStyle, get_state_symbol, make_row

if TYPE_CHECKING:
    from sparkctl.history.log_archive import SavedLog
    from sparkctl.monitor.store import Store
    from sparkctl.tui.controller import PanelController


_MAX_LOGS = 24  # logs shown at once
_MIN_CLOCK_SKEW_SECONDS = 0.5  # s; a smaller difference between two nodes' clocks may be network delay


class LogScope(StrEnum):
    """Whose logs are shown, from the narrowest scope to the widest."""

    INSTANCE = "instance"
    SPARK = "spark"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class LogSource:
    """One container's log."""

    node: NodeName
    instance: str


def list_log_sources(store: Store, scope: LogScope, chosen: LogSource) -> tuple[LogSource, ...]:
    """Return the live logs of a scope, always with the chosen one and its ranks: containers of its name on any node."""
    found = [
        LogSource(node, one.name)
        for node in store.nodes
        for one in store.get_last_known_view(node).instances
        if one.is_alive
        and (one.name == chosen.instance or scope is LogScope.ALL or (scope is LogScope.SPARK and node == chosen.node))
    ]
    unique = list(dict.fromkeys(found))
    if chosen not in unique:
        unique.insert(0, chosen)
    return tuple(unique[:_MAX_LOGS])


def label_log_sources(shown: Sequence[LogSource], store: Store) -> tuple[str, ...]:
    """Return a short label for each source: what distinguishes it, or its rank within one model."""
    if len({one.instance for one in shown}) == 1:
        ranks = (_find_rank(store, one) if len(shown) > 1 else None for one in shown)
        return tuple(
            str(one.node) if rank is None else f"{one.node} rank {rank}" for one, rank in zip(shown, ranks, strict=True)
        )
    if len({one.instance for one in shown}) == len(shown):
        return tuple(one.instance for one in shown)
    return tuple(f"{one.node} {one.instance}" for one in shown)


def _find_rank(store: Store, source: LogSource) -> int | None:
    if source.node not in store.nodes:
        return None
    found = (
        one.rank_position for one in store.get_last_known_view(source.node).instances if one.name == source.instance
    )
    return next((place[0] for place in found if place is not None), None)


def format_log_title(scope: LogScope, shown: Sequence[LogSource], chosen: LogSource) -> str:
    """Return the breadcrumb of these logs."""
    if scope is LogScope.ALL:
        return "all logs"
    if scope is LogScope.SPARK and any(one.node != chosen.node for one in shown):
        return f"{chosen.instance} and all of {chosen.node} › logs"
    if scope is LogScope.SPARK:
        return f"{chosen.node} › all logs"
    if len(shown) > 1:
        return f"{chosen.instance} on {len(shown)} Sparks › log"
    return f"{chosen.node} › {chosen.instance} › log"


def describe_clock_skew(store: Store, shown: Sequence[LogSource]) -> str | None:
    """Return a warning where the nodes' clocks, by which lines are merged, differ too much; else None."""
    ahead = {node: store.get_record(node).clock_offset for node in dict.fromkeys(one.node for one in shown)}
    known = sorted((seconds, node) for node, seconds in ahead.items() if seconds is not None)
    if len(known) < 2 or known[-1][0] - known[0][0] < _MIN_CLOCK_SKEW_SECONDS:
        return None
    (least, behind), (most, before) = known[0], known[-1]
    return f"merged by each Spark's own clock: {before}'s is {format_duration(most - least)} ahead of {behind}'s"


_MAX_STATUS_ROWS = 3
_EXCLUDED_ACTIONS = (ActionId.PAUSE,)  # space turns a page here
_SEARCH_ACTIONS = (ActionId.LOG_FIND, ActionId.LOG_NEXT, ActionId.LOG_PREVIOUS)


class _LogBody(Vertical):
    """Status rows and log."""

    BLANK = True


class LogScreen(PanelScreen):
    """Shows logs; opens at the line that proves the verdict if there is one."""

    SCREEN_ID = LOGS
    BINDINGS: ClassVar[list[BindingType]] = build_bindings(LOGS)
    CSS = """
    LogScreen .body > #trouble { height: 1; display: none; }
    LogScreen .body > #trouble.-said { display: block; }
    """

    @classmethod
    def create(cls, now: ActionContext) -> Self:
        assert now.node is not None
        assert now.instance is not None
        return cls(now.node, now.instance)

    def __init__(self, node: NodeName, instance: str) -> None:
        super().__init__()
        self._node, self._instance = node, instance
        self._chosen = LogSource(node, instance)
        self._scope = LogScope.INSTANCE
        self._sources: tuple[LogSource, ...] = ()
        self._earlier = 0  # index of the shown saved log, 1 is the newest; 0: the live log
        self._pane: LogPane | None = None
        self._log_subscriptions: list[LogSubscription] = []
        self._wanted: int | None = None  # a line to go to once it has arrived
        self._proofs: tuple[int, ...] = ()  # all lines that prove the verdict
        self._troubles: dict[LogSource, str] = {}

    @property
    def breadcrumb(self) -> str:
        if self._earlier:
            return f"{self._node} › {self._instance} › earlier log"
        return format_log_title(self._scope, self._sources, self._chosen)

    @property
    def actions(self) -> tuple[Action, ...]:
        """The actions of this screen; while it searches, those of the search come first in the footer."""
        found = tuple(one for one in super().actions if one.id not in _EXCLUDED_ACTIONS)
        if self._pane is None or self._pane.view.filter.pattern is None:
            return found
        return tuple(replace(one, footer=0) if one.id in _SEARCH_ACTIONS else one for one in found)

    def add_selection(self, now: ActionContext) -> ActionContext:
        return replace(now, node=self._node, instance=self._instance)

    def create_body(self) -> Widget:
        """Return the status rows and the place of the log."""
        return _LogBody(TextSurface(self.panel.tones, id="trouble"), id="log")

    def on_mount(self) -> None:
        controller = self.panel.controller
        if controller is None:
            return
        end = controller.store.find_start_failure(self._node, self._instance)
        if end is not None and end.verdict is not None:
            self._wanted, self._proofs = find_evidence_line(end.verdict), list_evidence_lines(end.verdict)
        self._restart_reading()

    def on_unmount(self) -> None:
        """End reading and free the disk space of the buffer."""
        self._close_subscriptions()
        if self._pane is not None:
            self._pane.view.buffer.close()

    def on_log_pane_pattern_changed(self) -> None:
        """Show the keys of a search in the footer while there is one."""
        self.repaint()

    def paint_body(self) -> None:
        """Paint the status rows; the log paints itself."""
        self._include_new_sources()
        surface, words = self.query_one("#trouble", TextSurface), self._describe_status()
        surface.set_class(words is not None, "-said")
        if words is not None:
            head = make_row(" ", Span(f"{get_state_symbol(Severity.WARNING)} ", TextStyle.ATTENTION))
            rows = render_log_status(words, self.size.width - 1, TextStyle.VALUE, head)[:_MAX_STATUS_ROWS]
            surface.styles.height = len(rows)
            surface.set_rows(rows)

    def _describe_status(self) -> str | None:
        """Return the problems of these logs, else the warning about differing clocks; None without either."""
        controller = self.panel.controller
        if self._troubles and controller is not None:
            named = zip(self._sources, label_log_sources(self._sources, controller.store), strict=True)
            problems = [(name, self._troubles[one]) for one, name in named if one in self._troubles]
            is_one = len(self._sources) == 1
            return "; ".join(
                words if is_one or words.startswith(name) else f"{name}: {words}" for name, words in problems
            )
        return (
            None
            if controller is None or len(self._sources) == 1
            else describe_clock_skew(controller.store, self._sources)
        )

    # --- keys ---

    def action_handlers(self) -> ActionHandlers:
        own = {ActionId.LOG_SCOPE: self._widen_scope, ActionId.LOG_EARLIER: self._show_earlier_log}
        return own if self._pane is None else {**self._pane.action_handlers(), **own}

    def _widen_scope(self) -> None:
        """Widen the scope of the logs; after the widest comes the narrowest."""
        controller, scopes = self.panel.controller, list(LogScope)
        assert controller is not None
        at = scopes.index(self._scope)
        for scope in (*scopes[at + 1 :], *scopes[:at]):
            if set(list_log_sources(controller.store, scope, self._chosen)) != set(self._sources):
                self._earlier, self._scope = 0, scope
                self._restart_reading()
                self.repaint()
                return
        self.panel.show_toast("no other log is there now")

    def _show_earlier_log(self) -> None:
        """Show the saved log of the previous start."""
        if not (kept := self._list_saved_logs()):
            self.panel.show_toast(f"no log of an earlier start of {self._instance} on {self._node} is saved here")
            return
        self._earlier, self._scope = (self._earlier + 1) % (len(kept) + 1), LogScope.INSTANCE
        self._restart_reading()
        self.repaint()

    def on_log_view_saved(self, event: LogView.Saved) -> None:
        """Show the whole path of the saved file."""
        self.panel.show_toast(event.words)

    # --- sources ---

    def _restart_reading(self) -> None:
        """Read all sources again into an empty buffer."""
        controller = self.panel.controller
        if controller is None:
            return
        self._close_subscriptions()
        self._troubles.clear()
        saved = self._list_saved_logs()[self._earlier - 1] if self._earlier else None
        self._sources = (
            (self._chosen,) if saved is not None else list_log_sources(controller.store, self._scope, self._chosen)
        )
        self._show_log(
            LogBuffer(
                label_log_sources(self._sources, controller.store),
                [self._create_marker(controller, one) for one in self._sources],
            )
        )
        self._log_subscriptions = [
            LogSubscription(controller, one.node, one.instance, self._build_consumer(at, one), saved=saved)
            for at, one in enumerate(self._sources)
        ]

    def _close_subscriptions(self) -> None:
        for subscription in self._log_subscriptions:
            subscription.close()
        self._log_subscriptions = []

    def _list_saved_logs(self) -> list[SavedLog]:
        """Return the saved logs of earlier starts, the newest first."""
        controller = self.panel.controller
        if controller is None or controller.is_replaying:
            return []
        now = controller.store.find_instance(self._node, self._instance)
        mine = None if now is None or now.container_id is None else shorten_id(now.container_id)
        saved = controller.context.history.list_saved_logs(self._instance, [self._node])
        return [one for one in saved if one.short_container_id != mine]

    def _include_new_sources(self) -> None:
        """Include new sources while the log is followed; a paused reader is not disturbed."""
        controller = self.panel.controller
        if controller is None or self._pane is None or self._earlier or not self._pane.view.is_following:
            return
        if set(list_log_sources(controller.store, self._scope, self._chosen)) - set(self._sources):
            self._restart_reading()

    def _show_log(self, buffer: LogBuffer) -> None:
        old = self._pane
        self._pane = LogPane(buffer, instance=self._instance)
        if old is not None:
            self._pane.view.adopt_settings(old.view)
            old.remove()
            old.view.buffer.close()
        self.panel.keyboard.hold_until_mounted(self._mount_log_pane(self._pane))

    async def _mount_log_pane(self, pane: LogPane) -> None:
        """Mount a log pane; keys wait for it, since a prompt needs a mounted pane."""
        await self.query_one("#log").mount(pane)
        if pane is self._pane:
            self.set_focus(pane.view)

    def _create_marker(self, controller: PanelController, one: LogSource) -> LineMarker:
        """Return the classifier that marks ready lines and failures, for the engine where it is known."""
        ready = controller.find_ready_line(one.node, one.instance)
        view = controller.store.find_instance(one.node, one.instance)
        engine = None if view is None else find_engine(view.engine)
        return LineMarker(engine, ready or (engine.defaults.ready_line if engine is not None else None))

    # --- callbacks of the subscriptions ---

    def _build_consumer(self, at: int, one: LogSource) -> LogConsumer:
        has_begun = False

        def restart_if_begun() -> None:
            """Restart for a new container or a repeated read, so that no line appears twice."""
            nonlocal has_begun
            if has_begun:
                self._restart_reading()
            has_begun = True

        def append_lines(lines: Sequence[LogLine]) -> None:
            assert self._pane is not None
            self._pane.view.add_lines(at, lines)
            if one == self._chosen and self._wanted is not None and lines[-1].number >= self._wanted:
                self._go_to_evidence()

        def set_trouble(words: str | None) -> None:
            if words != self._troubles.get(one):
                self._troubles.pop(one, None)
                if words is not None:
                    self._troubles[one] = words
                self.paint_body()

        def finish_loading() -> None:
            if self._pane is not None and not self._earlier:
                self._pane.view.mark_loaded()
            if one == self._chosen:
                self._go_to_evidence()

        return LogConsumer(
            begin=restart_if_begun,
            take=append_lines,
            tell=set_trouble,
            over=finish_loading,
        )

    def _go_to_evidence(self) -> None:
        line, self._wanted = self._wanted, None
        if line is not None and self._pane is not None:
            at = self._sources.index(self._chosen)
            self.call_after_refresh(self._pane.view.show_evidence, at, line, self._proofs)
