"""An event loop that does not wait: when everything stands still until a timer, the clock is forwarded to that timer.

Tests on simulated Sparks spend most of their time in sleeps, of the simulator and of the product. Their sockets are all in
this process, so "nothing can be read and no thread works" means that nothing will happen before the next timer. What moves
is `time.monotonic`, which `SystemClock`, the simulated clock and asyncio read, and `time.time` with it: a clock on the wall
that goes on while a starved process stands still would be ahead of those of the simulated Sparks, by more and more.

What is not waited for takes the CPU time that it takes, whatever else the machine does: on a starved one neither does a
patience end sooner, nor do the simulated Sparks run ahead of the product. Only while there is a child process, which lives in
real time, does it take that.

It waits in real time where that conclusion would be wrong: while the main thread works outside of a loop, while a thread
works for one of the loops, and while there is a child process. Where several loops run, as those of a command and of the
simulated Sparks behind it, all have to stand still.
"""

from __future__ import annotations

import asyncio
import math
import os
import selectors
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Any, ClassVar, TypeVar, TypeVarTuple

_Args = TypeVarTuple("_Args")
_Result = TypeVar("_Result")
_REAL_MONOTONIC = time.monotonic
_REAL_TIME = time.time
_GRACE = 0.001  # seconds: what was sent over loopback is there by then, on a busy machine, too
_RECHECK = 0.02  # seconds until the conditions for waiting in real time are looked at again
_CPU_TICK = 0.001  # seconds that a reading of the CPU time serves: each is a system call, and the clocks are read often


class _State:
    is_on = False
    epoch = 0.0  # unix time when the clock that is forwarded was at 0
    clock: tuple[Callable[[], float], float] = (_REAL_MONOTONIC, 0.0)  # what moves it, and how far it is ahead of that
    cpu_reading = (-math.inf, 0.0)  # when the CPU time was read, in real time, and what it was
    running: ClassVar[dict[_ForwardingSelector, bool]] = {}  # of each loop that runs: whether it is the main thread's
    lock = threading.RLock()


def _read_cpu_time() -> float:
    """Return the CPU time of this process, in seconds, as it was a tick ago at most."""
    now = _REAL_MONOTONIC()
    read_at, seconds = _State.cpu_reading
    if now - read_at < _CPU_TICK:
        return seconds
    with _State.lock:  # an older reading of another thread would set the clock back
        seconds = time.process_time()
        _State.cpu_reading = (now, seconds)
    return seconds


def _monotonic() -> float:
    base, ahead = _State.clock
    return base() + ahead


def _unix_time() -> float:
    return _State.epoch + _monotonic() if _State.is_on else _REAL_TIME()


def _unix_time_ns() -> int:
    return int(_unix_time() * 1e9)


def _move_clock(seconds: float) -> None:
    with _State.lock:
        base, ahead = _State.clock
        _State.clock = (base, ahead + max(0.0, seconds))


def _go_on_by(base: Callable[[], float]) -> None:
    """Let this move the clock from now on."""
    if _State.clock[0] is not base:
        with _State.lock:
            _State.clock = (base, _monotonic() - base())


def has_child_processes() -> bool:
    """Tell whether this process has children that it has not waited for."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _is_anybody_at_work() -> bool:
    """Tell whether something goes on that no loop waits for."""
    return (
        not any(_State.running.values())
        or any(one.pending_calls for one in tuple(_State.running))
        or has_child_processes()
    )


class _ForwardingSelector(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self.pending_calls = 0  # calls that threads work on
        self.idle_since: float | None = None  # in real time; None while there is something to do
        self.deadline = 0.0  # when its next timer is due

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready; forward the clock instead of waiting for `timeout`."""
        if not _State.is_on or (timeout is not None and timeout <= 0):
            self.idle_since = None
            return super().select(timeout)
        if self.idle_since is None:
            if events := super().select(0):
                return events
            self.deadline = math.inf if timeout is None else _monotonic() + timeout
            self.idle_since = _REAL_MONOTONIC()  # from now on another thread may forward the clock to our deadline
        if timeout is None:
            events = super().select()
            self.idle_since = None
            return events
        has_children = has_child_processes()
        is_real = has_children or _is_anybody_at_work()
        _go_on_by(_REAL_MONOTONIC if has_children else _read_cpu_time)
        self.deadline = _monotonic() + timeout
        if is_real:
            events = self._wait(min(timeout, _RECHECK))
        else:
            events = self._wait(min(timeout, _GRACE))
            if not events:
                self._forward()
        if events or _monotonic() >= self.deadline:
            self.idle_since = None
        return events

    def _wait(self, timeout: float) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait in real time, which moves the clock; being late moves it no further."""
        before, began = _monotonic(), _REAL_MONOTONIC()
        events = super().select(timeout)
        waited = min(timeout, _REAL_MONOTONIC() - began)
        with _State.lock:
            _move_clock(waited - (_monotonic() - before))
        return events

    def _forward(self) -> None:
        """Forward the clock to the first timer, unless work has begun since, or another loop has something to do."""
        with _State.lock:
            loops = tuple(_State.running)
            stood_still = _REAL_MONOTONIC() - _GRACE
            if _is_anybody_at_work() or any(
                (one is not self and (one.idle_since is None or one.idle_since > stood_still)) or one.has_events()
                for one in loops  # ours may have been sent something while this thread waited for a core
            ):
                return
            _move_clock(min(one.deadline for one in loops) - _monotonic())  # ours is finite

    def has_events(self) -> bool:
        """Tell whether there is something to read, which its own thread has not come to yet."""
        return bool(super().select(0))


class FastForwardLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock is forwarded while nothing happens."""

    def __init__(self) -> None:
        self._forwarding = _ForwardingSelector()
        super().__init__(self._forwarding)

    def run_forever(self) -> None:
        """Run until it is stopped."""
        _State.running[self._forwarding] = threading.current_thread() is threading.main_thread()
        try:
            super().run_forever()
        finally:
            del _State.running[self._forwarding]
            if not _State.running:
                _go_on_by(_REAL_MONOTONIC)

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
    time.monotonic, time.time, time.time_ns = _monotonic, _unix_time, _unix_time_ns
    asyncio.set_event_loop_policy(FastForwardPolicy())


@contextmanager
def forward_clock() -> Iterator[None]:
    """Forward the clock of event loops while nothing happens, until the end of the block."""
    _State.epoch, _State.is_on = _REAL_TIME() - _monotonic(), True
    try:
        yield
    finally:
        _State.is_on = False
        _go_on_by(_REAL_MONOTONIC)
