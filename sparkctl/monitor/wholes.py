"""Which containers are one model: all ranks of a start, on whatever Sparks. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sparkctl.model import per_step
from sparkctl.model.container import Container
from sparkctl.model.launch_plan import ContainerLabel
from sparkctl.model.node import NodeName

_MOST = 4096  # ranks: more than any model has


@dataclass(frozen=True, slots=True)
class RankContainer:
    """A container that may have processes on ``node``. ``held``: its memory in bytes; ``port`` on the node, by its label."""

    node: NodeName
    container: Container
    held: int | None = None
    port: int | None = None

    @property
    def name(self) -> str:
        """Its instance where it is ours, else the container's name."""
        return self.container.label(ContainerLabel.INSTANCE) or self.container.name

    @property
    def rank(self) -> tuple[int, int] | None:
        """Which rank it is, of how many; None for one that is a model by itself."""
        index, slash, count = (self.container.label(ContainerLabel.RANK) or "").partition("/")
        if not (slash and index.isascii() and index.isdigit() and count.isascii() and count.isdigit()):
            return None
        if len(count) > len(str(_MOST)) or not 0 <= int(index) < int(count):
            return None
        return int(index), int(count)


@dataclass(frozen=True, slots=True)
class InstanceContainers:
    """One instance, all of it that was found: its head first. ``missing``: how many of its ranks were not found, and
    ``elsewhere`` where they should be, as far as its labels tell. A foreign container is one by itself."""

    name: str
    parts: tuple[RankContainer, ...]
    missing: int = 0
    elsewhere: tuple[str, ...] = ()

    @property
    def is_managed(self) -> bool:
        """Tell whether sparkctl started it."""
        return self.parts[0].container.is_managed

    @property
    def memory(self) -> int:
        """What all of it holds, as far as that is known; bytes."""
        return sum(one.held or 0 for one in self.parts)

    @property
    def nodes(self) -> tuple[NodeName, ...]:
        """Where it was found, its head first."""
        return tuple(one.node for one in self.parts)

    @property
    def ids(self) -> frozenset[str]:
        """Its containers' ids."""
        return frozenset(one.container.id for one in self.parts)

    def label(self, name: str) -> str | None:
        """Return a label of its head."""
        return self.parts[0].container.label(name)

    def containers_on(self, node: NodeName) -> tuple[RankContainer, ...]:
        """Return what of it is on a node."""
        return tuple(one for one in self.parts if one.node == node)


def group_by_instance(occupants: Iterable[RankContainer]) -> tuple[InstanceContainers, ...]:
    """Return the instances that these containers make up, in the order of their heads.

    Ranks belong together by the label that every rank of one start has. Where nobody labelled them so, containers of one
    instance and hash do whose own label says that its model is divided among several Sparks.
    """
    found: dict[tuple[str, ...], list[RankContainer]] = {}
    for one in occupants:
        found.setdefault(_key(one), []).append(one)
    return tuple(_whole(sorted(parts, key=_order)) for parts in found.values())


def _key(one: RankContainer) -> tuple[str, ...]:
    container = one.container
    alone = ("alone", one.node, container.id)
    if not container.is_managed:
        return alone
    run = container.label(ContainerLabel.RUN)
    if run and one.rank is not None:
        return ("run", one.name, run)
    divided = per_step.decode_label(container.label(ContainerLabel.PER_STEP))
    if divided is not None and divided.ranks > 1 and run is None:
        return ("unlabelled", one.name, container.label(ContainerLabel.HASH) or "")
    return alone


def _order(one: RankContainer) -> tuple[int, bool, str, str]:
    """The head first: by its label, else because it has a port."""
    return (one.rank[0] if one.rank else 0, one.port is None, one.node, one.container.id)


def _whole(parts: Sequence[RankContainer]) -> InstanceContainers:
    head = parts[0]
    count = head.rank[1] if head.rank else 1
    if head.rank is None and _key(head)[0] == "unlabelled":
        divided = per_step.decode_label(head.container.label(ContainerLabel.PER_STEP))
        count = divided.ranks if divided is not None else 1
    missing = max(0, count - len(parts))
    named = [name for name in (head.container.label(ContainerLabel.NODES) or "").split(",") if name]
    here = {one.node for one in parts}
    return InstanceContainers(
        head.name, tuple(parts), missing, tuple(name for name in named if name not in here) if missing else ()
    )
