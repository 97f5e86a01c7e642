"""``logs``: the log of an instance, live from its container or from the file that was kept when it went."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from io import TextIOWrapper
from itertools import islice
from pathlib import Path

from sparkctl.core.bounded_pattern import BoundedPattern
from sparkctl.core.context import Context
from sparkctl.core.in_order import Batches, in_order
from sparkctl.core.log_files import SavedLog
from sparkctl.core.own_questions import is_ours, others
from sparkctl.core.session import Session, node_failures
from sparkctl.core.together import together
from sparkctl.errors import (
    DockerDown,
    DockerError,
    ExitCode,
    InvalidInput,
    LinkLost,
    LogUnreadable,
    NodeError,
    NoSuchContainer,
    Starved,
    Unreachable,
)
from sparkctl.files import open_regular
from sparkctl.model.container import Container
from sparkctl.model.events import Ended, Event, LogArrived, Outcome, Warned
from sparkctl.model.guard import Receipt
from sparkctl.model.history import Kind
from sparkctl.model.log import LogLine
from sparkctl.model.node import Node, NodeName
from sparkctl.model.plan import Label
from sparkctl.operations import receipts
from sparkctl.operations.clock_offset import measure
from sparkctl.operations.labels import nodes_of, rank_of, run_of
from sparkctl.operations.masking import LineMasker
from sparkctl.operations.starting.judge import fall
from sparkctl.operations.stream import Emit, log_gap, stream
from sparkctl.wire.logs import LogFollower

_BATCH = 500
_PAUSE = 2.0  # between questions to a Docker that is down
_ONE_MORE_RUN = 1.0  # a container that lives on although its log ended is being restarted
_PATIENCE = 5  # times that Docker may refuse a log: one that is just being removed cannot be read
_AT_FIRST, _AT_MOST = 200, 100_000  # lines: how far back the last N of others are looked for
_FURTHER = 8  # times, each time that they were not found


@dataclass(frozen=True, slots=True)
class LogsRequest:
    """``since`` in seconds before now; ``grep`` a compiled pattern that lines must contain; ``tail`` the last N lines.

    ``everything``: with the access lines that sparkctl's own questions left in the log, which else are not shown.
    ``pace`` is awaited after each batch that was emitted: a reader that needs time holds up a log that has much to tell.
    """

    instance: str
    nodes: Sequence[Node]
    follow: bool = False
    since: float | None = None
    tail: int | None = None
    grep: BoundedPattern | re.Pattern[str] | None = None
    pace: Callable[[], Awaitable[None]] | None = None
    session: Callable[[Node], Session] | None = None  # how a node's session is had; None: one of its own for each
    everything: bool = False


def logs(ctx: Context, request: LogsRequest) -> AsyncGenerator[Event, None]:
    """Stream an instance's log. Exit 2 when no such instance runs and no log of it was kept.

    Exit 3 when a node could not be asked, also where a saved log is shown instead.
    """
    return stream(ctx, lambda emit: _Logs(ctx, request, emit).run(), request.instance, on_interrupt="")


class _Logs:
    """One run of the verb. ``failures`` are the nodes that could not be asked, and why."""

    def __init__(self, ctx: Context, request: LogsRequest, emit: Emit) -> None:
        self.ctx = ctx
        self.request = request
        self.emit = emit
        self.began = ctx.clock.monotonic()
        self.failures: dict[NodeName, NodeError | DockerError] = {}
        self.ranks: dict[NodeName, str | None] = {}  # where several are shown together
        self.shown = 0

    async def run(self) -> Ended:
        for node in self.request.nodes:
            try:
                async with self._session(node) as session:
                    session.report_to(self.emit)
                    with node_failures(node):
                        await session.link.connect()
                        container = await find(session, self.request.instance)
                        if container is not None:
                            return await self._whole(session, container)
            except NoSuchContainer:
                if self.shown:
                    raise
            except LogUnreadable:
                raise  # there is none to be had, and a saved one would be of another run
            except (NodeError, DockerError) as error:
                if self.shown:
                    raise  # a saved log after half a live one would tell everything twice
                self.failures[node.name] = error
                self._warn(node.name, error.message, error.hint)
        return await self._from_disk()

    def _session(self, node: Node) -> Session:
        if self.request.session is not None:
            return self.request.session(node)
        return Session(node, self.ctx.asker, self.ctx.clock)

    # live

    async def _whole(self, session: Session, container: Container) -> Ended:
        """Show the log of an instance, or those of all its ranks on the nodes that were asked for: as one, by time, or followed
        together."""
        names = nodes_of(container)
        others = [one for one in self.request.nodes if one.name in names and one.name != session.node.name]
        async with AsyncExitStack() as stack:
            ranks = [(session, container)]
            for node in others:
                if (found := await self._rank(stack, node, container)) is not None:
                    ranks.append(found)
            if len(ranks) > 1:
                self.ranks = {there.node.name: rank_of(one) for there, one in ranks}
                ranks.sort(key=lambda rank: names.index(rank[0].node.name))
            if self.request.follow:
                ends = await together(*(self._follow(*rank) for rank in ranks))
            else:
                ends = (await self._read_all(ranks),)
        messages = [one.message for one in ends if one.message]
        if others and self.failures:
            return self._ended(ends[0].node or session.node.name, "; ".join(messages) or None, unreachable=True)
        return replace(ends[0], message="; ".join(messages) or None)

    async def _rank(self, stack: AsyncExitStack, node: Node, of: Container) -> tuple[Session, Container] | None:
        """Return another rank of the same start on a node, None where it is not there or could not be asked for."""
        try:
            session = await stack.enter_async_context(self._session(node))
            session.report_to(self.emit)
            with node_failures(node):
                await session.link.connect()
                found = await find(session, self.request.instance)
        except (NodeError, DockerError) as error:
            self.failures[node.name] = error
            self._warn(node.name, error.message, error.hint)
            return None
        return None if found is None or run_of(found) != run_of(of) else (session, found)

    async def _read_all(self, ranks: Sequence[tuple[Session, Container]]) -> Ended:
        """Show what there is of these logs now: by the nodes' clocks, as far as they differ by what they say themselves."""
        clocks = await together(*(measure(session) for session, _ in ranks)) if len(ranks) > 1 else (None,)
        ahead = {
            session.node.name: clock.ahead
            for (session, _), clock in zip(ranks, clocks, strict=True)
            if clock is not None
        }
        async with AsyncExitStack() as stack:
            sources = {
                session.node.name: await stack.enter_async_context(aclosing(self._lines(session, container)))
                for session, container in ranks
            }
            await self._show_in_order(sources, ahead)
        for session, container in ranks:
            if not container.is_alive:
                await self._ask_guard(session, container)
        return self._ended(ranks[0][0].node.name)

    async def _show_in_order(self, sources: Mapping[NodeName, Batches], ahead: Mapping[NodeName, float]) -> None:
        async with aclosing(in_order(sources, ahead)) as runs:
            async for node, lines in runs:
                await self._show(node, lines)

    async def _lines(self, session: Session, container: Container) -> AsyncGenerator[tuple[LogLine, ...], None]:
        masker = LineMasker(await session.docker.secrets(container.id))
        last, follower = await self._begin(session, container)
        if last is not None:
            yield await masker.mask(last)
            return
        async with aclosing(follower.read()) as batches:
            async for batch in batches:
                yield await masker.mask(batch)

    async def _ask_guard(self, session: Session, container: Container) -> None:
        """Say it where the guard ended it: the log cannot know."""
        receipt = await receipts.of(session, container.id)
        if receipt is not None:
            receipts.keep(self.ctx, session, receipt, lambda what: self._warn(session.node.name, what))
            self._tell_guard(session.node.name, receipt)

    def _tell_guard(self, node: NodeName, receipt: Receipt) -> None:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(receipt.at))
        self._warn(node, f"the guard stopped {self.request.instance} at {when}: {fall(receipt)}")

    @property
    def _looks_back(self) -> bool:
        """Whether the last N lines are not simply those that Docker counts: it counts our own questions, too."""
        return bool(self.request.tail) and not self.request.everything

    async def _begin(self, session: Session, container: Container) -> tuple[tuple[LogLine, ...] | None, LogFollower]:
        """Return what reads the log. Where the last N lines of others are wanted, those, and it goes on there."""
        since = None if self.request.since is None else self.ctx.clock.now() - self.request.since
        if not self._looks_back:
            return None, self._follower(session, container, since, self.request.tail)
        wanted = self.request.tail or 0
        asked = max(_AT_FIRST, 2 * wanted)
        while True:
            follower = self._follower(session, container, since, asked)
            found: deque[LogLine] = deque(maxlen=wanted)
            read = 0
            async with aclosing(follower.read()) as batches:
                async for batch in batches:
                    read += len(batch)
                    found.extend(others(batch))
            if len(found) == wanted or read < asked or asked >= _AT_MOST:
                return tuple(found), follower
            asked *= _FURTHER

    def _follower(self, session: Session, container: Container, since: float | None, tail: int | None) -> LogFollower:
        def tell_gap() -> None:
            self.emit(log_gap(self.ctx, session.node.name, self.request.instance))

        return LogFollower(session.link, container.id, since=since, tail=tail, on_gap=tell_gap)

    async def _follow(self, session: Session, container: Container) -> Ended:
        """Follow through breaks and restarts until the container has ended; an outage of Docker is told once."""
        name, masker = session.node.name, LineMasker(await session.docker.secrets(container.id))
        out, refusals = False, 0
        follower: LogFollower | None = None
        while True:
            try:
                if out:
                    await session.docker.inspect(container.id)
                    out = False
                if follower is None:
                    last, follower = await self._begin(session, container)
                    await self._show(name, await masker.mask(last or ()))
                async with aclosing(follower.follow()) as batches:
                    async for batch in batches:
                        refusals = 0
                        await self._show(name, await masker.mask(batch))
                now = await session.docker.inspect(container.id)
                if not now.is_alive:
                    return self._followed_to_end(name, now)
                await self.ctx.clock.sleep(_ONE_MORE_RUN)
            except LinkLost:
                await session.back()
            except NoSuchContainer:
                return self._followed_to_end(name, container, removed=True)
            except DockerDown as down:
                if not out:
                    self._warn(name, down.message, down.hint)
                out = True
                await self.ctx.clock.sleep(_PAUSE)
            except LogUnreadable:
                raise
            except DockerError:
                refusals += 1
                if refusals > _PATIENCE:
                    raise
                await self.ctx.clock.sleep(_ONE_MORE_RUN)

    def _followed_to_end(self, node: NodeName, container: Container, removed: bool = False) -> Ended:
        saved = next((log for log in self._saved([node]) if log.container == container.id[:12]), None)
        code = "" if container.exit_code is None else f" with exit code {container.exit_code}"
        what = "was removed from" if removed else "has ended on"
        message = f"{self.request.instance} {what} {node}{'' if removed else code}"
        return self._ended(node, message if saved is None else f"{message}; its saved log: {saved.path}", saved)

    # saved

    async def _from_disk(self) -> Ended:
        names = [node.name for node in self.request.nodes]
        saved = next(iter(self._saved(names)), None)
        if saved is None:
            for error in self.failures.values():
                raise error
            raise self._unknown(names)
        ranks = of_one_start(self.ctx, saved, self._saved(names))
        if len(ranks) > 1:
            self.ranks = {NodeName(one.node): f"{index}/{count}" for one, index, count in ranks}
        since = None if self.request.since is None else self.ctx.clock.now() - self.request.since
        await self._show_saved([one for one, _, _ in ranks], since)
        # a live log is the whole answer, whatever another node did; a saved one only where every node was asked
        first = ranks[0][0]
        return self._ended(NodeName(first.node), saved=first, unreachable=bool(self.failures))

    async def _show_saved(self, logs: Sequence[SavedLog], since: float | None) -> None:
        """Show saved logs as one, by the stamps in them: how far the clocks differed then is not known."""
        for saved in logs:
            self._warn(NodeName(saved.node), f"{self._why_saved(saved)}: {saved.path}")

        async def lines(path: Path) -> AsyncGenerator[tuple[LogLine, ...], None]:
            for batch in read_saved(path, self.request.tail, since, everything=self.request.everything):
                yield batch

        try:
            async with AsyncExitStack() as stack:
                sources = {
                    NodeName(saved.node): await stack.enter_async_context(aclosing(lines(saved.path))) for saved in logs
                }
                await self._show_in_order(sources, {})
        except OSError as broken:
            what = f"{broken.filename}: {broken.strerror}" if broken.strerror else str(broken)
            raise InvalidInput(f"the saved log cannot be read: {what}") from broken
        for saved in logs:
            receipt = receipts.kept(self.ctx, saved.instance, NodeName(saved.node), saved.container)
            if receipt is not None:
                self._tell_guard(NodeName(saved.node), receipt)

    def _saved(self, nodes: Sequence[NodeName]) -> list[SavedLog]:
        return self.ctx.history.saved_logs(self.request.instance, nodes)

    def _why_saved(self, saved: SavedLog) -> str:
        error = self.failures.get(NodeName(saved.node))
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(saved.saved))
        if error is None:
            return f"{self.request.instance} is gone from {saved.node}; this is its saved log ({when})"
        asked = f"Docker on {saved.node}" if isinstance(error, DockerError) else saved.node
        silent = isinstance(error, DockerDown | Unreachable | Starved | LinkLost)
        what = "does not answer" if silent else "could not be asked"
        return f"{asked} {what}; this is the newest saved log from it ({when})"

    def _unknown(self, nodes: Sequence[NodeName]) -> InvalidInput:
        """Return the error for an instance of which these nodes know nothing, with where there is something."""
        instance, history = self.request.instance, self.ctx.history
        what = f"no instance {instance} on {', '.join(nodes)}, and no saved log of one"
        elsewhere = list(dict.fromkeys(log.node for log in history.saved_logs(instance)))
        if elsewhere:
            what += f" from there; saved logs of it are from {', '.join(elsewhere)}"
            return InvalidInput(what, f"sparkctl logs {instance} --node {elsewhere[0]}")
        known = history.instances_with_logs()
        return InvalidInput(
            what, f"saved logs are of: {', '.join(known)}" if known else "see what runs: sparkctl status"
        )

    # both

    async def _show(self, node: NodeName, lines: tuple[LogLine, ...]) -> None:
        grep = self.request.grep
        if not self.request.everything:
            lines = others(lines)
        if grep is not None:
            lines = tuple(line for line in lines if grep.search(line.text))
        if lines:
            self.shown += len(lines)
            rank = self.ranks.get(node)
            self.emit(LogArrived(self.ctx.clock.now(), node, self.request.instance, lines, rank=rank))
            if self.request.pace is not None:
                await self.request.pace()

    def _warn(self, node: NodeName, message: str, hint: str | None = None) -> None:
        self.emit(Warned(self.ctx.clock.now(), node, message, hint))

    def _ended(
        self, node: NodeName, message: str | None = None, saved: SavedLog | None = None, unreachable: bool = False
    ) -> Ended:
        if self.request.grep is not None and not self.shown:
            self._warn(node, f"no line matches {self.request.grep.pattern}")
        return Ended(
            self.ctx.clock.now(),
            Outcome.UNREACHABLE if unreachable else Outcome.DONE,
            int(ExitCode.UNREACHABLE if unreachable else ExitCode.DONE),
            self.ctx.clock.monotonic() - self.began,
            node,
            self.request.instance,
            message=message,
            log=None if saved is None else str(saved.path),
        )


async def find(session: Session, instance: str) -> Container | None:
    """Return our container of that instance, else any container of that name (foreign logs may be read, too)."""
    containers = await session.docker.list()
    ours = [c for c in containers if c.label(Label.INSTANCE) == instance]
    ours.sort(key=lambda c: (c.is_alive, c.created), reverse=True)
    return next(iter(ours), next((c for c in containers if c.name == instance), None))


def of_one_start(ctx: Context, saved: SavedLog, logs: Sequence[SavedLog]) -> list[tuple[SavedLog, int, int]]:
    """Return those of the saved ``logs`` that are of all ranks of the start that this one is of, each with its rank and of
    how many, the head's first; of a start that is not in the history this one alone."""
    for one in ctx.history.operations(saved.instance, most=-1):
        ids = {share.node: (share.container or "")[:12] for share in one.shares}
        if one.kind is Kind.START and saved.container in ids.values():
            there = {log.container: log for log in logs}
            found = [(there.get(ids.get(node, "")), index) for index, node in enumerate(one.nodes)]
            return [(log, index, len(found)) for log, index in found if log is not None] or [(saved, 0, 1)]
    return [(saved, 0, 1)]


def read_saved(
    path: Path, tail: int | None = None, since: float | None = None, *, everything: bool = False
) -> Iterator[tuple[LogLine, ...]]:
    """Yield a saved log's lines, our own questions only with ``everything``; ``since`` is unix seconds. Raises OSError."""
    lines = _saved_lines(path)
    if not everything:
        lines = (line for line in lines if not is_ours(line.text))
    if since is not None:
        # stamps of one form sort as text
        earliest = datetime.fromtimestamp(since, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")
        lines = (line for line in lines if line.when >= earliest)
    if tail is not None:
        lines = iter(deque(lines, maxlen=tail))
    while batch := tuple(islice(lines, _BATCH)):
        yield batch


def _saved_lines(path: Path) -> Iterator[LogLine]:
    with TextIOWrapper(open_regular(path), encoding="utf-8", errors="replace", newline="\n") as file:
        for number, raw in enumerate(file, 1):
            when, _, text = raw.rstrip("\n").partition(" ")
            yield LogLine(when, text, number)
