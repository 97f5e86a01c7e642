"""How a start went: each phase with its steps, when it began and when it ended. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sparkctl.model.events import Event, NodeStateChanged, PhaseChanged
from sparkctl.model.node import NodeState
from sparkctl.model.phase import Phase, PhaseDuration, Step

MAX_SPANS = 32  # stretches: an engine that goes to and fro between two steps makes no endless list
_FINAL_PHASES = (Phase.READY, Phase.FAILED, Phase.STOPPED, Phase.UNKNOWN)
_STOP_PHASES = (Phase.STOPPING, Phase.STOPPED)


@dataclass(frozen=True, slots=True)
class PhaseSpan:
    """A phase, or a step of one. ``began`` and ``ended`` are unix seconds; ``ended`` None: it goes on."""

    phase: Phase
    step: Step | None
    began: float
    ended: float | None = None

    @property
    def part_key(self) -> tuple[Phase, str | None]:
        """Which part of a start it is."""
        return self.phase, None if self.step is None else self.step.name

    def compute_duration(self, now: float) -> float:
        """Return how long it took, or has taken."""
        return max(0.0, (now if self.ended is None else self.ended) - self.began)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartupTimeline:
    """One start as far as it was watched. ``elapsed`` counts from the beginning of the verb as of ``told`` (unix seconds),
    ``expected`` is the usual length of the whole start, ``expected_parts`` that of its parts."""

    stretches: tuple[PhaseSpan, ...] = ()
    phase: Phase = Phase.PLANNED
    told: float = 0.0
    elapsed: float | None = None
    expected: float | None = None
    expected_parts: tuple[PhaseDuration, ...] = ()

    @property
    def is_over(self) -> bool:
        """Tell whether the start has come to an end, good or bad."""
        return self.phase in _FINAL_PHASES

    def compute_duration(self, now: float) -> float | None:
        """Return how long the start has taken by now, or took; None where its beginning is not known."""
        if self.elapsed is None:
            return None
        return self.elapsed if self.is_over else self.elapsed + max(0.0, now - self.told)


def advance_timeline(course: StartupTimeline | None, event: PhaseChanged) -> StartupTimeline | None:
    """Return the course with one more word of it; None for what is no start: a stop."""
    if event.phase in _STOP_PHASES:
        return None
    if event.phase in _FINAL_PHASES and (course is None or course.is_over):
        return course  # it was so already: nothing was started
    if course is None or _begins_anew(course, event):
        course = StartupTimeline()
    course = replace(
        course, phase=event.phase, told=event.ts, elapsed=event.elapsed, expected=event.expected or course.expected,
        expected_parts=event.expected_parts or course.expected_parts,
    )  # fmt: skip
    stretches = course.stretches
    last = stretches[-1] if stretches else None
    if last is not None and _continues_span(last, event) and not course.is_over:
        return replace(
            course, stretches=(*stretches[:-1], replace(last, phase=event.phase, step=event.step or last.step))
        )
    if last is not None and last.ended is None:
        stretches = (*stretches[:-1], replace(last, ended=event.ts))
    if not course.is_over:
        stretches = (*stretches, PhaseSpan(event.phase, event.step, event.ts))
    return replace(course, stretches=stretches[-MAX_SPANS:])


def _begins_anew(course: StartupTimeline, event: PhaseChanged) -> bool:
    if event.phase in _FINAL_PHASES:
        return False
    return course.is_over or event.phase.order < course.phase.order


def _continues_span(last: PhaseSpan, event: PhaseChanged) -> bool:
    if last.phase is not event.phase:
        return False
    return event.step is None or last.step is None or last.step.name == event.step.name


# --- against what is expected -----------------------------------------------------------------------------------------


def merge_spans(stretches: Sequence[PhaseSpan]) -> list[PhaseSpan]:
    """Return the stretches with those of the same part that follow each other as one."""
    found: list[PhaseSpan] = []
    for one in stretches:
        last = found[-1] if found else None
        if last is not None and last.part_key == one.part_key:
            found[-1] = PhaseSpan(one.phase, one.step, last.began, one.ended)
        else:
            found.append(one)
    return found


def match_expected_seconds(course: StartupTimeline) -> list[float | None]:
    """Return the expected seconds of each `merged` stretch of a course, None where they are not known."""
    return [None if at is None else course.expected_parts[at].seconds for at in _match_expected_indexes(course)]


def list_remaining_parts(course: StartupTimeline) -> tuple[PhaseDuration, ...]:
    """Return the parts that are still to come after the one that a course is at, as far as they are known."""
    last = max((at for at in _match_expected_indexes(course) if at is not None), default=-1)
    return tuple(
        one
        for at, one in enumerate(course.expected_parts)
        if at > last and one.phase.order >= course.phase.order and one.part_key != (course.phase, None)
    )


def _match_expected_indexes(course: StartupTimeline) -> list[int | None]:
    """Return where each stretch is among the expected parts; of a part that comes twice, the second is the second."""
    left = list(enumerate(course.expected_parts))
    places: list[int | None] = []
    for one in merge_spans(course.stretches):
        found = next((each for each in left if each[1].part_key == one.part_key), None)
        if found is not None:
            left.remove(found)
        places.append(None if found is None else found[0])
    return places


class PhaseTimer:
    """Is given the events of one start, from its beginning. It goes by their ``elapsed``: a wall clock may be set."""

    def __init__(self) -> None:
        self._course: StartupTimeline | None = None
        self._has_gap = False

    def record_event(self, event: Event) -> None:
        """Note a phase; while the connection is lost, steps go by unseen."""
        if isinstance(event, PhaseChanged) and event.elapsed is not None:
            self._course = advance_timeline(self._course, replace(event, ts=event.elapsed))
        elif isinstance(event, NodeStateChanged) and event.state is not NodeState.OK:
            self._has_gap = self._has_gap or self._course is not None

    def get_durations(self) -> tuple[PhaseDuration, ...]:
        """Return what each part took, in order; nothing where not every one was seen from its beginning to its end."""
        course = self._course
        if course is None or not course.is_over or self._has_gap or len(course.stretches) >= MAX_SPANS:
            return ()
        return tuple(
            PhaseDuration(*one.part_key, one.compute_duration(course.told)) for one in merge_spans(course.stretches)
        )
