"""The agent of a simulated Spark: the real one's output, about a machine that exists only in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

from sparkctl.engines.simulation.unified_memory import MAPPED_FILE_BYTES, SWAP_TOTAL_BYTES
from sparkctl.node import agent
from sparkctl.simulator.docker_daemon import DOCKER_VERSION
from sparkctl.simulator.http_server import ReadStream
from sparkctl.simulator.sim_node import (
    FABRIC_INTERFACES,
    FULL_DISK_FREE_BYTES,
    HOME,
    KERNEL_VERSION,
    ByteSink,
    NodeFault,
    SimKernelFile,
    SimNode,
    get_interface_mtu,
    list_gids,
    list_interface_networks,
    list_link_speeds,
    open_sim_kernel_log,
)

SLOW_CORES, FAST_CORES = [*range(5), *range(10, 15)], [*range(5, 10), *range(15, 20)]  # A725 and X925, as on a GB10
IDLE_REASON_BIT, POWER_CAP_REASON_BIT, THERMAL_REASON_BIT = 0x1, 0x4, 0x20
_LANE_BYTES_PER_SECOND = (
    13.8e9 / 8 / 2
)  # bytes/s each way between two Sparks that share a model: 13.8 Gb/s in all, measured on a real pair
_SYSCTL_VALUES = {"swappiness": 60, "min_free_kbytes": 45056, "compaction_proactiveness": 20}
_PRESSURE = "".join(f"{kind} avg10=0.00 avg60=0.00 avg300=0.00 total=0\n" for kind in ("some", "full"))
_BUDDYINFO = "Node 0, zone Normal 2214 1801 1204 911 702 540 411 302 214 160 141 120 88 1530\n"


async def run_agent(node: SimNode, words: Sequence[str], stdin: ReadStream, stdout: ByteSink) -> None:
    """Run the agent: sample at its rate, end with stdin or without keepalives."""
    options = dict(zip(words[::2], words[1::2], strict=False))
    disks = [value for option, value in pairwise(words) if option == "--disk"]
    probe = SimAgent(node, float(options.get("--every", 2)), disks)
    fed = float(options.get("--fed", 10))
    stdout.write(agent.encode_message({"kind": "hello", "identity": _build_identity(node)}))
    sampling = asyncio.ensure_future(probe.send_samples(stdout))
    try:
        with suppress(TimeoutError):
            while True:
                async with asyncio.timeout(fed):
                    chunk = await stdin.read(4096)
                if not chunk:
                    return
                probe.handle_commands(chunk)
                probe.changed.set()
    finally:
        sampling.cancel()
        await asyncio.gather(sampling, return_exceptions=True)


def _build_identity(node: SimNode) -> dict[str, Any]:
    earlyoom = node.options.earlyoom.split()
    return {
        "host": node.name,
        "kernel": KERNEL_VERSION,
        "machine": "aarch64",
        "boot_id": node.boot_id,
        "product": "DGX Spark",
        "driver": node.options.driver,
        "os": "7.3.1",
        "distribution": "Ubuntu 24.04.4 LTS",
        "python": "3.12.3",
        "docker": DOCKER_VERSION,
        "toolkit": "1.19.0" if node.options.gpu_runtime else None,
        "up": round(node.uptime, 2),
        "sysctl": dict.fromkeys(agent.SYSCTL_NAMES, 0) | _SYSCTL_VALUES,
        "configured": [],
        "swaps": [{"path": "/swap.img", "kind": "file", "total": SWAP_TOTAL_BYTES, "used": 0}],
        "earlyoom": {"version": "1.7", "argv": earlyoom, "configured": None} if earlyoom else None,
    }


class SimAgent(agent.NodeAgent):
    """The real agent of one node, with simulated kernel files, GPU and devices. Counters of links start at zero."""

    def __init__(self, node: SimNode, every: float, disks: list[str]) -> None:
        self.gpu_helper = agent.HelperChannel(-1, -1)
        devices = agent.HelperChannel(-1, -1)
        clock = SimpleNamespace(time=node.unix_time)
        super().__init__("/simulated", every, self.gpu_helper, devices, open_sim_kernel_log(node), clock=clock)
        self.node = node
        self.disks = disks
        self.meminfo = SimKernelFile(node.memory.format_meminfo)
        self.vmstat = SimKernelFile(node.format_vmstat)
        self.pressure = SimKernelFile(lambda: _PRESSURE)
        self.buddy = SimKernelFile(lambda: _BUDDYINFO)
        self.load = SimKernelFile(lambda: f"{node.gpu_busy_share * 2:.2f} 0.80 0.75")
        self.clusters = [{"capacity": 1024, "cores": FAST_CORES}, {"capacity": 718, "cores": SLOW_CORES}]
        self.began = self.counted = node.clock.monotonic()
        self.moved: dict[str, float] = {}  # bytes each way, by RDMA device
        self.changed = asyncio.Event()

    async def send_samples(self, stdout: ByteSink) -> None:
        while True:
            stdout.write(agent.encode_message(self.take_sample()))
            self.kernel_log.forget_sent()
            self.changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self.every / self.node.clock.rate):
                    await self.changed.wait()

    def take_sample(self) -> dict[str, Any]:
        """Return a sample as of now, with the answers of the helpers as of now."""
        busy, is_first = self.node.gpu_busy_share, self.sequence == 0
        shares = self._sample_cpu(busy)
        self.cores: Any = SimpleNamespace(compute_shares=lambda _: dict.fromkeys(shares) if is_first else shares)
        self.gpu_helper.answer = {"gpus": [self._sample_gpu(busy)], "trouble": None}
        self.devices.answer = {
            "temperatures": self._sample_temperatures(busy),
            "disks": [self._sample_disk(path) for path in self.disks],
            "links": self._sample_links(),
            "rdma": self._sample_rdma(),
            "processes": self._sample_processes(busy),
            "psutil": None,
        }
        sample = self.build_sample(self.node.uptime)
        listed = [one for one in sample["processes"] if "parent" in one]  # others have ended, and the driver frees them
        return {**sample, "processes": listed, "spent": round(0.0009 * self.sequence, 3)}

    def _add_jitter(self, around: float, by: float) -> float:
        return around + self.node.random.uniform(-by, by)

    def _sample_cpu(self, busy: float) -> dict[int, float | None]:
        return {
            core: round(max(0.0, self._add_jitter(0.02 + (0.09 * busy if core in FAST_CORES else 0), 0.015)), 4)
            for core in range(20)
        }

    def _sample_gpu(self, busy: float) -> dict[str, Any]:
        works = busy > 0.01
        reading: dict[str, Any] = {
            "index": 0,
            "name": "NVIDIA GB10",
            "uuid": f"GPU-{self.node.boot_id}",
            "busy": round(min(1.0, max(0.0, self._add_jitter(busy, 0.02 * busy))), 2) if works else 0.0,
            "sm_clock": int(self._add_jitter(2398, 40)) if works else 208,
            "sm_clock_max": 3003,
            "power": round(
                self._add_jitter(10 + 54 * busy, 0.5 + 4 * busy) if works else self._add_jitter(4.4, 0.5), 1
            ),
            "celsius": round(self._add_jitter(self.node.update_gpu_temperature(41 + 31 * busy), 0.6)),
            "pstate": 0 if works else 8,
            "reasons": POWER_CAP_REASON_BIT if works else IDLE_REASON_BIT,
            "events": {"power_cap": 0, "sw_thermal": 0, "hw_thermal": 0, "power_brake": 0},
            "memory_total": None,  # not supported on a GB10
            "memory_used": None,
            "processes": [
                {"pid": pid, "memory": size, "busy": None} for pid, size in sorted(self.node.memory.gpu.items()) if size
            ],
            "bandwidth_share": None,
            "bandwidth_peak": None,
        }
        return reading | self._apply_gpu_fault(reading["events"]) if busy > 0.1 else reading

    def _apply_gpu_fault(self, events: dict[str, int]) -> dict[str, Any]:
        """Apply a fault to the figures of a busy GPU; the values come from real ones."""
        troubles = self.node.options.troubles
        if NodeFault.STUCK_CLOCK in troubles:
            clock, power = int(self._add_jitter(799, 6)), round(self._add_jitter(19.5, 0.6), 1)
            return {"sm_clock": clock, "power": power, "celsius": 52, "reasons": 0}
        if NodeFault.HOT in troubles:
            slowed = events | {"sw_thermal": int((self.node.clock.monotonic() - self.began) * 4e8) + 2_507_085_031}
            return {
                "sm_clock": int(self._add_jitter(1890, 40)),
                "celsius": 92,
                "reasons": THERMAL_REASON_BIT,
                "events": slowed,
            }
        if NodeFault.BUSY_WAIT in troubles:
            return {"busy": 0.96, "power": round(self._add_jitter(18, 0.5), 1), "celsius": 55, "reasons": 0}
        return {}

    def _sample_temperatures(self, busy: float) -> list[dict[str, Any]]:
        nics = ("0000:01:00.0", "0000:01:00.1", "0002:01:00.0", "0002:01:00.1")
        chips = [("acpitz", None, "thermal_zone0", 52 + 26 * busy), ("nvme", "Composite", "nvme0", 44.0)]
        chips += [("mlx5", "asic", nic, 57.0) for nic in nics]
        return [
            {"chip": chip, "label": label, "device": device, "celsius": round(self._add_jitter(value, 0.8), 1)}
            for chip, label, device, value in chips
        ]

    def _sample_disk(self, path: str) -> dict[str, Any]:
        if self.node.lacks_path(path.replace("~", HOME, 1)):
            return {"path": path, "total": None, "free": None}
        full = NodeFault.FULL_DISK in self.node.options.troubles
        return {
            "path": path,
            "total": 3_780_636_740 << 10,
            "free": FULL_DISK_FREE_BYTES if full else 2_384_206_868 << 10,
        }

    def _sample_links(self) -> list[dict[str, Any]]:
        names = ("enP2p1s0f0np0", "enP2p1s0f1np1", "enP7s7", "enp1s0f0np0", "enp1s0f1np1", "wlP9s9")
        linked = list_link_speeds(self.node)
        passed = int((self.node.clock.monotonic() - self.began) * 1200)
        return [
            {
                "name": name,
                "carrier": name in linked,
                "state": "up" if name in linked else "down",
                "speed": linked.get(name),
                "mtu": get_interface_mtu(name),
                "received": passed if name in linked else 0,
                "sent": passed if name in linked else 0,
                "errors": 0,
                "receive_rate": (1200.0 if name in linked else 0.0) if self.sequence else None,
                "send_rate": (1200.0 if name in linked else 0.0) if self.sequence else None,
                "networks": list_interface_networks(self.node, name),
            }
            for name in names
        ]

    def _sample_rdma(self) -> list[dict[str, Any]]:
        half = NodeFault.IDLE_FUNCTION in self.node.options.troubles
        linked = list_link_speeds(self.node)
        ports = [(name, interface, interface in linked) for name, interface in FABRIC_INTERFACES.items()]
        ports += [("rocep1s0f1", "enp1s0f1np1", False), ("roceP2p1s0f1", "enP2p1s0f1np1", False)]
        shares = dict.fromkeys(FABRIC_INTERFACES, 0.5) if not half else {"rocep1s0f0": 1.0}
        moving = _LANE_BYTES_PER_SECOND if self.node.is_fabric_busy and self.node.is_cabled() else 0.0
        rates = [moving * shares.get(name, 0.0) for name, _, _ in ports]
        now = self.node.clock.monotonic()
        for (name, _, _), rate in zip(ports, rates, strict=True):
            self.moved[name] = self.moved.get(name, 0.0) + rate * (now - self.counted)
        self.counted = now
        return [
            {
                "name": name,
                "port": "1",
                "interface": interface,
                "state": "4: ACTIVE" if up else "1: DOWN",
                "rate": "200 Gb/sec (2X NDR)" if up else "40 Gb/sec (4X QDR)",
                "received": int(self.moved[name]),
                "sent": int(self.moved[name]),
                "receive_rate": rate if self.sequence else None,
                "send_rate": rate if self.sequence else None,
                "errors": dict.fromkeys((*agent.NetworkPorts.ERRORS, *agent.NetworkPorts.HARDWARE), 0),
                "gids": list_gids(self.node, interface) if up else [],
            }
            for (name, interface, up), rate in zip(ports, rates, strict=True)
        ]

    def _sample_processes(self, busy: float) -> list[dict[str, Any]]:
        """Return the processes, without their GPU memory, which the agent adds."""
        memory = self.node.memory
        found: list[dict[str, Any]] = []
        if NodeFault.ORPHAN in self.node.options.troubles:
            lost = self.node.list_lost_processes()
            found = [{"pid": pid, "parent": 1, "name": "VLLM::EngineCor", "unit": "session-12.scope"} for pid in lost]
            found = [{**one, "start_ticks": self.node.read_start_ticks(one["pid"])} for one in found]
        return found + [
            {
                "pid": pid,
                "parent": 1,
                "name": "python3",
                "container": container,
                "resident": memory.anonymous.get(pid, 0),
                "rss": memory.anonymous.get(pid, 0) + MAPPED_FILE_BYTES // 4,
                "cpu": round(busy, 3) if self.sequence else None,
                "start_ticks": self.node.read_start_ticks(pid),
            }
            for pid, container in sorted(self.node.processes.items())
        ]
