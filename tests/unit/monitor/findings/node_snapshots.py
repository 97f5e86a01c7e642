"""Sights of a GB10 over time, built from figures that real ones gave."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from sparkctl.model.container import ContainerState
from sparkctl.model.finding import Finding
from sparkctl.model.instance import InstanceView
from sparkctl.model.memory_reading import MemoryReading
from sparkctl.model.node import NodeName
from sparkctl.model.phase import Phase
from sparkctl.model.sample import Gpu, NetworkInterface, RdmaGid, RdmaLane, Sample
from sparkctl.model.text.units import GIB
from sparkctl.monitor.findings.base import Detector, NodeSnapshot

NODE = NodeName("spark1")
BEGIN = 1_777_670_400.0  # unix seconds at uptime 0
ID = "ab" * 32

IDLE = Gpu(0, busy=0.0, sm_clock=208, sm_clock_max=3003, power=4.4, celsius=41, pstate=8, reasons=0x1)
WORKING = Gpu(0, busy=0.96, sm_clock=2398, sm_clock_max=3003, power=62.0, celsius=71, pstate=0, reasons=0x4)
HEALTHY = Gpu(0, busy=0.96, sm_clock=2281, sm_clock_max=3003, power=92.5, celsius=78, pstate=0, reasons=0x0)
STUCK = Gpu(0, busy=0.96, sm_clock=799, sm_clock_max=3003, power=19.5, celsius=52, pstate=0, reasons=0x0)
SPINNING = Gpu(0, busy=0.96, sm_clock=2398, sm_clock_max=3003, power=18.0, celsius=55, pstate=0, reasons=0x0)
HOT = Gpu(0, busy=0.97, sm_clock=1890, sm_clock_max=3003, power=76.0, celsius=92, pstate=0, reasons=0x20)
MEMORY = MemoryReading(122 * GIB, 52 * GIB, 3 * GIB, 49 * GIB, 16 * GIB, 16 * GIB)


def make_snapshot(at: float, **fields: object) -> NodeSnapshot:
    """A sight at ``at`` seconds of uptime; fields of the sight or of its sample."""
    own = {name: fields.pop(name) for name in ("instances", "node") if name in fields}
    sample = replace(Sample(1 + int(at), BEGIN + at, at), **fields)  # type: ignore[arg-type]
    return NodeSnapshot(**{"node": NODE, "sample": sample, **own})  # type: ignore[arg-type]


def make_gpu_snapshot(at: float, one: Gpu | None) -> NodeSnapshot:
    """A sight of one GPU, or of one that owes an answer."""
    return make_snapshot(at, gpus=None if one is None else (one,))


def run_detector(detector: Detector, sights: Iterable[NodeSnapshot]) -> list[list[Finding]]:
    """What a detector says at each sight."""
    return [detector.detect(one) for one in sights]


def make_snapshot_series(
    seconds: float, until: float, of: Callable[[float], NodeSnapshot], begin: float = 0.0
) -> list[NodeSnapshot]:
    """A sight each ``seconds``, from ``begin`` up to and with ``until``."""
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
        "qwen36", NODE, "vllm-qwen36", "image", ContainerState.RUNNING, "Up", ours=True, memory=None, phase=phase,
        container_id=ID,
    )  # fmt: skip
    return replace(one, **more)  # type: ignore[arg-type]


def make_fabric_port(
    name: str, gigabits: float | None, gids: tuple[RdmaGid, ...] | None = None, state: str = "4: ACTIVE"
) -> RdmaLane:
    """One function of a ConnectX, receiving so many Gb/s."""
    interface = {"rocep1s0f0": "enp1s0f0np0", "roceP2p1s0f0": "enP2p1s0f0np0"}[name]
    rate = None if gigabits is None else gigabits * 1e9 / 8
    return RdmaLane(name, "1", interface, state, receive_rate=rate, send_rate=None if rate is None else 0.0, gids=gids)


def make_interface(name: str, *networks: str, carrier: bool | None = True, known: bool = True) -> NetworkInterface:
    """An interface with the networks on it."""
    return NetworkInterface(name, carrier, "up", 200000, 9000, networks=networks if known else None)
