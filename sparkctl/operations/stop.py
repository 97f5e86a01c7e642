"""Stopping an instance: stop, keep its log, remove, and wait until its memory is really back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from sparkctl.core.context import Context
from sparkctl.core.session import Session
from sparkctl.errors import NoSuchContainer, Refused, SparkctlError
from sparkctl.model.container import Container
from sparkctl.model.events import MemorySampled, PhaseChanged, Released, Warned
from sparkctl.model.node import NodeName
from sparkctl.model.phase import Phase
from sparkctl.model.plan import Label
from sparkctl.model.units import MIB, gib
from sparkctl.operations.savelog import save_log
from sparkctl.operations.stream import Emit
from sparkctl.probe.look import Look

_SETTLED = 512 * MIB  # two readings closer than this are a plateau
_PAUSE = 1.5
_PLATEAU = 2
_PATIENCE = 60.0  # unified memory has been seen to take this long after a kill
_WORTH_WAITING = 256 * MIB
_WORTH_SAYING = 1024 * MIB


@dataclass(frozen=True, slots=True)
class Stopped:
    """``missing``: bytes that did not come back, 0 if all did, None if it could not be measured. ``removed`` is False
    for a container that was kept, ended: it was asked for, or its log could not be saved whole."""

    freed: int | None
    missing: int | None
    log: str | None
    removed: bool
    node: NodeName
    instance: str
    container_id: str

    @property
    def is_proved(self) -> bool:
        """Tell whether nothing of it is known to be held any more."""
        return not self.missing or self.missing <= _WORTH_SAYING


async def stop(
    session: Session, ctx: Context, emit: Emit, container: Container, grace: float, *, keep: bool = False
) -> Stopped:
    """Stop one container of ours and remove it, its log saved before it goes. ``keep``: it stays, ended."""
    instance = container.label(Label.INSTANCE) or container.name
    began = ctx.clock.monotonic()

    def phase(now: Phase, detail: str | None = None) -> None:
        elapsed = ctx.clock.monotonic() - began
        emit(PhaseChanged(ctx.clock.now(), session.node.name, instance, now, None, elapsed, None, detail))

    before = await session.look("memory", "processes", "gpu")
    held = before.held_by(container.id)
    phase(Phase.STOPPING)
    if container.is_alive:
        with contextlib.suppress(NoSuchContainer):
            await session.docker.stop(container.id, grace)
    saved = await save_log(session, ctx, emit, container)
    if saved.whole and not keep:
        with contextlib.suppress(NoSuchContainer):  # somebody was faster; gone is what we wanted
            await session.docker.remove(container.id)
    elif not keep:
        emit(Warned(ctx.clock.now(), session.node.name, *_kept(session, container)))
    freed, missing, after = await _wait_for_memory(
        session, ctx, emit, before, held, lambda words: phase(Phase.STOPPING, words)
    )
    phase(Phase.STOPPED, f"{gib(freed)} came back" if freed is not None and freed > _WORTH_WAITING else None)
    if missing is not None and missing > _WORTH_SAYING:
        emit(_still_held(session, ctx, missing, after))
    emit(
        Released(
            ctx.clock.now(), session.node.name, instance, freed, missing,
            available=None if after.memory is None else after.memory.available,
        )
    )  # fmt: skip
    return Stopped(freed, missing, saved.path, saved.whole and not keep, session.node.name, instance, container.id)


async def _wait_for_memory(
    session: Session, ctx: Context, emit: Emit, before: Look, held: int | None, tell: Callable[[str], None]
) -> tuple[int | None, int | None, Look]:
    """Read MemAvailable until what was held is back. Returns bytes freed and missing, None where not known.

    What was held is known: only its return ends the wait, or patience (unified memory has been seen to come back a
    minute after its process). It is not known: two pauses without a change are all that can be waited for.
    """
    began = ctx.clock.monotonic()
    after = await session.look("memory", "processes", "gpu")
    still = 0
    while True:
        if before.memory is None or after.memory is None:
            return None, None, after
        freed = after.memory.available - before.memory.available
        missing = None if held is None else max(0, held - freed)
        back = missing is not None and held is not None and (held < _WORTH_WAITING or missing < held // 10)
        if back or still >= _PLATEAU or ctx.clock.monotonic() - began > _PATIENCE:
            emit(MemorySampled(ctx.clock.now(), session.node.name, after.memory))
            return freed, 0 if back else missing, after
        if held is not None:
            tell(f"{gib(max(0, freed))} of {gib(held)} back")
        last = after.memory.available
        await ctx.clock.sleep(_PAUSE)
        after = await session.look("memory", "processes", "gpu")
        settled = held is None and after.memory is not None and abs(after.memory.available - last) < _SETTLED
        still = still + 1 if settled else 0


def _still_held(session: Session, ctx: Context, missing: int, after: Look) -> Warned:
    """Name what still holds memory: GPU processes that belong to no container first, they are the usual orphans."""
    orphans = [
        (pid, size)
        for pid, size in sorted((after.gpu or {}).items(), key=lambda p: -p[1])
        if pid not in (after.pids or {})
    ]
    if orphans:
        pid, size = orphans[0]
        what = f"process {pid} outside any container holds {gib(size)} of GPU memory"
        hint = f"on {session.node.name}: ps -fp {pid}   and, if it is a leftover of the engine: sudo kill {pid}"
    else:
        shared = after.memory.page_cache if after.memory else None
        what = f"no process is seen that holds it (page cache now {gib(shared)})"
        hint = f"on {session.node.name}: ls -lh /dev/shm   and: sparkctl drop-caches --node {session.node.name}"
    return Warned(
        ctx.clock.now(), session.node.name, f"{gib(missing)} did not come back on {session.node.name}: {what}", hint
    )


def _kept(session: Session, container: Container) -> tuple[str, str]:
    """What to say, and what to do, where the only whole log of a container is the one that Docker has."""
    instance = container.label(Label.INSTANCE) or container.name
    return (
        f"the log of {instance} could not be saved whole, so its container was kept",
        f"on {session.node.name}: docker rm {container.name}   when you do not need it",
    )


async def sweep(session: Session, ctx: Context, emit: Emit, container: Container) -> None:
    """Remove an ended container of ours so that its name is free; refuses where its log cannot be saved first."""
    if container.is_alive:
        raise SparkctlError(f"{container.name} runs: it is stopped, never swept away", None)
    if not (await save_log(session, ctx, emit, container)).whole:
        raise Refused(*_kept(session, container))
    with contextlib.suppress(NoSuchContainer):
        await session.docker.remove(container.id)
