"""One run of a switch: stop what conflicts with a profile and start it, each step verified, with a rollback where the new
one fails.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import NoReturn

from sparkctl.commands.event_stream import build_end, deduplicate_warnings, forward_events
from sparkctl.commands.start.rank_start import confirm_after_failures
from sparkctl.commands.start.start_measurements import StartTimer
from sparkctl.commands.switch import switch_planner
from sparkctl.commands.switch.rollback import order_restarts
from sparkctl.commands.switch.switch_checks import (
    check_flags,
    inspect_switch_nodes,
    list_need_requests,
    list_ways_to_fit,
    read_for_checks,
    run_switch_checks,
)
from sparkctl.commands.switch.switch_planner import NodeInventory
from sparkctl.commands.switch.switch_request import SwitchInstance
from sparkctl.commands.switch.switch_runner import SwitchStepRunner
from sparkctl.commands.switch.switch_transaction import SwitchTransaction
from sparkctl.concurrency import gather_or_cancel
from sparkctl.context import CommandContext
from sparkctl.errors import NodeError, NodeUnreachable, OperationRefused, SparkctlError
from sparkctl.model.container import Container
from sparkctl.model.events import CommandEnded, Emit, Outcome, SwitchPlanned, WarningEmitted
from sparkctl.model.instance import is_worker
from sparkctl.model.launch_plan import ContainerLabel
from sparkctl.model.node import NodeName
from sparkctl.model.phase import Phase
from sparkctl.model.switch_plan import SwitchJournal, SwitchPlan, SwitchStep
from sparkctl.model.text.secrets import redact_words
from sparkctl.monitor.node_status import build_instance_view, note_tokens, note_unproved_starts
from sparkctl.monitor.switch_journal_io import list_finish_commands
from sparkctl.node.node_inspection import NodeInspection
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.profiles.profile_lint import list_start_warnings
from sparkctl.transport.node_session import NodeSession, SharedSession

_UNCHANGED_MESSAGE = "interrupted before anything was changed"


class SwitchRun:
    """One run of the command. ``inspections``: the first one of each node, which has begun."""

    def __init__(
        self,
        ctx: CommandContext,
        request: SwitchInstance,
        sessions: Mapping[NodeName, NodeSession],
        inspections: Mapping[NodeName, Awaitable[NodeInspection]],
        emit: Emit,
        began: float,
    ) -> None:
        self.ctx, self.request, self.sessions, self.emit, self.began = ctx, request, sessions, emit, began
        self._inspections = inspections
        self.sites: tuple[NodeInventory, ...] = ()

    async def run(self) -> CommandEnded:
        interruptible = self.ctx.interrupt.run_interruptible
        took = self.ctx.history.find_longest_phases(self.request.profile, self.request.nodes[0].name)
        # the flag catalogues are read in a thread: meanwhile the nodes answer
        linting = asyncio.to_thread(list_start_warnings, self.request.profile, ProfileLibrary(), took)
        plan, flags = await interruptible(
            gather_or_cancel(self._plan_switch(self.ctx, self._inspections), linting), _UNCHANGED_MESSAGE
        )
        plan = replace(plan, unproved=await interruptible(self._find_unproved(plan), _UNCHANGED_MESSAGE))
        goes = frozenset(container for _, container in _list_stopped_container_ids(plan))
        warnings = () if plan.is_there else tuple(check_flags(self.request, flags, self.sites, goes))
        if not plan.is_there and (short := self.request.check_timeout(self.ctx.history)) is not None:
            warnings += (short,)
        self.emit(SwitchPlanned(self.ctx.clock.unix_time(), plan.nodes[0], plan))
        emit = self.emit = deduplicate_warnings(self.emit, plan.cautions)
        if plan.obstacles:
            self._refuse_impossible(plan)
        if self.request.dry_run:
            for message, hint in warnings:
                emit(WarningEmitted(self.ctx.clock.unix_time(), plan.nodes[0], message, hint))
            node, instance = self.request.nodes[0].name, self.request.profile.name
            return build_end(self.ctx, self.began, Outcome.PLANNED, node=node, instance=instance)
        launches = [site.coming.plan for site in self.sites if site.coming is not None]
        if launches and not (plan.is_there or self.request.once_more):
            question = confirm_after_failures(self.ctx, launches, self.request.retry_command)
            await interruptible(question, _UNCHANGED_MESSAGE)
        if not plan.stops:
            return await self._start_without_stops()
        journal = await interruptible(self._build_journal(plan), _UNCHANGED_MESSAGE)
        if self.ctx.operation is not None:
            self.ctx.operation.record_facts(nodes=tuple(dict.fromkeys((*journal.nodes, *journal.affected_nodes))))
        transaction = SwitchTransaction(
            self.ctx, self.sessions, journal, emit, self.began, guarded=self.request.guarded
        )
        await interruptible(transaction.acquire_locks(f"switching to {plan.instance}"), _UNCHANGED_MESSAGE)
        try:
            await self._run_checks(transaction, plan, warnings)
            return await SwitchStepRunner(transaction, self.request).run_forward(SwitchStep.STOPPING, is_untouched=True)
        finally:
            await transaction.release_locks()

    # inspect

    async def _plan_switch(
        self, ctx: CommandContext, inspections: Mapping[NodeName, Awaitable[NodeInspection]] = MappingProxyType({})
    ) -> SwitchPlan:
        request = self.request
        self.sites = await inspect_switch_nodes(ctx, request, tuple(self.sessions.values()), self.emit, inspections)
        launch = next((site.coming.plan for site in self.sites if site.coming is not None), None)
        timing = StartTimer(self.ctx, request.profile)
        if launch is not None:
            timing.load_expected(launch)
        return switch_planner.plan_switch(
            request.profile.name,
            [node.name for node in request.nodes],
            self.sites,
            keep_going=request.keep_going,
            rolls_back=request.rolls_back,
            seconds=request.profile.expected_start_seconds if launch is None else timing.expected.seconds,
        )

    async def _find_unproved(self, plan: SwitchPlan) -> tuple[str, ...]:
        """Return what stops and has given no token since its start. Only what may be so is asked: a switch waits for this."""
        goes = self._list_containers_to_stop(plan)
        for session in self.sessions.values():
            note_unproved_starts(self.ctx, session, (one for at, one in goes if at == session.node.name))
        doubted = [(self.sessions[at], one) for at, one in goes if one.id in self.sessions[at].doubted]
        views = await gather_or_cancel(*(build_instance_view(session, one, None) for session, one in doubted))
        for (session, _), view in zip(doubted, views, strict=True):
            note_tokens(self.ctx, session, (view,))
        unproved = {one.name for one in views if one and one.phase is not Phase.READY and not is_worker(one)}
        return tuple(sorted(unproved))

    def _refuse_impossible(self, plan: SwitchPlan) -> NoReturn:
        """Raise `OperationRefused` with every obstacle, and the commands that get what is missing or make it fit; the
        error of a node that must start it and is silent, as a start does."""
        for site in self.sites:
            if site.error is not None and (site.node in plan.nodes or site.is_needed):
                raise site.error
        ways = (*plan.hints, *list_ways_to_fit(self.request, self.sites))
        raise OperationRefused("; ".join(plan.obstacles), "\n".join(ways) or None)

    async def _build_journal(self, plan: SwitchPlan) -> SwitchJournal:
        order = await order_restarts(self.sessions, self._list_containers_to_stop(plan))
        request = self.request
        words = request.words or (request.profile.name,)
        goes = {one.id for _, one in order}
        ran_before = [
            one.container.id
            for site in self.sites
            for one in site.occupants
            if one.container.get_label(ContainerLabel.STARTED_FOR) == plan.instance and one.container.id not in goes
        ]
        row = self.ctx.operation  # the key by which `resume` and `abort` find it in the history
        return SwitchJournal(
            id=uuid.uuid4().hex if row is None else row.operation_key, operator=self.ctx.operator,
            since=self.ctx.clock.unix_time(), step=SwitchStep.CHECKING,
            instance=plan.instance, words=(words[0], *redact_words(list(words[1:]))), profile_hash=request.profile.digest,
            nodes=plan.nodes, stops=plan.stops, old=tuple((node, one.id) for node, one in order),
            rolls_back=request.rolls_back, guarded=request.guarded, timeout=request.timeout,
            keep_going=request.keep_going, ran_before=tuple(ran_before), unproved=plan.unproved,
            need_nodes=tuple(dict.fromkeys(node.name for one in list_need_requests(request) for node in one.nodes)),
        )  # fmt: skip

    def _list_containers_to_stop(self, plan: SwitchPlan) -> Sequence[tuple[NodeName, Container]]:
        goes = _list_stopped_container_ids(plan)
        return [
            (site.node, one.container)
            for site in self.sites
            for one in site.occupants
            if (site.node, one.container.id) in goes
        ]

    # before the old instance is touched

    async def _run_checks(
        self, transaction: SwitchTransaction, plan: SwitchPlan, warnings: Sequence[tuple[str, str | None]]
    ) -> None:
        """Run all checks while the old instance serves; on failure nothing of the switch remains."""
        interruptible, sites = self.ctx.interrupt.run_interruptible, self.sites
        try:
            readings, _ = await transaction.read_while_beginning(
                SwitchStep.CHECKING,
                lambda: interruptible(
                    gather_or_cancel(
                        read_for_checks(transaction, self.request, sites),
                        self._refuse_changed_nodes(transaction, plan),
                    ),
                    _UNCHANGED_MESSAGE,
                ),
            )
            proved = await interruptible(
                run_switch_checks(transaction, self.request, sites, readings, warnings), _UNCHANGED_MESSAGE
            )
            transaction.report_step(SwitchStep.CHECKING, proved)
            self.ctx.interrupt.raise_if_pressed(_UNCHANGED_MESSAGE)
        except SparkctlError as error:
            try:
                await transaction.delete_journal()
            except NodeError as lost:
                what = (
                    f"{error.message}; nothing was stopped, and the journal of this switch may still be on {lost.node}"
                )
                raise NodeUnreachable(lost.node, what, list_finish_commands(transaction.journal)) from error
            raise

    async def _refuse_changed_nodes(self, transaction: SwitchTransaction, plan: SwitchPlan) -> None:
        """Inspect again under the locks: another operator may have started or stopped something meanwhile."""
        again = await self._plan_switch(transaction.step_context)
        if _list_stopped_container_ids(again) != _list_stopped_container_ids(plan) or again.obstacles:
            raise OperationRefused(
                "what runs there has changed meanwhile, and nothing was done", f"again: {self.request.retry_command}"
            )

    # where nothing has to stop

    async def _start_without_stops(self) -> CommandEnded:
        """Start it as `up` does; the history records that start only."""
        if self.ctx.operation is not None:
            self.ctx.operation.delete_row()
        alone = replace(self.ctx, lend=lambda node: SharedSession(self.sessions[node.name]), operation=None)
        return await forward_events(self.request.to_start_request().run(alone), self.emit)


def _list_stopped_container_ids(plan: SwitchPlan) -> set[tuple[NodeName, str]]:
    """Return the ids of the containers that the switch stops."""
    return {(change.node, one.container_id) for change in plan.changes for one in change.stopped_containers}
