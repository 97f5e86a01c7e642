"""Stopping an instance: stop, keep its log, remove, and prove that all it held is really back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from sparkctl.core.context import Context
from sparkctl.core.session import Session
from sparkctl.errors import NoSuchContainer, Refused, SparkctlError
from sparkctl.model.container import Container
from sparkctl.model.events import PhaseChanged, Released, Warned
from sparkctl.model.history import Share
from sparkctl.model.node import NodeName
from sparkctl.model.phase import Phase
from sparkctl.model.plan import Label
from sparkctl.model.text import clean
from sparkctl.model.units import gib
from sparkctl.operations.following import figures
from sparkctl.operations.stopping.release import WORTH_WAITING, Proof, Release, still_held
from sparkctl.operations.stopping.savelog import save_log
from sparkctl.operations.stream import Emit


@dataclass(frozen=True, slots=True)
class Stopped:
    """One container that was stopped. ``removed`` is False for one that was kept, ended: it was asked for, or its log could
    not be saved whole."""

    proof: Proof
    log: str | None
    removed: bool
    node: NodeName
    instance: str
    container_id: str
    container_name: str = ""

    @property
    def is_proved(self) -> bool:
        """Tell whether nothing of it is known to be held any more."""
        return self.proof.is_good

    @property
    def kept(self) -> str | None:
        """Its container's name where that is still there, ended."""
        return None if self.removed else self.container_name


async def stop(
    session: Session,
    ctx: Context,
    emit: Emit,
    container: Container,
    grace: float,
    *,
    keep: bool = False,
    release: Release | None = None,
    ended: Callable[[], None] = lambda: None,
) -> Stopped:
    """Stop one container of ours and remove it, its log saved before it goes. ``keep``: it stays, ended.

    ``release`` has begun already, where what it holds had to be read before. ``ended`` is called once it runs no more,
    before its memory is waited for.
    """
    instance = container.label(Label.INSTANCE) or container.name
    began = ctx.clock.monotonic()

    def phase(now: Phase, detail: str | None = None) -> None:
        elapsed = ctx.clock.monotonic() - began
        emit(PhaseChanged(ctx.clock.now(), session.node.name, instance, now, None, elapsed, None, detail))

    if release is None:
        release = Release(session, ctx, emit, container)
        await release.begin()
    phase(Phase.STOPPING)
    is_counted = await figures.keep(session, ctx, container)
    if container.is_alive:
        with contextlib.suppress(NoSuchContainer):
            await session.docker.stop(container.id, grace)
    ended()
    saved = await save_log(session, ctx, emit, container)
    ctx.note(Share(session.node.name, instance, container=container.id, log=saved.path))
    if not is_counted:
        await figures.keep_logged(session, ctx, container, saved.path)
    if saved.whole and not keep:
        with contextlib.suppress(NoSuchContainer):  # somebody was faster; gone is what we wanted
            await session.docker.remove(container.id)
    elif not keep:
        emit(Warned(ctx.clock.now(), session.node.name, *_kept(session, container)))
    proof = await release.prove(lambda words: phase(Phase.STOPPING, words))
    freed = proof.freed
    phase(Phase.STOPPED, f"{gib(freed)} came back" if freed is not None and freed > WORTH_WAITING else None)
    left = tuple((one.what, one.size) for one in proof.left)
    removed = saved.whole and not keep
    stopped = Stopped(proof, saved.path, removed, session.node.name, instance, container.id, container.name)
    now = ctx.clock.now()
    emit(
        Released(
            now, session.node.name, instance, freed, proof.missing, left, proof.before_start, proof.available,
            clean(container.name) if not removed else None,
        )
    )  # fmt: skip
    if left or not proof.is_good:
        emit(still_held(session, ctx, instance, proof))
    return stopped


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
