"""The doctor screen: the findings of `doctor` and of the samples, with a fix for each."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from textual.binding import BindingType

from sparkctl.commands.actions import DOCTOR, ActionContext, ActionId, find_action
from sparkctl.logs import search
from sparkctl.tui.screens.base import ActionHandlers, build_bindings
from sparkctl.tui.screens.scroll_screens import ListScreen
from sparkctl.views.doctor_view import DoctorProgress, DoctorScreenModel, merge_findings, render_doctor

_FRESH_SECONDS = 60.0  # seconds for which the last run is recent enough


class DoctorScreen(ListScreen[tuple[str, ...]]):
    """Runs `doctor` on all nodes when it opens, and shows each finding as it arrives."""

    SCREEN_ID = DOCTOR
    BINDINGS: ClassVar[list[BindingType]] = build_bindings(DOCTOR)

    def __init__(self) -> None:
        super().__init__()
        self._has_begun = False

    def add_selection(self, now: ActionContext) -> ActionContext:
        """Return the action context with the selected finding's remedy."""
        one = self._build_doctor_model().selected
        return now if one is None else replace(now, remedy=one.remedy_command, deed=one.fix_argv)

    def paint_body(self) -> None:
        """Paint; the first time that the controller exists, run `doctor`."""
        self._start_first_run()
        self.show_page(render_doctor(self._build_doctor_model(), *self.page_size))

    def _start_first_run(self) -> None:
        controller = self.panel.controller
        if self._has_begun or controller is None:
            return
        self._has_begun = True
        if controller.store.jobs.doctor.running_nodes:
            return
        when = [controller.store.jobs.doctor.get_last_run_time(node.name) for node in self.panel.config_nodes]
        if any(one is None or controller.displayed_time() - one > _FRESH_SECONDS for one in when):
            controller.run_doctor(self.panel.config_nodes)

    def _build_doctor_model(self) -> DoctorScreenModel:
        panel = self.panel
        controller = panel.controller
        if controller is None:
            return DoctorScreenModel()
        views, seen, now = (
            controller.store.get_views(panel.node_names),
            controller.store.jobs.doctor,
            panel.displayed_time(),
        )
        reported = [one for view in views for one in controller.store.get_record(view.name).reported.values()]
        asked = tuple(
            DoctorProgress(name, now - seen.runs[name].begun, len(seen.runs[name].found)) for name in seen.running_nodes
        )
        when = [one for name in panel.node_names if (one := seen.get_last_run_time(name)) is not None]
        return DoctorScreenModel(
            entries=merge_findings(seen.all_findings, views, reported, seen.get_last_run_time),
            when=min(when, default=None),
            running=asked,
            chosen=self._selected_key,
            further=self._scroll_offset,
            is_recording=panel.setup.recording is not None,
            now=now,
            pattern=search.parse_filter(self._typed),
        )

    def list_keys(self) -> tuple[tuple[tuple[str, ...], ...], tuple[str, ...] | None]:
        """Return the keys of the findings and of the selected one."""
        model = self._build_doctor_model()
        one = model.selected
        return tuple(each.stable_key for each in model.visible_findings), None if one is None else one.stable_key

    def action_handlers(self) -> ActionHandlers:
        return {
            **super().action_handlers(),
            ActionId.EXAMINE: self._run_doctor,
            ActionId.COPY: self._copy_remedy,
            ActionId.MEND: self._apply_remedy,
        }

    def _run_doctor(self) -> None:
        if self.panel.controller is not None:
            self.panel.controller.run_doctor(self.panel.config_nodes)

    def _copy_remedy(self) -> None:
        one = self._build_doctor_model().selected
        if one is not None and one.remedy_command is not None:
            self.panel.copy_text(one.remedy_command, "the remedy")

    def _apply_remedy(self) -> None:
        """Run the remedy after a confirmation."""
        selected = self._build_doctor_model().selected
        if selected is not None and selected.fix_argv is not None:
            self.panel.run_command_line(selected.fix_argv, find_action(ActionId.MEND))
