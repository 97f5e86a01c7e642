"""One rank's part of a start, on its node: what is looked at, decided, changed and watched there, at `operations.up`'s word."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace

from sparkctl.core import edits
from sparkctl.core.context import Context, NodeLock
from sparkctl.core.session import Session
from sparkctl.core.together import together
from sparkctl.errors import DockerError, NodeError, NoSuchContainer, Refused, SparkctlError
from sparkctl.model.events import MemorySampled, PhaseChanged
from sparkctl.model.guard import UnwatchReason
from sparkctl.model.phase import Expectation, Phase
from sparkctl.model.plan import LaunchPlan
from sparkctl.model.units import spoken
from sparkctl.model.verdict import Cause, Change, Evidence, Verdict
from sparkctl.operations.chronicled import of_scene
from sparkctl.operations.drop_caches import NoRight, drop
from sparkctl.operations.starting import earlier, fitting, readiness
from sparkctl.operations.starting.asking import Manners
from sparkctl.operations.starting.create import CreatingTooLong, create
from sparkctl.operations.starting.placing import Launch
from sparkctl.operations.starting.port_check import verify_port_access
from sparkctl.operations.starting.preflight import Decision, Scene, decide
from sparkctl.operations.starting.rank_watch import WatchedRank, ending
from sparkctl.operations.starting.request import UpRequest
from sparkctl.operations.starting.start_fit import StartFit
from sparkctl.operations.starting.start_guard import unwatch
from sparkctl.operations.starting.timing import Timing
from sparkctl.operations.starting.watch import Watched, secrets_of
from sparkctl.operations.stopping.stop import stop, sweep
from sparkctl.operations.stream import Emit
from sparkctl.operations.switching import journal

_IDENTITY = ("identity", "memory", "processes", "gpu", "listen", "docker")


class NodeStart(WatchedRank):
    """One container's start. The attributes are what later steps need of earlier ones; ``began`` is the verb's."""

    def __init__(
        self, ctx: Context, request: UpRequest, session: Session, launch: Launch, emit: Emit, began: float
    ) -> None:
        super().__init__(ctx, session, request.engine, launch.plan, emit, began, request.again, request.timeout)
        self.request, self._alone = request, launch.alone
        self.scene: Scene | None = None
        self.decision = Decision()
        self.stopped_another = False
        self.timing = Timing(ctx, request.profile)
        self.fit = StartFit(ctx, request.profile, request.again_with, forced=request.forced)
        self.fit.emit = emit

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
            await verify_port_access(self.session, self.plan)
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
        manners = Manners()
        if not (await readiness.health(self.session.link, plan.service, manners=manners)).good:
            return False
        answer = await readiness.one_token(self.session.link, plan.service, manners)
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
            self.drop_was_told = True
            self.warn(f"page cache not dropped: {no.message}. The engine may find too little memory", no.hint)

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

    # watching

    async def watch(self) -> Watched:
        """Watch it as any rank, and what memory it takes beside."""
        with suppress(OSError):  # a directory that takes nothing is told of where the log is to be saved
            self.ctx.history.keep_start(self.plan.instance, self.plan.node, self.container_id, self.again)
        looking = asyncio.create_task(self.fit.watch())
        try:
            return await super().watch()
        finally:
            await ending(looking)

    def usual(self) -> Expectation:
        """Return how long it may take, by what was looked up before it began."""
        return self.timing.expected

    async def became_ready(self) -> None:
        """Remember what the start took, once it is said that it is ready."""
        await super().became_ready()
        seconds = self.ctx.clock.monotonic() - self.began
        peak = await self.fit.peak(self.container_id)
        try:
            self.timing.remember(self.plan, seconds, peak, self.fit.estimated)
        except OSError as error:
            self.warn(f"this start's duration was not kept: {error}")

    # saying

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
