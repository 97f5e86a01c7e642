"""``down`` and ``free``: stop whole instances, all ranks of them, and prove that what they held is back."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from collections.abc import AsyncGenerator, Collection, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

from sparkctl.commands.event_stream import build_end_from_error, open_session, stream_events
from sparkctl.commands.history_writer import OperationSubject, record_operation
from sparkctl.commands.node_lock import BorrowedNodeLock, HeldNodeLock, acquire_node_lock
from sparkctl.commands.stop.pending_stops import COMPLETING_COMMANDS, PendingStop, PendingStopFiles
from sparkctl.commands.stop.stop_containers import StopResult, stop_containers
from sparkctl.concurrency import gather_or_cancel
from sparkctl.context import CommandContext
from sparkctl.errors import (
    ConnectionLost,
    DockerError,
    DockerUnavailable,
    ExitCode,
    InvalidInput,
    NodeError,
    NodeStarved,
    NodeUnreachable,
    OperationRefused,
    SparkctlError,
)
from sparkctl.history.model import NodeResult, OperationKind, OperationRecord
from sparkctl.model.container import Container
from sparkctl.model.events import CommandEnded, ContainersListed, Emit, Event, Outcome, WarningEmitted
from sparkctl.model.launch_plan import ContainerLabel
from sparkctl.model.node import Node, NodeName
from sparkctl.model.switch_plan import JournalPresence
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.text.suggestions import format_did_you_mean
from sparkctl.model.text.units import format_gib
from sparkctl.monitor import switch_journal_io as journals
from sparkctl.monitor.node_status import build_instance_view
from sparkctl.monitor.ranks import InstanceContainers, RankContainer, group_by_instance
from sparkctl.profiles.container_labels import parse_port_label
from sparkctl.transport.node_session import NodeSession

_ID_LENGTH = 12  # digits of a container's id that are kept everywhere


@dataclass(frozen=True, slots=True)
class OpenStart:
    """A start that was not stopped from here since. ``parts``: each of its ranks' node and the beginning of its container's id."""

    instance: str
    parts: tuple[tuple[NodeName, str], ...]

    def containers_on(self, node: NodeName) -> tuple[str, ...]:
        """Return its containers on a node."""
        return tuple(container for where, container in self.parts if where == node)


def find_open_starts(operations: Iterable[OperationRecord]) -> tuple[OpenStart, ...]:
    """Return the starts, given the latest operation first, of which nothing says that they have ended, the latest first.

    What a switch stopped is gone only if the switch went well: else it came back.
    """
    seen = tuple(operations)
    good = {one.id for one in seen if one.has_succeeded}
    gone: set[str] = set()
    found = []
    for one in seen:
        if one.kind is OperationKind.START:
            parts = tuple(
                (share.node, _short_container_id(share)) for share in one.shares if _short_container_id(share)
            )
            if parts and one.outcome != "failed" and not gone.issuperset(id_ for _, id_ in parts):
                found.append(OpenStart(one.shares[0].instance, tuple(part for part in parts if part[1] not in gone)))
        elif one.kind is OperationKind.STOP:
            if one.parent is None or one.parent in good:
                gone.update(_short_container_id(share) for share in one.shares if _has_ended(share))
        elif one.has_succeeded:
            gone.update(_short_container_id(share) for share in one.shares if _has_ended(share))
    return tuple(found)


def _short_container_id(share: NodeResult) -> str:
    return (share.container or "")[:_ID_LENGTH]


def _has_ended(share: NodeResult) -> bool:
    """Tell whether a stop came as far as its end: its container is noted before."""
    return share.log is not None or share.freed is not None or share.available_after is not None


async def list_remaining_containers(ctx: CommandContext, sessions: Sequence[NodeSession], emit: Emit) -> list[str]:
    """Return a line for each node and for each foreign container that runs there, and emit all of what stands there."""
    lines = []
    for session in sessions:
        node = session.node.name
        try:
            look, containers = await gather_or_cancel(
                session.read_node("memory", "processes", "gpu"), session.docker.list_containers()
            )
            views = await gather_or_cancel(
                *(build_instance_view(session, one, look.get_container_memory(one.id)) for one in containers)
            )
        except SparkctlError as error:
            emit(WarningEmitted(ctx.clock.unix_time(), node, error.message, error.hint))
            continue
        found = tuple(view for view in views if view is not None)
        emit(ContainersListed(ts=ctx.clock.unix_time(), node=node, instances=found))
        lines.append(f"{node}: {format_gib(None if look.memory is None else look.memory.available)} available")
        lines += [
            f"{node}: {sanitize_line(one.container)} was not started by sparkctl and is left alone ({format_gib(one.memory)})"
            for one in found
            if not one.ours
        ]
    return lines


_SAVE_LOG_HINT = (
    "find out why (is this disk full? df -h), then repeat the command: it saves the log and removes the container"
)
_UNREACHABLE_ERRORS = (
    NodeUnreachable,
    NodeStarved,
    ConnectionLost,
    DockerUnavailable,
)  # whatever runs there is not known, and runs on


@dataclass(frozen=True, slots=True, kw_only=True)
class StopInstance:
    """``instance`` None means every instance of ours on these nodes. ``grace`` is seconds between TERM and KILL.

    ``known`` are the names that are not misspelt: profiles, and whatever was started before. ``everywhere`` are all nodes
    there are: where the other ranks of a model are looked for. ``frees``: the nodes are to be free, so what stays is told.
    """

    instance: str | None
    nodes: Sequence[Node]
    grace: float | None = None
    known: frozenset[str] = frozenset()
    everywhere: Sequence[Node] = ()
    frees: bool = False
    dry_run: bool = False

    @property
    def retry_command(self) -> str | None:
        """The command that frees the same nodes again; None of a stop, which asks for what is gone."""
        if not self.frees:
            return None
        grace = [] if self.grace is None else [f"--grace={self.grace:g}s"]
        return shlex.join(["sparkctl", "free", *(node.name for node in self.nodes), *grace])


def stop_instance(ctx: CommandContext, request: StopInstance) -> AsyncGenerator[Event, None]:
    """Stop what was asked. Nothing running is success; a node that could not be asked never counts as stopped."""

    def stream_stop(own: CommandContext) -> AsyncGenerator[Event, None]:
        return stream_events(
            own,
            _StopRun(own, request).run,
            request.instance,
            on_interrupt="interrupted; what was told to stop goes on stopping: sparkctl status",
        )

    if request.dry_run:
        return stream_stop(ctx)
    return record_operation(
        ctx,
        OperationSubject(
            kind=OperationKind.STOP, nodes=request.nodes, instance=request.instance, command=request.retry_command
        ),
        stream_stop,
    )


class _StopRun:
    """One run of the verb: what each node has, why one could not be asked, and what came of it."""

    def __init__(self, ctx: CommandContext, request: StopInstance) -> None:
        self.ctx, self.request = ctx, request
        self.emit: Emit = lambda event: None
        self.began = ctx.clock.monotonic()
        self.asked = [node.name for node in request.nodes]
        self.sessions: dict[NodeName, NodeSession] = {}
        self.containers: dict[NodeName, tuple[Container, ...]] = {}
        self.failures: dict[NodeName, SparkctlError] = {}
        self.unmatched: list[str] = []
        self.owed = PendingStopFiles(ctx.history.directory)

    async def run(self, emit: Emit) -> CommandEnded:
        """Look everywhere first, then stop everything at once."""
        self.emit = emit
        async with AsyncExitStack() as stack:
            await self._list_containers(self.request.nodes, stack)
            await self._find_other_ranks(stack)
            chosen = self._choose_instances()
            if self.request.dry_run:
                self._report_affected_nodes(chosen)
                return await self._build_planned_end(chosen)
            if not chosen:
                self._refuse_foreign()
                return await self._build_end(StopResult(), chosen)
            with self._replace_pending_stops(chosen):
                return await self._stop_instances(chosen)

    async def _stop_instances(self, chosen: Sequence[InstanceContainers]) -> CommandEnded:
        locks = await self._lock_nodes(chosen)
        try:
            chosen = self._drop_busy_instances(await self._choose_again(locks))
            self._report_affected_nodes(chosen)
            by_node = {
                node: [part.container for whole in chosen for part in whole.containers_on(node)]
                for node in locks
                if any(whole.containers_on(node) for whole in chosen)
            }
            halt = await stop_containers(self.sessions, self.ctx, self.emit, by_node, self.request.grace)
        finally:
            for lock in locks.values():
                await lock.release()
        self.failures |= dict(halt.failures)
        return await self._build_end(halt, chosen)

    @contextlib.contextmanager
    def _replace_pending_stops(self, chosen: Sequence[InstanceContainers]) -> Iterator[None]:
        """What was owed of these is what is done now; where it is not, it is owed as before."""
        own = [
            one
            for one in self.owed.list_all(self.ctx.clock.unix_time())
            if any(one.matches_container(part.container) for whole in chosen for part in whole.containers_on(one.node))
        ]
        for one in own:
            self.owed.delete_stop(one)
        is_through = False
        try:
            yield
            is_through = True
        finally:
            for one in own:
                if not is_through or one.node in self.failures:
                    with contextlib.suppress(OSError):
                        self.owed.save_stop(one)

    # looking

    async def _list_containers(self, nodes: Iterable[Node], stack: AsyncExitStack) -> None:
        """Ask nodes what stands there, all at once."""
        new = [node for node in nodes if node.name not in self.sessions]
        for node in new:
            self.sessions[node.name] = await open_session(stack, self.ctx, node, self.emit)

        async def list_node_containers(session: NodeSession) -> tuple[Container, ...]:
            await session.link.connect()
            return await session.docker.list_containers()

        answers = await asyncio.gather(
            *(list_node_containers(self.sessions[node.name]) for node in new), return_exceptions=True
        )
        for node, answer in zip(new, answers, strict=True):
            if isinstance(answer, SparkctlError):
                self.failures[node.name] = answer
            elif isinstance(answer, BaseException):
                raise answer
            else:
                self.containers[node.name] = answer

    async def _find_other_ranks(self, stack: AsyncExitStack) -> None:
        """Ask where the other ranks are: by the names that whoever started them gave, else all nodes there are."""
        if any(node in self.failures for node in self.asked):
            await self._list_containers(self.request.everywhere, stack)  # what it does not say, its other ranks may
        for whole in self._choose_instances():
            await self._list_containers([n for n in self.request.everywhere if n.name in whole.elsewhere], stack)
        if any(
            whole.missing and (self._list_unknown_node_names(whole) or not whole.elsewhere)
            for whole in self._choose_instances()
        ):
            await self._list_containers(self.request.everywhere, stack)  # this operator may call them otherwise
        for whole in self._choose_instances():
            self.unmatched += [f"{whole.name} on {name}" for name in self._list_unknown_node_names(whole)]

    def _list_unknown_node_names(self, whole: InstanceContainers) -> list[str]:
        """Return the names of nodes with a rank that was not found, and that no node here is called."""
        return [name for name in whole.elsewhere if name not in self.sessions] if whole.missing else []

    def _choose_instances(self) -> list[InstanceContainers]:
        """Return what is to be stopped: whole instances of which any part is where it was asked.

        Also where its other ranks say that a part is there, and that node does not answer.
        """
        silent = [node for node in self.asked if node in self.failures]
        occupants = [
            RankContainer(node, one, None, parse_port_label(one))
            for node, containers in self.containers.items()
            for one in containers
            if one.is_managed and self.request.instance in (None, one.get_label(ContainerLabel.INSTANCE))
        ]
        return [
            whole
            for whole in group_by_instance(occupants)
            if any(node in self.asked for node in whole.nodes) or any(node in silent for node in whole.elsewhere)
        ]

    def _report_affected_nodes(self, chosen: Sequence[InstanceContainers]) -> None:
        """Say what goes with what was asked for."""
        for whole in chosen:
            if all(node in self.asked for node in whole.nodes):
                continue
            silent = [NodeName(node) for node in whole.elsewhere if node in self.failures]
            what = "would be stopped" if self.request.dry_run else "is stopped"
            where = (
                f"on {_join_node_names(whole.nodes)} now, and on {_join_node_names(silent)} at the next contact"
                if silent
                else "on all of them"
            )
            self._emit_warning(
                whole.nodes[0],
                f"{whole.name} is one model on {_join_node_names((*whole.nodes, *silent))}: it {what} {where}",
            )
        for words in self.unmatched:
            hint = "look there with: sparkctl status --node USER@HOST, or give it that name in the config"
            self._emit_warning(None, f"a rank of {words} was not found: no node is called so here", hint)

    def _refuse_foreign(self) -> None:
        """A running container of that name which is not ours is never stopped, and not passed over in silence either."""
        for node, containers in self.containers.items():
            for one in containers:
                if one.name == self.request.instance and one.is_alive and node in self.asked:
                    raise OperationRefused(
                        f"{one.name} on {node} was not started by sparkctl and is left alone",
                        f"on {node}: docker stop {one.name}",
                    )

    # changing

    async def _lock_nodes(
        self, chosen: Sequence[InstanceContainers]
    ) -> dict[NodeName, HeldNodeLock | BorrowedNodeLock]:
        """Take the locks of all nodes that are touched, in the order of their names, so that two never wait for each other."""
        locks: dict[NodeName, HeldNodeLock | BorrowedNodeLock] = {}
        doing = f"stopping {self.request.instance or 'everything'}"
        for node in sorted({node for whole in chosen for node in whole.nodes}):
            warn = partial(self._emit_warning, node)
            try:
                locks[node] = await acquire_node_lock(self.sessions[node], self.ctx, doing, warn, beside_ourselves=True)
            except SparkctlError as error:
                self.failures[node] = error
        return locks

    async def _choose_again(self, locks: Iterable[NodeName]) -> list[InstanceContainers]:
        """Return what is to be stopped now: somebody may have stopped it while we waited."""
        for node in locks:
            try:
                self.containers[node] = await self.sessions[node].docker.list_containers()
            except (NodeError, DockerError) as error:
                self.failures[node] = error
        return self._choose_instances()

    def _drop_busy_instances(self, chosen: Sequence[InstanceContainers]) -> list[InstanceContainers]:
        """Leave out what somebody else is at work on anywhere: stopping the rest of it would leave a half."""
        busy = {node for node, error in self.failures.items() if isinstance(error, OperationRefused)}
        return [whole for whole in chosen if not busy.intersection(whole.nodes)]

    async def _refuse_during_switch(self, chosen: Sequence[InstanceContainers]) -> None:
        """Have the refusal that stopping them would end with, where a switch goes on or was left."""
        for node in sorted({node for whole in chosen for node in whole.nodes}):
            try:
                view = await journals.read_journal(self.sessions[node])
            except NodeError as error:
                self.failures[node] = error
                continue
            if view.found is not JournalPresence.NONE and node not in self.ctx.holds:
                self.failures[node] = journals.build_switch_refusal(node, view, is_held=view.is_held)

    # saying

    async def _build_planned_end(self, chosen: Sequence[InstanceContainers]) -> CommandEnded:
        await self._refuse_during_switch(chosen)
        lines = [f"would stop {whole.name} on {_join_node_names(whole.nodes)}" for whole in chosen]
        stays = await list_remaining_containers(self.ctx, self._list_asked_sessions(), self.emit)
        if (failure := self._report_failures()) is not None:
            return build_end_from_error(failure, self.ctx, self._elapsed_seconds)
        message = "\n".join([*(lines or ["nothing that sparkctl started runs there"]), *stays])
        return CommandEnded(
            ts=self.ctx.clock.unix_time(),
            outcome=Outcome.PLANNED,
            exit_code=int(ExitCode.DONE),
            seconds=self._elapsed_seconds,
            message=message,
        )

    async def _build_end(self, halt: StopResult, chosen: Sequence[InstanceContainers]) -> CommandEnded:
        self._save_pending_stops(halt, chosen)
        if (failure := self._report_failures()) is not None:
            return build_end_from_error(failure, self.ctx, self._elapsed_seconds, self.request.instance)
        asked, done = self.request.instance, halt.stopped
        if not done and asked is not None and asked not in self.request.known:
            raise InvalidInput(
                f"no instance and no profile is called {asked}{format_did_you_mean(asked, self.request.known)}",
                "see what runs: sparkctl status",
            )
        kept = [f"{sanitize_line(one.kept_name)} on {one.node}" for one in done if one.kept_name is not None]
        is_good = all(one.is_proved for one in done) and not self.unmatched and not kept
        lines: list[str] = []
        if not done:
            what = f"{asked} does not run" if asked else "nothing that sparkctl started runs"
            lines.append(f"{what} on {' or '.join(self.asked)}; nothing to stop")
        if self.request.frees:
            lines += await list_remaining_containers(self.ctx, self._list_asked_sessions(), self.emit)
        if self.unmatched:
            lines = [f"stopped here, but a rank may still run: {', '.join(self.unmatched)}"]
        elif not all(one.is_proved for one in done):
            lines = ["stopped, but not everything that it held is back"]
        elif kept:
            lines = [
                f"stopped, but {' and '.join(kept)} {'was' if len(kept) == 1 else 'were'} kept: the log could not be saved"
            ]
        return CommandEnded(
            ts=self.ctx.clock.unix_time(),
            outcome=Outcome.DONE if is_good else Outcome.UNHEALTHY,
            exit_code=int(ExitCode.DONE if is_good else ExitCode.UNHEALTHY),
            seconds=self._elapsed_seconds,
            instance=asked,
            message="\n".join(lines) or None,
            hint=_SAVE_LOG_HINT if kept else None,
            log=next((one.log for one in done if one.log), None),
        )

    def _list_asked_sessions(self) -> list[NodeSession]:
        return [self.sessions[node] for node in self.asked if node not in self.failures]

    def _report_failures(self) -> SparkctlError | None:
        """Return the failure that decides the end, where there is any; tell of every other one."""
        order = [node for node in self.sessions if node in self.failures]
        told = {self.failures[order[0]].message} if order else set()
        for node in order[1:]:
            if self.failures[node].message not in told:
                told.add(self.failures[node].message)
                self._emit_warning(node, self.failures[node].message, self.failures[node].hint)
        return self.failures[order[0]] if order else None

    def _save_pending_stops(self, halt: StopResult, chosen: Sequence[InstanceContainers]) -> None:
        """Keep what is still to be done on nodes that could not be asked, for the next contact with them."""
        now, done = self.ctx.clock.unix_time(), {one.container_id for one in halt.stopped}
        unseen = self._find_last_known_starts(done)
        for node, error in self.failures.items():
            if not isinstance(error, _UNREACHABLE_ERRORS):
                continue
            left = [
                PendingStop(
                    node=node,
                    instance=whole.name,
                    since=now,
                    containers=(part.container.id,),
                    run=whole.get_label(ContainerLabel.RUN),
                )
                for whole in chosen
                for part in whole.containers_on(node)
                if part.container.id not in done
            ]
            left += [
                PendingStop(
                    node=node, instance=whole.name, since=now, containers=(), run=whole.get_label(ContainerLabel.RUN)
                )
                for whole in chosen
                if whole.missing and node in whole.elsewhere and whole.get_label(ContainerLabel.RUN)
            ]
            if node not in self.containers:
                told = {one.instance for one in left}
                left += [
                    PendingStop(node=node, instance=one.instance, since=now, containers=one.containers_on(node))
                    for one in unseen
                    if one.containers_on(node) and one.instance not in told
                ]
            with contextlib.suppress(OSError):
                for one in left:
                    self.owed.save_stop(one)
                if left:
                    names = ", ".join(dict.fromkeys(one.instance for one in left))
                    self._emit_warning(
                        node,
                        f"what may still run there of {names} is stopped at the next contact with {node}",
                        f"that is {COMPLETING_COMMANDS} there within a day; until then status tells of it",
                    )

    def _find_last_known_starts(self, done: Collection[str]) -> list[OpenStart]:
        """Return what was started last from here on the nodes that were asked and do not say what they have: the whole of it,
        and nothing of which another rank is seen to run on."""
        silent = [node for node in self.asked if node in self.failures and node not in self.containers]
        if not silent:
            return []
        history, named = self.ctx.history, self.request.instance
        operations = history.list_operations(named, most=-1)
        started = [one for one in find_open_starts(operations) if named in (None, one.instance)]
        if named is not None and not operations:  # the history is lost, or too old
            logs = [one for node in silent for one in history.list_saved_logs(named, [node])[:1]]
            started = [OpenStart(named, ((NodeName(one.node), one.short_container_id),)) for one in logs]
        runs = {
            one.id[:12]
            for containers in self.containers.values()
            for one in containers
            if one.is_alive and one.id not in done
        }
        latest = {(one.instance, node): one for one in reversed(started) for node in silent if one.containers_on(node)}
        return [
            one for one in dict.fromkeys(latest.values()) if not any(container in runs for _, container in one.parts)
        ]

    @property
    def _elapsed_seconds(self) -> float:
        return self.ctx.clock.monotonic() - self.began

    def _emit_warning(self, node: NodeName | None, message: str, hint: str | None = None) -> None:
        self.emit(WarningEmitted(self.ctx.clock.unix_time(), node, message, hint))


def _join_node_names(nodes: Sequence[NodeName]) -> str:
    return " and ".join(dict.fromkeys(nodes))
