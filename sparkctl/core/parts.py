"""One model on several Sparks: an instance of one name on each of them, none of which answers without the others. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a key is looked up without them
    from sparkctl.core.store import LoadView
    from sparkctl.model.instance import InstanceView
    from sparkctl.model.node import NodeName


def parts_of(one: InstanceView) -> int:
    """Return over how many Sparks its model is spread by its label: one GPU each, so as many as there are ranks; else 1."""
    return one.per_step.ranks if one.ours and one.per_step is not None else 1


def partners(one: InstanceView, instances: Iterable[InstanceView]) -> tuple[InstanceView, ...]:
    """Return the parts of its model that exist, itself among them, of all that runs anywhere."""
    if parts_of(one) == 1:
        return (one,)
    return tuple(each for each in instances if each.name == one.name and each.is_alive and parts_of(each) > 1)


def stands_on(one: InstanceView, views: Iterable[LoadView]) -> tuple[NodeName, ...]:
    """Return the Sparks on which its model is seen, in the order of the views; never without its own."""
    seen = [each.node for each in partners(one, (each for view in views for each in view.instances))]
    return tuple(dict.fromkeys(seen if one.node in seen else [one.node, *seen]))
