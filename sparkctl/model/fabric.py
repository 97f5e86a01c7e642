"""The way between the Sparks of one model, as each of its ends has it. Pure data."""

from __future__ import annotations

from dataclasses import dataclass

from sparkctl.model.node import NodeName


@dataclass(frozen=True, slots=True)
class Lane:
    """An interface with an IPv4 address, and the RDMA device on it where there is one.

    ``network`` as 192.168.100.0/24; ``gid_index`` is where the device keeps its RoCE v2 address of ``address``; ``mtu`` in
    bytes, ``speed`` in Mb/s. None: not known, or not there.
    """

    interface: str
    address: str
    network: str
    device: str | None = None
    gid_index: int | None = None
    mtu: int | None = None
    speed: int | None = None


@dataclass(frozen=True, slots=True)
class NodeLanes:
    """What a node has. ``lanes`` are those with a carrier; ``has_devices``: /dev/infiniband is there for a container."""

    node: NodeName
    lanes: tuple[Lane, ...] = ()
    has_devices: bool = False


@dataclass(frozen=True, slots=True)
class RouteEnd:
    """One Spark's end of the way: the lanes of networks on which all the others are, too; the first carries the sockets."""

    node: NodeName
    lanes: tuple[Lane, ...]

    @property
    def address(self) -> str:
        """Where the others reach it."""
        return self.lanes[0].address

    @property
    def devices(self) -> tuple[str, ...]:
        """The RDMA devices of its lanes."""
        return tuple(lane.device for lane in self.lanes if lane.device is not None)


@dataclass(frozen=True, slots=True)
class FabricRoute:
    """How the Sparks of one model reach each other, in the order of their ranks. ``is_fast``: over the ConnectX ports.

    ``cautions`` are sentences: what makes it slower than it could be.
    """

    ends: tuple[RouteEnd, ...]
    is_fast: bool
    cautions: tuple[str, ...] = ()

    @property
    def head(self) -> RouteEnd:
        """The end of rank 0."""
        return self.ends[0]

    def route_end_of(self, node: NodeName) -> RouteEnd:
        """Return a node's end. Raises KeyError for one that is none of it."""
        for end in self.ends:
            if end.node == node:
                return end
        raise KeyError(node)
