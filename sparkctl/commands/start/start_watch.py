"""Watches one container's start until it is ready or has failed: its log, the time limit of each phase, health and a
first token.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing, suppress
from dataclasses import replace

from sparkctl.commands.event_stream import build_missing_lines_warning
from sparkctl.commands.guard_session import is_loading_weights
from sparkctl.concurrency import run_until_first
from sparkctl.context import CommandContext
from sparkctl.engines.base import Engine
from sparkctl.errors import (
    ConnectionLost,
    ContainerNotFound,
    DockerError,
    DockerUnavailable,
    LogUnreadable,
    NodeError,
    NodeStarved,
    NodeUnreachable,
)
from sparkctl.history.log_archive import SavedLogWriter
from sparkctl.logs import start_verdict
from sparkctl.logs.analyzer import LogAnalyzer
from sparkctl.logs.line_patterns import drop_own_requests, parse_log_time
from sparkctl.logs.reader import LogFeed
from sparkctl.logs.verdict_builder import build_verdict, build_verdict_from_line
from sparkctl.model.container import Container, ContainerState
from sparkctl.model.engine_metrics import EngineFact
from sparkctl.model.events import Emit, EngineFactsReported, LogArrived, PhaseChanged, WarningEmitted
from sparkctl.model.launch_plan import PROVED_PROBES, LaunchPlan
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import NodeState
from sparkctl.model.phase import ExpectedDurations, Phase, Step
from sparkctl.model.text.log_line import LogLine
from sparkctl.model.text.secrets import redact
from sparkctl.model.verdict import Verdict
from sparkctl.monitor import engine_probe
from sparkctl.monitor.engine_probe import QueryMarkerSupport
from sparkctl.transport.node_session import NodeSession

_POLL_SECONDS = 1.0
_ANSWER_SECONDS = 10.0  # seconds for a node's answer to nothing but whether it is there
_PAUSE_CHECK_SECONDS = 5.0  # seconds between checks for `docker pause`
_FATAL_GRACE_SECONDS = 10.0  # after a fatal line the process usually ends by itself and logs more
_KEY_QUESTION = "a request without its key"
_QUIET_SECONDS = 60.0  # seconds without an answer until a service whose log does not say that it is up is warned of
_PROOF_PATIENCE_SECONDS = 10.0  # a service that answers without proof for so long is up, and not proved
_DOCKER_RETRY_SECONDS = (0.5, 1.0, 2.0, 4.0, 8.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchResult:
    """How the watch ended: ready (no verdict), or with a verdict; ``timed_out``: the only reason is the time limit.

    ``proof``: what proved it ready, in words. ``unproved``: it is up, and this is why nothing proves that it works.
    ``first_token``: seconds from the first request to its token; None where no token was asked for.
    """

    verdict: Verdict | None = None
    timed_out: bool = False
    proof: str | None = None
    unproved: str | None = None
    first_token: float | None = None


def collect_plan_secrets(plan: LaunchPlan) -> frozenset[str]:
    """Return every secret value in a plan, to mask them in the engine's output."""
    return plan.secret_values


class StartWatch:
    """One start on one node. `run` returns when it is ready, failed or out of time; it never stops the container.

    A worker of a model over several Sparks serves nobody: it is never ready or late by itself, it can only fail.

    Attributes:
        failed_at: when the first line of a lasting failure was written, by the node's clock, unix seconds.
        began: when the command began, by the context's clock; elapsed times and the timeout count from it.
        again: the command that repeats the start.
        since: where the log begins for this start, by the node's clock, unix seconds.
    """

    def __init__(
        self,
        session: NodeSession,
        engine: Engine,
        plan: LaunchPlan,
        container_id: str,
        ctx: CommandContext,
        emit: Emit,
        began: float | None,
        again: str | None,
        since: float | None,
    ) -> None:
        self.session = session
        self.plan = plan
        self.container_id = container_id
        self.ctx = ctx
        self.emit = emit
        self.log = LogAnalyzer(engine=engine, ready=plan.ready)
        self.began = ctx.clock.monotonic() if began is None else began
        self.again = again or f"sparkctl up {plan.profile} --node {plan.node}"
        self.since = since
        self.expected = ExpectedDurations()
        self.saved: SavedLogWriter | None = None
        self._secrets = collect_plan_secrets(plan)
        self._phase_began = ctx.clock.monotonic()
        self._why_not: str | None = None
        self._facts: tuple[EngineFact, ...] = ()  # as last reported
        self._moved = asyncio.Event()
        self._stamps: dict[int, str] = {}  # when the lines of failures were written, by their number
        self._reported: tuple[Phase, Step | None] | None = None
        self._unreadable: LogUnreadable | None = None  # Docker cannot read its log: only its endpoints are watched
        self._is_paused = False

    async def run(self, timeout: float | None) -> WatchResult:
        """Watch until the end; ``timeout`` in seconds counts for the whole command."""
        works = [self._follow_to_end(), self._wait_for_fatal(), self._watch_for_pauses()]
        if self.plan.rank == 0:
            works[1:1] = [self._wait_until_ready()]
            works.append(self._watch_timeouts(timeout))
        # In the order of the list: a container that has ended counts as ended, whatever was true a moment ago.
        return (await run_until_first(*works))[1]

    def loads_weights(self) -> bool:
        """Tell whether the log says that weights are loading now."""
        return is_loading_weights(self.log.phase, self.log.step)

    @property
    def failed_at(self) -> float | None:
        """The time of the first lasting failure; None where the log has none or has no times."""
        numbers = [seen.number for seen in self.log.open_failures if seen.number in self._stamps]
        at = parse_log_time(self._stamps[min(numbers)], "") if numbers else None
        return None if at is None else at.seconds

    def report_phase(self, phase: Phase | None = None, detail: str | None = None) -> None:
        now = self.ctx.clock.monotonic()
        phase = phase or self.log.phase
        if self._reported is None or self._reported[0] is not phase:
            self._phase_began = now
        self._reported = (phase, self.log.step)
        self.emit(
            PhaseChanged(
                ts=self.ctx.clock.unix_time(), node=self.plan.node, instance=self.plan.instance, phase=phase,
                step=None if phase is Phase.READY else self.log.step, elapsed=now - self.began, expected=self.expected.seconds, detail=detail,
                expected_parts=self.expected.parts,
            )
        )  # fmt: skip

    # the log

    async def _follow_to_end(self) -> WatchResult:
        """Follow the log through reconnects and restarts of Docker until the container has really ended."""
        feed = LogFeed(
            self.session,
            self.container_id,
            since=self.since,
            secrets=self._secrets,
            on_gap=lambda: self.emit(build_missing_lines_warning(self.ctx, self.plan.node, self.plan.instance)),
            analyzer=self.log,
        )
        self.report_phase()
        failures = 0
        while True:
            try:
                if (failures or self._unreadable) and (ended := await self._check_container_end()) is not None:
                    return ended
                if self._unreadable is not None:
                    failures = 0
                    continue
                async with aclosing(feed.follow_lines()) as batches:
                    async for batch in batches:
                        failures = 0
                        self._read_batch(batch)
                ended = await self._check_container_end()
                if ended is not None:
                    return ended
            except ConnectionLost:
                await self.session.link.reconnect()
            except ContainerNotFound:
                return WatchResult(verdict=start_verdict.build_exit_verdict(self.plan, self.log, None, self.again))
            except DockerUnavailable as down:
                if failures == 0:
                    self.emit(WarningEmitted(self.ctx.clock.unix_time(), self.plan.node, down.message, down.hint))
                await self.ctx.clock.sleep(_DOCKER_RETRY_SECONDS[min(failures, len(_DOCKER_RETRY_SECONDS) - 1)])
                failures += 1
            except LogUnreadable as silent:
                self._warn_log_unreadable(silent)
            except DockerError:
                # The log of a container that is being removed cannot be read: the container has ended, and that is no error of ours.
                if failures == len(_DOCKER_RETRY_SECONDS):
                    raise
                await self.ctx.clock.sleep(_DOCKER_RETRY_SECONDS[failures])
                failures += 1

    def _warn_log_unreadable(self, silent: LogUnreadable) -> None:
        what = f"{silent.message}; {self.plan.instance} is watched by its answers and its exit code alone"
        self.emit(WarningEmitted(self.ctx.clock.unix_time(), self.plan.node, what, silent.hint))
        self._unreadable = silent
        self._moved.set()

    def _read_batch(self, lines: Sequence[LogLine]) -> None:
        if self.saved is not None and self.saved.failed is None:
            self.saved.write(lines)
            if self.saved.failed is not None:
                what = f"the log of {self.plan.instance} is not saved any more: {self.saved.failed}"
                self.emit(WarningEmitted(self.ctx.clock.unix_time(), self.plan.node, what, None))
        moved = self.log.feed_lines(lines)
        self._record_failure_times(lines)
        if shown_lines := drop_own_requests(lines):
            self.emit(
                LogArrived(
                    ts=self.ctx.clock.unix_time(), node=self.plan.node, instance=self.plan.instance, lines=shown_lines
                )
            )
        if moved:
            self.report_phase()
        facts = tuple(self.log.facts.values())
        if facts != self._facts:
            self._facts = facts
            self.emit(EngineFactsReported(self.ctx.clock.unix_time(), self.plan.node, self.container_id, facts))
        self._moved.set()

    def _record_failure_times(self, lines: Sequence[LogLine]) -> None:
        """Record when the lines of new failures were written."""
        for seen in self.log.failures:
            if seen.number not in self._stamps:
                self._stamps[seen.number] = next(
                    (one.when for one in lines if one.number == seen.number), lines[0].when
                )

    async def _check_container_end(self) -> WatchResult | None:
        """Ask Docker how the container ended, because an ended stream proves nothing; None while it runs."""
        container: Container | None
        try:
            container = await self.session.docker.inspect_container(self.container_id)
        except ContainerNotFound:
            container = None
        if container is not None and container.is_alive:
            await self.ctx.clock.sleep(_POLL_SECONDS)
            return None
        if container is not None and container.error:
            container = replace(container, error=redact(container.error, self._secrets))  # it quotes the command
        requests = None if container is None else await find_stop_signals(self.session, container)
        verdict = start_verdict.build_exit_verdict(self.plan, self.log, container, self.again, requests)
        if self._unreadable is not None and self._unreadable.hint is not None:
            verdict = replace(verdict, remedy=f"No log says why: {self._unreadable.hint}.")
        return WatchResult(verdict=verdict)

    # ready

    async def _wait_until_ready(self) -> WatchResult:
        service, marker_support = self.plan.readiness_target, QueryMarkerSupport()
        is_asked = service.port is not None and (service.ready.health is not None or service.ready.probe != "none")
        while not self.log.ready_line_seen and not (self._unreadable is not None and is_asked):
            self._moved.clear()
            await self._moved.wait()
        proof: str | None = None
        first_token: float | None = None
        began, is_warned = self.ctx.clock.monotonic(), service.ready.line is not None  # with one it is known to be up
        token_question = "one token" if service.ready.probe not in PROVED_PROBES else service.ready.probe
        for question in ("health", token_question, *((_KEY_QUESTION,) if service.ready.requires_key else ())):
            answered_at: float | None = None
            asked_at = self.ctx.clock.monotonic()
            while True:
                self._why_not = self._why_not or f"{question}: asked, no answer yet"
                try:
                    if question == "health":
                        answer = await engine_probe.check_health(
                            self.session.link, service, marker_support=marker_support
                        )
                    elif question == _KEY_QUESTION:
                        answer = await engine_probe.check_key_required(
                            self.session.link, service, marker_support=marker_support
                        )
                    else:
                        service = await engine_probe.resolve_served_model(self.session.link, service, marker_support)
                        answer = await engine_probe.request_work(
                            self.session.link, service, self.ctx.clock, marker_support
                        )
                        proof = answer.what
                except ConnectionLost:
                    await self.session.link.reconnect()
                    continue
                if answer.good:
                    self._why_not = None
                    if question == "one token" and service.ready.probe != "none":
                        first_token = self.ctx.clock.monotonic() - asked_at
                    break
                self._why_not = answer.format_masked(self._secrets)
                now = self.ctx.clock.monotonic()
                answered_at = None if not answer.unproven else now if answered_at is None else answered_at
                if answered_at is not None and now - answered_at > _PROOF_PATIENCE_SECONDS:
                    return WatchResult(unproved=self._why_not)
                if not is_warned and now - began > _QUIET_SECONDS:
                    is_warned = True
                    self._warn_quiet(service.port)
                await self.ctx.clock.sleep(_POLL_SECONDS)
        return WatchResult(proof=proof if service.ready.probe in PROVED_PROBES else None, first_token=first_token)

    def _warn_quiet(self, port: int | None) -> None:
        """Warn that nothing tells whether the service still loads, or listens elsewhere and will never answer."""
        plan = self.plan
        what = f"{plan.instance} runs and does not answer yet: {self._why_not}"
        ways = (
            f"see whether it still loads: sparkctl logs {plan.instance} --node {plan.node}",
            f"see whether it listens on port {port}: on {plan.node}: sudo ss -ltnp",
        )
        self.emit(WarningEmitted(self.ctx.clock.unix_time(), plan.node, what, "\n".join(ways)))

    async def _wait_for_fatal(self) -> WatchResult:
        while (fatal := self.log.fatal_line) is None:
            self._moved.clear()
            await self._moved.wait()
        await self.ctx.clock.sleep(_FATAL_GRACE_SECONDS)
        return WatchResult(verdict=build_verdict(self.log, self.plan) or build_verdict_from_line(fatal, self.plan))

    # time

    async def _watch_timeouts(self, timeout: float | None) -> WatchResult:
        limits = self.plan.timeouts
        while True:
            now = self.ctx.clock.monotonic()
            phase = self.log.phase
            if timeout is not None and now - self.began > timeout:
                return await self._build_timeout_result(phase, now - self.began, "--timeout")
            limit = {Phase.STARTING: limits.starting, Phase.LOADING: limits.loading, Phase.WARMING: limits.warming}.get(
                phase
            )
            name = f"start.timeouts.{phase}"
            if self._unreadable is not None:  # without a log no phase is known: use the limits of all phases together
                limit, name = limits.starting + limits.loading + limits.warming, "start.timeouts.loading"
            if limit is not None and now - self._phase_began > limit:
                return await self._build_timeout_result(phase, now - self._phase_began, name)
            await self.ctx.clock.sleep(0.2)

    async def _watch_for_pauses(self) -> WatchResult:
        """Warn as soon as somebody pauses the container, and again when it is unpaused."""
        while True:
            await self.ctx.clock.sleep(_PAUSE_CHECK_SECONDS)
            await self._check_for_pause()

    async def _check_for_pause(self) -> None:
        with suppress(DockerError, NodeError):
            container = await self.session.docker.inspect_container(self.container_id)
            is_paused = container.state is ContainerState.PAUSED
            if is_paused is not self._is_paused:
                self._is_paused = is_paused
                what, hint = f"{self.plan.instance} is no longer paused: its start continues", None
                if is_paused:
                    what = f"{self.plan.instance} is paused (docker pause): its start is halted"
                    hint = f"on {self.plan.node}: docker unpause {self.plan.container_name}"
                self.emit(WarningEmitted(self.ctx.clock.unix_time(), self.plan.node, what, hint))

    async def _build_timeout_result(self, phase: Phase, seconds: float, limit: str) -> WatchResult:
        unknown = f"{self.plan.instance} may still be running there"
        await require_connection(self.session, unknown, f"when it answers again: {self.again} continues the watch")
        await self._check_for_pause()
        if self._is_paused:
            return WatchResult(
                verdict=start_verdict.build_pause_verdict(self.plan, self.log, phase, seconds, self.again),
                timed_out=True,
            )
        return WatchResult(
            verdict=start_verdict.build_timeout_verdict(self.plan, self.log, phase, seconds, limit, self._why_not),
            timed_out=True,
        )


async def find_stop_signals(session: NodeSession, container: Container) -> tuple[int, ...] | None:
    """Return the signals that Docker was asked to send to a container, None where that is not known."""
    try:
        return await session.docker.find_stop_signals(container)
    except (DockerError, NodeError):
        return None


async def require_connection(session: NodeSession, unknown: str, hint: str) -> None:
    """Raise `NodeUnreachable` where the node is not there when a time limit is reached; ``unknown``: what is not known
    then, as a sentence.

    The node is asked, because a link that has gone silent counts as connected for a while.
    """
    node, link, why = session.node.name, session.link, f"no answer within {_ANSWER_SECONDS:g} s"
    try:
        if link.status.state is NodeState.OK:
            await link.run(["true"], timeout=_ANSWER_SECONDS)
            return
        why = link.status.detail or link.status.state
    except NodeStarved:  # it is there, and slow
        return
    except NodeError as error:
        why = error.message
    except TimeoutError:
        pass
    raise NodeUnreachable(node, f"{node} was lost ({why}) and did not reconnect in time; {unknown}", hint)
