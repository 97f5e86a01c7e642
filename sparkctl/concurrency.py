"""Running several coroutines concurrently without leaving one behind."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar, overload

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
Work = Coroutine[Any, Any, A]


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
