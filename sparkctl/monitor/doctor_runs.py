"""What `doctor` has found so far, node by node: as it comes, with what was found before until the new look is through."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from sparkctl.model.events import CheckCompleted, Event, FindingReported
from sparkctl.model.finding import FindingKind
from sparkctl.model.node import NodeName


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
