"""What stands on nodes that are to be free: what is available there, and who is left alone."""

from __future__ import annotations

from collections.abc import Sequence

from sparkctl.core.context import Context
from sparkctl.core.session import Session
from sparkctl.core.together import together
from sparkctl.errors import SparkctlError
from sparkctl.model.events import ContainersListed, Warned
from sparkctl.model.text import clean
from sparkctl.model.units import gib
from sparkctl.operations.status import instance_view
from sparkctl.operations.stream import Emit


async def stays(ctx: Context, sessions: Sequence[Session], emit: Emit) -> list[str]:
    """Return a line for each node and for each foreign container that runs there, and emit all of what stands there."""
    lines = []
    for session in sessions:
        node = session.node.name
        try:
            look, containers = await together(session.look("memory", "processes", "gpu"), session.docker.list())
            views = await together(*(instance_view(session, one, look.held_by(one.id)) for one in containers))
        except SparkctlError as error:
            emit(Warned(ctx.clock.now(), node, error.message, error.hint))
            continue
        found = tuple(view for view in views if view is not None)
        emit(ContainersListed(ctx.clock.now(), node, found))
        lines.append(f"{node}: {gib(None if look.memory is None else look.memory.available)} available")
        lines += [
            f"{node}: {clean(one.container)} was not started by sparkctl and is left alone ({gib(one.memory)})"
            for one in found
            if not one.ours
        ]
    return lines
