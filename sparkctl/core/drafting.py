"""How an engine's drafts fared in the last minutes: its accept length, reading by reading. Pure."""

from __future__ import annotations

from collections import deque

from sparkctl.model.metrics import Numbers

_KEPT = 450  # a quarter of an hour of readings, one every two seconds


class Drafting:
    """The accept lengths of one container. A reading without one (idle, prompts, nothing known) is a gap."""

    def __init__(self) -> None:
        self._readings: deque[tuple[float, float | None]] = deque(maxlen=_KEPT)

    def take(self, ts: float, numbers: Numbers | None) -> None:
        """Take a reading of ``ts``, unix seconds."""
        seen = None if numbers is None else numbers.acceptance
        self._readings.append((ts, None if seen is None else seen.length))

    def cells(self, now: float, seconds: float, count: int) -> tuple[float | None, ...]:
        """Return the mean of ``count`` equal stretches of the ``seconds`` before ``now``, oldest first; None: a gap."""
        width = seconds / count
        sums, seen = [0.0] * count, [0] * count
        for ts, length in self._readings:
            at = count - 1 - int(max(0.0, now - ts) / width)
            if length is not None and at >= 0:
                sums[at] += length
                seen[at] += 1
        means = [total / times if times else None for total, times in zip(sums, seen, strict=True)]
        return _bridged(means)


def _bridged(means: list[float | None]) -> tuple[float | None, ...]:
    """A stretch that is shorter than the time between readings has none: one such between two others is no gap."""
    triples = zip([None, *means[:-1]], means, [*means[1:], None], strict=True)
    return tuple(
        mid if mid is not None else ((left + right) / 2 if left is not None and right is not None else None)
        for left, mid, right in triples
    )
