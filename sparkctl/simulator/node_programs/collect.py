"""What `probe/collect.py` says on a simulated Spark: the few files that it has, and that it has no others."""

from __future__ import annotations

import json

from sparkctl.node import collect
from sparkctl.simulator.sim_node import SimNode


def run_collector(node: SimNode) -> bytes:
    """Return its lines."""
    lines: list[dict[str, object]] = []
    for path in collect.FILES:
        content = node.file(path)
        if content is not None:
            lines.append({"name": path[1:], "text": content.decode()})
        lines.append(
            {"name": path[1:], "end": True, "why": None if content is not None else "No such file or directory"}
        )
    lines += [{"name": f"commands/{name}", "end": True, "why": "not simulated"} for name in collect.COMMANDS]
    lines.append({"name": "end", "end": True})
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)
