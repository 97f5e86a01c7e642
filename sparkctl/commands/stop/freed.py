"""What stands on nodes that are to be free: what is available there, and who is left alone."""

from __future__ import annotations

from collections.abc import Sequence

from sparkctl.commands.context import CommandContext
from sparkctl.commands.event_stream import Emit
from sparkctl.concurrency import gather_or_cancel
from sparkctl.errors import SparkctlError
from sparkctl.model.events import ContainersListed, WarningEmitted
from sparkctl.model.sanitize import sanitize_line
from sparkctl.model.units import format_gib
from sparkctl.monitor.node_status import build_instance_view
from sparkctl.transport.session import Session


async def list_remaining_containers(ctx: CommandContext, sessions: Sequence[Session], emit: Emit) -> list[str]:
    """Return a line for each node and for each foreign container that runs there, and emit all of what stands there."""
    lines = []
    for session in sessions:
        node = session.node.name
        try:
            look, containers = await gather_or_cancel(
                session.read_node("memory", "processes", "gpu"), session.docker.list_containers()
            )
            views = await gather_or_cancel(
                *(build_instance_view(session, one, look.container_memory(one.id)) for one in containers)
            )
        except SparkctlError as error:
            emit(WarningEmitted(ctx.clock.unix_time(), node, error.message, error.hint))
            continue
        found = tuple(view for view in views if view is not None)
        emit(ContainersListed(ctx.clock.unix_time(), node, found))
        lines.append(f"{node}: {format_gib(None if look.memory is None else look.memory.available)} available")
        lines += [
            f"{node}: {sanitize_line(one.container)} was not started by sparkctl and is left alone ({format_gib(one.memory)})"
            for one in found
            if not one.ours
        ]
    return lines
