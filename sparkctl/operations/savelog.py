"""Keeping the log of a container that is about to be gone."""

from __future__ import annotations

from sparkctl.core.context import Context
from sparkctl.core.session import Session
from sparkctl.errors import DockerError, NoSuchContainer
from sparkctl.model.container import Container
from sparkctl.model.events import Warned
from sparkctl.model.plan import Label
from sparkctl.operations.masking import masked
from sparkctl.operations.stream import Emit
from sparkctl.wire.logs import LogFollower


async def save_log(session: Session, ctx: Context, emit: Emit, container: Container) -> str | None:
    """Write the container's whole log to the state directory and return the path; None, with a warning, if it cannot be.

    Secrets of the container's environment are masked by value. Memory stays flat whatever the log's length.
    """
    instance = container.label(Label.INSTANCE) or container.name
    try:
        secrets = await session.docker.secrets(container.id)
        writer = ctx.history.log_writer(instance, session.node.name, container.id, secrets)
    except NoSuchContainer:
        return None
    except OSError as full:
        emit(Warned(ctx.clock.now(), session.node.name, f"the log of {instance} could not be saved: {full}", None))
        return None
    try:
        async for batch in LogFollower(session.link, container.id).read():
            writer.write(masked(batch, secrets))
    except (DockerError, OSError) as broken:
        emit(Warned(ctx.clock.now(), session.node.name, f"the saved log of {instance} is not whole: {broken}", None))
    finally:
        writer.close()
    return str(writer.path)
