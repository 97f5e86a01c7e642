"""The overview, the first screen: a tile for each node, events and notices."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.binding import BindingType
from textual.widget import Widget

from sparkctl.commands.actions import OVERVIEW
from sparkctl.tui.screens.base import PanelScreen, build_bindings
from sparkctl.tui.widgets.text_surface import TextSurface
from sparkctl.views.text.frame_layout import (
    TileBox,
    pad_screen,
    render_first_frame,
    render_recording_wait,
    render_welcome,
)

if TYPE_CHECKING:
    from sparkctl.views.overview.overview_view import OverviewScreenModel


class TileGrid(TextSurface):
    """The tiles and the rows below them. A click selects a tile."""

    boxes: Sequence[TileBox] = ()

    def on_click(self, event: events.Click) -> None:
        """Select the tile under the pointer; a double click opens its instance."""
        for box in self.boxes:
            if box.x <= event.x < box.x + box.columns and box.y <= event.y < box.y + box.lines:
                screen = self.screen
                assert isinstance(screen, PanelScreen)
                screen.panel.select_node(box.index)
                if event.chain > 1:
                    screen.panel.perform_action("instance")


class OverviewScreen(PanelScreen):
    """Shows the nodes of the config at once, and their state as they answer."""

    SCREEN_ID = OVERVIEW
    BINDINGS: ClassVar[list[BindingType]] = build_bindings(OVERVIEW)

    _held: OverviewScreenModel | None = None

    def toggle_freeze(self) -> None:
        """Pause the figures; the selection can still be moved."""
        super().toggle_freeze()
        self._held = None if self.frozen_at is None else deepcopy(self.panel.build_overview_model())

    def create_body(self) -> Widget:
        """Return the grid of tiles."""
        return TileGrid(self.panel.tones, id="tiles")

    def paint_body(self) -> None:
        """Paint the overview; before anything is known, the names of the nodes."""
        tiles = self.query_one(TileGrid)
        wide, high = tiles.size
        if not wide or not high:
            wide, high = self.size.width, self.size.height - 2
        panel = self.panel
        model: OverviewScreenModel | None = panel.build_overview_model(self._held)
        if panel.setup.recording is not None and not panel.node_names:
            tiles.set_rows(pad_screen(render_recording_wait(), wide, high))
        elif model is not None:
            from sparkctl.views.overview.overview_view import render_overview

            painted = render_overview(model, wide, high)
            tiles.boxes = painted.boxes
            tiles.set_rows(painted.rows)
        elif panel.node_names:
            tiles.set_rows(render_first_frame(panel.node_names, wide, high))
        else:
            tiles.set_rows(pad_screen(render_welcome(), wide, high))
