"""Several things at once, none of them left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar, overload

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
Work = Coroutine[Any, Any, A]


@overload
async def together(one: Work[A], two: Work[B], /) -> tuple[A, B]: ...
@overload
async def together(one: Work[A], two: Work[B], three: Work[C], /) -> tuple[A, B, C]: ...
@overload
async def together(*work: Work[A]) -> tuple[A, ...]: ...
async def together(*work: Work[Any]) -> tuple[Any, ...]:
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
