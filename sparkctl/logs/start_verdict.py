"""Builds the verdict on a start that did not become ready: cause, evidence and remedy. Pure.

Order of proof: what Docker knows for certain (the OOM kill of a limit), then the engine's own concrete lines, then the exit
code, which is often misleading (SGLang kills itself with 137 on a clean stop, vLLM ends with 0 after a crash).
"""

from __future__ import annotations

import signal
from typing import TypeGuard

from sparkctl.engines.base import Engine, FailureWeight
from sparkctl.errors import DiskFull, DockerError, DockerPermissionDenied, GpuRuntimeMissing, ImageNotFound, PortInUse
from sparkctl.logs import verdict_builder
from sparkctl.logs.analyzer import LogAnalyzer
from sparkctl.logs.verdict_builder import suggest_field_change
from sparkctl.model.container import SIGKILL_EXIT_CODE, Container
from sparkctl.model.guard_state import GuardMemoryReading, GuardReceipt
from sparkctl.model.launch_plan import DEFAULT_FLOOR_BYTES, LaunchPlan
from sparkctl.model.phase import Phase
from sparkctl.model.text.sanitize import sanitize_line, truncate_text
from sparkctl.model.text.secrets import redact
from sparkctl.model.text.units import GIB, format_duration, format_size
from sparkctl.model.verdict import MAX_EVIDENCE_CHARS, ChangeDirection, Confidence, Evidence, FailureCause, Verdict

_DOCKER_ERROR_CAUSES = (
    (ImageNotFound, FailureCause.IMAGE_MISSING),
    (GpuRuntimeMissing, FailureCause.GPU_RUNTIME_MISSING),
    (PortInUse, FailureCause.PORT_IN_USE),
    (DiskFull, FailureCause.DISK_FULL),
    (DockerPermissionDenied, FailureCause.PERMISSION),
)
_SIGINT_EXIT, _SIGTERM_EXIT = 130, 143
_SIGNAL_EXIT_BASE, _LAST_SIGNAL = (
    128,
    64,
)  # exit code of a signal: this plus the signal's number; above the last it is none
_NO_STOP_REQUEST = Evidence("nobody asked Docker to end it: the kernel did, or a process on the node", "docker")
_NO_SIGNAL_REQUEST = Evidence("nobody asked Docker to send it a signal", "docker")
_HIGH_FLOOR_BYTES = (
    16 * DEFAULT_FLOOR_BYTES
)  # bytes: above this the floor itself is the reason, not the engine's memory
_DROP_WINDOW_SECONDS = 10.0  # seconds before the guard's action in which the drop is searched


def build_exit_verdict(
    plan: LaunchPlan,
    log: LogAnalyzer,
    container: Container | None,
    again: str | None = None,
    requests: tuple[int, ...] | None = None,
) -> Verdict:
    """Return why the container ended. ``container`` is None if somebody else removed it.

    ``again``: the command that starts it again; ``requests``: the signals that Docker was asked to send, None if not known.
    """
    again = again or f"sparkctl up {plan.profile} --node {plan.node}"
    if container is None:
        return Verdict(
            cause=FailureCause.STOPPED_BY_OTHERS,
            summary=f"The container {plan.container_name} was removed while it started.",
            evidence=verdict_builder.build_last_line_evidence(log.latest_line),
            remedy=f"Somebody ran docker rm, or another tool did. Ask, then: {again}",
        )
    ended = Evidence(_format_container_state(container), "docker")
    if container.oom_killed:
        return _build_oom_verdict(plan, log, ended)
    if (log.stopped is not None or requests) and not _has_named_cause(log):
        return _build_stop_verdict(plan, log, container, ended, again, requests)
    return verdict_builder.build_verdict(log, plan, (ended,)) or _build_exit_code_verdict(
        plan, log, container, ended, again, requests
    )


def is_bare_exit(log: LogAnalyzer, verdict: Verdict, container: Container | None) -> bool:
    """Tell whether a verdict is only an exit code, as no line of the log names a failure; a signal ended it for a reason of its own."""
    by_signal = container is not None and _is_signal_exit(container.exit_code)
    return verdict.cause is FailureCause.CRASHED and log.root_failure is None and not by_signal


def build_docker_error_verdict(
    plan: LaunchPlan, engine: Engine, error: DockerError, again: str, *, old_is_gone: bool
) -> Verdict:
    """Return why Docker did not start it, by the kind of error, or by its message if that names a cause."""
    message = redact(error.message, plan.secret_values)
    signal = engine.classify_line(message)
    failure = None if signal is None else signal.failure
    cause = next((cause for kind, cause in _DOCKER_ERROR_CAUSES if isinstance(error, kind)), None)
    hint = error.hint or (None if failure is None else failure.remedy)
    return Verdict(
        cause=cause or (FailureCause.DOCKER_REFUSED if failure is None else failure.cause),
        summary=f"Docker on {plan.node} did not start {plan.instance}: {message}."
        + (" The one that ran before was stopped." if old_is_gone else ""),
        evidence=(Evidence(message, "docker"),),
        remedy=hint or f"fix the profile, then: {again}",
    )


def build_guard_kill_verdict(
    plan: LaunchPlan,
    log: LogAnalyzer,
    receipt: GuardReceipt,
    claim: str | None,
    claims: str | None,
    within: float | None = None,
) -> Verdict:
    """Return why the guard stopped it. ``claim``: the profile field that sets its memory, ``claims``: the field's value;
    ``within``: how long it was watched (seconds); earlier readings prove nothing."""
    where = f" while {log.phase}" + (f" ({log.step.name})" if log.step else "")
    evidence = [
        Evidence(describe_memory_drop(receipt, within), "guard"),
        Evidence(truncate_text(sanitize_line(receipt.why), MAX_EVIDENCE_CHARS), "guard"),
    ]
    if receipt.reaction is not None:
        evidence.append(Evidence(f"killed {receipt.reaction * 1000:.0f} ms after that was seen", "guard"))
    if receipt.floor > _HIGH_FLOOR_BYTES:
        return Verdict(
            cause=FailureCause.GUARD_STOPPED,
            summary=f"The guard stopped {plan.instance}{where}: start.guard.floor keeps {format_size(receipt.floor)} available on "
            f"{plan.node}, far more than it needs.",
            evidence=(*evidence, *verdict_builder.build_last_line_evidence(log.latest_line)),
            remedy=f"Lower start.guard.floor (now {format_size(receipt.floor)}; {format_size(DEFAULT_FLOOR_BYTES)} without it).",
            field="start.guard.floor",
            edit=suggest_field_change(plan, "start.guard.floor", ChangeDirection.LOWER),
        )
    now = f" (now {claims})" if claims else ""
    less = f"Lower {claim}{now}" if claim else "Let it claim less memory"
    return Verdict(
        cause=FailureCause.GUARD_STOPPED,
        summary=f"The guard stopped {plan.instance}{where}: {plan.node} was running out of memory, and would have frozen.",
        evidence=(*evidence, *verdict_builder.build_last_line_evidence(log.latest_line)),
        remedy=f"{less}, or stop what else holds memory (sparkctl status --node {plan.node}). start.guard.floor "
        f"({format_size(receipt.floor)}) is the least that {plan.node} must keep.",
        field=claim,
        edit=suggest_field_change(plan, claim, ChangeDirection.LOWER),
    )


def describe_memory_drop(receipt: GuardReceipt, within: float | None = None) -> str:
    """Describe the memory drop: from the maximum in the last seconds before the action to the reading that caused it.

    ``within``: use at most the last ``within`` seconds.
    """
    window = _DROP_WINDOW_SECONDS if within is None else min(_DROP_WINDOW_SECONDS, within)
    before = [one for one in receipt.samples if receipt.at - window <= one.at <= receipt.at]
    top = _find_drop_start(before)
    if top is None or top.available - receipt.available < GIB // 20:
        return f"MemAvailable was {format_size(receipt.available)}, the floor is {format_size(receipt.floor)}"
    return (
        f"MemAvailable fell from {format_size(top.available)} to {format_size(receipt.available)} "
        f"in {format_duration(max(0.1, receipt.at - top.at))}"
    )


def describe_guard_kill(receipt: GuardReceipt) -> str:
    """Describe the memory drop, and why the guard acted where the floor was not reached."""
    fell = describe_memory_drop(receipt)
    return fell if receipt.available < receipt.floor else f"{fell}; {sanitize_line(receipt.why)}"


def build_timeout_verdict(
    plan: LaunchPlan, log: LogAnalyzer, phase: Phase, seconds: float, limit: str, why_not: str | None
) -> Verdict:
    """Return the verdict for a phase that exceeded its time limit. ``limit`` names the setting; ``why_not`` is the last answer
    of the health path or the probe."""
    step = f" ({log.step.name})" if log.step else ""
    evidence = [Evidence(f"{phase}{step} for {format_duration(seconds)}", "clock")]
    if why_not:
        evidence.append(Evidence(truncate_text(why_not, MAX_EVIDENCE_CHARS), "http"))
    evidence += verdict_builder.build_last_line_evidence(log.latest_line)
    by_line = verdict_builder.build_verdict(log, plan, tuple(evidence))
    if by_line is not None:
        return by_line
    if phase is Phase.WARMING and log.ready_line_seen and why_not:
        return Verdict(
            cause=FailureCause.WEDGED,
            summary=f"{plan.instance} reports that it is ready, but gave no token within {format_duration(seconds)}.",
            evidence=tuple(evidence),
            remedy=f"See its log: sparkctl logs {plan.instance} --node {plan.node}. An engine without text needs start.probe: none.",
            field="start.probe",
        )
    return Verdict(
        cause=FailureCause.TIMED_OUT,
        summary=f"{plan.instance} was still {phase}{step} after {format_duration(seconds)}.",
        evidence=tuple(evidence),
        remedy=f"If it only needs longer, raise {limit}. It still runs and holds its memory: "
        f"sparkctl logs {plan.instance} -f, or sparkctl down {plan.instance} --node {plan.node}",
        field=limit if limit.startswith("start.") else None,
        edit=suggest_field_change(plan, limit, ChangeDirection.RAISE) if limit.startswith("start.") else None,
    )


def build_pause_verdict(plan: LaunchPlan, log: LogAnalyzer, phase: Phase, seconds: float, again: str) -> Verdict:
    """Return the verdict for a start that timed out while its container was paused."""
    return Verdict(
        cause=FailureCause.TIMED_OUT,
        summary=f"{plan.instance} is paused on {plan.node} (docker pause), so its start does not go on.",
        evidence=(
            Evidence(f"state paused, {phase} for {format_duration(seconds)}", "docker"),
            *verdict_builder.build_last_line_evidence(log.latest_line),
        ),
        remedy=f"On {plan.node}: docker unpause {plan.container_name}; then watch it again: {again}. Or take it away: "
        f"sparkctl down {plan.instance} --node {plan.node}",
    )


def _build_oom_verdict(plan: LaunchPlan, log: LogAnalyzer, ended: Evidence) -> Verdict:
    limit = dict(plan.options).get("memory")
    where = f" (last step: {log.step.name})" if log.step else ""
    proof = (ended, *verdict_builder.build_last_line_evidence(log.latest_line))
    if limit is None:
        claim = log.engine.memory_setting
        return Verdict(
            cause=FailureCause.HOST_OOM_KILL,
            summary=f"The kernel's OOM killer ended {plan.instance}{where}: {plan.node} ran out of memory.",
            evidence=proof,
            remedy=f"See what else holds memory (sparkctl status --node {plan.node}) and stop it, or "
            f"{'let this one claim less' if claim is None else f'lower {claim}'}.",
            field=claim,
            edit=suggest_field_change(plan, claim, ChangeDirection.LOWER),
        )
    return Verdict(
        cause=FailureCause.HOST_OOM_KILL,
        summary=f"The kernel killed {plan.instance}{where}: it reached its container's memory limit of {limit}.",
        evidence=proof,
        remedy="Raise or remove the limit (container.options.memory). It never counts GPU memory on a Spark, so it protects nothing.",
        field="container.options.memory",
        edit=suggest_field_change(plan, "container.options.memory", ChangeDirection.REMOVE),
    )


def _has_named_cause(log: LogAnalyzer) -> bool:
    """Tell whether a line names a concrete cause."""
    return (
        log.root_failure is not None
        and log.root_failure.failure is not None
        and log.root_failure.failure.weight >= FailureWeight.LIKELY
    )


def _build_exit_code_verdict(
    plan: LaunchPlan,
    log: LogAnalyzer,
    container: Container,
    ended: Evidence,
    again: str,
    requests: tuple[int, ...] | None,
) -> Verdict:
    inspection = f"sparkctl logs {plan.instance} --node {plan.node}"
    code = container.exit_code
    if code in (_SIGINT_EXIT, _SIGTERM_EXIT) and log.final_error is None:
        return _build_stop_verdict(plan, log, container, ended, again, requests)
    if code == 0:
        return Verdict(
            cause=FailureCause.EXITED,
            summary=f"{plan.instance} ended by itself, with exit code 0, before it was ready.",
            evidence=(
                *(verdict_builder.build_line_evidence(log.last_error) if log.last_error else ()),
                *verdict_builder.build_last_line_evidence(log.latest_line),
                ended,
            ),
            remedy=f"An engine that ends with 0 although nobody stopped it has crashed internally. Its log: {inspection}",
        )
    if code == SIGKILL_EXIT_CODE and log.final_error is None:
        return Verdict(
            cause=FailureCause.KILLED,
            summary=f"{plan.instance} was killed (SIGKILL) {_describe_progress(log)}, and nothing in its log says by whom.",
            evidence=(
                ended,
                *(() if requests is None else (_NO_STOP_REQUEST,)),
                *verdict_builder.build_last_line_evidence(log.latest_line),
            ),
            remedy="Either somebody killed it, or the machine ran out of memory. "
            f"On {plan.node}: sudo dmesg -T | grep -iE 'oom|killed process'",
            confidence=Confidence.LIKELY,
        )
    what = f": {log.last_error.text.strip()}" if log.last_error else ", and no line of its log says why"
    return Verdict(
        cause=FailureCause.CRASHED,
        summary=truncate_text(
            f"{plan.instance} ended with exit code {_format_exit_code(code)}{what}", MAX_EVIDENCE_CHARS
        ),
        evidence=(
            *(
                verdict_builder.build_line_evidence(log.last_error)
                if log.last_error
                else verdict_builder.build_last_line_evidence(log.latest_line)
            ),
            ended,
        ),
        remedy=f"The whole log: {inspection}",
        confidence=Confidence.LIKELY,
    )


def _build_stop_verdict(
    plan: LaunchPlan,
    log: LogAnalyzer,
    container: Container,
    ended: Evidence,
    again: str,
    requests: tuple[int, ...] | None,
) -> Verdict:
    """Return the verdict on a start that was stopped: by Docker's events, by its log, or by the signal alone."""
    signals = [Evidence(f"asked to send it {_format_signal(one)}", "docker") for one in requests or ()]
    actor = f"docker stop, docker kill and a shutdown of {plan.node} do that. Ask who did, then: {again}"
    if requests is not None and not signals:
        actor = f"A process on {plan.node} or in the container does that, and a shutdown of {plan.node}. Find which, then: {again}"
    return Verdict(
        cause=FailureCause.STOPPED_BY_OTHERS,
        summary=f"Somebody stopped {plan.instance} {_describe_progress(log)}: it was sent a signal to end "
        f"(exit code {_format_exit_code(container.exit_code)}), and did not fail by itself.",
        evidence=(
            *verdict_builder.build_line_evidence(log.stopped),
            *(signals or (() if requests is None else (_NO_SIGNAL_REQUEST,))),
            ended,
            *verdict_builder.build_last_line_evidence(log.latest_line),
        ),
        remedy=actor,
        confidence=Confidence.CERTAIN if signals or log.stopped is not None else Confidence.LIKELY,
    )


def _describe_progress(log: LogAnalyzer) -> str:
    """Return the phase and step at which it ended, in words."""
    return f"while it was {log.phase}" + (f" ({log.step.name})" if log.step else "")


def _is_signal_exit(code: int | None) -> TypeGuard[int]:
    return code is not None and _SIGNAL_EXIT_BASE < code <= _SIGNAL_EXIT_BASE + _LAST_SIGNAL


def _format_exit_code(code: int | None) -> str:
    """Return an exit code, with its signal if it means one."""
    return f"{code}, {_format_signal(code - _SIGNAL_EXIT_BASE)}" if _is_signal_exit(code) else str(code)


def _format_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _format_container_state(container: Container) -> str:
    parts = [f"state {container.state}", f"exit code {container.exit_code}"]
    if container.oom_killed is not None:
        parts.append(f"OOMKilled={str(container.oom_killed).lower()}")
    if container.error:
        parts.append(container.error)
    return ", ".join(parts)


def _find_drop_start(samples: list[GuardMemoryReading]) -> GuardMemoryReading | None:
    """Return where the drop began: the last reading near the maximum."""
    highest = max((one.available for one in samples), default=0)
    near = [one for one in samples if one.available >= highest - highest // 50]
    return near[-1] if near else None
