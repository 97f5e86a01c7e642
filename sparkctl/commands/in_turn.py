"""The same on one node after the other: what fails on one does not keep the next from its turn."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from sparkctl.commands.context import CommandContext
from sparkctl.commands.event_stream import Emit
from sparkctl.errors import SparkctlError
from sparkctl.model.events import WarningEmitted
from sparkctl.model.node import Node
from sparkctl.transport.session import Session


async def run_on_each_node(
    ctx: CommandContext, nodes: Sequence[Node], emit: Emit, act: Callable[[Session], Awaitable[None]]
) -> SparkctlError | None:
    """Connect to each node and ``act``; return the first error, each having been told. A single node's is raised."""
    failure: SparkctlError | None = None
    for node in nodes:
        try:
            async with ctx.session(node) as session:
                session.on_state_change(emit)
                await session.link.connect()
                await act(session)
        except SparkctlError as error:
            if len(nodes) == 1:
                raise
            failure = failure or error
            emit(WarningEmitted(ctx.clock.unix_time(), node.name, error.message, error.hint))
    return failure
