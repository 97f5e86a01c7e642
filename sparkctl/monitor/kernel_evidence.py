"""What the kernel's log says about the end of a container: evidence for its verdict, and a better cause where the engine's
log has none. The one place where the kernel's witness enters verdicts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from sparkctl.engines.traps import load_traps
from sparkctl.logs.verdict_builder import MAX_EVIDENCE_CHARS
from sparkctl.model.container import Container
from sparkctl.model.finding import Severity
from sparkctl.model.kernel_event import KernelEvent, KernelEventKind, KernelLog
from sparkctl.model.text.sanitize import truncate_text
from sparkctl.model.verdict import Confidence, Evidence, FailureCause, Verdict
from sparkctl.monitor.kernel_log import READ_RIGHT_REMEDY, read_kernel_log_if_possible
from sparkctl.transport.node_session import NodeSession

_ORIGIN = "kernel"
_BEFORE_END_SECONDS = 120.0  # an event of the machine so long before the end belongs to it
_CLOCK_SLACK_SECONDS = 60.0  # the kernel's clock drifts against the node's, a second a day; Docker reports an end late
_MAX_EVIDENCE = 4
# The engine's log has no cause of its own: what the kernel saw is the cause.
_OPEN_CAUSES = frozenset(
    {
        FailureCause.KILLED,
        FailureCause.EXITED,
        FailureCause.CRASHED,
        FailureCause.WORKER_LOST,
        FailureCause.NCCL,
        FailureCause.RAY,
        FailureCause.WEDGED,
        FailureCause.TIMED_OUT,
    }
)
# The kernel may know more; for all other causes its log is not read.
_RELATED_CAUSES = _OPEN_CAUSES | {
    FailureCause.HOST_OOM_KILL,
    FailureCause.GPU_FAULT,
    FailureCause.CUDA_OUT_OF_MEMORY,
    FailureCause.HOST_MEMORY,
    FailureCause.DISK_FULL,
    FailureCause.JIT_FAILED,
}
_REGISTRATION_PATTERN = re.compile(r"ibv_reg_mr\w*")
_GPU_KINDS = (KernelEventKind.XID, KernelEventKind.GPU_LOST)
_SILENT_CAUSES = (FailureCause.KILLED, FailureCause.EXITED)  # it ended without a word
_NOT_READABLE = Evidence("what the kernel did is not known: its log could not be read", _ORIGIN)


async def ask_kernel_log(
    session: NodeSession, verdict: Verdict | None, container: Container | None, name: str
) -> Verdict | None:
    """Return a verdict with what the kernel of the container's node says. ``name``: of the instance."""
    if verdict is None or container is None or verdict.cause not in _RELATED_CAUSES:
        return verdict
    log = await read_kernel_log_if_possible(session)
    return add_kernel_evidence(verdict, log, container, name)


def add_kernel_evidence(verdict: Verdict, log: KernelLog | None, container: Container, name: str) -> Verdict:
    """Return the verdict with the kernel's evidence."""
    if log is None or log.source is None:
        return _add_missing_right(verdict, log)
    verdict = _add_known_fault(verdict, log)
    has_ended = not container.is_alive and container.finished is not None
    ended = container.finished if has_ended and container.finished is not None else log.now
    began = container.started if container.started is not None else ended - _BEFORE_END_SECONDS
    during = [one for one in log.events if began - _CLOCK_SLACK_SECONDS <= one.last <= ended + _CLOCK_SLACK_SECONDS]
    late = [one for one in during if not has_ended or ended - one.last <= _BEFORE_END_SECONDS]
    kills = [one for one in during if one.kind is KernelEventKind.OOM_KILL and one.container == container.id]
    faults = [one for one in late if one.kind in _GPU_KINDS and _hits_container(one, container)]
    if kills:
        return _apply_oom_kill(verdict, kills, name)
    if faults:
        return _apply_gpu_fault(verdict, faults, name)
    around = [one for one in late if _is_of_machine(one)]
    if around:
        return replace(verdict, evidence=(*verdict.evidence, *_build_evidence(around, ended)))
    if verdict.cause in _SILENT_CAUSES and log.oldest is not None and log.oldest <= began and not log.skipped:
        nothing = "the kernel logged no OOM kill and no GPU fault while it ran"
        return replace(verdict, evidence=(*verdict.evidence, Evidence(nothing, _ORIGIN)))
    return verdict


def find_oom_kill(log: KernelLog, container: Container) -> KernelEvent | None:
    """Return the last OOM kill in a container since it was started."""
    began = container.started or 0.0
    kills = [one for one in log.events if one.kind is KernelEventKind.OOM_KILL and one.container == container.id]
    return next((one for one in reversed(kills) if one.last >= began - _CLOCK_SLACK_SECONDS), None)


def _hits_container(event: KernelEvent, container: Container) -> bool:
    """Tell whether a GPU event ended programs of this container: its own, or all on the GPU."""
    if not event.ends_programs:
        return False
    return event.container in (None, container.id) or (event.severity is Severity.PROBLEM and event.hours is None)


def _is_of_machine(event: KernelEvent) -> bool:
    """Tell whether an event that names no program of this container may still have hit it."""
    if event.kind in _GPU_KINDS:
        return False  # of another container
    return event.severity is not Severity.NOTE or event.kind is KernelEventKind.DRIVER_MEMORY


def _apply_oom_kill(verdict: Verdict, kills: Sequence[KernelEvent], name: str) -> Verdict:
    evidence = (*_build_evidence(kills), *verdict.evidence)
    if verdict.cause not in _OPEN_CAUSES:
        return replace(verdict, evidence=evidence)
    last = kills[-1]
    return replace(
        verdict,
        cause=FailureCause.HOST_OOM_KILL,
        summary=f"{name} ended because {last.meaning}.",
        evidence=evidence,
        remedy=last.remedy,
        confidence=Confidence.CERTAIN,
    )


def _apply_gpu_fault(verdict: Verdict, faults: Sequence[KernelEvent], name: str) -> Verdict:
    evidence = (*_build_evidence(faults), *verdict.evidence)
    worst = next(
        (one for one in faults if one.severity is Severity.PROBLEM), faults[0]
    )  # the first: others follow from it
    if verdict.cause not in _OPEN_CAUSES and not (
        verdict.cause is FailureCause.GPU_FAULT and worst.severity is Severity.PROBLEM
    ):
        return replace(verdict, evidence=evidence)
    return replace(
        verdict,
        cause=FailureCause.GPU_FAULT,
        summary=f"{name} lost the GPU: {worst.meaning}.",
        evidence=evidence,
        remedy=worst.remedy,
        # an Xid may name no process
        confidence=Confidence.LIKELY if worst.container is None and worst.hours is not None else Confidence.CERTAIN,
    )


def _build_evidence(events: Sequence[KernelEvent], ended: float | None = None) -> tuple[Evidence, ...]:
    """Return the lines; with their meaning and time where the summary does not name them."""
    found = []
    for one in events[-_MAX_EVIDENCE:]:
        text = one.text if one.count == 1 else f"{one.count} times: {one.text}"
        if ended is not None:
            text = f"{one.meaning}, {max(0.0, ended - one.last):.0f} s before it ended: {text}"
        found.append(Evidence(truncate_text(text, MAX_EVIDENCE_CHARS), _ORIGIN))
    return tuple(found)


def _add_missing_right(verdict: Verdict, log: KernelLog | None) -> Verdict:
    """Say that the kernel's witness is missing, where it would decide."""
    if verdict.cause not in _SILENT_CAUSES:
        return verdict
    evidence = (*verdict.evidence, _NOT_READABLE)
    if log is None:
        return replace(verdict, evidence=evidence)
    return replace(
        verdict,
        evidence=evidence,
        remedy=f"{verdict.remedy} To let sparkctl read the kernel's log: {READ_RIGHT_REMEDY}",
    )


def _add_known_fault(verdict: Verdict, log: KernelLog) -> Verdict:
    """Name the kernel's own fault where RDMA could not register memory."""
    if verdict.cause is not FailureCause.NCCL or log.kernel is None:
        return verdict
    if not any(_REGISTRATION_PATTERN.search(one.text) for one in verdict.evidence):
        return verdict
    for trap in load_traps():
        bad = trap.node
        if bad and bad.what == "kernel" and bad.needs == "rdma" and re.fullmatch(bad.pattern, log.kernel):
            evidence = Evidence(trap.meaning.format(version=log.kernel), _ORIGIN)
            return replace(verdict, evidence=(*verdict.evidence, evidence), remedy=trap.remedy)
    return verdict
