"""The nodes of one switch: their sessions, their locks, and the journal on each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from sparkctl.commands.event_stream import deduplicate_warnings
from sparkctl.commands.node_lock import BorrowedNodeLock, HeldNodeLock, LockConflict, acquire_node_lock
from sparkctl.commands.stop.pending_stops import finish_pending_stops, withdraw_pending_stops
from sparkctl.concurrency import cancel_and_wait, gather_or_cancel
from sparkctl.context import CommandContext, NodeLock
from sparkctl.errors import ConnectionLost, NodeError, OperationRefused
from sparkctl.model.events import Emit, SwitchStepReported, WarningEmitted
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.switch_plan import JournalPresence, SwitchJournal, SwitchJournalStatus, SwitchStep
from sparkctl.monitor import switch_journal_io as journals
from sparkctl.monitor.switch_journal_io import NO_JOURNAL, encode_switch_journal
from sparkctl.transport.node_session import NodeSession, SharedSession

T = TypeVar("T")
_FINAL_CHECK_SECONDS = 5.0  # seconds to wait for a lost node before the result leaves it out
_RECONNECT_TIMEOUT_SECONDS = 60.0  # seconds to wait for a lost node before the next step fails


class OwnershipLost(OperationRefused):
    """Another operator has taken over or ended this switch: nothing of it may be changed from here any more."""

    def __init__(self, instance: str, why: str) -> None:
        super().__init__(
            f"the switch to {instance} no longer belongs to this sparkctl, which does nothing more: {why}",
            "see what runs there: sparkctl status",
        )


class OwnedNodeLock:
    """A node's lock as a step of a switch uses it: held only while the switch is still ours."""

    def __init__(self, transaction: SwitchTransaction, node: NodeName) -> None:
        self._transaction, self._node = transaction, node

    async def reacquire_if_lost(self) -> None:
        """Make sure that lock and switch are still ours; raises `OwnershipLost`."""
        await self._transaction.reacquire_if_lost(self._node)


class SwitchTransaction:
    """What every step needs: sessions, locks and journal.

    ``began``: start of the command, by the context's clock. No journal may be on any node before the first step,
    except an adopted one (`adopt_journal`). End with `release_locks`.
    """

    def __init__(
        self,
        ctx: CommandContext,
        sessions: Mapping[NodeName, NodeSession],
        journal: SwitchJournal,
        emit: Emit,
        began: float,
        *,
        guarded: bool = True,
    ) -> None:
        self.ctx, self.sessions, self.journal, self.began, self.guarded = ctx, sessions, journal, began, guarded
        self.emit = deduplicate_warnings(emit)  # drop a warning that an earlier step gave already
        self._locks: dict[NodeName, HeldNodeLock | BorrowedNodeLock] = {}
        # The known journal on each node; `adopt_journal` adds the one of another operator.
        self._possible_journals: dict[NodeName, tuple[str, ...]] = dict.fromkeys(journal.affected_nodes, (NO_JOURNAL,))
        self._tried: set[NodeName] = set()  # nodes where we have written, or may have

    @property
    def step_context(self) -> CommandContext:
        """The context of a command that is a step of this switch: with its sessions, under its locks."""
        locks: dict[NodeName, NodeLock] = {node: OwnedNodeLock(self, node) for node in self._locks}
        return replace(
            self.ctx,
            lend=lambda node: SharedSession(self.sessions[node.name]),
            holds={**self.ctx.holds, **locks},
        )

    async def acquire_locks(self, doing: str) -> None:
        """Take the locks of all nodes in the order of their names; raises `LockConflict` with none of them held."""
        try:
            for node in self.journal.affected_nodes:
                warn = self._create_warner(node)
                self._locks[node] = await acquire_node_lock(self.sessions[node], self.ctx, doing, warn, for_switch=True)
            await self._settle_pending_stops()
        except BaseException:
            await self.release_locks()
            raise

    async def _settle_pending_stops(self) -> None:
        """Do the pending stops on these nodes, except those of containers that this switch handles."""
        why = f"the switch to {self.journal.instance} decides on it now"
        for node in self.journal.affected_nodes:
            warn = self._create_warner(node)
            withdraw_pending_stops(self.ctx, node, (self.journal.instance, *self.journal.stops), warn, why)
            await finish_pending_stops(self.sessions[node], self.ctx, warn)

    def adopt_journal(self, node: NodeName, text: str) -> None:
        """Record another operator's journal, read under the node's lock: only that one may be overwritten."""
        self._possible_journals[node] = (text,)

    async def release_locks(self) -> None:
        """Release the locks; journals and containers stay."""
        locks, self._locks = self._locks, {}
        for defect in await asyncio.gather(*(lock.release() for lock in locks.values()), return_exceptions=True):
            if defect is not None:
                raise defect

    async def begin_step(self, step: SwitchStep) -> None:
        """Begin a step: write it to every node's journal before doing anything. Raises `OwnershipLost`."""
        self.journal = replace(self.journal, step=step)
        await gather_or_cancel(*(self._write_journal(node) for node in self.journal.affected_nodes))
        self.report_step(step)

    async def read_while_beginning(self, step: SwitchStep, read: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Begin a step, and return what ``read``, which changes nothing, returns: once more where the connection broke.

        An error of it is raised once the journals are written: only then is it known what they say.
        """
        reading = asyncio.ensure_future(read())  # no TaskGroup: its error must not cancel a write
        try:
            await self.begin_step(step)
            try:
                return await reading
            except ConnectionLost:
                return await read()
        finally:
            await cancel_and_wait([reading])

    async def reacquire_if_lost(self, *nodes: NodeName) -> None:
        """Make sure that the locks of these nodes, or of all, are held and their journals are ours; call it before
        every change, because a suspended process may have lost them. Raises `OwnershipLost`.
        """
        await gather_or_cancel(
            *(
                self._retry_after_reconnect(node, self._verify_lock_and_journal)
                for node in nodes or self.journal.affected_nodes
            )
        )

    async def verify_ownership(self) -> None:
        """Raise `OwnershipLost` where a reachable node's journal shows another operator, or is gone; an unreachable
        node is skipped.
        """
        for node in self._tried:
            if self.sessions[node].link.status.state is not NodeState.OK:
                continue
            with suppress(NodeError):
                await self._retry_after_reconnect(node, self._verify_journal, _FINAL_CHECK_SECONDS)

    async def _retry_after_reconnect(
        self,
        node: NodeName,
        do: Callable[[NodeName], Coroutine[Any, Any, None]],
        patience: float = _RECONNECT_TIMEOUT_SECONDS,
    ) -> None:
        """Run an action on a node, once more where the connection broke."""
        try:
            await do(node)
        except ConnectionLost:
            await self.sessions[node].link.reconnect(give_up_after=patience)
            await do(node)

    async def _reacquire_lock(self, node: NodeName) -> None:
        try:
            await self._locks[node].reacquire_if_lost()
        except LockConflict as taken:
            raise OwnershipLost(self.journal.instance, taken.message) from taken

    async def _verify_lock_and_journal(self, node: NodeName) -> None:
        await self._reacquire_lock(node)
        if node in self._tried:
            await self._verify_journal(node)

    async def _verify_journal(self, node: NodeName) -> None:
        view = await journals.read_journal(self.sessions[node])
        if (why := find_ownership_loss(self.journal, view, node, self._possible_journals[node])) is not None:
            raise OwnershipLost(self.journal.instance, why)

    async def _write_journal(self, node: NodeName) -> None:
        """Write the journal over our last version and over nothing else: compare and write are one step on the node."""
        text = encode_switch_journal(self.journal)
        # after a lost connection it is not known whether it was written
        self._possible_journals[node] = (*self._possible_journals[node], text)
        await self._retry_after_reconnect(node, self._replace_journal)
        self._possible_journals[node] = (text,)

    async def _replace_journal(self, node: NodeName) -> None:
        await self._reacquire_lock(node)
        self._tried.add(node)
        if await journals.write_journal(
            self.sessions[node], encode_switch_journal(self.journal), self._possible_journals[node]
        ):
            return
        if NO_JOURNAL not in self._possible_journals[node]:
            await self._verify_lock_and_journal(node)  # raises with its owner
            raise OwnershipLost(self.journal.instance, f"the journal on {node} is not as this sparkctl wrote it")
        view = await journals.read_journal(self.sessions[node])
        raise journals.build_switch_refusal(node, view, is_held=view.is_held)

    async def delete_journal(self) -> None:
        """Delete the journal everywhere: nothing is left to finish."""
        nodes = [node for node, known in self._possible_journals.items() if known != (NO_JOURNAL,)]
        await gather_or_cancel(*(self._retry_after_reconnect(node, self._remove_journal) for node in nodes))

    async def _remove_journal(self, node: NodeName) -> None:
        known = self._possible_journals[node]
        self._possible_journals[node] = (*known, NO_JOURNAL)  # from here on it is not known whether it was removed
        await self._reacquire_lock(node)
        if not await journals.remove_journal(self.sessions[node], known) and NO_JOURNAL not in known:
            await self._verify_lock_and_journal(node)
            raise OwnershipLost(self.journal.instance, f"the journal on {node} is not as this sparkctl wrote it")
        self._possible_journals[node] = (NO_JOURNAL,)

    def report_step(self, step: SwitchStep, proof: str | None = None) -> None:
        """Report that a step has begun, or its proof."""
        clock = self.ctx.clock
        self.emit(
            SwitchStepReported(
                ts=clock.unix_time(),
                node=self.journal.nodes[0],
                step=step,
                instance=self.journal.instance,
                proof=proof,
                elapsed=clock.monotonic() - self.began,
                stops=self.journal.stops,
            )
        )

    def warn(self, node: NodeName | None, message: str, hint: str | None = None) -> None:
        """Emit a warning about a node; the switch goes on."""
        self.emit(WarningEmitted(self.ctx.clock.unix_time(), node, message, hint))

    def _create_warner(self, node: NodeName) -> Callable[[str], None]:
        return lambda message: self.warn(node, message)

    @property
    def finish_commands(self) -> str:
        return journals.list_finish_commands(self.journal)


def find_ownership_loss(
    mine: SwitchJournal, view: SwitchJournalStatus, node: NodeName, possible: Sequence[str]
) -> str | None:
    """Return why the journal found on a node shows that the switch is no longer ours, None if it is.

    ``possible``: the texts that may be there, `NO_JOURNAL` among them before the first write and after a removal.
    """
    if view.found is JournalPresence.NONE:
        if NO_JOURNAL in possible:
            return None
        return f"its journal is gone from {node}: another operator finished or undid it"
    found = view.journal
    if found is None:
        return f"the owner of the journal on {node} is not known: {view.why}"
    if (found.id, found.operator, found.since) != (mine.id, mine.operator, mine.since):
        return f"{node}: {journals.describe_switch(found, is_held=False)}"
    return None
