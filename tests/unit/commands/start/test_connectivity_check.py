"""What follows from the nodes' answers about the way between them; and the simulated Sparks' own."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from sparkctl.commands.start.connectivity_check import check_fabric, evaluate_pings, list_ping_targets
from sparkctl.config import load_config
from sparkctl.errors import OperationRefused
from sparkctl.model.fabric_route import FabricLane, FabricRoute, NodeLanes
from sparkctl.model.node import NodeName
from sparkctl.monitor.find_fabric_route import find_fabric_route
from sparkctl.node.peer_checks import PingReply, PingReport
from sparkctl.simulator import SimNodeOptions, SimulatedSparks
from sparkctl.simulator.sim_node import NodeFault
from sparkctl.transport.node_session import NodeSession

ONE, TWO, THREE = (NodeName(f"spark{number}") for number in (1, 2, 3))
YES = PingReply(True, to_ping=True)
SILENT = PingReply(False, "no answer to ping")


def make_lanes(number: int, mtu: int = 9000) -> tuple[FabricLane, ...]:
    return (
        FabricLane(
            interface="enp1s0f0np0",
            address=f"192.168.200.{number}",
            network="192.168.200.0/24",
            device="rocep1s0f0",
            gid_index=3,
            mtu=mtu,
            speed=200_000,
        ),
        FabricLane(
            interface="enP2p1s0f0np0",
            address=f"192.168.201.{number}",
            network="192.168.201.0/24",
            device="roceP2p1s0f0",
            gid_index=3,
            mtu=mtu,
            speed=200_000,
        ),
    )


def make_route(*names: NodeName, mtu: int = 9000) -> FabricRoute:
    return find_fabric_route([NodeLanes(name, make_lanes(int(name[-1]), mtu), has_devices=True) for name in names], {})


def make_good_report(way: FabricRoute, node: NodeName) -> PingReport:
    wanted = list_ping_targets(way.get_route_end(node), way)
    return PingReport(
        {(one.interface, one.peer): YES for one in wanted},
        {(one.interface, one.peer): YES for one in wanted if one.size},
        {lane.interface: True for lane in way.get_route_end(node).lanes},
        dict.fromkeys(way.get_route_end(node).rdma_devices, "ACTIVE"),
    )


def make_all_reports(way: FabricRoute) -> dict[NodeName, PingReport | None]:
    return {end.node: make_good_report(way, end.node) for end in way.ends}


def test_everybody_has_to_reach_everybody_on_every_lane() -> None:
    way = make_route(ONE, TWO, THREE)
    assert [(one.interface, one.peer, one.size) for one in list_ping_targets(way.head_end, way)] == [
        ("enp1s0f0np0", "192.168.200.2", 8972),
        ("enp1s0f0np0", "192.168.200.3", 8972),
        ("enP2p1s0f0np0", "192.168.201.2", 8972),
        ("enP2p1s0f0np0", "192.168.201.3", 8972),
    ]
    assert evaluate_pings(way, make_all_reports(way)) == ()


def test_large_packets_are_asked_for_only_where_every_end_says_it_takes_them() -> None:
    way = make_route(ONE, TWO, mtu=1500)
    assert {one.size for one in list_ping_targets(way.head_end, way)} == {0}
    assert evaluate_pings(way, make_all_reports(way)) == ()


def test_a_silent_lane_refuses_and_names_both_ends() -> None:
    way = make_route(ONE, TWO)
    heard = make_all_reports(way)
    pings = heard[TWO]
    assert pings is not None
    pings.reached["enP2p1s0f0np0", "192.168.201.1"] = SILENT
    with pytest.raises(
        OperationRefused, match=r"spark2 to spark1 over enP2p1s0f0np0 \(192\.168\.201\.1\): no answer"
    ) as refused:
        evaluate_pings(way, heard)
    assert "ufw" in (refused.value.hint or "")


def test_a_carrier_that_is_gone_is_told_once_and_as_what_it_is() -> None:
    way = make_route(ONE, TWO)
    pings = make_good_report(way, ONE)
    pings.carriers["enp1s0f0np0"] = False
    pings.reached["enp1s0f0np0", "192.168.200.2"] = SILENT
    with pytest.raises(OperationRefused, match=r"spark1 enp1s0f0np0 has lost its carrier$"):
        evaluate_pings(way, make_all_reports(way) | {ONE: pings})


def test_large_packets_that_get_lost_refuse() -> None:
    way = make_route(ONE, TWO)
    pings = make_good_report(way, ONE)
    pings.large["enp1s0f0np0", "192.168.200.2"] = SILENT
    with pytest.raises(OperationRefused, match="9000 bytes are lost") as refused:
        evaluate_pings(way, make_all_reports(way) | {ONE: pings})
    assert "1500" in (refused.value.hint or "")


def test_what_is_not_known_is_a_caution_and_no_refusal() -> None:
    way = make_route(ONE, TWO)
    pings = make_good_report(way, ONE)
    pings.reached["enp1s0f0np0", "192.168.200.2"] = PingReply(None, "no ping command")
    pings.large["enP2p1s0f0np0", "192.168.201.2"] = PingReply(None, "ping: unrecognized option: M")
    said = evaluate_pings(way, make_all_reports(way) | {ONE: pings, TWO: None})
    assert said == (
        "spark1 to spark2 over enp1s0f0np0 (192.168.200.2): whether it reaches it is not known (no ping command)",
        "spark1 to spark2 over enP2p1s0f0np0 (192.168.201.2): whether packets of 9000 bytes pass is not known "
        "(ping: unrecognized option: M)",
        "spark2 did not say in time whether it reaches the others: not checked",
    )


def test_a_peer_that_answers_no_pings_says_nothing_by_its_silence_to_large_ones() -> None:
    way = make_route(ONE, TWO)
    pings = make_good_report(way, ONE)
    pings.reached["enp1s0f0np0", "192.168.200.2"] = PingReply(True)
    pings.large["enp1s0f0np0", "192.168.200.2"] = SILENT
    assert evaluate_pings(way, make_all_reports(way) | {ONE: pings}) == (
        "spark1 to spark2 over enp1s0f0np0 (192.168.200.2): whether packets of 9000 bytes pass is not known "
        "(no answer to ping)",
    )


def test_an_rdma_device_that_is_down_is_a_caution() -> None:
    way = make_route(ONE, TWO)
    pings = make_good_report(way, TWO)
    pings.rdma["roceP2p1s0f0"] = "DOWN"
    assert evaluate_pings(way, make_all_reports(way) | {TWO: pings}) == (
        "spark2: the RDMA device roceP2p1s0f0 on enP2p1s0f0np0 is DOWN: NCCL cannot use it",
    )


async def test_the_simulated_sparks_reach_each_other_where_they_are_cabled() -> None:
    async with AsyncExitStack() as stack:
        sparks = await stack.enter_async_context(SimulatedSparks(speed=50.0))
        sessions = [
            await stack.enter_async_context(NodeSession(node)) for node in load_config(sparks.config_path).nodes
        ]
        for session in sessions:
            await session.link.connect()
        found = []
        for session in sessions:
            seen = (await session.read_node("fabric")).lanes
            assert seen is not None
            found.append(NodeLanes(session.node.name, seen.lanes, seen.has_devices))
        way = find_fabric_route(found, {})
        assert len(way.head_end.lanes) == 2
        assert await check_fabric(sessions, way) == ()
        sparks.nodes["spark2"].options = replace(SimNodeOptions(), troubles=frozenset({NodeFault.NO_ADDRESS}))
        with pytest.raises(OperationRefused, match="spark2 to spark1"):
            await check_fabric(sessions, way)
