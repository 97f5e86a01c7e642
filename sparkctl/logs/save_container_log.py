"""Keeping the log of a container that is about to be gone."""

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
    """Where the log is, None: nowhere. Only if it is ``whole`` nothing is lost with the container.

    A container that is gone, and one whose log driver keeps nothing to read, have nothing to lose.
    """

    path: str | None
    whole: bool


async def save_log(
    session: NodeSession, ctx: CommandContext, emit: Emit, container: Container, more: Collection[str] = ()
) -> SaveLogResult:
    """Write the container's whole log to the state directory; warn where that cannot be done. Raises `NodeError`.

    The secrets of its container, and ``more`` that the caller knows, are masked. Memory stays flat whatever the log's length.
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
