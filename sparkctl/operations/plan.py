"""``plan``: whether a profile would start on a node, by the same sum as the first step of `up`. Changes nothing."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from sparkctl.core.context import Context
from sparkctl.core.session import Session, node_failures
from sparkctl.core.together import together
from sparkctl.engines import load
from sparkctl.errors import ExitCode, NodeError
from sparkctl.model.container import Container
from sparkctl.model.events import Ended, Event, FitJudged, Outcome, Warned
from sparkctl.model.fit import Answer, Fit
from sparkctl.model.node import Node
from sparkctl.model.plan import Label, LaunchPlan
from sparkctl.model.profile import Profile
from sparkctl.operations.starting import fitting
from sparkctl.operations.starting.placing import place
from sparkctl.operations.starting.ranks_preflight import refuse_count
from sparkctl.operations.starting.request import UpRequest
from sparkctl.operations.stream import Emit, stream


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """``nodes``: of a profile for several, as many as it is for, in the order of its ranks: all of them carry it together; of
    one for one, each is asked whether it could.

    ``words`` are the profile and its overrides as the operator gave them.
    """

    profile: Profile
    nodes: Sequence[Node]
    environ: Mapping[str, str] = field(default_factory=dict)
    words: tuple[str, ...] = ()

    def start(self, node: Node) -> UpRequest:
        """What would be asked of `up`: there, or on all of its nodes."""
        nodes = tuple(self.nodes) if self.profile.nodes > 1 else (node,)
        return UpRequest(self.profile, load(self.profile.engine), nodes, words=self.words, environ=self.environ)


def plan(ctx: Context, request: PlanRequest) -> AsyncGenerator[Event, None]:
    """Yield a `FitJudged` for each node, then the end: exit 0 where `up` would start it, 6 where it would refuse, 3 where no
    node could be asked."""

    async def run(emit: Emit) -> Ended:
        began = ctx.clock.monotonic()
        if request.profile.nodes > 1:
            fits = await _together(ctx, request, emit)
        else:
            fits = await _each(ctx, request, emit)
        good = [one for one in fits if not one.is_refused]
        wanted = max((one.sparks for one in fits), default=1)
        code = ExitCode.DONE if len(good) >= wanted else ExitCode.REFUSED
        outcome = Outcome.PLANNED if code is ExitCode.DONE else Outcome.REFUSED
        node = request.nodes[0].name if len(request.nodes) == 1 else None
        return Ended(
            ctx.clock.now(), outcome, int(code), ctx.clock.monotonic() - began, node, request.profile.name
        )  # fmt: skip

    return stream(ctx, run, request.profile.name, None, on_interrupt="interrupted; nothing was changed")


async def _each(ctx: Context, request: PlanRequest, emit: Emit) -> list[Fit]:
    """Ask each node whether it could alone; one that is silent is said, and an error only where no node fits."""
    answers = await together(*(_asked(ctx, request, node) for node in request.nodes))
    for asked, one in zip(request.nodes, answers, strict=True):  # in the order of the config, not of the answers
        _tell(ctx, request, asked, one, emit)
    fits = [one for one in answers if isinstance(one, Fit)]
    silent = [one for one in answers if isinstance(one, NodeError)]
    if silent and all(one.is_refused for one in fits):
        raise silent[0]
    return fits


async def _asked(ctx: Context, request: PlanRequest, node: Node) -> Fit | NodeError:
    try:
        async with ctx.session(node) as session:
            launches, _ = await place(ctx, request.start(node), [session])
            return await _fit(ctx, request, session, launches[0].alone)
    except NodeError as error:
        return error


async def _together(ctx: Context, request: PlanRequest, emit: Emit) -> list[Fit]:
    """Ask the nodes whether they could together; all of them have to answer, and to have a way to each other, as for `up`."""
    start = request.start(request.nodes[0])
    refuse_count(request.profile, start.nodes)
    async with AsyncExitStack() as stack:
        sessions = [await stack.enter_async_context(ctx.session(node)) for node in start.nodes]
        launches, way = await place(ctx, start, sessions)
        fits = await together(
            *(_fit(ctx, request, session, one.alone) for session, one in zip(sessions, launches, strict=True))
        )
    for node, one in zip(start.nodes, fits, strict=True):
        worse = any(_is_worse(other, one) for other in fits)
        _tell(ctx, request, node, one, emit, is_waited_for=worse)
    for caution in () if way is None else way.cautions:
        emit(Warned(ctx.clock.now(), None, caution))
    return list(fits)


def _is_worse(one: Fit, than: Fit) -> bool:
    """Tell whether less helps one of them: what would help the other alone would start nothing."""
    return one.is_refused and (not than.is_refused or (than.answer is Answer.IF_STOPPED is not one.answer))


def _tell(
    ctx: Context, request: PlanRequest, node: Node, one: Fit | NodeError, emit: Emit, *, is_waited_for: bool = False
) -> None:
    """``is_waited_for``: it could start here, and not on another Spark that is to carry it too."""
    if isinstance(one, Fit):
        ways = () if is_waited_for else fitting.ways(one, request.start(node).again_with)
        emit(FitJudged(ctx.clock.now(), node.name, one, ways))
    elif len(request.nodes) > 1:
        emit(Warned(ctx.clock.now(), node.name, one.message, one.hint))


async def _fit(ctx: Context, request: PlanRequest, session: Session, made: LaunchPlan) -> Fit:
    """Sum up one node. Raises `NodeError`, `DockerError`."""
    with node_failures(session.node):
        containers, look = await together(
            session.docker.list(),
            session.look("memory", "processes", "gpu", *fitting.sections(request.profile, made)),
        )
        comes = await fitting.loading(session, look, containers)
    sparks = len(request.nodes) if request.profile.nodes > 1 else 1
    return fitting.fit(ctx, request.profile, made, look, containers, _replaced(made, containers), comes, sparks)


def _replaced(made: LaunchPlan, containers: Sequence[Container]) -> frozenset[str]:
    """Return the instance of the same name: to start it anew is to replace it."""
    return frozenset(one.id for one in containers if one.is_alive and one.label(Label.INSTANCE) == made.instance)
