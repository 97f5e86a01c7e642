"""Saves the log of a container before its removal."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import aclosing
from dataclasses import dataclass

from sparkctl.context import CommandContext
from sparkctl.errors import ContainerNotFound, DockerError, LogUnreadable
from sparkctl.model.container import Container
from sparkctl.model.events import Emit, WarningEmitted
from sparkctl.model.launch_plan import ContainerLabel
from sparkctl.model.text.secrets import LineMasker
from sparkctl.transport.docker.log_stream import ContainerLogStream
from sparkctl.transport.node_session import NodeSession


@dataclass(frozen=True, slots=True)
class SaveLogResult:
    """Where the log was saved, None: nowhere. Only if it is ``whole``, nothing is lost with the container.

    It is also ``whole`` if the container is gone, or if its log driver stores nothing readable.
    """

    path: str | None
    whole: bool


async def save_log(
    session: NodeSession, ctx: CommandContext, emit: Emit, container: Container, more: Collection[str] = ()
) -> SaveLogResult:
    """Save the container's complete log in the state directory; warn if that fails. Raises `NodeError`.

    The container's secrets, and ``more`` from the caller, are masked. Memory use is constant.
    """
    instance = container.get_label(ContainerLabel.INSTANCE) or container.name

    def warn(what: str) -> None:
        emit(WarningEmitted(ctx.clock.unix_time(), session.node.name, what, None))

    try:
        secrets = (await session.docker.read_secret_values(container.id)).union(more)
        writer = ctx.history.open_log_writer(instance, session.node.name, container.id, secrets)
    except ContainerNotFound:
        return SaveLogResult(None, whole=True)
    except (DockerError, OSError) as broken:
        warn(f"the log of {instance} could not be saved: {broken}")
        return SaveLogResult(None, whole=False)
    try:
        masker = LineMasker(secrets)
        async with aclosing(ContainerLogStream(session.link, container.id).read_available()) as batches:
            async for batch in batches:
                writer.write(await masker.mask_lines(batch))
                if writer.failed is not None:
                    break
            else:
                writer.close(whole=True)
        if writer.failed is not None:
            warn(f"the saved log of {instance} is not whole: {writer.failed}")
        return SaveLogResult(str(writer.path), whole=writer.failed is None)
    except LogUnreadable as none:
        warn(f"the log of {instance} is not saved: {none}")
        return SaveLogResult(None, whole=True)
    except DockerError as broken:
        warn(f"the saved log of {instance} is not whole: {broken}")
        return SaveLogResult(str(writer.path), whole=False)
    finally:
        writer.close()
