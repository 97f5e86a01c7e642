"""``logs``: the log of an instance, live from its container or from the file that was kept when it went."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

from sparkctl.core.context import Context
from sparkctl.core.history import SavedLog
from sparkctl.core.session import Session
from sparkctl.errors import DockerDown, InvalidInput, LinkLost, NodeError
from sparkctl.model.container import Container
from sparkctl.model.events import Ended, Event, LogArrived, Outcome, Warned
from sparkctl.model.log import LogLine
from sparkctl.model.node import Node, NodeName
from sparkctl.model.plan import Label
from sparkctl.operations.masking import masked
from sparkctl.operations.stream import Emit, stream
from sparkctl.wire.logs import LogFollower

_BATCH = 500


@dataclass(frozen=True, slots=True)
class LogsRequest:
    """``since`` in seconds before now; ``grep`` a compiled pattern that lines must contain; ``tail`` the last N lines."""

    instance: str
    nodes: Sequence[Node]
    follow: bool = False
    since: float | None = None
    tail: int | None = None
    grep: re.Pattern[str] | None = None


def logs(ctx: Context, request: LogsRequest) -> AsyncIterator[Event]:
    """Stream an instance's log. Exit 2 when no such instance runs and no log of it was kept."""

    async def job(emit: Emit) -> Ended:
        began = ctx.clock.monotonic()
        unreachable: NodeError | None = None
        for node in request.nodes:
            try:
                async with Session(node, ctx.asker, ctx.clock) as session:
                    session.report_to(emit)
                    await session.link.connect()
                    container = await _find(session, request.instance)
                    if container is not None:
                        await _live(session, ctx, request, container, emit)
                        return Ended(ctx.clock.now(), Outcome.DONE, 0, ctx.clock.monotonic() - began, node.name)
            except NodeError as error:
                unreachable = unreachable or error
                emit(Warned(ctx.clock.now(), node.name, error.message, error.hint))
        return _from_disk(ctx, request, unreachable, emit, began)

    return stream(ctx, job, request.instance, on_interrupt="")


async def _find(session: Session, instance: str) -> Container | None:
    """Return our container of that instance, else any container of that name (foreign logs may be read, too)."""
    containers = await session.docker.list()
    ours = [c for c in containers if c.label(Label.INSTANCE) == instance]
    ours.sort(key=lambda c: (c.is_alive, c.created), reverse=True)
    return next(iter(ours), next((c for c in containers if c.name == instance), None))


async def _live(session: Session, ctx: Context, request: LogsRequest, container: Container, emit: Emit) -> None:
    secrets = await session.docker.secrets(container.id)
    since = None if request.since is None else ctx.clock.now() - request.since
    follower = LogFollower(session.link, container.id, since=since, tail=request.tail)
    while True:
        try:
            source = follower.follow() if request.follow else follower.read()
            async for batch in source:
                lines = _wanted(masked(batch, secrets), request)
                if lines:
                    emit(LogArrived(ctx.clock.now(), session.node.name, request.instance, lines))
            return
        except LinkLost:
            if not request.follow:
                raise
            await session.link.reconnect()
        except DockerDown as down:
            if not request.follow:
                raise
            emit(Warned(ctx.clock.now(), session.node.name, down.message, down.hint))
            await ctx.clock.sleep(2.0)


def _wanted(lines: tuple[LogLine, ...], request: LogsRequest) -> tuple[LogLine, ...]:
    return lines if request.grep is None else tuple(line for line in lines if request.grep.search(line.text))


def _from_disk(ctx: Context, request: LogsRequest, unreachable: NodeError | None, emit: Emit, began: float) -> Ended:
    nodes = {node.name for node in request.nodes}
    saved = next((log for log in ctx.history.saved_logs(request.instance) if log.node in nodes), None)
    if saved is None:
        if unreachable is not None:
            raise unreachable
        known = ctx.history.instances_with_logs()
        raise InvalidInput(
            f"no instance {request.instance} on {', '.join(sorted(nodes))}, and no saved log of one",
            f"saved logs are of: {', '.join(known)}" if known else "see what runs: sparkctl status",
        )
    emit(
        Warned(
            ctx.clock.now(),
            NodeName(saved.node),
            f"{request.instance} is gone; this is its saved log: {saved.path}",
            None,
        )
    )
    since = None if request.since is None else ctx.clock.now() - request.since
    for lines in _saved_batches(saved, request, since):
        emit(LogArrived(ctx.clock.now(), NodeName(saved.node), request.instance, lines))
    code = 0 if unreachable is None else int(unreachable.exit_code)
    return Ended(
        ctx.clock.now(),
        Outcome.DONE if unreachable is None else Outcome.UNREACHABLE,
        code,
        ctx.clock.monotonic() - began,
        NodeName(saved.node),
        log=str(saved.path),
    )


def _saved_batches(saved: SavedLog, request: LogsRequest, since: float | None) -> Iterator[tuple[LogLine, ...]]:
    lines = _saved_lines(saved.path)
    if since is not None:
        earliest = datetime.fromtimestamp(since, UTC).strftime(
            "%Y-%m-%dT%H:%M:%S.%f"
        )  # stamps of one form sort as text
        lines = (line for line in lines if line.when >= earliest)
    if request.tail is not None:
        yield _wanted(tuple(deque(lines, maxlen=request.tail)), request)
        return
    while batch := tuple(islice(lines, _BATCH)):
        yield _wanted(batch, request)


def _saved_lines(path: Path) -> Iterator[LogLine]:
    with path.open(errors="replace", newline="\n") as file:
        for number, raw in enumerate(file, 1):
            when, _, text = raw.rstrip("\n").partition(" ")
            yield LogLine(when, text, number)
