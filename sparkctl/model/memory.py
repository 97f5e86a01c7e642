"""Unified memory of one node, as /proc/meminfo has it. Bytes throughout; None is "not known"."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Memory:
    """One reading.

    ``page_cache`` is Cached + Buffers + SReclaimable - Shmem: what dropping caches could give back.
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
    def swap_used(self) -> int:
        """Swap in use."""
        return self.swap_total - self.swap_free
