"""What a measured rate means, for the lanes that Sparks have."""

from __future__ import annotations

import pytest

from sparkctl.commands.doctor_fabric import (
    LaneMeasurement,
    compare_directions,
    get_lane_capacity,
    parse_ib_write_bw,
    rate_lane_speed,
)
from sparkctl.model.fabric_route import FabricLane
from sparkctl.model.finding import Severity
from sparkctl.model.node import NodeName

FAST = FabricLane(
    interface="enp1s0f0np0",
    address="192.168.200.1",
    network="192.168.200.0/24",
    device="rocep1s0f0",
    gid_index=3,
    mtu=9000,
    speed=200_000,
)
TWIN = FabricLane(
    interface="enP2p1s0f0np0",
    address="192.168.201.1",
    network="192.168.201.0/24",
    device="roceP2p1s0f0",
    gid_index=3,
    mtu=9000,
    speed=200_000,
)
SMALL = FabricLane(
    interface="enp1s0f0np0",
    address="192.168.200.1",
    network="192.168.200.0/24",
    device="rocep1s0f0",
    gid_index=3,
    mtu=1500,
    speed=200_000,
)
LAN = FabricLane(
    interface="enP7s7",
    address="192.168.1.1",
    network="192.168.1.0/24",
    device=None,
    gid_index=None,
    mtu=1500,
    speed=10_000,
)
WRITE = """\
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 1048576    2000             92.60              92.57              0.011035
---------------------------------------------------------------------------------------
"""


def make_measurement(rate: float) -> LaneMeasurement:
    return LaneMeasurement(rate * 1e9 / 8)


def test_a_function_carries_half_of_what_it_says() -> None:
    assert get_lane_capacity((FAST,)) == 100.0
    assert get_lane_capacity((FAST, TWIN)) == 200.0
    assert get_lane_capacity((LAN,)) == 10.0
    assert get_lane_capacity((FabricLane(interface="x", address="a", network="b"),)) is None


@pytest.mark.parametrize(
    ("measured", "lanes", "severity", "words", "remedy"),
    [
        (make_measurement(41.2), (FAST,), Severity.GOOD, "41.2 Gb/s by TCP, of 100 that it can carry", None),
        (make_measurement(41.2), (FAST,), Severity.GOOD, ": good for TCP, a fault would be under 20", None),
        (make_measurement(70.0), (FAST, TWIN), Severity.GOOD, "70.0 Gb/s by TCP, of 200 that they can carry", None),
        (make_measurement(13.8), (FAST,), Severity.WARNING, "far too slow", "reseat the cable"),
        (make_measurement(13.8), (SMALL,), Severity.WARNING, "its MTU is 1500", "mtu 9000"),
        (make_measurement(9.3), (LAN,), Severity.GOOD, "9.3 Gb/s by TCP, of 10 that it can carry: good", None),
        (make_measurement(2.0), (LAN,), Severity.WARNING, "far too slow", "what else uses"),
        (
            LaneMeasurement(5e9, 9e-5, 92.6),
            (FAST,),
            Severity.GOOD,
            "92.6 Gb/s by RDMA, 40.0 by TCP, round trip 0.09 ms",
            None,
        ),
        (LaneMeasurement(5e9, None, 24.0), (FAST,), Severity.WARNING, "24.0 Gb/s by RDMA", "reseat"),
        (LaneMeasurement(None), (FAST,), Severity.UNKNOWN, "could not be measured", None),
        (
            make_measurement(1.0),
            (FabricLane(interface="x", address="a", network="b"),),
            Severity.NOTE,
            "does not report its speed",
            None,
        ),
    ],
)
def test_a_verdict(
    measured: LaneMeasurement, lanes: tuple[FabricLane, ...], severity: Severity, words: str, remedy: str | None
) -> None:
    seen, said, todo = rate_lane_speed(measured, lanes)
    assert seen is severity
    assert words in said
    assert (todo is None) if remedy is None else remedy in (todo or "")


def test_what_ib_write_bw_prints() -> None:
    assert parse_ib_write_bw(WRITE) == 92.57
    assert parse_ib_write_bw("Couldn't connect to 192.168.200.2:18515\n") is None


@pytest.mark.parametrize(
    ("sent", "came", "slow"),
    [(20.0, 42.0, "a"), (42.0, 20.0, "b"), (42.0, 40.0, None), (30.0, 42.0, None), (None, 42.0, None)],
)
def test_a_slow_sender_is_named(sent: float | None, came: float | None, slow: str | None) -> None:
    found = compare_directions((NodeName("a"), sent), (NodeName("b"), came), FAST, TWIN)
    assert (found and found[0]) == slow
    if found:
        assert (TWIN if slow == "b" else FAST).interface in found[2]
        assert "not the cable" in found[2]
