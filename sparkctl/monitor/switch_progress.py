"""Follows a switch by its events: its plan, its steps with their evidence, and how it ended. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from sparkctl.model.events import (
    CommandEnded,
    Event,
    Outcome,
    PhaseChanged,
    SwitchJournalReported,
    SwitchPlanned,
    SwitchStepReported,
)
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import NodeName
from sparkctl.model.sample import MemoryBar
from sparkctl.model.switch_plan import JournalPresence, SwitchJournal, SwitchJournalStatus, SwitchPlan, SwitchStep

ROLLBACK_STEPS = (SwitchStep.UNDOING, SwitchStep.RESTORING, SwitchStep.RESTORED)
_INSTANT_STEPS = (SwitchStep.DONE, SwitchStep.RESTORED, SwitchStep.LEFT)  # reached at once


@dataclass(frozen=True, slots=True)
class StepEvidence:
    """What proved a step; ``node`` is set if it concerns one node only."""

    text: str
    node: NodeName | None


@dataclass(frozen=True, slots=True)
class SwitchStepProgress:
    """One step. ``began`` and ``ended`` in unix seconds; ``ended`` is None while it runs, and for a step that broke off."""

    step: SwitchStep
    began: float
    ended: float | None = None
    proofs: tuple[StepEvidence, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchProgress:
    """A switch as far as it is known. ``began``: unix seconds. ``old``: the instances it stops, from a journal without a plan.
    ``needs``: what the new one needs, as far as it was started for it.
    """

    instance: str
    began: float
    plan: SwitchPlan | None = None
    steps: tuple[SwitchStepProgress, ...] = ()
    end: CommandEnded | None = None
    old: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()

    @property
    def is_over(self) -> bool:
        return self.end is not None

    @property
    def current_step(self) -> SwitchStep | None:
        return self.steps[-1].step if self.steps else None

    @property
    def stops(self) -> tuple[str, ...]:
        """The instances it stops, by its plan or its journal; empty if neither is known."""
        return self.old if self.plan is None else self.plan.stops

    @property
    def is_only_start(self) -> bool:
        """Tell whether nothing has to stop: then it is a start, without the other steps."""
        return self.plan is not None and not self.plan.stops

    def affects_instance(self, instance: str) -> bool:
        """Tell whether it starts or stops an instance."""
        return instance == self.instance or instance in self.stops

    @property
    def is_rolling_back(self) -> bool:
        """Tell whether the new instance failed and the old one is being restored."""
        return any(one.step in ROLLBACK_STEPS for one in self.steps)


def advance_switch(progress: SwitchProgress | None, event: Event, *, is_own: bool = False) -> SwitchProgress | None:
    """Return the switch after an event; other events change nothing.

    ``is_own``: the event is known to be of the switch's command. Its end may be that of what the new one needs; in a
    recording only the end of the new one is told apart from that of other commands.
    """
    match event:
        case SwitchPlanned():
            made = SwitchProgress(instance=event.plan.instance, began=event.ts, plan=event.plan)
            if made.is_only_start and event.plan.is_possible:  # then no step is reported
                made = replace(made, steps=(SwitchStepProgress(SwitchStep.STARTING, event.ts),))
            return made
        case SwitchStepReported():
            return _record_step(progress, event)
        case PhaseChanged() if is_own and progress is not None and progress.current_step is SwitchStep.STARTING:
            is_known = event.instance in (progress.instance, *progress.stops, *progress.needs)
            return progress if is_known else replace(progress, needs=(*progress.needs, event.instance))
        case CommandEnded() if progress is not None and not progress.is_over:
            if not is_own and event.instance not in (progress.instance, None):
                return progress
            if progress.is_only_start and progress.steps and event.outcome in (Outcome.READY, Outcome.DONE):
                progress = replace(progress, steps=(*progress.steps[:-1], replace(progress.steps[-1], ended=event.ts)))
            return replace(progress, end=event)
        case _:
            return progress


def _record_step(progress: SwitchProgress | None, event: SwitchStepReported) -> SwitchProgress:
    """Add a step. A resumed switch begins in the middle; a step that is reported twice counts once."""
    if progress is None or progress.is_over or progress.instance != event.instance:
        began = event.ts - (event.elapsed or 0.0)
        progress = SwitchProgress(instance=event.instance, began=began)
    steps = list(progress.steps)
    proofs = () if event.proof is None else (StepEvidence(event.proof, event.node),)
    if not steps or steps[-1].step is not event.step:
        if steps and steps[-1].ended is None and not _breaks_off(steps[-1], event.step):
            steps[-1] = replace(steps[-1], ended=event.ts)
        is_reached = event.step in _INSTANT_STEPS or event.proof is not None
        steps.append(SwitchStepProgress(event.step, event.ts, event.ts if is_reached else None, proofs))
    elif proofs and proofs[0] not in steps[-1].proofs:
        steps[-1] = replace(steps[-1], ended=event.ts, proofs=steps[-1].proofs + proofs)
    return replace(progress, steps=tuple(steps))


def _breaks_off(one: SwitchStepProgress, by: SwitchStep) -> bool:
    """Tell whether a step had not finished when the next one began: then it failed."""
    return not one.proofs and (by is SwitchStep.LEFT or (by in ROLLBACK_STEPS and one.step not in ROLLBACK_STEPS))


class SwitchState:
    """The running or last switch, and the switch journals on the nodes. A part of the store."""

    def __init__(self) -> None:
        self.last: SwitchProgress | None = None
        self.memory_at_start: Mapping[NodeName, MemoryBar] = {}
        self._job: int | None = None  # that runs the switch, if it is one of this panel's
        self._is_hidden = False
        self._journals: dict[NodeName, SwitchJournalReported] = {}
        self._ended = 0.0  # when the last followed switch ended, unix seconds

    @property
    def visible(self) -> SwitchProgress | None:
        """The running or last switch; None where it has ended and `hide` has put it aside."""
        return None if self._is_hidden else self.last

    @property
    def running(self) -> SwitchProgress | None:
        return None if self.last is None or self.last.is_over else self.last

    def build_running_with_stops(self) -> SwitchProgress | None:
        """Return the running switch; a resumed one has no plan, so its journal tells which instances it stops."""
        last = self.running
        if last is None or last.plan is not None:
            return last
        found = (one.view.journal for one in self._journals.values() if one.view.journal is not None)
        return replace(last, old=next((one.stops for one in found if one.instance == last.instance), ()))

    def hide(self) -> None:
        """Put a finished switch aside; a running one stays visible."""
        self._is_hidden = self.running is None

    def apply_event(
        self, event: Event, job: int | None, read_memory: Callable[[], Mapping[NodeName, MemoryBar]]
    ) -> bool:
        """Apply an event, and return whether it was about a switch. ``read_memory`` returns the nodes' memory now.

        ``job``: by which the event was emitted, if by any.
        """
        if isinstance(event, SwitchJournalReported):
            self._journals[event.node] = event
            return True
        if isinstance(event, SwitchPlanned):
            self.memory_at_start = read_memory()
        if isinstance(event, CommandEnded | PhaseChanged) and job != self._job:
            return False  # of another command
        before, self.last = self.last, advance_switch(self.last, event, is_own=job is not None and job == self._job)
        if self.last is before:
            return False
        self._job, self._is_hidden = job, False
        if self.last is not None and self.last.is_over:
            self._ended = event.ts
        return True

    def forget_journal(self, node: NodeName) -> None:
        """Forget the journal of a node that does not answer."""
        self._journals.pop(node, None)

    def list_journals(self, names: Iterable[NodeName]) -> dict[str, tuple[NodeName, SwitchJournalStatus]]:
        """Return each journal of these nodes once: by its id, or by the node where the journal cannot be read.

        One that was read before the last followed switch ended is outdated.
        """
        found = dict[str, tuple[NodeName, SwitchJournalStatus]]()
        for name, event in ((name, self._journals[name]) for name in names if name in self._journals):
            view = event.view
            if view.found is not JournalPresence.NONE and event.ts >= self._ended:
                key = name if view.journal is None else view.journal.id
                if key not in found or view.is_held:
                    found[key] = name, view
        return found

    @property
    def is_abandoned(self) -> bool | None:
        """True where a switch was abandoned on the nodes, False where one runs, None where none is known."""
        views = [view for _, view in self.list_journals(self._journals).values()]
        return False if self.running is not None else not any(view.is_held for view in views) if views else None

    @property
    def abandoned_journal(self) -> SwitchJournal | None:
        """The journal of the abandoned switch; None where there is none or several, or it cannot be read."""
        views = [view for _, view in self.list_journals(self._journals).values()]
        return views[0].journal if len(views) == 1 and not views[0].is_held else None
