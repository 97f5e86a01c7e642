"""What the agent reads on a node. Bytes, seconds, degrees Celsius, watts, MHz, shares of 0..1; None is "not known".

The constants are the memory of a DGX Spark, for what has to be said or assumed before a node is asked, and for simulated ones;
docs/memory-fit.md tells it to owners. A share of an engine's counts either all memory (vLLM) or what is available at its start
(SGLang, TensorRT-LLM).
"""

from __future__ import annotations

from functools import lru_cache

from sparkctl.model.kernel_event import KernelReading
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import NodeName

_UNIFIED_MEMORY_GPU = "GB10"


@dataclass(frozen=True, slots=True)
class MemoryPressure:
    """The share of the last ten seconds in which some, or all, tasks waited for memory; totals in microseconds."""

    some: float | None = None
    full: float | None = None
    some_total: int | None = None
    full_total: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryDetail:
    """More of meminfo, kernel counters, and ``blocks``: free blocks by order, where order 0 is one page."""

    dirty: int | None = None
    writeback: int | None = None
    anonymous: int | None = None
    shared: int | None = None
    slab: int | None = None
    locked: int | None = None
    huge_total: int | None = None
    huge_free: int | None = None
    cma_total: int | None = None
    cma_free: int | None = None
    drop_pagecache: int | None = None
    drop_slab: int | None = None
    pswpin: int | None = None
    pswpout: int | None = None
    pgmajfault: int | None = None
    oom_kill: int | None = None
    pressure: MemoryPressure | None = None
    blocks: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class CpuCluster:
    """Cores of one kind. ``capacity``: the kernel's measure of one core (1024 is the fastest), or its highest clock in
    kHz.
    """

    capacity: int | None = None
    cores: tuple[int, ...] = ()
    busy: float | None = None


@dataclass(frozen=True, slots=True)
class Cpu:
    """Shares of the time since the previous sample, and the load averages of 1, 5 and 15 minutes."""

    busy: float | None = None
    cores: tuple[float | None, ...] = ()
    clusters: tuple[CpuCluster, ...] = ()
    load: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """What one process holds of a GPU, and its share of the SMs' time if the driver reports it."""

    pid: int
    memory: int | None = None
    busy: float | None = None


@dataclass(frozen=True, slots=True)
class GpuEvents:
    """The driver's counters of time spent slowed down, by reason, in nanoseconds; only their growth has a meaning."""

    power_cap: int | None = None
    sw_thermal: int | None = None
    hw_thermal: int | None = None
    power_brake: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU. ``reasons`` are NVML's event reason bits; ``bandwidth_share`` is a share of ``bandwidth_peak``
    (bytes/s).
    """

    index: int
    name: str | None = None
    uuid: str | None = None
    busy: float | None = None
    sm_clock: int | None = None
    sm_clock_max: int | None = None
    power: float | None = None
    celsius: float | None = None
    pstate: int | None = None
    reasons: int | None = None
    events: GpuEvents | None = None
    memory_total: int | None = None
    memory_used: int | None = None
    processes: tuple[GpuProcess, ...] | None = None
    bandwidth_share: float | None = None
    bandwidth_peak: int | None = None

    @property
    def has_unified_memory(self) -> bool:
        """Tell whether its memory is the machine's: it reports no size, or is a model known to report a wrong one."""
        return self.memory_total is None or _UNIFIED_MEMORY_GPU in (self.name or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeProcess:
    """A process of a container or of the GPU. ``resident`` is anonymous + shared memory, ``rss`` adds mapped files.

    ``cpu`` is in cores. ``unit`` and ``parent_name``: the systemd unit and the parent of a process outside of
    containers. ``start_ticks``: when it began, in clock ticks after the boot: with its number, this is the process for good.
    """

    pid: int
    name: str | None = None
    parent: int | None = None
    container: str | None = None
    unit: str | None = None
    resident: int | None = None
    cpu: float | None = None
    gpu_memory: int | None = None
    rss: int | None = None
    parent_name: str | None = None
    start_ticks: int | None = None


@dataclass(frozen=True, slots=True)
class Temperature:
    """One sensor. ``device`` is its PCI address, which tells the four mlx5 chips apart."""

    chip: str
    celsius: float
    label: str | None = None
    device: str | None = None


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """Free and total space of the filesystem that holds a path."""

    path: str
    total: int | None = None
    free: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkInterface:
    """A network interface: speed in Mb/s; counters and rates (bytes/s) as the kernel sees them, so without RDMA.

    ``networks``: the IPv4 networks it reaches without a gateway, as 192.168.100.0/24.
    """

    name: str
    carrier: bool | None = None
    state: str | None = None
    speed: int | None = None
    mtu: int | None = None
    received: int | None = None
    sent: int | None = None
    errors: int | None = None
    receive_rate: float | None = None
    send_rate: float | None = None
    networks: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class RdmaGid:
    """An address of an RDMA port, IPv4 if it is one; ``type`` is the kernel's name, such as RoCE v2."""

    index: int
    type: str | None = None
    address: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RdmaLane:
    """One function of a ConnectX port: bytes and bytes/s of RDMA, error counters by the driver's names, addresses."""

    name: str
    port: str | None = None
    interface: str | None = None
    state: str | None = None
    rate: str | None = None
    received: int | None = None
    sent: int | None = None
    receive_rate: float | None = None
    send_rate: float | None = None
    errors: tuple[tuple[str, int | None], ...] = ()
    gids: tuple[RdmaGid, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One reading. ``uptime`` is the node's monotonic clock; ``spent``: CPU seconds that the agent has used so far.

    ``psutil``: the version of the node's own, if processes, disks and sensors were read with it. ``gpu_silent_for``:
    for how long the driver has not answered (then ``gpus`` is None); ``gpu_trouble``: why there are no GPUs.
    ``devices_silent_for``, ``devices_trouble``: the same for temperatures, disks, links and processes. ``kernel``: what the
    kernel logged since the sample before.
    """

    sequence: int
    time: float
    uptime: float
    memory: MemoryReading | None = None
    detail: MemoryDetail | None = None
    cpu: Cpu | None = None
    gpus: tuple[Gpu, ...] | None = None
    gpu_trouble: str | None = None
    gpu_silent_for: float | None = None
    processes: tuple[NodeProcess, ...] | None = None
    temperatures: tuple[Temperature, ...] | None = None
    disks: tuple[DiskSpace, ...] | None = None
    links: tuple[NetworkInterface, ...] | None = None
    rdma: tuple[RdmaLane, ...] | None = None
    devices_silent_for: float | None = None
    spent: float | None = None
    psutil: str | None = None
    devices_trouble: str | None = None
    kernel: KernelReading | None = None

    @property
    def gpu_memory(self) -> int | None:
        """Bytes of system memory that processes hold on the GPU side; None if the driver does not report all of them."""
        if self.gpus is None:
            return None
        memory = 0
        for gpu in self.gpus:
            for process in (gpu.processes or ()) if gpu.has_unified_memory else ():
                if process.memory is None:
                    return None
                memory += process.memory
            if gpu.processes is None:
                return None
        return memory

    @property
    def process_memory(self) -> int | None:
        """Bytes that all processes hold on the CPU side, counted by the kernel; None if it does not say."""
        if self.detail is None or self.detail.anonymous is None:
            return None
        return self.detail.anonymous + (self.detail.shared or 0)

    def get_container_memory(self, container: str) -> int | None:
        """Return the bytes a container's processes hold, CPU and GPU side together; None if a part is not known.

        A container without a listed process is also not known: it may have started after the list was made.
        """
        mine = [process for process in self.processes or () if process.container == container]
        if not mine or self.gpus is None or any(gpu.processes is None for gpu in self.gpus):
            return None
        on_gpu = {process.pid for gpu in self.gpus for process in gpu.processes or ()}
        memory = 0
        for one in mine:
            if one.resident is None or (one.gpu_memory is None and one.pid in on_gpu):
                return None
            memory += one.resident + (one.gpu_memory or 0)
        return memory


@dataclass(frozen=True, slots=True)
class SampleArrived:
    """An event: the agent's reading of a whole node. ``ts`` is the time of arrival, ``sample.time`` the node's clock.

    ``boot`` is the kernel's boot id: with another id, ``sample.uptime`` starts again.
    """

    ts: float
    node: NodeName
    sample: Sample
    boot: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBar:
    """A node's memory in four parts that add up to the total.

    ``page_cache`` is `MemoryReading.reclaimable`: available - free. ``gpu_processes`` is None if the driver does not
    say; then it is part of ``other_used``. That has two parts: ``processes``, what all processes hold on the CPU side,
    and ``unaccounted``, which no process holds: kernel, driver and leaks. None: not known.
    """

    total: int
    available: int
    gpu_processes: int | None
    other_used: int
    page_cache: int
    free: int
    swap_used: int
    processes: int | None = None
    unaccounted: int | None = None


@lru_cache(8)  # a paint asks for the same one several times
def build_memory_bar(memory: MemoryReading, gpu_memory: int | None, process_memory: int | None = None) -> MemoryBar:
    """Return the four parts: free memory, reclaimable memory, GPU processes, and the rest."""
    free = min(max(0, memory.free), memory.total)
    cache = memory.reclaimable
    used = memory.total - free - cache
    gpu_part = None if gpu_memory is None else min(max(0, gpu_memory), used)
    other = used - (gpu_part or 0)
    processes = None if process_memory is None else min(max(0, process_memory), other)
    unaccounted = None if processes is None or gpu_part is None else other - processes
    return MemoryBar(
        total=memory.total,
        available=memory.available,
        gpu_processes=gpu_part,
        other_used=other,
        page_cache=cache,
        free=free,
        swap_used=memory.swap_used,
        processes=processes,
        unaccounted=unaccounted,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryReading:
    """One reading.

    ``page_cache`` is Cached + Buffers + SReclaimable - Shmem: memory used for files, some of which cannot be freed now.
    Decisions use it; ``reclaimable`` is shown, because it adds up to the total with the other parts.

    ``used`` is MemTotal - MemAvailable, the figure that counts on a GB10, where NVML has none.
    """

    total: int
    available: int
    free: int
    page_cache: int
    swap_total: int
    swap_free: int

    @property
    def used(self) -> int:
        """Memory that an engine cannot get now: total - available."""
        return self.total - self.available

    @property
    def reclaimable(self) -> int:
        """What the kernel would free at once: available - free. Shown as the page cache."""
        return max(0, min(self.available, self.total) - min(max(0, self.free), self.total))

    @property
    def swap_used(self) -> int:
        return self.swap_total - self.swap_free


@dataclass(frozen=True, slots=True)
class MemoryBeforeStart:
    """A node's memory just before a start: MemAvailable, and what all processes held (None: not known)."""

    available: int
    held: int | None = None
