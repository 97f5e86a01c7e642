"""Driving a verb: its events to a printer, Ctrl-C to its interrupt, its end to the exit code."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

from sparkctl.cli import stdout
from sparkctl.concurrency import run_in_background, run_until_first
from sparkctl.context import CommandContext
from sparkctl.model.events import CommandEnded, Event


class EventPrinter(Protocol):
    """Prints events for the operator, as text or as JSON lines."""

    def print_event(self, event: Event) -> None:
        """Show one event."""
        ...

    def refresh(self) -> None:
        """Update the live line; called every second."""
        ...

    def print_interrupt(self, presses: int) -> None:
        """Acknowledge Ctrl-C at once, before the operation reaches a safe point."""
        ...


EventSource = Callable[[], AsyncGenerator[Event, None]]
_captured_verbs: ContextVar[list[EventSource] | None] = ContextVar("taken", default=None)


def run_verb(ctx: CommandContext, verb: EventSource, printer: EventPrinter) -> int:
    """Run a verb to its end and return its exit code. Inside `capture_verbs` only hand the verb to the caller."""
    if (taken := _captured_verbs.get()) is not None:
        taken.append(verb)
        return 0
    return asyncio.run(_consume_events(ctx, verb, printer))


@contextlib.contextmanager
def capture_verbs() -> Iterator[list[EventSource]]:
    """Collect verbs instead of running them, so that the caller gets the parsed request as an event source."""
    verbs: list[EventSource] = []
    token = _captured_verbs.set(verbs)
    try:
        yield verbs
    finally:
        _captured_verbs.reset(token)


async def _consume_events(
    ctx: CommandContext, verb: Callable[[], AsyncGenerator[Event, None]], printer: EventPrinter
) -> int:
    loop = asyncio.get_running_loop()

    def interrupt_verb() -> None:
        ctx.interrupt.record_press()
        printer.print_interrupt(ctx.interrupt.presses)

    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError, ValueError):  # not the main thread: it gets no signals
            loop.add_signal_handler(number, interrupt_verb)

    async def refresh_every_second() -> None:
        while True:
            await asyncio.sleep(1)
            printer.refresh()

    code = 0
    async with contextlib.aclosing(verb()) as events, run_in_background(refresh_every_second()):
        async for event in events:
            printer.print_event(event)
            if isinstance(event, CommandEnded):
                code = event.exit_code
    return code


async def run_until_interrupt(work: Coroutine[Any, Any, None]) -> None:
    """Run ``work`` until it ends or Ctrl-C, which is no error: that is how users leave a repainting view."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    first, _ = await run_until_first(work, stop.wait())
    if first == 1 and stdout.is_terminal():
        stdout.print_line()  # below the ^C


T = TypeVar("T")


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` to its end as `asyncio.run` does; Ctrl-C is a KeyboardInterrupt."""
    return asyncio.run(_with_signal_wakeup(work))


async def _with_signal_wakeup(work: Coroutine[Any, Any, T]) -> T:
    # asyncio.run notes a Ctrl-C and relies on the loop waking up. A Ctrl-C just before the loop sleeps is noticed only at
    # the next event, which may never come. With a signal handler of its own, for any signal, every signal wakes the loop.
    with contextlib.suppress(NotImplementedError, ValueError, RuntimeError):  # not the main thread: no signals there
        asyncio.get_running_loop().add_signal_handler(signal.SIGCONT, _ignore_signal)
    return await work


def _ignore_signal() -> None: ...
