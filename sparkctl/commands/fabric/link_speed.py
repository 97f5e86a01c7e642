"""What the measured rate of a lane between two Sparks means. Pure.

A function of a ConnectX port is a PCIe Gen5 x4: about 100 Gb/s of the 200 that it says of itself. `ib_write_bw` on both gave
NVIDIA 92.57 + 97.28 Gb/s. TCP from a Python program moves less, so that its rate is a floor of what the lane can; the known
faults (13.8 Gb/s on a link that says 200) are far below that floor, and only a measurement shows them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sparkctl.model.fabric_route import FabricLane
from sparkctl.model.finding import Severity

LANE_MBIT_S = 100_000  # Mb/s that one function of a ConnectX port can carry
_FAST_MBIT_S = 40_000
_FAST_TCP_FLOOR = 0.2  # of what a fast lane can: less is a fault, not Python
_SLOW_TCP_FLOOR = 0.6  # of a lane up to 10 Gb/s, which TCP fills
_RDMA_FLOOR = 0.8
_REMEDY = (
    "reseat the cable, then power both Sparks off and on; on each: sudo dmesg | grep mlx5 shows what the port says; "
    "measure again with nothing running"
)
_RESULT_PATTERN = re.compile(
    r"^[ \t]*+\d++[ \t]++\d++[ \t]++([\d.]++)[ \t]++([\d.]++)(?:[ \t]++[\d.]++)?[ \t\r]*+$", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class LaneMeasurement:
    """Of one lane, or several at once: bytes a second by TCP, seconds for a byte there and back; None: not measured.

    ``rdma``: Gb/s by ``ib_write_bw``."""

    rate: float | None
    latency: float | None = None
    rdma: float | None = None

    @property
    def tcp_gigabits_per_second(self) -> float | None:
        """The rate by TCP in Gb/s, as links are sold."""
        return None if self.rate is None else self.rate * 8 / 1e9


def get_lane_capacity(lanes: tuple[FabricLane, ...]) -> float | None:
    """Return what lanes can carry together in Gb/s, None where the speed of one is not known."""
    total = 0.0
    for lane in lanes:
        if lane.speed is None or lane.speed <= 0:
            return None
        total += min(lane.speed, LANE_MBIT_S) if lane.device is not None else lane.speed
    return total / 1000


def rate_lane_speed(measured: LaneMeasurement, lanes: tuple[FabricLane, ...]) -> tuple[Severity, str, str | None]:
    """Return how a rate is, in words, and what to do where it is too low."""
    limit, reached = (
        get_lane_capacity(lanes),
        measured.rdma if measured.rdma is not None else measured.tcp_gigabits_per_second,
    )
    if reached is None:
        return Severity.UNKNOWN, "could not be measured", None
    by = "RDMA" if measured.rdma is not None else "TCP"
    words = f"{reached:.1f} Gb/s by {by}"
    if measured.rdma is not None and measured.tcp_gigabits_per_second is not None:
        words += f", {measured.tcp_gigabits_per_second:.1f} by TCP"
    if measured.latency is not None:
        words += f", a byte there and back {measured.latency * 1e3:.2f} ms"
    if limit is None:
        return Severity.NOTE, f"{words} (the link does not say how fast it is)", None
    words += f", of {limit:.0f} that {'it' if len(lanes) == 1 else 'they'} can carry"
    is_fast = max(lane.speed or 0 for lane in lanes) >= _FAST_MBIT_S
    floor = _RDMA_FLOOR if measured.rdma is not None else _FAST_TCP_FLOOR if is_fast else _SLOW_TCP_FLOOR
    if reached >= floor * limit:
        is_part = is_fast and measured.rdma is None
        good = f"good for TCP, a fault would be under {_FAST_TCP_FLOOR * limit:.0f}" if is_part else "good"
        return Severity.GOOD, f"{words}: {good}", None
    small = [lane for lane in lanes if lane.mtu is not None and lane.mtu < 9000]
    if is_fast and small:
        names = " ".join(lane.interface for lane in small)
        remedy = f"9000 on every end: sudo ip link set {names} mtu 9000"
        return Severity.WARNING, f"{words}: too little; its MTU is {small[0].mtu}", remedy
    return Severity.WARNING, f"{words}: far too little", _REMEDY if is_fast else "see what else uses this network now"


def parse_ib_write_bw(said: str) -> float | None:
    """Return the average of ``ib_write_bw --report_gbits`` in Gb/s, None where it did not get to its result."""
    found = _RESULT_PATTERN.findall(said)
    return float(found[-1][1]) if found else None
