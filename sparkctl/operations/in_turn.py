"""The same on one node after the other: what fails on one does not keep the next from its turn."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from sparkctl.core.context import Context
from sparkctl.core.session import Session
from sparkctl.errors import SparkctlError
from sparkctl.model.events import Warned
from sparkctl.model.node import Node
from sparkctl.operations.stream import Emit


async def in_turn(
    ctx: Context, nodes: Sequence[Node], emit: Emit, act: Callable[[Session], Awaitable[None]]
) -> SparkctlError | None:
    """Connect to each node and ``act``; return the first error, each having been told. A single node's is raised."""
    failure: SparkctlError | None = None
    for node in nodes:
        try:
            async with ctx.session(node) as session:
                session.report_to(emit)
                await session.link.connect()
                await act(session)
        except SparkctlError as error:
            if len(nodes) == 1:
                raise
            failure = failure or error
            emit(Warned(ctx.clock.now(), node.name, error.message, error.hint))
    return failure
