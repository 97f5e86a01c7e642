"""Disks, orphans, restarts, settings, versions, and everything together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkctl.model.container import ContainerState
from sparkctl.model.finding import Finding, FindingKind, Severity, sort_by_severity
from sparkctl.model.sample import DiskSpace, GpuEvents, NodeProcess
from sparkctl.model.text.units import GIB, MIB
from sparkctl.monitor.findings import NodeSnapshot
from sparkctl.monitor.findings.host_detectors import DiskSpaceDetector, OrphanProcessDetector
from sparkctl.monitor.findings.node_detectors import (
    NodeDetectors,
    RestartLoopDetector,
    detect_across_nodes,
    detect_once,
)
from tests.unit.monitor.findings.node_snapshots import (
    BEGIN,
    HOT,
    ID,
    NODE,
    STUCK,
    make_container_view,
    make_snapshot,
    make_snapshot_series,
    run_detector,
)

TERA = 3_780_636_740 << 10


def make_disk_snapshot(at: float, *rooms: DiskSpace) -> NodeSnapshot:
    return make_snapshot(at, disks=rooms)


@pytest.mark.parametrize(("free", "severity"), [(19 * GIB, Severity.WARNING), (4 * GIB, Severity.PROBLEM)])
def test_a_disk_that_fills_up(free: int, severity: Severity) -> None:
    root, models = DiskSpace("/var/lib/docker", TERA, free), DiskSpace("~/models", TERA, free)
    detector = DiskSpaceDetector()
    assert not detector.detect(make_disk_snapshot(0, replace(root, free=900 * GIB)))
    (finding,) = detector.detect(make_disk_snapshot(2, root, models))
    assert (finding.kind, finding.severity, finding.since) == (FindingKind.DISK, severity, BEGIN + 2)
    assert "/var/lib/docker and ~/models" in finding.summary


def test_a_large_disk_and_one_that_cannot_be_asked_are_no_finding() -> None:
    rooms = (DiskSpace("/", TERA, 900 * GIB), DiskSpace("/models", None, None))
    assert not DiskSpaceDetector().detect(make_disk_snapshot(0, *rooms))
    assert not DiskSpaceDetector().detect(make_snapshot(0, disks=None))


LOST = NodeProcess(
    pid=4711,
    name="VLLM::EngineCor",
    parent=1,
    container=None,
    unit="session-12.scope",
    resident=2 * GIB,
    cpu=0.0,
    gpu_memory=104277 * MIB,
)


def make_process_snapshot(at: float, *some: NodeProcess) -> NodeSnapshot:
    return make_snapshot(at, processes=some, instances=())


def test_an_engine_whose_parent_died_is_told() -> None:
    said = run_detector(
        OrphanProcessDetector(), make_snapshot_series(2, 40, lambda at: make_process_snapshot(at, LOST))
    )
    assert [bool(found) for found in said].index(True) == 15
    (finding,) = said[-1]
    assert finding.kind is FindingKind.ORPHAN
    assert "VLLM::EngineCor (pid 4711) holds 101.8 GiB" in finding.summary
    assert "kill 4711" in (finding.remedy or "")


def test_one_that_a_users_own_systemd_adopted_from_a_terminal_is_told_too() -> None:
    adopted = replace(LOST, parent=2100, parent_name="systemd", unit="vte-spawn-3f.scope")
    assert run_detector(
        OrphanProcessDetector(), make_snapshot_series(2, 40, lambda at: make_process_snapshot(at, adopted))
    )[-1]


CARED_FOR = {
    "a user's own service": replace(LOST, parent=2100, parent_name="systemd", unit="engine.service"),
    "what a desktop started": replace(LOST, parent=2100, parent_name="systemd", unit="app-gnome-lmstudio-7.scope"),
    "a child of a shell": replace(LOST, parent=880),
    "a service": replace(LOST, unit="ollama.service", name="ollama"),
    "the desktop": replace(LOST, gpu_memory=559 * MIB, name="Xorg"),
    "in a container that is listed": replace(LOST, container=ID, unit=None),
    "memory unknown": replace(LOST, gpu_memory=None),
    "parent unknown": replace(LOST, parent=None),
    "unit unknown": replace(LOST, unit=None),
    "in somebody else's kind of container": replace(LOST, container="cd" * 32, unit=None),
}


@pytest.mark.parametrize("process", CARED_FOR.values(), ids=list(CARED_FOR))
def test_what_somebody_looks_after_or_is_not_known_is_no_orphan(process: NodeProcess) -> None:
    curve = make_snapshot_series(
        2, 90, lambda at: make_snapshot(at, processes=(process,), instances=(make_container_view(),))
    )
    assert not any(run_detector(OrphanProcessDetector(), curve))


def test_a_process_that_outlives_its_container_is_an_orphan_but_not_at_once() -> None:
    inside = replace(LOST, container=ID, unit=None)
    detector = OrphanProcessDetector()
    run_detector(detector, [make_snapshot(0, processes=(inside,), instances=(make_container_view(),))])
    said = run_detector(detector, make_snapshot_series(2, 40, lambda at: make_process_snapshot(at, inside), begin=2))
    assert [bool(found) for found in said].index(True) == 15
    assert "its container is gone" in said[-1][0].summary
    assert not any(
        run_detector(
            OrphanProcessDetector(),
            make_snapshot_series(2, 90, lambda at: make_snapshot(at, processes=(inside,), instances=None)),
        )
    )


def make_restart_snapshot(
    at: float, restarts: int | None, state: ContainerState = ContainerState.RUNNING
) -> NodeSnapshot:
    return make_snapshot(at, instances=(make_container_view(state, restarts),))


def test_restarts_that_we_see_are_told_and_older_ones_are_not() -> None:
    detector = RestartLoopDetector()
    assert not detector.detect(make_restart_snapshot(0, 7)), "seven restarts of last month"
    (once,) = detector.detect(make_restart_snapshot(300, 8))
    assert (once.severity, once.since) == (Severity.WARNING, BEGIN + 300)
    assert "started it once" in once.summary
    (loop,) = detector.detect(make_restart_snapshot(900, 10))
    assert (loop.kind, loop.severity) == (FindingKind.RESTART_LOOP, Severity.PROBLEM)
    assert detector.detect(make_restart_snapshot(910, None)), "a look that did not inspect does not end it"
    assert not detector.detect(make_restart_snapshot(900 + 1801, 10))


def test_restarting_is_a_loop_by_docker_s_own_word() -> None:
    (finding,) = RestartLoopDetector().detect(make_restart_snapshot(0, None, ContainerState.RESTARTING))
    assert (finding.severity, finding.since) == (Severity.PROBLEM, None)


def test_running_ended_and_unknown_containers_are_no_loop() -> None:
    for state in (ContainerState.RUNNING, ContainerState.EXITED, ContainerState.UNKNOWN):
        assert not any(
            run_detector(
                RestartLoopDetector(), make_snapshot_series(5, 100, lambda at, s=state: make_restart_snapshot(at, 0, s))
            )
        )  # type: ignore[misc]
    assert not any(
        run_detector(RestartLoopDetector(), make_snapshot_series(5, 100, lambda at: make_snapshot(at, instances=None)))
    )


def test_the_worst_comes_first() -> None:
    def of(kind: FindingKind, severity: Severity) -> Finding:
        return Finding(kind=kind, severity=severity, node=NODE, summary="")

    some = [
        of(FindingKind.DISK, Severity.NOTE),
        of(FindingKind.GID, Severity.WARNING),
        of(FindingKind.DISK, Severity.PROBLEM),
        of(FindingKind.THERMAL, Severity.WARNING),
    ]
    assert [f.kind.value for f in sort_by_severity(some)] == ["disk", "thermal", "gid", "disk"]


def test_all_detectors_together_and_a_sample_that_knows_nothing() -> None:
    health = NodeDetectors()
    curve = make_snapshot_series(
        2, 40, lambda at: make_snapshot(at, gpus=(STUCK,), disks=(DiskSpace("/", TERA, 10 * GIB),))
    )
    found = [health.detect_all(one) for one in curve][-1]
    assert [f.kind for f in found] == [FindingKind.STUCK_CLOCK, FindingKind.DISK]
    assert not health.detect_all(make_snapshot(42))
    assert not detect_across_nodes([make_snapshot(0), make_snapshot(0)], are_all=False)


def test_a_single_sample_gives_what_needs_no_history() -> None:
    one = make_snapshot(0, gpus=(STUCK,), disks=(DiskSpace("/", TERA, 10 * GIB),), processes=(LOST,), instances=())
    found = detect_once(one)
    assert [f.kind for f in found] == [FindingKind.DISK, FindingKind.ORPHAN], "a clock must be low for a while"
    assert {f.since for f in found} == {None}
    throttled = replace(HOT, events=GpuEvents(sw_thermal=27_600_000_000, hw_thermal=0))
    assert [f.kind for f in detect_once(make_snapshot(0, gpus=(throttled,)))] == [FindingKind.THERMAL]
