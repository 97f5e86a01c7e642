"""``up``: look, decide, drop caches, create, watch until a token came. One generator for the CLI and the panel."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

from sparkctl.core.context import Context, Interrupted
from sparkctl.core.planning import plan as make_plan
from sparkctl.core.session import Session
from sparkctl.core.together import together
from sparkctl.engines.base import Engine
from sparkctl.errors import DockerError, ExitCode, LinkLost, NodeError, NoSuchContainer, Refused
from sparkctl.model.container import Container
from sparkctl.model.events import Ended, Event, MemorySampled, Outcome, PhaseChanged, PlanMade, Warned
from sparkctl.model.node import Node
from sparkctl.model.phase import Phase
from sparkctl.model.plan import Label, LaunchPlan
from sparkctl.model.profile import Profile
from sparkctl.operations import readiness
from sparkctl.operations.drop_caches import NoRight, drop
from sparkctl.operations.endpoint import endpoint
from sparkctl.operations.lock import acquire
from sparkctl.operations.preflight import Decision, Scene, decide, refuse_without_docker
from sparkctl.operations.savelog import save_log
from sparkctl.operations.stop import stop, sweep
from sparkctl.operations.stream import Emit, stream
from sparkctl.operations.watch import StartWatch, Watched, secrets_of

_UNDO_PATIENCE = 15.0
_IDENTITY = ("identity", "memory", "processes", "gpu", "listen", "docker")


@dataclass(frozen=True, slots=True)
class UpRequest:
    """What to start and how. ``timeout`` is seconds for the whole start, None: only the phases' own limits."""

    profile: Profile
    engine: Engine
    node: Node
    dry_run: bool = False
    detach: bool = False
    replace: bool = False
    timeout: float | None = None
    environ: Mapping[str, str] = field(default_factory=dict)


def up(ctx: Context, request: UpRequest) -> AsyncIterator[Event]:
    """Start a profile on a node and stream what happens; the last event is `Ended`."""
    return stream(ctx, lambda emit: _Up(ctx, request, emit).run(), request.profile.name, on_interrupt=None)


class _Up:
    """One run of the verb; the attributes are what later steps need of earlier ones."""

    def __init__(self, ctx: Context, request: UpRequest, emit: Emit) -> None:
        self.ctx = ctx
        self.request = request
        self.emit = emit
        self.began = ctx.clock.monotonic()

    async def run(self) -> Ended:
        node = self.request.node
        async with Session(node, self.ctx.asker, self.ctx.clock) as session:
            session.report_to(self.emit)
            quietly = self.ctx.interrupt.guard
            plan, scene = await quietly(self._look(session), "interrupted before anything was changed")
            self.emit(PlanMade(self.ctx.clock.now(), node.name, plan))
            decision = decide(plan, scene, replace=self.request.replace)
            if self.request.dry_run:
                self._warn(decision)
                return self._ended(plan, Outcome.PLANNED)
            if decision.attach is not None and (await readiness.health(session.link, plan.service)).good:
                return await self._already_there(session, plan, decision.attach)
            lock = await acquire(session, self.ctx, f"starting {plan.instance}")
            try:
                # Between the look and the lock somebody may have started something: decide on what is true now.
                scene = await self._scene(session, plan)
                decision = decide(plan, scene, replace=self.request.replace)
                self._warn(decision)
                container_id = await self._container(session, plan, decision)
                if self.request.detach:
                    return self._ended(plan, Outcome.DETACHED, message=self._goes_on(plan))
                return await self._watch(session, plan, container_id)
            finally:
                await lock.release()

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
        return plan, await self._scene(session, plan)

    async def _scene(self, session: Session, plan: LaunchPlan) -> Scene:
        engine, containers, image = await together(
            session.docker.info(), session.docker.list(), session.docker.image(plan.image)
        )
        paths = [f"path={mount.source}" for mount in plan.mounts if mount.source.startswith("/")]
        disk = [f"disk={engine.root_dir}"] if engine.root_dir else []
        look = await session.look(*_IDENTITY, *disk, *paths)
        if look.memory is not None:
            self.emit(MemorySampled(self.ctx.clock.now(), session.node.name, look.memory))
        return Scene(look, containers, engine, image)

    def _warn(self, decision: Decision) -> None:
        for message, hint in decision.warnings:
            self.emit(Warned(self.ctx.clock.now(), self.request.node.name, message, hint))

    async def _already_there(self, session: Session, plan: LaunchPlan, container: Container) -> Ended:
        answer = await readiness.one_token(session.link, plan.service)
        if not answer.good:
            raise Refused(
                f"{plan.instance} already runs on {plan.node} and its health answers, but {answer.what}",
                f"see why: sparkctl logs {plan.instance} --node {plan.node}; start it anew: sparkctl down {plan.instance}",
            )
        phase = PhaseChanged(
            self.ctx.clock.now(), plan.node, plan.instance, Phase.READY, None, 0.0, None, container.status
        )
        self.emit(phase)
        return self._ended(
            plan, Outcome.READY, message=f"{plan.instance} already runs on {plan.node} ({container.status})"
        )

    # changing

    async def _container(self, session: Session, plan: LaunchPlan, decision: Decision) -> str:
        """Return the id of the container to watch: the one that runs already, or a new one."""
        if decision.attach is not None:
            self.emit(
                Warned(
                    self.ctx.clock.now(), plan.node, f"{plan.instance} is already being started on {plan.node}; watching it", None
                )
            )  # fmt: skip
            return decision.attach.id
        if decision.stop is not None:
            await stop(session, self.ctx, self.emit, decision.stop, plan.stop_grace)
        for ended in decision.sweep:
            await sweep(session, self.ctx, self.emit, ended)
        if plan.drop_caches:
            await self.ctx.interrupt.guard(self._drop(session, plan), "interrupted before anything was started")
        return await self._create(session, plan)

    async def _drop(self, session: Session, plan: LaunchPlan) -> None:
        self._phase(plan, Phase.DROPPING_CACHES)
        try:
            await drop(session, self.ctx, self.emit)
        except NoRight as no:
            message = f"page cache not dropped: {no.message}. The engine may find too little memory"
            self.emit(Warned(self.ctx.clock.now(), session.node.name, message, no.hint))

    async def _create(self, session: Session, plan: LaunchPlan) -> str:
        """Create and start. The first Ctrl-C lets this finish (the engine then goes on without us), a second undoes it."""
        self._phase(plan, Phase.CREATING)
        work = asyncio.ensure_future(self._create_and_start(session, plan))
        second = asyncio.ensure_future(self.ctx.interrupt.wait(2))
        try:
            await asyncio.wait({work, second}, timeout=plan.timeouts.creating, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                return work.result()
            removed = await self._undo(session, plan, work)
            if second.done():
                raise Interrupted(f"interrupted while {plan.container_name} was created; {removed}")
            raise DockerError(
                plan.node,
                f"Docker on {plan.node} did not create {plan.container_name} within {plan.timeouts.creating:.0f} s; {removed}",
                f"on {plan.node}: systemctl status docker",
            )
        finally:
            second.cancel()
            work.cancel()
            await asyncio.gather(work, second, return_exceptions=True)

    async def _create_and_start(self, session: Session, plan: LaunchPlan) -> str:
        try:
            container_id = await session.docker.create(plan)
        except LinkLost:
            container_id = await self._created_meanwhile(session, plan)
        try:
            await session.docker.start(container_id)
        except DockerError:
            # A refused start leaves a container in state "created" behind: nothing half-started may stay.
            await session.docker.remove(container_id, force=True)
            raise
        except LinkLost:
            await session.link.reconnect(give_up_after=plan.timeouts.creating)
            if not (await session.docker.inspect(container_id)).is_alive:
                await session.docker.start(container_id)
        return container_id

    async def _created_meanwhile(self, session: Session, plan: LaunchPlan) -> str:
        """The connection broke under the create call: it may have been done or not. Look, and only then do it again."""
        await session.link.reconnect(give_up_after=plan.timeouts.creating)
        for container in await session.docker.list():
            if container.name == plan.container_name and container.label(Label.HASH) == plan.profile_hash:
                return container.id
        return await session.docker.create(plan)

    async def _undo(self, session: Session, plan: LaunchPlan, work: asyncio.Future[str]) -> str:
        """Remove what a creation left; say so, or say that it could not be done.

        The call that is under way is waited for: cancelled here, it would still be carried out there, after our look.
        """
        await asyncio.wait({work}, timeout=_UNDO_PATIENCE)
        if not work.done():
            return f"Docker has not answered yet: {plan.container_name} may still appear"
        if work.exception() is not None:
            return "nothing was left behind"  # it failed by itself, and cleaned up after itself
        try:
            await session.docker.remove(work.result(), force=True)
        except NoSuchContainer:
            return "it is gone"
        except (DockerError, NodeError) as error:
            return f"it may still be there ({error.message})"
        return "it was removed again"

    # watching

    async def _watch(self, session: Session, plan: LaunchPlan, container_id: str) -> Ended:
        watch = StartWatch(session, self.request.engine, plan, container_id, self.ctx, self.emit, self.began)
        watch.expected = self.ctx.history.expected_start(plan.profile, plan.profile_hash, plan.node) or (
            self.request.profile.start.expected
        )
        try:
            watch.saved = self.ctx.history.log_writer(plan.instance, plan.node, container_id, secrets_of(plan))
        except OSError as error:
            self.emit(Warned(self.ctx.clock.now(), plan.node, f"the log will not be saved here: {error}", None))
        try:
            watched = await self.ctx.interrupt.guard(watch.run(self.request.timeout), self._goes_on(plan))
        finally:
            if watch.saved is not None:
                watch.saved.close()
        if watched.verdict is None:
            watch.report(Phase.READY)
            self._remember(plan, self.ctx.clock.monotonic() - self.began)
            return self._ended(plan, Outcome.READY)
        return await self._failed(session, plan, container_id, watch, watched)

    async def _failed(
        self, session: Session, plan: LaunchPlan, container_id: str, watch: StartWatch, watched: Watched
    ) -> Ended:
        if not watched.timed_out:
            watch.report(Phase.FAILED)
        log = str(watch.saved.path) if watch.saved else None
        try:
            container = await session.docker.inspect(container_id)
            if not container.is_alive:
                log = await save_log(session, self.ctx, self.emit, container) or log
        except (DockerError, NodeError):
            pass  # what was followed is saved; the verdict stands without another look
        outcome = Outcome.TIMED_OUT if watched.timed_out else Outcome.FAILED
        return self._ended(plan, outcome, verdict=watched.verdict, log=log)

    def _remember(self, plan: LaunchPlan, seconds: float) -> None:
        try:
            self.ctx.history.remember_start(plan.profile, plan.profile_hash, plan.node, seconds)
        except OSError as error:
            self.emit(Warned(self.ctx.clock.now(), plan.node, f"this start's duration was not kept: {error}", None))

    # saying

    def _goes_on(self, plan: LaunchPlan) -> str:
        return (
            f"{plan.instance} goes on starting on {plan.node}. Watch it again: sparkctl up {plan.profile} --node {plan.node}; "
            f"stop it: sparkctl down {plan.instance} --node {plan.node}"
        )

    def _phase(self, plan: LaunchPlan, phase: Phase) -> None:
        elapsed = self.ctx.clock.monotonic() - self.began
        self.emit(PhaseChanged(self.ctx.clock.now(), plan.node, plan.instance, phase, None, elapsed))

    def _ended(self, plan: LaunchPlan, outcome: Outcome, **more: object) -> Ended:
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
