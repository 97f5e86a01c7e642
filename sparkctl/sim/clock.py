"""The simulated machines' time: a real start's seconds, played faster."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

TICK = 0.002  # seconds; a shorter wait than this is not worth a turn of the event loop


@dataclass(frozen=True, slots=True)
class Pace:
    """``speed``: simulated seconds in one real second, for everything a machine does by itself (loading, stopping).

    ``decode``: the same for tokens, kept apart so that a tok/s measured by a stopwatch is a plausible one.
    """

    speed: float = 42.0
    decode: float = 1.0

    async def sleep(self, seconds: float) -> None:
        """Wait for so many simulated seconds."""
        await asyncio.sleep(seconds / self.speed)


class Schedule:
    """Waits that do not drift: each is counted from the end of the one before it, however late that was noticed."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._due = asyncio.get_running_loop().time()

    async def wait(self, seconds: float) -> None:
        """Wait until ``seconds`` simulated seconds after the previous moment."""
        self._due += seconds / self._pace.speed
        left = self._due - asyncio.get_running_loop().time()
        if left > TICK:
            await asyncio.sleep(left)


def rfc3339(nanoseconds: int) -> str:
    """Return a unix time as Docker writes it: UTC, nine digits of a second (trailing zeros kept, as logs have it)."""
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{rest:09d}Z"
