"""``up``: look, decide, drop caches, create, watch until a token came. One generator for the CLI and the panel."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace

from sparkctl.core import edits
from sparkctl.core.context import Context, NodeLock
from sparkctl.core.planning import plan as make_plan
from sparkctl.core.session import Session
from sparkctl.core.together import together
from sparkctl.errors import DockerError, ExitCode, InvalidInput, NodeError, Refused, SparkctlError
from sparkctl.model.container import Container
from sparkctl.model.events import Ended, Event, MemorySampled, Outcome, PhaseChanged, PlanMade, Warned
from sparkctl.model.guard import UnwatchReason
from sparkctl.model.phase import Phase
from sparkctl.model.plan import LaunchPlan
from sparkctl.model.units import spoken
from sparkctl.model.verdict import Cause, Change, Evidence, Verdict
from sparkctl.operations import earlier, fitting, judge, readiness, receipts
from sparkctl.operations.create import CreatingTooLong, create
from sparkctl.operations.drop_caches import NoRight, drop
from sparkctl.operations.endpoint import endpoint
from sparkctl.operations.lock import acquire
from sparkctl.operations.preflight import Decision, Scene, decide, refuse_without_docker
from sparkctl.operations.savelog import save_log
from sparkctl.operations.start_fit import StartFit
from sparkctl.operations.start_guard import StartGuard, unwatch
from sparkctl.operations.stop import stop, sweep
from sparkctl.operations.stream import Emit, stream
from sparkctl.operations.timing import Timing
from sparkctl.operations.up_request import UpRequest
from sparkctl.operations.watch import StartWatch, Watched, secrets_of

_UNCHANGED = "interrupted before anything was changed"
_OLD_GONE = "interrupted: the one that ran before was stopped, the new one was not started"
_SIGKILLED = 137
_IDENTITY = ("identity", "memory", "processes", "gpu", "listen", "docker")


def up(ctx: Context, request: UpRequest) -> AsyncGenerator[Event, None]:
    """Start a profile on a node and stream what happens; the last event is `Ended`."""
    run = _Up(ctx, request)
    return stream(ctx, run.run, request.profile.name, request.node.name, on_interrupt=None)


class _Up:
    """One run of the verb; the attributes are what later steps need of earlier ones."""

    def __init__(self, ctx: Context, request: UpRequest) -> None:
        self.ctx = ctx
        self.request = request
        self.emit: Emit = lambda event: None
        self.began = ctx.clock.monotonic()
        self.stopped_another = False
        self.drop_was_told = False  # that the page cache cannot be dropped here
        self.guard: StartGuard | None = None
        self.timing = Timing(ctx, request.profile)
        self.fit = StartFit(ctx, request.profile, request.again_with, forced=request.forced)

    async def run(self, emit: Emit) -> Ended:
        """Do it all. Ctrl-C ends it wherever nothing is half done; see `_create` for the one place where it waits."""

        def told(event: Event) -> None:
            self.timing.take(event)
            emit(event)

        self.emit = self.fit.emit = told
        node, guard = self.request.node, self.ctx.interrupt.guard
        if self.request.profile.nodes != 1:
            raise InvalidInput(
                f"{self.request.profile.name} is a profile for {self.request.profile.nodes} nodes; "
                "so far sparkctl starts profiles of one node"
            )
        async with self.ctx.session(node) as session:
            session.report_to(self.emit)
            plan, scene = await guard(self._look(session), _UNCHANGED)
            self.emit(PlanMade(self.ctx.clock.now(), node.name, plan))
            self.timing.look_up(plan)
            self._caution()
            if not self.request.dry_run:
                await guard(earlier.collect(session, self.ctx, plan, self._warn_of), _UNCHANGED)
            decision = await guard(self._decide(session, plan, scene), _UNCHANGED)
            if self.request.dry_run:
                self._warn(decision)
                return self._ended(plan, Outcome.PLANNED)
            if decision.attach is not None:
                ready = await guard(self._already_there(session, plan, decision.attach), _UNCHANGED)
                if ready is not None:
                    return ready
            else:
                await guard(self._ask_before_a_third(plan), _UNCHANGED)
            lock = await guard(acquire(session, self.ctx, f"starting {plan.instance}", self._warn_of), _UNCHANGED)
            try:
                # Between the look and the lock somebody may have started something: decide on what is true now.
                scene = await guard(self._scene(session, plan), _UNCHANGED)
                decision = await guard(self._decide(session, plan, scene), _UNCHANGED)
                self._warn(decision)
                failed, container_id = await self._container(session, plan, decision, lock)
                if failed is not None:
                    return failed
                if self.request.detach:
                    return self._ended(plan, Outcome.DETACHED, message=self._goes_on(plan))
                return await self._watch(session, plan, container_id)
            finally:
                if self.guard is not None:
                    await self.guard.leave()
                await lock.release()

    async def _decide(self, session: Session, plan: LaunchPlan, scene: Scene) -> Decision:
        decision = decide(plan, scene, replace=self.request.replace, again=self.request.again)
        if decision.attach is None:
            await self.fit.check(session, plan, scene, decision.stop)
        return decision

    # looking

    async def _look(self, session: Session) -> tuple[LaunchPlan, Scene]:
        await session.link.connect()
        look = await session.look("identity", "docker")
        refuse_without_docker(session.node.name, look)
        plan = make_plan(
            self.request.profile,
            session.node,
            home=look.identity.home if look.identity else "~",
            operator=self.ctx.operator,
            environ=self.request.environ,
            engine=self.request.engine,
        )
        if not self.request.guarded:
            plan = replace(plan, guard=None)
        return plan, await self._scene(session, plan)

    async def _scene(self, session: Session, plan: LaunchPlan) -> Scene:
        engine, containers, image = await together(
            session.docker.info(), session.docker.list(), session.docker.image(plan.image)
        )
        paths = [f"path={mount.source}" for mount in plan.mounts if mount.source.startswith("/")]
        disk = [f"disk={engine.root_dir}"] if engine.root_dir else []
        look = await session.look(*_IDENTITY, *disk, *paths, *fitting.sections(self.request.profile, plan))
        if look.memory is not None:
            self.emit(MemorySampled(self.ctx.clock.now(), session.node.name, look.memory))
        return Scene(look, containers, engine, image)

    def _warn(self, decision: Decision) -> None:
        for message, hint in decision.warnings:
            self._warn_of(message, hint)

    async def _ask_before_a_third(self, plan: LaunchPlan) -> None:
        if not self.request.once_more:
            await earlier.ask_before_a_third(self.ctx, plan, self.request.again)

    async def _already_there(self, session: Session, plan: LaunchPlan, container: Container) -> Ended | None:
        """Return success for an instance that is ready; None for one that is not, yet."""
        if not (await readiness.health(session.link, plan.service)).good:
            return None
        answer = await readiness.one_token(session.link, plan.service)
        if not answer.good:
            raise Refused(
                f"{plan.instance} already runs on {plan.node} and its health answers, but "
                + answer.told(secrets_of(plan)),
                f"see why: sparkctl logs {plan.instance} --node {plan.node}; start it anew: sparkctl down {plan.instance}",
            )
        self.emit(
            PhaseChanged(self.ctx.clock.now(), plan.node, plan.instance, Phase.READY, None, 0.0, None, container.status)
        )
        return self._ended(
            plan, Outcome.READY, message=f"{plan.instance} already runs on {plan.node} ({container.status})"
        )

    # changing

    async def _container(
        self, session: Session, plan: LaunchPlan, decision: Decision, lock: NodeLock
    ) -> tuple[Ended | None, str]:
        """Return the id of the container to watch, the one that runs already or a new one; or the end that there is none."""
        if decision.attach is not None:
            self.timing.has_joined = True
            self._warn_of(f"{plan.instance} is already being started on {plan.node}; watching it")
            await self._arm(session, plan)
            await self._guard(decision.attach.id)
            return None, decision.attach.id
        check = self.ctx.interrupt.check
        check(_UNCHANGED)
        if decision.stop is not None:
            await unwatch(session, self.ctx, self.emit, [decision.stop.id], UnwatchReason.STOPPED)
            stopped = await stop(session, self.ctx, self.emit, decision.stop, plan.stop_grace)
            self.stopped_another = True
            if not stopped.removed:
                raise SparkctlError(
                    f"{decision.stop.name} was stopped and kept, because its log could not be saved; nothing was started",
                    f"on {plan.node}: docker rm {decision.stop.name}, then: {self.request.again}",
                )
            check(_OLD_GONE)
        for ended in decision.sweep:
            await sweep(session, self.ctx, self.emit, ended)
        nothing = _OLD_GONE if self.stopped_another else "interrupted before anything was started"
        if plan.drop_caches:
            await self.ctx.interrupt.guard(self._drop(session, plan), nothing)
        await self.ctx.interrupt.guard(self._arm(session, plan), nothing)
        check(nothing)
        await self.ctx.interrupt.guard(self.fit.begin(session), nothing)
        try:
            self._phase(plan, Phase.CREATING)
            container_id = await create(self.ctx, session, plan, lock)
            await self._guard(container_id)
            return None, container_id
        except CreatingTooLong as late:
            evidence = (Evidence(late.message, "docker"),)
            summary = f"Docker on {plan.node} took longer than {spoken(plan.timeouts.creating)} to create {plan.container_name}."
            limit = "start.timeouts.creating"
            verdict = Verdict(
                Cause.TIMED_OUT, summary, evidence, late.hint or "", limit, edit=edits.edit(plan, limit, Change.RAISE)
            )
            return self._ended(plan, Outcome.TIMED_OUT, verdict=verdict), ""
        except DockerError as error:
            if error.exit_code is ExitCode.REFUSED and not self.stopped_another:
                raise  # nothing is left of the attempt: the node is as it was
            verdict = judge.of_refusal(
                plan, self.request.engine, error, self.request.again, old_is_gone=self.stopped_another
            )
            return self._ended(plan, Outcome.FAILED, verdict=verdict), ""

    async def _drop(self, session: Session, plan: LaunchPlan) -> None:
        self._phase(plan, Phase.DROPPING_CACHES)
        try:
            await drop(session, self.ctx, self.emit)
        except NoRight as no:
            self.drop_was_told = True
            message = f"page cache not dropped: {no.message}. The engine may find too little memory"
            self.emit(Warned(self.ctx.clock.now(), session.node.name, message, no.hint))

    async def _arm(self, session: Session, plan: LaunchPlan) -> None:
        """Have the guard on the node before there is anything to guard."""
        if plan.guard is not None:
            self.guard = StartGuard(session, self.ctx, self.emit, plan, plan.guard)
            await self.guard.arm(drop_was_told=self.drop_was_told)

    async def _guard(self, container_id: str) -> None:
        if self.guard is not None:
            await self.guard.watch(container_id)

    # watching

    def _step(self, event: Event) -> None:
        """Let the guard know of every step at once."""
        self.emit(event)
        if self.guard is not None and isinstance(event, PhaseChanged):
            self.guard.stepped.set()

    async def _watch(self, session: Session, plan: LaunchPlan, container_id: str) -> Ended:
        watch = StartWatch(
            session, self.request.engine, plan, container_id, self.ctx, self._step, self.began, self.request.again
        )
        watch.expected = self.timing.expected
        try:
            watch.saved = self.ctx.history.log_writer(plan.instance, plan.node, container_id, secrets_of(plan))
            self.ctx.history.keep_start(plan.instance, plan.node, container_id, self.request.again)
        except OSError as error:
            self.emit(Warned(self.ctx.clock.now(), plan.node, f"the log will not be saved here: {error}", None))
        guarding = None if self.guard is None else asyncio.create_task(self.guard.attend(watch.loads_weights))
        looking = asyncio.create_task(self.fit.watch())
        try:
            watched = await self.ctx.interrupt.guard(watch.run(self.request.timeout), self._goes_on(plan))
        finally:
            if watch.saved is not None:
                watch.saved.close()
            for task in (guarding, looking):
                if task is not None:
                    await _end(task)
        if watched.verdict is None:
            if self.guard is not None:
                await self.guard.end(UnwatchReason.READY)
            watch.report(Phase.READY)
            seconds = self.ctx.clock.monotonic() - self.began
            self._remember(plan, seconds, await self.fit.peak(container_id))
            return self._ended(plan, Outcome.READY)
        return await self._failed(session, plan, container_id, watch, watched)

    async def _failed(
        self, session: Session, plan: LaunchPlan, container_id: str, watch: StartWatch, watched: Watched
    ) -> Ended:
        verdict = watched.verdict
        log = str(watch.saved.path) if watch.saved else None
        receipt = None
        if not watched.timed_out:
            watch.report(Phase.FAILED)
        try:
            container = await session.docker.inspect(container_id)
            if container.exit_code == _SIGKILLED and not container.is_alive and not watched.timed_out:
                receipt = await (self.guard.receipt() if self.guard else receipts.of(session, container_id))
            if not container.is_alive:
                log = (await save_log(session, self.ctx, self.emit, container, secrets_of(plan))).path or log
        except (DockerError, NodeError):
            pass  # what was followed is saved; the verdict stands without another look
        if receipt is not None:
            receipts.keep(self.ctx, session, receipt, self._warn_of)
            claim = self.request.engine.memory_setting
            within = None if self.guard is None else self.guard.watched_for
            verdict = judge.of_guard(plan, watch.log, receipt, claim, self._value(claim), within)
        outcome = Outcome.TIMED_OUT if watched.timed_out else Outcome.FAILED
        if verdict is not None:
            verdict = self._offered(verdict)
            has_failed = outcome is Outcome.FAILED
            earlier.remember_failure(self.ctx, plan, container_id, verdict, self._warn_of, counts=has_failed)
        return self._ended(plan, outcome, verdict=verdict, log=log)

    def _value(self, field_: str | None) -> str | None:
        """Return what the profile says in a field of ``args``."""
        value = None if field_ is None else dict(self.request.profile.args).get(field_.removeprefix("args."))
        return value if isinstance(value, str) else None

    def _remember(self, plan: LaunchPlan, seconds: float, peak: int | None) -> None:
        try:
            self.timing.remember(plan, seconds, peak, self.fit.estimated)
        except OSError as error:
            self.emit(Warned(self.ctx.clock.now(), plan.node, f"this start's duration was not kept: {error}", None))

    # saying

    def _goes_on(self, plan: LaunchPlan) -> str:
        is_armed = self.guard is not None and self.guard.is_armed
        limit = plan.guard.limit if plan.guard is not None else None
        longest = "" if limit is None else f", for at most {spoken(limit)}"
        guarded = f" The guard stays with it until it is ready{longest}." if is_armed else ""
        return (
            f"{plan.instance} is still starting on {plan.node}, without us.{guarded} Watch it again: {self.request.again}\n"
            f"Stop it: sparkctl down {plan.instance} --node {plan.node}"
        )

    def _warn_of(self, message: str, hint: str | None = None) -> None:
        self.emit(Warned(self.ctx.clock.now(), self.request.node.name, message, hint))

    def _caution(self) -> None:
        """Say what is wrong with the profile's flags before minutes are spent on it; the engine itself has the last word."""
        from sparkctl.core.linting import cautions
        from sparkctl.core.profiles import ProfileLibrary

        for one in cautions(self.request.profile, ProfileLibrary()):
            ways = [] if one.setting is None else [f"{self.request.again} --set {one.setting}"]
            ways += [f"start {' or '.join(one.instead)} in its place"] if one.instead else []
            self._warn_of(one.message, ", or ".join(ways) or None)

    def _phase(self, plan: LaunchPlan, phase: Phase) -> None:
        elapsed, usual = self.ctx.clock.monotonic() - self.began, self.timing.expected
        event = PhaseChanged(self.ctx.clock.now(), plan.node, plan.instance, phase, None, elapsed, usual.seconds)
        self.emit(replace(event, expected_parts=usual.parts))

    def _offered(self, verdict: Verdict) -> Verdict:
        """Return the verdict with the command that tries its change."""
        return verdict if verdict.edit is None else replace(verdict, again=self.request.again_with(verdict.edit))

    def _ended(self, plan: LaunchPlan, outcome: Outcome, **more: object) -> Ended:
        verdict = more.get("verdict")
        if isinstance(verdict, Verdict):
            more["verdict"] = self._offered(verdict)
        codes = {Outcome.FAILED: ExitCode.ENGINE_FAILED, Outcome.TIMED_OUT: ExitCode.TIMED_OUT}
        return Ended(
            ts=self.ctx.clock.now(),
            outcome=outcome,
            exit_code=int(codes.get(outcome, ExitCode.DONE)),
            seconds=self.ctx.clock.monotonic() - self.began,
            node=plan.node,
            instance=plan.instance,
            endpoint=endpoint(self.request.node, plan.node_port) if outcome is Outcome.READY else None,
            **more,  # type: ignore[arg-type]
        )


async def _end(task: asyncio.Task[None]) -> None:
    """End a task that runs beside; a defect in it is not hidden."""
    if not task.done():
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    elif not task.cancelled():
        task.result()
