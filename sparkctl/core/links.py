"""The two functions of a ConnectX port: each has its own PCIe x4, so one alone carries half of what the cable can."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sparkctl.model.sample import RdmaPort

BUSY = 125e6  # bytes/s: a link at work, 1 Gb/s
IDLE_SHARE = 0.02  # of what the other one moves
_PORT = re.compile(r"f(\d+)$")  # rocep1s0f0 and roceP2p1s0f0 are the two functions of port f0


def idle_functions(ports: Sequence[RdmaPort]) -> dict[str, str]:
    """Return the functions that move nothing while the other one of their port works, each with that one's name."""
    pairs: dict[str, list[tuple[float, str]]] = {}
    for port in ports:
        match = _PORT.search(port.name)
        if match is not None and port.receive_rate is not None and port.send_rate is not None:
            pairs.setdefault(match[1], []).append((port.receive_rate + port.send_rate, port.name))
    found = {}
    for pair in pairs.values():
        if len(pair) == 2:
            (least, idle), (most, busy) = sorted(pair)
            if most >= BUSY and least < IDLE_SHARE * most:
                found[idle] = busy
    return found
