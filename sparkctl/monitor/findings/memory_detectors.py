"""Detects memory problems: growing swap, and page cache that blocks a loading engine."""

from __future__ import annotations

from collections import deque
from itertools import pairwise

from sparkctl.model.finding import Finding, FindingEvidence, FindingKind, Severity
from sparkctl.model.phase import Phase
from sparkctl.model.text.units import GIB, MIB, format_gib
from sparkctl.monitor.findings.base import MAX_SAMPLE_GAP, ConditionTimer, NodeSnapshot

_STARTING_PHASES = (Phase.STARTING, Phase.LOADING, Phase.WARMING)


class SwapGrowthDetector:
    """Used swap grew in each quarter of the last minute, by at least 16 MiB: it does not settle.

    A load that moves idle pages to swap once is normal, and its burst is shorter. With swap on, free swap warns before the
    freeze: under a quarter left, it is a problem.
    """

    WINDOW, QUARTERS, STEP, LITTLE = 60.0, 4, 16 * MIB, 0.25

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()
        self._lasting = ConditionTimer()

    def detect(self, sight: NodeSnapshot) -> list[Finding]:
        """Return the finding while swap grows."""
        memory = sight.sample.memory
        grew = self._compute_swap_growth(sight)
        standing = self._lasting.update_condition(
            "swap", None if grew is None else all(g >= self.STEP for g in grew), sight.sample
        )
        if standing is None or memory is None or grew is None:
            return []
        scarce = memory.swap_free < self.LITTLE * memory.swap_total
        evidence = (
            FindingEvidence("swap used", format_gib(memory.swap_used), None, "meminfo"),
            FindingEvidence("grew", f"{sum(grew) / MIB:.0f}", "MiB in a minute", "meminfo"),
            FindingEvidence("swap free", format_gib(memory.swap_free), None, "meminfo"),
            FindingEvidence("available", format_gib(memory.available), None, "meminfo"),
        )
        return [
            Finding(
                kind=FindingKind.SWAP,
                severity=Severity.PROBLEM if scarce else Severity.WARNING,
                node=sight.node,
                summary=f"swap keeps growing, {format_gib(memory.swap_used)} by now: memory is short, and the freeze comes when swap is full",
                remedy="stop what is not needed (sparkctl down NAME), or give the engine less: a smaller "
                "mem-fraction-static / gpu-memory-utilization or context",
                evidence=evidence,
                since=standing.since,
            )
        ]

    def _compute_swap_growth(self, sight: NodeSnapshot) -> list[int] | None:
        """Return the growth in each quarter of the window, None until the window is complete."""
        memory, now = sight.sample.memory, sight.sample.uptime
        if memory is None:
            return None
        if self._seen and not 0 <= now - self._seen[-1][0] <= MAX_SAMPLE_GAP:
            self._seen.clear()
        self._seen.append((now, memory.swap_used))
        while len(self._seen) > 1 and self._seen[1][0] <= now - self.WINDOW:
            self._seen.popleft()
        if now - self._seen[0][0] < self.WINDOW:
            return None
        marks = [now - self.WINDOW * quarter / self.QUARTERS for quarter in range(self.QUARTERS, -1, -1)]
        used = [next(size for when, size in reversed(self._seen) if when <= mark) for mark in marks]
        return [after - before for before, after in pairwise(used)]


class PageCacheDetector:
    """An engine loads while less than 8 GiB are free and more than 8 GiB of page cache could be given back; for 10 s.

    CUDA reports MemFree as free memory (2.77 GiB with 52 GiB available), not MemAvailable. Below 8 GiB free, dropping the
    page cache during a load is known to help.
    """

    MARK, SECONDS = 8 * GIB, 10.0

    def __init__(self) -> None:
        self._lasting = ConditionTimer(self.SECONDS)

    def detect(self, sight: NodeSnapshot) -> list[Finding]:
        """Return one finding for each affected instance."""
        memory = sight.sample.memory
        if memory is None or sight.instances is None:
            return []
        cache = memory.available - memory.free
        found = []
        for one in sight.instances:
            if not one.ours or one.phase not in _STARTING_PHASES:
                self._lasting.update_condition(one.name, False, sight.sample)
                continue
            short = memory.free < self.MARK < cache
            standing = self._lasting.update_condition(one.name, short, sight.sample)
            if standing is not None:
                evidence = (
                    FindingEvidence("free", format_gib(memory.free), None, "meminfo"),
                    FindingEvidence("page cache", format_gib(cache), None, "meminfo"),
                    FindingEvidence("available", format_gib(memory.available), None, "meminfo"),
                )
                summary = f"page cache takes the room that {one.name} needs: {format_gib(memory.free)} free, {format_gib(cache)} of cache"
                remedy = f"sparkctl drop-caches --node {sight.node}"
                found.append(
                    Finding(
                        kind=FindingKind.PAGE_CACHE,
                        severity=Severity.WARNING,
                        node=sight.node,
                        summary=summary,
                        remedy=remedy,
                        instance=one.name,
                        evidence=evidence,
                        since=standing.since,
                    )
                )
        return found
