"""One model on several Sparks: an instance of one name on each of them, none of which answers without the others. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sparkctl.model.phase import Phase

if TYPE_CHECKING:  # a key is looked up without them
    from sparkctl.model.instance import InstanceView
    from sparkctl.model.node import NodeName
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
            shown.append(_by_its_head(one, next((each for each in heads if is_same_start(one, each)), None)))
        else:
            shown.append(one)
    return tuple(shown)


def is_worker(one: InstanceView) -> bool:
    """Tell whether it is a rank of ours that answers nobody."""
    return one.ours and one.rank_position is not None and one.rank_position[0] > 0


def _by_its_head(one: InstanceView, head: InstanceView | None) -> InstanceView:
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
