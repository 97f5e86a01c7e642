"""What the kernel logged, and how the boot before ended, as findings."""

from __future__ import annotations

import time
from collections.abc import Sequence

from sparkctl.model.finding import Finding, FindingEvidence, FindingKind, Severity
from sparkctl.model.instance import InstanceView
from sparkctl.model.kernel_event import BootEnd, KernelEvent, KernelEventKind
from sparkctl.model.node import NodeName
from sparkctl.monitor.findings.base import NodeSnapshot

_HOUR = 3600.0
_FRESH_BOOT_SECONDS = 24 * _HOUR  # after that an unclean end is old news
_BEFORE_END_SECONDS = 600.0  # an event so long before the end may have caused it


def is_current(event: KernelEvent, now: float) -> bool:
    """Tell whether an event still matters: for some hours, or until the next boot."""
    return event.hours is None or now - event.last <= event.hours * _HOUR


def rate_kernel_events(events: Sequence[KernelEvent]) -> Severity:
    """Return how serious events of one kind are. What needs a restart is a problem; what is over is a warning."""
    if any(one.severity is Severity.PROBLEM and one.hours is None for one in events):
        return Severity.PROBLEM
    if any(one.severity is not Severity.NOTE for one in events):
        return Severity.WARNING
    many = events[-1].many
    return Severity.WARNING if many is not None and sum(one.count for one in events) >= many else Severity.NOTE


class KernelEventDetector:
    """One finding for each kind of event and container. A note becomes a finding only when there are many."""

    def detect(self, sight: NodeSnapshot) -> list[Finding]:
        """Return them."""
        groups: dict[tuple[KernelEventKind, str | None, str], list[KernelEvent]] = {}
        for event in sight.kernel:
            if is_current(event, sight.sample.time):
                groups.setdefault((event.kind, event.container, event.meaning), []).append(event)
        found = [_build_finding(sight, events) for events in groups.values()]
        return [one for one in found if one.severity is not Severity.NOTE]


def _build_finding(sight: NodeSnapshot, events: Sequence[KernelEvent]) -> Finding:
    last, count = events[-1], sum(one.count for one in events)
    instance = find_instance_name(last.container, sight.instances or ())
    whose = "" if last.container is None else f" (of {instance or 'container ' + last.container[:12]})"
    return Finding(
        kind=FindingKind.KERNEL,
        severity=rate_kernel_events(events),
        node=sight.node,
        summary=last.meaning + whose + (f", {count} times" if count > 1 else ""),
        remedy=last.remedy or None,
        instance=instance,
        evidence=(
            FindingEvidence("kernel", last.text, None, "kernel log"),
            FindingEvidence("last", _format_time(last.last), None, "kernel log"),
            FindingEvidence("source", last.source, None, "known lines"),
        ),
        since=events[0].at,
    )


def find_instance_name(container: str | None, instances: Sequence[InstanceView]) -> str | None:
    """Return the name of the instance in a container, None if it is not known."""
    return next((one.name for one in instances if container is not None and one.container_id == container), None)


def list_unclean_boot(node: NodeName, end: BootEnd | None, uptime: float) -> list[Finding]:
    """Return a finding where the boot before ended without a shutdown: the power failed, somebody held the button, or the
    machine froze. ``uptime``: seconds of this boot.
    """
    if end is None or end.is_clean is not False:
        return []
    late = [one for one in end.events if end.ended is None or end.ended - one.last <= _BEFORE_END_SECONDS]
    before = [one for one in late if one.severity is not Severity.NOTE] or late
    when = "" if end.ended is None else f" at {_format_time(end.ended)}"
    cause = f"; before that {before[-1].meaning}" if before else "; the kernel's log does not say why"
    last = before[-1].text if before else end.last[-1] if end.last else None
    return [
        Finding(
            kind=FindingKind.LAST_BOOT,
            severity=Severity.WARNING if uptime <= _FRESH_BOOT_SECONDS else Severity.NOTE,
            node=node,
            summary=f"the boot before ended without a shutdown{when}{cause}",
            remedy=(before[-1].remedy if before else "")
            or "a power cut, heat, or a freeze for lack of memory does that: see the temperatures (sparkctl top), leave more memory free",
            evidence=() if last is None else (FindingEvidence("last line", last, None, "journal"),),
            since=end.ended,
        )
    ]


def _format_time(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
