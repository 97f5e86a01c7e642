"""Unified memory of one node, as /proc/meminfo has it. Bytes throughout; None is "not known"."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryReading:
    """One reading.

    ``page_cache`` is Cached + Buffers + SReclaimable - Shmem: what lies there for files, some of it not to be had now. It
    decides; what is shown is ``reclaimable``, which makes a whole with the rest.
    ``used`` is MemTotal - MemAvailable, the figure that counts on a GB10, where NVML has none.
    """

    total: int
    available: int
    free: int
    page_cache: int
    swap_total: int
    swap_free: int

    @property
    def used(self) -> int:
        """Memory that no engine can get now: total - available."""
        return self.total - self.available

    @property
    def reclaimable(self) -> int:
        """What the kernel would give back at once: available - free. This is what we show as the page cache."""
        return max(0, min(self.available, self.total) - min(max(0, self.free), self.total))

    @property
    def swap_used(self) -> int:
        """Swap in use."""
        return self.swap_total - self.swap_free


@dataclass(frozen=True, slots=True)
class MemoryBeforeStart:
    """What a node had just before something was started: MemAvailable, and what all processes held (None: not known)."""

    available: int
    held: int | None = None
