"""The closed set of events: everything sparkctl does or sees. They are written to JSONL and read back.

``ts`` is the operator's clock, unix seconds. Schema version 1 (docs/scripting.md): fields are added, never renamed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from sparkctl.model.engine_metrics import EngineFact, EngineMeter
from sparkctl.model.finding import Finding, FindingEvidence, Severity
from sparkctl.model.guard_state import GuardAction, GuardCoverage
from sparkctl.model.instance import InstanceView
from sparkctl.model.launch_plan import LaunchPlan
from sparkctl.model.log_line import LogLine
from sparkctl.model.memory_fit import MemoryFit
from sparkctl.model.memory_reading import MemoryReading
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.phase import Phase, PhaseDuration, Step
from sparkctl.model.sample import Sample
from sparkctl.model.switch_plan import SwitchJournalStatus, SwitchPlan, SwitchStep
from sparkctl.model.verdict import Verdict


class Outcome(StrEnum):
    """How a verb ended."""

    READY = "ready"
    DONE = "done"
    FAILED = "failed"
    TIMED_OUT = "timed-out"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    UNHEALTHY = "unhealthy"
    DETACHED = "detached"
    PLANNED = "planned"  # --dry-run
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStateChanged:
    """The connection's state. ``attempt`` and ``next_try`` (seconds from now) are set while reconnecting."""

    ts: float
    node: NodeName
    state: NodeState
    detail: str | None = None
    attempt: int | None = None
    next_try: float | None = None
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class MemorySampled:
    """One reading of a node's memory."""

    ts: float
    node: NodeName
    memory: MemoryReading


@dataclass(frozen=True, slots=True)
class SampleArrived:
    """The probe's reading of everything on a node; ``ts`` is when it got here, ``sample.time`` the node's own clock.

    ``boot`` is the kernel's id of this boot: another one is another series of ``sample.uptime``.
    """

    ts: float
    node: NodeName
    sample: Sample
    boot: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CachesDropped:
    """``proven`` tells whether the kernel's own counter rose; None where it has no such counter."""

    ts: float
    node: NodeName
    before: MemoryReading
    after: MemoryReading
    proven: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainersListed:
    """What runs on a node, ours and foreign, and how far ours are. What each holds and does others tell: ``memory`` and
    ``numbers`` are None. ``known`` False: Docker did not say, and ``detail`` and ``hint`` are why.
    ``memory_bandwidth``: what the node's memory is specified for, GB/s, as the operator's config has it."""

    ts: float
    node: NodeName
    instances: tuple[InstanceView, ...] = ()
    known: bool = True
    detail: str | None = None
    hint: str | None = None
    memory_bandwidth: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeterArrived:
    """What an engine did in the last seconds, by its container's id; ``numbers`` None: nothing is known. ``metrics_hint``:
    what to set in the profile to know more."""

    ts: float
    node: NodeName
    container: str
    numbers: EngineMeter | None = None
    metrics_hint: str | None = None


@dataclass(frozen=True, slots=True)
class EngineFactsReported:
    """What an engine's log has told so far of how it runs, all of it, by its container's id."""

    ts: float
    node: NodeName
    container: str
    facts: tuple[EngineFact, ...]


@dataclass(frozen=True, slots=True)
class LaunchPlanned:
    """What is about to be done on one node."""

    ts: float
    node: NodeName
    plan: LaunchPlan


@dataclass(frozen=True, slots=True)
class MemoryFitEvaluated:
    """Whether what is about to be done fits on a node. ``commands`` follow from the answer."""

    ts: float
    node: NodeName
    fit: MemoryFit
    commands: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseChanged:
    """A phase was entered or moved on. ``elapsed`` counts from the beginning of the verb, ``expected`` is the whole
    start's usual length and ``expected_parts`` that of its phases and steps (medians of earlier starts), all in seconds."""

    ts: float
    node: NodeName
    instance: str
    phase: Phase
    step: Step | None = None
    elapsed: float | None = None
    expected: float | None = None
    detail: str | None = None
    expected_parts: tuple[PhaseDuration, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LogArrived:
    """Lines of a container's log, in order, none lost and none twice. ``gap`` marks lines that Docker no longer has.

    ``rank`` as "0/2", where the logs of all ranks of a model are shown together; each is in order of its own.
    """

    ts: float
    node: NodeName
    instance: str
    lines: tuple[LogLine, ...]
    gap: bool = False
    rank: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardActed:
    """What the guard on a node did, or could not do. ``at`` is the node's clock; the rest is as in `GuardEvent`."""

    ts: float
    node: NodeName
    what: GuardAction
    why: str
    at: float
    instance: str | None = None
    container: str | None = None
    available: int | None = None
    free: int | None = None
    rate: float | None = None
    to_zero: float | None = None


@dataclass(frozen=True, slots=True)
class GuardStatusChanged:
    """Which instances the guard on a node watches: none where no guard runs; None where one may and cannot be asked."""

    ts: float
    node: NodeName
    watched: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class WarningEmitted:
    """Something the operator must see that does not end the work."""

    ts: float
    node: NodeName | None
    message: str
    hint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingReported:
    """A finding, as a verb tells it. ``check`` is its kind, ``remedy`` a command or a sentence; see `model.finding`."""

    ts: float
    node: NodeName | None
    check: str
    severity: Severity
    message: str
    remedy: str | None = None
    instance: str | None = None
    evidence: tuple[FindingEvidence, ...] = ()
    since: float | None = None

    @classmethod
    def from_finding(cls, ts: float, one: Finding) -> FindingReported:
        """Return a finding as an event."""
        return cls(
            ts=ts,
            node=one.node,
            check=one.kind.value,
            severity=one.severity,
            message=one.summary,
            remedy=one.remedy,
            instance=one.instance,
            evidence=one.evidence,
            since=one.since,
        )


@dataclass(frozen=True, slots=True)
class SwitchPlanned:
    """What a switch will stop, keep and start."""

    ts: float
    node: NodeName | None
    plan: SwitchPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchStepReported:
    """A switch began a step, or has proved one: ``proof`` is what proves it, in words, None while it goes on. ``elapsed``
    counts from the beginning of the verb, in seconds. ``stops``: the names of what goes."""

    ts: float
    node: NodeName | None
    step: SwitchStep
    instance: str
    proof: str | None = None
    elapsed: float | None = None
    stops: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SwitchJournalReported:
    """What lies where a node keeps the journal of a switch, whoever does it; told when it is other than before."""

    ts: float
    node: NodeName
    view: SwitchJournalStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferProgressed:
    """How far something is that is carried from one node to another (`sync`), or through a measured link.

    ``node`` is where it goes, ``source`` where it comes from, ``what`` is carried. Bytes and bytes a second; ``left`` in
    seconds. None: not known yet.
    """

    ts: float
    node: NodeName
    source: NodeName
    what: str
    done: int
    total: int | None = None
    rate: float | None = None
    left: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryReleased:
    """What became of the memory of an instance that was stopped on a node: the proof, or who still holds what.

    ``freed`` and ``missing`` in bytes, None where it could not be measured; ``holders`` are (who, bytes): processes of it
    that outlived it, files of theirs in /dev/shm. ``before_start`` is MemAvailable before it was started, by the history.
    ``kept`` is the name of its container where that was not removed.
    """

    ts: float
    node: NodeName
    instance: str
    freed: int | None
    missing: int | None
    holders: tuple[tuple[str, int | None], ...] = ()
    before_start: int | None = None
    available: int | None = None
    kept: str | None = None


@dataclass(frozen=True, slots=True)
class CheckCompleted:
    """`doctor` is through with a node after ``seconds``: what it found there was told before, but for comparisons."""

    ts: float
    node: NodeName
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandEnded:
    """Always the last event of a verb; written as ``"event": "result"``."""

    ts: float
    outcome: Outcome
    exit_code: int
    seconds: float
    node: NodeName | None = None
    instance: str | None = None
    endpoint: str | None = None
    message: str | None = None
    hint: str | None = None
    verdict: Verdict | None = None
    log: str | None = None  # path of the saved log
    more_logs: tuple[tuple[NodeName, str], ...] = ()  # of the other ranks, by their nodes
    file: str | None = None  # path of what was asked for as a file
    guard: GuardCoverage | None = None  # of a start


Event = (
    NodeStateChanged
    | MemorySampled
    | SampleArrived
    | CachesDropped
    | ContainersListed
    | MeterArrived
    | EngineFactsReported
    | LaunchPlanned
    | MemoryFitEvaluated
    | PhaseChanged
    | LogArrived
    | GuardActed
    | GuardStatusChanged
    | WarningEmitted
    | FindingReported
    | TransferProgressed
    | MemoryReleased
    | SwitchPlanned
    | SwitchStepReported
    | SwitchJournalReported
    | CheckCompleted
    | CommandEnded
)

Emit = Callable[[Event], None]
