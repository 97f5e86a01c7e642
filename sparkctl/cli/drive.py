"""Driving a verb: its events to a teller, Ctrl-C to its interrupt, its end to the exit code."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextvars import ContextVar
from typing import Any, Protocol

from sparkctl.cli import output
from sparkctl.core.context import Context
from sparkctl.model.events import Ended, Event


class Teller(Protocol):
    """Whoever tells the operator: in words, or as JSON lines."""

    def tell(self, event: Event) -> None:
        """Show one event."""
        ...

    def tick(self) -> None:
        """Let a second pass on a live line."""
        ...

    def interrupted(self, presses: int) -> None:
        """Acknowledge Ctrl-C at once, before the operation has got to a safe point."""
        ...


Verb = Callable[[], AsyncGenerator[Event, None]]
_taken: ContextVar[list[Verb] | None] = ContextVar("taken", default=None)


def drive(ctx: Context, verb: Verb, teller: Teller) -> int:
    """Run a verb to its end and return its exit code; where somebody else runs it (`take`), hand it over."""
    if (taken := _taken.get()) is not None:
        taken.append(verb)
        return 0
    return asyncio.run(_drive(ctx, verb, teller))


@contextlib.contextmanager
def take() -> Iterator[list[Verb]]:
    """Let verbs be understood as ever, and given to the caller in place of being run."""
    verbs: list[Verb] = []
    token = _taken.set(verbs)
    try:
        yield verbs
    finally:
        _taken.reset(token)


async def _drive(ctx: Context, verb: Callable[[], AsyncGenerator[Event, None]], teller: Teller) -> int:
    loop = asyncio.get_running_loop()

    def press() -> None:
        ctx.interrupt.press()
        teller.interrupted(ctx.interrupt.presses)

    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError, ValueError):  # not the main thread: nobody can press there
            loop.add_signal_handler(number, press)

    async def ticking() -> None:
        while True:
            await asyncio.sleep(1)
            teller.tick()

    ticker = asyncio.create_task(ticking())
    code = 0
    events = verb()
    try:
        async for event in events:
            teller.tell(event)
            if isinstance(event, Ended):
                code = event.exit_code
    finally:
        ticker.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await ticker
        await events.aclose()
    return code


async def until_stopped(work: Coroutine[Any, Any, None]) -> None:
    """Run ``work`` until it ends or Ctrl-C does, which is no error: how a view that repaints is left."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    showing = asyncio.ensure_future(work)
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait({showing, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    await asyncio.gather(stopping, return_exceptions=True)
    if showing.done():
        return showing.result()
    showing.cancel()
    await asyncio.gather(showing, return_exceptions=True)
    if output.is_terminal():
        output.text()  # below the ^C
    return None
