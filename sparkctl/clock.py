"""Time, injected: durations by a clock that never jumps, stamps by the wall clock."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """What operations know of time."""

    def unix_time(self) -> float:
        """Return unix seconds, for stamps only."""
        ...

    def monotonic(self) -> float:
        """Return seconds from an arbitrary start, for durations."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Let others run for this long."""
        ...


class SystemClock:
    """The machine's own."""

    def unix_time(self) -> float:
        """Return unix seconds."""
        return time.time()

    def monotonic(self) -> float:
        """Return steady seconds."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Sleep."""
        await asyncio.sleep(seconds)
