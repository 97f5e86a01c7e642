"""Follows a switch by its events: its plan, its steps with their evidence, and how it ended. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sparkctl.model.events import CommandEnded, Event, SwitchPlanned, SwitchStepReported
from sparkctl.model.node import NodeName
from sparkctl.model.switch_plan import SwitchPlan, SwitchStep

ROLLBACK_STEPS = (SwitchStep.UNDOING, SwitchStep.RESTORING, SwitchStep.RESTORED)
_INSTANT_STEPS = (SwitchStep.DONE, SwitchStep.RESTORED, SwitchStep.LEFT)  # reached at once


@dataclass(frozen=True, slots=True)
class StepEvidence:
    """What proved a step; ``node`` is set if it concerns one node only."""

    text: str
    node: NodeName | None = None


@dataclass(frozen=True, slots=True)
class SwitchStepProgress:
    """One step. ``began`` and ``ended`` in unix seconds; ``ended`` is None while it runs, and for a step that broke off."""

    step: SwitchStep
    began: float
    ended: float | None = None
    proofs: tuple[StepEvidence, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchProgress:
    """A switch as far as it is known. ``began``: unix seconds. ``old``: the instances it stops, from a journal without a plan."""

    instance: str
    began: float
    plan: SwitchPlan | None = None
    steps: tuple[SwitchStepProgress, ...] = ()
    end: CommandEnded | None = None
    old: tuple[str, ...] = ()

    @property
    def is_over(self) -> bool:
        """Tell whether the switch has ended."""
        return self.end is not None

    @property
    def current_step(self) -> SwitchStep | None:
        """The current step."""
        return self.steps[-1].step if self.steps else None

    @property
    def stops(self) -> tuple[str, ...]:
        """The instances it stops, by its plan or its journal; empty if neither is known."""
        return self.old if self.plan is None else self.plan.stops

    def affects_instance(self, instance: str) -> bool:
        """Tell whether it starts or stops an instance."""
        return instance == self.instance or instance in self.stops

    @property
    def is_rolling_back(self) -> bool:
        """Tell whether the new instance failed and the old one is being restored."""
        return any(one.step in ROLLBACK_STEPS for one in self.steps)


def advance_switch(course: SwitchProgress | None, event: Event) -> SwitchProgress | None:
    """Return the switch after an event; other events change nothing."""
    match event:
        case SwitchPlanned():
            return SwitchProgress(instance=event.plan.instance, began=event.ts, plan=event.plan)
        case SwitchStepReported():
            return _record_step(course, event)
        case CommandEnded() if course is not None and not course.is_over and event.instance in (course.instance, None):
            return replace(course, end=event)
        case _:
            return course


def _record_step(course: SwitchProgress | None, event: SwitchStepReported) -> SwitchProgress:
    """Add a step. A resumed switch begins in the middle; a step that is reported twice counts once."""
    if course is None or course.is_over or course.instance != event.instance:
        began = event.ts - (event.elapsed or 0.0)
        course = SwitchProgress(instance=event.instance, began=began)
    steps = list(course.steps)
    proofs = () if event.proof is None else (StepEvidence(event.proof, event.node),)
    if not steps or steps[-1].step is not event.step:
        if steps and steps[-1].ended is None and not _breaks_off(steps[-1], event.step):
            steps[-1] = replace(steps[-1], ended=event.ts)
        is_reached = event.step in _INSTANT_STEPS or event.proof is not None
        steps.append(SwitchStepProgress(event.step, event.ts, event.ts if is_reached else None, proofs))
    elif proofs and proofs[0] not in steps[-1].proofs:
        steps[-1] = replace(steps[-1], ended=event.ts, proofs=steps[-1].proofs + proofs)
    return replace(course, steps=tuple(steps))


def _breaks_off(one: SwitchStepProgress, by: SwitchStep) -> bool:
    """Tell whether a step had not finished when the next one began: then it failed."""
    return not one.proofs and (by is SwitchStep.LEFT or (by in ROLLBACK_STEPS and one.step not in ROLLBACK_STEPS))
