"""The closed set of events: everything that sparkctl does or observes. Events are written as JSON lines and read back.

``ts`` is the operator's clock, unix seconds. Schema version 1 (docs/scripting.md): fields are added, never renamed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum

from sparkctl.model.bench import BenchCell, CellResult, DomainResult
from sparkctl.model.engine_metrics import EngineFact, EngineMeter
from sparkctl.model.finding import Finding, FindingEvidence, Severity
from sparkctl.model.guard_state import GuardAction, GuardCoverage
from sparkctl.model.instance import InstanceView
from sparkctl.model.launch_plan import LaunchPlan
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.memory_fit import MemoryFit
from sparkctl.model.missing_part import MissingPart
from sparkctl.model.node import NodeName
from sparkctl.model.node import NodeStateChanged as NodeStateChanged
from sparkctl.model.phase import Phase, PhaseDuration, Step
from sparkctl.model.sample import MemoryReading
from sparkctl.model.sample import SampleArrived as SampleArrived
from sparkctl.model.switch_plan import SwitchJournalStatus, SwitchPlan, SwitchStep
from sparkctl.model.text.log_line import LogLine
from sparkctl.model.verdict import Verdict


class Outcome(StrEnum):
    """How a command ended."""

    READY = "ready"
    UNPROVED = "unproved"  # it is up, and did not prove that it does its work
    DONE = "done"
    FAILED = "failed"
    TIMED_OUT = "timed-out"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    UNHEALTHY = "unhealthy"
    DETACHED = "detached"
    PLANNED = "planned"  # --dry-run
    INTERRUPTED = "interrupted"


class TunnelState(StrEnum):
    """The states of a tunnel."""

    OPEN = "open"
    LOST = "lost"  # the connection to the node is away
    REFUSED = "refused"  # nothing answers at the endpoint on the node
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class MemorySampled:
    """One reading of a node's memory."""

    ts: float
    node: NodeName
    memory: MemoryReading


@dataclass(frozen=True, slots=True, kw_only=True)
class CachesDropped:
    """The page cache was dropped. ``proven``: whether the kernel's counter rose; None if it has no such counter."""

    ts: float
    node: NodeName
    before: MemoryReading
    after: MemoryReading
    proven: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainersListed:
    """The containers of a node, managed and foreign, with the phase of each managed one.

    ``memory`` and ``numbers`` are None here; other events carry them. ``known`` False: Docker did not answer, and
    ``detail`` and ``hint`` say why. ``memory_bandwidth``: the node's specified memory bandwidth in GB/s, from the
    config.
    """

    ts: float
    node: NodeName
    instances: tuple[InstanceView, ...] = ()
    known: bool = True
    detail: str | None = None
    hint: str | None = None
    memory_bandwidth: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeterArrived:
    """An engine's figures of the last seconds, by container id. ``numbers`` None: nothing is known.

    ``metrics_hint``: what to set in the profile to get more figures.
    """

    ts: float
    node: NodeName
    container: str
    numbers: EngineMeter | None = None
    metrics_hint: str | None = None


@dataclass(frozen=True, slots=True)
class EngineFactsReported:
    """Everything that an engine's log has reported so far about how it runs, by container id."""

    ts: float
    node: NodeName
    container: str
    facts: tuple[EngineFact, ...]


@dataclass(frozen=True, slots=True)
class LaunchPlanned:
    """What will be started on one node."""

    ts: float
    node: NodeName
    plan: LaunchPlan


@dataclass(frozen=True, slots=True)
class MemoryFitEvaluated:
    """Whether a planned start fits on a node. ``commands`` are the next steps to offer."""

    ts: float
    node: NodeName
    fit: MemoryFit
    commands: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartsMissing:
    """What a start of a profile lacks on a node, empty if nothing. ``commands`` get it."""

    ts: float
    node: NodeName
    instance: str
    parts: tuple[MissingPart, ...]
    commands: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseChanged:
    """A start or stop entered a phase or advanced in it.

    All times in seconds: ``elapsed`` since the command began, ``expected`` the usual length of the whole start,
    ``expected_parts`` that of its phases and steps (medians of earlier starts).
    """

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
    """Lines of a container's log, in order, none lost and none twice. ``gap``: Docker no longer has the lines between.

    ``rank`` ("0/2") is set where the logs of all ranks are shown together; each rank's lines are in order.
    """

    ts: float
    node: NodeName
    instance: str
    lines: Sequence[LogLine]
    gap: bool = False
    rank: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardActed:
    """What the guard on a node did, or could not do. ``at`` is the node's clock; other fields as in `GuardEvent`."""

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
    """The instances that a node's guard watches. Empty: no guard runs. None: a guard may run but does not answer."""

    ts: float
    node: NodeName
    watched: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class WarningEmitted:
    """Something the operator must see, which does not end the work."""

    ts: float
    node: NodeName | None
    message: str
    hint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingReported:
    """A finding, as a command reports it. ``check`` is its kind, ``remedy`` a command or a sentence; see
    `model.finding`.
    """

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


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchCellMeasured:
    """A cell of ``benchmark`` was measured, or failed. ``number`` of ``total`` cells; ``remaining``: seconds until the last, by
    the cells so far. ``tokens_per_second``, ``prompt_tokens_per_second`` and ``ttft`` (seconds) are medians of its runs, and
    the fields from ``accept_length`` on those of ``result``, at hand for scripts.
    """

    ts: float
    node: NodeName
    instance: str
    cell: BenchCell
    number: int
    total: int
    tokens_per_second: float | None = None
    prompt_tokens_per_second: float | None = None
    ttft: float | None = None
    accept_length: float | None = None
    accept_rate: float | None = None
    memory_peak: int | None = None
    power: float | None = None
    clock: float | None = None
    disturbed: bool | None = None
    remaining: float | None = None
    benchmark: int | None = None
    result: CellResult

    @classmethod
    def from_result(
        cls,
        ts: float,
        node: NodeName,
        instance: str,
        one: CellResult,
        *,
        number: int,
        total: int,
        remaining: float | None,
        benchmark: int | None = None,
    ) -> BenchCellMeasured:
        return cls(
            ts=ts, node=node, instance=instance, cell=one.cell, number=number, total=total, remaining=remaining, benchmark=benchmark, result=one,
            tokens_per_second=one.generation_rate.median if one.generation_rate else None,
            prompt_tokens_per_second=one.prompt_rate.median if one.prompt_rate else None,
            ttft=one.ttft.median if one.ttft else None, accept_length=one.accept_length, accept_rate=one.accept_rate,
            memory_peak=one.memory_peak, power=one.power, clock=one.clock, disturbed=one.disturbed,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchCellProgressed:
    """Cell ``number`` of ``total`` is being measured: ``done`` of its ``requests`` have ended.

    ``tokens_per_second``: by the engine's counters of the last seconds. ``remaining``: seconds until the last cell, by those so far.
    """

    ts: float
    node: NodeName
    instance: str
    cell: BenchCell
    number: int
    total: int
    done: int
    requests: int
    tokens_per_second: float | None = None
    remaining: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchDomainMeasured:
    """A kind of text of ``benchmark`` was measured, or failed: ``number`` of ``total``; ``remaining``: seconds until the last.

    ``tokens_per_second`` and ``ttft`` (seconds) are medians of its prompts; from ``domain`` on, but for ``result``, the
    fields are those of ``result``, at hand for scripts.
    """

    ts: float
    node: NodeName
    instance: str
    number: int
    total: int
    domain: str
    thinking: bool | None = None
    tokens_per_second: float | None = None
    ttft: float | None = None
    accept_length: float | None = None
    accept_rate: float | None = None
    disturbed: bool | None = None
    remaining: float | None = None
    benchmark: int | None = None
    result: DomainResult

    @classmethod
    def from_result(
        cls,
        ts: float,
        node: NodeName,
        instance: str,
        one: DomainResult,
        *,
        number: int,
        total: int,
        remaining: float | None = None,
        benchmark: int | None = None,
    ) -> BenchDomainMeasured:
        return cls(
            ts=ts, node=node, instance=instance, number=number, total=total, remaining=remaining, benchmark=benchmark, result=one,
            domain=one.domain, thinking=one.thinking,
            tokens_per_second=one.generation_rate.median if one.generation_rate else None,
            ttft=one.ttft.median if one.ttft else None, accept_length=one.accept_length, accept_rate=one.accept_rate,
            disturbed=one.disturbed,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class SwitchPlanned:
    """What a switch will stop, keep and start."""

    ts: float
    node: NodeName | None
    plan: SwitchPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchStepReported:
    """A switch began a step, or completed it. ``proof`` says in words what proves it, None while the step runs.

    ``elapsed``: seconds since the command began. ``stops``: the names of the instances to stop.
    """

    ts: float
    node: NodeName | None
    step: SwitchStep
    instance: str
    proof: str | None = None
    elapsed: float | None = None
    stops: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SwitchJournalReported:
    """The switch journal on a node, whoever wrote it. Sent only when it has changed."""

    ts: float
    node: NodeName
    view: SwitchJournalStatus


@dataclass(frozen=True, slots=True)
class TransferPart:
    """A part of what is transferred, such as a layer; ``state`` in Docker's words."""

    name: str
    state: str
    done: int | None = None
    total: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferProgressed:
    """Progress of a transfer from one node to another (`sync`), to a node (`pull`), or through a link that is measured.

    ``node`` is the target, ``source`` the origin, ``what`` the thing copied. Bytes and bytes a second; ``left`` in
    seconds. None: not known yet. ``parts``: the layers of an image that come now.
    """

    ts: float
    node: NodeName
    source: NodeName
    what: str
    done: int
    total: int | None = None
    rate: float | None = None
    left: float | None = None
    parts: tuple[TransferPart, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryReleased:
    """Whether the memory of a stopped instance came back on a node: the proof, or who still holds how much.

    ``freed`` and ``missing`` in bytes, None if not measured. ``holders`` are (who, bytes): processes that survived it,
    and their files in /dev/shm. ``before_start`` is MemAvailable before its start, from the history. ``kept`` is the
    name of its container if that was not removed.
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


class SetupStepKind(StrEnum):
    """The steps of `setup`."""

    DOCKER_GROUP = "docker-group"
    DROP_CACHES = "drop-caches"
    CABLE = "cable"
    SSH = "ssh"
    UNDO = "undo"


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file before and after. None: it is not there. ``mode``: as chmod takes it, of a file that is written."""

    path: str
    before: str | None
    after: str | None
    mode: str | None = None


@dataclass(frozen=True, slots=True)
class SetupStep:
    """One step of `setup` on one node. ``summary``: what it is good for."""

    kind: SetupStepKind
    summary: str
    changes: tuple[FileChange, ...]


@dataclass(frozen=True, slots=True)
class SetupPlanned:
    """What `setup` will change on a node, file by file; ``fine``: what it looked at and leaves as it is, in sentences."""

    ts: float
    node: NodeName
    steps: tuple[SetupStep, ...]
    fine: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupStepDone:
    """A step of `setup` is done on a node, or was taken back (``is_back``): ``detail`` says why."""

    ts: float
    node: NodeName
    step: SetupStepKind
    is_back: bool = False
    detail: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TunnelStateChanged:
    """The state of a tunnel: ``url`` is the endpoint on this machine while the tunnel is there. ``hint``: what to try with it, when
    it opens first.
    """

    ts: float
    node: NodeName
    instance: str
    state: TunnelState
    url: str
    detail: str | None = None
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class CheckCompleted:
    """`doctor` has finished a node after ``seconds``. Its findings came before, except comparisons between nodes."""

    ts: float
    node: NodeName
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandEnded:
    """Always the last event of a command; written as ``"event": "result"``."""

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
    more_logs: tuple[tuple[NodeName, str], ...] = ()  # paths of the other ranks' logs, by node
    file: str | None = None  # path of the file that was asked for
    guard: GuardCoverage | None = None  # of a start
    proof: str | None = None  # what proved it ready, or why it is not proved; None where one token did


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
    | PartsMissing
    | PhaseChanged
    | LogArrived
    | GuardActed
    | GuardStatusChanged
    | WarningEmitted
    | FindingReported
    | TransferProgressed
    | MemoryReleased
    | BenchCellMeasured
    | BenchCellProgressed
    | BenchDomainMeasured
    | SwitchPlanned
    | SwitchStepReported
    | SwitchJournalReported
    | SetupPlanned
    | SetupStepDone
    | TunnelStateChanged
    | CheckCompleted
    | CommandEnded
)

Emit = Callable[[Event], None]

# the word in the field `event` of a JSON line; never changed
EVENT_TYPES: dict[str, type] = {
    "node": NodeStateChanged,
    "memory": MemorySampled,
    "sample": SampleArrived,
    "caches": CachesDropped,
    "containers": ContainersListed,
    "numbers": MeterArrived,
    "facts": EngineFactsReported,
    "plan": LaunchPlanned,
    "fit": MemoryFitEvaluated,
    "missing": PartsMissing,
    "phase": PhaseChanged,
    "log": LogArrived,
    "guard": GuardActed,
    "guarded": GuardStatusChanged,
    "warning": WarningEmitted,
    "finding": FindingReported,
    "moved": TransferProgressed,
    "released": MemoryReleased,
    "cell": BenchCellMeasured,
    "measuring": BenchCellProgressed,
    "domain": BenchDomainMeasured,
    "switch-plan": SwitchPlanned,
    "switch": SwitchStepReported,
    "switch-found": SwitchJournalReported,
    "setup-plan": SetupPlanned,
    "setup": SetupStepDone,
    "tunnel": TunnelStateChanged,
    "examined": CheckCompleted,
    "result": CommandEnded,
}
