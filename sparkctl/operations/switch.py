"""``switch``: what conflicts gives way to something else, each step proved, and undone where the new one fails."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace

from sparkctl.core import switching
from sparkctl.core.context import Context
from sparkctl.core.session import Lent, Session
from sparkctl.core.switching import Site
from sparkctl.core.together import together
from sparkctl.errors import Refused, SparkctlError
from sparkctl.model.container import Container
from sparkctl.model.events import Ended, Event, Outcome, SwitchPlanned, Warned
from sparkctl.model.history import Kind
from sparkctl.model.node import Node, NodeName
from sparkctl.model.secrets import redact_words
from sparkctl.model.switch import Journal, SwitchPlan, SwitchStep
from sparkctl.operations.chronicled import Subject, chronicled
from sparkctl.operations.starting.timing import Timing
from sparkctl.operations.stream import Emit, opened, passed_on, stream, told_once
from sparkctl.operations.switching.back import restart_order
from sparkctl.operations.switching.checks import check, of_flags
from sparkctl.operations.switching.crew import Crew
from sparkctl.operations.switching.look import sites
from sparkctl.operations.switching.request import SwitchRequest
from sparkctl.operations.switching.run import SwitchRun
from sparkctl.operations.up import up
from sparkctl.wire import docker

_UNCHANGED = "interrupted before anything was changed"


def switch(ctx: Context, request: SwitchRequest) -> AsyncGenerator[Event, None]:
    """Switch and stream what happens; the last event is `Ended`."""

    def run(own: Context) -> AsyncGenerator[Event, None]:
        return stream(own, _Switch(own, request).run, request.profile.name, request.nodes[0].name, on_interrupt=None)

    subject = Subject(Kind.SWITCH, request.nodes, None, request.profile, request.again)
    return run(ctx) if request.dry_run else chronicled(ctx, subject, run)


async def switch_again(ctx: Context, request: SwitchRequest, emit: Emit) -> Ended:
    """Do a switch as a part of the verb whose context this is, in its row of the history."""
    return await _Switch(ctx, request).run(emit)


class _Switch:
    """One run of the verb."""

    def __init__(self, ctx: Context, request: SwitchRequest) -> None:
        self.ctx = ctx
        self.request = request
        self.emit: Emit = lambda event: None
        self.began = ctx.clock.monotonic()
        self.sessions: dict[NodeName, Session] = {}
        self.sites: tuple[Site, ...] = ()

    async def run(self, emit: Emit) -> Ended:
        self.emit = emit
        guard = self.ctx.interrupt.guard
        async with AsyncExitStack() as stack:
            for node in self.request.known:
                self.sessions[node.name] = await opened(stack, self.ctx, node, emit)
            if not self.request.dry_run:
                docker.get_ready()
            plan = await guard(self._plan(self.ctx), _UNCHANGED)
            emit(SwitchPlanned(self.ctx.clock.now(), plan.nodes[0], plan))
            emit = self.emit = told_once(emit, plan.cautions)
            if plan.obstacles:
                first, *more = plan.obstacles
                raise Refused(first, "\n".join(more) or None)
            if self.request.dry_run:
                for message, hint in () if plan.is_there else of_flags(self.request):
                    emit(Warned(self.ctx.clock.now(), plan.nodes[0], message, hint))
                return self._planned()
            if not plan.stops:
                return await self._start()
            journal = await guard(self._journal(plan), _UNCHANGED)
            if self.ctx.operation is not None:
                self.ctx.operation.know(nodes=tuple(dict.fromkeys((*journal.nodes, *journal.touched))))
            crew = Crew(self.ctx, self.sessions, journal, emit, self.began, guarded=self.request.guarded)
            await guard(crew.lock(f"switching to {plan.instance}"), _UNCHANGED)
            try:
                await self._check(crew, plan)
                return await SwitchRun(crew, self.request).forward(SwitchStep.STOPPING, is_untouched=True)
            finally:
                await crew.release()

    # looking

    async def _plan(self, ctx: Context) -> SwitchPlan:
        request = self.request
        self.sites = await sites(ctx, request, tuple(self.sessions.values()))
        launch = next((site.coming.plan for site in self.sites if site.coming is not None), None)
        timing = Timing(self.ctx, request.profile)
        if launch is not None:
            timing.look_up(launch)
        return switching.plan(
            request.profile.name, [node.name for node in request.nodes], self.sites, keep_going=request.keep_going,
            rolls_back=request.rolls_back,
            seconds=request.profile.start.expected if launch is None else timing.expected.seconds,
        )  # fmt: skip

    async def _journal(self, plan: SwitchPlan) -> Journal:
        order = await restart_order(self.sessions, self._goes(plan))
        request = self.request
        words = request.words or (request.profile.name,)
        row = self.ctx.operation  # by its key it is found again by whoever finishes this
        return Journal(
            id=uuid.uuid4().hex if row is None else row.key, operator=self.ctx.operator,
            since=self.ctx.clock.now(), step=SwitchStep.CHECKING,
            instance=plan.instance, words=(words[0], *redact_words(list(words[1:]))), profile_hash=request.profile.digest,
            nodes=plan.nodes, stops=plan.stops, old=tuple((node, one.id) for node, one in order),
            rolls_back=request.rolls_back, guarded=request.guarded, timeout=request.timeout,
            keep_going=request.keep_going,
        )  # fmt: skip

    def _goes(self, plan: SwitchPlan) -> Sequence[tuple[NodeName, Container]]:
        goes = _stopped(plan)
        return [
            (site.node, one.container)
            for site in self.sites
            for one in site.occupants
            if (site.node, one.container.id) in goes
        ]

    # before the old one is touched

    async def _check(self, crew: Crew, plan: SwitchPlan) -> None:
        """Try everything that can fail while the old one serves; on any failure nothing of the switch is left."""
        guard = self.ctx.interrupt.guard
        try:
            await crew.step(SwitchStep.CHECKING)
            proved, _ = await guard(
                together(check(crew, self.request, self.sites), self._is_as_planned(crew, plan)), _UNCHANGED
            )
            crew.tell(SwitchStep.CHECKING, proved)
            self.ctx.interrupt.check(_UNCHANGED)
        except SparkctlError:
            await crew.forget()
            raise

    async def _is_as_planned(self, crew: Crew, plan: SwitchPlan) -> None:
        """Look again under the locks: before, somebody may have started or stopped something."""
        again = await self._plan(crew.inner)
        if _stopped(again) != _stopped(plan) or again.obstacles:
            raise Refused("what runs there has changed meanwhile, and nothing was done", f"again: {self.request.again}")

    # where nothing has to stop

    async def _start(self) -> Ended:
        """Start it as `up` does; in the history it is that start, and nothing beside."""

        def lend(node: Node) -> Session:
            return Lent(self.sessions[node.name])

        if self.ctx.operation is not None:
            self.ctx.operation.drop()
        alone = replace(self.ctx, lend=lend, operation=None)
        return await passed_on(up(alone, self.request.start()), self.emit)

    def _planned(self) -> Ended:
        clock = self.ctx.clock
        return Ended(
            clock.now(), Outcome.PLANNED, 0, clock.monotonic() - self.began, self.request.nodes[0].name,
            self.request.profile.name,
        )  # fmt: skip


def _stopped(plan: SwitchPlan) -> set[tuple[NodeName, str]]:
    """Return the containers that it stops."""
    return {(change.node, one.container_id) for change in plan.changes for one in change.stops}
