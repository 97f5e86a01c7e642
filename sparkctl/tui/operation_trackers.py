"""Trackers that follow operations by their events: switches, their journals, doctor runs and transfers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from sparkctl.model.events import (
    CheckCompleted,
    CommandEnded,
    Event,
    FindingReported,
    SwitchJournalReported,
    SwitchPlanned,
    TransferProgressed,
)
from sparkctl.model.finding import FindingKind
from sparkctl.model.node import NodeName
from sparkctl.model.sample import MemoryBar
from sparkctl.model.switch_plan import JournalPresence, SwitchJournal, SwitchJournalStatus
from sparkctl.monitor.store import Store
from sparkctl.monitor.switch_progress import SwitchProgress, advance_switch
from sparkctl.views.switch_view import describe_switch_journal, render_unfinished_switch
from sparkctl.views.text.styled_text import TextRow


class SwitchTracker:
    """Tracks the running switch, or the last one, so that its screen can show all of it at any time."""

    def __init__(self) -> None:
        self.course: SwitchProgress | None = None
        self.memory_at_start: Mapping[NodeName, MemoryBar] = {}  # memory when the switch began
        self._is_aside = False

    @property
    def visible_switch(self) -> SwitchProgress | None:
        """The running or last switch; None where it has ended and a new plan has replaced it."""
        return None if self._is_aside else self.course

    @property
    def running_switch(self) -> SwitchProgress | None:
        """The switch that runs now."""
        return self.course if self.course is not None and not self.course.is_over else None

    def get_own_switch(self, store: Store) -> SwitchProgress | None:
        """Return the running switch; a resumed one has no plan, so its journal tells which models it stops."""
        course = self.running_switch
        if course is None or course.plan is not None:
            return course
        views = (store.get_switch_status(name) for name in store.nodes)
        found = (one.journal.stops for one in views if one and one.journal and one.journal.instance == course.instance)
        return replace(course, old=next(found, ()))

    def hide_finished(self) -> None:
        """Hide a finished switch for a new plan; a running one stays visible."""
        self._is_aside = self.running_switch is None

    def apply_event(self, event: Event, bars: Mapping[NodeName, MemoryBar]) -> None:
        """Apply an event of any command; ``bars`` is the nodes' memory at that moment, where known."""
        if isinstance(event, SwitchPlanned):
            self.memory_at_start = bars
        before, self.course = self.course, advance_switch(self.course, event)
        if self.course is not before:
            self._is_aside = False


class SwitchJournalTracker:
    """Tracks the switch journals found on the nodes. A journal read before the panel's own switch ended is outdated."""

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store
        self._seen: dict[NodeName, float] = {}
        self._ended = 0.0  # when the last switch of this panel ended, unix seconds

    def apply_event(self, event: Event) -> None:
        """Keep when each journal was read."""
        if isinstance(event, SwitchJournalReported):
            self._seen[event.node] = event.ts

    def mark_own_switch_ended(self, when: float) -> None:
        """Keep when a switch of this panel ended, in unix seconds."""
        self._ended = when

    def get_journal_statuses(self) -> dict[str, tuple[NodeName, SwitchJournalStatus]]:
        """Return each journal once: by its id, or by the node where the journal cannot be read."""
        store, found = self._store(), dict[str, tuple[NodeName, SwitchJournalStatus]]()
        for name in store.nodes:
            view = store.get_switch_status(name)
            was_ours = self._seen.get(name, 0.0) < self._ended
            if view is not None and view.found is not JournalPresence.NONE and not was_ours:
                key = name if view.journal is None else view.journal.id
                if key not in found or view.is_held:
                    found[key] = name, view
        return found

    @property
    def has_abandoned_switch(self) -> bool | None:
        """True where a switch was abandoned on the nodes, False where one runs, None where none is known."""
        views = [view for _, view in self.get_journal_statuses().values()]
        return not any(view.is_held for view in views) if views else None

    @property
    def abandoned_journal(self) -> SwitchJournal | None:
        """The journal of the abandoned switch; None where there is none or several, or it cannot be read."""
        views = [view for _, view in self.get_journal_statuses().values()]
        return views[0].journal if len(views) == 1 and not views[0].is_held else None

    def render_journal_rows(self, keys: Sequence[tuple[str, str]], columns: int) -> list[TextRow]:
        """Return a row for each journal; that of an abandoned switch includes the ``keys`` that end it and their words."""
        return [
            line
            for name, view in self.get_journal_statuses().values()
            for line in render_unfinished_switch(
                describe_switch_journal(name, view), () if view.is_held or view.journal is None else tuple(keys),
                is_held=view.is_held, columns=columns,
            )
        ]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorRun:
    """A doctor run on one node. Times are unix seconds; ``ended`` is None while it runs; ``before`` is from the last run."""

    begun: float
    ended: float | None = None
    found: tuple[FindingReported, ...] = ()
    before: tuple[FindingReported, ...] = ()
    earlier: float | None = None  # when the last run ended

    @property
    def findings(self) -> tuple[FindingReported, ...]:
        """The findings of this run, and of the last run for checks that have no new ones."""
        now = {(one.check, one.instance) for one in self.found}
        return (*self.found, *(one for one in self.before if (one.check, one.instance) not in now))


@dataclass(slots=True)
class DoctorRuns:
    """The doctor runs on all nodes, one per node."""

    looks: dict[NodeName, DoctorRun] = field(default_factory=dict)
    _heard: list[FindingReported] = field(default_factory=list)

    @property
    def running_nodes(self) -> tuple[NodeName, ...]:
        """The nodes that are being checked now."""
        return tuple(name for name, look in self.looks.items() if look.ended is None)

    @property
    def all_findings(self) -> tuple[FindingReported, ...]:
        """The findings of all nodes."""
        return tuple(one for look in self.looks.values() for one in look.findings)

    def get_last_run_time(self, name: NodeName) -> float | None:
        """Return when the last complete run on a node ended, in unix seconds; None before the first."""
        look = self.looks.get(name)
        return None if look is None else look.earlier if look.ended is None else look.ended

    def start_run(self, names: Iterable[NodeName], now: float) -> None:
        """Begin a run on these nodes; `record_findings` follows."""
        for name in names:
            old = self.looks.get(name)
            self.looks[name] = DoctorRun(
                begun=now, before=() if old is None else old.findings, earlier=self.get_last_run_time(name)
            )

    async def record_findings(
        self, events: AsyncGenerator[Event, None], names: Iterable[NodeName]
    ) -> AsyncGenerator[Event, None]:
        """Yield the events of a `doctor` on these nodes and record its findings."""
        try:
            async with aclosing(events) as stream:
                async for event in stream:
                    self._record_event(event)
                    yield event
        finally:
            for name in names:
                self._abandon_run(name)

    def replay_event(self, event: Event) -> None:
        """Apply an event of a recording: a completed check owns the findings reported since it began."""
        if isinstance(event, FindingReported):
            self._heard.append(event)
        elif isinstance(event, CheckCompleted):
            began, mine = event.ts - event.seconds, [one for one in self._heard if one.node == event.node]
            self._heard = [one for one in self._heard if one.node != event.node]
            found = tuple(one for one in mine if one.ts >= began)
            self.looks[event.node] = DoctorRun(begun=began, ended=event.ts, found=found)

    def _record_event(self, event: Event) -> None:
        if event.node is None or (look := self.looks.get(event.node)) is None:
            return
        if isinstance(event, FindingReported):
            gone = event.check == FindingKind.CONNECTION  # a broken connection replaces the earlier good one
            kept = tuple(one for one in look.found if not gone or one.check != event.check)
            self.looks[event.node] = replace(look, found=(*kept, event))
        elif isinstance(event, CheckCompleted):
            self.looks[event.node] = replace(look, ended=event.ts, before=())

    def _abandon_run(self, name: NodeName) -> None:
        """End a run that was interrupted: it counts as old as the last complete run, or not at all without one."""
        look = self.looks[name]
        if look.ended is None and look.earlier is None:
            del self.looks[name]
        elif look.ended is None:
            self.looks[name] = replace(look, ended=look.earlier, found=look.findings, before=())


class TransferTracker:
    """Tracks running transfers by their newest progress."""

    def __init__(self) -> None:
        self._going: dict[tuple[NodeName, NodeName, str], TransferProgressed] = {}

    @property
    def running_transfers(self) -> tuple[TransferProgressed, ...]:
        """The transfers that have not ended."""
        return tuple(self._going.values())

    def apply_event(self, event: Event) -> bool:
        """Apply an event of any command; return whether it was about a transfer."""
        if isinstance(event, TransferProgressed):
            key = event.source, event.node, event.what
            self._going.pop(key, None)
            if event.total is None or event.done < event.total:
                self._going[key] = event
            return True
        return False

    def clear(self, ended: CommandEnded | None) -> None:
        """Drop all transfers, because their command has ended."""
        del ended
        self._going.clear()
