"""Which node is selected, and which instance of each node. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sparkctl.model.node import NodeName


class NodeSelection:
    """The selection of one panel; what has gone is not selected."""

    def __init__(self) -> None:
        self._at = 0
        self._instances: dict[NodeName, str] = {}

    @property
    def chosen_instances(self) -> Mapping[NodeName, str]:
        """The instance that the operator chose on each node."""
        return self._instances

    def selected_index(self, count: int) -> int:
        """Return the index of the selected node among ``count`` nodes."""
        return max(0, min(self._at, count - 1))

    def selected_node(self, names: Sequence[NodeName]) -> NodeName | None:
        """Return the selected node; None where there is none."""
        return names[self.selected_index(len(names))] if names else None

    def select_node(self, index: int, count: int) -> None:
        """Select a node by its index, limited to ``count`` nodes."""
        self._at = max(0, min(index, count - 1))

    def select_instance(self, node: NodeName, instance: str) -> None:
        """Select an instance of a node."""
        self._instances[node] = instance

    def selected_instance(self, node: NodeName, there: Sequence[str]) -> str | None:
        """Return the selected instance of a node: the chosen one, else the first, which is the most urgent."""
        mine = self._instances.get(node)
        return mine if mine in there else there[0] if there else None

    def move_instance(self, node: NodeName, there: Sequence[str], by: int) -> None:
        """Move the selection by so many instances of a node."""
        at = there.index(self.selected_instance(node, there) or there[0]) + by
        self._instances[node] = there[max(0, min(len(there) - 1, at))]
