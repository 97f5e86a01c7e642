"""Detects what is wrong with a Spark itself: a GPU whose clock is stuck low, thermal throttling, a busy wait that looks like work; full
disks, orphan GPU processes, growing swap, page cache that blocks a loading engine, and what the kernel logged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import pairwise

from sparkctl.errors import FREE_DOCKER_DISK
from sparkctl.model.container import shorten_id
from sparkctl.model.engine_metrics import EngineActivity
from sparkctl.model.finding import Finding, FindingEvidence, FindingKind, Severity
from sparkctl.model.instance import InstanceView
from sparkctl.model.kernel_event import BootEnd, KernelEvent, KernelEventKind
from sparkctl.model.node import NodeName
from sparkctl.model.phase import Phase
from sparkctl.model.sample import DiskSpace, Gpu, GpuEvents, NodeProcess, Sample
from sparkctl.model.text.units import GIB, MIB, format_date_time, format_duration, format_gib
from sparkctl.monitor.findings import MAX_SAMPLE_GAP, ConditionTimer, Detector, NodeSnapshot, PersistentCondition

_IDLE_REASON_BIT = 0x1
THERMAL_REASONS = {0x20: "thermal (software)", 0x40: "thermal (hardware)"}
_STUCK_CLOCK_REMEDY = (
    "shut it down, unplug the adapter from the wall AND from the Spark for a minute, use the original 240 W adapter; "
    "a reboot does not help. Then: sudo fwupdmgr refresh --force && fwupdmgr get-upgrades"
)


class StuckClockDetector(Detector):
    """The GPU is stuck at 500-850 MHz and under 35 W, cool and without a reason (799 MHz, 19.5 W; healthy: 2281 MHz, 92.5 W).

    All of: SM clock below 45 % of its maximum (until 55 % once it is), utilisation at least 50 %, power under 35 W,
    below 80 degrees, no event reason but idle; for 20 s, because short kernels leave a stale clock behind. Thresholds:
    sparktop's detector, built on NVIDIA's forum reports 376039, 361294 and 366590.
    """

    LOW, HIGH = 0.45, 0.55
    BUSY, POWER, CELSIUS, SECONDS = 0.5, 35.0, 80.0, 20.0

    def detect(self, snapshot: NodeSnapshot) -> list[Finding]:
        found = []
        for gpu in snapshot.sample.gpus or ():
            standing = self._lasting.update_condition(gpu.index, self._is_stuck(gpu), snapshot.sample)
            if standing is not None:
                found.append(self._build_stuck_clock_finding(snapshot, gpu, standing))
        return found

    def _is_stuck(self, gpu: Gpu) -> bool | None:
        clock, highest, busy, power, celsius = gpu.sm_clock, gpu.sm_clock_max, gpu.busy, gpu.power, gpu.celsius
        if clock is None or not highest or busy is None or power is None or celsius is None or gpu.reasons is None:
            return None
        limit = self.HIGH if self._lasting.is_active(gpu.index) else self.LOW
        cool_and_weak = power < self.POWER and celsius < self.CELSIUS and not gpu.reasons & ~_IDLE_REASON_BIT
        return clock < limit * highest and busy >= self.BUSY and cool_and_weak

    def _build_stuck_clock_finding(self, snapshot: NodeSnapshot, gpu: Gpu, standing: PersistentCondition) -> Finding:
        summary = (
            f"the GPU is stuck at {gpu.sm_clock} of {gpu.sm_clock_max} MHz although it is busy, cool and not held back"
        )
        evidence = (*build_gpu_evidence(gpu), FindingEvidence("event reasons", "none", None, "nvml"))
        return Finding(
            FindingKind.STUCK_CLOCK,
            Severity.PROBLEM,
            snapshot.node,
            summary,
            remedy=_STUCK_CLOCK_REMEDY,
            evidence=evidence,
            since=standing.since,
        )


class ThermalDetector(Detector):
    """Thermal throttling: a thermal reason bit, and its counter grew within the last 30 s (it is read every 10 s).

    Without counters in the driver, the bit alone counts, after 10 s; with ``seconds`` 0 it counts at the first look.
    Throttling begins at 91-92 degrees.
    """

    RECENT, SECONDS = 30.0, 10.0

    def __init__(self, seconds: float = SECONDS) -> None:
        self._begun = ConditionTimer()
        self._bit = ConditionTimer(seconds)
        self._needs_growth = seconds > 0
        self._counts: dict[int, int] = {}
        self._grew: dict[int, float] = {}

    def detect(self, snapshot: NodeSnapshot) -> list[Finding]:
        """Return one finding for each GPU that heat slows down."""
        found = []
        for gpu in snapshot.sample.gpus or ():
            grew = self._has_grown_recently(gpu, snapshot.sample)
            claim = None if gpu.reasons is None else bool(gpu.reasons & sum(THERMAL_REASONS))
            bit = self._bit.update_condition(gpu.index, claim, snapshot.sample)
            # heat before the first sample has no known beginning
            standing = self._begun.update_condition(gpu.index, claim, snapshot.sample)
            if standing is not None and (grew if grew is not None and self._needs_growth else bit is not None):
                found.append(self._build_thermal_finding(snapshot, gpu, standing))
        return found

    def _has_grown_recently(self, gpu: Gpu, sample: Sample) -> bool | None:
        count = _sum_thermal_counters(gpu.events)
        if count is None:
            return None
        before = self._counts.get(gpu.index)
        self._counts[gpu.index] = count
        if before is not None and count > before:
            self._grew[gpu.index] = sample.uptime
        return 0 <= sample.uptime - self._grew.get(gpu.index, float("-inf")) <= self.RECENT

    def _build_thermal_finding(self, snapshot: NodeSnapshot, gpu: Gpu, standing: PersistentCondition) -> Finding:
        reasons = ", ".join(name for bit, name in THERMAL_REASONS.items() if (gpu.reasons or 0) & bit)
        evidence = [*build_gpu_evidence(gpu), FindingEvidence("event reasons", reasons, None, "nvml")]
        if (count := _sum_thermal_counters(gpu.events)) is not None:
            evidence.append(FindingEvidence("slowed by heat so far", format_duration(count / 1e9), None, "nvml"))
        return Finding(
            FindingKind.THERMAL,
            Severity.WARNING,
            snapshot.node,
            "heat slows the GPU down" + ("" if gpu.celsius is None else f" at {gpu.celsius:.0f} °C"),
            remedy="give it air on all sides; a lower top clock costs little decode speed: sudo nvidia-smi -lgc 0,2100   "
            "(undo: sudo nvidia-smi -rgc)",
            evidence=tuple(evidence),
            since=standing.since,
        )


def _sum_thermal_counters(events: GpuEvents | None) -> int | None:
    known = [] if events is None else [one for one in (events.sw_thermal, events.hw_thermal) if one is not None]
    return sum(known) if known else None


class BusyWaitDetector(Detector):
    """Busy wait: a normal clock and full utilisation at the power of an idle machine (96 % at 18 W).

    All of: SM clock at least 70 % of its maximum (2300-2450 of 3003 MHz), utilisation at least 90 %, power under 30 W
    (real work takes 46-93 W), and no engine on the node known to produce tokens; for 60 s, because one rank of two
    may wait for the other for seconds.
    """

    CLOCK, BUSY, POWER, SECONDS = 0.70, 0.90, 30.0, 60.0

    def detect(self, snapshot: NodeSnapshot) -> list[Finding]:
        numbers = [one.numbers for one in snapshot.instances or () if one.numbers is not None]
        working = any(one.activity in (EngineActivity.DECODING, EngineActivity.PREFILL) for one in numbers)
        found = []
        for gpu in snapshot.sample.gpus or ():
            claim = self._is_spinning(gpu)
            standing = self._lasting.update_condition(gpu.index, claim and not working, snapshot.sample)
            if standing is not None:
                found.append(self._build_busy_wait_finding(snapshot, gpu, standing))
        return found

    def _is_spinning(self, gpu: Gpu) -> bool | None:
        clock, highest, busy, power = gpu.sm_clock, gpu.sm_clock_max, gpu.busy, gpu.power
        if clock is None or not highest or busy is None or power is None:
            return None
        return clock >= self.CLOCK * highest and busy >= self.BUSY and power < self.POWER

    def _build_busy_wait_finding(self, snapshot: NodeSnapshot, gpu: Gpu, standing: PersistentCondition) -> Finding:
        power = f"{gpu.power:.0f} W" if gpu.power is not None else ""
        return Finding(
            FindingKind.BUSY_WAIT,
            Severity.WARNING,
            snapshot.node,
            f"the GPU is fully busy at only {power}: something waits in a loop, perhaps for the other Spark, or hangs",
            remedy="see the engine's log on both nodes (sparkctl logs NAME -f); if no token comes: sparkctl down NAME, up again",
            evidence=build_gpu_evidence(gpu),
            since=standing.since,
        )


def build_gpu_evidence(gpu: Gpu) -> tuple[FindingEvidence, ...]:
    """Return the known figures of the GPU's reading."""
    readings = (
        ("SM clock", None if gpu.sm_clock is None else f"{gpu.sm_clock}", "MHz"),
        ("of at most", None if gpu.sm_clock_max is None else f"{gpu.sm_clock_max}", "MHz"),
        ("utilisation", None if gpu.busy is None else f"{gpu.busy * 100:.0f}", "%"),
        ("power", None if gpu.power is None else f"{gpu.power:.1f}", "W"),
        ("temperature", None if gpu.celsius is None else f"{gpu.celsius:.0f}", "°C"),
    )
    return tuple(FindingEvidence(name, value, unit, "nvml") for name, value, unit in readings if value is not None)


_LOW_DISK_BYTES, _FULL_DISK_BYTES = 20 * GIB, 5 * GIB


def rate_free_disk(free: int) -> Severity | None:
    """Return the severity of ``free`` bytes: under 20 GiB an engine image no longer fits, under 5 GiB logs do not either."""
    if free >= _LOW_DISK_BYTES:
        return None
    return Severity.PROBLEM if free < _FULL_DISK_BYTES else Severity.WARNING


class DiskSpaceDetector(Detector):
    """Little disk space for Docker or models, see `rate_free_disk`.

    Two paths on one filesystem (same size, same free space) are one finding.
    """

    def detect(self, snapshot: NodeSnapshot) -> list[Finding]:
        rooms: dict[tuple[int | None, int | None], list[DiskSpace]] = {}
        for disk in snapshot.sample.disks or ():
            rooms.setdefault((disk.total, disk.free), []).append(disk)
        found = []
        for (total, free), disks in rooms.items():
            severity = None if free is None else rate_free_disk(free)
            claim = None if free is None else severity is not None
            standing = self._lasting.update_condition(disks[0].path, claim, snapshot.sample)
            if standing is None or severity is None:
                continue
            paths = " and ".join(disk.path for disk in disks)
            found.append(
                Finding(
                    FindingKind.DISK,
                    severity,
                    snapshot.node,
                    f"only {format_gib(free)} of {format_gib(total)} free for {paths}",
                    remedy=f"{FREE_DOCKER_DISK}   (and models that are no longer used)",
                    evidence=(
                        FindingEvidence("free", format_gib(free), None, "statvfs"),
                        FindingEvidence("of", format_gib(total), None, "statvfs"),
                    ),
                    since=standing.since,
                )
            )
        return found


_USER_SYSTEMD_NAME, _DESKTOP_UNIT_PREFIX = "systemd", "app-"


class OrphanProcessDetector(Detector):
    """A process without an owner that holds 1 GiB or more of GPU memory; for 30 s.

    Either its parent has gone (it is process 1's, or that of a user's own systemd) and it is in no container and no
    systemd service, or it is in a container that Docker listed alive before and no longer does. The real one was a
    VLLM::EngineCore with 104,277 MiB. 30 s, because the driver takes seconds to give memory back after a stop.

    Only certain cases count: a desktop's processes are its systemd's children from the beginning, and in a running container,
    a worker whose engine has ended looks like any other child of the container's first process.
    """

    LEAST, SECONDS = GIB, 30.0

    def __init__(self, seconds: float | None = None) -> None:
        super().__init__(seconds)
        self._seen: set[str] = set()

    def detect(self, snapshot: NodeSnapshot) -> list[Finding]:
        alive = [one.container_id for one in snapshot.instances or () if one.is_alive]
        listed = None if snapshot.instances is None else {one for one in alive if one is not None}
        living = {process.container for process in snapshot.sample.processes or () if process.container is not None}
        self._seen = (self._seen & living) | (listed or set())
        found = []
        for process in snapshot.sample.processes or ():
            gpu_memory = process.gpu_memory
            claim = None if gpu_memory is None else self._is_orphan(process, listed)
            standing = self._lasting.update_condition(
                process.pid, claim and (gpu_memory or 0) >= self.LEAST, snapshot.sample
            )
            if standing is None or gpu_memory is None:
                continue
            name = process.name or "a process"
            why = "its container is gone" if process.container else "its parent is gone"
            evidence = [
                FindingEvidence("GPU memory", format_gib(gpu_memory), None, "nvml"),
                FindingEvidence("pid", str(process.pid), None, "proc"),
                FindingEvidence("parent", str(process.parent), None, "proc"),
                FindingEvidence(
                    "container", shorten_id(process.container) if process.container else "none", None, "cgroup"
                ),
            ]
            found.append(
                Finding(
                    FindingKind.ORPHAN,
                    Severity.WARNING,
                    snapshot.node,
                    f"{name} (pid {process.pid}) holds {format_gib(gpu_memory)} but nothing manages it: {why}",
                    remedy=f"if you do not know it: sudo kill {process.pid}   (kill -9 if it stays)",
                    evidence=tuple(evidence),
                    since=standing.since,
                )
            )
        return found

    def _is_orphan(self, process: NodeProcess, listed: set[str] | None) -> bool | None:
        if process.container is None:
            if process.parent is None or process.unit is None:
                return None
            adopted = process.parent == 1 or (
                process.parent_name == _USER_SYSTEMD_NAME and not process.unit.startswith(_DESKTOP_UNIT_PREFIX)
            )
            return adopted and not process.unit.endswith(".service")
        if listed is None:
            return None
        return process.container not in listed and process.container in self._seen


_STARTING_PHASES = (Phase.STARTING, Phase.LOADING, Phase.WARMING)


class SwapGrowthDetector(Detector):
    """Used swap grew in each quarter of the last minute, by at least 16 MiB: it does not settle.

    A load that moves idle pages to swap once is normal, and its burst is shorter. With swap on, free swap warns before the
    freeze: under a quarter left, it is a problem.
    """

    WINDOW, QUARTERS, STEP, LITTLE = 60.0, 4, 16 * MIB, 0.25

    def __init__(self) -> None:
        super().__init__()
        self._seen: deque[tuple[float, int]] = deque()

    def detect(self, snapshot: NodeSnapshot) -> list[Finding]:
        memory = snapshot.sample.memory
        grew = self._compute_swap_growth(snapshot)
        standing = self._lasting.update_condition(
            "swap", None if grew is None else all(g >= self.STEP for g in grew), snapshot.sample
        )
        if standing is None or memory is None or grew is None:
            return []
        scarce = memory.swap_free < self.LITTLE * memory.swap_total
        evidence = (
            FindingEvidence("swap used", format_gib(memory.swap_used), None, "meminfo"),
            FindingEvidence("grew", f"{sum(grew) / MIB:.0f}", "MiB in a minute", "meminfo"),
            FindingEvidence("swap free", format_gib(memory.swap_free), None, "meminfo"),
            FindingEvidence("available", format_gib(memory.available), None, "meminfo"),
        )
        return [
            Finding(
                FindingKind.SWAP,
                Severity.PROBLEM if scarce else Severity.WARNING,
                snapshot.node,
                f"swap keeps growing, {format_gib(memory.swap_used)} by now: memory is short, and the Spark freezes when swap is full",
                remedy="stop what is not needed (sparkctl down NAME), or give the engine less: a smaller "
                "mem-fraction-static / gpu-memory-utilization or context",
                evidence=evidence,
                since=standing.since,
            )
        ]

    def _compute_swap_growth(self, snapshot: NodeSnapshot) -> list[int] | None:
        """Return the growth in each quarter of the window, None until the window is complete."""
        memory, now = snapshot.sample.memory, snapshot.sample.uptime
        if memory is None:
            return None
        if self._seen and not 0 <= now - self._seen[-1][0] <= MAX_SAMPLE_GAP:
            self._seen.clear()
        self._seen.append((now, memory.swap_used))
        while len(self._seen) > 1 and self._seen[1][0] <= now - self.WINDOW:
            self._seen.popleft()
        if now - self._seen[0][0] < self.WINDOW:
            return None
        marks = [now - self.WINDOW * quarter / self.QUARTERS for quarter in range(self.QUARTERS, -1, -1)]
        used = [next(size for when, size in reversed(self._seen) if when <= mark) for mark in marks]
        return [after - before for before, after in pairwise(used)]


class PageCacheDetector(Detector):
    """An engine loads while less than 8 GiB are free and more than 8 GiB of page cache could be given back; for 10 s.

    CUDA reports MemFree as free memory (2.77 GiB with 52 GiB available), not MemAvailable. Below 8 GiB free, dropping the
    page cache during a load is known to help.
    """

    MARK, SECONDS = 8 * GIB, 10.0

    def detect(self, snapshot: NodeSnapshot) -> list[Finding]:
        memory = snapshot.sample.memory
        if memory is None or snapshot.instances is None:
            return []
        cache = memory.available - memory.free
        found = []
        for one in snapshot.instances:
            if not one.ours or one.phase not in _STARTING_PHASES:
                self._lasting.update_condition(one.name, False, snapshot.sample)
                continue
            short = memory.free < self.MARK < cache
            standing = self._lasting.update_condition(one.name, short, snapshot.sample)
            if standing is not None:
                evidence = (
                    FindingEvidence("free", format_gib(memory.free), None, "meminfo"),
                    FindingEvidence("page cache", format_gib(cache), None, "meminfo"),
                    FindingEvidence("available", format_gib(memory.available), None, "meminfo"),
                )
                summary = f"page cache takes the memory that {one.name} needs: {format_gib(memory.free)} free, {format_gib(cache)} of cache"
                remedy = f"sparkctl drop-caches --node {snapshot.node}"
                found.append(
                    Finding(
                        FindingKind.PAGE_CACHE,
                        Severity.WARNING,
                        snapshot.node,
                        summary,
                        remedy=remedy,
                        instance=one.name,
                        evidence=evidence,
                        since=standing.since,
                    )
                )
        return found


_HOUR = 3600.0
_FRESH_BOOT_SECONDS = 24 * _HOUR  # after that an unclean end is old news
_FOLLOWING_KINDS = (KernelEventKind.HUNG_TASK, KernelEventKind.KERNEL_FAULT)
_BEFORE_END_SECONDS = 600.0  # an event so long before the end may have caused it


def is_current(event: KernelEvent, now: float) -> bool:
    """Tell whether an event still matters: for some hours, or until the next boot."""
    return event.hours is None or now - event.last <= event.hours * _HOUR


def rate_kernel_line(severity: Severity, hours: float | None) -> Severity:
    """Return how serious a line of the kernel is that matters for ``hours``, None: until a restart. What needs a restart is a
    problem; what is over is a warning."""
    return Severity.WARNING if severity is Severity.PROBLEM and hours is not None else severity


def rate_kernel_events(events: Sequence[KernelEvent]) -> Severity:
    """Return how serious events of one kind are."""
    rated = {rate_kernel_line(one.severity, one.hours) for one in events}
    most = next((one for one in (Severity.PROBLEM, Severity.WARNING) if one in rated), Severity.NOTE)
    many = events[-1].many
    if many is None or sum(one.count for one in events) < many:
        return most
    return Severity.WARNING if most is Severity.NOTE else Severity.PROBLEM


class KernelEventDetector(Detector):
    """One finding for each kind of event and container. A note becomes a finding only when there are many."""

    def detect(self, snapshot: NodeSnapshot) -> list[Finding]:
        groups: dict[tuple[KernelEventKind, str | None, str], list[KernelEvent]] = {}
        for event in snapshot.kernel:
            if is_current(event, snapshot.sample.time):
                groups.setdefault((event.kind, event.container, event.meaning), []).append(event)
        found = [_build_finding(snapshot, events) for events in groups.values()]
        return [one for one in found if one.severity is not Severity.NOTE]


def _build_finding(snapshot: NodeSnapshot, events: Sequence[KernelEvent]) -> Finding:
    last, count = events[-1], sum(one.count for one in events)
    instance = find_instance_name(last.container, snapshot.instances or ())
    whose = "" if last.container is None else f" (of {instance or 'container ' + shorten_id(last.container)})"
    return Finding(
        FindingKind.KERNEL,
        rate_kernel_events(events),
        snapshot.node,
        last.meaning + whose + (f", {count} times" if count > 1 else ""),
        remedy=last.remedy or None,
        instance=instance,
        evidence=(
            FindingEvidence("kernel", last.text, None, "kernel log"),
            FindingEvidence("last", format_date_time(last.last, has_seconds=True), None, "kernel log"),
            FindingEvidence("source", last.source, None, "known lines"),
        ),
        since=events[0].at,
    )


def find_instance_name(container: str | None, instances: Sequence[InstanceView]) -> str | None:
    """Return the name of the instance in a container, None if it is not known."""
    return next((one.name for one in instances if container is not None and one.container_id == container), None)


def list_unclean_boot(node: NodeName, end: BootEnd | None, uptime: float) -> list[Finding]:
    """Return a finding where the previous boot ended without a shutdown: the power failed, somebody held the button, or the
    machine froze. ``uptime``: seconds of this boot.
    """
    if end is None or end.is_clean is not False:
        return []
    late = [one for one in end.events if end.ended is None or end.ended - one.last <= _BEFORE_END_SECONDS]
    late = [one for one in late if one.severity is not Severity.NOTE or one.kind is KernelEventKind.DRIVER_MEMORY]
    # what hangs, and crashes, mostly follows from something else
    before = [one for one in late if one.kind not in _FOLLOWING_KINDS] or late
    remedy = before[-1].remedy if before else ""
    if remedy and before[-1].hours is None:
        remedy = f"it was restarted since; if it happens again: {remedy}"
    when = "" if end.ended is None else f" at {format_date_time(end.ended, has_seconds=True)}"
    cause = f"; before that {before[-1].meaning}" if before else "; the kernel's log does not say why"
    last = before[-1].text if before else end.last[-1] if end.last else None
    return [
        Finding(
            FindingKind.LAST_BOOT,
            Severity.WARNING if uptime <= _FRESH_BOOT_SECONDS else Severity.NOTE,
            node,
            f"the previous boot ended without a shutdown{when}{cause}",
            remedy=remedy
            or "a power cut, heat, or a freeze when memory ran out can cause it: check the temperatures (sparkctl top), and leave more memory free",
            evidence=() if last is None else (FindingEvidence("last line", last, None, "journal"),),
            since=end.ended,
        )
    ]
