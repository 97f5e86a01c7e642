"""Watches one rank of a start, or all of them together: log, guard and verdict. Used by `up` and by the rollback of a
switch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from sparkctl.commands.guard_session import GuardSession
from sparkctl.commands.start.node_fit import read_other_holders
from sparkctl.commands.start.start_watch import StartWatch, WatchResult, collect_plan_secrets, require_connection
from sparkctl.concurrency import gather_or_cancel, run_in_background, run_until_first
from sparkctl.context import CommandContext
from sparkctl.engines.base import Engine
from sparkctl.errors import DockerError, NodeError, SparkctlError
from sparkctl.logs import rank_verdict, start_verdict, verdict_builder
from sparkctl.logs.rank_verdict import ClockOffset, RankFailure, find_first_failure, measure_clock_offset
from sparkctl.logs.reader import save_log
from sparkctl.model.container import SIGKILL_EXIT_CODE, ContainerState
from sparkctl.model.events import Emit, Event, PhaseChanged, WarningEmitted
from sparkctl.model.guard_state import GuardReceipt, UnwatchReason
from sparkctl.model.launch_plan import ContainerLabel, LaunchPlan
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.phase import ExpectedDurations, Phase
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.verdict import Evidence, FailureCause, Verdict
from sparkctl.monitor import guard_client
from sparkctl.monitor.kernel_log import ask_kernel_log
from sparkctl.transport.node_session import NodeSession

# To the program itself: not to what runs it, nor to one of an earlier version, which such a signal would end.
_HOLD_ON_NODE = """for c in $(grep -lsaF "/dev/shm/sparkctl-pull-" /proc/[0-9]*/cmdline); do
  p=${c%/cmdline}; [ -O "$p" ] || continue
  case "$(readlink "$p/exe")" in *python*) ;; *) continue ;; esac
  f=$(tr '\\0' '\\n' <"$c" | grep -m 1 '^/dev/shm/sparkctl-pull-.*/program.py$') || continue
  grep -q '^_HOLD_SIGNAL' "$f" && kill -s USR1 "${p#/proc/}"
done
"""
_HOLD_SECONDS = 5.0  # seconds after which downloads are asked again to wait; they do so for three times as long


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStartFailure:
    """Why a rank failed, or is late, and the path of its whole log.

    ``at``: when, by its node's clock, unix seconds. ``is_aftermath``: the failure only follows from another one
    elsewhere. ``is_bare_exit``: only its exit code is known.
    """

    verdict: Verdict | None
    log: str | None
    at: float | None
    is_aftermath: bool
    is_bare_exit: bool


class RankWatch:
    """The watch of one rank.

    Attributes:
        container_id: empty until there is a container.
        began: when the command began, by the context's clock.
        again: the command that repeats it.
        timeout: seconds for the whole command.
        since: where the log begins for this start, by the node's clock, unix seconds; None: at its beginning.
    """

    def __init__(
        self,
        ctx: CommandContext,
        session: NodeSession,
        engine: Engine,
        plan: LaunchPlan,
        emit: Emit,
        began: float,
        again: str,
        timeout: float | None = None,
    ) -> None:
        self.ctx, self.session, self.engine, self.plan, self.emit = ctx, session, engine, plan, emit
        self.began, self.again, self.timeout = began, again, timeout
        self.container_id = ""
        self.since: float | None = None
        self.guard: GuardSession | None = None
        self.drop_was_reported = False  # the missing right to drop the page cache was reported
        self._watch: StartWatch | None = None

    # guard

    async def arm_guard(self) -> None:
        """Start the guard on the node before the container exists."""
        if self.plan.guard is not None:
            self.guard = GuardSession(self.session, self.ctx, self.emit, self.plan, self.plan.guard)
            await self.guard.arm_guard(drop_was_reported=self.drop_was_reported)

    async def guard_container(self, container_id: str) -> None:
        if self.guard is not None:
            await self.guard.watch_container(container_id)

    async def detach_guard(self) -> None:
        """Disconnect and leave the guard armed."""
        if self.guard is not None:
            await self.guard.detach()

    # watch

    async def watch_until_end(self) -> WatchResult:
        """Watch until it is ready, failed or out of time; its log is saved meanwhile."""
        plan, container_id = self.plan, self.container_id
        watch = StartWatch(
            self.session,
            self.engine,
            plan=plan,
            container_id=container_id,
            ctx=self.ctx,
            emit=self._forward_event,
            began=self.began,
            again=self.again,
            since=self.since,
        )
        self._watch = watch
        watch.expected = self.expected_duration()
        try:
            watch.saved = self.ctx.history.open_log_writer(
                plan.instance, plan.node, container_id, collect_plan_secrets(plan)
            )
        except OSError as error:
            self.warn(f"the log will not be saved here: {error}")
        background = () if self.guard is None else (self.guard.renew_lease(watch.loads_weights),)
        try:
            async with run_in_background(*background, self._hold_downloads_back(watch.loads_weights)):
                return await watch.run(self.timeout)
        finally:
            if watch.saved is not None:
                watch.saved.close()

    async def _hold_downloads_back(self, loads: Callable[[], bool]) -> None:
        """Have downloads on the node wait while ``loads`` is true; what is not asked again goes on by itself."""
        announced: set[str] = set()
        while True:
            if loads():
                with suppress(DockerError, NodeError, TimeoutError):
                    for name in await _ask_downloads_to_wait(self.session):
                        if name not in announced:
                            announced.add(name)
                            self.warn(f"the download of {name} waits until {self.plan.instance} has loaded its weights")
            await self.ctx.clock.sleep(_HOLD_SECONDS)

    def expected_duration(self) -> ExpectedDurations:
        """Return the usual duration of its start, from earlier starts."""
        return self.ctx.history.get_expected_durations(self.plan.profile, self.plan.profile_hash, self.plan.node)

    async def record_ready(self, proof: str | None = None) -> None:
        """End the guard's watch and report that the rank is ready; ``proof``: what proved it."""
        self.ctx.history.note_token(self.plan.instance, self.plan.node, self.container_id)
        if self.guard is not None:
            await self.guard.stop_watching(UnwatchReason.READY)
        if self._watch is not None:
            self._watch.report_phase(
                Phase.READY, proof if self.plan.ranks == 1 else f"rank {self.plan.rank} of {self.plan.ranks}"
            )

    async def record_unproved(self, why: str) -> None:
        """End the guard's watch, because nothing loads any more, and report that the rank is up and not proved."""
        if self.guard is not None:
            await self.guard.stop_watching(UnwatchReason.READY)
        if self._watch is not None:
            self._watch.report_phase(Phase.UNPROVED, why)

    @property
    def current_verdict(self) -> Verdict | None:
        """The verdict from its log alone, None where the log has no failure."""
        return None if self._watch is None else verdict_builder.build_verdict(self._watch.log, self.plan)

    @property
    def progress_text(self) -> str:
        """Its phase and step, in words."""
        if self._watch is None:
            return str(Phase.UNKNOWN)
        step = self._watch.log.step
        return f"{self._watch.log.phase}{f' ({step.name})' if step else ''}"

    async def diagnose_failure(self, verdict: Verdict | None, *, timed_out: bool = False) -> RankStartFailure:
        """Find out why it failed, or is late; a receipt of the guard outweighs the log."""
        assert self._watch is not None
        watch, at, receipt, container = self._watch, self._watch.failed_at, None, None
        log = str(watch.saved.path) if watch.saved else None
        if not timed_out:
            watch.report_phase(Phase.FAILED)
        try:
            container = await self.session.docker.inspect_container(self.container_id)
            at = container.finished if at is None else at
            if container.exit_code == SIGKILL_EXIT_CODE and not container.is_alive and not timed_out:
                receipt = await self._read_receipt()
            if not container.is_alive:
                log = (
                    await save_log(self.session, self.ctx, self.emit, container, collect_plan_secrets(self.plan))
                ).path or log
        except (DockerError, NodeError):
            pass  # the log was saved while it was followed; the verdict holds without another inspection
        if receipt is not None:
            guard_client.save_receipt(self.ctx, self.session, receipt, self.warn)
            at, claim = receipt.at, self.engine.memory_setting
            within = None if self.guard is None else self.guard.watched_for
            claims = None if claim is None else self.plan.get_flag_value(claim.removeprefix("args."))
            verdict = start_verdict.build_guard_kill_verdict(self.plan, watch.log, receipt, claim, claims, within)
        verdict = await ask_kernel_log(self.session, verdict, container, self.plan.instance)
        if verdict is not None and verdict.cause in verdict_builder.OUT_OF_MEMORY_CAUSES:
            with suppress(DockerError, NodeError):
                budget = await read_other_holders(self.session, self.container_id)
                if budget is not None:
                    verdict = verdict_builder.add_memory_holders(verdict, budget.holders, budget.total)
        return RankStartFailure(
            verdict=verdict,
            log=log,
            at=at,
            is_aftermath=verdict is not None and verdict_builder.is_consequence(watch.log, verdict),
            is_bare_exit=verdict is not None and start_verdict.is_bare_exit(watch.log, verdict, container),
        )

    async def stop_rank(self) -> None:
        """Stop the container and keep it with its log: another rank has failed, so this one is of no use."""
        try:
            if (await self.session.docker.inspect_container(self.container_id)).is_alive:
                if self.guard is not None:
                    await self.guard.stop_watching(UnwatchReason.STOPPED)
                await self.session.docker.stop_container(self.container_id, self.plan.stop_grace)
        except (DockerError, NodeError) as error:
            self.warn(
                f"whether its rank on {self.plan.node} has ended is not known: {error.message}",
                f"when it answers again: sparkctl down {self.plan.instance}",
            )

    async def save_log_after_stop(self, other: NodeName) -> str | None:
        """Report that it was stopped because another rank failed, and save its whole log; return the path."""
        log = None if self._watch is None or self._watch.saved is None else str(self._watch.saved.path)
        with suppress(DockerError, NodeError):
            container = await self.session.docker.inspect_container(self.container_id)
            if not container.is_alive:
                log = (
                    await save_log(self.session, self.ctx, self.emit, container, collect_plan_secrets(self.plan))
                ).path or log
                if self._watch is not None:
                    self._watch.report_phase(Phase.STOPPED, f"its rank on {other} failed")
        return log

    async def _read_receipt(self) -> GuardReceipt | None:
        return await (
            self.guard.wait_for_receipt() if self.guard else guard_client.read_receipt(self.session, self.container_id)
        )

    def _forward_event(self, event: Event) -> None:
        """Emit an event, and tell the guard at once about a new step."""
        self.emit(event)
        if self.guard is not None and isinstance(event, PhaseChanged):
            self.guard.stepped.set()

    # report

    def warn(self, message: str, hint: str | None = None) -> None:
        """Emit a warning about this node; the start goes on."""
        self.emit(WarningEmitted(self.ctx.clock.unix_time(), self.plan.node, message, hint))


async def _ask_downloads_to_wait(session: NodeSession) -> tuple[str, ...]:
    """Have the downloads on a node wait for a quarter of a minute, unless they were forced; return the profiles of those
    that were asked.
    """
    found = [
        one for one in await session.docker.list_containers() if one.get_label(ContainerLabel.DOWNLOAD) is not None
    ]
    running = [one for one in found if one.state is ContainerState.RUNNING]
    for one in running:
        with suppress(DockerError):  # it has just ended
            await session.docker.signal_container(one.id, "SIGUSR1")
    on_node = (await session.read_node("downloads")).downloads
    if on_node:
        await session.run(["sh", "-c", _HOLD_ON_NODE, "sparkctl-hold"], timeout=_HOLD_SECONDS)
    names = [one.get_label(ContainerLabel.PROFILE) for one in running] + [one.profile for one in on_node]
    return tuple(dict.fromkeys(sanitize_line(name) for name in names if name))


_FAILURE_GATHER_SECONDS = 3.0  # for other ranks to report: the first failure may arrive last
_LOG_END_SECONDS = 10.0  # seconds for the end of a log, once its container has ended

ClockOffsets = dict[NodeName, ClockOffset]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceWatchResult:
    """How the watch ended: ready (no verdict), or failed or late; ``rank`` is the one to name then. ``proof``,
    ``unproved`` and ``first_token`` as in `WatchResult`.
    """

    rank: RankWatch
    verdict: Verdict | None = None
    timed_out: bool = False
    log: str | None = None
    more_logs: tuple[tuple[NodeName, str], ...] = ()  # of the other ranks
    proof: str | None = None
    unproved: str | None = None
    first_token: float | None = None


async def measure_clock_offsets(ranks: Sequence[RankWatch]) -> ClockOffsets:
    """Return the offset of each node's clock from this machine's, where known; empty for a single rank."""
    if len(ranks) == 1:
        return {}
    found = await gather_or_cancel(*(measure_clock_offset(rank.session) for rank in ranks))
    return {rank.plan.node: one for rank, one in zip(ranks, found, strict=True) if one is not None}


async def watch_ranks(ctx: CommandContext, ranks: Sequence[RankWatch], clocks: ClockOffsets) -> InstanceWatchResult:
    """Watch all ranks until the head is ready, one has failed, or time is over; after a failure stop them all.

    ``clocks``: the offsets at the start, for nodes that fall silent. Raises `NodeUnreachable` where the state of a
    rank is not known when time is over.
    """
    # no TaskGroup: a rank's failure is a result here, and the others go on until its cause is known
    tasks = [asyncio.create_task(rank.watch_until_end()) for rank in ranks]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        _raise_defect(tasks)
        if any(_has_failed(task) for task in tasks):
            return await _build_failure_result(ctx, ranks, tasks, clocks)
        watched = next(task for task in tasks if task.done()).result()
        if watched.timed_out:
            return await _build_timeout_result(ranks, watched)
        return InstanceWatchResult(
            rank=ranks[0], proof=watched.proof, unproved=watched.unproved, first_token=watched.first_token
        )
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _raise_defect(tasks: Sequence[asyncio.Task[WatchResult]]) -> None:
    """Raise what a rank's watch raised, unless it is an error of its node: that is a result."""
    for task in tasks:
        if task.done() and not task.cancelled() and not isinstance(task.exception(), SparkctlError):
            task.result()


def _has_failed(task: asyncio.Task[WatchResult]) -> bool:
    """Tell whether a rank's own watch ended with a failure; an error of its node does not count."""
    if not task.done() or task.cancelled() or task.exception() is not None:
        return False
    return task.result().verdict is not None and not task.result().timed_out


async def _build_timeout_result(ranks: Sequence[RankWatch], watched: WatchResult) -> InstanceWatchResult:
    """Return the result of a start whose time is over; nothing is stopped. The workers' progress is part of the
    evidence.
    """
    head, *workers = ranks
    for rank in workers:
        unknown = f"its rank of {rank.plan.instance} may still be running there"
        await require_connection(rank.session, unknown, f"when it answers again: {rank.again} continues the watch")
    verdict = watched.verdict
    if verdict is not None and workers:
        more = tuple(Evidence(f"{rank.plan.node} was {rank.progress_text}", "clock") for rank in workers)
        verdict = replace(verdict, evidence=(*verdict.evidence, *more))
    failed = await head.diagnose_failure(verdict, timed_out=True)
    return InstanceWatchResult(rank=head, verdict=failed.verdict, timed_out=True, log=failed.log)


async def _build_failure_result(
    ctx: CommandContext, ranks: Sequence[RankWatch], tasks: Sequence[asyncio.Task[WatchResult]], clocks: ClockOffsets
) -> InstanceWatchResult:
    """Find the rank that failed first, and stop the others."""
    if len(ranks) == 1:
        failed = await ranks[0].diagnose_failure(tasks[0].result().verdict)
        return InstanceWatchResult(rank=ranks[0], verdict=failed.verdict, log=failed.log)
    await _wait_for_tasks(ctx, tasks, _FAILURE_GATHER_SECONDS)
    now = await measure_clock_offsets([rank for rank in ranks if rank.session.link.status.state is NodeState.OK])
    # Messages after they were asked to stop are not failures of theirs.
    verdicts = [
        task.result().verdict if _has_failed(task) else rank.current_verdict
        for rank, task in zip(ranks, tasks, strict=True)
    ]
    await gather_or_cancel(*(rank.stop_rank() for rank in ranks))
    await _wait_for_tasks(
        ctx,
        [task for task, rank in zip(tasks, ranks, strict=True) if rank.session.link.status.state is NodeState.OK],
        _LOG_END_SECONDS,
    )
    _raise_defect(tasks)
    failures = [
        (rank, await rank.diagnose_failure(verdict))
        for rank, verdict in zip(ranks, verdicts, strict=True)
        if verdict is not None
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
    return InstanceWatchResult(
        rank=rank, verdict=_merge_verdicts(rank, failed, failures, ranks), log=failed.log, more_logs=more
    )


async def _wait_for_tasks(ctx: CommandContext, tasks: Sequence[asyncio.Task[WatchResult]], patience: float) -> None:
    """Wait until all are done, ``patience`` seconds at most."""
    left = [task for task in tasks if not task.done()]
    if not left:
        return
    await run_until_first(asyncio.wait(left), ctx.clock.sleep(patience))


def _find_first_failure(failures: Sequence[tuple[RankWatch, RankStartFailure]], clocks: ClockOffsets) -> NodeName:
    return find_first_failure(
        [
            RankFailure(
                node=rank.plan.node,
                cause=one.verdict.cause if one.verdict else FailureCause.CRASHED,
                at=one.at,
                is_aftermath=one.is_aftermath,
                is_bare_exit=one.is_bare_exit,
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
    """Return one verdict: the first failure's, naming its node, with independent failures of other ranks added."""
    if failed.verdict is None:
        return None
    others = [
        _add_rank_name(other, failure.verdict)
        for other, failure in failures
        if other is not rank and failure.verdict is not None and not failure.is_aftermath
    ]
    merged = rank_verdict.add_peer_log_commands(
        _add_rank_name(rank, failed.verdict), rank.plan.instance, rank.plan.node, [one.plan.node for one in ranks]
    )
    return rank_verdict.merge_rank_verdicts(merged, others)


def _add_rank_name(rank: RankWatch, verdict: Verdict) -> Verdict:
    return rank_verdict.add_rank_name(verdict, rank.plan.rank, rank.plan.ranks, rank.plan.node)
