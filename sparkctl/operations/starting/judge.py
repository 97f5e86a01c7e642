"""The verdict on a start that did not become ready. Pure: what was seen in, cause, evidence and remedy out.

Order of proof: what Docker knows for certain (a limit's OOM kill), then the engine's own concrete words, then the
exit code, which lies often (SGLang kills itself with 137 on a clean stop, vLLM ends with 0 after a crash).
"""

from __future__ import annotations

import signal

from sparkctl.core import verdicts
from sparkctl.core.edits import edit
from sparkctl.core.log_seen import Seen
from sparkctl.core.reading import LogReader
from sparkctl.engines.base import Engine, Weight
from sparkctl.errors import DiskFull, DockerDenied, DockerError, ImageMissing, NoGpuRuntime, PortBusy
from sparkctl.model.container import Container
from sparkctl.model.guard import DEFAULT_FLOOR, GuardReading, Receipt
from sparkctl.model.phase import Phase
from sparkctl.model.plan import LaunchPlan
from sparkctl.model.secrets import redact
from sparkctl.model.text import clean, shorten
from sparkctl.model.units import GIB, size, spoken
from sparkctl.model.verdict import Cause, Change, Evidence, Verdict

_WIDTH = verdicts.WIDTH
_REFUSALS = (
    (ImageMissing, Cause.IMAGE_MISSING),
    (NoGpuRuntime, Cause.GPU_RUNTIME_MISSING),
    (PortBusy, Cause.PORT_IN_USE),
    (DiskFull, Cause.DISK_FULL),
    (DockerDenied, Cause.PERMISSION),
)
_SIGINT, _SIGKILL, _SIGTERM = 130, 137, 143
_SIGNALS = 128  # an exit code is this and the signal's number
_NOT_ASKED = Evidence("nobody asked Docker to end it: the kernel did, or a process on the node", "docker")
_HIGH_FLOOR = 16 * DEFAULT_FLOOR  # bytes: over it the floor itself is the reason, not what the engine takes
_BEFORE = 10.0  # seconds before the guard's act in which the fall is looked for


def of_end(
    plan: LaunchPlan,
    log: LogReader,
    container: Container | None,
    again: str | None = None,
    requests: tuple[int, ...] | None = None,
) -> Verdict:
    """Return why the container ended. ``container`` is None where it is gone: removed by somebody else.

    ``again`` is the command that starts it once more; ``requests`` the signals with which Docker was asked to end it, None
    where that is not known.
    """
    again = again or f"sparkctl up {plan.profile} --node {plan.node}"
    if container is None:
        return Verdict(
            Cause.STOPPED_BY_OTHERS,
            f"The container {plan.container_name} was removed while it started.",
            verdicts.last_line(log.latest),
            f"Somebody ran docker rm, or another tool did. Ask, then: {again}",
        )
    ended = Evidence(_state_sentence(container), "docker")
    if container.oom_killed:
        return _limit_kill(plan, log, ended)
    if (log.stopped is not None or requests) and not _has_named_cause(log):
        return _stop_verdict(plan, log, container, ended, again, requests)
    return verdicts.of_log(log, plan, (ended,)) or _by_exit_code(plan, log, container, ended, again, requests)


def of_refusal(plan: LaunchPlan, engine: Engine, error: DockerError, again: str, *, old_is_gone: bool) -> Verdict:
    """Return why Docker did not start it, by what kind of error that is, or by its words where they name a cause."""
    said = redact(error.message, plan.known_secrets)
    signal = engine.classify(said)
    failure = None if signal is None else signal.failure
    cause = next((cause for kind, cause in _REFUSALS if isinstance(error, kind)), None)
    hint = error.hint or (None if failure is None else failure.remedy)
    return Verdict(
        cause or (Cause.DOCKER_REFUSED if failure is None else failure.cause),
        f"Docker on {plan.node} did not start {plan.instance}: {said}."
        + (" The one that ran before was stopped." if old_is_gone else ""),
        (Evidence(said, "docker"),),
        hint or f"mend the profile, then: {again}",
    )


def of_guard(
    plan: LaunchPlan,
    log: LogReader,
    receipt: Receipt,
    claim: str | None,
    claims: str | None,
    within: float | None = None,
) -> Verdict:
    """Return why the guard ended it. ``claim``: the profile field by which it takes its memory, ``claims``: its value;
    ``within``: for how long it was watched (seconds), before which nothing is proof."""
    where = f" while {log.phase}" + (f" ({log.step.name})" if log.step else "")
    evidence = [Evidence(fall(receipt, within), "guard"), Evidence(shorten(clean(receipt.why), _WIDTH), "guard")]
    if receipt.reaction is not None:
        evidence.append(Evidence(f"killed {receipt.reaction * 1000:.0f} ms after that was seen", "guard"))
    if receipt.floor > _HIGH_FLOOR:
        return Verdict(
            Cause.GUARD_STOPPED,
            f"The guard stopped {plan.instance}{where}: start.guard.floor keeps {size(receipt.floor)} available on "
            f"{plan.node}, far more than it needs.",
            (*evidence, *verdicts.last_line(log.latest)),
            f"Lower start.guard.floor (now {size(receipt.floor)}; {size(DEFAULT_FLOOR)} without it).",
            "start.guard.floor",
            edit=edit(plan, "start.guard.floor", Change.LOWER),
        )
    now = f" (now {claims})" if claims else ""
    less = f"Lower {claim}{now}" if claim else "Let it claim less memory"
    return Verdict(
        Cause.GUARD_STOPPED,
        f"The guard stopped {plan.instance}{where}: {plan.node} was running out of memory, and would have frozen.",
        (*evidence, *verdicts.last_line(log.latest)),
        f"{less}, or stop what else holds memory (sparkctl status --node {plan.node}). start.guard.floor "
        f"({size(receipt.floor)}) is what {plan.node} may not fall under.",
        claim,
        edit=edit(plan, claim, Change.LOWER),
    )


def fall(receipt: Receipt, within: float | None = None) -> str:
    """Return the curve in words: from the top of the last seconds before the act to what the act was decided on.

    ``within``: not more seconds than these.
    """
    window = _BEFORE if within is None else min(_BEFORE, within)
    before = [one for one in receipt.samples if receipt.at - window <= one.at <= receipt.at]
    top = _top(before)
    if top is None or top.available - receipt.available < GIB // 20:
        return f"MemAvailable was {size(receipt.available)}, the floor is {size(receipt.floor)}"
    return (
        f"MemAvailable fell from {size(top.available)} to {size(receipt.available)} "
        f"in {spoken(max(0.1, receipt.at - top.at))}"
    )


def of_fatal_line(plan: LaunchPlan, log: LogReader, fatal: Seen) -> Verdict:
    """Return the verdict of a log with a line after which the engine cannot come up, though its process still runs."""
    return verdicts.of_log(log, plan) or verdicts.of_line(fatal, plan)


def of_time(plan: LaunchPlan, log: LogReader, phase: Phase, seconds: float, limit: str, why_not: str | None) -> Verdict:
    """Return the verdict of a phase that outlived its time. ``limit`` names the setting, ``why_not`` the last answer
    of health or probe."""
    step = f" ({log.step.name})" if log.step else ""
    evidence = [Evidence(f"{phase}{step} for {spoken(seconds)}", "clock")]
    if why_not:
        evidence.append(Evidence(shorten(why_not, _WIDTH), "http"))
    evidence += verdicts.last_line(log.latest)
    by_line = verdicts.of_log(log, plan, tuple(evidence))
    if by_line is not None:
        return by_line
    if phase is Phase.WARMING and log.ready_line_seen and why_not:
        return Verdict(
            Cause.WEDGED,
            f"{plan.instance} says it is ready and did not give a token within {spoken(seconds)}.",
            tuple(evidence),
            f"See its log: sparkctl logs {plan.instance} --node {plan.node}. An engine without text needs start.probe: none.",
            "start.probe",
        )
    return Verdict(
        Cause.TIMED_OUT,
        f"{plan.instance} was still {phase}{step} after {spoken(seconds)}.",
        tuple(evidence),
        f"If it only needs longer, raise {limit}. It still runs and holds its memory: "
        f"sparkctl logs {plan.instance} -f, or sparkctl down {plan.instance} --node {plan.node}",
        limit if limit.startswith("start.") else None,
        edit=edit(plan, limit, Change.RAISE) if limit.startswith("start.") else None,
    )


def of_pause(plan: LaunchPlan, log: LogReader, phase: Phase, seconds: float, again: str) -> Verdict:
    """Return the verdict of a start whose time went by while its container was paused."""
    return Verdict(
        Cause.TIMED_OUT,
        f"{plan.instance} is paused on {plan.node} (docker pause), so its start does not go on.",
        (
            Evidence(f"state paused, {phase} for {spoken(seconds)}", "docker"),
            *verdicts.last_line(log.latest),
        ),
        f"On {plan.node}: docker unpause {plan.container_name}; then watch it again: {again}. Or take it away: "
        f"sparkctl down {plan.instance} --node {plan.node}",
    )


def _limit_kill(plan: LaunchPlan, log: LogReader, ended: Evidence) -> Verdict:
    limit = dict(plan.options).get("memory")
    where = f" (last step: {log.step.name})" if log.step else ""
    proof = (ended, *verdicts.last_line(log.latest))
    if limit is None:
        return Verdict(
            Cause.HOST_OOM_KILL,
            f"The kernel's OOM killer ended {plan.instance}{where}: {plan.node} ran out of memory.",
            proof,
            f"See what else holds memory (sparkctl status --node {plan.node}) and stop it, or let this one claim less.",
        )
    return Verdict(
        Cause.HOST_OOM_KILL,
        f"The kernel killed {plan.instance}{where}: it reached its container's memory limit of {limit}.",
        proof,
        "Raise or remove the limit (container.options.memory). It never counts GPU memory on a Spark, so it protects nothing.",
        "container.options.memory",
        edit=edit(plan, "container.options.memory", Change.REMOVE),
    )


def _has_named_cause(log: LogReader) -> bool:
    """Tell whether a line names what went wrong, more than that something did."""
    return log.root is not None and log.root.failure is not None and log.root.failure.weight >= Weight.LIKELY


def _by_exit_code(
    plan: LaunchPlan,
    log: LogReader,
    container: Container,
    ended: Evidence,
    again: str,
    requests: tuple[int, ...] | None,
) -> Verdict:
    look = f"sparkctl logs {plan.instance} --node {plan.node}"
    code = container.exit_code
    if code in (_SIGINT, _SIGTERM) and log.last_words is None:
        return _stop_verdict(plan, log, container, ended, again)
    if code == 0:
        return Verdict(
            Cause.EXITED,
            f"{plan.instance} ended by itself, with exit code 0, before it was ready.",
            (*(verdicts.line(log.last_error) if log.last_error else ()), *verdicts.last_line(log.latest), ended),
            f"An engine that nobody stopped and that ends with 0 has crashed inside. Its log: {look}",
        )
    if code == _SIGKILL and log.last_words is None:
        return Verdict(
            Cause.KILLED,
            f"{plan.instance} was killed (SIGKILL) {_describe_progress(log)}, and nothing in its log says by whom.",
            (ended, *(() if requests is None else (_NOT_ASKED,)), *verdicts.last_line(log.latest)),
            "Either somebody killed it, or the machine ran out of memory. "
            f"On {plan.node}: sudo dmesg -T | grep -iE 'oom|killed process'",
        )
    what = f": {log.last_error.text}" if log.last_error else ", and no line of its log says why"
    return Verdict(
        Cause.CRASHED,
        shorten(f"{plan.instance} ended with exit code {_format_exit_code(code)}{what}", _WIDTH),
        (*(verdicts.line(log.last_error) if log.last_error else verdicts.last_line(log.latest)), ended),
        f"The whole log: {look}",
    )


def _stop_verdict(
    plan: LaunchPlan,
    log: LogReader,
    container: Container,
    ended: Evidence,
    again: str,
    requests: tuple[int, ...] | None = None,
) -> Verdict:
    """Return the verdict on a start that ended because it was asked to: by Docker's word, its own, or the signal alone."""
    asked = [Evidence(f"asked to send it {_signal_name(one)}", "docker") for one in requests or ()]
    return Verdict(
        Cause.STOPPED_BY_OTHERS,
        f"Somebody stopped {plan.instance} {_describe_progress(log)}: it was sent a signal to end "
        f"(exit code {_format_exit_code(container.exit_code)}), and did not fail by itself.",
        (*verdicts.line(log.stopped), *asked, ended, *verdicts.last_line(log.latest)),
        f"docker stop, docker kill and a shutdown of {plan.node} do that. Ask who did, then: {again}",
    )


def _describe_progress(log: LogReader) -> str:
    """Return the phase and step at which it ended, in words."""
    return f"while it was {log.phase}" + (f" ({log.step.name})" if log.step else "")


def _format_exit_code(code: int | None) -> str:
    """Return an exit code, with the signal that it stands for."""
    return str(code) if code is None or code <= _SIGNALS else f"{code}, {_signal_name(code - _SIGNALS)}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _state_sentence(container: Container) -> str:
    parts = [f"state {container.state}", f"exit code {container.exit_code}"]
    if container.oom_killed is not None:
        parts.append(f"OOMKilled={str(container.oom_killed).lower()}")
    if container.error:
        parts.append(container.error)
    return ", ".join(parts)


def _top(samples: list[GuardReading]) -> GuardReading | None:
    """Return where the fall began: the last reading of nearly the highest level."""
    highest = max((one.available for one in samples), default=0)
    near = [one for one in samples if one.available >= highest - highest // 50]
    return near[-1] if near else None
