"""The beat of an engine that reports every so many steps: whether it still steps, and whether a beat's rate is true."""

from __future__ import annotations

from collections import deque

IDLE_GAP = 10.0  # seconds between two beats, from which on the second one's rate may have idle time in it
_SLOWEST = 30.0  # SGLang sets its gauges to zero after so much silence; no stride of an engine at work is longer
_SLACK = 1.5


class ReportCadence:
    """Remembers when the engine last reported steps and how far apart its reports usually are.

    The first report after an idle gap averages its tokens over the gap: 4 tok/s from an engine that does 15. A gap is
    an idle one when it is longer than 10 s and longer than half again the usual, so that a large model whose reports
    are 13 s apart is neither called idle nor distrusted.
    """

    def __init__(self) -> None:
        self._last: float | None = None
        self._gaps: deque[float] = deque(maxlen=3)
        self.trusted = False  # the rate that came with the last beat covers steps alone

    def record_report(self, when: float, unbroken: bool = False) -> None:
        """Take a report of steps, at seconds. ``unbroken``: no request began since the last, so there was no idling."""
        gap = None if self._last is None else when - self._last
        self.trusted = gap is not None and (unbroken or gap <= max(IDLE_GAP, _SLACK * self._usual()))
        if gap is not None and gap <= _SLOWEST:
            self._gaps.append(gap)
        self._last = when

    def is_stepping(self, now: float, window: float) -> bool:
        """Say whether steps were reported lately."""
        return self._last is not None and now - self._last <= max(window, _SLACK * self._usual())

    def max_silence(self, window: float) -> float:
        """Return how many seconds of silence surely mean that no step happened; many while the stride is not known."""
        return max(window, _SLACK * self._usual()) if self._gaps else max(window, _SLOWEST)

    def _usual(self) -> float:
        return min(self._gaps, default=0.0)
