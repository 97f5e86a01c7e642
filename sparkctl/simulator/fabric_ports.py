"""The network of the simulated Sparks: the LAN, and both functions of one ConnectX port between them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparkctl.engines.simulation.rank_network import RankNetwork
from sparkctl.simulator.sim_node import NodeFault, SimNode

FABRIC_INTERFACES = {
    "rocep1s0f0": "enp1s0f0np0",
    "roceP2p1s0f0": "enP2p1s0f0np0",
}  # both functions of the port with the cable
LINK_MEGABITS = {"enP7s7": 10000, "enp1s0f0np0": 200000, "enP2p1s0f0np0": 200000}  # Mb/s
PING_SCRIPT_MARKER = "# sparkctl pings 1"  # the first of `node/peer_ping.sh`
NETWORK_PREFIXES = {"enp1s0f0np0": "192.168.200", "enP2p1s0f0np0": "192.168.201", "enP7s7": "192.168.1"}


def list_link_speeds(node: SimNode) -> dict[str, int]:
    """Return the speed of each interface with a carrier, in Mb/s."""
    return {
        name: speed
        for name, speed in LINK_MEGABITS.items()
        if node.is_cabled() or name not in FABRIC_INTERFACES.values()
    }


def get_interface_mtu(interface: str) -> int:
    """Return the MTU of an interface."""
    return 9000 if "np" in interface else 1500


def get_interface_address(node: SimNode, interface: str) -> str | None:
    """Return a node's IPv4 address on an interface, None if it has none."""
    is_bare = NodeFault.NO_ADDRESS in node.options.troubles or not node.is_cabled()
    bare = is_bare and interface in FABRIC_INTERFACES.values()
    return (
        None
        if bare or interface not in NETWORK_PREFIXES
        else f"{NETWORK_PREFIXES[interface]}.{10 + _parse_node_number(node)}"
    )


def list_interface_networks(node: SimNode, interface: str) -> list[str]:
    """Return the networks that an interface is on."""
    return [] if get_interface_address(node, interface) is None else [f"{NETWORK_PREFIXES[interface]}.0/24"]


def list_gids(node: SimNode, interface: str) -> list[dict[str, Any]]:
    """Return the GID table of a function: link-local, then IPv4, each in both versions of RoCE."""
    found = {0: "fe80:0000:0000:0000:4abb:feff:fe12:3456"}
    if (own := get_interface_address(node, interface)) is not None:
        found[4 if NodeFault.OTHER_GID in node.options.troubles else 2] = own
    kinds = ("IB/RoCE v1", "RoCE v2")
    return [
        {"index": first + version, "type": kinds[version], "address": where}
        for first, where in found.items()
        for version in (0, 1)
    ]


def answer_pings(node: SimNode, lanes: list[str]) -> str:
    """Return the output of `node/peer_ping.sh`: every address in a shared network answers, with packets of any size."""
    said = []
    for lane in lanes:
        name, _, peer, size, device = lane.split()
        is_linked = name in list_link_speeds(node)
        said.append(f"@@ link {name} {int(is_linked)}")
        if device != "-":
            said.append(f"@@ rdma {device} {'4: ACTIVE' if is_linked else '1: DOWN'}")
        own = get_interface_address(node, name)
        heard = int(own is not None and own.rpartition(".")[0] == peer.rpartition(".")[0])
        for each in dict.fromkeys(("0", size)):
            lost = f"1 packets transmitted, {heard} received, {100 - 100 * heard}% packet loss, time 0ms"
            said += [f"@@ ping {name} {peer} {each}", f"--- {peer} ping statistics ---", lost]
    return "\n".join([*said, "@@ end", ""])


def build_rank_network(nodes: Mapping[str, SimNode]) -> RankNetwork:
    """Return the network between these nodes, by their addresses at the time of a request."""
    cable = tuple(f"{NETWORK_PREFIXES[interface]}." for interface in FABRIC_INTERFACES.values())

    def list_addresses(node: SimNode) -> set[str]:
        return {
            "127.0.0.1",
            *(own for name in NETWORK_PREFIXES if (own := get_interface_address(node, name)) is not None),
        }

    def is_reachable(name: str, wanted: str) -> bool:
        own = list_addresses(nodes[name])
        network = wanted.rpartition(".")[0]
        there = any(wanted in list_addresses(other) for other in nodes.values())
        return wanted in own or (there and any(one.rpartition(".")[0] == network for one in own))

    return RankNetwork(is_reachable, lambda wanted: wanted.startswith(cable))


def _parse_node_number(node: SimNode) -> int:
    """Return the number at the end of a node's name, 0 if there is none."""
    last = node.name[-1:]
    return int(last) if last.isdecimal() else 0
