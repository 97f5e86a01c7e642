"""Which Spark is selected, and which instance of each. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sparkctl.model.node import NodeName


class NodeSelection:
    """Of one panel; what is not there any more is not selected."""

    def __init__(self) -> None:
        self._at = 0
        self._instances: dict[NodeName, str] = {}

    @property
    def chosen_instances(self) -> Mapping[NodeName, str]:
        """The instance that was chosen on each node."""
        return self._instances

    def selected_index(self, count: int) -> int:
        """Return which of so many Sparks it is."""
        return max(0, min(self._at, count - 1))

    def selected_node(self, names: Sequence[NodeName]) -> NodeName | None:
        """Return the selected one, None where there is none."""
        return names[self.selected_index(len(names))] if names else None

    def select_node(self, index: int, count: int) -> None:
        """Select one of so many Sparks, the nearest that there is."""
        self._at = max(0, min(index, count - 1))

    def select_instance(self, node: NodeName, instance: str) -> None:
        """Let this instance be the one that is selected on its node."""
        self._instances[node] = instance

    def selected_instance(self, node: NodeName, there: Sequence[str]) -> str | None:
        """Return the selected instance of a node: the one that was chosen, else the one that matters most, the first."""
        mine = self._instances.get(node)
        return mine if mine in there else there[0] if there else None

    def move_instance(self, node: NodeName, there: Sequence[str], by: int) -> None:
        """Select another instance of a node, of those that are there."""
        at = there.index(self.selected_instance(node, there) or there[0]) + by
        self._instances[node] = there[max(0, min(len(there) - 1, at))]
