"""Health findings: pure detectors that get one snapshot of a node after another and return what is wrong."""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar

from sparkctl.model.finding import Finding
from sparkctl.model.instance import InstanceView
from sparkctl.model.kernel_event import KernelEvent
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import NodeName
from sparkctl.model.sample import Sample

_MAX_KEYS = 256
MAX_SAMPLE_GAP = 20.0  # seconds without a sample or a figure, after which the time between is not known


@dataclass(frozen=True, slots=True)
class NodeSnapshot:
    """A node at one sample. ``instances``: as of Docker's last answer, ours and running foreign ones; None: not known.

    ``kernel``: what its kernel logged in this boot.
    """

    node: NodeName
    sample: Sample
    instances: tuple[InstanceView, ...] | None = None
    kernel: tuple[KernelEvent, ...] = ()


def get_container_key(one: InstanceView) -> str:
    """Return what tells a container from an earlier one of its name, as far as it is known."""
    return one.container_id or one.container


@dataclass(frozen=True, slots=True)
class PersistentCondition:
    """A condition that has lasted long enough. ``since``: unix seconds, None if it held at the first snapshot already."""

    since: float | None


class ConditionTimer:
    """A condition by key that must hold for ``seconds`` before it counts.

    Unknown is no evidence: while it is not known, nothing is reported, and after `MAX_SAMPLE_GAP` the timer starts again.
    """

    def __init__(self, seconds: float = 0.0) -> None:
        self._seconds = seconds
        self._began: dict[Hashable, _ConditionStart] = {}
        self._judged: dict[Hashable, float] = {}

    def update_condition(self, key: Hashable, claim: bool | None, sample: Sample) -> PersistentCondition | None:
        """Update whether the condition holds now (None: not known); return it once it has lasted."""
        now, last = sample.uptime, self._judged.get(key)
        if last is not None and not 0 <= now - last <= MAX_SAMPLE_GAP:
            self._began.pop(key, None)
            last = None
        if claim is None:
            return None
        self._judged[key] = now
        if len(self._judged) > _MAX_KEYS:  # bounded: processes and containers come and go for months
            self._judged = {one: when for one, when in self._judged.items() if 0 <= now - when <= MAX_SAMPLE_GAP}
            self._began = {one: begun for one, begun in self._began.items() if one in self._judged}
        if not claim:
            self._began.pop(key, None)
            return None
        begun = self._began.setdefault(key, _ConditionStart(now, None if last is None else sample.time))
        return PersistentCondition(begun.since) if now - begun.uptime >= self._seconds else None

    def is_active(self, key: Hashable) -> bool:
        """Tell whether it held at its last update, lasting or not: for a threshold with hysteresis."""
        return key in self._began


@dataclass(frozen=True, slots=True)
class _ConditionStart:
    uptime: float
    since: float | None


class Detector:
    """Detects one kind of finding. It keeps what it needs of earlier snapshots, and uses only the samples' own times.

    ``seconds``: for how long its condition must hold; None: `SECONDS`.
    """

    SECONDS: ClassVar[float] = 0.0

    def __init__(self, seconds: float | None = None) -> None:
        self._lasting = ConditionTimer(self.SECONDS if seconds is None else seconds)

    def detect(self, snapshot: NodeSnapshot) -> list[Finding]:
        """Return the findings of this snapshot, given the earlier ones."""
        raise NotImplementedError
