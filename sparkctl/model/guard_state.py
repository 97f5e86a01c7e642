"""The guard of a node's memory as it tells of itself. Bytes, seconds, unix times; None is "not known"."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sparkctl.model.text.units import MIB

DEFAULT_FLOOR_BYTES = 512 * MIB  # of MemAvailable: a good configuration may live near 1 GiB


LEASE_EXPIRED_PREFIX = "its time limit"  # how the guard's reason for an ended watch begins where its time was over


class GuardRole(StrEnum):
    """What a watched instance does. One that loads is ended before one that serves."""

    LOADING = "loading"
    SERVING = "serving"


class GuardAlertLevel(StrEnum):
    """How a watch stands."""

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
    """What is known of a node's guard."""

    RUNS = "runs"
    NONE = "none"
    SILENT = "silent"  # a guard runs, and does not answer


class GuardCoverage(StrEnum):
    """How a start was guarded, as far as is known at its end."""

    FULL = "guarded"
    PARTLY = "partly"  # for part of the start it did not answer, or another guard took its place
    NONE = "unguarded"
    OFF = "off"  # the profile or --no-guard turned it off


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardEvent:
    """One act. ``why`` is a sentence; ``rate`` is how fast memory fell (bytes/s) and ``to_zero`` the seconds left at it,
    both None while it did not fall."""

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
    """The node's memory at a moment."""

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
    """One watched container. ``container`` is its whole id, ``floor`` bytes of MemAvailable, ``limit`` seconds.

    ``port`` and ``health``: asked on the node for readiness while nobody is attached, None = not. ``cache_below``: bytes
    of MemFree under which page cache is dropped while weights load, None = the guard's default. ``ends`` is when the limit
    is reached, ``weights`` whether the lease to drop page cache holds now.
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
    """What the guard says of itself. ``locked``: its memory cannot be swapped out; ``docker``: whether Docker answered
    last, None before it was asked; ``receipts``: ids (12 characters) of containers that it ended and has a receipt of."""

    since: float
    pid: int
    available: int | None = None
    free: int | None = None
    page_cache: int | None = None
    swap_free: int | None = None
    rights: GuardPermissions = GuardPermissions()
    locked: bool | None = None
    docker: bool | None = None
    watches: tuple[GuardWatch, ...] = ()
    events: tuple[GuardEvent, ...] = ()
    receipts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardReceipt:
    """What the guard left of an ended container.

    ``reaction`` is the seconds from the moment at which MemAvailable crossed the floor (between two readings:
    interpolated) to the request to kill being sent; where it acted before the floor, from the reading that decided.
    ``answer`` is Docker's HTTP status, None without one. ``samples`` run from before the act until after it.
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
    """The guard that runs on a node now. ``already``: it did before we came."""

    socket: str
    pid: int | None = None
    already: bool = False


@dataclass(frozen=True, slots=True)
class GuardRefusal:
    """What the guard will not do, in its own sentence: a start, or one command."""

    what: str
