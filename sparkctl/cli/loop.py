"""Running the event loop so that no Ctrl-C is lost."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` to its end as `asyncio.run` does; Ctrl-C is a KeyboardInterrupt."""
    return asyncio.run(_with_signal_wakeup(work))


async def _with_signal_wakeup(work: Coroutine[Any, Any, T]) -> T:
    # asyncio.run notes a Ctrl-C and trusts that the loop wakes up of it; one that comes just before it goes to sleep is
    # noticed at the next event, which may be none. A loop with a handler of its own, for whatever signal, is woken by all.
    with contextlib.suppress(NotImplementedError, ValueError, RuntimeError):  # not the main thread: no signals there
        asyncio.get_running_loop().add_signal_handler(signal.SIGCONT, _nothing)
    return await work


def _nothing() -> None: ...
