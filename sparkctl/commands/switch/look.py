"""What a switch has to know of each node: what stands there, and what would be started."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

from sparkctl.commands.context import CommandContext
from sparkctl.commands.start import node_fit
from sparkctl.commands.start.start_preflight import refuse_without_docker
from sparkctl.commands.switch.planner import IncomingRank, NodeInventory
from sparkctl.commands.switch.switch_request import SwitchInstance
from sparkctl.concurrency import gather_or_cancel
from sparkctl.engines.base import Rank
from sparkctl.errors import DockerError, NodeError
from sparkctl.model.checkpoint import CheckpointFiles
from sparkctl.model.container import Container
from sparkctl.model.container_labels import parse_port_label
from sparkctl.model.launch_plan import LaunchPlan
from sparkctl.model.memory_fit import MemoryFit
from sparkctl.monitor import switch_journal
from sparkctl.monitor.wholes import RankContainer
from sparkctl.node.node_inspection import NodeInspection
from sparkctl.profiles.launch_planning import RankPlacement
from sparkctl.profiles.launch_planning import build_launch_plan as make_plan
from sparkctl.transport.session import Session

_PLANNED_START_ID = "planned"  # the name of a start that is only thought of


@dataclass(frozen=True, slots=True)
class SwitchInspection:
    """What was found on a node. ``launch``: what would be started there, None where nothing would; ``alone``: the same as a
    model by itself, whose words tell of the model."""

    look: NodeInspection
    containers: tuple[Container, ...]
    launch: LaunchPlan | None
    alone: LaunchPlan | None
    comes: frozenset[str]
    has_image: bool


async def inspect_switch_nodes(
    ctx: CommandContext, request: SwitchInstance, sessions: Sequence[Session]
) -> tuple[NodeInventory, ...]:
    """Look at every node at once; one that cannot be asked is silent."""
    answers = await asyncio.gather(*(_seen(ctx, request, session) for session in sessions), return_exceptions=True)
    found = []
    for session, answer in zip(sessions, answers, strict=True):
        if isinstance(answer, NodeError | DockerError):
            found.append(NodeInventory(session.node.name, silent=answer.message))
        elif isinstance(answer, BaseException):
            raise answer
        else:
            found.append(_build_node_state(ctx, request, session, answer))
    return tuple(found)


async def _seen(ctx: CommandContext, request: SwitchInstance, session: Session) -> SwitchInspection:
    await session.link.connect()
    once = ["identity", "docker"] if session.home is None else []
    look = await session.read_node(*once, "journal", "memory", "processes", "gpu", "listen")
    refuse_without_docker(session.node.name, look)
    launch, alone = (_launch(ctx, request, session, alone=one) for one in (False, True))
    if launch is None or alone is None:
        return SwitchInspection(look, await session.docker.list_containers(), None, None, frozenset(), True)
    switch_journal.refuse_if_journal_found(session.node.name, ctx, look.journal)
    containers, image, models = await gather_or_cancel(
        session.docker.list_containers(), session.docker.inspect_image(launch.image), _models(session, request, alone)
    )
    look = replace(look, models=models)
    comes = await node_fit.find_loading_containers(session, look, containers)
    return SwitchInspection(look, containers, launch, alone, comes, image is not None)


async def _models(session: Session, request: SwitchInstance, launch: LaunchPlan) -> tuple[CheckpointFiles, ...]:
    wanted = node_fit.list_model_sections(request.profile, launch)
    return (await session.read_node(*wanted)).models if wanted else ()


def _launch(ctx: CommandContext, request: SwitchInstance, session: Session, *, alone: bool) -> LaunchPlan | None:
    """Return what would be started on this node, as far as it is known before the way between the nodes was looked for."""
    names = tuple(node.name for node in request.nodes)
    if session.node.name not in names:
        return None
    index, count = names.index(session.node.name), len(names)
    place = (
        None
        if count == 1 or alone
        else RankPlacement(Rank(index, tuple(node.host for node in request.nodes)), names, _PLANNED_START_ID)
    )
    return make_plan(
        request.profile, session.node, home=session.user_home, operator=ctx.operator, environ=request.environ,
        engine=request.engine, place=place,
    )  # fmt: skip


def _build_node_state(
    ctx: CommandContext, request: SwitchInstance, session: Session, seen: SwitchInspection
) -> NodeInventory:
    alive = [one for one in seen.containers if one.is_alive]
    memory = seen.look.memory
    return NodeInventory(
        session.node.name,
        tuple(
            RankContainer(session.node.name, one, seen.look.container_memory(one.id), parse_port_label(one))
            for one in alive
        ),
        None if memory is None else memory.total,
        None if memory is None else max(0, memory.available),
        seen.look.listening,
        tuple((one.name, one.is_managed) for one in seen.containers if not one.is_alive),
        None if seen.launch is None else _build_new_launch(ctx, request, seen, seen.launch),
    )


def _build_new_launch(
    ctx: CommandContext, request: SwitchInstance, seen: SwitchInspection, launch: LaunchPlan
) -> IncomingRank:
    @cache
    def fit(gone: frozenset[str]) -> MemoryFit:
        return node_fit.calculate_fit(
            ctx, request.profile, seen.alone or launch, seen.look, seen.containers, gone, seen.comes, len(request.nodes)
        )

    return IncomingRank(launch, seen.has_image, fit, seen.alone)
