"""Finishes or withdraws pending stops at the next contact with their node: only the recorded containers, with a
warning for each.
"""

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
    """Delete the pending stops of these instances on a node and report it, because a later request counts. ``why``:
    that request.
    """
    files = PendingStopFiles(ctx.history.directory)
    for one in files.list_for_node(node, ctx.clock.unix_time()):
        if one.instance in instances:
            files.delete_stop(one)
            warn(f"the stop of {one.instance} on {node}, asked for {_format_request_time(one)}, is dropped: {why}")


async def finish_pending_stops(session: NodeSession, ctx: CommandContext, warn: Callable[[str], None]) -> None:
    """Do the pending stops of this node; the caller has its lock. Raises `SparkctlError`, and keeps what is still
    pending then.

    A container that is gone needs nothing, and one that was started again since then is left running.
    """
    files = PendingStopFiles(ctx.history.directory)

    def forward_warning(event: Event) -> None:
        if isinstance(event, WarningEmitted):
            warn(event.message if event.hint is None else f"{event.message} ({event.hint})")

    pending = files.list_for_node(session.node.name, ctx.clock.unix_time())
    if not pending:
        return
    containers = await session.docker.list_containers()
    for one in pending:
        for container in [found for found in containers if one.matches_container(found)]:
            if await _has_new_start(session, container, one):
                warn(
                    f"{one.instance} was to be stopped on {one.node} ({_format_request_time(one)}) and was started again since: it keeps running"
                )
                continue
            warn(f"finishing what was asked {_format_request_time(one)}: stopping {one.instance} on {one.node}")
            await stop_watching_containers(session, ctx, forward_warning, [container.id], UnwatchReason.STOPPED)
            grace = parse_stop_grace_label(container)
            await stop_container(
                session, ctx, forward_warning, container, _DEFAULT_GRACE_SECONDS if grace is None else grace
            )
        files.delete_stop(one)


def _format_request_time(one: PendingStop) -> str:
    return time.strftime("at %H:%M", time.localtime(one.since))


async def _has_new_start(session: NodeSession, container: Container, one: PendingStop) -> bool:
    if not container.is_alive:
        return False
    with suppress(ContainerNotFound):
        started = (await session.docker.inspect_container(container.id)).started
        offset = await measure_clock_offset(session)
        return was_started_since(started, None if offset is None else offset.ahead, one.since)
    return False


def was_started_since(started: float | None, ahead: float | None, since: float) -> bool:
    """Tell whether a start, by the clock of a node that is ``ahead`` seconds ahead of ours, is later than a request."""
    return started is not None and started - (ahead or 0.0) > since
