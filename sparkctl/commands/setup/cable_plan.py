"""Plans the addresses of the cable between two Sparks: both functions of the port, MTU 9000, networks of their own. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Interface, IPv4Network, ip_interface, ip_network

from sparkctl.errors import OperationRefused
from sparkctl.model.fabric_route import ConfiguredInterface, FabricLane, FabricRoute, RouteEnd, parse_port_number
from sparkctl.model.node import NodeName
from sparkctl.node.node_inspection import NetworkReadings

NETPLAN_FILE = "/etc/netplan/90-sparkctl.yaml"
JUMBO_MTU = 9000
_CONNECTX_NAME_PATTERN = re.compile(r"(?:P(\d+))?p\d+s\d+f(\d+)np\d+$")  # enp1s0f0np0 and enP2p1s0f0np0
_SAFE_NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}")
_LINK_LOCAL = ip_network("169.254.0.0/16")
_FIRST_HOST = 11  # spark1 gets .11, spark2 .12


@dataclass(frozen=True, slots=True)
class CableEnd:
    """One Spark's end: its interfaces of the port, as they are now, each with the address that it is to have."""

    node: NodeName
    lanes: tuple[tuple[ConfiguredInterface, IPv4Interface], ...]

    def format_lanes_now(self) -> tuple[str, ...]:
        """Return a line for each interface: its name, its MTU and its addresses, as they are now."""
        return tuple(f"{one.name} {one.mtu or 1500} {' '.join(one.addresses)}".rstrip() for one, _ in self.lanes)


def plan_cable(
    nodes: Mapping[NodeName, NetworkReadings], chosen: Mapping[NodeName, str]
) -> tuple[CableEnd, CableEnd] | None:
    """Return both ends as they are to be; None where they are so already. ``chosen``: interfaces that the config names.

    Raises `OperationRefused` where there is no cable to set up.
    """
    (one, near), (other, far) = nodes.items()
    ports = {node: _list_ports(node, seen, chosen.get(node)) for node, seen in nodes.items()}
    common = [number for number in ports[one] if number in ports[other]]
    number, twin = (common[0], common[0]) if common else (next(iter(ports[one])), next(iter(ports[other])))
    pairs = list(zip(ports[one][number], ports[other][twin], strict=False))
    used = [*_list_networks(near), *_list_networks(far)]
    taken: list[IPv4Network] = []
    ends: tuple[list[tuple[ConfiguredInterface, IPv4Interface]], ...] = ([], [])
    is_complete = True
    for pair in pairs:
        shared = _find_shared_addresses(pair, taken)
        is_complete = is_complete and shared is not None and all((lane.mtu or 0) >= JUMBO_MTU for lane in pair)
        if shared is None:
            network = next(new for new in _propose_networks() if not any(new.overlaps(old) for old in (*used, *taken)))
            shared = tuple(IPv4Interface((network[_FIRST_HOST + at], network.prefixlen)) for at in range(2))
        taken.append(shared[0].network)
        for end, lane, address in zip(ends, pair, shared, strict=True):
            end.append((lane, address))
    return None if is_complete else (CableEnd(one, tuple(ends[0])), CableEnd(other, tuple(ends[1])))


def format_netplan(end: CableEnd, peer: NodeName) -> str:
    """Return the netplan file of one end."""
    lines = [
        f"# Written by `sparkctl setup`: the cable from {end.node} to {peer}. `sparkctl setup --undo` takes it back.",
        "network:",
        "  version: 2",
        "  ethernets:",
    ]
    for lane, address in end.lanes:
        lines += [
            f"    {lane.name}:",
            "      optional: true",
            "      dhcp4: false",
            "      dhcp6: false",
            "      link-local: [ipv6]",
            f"      mtu: {JUMBO_MTU}",
            f"      addresses: [{address}]",
        ]
    return "\n".join([*lines, ""])


def build_cable_route(ends: Sequence[CableEnd]) -> FabricRoute:
    """Return the ends as a route that can be checked."""
    return FabricRoute(
        tuple(
            RouteEnd(
                end.node,
                tuple(
                    FabricLane(
                        interface=lane.name, address=str(address.ip), network=str(address.network), device=lane.device,
                        mtu=JUMBO_MTU,
                    )
                    for lane, address in end.lanes
                ),
            )
            for end in ends
        ),
        True,
    )  # fmt: skip


def find_wrong_lanes(end: CableEnd, now: NetworkReadings | None) -> list[str]:
    """Return what of an end is not yet as planned, in words."""
    if now is None:
        return [f"{end.node} did not report its addresses"]
    by_name = {one.name: one for one in now.interfaces}
    wrong = []
    for lane, address in end.lanes:
        seen = by_name.get(lane.name)
        if seen is None or not seen.has_carrier:
            wrong.append(f"{lane.name} has no link")
        elif str(address) not in seen.addresses:
            wrong.append(f"{lane.name} does not have {address}")
        elif seen.mtu != JUMBO_MTU:
            wrong.append(f"the MTU of {lane.name} is {seen.mtu}")
    return [f"{end.node}: {words}" for words in wrong]


def _list_ports(node: NodeName, seen: NetworkReadings, chosen: str | None) -> dict[str, list[ConfiguredInterface]]:
    """Return the ports with a link, by number; of each its functions that have one, in the order of their PCI domains."""
    lanes = [one for one in seen.interfaces if _get_port(one) is not None and _SAFE_NAME_PATTERN.fullmatch(one.name)]
    if chosen is not None:
        named = next((one for one in seen.interfaces if one.name == chosen), None)
        if named is None or not _SAFE_NAME_PATTERN.fullmatch(chosen):
            there = ", ".join(one.name for one in seen.interfaces)
            raise OperationRefused(
                f"{node} has no interface {chosen}, which the config names as its cable (it has: {there})",
                f"correct fabric: of {node} in the config",
            )
        lanes = [one for one in lanes if _get_port(one) == _get_port(named)] if _get_port(named) else [named]
    ports: dict[str, list[ConfiguredInterface]] = {}
    for lane in sorted(lanes, key=_rank_lane):
        if lane.has_carrier:
            ports.setdefault(_get_port(lane) or "", []).append(lane)
    if not ports:
        there = ", ".join(one.name for one in lanes)
        raise OperationRefused(
            f"no ConnectX port of {node} has a link" + (f" ({there})" if there else ""),
            "plug the cable in on both Sparks, then: sparkctl setup. If it is plugged in, bring the port up: "
            + (f"sudo ip link set {lanes[0].name} up" if lanes else "without a cable the port is powered off, which is normal"),
        )  # fmt: skip
    return ports


def _get_port(one: ConfiguredInterface) -> str | None:
    if one.device is not None and (number := parse_port_number(one.device)) is not None:
        return number
    match = _CONNECTX_NAME_PATTERN.search(one.name)
    return None if match is None else match[2]


def _rank_lane(one: ConfiguredInterface) -> tuple[str, int, str]:
    match = _CONNECTX_NAME_PATTERN.search(one.name)
    return (_get_port(one) or "", int(match[1] or 0) if match else 0, one.name)


def _find_shared_addresses(
    pair: Sequence[ConfiguredInterface], taken: Sequence[IPv4Network]
) -> tuple[IPv4Interface, ...] | None:
    """Return an address of each end in one network, if the lane has such addresses of its own already."""
    near, far = ([IPv4Interface(address) for address in lane.addresses] for lane in pair)
    for one in near:
        for other in far:
            if one.network == other.network and one.ip != other.ip and not one.network.overlaps(_LINK_LOCAL):
                return None if any(one.network.overlaps(old) for old in taken) else (one, other)
    return None


def _list_networks(seen: NetworkReadings) -> Iterator[IPv4Network]:
    """Yield every network that a node is on or has a route to."""
    for one in seen.interfaces:
        for address in one.addresses:
            yield IPv4Interface(address).network
    for route in seen.routes:
        try:
            network = ip_interface(route).network
        except ValueError:
            continue
        if isinstance(network, IPv4Network) and network.prefixlen:
            yield network


def _propose_networks() -> Iterator[IPv4Network]:
    """Yield networks for a lane, those of NVIDIA's instructions first."""
    for number in (*range(200, 255), *range(100, 200)):
        yield IPv4Network(f"192.168.{number}.0/24")
    for number in range(256):
        yield IPv4Network(f"10.77.{number}.0/24")
    for number in range(256):
        yield IPv4Network(f"172.29.{number}.0/24")
    raise OperationRefused(
        "every private network that could serve for the cable is in use on these Sparks",
        "give both ends addresses by hand: docs/two-sparks.md",
    )
