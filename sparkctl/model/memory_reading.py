"""The unified memory of one node, from /proc/meminfo. Bytes; None is "not known"."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryReading:
    """One reading.

    ``page_cache`` is Cached + Buffers + SReclaimable - Shmem: memory used for files, some of which cannot be freed now.
    Decisions use it; ``reclaimable`` is shown, because it adds up to the total with the other parts.

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
        """Memory that an engine cannot get now: total - available."""
        return self.total - self.available

    @property
    def reclaimable(self) -> int:
        """What the kernel would free at once: available - free. Shown as the page cache."""
        return max(0, min(self.available, self.total) - min(max(0, self.free), self.total))

    @property
    def swap_used(self) -> int:
        """Swap in use."""
        return self.swap_total - self.swap_free


@dataclass(frozen=True, slots=True)
class MemoryBeforeStart:
    """A node's memory just before a start: MemAvailable, and what all processes held (None: not known)."""

    available: int
    held: int | None = None
