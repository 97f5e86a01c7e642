"""Our side of the log bench, in a process of its own: ``python -m tests.tools.bench.log_client NODE CONTAINER``.

It reads a whole numbered log through `ContainerLogStream` and prints one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from sparkctl.config import find_node, load_config
from sparkctl.model.node import Node
from sparkctl.model.questions import NonInteractivePrompter
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


def main() -> None:
    """Do what the command line says."""
    name, container = sys.argv[1:]
    print(json.dumps(asyncio.run(count_lines(find_node(load_config(), name), container))))


main()
