"""All detectors of a node, and of the nodes together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sparkctl.core.health import identity
from sparkctl.core.health.containers import RestartLoop
from sparkctl.core.health.fabric import IdleFunction, NoRoute, no_common_network
from sparkctl.core.health.gpu import BusyWait, StuckClock, Thermal
from sparkctl.core.health.machine import FullDisk, Orphan
from sparkctl.core.health.memory import PageCacheStarving, SwapGrowing
from sparkctl.core.health.nccl import WrongGid, rdma_off
from sparkctl.core.health.sight import Detector, Sight
from sparkctl.model.finding import Finding, worst_first
from sparkctl.model.node import NodeName
from sparkctl.probe.decode import Hello


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

    def judge(self, sight: Sight, who: Hello | None = None) -> tuple[Finding, ...]:
        """Return what is wrong as of this sight, worst first."""
        found = [finding for detector in self._detectors for finding in detector.judge(sight)]
        return worst_first(found + ([] if who is None else identity.settings(sight.node, who)))


def between(sights: Sequence[Sight], identities: Mapping[NodeName, Hello]) -> tuple[Finding, ...]:
    """Return what only two nodes beside each other show, worst first."""
    found = no_common_network(sights) + rdma_off(sights) + identity.versions(identities)
    return worst_first(found)
