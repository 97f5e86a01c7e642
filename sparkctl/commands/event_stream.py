"""Turns a command's job into a stream of events with exactly one `CommandEnded`, and connects to each node in turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack, aclosing
from typing import Any

from sparkctl.context import CommandContext
from sparkctl.errors import ExitCode, NodeError, SparkctlError
from sparkctl.model.events import CommandEnded, Emit, Event, Outcome, WarningEmitted
from sparkctl.model.node import Node, NodeName
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.transport.node_session import NodeSession

CommandJob = Callable[[Emit], Coroutine[Any, Any, CommandEnded]]

_OUTCOME_BY_EXIT_CODE = {
    ExitCode.ENGINE_FAILED: Outcome.FAILED,
    ExitCode.UNREACHABLE: Outcome.UNREACHABLE,
    ExitCode.TIMED_OUT: Outcome.TIMED_OUT,
    ExitCode.UNHEALTHY: Outcome.UNHEALTHY,
    ExitCode.INTERRUPTED: Outcome.INTERRUPTED,
}
_EXIT_CODE_BY_OUTCOME = {outcome: code for code, outcome in _OUTCOME_BY_EXIT_CODE.items()} | {
    Outcome.UNPROVED: ExitCode.UNHEALTHY,
    Outcome.REFUSED: ExitCode.REFUSED,
}


async def stream_events(
    ctx: CommandContext,
    job: CommandJob,
    instance: str | None = None,
    node: str | None = None,
    *,
    on_interrupt: str | None,
) -> AsyncGenerator[Event, None]:
    """Run ``job`` and yield what it emits, then its `CommandEnded`; a `SparkctlError` becomes such an end.

    ``on_interrupt``: the message when Ctrl-C ends the job; None for a job that handles Ctrl-C itself. Any other
    exception is a defect and is raised unchanged. Closing the generator cancels the job.
    """
    events: asyncio.Queue[Event | None] = asyncio.Queue()
    began, unshown = ctx.clock.monotonic(), 0

    def count(more: int) -> None:
        nonlocal unshown
        unshown += more
        ctx.unshown.add(more)

    def emit(event: Event) -> None:
        count(1)
        events.put_nowait(event)

    async def run_job() -> CommandEnded:
        try:
            work = job(emit)
            return await (work if on_interrupt is None else ctx.interrupt.run_interruptible(work, on_interrupt))
        except SparkctlError as error:
            return build_end_from_error(error, ctx, ctx.clock.monotonic() - began, instance, node)
        finally:
            events.put_nowait(None)

    # no TaskGroup: in a generator it would cancel whoever asks for the next event; `None` brings the job's error here at once
    task = asyncio.create_task(run_job())
    try:
        while (event := await events.get()) is not None:
            yield event
            count(-1)  # whoever asked for the next one has handled it
        yield await task
    finally:
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        count(-unshown)  # nobody reads the rest


async def forward_events(events: AsyncGenerator[Event, None], emit: Emit) -> CommandEnded:
    """Run a command as a part of another: forward its events, and return its end instead of emitting it."""
    ended: CommandEnded | None = None
    async with aclosing(events) as stream:
        async for event in stream:
            if isinstance(event, CommandEnded):
                ended = event
            else:
                emit(event)
    assert ended is not None, "a verb ends with its end"
    return ended


async def run_in_turn(commands: Iterable[AsyncGenerator[Event, None]]) -> AsyncGenerator[Event, None]:
    """Run commands one after the other: yield their events, and one end: that of the first that failed, else of the last."""
    ended: CommandEnded | None = None
    for events in commands:
        async with aclosing(events) as stream:
            async for event in stream:
                if isinstance(event, CommandEnded):
                    ended = event
                else:
                    yield event
        if ended is not None and ended.exit_code:
            break
    if ended is not None:
        yield ended


def deduplicate_warnings(emit: Emit, reported: Iterable[str] = ()) -> Emit:
    """Return an emit function that forwards each warning once.

    ``reported``: sentences that were reported before, those of one Spark with its name in front.
    """
    before = frozenset(reported)
    seen: set[tuple[NodeName | None, str]] = set()

    def emit_once(event: Event) -> None:
        if isinstance(event, WarningEmitted):
            words, key = sanitize_line(event.message), (event.node, event.message)
            if key in seen or before & {words, f"{event.node}: {words}"}:
                return
            seen.add(key)
        emit(event)

    return emit_once


def build_missing_lines_warning(ctx: CommandContext, node: NodeName, instance: str) -> WarningEmitted:
    """Return the warning that lines of a log are missing at this place."""
    return WarningEmitted(
        ctx.clock.unix_time(),
        node,
        f"lines of {instance} are missing here: Docker on {node} rotated them away before they could be read",
        "have Docker keep more of the log: container.options.log-opt: [max-size=100m, max-file=5]",
    )


async def open_session(stack: AsyncExitStack, ctx: CommandContext, node: Node, emit: Emit) -> NodeSession:
    """Return a session that ``stack`` closes, with every change of its connection emitted."""
    session = await stack.enter_async_context(ctx.create_session(node))
    session.report_state_changes(emit)
    return session


def build_end(
    ctx: CommandContext,
    began: float,
    outcome: Outcome,
    *,
    node: NodeName | None = None,
    instance: str | None = None,
    message: str | None = None,
    hint: str | None = None,
    log: str | None = None,
) -> CommandEnded:
    """Return the end of a command that began at ``began``, monotonic seconds. Its exit code follows from the outcome."""
    return CommandEnded(
        ts=ctx.clock.unix_time(),
        outcome=outcome,
        exit_code=int(_EXIT_CODE_BY_OUTCOME.get(outcome, ExitCode.DONE)),
        seconds=ctx.clock.monotonic() - began,
        node=node,
        instance=instance,
        message=message,
        hint=hint,
        log=log,
    )


def build_end_from_error(
    error: SparkctlError, ctx: CommandContext, seconds: float, instance: str | None = None, node: str | None = None
) -> CommandEnded:
    node = getattr(error, "node", None) or node
    return CommandEnded(
        ts=ctx.clock.unix_time(),
        outcome=_OUTCOME_BY_EXIT_CODE.get(error.exit_code, Outcome.REFUSED),
        exit_code=int(error.exit_code),
        seconds=seconds,
        node=NodeName(node) if node else None,
        instance=instance,
        message=error.message,
        hint=error.hint,
    )


def build_error_from_end(end: CommandEnded) -> SparkctlError:
    """Return the error of a command that is a part of another and failed: the whole ends as its part did."""
    message = end.message or str(end.outcome)
    error = SparkctlError(message, end.hint) if end.node is None else NodeError(end.node, message, end.hint)
    error.exit_code = ExitCode(end.exit_code)
    return error


async def run_on_each_node(
    ctx: CommandContext, nodes: Sequence[Node], emit: Emit, act: Callable[[NodeSession], Awaitable[None]]
) -> SparkctlError | None:
    """Connect to each node and run ``act``; return the first error, after a warning for each. With a single node the
    error is raised.
    """
    failure: SparkctlError | None = None
    for node in nodes:
        try:
            async with ctx.create_session(node) as session:
                session.report_state_changes(emit)
                await session.link.connect()
                await act(session)
        except SparkctlError as error:
            if len(nodes) == 1:
                raise
            failure = failure or error
            emit(WarningEmitted(ctx.clock.unix_time(), node.name, error.message, error.hint))
    return failure
