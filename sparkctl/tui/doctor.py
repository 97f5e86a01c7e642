"""What is wrong with the Sparks: what `doctor` finds, what the samples show, and what to do about each."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from textual.binding import BindingType

from sparkctl.core import logpattern
from sparkctl.core.actions import DOCTOR, Action, Situation
from sparkctl.present.doctor_rows import Asked, Checkup, doctor_rows, entries
from sparkctl.tui.listing import ListScreen
from sparkctl.tui.screen import bound

_FRESH = 60.0  # seconds for which an examination needs no other


def make(_: Situation) -> Doctor:
    """Return the screen."""
    return Doctor()


class Doctor(ListScreen[tuple[str, ...]]):
    """Examines all Sparks at once when it is opened, and shows each finding as it comes."""

    PLACE = DOCTOR
    BINDINGS: ClassVar[list[BindingType]] = bound(DOCTOR)

    def __init__(self) -> None:
        super().__init__()
        self._has_begun = False

    @property
    def crumb(self) -> str:
        """The screen's name."""
        return "doctor"

    def selected(self, now: Situation) -> Situation:
        """Return the situation with the selected finding's remedy."""
        one = self._checkup().selected
        return now if one is None else replace(now, remedy=one.command, deed=one.deed)

    def picture(self) -> None:
        """Paint; the first time there is somebody to ask, ask."""
        self._begin()
        self.show(doctor_rows(self._checkup(), *self.room_of(self.sheet)))

    def _begin(self) -> None:
        room = self.panel.room
        if self._has_begun or room is None:
            return
        self._has_begun = True
        if room.examinations.running:
            return
        when = [room.examinations.when(node.name) for node in self.panel.sparks]
        if any(one is None or room.now() - one > _FRESH for one in when):
            room.examine(self.panel.sparks)

    def _checkup(self) -> Checkup:
        panel = self.panel
        room = panel.room
        if room is None:
            return Checkup(ascii_only=panel.ascii_only)
        views, seen, now = room.views(panel.names), room.examinations, panel.now()
        told = [one for view in views for one in room.bridge.store.findings(view.name)]
        asked = tuple(
            Asked(name, now - seen.looks[name].begun, len(seen.looks[name].found)) for name in seen.running
        )  # fmt: skip
        when = [one for name in panel.names if (one := seen.when(name)) is not None]
        return Checkup(
            entries(seen.found, views, told, seen.when), min(when, default=None), asked, self._chosen, self._further,
            panel.setup.recording is not None, panel.ascii_only, now, logpattern.parse(self._typed),
        )  # fmt: skip

    def listed(self) -> tuple[tuple[tuple[str, ...], ...], tuple[str, ...] | None]:
        """Return the keys of the findings and of the selected one."""
        checkup = self._checkup()
        one = checkup.selected
        return tuple(each.key for each in checkup.shown), None if one is None else one.key

    def do_examine(self, _: Action) -> None:
        """Look again."""
        if self.panel.room is not None:
            self.panel.room.examine(self.panel.sparks)

    def do_copy(self, _: Action) -> None:
        """Copy the remedy."""
        one = self._checkup().selected
        if one is not None and one.command is not None:
            self.panel.copy(one.command, "the remedy")

    def do_mend(self, one: Action) -> None:
        """Do what the remedy says, after a question."""
        selected = self._checkup().selected
        if selected is not None and selected.deed is not None:
            self.panel.orders.ask_and_give(one, selected.deed)
