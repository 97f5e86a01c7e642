"""One rank's part of a start, on its node: what is looked at, decided, changed and watched there, at `operations.up`'s word."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, replace

from sparkctl.core import edits, verdicts
from sparkctl.core.context import Context, NodeLock
from sparkctl.core.session import Session
from sparkctl.core.together import together
from sparkctl.errors import DockerError, NodeError, NoSuchContainer, Refused, SparkctlError
from sparkctl.model.events import Event, MemorySampled, PhaseChanged, Warned
from sparkctl.model.guard import Receipt, UnwatchReason
from sparkctl.model.node import NodeName
from sparkctl.model.phase import Phase
from sparkctl.model.plan import LaunchPlan
from sparkctl.model.units import spoken
from sparkctl.model.verdict import Cause, Change, Evidence, Verdict
from sparkctl.operations import earlier, fitting, journal, judge, readiness, receipts
from sparkctl.operations.chronicled import of_scene
from sparkctl.operations.create import CreatingTooLong, create
from sparkctl.operations.drop_caches import NoRight, drop
from sparkctl.operations.placing import Launch
from sparkctl.operations.preflight import Decision, Scene, decide
from sparkctl.operations.savelog import save_log
from sparkctl.operations.start_fit import StartFit
from sparkctl.operations.start_guard import StartGuard, unwatch
from sparkctl.operations.stop import stop, sweep
from sparkctl.operations.stream import Emit
from sparkctl.operations.timing import Timing
from sparkctl.operations.up_request import UpRequest
from sparkctl.operations.watch import StartWatch, Watched, secrets_of

_SIGKILLED = 137
_IDENTITY = ("identity", "memory", "processes", "gpu", "listen", "docker")


@dataclass(frozen=True, slots=True)
class Failed:
    """Why a rank failed, or is late, and where its whole log lies. ``at``: when, by its node's clock, unix seconds."""

    verdict: Verdict | None
    log: str | None
    at: float | None


class NodeStart:
    """One container's start. The attributes are what later steps need of earlier ones; ``began`` is the verb's."""

    def __init__(
        self, ctx: Context, request: UpRequest, session: Session, launch: Launch, emit: Emit, began: float
    ) -> None:
        self.ctx, self.request, self.session = ctx, request, session
        self.plan, self._alone = launch.plan, launch.alone
        self.emit = emit
        self.began = began
        self.scene: Scene | None = None
        self.decision = Decision()
        self.container_id = ""
        self.stopped_another = False
        self.guard: StartGuard | None = None
        self.timing = Timing(ctx, request.profile)
        self.fit = StartFit(ctx, request.profile, request.again_with, forced=request.forced)
        self.fit.emit = emit
        self._watch: StartWatch | None = None
        self._drop_was_told = False  # that the page cache cannot be dropped here

    # looking and deciding

    async def look(self) -> None:
        """Look at everything that the decision rests on."""
        session, plan = self.session, self.plan
        engine, containers, image = await together(
            session.docker.info(), session.docker.list(), session.docker.image(plan.image)
        )
        paths = [f"path={mount.source}" for mount in plan.mounts if mount.source.startswith("/")]
        disk = [f"disk={engine.root_dir}"] if engine.root_dir else []
        look = await session.look(*_IDENTITY, "journal", *disk, *paths, *fitting.sections(self.request.profile, plan))
        journal.refuse_seen(session.node.name, self.ctx, look.journal)
        if look.memory is not None:
            self.emit(MemorySampled(self.ctx.clock.now(), session.node.name, look.memory))
        kept = self.request.kept
        self.scene = Scene(look, tuple(one for one in containers if one.id not in kept), engine, image)
        self.ctx.note(of_scene(plan, self.scene))

    async def decide(self) -> None:
        """Decide what to do, by what was looked at last; raises what stands in the way."""
        assert self.scene is not None
        self.decision = decide(self.plan, self.scene, replace=self.request.replace, again=self.request.again)
        if self.decision.attach is None:
            sparks = len(self.request.nodes)
            await self.fit.check(self.session, self._alone, self.scene, self.decision.stop, sparks)

    def warn_of_decision(self) -> None:
        """Say what the decision leaves to be minded."""
        for message, hint in self.decision.warnings:
            self.warn(message, hint)

    async def collect_earlier(self) -> None:
        """Fetch what an earlier start left there, and say what became of it."""
        await earlier.collect(self.session, self.ctx, self.plan, self.warn)

    async def is_ready(self) -> bool:
        """Ask an instance that runs already whether it is ready; raises `Refused` where it is up and gives no token."""
        plan = self.plan
        if not (await readiness.health(self.session.link, plan.service)).good:
            return False
        answer = await readiness.one_token(self.session.link, plan.service)
        if not answer.good:
            raise Refused(
                f"{plan.instance} already runs on {plan.node} and its health answers, but "
                + answer.told(secrets_of(plan)),
                f"see why: sparkctl logs {plan.instance} --node {plan.node}; start it anew: sparkctl down {plan.instance}",
            )
        return True

    # changing

    async def stop_other(self) -> None:
        """Stop the other version of this instance that the decision found; raises where it had to be kept."""
        other, plan = self.decision.stop, self.plan
        if other is None:
            return
        await unwatch(self.session, self.ctx, self.emit, [other.id], UnwatchReason.STOPPED)
        stopped = await stop(self.session, self.ctx, self.emit, other, plan.stop_grace)
        self.stopped_another = True
        if not stopped.removed:
            raise SparkctlError(
                f"{other.name} was stopped and kept, because its log could not be saved; nothing was started",
                f"on {plan.node}: docker rm {other.name}, then: {self.request.again}",
            )

    async def sweep(self) -> None:
        """Remove ended containers of ours that have the name."""
        for ended in self.decision.sweep:
            await sweep(self.session, self.ctx, self.emit, ended)

    async def drop_caches(self) -> None:
        """Drop the page cache, or say that it cannot be done."""
        self.report(Phase.DROPPING_CACHES)
        try:
            await drop(self.session, self.ctx, self.emit)
        except NoRight as no:
            self._drop_was_told = True
            self.warn(f"page cache not dropped: {no.message}. The engine may find too little memory", no.hint)

    async def arm(self) -> None:
        """Have the guard on the node before there is anything to guard."""
        if self.plan.guard is not None:
            self.guard = StartGuard(self.session, self.ctx, self.emit, self.plan, self.plan.guard)
            await self.guard.arm(drop_was_told=self._drop_was_told)

    async def create(self, lock: NodeLock) -> None:
        """Create and start the container; the guard watches it from then on."""
        self.report(Phase.CREATING)
        await lock.ensure()  # a process that stood still may have lost it, with the connection as it was
        self.container_id = await create(self.ctx, self.session, self.plan, lock)
        with suppress(OSError):  # without it the end of this start is measured by what its processes held
            self.fit.keep(self.plan, self.container_id)
        await self.watch_over(self.container_id)

    async def attach(self, container_id: str) -> None:
        """Join a start that is under way already."""
        self.timing.has_joined = True
        self.warn(f"{self.plan.instance} is already being started on {self.plan.node}; watching it")
        await self.arm()
        self.container_id = container_id
        await self.watch_over(container_id)

    async def watch_over(self, container_id: str) -> None:
        """Have the guard watch a container."""
        if self.guard is not None:
            await self.guard.watch(container_id)

    async def leave(self) -> None:
        """Go, and leave what was begun: the guard stays armed."""
        if self.guard is not None:
            await self.guard.leave()

    # watching

    async def watch(self) -> Watched:
        """Watch it to its end: ready, failed or out of time; its log is saved as it comes."""
        plan, container_id = self.plan, self.container_id
        watch = StartWatch(
            self.session, self.request.engine, plan, container_id, self.ctx, self._step, self.began, self.request.again
        )
        self._watch = watch
        watch.expected = self.timing.expected
        try:
            watch.saved = self.ctx.history.log_writer(plan.instance, plan.node, container_id, secrets_of(plan))
            self.ctx.history.keep_start(plan.instance, plan.node, container_id, self.request.again)
        except OSError as error:
            self.warn(f"the log will not be saved here: {error}")
        guarding = None if self.guard is None else asyncio.create_task(self.guard.attend(watch.loads_weights))
        looking = asyncio.create_task(self.fit.watch())
        try:
            return await watch.run(self.request.timeout)
        finally:
            if watch.saved is not None:
                watch.saved.close()
            for task in (guarding, looking):
                if task is not None:
                    await _end(task)

    async def became_ready(self) -> None:
        """End the guard's watch, say that it is ready, and remember what the start took."""
        if self.guard is not None:
            await self.guard.end(UnwatchReason.READY)
        if self._watch is not None:
            self._watch.report(
                Phase.READY, None if self.plan.ranks == 1 else f"rank {self.plan.rank} of {self.plan.ranks}"
            )
        seconds = self.ctx.clock.monotonic() - self.began
        peak = await self.fit.peak(self.container_id)
        try:
            self.timing.remember(self.plan, seconds, peak, self.fit.estimated)
        except OSError as error:
            self.warn(f"this start's duration was not kept: {error}")

    @property
    def standing(self) -> Verdict | None:
        """What its log alone says of why it cannot go on, None while it says nothing of the kind."""
        return None if self._watch is None else verdicts.of_log(self._watch.log, self.plan)

    @property
    def so_far(self) -> str:
        """How far it is, in words."""
        if self._watch is None:
            return str(Phase.UNKNOWN)
        step = self._watch.log.step
        return f"{self._watch.log.phase}{f' ({step.name})' if step else ''}"

    async def failed(self, verdict: Verdict | None, *, timed_out: bool = False) -> Failed:
        """Find out why it failed, or is late; what the guard did there outweighs the log."""
        assert self._watch is not None
        watch, at, receipt = self._watch, self._watch.failed_at, None
        log = str(watch.saved.path) if watch.saved else None
        if not timed_out:
            watch.report(Phase.FAILED)
        try:
            container = await self.session.docker.inspect(self.container_id)
            at = container.finished if at is None else at
            if container.exit_code == _SIGKILLED and not container.is_alive and not timed_out:
                receipt = await self._receipt()
            if not container.is_alive:
                log = (await save_log(self.session, self.ctx, self.emit, container, secrets_of(self.plan))).path or log
        except (DockerError, NodeError):
            pass  # what was followed is saved; the verdict stands without another look
        if receipt is not None:
            receipts.keep(self.ctx, self.session, receipt, self.warn)
            at, claim = receipt.at, self.request.engine.memory_setting
            within = None if self.guard is None else self.guard.watched_for
            verdict = judge.of_guard(self.plan, watch.log, receipt, claim, self._value(claim), within)
        return Failed(verdict, log, at)

    async def end(self) -> None:
        """Stop the container, which is kept with its log: another rank has failed, and without it this one is of no use."""
        try:
            if (await self.session.docker.inspect(self.container_id)).is_alive:
                if self.guard is not None:
                    await self.guard.end(UnwatchReason.STOPPED)
                await self.session.docker.stop(self.container_id, self.plan.stop_grace)
        except (DockerError, NodeError) as error:
            self.warn(
                f"whether its rank on {self.plan.node} has ended is not known: {error.message}",
                f"when it answers again: sparkctl down {self.plan.instance}",
            )

    async def ended_after(self, other: NodeName) -> None:
        """Say that it was stopped because another rank had failed, and have its whole log."""
        with suppress(DockerError, NodeError):
            container = await self.session.docker.inspect(self.container_id)
            if not container.is_alive:
                await save_log(self.session, self.ctx, self.emit, container, secrets_of(self.plan))
                if self._watch is not None:
                    self._watch.report(Phase.STOPPED, f"its rank on {other} failed")

    async def take_back(self) -> None:
        """Remove what was created here: another rank could not be."""
        try:
            await self.session.docker.remove(self.container_id, force=True)
            self.warn(f"{self.plan.container_name} on {self.plan.node} was removed again: nothing is left half-started")
        except NoSuchContainer:
            pass
        except (DockerError, NodeError) as error:
            what = f"{self.plan.container_name} on {self.plan.node} could not be removed again: {error.message}"
            self.warn(what, f"sparkctl down {self.plan.instance}")

    async def _receipt(self) -> Receipt | None:
        return await (self.guard.receipt() if self.guard else receipts.of(self.session, self.container_id))

    def _value(self, field_: str | None) -> str | None:
        """Return what the profile says in a field of ``args``."""
        value = None if field_ is None else dict(self.request.profile.args).get(field_.removeprefix("args."))
        return value if isinstance(value, str) else None

    def _step(self, event: Event) -> None:
        """Let the guard know of every step at once."""
        self.emit(event)
        if self.guard is not None and isinstance(event, PhaseChanged):
            self.guard.stepped.set()

    # saying

    def warn(self, message: str, hint: str | None = None) -> None:
        """Say something of this node that does not end the start."""
        self.emit(Warned(self.ctx.clock.now(), self.plan.node, message, hint))

    def report(self, phase: Phase) -> None:
        """Say that a phase has begun that is ours, not the engine's."""
        elapsed, usual = self.ctx.clock.monotonic() - self.began, self.timing.expected
        event = PhaseChanged(
            self.ctx.clock.now(), self.plan.node, self.plan.instance, phase, None, elapsed, usual.seconds
        )
        self.emit(replace(event, expected_parts=usual.parts))


def of_late_creation(plan: LaunchPlan, late: CreatingTooLong) -> Verdict:
    """Return the verdict on a container that Docker took too long to create."""
    summary = (
        f"Docker on {plan.node} took longer than {spoken(plan.timeouts.creating)} to create {plan.container_name}."
    )
    limit, evidence = "start.timeouts.creating", (Evidence(late.message, "docker"),)
    return Verdict(
        Cause.TIMED_OUT, summary, evidence, late.hint or "", limit, edit=edits.edit(plan, limit, Change.RAISE)
    )  # fmt: skip


async def _end(task: asyncio.Task[None]) -> None:
    """End a task that runs beside; a defect in it is not hidden."""
    if not task.done():
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    elif not task.cancelled():
        task.result()
