"""The switch that goes on, or the last one, as it was told: whoever opens its screen, and whenever, sees all of it."""

from __future__ import annotations

from sparkctl.core.switch_course import SwitchCourse, after
from sparkctl.model.events import Event


class Switches:
    """Of one room."""

    def __init__(self) -> None:
        self.course: SwitchCourse | None = None
        self._is_aside = False

    @property
    def shown(self) -> SwitchCourse | None:
        """What is to be seen of it; None of one that is over and was put aside for a new plan."""
        return None if self._is_aside else self.course

    @property
    def running(self) -> SwitchCourse | None:
        """The one that goes on."""
        return self.course if self.course is not None and not self.course.is_over else None

    def set_aside(self) -> None:
        """Make room for a new plan; what goes on stays."""
        self._is_aside = self.running is None

    def take(self, event: Event) -> None:
        """Take in an event of whatever verb."""
        before, self.course = self.course, after(self.course, event)
        if self.course is not before:
            self._is_aside = False
