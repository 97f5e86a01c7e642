"""The guard of one start on one node: armed before the container exists, kept informed while weights load, left armed
at the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from sparkctl.commands.drop_page_cache import format_sudoers_command
from sparkctl.context import CommandContext
from sparkctl.errors import (
    ConnectionLost,
    GuardNotResponding,
    GuardUnavailable,
    NodeError,
    OperationRefused,
    SparkctlError,
)
from sparkctl.model.events import Emit, GuardActed, WarningEmitted
from sparkctl.model.guard_state import (
    LEASE_EXPIRED_PREFIX,
    GuardAction,
    GuardCoverage,
    GuardEvent,
    GuardReceipt,
    GuardRole,
    GuardState,
    UnwatchReason,
)
from sparkctl.model.launch_plan import GuardRule, LaunchPlan
from sparkctl.model.node import NodeState
from sparkctl.model.phase import Phase, Step
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.text.units import format_gib
from sparkctl.monitor import guard_client
from sparkctl.monitor.guard_client import GuardClient, GuardDirectory
from sparkctl.transport.node_session import NodeSession

_LEASE_SECONDS = 1.5  # seconds between two messages about weights; the guard's lease lasts four
_PULSE_SECONDS = 2.0  # seconds between two checks of the guard while no weights load
_ANSWER_TIMEOUT_SECONDS = 4.0  # seconds without an answer until the guard counts as hanging
_SILENT_RETRY_SECONDS = 5.0  # seconds until a hanging guard is asked again
_RECONNECT_POLL_SECONDS = 0.5
_FULL_RECEIPT_SECONDS = 6.0  # seconds: readings after the action belong to its receipt, too
_FIRST_RECEIPT_SECONDS = 1.5
_RECEIPT_POLL_SECONDS = 0.2


def is_loading_weights(phase: Phase, step: Step | None) -> bool:
    """Tell whether the log says that weights are loading now: only then may the page cache be dropped.

    Stop at the very next line: vLLM measures free memory then, and fails the start if it has grown meanwhile.
    """
    if phase is not Phase.LOADING or step is None or step.name != "weights":
        return False
    whole = step.done is not None and step.done == step.total
    return not whole and (step.fraction is None or step.fraction < 1.0)


class GuardSession:
    """The guard during one start on one node. Its problems are reported at once, with a remedy; they never end the
    start.

    Call in this order: `arm_guard`, `watch_container`, `renew_lease` in parallel with the watch of the start, then
    `stop_watching` or `detach`.
    """

    def __init__(
        self, session: NodeSession, ctx: CommandContext, emit: Emit, plan: LaunchPlan, rule: GuardRule
    ) -> None:
        self.stepped = asyncio.Event()  # set when the phase or step of the start may have changed
        self._session = session
        self._ctx = ctx
        self._emit = emit
        self._plan = plan
        self._rule = rule
        self._container: str | None = None
        self._link: GuardClient | None = None
        self._since: float | None = None  # when the limit began to count
        self._seen: set[GuardEvent] = set()  # reported, or older than this start
        self._guard: tuple[int, float] | None = None  # which guard it is: its process id and start time
        self._watched = False
        self._is_unsure = False  # it was asked to watch; whether it does is not known
        self._ended = False
        self._killed = False
        self._leased = False
        self._asked = 0.0  # when it last answered, by the context's clock
        self._is_silent = False
        self._was_lost = False  # it did not answer during a part of the start

    @property
    def is_armed(self) -> bool:
        """Tell whether the container is being watched, as far as known."""
        return self._watched and self._link is not None and not self._ended and not self._is_silent

    @property
    def coverage(self) -> GuardCoverage:
        """How the start was guarded so far, as far as known."""
        if not self._watched:
            return GuardCoverage.NONE
        return GuardCoverage.PARTLY if self._was_lost or self._is_silent else GuardCoverage.FULL

    @property
    def watched_for(self) -> float | None:
        """Seconds since the container was first watched, None where it never was."""
        return None if self._since is None else self._ctx.clock.monotonic() - self._since

    async def arm_guard(self, *, drop_was_reported: bool = False) -> None:
        """Start a guard on the node, or connect to it. ``drop_was_reported``: the missing right to drop caches was
        reported already.
        """
        try:
            left = await guard_client.read_guard_directory(self._session)
            self._link = await GuardClient.open_guard(self._session, left, self._report_guard_event)
            state = await self._link.get_state()
        except (GuardUnavailable, NodeError) as trouble:
            return await self._give_up(trouble)
        for what, hint in left.list_warnings(self._plan.node):
            self._emit_warning(what, hint)
        self._seen.update(state.events)
        self._guard = state.pid, state.since
        if state.available is not None and self._rule.floor >= state.available:
            await self.detach()
            raise build_floor_refusal(self._rule.floor, state.available, self._session.node.name)
        self._warn_missing_rights(state, drop_was_reported)
        return None

    async def watch_container(self, container: str) -> None:
        """Have the guard watch the container that was created."""
        self._container = container
        if self._link is None:
            return
        service, plan, now = self._plan.readiness_target, self._plan, self._ctx.clock.monotonic()
        self._since = now if self._since is None else self._since
        left = max(1.0, (self._rule.limit or 0.0) - (now - self._since))
        rule = GuardRule(self._rule.floor, self._rule.cache_below, left)
        port = service.port if service.ready.health is not None else None
        try:
            await self._link.watch_container(
                container, plan.instance, profile=plan.profile, operator=self._ctx.operator, role=GuardRole.LOADING, rule=rule, port=port,
                health=service.ready.health,
            )  # fmt: skip
            self._watched = True
            self._asked = self._ctx.clock.monotonic()
        except ConnectionLost:
            pass  # `renew_lease` tries again
        except GuardNotResponding as trouble:  # `renew_lease` asks again
            self._is_unsure = True
            self._warn_guard_silent(trouble)
        except (GuardUnavailable, NodeError) as trouble:
            self._is_unsure = not self._link.is_open
            if self._link.is_open:  # it refused; `renew_lease` returns to one that has ended or is silent
                await self._give_up(trouble)

    async def renew_lease(self, loads: Callable[[], bool]) -> None:
        """Renew the lease on dropping page cache while ``loads`` is true; reconnect to the guard after a lost link."""
        while (link := self._link) is not None and not self._ended:
            try:
                await self._send_loading_state(link, loads())
                await self._wait_for_change(link)
                if link.is_open:
                    continue
            except ConnectionLost:
                pass
            except GuardNotResponding as trouble:
                self._warn_guard_silent(trouble)
            except GuardUnavailable as trouble:
                if link.is_open and not self._ended:
                    return await self._give_up(trouble)
            if self._ended or self._link is not link or not await self._reconnect_guard():
                return None
        return None

    async def stop_watching(self, why: UnwatchReason) -> None:
        """End the watch: there is nothing to guard any more."""
        if self._link is not None and self._container is not None:
            try:
                await self._link.unwatch_container(self._container, why, _ANSWER_TIMEOUT_SECONDS)
            except GuardNotResponding as trouble:
                self._warn_guard_silent(trouble)
            except (GuardUnavailable, NodeError):
                pass  # the watch of an ended container ends by itself
        await self.detach()

    async def detach(self) -> None:
        """Disconnect and leave the guard armed until it finds the instance ready, the container ends, or its time
        limit is reached.
        """
        link, self._link = self._link, None  # first: `renew_lease` must not reconnect one that is closed here
        if link is not None:
            await link.close()

    async def wait_for_receipt(self) -> GuardReceipt | None:
        """Return the guard's receipt for this container, None where the guard did not stop it."""
        if self._container is None:
            return None
        clock = self._ctx.clock
        began = clock.monotonic()
        while True:
            left = await guard_client.read_guard_directory(self._session)
            found = next((one for one in left.receipts if one.container == self._container), None)
            expected = self._killed or found is not None
            patience = _FULL_RECEIPT_SECONDS if expected else _FIRST_RECEIPT_SECONDS if self._link is not None else 0.0
            is_whole = found is not None and any(reading.at > found.at for reading in found.samples)
            if is_whole or clock.monotonic() - began > patience:
                return found
            await clock.sleep(_RECEIPT_POLL_SECONDS)

    async def _send_loading_state(self, link: GuardClient, loads: bool) -> None:
        assert self._container is not None
        now = self._ctx.clock.monotonic()
        if loads or self._leased:
            self._leased = loads
            await link.set_phase(self._container, loads, _ANSWER_TIMEOUT_SECONDS)
            self._asked = now
        elif now - self._asked >= _PULSE_SECONDS:
            await link.get_state(_ANSWER_TIMEOUT_SECONDS)
            self._asked = now

    async def _wait_for_change(self, link: GuardClient) -> None:
        """Return when the start has changed, the lease is due, or the guard is gone."""
        # not `run_until_first`: a step that comes while the other wait ends must count for the next round
        tasks = [asyncio.ensure_future(self.stepped.wait()), asyncio.ensure_future(link.wait_closed())]
        try:
            await asyncio.wait(tasks, timeout=_LEASE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            self.stepped.clear()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _reconnect_guard(self) -> bool:
        """Reconnect to the guard. False where nothing needs a guard any more, or no guard can be started."""
        state = None
        while state is None:
            await self.detach()
            while self._session.link.status.state is not NodeState.OK:
                await self._ctx.clock.sleep(_RECONNECT_POLL_SECONDS)  # the reader of the log restores the link
            try:
                self._link = await GuardClient.start_guard(self._session, self._report_guard_event)
                state = await self._link.get_state(_ANSWER_TIMEOUT_SECONDS)
            except ConnectionLost:
                continue
            except GuardNotResponding as trouble:
                self._warn_guard_silent(trouble)
                await self._ctx.clock.sleep(_SILENT_RETRY_SECONDS)
            except (GuardUnavailable, NodeError) as trouble:
                await self._give_up(trouble)
                return False
        assert self._link is not None
        assert self._container is not None
        self._asked = self._ctx.clock.monotonic()
        is_same = self._guard == (state.pid, state.since)
        self._guard = state.pid, state.since
        for event in state.events:
            if event not in self._seen:
                self._report_guard_event(event)
        if any(watch.container == self._container for watch in state.watches):
            self._report_guard_answers()
            return True
        if self._watched and is_same:
            return False  # the guard ended the watch itself and said why
        if self._watched:
            self._was_lost = True
            self._emit_warning(f"the guard on {self._plan.node} had ended; a new one watches now", None)
        self._is_silent = False
        await self.watch_container(self._container)
        return self._link is not None

    def _warn_guard_silent(self, trouble: GuardNotResponding) -> None:
        """Warn once that the guard hangs; it is asked again later."""
        if not self._is_silent:
            what = f"{trouble.message}: {self._plan.instance} may load unguarded"
            self._emit_warning(what, trouble.hint)
        self._is_silent = self._was_lost = True

    def _report_guard_answers(self) -> None:
        if self._is_silent:
            self._emit_warning(f"the guard on {self._plan.node} answers again, and watches {self._plan.instance}", None)
        self._is_silent = False

    async def _give_up(self, trouble: SparkctlError) -> None:
        await self.detach()
        message = trouble.message if isinstance(trouble, GuardUnavailable) else f"no guard: {trouble.message}"
        if self._watched or self._is_unsure:
            self._was_lost = True
            what = f"if it still runs, it still guards {self._plan.instance}, without contact to sparkctl"
            self._emit_warning(f"{message}; {what}", trouble.hint or f"sparkctl guard status --node {self._plan.node}")
            return
        self._emit_warning(f"{message}. {self._plan.instance} starts without one", trouble.hint)

    def _report_guard_event(self, event: GuardEvent) -> None:
        self._seen.add(event)
        self._emit(to_guard_event(self._ctx.clock.unix_time(), self._session, event))
        if event.container is None or event.container != self._container:
            return
        self._killed = self._killed or event.what is GuardAction.KILLED
        if event.what is GuardAction.ENDED:
            self._ended = True
            self.stepped.set()
            if event.why.startswith(LEASE_EXPIRED_PREFIX) or event.why == UnwatchReason.DISARMED:
                self._was_lost = True
                self._emit_warning(f"{self._plan.instance} is no longer guarded: {sanitize_line(event.why)}", None)

    def _warn_missing_rights(self, state: GuardState, drop_was_reported: bool) -> None:
        if state.docker is False:
            self._was_lost = True
            hint = f"on {self._plan.node}: ls -l /var/run/docker.sock; id"
            self._emit_warning(f"the guard on {self._plan.node} cannot reach Docker: it can warn, not act", hint)
        if state.rights.drop is False and self._rule.cache_below != 0 and not drop_was_reported:
            hint = format_sudoers_command(self._session.node, self._session.node.user)
            self._emit_warning(f"the guard on {self._plan.node} may not drop the page cache while weights load", hint)

    def _emit_warning(self, message: str, hint: str | None) -> None:
        self._emit(WarningEmitted(self._ctx.clock.unix_time(), self._session.node.name, message, hint))


def build_floor_refusal(floor: int, available: int, node: str) -> OperationRefused:
    """Return the refusal for a floor above the memory that is available before anything starts."""
    return OperationRefused(
        f"the guard's floor of {format_gib(floor)} is above the {format_gib(available)} that are available on {node}",
        "free memory there (sparkctl status), or set a lower floor: start.guard.floor in the profile, --floor of guard arm",
    )


def to_guard_event(now: float, session: NodeSession, event: GuardEvent) -> GuardActed:
    """Return the guard's message as an event of sparkctl."""
    return GuardActed(
        ts=now,
        node=session.node.name,
        what=event.what,
        why=event.why,
        at=event.at,
        instance=event.instance,
        container=event.container,
        available=event.available,
        free=event.free,
        rate=event.rate,
        to_zero=event.to_zero,
    )


async def wake_guard(session: NodeSession) -> None:
    """Have a guard run on the node, for the start that follows at once; whatever fails is reported by that."""
    with suppress(GuardUnavailable, NodeError):
        left = await guard_client.read_guard_directory(session)
        await (await GuardClient.open_guard(session, left, lambda event: None)).close()


async def stop_watching_containers(
    session: NodeSession,
    ctx: CommandContext,
    emit: Emit,
    containers: Sequence[str],
    left: GuardDirectory | None = None,
) -> None:
    """Tell the guard, if one runs, to stop watching these containers, which are stopped; save its receipts about them.

    ``left``: its directory, where that has just been read. Errors are ignored: a watch ends with its container anyway.
    """

    def emit_warning(what: str) -> None:
        emit(WarningEmitted(ctx.clock.unix_time(), session.node.name, what, None))

    with suppress(GuardUnavailable, NodeError):
        left = left or await guard_client.read_guard_directory(session)
        for receipt in left.receipts:
            if receipt.container in containers:
                guard_client.save_receipt(ctx, session, receipt, emit_warning)
        link = await GuardClient.connect_guard(session, left.socket) if left.socket else None
        if link is None:
            return
        try:
            for container in containers:
                await link.unwatch_container(container, UnwatchReason.STOPPED)
        finally:
            await link.close()
