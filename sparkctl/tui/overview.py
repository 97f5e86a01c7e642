"""The screen that opens first: all Sparks at a glance."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.binding import BindingType
from textual.widget import Widget

from sparkctl.core.actions import OVERVIEW
from sparkctl.present.frame import Box, filled, first_frame, reading, welcome
from sparkctl.tui.screen import PanelScreen, bound
from sparkctl.tui.sheet import Sheet

if TYPE_CHECKING:
    from sparkctl.present.overview import Scene


class Tiles(Sheet):
    """The tiles and what stands below. A click selects."""

    boxes: Sequence[Box] = ()

    def on_click(self, event: events.Click) -> None:
        """Select the tile under the pointer; twice opens its instance."""
        for box in self.boxes:
            if box.x <= event.x < box.x + box.columns and box.y <= event.y < box.y + box.lines:
                screen = self.screen
                assert isinstance(screen, PanelScreen)
                screen.panel.choose(box.index)
                if event.chain > 1:
                    screen.panel.act("instance")


class Overview(PanelScreen):
    """Painted from the config at once, filled as the nodes answer."""

    PLACE = OVERVIEW
    BINDINGS: ClassVar[list[BindingType]] = bound(OVERVIEW)

    _held: Scene | None = None

    def hold(self) -> None:
        """Hold the figures as they are; what is chosen among them stays the operator's."""
        super().hold()
        self._held = None if self.held_at is None else deepcopy(self.panel.scene())

    def body(self) -> Widget:
        """Return the tiles."""
        return Tiles(self.panel.tones, id="tiles")

    def picture(self) -> None:
        """Paint what is known; before anything is, the Sparks by their names."""
        tiles = self.query_one(Tiles)
        wide, high = tiles.size
        if not wide or not high:
            wide, high = self.size.width, self.size.height - 2
        panel = self.panel
        scene: Scene | None = panel.scene(self._held)
        if panel.setup.recording is not None and not panel.names:
            tiles.show(filled(reading(), wide, high, panel.ascii_only))
        elif scene is not None:
            from sparkctl.present.overview import overview

            painted = overview(scene, wide, high)
            tiles.boxes = painted.boxes
            tiles.show(painted.rows)
        elif panel.names:
            tiles.show(first_frame(panel.names, wide, high, panel.ascii_only))
        else:
            tiles.show(filled(welcome(), wide, high, panel.ascii_only))
