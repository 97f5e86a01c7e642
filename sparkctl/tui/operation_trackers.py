"""The switch that goes on, or the last one, as it was told: whoever opens its screen, and whenever, sees all of it."""

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
    """Of one room."""

    def __init__(self) -> None:
        self.course: SwitchProgress | None = None
        self.memory_at_start: Mapping[NodeName, MemoryBar] = {}  # memory as it was sampled when it began
        self._is_aside = False

    @property
    def visible_switch(self) -> SwitchProgress | None:
        """What is to be seen of it; None of one that is over and was put aside for a new plan."""
        return None if self._is_aside else self.course

    @property
    def running_switch(self) -> SwitchProgress | None:
        """The one that goes on."""
        return self.course if self.course is not None and not self.course.is_over else None

    def get_own_switch(self, store: Store) -> SwitchProgress | None:
        """Return the one that goes on; of one that was gone on with, which has no plan, with whom its journal stops."""
        course = self.running_switch
        if course is None or course.plan is not None:
            return course
        views = (store.get_switch_status(name) for name in store.nodes)
        found = (one.journal.stops for one in views if one and one.journal and one.journal.instance == course.instance)
        return replace(course, old=next(found, ()))

    def hide_finished(self) -> None:
        """Make room for a new plan; what goes on stays."""
        self._is_aside = self.running_switch is None

    def apply_event(self, event: Event, bars: Mapping[NodeName, MemoryBar]) -> None:
        """Take in an event of whatever verb; ``bars`` is the Sparks' memory at that moment, as far as it is known."""
        if isinstance(event, SwitchPlanned):
            self.memory_at_start = bars
        before, self.course = self.course, advance_switch(self.course, event)
        if self.course is not before:
            self._is_aside = False


class SwitchJournalTracker:
    """Of one room. ``store`` gives the live store; what was read of a node before a switch of our own ended is over."""

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store
        self._seen: dict[NodeName, float] = {}
        self._ended = 0.0  # when the last one from here did, unix seconds

    def apply_event(self, event: Event) -> None:
        """Know when each journal was read."""
        if isinstance(event, SwitchJournalReported):
            self._seen[event.node] = event.ts

    def mark_own_switch_ended(self, when: float) -> None:
        """A switch of this panel has ended, at a moment in unix seconds."""
        self._ended = when

    def get_journal_statuses(self) -> dict[str, tuple[NodeName, SwitchJournalStatus]]:
        """Return each once: by its number, or by the Spark where that cannot be read."""
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
        """Whether one was left on the Sparks; False: one goes on; None: there is none that is known."""
        views = [view for _, view in self.get_journal_statuses().values()]
        return not any(view.is_held for view in views) if views else None

    @property
    def abandoned_journal(self) -> SwitchJournal | None:
        """The one that was left; None where there is none, or several, or where it cannot be read."""
        views = [view for _, view in self.get_journal_statuses().values()]
        return views[0].journal if len(views) == 1 and not views[0].is_held else None

    def render_journal_rows(self, keys: Sequence[tuple[str, str]], ascii_only: bool, columns: int) -> list[TextRow]:
        """Return a line for each, and with one that was left the ``keys`` that end it, each with its word."""
        return [
            line
            for name, view in self.get_journal_statuses().values()
            for line in render_unfinished_switch(
                describe_switch_journal(name, view), () if view.is_held or view.journal is None else tuple(keys),
                is_held=view.is_held, ascii_only=ascii_only, columns=columns,
            )
        ]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorRun:
    """At one node, from ``begun`` on (unix seconds). ``ended`` None: it goes on. ``before`` is what the last one found."""

    begun: float
    ended: float | None = None
    found: tuple[FindingReported, ...] = ()
    before: tuple[FindingReported, ...] = ()
    earlier: float | None = None  # when the last one ended

    @property
    def findings(self) -> tuple[FindingReported, ...]:
        """What is known: of each check what was found now, else before."""
        now = {(one.check, one.instance) for one in self.found}
        return (*self.found, *(one for one in self.before if (one.check, one.instance) not in now))


@dataclass(slots=True)
class DoctorRuns:
    """Of all nodes, each by itself."""

    looks: dict[NodeName, DoctorRun] = field(default_factory=dict)
    _heard: list[FindingReported] = field(default_factory=list)

    @property
    def running_nodes(self) -> tuple[NodeName, ...]:
        """The nodes that are looked at now."""
        return tuple(name for name, look in self.looks.items() if look.ended is None)

    @property
    def all_findings(self) -> tuple[FindingReported, ...]:
        """All that is known."""
        return tuple(one for look in self.looks.values() for one in look.findings)

    def get_last_run_time(self, name: NodeName) -> float | None:
        """Return when the last look at a node was through, unix seconds; None before the first."""
        look = self.looks.get(name)
        return None if look is None else look.earlier if look.ended is None else look.ended

    def start_run(self, names: Iterable[NodeName], now: float) -> None:
        """Take note that a `doctor` is about to look at these nodes: `follow` is next."""
        for name in names:
            old = self.looks.get(name)
            self.looks[name] = DoctorRun(
                begun=now, before=() if old is None else old.findings, earlier=self.get_last_run_time(name)
            )

    async def record_findings(
        self, told: AsyncGenerator[Event, None], names: Iterable[NodeName]
    ) -> AsyncGenerator[Event, None]:
        """Pass on what a `doctor` tells about these nodes, and keep it."""
        try:
            async with aclosing(told) as events:
                async for event in events:
                    self._record_event(event)
                    yield event
        finally:
            for name in names:
                self._abandon_run(name)

    def replay_event(self, event: Event) -> None:
        """Take in an event of a recording: when a look is through, what was found in its time is what it has found."""
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
            gone = event.check == FindingKind.CONNECTION  # it was there and broke: what counts is that it broke
            kept = tuple(one for one in look.found if not gone or one.check != event.check)
            self.looks[event.node] = replace(look, found=(*kept, event))
        elif isinstance(event, CheckCompleted):
            self.looks[event.node] = replace(look, ended=event.ts, before=())

    def _abandon_run(self, name: NodeName) -> None:
        """End a look that was left before it was through: it is no older than the last one, or there was none."""
        look = self.looks[name]
        if look.ended is None and look.earlier is None:
            del self.looks[name]
        elif look.ended is None:
            self.looks[name] = replace(look, ended=look.earlier, found=look.findings, before=())


class TransferTracker:
    """What is on its way now, the latest word of each."""

    def __init__(self) -> None:
        self._going: dict[tuple[NodeName, NodeName, str], TransferProgressed] = {}

    @property
    def running_transfers(self) -> tuple[TransferProgressed, ...]:
        """Each that is not through."""
        return tuple(self._going.values())

    def apply_event(self, event: Event) -> bool:
        """Take in an event of whatever verb; tell whether there is news."""
        if isinstance(event, TransferProgressed):
            key = event.source, event.node, event.what
            self._going.pop(key, None)
            if event.total is None or event.done < event.total:
                self._going[key] = event
            return True
        return False

    def clear(self, ended: CommandEnded | None) -> None:
        """Forget what was on its way: its verb has ended, however it did."""
        del ended
        self._going.clear()
