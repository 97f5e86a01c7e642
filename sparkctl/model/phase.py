"""The phases and steps of a start. One value, read by the live line, the panel's badge and ``status`` alike."""

from __future__ import annotations

from enum import StrEnum

from sparkctl.model.lazy_dataclass import dataclass


class Phase(StrEnum):
    """planned → pulling → dropping-caches → creating → starting → loading → warming → ready | unproved | failed | stopping → stopped."""

    PLANNED = "planned"
    PULLING = "pulling"
    DROPPING_CACHES = "dropping-caches"
    CREATING = "creating"
    STARTING = "starting"
    LOADING = "loading"
    WARMING = "warming"
    UNPROVED = "unproved"  # it is up, and did not prove that it does its work
    READY = "ready"
    FAILED = "failed"
    STOPPING = "stopping"
    STOPPED = "stopped"
    UNKNOWN = "unknown"

    @property
    def order(self) -> int:
        """Position in a start; a start never goes back to a lower one."""
        return _PHASE_ORDER[self]


# Names of steps for people; --json keeps the identifiers.
STEP_NAMES = {
    "join": "joining",
    "http": "HTTP server",
    "draft": "draft model",
    "profiling": "measuring memory",
    "kv-cache": "KV cache",
    "graphs": "CUDA graphs",
    "warm-up": "warm-up request",
}
_PHASE_ORDER = {phase: place for place, phase in enumerate(Phase)}


@dataclass(frozen=True, slots=True)
class Step:
    """A named part of a phase with its progress, as far as known: ``weights`` 12 of 18, ``graphs``, ``compile``."""

    name: str
    done: int | None = None
    total: int | None = None
    fraction: float | None = None  # 0..1


@dataclass(frozen=True, slots=True)
class PhaseDuration:
    """How long a part of a start took, or usually takes, in seconds: a phase, or the step of this name in it."""

    phase: Phase
    step: str | None
    seconds: float

    @property
    def part_key(self) -> tuple[Phase, str | None]:
        return self.phase, self.step


@dataclass(frozen=True, slots=True)
class ExpectedDurations:
    """The usual length of a start in seconds, and of its ``parts`` in order; None and empty if not known."""

    seconds: float | None = None
    parts: tuple[PhaseDuration, ...] = ()
