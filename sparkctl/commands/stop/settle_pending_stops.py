"""Finishing on a node what could not be finished when it was not to be reached: exactly those containers, and said."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from contextlib import suppress

from sparkctl.commands.guard_session import stop_watching_containers
from sparkctl.commands.stop.pending_stops import PendingStop, PendingStopFiles
from sparkctl.commands.stop.stop_containers import stop_container
from sparkctl.context import CommandContext
from sparkctl.errors import ContainerNotFound
from sparkctl.logs.rank_verdict import measure_clock_offset
from sparkctl.model.container import Container
from sparkctl.model.events import Event, WarningEmitted
from sparkctl.model.guard_state import UnwatchReason
from sparkctl.model.node import NodeName
from sparkctl.profiles.container_labels import parse_stop_grace_label
from sparkctl.transport.node_session import NodeSession

_DEFAULT_GRACE_SECONDS = 30.0


def withdraw_pending_stops(
    ctx: CommandContext, node: NodeName, instances: Collection[str], warn: Callable[[str], None], why: str
) -> None:
    """Forget the owed stops of these instances on a node, and say so: what was asked for later counts. ``why``: what that is."""
    kept = PendingStopFiles(ctx.history.directory)
    for one in kept.list_for_node(node, ctx.clock.unix_time()):
        if one.instance in instances:
            kept.delete_stop(one)
            warn(f"the stop of {one.instance} on {node}, asked for {_format_request_time(one)}, is dropped: {why}")


async def finish_pending_stops(session: NodeSession, ctx: CommandContext, warn: Callable[[str], None]) -> None:
    """Stop what is owed on this node; the caller has its lock. Raises `SparkctlError`, and keeps what is then still owed.

    A container that is gone needs nothing any more, and one that was started again since then is somebody's new wish.
    """
    kept = PendingStopFiles(ctx.history.directory)

    def forward_warning(event: Event) -> None:
        if isinstance(event, WarningEmitted):
            warn(event.message if event.hint is None else f"{event.message} ({event.hint})")

    owed = kept.list_for_node(session.node.name, ctx.clock.unix_time())
    if not owed:
        return
    containers = await session.docker.list_containers()
    for one in owed:
        for container in [found for found in containers if one.matches_container(found)]:
            if await _was_started_since(session, container, one):
                warn(
                    f"{one.instance} was to be stopped on {one.node} ({_format_request_time(one)}) and was started again since: it is left"
                )
                continue
            warn(f"finishing what was asked {_format_request_time(one)}: stopping {one.instance} on {one.node}")
            await stop_watching_containers(session, ctx, forward_warning, [container.id], UnwatchReason.STOPPED)
            grace = parse_stop_grace_label(container)
            await stop_container(
                session, ctx, forward_warning, container, _DEFAULT_GRACE_SECONDS if grace is None else grace
            )
        kept.delete_stop(one)


def _format_request_time(one: PendingStop) -> str:
    return time.strftime("at %H:%M", time.localtime(one.since))


async def _was_started_since(session: NodeSession, container: Container, one: PendingStop) -> bool:
    if not container.is_alive:
        return False
    with suppress(ContainerNotFound):
        started = (await session.docker.inspect_container(container.id)).started
        ahead = await measure_clock_offset(
            session
        )  # the node's clock said when it was started, ours when the stop was asked for
        return started is not None and started - (0.0 if ahead is None else ahead.ahead) > one.since
    return False
