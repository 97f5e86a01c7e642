"""``down``: stop instances of ours wherever they run, one after the other, and wait for their memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass

from sparkctl.core.context import Context
from sparkctl.core.session import Session
from sparkctl.errors import ExitCode, InvalidInput, Refused, SparkctlError
from sparkctl.model.container import Container
from sparkctl.model.events import Ended, Event, Outcome, Warned
from sparkctl.model.guard import UnwatchReason
from sparkctl.model.history import Kind
from sparkctl.model.node import Node, NodeName
from sparkctl.model.plan import Label
from sparkctl.model.suggest import did_you_mean
from sparkctl.operations.chronicled import Subject, chronicled
from sparkctl.operations.labels import grace_of
from sparkctl.operations.lock import acquire
from sparkctl.operations.start_guard import unwatch
from sparkctl.operations.stop import Stopped, stop
from sparkctl.operations.stream import Emit, ended_by, stream

DEFAULT_GRACE = 30.0


@dataclass(frozen=True, slots=True)
class DownRequest:
    """``instance`` None means every instance of ours on these nodes. ``grace`` is seconds between TERM and KILL.

    ``known`` are the names that are not misspelt: profiles, and whatever was started before.
    """

    instance: str | None
    nodes: Sequence[Node]
    grace: float | None = None
    known: frozenset[str] = frozenset()


def down(ctx: Context, request: DownRequest) -> AsyncGenerator[Event, None]:
    """Stop what was asked. Nothing running is success; a node that could not be asked never counts as stopped."""

    def run(own: Context) -> AsyncGenerator[Event, None]:
        return stream(
            own,
            lambda emit: _down(own, request, emit),
            request.instance,
            on_interrupt="interrupted; what was told to stop goes on stopping: sparkctl status",
        )

    return chronicled(ctx, Subject(Kind.STOP, request.nodes, request.instance), run)


@dataclass(frozen=True, slots=True)
class Halt:
    """What came of stopping several: each container that was stopped, and why a node could not be finished with."""

    stopped: tuple[Stopped, ...]
    failures: tuple[tuple[NodeName, SparkctlError], ...] = ()


async def stop_all(
    sessions: Mapping[NodeName, Session],
    ctx: Context,
    emit: Emit,
    containers_by_node: Mapping[NodeName, Sequence[Container]],
    grace: float | None = None,
    keep: bool = False,
) -> Halt:
    """Stop containers of ours on several nodes at once, those of one node in their order; the caller has the locks.

    ``grace`` None: what each says itself. ``keep``: they stay, ended. A node that fails keeps no other from its end.
    """

    async def on(node: NodeName) -> list[Stopped]:
        session, containers = sessions[node], containers_by_node[node]
        await unwatch(session, ctx, emit, [container.id for container in containers], UnwatchReason.STOPPED)
        return [await stop(session, ctx, emit, one, grace_for(one, grace), keep=keep) for one in containers]

    nodes = list(containers_by_node)
    outcomes = await asyncio.gather(*(on(node) for node in nodes), return_exceptions=True)
    failures = [(node, one) for node, one in zip(nodes, outcomes, strict=True) if isinstance(one, SparkctlError)]
    for one in outcomes:
        if isinstance(one, BaseException) and not isinstance(one, SparkctlError):
            raise one
    return Halt(tuple(done for one in outcomes if isinstance(one, list) for done in one), tuple(failures))


async def _down(ctx: Context, request: DownRequest, emit: Emit) -> Ended:
    began = ctx.clock.monotonic()
    outcomes = await asyncio.gather(
        *(_down_on(ctx, request, node, emit) for node in request.nodes), return_exceptions=True
    )
    failure: SparkctlError | None = None
    done: list[Stopped] = []
    for node, outcome in zip(request.nodes, outcomes, strict=True):
        if isinstance(outcome, SparkctlError):
            failure = failure or outcome
            if len(request.nodes) > 1:
                emit(Warned(ctx.clock.now(), node.name, outcome.message, outcome.hint))
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            done += outcome
    seconds = ctx.clock.monotonic() - began
    if failure is not None:
        return ended_by(failure, ctx, seconds, request.instance)
    if not done and request.instance is not None and request.instance not in request.known:
        raise InvalidInput(
            f"no instance and no profile is called {request.instance}{did_you_mean(request.instance, request.known)}",
            "see what runs: sparkctl status",
        )
    missing = not all(stopped.is_proved for stopped in done)
    what = f"{request.instance} does not run" if request.instance else "nothing that sparkctl started runs"
    message = None if done else f"{what} on {' or '.join(n.name for n in request.nodes)}; nothing to stop"
    return Ended(
        ctx.clock.now(),
        Outcome.UNHEALTHY if missing else Outcome.DONE,
        int(ExitCode.UNHEALTHY if missing else ExitCode.DONE),
        seconds,
        instance=request.instance,
        message="stopped, but its memory has not come back" if missing else message,
        log=next((stopped.log for stopped in done if stopped.log), None),
    )


async def _down_on(ctx: Context, request: DownRequest, node: Node, emit: Emit) -> list[Stopped]:
    async with ctx.session(node) as session:
        session.report_to(emit)
        await session.link.connect()
        containers = await session.docker.list()
        if not _chosen(request, containers):
            _refuse_foreign(request, node, containers)
            return []

        def warn(message: str) -> None:
            emit(Warned(ctx.clock.now(), node.name, message, None))

        doing = f"stopping {request.instance or 'everything'}"
        lock = await acquire(session, ctx, doing, warn, beside_ourselves=True)
        try:
            chosen = _chosen(request, await session.docker.list())  # somebody may have stopped it while we waited
            halt = await stop_all({node.name: session}, ctx, emit, {node.name: chosen}, request.grace)
            for _, failure in halt.failures:
                raise failure
            return list(halt.stopped)
        finally:
            await lock.release()


def _chosen(request: DownRequest, containers: Sequence[Container]) -> list[Container]:
    return [c for c in containers if c.is_ours and request.instance in (None, c.label(Label.INSTANCE))]


def grace_for(container: Container, asked: float | None) -> float:
    """Return what was asked for now, else what the profile said when this was started; seconds."""
    if asked is not None:
        return asked
    own = grace_of(container)
    return DEFAULT_GRACE if own is None else own


def _refuse_foreign(request: DownRequest, node: Node, containers: Sequence[Container]) -> None:
    """A running container of that name which is not ours is never stopped, and not passed over in silence either."""
    for container in containers:
        if container.name == request.instance and container.is_alive:
            raise Refused(
                f"{container.name} on {node.name} was not started by sparkctl and is left alone",
                f"on {node.name}: docker stop {container.name}",
            )
