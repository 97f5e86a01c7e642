"""What a switch has to know of each node: what stands there, and what would be started."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

from sparkctl.core.context import Context
from sparkctl.core.planning import Place
from sparkctl.core.planning import plan as make_plan
from sparkctl.core.session import Session
from sparkctl.core.switching import Coming, Site
from sparkctl.core.together import together
from sparkctl.core.wholes import Occupant
from sparkctl.engines.base import Rank
from sparkctl.errors import DockerError, NodeError
from sparkctl.model.checkpoint import Checkpoint
from sparkctl.model.container import Container
from sparkctl.model.fit import Fit
from sparkctl.model.plan import LaunchPlan
from sparkctl.operations.labels import port_of
from sparkctl.operations.starting import fitting
from sparkctl.operations.starting.preflight import refuse_without_docker
from sparkctl.operations.switching import journal
from sparkctl.operations.switching.request import SwitchRequest
from sparkctl.probe.look import Look

_RUN = "planned"  # the name of a start that is only thought of


@dataclass(frozen=True, slots=True)
class Seen:
    """What was found on a node. ``launch``: what would be started there, None where nothing would; ``alone``: the same as a
    model by itself, whose words tell of the model."""

    look: Look
    containers: tuple[Container, ...]
    launch: LaunchPlan | None
    alone: LaunchPlan | None
    comes: frozenset[str]
    has_image: bool


async def sites(ctx: Context, request: SwitchRequest, sessions: Sequence[Session]) -> tuple[Site, ...]:
    """Look at every node at once; one that cannot be asked is silent."""
    answers = await asyncio.gather(*(_seen(ctx, request, session) for session in sessions), return_exceptions=True)
    found = []
    for session, answer in zip(sessions, answers, strict=True):
        if isinstance(answer, NodeError | DockerError):
            found.append(Site(session.node.name, silent=answer.message))
        elif isinstance(answer, BaseException):
            raise answer
        else:
            found.append(_site(ctx, request, session, answer))
    return tuple(found)


async def _seen(ctx: Context, request: SwitchRequest, session: Session) -> Seen:
    await session.link.connect()
    once = ["identity", "docker"] if session.home is None else []
    look = await session.look(*once, "journal", "memory", "processes", "gpu", "listen")
    refuse_without_docker(session.node.name, look)
    launch, alone = (_launch(ctx, request, session, alone=one) for one in (False, True))
    if launch is None or alone is None:
        return Seen(look, await session.docker.list(), None, None, frozenset(), True)
    journal.refuse_seen(session.node.name, ctx, look.journal)
    containers, image, models = await together(
        session.docker.list(), session.docker.image(launch.image), _models(session, request, alone)
    )
    look = replace(look, models=models)
    comes = await fitting.loading(session, look, containers)
    return Seen(look, containers, launch, alone, comes, image is not None)


async def _models(session: Session, request: SwitchRequest, launch: LaunchPlan) -> tuple[Checkpoint, ...]:
    wanted = fitting.sections(request.profile, launch)
    return (await session.look(*wanted)).models if wanted else ()


def _launch(ctx: Context, request: SwitchRequest, session: Session, *, alone: bool) -> LaunchPlan | None:
    """Return what would be started on this node, as far as it is known before the way between the nodes was looked for."""
    names = tuple(node.name for node in request.nodes)
    if session.node.name not in names:
        return None
    index, count = names.index(session.node.name), len(names)
    place = None if count == 1 or alone else Place(Rank(index, tuple(node.host for node in request.nodes)), names, _RUN)
    return make_plan(
        request.profile, session.node, home=session.user_home, operator=ctx.operator, environ=request.environ,
        engine=request.engine, place=place,
    )  # fmt: skip


def _site(ctx: Context, request: SwitchRequest, session: Session, seen: Seen) -> Site:
    alive = [one for one in seen.containers if one.is_alive]
    memory = seen.look.memory
    return Site(
        session.node.name,
        tuple(Occupant(session.node.name, one, seen.look.held_by(one.id), port_of(one)) for one in alive),
        None if memory is None else memory.total,
        None if memory is None else max(0, memory.available),
        seen.look.listening,
        tuple((one.name, one.is_ours) for one in seen.containers if not one.is_alive),
        None if seen.launch is None else _coming(ctx, request, seen, seen.launch),
    )


def _coming(ctx: Context, request: SwitchRequest, seen: Seen, launch: LaunchPlan) -> Coming:
    @cache
    def fit(gone: frozenset[str]) -> Fit:
        return fitting.fit(
            ctx, request.profile, seen.alone or launch, seen.look, seen.containers, gone, seen.comes, len(request.nodes)
        )

    return Coming(launch, seen.has_image, fit, seen.alone)
