"""``logs``: show the log of an instance, live from its container or from the file that was saved when it was
removed.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from datetime import UTC, datetime
from io import TextIOWrapper
from itertools import islice
from pathlib import Path

from sparkctl.commands.event_stream import build_end, build_missing_lines_warning, stream_events
from sparkctl.concurrency import gather_or_cancel
from sparkctl.context import CommandContext
from sparkctl.errors import (
    ConnectionLost,
    ContainerNotFound,
    DockerError,
    DockerUnavailable,
    InvalidInput,
    LogUnreadable,
    NodeError,
    NodeStarved,
    NodeUnreachable,
)
from sparkctl.files import open_regular_file
from sparkctl.history.log_archive import SavedLog
from sparkctl.history.model import OperationKind
from sparkctl.logs.line_patterns import drop_own_requests, is_own_request, parse_log_time
from sparkctl.logs.rank_verdict import measure_clock_offset
from sparkctl.logs.reader import LogFeed, read_log
from sparkctl.model.container import Container, shorten_id
from sparkctl.model.events import CommandEnded, Emit, Event, LogArrived, Outcome, WarningEmitted
from sparkctl.model.guard_state import GuardReceipt
from sparkctl.model.launch_plan import ContainerLabel
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import Node, NodeName
from sparkctl.model.text.bounded_pattern import BoundedPattern
from sparkctl.model.text.log_line import LogLine
from sparkctl.model.text.secrets import LineMasker
from sparkctl.model.text.units import format_date_time
from sparkctl.monitor import guard_client
from sparkctl.profiles.container_labels import parse_rank_label, parse_rank_nodes_label, parse_start_id_label
from sparkctl.transport.docker.log_stream import ContainerLogStream
from sparkctl.transport.node_session import NodeSession, isolate_node_failures

_BATCH_LINES = 500
_DOCKER_RETRY_SECONDS = 2.0  # seconds between attempts while Docker is down
_RESTART_WAIT_SECONDS = 1.0  # seconds; a container that still runs although its log ended is being restarted
_MAX_REFUSALS = 5  # how often Docker may refuse a log: a container that is being removed has none
_FIRST_TAIL_LINES, _MAX_TAIL_LINES = 200, 100_000  # lines: how far back the last N lines of others are searched
_TAIL_GROWTH_FACTOR = 8  # times, each time that they were not found


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowLog:
    """``since``: seconds before now. ``grep``: a compiled pattern that lines must contain. ``tail``: the last N lines.

    ``everything``: include the access lines of sparkctl's own requests, hidden by default. ``pace`` is awaited after
    each batch, so that a slow reader slows down a long log. ``stamped``: whether lines need their timestamps.
    """

    instance: str
    nodes: Sequence[Node]
    follow: bool = False
    since: float | None = None
    tail: int | None = None
    grep: BoundedPattern | re.Pattern[str] | None = None
    pace: Callable[[], Awaitable[None]] | None = None
    session: Callable[[Node], NodeSession] | None = None  # how to get a node's session; None: a new one for each
    everything: bool = False
    stamped: bool = True


def show_log(ctx: CommandContext, request: ShowLog) -> AsyncGenerator[Event, None]:
    """Stream an instance's log. Exit 2 when no such instance runs and no log of it was saved.

    Exit 3 when a node could not be asked, also where a saved log is shown instead.
    """
    return stream_events(ctx, lambda emit: _ShowLogRun(ctx, request, emit).run(), request.instance, on_interrupt="")


class _ShowLogRun:
    """One run of the command. ``failures``: the nodes that could not be asked, with the reason."""

    def __init__(self, ctx: CommandContext, request: ShowLog, emit: Emit) -> None:
        self.ctx = ctx
        self.request = request
        self.emit = emit
        self.began = ctx.clock.monotonic()
        self.failures: dict[NodeName, NodeError | DockerError] = {}
        self.ranks: dict[NodeName, str | None] = {}  # where several are shown together
        self.shown = 0

    async def run(self) -> CommandEnded:
        # when a container was made that has ended: a live one elsewhere comes first
        ended: list[tuple[float, Node]] = []
        for node in self.request.nodes:
            if (end := await self._show_on_node(node, ended if len(self.request.nodes) > 1 else None)) is not None:
                return end
        for _, node in sorted(ended, key=lambda found: found[0], reverse=True):
            if (end := await self._show_on_node(node, None)) is not None:
                return end
        return await self._show_saved_logs()

    async def _show_on_node(self, node: Node, ended: list[tuple[float, Node]] | None) -> CommandEnded | None:
        """Show the log of the instance's container there; None if there is none, or one that has ended, which is added to
        ``ended`` if that is given.
        """
        try:
            async with self._create_session(node) as session:
                session.report_state_changes(self.emit)
                with isolate_node_failures(node):
                    await session.link.connect()
                    container = await find_container(session, self.request.instance)
                    if container is not None and (container.is_alive or ended is None):
                        return await self._show_all_ranks(session, container)
                    if container is not None and ended is not None:
                        ended.append((container.created, node))
        except ContainerNotFound:
            if self.shown:
                raise
        except LogUnreadable:
            raise  # its log cannot be read, and a saved log would be of another run
        except (NodeError, DockerError) as error:
            if self.shown:
                raise  # a saved log after part of a live one would show lines twice
            self.failures[node.name] = error
            self._emit_warning(node.name, error.message, error.hint)
        return None

    def _create_session(self, node: Node) -> NodeSession:
        if self.request.session is not None:
            return self.request.session(node)
        return NodeSession(node, self.ctx.prompter, self.ctx.clock)

    # live

    async def _show_all_ranks(self, session: NodeSession, container: Container) -> CommandEnded:
        """Show the log of an instance, or the logs of all its ranks on the chosen nodes: merged by time, or followed
        together.
        """
        names = parse_rank_nodes_label(container)
        others = [one for one in self.request.nodes if one.name in names and one.name != session.node.name]
        async with AsyncExitStack() as stack:
            ranks = [(session, container)]
            for node in others:
                if (found := await self._find_other_rank(stack, node, container)) is not None:
                    ranks.append(found)
            if len(ranks) > 1:
                self.ranks = {there.node.name: parse_rank_label(one) for there, one in ranks}
                ranks.sort(key=lambda rank: names.index(rank[0].node.name))
            if self.request.follow:
                ends = await gather_or_cancel(*(self._follow_container(*rank) for rank in ranks))
            else:
                ends = (await self._read_all(ranks),)
        messages = [one.message for one in ends if one.message]
        if others and self.failures:
            return self._build_end(ends[0].node or session.node.name, "; ".join(messages) or None, unreachable=True)
        return replace(ends[0], message="; ".join(messages) or None)

    async def _find_other_rank(
        self, stack: AsyncExitStack, node: Node, of: Container
    ) -> tuple[NodeSession, Container] | None:
        """Return another rank of the same start on a node, None where it is absent or the node could not be asked."""
        try:
            session = await stack.enter_async_context(self._create_session(node))
            session.report_state_changes(self.emit)
            with isolate_node_failures(node):
                await session.link.connect()
                found = await find_container(session, self.request.instance)
        except (NodeError, DockerError) as error:
            self.failures[node.name] = error
            self._emit_warning(node.name, error.message, error.hint)
            return None
        return None if found is None or parse_start_id_label(found) != parse_start_id_label(of) else (session, found)

    async def _read_all(self, ranks: Sequence[tuple[NodeSession, Container]]) -> CommandEnded:
        """Show these logs up to now, merged by the nodes' clocks with their offsets corrected."""
        clocks = (
            await gather_or_cancel(*(measure_clock_offset(session) for session, _ in ranks))
            if len(ranks) > 1
            else (None,)
        )
        ahead = {
            session.node.name: clock.ahead
            for (session, _), clock in zip(ranks, clocks, strict=True)
            if clock is not None
        }
        async with AsyncExitStack() as stack:
            sources = {
                session.node.name: await stack.enter_async_context(aclosing(self._read_lines(session, container)))
                for session, container in ranks
            }
            await self._show_in_order(sources, ahead)
        for session, container in ranks:
            if not container.is_alive:
                await self._check_guard_receipt(session, container)
        return self._build_end(ranks[0][0].node.name)

    async def _show_in_order(self, sources: Mapping[NodeName, LineBatches], ahead: Mapping[NodeName, float]) -> None:
        async with aclosing(merge_by_time(sources, ahead)) as runs:
            async for node, lines in runs:
                await self._emit_lines(node, lines)

    async def _read_lines(self, session: NodeSession, container: Container) -> AsyncGenerator[Sequence[LogLine], None]:
        secrets = await session.docker.read_secret_values(container.id)
        if self._looks_back:
            last, _ = await self._read_last_lines(session, container)
            yield LineMasker(secrets).mask_batch(last)
            return
        logs = read_log(
            session,
            container.id,
            since=self._since,
            tail=self.request.tail,
            secrets=secrets,
            stamped=self.request.stamped or bool(self.ranks),  # several are merged by time
        )
        async with aclosing(logs) as batches:
            async for batch in batches:
                yield batch

    async def _check_guard_receipt(self, session: NodeSession, container: Container) -> None:
        """Report it where the guard stopped the instance: the log cannot contain that."""
        receipt = await guard_client.read_receipt(session, container.id)
        if receipt is not None:
            guard_client.save_receipt(
                self.ctx, session, receipt, lambda what: self._emit_warning(session.node.name, what)
            )
            self._warn_guard_stop(session.node.name, receipt)

    def _warn_guard_stop(self, node: NodeName, receipt: GuardReceipt) -> None:
        from sparkctl.logs.start_verdict import describe_guard_kill

        when = format_date_time(receipt.at, has_seconds=True)
        self._emit_warning(node, f"the guard stopped {self.request.instance} at {when}: {describe_guard_kill(receipt)}")

    @property
    def _looks_back(self) -> bool:
        """Tell whether the last N lines differ from the last N that Docker counts, which include sparkctl's own
        requests.
        """
        return bool(self.request.tail) and not self.request.everything

    @property
    def _since(self) -> float | None:
        return None if self.request.since is None else self.ctx.clock.unix_time() - self.request.since

    async def _read_last_lines(
        self, session: NodeSession, container: Container
    ) -> tuple[Sequence[LogLine], ContainerLogStream]:
        """Return the last N lines of others, and the stream that they were read from."""
        wanted = self.request.tail or 0
        queried = max(_FIRST_TAIL_LINES, 2 * wanted)
        while True:
            stream = ContainerLogStream(
                session.link, container.id, since=self._since, tail=queried, docker=session.docker
            )
            found: deque[LogLine] = deque(maxlen=wanted)
            read = 0
            async with aclosing(stream.read_available(is_end=not self.request.follow)) as batches:
                async for batch in batches:
                    read += len(batch)
                    found.extend(drop_own_requests(batch))
            if len(found) == wanted or read < queried or queried >= _MAX_TAIL_LINES:
                return tuple(found), stream
            queried *= _TAIL_GROWTH_FACTOR

    async def _open_feed(self, session: NodeSession, container: Container) -> LogFeed:
        """Return the lines to follow, after emitting the last N lines of others where those are wanted."""
        stream, secrets = None, await session.docker.read_secret_values(container.id)
        if self._looks_back:
            last, stream = await self._read_last_lines(session, container)
            await self._emit_lines(session.node.name, LineMasker(secrets).mask_batch(last))
        return LogFeed(
            session, container.id, since=self._since, tail=self.request.tail, stream=stream, secrets=secrets,
            on_gap=lambda: self.emit(build_missing_lines_warning(self.ctx, session.node.name, self.request.instance)),
        )  # fmt: skip

    async def _follow_container(self, session: NodeSession, container: Container) -> CommandEnded:
        """Follow through disconnects and restarts until the container has ended; an outage of Docker is reported
        once.
        """
        name, out, refusals = session.node.name, False, 0
        feed: LogFeed | None = None
        while True:
            try:
                if out:
                    await session.docker.inspect_container(container.id)
                    out = False
                if feed is None:
                    feed = await self._open_feed(session, container)
                async with aclosing(feed.follow_lines()) as batches:
                    async for batch in batches:
                        refusals = 0
                        await self._emit_lines(name, batch)
                now = await session.docker.inspect_container(container.id)
                if not now.is_alive:
                    return self._build_follow_end(name, now)
                await self.ctx.clock.sleep(_RESTART_WAIT_SECONDS)
            except ConnectionLost:
                await session.wait_reconnected()
            except ContainerNotFound:
                return self._build_follow_end(name, container, removed=True)
            except DockerUnavailable as down:
                if not out:
                    self._emit_warning(name, down.message, down.hint)
                out = True
                await self.ctx.clock.sleep(_DOCKER_RETRY_SECONDS)
            except LogUnreadable:
                raise
            except DockerError:
                refusals += 1
                if refusals > _MAX_REFUSALS:
                    raise
                await self.ctx.clock.sleep(_RESTART_WAIT_SECONDS)

    def _build_follow_end(self, node: NodeName, container: Container, removed: bool = False) -> CommandEnded:
        saved = next(
            (log for log in self._list_saved_logs([node]) if log.short_container_id == shorten_id(container.id)), None
        )
        code = "" if container.exit_code is None else f" with exit code {container.exit_code}"
        what = "was removed from" if removed else "has ended on"
        message = f"{self.request.instance} {what} {node}{'' if removed else code}"
        return self._build_end(node, message if saved is None else f"{message}; its saved log: {saved.path}", saved)

    # saved

    async def _show_saved_logs(self) -> CommandEnded:
        names = [node.name for node in self.request.nodes]
        saved = next(iter(self._list_saved_logs(names)), None)
        if saved is None:
            if not self.failures:
                raise self._build_not_found_error(names)
            if answered := [name for name in names if name not in self.failures]:
                self._emit_warning(answered[0], self._build_not_found_error(answered).message)
            raise next(iter(self.failures.values()))
        ranks = find_saved_logs_of_start(self.ctx, saved, self._list_saved_logs(names))
        if len(ranks) > 1:
            self.ranks = {NodeName(one.node): f"{index}/{count}" for one, index, count in ranks}
        since = None if self.request.since is None else self.ctx.clock.unix_time() - self.request.since
        await self._emit_saved_logs([one for one, _, _ in ranks], since)
        # a live log is the whole answer, whatever another node said; a saved one only where every node was asked
        first = ranks[0][0]
        return self._build_end(NodeName(first.node), saved=first, unreachable=bool(self.failures))

    async def _emit_saved_logs(self, logs: Sequence[SavedLog], since: float | None) -> None:
        """Show saved logs merged by their time stamps: the clock offsets of that time are not known."""
        for saved in logs:
            self._emit_warning(NodeName(saved.node), f"{self._explain_saved_log(saved)}: {saved.path}")

        async def read_batches(path: Path) -> AsyncGenerator[Sequence[LogLine], None]:
            for batch in read_saved_log(path, self.request.tail, since, everything=self.request.everything):
                yield batch

        try:
            async with AsyncExitStack() as stack:
                sources = {
                    NodeName(saved.node): await stack.enter_async_context(aclosing(read_batches(saved.path)))
                    for saved in logs
                }
                await self._show_in_order(sources, {})
        except OSError as broken:
            what = f"{broken.filename}: {broken.strerror}" if broken.strerror else str(broken)
            raise InvalidInput(f"the saved log cannot be read: {what}") from broken
        for saved in logs:
            receipt = guard_client.load_saved_receipt(
                self.ctx, saved.instance, NodeName(saved.node), saved.short_container_id
            )
            if receipt is not None:
                self._warn_guard_stop(NodeName(saved.node), receipt)

    def _list_saved_logs(self, nodes: Sequence[NodeName]) -> list[SavedLog]:
        return self.ctx.history.list_saved_logs(self.request.instance, nodes)

    def _explain_saved_log(self, saved: SavedLog) -> str:
        error = self.failures.get(NodeName(saved.node))
        when = format_date_time(saved.saved)
        if error is None:
            return f"{self.request.instance} is gone from {saved.node}; this is its saved log ({when})"
        queried = f"Docker on {saved.node}" if isinstance(error, DockerError) else saved.node
        silent = isinstance(error, DockerUnavailable | NodeUnreachable | NodeStarved | ConnectionLost)
        what = "does not answer" if silent else "could not be asked"
        return f"{queried} {what}; this is the newest saved log from it ({when})"

    def _build_not_found_error(self, nodes: Sequence[NodeName]) -> InvalidInput:
        """Return the error for an instance that these nodes do not know; it says where one exists."""
        instance, history = self.request.instance, self.ctx.history
        what = f"no instance {instance} on {', '.join(nodes)}, and no saved log of one"
        elsewhere = list(dict.fromkeys(log.node for log in history.list_saved_logs(instance)))
        if elsewhere:
            what += f" from there; saved logs of it are from {', '.join(elsewhere)}"
            return InvalidInput(what, f"sparkctl logs {instance} --node {elsewhere[0]}")
        known = history.list_instances_with_logs()
        return InvalidInput(
            what, f"saved logs are of: {', '.join(known)}" if known else "see what runs: sparkctl status"
        )

    # both

    async def _emit_lines(self, node: NodeName, lines: Sequence[LogLine]) -> None:
        grep = self.request.grep
        if not self.request.everything:
            lines = drop_own_requests(lines)
        if grep is not None:
            lines = tuple(line for line in lines if grep.search(line.text))
        if lines:
            self.shown += len(lines)
            rank = self.ranks.get(node)
            self.emit(
                LogArrived(
                    ts=self.ctx.clock.unix_time(), node=node, instance=self.request.instance, lines=lines, rank=rank
                )
            )
            if self.request.pace is not None:
                await self.request.pace()

    def _emit_warning(self, node: NodeName, message: str, hint: str | None = None) -> None:
        self.emit(WarningEmitted(self.ctx.clock.unix_time(), node, message, hint))

    def _build_end(
        self, node: NodeName, message: str | None = None, saved: SavedLog | None = None, unreachable: bool = False
    ) -> CommandEnded:
        if self.request.grep is not None and not self.shown:
            self._emit_warning(node, f"no line matches {self.request.grep.pattern}")
        return build_end(
            self.ctx,
            self.began,
            Outcome.UNREACHABLE if unreachable else Outcome.DONE,
            node=node,
            instance=self.request.instance,
            message=message,
            log=None if saved is None else str(saved.path),
        )


async def find_container(session: NodeSession, instance: str) -> Container | None:
    """Return sparkctl's container of that instance, else any container of that name (foreign logs may be read, too)."""
    containers = await session.docker.list_containers()
    ours = [c for c in containers if c.get_label(ContainerLabel.INSTANCE) == instance]
    ours.sort(key=lambda c: (c.is_alive, c.created), reverse=True)
    return next(iter(ours), next((c for c in containers if c.name == instance), None))


def find_saved_logs_of_start(
    ctx: CommandContext, saved: SavedLog, logs: Sequence[SavedLog]
) -> list[tuple[SavedLog, int, int]]:
    """Return those of the saved ``logs`` that belong to the same start as this one, each with (rank, number of ranks),
    the head's first; only this one where the history does not have the start.
    """
    for one in ctx.history.list_operations(saved.instance, most=-1):
        ids = {share.node: shorten_id(share.container or "") for share in one.shares}
        if one.kind is OperationKind.START and saved.short_container_id in ids.values():
            there = {log.short_container_id: log for log in logs}
            found = [(there.get(ids.get(node, "")), index) for index, node in enumerate(one.nodes)]
            return [(log, index, len(found)) for log, index in found if log is not None] or [(saved, 0, 1)]
    return [(saved, 0, 1)]


def read_saved_log(
    path: Path, tail: int | None = None, since: float | None = None, *, everything: bool = False
) -> Iterator[Sequence[LogLine]]:
    """Yield a saved log's lines, sparkctl's own requests only with ``everything``; ``since`` is unix seconds. Raises
    OSError.
    """
    lines = _read_saved_lines(path)
    if not everything:
        lines = (line for line in lines if not is_own_request(line.text))
    if since is not None:
        # stamps of one format sort as text
        earliest = datetime.fromtimestamp(since, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")
        lines = (line for line in lines if line.when >= earliest)
    if tail is not None:
        lines = iter(deque(lines, maxlen=tail))
    while batch := tuple(islice(lines, _BATCH_LINES)):
        yield batch


def _read_saved_lines(path: Path) -> Iterator[LogLine]:
    with TextIOWrapper(open_regular_file(path), encoding="utf-8", errors="replace", newline="\n") as file:
        for number, raw in enumerate(file, 1):
            when, _, text = raw.rstrip("\n").partition(" ")
            yield LogLine(when=when, text=text, number=number)


LineBatches = AsyncIterator[Sequence[LogLine]]


async def merge_by_time(
    sources: Mapping[NodeName, LineBatches], ahead: Mapping[NodeName, float]
) -> AsyncGenerator[tuple[NodeName, Sequence[LogLine]], None]:
    """Yield the lines of all sources in the order of their timestamps; consecutive lines of one source come together. At most
    one batch of each source is in memory.

    ``ahead``: seconds by which a source's clock is ahead of ours. The lines of one source keep their own order, also if its
    clock was set back; a line without a timestamp follows the line before it.
    """
    if len(sources) == 1:
        ((name, batches),) = sources.items()
        async for batch in batches:
            yield name, batch
        return
    heads = [_MergeSource(name=name, batches=batches, ahead=ahead.get(name, 0.0)) for name, batches in sources.items()]
    for head in heads:
        await head.load_batch()
    heads = [head for head in heads if head.lines]
    while heads:
        first = min(heads, key=lambda head: head.times[head.at])
        limit = min((head.times[head.at] for head in heads if head is not first), default=float("inf"))
        yield first.name, first.take_until(limit)
        if first.at == len(first.lines):
            await first.load_batch()
            if not first.lines:
                heads.remove(first)


@dataclass(slots=True, kw_only=True)
class _MergeSource:
    """The current batch of one source; ``at`` is the index of the next line."""

    name: NodeName
    batches: LineBatches
    ahead: float
    lines: Sequence[LogLine] = ()
    times: tuple[float, ...] = ()
    at: int = 0
    last: float = float("-inf")

    async def load_batch(self) -> None:
        """Load the next batch; it is empty at the end of the source."""
        self.lines, self.times, self.at = (), (), 0
        async for batch in self.batches:
            if batch:
                self.lines = tuple(batch)
                self.times = tuple(self._line_time(line) for line in batch)
                return

    def take_until(self, limit: float) -> Sequence[LogLine]:
        """Return the next line, and those after it that are not later than ``limit``."""
        begin, self.at = self.at, self.at + 1
        while self.at < len(self.lines) and self.times[self.at] <= limit:
            self.at += 1
        return self.lines[begin : self.at]

    def _line_time(self, line: LogLine) -> float:
        found = parse_log_time(line.when, "") if line.when else None
        if found is not None:
            self.last = max(self.last, found.seconds - self.ahead)
        return self.last
