"""Stopping several containers at once, over sessions that are there and under locks that the caller has."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sparkctl.core.context import Context
from sparkctl.core.session import Session
from sparkctl.core.together import end
from sparkctl.errors import SparkctlError
from sparkctl.model.container import Container
from sparkctl.model.guard import UnwatchReason
from sparkctl.model.node import NodeName
from sparkctl.operations.labels import grace_of, rank_of, run_of
from sparkctl.operations.start_guard import unwatch
from sparkctl.operations.stop import Stopped, stop
from sparkctl.operations.stream import Emit

DEFAULT_GRACE = 30.0
_LEAD = 5.0  # seconds that the head has before its workers are asked to end, too


@dataclass(frozen=True, slots=True)
class Halt:
    """What came of stopping several: each container that was stopped, and why a node could not be finished with."""

    stopped: tuple[Stopped, ...] = ()
    failures: tuple[tuple[NodeName, SparkctlError], ...] = ()


async def stop_all(
    sessions: Mapping[NodeName, Session],
    ctx: Context,
    emit: Emit,
    containers_by_node: Mapping[NodeName, Sequence[Container]],
    grace: float | None = None,
    keep: bool = False,
) -> Halt:
    """Stop containers of ours on several nodes at once, those of one node in their order; the caller has the locks.

    ``grace`` None: what each says itself. ``keep``: they stay, ended. A node that fails keeps no other from its end.

    A head is asked first: it takes no more requests and ends what it answers, and does not see its workers die under it.
    They follow as soon as it has ended, or after 5 s: a head that hangs needs its whole grace, and they need not wait for it.
    """
    heads = {
        run: asyncio.Event()
        for containers in containers_by_node.values()
        for one in containers
        if (run := run_of(one)) is not None and _index(one) == 0
    }
    stopped: list[Stopped] = []

    async def on(node: NodeName) -> None:
        session, containers = sessions[node], containers_by_node[node]
        own = [heads[run] for one in containers if _index(one) == 0 and (run := run_of(one)) is not None]
        try:
            await unwatch(session, ctx, emit, [one.id for one in containers], UnwatchReason.STOPPED)
            for one in containers:
                turn = heads.get(run_of(one) or "")
                if turn is not None and _index(one):
                    await _wait(ctx, turn)
                gone = turn.set if turn is not None and not _index(one) else _nothing
                stopped.append(await stop(session, ctx, emit, one, grace_for(one, grace), keep=keep, ended=gone))
        finally:
            for turn in own:
                turn.set()

    nodes = list(containers_by_node)
    outcomes = await asyncio.gather(*(on(node) for node in nodes), return_exceptions=True)
    failures = []
    for node, outcome in zip(nodes, outcomes, strict=True):
        if isinstance(outcome, SparkctlError):
            failures.append((node, outcome))
        elif isinstance(outcome, BaseException):
            raise outcome
    return Halt(tuple(stopped), tuple(failures))


def grace_for(container: Container, asked: float | None) -> float:
    """Return what was asked for now, else what the profile said when this was started; seconds."""
    if asked is not None:
        return asked
    own = grace_of(container)
    return DEFAULT_GRACE if own is None else own


def _index(container: Container) -> int:
    """Which rank it is; the head, and whatever is alone, is 0."""
    return int((rank_of(container) or "0/1").partition("/")[0])


def _nothing() -> None:
    return None


async def _wait(ctx: Context, turn: asyncio.Event) -> None:
    """Return when the head has ended, or had its time for it."""
    waits = [asyncio.ensure_future(turn.wait()), asyncio.ensure_future(ctx.clock.sleep(_LEAD))]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end(waits)
