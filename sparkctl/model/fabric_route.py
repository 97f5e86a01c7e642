"""The network route between the Sparks of one model: each end, and the interfaces (lanes) on it. Pure data."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import NodeName
from sparkctl.model.sample import RdmaLane


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricLane:
    """An interface with an IPv4 address, and its RDMA device if there is one.

    ``network`` as 192.168.100.0/24; ``gid_index``: the device's RoCE v2 entry for ``address``; ``mtu`` in bytes,
    ``speed`` in Mb/s. None: not known, or absent.
    """

    interface: str
    address: str
    network: str
    device: str | None = None
    gid_index: int | None = None
    mtu: int | None = None
    speed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredInterface:
    """An interface of a node, with or without a cable. ``addresses``: global IPv4 addresses as 192.168.200.11/24.

    ``device``: its RDMA device; ``mtu`` in bytes; None: not known, or absent.
    """

    name: str
    has_carrier: bool
    addresses: tuple[str, ...]
    mtu: int | None
    device: str | None = None


@dataclass(frozen=True, slots=True)
class NodeLanes:
    """The interfaces of a node. ``lanes`` have a carrier; ``has_devices``: a container can be given /dev/infiniband."""

    node: NodeName
    lanes: tuple[FabricLane, ...] = ()
    has_devices: bool = False


@dataclass(frozen=True, slots=True)
class RouteEnd:
    """One Spark's end of the route: its lanes in networks that all other Sparks share. The first carries the sockets."""

    node: NodeName
    lanes: tuple[FabricLane, ...]

    @property
    def address(self) -> str:
        """The address at which the other Sparks reach it."""
        return self.lanes[0].address

    @property
    def rdma_devices(self) -> tuple[str, ...]:
        return tuple(lane.device for lane in self.lanes if lane.device is not None)


@dataclass(frozen=True, slots=True)
class FabricRoute:
    """The route between the Sparks of one model, in the order of their ranks. ``is_fast``: over the ConnectX ports.

    ``cautions`` are sentences on what makes it slower than possible.
    """

    ends: tuple[RouteEnd, ...]
    is_fast: bool
    cautions: tuple[str, ...] = ()

    @property
    def head_end(self) -> RouteEnd:
        return self.ends[0]

    def get_route_end(self, node: NodeName) -> RouteEnd:
        """Return a node's end. Raises KeyError if the node is not part of the route."""
        for end in self.ends:
            if end.node == node:
                return end
        raise KeyError(node)


BUSY_BYTES_PER_SECOND = 125e6  # bytes/s from which a lane counts as busy: 1 Gb/s
IDLE_RATE_SHARE = 0.02  # share of the busy lane's rate below which a lane counts as idle
_PORT_NUMBER_PATTERN = re.compile(r"f(\d+)$")  # rocep1s0f0 and roceP2p1s0f0 are the two functions of port f0


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
    """Return the number of the physical port of an RDMA device, None if its name has another form."""
    match = _PORT_NUMBER_PATTERN.search(device)
    return None if match is None else match[1]


def sum_lane_rates(port: RdmaLane) -> float | None:
    """Return bytes/s of both directions together."""
    return None if port.receive_rate is None or port.send_rate is None else port.receive_rate + port.send_rate


def has_idle_lane(pair: tuple[RdmaLane, RdmaLane]) -> bool | None:
    """Tell whether one function of a port is idle while the other one is busy; None if a rate is not known."""
    one, other = sum_lane_rates(pair[0]), sum_lane_rates(pair[1])
    if one is None or other is None:
        return None
    return max(one, other) >= BUSY_BYTES_PER_SECOND and min(one, other) < IDLE_RATE_SHARE * max(one, other)


def find_idle_lanes(ports: Sequence[RdmaLane]) -> dict[str, str]:
    """Return the functions that are idle while the other one of their port is busy, each with the busy one's name."""
    ordered = (
        sorted(pair, key=lambda port: sum_lane_rates(port) or 0.0) for pair in pair_lanes(ports) if has_idle_lane(pair)
    )
    return {idle.name: busy.name for idle, busy in ordered}
