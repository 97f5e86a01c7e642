"""Where a start is. One value, read by the live line, the panel's badge and ``status`` alike."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Phase(StrEnum):
    """planned → dropping-caches → creating → starting → loading → warming → ready | failed | stopping → stopped."""

    PLANNED = "planned"
    DROPPING_CACHES = "dropping-caches"
    CREATING = "creating"
    STARTING = "starting"
    LOADING = "loading"
    WARMING = "warming"
    READY = "ready"
    FAILED = "failed"
    STOPPING = "stopping"
    STOPPED = "stopped"
    UNKNOWN = "unknown"

    @property
    def order(self) -> int:
        """Order along a start; a phase is never left for one of a lower rank."""
        return _PHASE_ORDER.index(self)


_PHASE_ORDER = list(Phase)


@dataclass(frozen=True, slots=True)
class Step:
    """A named part of a phase with what is known of its progress: ``weights`` 12 of 18, ``graphs``, ``compile``."""

    name: str
    done: int | None = None
    total: int | None = None
    fraction: float | None = None  # 0..1


@dataclass(frozen=True, slots=True)
class PhaseDuration:
    """What a part of a start took or usually takes, in seconds: of a phase, or of the step of this name in it."""

    phase: Phase
    step: str | None
    seconds: float

    @property
    def part_key(self) -> tuple[Phase, str | None]:
        """Which part that is."""
        return self.phase, self.step


@dataclass(frozen=True, slots=True)
class ExpectedDurations:
    """What a start usually takes, in seconds, and its ``parts`` in their order; None and empty where that is not known."""

    seconds: float | None = None
    parts: tuple[PhaseDuration, ...] = ()
