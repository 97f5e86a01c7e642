"""What the kernel of a node logged: the lines that the agent sends, and the events that they mean."""

from __future__ import annotations

from enum import StrEnum

from sparkctl.model.finding import Severity
from sparkctl.model.lazy_dataclass import dataclass


class KernelEventKind(StrEnum):
    """What an event is about: a closed set. Its values are in kernel_events.json."""

    OOM_KILL = "oom-kill"
    XID = "xid"
    GPU_LOST = "gpu-lost"
    DRIVER_MEMORY = "driver-memory"
    PCIE = "pcie"
    NETWORK_CARD = "network-card"
    FABRIC_LINK = "fabric-link"
    RDMA_MEMORY = "rdma-memory"
    THERMAL = "thermal"
    DISK = "disk"
    FILESYSTEM = "filesystem"
    WIFI = "wifi"
    HUNG_TASK = "hung-task"
    KERNEL_FAULT = "kernel-fault"
    HARDWARE = "hardware"
    PROGRAM_CRASH = "program-crash"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLine:
    """A line of the kernel's log. ``at``, ``last``: seconds since boot of the first and the last of ``count`` lines that
    differ in figures alone. ``container``: of the process that it names. ``devices``: the PCI devices that it names, each as
    address, class and driver: ``0000:01:00.0 0x020000 mlx5_core``.
    """

    at: float
    text: str
    last: float | None = None
    count: int | None = None
    container: str | None = None
    devices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelReading:
    """The new lines that matter. ``source``: kmsg, journal or dmesg; None: it cannot be read, ``trouble`` says why.

    ``oldest``: seconds since boot of the first line that was still there. ``skipped``: lines of a flood, of
    which the worst alone were kept.
    """

    source: str | None = None
    trouble: str | None = None
    oldest: float | None = None
    skipped: int | None = None
    lines: tuple[KernelLine, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelEvent:
    """An event of the kernel. ``at``, ``last``: unix seconds by the node's clock; ``hours``: how long it matters, None: until
    the next boot. ``many``: a note becomes a warning, and a warning a problem, from so many in that time on, None: never.

    ``ends_programs``: whether it ends the programs that it hits; ``is_evidence``: whether it may end or starve one at all.
    """

    kind: KernelEventKind
    severity: Severity
    at: float
    last: float
    text: str
    meaning: str
    remedy: str
    source: str
    hours: float | None
    many: int | None
    count: int
    container: str | None
    process: str | None
    pid: int | None
    xid: int | None
    ends_programs: bool
    is_evidence: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class BootEnd:
    """How the boot before ended. ``is_clean`` None: not known, ``trouble`` says why. ``ended``: unix seconds of its last line."""

    is_clean: bool | None = None
    trouble: str | None = None
    ended: float | None = None
    last: tuple[str, ...] = ()
    events: tuple[KernelEvent, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLog:
    """The kernel's log as it was read once, ``now``. ``oldest``: from when on it is complete; ``booted``: when this boot began.
    All in unix seconds by the node's clock.
    """

    now: float
    events: tuple[KernelEvent, ...] = ()
    source: str | None = None
    trouble: str | None = None
    oldest: float | None = None
    booted: float | None = None
    skipped: int = 0
    kernel: str | None = None
    boot_before: BootEnd | None = None
