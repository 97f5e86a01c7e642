"""All detectors of a node, and of the nodes together."""

from __future__ import annotations

from collections.abc import Sequence

from sparkctl.model.finding import Finding, sort_by_severity
from sparkctl.monitor.findings.base import Detector, NodeSnapshot
from sparkctl.monitor.findings.fabric_detectors import IdleLaneDetector, MissingRouteDetector, detect_missing_network
from sparkctl.monitor.findings.gpu_detectors import BusyWaitDetector, StuckClockDetector, ThermalDetector
from sparkctl.monitor.findings.host_detectors import DiskSpaceDetector, OrphanProcessDetector
from sparkctl.monitor.findings.memory_detectors import PageCacheDetector, SwapGrowthDetector
from sparkctl.monitor.findings.missing_rank import detect_missing_rank
from sparkctl.monitor.findings.nccl_detectors import NcclGidDetector, detect_rdma_disabled
from sparkctl.monitor.findings.restart_loop import RestartLoopDetector


class NodeDetectors:
    """One node's detectors. Feed it every sample, in order."""

    def __init__(self) -> None:
        self._detectors: tuple[Detector, ...] = (
            StuckClockDetector(),
            ThermalDetector(),
            BusyWaitDetector(),
            SwapGrowthDetector(),
            PageCacheDetector(),
            IdleLaneDetector(),
            MissingRouteDetector(),
            NcclGidDetector(),
            DiskSpaceDetector(),
            OrphanProcessDetector(),
            RestartLoopDetector(),
        )

    def detect_all(self, sight: NodeSnapshot) -> tuple[Finding, ...]:
        """Return what is wrong as of this sight, worst first."""
        return sort_by_severity([finding for detector in self._detectors for finding in detector.detect(sight)])


def detect_once(sight: NodeSnapshot) -> tuple[Finding, ...]:
    """Return what a single look can judge, worst first; what must last is left out, and nothing is since a moment."""
    detectors: tuple[Detector, ...] = (
        MissingRouteDetector(0.0),
        NcclGidDetector(),
        DiskSpaceDetector(),
        OrphanProcessDetector(0.0),
        RestartLoopDetector(),
    )
    return sort_by_severity([finding for detector in detectors for finding in detector.detect(sight)])


def detect_across_nodes(sights: Sequence[NodeSnapshot], *, are_all: bool = False) -> tuple[Finding, ...]:
    """Return what only nodes beside each other show, worst first. ``are_all``: no other node is configured."""
    return sort_by_severity(
        detect_missing_network(sights) + detect_rdma_disabled(sights) + (detect_missing_rank(sights) if are_all else [])
    )
