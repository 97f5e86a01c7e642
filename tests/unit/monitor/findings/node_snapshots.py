"""Sights of a GB10 over time, built from figures that real ones gave."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from sparkctl.model.container import ContainerState
from sparkctl.model.finding import Finding
from sparkctl.model.instance import InstanceView
from sparkctl.model.node import NodeName
from sparkctl.model.phase import Phase
from sparkctl.model.sample import Gpu, MemoryReading, NetworkInterface, RdmaGid, RdmaLane, Sample
from sparkctl.model.text.units import GIB
from sparkctl.monitor.findings import Detector, NodeSnapshot

NODE = NodeName("spark1")
BEGIN = 1_777_670_400.0  # unix seconds at uptime 0
ID = "ab" * 32

IDLE = Gpu(index=0, busy=0.0, sm_clock=208, sm_clock_max=3003, power=4.4, celsius=41, pstate=8, reasons=0x1)
WORKING = Gpu(index=0, busy=0.96, sm_clock=2398, sm_clock_max=3003, power=62.0, celsius=71, pstate=0, reasons=0x4)
HEALTHY = Gpu(index=0, busy=0.96, sm_clock=2281, sm_clock_max=3003, power=92.5, celsius=78, pstate=0, reasons=0x0)
STUCK = Gpu(index=0, busy=0.96, sm_clock=799, sm_clock_max=3003, power=19.5, celsius=52, pstate=0, reasons=0x0)
SPINNING = Gpu(index=0, busy=0.96, sm_clock=2398, sm_clock_max=3003, power=18.0, celsius=55, pstate=0, reasons=0x0)
HOT = Gpu(index=0, busy=0.97, sm_clock=1890, sm_clock_max=3003, power=76.0, celsius=92, pstate=0, reasons=0x20)
MEMORY = MemoryReading(
    total=122 * GIB, available=52 * GIB, free=3 * GIB, page_cache=49 * GIB, swap_total=16 * GIB, swap_free=16 * GIB
)


def make_snapshot(at: float, **fields: object) -> NodeSnapshot:
    """A snapshot at ``at`` seconds of uptime; fields of the snapshot or of its sample."""
    own = {name: fields.pop(name) for name in ("instances", "node") if name in fields}
    sample = replace(Sample(sequence=1 + int(at), time=BEGIN + at, uptime=at), **fields)  # type: ignore[arg-type]
    return NodeSnapshot(**{"node": NODE, "sample": sample, **own})  # type: ignore[arg-type]


def make_gpu_snapshot(at: float, one: Gpu | None) -> NodeSnapshot:
    """A snapshot of one GPU, or of one that owes an answer."""
    return make_snapshot(at, gpus=None if one is None else (one,))


def run_detector(detector: Detector, snapshots: Iterable[NodeSnapshot]) -> list[list[Finding]]:
    """What a detector says at each snapshot."""
    return [detector.detect(one) for one in snapshots]


def make_snapshot_series(
    seconds: float, until: float, of: Callable[[float], NodeSnapshot], begin: float = 0.0
) -> list[NodeSnapshot]:
    """A snapshot each ``seconds``, from ``begin`` up to and with ``until``."""
    return [of(begin + seconds * step) for step in range(int((until - begin) / seconds) + 1)]


def make_container_view(
    state: ContainerState = ContainerState.RUNNING, restarts: int | None = None, **more: object
) -> InstanceView:
    """One of ours with a state of Docker's; further words are its NCCL_IB_ variables."""
    nccl = tuple((f"NCCL_IB_{name}", str(value)) for name, value in more.items())
    return make_instance_view(Phase.READY, name="minimax-m27", state=state, restarts=restarts, nccl=nccl)


def make_instance_view(phase: Phase | None, **more: object) -> InstanceView:
    """One of ours, as `top` sees it."""
    one = InstanceView(
        name="qwen36",
        node=NODE,
        container="vllm-qwen36",
        image="image",
        state=ContainerState.RUNNING,
        status="Up",
        ours=True,
        memory=None,
        phase=phase,
        container_id=ID,
    )
    return replace(one, **more)  # type: ignore[arg-type]


def make_fabric_port(
    name: str, gigabits: float | None, gids: tuple[RdmaGid, ...] | None = None, state: str = "4: ACTIVE"
) -> RdmaLane:
    """One function of a ConnectX, receiving so many Gb/s."""
    interface = {"rocep1s0f0": "enp1s0f0np0", "roceP2p1s0f0": "enP2p1s0f0np0"}[name]
    rate = None if gigabits is None else gigabits * 1e9 / 8
    return RdmaLane(
        name=name,
        port="1",
        interface=interface,
        state=state,
        receive_rate=rate,
        send_rate=None if rate is None else 0.0,
        gids=gids,
    )


def make_interface(name: str, *networks: str, carrier: bool | None = True, known: bool = True) -> NetworkInterface:
    """An interface with the networks on it."""
    return NetworkInterface(
        name=name, carrier=carrier, state="up", speed=200000, mtu=9000, networks=networks if known else None
    )
