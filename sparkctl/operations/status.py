"""``status``: every node at once, what runs there, ours and foreign, and how far it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING

from sparkctl.core.context import Context
from sparkctl.core.kept import kept_by, with_kept
from sparkctl.core.parts import with_heads
from sparkctl.core.session import Session, node_failures
from sparkctl.core.store import InstanceView, NodeView
from sparkctl.core.together import together
from sparkctl.engines.health_paths import find_health_paths
from sparkctl.errors import DockerError, LogUnreadable, NodeError, NoSuchContainer
from sparkctl.model.container import Container, ContainerState
from sparkctl.model.memory import Memory
from sparkctl.model.node import Node, NodeState
from sparkctl.model.phase import Phase, Step
from sparkctl.model.plan import Label, ReadyRule, Service
from sparkctl.model.secrets import redact
from sparkctl.model.switch import Found
from sparkctl.operations.endpoint import endpoint
from sparkctl.operations.labels import expected_of, nodes_of, port_of, rank_of, rule_of, run_of
from sparkctl.operations.starting import readiness
from sparkctl.operations.switching.journal import view_of
from sparkctl.wire.link import state_of

if TYPE_CHECKING:
    from sparkctl.core.reading import LogReader

_TAIL, _SHORT_TAIL = 400, 60  # lines
_HEALTH_TIMEOUT = 5.0
_SIGKILLED = 137
_BY_SIGNAL = (130, _SIGKILLED, 143)  # 128 and SIGINT, SIGKILL or SIGTERM


async def look_at(ctx: Context, session: Session) -> NodeView:
    """Return what is true on a node now; an error of the node is a view too, with its state and words."""
    node = session.node
    try:
        with node_failures(node):
            return await _look_at(ctx, session)
    except NodeError as error:
        now = session.link.status
        return NodeView(
            node.name, state_of(error), ctx.clock.now(), error.message, error.hint, now.attempt, now.next_try,
            docker_known=False,
        )  # fmt: skip
    except DockerError as error:  # it broke off between the list and a question about one container
        return _without_docker(ctx, node, error, None)


async def _look_at(ctx: Context, session: Session) -> NodeView:
    node = session.node
    await session.link.connect()
    look, containers = await together(session.look("memory", "processes", "gpu", "journal"), _containers(session))
    left = view_of(look.journal)
    switch = None if left.found is Found.NONE else left
    if isinstance(containers, DockerError):
        return replace(_without_docker(ctx, node, containers, look.memory), switch=switch)
    instances = await together(*(instance_view(session, c, look.held_by(c.id)) for c in containers))
    shown = with_kept([one for one in instances if one], kept_by(switch))
    return NodeView(
        node.name, NodeState.OK, ctx.clock.now(), memory=look.memory, instances=shown, switch=switch,
    )  # fmt: skip


async def _containers(session: Session) -> tuple[Container, ...] | DockerError:
    try:
        return await session.docker.list()
    except DockerError as error:
        return error


def _without_docker(ctx: Context, node: Node, error: DockerError, memory: Memory | None) -> NodeView:
    return NodeView(
        node.name, NodeState.OK, ctx.clock.now(), error.message, error.hint, memory=memory, docker_known=False
    )


async def status(ctx: Context, nodes: Sequence[Node]) -> tuple[NodeView, ...]:
    """Return a view of each node, looked at together."""

    async def one(node: Node) -> NodeView:
        async with Session(node, ctx.asker, ctx.clock) as session:
            return await look_at(ctx, session)

    return _with_heads(await together(*(one(node) for node in nodes)))


def _with_heads(views: Sequence[NodeView]) -> tuple[NodeView, ...]:
    everything = [one for view in views for one in view.instances]
    return tuple(replace(view, instances=with_heads(view.instances, everything)) for view in views)


async def watch(ctx: Context, nodes: Sequence[Node], every: float = 2.0) -> AsyncGenerator[tuple[NodeView, ...], None]:
    """Yield a view of all nodes again and again; lost connections come back by themselves, visibly."""
    sessions = [Session(node, ctx.asker, ctx.clock) for node in nodes]
    returning: dict[str, asyncio.Task[None]] = {}
    try:
        while True:
            yield _with_heads(await together(*(_look_or_wait(ctx, s, returning) for s in sessions)))
            await ctx.clock.sleep(every)
    finally:
        for task in returning.values():
            task.cancel()
        await asyncio.gather(*returning.values(), return_exceptions=True)
        for session in sessions:
            await session.__aexit__(None, None, None)


async def _look_or_wait(ctx: Context, session: Session, returning: dict[str, asyncio.Task[None]]) -> NodeView:
    """Look, or show the reconnecting that goes on in the background."""
    task = returning.get(session.node.name)
    if task is not None and not task.done():
        now = session.link.status
        return NodeView(session.node.name, now.state, ctx.clock.now(), now.detail, None, now.attempt, now.next_try)
    view = await look_at(ctx, session)
    if view.state in (NodeState.UNREACHABLE, NodeState.STARVED, NodeState.UNKNOWN):
        returning[session.node.name] = asyncio.ensure_future(session.link.reconnect())
    return view


async def instance_view(session: Session, container: Container, held: int | None) -> InstanceView | None:
    """Return what a container is to an operator, ``held`` being its memory.

    None for a foreign one that has ended, and for one that went while it was asked about.
    """
    if not container.is_ours:
        if not container.is_alive:
            return None
        return InstanceView(
            container.name, session.node.name, container.name, container.image, container.state, container.status,
            ours=False, memory=held, phase=None, container_id=container.id,
        )  # fmt: skip
    try:
        phase, step, detail = await _phase(session, container)
    except NoSuchContainer:
        return None
    return InstanceView(
        container.label(Label.INSTANCE) or container.name, session.node.name, container.name, container.image,
        container.state, container.status, ours=True, memory=held, phase=phase, step=step,
        profile=container.label(Label.PROFILE), engine=container.label(Label.ENGINE),
        operator=container.label(Label.OPERATOR),
        endpoint=endpoint(session.node, port_of(container)), detail=detail, container_id=container.id,
        port=port_of(container), expected=expected_of(container), rank=rank_of(container), nodes=nodes_of(container),
        run=run_of(container),
    )  # fmt: skip


async def _phase(session: Session, container: Container) -> tuple[Phase, Step | None, str | None]:
    """Return how far an instance of ours is, by its own ready rule; its log's tail tells the step of a load."""
    if not container.is_alive:
        ended = await session.docker.inspect(container.id)
        failed = ended.exit_code not in (0, None) or bool(ended.error)
        why = await _without_secrets(session, container, ended.error)
        if why is None and ended.exit_code == _SIGKILLED:
            why = await _stopped_by_guard(session, container)
        if why is None and ended.exit_code in _BY_SIGNAL and await _was_asked_to_stop(session, ended):
            return Phase.STOPPED, None, f"somebody stopped it (exit code {ended.exit_code})"
        if not failed and ended.exit_code == 0:
            why = await _died_inside(session, container)
            failed = why is not None
        return (Phase.FAILED if failed else Phase.STOPPED), None, why
    if container.state is ContainerState.PAUSED:
        where = f"on {session.node.name}: docker unpause {container.name}"
        return Phase.UNKNOWN, None, f"paused (docker pause), it answers nobody until {where}"
    rule = rule_of(container)
    if rule is None:
        return Phase.UNKNOWN, None, "its labels do not say in a usable form when it is ready"
    quiet = await _ask_health_paths(session, container, rule)
    if quiet is not None:
        return quiet, None, None if quiet is Phase.READY else "it was asked to stop"
    answer = await readiness.health(session.link, Service(port_of(container), rule), _HEALTH_TIMEOUT)
    if answer.good and rule.health is not None:
        await _remember_ready(session, container, rule)
        return Phase.READY, None, None
    # Secrets are looked up only where the engine has said something: status of what is ready stays quick.
    why_not = answer.told(await session.docker.secrets(container.id)) if answer.said else answer.what
    return await _phase_by_log(session, container, rule, why_not)


async def _ask_health_paths(session: Session, container: Container, rule: ReadyRule) -> Phase | None:
    """Return the phase of an engine whose health path would make it generate, by what makes it generate nothing.

    None where that does not prove it: then the health path has to be asked. A version without a quiet path for readiness is
    asked whether it is alive, once it was found ready; that it stops, only its log tells.
    """
    port = port_of(container)
    paths = find_health_paths(container.label(Label.ENGINE) or "", rule.health or "")
    if paths is None or port is None:
        return None
    if container.id not in session.seen_ready:
        status = await readiness.request_status(session.link, port, paths.ready, _HEALTH_TIMEOUT)
        return Phase.READY if status is not None and 200 <= status < 300 else None
    status = await readiness.request_status(session.link, port, paths.alive, _HEALTH_TIMEOUT)
    begun = (await session.docker.inspect(container.id)).started
    if not readiness.is_alive(status) or session.seen_ready[container.id] != begun:
        del session.seen_ready[container.id]
        return None
    log = await _tail(session, container, rule, _SHORT_TAIL)
    if log is not None and log.fatal is not None:
        return None
    return Phase.STOPPING if log is not None and log.stopped is not None else Phase.READY


async def _remember_ready(session: Session, container: Container, rule: ReadyRule) -> None:
    """Keep that it was found ready, where asking again would make it generate again."""
    if find_health_paths(container.label(Label.ENGINE) or "", rule.health or "") is not None:
        session.seen_ready[container.id] = (await session.docker.inspect(container.id)).started


async def _stopped_by_guard(session: Session, container: Container) -> str | None:
    """Say what the guard's receipt for it says; the imports wait, as nearly nothing ends so."""
    from sparkctl.operations import receipts
    from sparkctl.operations.starting.judge import fall

    receipt = await receipts.of(session, container.id)
    return None if receipt is None else f"stopped by the guard: {fall(receipt)}"


async def _without_secrets(session: Session, container: Container, text: str | None) -> str | None:
    return redact(text, await session.docker.secrets(container.id)) if text else None


async def _phase_by_log(
    session: Session, container: Container, rule: ReadyRule, why_not: str
) -> tuple[Phase, Step | None, str | None]:
    """Read the tail of the log for the step."""
    try:
        log = await _tail(session, container, rule)
    except LogUnreadable:
        return Phase.UNKNOWN, None, f"{why_not}; its log cannot be read"
    if log is None:
        return Phase.UNKNOWN, None, why_not
    if log.stopped is not None and log.fatal is None:
        return Phase.STOPPING, None, f"it was asked to stop; {why_not}"
    is_worker = not (rank_of(container) or "0").startswith("0")  # it answers nobody: what is true of it, its head knows
    if rule.health is None and log.ready_line_seen and not is_worker:
        return Phase.READY, None, None
    return (log.phase if log.fatal is None else Phase.FAILED), log.step, why_not


async def _died_inside(session: Session, container: Container) -> str | None:
    """Say what its log ends in where that is its death: vLLM whose engine core was killed ends with exit code 0, too."""
    from sparkctl.engines.base import Weight

    try:
        log = await _tail(session, container, rule_of(container) or ReadyRule(None, None))
    except DockerError:
        return None  # it is being removed, for one
    root = None if log is None else log.root
    if root is None or root.failure is None or root.failure.weight < Weight.DEATH:
        return None
    return f"it ended with exit code 0, and not because it was asked to: {root.failure.summary}"


async def _was_asked_to_stop(session: Session, container: Container) -> bool:
    """Tell whether one that ended by a signal was stopped: by its log, or by the signal where the log ends on no error.

    SIGKILL alone proves nothing: it ends an orderly stop that took too long, and is how SGLang ends itself.
    """
    if container.oom_killed:
        return False
    try:
        log = await _tail(session, container, rule_of(container) or ReadyRule(None, None))
    except DockerError:
        return False
    if log is None or log.fatal is not None:
        return False
    return log.stopped is not None or (container.exit_code != _SIGKILLED and log.last_words is None)


async def _tail(session: Session, container: Container, rule: ReadyRule, lines: int = _TAIL) -> LogReader | None:
    """Read the last of its log, None where its engine is not known; the imports wait, as mostly this is not needed."""
    from sparkctl.core.reading import LogReader
    from sparkctl.engines import load, names
    from sparkctl.wire.logs import LogFollower

    engine = container.label(Label.ENGINE) or ""
    if engine not in names():
        return None
    log = LogReader(load(engine), rule)
    # Of one that was started again, what its log says of before is not what it does now.
    begun = (await session.docker.inspect(container.id)).started
    async with aclosing(LogFollower(session.link, container.id, since=begun, tail=lines).read()) as batches:
        async for batch in batches:
            log.read(batch)
    return log
