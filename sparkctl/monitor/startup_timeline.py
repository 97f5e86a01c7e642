"""The timeline of a start: each phase and step with its beginning and end, and what is still expected. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sparkctl.model.events import Event, NodeStateChanged, PhaseChanged
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import NodeState
from sparkctl.model.phase import Phase, PhaseDuration, Step

MAX_SPANS = 32  # limits the list for an engine that alternates between two steps
_FINAL_PHASES = (Phase.READY, Phase.UNPROVED, Phase.FAILED, Phase.STOPPED, Phase.UNKNOWN)
_STOP_PHASES = (Phase.STOPPING, Phase.STOPPED)


@dataclass(frozen=True, slots=True)
class PhaseSpan:
    """A phase, or a step of one. ``began`` and ``ended`` are unix seconds; ``ended`` is None while it runs."""

    phase: Phase
    step: Step | None
    began: float
    ended: float | None = None

    @property
    def part_key(self) -> tuple[Phase, str | None]:
        return self.phase, None if self.step is None else self.step.name

    def compute_duration(self, now: float) -> float:
        """Return its duration in seconds, up to ``now`` while it runs."""
        return max(0.0, (now if self.ended is None else self.ended) - self.began)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartupTimeline:
    """One start as far as it was watched. ``elapsed``: seconds since the command began, as of ``updated_at`` (unix seconds).
    ``expected`` is the usual duration of the whole start, ``expected_parts`` those of its parts."""

    stretches: tuple[PhaseSpan, ...] = ()
    phase: Phase = Phase.PLANNED
    updated_at: float = 0.0
    elapsed: float | None = None
    expected: float | None = None
    expected_parts: tuple[PhaseDuration, ...] = ()

    @property
    def is_over(self) -> bool:
        """Tell whether the start has ended, in success or failure."""
        return self.phase in _FINAL_PHASES

    def compute_duration(self, now: float) -> float | None:
        """Return the start's duration in seconds, up to ``now`` while it runs; None if its beginning is not known."""
        if self.elapsed is None:
            return None
        return self.elapsed if self.is_over else self.elapsed + max(0.0, now - self.updated_at)


def advance_timeline(timeline: StartupTimeline | None, event: PhaseChanged) -> StartupTimeline | None:
    """Return the timeline after an event; None if the event belongs to a stop."""
    if event.phase in _STOP_PHASES:
        return None
    if event.phase in _FINAL_PHASES and (timeline is None or timeline.is_over):
        return timeline  # it was ready already: nothing was started
    if timeline is None or _begins_anew(timeline, event):
        timeline = StartupTimeline()
    timeline = replace(
        timeline,
        phase=event.phase,
        updated_at=event.ts,
        elapsed=event.elapsed,
        expected=event.expected or timeline.expected,
        expected_parts=event.expected_parts or timeline.expected_parts,
    )
    stretches = timeline.stretches
    last = stretches[-1] if stretches else None
    if last is not None and _continues_span(last, event) and not timeline.is_over:
        return replace(
            timeline, stretches=(*stretches[:-1], replace(last, phase=event.phase, step=event.step or last.step))
        )
    if last is not None and last.ended is None:
        stretches = (*stretches[:-1], replace(last, ended=event.ts))
    if not timeline.is_over:
        stretches = (*stretches, PhaseSpan(event.phase, event.step, event.ts))
    return replace(timeline, stretches=stretches[-MAX_SPANS:])


def _begins_anew(timeline: StartupTimeline, event: PhaseChanged) -> bool:
    if event.phase in _FINAL_PHASES:
        return False
    return timeline.is_over or event.phase.order < timeline.phase.order


def _continues_span(last: PhaseSpan, event: PhaseChanged) -> bool:
    if last.phase is not event.phase:
        return False
    return event.step is None or last.step is None or last.step.name == event.step.name


# --- comparison with expected durations -----------------------------------------------------------------------------------------


def merge_spans(stretches: Sequence[PhaseSpan]) -> list[PhaseSpan]:
    """Return the spans, with consecutive spans of the same part merged."""
    found: list[PhaseSpan] = []
    for one in stretches:
        last = found[-1] if found else None
        if last is not None and last.part_key == one.part_key:
            found[-1] = PhaseSpan(one.phase, one.step, last.began, one.ended)
        else:
            found.append(one)
    return found


def match_expected_seconds(timeline: StartupTimeline) -> list[float | None]:
    """Return the expected seconds of each merged span of a timeline, None where they are not known."""
    return [None if at is None else timeline.expected_parts[at].seconds for at in _match_expected_indexes(timeline)]


def list_remaining_parts(timeline: StartupTimeline) -> tuple[PhaseDuration, ...]:
    """Return the expected parts after the current one, as far as they are known."""
    last = max((at for at in _match_expected_indexes(timeline) if at is not None), default=-1)
    return tuple(
        one
        for at, one in enumerate(timeline.expected_parts)
        if at > last and one.phase.order >= timeline.phase.order and one.part_key != (timeline.phase, None)
    )


def _match_expected_indexes(timeline: StartupTimeline) -> list[int | None]:
    """Return the index of each span among the expected parts; repeated parts are matched in order."""
    left = list(enumerate(timeline.expected_parts))
    places: list[int | None] = []
    for one in merge_spans(timeline.stretches):
        found = next((each for each in left if each[1].part_key == one.part_key), None)
        if found is not None:
            left.remove(found)
        places.append(None if found is None else found[0])
    return places


class PhaseTimer:
    """Measures the phases of one start by its events. It uses their ``elapsed``, as a wall clock may be set."""

    def __init__(self) -> None:
        self._timeline: StartupTimeline | None = None
        self._has_gap = False

    def record_event(self, event: Event) -> None:
        """Record a phase; steps during a lost connection are not seen."""
        if isinstance(event, PhaseChanged) and event.elapsed is not None:
            self._timeline = advance_timeline(self._timeline, replace(event, ts=event.elapsed))
        elif isinstance(event, NodeStateChanged) and event.state is not NodeState.OK:
            self._has_gap = self._has_gap or self._timeline is not None

    def get_durations(self) -> tuple[PhaseDuration, ...]:
        """Return the duration of each part, in order; empty if one of them was not seen completely."""
        timeline = self._timeline
        if timeline is None or not timeline.is_over or self._has_gap or len(timeline.stretches) >= MAX_SPANS:
            return ()
        return tuple(
            PhaseDuration(*one.part_key, one.compute_duration(timeline.updated_at))
            for one in merge_spans(timeline.stretches)
        )
