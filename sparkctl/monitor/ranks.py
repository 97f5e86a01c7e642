"""One model on several Sparks: an instance of one name on each of them, none of which answers without the others. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sparkctl.engines import decode_step_label
from sparkctl.model.container import Container
from sparkctl.model.instance import is_worker, parse_rank_position
from sparkctl.model.launch_plan import ContainerLabel
from sparkctl.model.node import NodeName
from sparkctl.model.phase import Phase

if TYPE_CHECKING:  # a key is looked up without them
    from sparkctl.model.instance import InstanceView
    from sparkctl.monitor.node_views import NodeTelemetryView


def count_ranks(one: InstanceView) -> int:
    """Return over how many Sparks its model is spread by its labels: one GPU each, so as many as there are ranks; else 1."""
    if one.ours and one.rank_position is not None:
        return one.rank_position[1]
    return one.per_step.ranks if one.ours and one.per_step is not None else 1


def is_head(one: InstanceView) -> bool:
    """Tell whether it is the one that answers: rank 0, or where no label says which it is the one with a port."""
    return one.rank_position[0] == 0 if one.rank_position is not None else one.port is not None


def find_ranks(one: InstanceView, instances: Iterable[InstanceView]) -> tuple[InstanceView, ...]:
    """Return the parts of its model that exist, itself among them, of all that runs anywhere."""
    if count_ranks(one) == 1:
        return (one,)
    return tuple(each for each in instances if each.is_alive and count_ranks(each) > 1 and is_same_start(each, one))


def is_same_start(one: InstanceView, other: InstanceView) -> bool:
    """Tell whether two are ranks of one model: of one start, where both say of which they are."""
    return one.name == other.name and (one.run is None or other.run is None or one.run == other.run)


def apply_head_state(mine: Sequence[InstanceView], all_of_them: Iterable[InstanceView]) -> tuple[InstanceView, ...]:
    """Return a node's instances, workers among them as far as their heads are: a worker answers nobody, so whether its model
    is ready only its head, of all that is seen, can say. One that has failed or ended has done so by itself."""
    heads: list[InstanceView] | None = None
    shown = []
    for one in mine:
        if is_worker(one) and one.is_alive and one.phase not in (Phase.FAILED, Phase.STOPPED, Phase.STOPPING):
            if heads is None:
                heads = [each for each in all_of_them if each.rank_position is not None and each.rank_position[0] == 0]
            shown.append(_apply_head_phase(one, next((each for each in heads if is_same_start(one, each)), None)))
        else:
            shown.append(one)
    return tuple(shown)


def _apply_head_phase(one: InstanceView, head: InstanceView | None) -> InstanceView:
    if head is None:
        where = f" on {one.nodes[0]}" if one.nodes else ""
        return replace(
            one, phase=Phase.UNKNOWN, step=None, detail=f"whether its model is ready, its head{where} would say"
        )
    if head.phase is Phase.READY:
        return replace(one, phase=Phase.READY, step=None, detail=None)
    if one.phase in (Phase.READY, Phase.UNKNOWN, None):  # it has nothing to do, and waits for the others
        return replace(one, phase=Phase.WARMING if head.is_alive else Phase.UNKNOWN, step=None, detail=None)
    return replace(one, detail=None)


def list_nodes_of_instance(one: InstanceView, views: Iterable[NodeTelemetryView]) -> tuple[NodeName, ...]:
    """Return the Sparks on which its model is seen, in the order of the views; never without its own."""
    seen = [each.node for each in find_ranks(one, (each for view in views for each in view.instances))]
    return tuple(dict.fromkeys(seen if one.node in seen else [one.node, *seen]))


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
        return self.container.get_label(ContainerLabel.INSTANCE) or self.container.name

    @property
    def rank_position(self) -> tuple[int, int] | None:
        """Which rank it is, of how many; None for one that is a model by itself."""
        return parse_rank_position(self.container.get_label(ContainerLabel.RANK))


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
    def memory_bytes(self) -> int:
        """What all of it holds, as far as that is known; bytes."""
        return sum(one.held or 0 for one in self.parts)

    @property
    def nodes(self) -> tuple[NodeName, ...]:
        """Where it was found, its head first."""
        return tuple(one.node for one in self.parts)

    @property
    def container_ids(self) -> frozenset[str]:
        """Its containers' ids."""
        return frozenset(one.container.id for one in self.parts)

    def get_label(self, name: str) -> str | None:
        """Return a label of its head."""
        return self.parts[0].container.get_label(name)

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
        found.setdefault(_group_key(one), []).append(one)
    return tuple(_build_instance_containers(sorted(parts, key=_sort_key)) for parts in found.values())


def _group_key(one: RankContainer) -> tuple[str, ...]:
    container = one.container
    alone = ("alone", one.node, container.id)
    if not container.is_managed:
        return alone
    run = container.get_label(ContainerLabel.RUN)
    if run and one.rank_position is not None:
        return ("run", one.name, run)
    divided = decode_step_label.parse_decode_step_label(container.get_label(ContainerLabel.PER_STEP))
    if divided is not None and divided.ranks > 1 and run is None:
        return ("unlabelled", one.name, container.get_label(ContainerLabel.HASH) or "")
    return alone


def _sort_key(one: RankContainer) -> tuple[int, bool, str, str]:
    """The head first: by its label, else because it has a port."""
    return (one.rank_position[0] if one.rank_position else 0, one.port is None, one.node, one.container.id)


def _build_instance_containers(parts: Sequence[RankContainer]) -> InstanceContainers:
    head = parts[0]
    count = head.rank_position[1] if head.rank_position else 1
    if head.rank_position is None and _group_key(head)[0] == "unlabelled":
        divided = decode_step_label.parse_decode_step_label(head.container.get_label(ContainerLabel.PER_STEP))
        count = divided.ranks if divided is not None else 1
    missing = max(0, count - len(parts))
    named = [name for name in (head.container.get_label(ContainerLabel.NODES) or "").split(",") if name]
    here = {one.node for one in parts}
    return InstanceContainers(
        head.name, tuple(parts), missing, tuple(name for name in named if name not in here) if missing else ()
    )
