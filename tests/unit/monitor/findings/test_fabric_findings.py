"""The link between two Sparks: idle halves, no way over it, GID indices, RDMA switched off."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkctl.model.container import ContainerState
from sparkctl.model.finding import FindingKind, Severity
from sparkctl.model.instance import InstanceView
from sparkctl.model.node import NodeName
from sparkctl.model.sample import NetworkInterface, RdmaGid
from sparkctl.monitor.findings import NodeSnapshot
from sparkctl.monitor.findings.fabric_detectors import (
    IdleLaneDetector,
    MissingRouteDetector,
    NcclGidDetector,
    detect_missing_cable,
    detect_missing_network,
    detect_rdma_disabled,
)
from tests.unit.monitor.findings.node_snapshots import (
    BEGIN,
    make_container_view,
    make_fabric_port,
    make_interface,
    make_snapshot,
    make_snapshot_series,
    run_detector,
)

BUSY, TWIN = "rocep1s0f0", "roceP2p1s0f0"
NETS = ("enp1s0f0np0", "enP2p1s0f0np0")


def make_traffic_snapshot(at: float, one: float | None, other: float | None, state: str = "4: ACTIVE") -> NodeSnapshot:
    return make_snapshot(at, rdma=(make_fabric_port(BUSY, one), make_fabric_port(TWIN, other, state=state)))


def test_one_function_at_13_8_gigabits_beside_none_is_told_after_half_a_minute() -> None:
    said = run_detector(
        IdleLaneDetector(),
        [
            make_traffic_snapshot(0, 0, 0),
            *make_snapshot_series(2, 40, lambda at: make_traffic_snapshot(at, 13.8, 0), begin=2),
        ],
    )
    assert [bool(found) for found in said].index(True) == 16
    (finding,) = said[-1]
    assert finding.kind is FindingKind.IDLE_FUNCTION
    assert "rocep1s0f0 moves 13.8 Gb/s and its other function roceP2p1s0f0 nothing" in finding.summary
    assert "enP2p1s0f0np0" in (finding.remedy or "")
    assert finding.since == BEGIN + 2


def test_an_idle_function_with_an_address_is_to_be_tried_with_a_ping_through_it() -> None:
    links = (make_interface(NETS[0], "192.168.200.0/24"), make_interface(NETS[1], "192.168.201.0/24"))

    def make_addressed_snapshot(at: float) -> NodeSnapshot:
        seen = make_traffic_snapshot(at, 13.8, 0)
        return replace(seen, sample=replace(seen.sample, links=links))

    (finding,) = run_detector(IdleLaneDetector(), make_snapshot_series(2, 60, make_addressed_snapshot, begin=2))[-1]
    assert "has an address already: check that the other Spark answers a ping through it" in (finding.remedy or "")


FINE = {
    "both as measured": (92.57, 97.28),
    "uneven but both": (60.0, 12.0),
    "a whisper": (0.4, 0.0),
    "nothing": (0.0, 0.0),
    "one unknown": (13.8, None),
    "both unknown": (None, None),
}


@pytest.mark.parametrize(("one", "other"), FINE.values(), ids=list(FINE))
def test_what_is_shared_small_or_unknown_is_no_finding(one: float | None, other: float | None) -> None:
    assert not any(
        run_detector(IdleLaneDetector(), make_snapshot_series(2, 120, lambda at: make_traffic_snapshot(at, one, other)))
    )


def make_port_snapshot(node: str, *carriers: bool | None) -> NodeSnapshot:
    links = tuple(make_interface(name, carrier=carrier) for name, carrier in zip(NETS, carriers, strict=True))
    return make_snapshot(
        0, node=NodeName(node), rdma=(make_fabric_port(BUSY, 0), make_fabric_port(TWIN, 0)), links=links
    )


def test_two_sparks_of_which_no_port_has_a_link_are_told_so() -> None:
    both = detect_missing_cable(
        [make_port_snapshot("spark1", False, False), make_port_snapshot("spark2", False, False)]
    )
    assert [(one.node, one.severity) for one in both] == [("spark1", Severity.NOTE), ("spark2", Severity.NOTE)]
    assert "enp1s0f0np0, enP2p1s0f0np0" in both[0].summary
    assert "sparkctl doctor --fabric" in (both[0].remedy or "")
    assert not detect_missing_cable([make_port_snapshot("spark1", False, False)]), "one alone needs none"
    assert not detect_missing_cable(
        [make_port_snapshot("spark1", True, False), make_port_snapshot("spark2", None, False)]
    ), "unknown is not absent"
    assert not detect_missing_cable([make_snapshot(0), make_snapshot(0, node=NodeName("other"))])


def test_a_burst_is_no_finding_and_a_twin_that_is_down_is() -> None:
    burst = [make_traffic_snapshot(at, 40.0 if at % 40 < 20 else 0.0, 0.0) for at in range(0, 200, 2)]
    assert not any(run_detector(IdleLaneDetector(), burst))
    down = run_detector(
        IdleLaneDetector(), make_snapshot_series(2, 40, lambda at: make_traffic_snapshot(at, 40.0, 0.0, "1: DOWN"))
    )[-1][0]
    assert "1: DOWN" in " ".join(map(str, down.evidence))


def test_the_other_port_of_the_card_is_no_twin() -> None:
    ports = (make_fabric_port(BUSY, 13.8), replace(make_fabric_port(TWIN, 0.0), name="rocep1s0f1"))
    assert not any(
        run_detector(IdleLaneDetector(), make_snapshot_series(2, 90, lambda at: make_snapshot(at, rdma=ports)))
    )


def make_cable_snapshot(at: float, *links: NetworkInterface) -> NodeSnapshot:
    return make_snapshot(at, rdma=(make_fabric_port(BUSY, 0), make_fabric_port(TWIN, 0)), links=links)


def test_a_cable_without_addresses_is_told_after_a_minute() -> None:
    said = run_detector(
        MissingRouteDetector(),
        make_snapshot_series(
            5, 70, lambda at: make_cable_snapshot(at, make_interface(NETS[0]), make_interface(NETS[1]))
        ),
    )
    assert [bool(found) for found in said].index(True) == 12
    (finding,) = said[-1]
    assert (finding.kind, finding.severity) == (FindingKind.FABRIC_ROUTE, Severity.WARNING)
    assert "no IPv4 network is on either" in finding.summary


def test_half_a_cable_without_an_address_is_a_note() -> None:
    (finding,) = run_detector(
        MissingRouteDetector(),
        make_snapshot_series(
            5,
            70,
            lambda at: make_cable_snapshot(at, make_interface(NETS[0], "192.168.200.0/24"), make_interface(NETS[1])),
        ),
    )[-1]
    assert finding.severity is Severity.NOTE
    assert "enP2p1s0f0np0" in finding.summary
    assert "enp1s0f0np0 " not in finding.summary


WELL = {
    "addresses on both": (make_interface(NETS[0], "192.168.200.0/24"), make_interface(NETS[1], "192.168.201.0/24")),
    "no cable": (make_interface(NETS[0], carrier=False), make_interface(NETS[1], carrier=False)),
    "carrier unknown": (make_interface(NETS[0], carrier=None), make_interface(NETS[1], carrier=None)),
    "networks unknown": (make_interface(NETS[0], known=False), make_interface(NETS[1], known=False)),
    "no interfaces: powered off without a cable": (),
}


@pytest.mark.parametrize("links", WELL.values(), ids=list(WELL))
def test_a_fabric_that_works_or_is_absent_or_unknown_is_no_finding(links: tuple[NetworkInterface, ...]) -> None:
    assert not any(
        run_detector(MissingRouteDetector(), make_snapshot_series(5, 200, lambda at: make_cable_snapshot(at, *links)))
    )


def test_a_function_that_moves_data_has_a_way_whatever_it_is() -> None:
    def at(now: float) -> NodeSnapshot:
        return replace(
            make_cable_snapshot(now, make_interface(NETS[0]), make_interface(NETS[1])),
            sample=replace(
                make_cable_snapshot(now, make_interface(NETS[0]), make_interface(NETS[1])).sample,
                rdma=(make_fabric_port(BUSY, 40.0), make_fabric_port(TWIN, 38.0)),
            ),
        )

    assert not any(run_detector(MissingRouteDetector(), make_snapshot_series(5, 200, at)))


def test_two_nodes_without_a_common_network_have_no_route() -> None:
    here = make_cable_snapshot(0, make_interface(NETS[0], "192.168.200.0/24"), make_interface(NETS[1]))
    there = replace(
        make_cable_snapshot(0, make_interface(NETS[0], "10.0.0.0/24"), make_interface(NETS[1])), node=NodeName("spark2")
    )
    assert [finding.node for finding in detect_missing_network([here, there])] == ["spark1", "spark2"]
    common = replace(
        make_cable_snapshot(0, make_interface(NETS[0], "192.168.200.0/24"), make_interface(NETS[1])),
        node=NodeName("spark2"),
    )
    assert not detect_missing_network([here, common])
    assert not detect_missing_network([here])
    assert not detect_missing_network([here, replace(make_cable_snapshot(0), node=NodeName("spark2"))]), (
        "unknown is no evidence"
    )


TABLE = (
    RdmaGid(0, "IB/RoCE v1", "fe80:0000:0000:0000:4abb:feff:fe12:3456"),
    RdmaGid(1, "RoCE v2", "fe80:0000:0000:0000:4abb:feff:fe12:3456"),
    RdmaGid(4, "IB/RoCE v1", "192.168.200.11"),
    RdmaGid(5, "RoCE v2", "192.168.200.11"),
)


def make_nccl_snapshot(
    env: dict[str, str], gids: tuple[RdmaGid, ...] | None = TABLE, state: ContainerState = ContainerState.RUNNING
) -> NodeSnapshot:
    ports = (make_fabric_port(BUSY, 0, gids), make_fabric_port(TWIN, 0, gids))
    return make_snapshot(0, rdma=ports, instances=(make_container_view(state, **env),))


def test_an_index_that_is_another_on_this_node_is_told_with_the_right_one() -> None:
    (finding,) = NcclGidDetector().detect(make_nccl_snapshot({"GID_INDEX": "3"}))
    assert (finding.kind, finding.severity, finding.instance) == (FindingKind.GID, Severity.PROBLEM, "minimax-m27")
    assert "leave NCCL_IB_GID_INDEX out" in (finding.remedy or "")
    assert "(5 on " in (finding.remedy or "")
    assert "rocep1s0f0 index 3 not in use" in " · ".join(map(str, finding.evidence))


@pytest.mark.parametrize("index", ["0", "1", "4"])
def test_version_one_and_link_local_are_wrong(index: str) -> None:
    assert NcclGidDetector().detect(make_nccl_snapshot({"GID_INDEX": index}))


def test_the_right_index_none_a_strange_one_and_one_that_ended_are_fine() -> None:
    assert not NcclGidDetector().detect(make_nccl_snapshot({"GID_INDEX": "5"}))
    assert not NcclGidDetector().detect(make_nccl_snapshot({}))
    assert not NcclGidDetector().detect(make_nccl_snapshot({"GID_INDEX": "-1"}))
    assert not NcclGidDetector().detect(make_nccl_snapshot({"GID_INDEX": "3"}, state=ContainerState.EXITED))
    assert not NcclGidDetector().detect(make_nccl_snapshot({"GID_INDEX": "3"}, gids=None)), (
        "a table that was not read is no evidence"
    )
    assert not NcclGidDetector().detect(make_snapshot(0, rdma=(make_fabric_port(BUSY, 0, TABLE),), instances=None))


def test_only_the_functions_that_it_names_are_judged() -> None:
    bad = replace(make_fabric_port(TWIN, 0, TABLE[:2]))
    snapshots = make_snapshot(
        0,
        rdma=(make_fabric_port(BUSY, 0, TABLE), bad),
        instances=(make_container_view(GID_INDEX=5, HCA="rocep1s0f0:1"),),
    )
    assert not NcclGidDetector().detect(snapshots)
    both = replace(snapshots, instances=(make_container_view(GID_INDEX=5, HCA="=rocep1s0f0,roceP2p1s0f0"),))
    (finding,) = NcclGidDetector().detect(both)
    assert "roceP2p1s0f0" in finding.summary
    assert "address first" in (finding.remedy or "")


def test_rdma_switched_off_matters_for_an_instance_on_both_nodes() -> None:
    def at(node: str, *containers: InstanceView) -> NodeSnapshot:
        return replace(make_snapshot(0, instances=containers), node=NodeName(node))

    off, on = make_container_view(DISABLE=1), make_container_view(DISABLE=0)
    assert [f.node for f in detect_rdma_disabled([at("spark1", off), at("spark2", off)])] == ["spark1", "spark2"]
    assert [f.node for f in detect_rdma_disabled([at("spark1", on), at("spark2", off)])] == ["spark2"]
    assert not detect_rdma_disabled([at("spark1", off), at("spark2")])
