"""The way between the Sparks of one model, of what each of them says it has."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkctl.errors import OperationRefused
from sparkctl.model.fabric_route import FabricLane, NodeLanes
from sparkctl.model.node import NodeName
from sparkctl.monitor.find_fabric_route import build_nccl_environment, find_fabric_route

ONE, TWO, THREE = (NodeName(f"spark{number}") for number in (1, 2, 3))


def make_lanes(number: int, **changes: object) -> tuple[FabricLane, ...]:
    made = (
        FabricLane(interface="enP7s7", address=f"192.168.1.{number}", network="192.168.1.0/24", mtu=1500, speed=10_000),
        FabricLane(
            interface="enp1s0f0np0",
            address=f"192.168.200.{number}",
            network="192.168.200.0/24",
            device="rocep1s0f0",
            gid_index=3,
            mtu=9000,
            speed=200_000,
        ),
        FabricLane(
            interface="enP2p1s0f0np0",
            address=f"192.168.201.{number}",
            network="192.168.201.0/24",
            device="roceP2p1s0f0",
            gid_index=3,
            mtu=9000,
            speed=200_000,
        ),
    )
    without = changes.get("without", ())
    assert isinstance(without, tuple)
    return tuple(lane for lane in made if lane.interface not in without)


def make_node_lanes(name: NodeName, **changes: object) -> NodeLanes:
    return NodeLanes(name, make_lanes(int(name[-1]), **changes), has_devices=True)


def test_both_functions_of_the_cabled_port_are_the_way() -> None:
    way = find_fabric_route([make_node_lanes(ONE), make_node_lanes(TWO)], {})
    assert way.is_fast
    assert not way.cautions
    assert [end.node for end in way.ends] == [ONE, TWO]
    assert way.head_end.address == "192.168.200.1"
    env = dict(build_nccl_environment(way, TWO))
    assert env["NCCL_IB_HCA"] == "rocep1s0f0,roceP2p1s0f0"
    assert (env["NCCL_SOCKET_IFNAME"], env["VLLM_HOST_IP"]) == ("enp1s0f0np0", "192.168.200.2")
    assert "NCCL_IB_GID_INDEX" not in env, "it changes with the node's network, and NCCL finds it"
    assert (env["NCCL_IB_DISABLE"], env["NCCL_IB_MERGE_NICS"]) == ("0", "1")


def test_each_end_is_told_its_own_names() -> None:
    other = NodeLanes(
        TWO,
        (
            FabricLane(
                interface="eth9",
                address="192.168.200.9",
                network="192.168.200.0/24",
                device="mlx5_7",
                gid_index=5,
                mtu=9000,
                speed=200_000,
            ),
        ),
        has_devices=True,
    )
    way = find_fabric_route([make_node_lanes(ONE), other], {})
    first, second = dict(build_nccl_environment(way, ONE)), dict(build_nccl_environment(way, TWO))
    assert (first["NCCL_IB_HCA"], second["NCCL_IB_HCA"]) == ("rocep1s0f0", "mlx5_7")
    assert not {"NCCL_IB_GID_INDEX"} & (first.keys() | second.keys())
    assert second["GLOO_SOCKET_IFNAME"] == "eth9"
    found = {env["OMPI_MCA_btl_tcp_if_include"] for env in (first, second)}
    assert found == {"192.168.200.0/24"}, "mpirun hands the head's on to all: a name would be another one's"
    assert any("one function" in said for said in way.cautions)


def test_without_a_cable_it_is_the_house_network_and_that_is_said() -> None:
    bare = ("enp1s0f0np0", "enP2p1s0f0np0")
    way = find_fabric_route([make_node_lanes(ONE, without=bare), make_node_lanes(TWO)], {})
    assert not way.is_fast
    assert len(way.cautions) == 1
    assert "enP7s7" in way.cautions[0]
    env = dict(build_nccl_environment(way, ONE))
    assert (env["NCCL_IB_DISABLE"], env["NCCL_SOCKET_IFNAME"]) == ("1", "enP7s7")
    assert "NCCL_IB_HCA" not in env


def test_an_interface_of_the_config_wins() -> None:
    way = find_fabric_route([make_node_lanes(ONE), make_node_lanes(TWO)], {ONE: "enP7s7"})
    assert [lane.interface for end in way.ends for lane in end.lanes] == ["enP7s7", "enP7s7"]
    way = find_fabric_route([make_node_lanes(ONE), make_node_lanes(TWO)], {TWO: "enP2p1s0f0np0"})
    assert {lane.network for lane in way.ends[1].lanes} == {"192.168.200.0/24", "192.168.201.0/24"}


def test_an_interface_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(OperationRefused, match="no interface eth5") as refused:
        find_fabric_route([make_node_lanes(ONE), make_node_lanes(TWO)], {ONE: "eth5"})
    assert "enp1s0f0np0" in refused.value.message


def test_no_network_in_common_is_refused_with_what_each_is_on() -> None:
    alone = NodeLanes(TWO, (FabricLane(interface="enP7s7", address="10.0.0.2", network="10.0.0.0/24"),))
    with pytest.raises(OperationRefused, match=r"spark2 is on 10\.0\.0\.0/24"):
        find_fabric_route([make_node_lanes(ONE), alone], {})
    with pytest.raises(OperationRefused, match="spark2 is on none"):
        find_fabric_route([make_node_lanes(ONE), NodeLanes(TWO)], {})


def test_bridges_and_tunnels_lead_elsewhere() -> None:
    bridges = tuple(
        NodeLanes(name, (FabricLane(interface="docker0", address="172.17.0.1", network="172.17.0.0/16"),))
        for name in (ONE, TWO)
    )
    with pytest.raises(OperationRefused, match="in common"):
        find_fabric_route(bridges, {})


def test_one_address_on_both_ends_is_refused() -> None:
    same = tuple(NodeLanes(name, make_lanes(1), has_devices=True) for name in (ONE, TWO))
    with pytest.raises(OperationRefused, match=r"both have the address 192\.168\.200\.1"):
        find_fabric_route(same, {})


def test_more_than_two_nodes_get_ring_settings() -> None:
    way = find_fabric_route([make_node_lanes(ONE), make_node_lanes(TWO), make_node_lanes(THREE)], {})
    env = dict(build_nccl_environment(way, THREE))
    assert env["VLLM_HOST_IP"] == "192.168.200.3"
    assert (env["NCCL_IB_MERGE_NICS"], env["NCCL_IB_SUBNET_AWARE_ROUTING"], env["NCCL_NET_PLUGIN"]) == (
        "0",
        "1",
        "none",
    )


def test_a_small_mtu_and_missing_devices_are_said() -> None:
    small = NodeLanes(
        TWO,
        tuple(
            FabricLane(
                interface=one.interface,
                address=one.address,
                network=one.network,
                device=one.device,
                gid_index=3,
                mtu=1500,
                speed=one.speed,
            )
            for one in make_lanes(2)
        ),
    )
    said = " ".join(find_fabric_route([make_node_lanes(ONE), small], {}).cautions)
    assert "spark2: MTU enp1s0f0np0 1500" in said
    assert "/dev/infiniband" in said


def test_both_functions_in_one_network_are_one_lane_and_that_is_said() -> None:
    def twins(number: int) -> NodeLanes:
        one, two = make_lanes(number)[1:]
        return NodeLanes(
            NodeName(f"spark{number}"), (one, replace(two, address=f"192.168.200.{number + 100}", network=one.network)),
            has_devices=True,
        )  # fmt: skip

    way = find_fabric_route([twins(1), twins(2)], {})
    assert [[lane.interface for lane in end.lanes] for end in way.ends] == [["enp1s0f0np0"]] * 2
    assert "another than this one's" in way.cautions[0]


def make_lan_lanes(name: NodeName, *, cabled: bool) -> NodeLanes:
    """Return a node with two interfaces on the LAN and, if it is cabled, an RDMA device on the second of them."""
    number = int(name[-1])
    second = FabricLane(interface="enP8s8", address=f"10.0.0.{number}", network="10.0.0.0/24", mtu=1500, speed=10_000)
    if cabled:
        second = replace(second, device="rocep1s0f0", gid_index=3, mtu=9000, speed=200_000)
    first = FabricLane(
        interface="enP7s7", address=f"192.168.1.{number}", network="192.168.1.0/24", mtu=1500, speed=10_000
    )
    return NodeLanes(name, (first, second), has_devices=cabled)


@pytest.mark.parametrize(
    ("cabled", "is_fast", "interfaces"),
    [
        ((True, True), True, ["enP8s8"]),
        ((True, False), False, ["enP8s8"]),  # a cable that one end does not have joins nobody
        ((False, True), False, ["enP7s7"]),
        ((False, False), False, ["enP7s7"]),  # one interface of a LAN: two share one cable to the switch
    ],
)
def test_a_network_is_fast_only_where_every_end_is_and_a_lan_needs_one_interface(
    cabled: tuple[bool, bool], is_fast: bool, interfaces: list[str]
) -> None:
    lanes = [make_lan_lanes(name, cabled=one) for name, one in zip((ONE, TWO), cabled, strict=True)]
    way = find_fabric_route(lanes, {})
    assert way.is_fast is is_fast
    assert [[lane.interface for lane in end.lanes] for end in way.ends] == [interfaces] * 2
