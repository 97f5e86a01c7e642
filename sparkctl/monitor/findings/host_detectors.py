"""Detects full disks and orphan GPU processes."""

from __future__ import annotations

from sparkctl.model.finding import Finding, FindingEvidence, FindingKind, Severity
from sparkctl.model.sample import DiskSpace, NodeProcess
from sparkctl.model.text.units import GIB, format_gib
from sparkctl.monitor.findings.base import ConditionTimer, NodeSnapshot

_LOW_DISK_BYTES, _FULL_DISK_BYTES = 20 * GIB, 5 * GIB


def rate_free_disk(free: int) -> Severity | None:
    """Return the severity of ``free`` bytes: under 20 GiB an engine image no longer fits, under 5 GiB logs do not either."""
    if free >= _LOW_DISK_BYTES:
        return None
    return Severity.PROBLEM if free < _FULL_DISK_BYTES else Severity.WARNING


class DiskSpaceDetector:
    """Little disk space for Docker or models, see `rate_free_disk`.

    Two paths on one filesystem (same size, same free space) are one finding.
    """

    def __init__(self) -> None:
        self._lasting = ConditionTimer()

    def detect(self, sight: NodeSnapshot) -> list[Finding]:
        """Return one finding for each filesystem."""
        rooms: dict[tuple[int | None, int | None], list[DiskSpace]] = {}
        for disk in sight.sample.disks or ():
            rooms.setdefault((disk.total, disk.free), []).append(disk)
        found = []
        for (total, free), disks in rooms.items():
            severity = None if free is None else rate_free_disk(free)
            claim = None if free is None else severity is not None
            standing = self._lasting.update_condition(disks[0].path, claim, sight.sample)
            if standing is None or severity is None:
                continue
            paths = " and ".join(disk.path for disk in disks)
            found.append(
                Finding(
                    kind=FindingKind.DISK,
                    severity=severity,
                    node=sight.node,
                    summary=f"only {format_gib(free)} of {format_gib(total)} free for {paths}",
                    remedy="docker system df; docker image prune   (and models that are no longer used)",
                    evidence=(
                        FindingEvidence("free", format_gib(free), None, "statvfs"),
                        FindingEvidence("of", format_gib(total), None, "statvfs"),
                    ),
                    since=standing.since,
                )
            )
        return found


_USER_SYSTEMD_NAME, _DESKTOP_UNIT_PREFIX = "systemd", "app-"


class OrphanProcessDetector:
    """A process without an owner that holds 1 GiB or more of GPU memory; for 30 s.

    Either its parent has gone (it is process 1's, or that of a user's own systemd) and it is in no container and no
    systemd service, or it is in a container that Docker listed alive before and no longer does. The real one was a
    VLLM::EngineCore with 104,277 MiB. 30 s, because the driver takes seconds to give memory back after a stop.

    Only certain cases count: a desktop's processes are its systemd's children from the beginning, and in a running container,
    a worker whose engine has ended looks like any other child of the container's first process.
    """

    LEAST, SECONDS = GIB, 30.0

    def __init__(self, seconds: float = SECONDS) -> None:
        self._lasting = ConditionTimer(seconds)
        self._seen: set[str] = set()

    def detect(self, sight: NodeSnapshot) -> list[Finding]:
        """Return one finding for each such process."""
        alive = [one.container_id for one in sight.instances or () if one.is_alive]
        listed = None if sight.instances is None else {one for one in alive if one is not None}
        living = {process.container for process in sight.sample.processes or () if process.container is not None}
        self._seen = (self._seen & living) | (listed or set())
        found = []
        for process in sight.sample.processes or ():
            held = process.gpu_memory
            claim = None if held is None else self._is_orphan(process, listed)
            standing = self._lasting.update_condition(process.pid, claim and (held or 0) >= self.LEAST, sight.sample)
            if standing is None or held is None:
                continue
            name = process.name or "a process"
            why = "its container is gone" if process.container else "its parent is gone"
            evidence = [
                FindingEvidence("GPU memory", format_gib(held), None, "nvml"),
                FindingEvidence("pid", str(process.pid), None, "proc"),
                FindingEvidence("parent", str(process.parent), None, "proc"),
                FindingEvidence("container", process.container[:12] if process.container else "none", None, "cgroup"),
            ]
            found.append(
                Finding(
                    kind=FindingKind.ORPHAN,
                    severity=Severity.WARNING,
                    node=sight.node,
                    summary=f"{name} (pid {process.pid}) holds {format_gib(held)} but nothing manages it: {why}",
                    remedy=f"if you do not know it: sudo kill {process.pid}   (kill -9 if it stays)",
                    evidence=tuple(evidence),
                    since=standing.since,
                )
            )
        return found

    def _is_orphan(self, process: NodeProcess, listed: set[str] | None) -> bool | None:
        if process.container is None:
            if process.parent is None or process.unit is None:
                return None
            adopted = process.parent == 1 or (
                process.parent_name == _USER_SYSTEMD_NAME and not process.unit.startswith(_DESKTOP_UNIT_PREFIX)
            )
            return adopted and not process.unit.endswith(".service")
        if listed is None:
            return None
        return process.container not in listed and process.container in self._seen
