"""Watching the ranks of one model: readiness is the head's, the first failure in time is the root, and ends the others."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sparkctl.core import rank_verdict
from sparkctl.core.context import Context
from sparkctl.core.first_failure import Failing, Offset, root
from sparkctl.core.together import end, together
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.verdict import Cause, Evidence, Verdict
from sparkctl.operations.clock_offset import measure
from sparkctl.operations.starting.rank_watch import Failed, WatchedRank
from sparkctl.operations.starting.watch import Watched, refuse_lost

_LINGER = 3.0  # seconds for which the others may say themselves what happened: the root may be heard of last
_LAST_WORDS = 10.0  # seconds for the end of a log, once its container has ended

Offsets = dict[NodeName, Offset]


@dataclass(frozen=True, slots=True)
class End:
    """How the watch ended: ready (no verdict), or failed or late, for which ``rank`` is the one to be named."""

    rank: WatchedRank
    verdict: Verdict | None = None
    timed_out: bool = False
    log: str | None = None
    more_logs: tuple[tuple[NodeName, str], ...] = ()  # of the other ranks


async def measure_clocks(ranks: Sequence[WatchedRank]) -> Offsets:
    """Return how far each node's clock is from ours, of those that say; one alone is not asked."""
    if len(ranks) == 1:
        return {}
    found = await together(*(measure(rank.session) for rank in ranks))
    return {rank.plan.node: one for rank, one in zip(ranks, found, strict=True) if one is not None}


async def watch(ctx: Context, ranks: Sequence[WatchedRank], clocks: Offsets) -> End:
    """Watch all ranks until the head is ready, one has failed, or time is over; where one has failed, none is left running.

    ``clocks`` are as they were found at the start, for nodes that fall silent. Raises `Unreachable` where it is not known how
    far a rank is when time is over.
    """
    tasks = [asyncio.create_task(rank.watch()) for rank in ranks]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if any(_has_failed(task) for task in tasks):
            return await _failed(ctx, ranks, tasks, clocks)
        watched = next(task for task in tasks if task.done()).result()
        return await _late(ranks, watched) if watched.timed_out else End(ranks[0])
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _has_failed(task: asyncio.Task[Watched]) -> bool:
    """Tell whether a rank's own watch has ended with a failure; an error of its node is none."""
    if not task.done() or task.cancelled() or task.exception() is not None:
        return False
    return task.result().verdict is not None and not task.result().timed_out


async def _late(ranks: Sequence[WatchedRank], watched: Watched) -> End:
    """Return the end of a start whose time is over: nothing is stopped. How far the workers are belongs to the proof."""
    head, *workers = ranks
    for rank in workers:
        refuse_lost(rank.session, f"its rank of {rank.plan.instance}", rank.again)
    verdict = watched.verdict
    if verdict is not None and workers:
        more = tuple(Evidence(f"{rank.plan.node} was {rank.so_far}", "clock") for rank in workers)
        verdict = replace(verdict, evidence=(*verdict.evidence, *more))
    failed = await head.failed(verdict, timed_out=True)
    return End(head, failed.verdict, timed_out=True, log=failed.log)


async def _failed(
    ctx: Context, ranks: Sequence[WatchedRank], tasks: Sequence[asyncio.Task[Watched]], clocks: Offsets
) -> End:
    """Find the root, and end what cannot go on without it."""
    if len(ranks) == 1:
        failed = await ranks[0].failed(tasks[0].result().verdict)
        return End(ranks[0], failed.verdict, log=failed.log)
    await _wait(ctx, tasks, _LINGER)
    now = await measure_clocks([rank for rank in ranks if rank.session.link.status.state is NodeState.OK])
    # What they say once they are told to end is no failure of theirs.
    told = [
        task.result().verdict if _has_failed(task) else rank.standing for rank, task in zip(ranks, tasks, strict=True)
    ]
    await together(*(rank.end() for rank in ranks))
    await _wait(ctx, [task for task, rank in zip(tasks, ranks, strict=True) if _is_heard(rank)], _LAST_WORDS)
    failures = [
        (rank, await rank.failed(verdict)) for rank, verdict in zip(ranks, told, strict=True) if verdict is not None
    ]
    first = _root(failures, clocks | now)
    rank, failed = next(each for each in failures if each[0].plan.node == first)
    logs = {one.plan.node: each.log for one, each in failures}
    for other in ranks:
        if all(other is not one for one, _ in failures):
            logs[other.plan.node] = await other.ended_after(first)
    more = tuple(
        (node, log) for node in (one.plan.node for one in ranks) if node != first and (log := logs[node]) is not None
    )
    return End(rank, _one(rank, failed, failures, ranks), log=failed.log, more_logs=more)


def _is_heard(rank: WatchedRank) -> bool:
    return rank.session.link.status.state is NodeState.OK


async def _wait(ctx: Context, tasks: Sequence[asyncio.Task[Watched]], patience: float) -> None:
    """Wait until all are done, ``patience`` seconds at most."""
    left = [task for task in tasks if not task.done()]
    if not left:
        return
    waits = asyncio.ensure_future(asyncio.wait(left)), asyncio.ensure_future(ctx.clock.sleep(patience))
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end(waits)


def _root(failures: Sequence[tuple[WatchedRank, Failed]], clocks: Offsets) -> NodeName:
    return root(
        [
            Failing(rank.plan.node, one.verdict.cause if one.verdict else Cause.CRASHED, one.at, one.is_aftermath)
            for rank, one in failures
        ],
        clocks,
    ).node


def _one(
    rank: WatchedRank, failed: Failed, failures: Sequence[tuple[WatchedRank, Failed]], ranks: Sequence[WatchedRank]
) -> Verdict | None:
    """Return the one verdict: the root's, naming its node; what went wrong elsewhere for a reason of its own beside it."""
    if failed.verdict is None:
        return None
    others = [
        _named(other, told.verdict)
        for other, told in failures
        if other is not rank and told.verdict is not None and not told.is_aftermath
    ]
    told = rank_verdict.with_commands(
        _named(rank, failed.verdict), rank.plan.instance, rank.plan.node, [one.plan.node for one in ranks]
    )
    return rank_verdict.one(told, others)


def _named(rank: WatchedRank, verdict: Verdict) -> Verdict:
    return rank_verdict.named(verdict, rank.plan.rank, rank.plan.ranks, rank.plan.node)
