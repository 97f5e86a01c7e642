"""How a start went: each phase with its steps, when it began and when it ended. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sparkctl.model.events import PhaseChanged
from sparkctl.model.phase import Phase, Step

_MOST = 32  # stretches: an engine that goes to and fro between two steps makes no endless list
_END = (Phase.READY, Phase.FAILED, Phase.STOPPED, Phase.UNKNOWN)
_LEAVES = (Phase.STOPPING, Phase.STOPPED)


@dataclass(frozen=True, slots=True)
class Stretch:
    """A phase, or a step of one. ``began`` and ``ended`` are unix seconds; ``ended`` None: it goes on."""

    phase: Phase
    step: Step | None
    began: float
    ended: float | None = None

    def seconds(self, now: float) -> float:
        """Return how long it took, or has taken."""
        return max(0.0, (now if self.ended is None else self.ended) - self.began)


@dataclass(frozen=True, slots=True)
class Course:
    """One start as far as it was watched. ``elapsed`` counts from the beginning of the verb as of ``told`` (unix seconds),
    ``expected`` is the usual length of the whole start."""

    stretches: tuple[Stretch, ...] = ()
    phase: Phase = Phase.PLANNED
    told: float = 0.0
    elapsed: float | None = None
    expected: float | None = None

    @property
    def is_over(self) -> bool:
        """Tell whether the start has come to an end, good or bad."""
        return self.phase in _END

    def seconds(self, now: float) -> float | None:
        """Return how long the start has taken by now, or took; None where its beginning is not known."""
        if self.elapsed is None:
            return None
        return self.elapsed if self.is_over else self.elapsed + max(0.0, now - self.told)


def after(course: Course | None, event: PhaseChanged) -> Course | None:
    """Return the course with one more word of it; None for what is no start: a stop."""
    if event.phase in _LEAVES:
        return None
    if event.phase in _END and (course is None or course.is_over):
        return course  # it was so already: nothing was started
    if course is None or _begins_anew(course, event):
        course = Course()
    course = replace(
        course, phase=event.phase, told=event.ts, elapsed=event.elapsed, expected=event.expected or course.expected
    )
    stretches = course.stretches
    last = stretches[-1] if stretches else None
    if last is not None and _is_same(last, event) and not course.is_over:
        return replace(
            course, stretches=(*stretches[:-1], replace(last, phase=event.phase, step=event.step or last.step))
        )
    if last is not None and last.ended is None:
        stretches = (*stretches[:-1], replace(last, ended=event.ts))
    if not course.is_over:
        stretches = (*stretches, Stretch(event.phase, event.step, event.ts))
    return replace(course, stretches=stretches[-_MOST:])


def _begins_anew(course: Course, event: PhaseChanged) -> bool:
    if event.phase in _END:
        return False
    return course.is_over or event.phase.rank < course.phase.rank


def _is_same(last: Stretch, event: PhaseChanged) -> bool:
    if last.phase is not event.phase:
        return False
    return event.step is None or last.step is None or last.step.name == event.step.name
