"""What the operator's commands do: jobs, doctor runs, transfers, and the notices about them. Parts of the store.

The events here are of one front end: they are neither printed nor recorded.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import field, replace

from sparkctl.model.events import (
    BenchCellMeasured,
    BenchCellProgressed,
    BenchDomainMeasured,
    CachesDropped,
    CheckCompleted,
    CommandEnded,
    Event,
    FindingReported,
    LaunchPlanned,
    PhaseChanged,
    SwitchStepReported,
    TransferProgressed,
    WarningEmitted,
)
from sparkctl.model.finding import FindingKind, Severity
from sparkctl.model.instance import InstanceView
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import NodeName
from sparkctl.model.phase import Phase
from sparkctl.model.text.sanitize import sanitize_line


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStarted:
    """A command of the operator began to run as job ``job``. No ``nodes``: on all."""

    ts: float
    node: None = None
    job: int
    verb: str
    words: tuple[str, ...]
    nodes: tuple[NodeName, ...]


@dataclass(frozen=True, slots=True)
class JobEnded:
    """A job ended."""

    ts: float
    job: int
    node: None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeShown:
    """A sentence for the operator. ``severity`` GOOD: it holds while the ready instances that it names serve."""

    ts: float
    node: None = None
    text: str
    severity: Severity


@dataclass(frozen=True, slots=True)
class NoticesCleared:
    """The operator has seen the notices."""

    ts: float
    node: None = None


@dataclass(frozen=True, slots=True)
class SwitchHidden:
    """The operator has seen how the last switch ended."""

    ts: float
    node: None = None


@dataclass(frozen=True, slots=True)
class StartDiagnosed:
    """How a start ended that nobody watched, found out later."""

    ts: float
    node: NodeName
    end: CommandEnded


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorRun:
    """A doctor run on one node. Times are unix seconds; ``ended`` is None while it runs; ``before`` is from the last run."""

    begun: float
    ended: float | None = None
    found: tuple[FindingReported, ...] = ()
    before: tuple[FindingReported, ...] = ()
    earlier: float | None = None  # when the last run ended

    @property
    def findings(self) -> tuple[FindingReported, ...]:
        """The findings of this run, and of the last run for checks that have no new ones."""
        now = {(one.check, one.instance) for one in self.found}
        return (*self.found, *(one for one in self.before if (one.check, one.instance) not in now))


_MAX_UNOWNED_FINDINGS = 1000


class DoctorRuns:
    """The doctor runs on all nodes, one per node."""

    def __init__(self) -> None:
        self.runs: dict[NodeName, DoctorRun] = {}
        self._reported: deque[FindingReported] = deque(maxlen=_MAX_UNOWNED_FINDINGS)  # of a recording, by no known job

    @property
    def running_nodes(self) -> tuple[NodeName, ...]:
        """The nodes that are being checked now."""
        return tuple(name for name, run in self.runs.items() if run.ended is None)

    @property
    def all_findings(self) -> tuple[FindingReported, ...]:
        return tuple(one for run in self.runs.values() for one in run.findings)

    def get_last_run_time(self, name: NodeName) -> float | None:
        """Return when the last complete run on a node ended, in unix seconds; None before the first."""
        run = self.runs.get(name)
        return None if run is None else run.earlier if run.ended is None else run.ended

    def start_run(self, names: Iterable[NodeName], now: float) -> None:
        """Begin a run on these nodes."""
        for name in names:
            old = self.runs.get(name)
            self.runs[name] = DoctorRun(
                begun=now, before=() if old is None else old.findings, earlier=self.get_last_run_time(name)
            )

    def record_event(self, event: Event) -> None:
        """Apply an event of a `doctor` that runs as a job."""
        if event.node is None or (run := self.runs.get(event.node)) is None:
            return
        if isinstance(event, FindingReported):
            gone = event.check == FindingKind.CONNECTION  # a broken connection replaces the earlier good one
            kept = tuple(one for one in run.found if not gone or one.check != event.check)
            self.runs[event.node] = replace(run, found=(*kept, event))
        elif isinstance(event, CheckCompleted):
            self.runs[event.node] = replace(run, ended=event.ts, before=())

    def replay_event(self, event: Event) -> None:
        """Apply an event of a recording: a completed check owns the findings reported since it began."""
        if isinstance(event, FindingReported):
            self._reported.append(event)
        elif isinstance(event, CheckCompleted):
            began = event.ts - event.seconds
            found = tuple(one for one in self._reported if one.node == event.node and one.ts >= began)
            self.runs[event.node] = DoctorRun(begun=began, ended=event.ts, found=found)

    def abandon_runs(self, names: Iterable[NodeName]) -> None:
        """End the runs that were interrupted: each counts as old as the last complete run, or not at all without one."""
        for name in names:
            run = self.runs[name]
            if run.ended is None and run.earlier is None:
                del self.runs[name]
            elif run.ended is None:
                self.runs[name] = replace(run, ended=run.earlier, found=run.findings, before=())


@dataclass(slots=True, kw_only=True)
class Job:
    """A running command, with the events that its report needs. ``switches``: it has begun the steps of a switch."""

    started: JobStarted
    warnings: list[WarningEmitted] = field(default_factory=list)
    caches: list[CachesDropped] = field(default_factory=list)
    plan: LaunchPlanned | None = None
    instance: str | None = None
    ended: CommandEnded | None = None
    switches: bool = False

    @property
    def measures(self) -> bool:
        return self.started.verb == "bench"

    @property
    def is_examination(self) -> bool:
        """Whether it is a `doctor` run with findings, not one that only collects files."""
        return self.started.verb == "doctor" and not any(one.startswith("--collect") for one in self.started.words)

    def record_event(self, event: Event) -> None:
        """Keep what the report at the end needs."""
        match event:
            case WarningEmitted():
                self.warnings.append(event)
            case CachesDropped():
                self.caches.append(event)
            case LaunchPlanned():
                self.plan, self.instance = event, event.plan.instance
            case PhaseChanged():
                self.instance = event.instance
            case SwitchStepReported():
                self.switches = True
            case CommandEnded():
                self.ended = event
            case _:
                pass


class Jobs:
    """The running jobs, their doctor runs and transfers, and the warnings of the starts that have ended."""

    def __init__(self) -> None:
        self.running: dict[int, Job] = {}
        self.measuring: dict[tuple[str, NodeName], BenchCellMeasured | BenchCellProgressed | BenchDomainMeasured] = {}
        self.doctor = DoctorRuns()
        self._start_warnings: dict[tuple[NodeName, str], tuple[WarningEmitted, ...]] = {}
        self._transfers: dict[tuple[NodeName, NodeName, str], TransferProgressed] = {}

    @property
    def running_transfers(self) -> tuple[TransferProgressed, ...]:
        """The newest progress of each transfer that has not ended."""
        return tuple(self._transfers.values())

    @property
    def switch_job(self) -> Job | None:
        return next((job for job in self.running.values() if job.switches), None)

    def list_running_verbs(self, name: NodeName) -> tuple[str, ...]:
        """Return the verbs of the jobs that name a node; `doctor` while it examines the node."""
        verbs = [one.started.verb for one in self.running.values() if name in one.started.nodes]
        return (
            *(verb for verb in verbs if verb != "doctor"),
            *(("doctor",) if name in self.doctor.running_nodes else ()),
        )

    def list_start_warnings(self, name: NodeName, instance: str) -> tuple[WarningEmitted, ...]:
        """Return the warnings of the last start of an instance by a job, running or ended."""
        for job in self.running.values():
            if job.started.verb == "up" and job.instance == instance and name in job.started.nodes:
                return tuple(job.warnings)
        return self._start_warnings.get((name, instance), ())

    def apply_event(self, event: Event | JobStarted | JobEnded, job: int | None) -> bool:
        """Apply an event, and return whether it changed what is shown. ``job``: by which it was emitted, if by any."""
        if isinstance(event, JobStarted):
            self.running[event.job] = Job(started=event)
            if self.running[event.job].is_examination:
                self.doctor.start_run(event.nodes, event.ts)
            return True
        if isinstance(event, JobEnded):
            self._end_job(self.running.pop(event.job))
            return True
        if (mine := None if job is None else self.running.get(job)) is not None:
            mine.record_event(event)
        if isinstance(event, FindingReported | CheckCompleted):
            if mine is None:
                self.doctor.replay_event(event)
            elif mine.is_examination:
                self.doctor.record_event(event)
            return isinstance(event, CheckCompleted)
        if isinstance(event, BenchCellMeasured | BenchCellProgressed | BenchDomainMeasured):
            self.measuring[event.instance, event.node] = event
            return True
        if not isinstance(event, TransferProgressed):
            return False
        key = event.source, event.node, event.what
        self._transfers.pop(key, None)
        if event.total is None or event.done < event.total:
            self._transfers[key] = event
        return True

    def _end_job(self, job: Job) -> None:
        started = job.started
        if job.measures and not any(one.measures for one in self.running.values()):
            self.measuring.clear()
        if job.is_examination:
            self.doctor.abandon_runs(started.nodes)
        if started.verb in ("sync", "pull", "up"):
            self._transfers.clear()
        if started.verb == "up" and job.instance is not None:
            self._start_warnings |= {(name, job.instance): tuple(job.warnings) for name in started.nodes}


QUEUED_WORDS = "starts once that has ended"  # in the notice of a start that waits for another operation
_MAX_NOTICES = 3
_PASSING_SECONDS = 60.0  # seconds for which good news or a hint without an instance is shown
_GONE_PHASES = (Phase.STOPPING, Phase.STOPPED, Phase.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A notice of ``when`` (unix seconds); it holds while the instances in ``rests`` serve, and those in ``failed`` are failed."""

    text: str
    severity: Severity
    rests: frozenset[tuple[NodeName, str]]
    when: float
    failed: frozenset[tuple[NodeName, str]]

    def is_old(self, now: float) -> bool:
        """Tell whether it is good news or a hint without an instance, and too old to show."""
        is_passing = self.severity in (Severity.GOOD, Severity.NOTE) and not self.rests
        return is_passing and now - self.when > _PASSING_SECONDS


class NoticeBoard:
    """The last notices."""

    def __init__(self) -> None:
        self._notices: list[Notice] = []

    def add_notice(self, event: NoticeShown, instances: Mapping[NodeName, Iterable[InstanceView]]) -> None:
        """Add a notice. Good news depends on the ready ``instances`` that it names, bad news on the failed ones."""
        text = sanitize_line(event.text.replace("\n", " "))
        named = [
            (one.phase, (node, one.name))
            for node, listed in instances.items()
            for one in listed
            if one.ours and re.search(rf"(?<![\w.-]){re.escape(one.name)}(?![\w-])", text)
        ]
        is_good = event.severity is Severity.GOOD
        rests = frozenset(one for phase, one in named if is_good and phase is Phase.READY)
        failed = frozenset(one for phase, one in named if not is_good and phase is Phase.FAILED)
        current = self.list_current(event.ts)[1 - _MAX_NOTICES :]
        self._notices = [
            *current,
            Notice(text=text, severity=event.severity, rests=rests, when=event.ts, failed=failed),
        ]

    def list_current(self, now: float) -> list[Notice]:
        """Return the notices that hold at ``now`` (unix seconds), the latest last."""
        return [one for one in self._notices if not one.is_old(now)]

    def rests_on(self, node: NodeName) -> bool:
        return any(name == node for one in self._notices for name, _ in one.rests | one.failed)

    def drop_outdated(self, node: NodeName, instances: Iterable[InstanceView]) -> None:
        """Drop the notices about ``instances`` of a node that no longer serve, or are failed no more; what was over does not come
        back."""
        listed = list(instances)
        serving = {one.name for one in listed if one.phase not in _GONE_PHASES}
        failed = {one.name for one in listed if one.phase is Phase.FAILED}
        self._notices = [
            one
            for one in self._notices
            if all(name in serving for where, name in one.rests if where == node)
            and all(name in failed for where, name in one.failed if where == node)
        ]

    def drop_naming(self, words: str) -> None:
        """Drop the notices that have these words: their cause is over."""
        self._notices = [one for one in self._notices if words not in one.text]

    def clear(self) -> None:
        self._notices.clear()
