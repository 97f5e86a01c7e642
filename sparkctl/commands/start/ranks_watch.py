"""Watching the ranks of one model: readiness is the head's, the first failure in time is the root, and ends the others."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sparkctl.commands.context import CommandContext
from sparkctl.commands.start.container_watch import WatchResult, raise_if_disconnected
from sparkctl.commands.start.rank_watch import RankStartFailure, RankWatch
from sparkctl.concurrency import cancel_and_wait, gather_or_cancel
from sparkctl.logs import rank_verdict
from sparkctl.logs.clock_offset import measure_clock_offset
from sparkctl.logs.first_failure import ClockOffset, RankFailure, find_first_failure
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.verdict import Evidence, FailureCause, Verdict

_LINGER = 3.0  # seconds for which the others may say themselves what happened: the root may be heard of last
_LAST_WORDS = 10.0  # seconds for the end of a log, once its container has ended

Offsets = dict[NodeName, ClockOffset]


@dataclass(frozen=True, slots=True)
class InstanceWatchResult:
    """How the watch ended: ready (no verdict), or failed or late, for which ``rank`` is the one to be named."""

    rank: RankWatch
    verdict: Verdict | None = None
    timed_out: bool = False
    log: str | None = None
    more_logs: tuple[tuple[NodeName, str], ...] = ()  # of the other ranks


async def measure_clock_offsets(ranks: Sequence[RankWatch]) -> Offsets:
    """Return how far each node's clock is from ours, of those that say; one alone is not asked."""
    if len(ranks) == 1:
        return {}
    found = await gather_or_cancel(*(measure_clock_offset(rank.session) for rank in ranks))
    return {rank.plan.node: one for rank, one in zip(ranks, found, strict=True) if one is not None}


async def watch_ranks(ctx: CommandContext, ranks: Sequence[RankWatch], clocks: Offsets) -> InstanceWatchResult:
    """Watch all ranks until the head is ready, one has failed, or time is over; where one has failed, none is left running.

    ``clocks`` are as they were found at the start, for nodes that fall silent. Raises `Unreachable` where it is not known how
    far a rank is when time is over.
    """
    tasks = [asyncio.create_task(rank.watch()) for rank in ranks]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if any(_has_failed(task) for task in tasks):
            return await _build_failure_result(ctx, ranks, tasks, clocks)
        watched = next(task for task in tasks if task.done()).result()
        return await _build_timeout_result(ranks, watched) if watched.timed_out else InstanceWatchResult(ranks[0])
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _has_failed(task: asyncio.Task[WatchResult]) -> bool:
    """Tell whether a rank's own watch has ended with a failure; an error of its node is none."""
    if not task.done() or task.cancelled() or task.exception() is not None:
        return False
    return task.result().verdict is not None and not task.result().timed_out


async def _build_timeout_result(ranks: Sequence[RankWatch], watched: WatchResult) -> InstanceWatchResult:
    """Return the end of a start whose time is over: nothing is stopped. How far the workers are belongs to the proof."""
    head, *workers = ranks
    for rank in workers:
        raise_if_disconnected(rank.session, f"its rank of {rank.plan.instance}", rank.again)
    verdict = watched.verdict
    if verdict is not None and workers:
        more = tuple(Evidence(f"{rank.plan.node} was {rank.describe_progress}", "clock") for rank in workers)
        verdict = replace(verdict, evidence=(*verdict.evidence, *more))
    failed = await head.failed(verdict, timed_out=True)
    return InstanceWatchResult(head, failed.verdict, timed_out=True, log=failed.log)


async def _build_failure_result(
    ctx: CommandContext, ranks: Sequence[RankWatch], tasks: Sequence[asyncio.Task[WatchResult]], clocks: Offsets
) -> InstanceWatchResult:
    """Find the root, and end what cannot go on without it."""
    if len(ranks) == 1:
        failed = await ranks[0].failed(tasks[0].result().verdict)
        return InstanceWatchResult(ranks[0], failed.verdict, log=failed.log)
    await _wait(ctx, tasks, _LINGER)
    now = await measure_clock_offsets([rank for rank in ranks if rank.session.link.status.state is NodeState.OK])
    # What they say once they are told to end is no failure of theirs.
    told = [
        task.result().verdict if _has_failed(task) else rank.current_verdict
        for rank, task in zip(ranks, tasks, strict=True)
    ]
    await gather_or_cancel(*(rank.end() for rank in ranks))
    await _wait(ctx, [task for task, rank in zip(tasks, ranks, strict=True) if _is_reachable(rank)], _LAST_WORDS)
    failures = [
        (rank, await rank.failed(verdict)) for rank, verdict in zip(ranks, told, strict=True) if verdict is not None
    ]
    first = _find_first_failure(failures, clocks | now)
    rank, failed = next(each for each in failures if each[0].plan.node == first)
    logs = {one.plan.node: each.log for one, each in failures}
    for other in ranks:
        if all(other is not one for one, _ in failures):
            logs[other.plan.node] = await other.save_log_after_stop(first)
    more = tuple(
        (node, log) for node in (one.plan.node for one in ranks) if node != first and (log := logs[node]) is not None
    )
    return InstanceWatchResult(rank, _merge_verdicts(rank, failed, failures, ranks), log=failed.log, more_logs=more)


def _is_reachable(rank: RankWatch) -> bool:
    return rank.session.link.status.state is NodeState.OK


async def _wait(ctx: CommandContext, tasks: Sequence[asyncio.Task[WatchResult]], patience: float) -> None:
    """Wait until all are done, ``patience`` seconds at most."""
    left = [task for task in tasks if not task.done()]
    if not left:
        return
    waits = asyncio.ensure_future(asyncio.wait(left)), asyncio.ensure_future(ctx.clock.sleep(patience))
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancel_and_wait(waits)


def _find_first_failure(failures: Sequence[tuple[RankWatch, RankStartFailure]], clocks: Offsets) -> NodeName:
    return find_first_failure(
        [
            RankFailure(
                rank.plan.node, one.verdict.cause if one.verdict else FailureCause.CRASHED, one.at, one.is_aftermath
            )
            for rank, one in failures
        ],
        clocks,
    ).node


def _merge_verdicts(
    rank: RankWatch,
    failed: RankStartFailure,
    failures: Sequence[tuple[RankWatch, RankStartFailure]],
    ranks: Sequence[RankWatch],
) -> Verdict | None:
    """Return the one verdict: the root's, naming its node; what went wrong elsewhere for a reason of its own beside it."""
    if failed.verdict is None:
        return None
    others = [
        _named(other, told.verdict)
        for other, told in failures
        if other is not rank and told.verdict is not None and not told.is_aftermath
    ]
    told = rank_verdict.add_peer_log_commands(
        _named(rank, failed.verdict), rank.plan.instance, rank.plan.node, [one.plan.node for one in ranks]
    )
    return rank_verdict.merge_rank_verdicts(told, others)


def _named(rank: RankWatch, verdict: Verdict) -> Verdict:
    return rank_verdict.add_rank_name(verdict, rank.plan.rank, rank.plan.ranks, rank.plan.node)
