"""The two functions of a ConnectX port: each has its own PCIe x4, so one alone carries half of what the cable can."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from sparkctl.model.sample import RdmaLane

BUSY_BYTES_PER_SECOND = 125e6  # bytes/s: a link at work, 1 Gb/s
IDLE_SHARE = 0.02  # of what the other one moves
_PORT = re.compile(r"f(\d+)$")  # rocep1s0f0 and roceP2p1s0f0 are the two functions of port f0


def pair_lanes(ports: Sequence[RdmaLane]) -> Iterator[tuple[RdmaLane, RdmaLane]]:
    """Yield the two functions of each port."""
    pairs: dict[str, list[RdmaLane]] = {}
    for port in ports:
        if number := parse_port_number(port.name):
            pairs.setdefault(number, []).append(port)
    for pair in pairs.values():
        if len(pair) == 2:
            yield pair[0], pair[1]


def parse_port_number(device: str) -> str | None:
    """Return the number of the physical port that an RDMA device is a function of; None for a name of another kind."""
    match = _PORT.search(device)
    return None if match is None else match[1]


def total_rate(port: RdmaLane) -> float | None:
    """Return bytes/s of both directions together."""
    return None if port.receive_rate is None or port.send_rate is None else port.receive_rate + port.send_rate


def has_idle_lane(pair: tuple[RdmaLane, RdmaLane]) -> bool | None:
    """Tell whether one function of a port moves nothing while the other one works; None where a rate is not known."""
    one, other = total_rate(pair[0]), total_rate(pair[1])
    if one is None or other is None:
        return None
    return max(one, other) >= BUSY_BYTES_PER_SECOND and min(one, other) < IDLE_SHARE * max(one, other)


def find_idle_lanes(ports: Sequence[RdmaLane]) -> dict[str, str]:
    """Return the functions that move nothing while the other one of their port works, each with that one's name."""
    ordered = (
        sorted(pair, key=lambda port: total_rate(port) or 0.0) for pair in pair_lanes(ports) if has_idle_lane(pair)
    )
    return {idle.name: busy.name for idle, busy in ordered}
