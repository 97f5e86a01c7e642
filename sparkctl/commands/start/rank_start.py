"""One rank's part of a start on its node: inspect, decide, create the container, watch it. `start_instance` calls each step.

The container is created exactly once, also over a lost connection, and removed completely on failure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from sparkctl.commands.drop_page_cache import try_drop_node_caches
from sparkctl.commands.guard_session import stop_watching_containers
from sparkctl.commands.start import node_fit
from sparkctl.commands.start.connectivity_check import verify_port_access
from sparkctl.commands.start.launch_plans import RankLaunch, build_changed_plan
from sparkctl.commands.start.missing_parts import build_missing_event, describe_way_to_get, find_missing_parts
from sparkctl.commands.start.rank_watch import RankWatch
from sparkctl.commands.start.start_measurements import StartMemory, StartTimer, add_measured_weights
from sparkctl.commands.start.start_preflight import (
    PreflightInspection,
    StartDecision,
    decide_start,
)
from sparkctl.commands.start.start_request import StartInstance
from sparkctl.commands.start.start_watch import WatchResult, collect_plan_secrets, require_connection
from sparkctl.commands.stop.stop_containers import remove_ended_container, stop_instance_container
from sparkctl.concurrency import gather_or_cancel, run_in_background
from sparkctl.context import CommandContext, CommandInterrupted, NodeLock
from sparkctl.errors import (
    ConnectionLost,
    ContainerNotFound,
    DockerError,
    NodeError,
    NodeStarved,
    OperationRefused,
    PortInUse,
    SparkctlError,
)
from sparkctl.history.model import NodeResult
from sparkctl.history.start_diff import describe_changes
from sparkctl.logs import start_verdict, verdict_builder
from sparkctl.model.container import Container, ContainerState
from sparkctl.model.events import Emit, MemorySampled, PhaseChanged
from sparkctl.model.launch_plan import PROVED_PROBES, ContainerLabel, LaunchPlan
from sparkctl.model.missing_part import MissingPart, PartKind
from sparkctl.model.phase import ExpectedDurations, Phase
from sparkctl.model.questions import RetryStartQuestion
from sparkctl.model.text.units import format_duration, format_time_of_day
from sparkctl.model.verdict import ChangeDirection, Evidence, FailureCause, FieldChange, Verdict
from sparkctl.monitor import engine_probe, guard_client, switch_journal_io
from sparkctl.monitor.engine_probe import ProbeResult, QueryMarkerSupport, request_proof
from sparkctl.node import model_files_decoder
from sparkctl.node.model_files_decoder import WeightsCheck
from sparkctl.profiles.container_labels import find_container_api_key
from sparkctl.profiles.fit_evaluation import list_checkpoint_paths
from sparkctl.profiles.setting_proof import SettingProof
from sparkctl.transport.node_session import NodeSession

_FAILURE_WINDOW_SECONDS = 3600.0
_FAILURES_BEFORE_QUESTION = 2  # failed starts within them
_HEADERS_TIMEOUT_SECONDS = 10.0  # seconds: the start waits no longer for what it can do without

WarnFunction = Callable[[str], None]


async def collect_guard_receipts(
    session: NodeSession, ctx: CommandContext, plan: LaunchPlan, warn: WarnFunction
) -> None:
    """Fetch receipts that the guard wrote while nobody was connected, and report how an earlier start ended."""
    for receipt in (await guard_client.read_guard_directory(session)).receipts:
        if guard_client.save_receipt(ctx, session, receipt, warn) and receipt.instance == plan.instance:
            when = format_time_of_day(receipt.at)
            warn(f"the guard stopped {plan.instance} at {when}: {start_verdict.describe_guard_kill(receipt)}")


def list_recent_failures(ctx: CommandContext, plans: Sequence[LaunchPlan]) -> tuple[tuple[float, str], ...]:
    """Return (unix seconds, cause) of the last hour's failed starts since the last good one, oldest first."""
    since = ctx.clock.unix_time() - _FAILURE_WINDOW_SECONDS
    found = {one for plan in plans for one in ctx.history.get_failures_since_ready(plan.profile, plan.node, since)}
    return tuple(sorted(found))


async def confirm_after_failures(ctx: CommandContext, plans: Sequence[LaunchPlan], again: str) -> None:
    """Ask before a third start where two in a row have failed, or refuse it.

    ``plans``: those of all ranks, the head's first; a failure of any of them counts. ``again``: the command that
    repeats the start. Raises `OperationRefused` where the answer is no, or nobody answers.
    """
    head, failures = plans[0], list_recent_failures(ctx, plans)
    if len(failures) < _FAILURES_BEFORE_QUESTION or await ctx.prompter.ask_yes_no(
        RetryStartQuestion(head.node, head.profile, failures)
    ):
        return
    causes = [cause for _, cause in failures]  # by the names that `sparkctl help` knows
    how = f"each time: {causes[0]}" if len(set(causes)) == 1 else ", ".join(causes)
    raise OperationRefused(
        f"{head.profile} failed on {' and '.join(plan.node for plan in plans)} {len(failures)} times within the last hour "
        f"({how}); nothing was started",
        f"see why: sparkctl diagnose {head.instance} --node {head.node}\nstart it anyway: {again} --again",
    )


def record_start_failure(
    ctx: CommandContext, plan: LaunchPlan, container: str, verdict: Verdict, warn: WarnFunction, *, counts: bool
) -> None:
    """Save the reason of this failed start next to its log; ``counts``: as a failure, not only as a timeout."""
    try:
        ctx.history.save_verdict(plan.instance, plan.node, container, verdict)
        if counts and ctx.operation is not None:
            ctx.record_node_result(
                NodeResult(
                    node=plan.node, instance=plan.instance, container=container or None, cause=str(verdict.cause)
                )
            )
        elif counts:
            now = ctx.clock.unix_time()
            ctx.history.record_failure(plan.profile, plan.profile_hash, plan.node, verdict.cause, container, now)
    except OSError as error:
        warn(f"this failed start was not saved in the history: {error}")


_NODE_SECTIONS = ("identity", "memory", "processes", "gpu", "listen", "docker")


class RankStart(RankWatch):
    """One container's start. Its attributes pass results from earlier steps to later ones; ``began`` is the
    command's.
    """

    def __init__(
        self,
        ctx: CommandContext,
        request: StartInstance,
        session: NodeSession,
        launch: RankLaunch,
        emit: Emit,
        began: float,
        proof: SettingProof,
    ) -> None:
        super().__init__(
            ctx,
            session,
            engine=request.engine,
            plan=launch.plan,
            emit=emit,
            began=began,
            again=request.retry_command,
            timeout=request.timeout,
        )
        self.request, self._alone, self._proof = request, launch.alone, proof
        self.scene: PreflightInspection | None = None
        self._weights: tuple[WeightsCheck, ...] | None = None
        self.measured: node_fit.MeasuredNode | None = None
        self.decision = StartDecision()
        self.stopped_another = False
        self.refuse_wrong_flags: Callable[[], None] = lambda: None  # before it says what is missing
        self.timing = StartTimer(ctx, request.profile)
        self.fit = StartMemory(ctx, request.profile, request.build_retry_command, proof, forced=request.forced)
        self.fit.emit = emit

    # inspect and decide

    async def inspect_node(self) -> None:
        """Inspect everything that the decision needs."""
        session, plan = self.session, self.plan
        models = node_fit.list_model_sections(self.request.profile, plan)
        found, self._weights = await gather_or_cancel(
            node_fit.inspect_for_start(session, plan, *_NODE_SECTIONS, "journal", *models), self._read_tensor_sizes()
        )
        inspection = found.node_inspection
        switch_journal_io.refuse_if_journal_found(
            session.node.name, self.ctx, inspection.journal, self.emit if self.request.dry_run else None
        )
        if inspection.memory is not None:
            self.emit(MemorySampled(self.ctx.clock.unix_time(), session.node.name, inspection.memory))
        kept = self.request.kept
        self.scene = replace(found, containers=tuple(one for one in found.containers if one.id not in kept))
        self.measured = node_fit.MeasuredNode(
            ctx=self.ctx,
            node_inspection=inspection,
            containers=self.scene.containers,
            loading_ids=await node_fit.find_loading_containers(session, inspection, self.scene.containers),
            node_count=len(self.request.nodes),
            build_plan=partial(build_changed_plan, self.ctx, self.request, session),
            reserved=self.request.reserved.get(session.node.name, 0),
        )
        self.ctx.record_node_result(build_node_result(plan, self.scene))

    async def _read_tensor_sizes(self) -> tuple[WeightsCheck, ...]:
        """Read the headers of the model's files, once; empty where they are not known. They only make `top` more exact."""
        where = list_checkpoint_paths(self.request.profile, self._alone)
        if self._weights is not None or not where:
            return self._weights or ()
        command = model_files_decoder.build_weights_check_command(where)
        try:
            done = await self.session.run(command, timeout=_HEADERS_TIMEOUT_SECONDS)
            return model_files_decoder.decode_weights_check(done.stdout)
        except (NodeStarved, ValueError, KeyError, TypeError):
            return ()

    async def decide_action(self) -> None:
        """Decide what to do from the last inspection; raises what prevents the start, but for what it lacks."""
        assert self.scene is not None
        assert self.measured is not None
        try:
            self.decision = decide_start(
                self.plan, self.scene, replace=self.request.replace, again=self.request.retry_command,
                describe_changes=self._describe_changes, propose=self._propose_change,
            )  # fmt: skip
        except PortInUse as busy:
            self.fit.refuse_certain_misfit(self._alone, self.measured, busy)
            raise
        if self.decision.attach is not None and self.plan.ready.requires_key:  # made by whoever started it
            run = await self.session.docker.read_run_options(self.decision.attach.id)
            self.plan = replace(self.plan, api_key=find_container_api_key(run))
        if self.decision.attach is None:
            await verify_port_access(self.session, self.plan)

    def check_parts_and_fit(self) -> None:
        """Raise `OperationRefused` where image or model is certainly not there whole, or it does not fit."""
        if self.decision.attach is not None:
            return
        assert self.measured is not None
        parts = self.find_missing()
        for part in parts:
            if part.is_required and (part.kind is PartKind.IMAGE or not self.request.forced):
                self.report_missing(parts)
                raise OperationRefused(part.sentence, describe_way_to_get(part, self.plan, self.request.retry_command))
        self.fit.check_fit(self._alone, self.measured, self.decision.stop)

    def _describe_changes(self, running: Container) -> str | None:
        record = self.ctx.history.find_start_of(self.plan.instance, running.id)
        return None if record is None else describe_changes(record, self.request.profile)

    def _propose_change(self, change: FieldChange) -> str | None:
        changes = (change,) if self.request.forced else self._proof.prove_changes(change)
        return None if changes is None else self.request.build_retry_command(*changes)

    def find_missing(self) -> tuple[MissingPart, ...]:
        """Return what the inspected node lacks."""
        assert self.scene is not None
        scene = self.scene
        models = scene.node_inspection.models
        return find_missing_parts(
            self.request.profile, self._alone, image=scene.image, engine=scene.engine, models=models
        )

    def report_missing(self, parts: Sequence[MissingPart]) -> None:
        """Emit what is missing. Raises `OperationRefused` where it does not fit even when that is there."""
        assert self.measured is not None
        self.fit.refuse_certain_misfit(self._alone, self.measured)
        self.refuse_wrong_flags()
        words = self.request.words or (self.request.profile.name,)
        self.emit(replace(build_missing_event(self.ctx, words, self.plan.node, parts), commands=()))

    def warn_of_decision(self) -> None:
        for message, hint in self.decision.warnings:
            self.warn(message, hint)

    async def collect_earlier_receipts(self) -> None:
        """Fetch what the guard of an earlier start left there, and report how that start ended."""
        await collect_guard_receipts(self.session, self.ctx, self.plan, self.warn)

    async def check_proof(self) -> ProbeResult | None:
        """Ask an instance that already runs for its proof; None where it is not up yet. Raises `OperationRefused` where
        its health answers and a request for a token fails.
        """
        plan = self.plan
        marker_support = QueryMarkerSupport()
        if not (
            await engine_probe.check_health(self.session.link, plan.readiness_target, marker_support=marker_support)
        ).good:
            return None
        answer = await request_proof(self.session.link, plan.readiness_target, self.ctx.clock, marker_support)
        if answer.good or answer.unproven:
            return answer
        if plan.ready.probe in PROVED_PROBES:
            return None  # it does not answer yet
        raise OperationRefused(
            f"{plan.instance} already runs on {plan.node} and its health answers, but "
            + answer.format_masked(collect_plan_secrets(plan)),
            f"see why: sparkctl logs {plan.instance} --node {plan.node}; start it again after: sparkctl down {plan.instance}",
        )

    # change

    async def stop_other_version(self) -> None:
        """Stop the other version of this instance that the decision found; raises where its container had to be
        kept.
        """
        other, plan = self.decision.stop, self.plan
        if other is None:
            return
        await stop_watching_containers(self.session, self.ctx, self.emit, [other.id])
        stopped = await stop_instance_container(self.session, self.ctx, self.emit, other, plan.stop_grace)
        self.stopped_another = True
        if not stopped.removed:
            raise SparkctlError(
                f"{other.name} was stopped and kept, because its log could not be saved; nothing was started",
                f"on {plan.node}: docker rm {other.name}, then: {self.request.retry_command}",
            )

    async def remove_ended_containers(self) -> None:
        """Remove sparkctl's ended containers that have the name."""
        for ended in self.decision.sweep:
            await remove_ended_container(self.session, self.ctx, self.emit, ended)

    async def drop_caches(self) -> None:
        """Drop the page cache, or warn that it is not possible."""
        self.report_own_phase(Phase.DROPPING_CACHES)
        failure = await try_drop_node_caches(self.session, self.ctx, self.emit, (self.request.profile,))
        if failure is not None:
            self.drop_was_reported = True
            self.warn(f"page cache not dropped: {failure.message}. The engine may find too little memory", failure.hint)

    async def create_rank_container(self, lock: NodeLock) -> None:
        """Create and start the container; the guard watches it from then on."""
        self.report_own_phase(Phase.CREATING)
        await lock.reacquire_if_lost()  # a suspended process may have lost it despite its connection
        models = self.scene.node_inspection.models if self.scene is not None else ()
        plan = add_measured_weights(self.plan, self._alone, self.request.profile, self._weights or (), models)
        self.container_id = await create_container(self.ctx, self.session, plan, lock, self.request.retry_command)
        with suppress(OSError):  # without it the later check for released memory uses what its processes held
            self.fit.save_baseline(self.plan, self.container_id)
        await self.guard_container(self.container_id)

    async def attach_to_running(self, container_id: str) -> None:
        """Attach to a start that is already running."""
        self.timing.has_joined = True
        self.warn(f"{self.plan.instance} is already being started on {self.plan.node}; watching it")
        await self.arm_guard()
        self.container_id = container_id
        await self.guard_container(container_id)

    async def remove_created_container(self) -> None:
        """Remove the container created here, because another rank's could not be created."""
        try:
            await self.session.docker.remove_container(self.container_id, force=True)
            self.warn(f"{self.plan.container_name} on {self.plan.node} was removed again: nothing is left half-started")
        except ContainerNotFound:
            pass
        except (DockerError, NodeError) as error:
            what = f"{self.plan.container_name} on {self.plan.node} could not be removed again: {error.message}"
            self.warn(what, f"sparkctl down {self.plan.instance}")

    # watch

    async def watch_until_end(self) -> WatchResult:
        """Watch it as any rank, and sample the memory that it takes."""
        with suppress(OSError):  # where the directory cannot be written, the attempt to save the log reports it
            self.ctx.history.save_start_command(self.plan.instance, self.plan.node, self.container_id, self.again)
            if self.plan.rank == 0 and self.plan.ready.probe not in (*PROVED_PROBES, "none"):
                self.ctx.history.note_awaited_token(self.plan.node, self.container_id)
        async with run_in_background(self.fit.sample_memory()):
            return await super().watch_until_end()

    def expected_duration(self) -> ExpectedDurations:
        """Return the expected duration, as read from the history before the start."""
        return self.timing.expected

    async def record_measurements(self, seconds: float) -> None:
        """Record the duration and memory of a start that became ready after so many seconds."""
        peak = await self.fit.measure_peak_bytes(self.container_id)
        try:
            self.timing.save_duration(self.plan, seconds, peak, self.fit.estimated_bytes)
        except OSError as error:
            self.warn(f"this start's duration was not saved: {error}")

    # report

    def report_own_phase(self, phase: Phase) -> None:
        """Emit a phase of sparkctl's own, not the engine's."""
        elapsed, usual = self.ctx.clock.monotonic() - self.began, self.timing.expected
        event = PhaseChanged(
            ts=self.ctx.clock.unix_time(),
            node=self.plan.node,
            instance=self.plan.instance,
            phase=phase,
            step=None,
            elapsed=elapsed,
            expected=usual.seconds,
        )
        self.emit(replace(event, expected_parts=usual.parts))


def verdict_of_create_timeout(plan: LaunchPlan, late: CreateTimeout) -> Verdict:
    """Return the verdict on a container that Docker took too long to create."""
    summary = f"Docker on {plan.node} took longer than {format_duration(plan.timeouts.creating)} to create {plan.container_name}."
    limit, evidence = "start.timeouts.creating", (Evidence(late.message, "docker"),)
    return Verdict(
        cause=FailureCause.TIMED_OUT,
        summary=summary,
        evidence=evidence,
        remedy=late.hint or "",
        field=limit,
        edit=verdict_builder.suggest_field_change(plan, limit, ChangeDirection.RAISE),
    )


def build_node_result(plan: LaunchPlan, scene: PreflightInspection) -> NodeResult:
    """Return what the inspection before a start knows of its node, for the history."""
    identity = scene.node_inspection.identity
    return NodeResult(
        node=plan.node,
        instance=plan.instance,
        image_digest=scene.image.id if scene.image is not None else None,
        driver=(identity.driver or None) if identity is not None else None,
        kernel=(identity.kernel or None) if identity is not None else None,
    )


_UNDO_TIMEOUT_SECONDS = 15.0


class CreateTimeout(DockerError):
    """Docker did not answer the create request within its time limit."""


async def create_container(
    ctx: CommandContext, session: NodeSession, plan: LaunchPlan, lock: NodeLock, again: str
) -> str:
    """Create and start the container. The first Ctrl-C lets this finish (the engine then runs on), a second one undoes
    it.

    ``again``: the command that repeats the start. Raises `CreateTimeout` where Docker takes too long, and `NodeError`
    where the node is lost: what Docker did is not known then, and nothing is undone.
    """
    # no TaskGroup: after the time limit the request goes on, and what it created is removed
    work = asyncio.ensure_future(_create_and_start(session, plan, lock))
    second = asyncio.ensure_future(ctx.interrupt.wait_for_press(2))
    try:
        await asyncio.wait({work, second}, timeout=plan.timeouts.creating, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            if isinstance(lost := work.exception(), NodeError):
                lost.message = f"{lost.message}; {_describe_unknown_creation(plan)}"
            ctx.record_node_result(NodeResult(node=plan.node, instance=plan.instance, container=work.result()))
            return work.result()
        if not second.done():
            await require_connection(session, _describe_unknown_creation(plan), f"when it answers again: {again}")
        removed = await _remove_created_container(session, plan, work)
        if second.done():
            raise CommandInterrupted(f"interrupted while {plan.container_name} was created; {removed}")
        hint = f"on {plan.node}: systemctl status docker"
        raise CreateTimeout(plan.node, f"no answer to the creation in time; {removed}", hint)
    finally:
        second.cancel()
        work.cancel()
        await asyncio.gather(work, second, return_exceptions=True)


def _describe_unknown_creation(plan: LaunchPlan) -> str:
    return f"whether {plan.container_name} was created and started there is not known"


async def _create_and_start(session: NodeSession, plan: LaunchPlan, lock: NodeLock) -> str:
    try:
        container_id = await session.docker.create_container(plan)
    except ConnectionLost:
        container_id = await _create_after_reconnect(session, plan, lock)
    try:
        await session.docker.start_container(container_id)
    except ConnectionLost:
        await _start_after_reconnect(session, plan, container_id)
    except DockerError as refused:
        # Docker leaves a refused container in state "created": remove it.
        try:
            await session.docker.remove_container(container_id, force=True)
        except (DockerError, NodeError) as error:
            raise DockerError(
                plan.node,
                f"{refused.message}; and what it left behind could not be removed ({error.message})",
                refused.hint,
            ) from refused
        raise
    return container_id


async def _create_after_reconnect(session: NodeSession, plan: LaunchPlan, lock: NodeLock) -> str:
    """Check whether the create request was carried out before the connection broke; repeat it only if not.

    The time limit of `create_container` ends the waiting.
    """
    await session.link.reconnect()
    await lock.reacquire_if_lost()
    for container in await session.docker.list_containers():
        if container.name == plan.container_name and container.get_label(ContainerLabel.HASH) == plan.profile_hash:
            return container.id
    return await session.docker.create_container(plan)


async def _start_after_reconnect(session: NodeSession, plan: LaunchPlan, container_id: str) -> None:
    """Check whether the start request was carried out before the connection broke; a container that ran and ended was
    started.
    """
    await session.link.reconnect()
    if (await session.docker.inspect_container(container_id)).state is ContainerState.CREATED:
        await session.docker.start_container(container_id)


async def _remove_created_container(session: NodeSession, plan: LaunchPlan, work: asyncio.Future[str]) -> str:
    """Remove what a creation left, and return a sentence that says so or why it failed.

    Wait for the pending request first: if cancelled here, Docker would still carry it out after this check.
    """
    await asyncio.wait({work}, timeout=_UNDO_TIMEOUT_SECONDS)
    if not work.done():
        return f"Docker has not answered yet: {plan.container_name} may still appear"
    if isinstance(work.exception(), NodeError):
        return _describe_unknown_creation(plan)
    if work.exception() is not None:
        return "nothing was left behind"  # it failed by itself and cleaned up
    try:
        await session.docker.remove_container(work.result(), force=True)
    except ContainerNotFound:
        return "it is gone"
    except (DockerError, NodeError) as error:
        return f"it may still be there ({error.message})"
    return "it was removed again"
