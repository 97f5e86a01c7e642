"""Runs a switch from any step: forward to the new instance, back to the old one, or to its abandonment."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from sparkctl.commands.guard_session import wake_guard
from sparkctl.commands.switch import forward_steps, rollback
from sparkctl.commands.switch.switch_checks import inspect_switch_nodes, list_need_requests
from sparkctl.commands.switch.switch_planner import NodeInventory
from sparkctl.commands.switch.switch_request import SwitchInstance
from sparkctl.commands.switch.switch_transaction import OwnershipLost, SwitchTransaction
from sparkctl.concurrency import gather_or_cancel, run_in_background
from sparkctl.context import CommandInterrupted
from sparkctl.errors import DockerUnavailable, ExitCode, NodeError, OperationRefused, SparkctlError
from sparkctl.model.events import CommandEnded, Outcome
from sparkctl.model.guard_state import GuardCoverage
from sparkctl.model.memory_fit import MemoryFit
from sparkctl.model.switch_plan import FORWARD_STEPS, SwitchStep, distinguish_names
from sparkctl.monitor.switch_journal_io import format_abandon_command, format_step_number, list_start_commands
from sparkctl.profiles.launch_planning import choose_container_name

_UNFINISHED_OUTCOMES = (Outcome.UNREACHABLE, Outcome.INTERRUPTED)


class SwitchStepRunner:
    """Runs the steps. ``request`` is not needed for a rollback, which uses the existing containers."""

    def __init__(self, transaction: SwitchTransaction, request: SwitchInstance | None = None) -> None:
        self.transaction = transaction
        self.request = request
        self._is_proved = False  # the new instance serves: from here on a failure leads to no rollback

    # forward

    async def run_forward(self, first: SwitchStep, *, is_untouched: bool = False) -> CommandEnded:
        """Run from step ``first`` to the end. A failure leads to a rollback, unless its node is unreachable.

        ``is_untouched``: nothing was stopped yet, so that Ctrl-C before the first stop leaves no journal.
        """
        try:
            return await self._run_forward_steps(first, is_untouched=is_untouched)
        except (CommandInterrupted, NodeError, DockerUnavailable) as error:
            return await self._build_unfinished_end(error.message, error.exit_code, getattr(error, "node", None))
        except OwnershipLost:
            raise
        except SparkctlError as why:
            if self._is_proved:
                text = f"{self._distinct_names[0]} serves, but what it replaced is not cleared away: {why.message}"
                return await self._build_unfinished_end(
                    text, why.exit_code, getattr(why, "node", None), advice=why.hint
                )
            return await self._handle_failure(why, None)

    async def _run_forward_steps(self, first: SwitchStep, *, is_untouched: bool) -> CommandEnded:
        transaction, interruptible = self.transaction, self.transaction.ctx.interrupt.run_interruptible
        steps = list_remaining_steps(first)
        ended: CommandEnded | None = None
        stops = forward_steps.OldStops((), {})
        if SwitchStep.STOPPING in steps:
            untouched = "interrupted before anything was stopped"
            try:
                stops = await transaction.read_while_beginning(
                    SwitchStep.STOPPING,
                    lambda: interruptible(forward_steps.prepare_old_stops(transaction), untouched),
                )
                transaction.ctx.interrupt.raise_if_pressed(untouched)
            except CommandInterrupted as pressed:
                if not is_untouched:
                    raise
                await transaction.delete_journal()
                return self._build_end(Outcome.INTERRUPTED, ExitCode.INTERRUPTED, message=pressed.message)
        async with run_in_background(*([self._wake_guards()] if stops.turns else [])):
            if SwitchStep.STOPPING in steps:
                await interruptible(
                    forward_steps.stop_old_containers(transaction, stops), "interrupted while the old one stopped"
                )
            if SwitchStep.RELEASING in steps:
                fits = await transaction.read_while_beginning(
                    SwitchStep.RELEASING,
                    lambda: interruptible(self._calculate_fits(), "interrupted before the new one was started"),
                )
                forward_steps.verify_memory_released(transaction, fits)
            if SwitchStep.STARTING in steps:  # the guard may still be starting, and the start waits for it
                ended = await self._start_new_instance()
        if ended is not None:
            if ended.outcome in _UNFINISHED_OUTCOMES:
                return await self._build_unfinished_end(ended.message or "", ExitCode(ended.exit_code), ended.node)
            if ended.outcome is not Outcome.READY:
                return await self._handle_failure(None, ended)
        self._is_proved = True
        serves = f"interrupted: {transaction.journal.instance} serves; the old containers are not removed yet"
        old = await transaction.read_while_beginning(
            SwitchStep.CLEARING, lambda: interruptible(forward_steps.save_old_logs(transaction), serves)
        )
        stayed = await interruptible(forward_steps.remove_old_containers(transaction, old), serves)
        await transaction.delete_journal()
        transaction.report_step(SwitchStep.CLEARING, stayed or "their logs are saved, their containers are gone")
        name, gave_way = self._distinct_names[0], " and ".join(self._distinct_names[1])
        where = " and ".join(transaction.journal.nodes)
        transaction.report_step(SwitchStep.DONE, f"{transaction.journal.instance} serves on {where}")
        left: tuple[str, ...] = ()
        with suppress(CommandInterrupted):  # the switch is done: Ctrl-C can only skip this
            left = await interruptible(forward_steps.describe_losses(transaction), "")
        message = "; ".join(filter(None, (f"{name} serves on {where} in place of {gave_way}", stayed, *left)))
        started = (None, None) if ended is None else (ended.endpoint, ended.guard)
        return self._build_end(Outcome.READY, message=message, endpoint=started[0], guard=started[1])

    async def _wake_guards(self) -> None:
        """Have the guards of the new instance run by the time it starts."""
        assert self.request is not None
        if self.request.guarded and self.request.profile.start.guard is not None:
            await gather_or_cancel(*(wake_guard(self.transaction.sessions[node.name]) for node in self.request.nodes))

    async def _start_new_instance(self) -> CommandEnded:
        assert self.request is not None
        transaction, every = self.transaction, (self.request, *list_need_requests(self.request))
        await transaction.begin_step(SwitchStep.STARTING)
        taken = frozenset((node.name, choose_container_name(one.profile)) for one in every for node in one.nodes)
        await transaction.ctx.interrupt.run_interruptible(
            forward_steps.rename_kept_containers(transaction, taken), "interrupted before the new one was started"
        )
        await transaction.ctx.interrupt.run_interruptible(
            rollback.remove_partial_start(transaction), "interrupted before the new one was started"
        )
        return await forward_steps.start_new_instance(transaction, self.request)

    async def _calculate_fits(self) -> tuple[MemoryFit, ...]:
        found = await self._inspect_new_nodes()
        if silent := [site.node for site in found if site.silent is not None]:
            for node in silent:
                await self.transaction.sessions[node].link.connect()  # says why it cannot be asked
            found = await self._inspect_new_nodes()  # its connection was lost, and is back
        return tuple(site.coming.fit(frozenset()) for site in found if site.coming is not None)

    async def _inspect_new_nodes(self) -> tuple[NodeInventory, ...]:
        assert self.request is not None
        sessions = [self.transaction.sessions[node] for node in self.transaction.journal.nodes]
        return await inspect_switch_nodes(self.transaction.step_context, self.request, sessions, self.transaction.emit)

    async def _handle_failure(self, why: SparkctlError | None, ended: CommandEnded | None) -> CommandEnded:
        """Roll back, or leave it as it is where that was requested."""
        journal = self.transaction.journal
        if journal.rolls_back:
            return await self.run_rollback(why, ended)
        try:
            await self.transaction.begin_step(SwitchStep.LEFT)
        except OwnershipLost:
            raise
        except SparkctlError as error:
            return await self._build_unfinished_end(error.message, error.exit_code, getattr(error, "node", None))
        message = f"{self._describe_failure(why, ended)}; it is left as it is, and {' and '.join(journal.stops)} stopped (--no-rollback)"
        return self._build_end_with_journal(
            Outcome.FAILED, ExitCode.ENGINE_FAILED, ended, message, self.transaction.finish_commands
        )

    # back

    async def run_rollback(
        self, why: SparkctlError | None = None, ended: CommandEnded | None = None, *, is_requested: bool = False
    ) -> CommandEnded:
        """Roll back to the old instance. ``is_requested``: `abort` requested it, so it is no failure."""
        transaction, interruptible = self.transaction, self.transaction.ctx.interrupt.run_interruptible
        failure = self._describe_failure(why, ended)
        try:
            lost = await interruptible(rollback.find_rollback_obstacle(transaction), "interrupted before the rollback")
            if lost is not None and is_requested and transaction.journal.step in FORWARD_STEPS:
                where = f"--node {transaction.journal.affected_nodes[0]}"
                hint = f"{transaction.journal.instance} can still be finished: sparkctl resume {where}\n{format_abandon_command(where)}"
                raise OperationRefused(f"{lost.message}, so there is nothing to go back to; nothing was done", hint)
            await transaction.begin_step(SwitchStep.UNDOING)
            stayed = await interruptible(
                rollback.remove_new_containers(transaction), "interrupted while the new one was removed"
            )
            if lost is not None:
                await forward_steps.save_remaining_stops(transaction)
                await transaction.delete_journal()  # nothing is left that a later attempt could restore
                text = lost.message if is_requested else f"{failure}; and {lost.message}"
                start = list_start_commands(transaction.journal)
                return self._build_end(Outcome.FAILED, ExitCode.ENGINE_FAILED, of=ended, message=text, hint=start)
            await transaction.begin_step(SwitchStep.RESTORING)
            serves = await interruptible(
                rollback.restart_old_containers(transaction), "interrupted while the old one started again"
            )
            await transaction.delete_journal()
        except (CommandInterrupted, NodeError, DockerUnavailable) as error:
            text = error.message if is_requested else f"{failure}; {error.message}"
            return await self._build_unfinished_end(text, error.exit_code, getattr(error, "node", None), ended)
        except OperationRefused as no:
            if isinstance(no, OwnershipLost) or transaction.journal.step in FORWARD_STEPS:
                raise
            return await self._build_failed_rollback_end(no, failure, ended, is_requested=is_requested)
        except SparkctlError as error:
            return await self._build_failed_rollback_end(error, failure, ended, is_requested=is_requested)
        transaction.report_step(SwitchStep.RESTORED, stayed or "nothing of the switch is left")
        serves = "; ".join(filter(None, (serves, stayed)))
        if is_requested:
            return self._build_end(Outcome.DONE, message=serves)
        return self._build_end(Outcome.FAILED, ExitCode.ENGINE_FAILED, of=ended, message=f"{failure}; {serves}")

    async def run_abandon(self) -> CommandEnded:
        """Remove both sides and delete the journal, even where a container stayed."""
        transaction = self.transaction
        interruptible = transaction.ctx.interrupt.run_interruptible
        old = " and ".join(self._distinct_names[1]) or "what was stopped"
        names = f"{old} and {transaction.journal.instance}"
        try:
            await transaction.begin_step(SwitchStep.UNDOING)
            stayed = await interruptible(
                rollback.remove_both_sides(transaction), "interrupted while what is left was removed"
            )
            await transaction.delete_journal()
        except (CommandInterrupted, NodeError, DockerUnavailable) as error:
            return await self._build_unfinished_end(error.message, error.exit_code, getattr(error, "node", None))
        if stayed:
            return self._build_end(
                Outcome.UNHEALTHY,
                ExitCode.UNHEALTHY,
                message=f"the switch is given up, but not all of {names} is gone: {', '.join(stayed)}",
                hint="see what is left: sparkctl status",
            )
        return self._build_end(Outcome.DONE, message=f"the switch is given up: nothing of {names} is left")

    # report

    @property
    def _distinct_names(self) -> tuple[str, tuple[str, ...]]:
        return distinguish_names(self.transaction.journal.instance, self.transaction.journal.stops)

    async def _build_failed_rollback_end(
        self, error: SparkctlError, failure: str, ended: CommandEnded | None, *, is_requested: bool
    ) -> CommandEnded:
        """Return the end of a rollback that failed and can be repeated. Raises `OwnershipLost` as
        `_build_unfinished_end`.
        """
        await self.transaction.verify_ownership()
        text = error.message if is_requested else f"{failure}; and {error.message}"
        hint = "\n".join(filter(None, (error.hint, self.transaction.finish_commands)))
        return self._build_end_with_journal(Outcome.FAILED, ExitCode.ENGINE_FAILED, ended, text, hint)

    def _describe_failure(self, why: SparkctlError | None, ended: CommandEnded | None) -> str:
        name, _ = self._distinct_names
        if ended is not None and ended.verdict is not None:
            late = ended.outcome is Outcome.TIMED_OUT
            return f"{name} was not ready in time" if late else f"{name} did not start"
        if (
            ended is not None
            and ended.outcome is Outcome.UNPROVED
            and ended.instance == self.transaction.journal.instance
        ):
            return f"{name} was up, not proved: {ended.proof}"
        text = why.message if why is not None else ended.message if ended is not None else None
        return f"{name} was not started" + (f": {text}" if text else "")

    async def _build_unfinished_end(
        self,
        message: str,
        code: ExitCode,
        node: str | None,
        ended: CommandEnded | None = None,
        *,
        advice: str | None = None,
    ) -> CommandEnded:
        """Return the end of a switch that stays unfinished. ``advice``: what to do before it is finished. Raises
        `OwnershipLost` where another operator has taken it over or ended it.
        """
        await self.transaction.verify_ownership()
        outcome = Outcome.INTERRUPTED if code is ExitCode.INTERRUPTED else Outcome.UNREACHABLE
        if self._is_proved and code not in (ExitCode.INTERRUPTED, ExitCode.UNREACHABLE):
            outcome, code = Outcome.UNHEALTHY, ExitCode.UNHEALTHY
        step = self.transaction.journal.step
        where = f"at {format_step_number(step)}" if step in FORWARD_STEPS else format_step_number(step)
        text = f"{message}\nthe switch to {self.transaction.journal.instance} is left {where}"
        hint = "\n".join(filter(None, (advice, self.transaction.finish_commands)))
        return self._build_end_with_journal(outcome, code, ended, text, hint)

    def _build_end_with_journal(
        self, outcome: Outcome, code: ExitCode, ended: CommandEnded | None, message: str, hint: str
    ) -> CommandEnded:
        """Return an end with the journal in place: the verdict's own command would be refused until the switch is
        finished.
        """
        verdict = None if ended is None else ended.verdict
        if ended is not None and verdict is not None and verdict.edit is not None:
            again = f"\nafter that, with the change: {verdict.again}" if verdict.again else ""
            ended, hint = replace(ended, verdict=replace(verdict, edit=None, again=None)), hint + again
        return self._build_end(outcome, code, of=ended, message=message, hint=hint)

    def _build_end(
        self,
        outcome: Outcome,
        code: ExitCode = ExitCode.DONE,
        *,
        of: CommandEnded | None = None,
        message: str,
        hint: str | None = None,
        endpoint: str | None = None,
        guard: GuardCoverage | None = None,
    ) -> CommandEnded:
        clock, journal = self.transaction.ctx.clock, self.transaction.journal
        return CommandEnded(
            ts=clock.unix_time(),
            outcome=outcome,
            exit_code=int(code),
            seconds=clock.monotonic() - self.transaction.began,
            node=journal.nodes[0],
            instance=journal.instance,
            endpoint=endpoint,
            message=message,
            hint=hint,
            verdict=None if of is None else of.verdict,
            log=None if of is None else of.log,
            more_logs=() if of is None else of.more_logs,
            guard=guard,
        )


def list_remaining_steps(first: SwitchStep) -> tuple[SwitchStep, ...]:
    """Return the steps that are left of a switch that was at ``first``: that step again and all after it; the clearing in any case."""
    steps = (SwitchStep.STOPPING, SwitchStep.RELEASING, SwitchStep.STARTING, SwitchStep.CLEARING)
    reached = FORWARD_STEPS.index(first)
    return tuple(step for step in steps if FORWARD_STEPS.index(step) >= reached) or (SwitchStep.CLEARING,)
