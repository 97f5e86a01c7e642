"""Delivers keys one at a time: the next one when everything that the previous one does is done.

Textual sends a key to the widget that has the focus at that moment and looks up its binding later, when the key has bubbled
up to the app. A key typed right after one that opens a dialog would reach the screen below, or nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from textual import events

if TYPE_CHECKING:
    from textual.app import App
    from textual.dom import DOMNode
    from textual.message_pump import MessagePump

MAX_OPENING_SECONDS = 3.0  # seconds a dialog may take to open; keys typed during a longer wait are dropped
KEY_PRIORITY_SECONDS = 0.25  # seconds at most for which other work waits for keys, so that it does not starve
PAINT_GRACE_SECONDS = 0.01  # seconds until the paint after a key has begun: Textual checks every 4 ms
IGNORED_KEY_SECONDS = 0.5  # seconds in which keys cannot answer a dialog that opened by itself
_CALM_ROUNDS = (
    2  # rounds without a message until a key is handled: a bubbling key may post one, which bubbles up in turn
)


class KeyQueue:
    """Holds keys while the app handles the previous one or opens a dialog. ``deliver`` handles a key now."""

    def __init__(
        self,
        app: App[Any],
        spawn_task: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        deliver: Callable[[events.Key | events.Paste], Coroutine[Any, Any, None]],
    ) -> None:
        self._app, self._spawn_task, self._deliver = app, spawn_task, deliver
        self._typed: deque[events.Key | events.Paste] = deque()
        self._delivery: asyncio.Task[None] | None = None  # hands the queued keys over, one after the other
        self._opening: set[asyncio.Task[None]] = set()  # what opens a dialog
        self._mounting: set[asyncio.Task[None]] = set()  # what waits until a screen or widget is mounted
        self._other_programs: set[asyncio.Task[None]] = set()  # what has given the terminal away
        self._ignore_until = 0.0
        self._is_closed = False
        self._taken: float | None = None
        self._expected = 0.0  # until when the terminal reader may deliver a key
        self._begun = 0.0  # when the first of the keys in progress was taken
        self._done = -PAINT_GRACE_SECONDS

    def is_idle_for(self, seconds: float) -> bool:
        """Tell whether no key was typed for so many seconds."""
        return self._taken is None or asyncio.get_running_loop().time() - self._taken >= seconds

    def has_pending_key(self) -> bool:
        """Tell whether a key is expected, in progress or not painted yet; other work should wait some milliseconds."""
        now = time.monotonic()
        if self._delivery is not None and not self._delivery.done():
            return now - self._begun < KEY_PRIORITY_SECONDS
        return now < self._expected or now - self._done < PAINT_GRACE_SECONDS

    def expect_key(self, patience: float | None = None) -> None:
        """Expect a key now, or within ``patience`` seconds. Called by the thread that reads the terminal."""
        self._expected = time.monotonic() + (patience or 0.0) + PAINT_GRACE_SECONDS

    @property
    def is_opening(self) -> bool:
        """Whether a dialog or another program is being opened, so that clicks are not for the visible screen."""
        return bool(self._opening or self._other_programs)

    @property
    def is_deaf(self) -> bool:
        """Whether keys are dropped because a dialog has just opened by itself."""
        return asyncio.get_running_loop().time() < self._ignore_until

    def put_event(self, event: events.Key | events.Paste) -> None:
        """Queue a key. Escape cancels what is being opened, and drops the keys typed for it.

        It also closes a dialog that has just opened by itself; whoever does that has seen it, and goes on typing.
        """
        self._taken = asyncio.get_running_loop().time()
        is_escape = isinstance(event, events.Key) and event.key == "escape"
        if self._is_closed or self._other_programs or (self.is_deaf and not is_escape):
            return
        if is_escape:
            self._ignore_until = 0.0
        if self._opening and is_escape:
            self._typed.clear()
            for task in self._opening:
                task.cancel()
            return
        self._typed.append(event)
        if self._delivery is None or self._delivery.done():
            self._begun = time.monotonic()
            self._delivery = self._spawn_task(self._deliver_queued_keys())

    def hold_until_done(self, opening: asyncio.Task[None]) -> None:
        """Hold keys until a task has ended that opens a dialog."""
        self._opening.add(opening)
        opening.add_done_callback(self._opening.discard)

    def hold_until_mounted(self, mounting: Awaitable[object]) -> None:
        """Hold keys, including escape, until a screen or widget is mounted."""
        task = self._spawn_task(_wait_for_mount(mounting))
        self._mounting.add(task)
        task.add_done_callback(self._mounting.discard)

    def suspend_until(self, other: asyncio.Task[None]) -> None:
        """Drop keys until a task has ended that gives the terminal to another program."""
        self._typed.clear()
        self._other_programs.add(other)
        other.add_done_callback(self._other_programs.discard)

    def resume_input(self) -> None:
        """Accept keys again: the other program has ended."""
        self._other_programs.clear()

    def discard_keys_briefly(self) -> None:
        """Drop keys for a moment, because a dialog has opened by itself and the operator has not seen it yet."""
        self._typed.clear()
        self._ignore_until = asyncio.get_running_loop().time() + IGNORED_KEY_SECONDS

    def close(self) -> None:
        """Accept no more keys."""
        self._is_closed = True
        self._typed.clear()

    async def _deliver_queued_keys(self) -> None:
        while self._typed:
            if self._opening or self._mounting:
                await self._wait_for_opening()
                continue
            event = self._typed.popleft()
            if await _drain_pump(self._app, partial(self._deliver, event)):
                await self._wait_until_settled()
        self._done = time.monotonic()

    async def _wait_until_settled(self) -> None:
        """Return when everything that a key has caused is done: messages, new screens and dialog tasks."""
        calm, before = 0, None
        while calm < _CALM_ROUNDS:
            now = self._find_key_target()
            for pump in now.ancestors_with_self:
                await _drain_pump(pump)
            if self._opening or self._mounting:
                await self._wait_for_opening()
            calm = calm + 1 if now is before and now is self._find_key_target() else 0
            before = now

    async def _wait_for_opening(self) -> None:
        loop = asyncio.get_running_loop()
        since = loop.time()
        await asyncio.wait(self._opening | self._mounting)
        if loop.time() - since > MAX_OPENING_SECONDS:
            self._typed.clear()

    def _find_key_target(self) -> DOMNode:
        """Return the widget or screen that gets the next key."""
        return self._app.focused or self._app.screen


async def _wait_for_mount(mounting: Awaitable[object]) -> None:
    with suppress(TimeoutError):  # a screen that was closed meanwhile is never mounted
        async with asyncio.timeout(MAX_OPENING_SECONDS):
            await mounting


async def _drain_pump(pump: MessagePump, do: Callable[[], Awaitable[None]] | None = None) -> bool:
    """Wait until a pump has handled its messages and run ``do`` after them; return False where it takes none now."""
    passed = asyncio.Event()

    async def run_and_signal() -> None:
        try:
            if do is not None:
                await do()
        finally:
            passed.set()

    if not pump.call_later(run_and_signal):
        return False
    await passed.wait()
    return True
