"""The last events worth a line, for an owner who was away for a minute, and the last log lines. Parts of the store."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from sparkctl.model.events import (
    CachesDropped,
    CommandEnded,
    ContainersListed,
    Event,
    GuardActed,
    LogArrived,
    NodeStateChanged,
    PhaseChanged,
)
from sparkctl.model.guard_state import GuardAction
from sparkctl.model.instance import InstanceView
from sparkctl.model.kernel_event import KernelEvent
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.phase import Phase
from sparkctl.model.text.units import GIB, format_clock

_MAX_ENTRIES = 20
_MAX_LOG_LINES = 40
_MIN_DROP_BYTES = GIB // 20  # bytes; a smaller drop would be shown as 0.0
_REPEAT_SECONDS = 2.0  # seconds before the same news is shown again
_VERDICT_SECONDS = 60.0  # seconds until the verdict of a failure
_STARTING_PHASES = (Phase.DROPPING_CACHES, Phase.CREATING, Phase.STARTING, Phase.LOADING, Phase.WARMING)
# they end a start; containers in them stay until they are removed
_TIMED_PHASES = (Phase.READY, Phase.UNPROVED, Phase.FAILED)
_LOGGED_GUARD_ACTIONS = (GuardAction.WARNED, GuardAction.KILLED, GuardAction.KILL_FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerChanged:
    """What Docker's list shows as new. ``phase`` None: it is gone. ``status``: Docker's words about a new container."""

    ts: float
    node: NodeName
    instance: str
    phase: Phase | None
    status: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRefused:
    """A start of the operator was refused for ``reason``. ``words``: its command line."""

    ts: float
    node: NodeName
    words: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelEventLogged:
    """The node's kernel logged something that matters."""

    ts: float
    node: NodeName
    event: KernelEvent


LoggedEvent = (
    PhaseChanged
    | ContainerChanged
    | CachesDropped
    | GuardActed
    | NodeStateChanged
    | CommandEnded
    | StartRefused
    | KernelEventLogged
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLogEntry:
    """An event worth a line. ``what`` is its subject, ``news`` what it says of it: equal entries are one."""

    when: float
    node: NodeName
    event: LoggedEvent
    what: tuple[str, ...]
    news: tuple[object, ...]

    def supersedes(self, other: EventLogEntry) -> bool:
        """Tell whether this is the same news about an instance as another entry shortly before, with more detail."""
        if (self.node, self.what) != (other.node, other.what) or self.what[0] != "phase":
            return False
        (phase, seconds, *_), (other_phase, other_seconds, *_) = self.news, other.news
        is_same = phase is other_phase and (phase is Phase.FAILED or other_seconds in (None, seconds))
        # why a start failed is told once its log was read
        within = _VERDICT_SECONDS if phase is Phase.FAILED else _REPEAT_SECONDS
        return is_same and 0 <= self.when - other.when <= within


def build_log_entry(event: Event | ContainerChanged | StartRefused | KernelEventLogged) -> EventLogEntry | None:
    """Return an event as an entry; None if it is shown elsewhere or unimportant."""
    match event:
        case PhaseChanged():
            is_timed = event.phase in _TIMED_PHASES and event.elapsed is not None
            what: tuple[str, ...] = ("phase", event.instance)
            news: tuple[object, ...] = (event.phase, format_clock(event.elapsed or 0.0) if is_timed else None, "")
        case ContainerChanged():
            what, news = ("phase", event.instance), (event.phase, None, event.status)
        case CommandEnded() if event.verdict is not None and event.instance is not None:
            what, news = ("phase", event.instance), (Phase.FAILED, None, event.verdict.summary)
        case CachesDropped() if event.proven is False or _is_noticeable_drop(event):
            what, news = ("caches", str(event.ts)), ()
        case GuardActed() if event.what in _LOGGED_GUARD_ACTIONS:
            what = ("guard", str(event.at))
            news = (event.what, event.instance, event.why, event.available)
        case NodeStateChanged() if event.state is not NodeState.UNKNOWN:
            what, news = ("node",), (event.state, None if event.state is NodeState.OK else event.detail)
        case StartRefused():
            what, news = ("refused", str(event.ts)), ()
        case KernelEventLogged():
            what, news = ("kernel", event.event.meaning), ()
        case _:
            return None
    if event.node is None:
        return None
    return EventLogEntry(when=event.ts, node=event.node, event=event, what=what, news=news)


def _is_noticeable_drop(event: CachesDropped) -> bool:
    before, after = event.before, event.after
    moved = (after.free - before.free, after.available - before.available, after.reclaimable - before.reclaimable)
    return max(map(abs, moved)) >= _MIN_DROP_BYTES


class EventLog:
    """The last entries, the latest last."""

    def __init__(self) -> None:
        self.entries: deque[EventLogEntry] = deque(maxlen=_MAX_ENTRIES)
        self._phases: dict[tuple[NodeName, str], Phase] = {}  # of each instance, by the last event
        self._listed: set[NodeName] = set()  # nodes whose containers were listed at least once

    def add_event(self, event: Event | StartRefused | KernelEventLogged) -> None:
        """Add an event, unless it repeats the last entry about the same thing."""
        if isinstance(event, PhaseChanged):
            self._phases[event.node, event.instance] = event.phase
        new = build_log_entry(event)
        if new is None:
            return
        last = next((one for one in reversed(self.entries) if (one.node, one.what) == (new.node, new.what)), None)
        if last is None and isinstance(event, NodeStateChanged) and event.state is NodeState.OK:
            return  # it was never away: another connection was opened
        if last is not None and (last.node, last.what, last.news) == (new.node, new.what, new.news):
            return
        if last is not None and new.supersedes(last):
            self.entries.remove(last)
        self.entries.append(new)

    def add_container_list(self, listed: ContainersListed, instances: Sequence[InstanceView]) -> None:
        """Add what a list shows as new: started by others, ended, removed. The first list of a node brings no news.

        ``instances``: the listed ones and those that are starting, with their current phases.
        """
        node, found = listed.node, list[ContainerChanged]()
        for one in instances:
            before = self._phases.get((node, one.name))
            if before in _STARTING_PHASES and one.phase in _STARTING_PHASES and one.phase.order < before.order:
                continue  # a start never goes back: the list knows less than the log
            if one.ours and one.phase is not None and one.phase is not before:
                self._phases[node, one.name] = one.phase
                status = one.status if before is None else ""
                found.append(
                    ContainerChanged(ts=listed.ts, node=node, instance=one.name, phase=one.phase, status=status)
                )
        there = {one.name for one in instances}
        for name in [name for (where, name) in self._phases if where == node and name not in there]:
            if self._phases[node, name] in _TIMED_PHASES:
                del self._phases[node, name]
                found.append(ContainerChanged(ts=listed.ts, node=node, instance=name, phase=None))
        if node in self._listed:
            self.entries += [entry for one in found if (entry := build_log_entry(one)) is not None]
        self._listed.add(node)


@dataclass(frozen=True, slots=True)
class RecentLogLine:
    """A line of an engine's log. ``when``: Docker's timestamp (RFC 3339, UTC); "" where it is not known."""

    node: NodeName
    instance: str
    text: str
    when: str = ""


class RecentLogLines:
    """The last log lines of all instances, the latest last."""

    def __init__(self) -> None:
        self.lines: deque[RecentLogLine] = deque(maxlen=_MAX_LOG_LINES)
        self._in_bar = False

    def forget_instance(self, node: NodeName, instance: str) -> None:
        """Forget the lines of a container that has gone: a start of the same name has its own log."""
        kept = [one for one in self.lines if (one.node, one.instance) != (node, instance)]
        if len(kept) < len(self.lines):
            self.lines.clear()
            self.lines.extend(kept)

    def add_lines(self, event: LogArrived) -> None:
        """Add lines; of a progress bar, which rewrites its line, only the newest state."""
        for line in event.lines[-_MAX_LOG_LINES:]:
            text = line.text.rstrip("\r\n")
            head, rewritten, now = text.rpartition("\r")
            if not now.strip():
                continue
            if rewritten and self.lines and self.lines[-1].instance == event.instance and self._in_bar:
                self.lines.pop()
            self._in_bar = bool(rewritten)
            prefix = head.partition("\r")[0] if rewritten else ""
            self.lines.append(RecentLogLine(event.node, event.instance, prefix + now, line.when))
