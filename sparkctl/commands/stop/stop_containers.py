"""Stopping several containers at once, over sessions that are there and under locks that the caller has."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sparkctl.commands.context import CommandContext
from sparkctl.commands.event_stream import Emit
from sparkctl.commands.guard_session import stop_watching_containers
from sparkctl.commands.stop.release_check import ReleaseCheck
from sparkctl.commands.stop.stop import StoppedContainer, stop_container
from sparkctl.concurrency import cancel_and_wait
from sparkctl.errors import SparkctlError
from sparkctl.model.container import Container
from sparkctl.model.container_labels import parse_rank_label, parse_start_id_label, parse_stop_grace_label
from sparkctl.model.guard_state import UnwatchReason
from sparkctl.model.node import NodeName
from sparkctl.transport.session import Session

DEFAULT_GRACE = 30.0
_HEAD_START_SECONDS = 5.0  # seconds that the head has before its workers are asked to end, too


@dataclass(frozen=True, slots=True)
class StopResult:
    """What came of stopping several: each container that was stopped, and why a node could not be finished with."""

    stopped: tuple[StoppedContainer, ...] = ()
    failures: tuple[tuple[NodeName, SparkctlError], ...] = ()


async def stop_containers(
    sessions: Mapping[NodeName, Session],
    ctx: CommandContext,
    emit: Emit,
    containers_by_node: Mapping[NodeName, Sequence[Container]],
    grace: float | None = None,
    keep: bool = False,
) -> StopResult:
    """Stop containers of ours on several nodes at once, those of one node in their order; the caller has the locks.

    ``grace`` None: what each says itself. ``keep``: they stay, ended. A node that fails keeps no other from its end.

    A head is asked first: it takes no more requests and ends what it answers, and does not see its workers die under it.
    They follow as soon as it has ended, or after 5 s: a head that hangs needs its whole grace, and they need not wait for it.
    """
    turns: dict[str, StopOrder] = {}
    for one in (one for containers in containers_by_node.values() for one in containers):
        if (run := parse_start_id_label(one)) is not None and parse_rank_label(one) is not None:
            turns.setdefault(run, StopOrder(ctx)).expect(is_head=_rank_index(one) == 0)
    stopped: list[StoppedContainer] = []

    async def on(node: NodeName) -> None:
        session, containers = sessions[node], containers_by_node[node]
        try:
            await stop_watching_containers(session, ctx, emit, [one.id for one in containers], UnwatchReason.STOPPED)
            for one in containers:
                release = ReleaseCheck(session, ctx, emit, one)
                await release.measure_before()
                turn, ended = turns.get(parse_start_id_label(one) or ""), _nothing
                if turn is not None:
                    await turn.take(is_head=_rank_index(one) == 0)
                    ended = turn.head_ended.set if _rank_index(one) == 0 else _nothing
                seconds = resolve_stop_grace(one, grace)
                stopped.append(
                    await stop_container(session, ctx, emit, one, seconds, keep=keep, release=release, ended=ended)
                )
        finally:
            for one in containers:
                if (turn := turns.get(parse_start_id_label(one) or "")) is not None:
                    turn.give_up(is_head=_rank_index(one) == 0)

    nodes = list(containers_by_node)
    outcomes = await asyncio.gather(*(on(node) for node in nodes), return_exceptions=True)
    failures = []
    for node, outcome in zip(nodes, outcomes, strict=True):
        if isinstance(outcome, SparkctlError):
            failures.append((node, outcome))
        elif isinstance(outcome, BaseException):
            raise outcome
    return StopResult(tuple(stopped), tuple(failures))


def resolve_stop_grace(container: Container, asked: float | None) -> float:
    """Return what was asked for now, else what the profile said when this was started; seconds."""
    if asked is not None:
        return asked
    own = parse_stop_grace_label(container)
    return DEFAULT_GRACE if own is None else own


def _rank_index(container: Container) -> int:
    """Which rank it is; the head, and whatever is alone, is 0."""
    return int((parse_rank_label(container) or "0/1").partition("/")[0])


def _nothing() -> None:
    return None


class StopOrder:
    """Who of one model is asked to end when. What each rank holds is read before any is asked: a worker goes with its head."""

    def __init__(self, ctx: CommandContext) -> None:
        self._ctx = ctx
        self._workers = 0
        self._looked = asyncio.Event()
        self.head_ended = asyncio.Event()
        self.head_ended.set()
        self._looked.set()

    def expect(self, *, is_head: bool) -> None:
        """Count one of its ranks."""
        if is_head:
            self.head_ended.clear()
        else:
            self._workers += 1
            self._looked.clear()

    async def take(self, *, is_head: bool) -> None:
        """Return when this rank, which has been looked at, is to be asked to end; within 5 s in any case."""
        if not is_head:
            self._workers -= 1
            if self._workers <= 0:
                self._looked.set()
        await self._wait(self._looked if is_head else self.head_ended)

    def give_up(self, *, is_head: bool) -> None:
        """Let nobody wait for this rank any more."""
        (self.head_ended if is_head else self._looked).set()

    async def _wait(self, event: asyncio.Event) -> None:
        waits = [asyncio.ensure_future(event.wait()), asyncio.ensure_future(self._ctx.clock.sleep(_HEAD_START_SECONDS))]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancel_and_wait(waits)
