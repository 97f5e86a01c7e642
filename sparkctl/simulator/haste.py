"""A clock that goes faster while there is only waiting to be done, and users who come when an engine is ready."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from sparkctl.engines.simulation.engine_launch import SimEngineKind
from sparkctl.engines.simulation.simulated_clock import SimClock
from sparkctl.simulator.docker_daemon import SimDockerDaemon
from sparkctl.simulator.engine_process import EngineProcess

_LOOK = 0.1  # of our seconds
_COMING = 6.0  # seconds from ready until somebody has noticed


async def fast_forward_while_busy(clock: SimClock, rate: float, nodes: Sequence[SimDockerDaemon]) -> None:
    """Let the clock go at ``rate`` while something starts or stops on a node, else as it went; until it is cancelled."""
    rest = clock.rate
    while True:
        wanted = rate if any(docker.is_busy for docker in nodes) else rest
        if clock.rate != wanted:
            clock.set_rate(wanted)
        await asyncio.sleep(_LOOK)


async def send_requests_when_ready(process: EngineProcess) -> None:
    """Use an engine that writes text from soon after it is ready on: one request after the other."""
    await process.ready.wait()
    await process.node.clock.sleep(_COMING)
    if (
        process.launch.kind is not SimEngineKind.TTS
        and not process.launch.rank
        and not process.is_leaving
        and process.launch.fault is None
    ):
        process.add_background_load(1, since=0.0)
