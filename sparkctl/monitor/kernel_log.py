"""The kernel's log of a node: read once by a program of its own, or followed with the samples. Which event a line means, the table
in kernel_events.json says; data from a node is not trusted: each line is made printable and bounded.

What it says about the end of a container is evidence for the verdict, and a better cause where the engine's log has none. This
is the one place where the kernel's witness enters verdicts.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from sparkctl.errors import NodeError
from sparkctl.model.container import Container
from sparkctl.model.finding import Severity
from sparkctl.model.json_codec import from_json_data
from sparkctl.model.kernel_event import BootEnd, KernelEvent, KernelEventKind, KernelLine, KernelLog, KernelReading
from sparkctl.model.launch_plan import ContainerLabel
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.sample import Sample
from sparkctl.model.text.sanitize import load_json, sanitize_line, truncate_text
from sparkctl.model.text.units import format_date_time
from sparkctl.model.verdict import MAX_EVIDENCE_CHARS, Confidence, Evidence, FailureCause, Verdict
from sparkctl.node import bootstrap, load_kernel_table
from sparkctl.transport.node_connection import OutputTooLong
from sparkctl.transport.node_session import NodeSession

_KERNEL_LOG_PROTOCOL = 1  # what the program of this version speaks
_MAX_TEXT_CHARS = 300
_MAX_OLD_LINES = 64


@dataclass(frozen=True, slots=True)
class KernelRule:
    """A row of the table."""

    kind: KernelEventKind
    severity: Severity
    pattern: re.Pattern[str]
    data: Mapping[str, Any]


@cache
def load_kernel_rules() -> tuple[tuple[KernelRule, ...], Mapping[str, Mapping[str, Any]]]:
    """Return the table: rules in the order in which they are tried, and the meanings of Xid numbers."""
    table = load_kernel_table()
    rules = (
        KernelRule(KernelEventKind(row["kind"]), Severity(row["severity"]), re.compile(row["pattern"]), row)
        for row in table["rules"]
    )
    return tuple(rules), table["xids"]


def decode_kernel_line(line: KernelLine, to_unix: Callable[[float], float]) -> KernelEvent | None:
    """Return the event that a line means, None if it means none. ``to_unix`` turns its time into unix seconds."""
    rules, xids = load_kernel_rules()
    text = truncate_text(sanitize_line(line.text), _MAX_TEXT_CHARS)
    for rule in rules:
        match = rule.pattern.search(text)
        if match is None:
            continue
        named = {name: value for name, value in match.groupdict().items() if value}
        if rule.kind is KernelEventKind.PCIE and (what := _name_pci_device(named.get("device"), line.devices)):
            named["device"] += f" ({what})"
        row: dict[str, Any] = {**rule.data, **(xids.get(named.get("xid", ""), {}) if rule.severity != "note" else {})}
        meaning = row["meaning"].format_map(_NamedParts(named))
        if "xid" in named and f"Xid {named['xid']}" not in meaning:
            meaning = f"Xid {named['xid']}: {meaning}"
        return KernelEvent(
            kind=rule.kind,
            severity=Severity(row["severity"]),
            at=to_unix(line.at),
            last=to_unix(line.at if line.last is None else line.last),
            text=text,
            meaning=meaning,
            remedy=row["remedy"].format_map(_NamedParts(named)),
            source=row["source"],
            hours=row["hours"],
            many=row.get("many"),
            count=max(1, line.count or 1),
            container=line.container,
            process=named.get("process"),
            pid=int(named["pid"]) if "pid" in named else None,
            xid=int(named["xid"]) if "xid" in named else None,
            ends_programs=bool(row.get("ends_programs", rule.kind in _ENDING_KINDS)),
            is_evidence=row.get("is_evidence", True),
        )
    return None


# By the beginning of the class that a PCI device reports.
_PCI_CLASSES = {
    "0x0108": "the NVMe drive",
    "0x02": "the network card",
    "0x0280": "the Wi-Fi card",
    "0x03": "the GPU",
    "0x0604": "a PCIe port",
    "0x0c03": "the USB controller",
}


def _name_pci_device(address: str | None, devices: Sequence[str]) -> str | None:
    """Return what the node says of a PCI device, None if it says nothing that we know. ``devices``: as in `KernelLine`."""
    words = next((one.split() for one in devices if address is not None and one.startswith(address)), [])
    if len(words) < 2:
        return None
    if "mlx5_core" in words:
        return "the ConnectX"
    kinds = [kind for kind in _PCI_CLASSES if words[1].startswith(kind)]
    return _PCI_CLASSES[max(kinds, key=len)] if kinds else None


_ENDING_KINDS = (KernelEventKind.OOM_KILL, KernelEventKind.GPU_LOST)


class _NamedParts(dict[str, str]):
    """The named parts of a line, for a sentence; a part that the line lacks is described."""

    def __missing__(self, name: str) -> str:
        return "a process" if name == "process" else f"({name} not named)"


def decode_kernel_lines(lines: Iterable[KernelLine], to_unix: Callable[[float], float]) -> tuple[KernelEvent, ...]:
    """Return the events of lines, in their order."""
    found = (decode_kernel_line(line, to_unix) for line in lines)
    return tuple(event for event in found if event is not None)


def decode_kernel_log(output: bytes) -> KernelLog:
    """Return what the program printed. Raises ValueError if it is not a line of this protocol."""
    line = next((one for one in output.split(b"\n") if b'"kernel_log"' in one), b"")
    try:
        data = load_json(line)
    except ValueError as wrong:
        raise ValueError("no line of the kernel's log") from wrong
    if not isinstance(data, dict) or data.get("kernel_log") != _KERNEL_LOG_PROTOCOL:
        raise ValueError("not this protocol of the kernel's log")
    reading = from_json_data(KernelReading, data.get("log"), is_strict=False)
    times = from_json_data(_Times, data, is_strict=False)
    if reading is None or times is None:
        raise ValueError("not a whole reading of the kernel's log")
    boot = times.now - times.uptime
    return KernelLog(
        now=times.now,
        events=decode_kernel_lines(reading.lines, lambda at: boot + at),
        source=reading.source,
        trouble=None if reading.trouble is None else truncate_text(sanitize_line(reading.trouble), _MAX_TEXT_CHARS),
        oldest=None if reading.oldest is None else boot + reading.oldest,
        booted=None if times.since_boot is None else times.now - times.since_boot,
        skipped=reading.skipped or 0,
        kernel=None if times.kernel is None else truncate_text(sanitize_line(times.kernel), _MAX_TEXT_CHARS),
        boot_before=_decode_boot_end(data.get("before")),
    )


@dataclass(frozen=True, slots=True)
class _Times:
    now: float
    uptime: float
    since_boot: float | None = None
    kernel: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _BootEndReading:
    clean: bool | None = None
    trouble: str | None = None
    ended: float | None = None
    last: tuple[str, ...] = ()
    lines: tuple[KernelLine, ...] = ()


def _decode_boot_end(data: object) -> BootEnd | None:
    reading = None if data is None else from_json_data(_BootEndReading, data, is_strict=False)
    if reading is None:
        return None
    return BootEnd(
        is_clean=reading.clean,
        trouble=None if reading.trouble is None else truncate_text(sanitize_line(reading.trouble), _MAX_TEXT_CHARS),
        ended=reading.ended,
        last=tuple(truncate_text(sanitize_line(line), _MAX_TEXT_CHARS) for line in reading.last[:_MAX_OLD_LINES]),
        events=decode_kernel_lines(reading.lines[:_MAX_OLD_LINES], lambda at: at),
    )


_TIMEOUT_SECONDS = 10.0
_BOOT_BEFORE_TIMEOUT_SECONDS = 60.0
_MAX_EVENTS = 200
_CLOCK_STEP_SECONDS = 1.0  # by which the node's clock was set, and not just kept in step
_NEWS_SECONDS = 30.0  # seconds before the first sample from which on an event is news
READ_RIGHT_REMEDY = (
    "sudo usermod -aG adm $USER on the node, then log in again; or for all users: sudo sysctl kernel.dmesg_restrict=0"
)


async def read_kernel_log(session: NodeSession, *, boot_before: bool = False) -> KernelLog | None:
    """Return what the kernel logged since boot, with ``boot_before`` also how the boot before ended.

    None where the program does not run there, or does not answer in time. Raises `NodeError` for a lost connection.
    """
    node = session.node
    program = bootstrap.build_kernel_log_program(boot_before=boot_before, is_local=node.is_local)
    timeout = _BOOT_BEFORE_TIMEOUT_SECONDS if boot_before else _TIMEOUT_SECONDS
    try:
        done = await session.link.run(program.argv, stdin=program.stdin, timeout=timeout)
        return decode_kernel_log(done.stdout)
    except (TimeoutError, OutputTooLong, ValueError):
        return None


async def read_kernel_log_if_possible(session: NodeSession) -> KernelLog | None:
    """Return the same; None also where the node does not answer."""
    try:
        return await read_kernel_log(session)
    except NodeError:
        return None


class KernelHistory:
    """The events of one node, from samples, of this boot; the latest last. An agent that starts again sends the whole log
    again, in which lines that differ in figures alone are one: what was logged meanwhile is an event, the rest counts once.
    """

    def __init__(self) -> None:
        self.events: deque[KernelEvent] = deque(maxlen=_MAX_EVENTS)
        self.trouble: str | None = None
        self.is_read = False  # a sample told of it, though perhaps of no line
        self.skipped = 0  # lines of floods
        self._boot: str | None = None
        self._uptime, self._began = 0.0, 0.0  # of the last sample; when its boot began, in unix seconds
        self._news_from: float | None = None
        self._read_until = -1.0  # seconds since boot of the last line that was sent
        self._counts: Counter[tuple[str, str | None]] = Counter()  # how many lines with these words were sent

    def describe_gaps(self) -> str | None:
        """Return why the kernel's log is not known, or not all of it; None if it is."""
        if self.trouble is not None:
            return "not readable: ! names the missing right"
        if not self.is_read:
            return "not read"
        return f"of a flood of lines {self.skipped:,} were skipped" if self.skipped else None

    def add_sample(self, sample: Sample, boot: str | None) -> tuple[KernelEvent, ...]:
        """Add the events of a sample; return those that are news: logged since sparkctl looks."""
        began = sample.time - sample.uptime
        if boot != self._boot or sample.uptime < self._uptime:
            self._boot, self._news_from, self._read_until = boot, None, -1.0
            self._counts.clear()
            self.events.clear()
            self.skipped = 0
        elif abs(step := began - self._began) > _CLOCK_STEP_SECONDS:
            # the node's clock was set: each event is as long ago as before
            for at, one in enumerate(self.events):
                self.events[at] = replace(one, at=one.at + step, last=one.last + step)
            self._began = began
        if self._news_from is None:
            self._began, self._news_from = began, sample.uptime - _NEWS_SECONDS
        self._uptime = sample.uptime
        if sample.kernel is None:
            return ()
        self.is_read, self.trouble = True, sample.kernel.trouble
        self.skipped += sample.kernel.skipped or 0
        found = decode_kernel_lines(self._list_new_lines(sample.kernel.lines), lambda at: began + at)
        self.events += found
        news = self._news_from + began
        return tuple(one for one in found if one.at >= news and is_worth_a_line(one))

    def _list_new_lines(self, lines: Sequence[KernelLine]) -> list[KernelLine]:
        """Return the lines that were not sent before; of a group that was sent in part, the rest, at the time of its last."""
        from sparkctl.node.kernel_log import FIGURES_PATTERN  # only the panel needs it

        until, new = self._read_until, []
        for line in lines:
            last, count = line.last or line.at, line.count or 1
            words = FIGURES_PATTERN.sub("0", line.text), line.container
            if last <= until:
                continue
            if line.at <= until:
                count = max(1, count - self._counts[words])
                new.append(replace(line, at=last, count=count))
            else:
                new.append(line)
            self._counts[words] += count
            self._read_until = max(self._read_until, last)
        if len(self._counts) > 4 * _MAX_EVENTS:
            self._counts = Counter(dict(self._counts.most_common(_MAX_EVENTS)))
        return new


def is_worth_a_line(event: KernelEvent) -> bool:
    """Tell whether an operator who was away wants to see it."""
    return event.severity in (Severity.WARNING, Severity.PROBLEM) or event.kind is KernelEventKind.DRIVER_MEMORY


def format_log_start(log: KernelLog) -> str:
    """Return from when on the log is complete, in words."""
    return "boot" if log.oldest is None else format_date_time(log.oldest)


_ORIGIN = "kernel"
_BEFORE_END_SECONDS = 120.0  # an event of the machine so long before the end belongs to it
_CLOCK_SET_SECONDS = 30.0  # by which a node's clock may be set soon after a boot
_END_SLACK_SECONDS = 60.0  # Docker reports an end late
_START_SLACK_SECONDS = 2.0  # what the kernel logged before the container was started is not about it
_CLOCK_DRIFT = 2 / 86400  # the kernel's clock drifts against the node's, by a second a day
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
# What a rank that has lost the others says, or does not say.
_CUT_OFF_CAUSES = _OPEN_CAUSES - {FailureCause.KILLED}
_REGISTRATION_PATTERN = re.compile(r"ibv_reg_mr\w*")
_GPU_KINDS = (KernelEventKind.XID, KernelEventKind.GPU_LOST)
_SILENT_CAUSES = (FailureCause.KILLED, FailureCause.EXITED)  # it ended without a word
_NOT_THE_KERNEL_REMEDY = (
    "It was not the kernel: ask who may have killed it, a person, a script, or a program that watches the memory: "
    "journalctl -u earlyoom -u systemd-oomd on the node."
)
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
    if log is not None and _went_down_with_machine(container, log):
        return _apply_reboot(verdict, log, container, name)
    if log is None or log.source is None:
        return _add_missing_right(verdict, log)
    verdict = _add_known_fault(verdict, log)
    has_ended = not container.is_alive and container.finished is not None
    ended = container.finished if has_ended and container.finished is not None else log.now
    began = container.started if container.started is not None else ended - _BEFORE_END_SECONDS
    first = _find_first_moment(log, began)
    during = [one for one in log.events if first <= one.last <= ended + _END_SLACK_SECONDS]
    late = [one for one in during if not has_ended or ended - one.last <= _BEFORE_END_SECONDS]
    kills = [one for one in during if one.kind is KernelEventKind.OOM_KILL and one.container == container.id]
    faults = [one for one in late if one.kind in _GPU_KINDS and _hits_container(one, container)]
    if kills:
        return _apply_oom_kill(verdict, kills, name)
    if faults:
        return _apply_gpu_fault(verdict, faults, name)
    around = [one for one in late if _is_of_machine(one, container) or _cuts_ranks(one, verdict, container)]
    if around:
        telling = [one for one in around if _tells_of_short_memory(one)]
        telling = telling or [one for one in around if one.severity is Severity.PROBLEM]
        remedy = telling[-1].remedy if telling and verdict.cause in _SILENT_CAUSES else verdict.remedy
        return replace(verdict, evidence=(*verdict.evidence, *_build_evidence(around, ended)), remedy=remedy)
    if verdict.cause in _SILENT_CAUSES and log.oldest is not None and log.oldest <= began and not log.skipped:
        nothing = "the kernel logged no OOM kill and no GPU fault while it ran"
        remedy = _NOT_THE_KERNEL_REMEDY if verdict.cause is FailureCause.KILLED else verdict.remedy
        return replace(verdict, evidence=(*verdict.evidence, Evidence(nothing, _ORIGIN)), remedy=remedy)
    return verdict


def _went_down_with_machine(container: Container, log: KernelLog) -> bool:
    """Tell whether a container was started in an earlier boot and never ended there: Docker calls it ended when it starts again."""
    began, ended = container.started, container.finished
    if container.is_alive or log.booted is None or began is None or ended is None:
        return False
    return began + _CLOCK_SET_SECONDS < log.booted < ended


def _apply_reboot(verdict: Verdict, log: KernelLog, container: Container, name: str) -> Verdict:
    """Return the verdict for what a restart of its machine ended: no line of this boot's log is about that."""
    booted = "" if log.booted is None else f" at {format_date_time(log.booted, has_seconds=True)}"
    fact = Evidence(f"the machine was booted{booted}, after this container was started and before it ended", _ORIGIN)
    if verdict.cause not in _OPEN_CAUSES:
        return replace(verdict, evidence=(*verdict.evidence, fact))
    return replace(
        verdict,
        summary=f"{name} ended because {explain_end(log, container)}{booted}.",
        evidence=(fact, *verdict.evidence),
        remedy="sparkctl doctor tells how the boot before ended, and what stood before it: a freeze when memory ran out, heat, the "
        f"power, or a restart on purpose. Then start {name} again.",
        confidence=Confidence.LIKELY,
    )


def _tells_of_short_memory(event: KernelEvent) -> bool:
    """Tell whether the node's memory was out: a program was killed for it, or the driver was refused it again and again."""
    many = event.severity is not Severity.NOTE or (event.many is not None and event.count >= event.many)
    return event.kind is KernelEventKind.OOM_KILL or (event.kind is KernelEventKind.DRIVER_MEMORY and many)


def explain_end(log: KernelLog, container: Container) -> str | None:
    """Return why a container ended: the kernel's last OOM kill in it since it was started, or its machine went down; else None."""
    if _went_down_with_machine(container, log):
        return "its machine went down while it ran, and was booted again"
    began = container.started or 0.0
    kills = [one for one in log.events if one.kind is KernelEventKind.OOM_KILL and one.container == container.id]
    last = [one.meaning for one in kills if one.last >= _find_first_moment(log, began)]
    return last[-1] if last else None


def _find_first_moment(log: KernelLog, began: float) -> float:
    """Return from when on a line may be about a container that was started then (unix seconds)."""
    return began - _START_SLACK_SECONDS - max(0.0, log.now - began) * _CLOCK_DRIFT


def _hits_container(event: KernelEvent, container: Container) -> bool:
    """Tell whether a GPU event ended programs of this container: its own, or all on the GPU."""
    if not event.ends_programs:
        return False
    return event.container in (None, container.id) or (event.severity is Severity.PROBLEM and event.hours is None)


def _is_of_machine(event: KernelEvent, container: Container) -> bool:
    """Tell whether an event that names no program of this container may still have hit it."""
    is_anothers = event.kind is KernelEventKind.PROGRAM_CRASH and event.container not in (None, container.id)
    if event.kind in _GPU_KINDS or is_anothers or not event.is_evidence:
        return False  # of another container, or harmless for all
    return event.severity is not Severity.NOTE or event.kind is KernelEventKind.DRIVER_MEMORY


def _cuts_ranks(event: KernelEvent, verdict: Verdict, container: Container) -> bool:
    """Tell whether an event cut the parts of a model on several Sparks off from each other. A link also goes down in order."""
    has_ranks = container.get_label(ContainerLabel.RANK) is not None
    return has_ranks and event.kind is KernelEventKind.FABRIC_LINK and verdict.cause in _CUT_OFF_CAUSES


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
    # the first: others follow from it
    worst = next((one for one in faults if one.severity is Severity.PROBLEM), faults[0])
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
    from sparkctl.engines.traps import load_node_traps

    for trap, bad in load_node_traps():
        if bad.what == "kernel" and bad.needs == "rdma" and re.fullmatch(bad.pattern, log.kernel):
            evidence = Evidence(trap.meaning.format(version=log.kernel), _ORIGIN)
            return replace(verdict, evidence=(*verdict.evidence, evidence), remedy=trap.remedy)
    return verdict
