"""Memory that ran out, in the words of torch, CUDA, Triton and the kernel."""

from __future__ import annotations

from sparkctl.engines._vocabulary import ERROR, Rule, rule
from sparkctl.engines.base import Weight
from sparkctl.model.verdict import Cause, Change

_BY_OTHERS = "Drop the page caches before the start, and stop whatever else holds memory on the node."


def cuda_memory(lower: str, on: str | None, *, fatal: bool) -> tuple[Rule, ...]:
    """Return the rules for CUDA memory that ran out; ``lower`` is what to make smaller, ``on`` its profile field."""
    remedy = f"{lower} {_BY_OTHERS}"
    cause, change = Cause.CUDA_OUT_OF_MEMORY, Change.LOWER if on else None
    numbers = (
        r"CUDA out of memory\. Tried to allocate (?P<size>[\d.]+ \w+)(?:.*? of which (?P<free>[\d.]+ \w+) is free)?"
    )
    summary = "CUDA ran out of memory: it tried to allocate {size}[ and {free} was free]."
    rejected = r"CUDA out of memory\. Allocation was preemptively rejected"
    other = (
        r"CUDA (?:driver )?error: out of memory|Triton Error \[CUDA\]: out of memory|cudaErrorMemoryAllocation"
        r"|CUBLAS_STATUS_ALLOC_FAILED|cudaMalloc failed: out of memory|CUDA_ERROR_OUT_OF_MEMORY"
    )
    said = "CUDA ran out of memory."
    return (
        rule(rf"{ERROR}.*?{numbers}", cause, summary, remedy, needle="CUDA out of", on=on, fatal=fatal, change=change),
        rule(rf"^{numbers}", cause, summary, remedy, needle="CUDA out of memory", on=on, change=change),
        rule(rf"{ERROR}.*{rejected}", cause, said, remedy, needle="preempt", on=on, fatal=fatal, change=change),
        rule(rf"{ERROR}.*(?:{other})", cause, said, remedy, needle="rror: ", on=on, fatal=fatal, change=change),
    )


# A kernel log says it in its own time stamps; a line of an engine never begins so.
_KERNEL = r"^(?:<\d+>)?(?:\[[^\]]{1,40}\] ?|[\w:.+ -]{0,60} kernel: (?:\[[ \d.]+\] )?)?"

HOST = (
    rule(
        _KERNEL + r"(?:Memory cgroup out of memory|Out of memory): Killed process (?P<pid>\d+) \((?P<name>[^)]*)\)"
        r"(?:.*?anon-rss:(?P<rss>\d+ ?kB))?",
        Cause.HOST_OOM_KILL,
        "The kernel's OOM killer ended {name} (process {pid}[, {rss} of its own memory]).",
        "The machine ran out of memory: let the model claim less, or stop what else holds memory on the node. "
        "CUDA memory is not in that figure on a Spark.",
        needle="Killed process",
        fatal=True,
    ),
    rule(
        _KERNEL + r"oom-kill:constraint=(?P<which>\w+).*?task=(?P<name>[^,]{0,80}),pid=(?P<pid>\d+)",
        Cause.HOST_OOM_KILL,
        "The kernel's OOM killer ended {name} (process {pid}).",
        "The machine, or the container's limit, ran out of memory: let the model claim less, or stop what else holds it.",
        needle="oom-kill:",
        fatal=True,
    ),
    rule(
        rf"{ERROR}.*can't allocate memory: you tried to allocate (?P<size>\d+) bytes|^MemoryError\b"
        rf"|{ERROR}(?:std::bad_alloc)|terminate called after throwing an instance of 'std::bad_alloc'"
        rf"|{ERROR}\[Errno 12\] Cannot allocate memory",
        Cause.STARTUP_MEMORY_CHECK,
        "The node had no memory left to give[: {size} bytes were asked for].",
        "Stop what else holds memory on the node, or make the model's memory smaller.",
        needle="",
        weight=Weight.CONCRETE,
    ),
)
