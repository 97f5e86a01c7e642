"""Groups the ranks of one model on several Sparks: which containers and instances belong together. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sparkctl.model.container import Container
from sparkctl.model.instance import is_worker, parse_rank_position
from sparkctl.model.launch_plan import ContainerLabel
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import NodeName
from sparkctl.model.phase import Phase
from sparkctl.profiles.container_labels import parse_needs_label

if TYPE_CHECKING:  # not needed at run time
    from sparkctl.model.decode_step import DecodeStepSpec
    from sparkctl.model.instance import InstanceView
    from sparkctl.monitor.node_views import NodeTelemetryView


def count_ranks(one: InstanceView) -> int:
    """Return over how many Sparks the labels say that its model is spread: one GPU each, so the number of ranks; else 1."""
    if one.ours and one.rank_position is not None:
        return one.rank_position[1]
    return one.per_step.ranks if one.ours and one.per_step is not None else 1


def is_head(one: InstanceView) -> bool:
    """Tell whether it is the head, which answers clients: rank 0, or without a rank label the one with a port."""
    return one.rank_position[0] == 0 if one.rank_position is not None else one.port is not None


def find_ranks(one: InstanceView, instances: Iterable[InstanceView]) -> tuple[InstanceView, ...]:
    """Return all running ranks of its model, itself included."""
    if count_ranks(one) == 1:
        return (one,)
    return tuple(each for each in instances if each.is_alive and count_ranks(each) > 1 and is_same_start(each, one))


def is_same_start(one: InstanceView, other: InstanceView) -> bool:
    """Tell whether two are ranks of one model: same name, and same start if both have the label."""
    return one.name == other.name and (one.run is None or other.run is None or one.run == other.run)


def apply_head_state(mine: Sequence[InstanceView], all_of_them: Iterable[InstanceView]) -> tuple[InstanceView, ...]:
    """Return a node's instances, with the phase of its head for each worker: a worker answers no clients, so only its head
    knows whether the model is ready. A worker that failed or ended keeps its own phase."""
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


def apply_dependents(mine: Sequence[InstanceView], all_of_them: Sequence[InstanceView]) -> tuple[InstanceView, ...]:
    """Return a node's instances, each with the names of the live ones that need it, on whatever node they are."""
    users = [one for one in all_of_them if one.ours and one.is_alive and one.needs]
    if not users:
        return tuple(mine)
    return tuple(
        replace(one, needed_by=tuple(sorted({user.name for user in users if f"{one.name}@{one.node}" in user.needs})))
        if one.ours
        else one
        for one in mine
    )


def place_needs(ordered: Sequence[InstanceView]) -> list[InstanceView]:
    """Return a node's instances in their order, but each live one that others need below the first of those."""
    placed: list[InstanceView] = []

    def place(one: InstanceView) -> None:
        if any(one is each for each in placed):
            return
        placed.append(one)
        for need in ordered:
            if one.is_alive and need.is_alive and f"{need.name}@{need.node}" in one.needs:
                place(need)

    here = {one.name for one in ordered}
    for one in ordered:
        if not (one.is_alive and here.intersection(one.needed_by)):
            place(one)
    for one in ordered:  # those that need each other, in a circle
        place(one)
    return placed


def _apply_head_phase(one: InstanceView, head: InstanceView | None) -> InstanceView:
    if head is None:
        where = f" on {one.nodes[0]}" if one.nodes else ""
        return replace(
            one, phase=Phase.UNKNOWN, step=None, detail=f"whether its model is ready, its head{where} would say"
        )
    if head.phase in (Phase.READY, Phase.STOPPING):
        return replace(one, phase=head.phase, step=None, detail=None)
    if one.phase in (Phase.READY, Phase.UNKNOWN, None):  # it has finished its part, and waits for the others
        return replace(one, phase=Phase.WARMING if head.is_alive else Phase.UNKNOWN, step=None, detail=None)
    return replace(one, detail=None)


def list_nodes_of_instance(one: InstanceView, views: Iterable[NodeTelemetryView]) -> tuple[NodeName, ...]:
    """Return the Sparks on which its model runs, in the order of the views; its own is always included."""
    seen = [each.node for each in find_ranks(one, (each for view in views for each in view.instances))]
    return tuple(dict.fromkeys(seen if one.node in seen else [one.node, *seen]))


@dataclass(frozen=True, slots=True)
class RankContainer:
    """A container that may have processes on ``node``. ``held``: its memory in bytes; ``port``: on the node, by its label."""

    node: NodeName
    container: Container
    held: int | None = None
    port: int | None = None

    @property
    def name(self) -> str:
        """The instance's name if sparkctl started it, else the container's name."""
        return self.container.instance_name

    @property
    def rank_position(self) -> tuple[int, int] | None:
        """Rank and number of ranks; None for a model on one Spark."""
        return parse_rank_position(self.container.get_label(ContainerLabel.RANK))


@dataclass(frozen=True, slots=True)
class InstanceContainers:
    """All containers of one instance that were found, the head first. ``missing``: number of ranks that were not found;
    ``elsewhere``: the nodes where they should be, by the labels. A foreign container is an instance of its own."""

    name: str
    parts: tuple[RankContainer, ...]
    missing: int
    elsewhere: tuple[str, ...]

    @property
    def is_managed(self) -> bool:
        """Tell whether sparkctl started it."""
        return self.parts[0].container.is_managed

    @property
    def memory_bytes(self) -> int:
        """Memory of all its containers in bytes, as far as known."""
        return sum(one.held or 0 for one in self.parts)

    @property
    def nodes(self) -> tuple[NodeName, ...]:
        """The nodes where it was found, the head's first."""
        return tuple(one.node for one in self.parts)

    @property
    def container_ids(self) -> frozenset[str]:
        return frozenset(one.container.id for one in self.parts)

    @property
    def needs(self) -> tuple[tuple[str, NodeName], ...]:
        """What it needs, as (instance, node)."""
        return parse_needs_label(self.parts[0].container)

    def is_need(self, wanted: tuple[str, NodeName]) -> bool:
        """Tell whether it is what another one needs."""
        return self.name == wanted[0] and wanted[1] in self.nodes

    def uses(self, other: InstanceContainers) -> bool:
        """Tell whether it is alive and needs another one."""
        return self.parts[0].container.is_alive and any(map(other.is_need, self.needs))

    def get_label(self, name: str) -> str | None:
        """Return a label of its head."""
        return self.parts[0].container.get_label(name)

    def containers_on(self, node: NodeName) -> tuple[RankContainer, ...]:
        return tuple(one for one in self.parts if one.node == node)


def group_by_instance(occupants: Iterable[RankContainer]) -> tuple[InstanceContainers, ...]:
    """Return the instances that these containers make up, in the order of their heads.

    Ranks belong together by the label that all ranks of one start share. Without that label, containers of the same instance
    and hash belong together if their own labels say that the model is divided among several Sparks.
    """
    found: dict[tuple[str, ...], list[RankContainer]] = {}
    for one in occupants:
        found.setdefault(_group_key(one), []).append(one)
    return tuple(_build_instance_containers(sorted(parts, key=_sort_key)) for parts in found.values())


def choose_needs_to_stop(
    chosen: Sequence[InstanceContainers], everything: Iterable[InstanceContainers], *, with_all: bool = False
) -> tuple[InstanceContainers, ...]:
    """Return what stops after the chosen instances: what was started for them, and nobody else needs.

    ``with_all``: also what ran before them.
    """
    going, others = list(chosen), [one for one in everything if one.is_managed]
    for whole in going:  # it grows: what is needed may need something itself
        for need in (one for wanted in whole.needs for one in others if one.is_need(wanted)):
            if any(need.container_ids == one.container_ids for one in going):
                continue
            names = {one.name for one in going}
            was_started_for_it = need.get_label(ContainerLabel.STARTED_FOR) in names
            users = [one for one in others if one.uses(need) and one.name not in names]
            if not users and (with_all or was_started_for_it):
                going.append(need)
    return tuple(going[len(chosen) :])


def order_stops(chosen: Sequence[InstanceContainers]) -> list[list[InstanceContainers]]:
    """Return instances in the groups in which they stop: what others need comes after them."""
    left, groups = list(chosen), []
    while left:
        free = [one for one in left if not any(other.uses(one) for other in left if other is not one)] or left
        groups.append(free)
        left = [one for one in left if one not in free]
    return groups


def _parse_decode_step(container: Container) -> DecodeStepSpec | None:
    from sparkctl.profiles.container_labels import parse_decode_step_label  # imported late: `status` groups no ranks

    return parse_decode_step_label(container.get_label(ContainerLabel.PER_STEP))


def _group_key(one: RankContainer) -> tuple[str, ...]:
    container = one.container
    alone = ("alone", one.node, container.id)
    if not container.is_managed:
        return alone
    run = container.get_label(ContainerLabel.RUN)
    if run and one.rank_position is not None:
        return ("run", one.name, run)
    divided = _parse_decode_step(container)
    if divided is not None and divided.ranks > 1 and run is None:
        return ("unlabelled", one.name, container.get_label(ContainerLabel.HASH) or "")
    return alone


def _sort_key(one: RankContainer) -> tuple[int, bool, str, str]:
    """Return a sort key that puts the head first: by its label, else because it has a port."""
    return (one.rank_position[0] if one.rank_position else 0, one.port is None, one.node, one.container.id)


def _build_instance_containers(parts: Sequence[RankContainer]) -> InstanceContainers:
    head = parts[0]
    count = head.rank_position[1] if head.rank_position else 1
    if head.rank_position is None and _group_key(head)[0] == "unlabelled":
        divided = _parse_decode_step(head.container)
        count = divided.ranks if divided is not None else 1
    missing = max(0, count - len(parts))
    named = [name for name in (head.container.get_label(ContainerLabel.NODES) or "").split(",") if name]
    here = {one.node for one in parts}
    return InstanceContainers(
        head.name, tuple(parts), missing, tuple(name for name in named if name not in here) if missing else ()
    )
