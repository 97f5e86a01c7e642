"""What should still stand on a node that does not answer, by what was done from here. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sparkctl.history.model import NodeResult, OperationKind, OperationRecord
from sparkctl.model.node import NodeName

_ID_LENGTH = 12  # digits of a container's id that are kept everywhere


@dataclass(frozen=True, slots=True)
class OpenStart:
    """A start that was not stopped from here since. ``parts``: each of its ranks' node and the beginning of its container's id."""

    instance: str
    parts: tuple[tuple[NodeName, str], ...]

    def containers_on(self, node: NodeName) -> tuple[str, ...]:
        """Return its containers on a node."""
        return tuple(container for where, container in self.parts if where == node)


def find_open_starts(operations: Iterable[OperationRecord]) -> tuple[OpenStart, ...]:
    """Return the starts, given the latest operation first, of which nothing says that they have ended, the latest first.

    What a switch stopped is gone only if the switch went well: else it came back.
    """
    seen = tuple(operations)
    good = {one.id for one in seen if one.has_succeeded}
    gone: set[str] = set()
    found = []
    for one in seen:
        if one.kind is OperationKind.START:
            parts = tuple(
                (share.node, _short_container_id(share)) for share in one.shares if _short_container_id(share)
            )
            if parts and one.outcome != "failed" and not gone.issuperset(id_ for _, id_ in parts):
                found.append(OpenStart(one.shares[0].instance, tuple(part for part in parts if part[1] not in gone)))
        elif one.kind is OperationKind.STOP:
            if one.parent is None or one.parent in good:
                gone.update(_short_container_id(share) for share in one.shares if _has_ended(share))
        elif one.has_succeeded:
            gone.update(_short_container_id(share) for share in one.shares if _has_ended(share))
    return tuple(found)


def _short_container_id(share: NodeResult) -> str:
    return (share.container or "")[:_ID_LENGTH]


def _has_ended(share: NodeResult) -> bool:
    """Tell whether a stop came as far as its end: its container is noted before."""
    return share.log is not None or share.freed is not None or share.available_after is not None
