"""How a verb becomes a stream of events: a job that emits, an interrupt it can feel, and one honest end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sparkctl.core.clock import Clock, SystemClock
from sparkctl.core.history import History
from sparkctl.errors import ExitCode, SparkctlError
from sparkctl.model.ask import Asker, Nobody
from sparkctl.model.events import Ended, Event, Outcome
from sparkctl.model.node import NodeName

T = TypeVar("T")
Emit = Callable[[Event], None]
Job = Callable[[Emit], Coroutine[Any, Any, Ended]]

_OUTCOMES = {
    ExitCode.ENGINE_FAILED: Outcome.FAILED,
    ExitCode.UNREACHABLE: Outcome.UNREACHABLE,
    ExitCode.TIMED_OUT: Outcome.TIMED_OUT,
    ExitCode.UNHEALTHY: Outcome.UNHEALTHY,
    ExitCode.INTERRUPTED: Outcome.INTERRUPTED,
}


class Interrupted(SparkctlError):
    """The operator pressed Ctrl-C; ``message`` says what goes on without us."""

    exit_code = ExitCode.INTERRUPTED


class Interrupt:
    """Ctrl-C as a fact that an operation can wait for, so that it stops where stopping is safe."""

    def __init__(self) -> None:
        self.presses = 0
        self._pressed = asyncio.Event()

    def press(self) -> None:
        """Count one more; called from the front end's signal handler, on the loop."""
        self.presses += 1
        self._pressed.set()

    async def wait(self, presses: int = 1) -> None:
        """Return once it was pressed this often."""
        while self.presses < presses:
            self._pressed.clear()
            await self._pressed.wait()

    async def guard(self, work: Coroutine[Any, Any, T], goes_on: str) -> T:
        """Return what ``work`` returns, or cancel it and raise `Interrupted` with ``goes_on`` at the first press."""
        task = asyncio.ensure_future(work)
        press = asyncio.ensure_future(self.wait())
        try:
            await asyncio.wait({task, press}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise Interrupted(goes_on)
        finally:
            press.cancel()
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


@dataclass(slots=True)
class Context:
    """What every verb is given: who acts, how to ask, what time it is, where history lies."""

    history: History
    operator: str
    asker: Asker = field(default_factory=Nobody)
    clock: Clock = field(default_factory=SystemClock)
    interrupt: Interrupt = field(default_factory=Interrupt)


async def stream(
    ctx: Context, job: Job, instance: str | None = None, *, on_interrupt: str | None
) -> AsyncIterator[Event]:
    """Run ``job`` and yield what it emits, then its `Ended`; an error of ours becomes an `Ended` that says so.

    ``on_interrupt``: what to say when Ctrl-C ends the job where it is; None for a job that minds Ctrl-C itself.
    Anything else that is raised is a defect and comes through as it is. Closing the generator cancels the job.
    """
    events: asyncio.Queue[Event | None] = asyncio.Queue()
    began = ctx.clock.monotonic()

    async def finish() -> Ended:
        try:
            work = job(events.put_nowait)
            return await (work if on_interrupt is None else ctx.interrupt.guard(work, on_interrupt))
        except SparkctlError as error:
            return ended_by(error, ctx, ctx.clock.monotonic() - began, instance)
        finally:
            events.put_nowait(None)

    task = asyncio.create_task(finish())
    try:
        while (event := await events.get()) is not None:
            yield event
        yield await task
    finally:
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def ended_by(error: SparkctlError, ctx: Context, seconds: float, instance: str | None = None) -> Ended:
    """Return the end that an error stands for."""
    node = getattr(error, "node", None)
    return Ended(
        ts=ctx.clock.now(),
        outcome=_OUTCOMES.get(error.exit_code, Outcome.REFUSED),
        exit_code=int(error.exit_code),
        seconds=seconds,
        node=NodeName(node) if node else None,
        instance=instance,
        message=error.message,
        hint=error.hint,
    )
