"""The panel's store of node state, its list of recent events and log lines, and when the screen is painted again."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from sparkctl.model.events import (
    CommandEnded,
    ContainersListed,
    Event,
    LogArrived,
    NodeStateChanged,
    PhaseChanged,
    SampleArrived,
)
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.phase import Phase
from sparkctl.monitor.store import Store, Topic, TopicKind
from sparkctl.views.overview.event_log_view import (
    EventLogEntry,
    describe_container_changes,
    describe_event,
    describe_refusal,
)
from sparkctl.views.overview.overview_view import RecentLogLine

STATE_REPAINT_SECONDS = 0.2  # seconds between two paints after a change of state
SAMPLE_REPAINT_SECONDS = 0.5  # seconds between two paints while only figures change
_STATE_TOPICS = (
    TopicKind.STATE,
    TopicKind.PHASE,
    TopicKind.LOG,
    TopicKind.INSTANCES,
    TopicKind.FINDINGS,
    TopicKind.SWITCH,
)
_MAX_LOG_LINES = 40
_MAX_EVENT_LOG_ENTRIES = 20


class RepaintScheduler:
    """Applies events to the panel's store and calls ``repaint`` on the event loop, never from within `apply_event`."""

    def __init__(self, nodes: Iterable[NodeName], now: Callable[[], float], repaint: Callable[[], None]) -> None:
        self.store = Store(nodes, now())
        self._now = now
        self.lines: deque[RecentLogLine] = deque(maxlen=_MAX_LOG_LINES)
        self.event_log: deque[EventLogEntry] = deque(maxlen=_MAX_EVENT_LOG_ENTRIES)
        self._phases: dict[tuple[NodeName, str], Phase] = {}  # of each instance, by the last event
        self._listed: set[NodeName] = set()  # nodes whose containers were listed at least once
        self.start_results: dict[tuple[str, str], CommandEnded] = {}  # how starts ended, by node and instance
        self._repaint = repaint
        self._handle: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._painted = 0.0
        self._in_bar = False

    def apply_event(self, event: Event) -> None:
        """Apply an event to the store, the event log and the recent log lines."""
        topics = self.store.apply_event(event)
        self._append_event_log(_as_reconnect_event(event, topics))
        if isinstance(event, LogArrived):
            for line in event.lines[-_MAX_LOG_LINES:]:
                self._append_log_line(RecentLogLine(event.node, event.instance, line.text))
        elif isinstance(event, CommandEnded) and event.node and event.instance and event.verdict:
            self.start_results[event.node, event.instance] = event
        elif isinstance(event, PhaseChanged):
            self.start_results.pop((event.node, event.instance), None)
        elif not topics and not isinstance(event, NodeStateChanged):
            return
        self.schedule_repaint(topics)

    def reset_store(self) -> None:
        """Clear all state."""
        self.store = Store((), self._now())
        self.lines.clear()
        self.start_results.clear()
        self.event_log.clear()
        self._phases.clear()
        self._listed.clear()
        self._in_bar = False

    def add_nodes(self, nodes: Iterable[NodeName]) -> None:
        """Add nodes of unknown state to the store."""
        for name in nodes:
            if name not in self.store.nodes:
                self.apply_event(NodeStateChanged(ts=self._now(), node=name, state=NodeState.UNKNOWN))

    def schedule_repaint(self, topics: Iterable[Topic] = ()) -> None:
        """Schedule a repaint: sooner after a change of state than after new figures."""
        pause = (
            STATE_REPAINT_SECONDS if any(topic.what in _STATE_TOPICS for topic in topics) else SAMPLE_REPAINT_SECONDS
        )
        loop = asyncio.get_running_loop()
        due = max(loop.time(), self._painted + pause)
        if self._handle is not None:
            if self._due <= due:
                return
            self._handle.cancel()
        self._due = due
        self._handle = loop.call_at(due, self._run_repaint)

    def _append_event_log(self, event: Event) -> None:
        """Add an event to the event log, unless it repeats the last entry about the same thing."""
        if isinstance(event, ContainersListed) and event.known:
            listed = replace(event, instances=self.store.get_last_known_view(event.node).instances)
            self.event_log += describe_container_changes(listed, self._phases, is_first=event.node not in self._listed)
            self._listed.add(event.node)
        elif isinstance(event, PhaseChanged):
            self._phases[event.node, event.instance] = event.phase
        new = describe_event(event)
        if new is None:
            return
        last = next((one for one in reversed(self.event_log) if (one.node, one.what) == (new.node, new.what)), None)
        if last is None and isinstance(event, NodeStateChanged) and event.state is NodeState.OK:
            return  # it was never away: another connection was opened
        if last is not None and new.supersedes(last):
            self.event_log.remove(last)
        if last is None or not last.repeats(new):
            self.event_log.append(new)

    def _append_log_line(self, line: RecentLogLine) -> None:
        """Keep a log line; of a progress bar, which rewrites its line, only the newest state."""
        text = line.text.rstrip("\r\n")
        head, rewritten, now = text.rpartition("\r")
        if not now.strip():
            return
        if rewritten and self.lines and self.lines[-1].instance == line.instance and self._in_bar:
            self.lines.pop()
        self._in_bar = bool(rewritten)
        prefix = head.partition("\r")[0] if rewritten else ""
        self.lines.append(RecentLogLine(line.node, line.instance, prefix + now))

    def set_start_result(self, end: CommandEnded) -> None:
        """Keep how a start ended that this panel did not watch."""
        if end.node is not None and end.instance is not None:
            self.start_results[end.node, end.instance] = end

    def start_results_on_node(self, node: NodeName) -> dict[str, CommandEnded]:
        """Return how the starts on a node ended, by instance."""
        return {instance: end for (name, instance), end in self.start_results.items() if name == node}

    def record_refusal(self, ended: CommandEnded, words: Sequence[str], node: NodeName | None) -> None:
        """Add a refused command line and its reason to the event log."""
        if (where := NodeName(ended.node) if ended.node else node) is not None:
            self.event_log.append(describe_refusal(ended, words, where))

    def close(self) -> None:
        """Cancel the scheduled repaint."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _run_repaint(self) -> None:
        self._handle = None
        self._painted = asyncio.get_running_loop().time()
        self._repaint()


def _as_reconnect_event(event: Event, topics: Iterable[Topic]) -> Event:
    """Return a node's first sample after a break as the event that the node answers again."""
    if isinstance(event, SampleArrived) and any(topic.what is TopicKind.STATE for topic in topics):
        return NodeStateChanged(ts=event.ts, node=event.node, state=NodeState.OK)
    return event
