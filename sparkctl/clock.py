"""The injected clock: monotonic time for durations, wall-clock time for timestamps."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """The time source of all operations."""

    def unix_time(self) -> float:
        """Return Unix time in seconds, for timestamps only."""
        ...

    def monotonic(self) -> float:
        """Return seconds from an arbitrary start, for durations."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Sleep for this many seconds."""
        ...


class SystemClock:
    """The clock of this machine."""

    def unix_time(self) -> float:
        """Return Unix time in seconds."""
        return time.time()

    def monotonic(self) -> float:
        """Return monotonic seconds."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Sleep for this many seconds."""
        import asyncio  # imported late: verbs that reach no node do without it

        await asyncio.sleep(seconds)
