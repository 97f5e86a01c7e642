"""From a first look at each node to the launch of each rank: where they stand, and how their Sparks reach each other."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sparkctl.core.context import Context
from sparkctl.core.fabric import environment, find_way
from sparkctl.core.planning import Place
from sparkctl.core.planning import plan as make_plan
from sparkctl.core.session import Session, node_failures
from sparkctl.core.together import together
from sparkctl.engines.base import Rank
from sparkctl.model.fabric import NodeLanes, Way
from sparkctl.model.node import Node
from sparkctl.model.plan import LaunchPlan
from sparkctl.operations.starting.preflight import refuse_without_docker
from sparkctl.operations.starting.request import UpRequest
from sparkctl.probe.look import Lanes

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
    found = await together(*(_look(session, len(sessions) > 1) for session in sessions))
    way = None if len(sessions) == 1 else _way(request.nodes, found)
    alone = [_launch(ctx, request, session) for session in sessions]
    if way is None:
        return tuple(Launch(one, one) for one in alone), None
    addresses, run = tuple(end.address for end in way.ends), uuid.uuid4().hex[:_RUN_LENGTH]
    places = [
        Place(
            Rank(index, addresses),
            tuple(one.name for one in request.nodes),
            run,
            environment(way, node.name),
            lanes is not None and lanes.has_devices,
        )
        for index, (node, lanes) in enumerate(zip(request.nodes, found, strict=True))
    ]
    placed = [_launch(ctx, request, session, at) for session, at in zip(sessions, places, strict=True)]
    return tuple(map(Launch, placed, alone)), way


async def _look(session: Session, is_of_several: bool) -> Lanes | None:
    """Have the session know its user's home; return what links the node has, where that is asked."""
    with node_failures(session.node):
        await session.link.connect()
        return await _look_for_lanes(session, is_of_several)


async def _look_for_lanes(session: Session, is_of_several: bool) -> Lanes | None:
    asked = [*(["identity", "docker"] if session.home is None else []), *(["fabric"] if is_of_several else [])]
    if not asked:
        return None
    look = await session.look(*asked)
    refuse_without_docker(session.node.name, look)
    return look.lanes


def _way(nodes: Sequence[Node], found: Sequence[Lanes | None]) -> Way:
    lanes = [
        NodeLanes(node.name, each.lanes if each else (), each is not None and each.has_devices)
        for node, each in zip(nodes, found, strict=True)
    ]
    return find_way(lanes, {node.name: node.fabric for node in nodes if node.fabric is not None})


def _launch(ctx: Context, request: UpRequest, session: Session, place: Place | None = None) -> LaunchPlan:
    plan = make_plan(
        request.profile,
        session.node,
        home=session.user_home,
        operator=ctx.operator,
        environ=request.environ,
        engine=request.engine,
        place=place,
    )
    return plan if request.guarded else replace(plan, guard=None)
