"""From a first look at each node to the launch of each rank: where they stand, and how their Sparks reach each other."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sparkctl.commands.context import CommandContext
from sparkctl.commands.fabric.route import build_nccl_environment, find_fabric_route
from sparkctl.commands.start.start_preflight import refuse_without_docker
from sparkctl.commands.start.start_request import StartInstance
from sparkctl.concurrency import gather_or_cancel
from sparkctl.engines.base import Rank
from sparkctl.model.fabric import FabricRoute, NodeLanes
from sparkctl.model.launch_plan import LaunchPlan
from sparkctl.model.node import Node
from sparkctl.node.node_inspection import LaneReadings
from sparkctl.profiles.launch_planning import RankPlacement
from sparkctl.profiles.launch_planning import build_launch_plan as make_plan
from sparkctl.transport.session import Session, node_failures

_RUN_LENGTH = 12


@dataclass(frozen=True, slots=True)
class RankLaunch:
    """``plan`` is what is asked of Docker. ``alone``: the same as if there were no other ranks, in the engine's own words,
    by which its memory is summed."""

    plan: LaunchPlan
    alone: LaunchPlan


async def build_rank_launches(
    ctx: CommandContext, request: StartInstance, sessions: Sequence[Session]
) -> tuple[tuple[RankLaunch, ...], FabricRoute | None]:
    """Look at the nodes of a start, all at once; return the launch on each, and the way between them where there are several.

    Raises `NodeError`, and `Refused` where no way leads from one to the other.
    """
    found = await gather_or_cancel(*(_read_lanes(session, len(sessions) > 1) for session in sessions))
    way = None if len(sessions) == 1 else _find_route(request.nodes, found)
    alone = [_build_plan(ctx, request, session) for session in sessions]
    if way is None:
        return tuple(RankLaunch(one, one) for one in alone), None
    addresses, run = tuple(end.address for end in way.ends), uuid.uuid4().hex[:_RUN_LENGTH]
    places = [
        RankPlacement(
            Rank(index, addresses),
            tuple(one.name for one in request.nodes),
            run,
            build_nccl_environment(way, node.name),
            lanes is not None and lanes.has_devices,
        )
        for index, (node, lanes) in enumerate(zip(request.nodes, found, strict=True))
    ]
    placed = [_build_plan(ctx, request, session, at) for session, at in zip(sessions, places, strict=True)]
    return tuple(map(RankLaunch, placed, alone)), way


async def _read_lanes(session: Session, is_of_several: bool) -> LaneReadings | None:
    """Have the session know its user's home; return what links the node has, where that is asked."""
    with node_failures(session.node):
        await session.link.connect()
        return await _look_for_lanes(session, is_of_several)


async def _look_for_lanes(session: Session, is_of_several: bool) -> LaneReadings | None:
    asked = [*(["identity", "docker"] if session.home is None else []), *(["fabric"] if is_of_several else [])]
    if not asked:
        return None
    look = await session.read_node(*asked)
    refuse_without_docker(session.node.name, look)
    return look.lanes


def _find_route(nodes: Sequence[Node], found: Sequence[LaneReadings | None]) -> FabricRoute:
    lanes = [
        NodeLanes(node.name, each.lanes if each else (), each is not None and each.has_devices)
        for node, each in zip(nodes, found, strict=True)
    ]
    return find_fabric_route(lanes, {node.name: node.fabric for node in nodes if node.fabric is not None})


def _build_plan(
    ctx: CommandContext, request: StartInstance, session: Session, place: RankPlacement | None = None
) -> LaunchPlan:
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
