"""The home of a Spark's user there: what ``~`` means in a profile. Each node is asked once, when it answers."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from sparkctl.commands.start.preview import read_node_home
from sparkctl.errors import SparkctlError
from sparkctl.model.node import Node, NodeName, NodeState

if TYPE_CHECKING:
    from sparkctl.tui.controller import PanelController


class Homes:
    """Of one room; ``spawn`` lets something go on beside the keys."""

    def __init__(self, room: PanelController, spawn: Callable[[Coroutine[Any, Any, None]], object]) -> None:
        self._room, self._spawn = room, spawn
        self._known: dict[NodeName, str | None] = {}  # None: being asked

    def home_directory(self, node: Node) -> str | None:
        """Return a home; None while it is not known, and then it is asked for where the node answers."""
        if node.name not in self._known and self._room.bridge.store.view(node.name).state is NodeState.OK:
            self._known[node.name] = None
            self._spawn(self._fetch_home_directory(node))
        return self._known.get(node.name)

    async def _fetch_home_directory(self, node: Node) -> None:
        try:
            self._known[node.name] = await read_node_home(self._room.non_interactive_context, node)
        except SparkctlError:
            del self._known[node.name]  # the tile says what is wrong with the node; asked again when it answers
        self._room.bridge.schedule_repaint()
