"""In which order lines are shown: as they came, merged by time, or some of them only. Memory, not time, is the price."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Protocol

from sparkctl.logs.disk_buffer import DiskLineBuffer

LineKey = tuple[int, int]  # (moment in ms, number): where a line stands, whatever is shown around it
_ALIGNED = 4096


class LineOrder(Protocol):
    """Lines in the order in which they are shown."""

    @property
    def dropped(self) -> int:
        """How many lines were before the first that is still there."""
        ...

    def __len__(self) -> int: ...

    def key(self, index: int) -> LineKey:
        """Return where the line at ``index`` stands."""
        ...

    def index(self, key: LineKey) -> int:
        """Return the index of the first line that stands at ``key`` or after it; the length when there is none."""
        ...


class ArrivalOrder:
    """Every line of a spool, as they came: nothing to remember."""

    def __init__(self, spool: DiskLineBuffer) -> None:
        self._spool = spool

    @property
    def dropped(self) -> int:
        """How many are gone."""
        return self._spool.first

    def __len__(self) -> int:
        return len(self._spool)

    def key(self, index: int) -> LineKey:
        """Return where the line at ``index`` stands."""
        return 0, self._spool.first + index

    def index(self, key: LineKey) -> int:
        """Return the index of the first line at ``key`` or after it."""
        return min(len(self), max(0, key[1] - self._spool.first))


class TimeOrder:
    """Some lines by moment, and by number within one: 12 bytes a line."""

    EARLIEST, LATEST = -(1 << 31), (1 << 31) - 1

    def __init__(self) -> None:
        self.dropped = 0
        self._moments = array("i")
        self._numbers = array("Q")

    def __len__(self) -> int:
        return len(self._numbers)

    def key(self, index: int) -> LineKey:
        """Return where the line at ``index`` stands."""
        return self._moments[index], self._numbers[index]

    def index(self, key: LineKey) -> int:
        """Return the index of the first line at ``key`` or after it."""
        moment, number = key
        low = bisect_left(self._moments, moment)
        return bisect_left(self._numbers, number, low, bisect_right(self._moments, moment, low))

    def add(self, moments: Sequence[int], numbers: Sequence[int]) -> None:
        """Take lines: moments that do not fall, numbers that rise and are greater than all that were added before."""
        if not moments:
            return
        if not self._moments or moments[0] >= self._moments[-1]:
            self._moments.extend(moments)
            self._numbers.extend(numbers)
            return
        low = bisect_right(self._moments, moments[0])
        later, theirs = self._moments[low:], self._numbers[low:]
        del self._moments[low:], self._numbers[low:]
        at = 0
        for moment, number in zip(moments, numbers, strict=True):
            upto = bisect_right(later, moment, at)
            self._moments += later[at:upto]
            self._numbers += theirs[at:upto]
            self._moments.append(moment)
            self._numbers.append(number)
            at = upto
        self._moments += later[at:]
        self._numbers += theirs[at:]

    def drop(self, first: int) -> None:
        """Forget the numbers below ``first``. They are near the front, among a few that stay."""
        reach = 0
        window = _ALIGNED
        while reach < len(self) and min(self._numbers[reach : reach + window]) < first:
            reach += window
            window *= 2
        kept = [index for index in range(min(reach, len(self))) if self._numbers[index] >= first]
        gone = min(reach, len(self)) - len(kept)
        if gone:
            self._moments[:reach] = array("i", [self._moments[index] for index in kept])
            self._numbers[:reach] = array("Q", [self._numbers[index] for index in kept])
            self.dropped += gone
