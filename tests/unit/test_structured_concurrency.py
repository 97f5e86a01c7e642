"""Coroutines beside each other: errors come at once and as themselves, and nothing is left behind."""

from __future__ import annotations

import asyncio
import gc
from contextlib import suppress

import pytest

from sparkctl.concurrency import cancel_and_wait, gather_or_cancel, run_in_background, run_until_first

PATIENCE = 10.0


class Ended:
    """Coroutines that write down how they ended."""

    def __init__(self) -> None:
        self.words: list[str] = []

    async def wait(self, name: str, *, clean_up_fails: bool = False) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.words.append(name)
            if clean_up_fails:
                raise LookupError(name) from None
            raise


async def give(value: int) -> int:
    return value


async def fail(error: Exception) -> int:
    await asyncio.sleep(0)
    raise error


async def test_all_results_come_in_order() -> None:
    assert await gather_or_cancel(give(1), give(2), give(3)) == (1, 2, 3)
    assert await gather_or_cancel() == ()


async def test_the_first_error_comes_as_itself_with_its_cause_once_the_others_have_ended() -> None:
    ended, cause, wrong = Ended(), KeyError("cause"), ValueError("first")
    wrong.__cause__ = cause
    with pytest.raises(ValueError, match="first") as raised:
        await gather_or_cancel(ended.wait("a"), fail(wrong), ended.wait("b", clean_up_fails=True))
    assert raised.value is wrong
    assert raised.value.__cause__ is cause
    assert sorted(ended.words) == ["a", "b"]


async def test_background_work_ends_with_its_block() -> None:
    ended = Ended()
    async with run_in_background(ended.wait("a"), ended.wait("b")):
        await asyncio.sleep(0)
    assert sorted(ended.words) == ["a", "b"]
    async with run_in_background():
        pass


async def test_an_error_in_the_background_ends_the_block_when_it_happens() -> None:
    ended = Ended()
    with pytest.raises(ValueError, match="behind"):
        async with run_in_background(fail(ValueError("behind")), ended.wait("a")):
            await ended.wait("block")
    assert sorted(ended.words) == ["a", "block"]


async def test_the_error_of_the_block_outweighs_those_of_the_clean_up() -> None:
    ended = Ended()

    async def run_block() -> None:
        async with run_in_background(ended.wait("a", clean_up_fails=True)):
            await fail(ValueError("block"))

    with pytest.raises(ValueError, match="block"):
        await run_block()
    assert ended.words == ["a"]


async def test_a_cancelled_block_is_cancelled_and_leaves_nothing() -> None:
    ended = Ended()

    async def run_block() -> None:
        async with run_in_background(ended.wait("a")):
            await ended.wait("block")

    task = asyncio.create_task(run_block())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(ended.words) == ["a", "block"]


async def test_the_first_that_ends_wins_and_in_a_draw_the_first_in_order() -> None:
    ended = Ended()
    assert await run_until_first(ended.wait("a"), give(2)) == (1, 2)
    assert await run_until_first(give(1), give(2)) == (0, 1)
    assert ended.words == ["a"]


async def test_an_error_of_the_winner_is_raised_and_one_of_a_loser_is_not() -> None:
    ended = Ended()
    with pytest.raises(ValueError, match="winner"):
        await run_until_first(ended.wait("a"), fail(ValueError("winner")))
    assert await run_until_first(give(1), ended.wait("b", clean_up_fails=True)) == (0, 1)
    assert ended.words == ["a", "b"]


async def test_a_task_whose_own_time_limit_has_just_passed_is_cancelled_all_the_same() -> None:
    """Such a limit cancels its task, too, which then goes on: a watch that read every second outlived its end on a busy machine."""
    limits: list[asyncio.Timeout] = []

    async def look_again_and_again() -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(None) as limit:
                    limits.append(limit)
                    await asyncio.Event().wait()

    task = asyncio.create_task(look_again_and_again())
    await asyncio.sleep(0)
    limits[0].reschedule(asyncio.get_running_loop().time())
    await asyncio.sleep(0)
    assert task.cancelling(), "the limit has passed, and the task has not seen it yet"
    async with asyncio.timeout(PATIENCE):  # not wait_for, which would let it go on first
        await cancel_and_wait([task])
    assert task.cancelled()
    assert len(limits) == 2, "it went on, and was asked then"


async def test_a_clean_up_is_not_interrupted_by_a_second_cancel() -> None:
    done = list[str]()
    goes_on = asyncio.Event()

    async def clean_up_at_the_end() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await goes_on.wait()
            done.append("cleaned up")

    task = asyncio.create_task(clean_up_at_the_end())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    await cancel_and_wait([task], 0.2)
    assert not task.done()
    goes_on.set()
    await cancel_and_wait([task])
    assert done == ["cleaned up"]


async def test_an_error_of_a_task_that_had_ended_before_is_not_logged_as_lost(caplog: pytest.LogCaptureFixture) -> None:
    tasks = [asyncio.ensure_future(fail(LookupError("a"))), asyncio.ensure_future(give(1))]
    await asyncio.wait(tasks)
    await cancel_and_wait(tasks)
    tasks.clear()
    gc.collect()
    assert caplog.messages == []
