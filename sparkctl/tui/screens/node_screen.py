"""The node screen: one Spark's machine, live, and its processes, which can be sorted, filtered and ended."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import ClassVar

from textual.binding import BindingType

from sparkctl.commands.actions import NODE, ActionContext, ActionId
from sparkctl.errors import SparkctlError
from sparkctl.logs import search
from sparkctl.model.node import Node
from sparkctl.model.sample import NodeProcess
from sparkctl.tui.dialogs.base import ChoiceDialog, render_sentence
from sparkctl.tui.screens.base import ActionHandlers, build_bindings, get_next_member
from sparkctl.tui.screens.scroll_screens import ListScreen
from sparkctl.views.node_view import SORT_BY_HEAD, NodeScreenModel, ProcessSort, render_node
from sparkctl.views.text.styled_text import TextStyle, join_text


class NodeScreen(ListScreen[int]):
    """Shows the Spark that is selected in the panel."""

    SCREEN_ID = NODE
    HOLDS_FIGURES = True
    BINDINGS: ClassVar[list[BindingType]] = build_bindings(NODE)

    def __init__(self) -> None:
        super().__init__()
        self._order = ProcessSort.GPU
        self._held: NodeScreenModel | None = None

    @property
    def breadcrumb(self) -> str:
        return str(self.panel.selected_node or "node")

    def add_selection(self, now: ActionContext) -> ActionContext:
        """Return the action context with the selected process, and with the instance that it belongs to."""
        model = self._build_node_model()
        one = None if model is None else model.selected
        owner = None if model is None or one is None else model.find_owner(one)
        return replace(now, process=None if one is None else one.pid, instance=None if owner is None else owner.name)

    def toggle_freeze(self) -> None:
        """Pause the figures; the selection can still be moved."""
        super().toggle_freeze()
        self._held = None if self.frozen_at is None else deepcopy(self._build_node_model())

    def paint_body(self) -> None:
        if (model := self._build_node_model()) is not None:
            self.show_page(render_node(model, *self.page_size))

    def _build_node_model(self) -> NodeScreenModel | None:
        controller, name = self.panel.controller, self.panel.selected_node
        if controller is None or name is None or name not in controller.store.nodes:
            return None
        frozen = self._held
        seen = (
            frozen.tile
            if frozen is not None and frozen.tile.name == name
            else self.build_node_tile(controller, name, None)
        )
        return NodeScreenModel(
            tile=seen, order=self._order, chosen=self._selected_key, pattern=search.parse_filter(self._typed)
        )

    def list_keys(self) -> tuple[tuple[int, ...], int | None]:
        """Return the numbers of the processes and of the selected one."""
        model = self._build_node_model()
        one = None if model is None else model.selected
        return () if model is None else tuple(each.pid for each in model.processes), None if one is None else one.pid

    def action_handlers(self) -> ActionHandlers:
        return {
            **super().action_handlers(),
            ActionId.SORT: lambda: self._sort_by(get_next_member(self._order)),
            ActionId.KILL_PROCESS: self._ask_to_kill,
        }

    def on_header_click(self, x: int) -> None:
        """Sort by the column under the pointer."""
        words = join_text(self._page.rows[self._page.top - 1])
        begins = [(words.find(head), head) for head in SORT_BY_HEAD if head in words]
        hit = min(begins, key=lambda each: abs(each[0] + len(each[1]) // 2 - x), default=None)
        if hit is not None:
            self._sort_by(SORT_BY_HEAD[hit[1]])

    def _sort_by(self, order: ProcessSort) -> None:
        self._order = order
        self.repaint()

    def _ask_to_kill(self) -> None:
        """Ask how to end the selected process; an engine of sparkctl is stopped as an instance instead."""
        model = self._build_node_model()
        one = None if model is None else model.selected
        if model is None or one is None:
            self.panel.show_toast("no process is selected")
            return
        if (owner := model.find_owner(one)) is not None and owner.ours:
            stop = self.panel.format_action_key(ActionId.DOWN) or ":down"
            self.panel.show_toast(f"{one.pid} is part of {owner.name}: {stop} stops it and waits for its memory")
            return
        node = next((each for each in self.panel.config_nodes if each.name == self.panel.selected_node), None)
        if node is None:
            return
        whose = model.describe_owner(one)
        what = f"{one.name or 'process'} ({one.pid}{f', of {whose}' if whose else ''})"
        body = [
            *render_sentence(f"End {what} on {node.name}?", TextStyle.STRONG),
            (),
            *render_sentence(
                "TERM lets it clean up; KILL does not. What it held of memory comes back when it has ended."
            ),
        ]
        choices = (("cancel", "Cancel"), ("TERM", "TERM"), ("KILL", "KILL"))

        def kill_if_confirmed(answer: str | None) -> None:
            if answer in ("TERM", "KILL"):
                self.panel.spawn_task(self._kill(one, what, node, answer))

        self.panel.push_screen(ChoiceDialog("end a process", body, choices, TextStyle.ATTENTION), kill_if_confirmed)

    async def _kill(self, one: NodeProcess, what: str, node: Node, signal: str) -> None:
        assert self.panel.controller is not None
        try:
            async with self.panel.controller.supervisor.create_command_session(node) as session:
                await session.link.connect()
                await session.kill_process(one, signal)
        except SparkctlError as error:
            self.panel.show_error(error)
        else:
            self.panel.show_toast(f"{signal} was sent to {what} on {node.name}")
