"""``up``: inspect, decide, drop caches, create, and watch until a first token. One event stream for the CLI and the
panel.

A model over several Sparks has one rank on each node (`rank_start`); a model on one Spark has a single rank.
"""

from __future__ import annotations

import shlex
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial

from sparkctl.commands.event_stream import build_end, open_session, stream_events
from sparkctl.commands.history_writer import OperationSubject, record_operation
from sparkctl.commands.node_lock import LockConflict, acquire_node_lock
from sparkctl.commands.start import connectivity_check, rank_start
from sparkctl.commands.start.launch_plans import build_rank_launches
from sparkctl.commands.start.missing_parts import mark_copied_images
from sparkctl.commands.start.rank_start import CreateTimeout, RankStart, verdict_of_create_timeout
from sparkctl.commands.start.rank_watch import ClockOffsets, RankWatch, measure_clock_offsets, watch_ranks
from sparkctl.commands.start.start_preflight import (
    refuse_different_images,
    refuse_partial_stop,
    refuse_partially_running,
    refuse_wrong_node_count,
)
from sparkctl.commands.start.start_request import StartInstance
from sparkctl.commands.start.start_watch import collect_plan_secrets
from sparkctl.commands.stop.pending_stops import QueuedStartFiles, withdraw_pending_stops
from sparkctl.concurrency import gather_or_cancel
from sparkctl.context import CommandContext, CommandInterrupted, NodeLock
from sparkctl.errors import DockerError, ExitCode, ImageNotFound, NodeError, OperationRefused, PortInUse
from sparkctl.history.model import NodeResult, OperationKind
from sparkctl.logs import start_verdict, verdict_builder
from sparkctl.model.events import (
    CommandEnded,
    Emit,
    Event,
    FindingReported,
    LaunchPlanned,
    Outcome,
    PhaseChanged,
    WarningEmitted,
)
from sparkctl.model.fabric_route import FabricRoute
from sparkctl.model.finding import Severity
from sparkctl.model.guard_state import GuardCoverage
from sparkctl.model.launch_plan import PROVED_PROBES
from sparkctl.model.node import NodeName, format_endpoint_url
from sparkctl.model.phase import Phase
from sparkctl.model.text.units import format_duration
from sparkctl.model.verdict import ChangeDirection, FailureCause, Verdict
from sparkctl.monitor.activity import QUEUED_WORDS
from sparkctl.monitor.answer_check import (
    QUESTION_PROBES,
    CheckTarget,
    build_answer_finding,
    check_answers,
    measure_requests,
)
from sparkctl.monitor.switch_journal_io import SwitchInProgress
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.profiles.profile_lint import StartWarning, list_start_warnings, refuse_wrong_flags
from sparkctl.profiles.setting_proof import SettingProof
from sparkctl.transport.node_session import NodeSession

_QUEUE_SECONDS = 3.0  # between two looks whether another operation has ended
_MEMORY_ENDS = (FailureCause.HOST_OOM_KILL, FailureCause.GUARD_STOPPED)
_STARTED_OUTCOMES = (Outcome.READY, Outcome.UNPROVED, Outcome.DETACHED, Outcome.FAILED, Outcome.TIMED_OUT)
_TAKEN_BACK_MESSAGE = "interrupted before all ranks were started; the started ones are removed"
_OLD_STOPPED_MESSAGE = "interrupted: the one that ran before was stopped, the new one was not started"


def start_instance(ctx: CommandContext, request: StartInstance) -> AsyncGenerator[Event, None]:
    """Start a profile on its nodes and stream what happens; the last event is `CommandEnded`."""

    def stream_start(own: CommandContext) -> AsyncGenerator[Event, None]:
        return stream_events(
            own, _StartRun(own, request).run, request.profile.name, request.head_node.name, on_interrupt=None
        )

    subject = OperationSubject(
        kind=OperationKind.START,
        nodes=request.nodes,
        profile=request.profile,
        command=request.retry_command,
    )
    return stream_start(ctx) if request.dry_run else record_operation(ctx, subject, stream_start)


async def wait_for_turn(
    ctx: CommandContext, request: StartInstance, emit: Emit, stack: AsyncExitStack,
    prepare: Callable[[AsyncExitStack], Awaitable[CommandEnded | None]], nodes: Sequence[NodeName] = (),
) -> CommandEnded | None:  # fmt: skip
    """Return what ``prepare`` returns, with the locks that it takes on ``stack``.

    With ``queue``, prepare again until no other operation works on the nodes; ``nodes``: other nodes than those of the request.
    Raises `CommandInterrupted` if a stop of the instance is asked for meanwhile.
    """
    name = request.profile.name
    async with AsyncExitStack() as waiting:
        was_reported, marker = False, None
        while True:
            try:
                async with AsyncExitStack() as taken:
                    ended = await prepare(taken)
                    await stack.enter_async_context(taken.pop_all())
                    return ended
            except (LockConflict, SwitchInProgress) as busy:
                _refuse_unless_queued(request, busy)
                if not was_reported:
                    where = nodes or tuple(node.name for node in request.nodes)
                    marker = waiting.enter_context(QueuedStartFiles(ctx.history.directory).save_start(name, where))
                    words = f"{busy.message}. {name} {QUEUED_WORDS}; sparkctl down {name} ends the waiting"
                    emit(WarningEmitted(ctx.clock.unix_time(), None, words))
                    was_reported = True
            await ctx.interrupt.run_interruptible(ctx.clock.sleep(_QUEUE_SECONDS), _describe_not_started(request))
            if marker is not None and not marker.exists():
                raise CommandInterrupted(f"{name} was not started: sparkctl down ended the waiting")


def _refuse_unless_queued(request: StartInstance, busy: LockConflict | SwitchInProgress) -> None:
    """Raise what refuses the start, unless it may wait for it. What was left unfinished does not end by itself."""
    if request.is_of_switch or request.dry_run or (isinstance(busy, SwitchInProgress) and not busy.is_held):
        raise busy
    if not request.queue:
        again = replace(request, queue=True).retry_command
        busy.hint = f"start it once that has ended: {again}\n{busy.hint}"
        raise busy


def _describe_not_started(request: StartInstance) -> str:
    return f"interrupted before {request.profile.name} was started"


class _StartRun:
    """One run of the command. ``ranks`` are in the order of the request's nodes, the head's first."""

    def __init__(self, ctx: CommandContext, request: StartInstance) -> None:
        self.ctx = ctx
        self.request = request
        self.began = ctx.clock.monotonic()
        self.ranks: tuple[RankStart, ...] = ()
        self.route: FabricRoute | None = None  # between several
        self._has_failed_before = False  # within the hour: one more failure, and the next start is asked about
        self.locks: dict[NodeName, NodeLock] = {}
        self.clocks: ClockOffsets = {}
        self._emit: Emit = lambda event: None
        self._proof = SettingProof(
            request.words or (request.profile.name,),
            ProfileLibrary(),
            lambda changed: [one.measured.evaluate_in_place(changed) for one in self.ranks if one.measured is not None],
        )

    async def run(self, emit: Emit) -> CommandEnded:
        """Run all steps. Ctrl-C ends it wherever nothing is half done; `rank_start` is the one place that
        waits.
        """
        self._emit = emit
        refuse_wrong_node_count(self.request.profile, self.request.nodes)
        async with AsyncExitStack() as stack:
            sessions = [await open_session(stack, self.ctx, node, self.emit) for node in self.request.nodes]
            ended = await wait_for_turn(
                self.ctx, self.request, self.emit, stack, lambda taken: self._prepare_and_lock(taken, sessions)
            )
            if ended is not None:
                return ended
            for rank in self.ranks:
                stack.push_async_callback(rank.detach_guard)
            return await self._start_ranks()

    def emit(self, event: Event) -> None:
        """Emit an event, and time it for its rank."""
        for rank in self.ranks:
            if rank.plan.node == event.node:
                rank.timing.record_event(event)
        self._emit(event)

    @property
    def head(self) -> RankStart:
        """The rank that answers clients."""
        return self.ranks[0]

    @property
    def _not_started(self) -> str:
        """What is true of it at Ctrl-C, whatever the command that it is a step of has changed before."""
        return _describe_not_started(self.request)

    # inspect and decide

    async def _prepare_and_lock(self, taken: AsyncExitStack, sessions: Sequence[NodeSession]) -> CommandEnded | None:
        self.began = self.ctx.clock.monotonic()
        ended = await self._prepare_start(sessions)
        if ended is None:
            # The same order for everyone: two starts over the same Sparks never wait for each other.
            for rank in sorted(self.ranks, key=lambda one: one.plan.node):
                self.locks[rank.plan.node] = await self._lock_node(taken, rank)
        return ended

    async def _prepare_start(self, sessions: Sequence[NodeSession]) -> CommandEnded | None:
        """Inspect and decide without changing anything; return the end where there is nothing to start."""
        interruptible = self.ctx.interrupt.run_interruptible
        await interruptible(self._inspect_nodes(sessions), self._not_started)
        for rank in self.ranks:
            self.emit(LaunchPlanned(self.ctx.clock.unix_time(), rank.plan.node, rank.plan))
            rank.timing.load_expected(rank.plan)
        flags = self._check_flags()
        plans = [rank.plan for rank in self.ranks]
        self._has_failed_before = bool(rank_start.list_recent_failures(self.ctx, plans))
        for rank in self.ranks:
            rank.refuse_wrong_flags = partial(self._refuse_wrong_flags, flags)
        try:
            await interruptible(self._decide_actions(), self._not_started)
        except (OperationRefused, PortInUse):
            self._refuse_wrong_flags(flags)  # what else is refused may follow from a flag that means nothing
            raise
        if self.head.decision.attach is None:
            self._refuse_wrong_flags(flags)
        _, self.clocks = await interruptible(
            gather_or_cancel(self._check_connectivity(sessions), measure_clock_offsets(self.ranks)), self._not_started
        )
        if self.request.dry_run:
            for rank in self.ranks:
                rank.warn_of_decision()
            return self._build_end(Outcome.PLANNED)
        if self.head.decision.attach is not None:
            for rank in self.ranks:
                withdraw_pending_stops(
                    self.ctx, rank.plan.node, (rank.plan.instance,), rank.warn, "a new start was asked for"
                )
            return await interruptible(self._check_running_instance(), self._not_started)
        if not self.request.once_more:
            await interruptible(
                rank_start.confirm_after_failures(self.ctx, plans, self.request.retry_command), self._not_started
            )
        return None

    async def _inspect_nodes(self, sessions: Sequence[NodeSession]) -> None:
        """Inspect all nodes in parallel and build a plan for each."""
        launches, self.route = await build_rank_launches(self.ctx, self.request, sessions)
        self.ranks = tuple(
            RankStart(self.ctx, self.request, session, launch, emit=self.emit, began=self.began, proof=self._proof)
            for session, launch in zip(sessions, launches, strict=True)
        )
        receipts = [] if self.request.dry_run else [rank.collect_earlier_receipts() for rank in self.ranks]
        await gather_or_cancel(*(rank.inspect_node() for rank in self.ranks), *receipts)

    async def _decide_actions(self) -> None:
        """Decide for every node before anything changes on any; the first refusal ends the start."""
        plans, scenes = [rank.plan for rank in self.ranks], [rank.scene for rank in self.ranks if rank.scene]
        words = self.request.words or (self.request.profile.name,)
        if len(self.ranks) > 1:
            refuse_partially_running(plans, scenes, words[0])
        for rank in self.ranks:
            await rank.decide_action()
        refuse_partial_stop(plans, [rank.decision.stop for rank in self.ranks])
        if len(self.ranks) > 1:
            try:
                refuse_different_images(words, plans, scenes)
            except ImageNotFound:  # on some of them
                missing = mark_copied_images({rank.plan.node: rank.find_missing() for rank in self.ranks})
                for rank in self.ranks:
                    if missing[rank.plan.node]:
                        rank.report_missing(missing[rank.plan.node])
                raise
        for rank in self.ranks:
            rank.check_parts_and_fit()

    async def _check_connectivity(self, sessions: Sequence[NodeSession]) -> None:
        """Emit warnings about the link between the nodes; raises `OperationRefused` where they do not reach each other
        on it.
        """
        if self.route is None or self.head.decision.attach is not None:
            return
        cautions = (*self.route.cautions, *await connectivity_check.check_fabric(sessions, self.route))
        for caution in (
            *cautions,
            *await connectivity_check.check_rank_logins(self.request.engine, sessions, self.route),
        ):
            self.emit(WarningEmitted(self.ctx.clock.unix_time(), None, caution))

    async def _check_running_instance(self) -> CommandEnded | None:
        """Return success for an instance that is ready; None for one that is not ready yet."""
        answer = await self.head.check_proof()
        if answer is None:
            return None
        if not answer.good:
            return self._build_unproved_end(answer.format_masked(self.head.plan.secret_values))
        plan, container = self.head.plan, self.head.decision.attach
        status = container.status if container is not None else ""
        self.emit(
            PhaseChanged(
                ts=self.ctx.clock.unix_time(),
                node=plan.node,
                instance=plan.instance,
                phase=Phase.READY,
                step=None,
                elapsed=0.0,
                expected=None,
                detail=status,
            )
        )
        ended = self._build_end(Outcome.READY, message=f"{plan.instance} already runs on {self._node_names} ({status})")
        return await self._check_answers(ended) if self.request.strict else ended

    # change

    async def _lock_node(self, stack: AsyncExitStack, rank: RankStart) -> NodeLock:
        doing = f"starting {rank.plan.instance}"
        lock = await self.ctx.interrupt.run_interruptible(
            acquire_node_lock(rank.session, self.ctx, doing, rank.warn), self._not_started
        )
        stack.push_async_callback(lock.release)
        return lock

    async def _start_ranks(self) -> CommandEnded:
        """Start the ranks under the locks, and watch them."""
        interruptible = self.ctx.interrupt.run_interruptible
        # Another operator may have started something between the inspection and the lock: decide again. A step of another
        # command had the locks when it inspected.
        if not all(rank.plan.node in self.ctx.holds for rank in self.ranks):
            await interruptible(gather_or_cancel(*(rank.inspect_node() for rank in self.ranks)), self._not_started)
            await interruptible(self._decide_actions(), self._not_started)
        for rank in self.ranks:
            rank.warn_of_decision()
        failed = await self._ensure_containers()
        if failed is not None:
            return failed
        if self.request.detach:
            return self._build_end(Outcome.DETACHED, message=self._format_interrupt_message())
        return await self._watch_ranks()

    async def _ensure_containers(self) -> CommandEnded | None:
        """Return the containers to watch, running or new; or the end where there are none."""
        if all(rank.decision.attach is not None for rank in self.ranks):
            for rank in self.ranks:
                assert rank.decision.attach is not None
                await rank.attach_to_running(rank.decision.attach.id)
            return None
        await self._stop_replaced_instance()
        for rank in self.ranks:
            await rank.remove_ended_containers()
        nothing = _OLD_STOPPED_MESSAGE if self._has_stopped_another else self._not_started
        await self.ctx.interrupt.run_interruptible(
            gather_or_cancel(*(self._prepare_node(rank) for rank in self.ranks)), nothing
        )
        self.ctx.interrupt.raise_if_pressed(nothing)
        return await self._create_all_ranks()

    @property
    def _has_stopped_another(self) -> bool:
        return any(rank.stopped_another for rank in self.ranks)

    async def _stop_replaced_instance(self) -> None:
        """Stop what ``--replace`` allows: another version of the same instance."""
        self.ctx.interrupt.raise_if_pressed(self._not_started)
        await gather_or_cancel(*(rank.stop_other_version() for rank in self.ranks))
        if self._has_stopped_another:
            self.ctx.interrupt.raise_if_pressed(_OLD_STOPPED_MESSAGE)

    async def _prepare_node(self, rank: RankStart) -> None:
        if rank.plan.drop_caches:
            await rank.drop_caches()
        await gather_or_cancel(rank.arm_guard(), rank.fit.measure_before(rank.session))

    async def _create_all_ranks(self) -> CommandEnded | None:
        """Create the ranks in the engine's order; if one fails, remove those before it."""
        head, *workers = self.ranks
        begins = self.request.engine.must_start_head_first(head.plan.command)
        created: list[RankStart] = []
        ended: CommandEnded | None = None
        try:
            for rank in (head, *workers) if begins else (*workers, head):
                if created:
                    self.ctx.interrupt.raise_if_pressed(_TAKEN_BACK_MESSAGE)
                ended = await self._create_rank(rank)
                if ended is not None:
                    break
                created.append(rank)
        finally:
            if len(created) < len(self.ranks):
                await gather_or_cancel(*(rank.remove_created_container() for rank in created))
        return ended

    async def _create_rank(self, rank: RankStart) -> CommandEnded | None:
        try:
            await rank.create_rank_container(self.locks[rank.plan.node])
            return None
        except CreateTimeout as late:
            return self._build_end(Outcome.TIMED_OUT, rank, verdict=verdict_of_create_timeout(rank.plan, late))
        except NodeError as lost:
            if len(self.ranks) > 1:  # the others are removed: this one alone would never be ready
                lost.hint = f"when it answers again: sparkctl down {rank.plan.instance}"
            raise
        except DockerError as error:
            if error.exit_code is ExitCode.REFUSED and not self._has_stopped_another:
                raise  # the attempt left nothing: the node is as it was
            again, old_is_gone = self.request.retry_command, self._has_stopped_another
            verdict = start_verdict.build_docker_error_verdict(
                rank.plan, self.request.engine, error, again, old_is_gone=old_is_gone
            )
            return self._build_end(Outcome.FAILED, rank, verdict=verdict)

    # watch

    async def _watch_ranks(self) -> CommandEnded:
        end = await self.ctx.interrupt.run_interruptible(
            watch_ranks(self.ctx, self.ranks, self.clocks), self._format_interrupt_message()
        )
        if end.unproved is not None:
            for rank in self.ranks:
                await rank.record_unproved(end.unproved)
            return self._build_unproved_end(end.unproved)
        if end.verdict is None:
            await gather_or_cancel(*(rank.record_ready(end.proof) for rank in self.ranks))
            ended = replace(self._build_end(Outcome.READY), proof=end.proof, hint=self._suggest_first_request())
            is_first = not self.head.timing.has_joined  # else somebody else's request may have been the first
            if is_first:
                self._record_request_figures(cold_ttft=end.first_token)
            ended, _ = await gather_or_cancel(
                self._check_answers(ended, is_first=is_first),
                gather_or_cancel(*(rank.record_measurements(ended.seconds) for rank in self.ranks)),
            )
            return ended
        root, verdict = end.rank, self._add_retry_command(end.verdict)
        has_failed = not end.timed_out
        rank_start.record_start_failure(self.ctx, root.plan, root.container_id, verdict, root.warn, counts=has_failed)
        outcome = Outcome.TIMED_OUT if end.timed_out else Outcome.FAILED
        return replace(self._build_end(outcome, root, verdict=verdict, log=end.log), more_logs=end.more_logs)

    async def _check_answers(self, ended: CommandEnded, *, is_first: bool = False) -> CommandEnded:
        """Check what a ready instance answers. Ready stays ready: what fails is a warning, with ``--strict`` exit 5.

        ``is_first``: nobody has had a longer answer of it yet, so its speed is recorded.
        """
        level, plan = self.request.profile.start.check, self.head.plan
        if level == "off" or plan.readiness_target.ready.probe not in QUESTION_PROBES:
            return ended
        target = CheckTarget(service=plan.readiness_target, engine=self.request.engine, command=plan.command)
        try:
            if is_first:
                await self.ctx.interrupt.run_interruptible(self._measure_requests(target), "interrupted")
            found = await self.ctx.interrupt.run_interruptible(
                check_answers(self.head.session.link, target, is_full=level == "full"), "interrupted"
            )
        except CommandInterrupted:
            self.head.warn(
                f"{plan.instance} is ready, but the check of its answers did not finish",
                f"sparkctl check {plan.instance}",
            )
            code = ExitCode.INTERRUPTED if self.request.strict else ExitCode.DONE
            return replace(ended, ts=self.ctx.clock.unix_time(), exit_code=int(code))
        except (NodeError, DockerError) as error:
            self.head.warn(f"what {plan.instance} answers could not be checked: {error.message}", error.hint)
            return ended
        failed = [one for one in found if one.severity is Severity.WARNING]
        for one in failed or found[:1]:
            finding = build_answer_finding(one, plan.node, plan.instance, collect_plan_secrets(plan))
            self.emit(FindingReported.from_finding(self.ctx.clock.unix_time(), finding))
        code = ExitCode.UNHEALTHY if failed and self.request.strict else ExitCode.DONE
        return replace(ended, ts=self.ctx.clock.unix_time(), exit_code=int(code))

    async def _measure_requests(self, target: CheckTarget) -> None:
        """Record what the first longer answer gave, and what the same request gives once more."""
        cold, warm = await measure_requests(self.head.session.link, target, self.ctx.clock)
        self._record_request_figures(
            cold_tokens_per_second=cold.rate, warm_ttft=warm.ttft, warm_tokens_per_second=warm.rate
        )

    def _record_request_figures(self, **figures: float | None) -> None:
        plan = self.head.plan
        self.ctx.record_node_result(NodeResult(node=plan.node, instance=plan.instance, **figures))  # type: ignore[arg-type]

    # report

    @property
    def _node_names(self) -> str:
        return " and ".join(rank.plan.node for rank in self.ranks)

    def _format_interrupt_message(self) -> str:
        plan, guard = self.head.plan, self.head.guard
        only = f" --node {plan.node}" if plan.ranks == 1 else ""
        limit = plan.guard.limit if plan.guard is not None else None
        longest = "" if limit is None else f", for at most {format_duration(limit)}"
        guarded = ""
        if guard is not None:
            guarded = f" It stays guarded until it is ready{longest}." if guard.is_armed else " No guard watches it."
        if self.request.is_of_switch:
            return f"{plan.instance} keeps starting on {self._node_names} in the background.{guarded}"
        return (
            f"{plan.instance} keeps starting on {self._node_names} in the background.{guarded} Watch it again: {self.request.retry_command}\n"
            f"Stop it: sparkctl down {plan.instance}{only}"
        )

    @property
    def _guard_coverage(self) -> GuardCoverage | None:
        """How the start was guarded, for the rank with the worst coverage; None where nothing was started."""
        wanted = [rank for rank in self.ranks if rank.plan.guard is not None]
        if not self.head.container_id:
            return None
        if not wanted:
            return GuardCoverage.OFF
        found = {rank.guard.coverage for rank in wanted if rank.guard is not None}
        order = (GuardCoverage.NONE, GuardCoverage.PARTLY, GuardCoverage.FULL)
        return next((one for one in order if one in found), None)

    def _check_flags(self) -> tuple[StartWarning, ...]:
        """Warn about the profile's flags before the start takes minutes; return what the catalogue says of them."""
        took = self.ctx.history.find_longest_phases(self.request.profile, self.head.plan.node)
        found = list_start_warnings(self.request.profile, self._proof.library, took)
        for one in found:
            if one.refused_flag is None or self.request.forced:
                self.head.warn(one.message, self._format_remedy(one))
        if (short := self.request.check_timeout(self.ctx.history)) is not None:
            self.head.warn(*short)
        return found

    def _refuse_wrong_flags(self, found: Sequence[StartWarning]) -> None:
        """Refuse flags that the image's version does not have, unless the operator forces it."""
        if not self.request.forced:
            remedy = next((self._format_remedy(one) for one in found if one.refused_flag is not None), None)
            refuse_wrong_flags(found, remedy, "to start it as it is: --force", self.request.profile.name)

    def _format_remedy(self, one: StartWarning) -> str | None:
        return self._proof.format_remedy(one, self.request.build_retry_command)

    def _add_retry_command(self, verdict: Verdict) -> Verdict:
        """Return the verdict with the command that tries its change, where that is accepted."""
        if (
            verdict.edit is None
            and verdict.cause in _MEMORY_ENDS
            and verdict.field == self.request.engine.memory_setting
        ):
            # of a worker whose own command has no flags: the head's gives the share to both
            verdict = replace(
                verdict, edit=verdict_builder.suggest_field_change(self.head.plan, verdict.field, ChangeDirection.LOWER)
            )
        request = self.request.for_proved_change(is_again=self._has_failed_before)
        return self._proof.prove_verdict(verdict, request.build_retry_command)

    def _build_unproved_end(self, why: str) -> CommandEnded:
        """Return the end of a start whose service answers and proves nothing; it stays up."""
        plan = self.head.plan
        where = f"--node {plan.node}"
        message = f"{plan.instance} is up on {self._node_names}, not proved: {why}"
        ways = [f"see why: sparkctl logs {plan.instance} {where}"]
        if plan.ready.probe not in PROVED_PROBES:
            take = f"see in its log whether it took its key; stop it: sparkctl down {plan.instance} {where}"
            ways += [take if plan.ready.requires_key else "give the profile the same key: args.api-key: ${VAR}"]
        ways += [f"what it needs may be down: sparkctl status {where}"] if self.request.profile.needs else []
        ended = self._build_end(Outcome.UNPROVED, message=message)
        return replace(ended, proof=why, hint="\n".join([*ways, f"ask it again: {self.request.retry_command}"]))

    def _suggest_first_request(self) -> str | None:
        """Return what to try first with a service that is no chat; None for a language model."""
        plan = self.head.plan
        if plan.ready.probe != "speech":
            return None
        url = format_endpoint_url(self.request.head_node, plan.node_port)
        named = "" if plan.served_model is None else f'"model": "{plan.served_model}", '
        body = f'{{{named}"input": "hello", "response_format": "wav"}}'
        return (
            f"{shlex.join(['sparkctl', 'say', 'hello', '--node', plan.node, '-o', 'hello.wav'])}\n"
            f"curl -s {url}/v1/audio/speech -H 'Content-Type: application/json' -d '{body}' -o hello.wav"
        )

    def _build_end(
        self,
        outcome: Outcome,
        rank: RankWatch | None = None,
        *,
        verdict: Verdict | None = None,
        log: str | None = None,
        message: str | None = None,
    ) -> CommandEnded:
        """Return the end; ``rank`` is the one it is about, where that is not the head."""
        plan = (rank or self.head).plan
        ended = build_end(
            self.ctx, self.began, outcome, node=plan.node, instance=plan.instance, message=message, log=log
        )
        return replace(
            ended,
            endpoint=format_endpoint_url(self.request.head_node, plan.node_port)
            if outcome in (Outcome.READY, Outcome.UNPROVED)
            else None,
            verdict=None if verdict is None else self._add_retry_command(verdict),
            guard=self._guard_coverage if outcome in _STARTED_OUTCOMES else None,
        )
