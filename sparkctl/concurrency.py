"""Several things at once, none of them left behind."""

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

    Unlike a TaskGroup the error is the error itself, and unlike ``gather`` nothing goes on behind the caller's back.
    """
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return tuple(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def cancel_and_wait(tasks: Iterable[asyncio.Future[Any]], within: float | None = None) -> None:
    """Cancel tasks and wait for their ends, ``within`` so many seconds at most.

    Each is cancelled once: a second time would hit it while it puts away what it holds. So whoever takes longer goes on
    with that, and the error of one is for its own done callback to tell.
    """
    left = {task for task in tasks if not task.done()}
    for task in left:
        if not isinstance(task, asyncio.Task) or not task.cancelling():
            task.cancel()
    if left:
        ended, _ = await asyncio.wait(left, timeout=within)
        for task in ended:
            if not task.cancelled():
                task.exception()  # looked at: no complaint when it is forgotten
