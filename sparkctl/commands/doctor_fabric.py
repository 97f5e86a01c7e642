"""``doctor --fabric``: measure the bandwidth and latency of each lane between the Sparks with a bounded transfer."""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack
from itertools import combinations, pairwise

from sparkctl.commands.event_stream import build_end, stream_events
from sparkctl.commands.request import Request
from sparkctl.commands.start import connectivity_check
from sparkctl.commands.start.connectivity_check import read_lanes
from sparkctl.commands.transfer.transfer_stream import TransferRoute, open_transfer_stream
from sparkctl.concurrency import gather_or_cancel
from sparkctl.context import CommandContext
from sparkctl.errors import ConnectionLost, OperationRefused, SparkctlError
from sparkctl.model.events import CheckCompleted, CommandEnded, Emit, Event, FindingReported, Outcome
from sparkctl.model.fabric_route import FabricLane, FabricRoute, RouteEnd
from sparkctl.model.finding import Finding, FindingEvidence, FindingKind, Severity
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import Node, NodeName
from sparkctl.model.text.units import GIB, format_gib
from sparkctl.monitor.find_fabric_route import find_fabric_route
from sparkctl.transport.node_connection import RemoteProcess
from sparkctl.transport.node_session import NodeSession

LANE_MBIT_S = 100_000  # Mb/s that one function of a ConnectX port can carry
_FAST_MBIT_S = 40_000
_FAST_TCP_FLOOR = 0.2  # share of a fast lane's capacity; less is a fault, not the cost of Python
_SLOW_TCP_FLOOR = 0.6  # share of the capacity of a lane up to 10 Gb/s, which TCP fills
_RDMA_FLOOR = 0.8
_UNEVEN_SHARE = 0.6  # of the other direction; two directions of a healthy lane differ by less
_REMEDY = (
    "reseat the cable, then power both Sparks off and on; on each: sudo dmesg | grep mlx5 shows what the port says; "
    "measure again with nothing running"
)
_RESULT_PATTERN = re.compile(
    r"^[ \t]*+\d++[ \t]++\d++[ \t]++([\d.]++)[ \t]++([\d.]++)(?:[ \t]++[\d.]++)?[ \t\r]*+$", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class LaneMeasurement:
    """The result for one lane, or for several at once: TCP in bytes per second, round trip in seconds; None: not
    measured.

    ``rdma``: Gb/s by ``ib_write_bw``.
    """

    rate: float | None
    latency: float | None = None
    rdma: float | None = None

    @property
    def tcp_gigabits_per_second(self) -> float | None:
        """The TCP rate in Gb/s, as links are sold."""
        return None if self.rate is None else self.rate * 8 / 1e9


def get_lane_capacity(lanes: tuple[FabricLane, ...]) -> float | None:
    """Return the capacity of lanes together in Gb/s, None where one speed is not known."""
    total = 0.0
    for lane in lanes:
        if lane.speed is None or lane.speed <= 0:
            return None
        total += min(lane.speed, LANE_MBIT_S) if lane.device is not None else lane.speed
    return total / 1000


def rate_lane_speed(measured: LaneMeasurement, lanes: tuple[FabricLane, ...]) -> tuple[Severity, str, str | None]:
    """Return a sentence that rates the measured speed, and what to do where it is too low."""
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
        words += f", round trip {measured.latency * 1e3:.2f} ms"
    if limit is None:
        return Severity.NOTE, f"{words} (the link does not report its speed)", None
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
        return Severity.WARNING, f"{words}: too slow; its MTU is {small[0].mtu}", remedy
    return Severity.WARNING, f"{words}: far too slow", _REMEDY if is_fast else "see what else uses this network now"


def compare_directions(
    one: tuple[NodeName, float | None], other: tuple[NodeName, float | None], near: FabricLane, far: FabricLane
) -> tuple[NodeName, Severity, str, str] | None:
    """Return the finding of the node that sends much slower than it receives over one lane; None where both are alike.

    ``one``, ``other``: the ends, each with the Gb/s that it sent. A cable and a switch slow both directions; one alone is slowed by
    the sender: its memory, its PCIe lanes or its card.
    """
    slow, fast, lane = (one, other, near) if (one[1] or 0) < (other[1] or 0) else (other, one, far)
    if slow[1] is None or fast[1] is None or slow[1] >= _UNEVEN_SHARE * fast[1]:
        return None
    words = f"it sends {slow[1]:.1f} Gb/s over {lane.interface} and receives {fast[1]:.1f}: the slow side is this sender, not the cable"
    remedy = (
        "measure again with nothing running here; if it stays: sudo lspci -vv shows the card's LnkSta (32GT/s, x4), "
        "sudo dmesg | grep -e mlx5 -e AER its faults; then power this Spark off and on"
    )
    return slow[0], Severity.WARNING, words, remedy


def parse_ib_write_bw(output: str) -> float | None:
    """Return the average of ``ib_write_bw --report_gbits`` in Gb/s, None where the output has no result."""
    found = _RESULT_PATTERN.findall(output)
    return float(found[-1][1]) if found else None


_STREAMS_PER_LANE = 4
_MEASURE_SECONDS = 2.0
_MAX_STREAM_BYTES = GIB // 2  # bytes of one stream
_ECHO_COUNT = 200
_RDMA_ITERATIONS = 2000  # times 1 MiB
_RDMA_TIMEOUT_SECONDS = 15  # on the node
_MEASURE_TIMEOUT_SECONDS = 40.0
_RDMA_PORT = 18515  # the default port of ib_write_bw

SessionPair = tuple[NodeSession, NodeSession]


@dataclass(frozen=True, slots=True)
class MeasureFabric(Request):
    """A request to measure the links between nodes."""

    nodes: Sequence[Node]

    def format_as_command(self) -> tuple[str, ...]:
        return ("doctor", "--fabric", *self.format_node_options())

    def run(self, ctx: CommandContext) -> AsyncGenerator[Event, None]:
        return measure_fabric(ctx, self.nodes)


def measure_fabric(ctx: CommandContext, nodes: Sequence[Node]) -> AsyncGenerator[Event, None]:
    """Announce the traffic, measure each lane in each direction and all together, and rate the results.

    Exit 5 where a direction fails, 3 where a node could not be asked; a slow lane is a warning.
    """

    async def measure_nodes(emit: Emit) -> CommandEnded:
        began = ctx.clock.monotonic()
        teller = FabricFindingReporter(ctx, emit)
        if len(nodes) < 2:
            raise OperationRefused("a fabric needs two Sparks, but only one was named", "name two: -n spark1 -n spark2")
        async with AsyncExitStack() as stack:
            sessions = [await stack.enter_async_context(ctx.create_session(node)) for node in nodes]
            await gather_or_cancel(*(session.link.connect() for session in sessions))
            await _measure_all_lanes(sessions, {node.name: node.fabric for node in nodes if node.fabric}, teller)
        for node in nodes:
            emit(CheckCompleted(ctx.clock.unix_time(), node.name, ctx.clock.monotonic() - began))
        return build_end(ctx, began, Outcome.UNHEALTHY if teller.problems else Outcome.DONE)

    return stream_events(ctx, measure_nodes, on_interrupt="interrupted; nothing is left running on the nodes")


class FabricFindingReporter:
    """Emits findings and counts the problems."""

    def __init__(self, ctx: CommandContext, emit: Emit) -> None:
        self._ctx, self._emit = ctx, emit
        self.problems = 0

    def __call__(
        self, node: NodeName, severity: Severity, words: str, remedy: str | None = None, *,
        kind: FindingKind = FindingKind.FABRIC, evidence: tuple[FindingEvidence, ...] = (),
    ) -> None:  # fmt: skip
        self.problems += severity is Severity.PROBLEM
        one = Finding(kind, severity, node, words, remedy=remedy, evidence=evidence)
        self._emit(FindingReported.from_finding(self._ctx.clock.unix_time(), one))


async def _measure_all_lanes(
    sessions: Sequence[NodeSession], chosen: Mapping[NodeName, str], tell: FabricFindingReporter
) -> None:
    found = await read_lanes(sessions)
    head = sessions[0].node.name
    try:
        if len(found) < len(sessions):
            raise OperationRefused("a node did not report its interfaces", "see `sparkctl doctor`")
        way = find_fabric_route(found, chosen)
        cautions = (*way.cautions, *await connectivity_check.check_fabric(sessions, way))
    except OperationRefused as refused:
        tell(head, Severity.PROBLEM, refused.message, refused.hint)
        return
    for end in way.ends:
        _report_lanes(end, tell)
    for caution in cautions:
        named = next((end.node for end in way.ends if caution.startswith(end.node)), head)
        tell(named, Severity.WARNING, caution)
    by_name = {session.node.name: session for session in sessions}
    pairs = [(by_name[one.node], by_name[other.node]) for one, other in combinations(way.ends, 2)]
    if len(way.ends) > 3:  # all pairs would take long, and a ring tests every port
        pairs = [(by_name[one.node], by_name[other.node]) for one, other in pairwise((*way.ends, way.ends[0]))]
    count = len(way.head_end.lanes)
    measures = len(pairs) * (2 * count + (count > 1))
    most = len(pairs) * (2 * count + (count if count > 1 else 0)) * _STREAMS_PER_LANE * _MAX_STREAM_BYTES
    tell(
        head,
        Severity.NOTE,
        f"{measures} measurements of {_MEASURE_SECONDS:.0f} s at most follow, {format_gib(most)} at most in all, by TCP from memory to memory, "
        "which moves less than RDMA can; where both have ib_write_bw (sudo apt install perftest) RDMA is measured, too; "
        "a model that uses these links is slower meanwhile",
    )
    for pair in pairs:
        await _measure_pair(pair, way, tell)


def _report_lanes(end: RouteEnd, tell: FabricFindingReporter) -> None:
    """Report each lane with its address, speed and RDMA device."""
    for lane in end.lanes:
        speed = f"{lane.speed / 1000:g} Gb/s" if lane.speed else "speed not known"
        if lane.device is not None and lane.speed and lane.speed > LANE_MBIT_S:
            speed += f" (the port's; one of its two functions carries {LANE_MBIT_S / 1000:g})"
        words = f"{lane.interface} {lane.address}, {speed}, MTU {lane.mtu if lane.mtu is not None else 'not known'}"
        tell(end.node, Severity.GOOD, words)
        if lane.device is None:
            tell(
                end.node,
                Severity.NOTE,
                f"{lane.interface} has no RDMA device: NCCL falls back to TCP on it",
                kind=FindingKind.RDMA,
            )
        elif lane.gid_index is None:
            tell(
                end.node,
                Severity.WARNING,
                f"{lane.device} has no RoCE v2 address for {lane.address}: NCCL cannot use it",
                f"set {lane.interface} down and up again: sudo ip link set {lane.interface} down; "
                f"sudo ip link set {lane.interface} up",
                kind=FindingKind.RDMA,
            )
        else:
            words = f"{lane.device} on {lane.interface}, its RoCE v2 address at GID index {lane.gid_index}"
            tell(end.node, Severity.GOOD, words, kind=FindingKind.RDMA)


async def _measure_pair(pair: SessionPair, route: FabricRoute, tell: FabricFindingReporter) -> None:
    ends = [route.get_route_end(session.node.name) for session in pair]
    lanes = list(zip(ends[0].lanes, ends[1].lanes, strict=True))
    has_tool = all(near.device and far.device for near, far in lanes)
    if has_tool:
        found = await gather_or_cancel(*(session.run(["sh", "-c", "command -v ib_write_bw"]) for session in pair))
        has_tool = all(done.status == 0 and done.stdout.strip() for done in found)
    one, other = pair
    for near, far in lanes:
        there = await _measure_direction(one, other, [(near, far)], tell, one.node.name, with_rdma=has_tool)
        back = await _measure_direction(other, one, [(far, near)], tell, one.node.name, with_rdma=has_tool)
        if (uneven := compare_directions((one.node.name, there), (other.node.name, back), near, far)) is not None:
            tell(*uneven)
    if len(lanes) > 1:
        await _measure_direction(*pair, lanes, tell, one.node.name, with_rdma=False)


async def _measure_direction(
    source: NodeSession,
    target: NodeSession,
    lanes: list[tuple[FabricLane, FabricLane]],
    tell: FabricFindingReporter,
    about: NodeName,
    *,
    with_rdma: bool,
) -> float | None:
    """Measure one direction over some lanes and report it as a finding of the node ``about``; return its Gb/s."""
    names = " and ".join(near.interface for near, _ in lanes)
    direction = f"{source.node.name} to {target.node.name} over {names}"
    try:
        measured = await _measure_tcp(source, target, lanes)
        if with_rdma:
            rdma = await _measure_rdma(source, target, *lanes[0])
            measured = LaneMeasurement(measured.rate, measured.latency, rdma)
    except ConnectionLost:
        raise
    except TimeoutError:
        tell(about, Severity.UNKNOWN, f"{direction}: could not be measured within {_MEASURE_TIMEOUT_SECONDS:.0f} s")
        return None
    except SparkctlError as error:
        tell(about, Severity.UNKNOWN, f"{direction}: could not be measured: {error.message}", error.hint)
        return None
    severity, words, remedy = rate_lane_speed(measured, tuple(near for near, _ in lanes))
    evidence = (
        [FindingEvidence("rate", f"{measured.tcp_gigabits_per_second:.2f}", "Gb/s", "tcp")]
        if measured.tcp_gigabits_per_second is not None
        else []
    )
    if measured.latency is not None:
        evidence.append(FindingEvidence("latency", f"{measured.latency * 1e6:.0f}", "us", "tcp"))
    if measured.rdma is not None:
        evidence.append(FindingEvidence("rate", f"{measured.rdma:.2f}", "Gb/s", "ib_write_bw"))
    tell(about, severity, f"{direction}: {words}", remedy, evidence=tuple(evidence))
    return measured.rdma if measured.rdma is not None else measured.tcp_gigabits_per_second


async def _measure_tcp(
    source: NodeSession, target: NodeSession, lanes: list[tuple[FabricLane, FabricLane]]
) -> LaneMeasurement:
    """Send zero bytes over all the lanes at once; nothing is written to a disk."""
    route, latency = TransferRoute(tuple(lanes)), None
    if len(lanes) == 1:
        echo = {"n": 0, "echoes": _ECHO_COUNT}
        async with (
            asyncio.timeout(_MEASURE_TIMEOUT_SECONDS),
            open_transfer_stream(source, target, ([echo], [echo]), route, 1, alone=False) as pair,
        ):
            await pair.send_to_receiver(end=True)
            async for side, message in pair.read_messages():
                if side == "send" and "median" in message:
                    latency = float(message["median"])
    count = _STREAMS_PER_LANE * len(lanes)
    jobs = [{"n": number, "seconds": _MEASURE_SECONDS, "most": _MAX_STREAM_BYTES} for number in range(count)]
    got, took = 0, 0.0
    async with (
        asyncio.timeout(_MEASURE_TIMEOUT_SECONDS),
        open_transfer_stream(source, target, (jobs, jobs), route, count, alone=False) as pair,
    ):
        await pair.send_to_receiver(end=True)
        async for side, message in pair.read_messages():
            if side == "take" and "bytes" in message and "took" in message:
                got, took = got + int(message["bytes"]), max(took, float(message["took"]))
    return LaneMeasurement(got / took if got and took else None, latency)


async def _measure_rdma(source: NodeSession, target: NodeSession, near: FabricLane, far: FabricLane) -> float | None:
    """Measure one lane with ``ib_write_bw``; ``timeout`` on each node ends it even if the connection is lost."""

    def build_ib_write_bw_command(lane: FabricLane, *more: str) -> list[str]:
        words = ["timeout", str(_RDMA_TIMEOUT_SECONDS), "ib_write_bw", "-d", lane.device or "", "-F", "--report_gbits"]
        words += ["-s", str(1 << 20), "-n", str(_RDMA_ITERATIONS), "-p", str(_RDMA_PORT)]
        words += ["-x", str(lane.gid_index)] if lane.gid_index is not None else []
        return [*words, *more]

    server: RemoteProcess = await target.link.start_process(
        ["sh", "-c", f"exec {shlex.join(build_ib_write_bw_command(far))} >/dev/null 2>&1"]
    )
    try:
        for _ in range(3):
            done = await source.run(build_ib_write_bw_command(near, far.address), timeout=_RDMA_TIMEOUT_SECONDS + 5)
            if (rate := parse_ib_write_bw(done.stdout.decode("utf-8", "replace"))) is not None:
                return rate
        return None
    finally:
        await server.release()
