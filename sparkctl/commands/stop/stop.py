"""Stopping an instance: stop, keep its log, remove, and prove that all it held is really back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from sparkctl.commands.context import CommandContext
from sparkctl.commands.event_stream import Emit
from sparkctl.commands.stop.release_check import MIN_AWAITED, ReleaseCheck, ReleaseResult, build_leftover_warning
from sparkctl.errors import ContainerNotFound, OperationRefused, SparkctlError
from sparkctl.history.model import NodeResult
from sparkctl.logs.saved_log import save_log
from sparkctl.model.container import Container
from sparkctl.model.events import MemoryReleased, PhaseChanged, WarningEmitted
from sparkctl.model.launch_plan import ContainerLabel
from sparkctl.model.node import NodeName
from sparkctl.model.phase import Phase
from sparkctl.model.sanitize import sanitize_line
from sparkctl.model.units import format_gib
from sparkctl.monitor import engine_averages
from sparkctl.transport.session import Session


@dataclass(frozen=True, slots=True)
class StoppedContainer:
    """One container that was stopped. ``removed`` is False for one that was kept, ended: it was asked for, or its log could
    not be saved whole."""

    proof: ReleaseResult
    log: str | None
    removed: bool
    node: NodeName
    instance: str
    container_id: str
    container_name: str = ""

    @property
    def is_proved(self) -> bool:
        """Tell whether nothing of it is known to be held any more."""
        return self.proof.is_complete

    @property
    def kept(self) -> str | None:
        """Its container's name where that is still there, ended."""
        return None if self.removed else self.container_name


async def stop_container(
    session: Session,
    ctx: CommandContext,
    emit: Emit,
    container: Container,
    grace: float,
    *,
    keep: bool = False,
    release: ReleaseCheck | None = None,
    ended: Callable[[], None] = lambda: None,
) -> StoppedContainer:
    """Stop one container of ours and remove it, its log saved before it goes. ``keep``: it stays, ended.

    ``release`` has begun already, where what it holds had to be read before. ``ended`` is called once it runs no more,
    before its memory is waited for.
    """
    instance = container.label(ContainerLabel.INSTANCE) or container.name
    began = ctx.clock.monotonic()

    def phase(now: Phase, detail: str | None = None) -> None:
        elapsed = ctx.clock.monotonic() - began
        emit(PhaseChanged(ctx.clock.unix_time(), session.node.name, instance, now, None, elapsed, None, detail))

    if release is None:
        release = ReleaseCheck(session, ctx, emit, container)
        await release.measure_before()
    phase(Phase.STOPPING)
    is_counted = await engine_averages.record_counter_averages(session, ctx, container)
    if container.is_alive:
        with contextlib.suppress(ContainerNotFound):
            await session.docker.stop(container.id, grace)
    ended()
    saved = await save_log(session, ctx, emit, container)
    ctx.record_node_result(NodeResult(session.node.name, instance, container=container.id, log=saved.path))
    if not is_counted:
        await engine_averages.record_log_averages(session, ctx, container, saved.path)
    if saved.whole and not keep:
        with contextlib.suppress(ContainerNotFound):  # somebody was faster; gone is what we wanted
            await session.docker.remove(container.id)
    elif not keep:
        emit(WarningEmitted(ctx.clock.unix_time(), session.node.name, *_describe_kept_container(session, container)))
    proof = await release.wait_until_released(lambda words: phase(Phase.STOPPING, words))
    freed = proof.freed
    phase(Phase.STOPPED, f"{format_gib(freed)} came back" if freed is not None and freed > MIN_AWAITED else None)
    left = tuple((one.what, one.size) for one in proof.left)
    removed = saved.whole and not keep
    stopped = StoppedContainer(proof, saved.path, removed, session.node.name, instance, container.id, container.name)
    now = ctx.clock.unix_time()
    emit(
        MemoryReleased(
            now, session.node.name, instance, freed, proof.missing, left, proof.before_start, proof.available,
            sanitize_line(container.name) if not removed else None,
        )
    )  # fmt: skip
    if left or not proof.is_complete:
        emit(build_leftover_warning(session, ctx, instance, proof))
    return stopped


def _describe_kept_container(session: Session, container: Container) -> tuple[str, str]:
    """What to say, and what to do, where the only whole log of a container is the one that Docker has."""
    instance = container.label(ContainerLabel.INSTANCE) or container.name
    return (
        f"the log of {instance} could not be saved whole, so its container was kept",
        f"on {session.node.name}: docker rm {container.name}   when you do not need it",
    )


async def remove_ended_container(session: Session, ctx: CommandContext, emit: Emit, container: Container) -> None:
    """Remove an ended container of ours so that its name is free; refuses where its log cannot be saved first."""
    if container.is_alive:
        raise SparkctlError(f"{container.name} runs: it is stopped, never swept away", None)
    if not (await save_log(session, ctx, emit, container)).whole:
        raise OperationRefused(*_describe_kept_container(session, container))
    with contextlib.suppress(ContainerNotFound):
        await session.docker.remove(container.id)
