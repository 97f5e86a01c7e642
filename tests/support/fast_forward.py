"""An event loop that does not wait: when everything stands still until a timer, the clock is forwarded to that timer.

Tests on simulated Sparks spend most of their time in sleeps, of the simulator and of the product. Their sockets are all in
this process, so "nothing can be read and no thread works" means that nothing will happen before the next timer. Only
`time.monotonic` moves, which is what `SystemClock`, the simulated clock and asyncio read. On a starved machine this keeps
the simulated Sparks from running ahead of the product, too.

It waits in real time where that conclusion would be wrong: while another event loop runs, in any thread but the main one,
while a thread works for this loop, and while there is a child process (it lives in real time).
"""

from __future__ import annotations

import asyncio
import os
import selectors
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Any, TypeVar, TypeVarTuple

_Args = TypeVarTuple("_Args")
_Result = TypeVar("_Result")
_REAL_MONOTONIC = time.monotonic
_GRACE = 0.001  # seconds: what was sent over loopback is there by then, on a busy machine, too
_RECHECK = 0.02  # seconds until the conditions for waiting in real time are looked at again


class _State:
    is_on = False
    offset = 0.0  # seconds that were skipped in this process
    running_loops = 0


def _monotonic() -> float:
    return _REAL_MONOTONIC() + _State.offset


def has_child_processes() -> bool:
    """Tell whether this process has children that it has not waited for."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _is_another_at_work() -> bool:
    """Tell whether another loop runs, or the main thread works outside of one."""
    return _State.running_loops > 1 or threading.current_thread() is not threading.main_thread()


class _ForwardingSelector(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self.pending_calls = 0  # calls that threads work on

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready; forward the clock instead of waiting for `timeout`."""
        if not _State.is_on or timeout is None or timeout <= 0:
            return super().select(timeout)
        events = super().select(0)
        if events:
            return events
        if self.pending_calls or _is_another_at_work() or has_child_processes():
            return super().select(min(timeout, _RECHECK))
        events = super().select(min(timeout, _GRACE))
        if not events:
            _State.offset += max(0.0, timeout - _GRACE)
        return events


class FastForwardLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock is forwarded while nothing happens."""

    def __init__(self) -> None:
        self._forwarding = _ForwardingSelector()
        super().__init__(self._forwarding)

    def run_forever(self) -> None:
        """Run until it is stopped."""
        _State.running_loops += 1
        try:
            super().run_forever()
        finally:
            _State.running_loops -= 1

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*_Args], _Result], *args: *_Args
    ) -> asyncio.Future[_Result]:
        """Run a call in a thread; the clock is not forwarded meanwhile."""
        future = super().run_in_executor(executor, func, *args)
        self._forwarding.pending_calls += 1
        future.add_done_callback(self._finish_call)
        return future

    def _finish_call(self, _: asyncio.Future[Any]) -> None:
        self._forwarding.pending_calls -= 1


class FastForwardPolicy(asyncio.DefaultEventLoopPolicy):
    """Makes `FastForwardLoop`s."""

    _loop_factory = FastForwardLoop


def install_fast_forward() -> None:
    """Make every event loop of this process one that can forward its clock; none does before `forward_clock`."""
    time.monotonic = _monotonic
    asyncio.set_event_loop_policy(FastForwardPolicy())


@contextmanager
def forward_clock() -> Iterator[None]:
    """Forward the clock of event loops while nothing happens, until the end of the block."""
    _State.is_on = True
    try:
        yield
    finally:
        _State.is_on = False
