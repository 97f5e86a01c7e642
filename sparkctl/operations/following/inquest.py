"""Why a container of ours has ended that nobody watched: its whole log is read once, and judged as that of a start is."""

from __future__ import annotations

from sparkctl.core.context import Context
from sparkctl.engines import names
from sparkctl.errors import NoSuchContainer
from sparkctl.model.events import Ended, Outcome
from sparkctl.model.node import Node
from sparkctl.model.plan import Label
from sparkctl.operations.diagnose import of_container


async def inquest(ctx: Context, node: Node, container_id: str) -> Ended | None:
    """Return how it ended, as the start that failed would have told it; None where nothing ended that can be judged: it
    lives on without a fatal line, or it is of an engine that is not known. Raises `NodeError` and `DockerError`."""
    async with ctx.session(node) as session:
        await session.link.connect()
        try:
            container = await session.docker.inspect(container_id)
            if container.label(Label.ENGINE) not in names():
                return None
            instance = container.label(Label.INSTANCE) or container.name
            start = ctx.history.start_of(instance, node.name, container.id)
            verdict = (await of_container(session, container, start=start)).verdict
        except NoSuchContainer:
            return None
    if verdict is None:
        return None
    taken = None if container.started is None or container.finished is None else container.finished - container.started
    return Ended(
        ctx.clock.now(), Outcome.FAILED, 1, max(0.0, taken or 0.0), node.name,
        container.label(Label.INSTANCE) or container.name, verdict=verdict,
    )  # fmt: skip
