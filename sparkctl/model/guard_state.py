"""The state that the memory guard of a node reports. Bytes, seconds, unix times; None is "not known"."""

from __future__ import annotations

from enum import StrEnum

from sparkctl.model.lazy_dataclass import dataclass

LEASE_EXPIRED_PREFIX = "its time limit"  # the guard's reason begins so when a watch ends because its time is over


class GuardRole(StrEnum):
    """What a watched instance does. A loading one is killed before a serving one."""

    LOADING = "loading"
    SERVING = "serving"


class GuardAlertLevel(StrEnum):
    """How near a watch is to its floor."""

    CALM = "calm"
    WARNED = "warned"


class GuardAction(StrEnum):
    """What the guard did, or could not do."""

    WARNED = "warned"
    DROPPED = "dropped"
    COMPACTED = "compacted"
    DROP_FAILED = "drop-failed"
    KILLED = "killed"
    KILL_FAILED = "kill-failed"
    ENDED = "ended"


class UnwatchReason(StrEnum):
    """Why the operator's side ends a watch."""

    READY = "ready"
    STOPPED = "stopped"
    DISARMED = "disarmed"


class GuardRunState(StrEnum):
    """Whether a node's guard runs."""

    RUNS = "runs"
    NONE = "none"
    SILENT = "silent"  # a guard runs but does not answer


class GuardCoverage(StrEnum):
    """How a start was guarded, as known at its end."""

    FULL = "guarded"
    PARTLY = "partly"  # for part of the start it did not answer, or another guard replaced it
    NONE = "unguarded"
    OFF = "off"  # the profile or --no-guard turned it off


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardEvent:
    """One action of the guard. ``why`` is a sentence; ``rate`` is how fast memory fell (bytes/s), ``to_zero`` the
    seconds until none would have been left; both None if it did not fall.
    """

    at: float
    what: GuardAction
    why: str
    container: str | None = None
    instance: str | None = None
    available: int | None = None
    free: int | None = None
    rate: float | None = None
    to_zero: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardMemoryReading:
    """The node's memory at one moment."""

    at: float
    available: int
    free: int
    page_cache: int
    swap_free: int


@dataclass(frozen=True, slots=True)
class GuardPermissions:
    """Whether this user may drop the page cache, and compact memory, without a password."""

    drop: bool | None = None
    compact: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardWatch:
    """One watched container. ``container`` is its full id, ``floor`` bytes of MemAvailable, ``limit`` seconds.

    ``port`` and ``health``: where the guard asks for readiness while no client is connected, None = it does not ask.
    ``cache_below``: it drops the page cache below this many bytes of MemFree while weights load, None = its default.
    ``ends``: when the limit is reached. ``weights``: whether it may drop the page cache now.
    """

    container: str
    instance: str
    floor: int
    since: float
    ends: float
    role: GuardRole | None = None
    profile: str | None = None
    operator: str | None = None
    limit: float | None = None
    port: int | None = None
    health: str | None = None
    cache_below: int | None = None
    weights: bool | None = None
    level: GuardAlertLevel | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardState:
    """What the guard reports about itself.

    ``locked``: its memory cannot be swapped out. ``docker``: whether Docker answered last, None before the first
    request. ``log_trouble``: why it cannot read the kernel's log, in which refusals of the GPU's
    driver are. ``receipts``: ids (12 characters) of containers that it killed and has a receipt for.
    """

    since: float
    pid: int
    available: int | None = None
    free: int | None = None
    page_cache: int | None = None
    swap_free: int | None = None
    rights: GuardPermissions = GuardPermissions()
    locked: bool | None = None
    log_trouble: str | None = None
    docker: bool | None = None
    watches: tuple[GuardWatch, ...] = ()
    events: tuple[GuardEvent, ...] = ()
    receipts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardReceipt:
    """The guard's record of a container that it killed.

    ``reaction``: seconds from the moment MemAvailable crossed the floor (interpolated between two readings) until the
    kill request was sent; if it acted above the floor, from the reading that decided. ``answer``: Docker's HTTP status,
    None without one. ``samples`` reach from before the kill until after it.
    """

    container: str
    at: float
    did: GuardAction
    why: str
    available: int
    floor: int
    instance: str | None = None
    profile: str | None = None
    operator: str | None = None
    role: GuardRole | None = None
    rate: float | None = None
    to_zero: float | None = None
    reaction: float | None = None
    answer: int | None = None
    samples: tuple[GuardMemoryReading, ...] = ()
    events: tuple[GuardEvent, ...] = ()


@dataclass(frozen=True, slots=True)
class GuardProcess:
    """The guard process on a node. ``already``: it ran before this start."""

    socket: str
    pid: int | None = None
    already: bool = False


@dataclass(frozen=True, slots=True)
class GuardRefusal:
    """What the guard refuses, in its own words: to start, or one command."""

    what: str
