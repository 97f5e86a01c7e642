"""``guard``: show what protects a node's memory now, and arm or disarm the guard for running instances."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace

from sparkctl.commands.event_stream import build_end, build_end_from_error, run_on_each_node, stream_events
from sparkctl.commands.guard_session import build_floor_refusal
from sparkctl.concurrency import gather_or_cancel
from sparkctl.context import CommandContext
from sparkctl.errors import (
    GuardNotResponding,
    GuardUnavailable,
    InvalidInput,
    NodeError,
    OperationRefused,
    SparkctlError,
)
from sparkctl.model.container import Container
from sparkctl.model.events import CommandEnded, Emit, Event, Outcome, WarningEmitted
from sparkctl.model.guard_state import GuardReceipt, GuardRole, GuardRunState, GuardState, UnwatchReason
from sparkctl.model.launch_plan import ContainerLabel, GuardRule
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import Node, NodeName, NodeState
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.text.units import format_date_time, format_size
from sparkctl.monitor import guard_client
from sparkctl.monitor.guard_client import GuardClient
from sparkctl.monitor.node_views import build_missing_instance_error
from sparkctl.transport.node_connection import node_state_for_error
from sparkctl.transport.node_session import NodeSession, isolate_node_failures


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardStatus:
    """The guard of a node at ``when`` (unix seconds).

    ``answer``: whether a guard runs, None where the node did not report it. ``guard``: its own state. ``receipts``: the
    containers that it stopped.
    """

    name: NodeName
    state: NodeState
    when: float
    detail: str | None = None
    hint: str | None = None
    guard: GuardState | None = None
    receipts: tuple[GuardReceipt, ...] = ()
    answer: GuardRunState | None = None


@dataclass(frozen=True, slots=True)
class ArmGuard:
    """``instance`` None: every instance of sparkctl that runs, unless ``foreign`` names other containers.
    ``rule.limit`` must be set.
    """

    nodes: Sequence[Node]
    instance: str | None
    foreign: tuple[str, ...]
    rule: GuardRule


async def read_guard_status(ctx: CommandContext, nodes: Sequence[Node]) -> tuple[GuardStatus, ...]:
    """Return the guard of each node without starting one; receipts found on the nodes are saved."""

    async def read_node_guard(node: Node) -> GuardStatus:
        async with ctx.create_session(node) as session:
            try:
                with isolate_node_failures(node):
                    await session.link.connect()
                    return await _build_guard_status(ctx, session)
            except NodeError as error:
                return GuardStatus(
                    name=node.name,
                    state=node_state_for_error(error),
                    when=ctx.clock.unix_time(),
                    detail=error.message,
                    hint=error.hint,
                )

    return tuple(await gather_or_cancel(*(read_node_guard(node) for node in nodes)))


async def _build_guard_status(ctx: CommandContext, session: NodeSession) -> GuardStatus:
    name, left = session.node.name, await guard_client.read_guard_directory(session)
    notes = list(left.list_warnings(name))
    lost, hints = [what for what, _ in notes], [hint for _, hint in notes]
    for receipt in left.receipts:
        guard_client.save_receipt(ctx, session, receipt, lost.append)
    state, answer = None, GuardRunState.SILENT
    try:
        state = await _read_guard_state(session, left)
        answer = GuardRunState.NONE if state is None else GuardRunState.RUNS
    except GuardUnavailable as trouble:
        lost, hints = [trouble.message, *lost], [trouble.hint, *hints]
    detail, hint = "; ".join(lost) or None, next((one for one in hints if one), None)
    return GuardStatus(
        name=name,
        state=NodeState.OK,
        when=ctx.clock.unix_time(),
        detail=detail,
        hint=hint,
        guard=state,
        receipts=left.receipts,
        answer=answer,
    )


async def _read_guard_state(session: NodeSession, left: guard_client.GuardDirectory) -> GuardState | None:
    """Return the state that a node's guard reports, None where no guard runs. Raises `GuardUnavailable` where it does
    not answer.
    """
    node = session.node.name
    if left.is_stopped:
        raise GuardNotResponding(
            f"its process on {node} is stopped (kill -STOP, a debugger): it watches nothing until it continues",
            f"on {node}: kill -CONT $(pgrep -x sparkctl-guard)",
        )
    link = await GuardClient.connect_guard(session, left.socket) if left.socket is not None else None
    if link is None and left.states:
        raise GuardNotResponding(
            f"its process runs on {node}, but its socket cannot be opened",
            f"set AllowStreamLocalForwarding yes in /etc/ssh/sshd_config on {node}; otherwise: kill $(pgrep -x sparkctl-guard)",
        )
    if link is None:
        return None
    try:
        return await link.get_state()
    finally:
        await link.close()


def arm_guard(ctx: CommandContext, request: ArmGuard) -> AsyncGenerator[Event, None]:
    """Watch running instances: when memory runs out, the guard stops the one that grows. Refused where nothing runs."""

    async def arm_on_nodes(emit: Emit) -> CommandEnded:
        began = ctx.clock.monotonic()
        armed: list[str] = []
        missing = set(request.foreign)

        async def arm_node(session: NodeSession) -> None:
            containers = await session.docker.list_containers()
            missing.difference_update(container.name for container in containers if container.is_alive)
            chosen = _select_containers(request, containers)
            if chosen:
                armed.extend(await _arm_on_node(ctx, session, request, chosen, emit))

        failure = await run_on_each_node(ctx, request.nodes, emit, arm_node)
        where = " or ".join(node.name for node in request.nodes)
        if failure is not None and not armed:
            raise failure
        if missing and failure is None:
            what = f"no container called {', '.join(sorted(missing))} runs on {where}"
            raise InvalidInput(f"{what}; guarded now: {', '.join(armed)}" if armed else what, "on the node: docker ps")
        if not armed and request.instance is not None:
            raise build_missing_instance_error(request.instance, (), where)
        if not armed:
            what = f"nothing started by sparkctl is running on {where}; there is nothing to guard"
            raise OperationRefused(what, "see what runs: sparkctl status")
        until = format_date_time(ctx.clock.unix_time() + (request.rule.limit or 0))
        message = (
            f"guarded until {until}, stopped below {format_size(request.rule.floor)} available: {', '.join(armed)}"
        )
        if failure is not None:
            return _build_partial_end(failure, ctx, ctx.clock.monotonic() - began, request.instance, message)
        return build_end(ctx, began, Outcome.DONE, message=message)

    return stream_events(
        ctx, arm_on_nodes, request.instance, on_interrupt="interrupted; see what is guarded: sparkctl guard status"
    )


def _select_containers(request: ArmGuard, containers: Sequence[Container]) -> list[Container]:
    """Return the containers to watch: those of sparkctl by instance, foreign ones only by their exact name."""
    everything = request.instance is None and not request.foreign
    return [
        container
        for container in containers
        if container.is_alive
        and (
            (container.is_managed and (everything or container.get_label(ContainerLabel.INSTANCE) == request.instance))
            or container.name in request.foreign
        )
    ]


async def _arm_on_node(
    ctx: CommandContext, session: NodeSession, request: ArmGuard, chosen: Sequence[Container], emit: Emit
) -> list[str]:
    name = session.node.name
    link = await GuardClient.start_guard(session, lambda event: None)
    try:
        state = await link.get_state()
        for what, hint in (await guard_client.read_guard_directory(session)).list_warnings(name):
            emit(WarningEmitted(ctx.clock.unix_time(), name, what, hint))
        if state.available is not None and request.rule.floor >= state.available:
            raise build_floor_refusal(request.rule.floor, state.available, name)
        if state.docker is False:
            hint = f"on {name}: ls -l /var/run/docker.sock; id"
            emit(
                WarningEmitted(
                    ctx.clock.unix_time(), name, f"the guard on {name} cannot reach Docker: it can warn, not act", hint
                )
            )
        armed = []
        for container in chosen:
            instance = container.instance_name
            if any(one.container == container.id and one.role is GuardRole.LOADING for one in state.watches):
                armed.append(f"{instance} on {name} (its start guards it already)")
                continue
            profile = container.get_label(ContainerLabel.PROFILE)
            await link.watch_container(
                container.id, instance, profile=profile, operator=ctx.operator, role=GuardRole.SERVING, rule=request.rule, port=None, health=None
            )  # fmt: skip
            armed.append(f"{instance} on {name}")
        return armed
    finally:
        await link.close()


def disarm_guard(ctx: CommandContext, nodes: Sequence[Node], instance: str | None) -> AsyncGenerator[Event, None]:
    """End the watches of one instance, or all. Nothing watched counts as success; a node that does not answer does
    not.
    """

    async def disarm_on_nodes(emit: Emit) -> CommandEnded:
        began = ctx.clock.monotonic()
        ended: list[str] = []

        async def disarm_node(session: NodeSession) -> None:
            ended.extend(await _disarm_on_node(session, instance))

        failure = await run_on_each_node(ctx, nodes, emit, disarm_node)
        if failure is not None:
            message = f"no longer guarded: {', '.join(ended)}" if ended else None
            return _build_partial_end(failure, ctx, ctx.clock.monotonic() - began, instance, message)
        where = " or ".join(node.name for node in nodes)
        nothing = f"{instance} is not guarded on {where}" if instance else f"nothing is guarded on {where}"
        message = f"no longer guarded: {', '.join(ended)}" if ended else nothing
        return build_end(ctx, began, Outcome.DONE, instance=instance, message=message)

    return stream_events(
        ctx, disarm_on_nodes, instance, on_interrupt="interrupted; see what is guarded: sparkctl guard status"
    )


def _build_partial_end(
    failure: SparkctlError, ctx: CommandContext, seconds: float, instance: str | None, done: str | None
) -> CommandEnded:
    """Return the end of a command that succeeded on some nodes and failed on another; the failure was emitted as a
    warning.
    """
    ended = build_end_from_error(failure, ctx, seconds, instance)
    where = f" on {ended.node}" if ended.node else ""
    return ended if done is None else replace(ended, message=f"{done}; this could not be done{where}", hint=None)


async def _disarm_on_node(session: NodeSession, instance: str | None) -> list[str]:
    left = await guard_client.read_guard_directory(session)
    link = await GuardClient.connect_guard(session, left.socket) if left.socket is not None else None
    if link is None:
        return []
    try:
        watches = [one for one in (await link.get_state()).watches if instance in (None, one.instance)]
        for watch in watches:
            await link.unwatch_container(watch.container, UnwatchReason.DISARMED)
        return [f"{sanitize_line(watch.instance)} on {session.node.name}" for watch in watches]
    finally:
        await link.close()
