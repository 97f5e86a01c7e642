"""The overview, the first screen: a tile for each node, events and notices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.binding import BindingType
from textual.widget import Widget

from sparkctl.commands.actions import INSTANCE, OVERVIEW, ActionId
from sparkctl.tui.global_actions import show_finding
from sparkctl.tui.screens.base import ActionHandlers, PanelScreen, build_bindings
from sparkctl.tui.text_surface import TextSurface
from sparkctl.views.text.frame_layout import (
    TileBox,
    pad_screen,
    render_first_frame,
    render_recording_wait,
    render_welcome,
)

if TYPE_CHECKING:
    from sparkctl.model.finding import Finding
    from sparkctl.monitor.store import Store
    from sparkctl.views.overview.overview_view import OverviewScreenModel
    from sparkctl.views.text.styled_text import TextRow


class TileGrid(TextSurface):
    """The tiles and the rows below them. A click selects a tile; on a finding, in a title or below, it opens that."""

    boxes: Sequence[TileBox] = ()
    findings: Mapping[int, Finding] = MappingProxyType({})

    def on_click(self, event: events.Click) -> None:
        """Open the finding under the pointer, or select the tile; a double click opens its instance."""
        screen = self.screen
        assert isinstance(screen, OverviewScreen)
        if (found := self.findings.get(event.y)) is not None:
            show_finding(screen.panel, found)
            return
        for box in self.boxes:
            if box.x <= event.x < box.x + box.columns and box.y <= event.y < box.y + box.lines:
                screen.panel.select_node(box.index)
                if event.y == box.y and (sick := screen.find_title_finding(box, event.x)) is not None:
                    show_finding(screen.panel, sick)
                elif event.chain > 1:
                    screen.panel.perform_action("instance")


class OverviewScreen(PanelScreen):
    """Shows the nodes of the config at once, and their state as they answer."""

    SCREEN_ID = OVERVIEW
    HOLDS_FIGURES = True
    BINDINGS: ClassVar[list[BindingType]] = build_bindings(OVERVIEW)

    _held: OverviewScreenModel | None = None

    def toggle_freeze(self) -> None:
        """Pause the figures; the selection can still be moved."""
        super().toggle_freeze()
        self._held = None if self.frozen_at is None else deepcopy(self._build_overview_model())

    def action_handlers(self) -> ActionHandlers:
        """Return its own handler: enter opens a finding, too."""
        return {ActionId.INSTANCE: self._open_selected}

    def _open_selected(self) -> None:
        """Open the selected finding, else the instance; where there is none, the worst finding."""
        now = self.panel.build_action_context()
        found = now.finding
        if found is None and now.selected_instance is None:
            found = next(iter(self.panel.list_findings()), None)
        if found is not None:
            show_finding(self.panel, found)
        else:
            self.panel.open_screen(INSTANCE)

    def find_title_finding(self, box: TileBox, x: int) -> Finding | None:
        """Return the finding that the title of a tile names at a column; None elsewhere."""
        from sparkctl.views.overview.tile_model import build_finding_badge

        controller = self.panel.controller
        if controller is None:
            return None
        worst = self.build_node_tile(controller, self.panel.node_names[box.index], None).worst_finding
        if worst is None:
            return None
        badge = build_finding_badge(worst)
        words = f"{badge.sign} {badge.word}"
        row = self.query_one(TileGrid).plain_lines[box.y]
        at = row.find(words, box.x, box.x + box.columns)
        return worst if 0 <= at <= x < at + len(words) else None

    def create_body(self) -> Widget:
        """Return the grid of tiles."""
        return TileGrid(self.panel.tones, id="tiles")

    def paint_body(self) -> None:
        """Paint the overview; before anything is known, the names of the nodes."""
        tiles = self.query_one(TileGrid)
        wide, high = self.surface_size(tiles)
        panel = self.panel
        model = self._build_overview_model() if self._held is None else self._update_held_model(self._held)
        if panel.setup.recording is not None and not panel.node_names:
            tiles.set_rows(pad_screen(render_recording_wait(), wide, high))
        elif model is not None:
            from sparkctl.views.overview.overview_view import render_overview

            painted = render_overview(model, wide, high)
            tiles.boxes, tiles.findings = painted.boxes, painted.findings
            tiles.set_rows(painted.rows)
        elif panel.node_names:
            tiles.set_rows(render_first_frame(panel.node_names, wide, high))
        else:
            tiles.set_rows(pad_screen(render_welcome(), wide, high))

    def _build_overview_model(self) -> OverviewScreenModel | None:
        """Return what the store knows of all nodes; None before the first paint."""
        panel, controller = self.panel, self.panel.controller
        if controller is None:
            return None  # and nothing is imported that the first frame does without
        from sparkctl.views.event_text import TRANSITION_PHASES
        from sparkctl.views.overview.overview_view import OverviewScreenModel

        store = controller.store
        glances = tuple(
            self.build_node_tile(controller, name, panel.chosen_instances.get(name)) for name in panel.node_names
        )
        loading = {one.name for seen in glances for one in seen.view.instances if one.phase in TRANSITION_PHASES}
        return OverviewScreenModel(
            glances=glances,
            chosen=panel.selected_index,
            notices=self.list_styled_notices(),
            lines=tuple(line for line in store.log_lines.lines if not loading or line.instance in loading),
            happened=tuple(store.event_log.entries),
            switching=self._render_operations(store),
            finding=panel.chosen_finding,
            findings_key=panel.format_action_key(ActionId.WRONG),
        )

    def _update_held_model(self, frozen: OverviewScreenModel) -> OverviewScreenModel:
        """Return the model of a paused screen with the current selection and notices."""
        panel = self.panel
        glances = tuple(replace(one, chosen=panel.chosen_instances.get(one.name)) for one in frozen.glances)
        return replace(
            frozen,
            glances=glances,
            chosen=panel.selected_index,
            notices=self.list_styled_notices(),
            finding=panel.chosen_finding,
        )

    def _render_operations(self, store: Store) -> tuple[TextRow, ...]:
        """Return a row for the running or unfinished switch, and one for each transfer."""
        from sparkctl.views.event_text import render_transfer
        from sparkctl.views.switch_view import (
            describe_switch_journal,
            render_switch_progress_line,
            render_unfinished_switch,
        )

        panel, running = self.panel, store.switches.running
        if running is not None:
            key = panel.format_action_key(ActionId.SWITCH)
            rows = [render_switch_progress_line(running, panel.displayed_time(), key)]
        else:
            words = ((ActionId.RESUME, "goes on with it"), (ActionId.ABORT, "undoes it"))
            keys = [(key, word) for action, word in words if (key := panel.format_action_key(action)) is not None]
            keys = [] if panel.setup.recording is not None else keys
            rows = [
                row
                for name, view in store.switches.list_journals(store.nodes).values()
                for row in render_unfinished_switch(
                    describe_switch_journal(name, view),
                    () if view.is_held or view.journal is None else tuple(keys),
                    is_held=view.is_held,
                    columns=panel.size.width - 2,
                )
            ]
        return (*rows, *(render_transfer(one) for one in store.jobs.running_transfers))
