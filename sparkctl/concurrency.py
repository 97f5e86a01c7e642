"""Running several coroutines concurrently without leaving one behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, TypeVar, overload

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
Work = Coroutine[Any, Any, A]


_INPUT_WAIT_SECONDS = 0.002  # seconds between two checks whether the input is handled
_LOOK_AGAIN_SECONDS = 0.05  # seconds until a task that is being cancelled is looked at again
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
async def gather_or_cancel(one: Work[A], two: Work[B], three: Work[C], four: Work[D], /) -> tuple[A, B, C, D]: ...
@overload
async def gather_or_cancel(*work: Work[A]) -> tuple[A, ...]: ...
async def gather_or_cancel(*work: Work[Any]) -> tuple[Any, ...]:
    """Return all results, or raise the first error once the others have been cancelled and have ended."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in work]
    except BaseExceptionGroup as failed:
        error = failed.exceptions[0]  # callers expect the error itself
        raise error from error.__cause__
    return tuple(task.result() for task in tasks)


async def run_in_daemon_thread(call: Callable[[], A]) -> A:
    """Run a blocking call in a thread that nobody waits for: after a cancellation it goes on alone, and ends with the process.

    Those of `asyncio.to_thread` hold the process until they have ended: for what may wait long for a network.
    """
    done: Future[A] = Future()
    done.set_running_or_notify_cancel()  # a cancellation leaves it to the thread

    def call_and_settle() -> None:
        try:
            done.set_result(call())
        except BaseException as error:  # noqa: BLE001 - it is raised where it is waited for
            done.set_exception(error)

    threading.Thread(target=call_and_settle, daemon=True).start()
    return await asyncio.wrap_future(done)


@asynccontextmanager
async def run_in_background(*work: Work[None]) -> AsyncIterator[None]:
    """Run coroutines beside a block. The end of the block cancels them; an error of theirs ends the block at once.

    What was raised first is raised, not a group: neither an error nor a cancellation of the block is lost to one in a clean-up.
    """
    first: BaseException | None = None
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in work]
            try:
                yield
            except BaseException as error:
                if not any(task.done() and not task.cancelled() and task.exception() for task in tasks):
                    first = error
                raise
            finally:
                for task in tasks:
                    task.cancel()
    except BaseExceptionGroup as errors:
        first = first or errors.exceptions[0]
    if first is not None:
        raise first


async def run_until_first(*work: Work[A]) -> tuple[int, A]:
    """Run coroutines until one ends, cancel the others and wait for their end; return its position and its result.

    Of several that ended at once the first in order counts. What the others raise while they are cancelled is dropped, so this
    is no TaskGroup.
    """
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        number = next(number for number, task in enumerate(tasks) if task.done())
        return number, tasks[number].result()
    finally:
        await cancel_and_wait(tasks)


async def cancel_and_wait(tasks: Iterable[asyncio.Future[Any]], within: float | None = None) -> None:
    """Cancel tasks and wait until they end, at most ``within`` seconds. Nobody asks for their errors any more.

    Each is cancelled only once: a second cancel would interrupt its clean-up. A task that takes longer continues its
    clean-up, and its error is left to its own done callback.
    """
    every = set(tasks)
    left = {task for task in every if not task.done()}
    _retrieve_errors(every - left)
    cancelled = set[asyncio.Future[Any]]()
    limit = None if within is None else asyncio.get_running_loop().time() + within
    while left:
        for task in left - cancelled:
            if not isinstance(task, asyncio.Task) or not task.cancelling():
                cancelled.add(task)
                task.cancel()
        # One that is being cancelled ends, or it was only a time limit within it that has passed: then it goes on, and is asked then.
        again = None if left <= cancelled else _LOOK_AGAIN_SECONDS
        rest = None if limit is None else max(0.0, limit - asyncio.get_running_loop().time())
        ended, left = await asyncio.wait(
            left, timeout=min((one for one in (again, rest) if one is not None), default=None)
        )
        _retrieve_errors(ended)
        if limit is not None and asyncio.get_running_loop().time() >= limit:
            return


def _retrieve_errors(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Take the errors of tasks that have ended, so that asyncio does not log them as lost."""
    for task in tasks:
        if not task.cancelled():
            task.exception()


class BackgroundTasks:
    """The tasks that run beside one owner. One that raises ends alone, and ``on_error`` gets its exception at once.

    Not a TaskGroup: there one exception ends all tasks, and the end waits for each without a limit.
    """

    def __init__(self, on_error: Callable[[BaseException], None]) -> None:
        self._on_error = on_error
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_idle(self) -> bool:
        """Whether no task runs."""
        return not self._tasks

    def start_task(
        self,
        work: Coroutine[Any, Any, None],
        name: str | None = None,
        on_end: Callable[[BaseException | None], None] | None = None,
    ) -> asyncio.Task[None]:
        """Start a task. With ``on_end`` that is called at its end in place of ``on_error``, unless it was cancelled."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(lambda _: self._finish_task(task, on_end))
        return task

    def _finish_task(self, task: asyncio.Task[None], on_end: Callable[[BaseException | None], None] | None) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if on_end is not None:
            on_end(error)
        elif error is not None:
            self._on_error(error)

    async def aclose(self, within: float | None) -> None:
        """Cancel all tasks but the one that closes, and wait for their end, at most ``within`` seconds."""
        await cancel_and_wait(self._tasks - {asyncio.current_task()}, within)
