"""``down`` and ``free``: stop whole instances with all their ranks, and check that their memory is released."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from collections.abc import AsyncGenerator, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from sparkctl.commands.event_stream import build_end, build_end_from_error, open_session, stream_events
from sparkctl.commands.history_writer import OperationSubject, record_operation
from sparkctl.commands.node_lock import BorrowedNodeLock, HeldNodeLock, acquire_node_lock
from sparkctl.commands.request import Preview, Request, list_flags
from sparkctl.commands.stop.pending_stops import (
    COMPLETING_COMMANDS,
    PendingStop,
    PendingStopFiles,
    QueuedStart,
    QueuedStartFiles,
)
from sparkctl.commands.stop.stop_containers import StopResult, stop_containers
from sparkctl.commands.stop.stop_impact import StopTarget, preview_stop
from sparkctl.concurrency import gather_or_cancel
from sparkctl.context import CommandContext, CommandInterrupted
from sparkctl.errors import (
    ConnectionLost,
    DockerError,
    DockerUnavailable,
    InvalidInput,
    NodeError,
    NodeStarved,
    NodeUnreachable,
    OperationRefused,
    SparkctlError,
    format_did_you_mean,
)
from sparkctl.history.model import NodeResult, OperationKind, OperationRecord
from sparkctl.model.container import Container
from sparkctl.model.events import CommandEnded, ContainersListed, Emit, Event, Outcome, WarningEmitted
from sparkctl.model.launch_plan import ContainerLabel
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import Node, NodeName
from sparkctl.model.switch_plan import JournalPresence
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.text.units import format_gib
from sparkctl.monitor import switch_journal_io as journals
from sparkctl.monitor.node_status import build_instance_view
from sparkctl.monitor.ranks import (
    InstanceContainers,
    RankContainer,
    choose_needs_to_stop,
    group_by_instance,
    order_stops,
)
from sparkctl.profiles.container_labels import parse_port_label
from sparkctl.transport.node_session import NodeSession

if TYPE_CHECKING:
    from sparkctl.commands.action_context import ActionContext

_ID_LENGTH = 12  # digits of a container's id that every record has


@dataclass(frozen=True, slots=True)
class OpenStart:
    """A start that was not stopped from here since. ``parts``: the node and the short container id of each rank."""

    instance: str
    parts: tuple[tuple[NodeName, str], ...]

    def containers_on(self, node: NodeName) -> tuple[str, ...]:
        return tuple(container for where, container in self.parts if where == node)


def find_open_starts(operations: Iterable[OperationRecord]) -> tuple[OpenStart, ...]:
    """Return the starts without a known end, the latest first; ``operations`` come latest first.

    What a switch stopped is gone only if the switch succeeded: otherwise it came back.
    """
    seen = tuple(operations)
    good = {one.id for one in seen if one.has_succeeded}
    ended_ids: set[str] = set()
    found = []
    for one in seen:
        if one.kind is OperationKind.START:
            parts = tuple(
                (share.node, _short_container_id(share)) for share in one.shares if _short_container_id(share)
            )
            if parts and one.outcome != "failed" and not ended_ids.issuperset(id_ for _, id_ in parts):
                found.append(
                    OpenStart(one.shares[0].instance, tuple(part for part in parts if part[1] not in ended_ids))
                )
        elif one.kind is OperationKind.STOP:
            if one.parent is None or one.parent in good:
                ended_ids.update(_short_container_id(share) for share in one.shares if _has_ended(share))
        elif one.has_succeeded:
            ended_ids.update(_short_container_id(share) for share in one.shares if _has_ended(share))
    return tuple(found)


def choose_last_known_starts(
    started: Sequence[OpenStart], silent: Sequence[NodeName], running: Collection[str]
) -> list[OpenStart]:
    """Return the latest start of each instance on each silent node: whole starts, none with a rank that is seen running.

    ``started``: the latest first. ``running``: short ids of the containers that run on the nodes that answered.
    """
    latest = {(one.instance, node): one for one in reversed(started) for node in silent if one.containers_on(node)}
    return [
        one for one in dict.fromkeys(latest.values()) if not any(container in running for _, container in one.parts)
    ]


def _short_container_id(share: NodeResult) -> str:
    return (share.container or "")[:_ID_LENGTH]


def _has_ended(share: NodeResult) -> bool:
    """Tell whether a stop reached its end; its containers are recorded before."""
    return share.log is not None or share.freed is not None or share.available_after is not None


async def list_remaining_containers(ctx: CommandContext, sessions: Sequence[NodeSession], emit: Emit) -> list[str]:
    """Return a line for each node and for each foreign container that runs there, and emit what runs there."""
    lines = []
    for session in sessions:
        node = session.node.name
        try:
            inspection, containers = await gather_or_cancel(
                session.read_node("memory", "processes", "gpu"), session.docker.list_containers()
            )
            views = await gather_or_cancel(
                *(build_instance_view(session, one, inspection.get_container_memory(one.id)) for one in containers)
            )
        except SparkctlError as error:
            emit(WarningEmitted(ctx.clock.unix_time(), node, error.message, error.hint))
            continue
        found = tuple(view for view in views if view is not None)
        emit(ContainersListed(ts=ctx.clock.unix_time(), node=node, instances=found))
        lines.append(
            f"{node}: {format_gib(None if inspection.memory is None else inspection.memory.available)} available"
        )
        lines += [
            f"{node}: {sanitize_line(one.container)} was not started by sparkctl and is left alone ({format_gib(one.memory)})"
            for one in found
            if not one.ours
        ]
    return lines


_SAVE_LOG_HINT = (
    "find out why (is this disk full? df -h), then repeat the command: it saves the log and removes the container"
)
# its containers are not known, and run on
_UNREACHABLE_ERRORS = (NodeUnreachable, NodeStarved, ConnectionLost, DockerUnavailable)


@dataclass(frozen=True, slots=True, kw_only=True)
class StopInstance(Request):
    """A request to stop instances.

    Attributes:
        instance: None: every instance of sparkctl on these nodes.
        grace: seconds between TERM and KILL; 0: KILL at once.
        known: valid names: profiles, and everything that was started before.
        everywhere: all nodes, where other ranks of a model are searched.
        with_needs: stop what it needs, too, although that was not started for it.
        alone: leave what it needs.
        frees: free the nodes, and report what stays there.
    """

    instance: str | None
    nodes: Sequence[Node]
    grace: float | None = None
    known: frozenset[str] = frozenset()
    everywhere: Sequence[Node] = ()
    frees: bool = False
    dry_run: bool = False
    with_needs: bool = False
    alone: bool = False

    @property
    def target(self) -> StopTarget:
        return StopTarget(instance=self.instance, nodes=self.named_nodes, frees=self.frees)

    def format_as_command(self) -> tuple[str, ...]:
        grace = () if not self.grace else (f"--grace={self.grace:g}s",)
        more = (
            *list_flags({"--with-needs": self.with_needs, "--kill": self.grace == 0, "--dry-run": self.dry_run}),
            *grace,
        )
        if self.frees:
            return ("free", *map(str, self.named_nodes), *more)
        return ("down", self.instance or "--all", *self.format_node_options(), *more)

    def preview(self, now: ActionContext) -> Preview:
        """Return the question before it; a dry run needs none."""
        question = preview_stop(now, self.target, "Kill" if self.grace == 0 else "Stop")
        return replace(question, is_required=not self.dry_run)

    def run(self, ctx: CommandContext) -> AsyncGenerator[Event, None]:
        return stop_instance(ctx, self)

    @property
    def retry_command(self) -> str | None:
        """The command that frees the same nodes again; None for ``down``."""
        if not self.frees:
            return None
        grace = [] if self.grace is None else [f"--grace={self.grace:g}s"]
        return shlex.join(["sparkctl", "free", *(node.name for node in self.nodes), *grace])


def stop_instance(ctx: CommandContext, request: StopInstance) -> AsyncGenerator[Event, None]:
    """Stop what was requested. Nothing running is success; a node that could not be asked never counts as stopped."""

    def stream_stop(own: CommandContext) -> AsyncGenerator[Event, None]:
        return stream_events(own, _StopRun(own, request).run, request.instance, on_interrupt=None)

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
    """One run of the command: the containers of each node, the nodes that could not be asked, and the results."""

    def __init__(self, ctx: CommandContext, request: StopInstance) -> None:
        self.ctx, self.request = ctx, request
        self.emit: Emit = lambda event: None
        self.began = ctx.clock.monotonic()
        self.requested_names = [node.name for node in request.nodes]
        self.sessions: dict[NodeName, NodeSession] = {}
        self.containers: dict[NodeName, tuple[Container, ...]] = {}
        self.failures: dict[NodeName, SparkctlError] = {}
        self.unmatched: list[str] = []
        self.pending_stops = PendingStopFiles(ctx.history.directory)
        self.to_stop: list[RankContainer] = []
        self.cancelled: tuple[QueuedStart, ...] = ()  # starts that waited
        self.asked: set[str] = set()  # ids of the containers that Docker was asked to stop

    async def run(self, emit: Emit) -> CommandEnded:
        """Inspect all nodes first, then stop everything in parallel. Ctrl-C tells what goes on without us."""
        self.emit = emit
        if not self.request.dry_run and not self.request.alone:
            files = QueuedStartFiles(self.ctx.history.directory)
            self.cancelled = files.cancel_starts(self.request.instance, self.requested_names)
        try:
            return await self.ctx.interrupt.run_interruptible(self._run(), "")
        except CommandInterrupted:
            raise CommandInterrupted(self._describe_interruption()) from None

    async def _run(self) -> CommandEnded:
        async with AsyncExitStack() as stack:
            await self._list_containers(self.request.nodes, stack)
            await self._find_other_ranks(stack)
            chosen = self._choose_instances()
            self._refuse_ambiguous(chosen)
            self._report_needs(chosen)
            if self.request.dry_run:
                self._report_affected_nodes(chosen)
                return await self._build_planned_end(chosen)
            if not chosen:
                self._refuse_foreign()
                return await self._build_end(StopResult(), chosen)
            with self._replace_pending_stops(chosen):
                return await self._stop_instances(chosen)

    def _refuse_ambiguous(self, chosen: Sequence[InstanceContainers]) -> None:
        """Refuse to guess which of several whole instances of one name is meant. Ranks that are left of other starts count as none."""
        named = [whole for whole in chosen if whole.name == self.request.instance and not whole.missing]
        if len(named) < 2 or self.request.names_nodes:
            return
        where = [" and ".join(whole.nodes) for whole in named]
        words = [shlex.join(word for node in whole.nodes for word in ("--node", node)) for whole in named]
        raise InvalidInput(
            f"{self.request.instance} runs more than once: on {', and on '.join(where)}",
            "\n".join(f"sparkctl down {self.request.instance} {one}" for one in words),
        )

    async def _stop_instances(self, chosen: Sequence[InstanceContainers]) -> CommandEnded:
        locks: dict[NodeName, HeldNodeLock | BorrowedNodeLock] = {}
        try:
            await self._lock_nodes(chosen, locks)
            wanted = await self._choose_again(locks)
            chosen = drop_busy_instances(wanted, self.failures)
            busy = [one for one in wanted if one not in chosen]
            chosen = [one for one in chosen if not any(user.uses(one) for user in busy)]
            self._report_affected_nodes(chosen)
            self.to_stop = [part for whole in chosen for part in whole.parts if part.node in locks]
            result = StopResult()
            for group in order_stops(chosen):
                if result.failures:  # what still runs may need the rest
                    break
                done = await self._stop_group(group, locks)
                result = StopResult(result.stopped + done.stopped, result.failures + done.failures)
        finally:
            for lock in locks.values():
                await lock.release()
        self.failures |= dict(result.failures)
        return await self._build_end(result, chosen)

    async def _stop_group(self, group: Sequence[InstanceContainers], locks: Iterable[NodeName]) -> StopResult:
        by_node = {
            node: [part.container for whole in group for part in whole.containers_on(node)]
            for node in locks
            if any(whole.containers_on(node) for whole in group)
        }
        return await stop_containers(
            self.sessions, self.ctx, self.emit, by_node, self.request.grace, on_asked=self.asked.add
        )

    @contextlib.contextmanager
    def _replace_pending_stops(self, chosen: Sequence[InstanceContainers]) -> Iterator[None]:
        """Replace the pending stops of these instances: they are done now, or saved again."""
        own = [
            one
            for one in self.pending_stops.list_all(self.ctx.clock.unix_time())
            if any(one.matches_container(part.container) for whole in chosen for part in whole.containers_on(one.node))
        ]
        for one in own:
            self.pending_stops.delete_stop(one)
        is_through = False
        try:
            yield
            is_through = True
        finally:
            for one in own:
                if not is_through or one.node in self.failures:
                    with contextlib.suppress(OSError):
                        self.pending_stops.save_stop(one)

    # inspect

    async def _list_containers(self, nodes: Iterable[Node], stack: AsyncExitStack) -> None:
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
        """Look for the other ranks: on the nodes in the labels of those found, or on all nodes."""
        if any(node in self.failures for node in self.requested_names):
            await self._list_containers(self.request.everywhere, stack)  # for their other ranks
        for whole in self._choose_instances():
            await self._list_containers([n for n in self.request.everywhere if n.name in whole.elsewhere], stack)
            needed = {node for _, node in whole.needs}
            await self._list_containers([n for n in self.request.everywhere if n.name in needed], stack)
        if any(
            whole.missing and (self._list_unknown_node_names(whole) or not whole.elsewhere)
            for whole in self._choose_instances()
        ):
            await self._list_containers(self.request.everywhere, stack)  # this operator may have other names for them
        for whole in self._choose_instances():
            self.unmatched += [f"{whole.name} on {name}" for name in self._list_unknown_node_names(whole)]

    def _list_unknown_node_names(self, whole: InstanceContainers) -> list[str]:
        """Return the nodes of missing ranks whose names are not in this config."""
        return [name for name in whole.elsewhere if name not in self.sessions] if whole.missing else []

    def _choose_instances(self) -> list[InstanceContainers]:
        """Return what was asked for, and what was started only for that."""
        chosen = choose_instances(self.containers, self.request.instance, self.requested_names, self.failures)
        if self.request.alone:
            return chosen
        more = choose_needs_to_stop(chosen, self._list_everything(), with_all=self.request.with_needs)
        return [*chosen, *more]

    def _list_everything(self) -> tuple[InstanceContainers, ...]:
        return group_by_instance(
            RankContainer(node, one, None, parse_port_label(one))
            for node, found in self.containers.items()
            for one in found
        )

    def _report_needs(self, chosen: Sequence[InstanceContainers]) -> None:
        """Report what stops with the instance because only that needed it, what stays, and who loses it."""
        if self.request.instance is None or self.request.alone:
            return
        ids = {one.container_ids for one in chosen}
        stays = [one for one in self._list_everything() if one.is_managed and one.container_ids not in ids]
        for whole in chosen:
            node = whole.nodes[0]
            if whole.name != self.request.instance:
                verb = "would be" if self.request.dry_run else "is"
                self._emit_warning(node, f"{whole.name} {verb} stopped, too: nothing else needs it")
                continue
            for need in (one for wanted in whole.needs for one in stays if one.is_need(wanted)):
                hint = f"sparkctl down {need.name} --node {need.nodes[0]}   (next time: --with-needs)"
                self._emit_warning(need.nodes[0], f"{need.name}, which {whole.name} needed, stays", hint)
            for user in (one for one in stays if one.uses(whole)):
                hint = f"sparkctl down {user.name} --node {user.nodes[0]}"
                self._emit_warning(user.nodes[0], f"{user.name} needs {whole.name} and cannot work without it", hint)

    def _report_affected_nodes(self, chosen: Sequence[InstanceContainers]) -> None:
        """Report what is stopped together with the requested ranks."""
        for whole in chosen:
            if all(node in self.requested_names for node in whole.nodes) or self.request.instance not in (
                None,
                whole.name,
            ):
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
            self._emit_warning(None, f"a rank of {words} was not found: no node here has that name", hint)

    def _refuse_foreign(self) -> None:
        """Raise `OperationRefused` for a running container of that name: a foreign one is not stopped, and of ours the name of
        its instance is wanted.
        """
        for node, containers in self.containers.items():
            for one in containers:
                if one.name == self.request.instance and one.is_alive and node in self.requested_names:
                    if one.is_managed and (instance := one.get_label(ContainerLabel.INSTANCE)) is not None:
                        raise OperationRefused(
                            f"{one.name} on {node} is a container of {instance}",
                            f"sparkctl down {instance} --node {node}",
                        )
                    raise OperationRefused(
                        f"{one.name} on {node} was not started by sparkctl and is left alone",
                        f"on {node}: docker stop {one.name}",
                    )

    # change

    async def _lock_nodes(
        self, chosen: Sequence[InstanceContainers], locks: dict[NodeName, HeldNodeLock | BorrowedNodeLock]
    ) -> None:
        """Add the lock of each node to ``locks``, which the caller releases, also where this is cancelled."""
        doing = f"stopping {self.request.instance or 'everything'}"
        for node in list_nodes_in_lock_order(chosen):
            warn = partial(self._emit_warning, node)
            try:
                locks[node] = await acquire_node_lock(self.sessions[node], self.ctx, doing, warn, beside_ourselves=True)
            except SparkctlError as error:
                self.failures[node] = error

    async def _choose_again(self, locks: Iterable[NodeName]) -> list[InstanceContainers]:
        """Choose again under the locks: another command may have stopped it meanwhile."""
        for node in locks:
            try:
                self.containers[node] = await self.sessions[node].docker.list_containers()
            except (NodeError, DockerError) as error:
                self.failures[node] = error
        return self._choose_instances()

    async def _refuse_during_switch(self, chosen: Sequence[InstanceContainers]) -> None:
        """Raise the error for a running or unfinished switch there."""
        for node in list_nodes_in_lock_order(chosen):
            try:
                view = await journals.read_journal(self.sessions[node])
            except NodeError as error:
                self.failures[node] = error
                continue
            if view.found is not JournalPresence.NONE and node not in self.ctx.holds:
                self.failures[node] = journals.build_switch_refusal(node, view, is_held=view.is_held)

    # report

    def _describe_interruption(self) -> str:
        """Return what goes on without us, as a sentence; emit a warning for each container that runs on."""
        if self.request.dry_run:
            return "interrupted"
        stopping = [f"{one.name} on {one.node}" for one in self.to_stop if one.container.id in self.asked]
        alive = [one for one in self.to_stop if one.container.is_alive and one.container.id not in self.asked]
        for one in alive:
            hint = f"sparkctl down {one.name} --node {one.node}"
            self._emit_warning(one.node, f"{one.name} on {one.node} was not asked to stop yet: it runs on", hint)
        if not stopping:
            return "interrupted before anything was asked to stop: sparkctl status"
        runs_on = [f"{one.name} on {one.node}" for one in alive]
        rest = f"; {' and '.join(runs_on)} {'runs' if len(runs_on) == 1 else 'run'} on" if runs_on else ""
        return f"interrupted; Docker goes on to stop {' and '.join(stopping)}{rest}: sparkctl status"

    async def _build_planned_end(self, chosen: Sequence[InstanceContainers]) -> CommandEnded:
        if not chosen and not self.request.frees:
            self._refuse_foreign()
        await self._refuse_during_switch(chosen)
        lines = [f"would stop {whole.name} on {_join_node_names(whole.nodes)}" for whole in chosen]
        stays = await list_remaining_containers(self.ctx, self._list_asked_sessions(), self.emit)
        if (failure := self._report_failures(chosen)) is not None:
            return build_end_from_error(failure, self.ctx, self._elapsed_seconds)
        name = self.request.instance
        where = " or ".join(self.requested_names)
        idle = f"{name} is not running on {where}" if name else "nothing started by sparkctl is running there"
        message = "\n".join([*(lines or [idle]), *stays])
        return build_end(self.ctx, self.began, Outcome.PLANNED, message=message)

    async def _build_end(self, result: StopResult, chosen: Sequence[InstanceContainers]) -> CommandEnded:
        self._save_pending_stops(result, chosen)
        if (failure := self._report_failures(chosen)) is not None:
            return build_end_from_error(failure, self.ctx, self._elapsed_seconds, self.request.instance)
        instance, done = self.request.instance, result.stopped
        kept_names = [f"{sanitize_line(one.kept_name)} on {one.node}" for one in done if one.kept_name is not None]
        is_good = all(one.is_proved for one in done) and not self.unmatched and not kept_names
        lines = [
            f"{one.instance} waited to start on {_join_node_names(one.nodes)}: it is not started"
            for one in self.cancelled
        ]
        if not done and not lines:
            what = f"{instance} is not running" if instance else "nothing started by sparkctl is running"
            lines.append(f"{what} on {' or '.join(self.requested_names)}; nothing to stop")
        if self.request.frees:
            lines += await list_remaining_containers(self.ctx, self._list_asked_sessions(), self.emit)
        if self.unmatched:
            lines = [f"stopped here, but a rank may still run: {', '.join(self.unmatched)}"]
        elif not all(one.is_proved for one in done):
            lines = ["stopped, but not everything that it held is back"]
        elif kept_names:
            lines = [
                f"stopped, but {' and '.join(kept_names)} {'was' if len(kept_names) == 1 else 'were'} kept: the log could not be saved"
            ]
        return build_end(
            self.ctx,
            self.began,
            Outcome.DONE if is_good else Outcome.UNHEALTHY,
            instance=instance,
            message="\n".join(lines) or None,
            hint=_SAVE_LOG_HINT if kept_names else None,
            log=next((one.log for one in done if one.log), None),
        )

    def _list_asked_sessions(self) -> list[NodeSession]:
        return [self.sessions[node] for node in self.requested_names if node not in self.failures]

    def _report_failures(self, chosen: Sequence[InstanceContainers]) -> SparkctlError | None:
        """Return the failure that decides the exit code, if any; emit the others as warnings. A name that neither a profile
        nor a saved log has is one, too.
        """
        order = [node for node in self.sessions if node in self.failures]
        emitted = {self.failures[order[0]].message} if order else set()
        for node in order[1:]:
            if self.failures[node].message not in emitted:
                emitted.add(self.failures[node].message)
                self._emit_warning(node, self.failures[node].message, self.failures[node].hint)
        failure = self.failures[order[0]] if order else None
        instance, known = self.request.instance, self.request.known
        if chosen or instance is None or instance in known:
            return failure
        what = f"no instance and no profile is called {instance}{format_did_you_mean(instance, known)}"
        unknown = InvalidInput(what, "see what runs: sparkctl status")
        return unknown if failure is None else failure.add_message(unknown)

    def _save_pending_stops(self, result: StopResult, chosen: Sequence[InstanceContainers]) -> None:
        """Save the stops for nodes that could not be asked, for the next contact with them."""
        now, done = self.ctx.clock.unix_time(), {one.container_id for one in result.stopped}
        unseen = self._find_last_known_starts(done)
        for node, error in self.failures.items():
            if not isinstance(error, _UNREACHABLE_ERRORS):
                continue
            last_known = unseen if node not in self.containers else ()
            left = list_stops_to_save(node, now, chosen, done, last_known)
            with contextlib.suppress(OSError):
                for one in left:
                    self.pending_stops.save_stop(one)
                if left:
                    names = ", ".join(dict.fromkeys(one.instance for one in left))
                    self._emit_warning(
                        node,
                        f"whatever still runs there of {names} is stopped at the next contact with {node}",
                        f"that is {COMPLETING_COMMANDS} there within a day; until then status shows it",
                    )

    def _find_last_known_starts(self, done: Collection[str]) -> list[OpenStart]:
        """Return the last starts from here on the nodes that could not be read."""
        silent = [node for node in self.requested_names if node in self.failures and node not in self.containers]
        if not silent:
            return []
        history, named = self.ctx.history, self.request.instance
        operations = history.list_operations(named, most=-1)
        started = [one for one in find_open_starts(operations) if named in (None, one.instance)]
        if named is not None and not operations:  # the history is lost, or too old
            logs = [one for node in silent for one in history.list_saved_logs(named, [node])[:1]]
            started = [OpenStart(named, ((NodeName(one.node), one.short_container_id),)) for one in logs]
        running = {
            one.id[:_ID_LENGTH]
            for containers in self.containers.values()
            for one in containers
            if one.is_alive and one.id not in done
        }
        return choose_last_known_starts(started, silent, running)

    @property
    def _elapsed_seconds(self) -> float:
        return self.ctx.clock.monotonic() - self.began

    def _emit_warning(self, node: NodeName | None, message: str, hint: str | None = None) -> None:
        self.emit(WarningEmitted(self.ctx.clock.unix_time(), node, message, hint))


def _join_node_names(nodes: Sequence[NodeName]) -> str:
    return " and ".join(dict.fromkeys(nodes))


def choose_instances(
    containers: Mapping[NodeName, Sequence[Container]],
    instance: str | None,
    requested: Collection[NodeName],
    failed: Collection[NodeName],
) -> list[InstanceContainers]:
    """Return what to stop: whole instances of sparkctl (of this name, or all) with any rank on the requested nodes.

    An instance counts, too, where its other ranks name a requested node that failed to answer.
    """
    occupants = [
        RankContainer(node, one, None, parse_port_label(one))
        for node, found in containers.items()
        for one in found
        if one.is_managed and instance in (None, one.get_label(ContainerLabel.INSTANCE))
    ]
    return [
        whole
        for whole in group_by_instance(occupants)
        if any(node in requested for node in whole.nodes)
        or any(node in requested and node in failed for node in map(NodeName, whole.elsewhere))
    ]


def list_nodes_in_lock_order(chosen: Iterable[InstanceContainers]) -> list[NodeName]:
    """Return all affected nodes in the order of their names, so that two commands never wait for each other."""
    return sorted({node for whole in chosen for node in whole.nodes})


def drop_busy_instances(
    chosen: Iterable[InstanceContainers], failures: Mapping[NodeName, SparkctlError]
) -> list[InstanceContainers]:
    """Leave out instances with a locked rank: stopping the other ranks would leave half a model."""
    busy = {node for node, error in failures.items() if isinstance(error, OperationRefused)}
    return [whole for whole in chosen if not busy.intersection(whole.nodes)]


def list_stops_to_save(
    node: NodeName,
    now: float,
    chosen: Sequence[InstanceContainers],
    done: Collection[str],
    last_known: Iterable[OpenStart],
) -> list[PendingStop]:
    """Return the stops that are left on a node that could not be asked: of containers that were seen there, of missing
    ranks that belong there by the labels, and of the last known starts.

    ``done``: ids of the stopped containers.
    """
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
        PendingStop(node=node, instance=whole.name, since=now, run=run)
        for whole in chosen
        if whole.missing and node in whole.elsewhere and (run := whole.get_label(ContainerLabel.RUN))
    ]
    saved = {one.instance for one in left}
    left += [
        PendingStop(node=node, instance=one.instance, since=now, containers=containers)
        for one in last_known
        if one.instance not in saved and (containers := one.containers_on(node))
    ]
    return left
