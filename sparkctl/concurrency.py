"""Running several coroutines concurrently without leaving one behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from contextvars import ContextVar
from typing import Any, TypeVar, overload

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
Work = Coroutine[Any, Any, A]


_INPUT_WAIT_SECONDS = 0.002  # seconds between two checks whether the input is handled
has_pending_input: ContextVar[Callable[[], bool] | None] = ContextVar("has_pending_input", default=None)


async def yield_to_input() -> None:
    """Let other tasks run; where a front end set `has_pending_input`, wait until the operator's keys are handled.

    Work on long streams calls this after every few milliseconds. The function in `has_pending_input` must bound the wait.
    """
    await asyncio.sleep(0)
    is_pending = has_pending_input.get()
    while is_pending is not None and is_pending():  # noqa: ASYNC110 - a key may end by the clock, which sets no event
        await asyncio.sleep(_INPUT_WAIT_SECONDS)


@overload
async def gather_or_cancel(one: Work[A], two: Work[B], /) -> tuple[A, B]: ...
@overload
async def gather_or_cancel(one: Work[A], two: Work[B], three: Work[C], /) -> tuple[A, B, C]: ...
@overload
async def gather_or_cancel(*work: Work[A]) -> tuple[A, ...]: ...
async def gather_or_cancel(*work: Work[Any]) -> tuple[Any, ...]:
    """Return all results, or raise the first error once the others have been cancelled and have ended.

    Unlike a TaskGroup it raises the error itself, not a group; unlike ``gather`` no task keeps running after an error.
    """
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return tuple(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def cancel_and_wait(tasks: Iterable[asyncio.Future[Any]], within: float | None = None) -> None:
    """Cancel tasks and wait until they end, at most ``within`` seconds.

    Each is cancelled only once: a second cancel would interrupt its clean-up. A task that takes longer continues its
    clean-up, and its error is left to its own done callback.
    """
    left = {task for task in tasks if not task.done()}
    for task in left:
        if not isinstance(task, asyncio.Task) or not task.cancelling():
            task.cancel()
    if left:
        ended, _ = await asyncio.wait(left, timeout=within)
        for task in ended:
            if not task.cancelled():
                task.exception()  # retrieved, so that asyncio does not log it
