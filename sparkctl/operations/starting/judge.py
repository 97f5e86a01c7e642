"""The verdict on a start that did not become ready. Pure: what was seen in, cause, evidence and remedy out.

Order of proof: what Docker knows for certain (a limit's OOM kill), then the engine's own concrete words, then the
exit code, which lies often (SGLang kills itself with 137 on a clean stop, vLLM ends with 0 after a crash).
"""

from __future__ import annotations

from sparkctl.core import verdicts
from sparkctl.core.edits import edit
from sparkctl.core.log_seen import Seen
from sparkctl.core.reading import LogReader
from sparkctl.engines.base import Engine
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
_SIGKILL = 137
_HIGH_FLOOR = 16 * DEFAULT_FLOOR  # bytes: over it the floor itself is the reason, not what the engine takes
_BEFORE = 10.0  # seconds before the guard's act in which the fall is looked for


def of_end(plan: LaunchPlan, log: LogReader, container: Container | None, again: str | None = None) -> Verdict:
    """Return why the container ended. ``container`` is None where it is gone: removed by somebody else.

    ``again`` is the command that starts it once more.
    """
    if container is None:
        return Verdict(
            Cause.STOPPED_BY_OTHERS,
            f"The container {plan.container_name} was removed while it started.",
            verdicts.last_line(log.latest),
            f"Somebody ran docker rm, or another tool did. Ask, then: {again or f'sparkctl up {plan.profile} --node {plan.node}'}",
        )
    ended = Evidence(_state_sentence(container), "docker")
    if container.oom_killed:
        return _limit_kill(plan, log, ended)
    return verdicts.of_log(log, plan, (ended,)) or _by_exit_code(plan, log, container, ended)


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


def _by_exit_code(plan: LaunchPlan, log: LogReader, container: Container, ended: Evidence) -> Verdict:
    last = log.last_error or log.latest
    evidence = (*(verdicts.line(last) if log.last_error else verdicts.last_line(last)), ended)
    look = f"sparkctl logs {plan.instance} --node {plan.node}"
    if container.exit_code == 0:
        return Verdict(
            Cause.EXITED,
            f"{plan.instance} ended by itself, with exit code 0, before it was ready.",
            (*(verdicts.line(log.last_error) if log.last_error else ()), *verdicts.last_line(log.latest), ended),
            f"An engine that nobody stopped and that ends with 0 has crashed inside. Its log: {look}",
        )
    if container.exit_code == _SIGKILL and log.last_words is None:
        return Verdict(
            Cause.KILLED,
            f"{plan.instance} was killed (SIGKILL) without a word of that in its log.",
            (ended, *verdicts.last_line(log.latest)),
            "Either somebody stopped it, or the machine ran out of memory. "
            f"On {plan.node}: sudo dmesg -T | grep -iE 'oom|killed process'",
        )
    what = f": {last.text}" if last else ", without a word in its log"
    return Verdict(
        Cause.CRASHED,
        shorten(f"{plan.instance} ended with exit code {container.exit_code}{what}", _WIDTH),
        evidence,
        f"The whole log: {look}",
    )


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
