"""The switch that goes on, or the last one, as it was told: whoever opens its screen, and whenever, sees all of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sparkctl.model.events import Event, SwitchPlanned
from sparkctl.model.node import NodeName
from sparkctl.model.sample import MemoryBar
from sparkctl.monitor.store import Store
from sparkctl.monitor.switch_progress import SwitchProgress, advance_switch


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
    def running(self) -> SwitchProgress | None:
        """The one that goes on."""
        return self.course if self.course is not None and not self.course.is_over else None

    def own_switch(self, store: Store) -> SwitchProgress | None:
        """Return the one that goes on; of one that was gone on with, which has no plan, with whom its journal stops."""
        course = self.running
        if course is None or course.plan is not None:
            return course
        views = (store.switch(name) for name in store.nodes)
        found = (one.journal.stops for one in views if one and one.journal and one.journal.instance == course.instance)
        return replace(course, old=next(found, ()))

    def hide_finished(self) -> None:
        """Make room for a new plan; what goes on stays."""
        self._is_aside = self.running is None

    def apply_event(self, event: Event, bars: Mapping[NodeName, MemoryBar]) -> None:
        """Take in an event of whatever verb; ``bars`` is the Sparks' memory at that moment, as far as it is known."""
        if isinstance(event, SwitchPlanned):
            self.memory_at_start = bars
        before, self.course = self.course, advance_switch(self.course, event)
        if self.course is not before:
            self._is_aside = False
