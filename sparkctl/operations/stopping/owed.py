"""Finishing on a node what could not be finished when it was not to be reached: exactly those containers, and said."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from contextlib import suppress

from sparkctl.core.context import Context
from sparkctl.core.owed import Owed, OwedStops
from sparkctl.core.session import Session
from sparkctl.errors import NoSuchContainer
from sparkctl.model.container import Container
from sparkctl.model.events import Event, Warned
from sparkctl.model.guard import UnwatchReason
from sparkctl.model.node import NodeName
from sparkctl.operations.clock_offset import measure
from sparkctl.operations.labels import grace_of
from sparkctl.operations.starting.start_guard import unwatch
from sparkctl.operations.stopping.stop import stop

_GRACE = 30.0


def withdraw(ctx: Context, node: NodeName, instances: Collection[str], warn: Callable[[str], None], why: str) -> None:
    """Forget the owed stops of these instances on a node, and say so: what was asked for later counts. ``why``: what that is."""
    kept = OwedStops(ctx.history.directory)
    for one in kept.on(node, ctx.clock.now()):
        if one.instance in instances:
            kept.drop(one)
            warn(f"the stop of {one.instance} on {node}, asked for {_asked(one)}, is dropped: {why}")


async def settle(session: Session, ctx: Context, warn: Callable[[str], None]) -> None:
    """Stop what is owed on this node; the caller has its lock. Raises `SparkctlError`, and keeps what is then still owed.

    A container that is gone needs nothing any more, and one that was started again since then is somebody's new wish.
    """
    kept = OwedStops(ctx.history.directory)

    def emit(event: Event) -> None:
        if isinstance(event, Warned):
            warn(event.message if event.hint is None else f"{event.message} ({event.hint})")

    owed = kept.on(session.node.name, ctx.clock.now())
    if not owed:
        return
    containers = await session.docker.list()
    for one in owed:
        for container in [found for found in containers if one.is_meant(found)]:
            if await _was_started_since(session, container, one):
                warn(
                    f"{one.instance} was to be stopped on {one.node} ({_asked(one)}) and was started again since: it is left"
                )
                continue
            warn(f"finishing what was asked {_asked(one)}: stopping {one.instance} on {one.node}")
            await unwatch(session, ctx, emit, [container.id], UnwatchReason.STOPPED)
            grace = grace_of(container)
            await stop(session, ctx, emit, container, _GRACE if grace is None else grace)
        kept.drop(one)


def _asked(one: Owed) -> str:
    return time.strftime("at %H:%M", time.localtime(one.since))


async def _was_started_since(session: Session, container: Container, one: Owed) -> bool:
    if not container.is_alive:
        return False
    with suppress(NoSuchContainer):
        started = (await session.docker.inspect(container.id)).started
        ahead = await measure(session)  # the node's clock said when it was started, ours when the stop was asked for
        return started is not None and started - (0.0 if ahead is None else ahead.ahead) > one.since
    return False
