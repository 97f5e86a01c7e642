"""What each part of a start takes, as far as that was really seen."""

from __future__ import annotations

from dataclasses import replace

from sparkctl.model.events import Event, NodeStateChanged, PhaseChanged
from sparkctl.model.node import NodeState
from sparkctl.model.phase import PhaseDuration
from sparkctl.monitor.startup_timeline import MAX_SPANS, StartupTimeline, advance_timeline, merge_spans


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
        return tuple(PhaseDuration(*one.part, one.seconds(course.told)) for one in merge_spans(course.stretches))
