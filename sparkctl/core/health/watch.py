"""All detectors of a node, and of the nodes together."""

from __future__ import annotations

from collections.abc import Sequence

from sparkctl.core.health.containers import RestartLoop
from sparkctl.core.health.fabric import IdleFunction, NoRoute, no_common_network
from sparkctl.core.health.gpu import BusyWait, StuckClock, Thermal
from sparkctl.core.health.machine import FullDisk, Orphan
from sparkctl.core.health.memory import PageCacheStarving, SwapGrowing
from sparkctl.core.health.nccl import WrongGid, rdma_off
from sparkctl.core.health.partner import left_alone
from sparkctl.core.health.sight import Detector, Sight
from sparkctl.model.finding import Finding, worst_first


class NodeHealth:
    """One node's detectors. Feed it every sample, in order."""

    def __init__(self) -> None:
        self._detectors: tuple[Detector, ...] = (
            StuckClock(),
            Thermal(),
            BusyWait(),
            SwapGrowing(),
            PageCacheStarving(),
            IdleFunction(),
            NoRoute(),
            WrongGid(),
            FullDisk(),
            Orphan(),
            RestartLoop(),
        )

    def judge(self, sight: Sight) -> tuple[Finding, ...]:
        """Return what is wrong as of this sight, worst first."""
        return worst_first([finding for detector in self._detectors for finding in detector.judge(sight)])


def one_look(sight: Sight) -> tuple[Finding, ...]:
    """Return what a single look can judge, worst first; what must last is left out, and nothing is since a moment."""
    detectors: tuple[Detector, ...] = (NoRoute(0.0), WrongGid(), FullDisk(), Orphan(0.0), RestartLoop())
    return worst_first([finding for detector in detectors for finding in detector.judge(sight)])


def between(sights: Sequence[Sight], *, are_all: bool = False) -> tuple[Finding, ...]:
    """Return what only nodes beside each other show, worst first. ``are_all``: no other node is configured."""
    return worst_first(no_common_network(sights) + rdma_off(sights) + (left_alone(sights) if are_all else []))
