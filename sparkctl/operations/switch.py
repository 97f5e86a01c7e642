"""``switch``: what conflicts gives way to something else, each step proved, and undone where the new one fails."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack

from sparkctl.core import switching
from sparkctl.core.context import Context
from sparkctl.core.session import Session
from sparkctl.errors import ExitCode, Refused
from sparkctl.model.events import Ended, Event, Outcome, SwitchPlanned
from sparkctl.model.switch import SwitchPlan
from sparkctl.operations.stream import Emit, stream
from sparkctl.operations.switch_look import sites
from sparkctl.operations.switch_request import SwitchRequest

_UNCHANGED = "interrupted before anything was changed"


def switch(ctx: Context, request: SwitchRequest) -> AsyncGenerator[Event, None]:
    """Switch and stream what happens; the last event is `Ended`."""
    run = _Switch(ctx, request)
    return stream(ctx, run.run, request.profile.name, request.nodes[0].name, on_interrupt=None)


class _Switch:
    """One run of the verb."""

    def __init__(self, ctx: Context, request: SwitchRequest) -> None:
        self.ctx = ctx
        self.request = request
        self.emit: Emit = lambda event: None
        self.began = ctx.clock.monotonic()
        self.sessions: dict[str, Session] = {}

    async def run(self, emit: Emit) -> Ended:
        self.emit = emit
        guard = self.ctx.interrupt.guard
        async with AsyncExitStack() as stack:
            for node in self.request.known:
                session = await stack.enter_async_context(self.ctx.session(node))
                session.report_to(emit)
                self.sessions[node.name] = session
            plan = await guard(self._plan(), _UNCHANGED)
            emit(SwitchPlanned(self.ctx.clock.now(), plan.nodes[0], plan))
            if plan.obstacles:
                raise Refused("\n".join(plan.obstacles), None)
            if self.request.dry_run:
                return self._ended(Outcome.PLANNED)
            raise Refused("so far a switch is only planned", f"{self.request.again} --dry-run")

    async def _plan(self) -> SwitchPlan:
        request = self.request
        found = await sites(self.ctx, request, tuple(self.sessions.values()))
        launch = next((site.coming.plan for site in found if site.coming is not None), None)
        usual = (
            None if launch is None else self.ctx.history.expected(launch.profile, launch.profile_hash, launch.node, "")
        )
        return switching.plan(
            request.profile.name, [node.name for node in request.nodes], found, keep_going=request.keep_going,
            seconds=request.profile.start.expected if usual is None or usual.seconds is None else usual.seconds,
        )  # fmt: skip

    def _ended(self, outcome: Outcome, code: ExitCode = ExitCode.DONE) -> Ended:
        seconds = self.ctx.clock.monotonic() - self.began
        return Ended(
            self.ctx.clock.now(), outcome, int(code), seconds, self.request.nodes[0].name, self.request.profile.name
        )
