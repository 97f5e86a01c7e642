"""What a detector is fed, and how it tells a lasting condition from a passing one."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Protocol

from sparkctl.model.finding import Finding
from sparkctl.model.instance import InstanceView
from sparkctl.model.node import NodeName
from sparkctl.model.sample import Sample

_MAX_KEYS = 256
MAX_SAMPLE_GAP = (
    20.0  # seconds between two samples, or without the figures, after which nothing is known of what was between
)


@dataclass(frozen=True, slots=True)
class NodeSnapshot:
    """A node at one sample. ``instances`` are as of Docker's last answer, ours and what lives of others; None: not known."""

    node: NodeName
    sample: Sample
    instances: tuple[InstanceView, ...] | None = None


class Detector(Protocol):
    """One kind of trouble. It keeps what it needs of earlier sights, and knows no time but the samples' own."""

    def detect(self, sight: NodeSnapshot) -> list[Finding]:
        """Return what this sight shows, together with those before it."""
        ...


@dataclass(frozen=True, slots=True)
class PersistentCondition:
    """A condition that has lasted long enough. ``since``: unix seconds, None where it held at the first sight."""

    since: float | None


class ConditionTimer:
    """A condition by key that must hold for ``seconds`` before it counts.

    Unknown is no evidence: what cannot be judged now is not told, and after `MAX_SAMPLE_GAP` without a judgement it begins anew.
    """

    def __init__(self, seconds: float = 0.0) -> None:
        self._seconds = seconds
        self._began: dict[Hashable, _ConditionStart] = {}
        self._judged: dict[Hashable, float] = {}

    def update_condition(self, key: Hashable, claim: bool | None, sample: Sample) -> PersistentCondition | None:
        """Take in whether it holds now (None: not known); return it once it has lasted."""
        now, last = sample.uptime, self._judged.get(key)
        if last is not None and not 0 <= now - last <= MAX_SAMPLE_GAP:
            self._began.pop(key, None)
            last = None
        if claim is None:
            return None
        self._judged[key] = now
        if len(self._judged) > _MAX_KEYS:  # processes and containers come and go for months
            self._judged = {one: when for one, when in self._judged.items() if 0 <= now - when <= MAX_SAMPLE_GAP}
            self._began = {one: begun for one, begun in self._began.items() if one in self._judged}
        if not claim:
            self._began.pop(key, None)
            return None
        begun = self._began.setdefault(key, _ConditionStart(now, None if last is None else sample.time))
        return PersistentCondition(begun.since) if now - begun.uptime >= self._seconds else None

    def is_active(self, key: Hashable) -> bool:
        """Tell whether it held at its last judgement, lasting or not: for a threshold with hysteresis."""
        return key in self._began


@dataclass(frozen=True, slots=True)
class _ConditionStart:
    uptime: float
    since: float | None
