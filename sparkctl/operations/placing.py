"""From a first look at each node to the launch of each rank: where they stand, and how their Sparks reach each other."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sparkctl.core.context import Context
from sparkctl.core.fabric import environment, find_way
from sparkctl.core.planning import Place
from sparkctl.core.planning import plan as make_plan
from sparkctl.core.session import Session
from sparkctl.core.together import together
from sparkctl.engines.base import Rank
from sparkctl.model.fabric import NodeLanes, Way
from sparkctl.model.node import Node
from sparkctl.model.plan import LaunchPlan
from sparkctl.operations.preflight import refuse_without_docker
from sparkctl.operations.up_request import UpRequest
from sparkctl.probe.look import Look

_RUN_LENGTH = 12


@dataclass(frozen=True, slots=True)
class Launch:
    """``plan`` is what is asked of Docker. ``alone``: the same as if there were no other ranks, in the engine's own words,
    by which its memory is summed."""

    plan: LaunchPlan
    alone: LaunchPlan


async def place(ctx: Context, request: UpRequest, sessions: Sequence[Session]) -> tuple[tuple[Launch, ...], Way | None]:
    """Look at the nodes of a start, all at once; return the launch on each, and the way between them where there are several.

    Raises `NodeError`, and `Refused` where no way leads from one to the other.
    """
    looks = await together(*(_look(session, len(sessions) > 1) for session in sessions))
    way = None if len(sessions) == 1 else _way(request.nodes, looks)
    alone = [_launch(ctx, request, node, look) for node, look in zip(request.nodes, looks, strict=True)]
    if way is None:
        return tuple(Launch(one, one) for one in alone), None
    addresses, run = tuple(end.address for end in way.ends), uuid.uuid4().hex[:_RUN_LENGTH]
    places = [
        Place(
            Rank(index, addresses),
            tuple(one.name for one in request.nodes),
            run,
            environment(way, node.name),
            look.lanes is not None and look.lanes.has_devices,
        )
        for index, (node, look) in enumerate(zip(request.nodes, looks, strict=True))
    ]
    placed = [
        _launch(ctx, request, node, look, at) for node, look, at in zip(request.nodes, looks, places, strict=True)
    ]
    return tuple(map(Launch, placed, alone)), way


async def _look(session: Session, is_of_several: bool) -> Look:
    await session.link.connect()
    look = await session.look("identity", "docker", *(["fabric"] if is_of_several else []))
    refuse_without_docker(session.node.name, look)
    return look


def _way(nodes: Sequence[Node], looks: Sequence[Look]) -> Way:
    lanes = [
        NodeLanes(node.name, look.lanes.lanes if look.lanes else (), look.lanes is not None and look.lanes.has_devices)
        for node, look in zip(nodes, looks, strict=True)
    ]
    return find_way(lanes, {node.name: node.fabric for node in nodes if node.fabric is not None})


def _launch(ctx: Context, request: UpRequest, node: Node, look: Look, place: Place | None = None) -> LaunchPlan:
    plan = make_plan(
        request.profile,
        node,
        home=look.identity.home if look.identity else "~",
        operator=ctx.operator,
        environ=request.environ,
        engine=request.engine,
        place=place,
    )
    return plan if request.guarded else replace(plan, guard=None)
