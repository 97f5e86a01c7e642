"""The overview, the first screen: a tile for each node, events and notices."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.binding import BindingType
from textual.widget import Widget

from sparkctl.commands.actions import INSTANCE, OVERVIEW, ActionId
from sparkctl.model.node import NodeName
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
    from sparkctl.history.model import OperationRecord
    from sparkctl.model.finding import Finding
    from sparkctl.model.text.log_line import LogLine
    from sparkctl.monitor.event_log import RecentLogLine
    from sparkctl.monitor.store import Store
    from sparkctl.tui.controller import PanelController
    from sparkctl.tui.log_viewer.log_subscription import LogSubscription
    from sparkctl.views.overview.overview_view import OverviewScreenModel
    from sparkctl.views.overview.tile_model import NodeTileModel
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


_MAX_FOLLOWED_LOGS = 4
_LOG_TAIL_LINES = 12
_FLOOD_LINES = 400  # between two pictures; a log that writes more is left for a while, and begun anew at its end
_FLOOD_PAUSE_SECONDS = 5.0
_MIN_LOG_SCREEN_LINES = 20
_MAX_PAST_OPERATIONS = 12


class LogTail:
    """The last lines of an instance's log, which is followed while the overview is shown."""

    def __init__(self, controller: PanelController, node: NodeName, instance: str) -> None:
        self._controller, self._node, self._instance = controller, node, instance
        self._lines: deque[RecentLogLine] = deque(maxlen=_LOG_TAIL_LINES)
        self._is_old = False  # whether a new reading has begun; older lines stay until newer ones arrive
        self._taken = 0  # lines since the last picture
        self._resume_time = 0.0  # of the clock: when a log that floods is read again
        self._subscription: LogSubscription | None = None

    def list_lines(self) -> list[RecentLogLine]:
        """Return the lines that are known; begin to follow the log if it is not followed."""
        self._taken = 0
        if self._subscription is None and self._controller.clock.monotonic() >= self._resume_time:
            self._subscription = self._follow_log()
        return list(self._lines)

    def _follow_log(self) -> LogSubscription:
        from sparkctl.tui.log_viewer.log_subscription import LogConsumer, LogSubscription

        reader = LogConsumer(begin=self._mark_lines_old, take=self._take_lines, tell=lambda _: None)
        return LogSubscription(self._controller, self._node, self._instance, reader, tail=_LOG_TAIL_LINES)

    def _mark_lines_old(self) -> None:
        self._is_old = True

    def _take_lines(self, lines: Sequence[LogLine]) -> None:
        from sparkctl.engines.line_preparer import split_carriage_returns
        from sparkctl.monitor.event_log import RecentLogLine

        if self._is_old:
            self._lines.clear()
            self._is_old = False
        for line in lines[-_LOG_TAIL_LINES:]:
            if (text := split_carriage_returns(line.text)[-1]).strip():
                self._lines.append(RecentLogLine(self._node, self._instance, text, line.when))
        self._taken += len(lines)
        if self._taken > _FLOOD_LINES:
            self._resume_time = self._controller.clock.monotonic() + _FLOOD_PAUSE_SECONDS
            self.close()
        self._controller.schedule_repaint()

    def close(self) -> None:
        """Stop following; the lines stay."""
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None


class OverviewScreen(PanelScreen):
    """Shows the nodes of the config at once, and their state as they answer."""

    SCREEN_ID = OVERVIEW
    HOLDS_FIGURES = True
    BINDINGS: ClassVar[list[BindingType]] = build_bindings(OVERVIEW)

    _held: OverviewScreenModel | None = None

    def __init__(self) -> None:
        super().__init__()
        self._log_tails: dict[tuple[NodeName, str], LogTail] = {}
        self._past: tuple[OperationRecord, ...] | None = None  # what was done before; None: not read yet

    def on_screen_suspend(self) -> None:
        """Stop following logs while another screen covers this one."""
        for tail in self._log_tails.values():
            tail.close()

    def on_unmount(self) -> None:
        """Stop following logs."""
        self.on_screen_suspend()

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
            lines=tuple(
                line for line in self._list_log_lines(controller, glances) if not loading or line.instance in loading
            ),
            happened=tuple(store.event_log.entries),
            past=self._list_past_operations(controller),
            switching=self._render_operations(store),
            finding=panel.chosen_finding,
            findings_key=panel.format_action_key(ActionId.WRONG),
        )

    def _list_log_lines(
        self, controller: PanelController, glances: Sequence[NodeTileModel]
    ) -> tuple[RecentLogLine, ...]:
        """Return the last lines of what the panel starts, and those of what runs."""
        lines = tuple(controller.store.log_lines.lines)
        if controller.is_replaying or self.size.height < _MIN_LOG_SCREEN_LINES:
            return lines
        started = {(node, job.instance) for job in controller.store.jobs.running.values() for node in job.started.nodes}
        nearest = sorted(glances, key=lambda seen: seen.name != self.panel.node_names[self.panel.selected_index])
        wanted = [key for seen in nearest if (key := _find_log(seen)) is not None and key not in started]
        wanted = wanted[:_MAX_FOLLOWED_LOGS]
        for gone in self._log_tails.keys() - wanted:
            self._log_tails.pop(gone).close()
        for key in sorted(wanted):
            tail = self._log_tails.get(key)
            if tail is None:
                tail = self._log_tails[key] = LogTail(controller, *key)
            lines = (*(one for one in lines if (one.node, one.instance) != key), *tail.list_lines())
        return lines

    def _list_past_operations(self, controller: PanelController) -> tuple[OperationRecord, ...]:
        """Return what was done from this machine before the panel was opened; it is read once."""
        if self._past is None and not controller.is_replaying:
            self._past = ()
            self.panel.spawn_task(self._read_past_operations(controller))
        return self._past or ()

    async def _read_past_operations(self, controller: PanelController) -> None:
        history = controller.context.history
        found = await asyncio.to_thread(history.list_operations, most=_MAX_PAST_OPERATIONS)
        self._past = tuple(one for one in reversed(found) if one.ended is not None)
        controller.schedule_repaint()

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


def _find_log(seen: NodeTileModel) -> tuple[NodeName, str] | None:
    """Return the instance of a Spark whose log is shown: what a container of ours runs or loads."""
    from sparkctl.views.overview.tile_model import sort_by_urgency

    one = next(iter(sort_by_urgency(seen.view)), None)
    if one is None or not seen.is_known or not one.ours or not one.is_alive or one.container_id is None:
        return None
    return NodeName(seen.name), one.name
