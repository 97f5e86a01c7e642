"""Keys, one at a time: the next is taken when all that the one before it does is done.

Textual hands a key to what has the focus at that moment and looks up what it is bound to later, when it has bubbled up to
the app. So what is typed right behind a key that opens a dialog would reach the screen below, or nobody.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from textual import events

if TYPE_CHECKING:
    from textual.dom import DOMNode
    from textual.screen import Screen
    from textual.widget import Widget

MAX_OPENING_SECONDS = 3.0  # seconds: what was typed while a dialog took longer to open was hardly meant for it
KEY_PRIORITY_SECONDS = (
    0.1  # seconds for which work that can wait lets keys go first, at most: it is not to starve under them
)
PAINT_GRACE_SECONDS = (
    0.01  # seconds in which the picture that a key has led to is begun: Textual looks for it every 4 ms
)
IGNORED_KEY_SECONDS = 0.5  # seconds in which keys that were on their way cannot answer a dialog that nobody called for
_CALM_ROUNDS = 2  # a key on its way up may post a message, which goes the same way


class MessageReceiver(Protocol):
    """A Textual message pump."""

    def call_later(self, callback: Callable[..., Any], *args: Any, **kwargs: Any) -> bool:
        """Call a function after the messages that wait now; return False where none are taken any more."""
        ...


class KeyTarget(MessageReceiver, Protocol):
    """The app that a `KeyQueue` delivers keys to."""

    @property
    def focused(self) -> Widget | None:
        """The widget that has the focus."""
        ...

    @property
    def screen(self) -> Screen[object]:
        """The screen in front."""
        ...

    def spawn_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a task in the background."""
        ...

    async def deliver_key_event(self, event: events.Key | events.Paste) -> None:
        """Handle a key now."""
        ...


class KeyQueue:
    """Keeps what is typed while the panel is busy with the key before, or a dialog is being opened."""

    def __init__(self, panel: KeyTarget) -> None:
        self._panel = panel
        self._typed: deque[events.Key | events.Paste] = deque()
        self._typing: asyncio.Task[None] | None = None
        self._opening: set[asyncio.Task[None]] = set()
        self._coming: set[asyncio.Task[None]] = set()
        self._away: set[asyncio.Task[None]] = set()
        self._deaf_until = 0.0
        self._is_closed = False
        self._taken: float | None = None
        self._expected = 0.0  # until when a key may come of what was read of the terminal
        self._begun = 0.0  # when the first key was taken of those that are still being done
        self._done = -PAINT_GRACE_SECONDS

    def is_idle_for(self, seconds: float) -> bool:
        """Tell whether nothing was typed for so many seconds."""
        return self._taken is None or asyncio.get_running_loop().time() - self._taken >= seconds

    def has_pending_key(self) -> bool:
        """Tell whether a key is on its way, being done, or its picture still to be painted: what can wait for some ms does."""
        now = time.monotonic()
        if self._typing is not None and not self._typing.done():
            return now - self._begun < KEY_PRIORITY_SECONDS
        return now < self._expected or now - self._done < PAINT_GRACE_SECONDS

    def expect_key(self, patience: float | None = None) -> None:
        """Know that a key is on its way, or may be one after so many seconds of patience. Called by the thread that reads
        the terminal."""
        self._expected = time.monotonic() + (patience or 0.0) + PAINT_GRACE_SECONDS

    @property
    def is_opening(self) -> bool:
        """Whether a dialog is being opened: what is pressed is for that, and not for what is still to be seen."""
        return bool(self._opening or self._away)

    def put_event(self, event: events.Key | events.Paste) -> None:
        """Take what was typed, now or in its turn. Escape gives up what is being opened, and what was typed for it."""
        self._taken = asyncio.get_running_loop().time()
        is_escape = isinstance(event, events.Key) and event.key == "escape"
        if self._is_closed or self._away or (asyncio.get_running_loop().time() < self._deaf_until and not is_escape):
            return
        if self._opening and is_escape:
            self._typed.clear()
            for task in self._opening:
                task.cancel()
            return
        self._typed.append(event)
        if self._typing is None or self._typing.done():
            self._begun = time.monotonic()
            self._typing = self._panel.spawn_task(self._deliver_queued_keys())

    def hold_until_done(self, opening: asyncio.Task[None]) -> None:
        """Keep what is typed until a task is over, which opens something and needs no key for that."""
        self._opening.add(opening)
        opening.add_done_callback(self._opening.discard)

    def hold_until_mounted(self, mounting: Awaitable[object]) -> None:
        """Keep what is typed, escape as well, until that is there which it is typed for."""
        task = self._panel.spawn_task(_wait_for_mount(mounting))
        self._coming.add(task)
        task.add_done_callback(self._coming.discard)

    def suspend_until(self, other: asyncio.Task[None]) -> None:
        """Drop what is typed until a task is over, which gives the terminal to another program."""
        self._typed.clear()
        self._away.add(other)
        other.add_done_callback(self._away.discard)

    def resume_input(self) -> None:
        """The other program has ended: keys are for the panel again."""
        self._away.clear()

    def discard_keys_briefly(self) -> None:
        """A dialog has opened by itself: what was typed until somebody can have seen it is no answer to it."""
        self._typed.clear()
        self._deaf_until = asyncio.get_running_loop().time() + IGNORED_KEY_SECONDS

    def close(self) -> None:
        """Take nothing more."""
        self._is_closed = True
        self._typed.clear()

    async def _deliver_queued_keys(self) -> None:
        while self._typed:
            if self._opening or self._coming:
                await self._wait_for_opening()
                continue
            event = self._typed.popleft()
            if await _drain_pump(self._panel, partial(self._panel.deliver_key_event, event)):
                await self._wait_until_settled()
        self._done = time.monotonic()

    async def _wait_until_settled(self) -> None:
        """Return when everything that a key has led to is done: messages, screens, and what opens beside the loop."""
        calm, before = 0, None
        while calm < _CALM_ROUNDS:
            now = self._find_key_target()
            for pump in now.ancestors_with_self:
                await _drain_pump(pump)
            if self._opening or self._coming:
                await self._wait_for_opening()
            calm = calm + 1 if now is before and now is self._find_key_target() else 0
            before = now

    async def _wait_for_opening(self) -> None:
        loop = asyncio.get_running_loop()
        since = loop.time()
        await asyncio.wait(self._opening | self._coming)
        if loop.time() - since > MAX_OPENING_SECONDS:
            self._typed.clear()

    def _find_key_target(self) -> DOMNode:
        """Return whom the next key is for."""
        return self._panel.focused or self._panel.screen


async def _wait_for_mount(mounting: Awaitable[object]) -> None:
    with suppress(TimeoutError):  # what is left meanwhile is never mounted
        async with asyncio.timeout(MAX_OPENING_SECONDS):
            await mounting


async def _drain_pump(pump: MessageReceiver, do: Callable[[], Awaitable[None]] | None = None) -> bool:
    """Return when everything that a pump was sent is done, and ``do`` after it; False where it takes no messages now."""
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
