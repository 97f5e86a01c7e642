"""Sentences that more than one engine says."""

from __future__ import annotations

from sparkctl.engines.simulation.engine_launch import SimLaunch
from sparkctl.engines.simulation.unified_memory import GIB


def cuda_oom_message(wanted: int, free: int, held: int) -> str:
    """Return torch's sentence for ``wanted`` bytes that were not to be had by a process that has ``held`` already."""
    return (
        f"CUDA out of memory. Tried to allocate {wanted / GIB:.2f} GiB. GPU 0 has a total capacity of 121.69 GiB of "
        f"which {free / GIB:.2f} GiB is free. Including non-PyTorch memory, this process has {held / GIB:.2f} GiB memory in use. "
        f"Of the allocated memory {max(0, held - GIB) / GIB:.2f} GiB is allocated by PyTorch, and 412.55 MiB is reserved by PyTorch but "
        "unallocated. If reserved but unallocated memory is large try setting "
        "PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
    )


def port_in_use_message(launch: SimLaunch) -> str:
    """Return uvicorn's sentence for a port that somebody else has."""
    return f"ERROR:    [Errno 98] error while attempting to bind on address ('{launch.host}', {launch.port}): address already in use"


def pick_unknown_flag(launch: SimLaunch) -> str:
    """Return the flag to complain of: the last one given."""
    return next((word for word in reversed(launch.argv) if word.startswith("--")), "--no-such-flag")
