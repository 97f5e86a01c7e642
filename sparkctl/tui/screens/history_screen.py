"""The history screen: every start, stop and switch, its outcome, and what has changed since the last good start."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Self

from textual.binding import BindingType

from sparkctl.commands.actions import HISTORY, ActionContext, ActionId
from sparkctl.logs import search
from sparkctl.tui.screens.base import ActionHandlers, build_bindings
from sparkctl.tui.screens.scroll_screens import ListScreen
from sparkctl.views.history_view import HistoryScreenModel, OperationDetail, render_history_page

if TYPE_CHECKING:
    from sparkctl.history.model import OperationRecord
    from sparkctl.history.operation_history import OperationHistory as Store

_REFRESH_SECONDS = 3.0  # seconds between two reads of the history
_MAX_OPERATIONS = 200


class HistoryScreen(ListScreen[int]):
    """Lists operations; the history files are read in threads."""

    SCREEN_ID = HISTORY
    BINDINGS: ClassVar[list[BindingType]] = build_bindings(HISTORY)

    @classmethod
    def create(cls, now: ActionContext) -> Self:
        """Return the screen, filtered by the selected profile if there is one."""
        return cls(now.profile or "")

    def __init__(self, profile: str = "", chosen: int | None = None) -> None:
        super().__init__()
        self._typed, self._selected_key = profile, chosen
        self._operations: tuple[OperationRecord, ...] | None = None
        self._detail: OperationDetail | None = None
        self._trouble: str | None = None
        self._reading: int | None = None  # the operation whose detail is being read

    def set_filter(self, profile: str, chosen: int | None) -> None:
        """Filter by a profile, or select one operation."""
        self._typed, self._selected_key, self._scroll_offset = profile, chosen, 0
        self.repaint()

    def on_mount(self) -> None:
        """Read the history now and at intervals."""
        self.panel.spawn_dialog_task(self._refresh_operations())
        self.set_interval(_REFRESH_SECONDS, lambda: self.panel.spawn_task(self._refresh_operations()))

    def add_selection(self, now: ActionContext) -> ActionContext:
        """Return the action context with the selected operation's node, instance and profile."""
        one = self._build_history_model().selected
        if one is None:
            return now
        node = one.nodes[0] if one.nodes and one.nodes[0] in now.names else now.node
        return replace(now, node=node, instance=one.instance or one.profile, profile=one.profile, remedy=one.command)

    def paint_body(self) -> None:
        """Paint, and read the detail of the selected operation."""
        model = self._build_history_model()
        self.show_page(render_history_page(model, *self.page_size))
        one = model.selected
        if one is not None and self._reading != one.id and (self._detail is None or self._detail.operation != one):
            self._reading = one.id
            self.panel.spawn_task(self._refresh_detail(one))

    def _build_history_model(self) -> HistoryScreenModel:
        return HistoryScreenModel(
            operations=self._operations,
            chosen=self._selected_key,
            detail=self._detail,
            trouble=self._trouble,
            pattern=search.parse_filter(self._typed),
            further=self._scroll_offset,
        )

    def list_keys(self) -> tuple[tuple[int, ...], int | None]:
        """Return the ids of the operations and of the selected one."""
        model = self._build_history_model()
        one = model.selected
        return tuple(each.id for each in model.visible_operations), None if one is None else one.id

    def action_handlers(self) -> ActionHandlers:
        return {**super().action_handlers(), ActionId.COPY: self._copy_command}

    def _copy_command(self) -> None:
        """Copy the command that repeats the operation."""
        one = self._build_history_model().selected
        if one is not None and one.command is not None:
            self.panel.copy_text(one.command, one.command)
        else:
            self.panel.show_toast("no command is recorded for this one")

    # --- reads in the background ---

    async def _refresh_operations(self) -> None:
        await self.panel.controller_ready.wait()
        if self.panel.controller is None:
            return
        store = self.panel.controller.context.history
        found, word = await asyncio.to_thread(_load_operations, store)
        self._trouble = word or self._trouble
        if found != self._operations:
            if (
                self._selected_key is None
                and self._operations
                and (one := self._build_history_model().selected) is not None
            ):
                self._selected_key = one.id  # the visible one stays selected when newer ones arrive
            self._operations = found
            if self.is_attached:
                self.repaint()

    async def _refresh_detail(self, one: OperationRecord) -> None:
        assert self.panel.controller is not None
        detail = await asyncio.to_thread(_load_operation_detail, self.panel.controller.context.history, one)
        if self._reading == one.id:
            self._detail, self._reading = detail, None
        if self.is_attached:
            self.repaint()


def _load_operations(store: Store) -> tuple[tuple[OperationRecord, ...], str | None]:
    return store.list_operations(most=_MAX_OPERATIONS), store.take_warning()


def _load_operation_detail(store: Store, one: OperationRecord) -> OperationDetail:
    from sparkctl.history.start_diff import diff_starts

    worked = store.find_last_good_start(one)
    return OperationDetail(one, worked, None if worked is None else diff_starts(worked, one))
