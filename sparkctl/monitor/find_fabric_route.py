"""Finds the network route between the Sparks of one model, and builds the environment for NCCL and others. Pure.

Each end has its own interface names, addresses and GID indices: one value for both makes such starts fail. The settings follow
NVIDIA's and the community's launchers for two Sparks: NCCL uses both functions of the cabled port, and all sockets are bound
to the first of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sparkctl.engines import collect_engine_words
from sparkctl.errors import OperationRefused
from sparkctl.model.fabric_route import FabricLane, FabricRoute, NodeLanes, RouteEnd, parse_port_number
from sparkctl.model.node import NodeName

_FAST_MBIT_S = 40_000  # Mb/s: from this speed on, a port without RDMA counts as the cable, too
_JUMBO_MTU = 9000
# bridges and tunnels lead elsewhere
_VIRTUAL_INTERFACES = ("docker", "br-", "veth", "virbr", "tailscale", "wg", "tun", "zt")
_LAN_COST_NOTE = (
    "tensor parallel exchanges data in every layer: expect a fraction of the speed, and minutes more to load"
)


def find_fabric_route(all_lanes: Sequence[NodeLanes], chosen: Mapping[NodeName, str]) -> FabricRoute:
    """Return the route between the nodes, given in the order of ranks; ``chosen`` are interfaces that the config names.

    Raises `OperationRefused` if they have no common network, or if two of them have the same address.
    """
    usable = {each.node: _list_usable_lanes(each, chosen.get(each.node)) for each in all_lanes}
    shared = set.intersection(*({lane.network for lane in lanes} for lanes in usable.values()))
    if not shared:
        raise OperationRefused(
            _describe_missing_route(usable, chosen),
            "sparkctl doctor shows the links of each; cable the ConnectX ports, then give them addresses: sparkctl setup",
        )
    fast = {
        network
        for network in shared
        if all(_is_fast(_find_lane_on_network(lanes, network)) for lanes in usable.values())
    }
    taken = fast or shared
    order = list(dict.fromkeys(lane.network for lane in usable[all_lanes[0].node] if lane.network in taken))
    if not fast:
        order = order[:1]  # one interface is enough on a LAN: two of them share one cable to the switch
    ends = tuple(
        RouteEnd(node, tuple(_find_lane_on_network(lanes, network) for network in order))
        for node, lanes in usable.items()
    )
    _refuse_duplicate_address(ends)
    return FabricRoute(ends, bool(fast), tuple(_list_cautions(all_lanes, ends, chosen, is_fast=bool(fast))))


def build_nccl_environment(way: FabricRoute, node: NodeName) -> tuple[tuple[str, str], ...]:
    """Return the environment of a node's container for the route: for NCCL, Gloo, UCX, MPI, Ray and the engines."""
    end = way.get_route_end(node)
    name, network = end.lanes[0].interface, end.lanes[0].network
    env = {
        "NCCL_SOCKET_IFNAME": name,
        "GLOO_SOCKET_IFNAME": name,
        "TP_SOCKET_IFNAME": name,
        "UCX_NET_DEVICES": name,
        # Not by name: mpirun passes the head's on to every rank, and its daemons would try Docker's bridges, which all nodes have.
        # mpirun of Open MPI 5 derives from the second what its daemons read (PRTE_MCA_*, PMIX_MCA_*), and passes it on.
        "OMPI_MCA_btl_tcp_if_include": network,
        "OMPI_MCA_oob_tcp_if_include": network,
        "NCCL_IGNORE_CPU_AFFINITY": "1",
        **dict.fromkeys(collect_engine_words("address_variables"), end.address),
        "RAY_memory_monitor_refresh_ms": "0",  # it counts page cache as used, and kills a load on unified memory
    }
    if not end.rdma_devices:
        return (*env.items(), ("NCCL_IB_DISABLE", "1"))
    env |= {"NCCL_NET": "IB", "NCCL_IB_DISABLE": "0", "NCCL_IB_HCA": ",".join(end.rdma_devices), "NCCL_CROSS_NIC": "1",
            "NCCL_CUMEM_ENABLE": "0"}  # fmt: skip
    if len(way.ends) == 2:
        env["NCCL_IB_MERGE_NICS"] = "1"
    else:
        env |= {"NCCL_IB_MERGE_NICS": "0", "NCCL_IB_SUBNET_AWARE_ROUTING": "1", "NCCL_NET_PLUGIN": "none"}
    # No NCCL_IB_GID_INDEX: the number of a RoCE address changes with the node's network, and a container is started again with
    # what it was made with. NCCL 2.21 and later find the RoCE v2 address of IPv4 by themselves.
    return tuple(env.items())


def _list_usable_lanes(each: NodeLanes, chosen: str | None) -> tuple[FabricLane, ...]:
    """Return a node's usable lanes, fast ones first; an interface named in the config restricts them to its port."""
    lanes = [lane for lane in each.lanes if not lane.interface.startswith(_VIRTUAL_INTERFACES)]
    if chosen is None:
        return tuple(sorted(lanes, key=lambda lane: (not _is_fast(lane), lane.device is None)))
    named = [lane for lane in lanes if lane.interface == chosen]
    if not named:
        there = ", ".join(lane.interface for lane in lanes) or "none"
        raise OperationRefused(
            f"{each.node} has no interface {chosen} with a carrier and an IPv4 address (it has: {there})",
            f"correct fabric: of {each.node} in the config, or give {chosen} an address",
        )
    twin = [
        lane
        for lane in lanes
        if lane is not named[0]
        and _get_port_number(lane) is not None
        and _get_port_number(lane) == _get_port_number(named[0])
    ]
    return (named[0], *twin)


def _get_port_number(lane: FabricLane) -> str | None:
    return None if lane.device is None else parse_port_number(lane.device)


def _is_fast(lane: FabricLane) -> bool:
    return lane.device is not None or (lane.speed or 0) >= _FAST_MBIT_S


def _find_lane_on_network(lanes: Sequence[FabricLane], network: str) -> FabricLane:
    return next(lane for lane in lanes if lane.network == network)


def _refuse_duplicate_address(ends: Sequence[RouteEnd]) -> None:
    seen: dict[str, NodeName] = {}
    for end in ends:
        for lane in end.lanes:
            if lane.address in seen:
                other = seen[lane.address]
                raise OperationRefused(
                    f"{other} and {end.node} both have the address {lane.address}",
                    f"give {lane.interface} on one of them another address of {lane.network}",
                )
            seen[lane.address] = end.node


def _describe_missing_route(usable: Mapping[NodeName, Sequence[FabricLane]], chosen: Mapping[NodeName, str]) -> str:
    def describe_networks(node: NodeName, lanes: Sequence[FabricLane]) -> str:
        named = f" (fabric: {chosen[node]})" if node in chosen else ""
        return f"{node} is on {', '.join(lane.network for lane in lanes) or 'none'}{named}"

    return "the Sparks have no IPv4 network in common: " + "; ".join(
        describe_networks(*each) for each in usable.items()
    )


def _list_cautions(
    all_lanes: Sequence[NodeLanes], ends: Sequence[RouteEnd], chosen: Mapping[NodeName, str], *, is_fast: bool
) -> list[str]:
    if not is_fast:
        name = ends[0].lanes[0].interface
        if chosen:
            return [f"the model's Sparks talk over {name}, which the config names: it has no RDMA; {_LAN_COST_NOTE}"]
        return [f"no cable joins the ConnectX ports: the model's Sparks talk over {name} instead; {_LAN_COST_NOTE}"]
    cautions = []
    if len(ends[0].lanes) == 1 and ends[0].lanes[0].device is not None:
        cautions.append(
            f"one function of the port alone is used ({ends[0].lanes[0].interface}): half of what the cable can; "
            "give the other function addresses of one network, another than this one's, on every Spark, too"
        )
    for each, end in zip(all_lanes, ends, strict=True):
        small = [lane for lane in end.lanes if lane.mtu is not None and lane.mtu < _JUMBO_MTU]
        if small:
            names = ", ".join(f"{lane.interface} {lane.mtu}" for lane in small)
            cautions.append(
                f"{each.node}: MTU {names}; {_JUMBO_MTU} on every end carries more (sudo ip link set NAME mtu {_JUMBO_MTU})"
            )
        if end.rdma_devices and not each.has_devices:
            cautions.append(f"{each.node}: /dev/infiniband is not there: a container cannot use RDMA")
        indices = {lane.gid_index for lane in end.lanes if lane.device is not None}
        if len(indices) > 1:
            cautions.append(
                f"{each.node}: its functions keep their RoCE v2 address at different indices; NCCL chooses itself"
            )
    return cautions
