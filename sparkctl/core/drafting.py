"""How an engine fared in the last minutes: its accept length and its throughput, reading by reading. Pure."""

from __future__ import annotations

from collections import deque

from sparkctl.model.metrics import Activity, Numbers

_KEPT = 450  # a quarter of an hour of readings, one every two seconds


class Drafting:
    """The readings of one container. One without an accept length (idle, prompts, nothing known) is a gap there; of the
    throughput only what is not known is one: an engine that is known to idle gives 0 tok/s."""

    def __init__(self) -> None:
        self._readings: deque[tuple[float, float | None, float | None]] = deque(maxlen=_KEPT)

    def take(self, ts: float, numbers: Numbers | None) -> None:
        """Take a reading of ``ts``, unix seconds."""
        seen = None if numbers is None else numbers.acceptance
        rate = None if numbers is None else 0.0 if numbers.activity is Activity.IDLE else numbers.generation_rate
        self._readings.append((ts, None if seen is None else seen.length, rate))

    def cells(self, now: float, seconds: float, count: int) -> tuple[float | None, ...]:
        """Return the mean accept length of ``count`` equal stretches of the ``seconds`` before ``now``, oldest first; None: no
        reading is in that one."""
        return _means([(now - ts, length) for ts, length, _ in self._readings], seconds, count)

    def rates(self, now: float, seconds: float, count: int) -> tuple[float | None, ...]:
        """Return the same of the throughput, tok/s."""
        return _means([(now - ts, rate) for ts, _, rate in self._readings], seconds, count)


def _means(readings: list[tuple[float, float | None]], seconds: float, count: int) -> tuple[float | None, ...]:
    width = seconds / count
    sums, seen = [0.0] * count, [0] * count
    for age, value in readings:
        at = count - 1 - int(max(0.0, age) / width)
        if value is not None and at >= 0:
            sums[at] += value
            seen[at] += 1
    return tuple(total / times if times else None for total, times in zip(sums, seen, strict=True))
