"""The simulated Sparks in a thread of their own, with a loop of their own: the CLI beside them never notices."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sparkctl.simulator.simulated_sparks import SimulatedSparks


@contextmanager
def run_in_background(**settings: Any) -> Iterator[Path]:
    """Open `SimulatedSparks(**settings)` in a thread; the value is the path of the config, for SPARKCTL_CONFIG."""
    opened: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event, Path]] = Future()
    thread = threading.Thread(target=_serve, args=(opened, settings), name="simulated-sparks", daemon=True)
    thread.start()
    loop, leave, config = opened.result()
    try:
        yield config
    finally:
        loop.call_soon_threadsafe(leave.set)
        thread.join(timeout=10)


def _serve(opened: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event, Path]], settings: dict[str, Any]) -> None:
    async def stay() -> None:
        leave = asyncio.Event()
        async with SimulatedSparks(**settings) as sparks:
            opened.set_result((asyncio.get_running_loop(), leave, sparks.config_path))
            await leave.wait()

    try:
        asyncio.run(stay())
    except BaseException as error:
        if opened.done():
            raise
        opened.set_exception(error)
