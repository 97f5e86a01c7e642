"""The time of the simulated machines: one clock for all, and how much faster a start is played."""

from __future__ import annotations

import asyncio
import time
from dataclasses import field

from sparkctl.model.lazy_dataclass import dataclass

MIN_SLEEP_SECONDS = 0.002  # of our seconds; a shorter wait than this is not worth a turn of the event loop
MAX_SLEEP_SECONDS = 0.25  # of our seconds: how late a sleeper may hear that the clock goes at another rate
_SLEEP_TOLERANCE_SECONDS = 1e-6


class SimClock:
    """One clock for all simulated machines and their observers: real time, ``rate`` times as fast.

    ``begin``: unix seconds at the beginning, default now. The rate of an ``elastic`` clock can be changed later; every
    thread may read it.
    """

    def __init__(self, begin: float | None = None, rate: float = 1.0, *, elastic: bool = False) -> None:
        self.is_elastic = elastic
        self._begin_ns = time.time_ns() if begin is None else int(begin * 1e9)
        self._began = time.monotonic()
        self._mark = (self._began, 0.0, rate)  # at our moment it had gone so far, and goes on at this rate

    @property
    def rate(self) -> float:
        """Simulated seconds per real second."""
        return self._mark[2]

    def set_rate(self, rate: float) -> None:
        """Continue at another rate."""
        real = time.monotonic()
        self._mark = (real, self._simulated_seconds_at(real), rate)

    def unix_time(self) -> float:
        """Return unix seconds."""
        return self.now_ns() / 1e9

    def now_ns(self) -> int:
        """Return unix nanoseconds."""
        return self._begin_ns + int(self._simulated_seconds_at(time.monotonic()) * 1e9)

    def monotonic(self) -> float:
        return self._began + self._simulated_seconds_at(time.monotonic())

    async def sleep(self, seconds: float) -> None:
        """Wait for a number of simulated seconds."""
        due = self.monotonic() + seconds
        await asyncio.sleep(self._limit_real_sleep(seconds))
        while self.is_elastic and (left := due - self.monotonic()) > _SLEEP_TOLERANCE_SECONDS:  # noqa: ASYNC110  nobody tells of a rate
            await asyncio.sleep(self._limit_real_sleep(left))

    def _limit_real_sleep(self, seconds: float) -> float:
        real = max(0.0, seconds) / self.rate
        return min(real, MAX_SLEEP_SECONDS) if self.is_elastic else real

    def _simulated_seconds_at(self, real: float) -> float:
        since, passed, rate = self._mark
        return passed + (real - since) * rate


@dataclass(frozen=True, slots=True)
class SimPace:
    """``speed``: simulated seconds per clock second for all that a machine does by itself (loading, stopping).

    ``decode``: the same for tokens, separate so that tok/s measured with a stopwatch stay plausible.
    """

    speed: float = 42.0
    decode: float = 1.0
    clock: SimClock = field(default_factory=SimClock)

    async def sleep(self, seconds: float) -> None:
        """Wait for so many simulated seconds."""
        await self.clock.sleep(seconds / self.speed)

    async def decode_for(self, seconds: float) -> None:
        """Wait as long as an engine decodes in so many seconds."""
        await self.clock.sleep(seconds / self.decode)


class DriftFreeTimer:
    """Waits without drift: each wait is counted from the planned end of the one before."""

    def __init__(self, pace: SimPace) -> None:
        self._pace = pace
        self._due = pace.clock.monotonic()

    async def wait(self, seconds: float) -> None:
        """Wait until ``seconds`` simulated seconds after the previous moment."""
        clock = self._pace.clock
        self._due += seconds / self._pace.speed
        left = self._due - clock.monotonic()
        if left / clock.rate > MIN_SLEEP_SECONDS:
            await clock.sleep(left)


def format_rfc3339(nanoseconds: int) -> str:
    """Return a unix time as Docker writes it: UTC, nine digits of a second (trailing zeros kept, as logs have it)."""
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{rest:09d}Z"
