"""What is wrong with the Sparks: what `doctor` finds, what the samples show, and what to do about each."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from textual.binding import BindingType

from sparkctl.commands.actions import DOCTOR, Action, ActionContext
from sparkctl.logs import filter_pattern
from sparkctl.tui.screens.base import build_bindings
from sparkctl.tui.screens.list_screen import ListScreen
from sparkctl.views.doctor_view import DoctorProgress, DoctorScreenModel, merge_findings, render_doctor

_FRESH = 60.0  # seconds for which an examination needs no other


def create_doctor_screen(_: ActionContext) -> DoctorScreen:
    """Return the screen."""
    return DoctorScreen()


class DoctorScreen(ListScreen[tuple[str, ...]]):
    """Examines all Sparks at once when it is opened, and shows each finding as it comes."""

    SCREEN_ID = DOCTOR
    BINDINGS: ClassVar[list[BindingType]] = build_bindings(DOCTOR)

    def __init__(self) -> None:
        super().__init__()
        self._has_begun = False

    @property
    def breadcrumb(self) -> str:
        """The screen's name."""
        return "doctor"

    def selected(self, now: ActionContext) -> ActionContext:
        """Return the situation with the selected finding's remedy."""
        one = self._build_model().selected
        return now if one is None else replace(now, remedy=one.command, deed=one.fix_argv)

    def paint_body(self) -> None:
        """Paint; the first time there is somebody to ask, ask."""
        self._begin()
        self.show(render_doctor(self._build_model(), *self.surface_size(self.sheet)))

    def _begin(self) -> None:
        room = self.panel.room
        if self._has_begun or room is None:
            return
        self._has_begun = True
        if room.examinations.running:
            return
        when = [room.examinations.last_run_at(node.name) for node in self.panel.sparks]
        if any(one is None or room.now() - one > _FRESH for one in when):
            room.run_doctor(self.panel.sparks)

    def _build_model(self) -> DoctorScreenModel:
        panel = self.panel
        room = panel.room
        if room is None:
            return DoctorScreenModel(ascii_only=panel.ascii_only)
        views, seen, now = room.views(panel.names), room.examinations, panel.now()
        told = [one for view in views for one in room.bridge.store.findings(view.name)]
        asked = tuple(
            DoctorProgress(name, now - seen.looks[name].begun, len(seen.looks[name].found)) for name in seen.running
        )  # fmt: skip
        when = [one for name in panel.names if (one := seen.last_run_at(name)) is not None]
        return DoctorScreenModel(
            merge_findings(seen.found, views, told, seen.last_run_at),
            min(when, default=None),
            asked,
            self._selected_key,
            self._scroll_offset,
            panel.setup.recording is not None,
            panel.ascii_only,
            now,
            filter_pattern.parse_filter(self._typed),
        )

    def list_keys(self) -> tuple[tuple[tuple[str, ...], ...], tuple[str, ...] | None]:
        """Return the keys of the findings and of the selected one."""
        checkup = self._build_model()
        one = checkup.selected
        return tuple(each.key for each in checkup.shown), None if one is None else one.key

    def do_examine(self, _: Action) -> None:
        """Look again."""
        if self.panel.room is not None:
            self.panel.room.run_doctor(self.panel.sparks)

    def do_copy(self, _: Action) -> None:
        """Copy the remedy."""
        one = self._build_model().selected
        if one is not None and one.command is not None:
            self.panel.copy_text(one.command, "the remedy")

    def do_mend(self, one: Action) -> None:
        """Do what the remedy says, after a question."""
        selected = self._build_model().selected
        if selected is not None and selected.fix_argv is not None:
            self.panel.orders.confirm_and_run(one, selected.fix_argv)
