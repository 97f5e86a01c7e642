"""A clock that goes faster while there is only waiting to be done, and users who come when an engine is ready."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from sparkctl.sim.clock import SimClock
from sparkctl.sim.dockerd import Dockerd
from sparkctl.sim.launch import Kind
from sparkctl.sim.process import EngineProcess

_LOOK = 0.1  # of our seconds
_COMING = 6.0  # seconds from ready until somebody has noticed


async def hurry(clock: SimClock, rate: float, nodes: Sequence[Dockerd]) -> None:
    """Let the clock go at ``rate`` while something starts or stops on a node, else as it went; until it is cancelled."""
    rest = clock.rate
    while True:
        wanted = rate if any(docker.is_in_between for docker in nodes) else rest
        if clock.rate != wanted:
            clock.go(wanted)
        await asyncio.sleep(_LOOK)


async def come(process: EngineProcess) -> None:
    """Use an engine that writes text from soon after it is ready on: one request after the other."""
    await process.ready.wait()
    await process.node.clock.sleep(_COMING)
    if (
        process.launch.kind is not Kind.TTS
        and not process.launch.rank
        and not process.is_leaving
        and process.launch.fault is None
    ):
        process.work(1, since=0.0)
