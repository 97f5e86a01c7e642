"""One model on several Sparks: an instance of one name on each of them, none of which answers without the others. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a key is looked up without them
    from sparkctl.core.store import LoadView
    from sparkctl.model.instance import InstanceView
    from sparkctl.model.node import NodeName


def parts_of(one: InstanceView) -> int:
    """Return over how many Sparks its model is spread by its labels: one GPU each, so as many as there are ranks; else 1."""
    if one.ours and one.place is not None:
        return one.place[1]
    return one.per_step.ranks if one.ours and one.per_step is not None else 1


def is_head(one: InstanceView) -> bool:
    """Tell whether it is the one that answers: rank 0, or where no label says which it is the one with a port."""
    return one.place[0] == 0 if one.place is not None else one.port is not None


def partners(one: InstanceView, instances: Iterable[InstanceView]) -> tuple[InstanceView, ...]:
    """Return the parts of its model that exist, itself among them, of all that runs anywhere."""
    if parts_of(one) == 1:
        return (one,)
    return tuple(each for each in instances if each.is_alive and parts_of(each) > 1 and is_of_one(each, one))


def is_of_one(one: InstanceView, other: InstanceView) -> bool:
    """Tell whether two are ranks of one model: of one start, where both say of which they are."""
    return one.name == other.name and (one.run is None or other.run is None or one.run == other.run)


def stands_on(one: InstanceView, views: Iterable[LoadView]) -> tuple[NodeName, ...]:
    """Return the Sparks on which its model is seen, in the order of the views; never without its own."""
    seen = [each.node for each in partners(one, (each for view in views for each in view.instances))]
    return tuple(dict.fromkeys(seen if one.node in seen else [one.node, *seen]))
