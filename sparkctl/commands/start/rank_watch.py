"""One rank while it starts, on its node: its log as it comes, its guard, and why it failed. Whoever began it: `up`, or the way
back of a switch."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass

from sparkctl.commands.context import CommandContext
from sparkctl.commands.event_stream import Emit
from sparkctl.commands.guard_session import GuardSession
from sparkctl.commands.start.container_watch import StartWatch, WatchResult, secrets_of
from sparkctl.engines.base import Engine
from sparkctl.errors import DockerError, NodeError
from sparkctl.logs import start_verdict, verdict_builder
from sparkctl.logs.saved_log import save_log
from sparkctl.model.events import Event, PhaseChanged, WarningEmitted
from sparkctl.model.guard_state import GuardReceipt, UnwatchReason
from sparkctl.model.launch_plan import LaunchPlan
from sparkctl.model.node import NodeName
from sparkctl.model.phase import ExpectedDurations, Phase
from sparkctl.model.verdict import Verdict
from sparkctl.monitor import guard_receipts
from sparkctl.transport.session import Session

_SIGKILLED = 137


@dataclass(frozen=True, slots=True)
class RankStartFailure:
    """Why a rank failed, or is late, and where its whole log lies. ``at``: when, by its node's clock, unix seconds;
    ``is_aftermath``: it says no more than that something else went wrong before."""

    verdict: Verdict | None
    log: str | None
    at: float | None
    is_aftermath: bool = False


class RankWatch:
    """``container_id`` is empty until there is one. ``began`` is the verb's, by the context's clock; ``again`` the command that
    asks for the same once more; ``timeout`` in seconds for the whole verb. ``since``: where its log begins for this start, by
    the node's clock (unix seconds), None: at its beginning."""

    def __init__(
        self,
        ctx: CommandContext,
        session: Session,
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
        self.drop_was_told = False  # that the page cache cannot be dropped here
        self._watch: StartWatch | None = None

    # its guard

    async def arm(self) -> None:
        """Have the guard on the node before there is anything to guard."""
        if self.plan.guard is not None:
            self.guard = GuardSession(self.session, self.ctx, self.emit, self.plan, self.plan.guard)
            await self.guard.arm(drop_was_told=self.drop_was_told)

    async def guard_container(self, container_id: str) -> None:
        """Have the guard watch a container."""
        if self.guard is not None:
            await self.guard.watch(container_id)

    async def detach(self) -> None:
        """Go, and leave what was begun: the guard stays armed."""
        if self.guard is not None:
            await self.guard.detach()

    # watching

    async def watch(self) -> WatchResult:
        """Watch it to its end: ready, failed or out of time; its log is saved as it comes."""
        plan, container_id = self.plan, self.container_id
        watch = StartWatch(
            self.session, self.engine, plan, container_id, self.ctx, self._step, self.began, self.again, self.since
        )
        self._watch = watch
        watch.expected = self.expected_duration()
        try:
            watch.saved = self.ctx.history.log_writer(plan.instance, plan.node, container_id, secrets_of(plan))
        except OSError as error:
            self.warn(f"the log will not be saved here: {error}")
        guarding = None if self.guard is None else asyncio.create_task(self.guard.renew_lease(watch.loads_weights))
        try:
            return await watch.run(self.timeout)
        finally:
            if watch.saved is not None:
                watch.saved.close()
            if guarding is not None:
                await cancel_or_raise(guarding)

    def expected_duration(self) -> ExpectedDurations:
        """Return how long its start usually takes, as far as starts of it were seen."""
        return self.ctx.history.expected(self.plan.profile, self.plan.profile_hash, self.plan.node)

    async def record_ready(self) -> None:
        """End the guard's watch, and say that it is ready."""
        if self.guard is not None:
            await self.guard.stop_watching(UnwatchReason.READY)
        if self._watch is not None:
            self._watch.report(
                Phase.READY, None if self.plan.ranks == 1 else f"rank {self.plan.rank} of {self.plan.ranks}"
            )

    @property
    def current_verdict(self) -> Verdict | None:
        """What its log alone says of why it cannot go on, None while it says nothing of the kind."""
        return None if self._watch is None else verdict_builder.build_verdict(self._watch.log, self.plan)

    @property
    def describe_progress(self) -> str:
        """How far it is, in words."""
        if self._watch is None:
            return str(Phase.UNKNOWN)
        step = self._watch.log.step
        return f"{self._watch.log.phase}{f' ({step.name})' if step else ''}"

    async def failed(self, verdict: Verdict | None, *, timed_out: bool = False) -> RankStartFailure:
        """Find out why it failed, or is late; what the guard did there outweighs the log."""
        assert self._watch is not None
        watch, at, receipt = self._watch, self._watch.failed_at, None
        log = str(watch.saved.path) if watch.saved else None
        if not timed_out:
            watch.report(Phase.FAILED)
        try:
            container = await self.session.docker.inspect_container(self.container_id)
            at = container.finished if at is None else at
            if container.exit_code == _SIGKILLED and not container.is_alive and not timed_out:
                receipt = await self._receipt()
            if not container.is_alive:
                log = (await save_log(self.session, self.ctx, self.emit, container, secrets_of(self.plan))).path or log
        except (DockerError, NodeError):
            pass  # what was followed is saved; the verdict stands without another look
        if receipt is not None:
            guard_receipts.save_receipt(self.ctx, self.session, receipt, self.warn)
            at, claim = receipt.at, self.engine.memory_setting
            within = None if self.guard is None else self.guard.watched_for
            claims = None if claim is None else self.plan.get_flag_value(claim.removeprefix("args."))
            verdict = start_verdict.verdict_of_guard_kill(self.plan, watch.log, receipt, claim, claims, within)
        return RankStartFailure(
            verdict, log, at, verdict is not None and verdict_builder.is_consequence(watch.log, verdict)
        )

    async def end(self) -> None:
        """Stop the container, which is kept with its log: another rank has failed, and without it this one is of no use."""
        try:
            if (await self.session.docker.inspect_container(self.container_id)).is_alive:
                if self.guard is not None:
                    await self.guard.stop_watching(UnwatchReason.STOPPED)
                await self.session.docker.stop(self.container_id, self.plan.stop_grace)
        except (DockerError, NodeError) as error:
            self.warn(
                f"whether its rank on {self.plan.node} has ended is not known: {error.message}",
                f"when it answers again: sparkctl down {self.plan.instance}",
            )

    async def save_log_after_stop(self, other: NodeName) -> str | None:
        """Say that it was stopped because another rank had failed, and have its whole log; return where that lies."""
        log = None if self._watch is None or self._watch.saved is None else str(self._watch.saved.path)
        with suppress(DockerError, NodeError):
            container = await self.session.docker.inspect_container(self.container_id)
            if not container.is_alive:
                log = (await save_log(self.session, self.ctx, self.emit, container, secrets_of(self.plan))).path or log
                if self._watch is not None:
                    self._watch.report(Phase.STOPPED, f"its rank on {other} failed")
        return log

    async def _receipt(self) -> GuardReceipt | None:
        return await (
            self.guard.receipt() if self.guard else guard_receipts.read_receipt(self.session, self.container_id)
        )

    def _step(self, event: Event) -> None:
        """Let the guard know of every step at once."""
        self.emit(event)
        if self.guard is not None and isinstance(event, PhaseChanged):
            self.guard.stepped.set()

    # saying

    def warn(self, message: str, hint: str | None = None) -> None:
        """Say something of this node that does not end the start."""
        self.emit(WarningEmitted(self.ctx.clock.unix_time(), self.plan.node, message, hint))


async def cancel_or_raise(task: asyncio.Task[None]) -> None:
    """End a task that runs beside; a defect in it is not hidden."""
    if not task.done():
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    elif not task.cancelled():
        task.result()
