"""Our side of the log benches, in a process of its own: ``python -m tests.tools.bench.log_client count | lag NODE CONTAINER [N]``.

``count`` reads a whole numbered log through LogFollower; ``lag`` takes N lines, each of which is the time it was written,
as LogArrived events. Both print one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from sparkctl.commands.show_log import ShowLog, show_log
from sparkctl.config import find_node, load_config
from sparkctl.context import CommandContext
from sparkctl.history.operation_history import OperationHistory
from sparkctl.model.events import LogArrived
from sparkctl.model.node import Node
from sparkctl.model.questions import NonInteractivePrompter
from sparkctl.paths import state_dir
from sparkctl.transport.docker.log_stream import ContainerLogStream
from sparkctl.transport.node_session import open_connection


async def count_lines(node: Node, container: str) -> dict[str, object]:
    """Return lines, seconds from the connect to the last line, and the CPU seconds of it. Any line missing raises."""
    link = open_connection(node, NonInteractivePrompter())
    begun, processor, lines = time.perf_counter(), time.process_time(), 0
    await link.connect()
    async for batch in ContainerLogStream(link, container).read_available():
        for line in batch:
            lines += 1
            if not line.text.startswith(f"{lines:08d} "):
                raise RuntimeError(f"line {lines} is {line.text[:60]!r}")
    figures: dict[str, object] = {
        "lines": lines,
        "seconds": time.perf_counter() - begun,
        "cpu": time.process_time() - processor,
    }
    await link.close()
    return figures


async def measure_lags(node: Node, container: str, wanted: int) -> dict[str, object]:
    """Return the nanoseconds from writing in the container to the event here, by line."""
    lags: list[int] = []
    request = ShowLog(instance=container, nodes=[node], follow=True, tail=0)
    async for event in show_log(CommandContext(history=OperationHistory(state_dir()), operator="bench"), request):
        if isinstance(event, LogArrived):
            now = time.time_ns()
            lags += [now - int(line.text) for line in event.lines]
        if len(lags) >= wanted:
            break
    return {"lags": lags}


def main() -> None:
    """Do what the command line says."""
    what, name, container, *rest = sys.argv[1:]
    node = find_node(load_config(), name)
    job = count_lines(node, container) if what == "count" else measure_lags(node, container, int(rest[0]))
    print(json.dumps(asyncio.run(job)))


main()
