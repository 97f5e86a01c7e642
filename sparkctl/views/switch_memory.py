"""A Spark's memory before a switch and after it, for whoever draws it. Pure; bytes."""

from __future__ import annotations

from collections.abc import Mapping

from sparkctl.model.node import NodeName
from sparkctl.model.sample import MemoryBar
from sparkctl.model.switch_plan import NodeSwitchPlan


def memory_before_switch(change: NodeSwitchPlan, bars: Mapping[NodeName, MemoryBar]) -> MemoryBar | None:
    """Return a Spark's memory now: as it was sampled (``bars``), else by what the plan has looked at, where the page cache
    counts as free; None where neither knows."""
    if (seen := bars.get(change.node)) is not None:
        return seen
    if change.total is None or change.available is None:
        return None
    free = max(0, min(change.total, change.available))
    held = min(change.total - free, sum(one.held or 0 for one in change.tenants))
    return MemoryBar(change.total, free, held, change.total - free - held, 0, free, 0)


def memory_after_switch(change: NodeSwitchPlan, bars: Mapping[NodeName, MemoryBar]) -> MemoryBar | None:
    """Return a Spark's memory once it is done, an estimate: what goes is gone, what comes has what its sum says, and where
    something comes the page cache was dropped. Models are counted as the GPU's. None where nothing is known of it."""
    now = memory_before_switch(change, bars)
    if now is None or change.available_after is None:
        return None
    used = now.total - max(0, min(now.total, change.available_after))
    need = 0 if change.fit is None else change.fit.need or 0
    gone = sum(one.held or 0 for one in change.stops)
    gpu = min(used, max(0, (now.gpu_processes or 0) - gone) + need)
    cache = min(now.page_cache, now.total - used) if change.starts is None else 0
    free = now.total - used - cache
    return MemoryBar(now.total, free + cache, gpu, used - gpu, cache, free, now.swap_used)
