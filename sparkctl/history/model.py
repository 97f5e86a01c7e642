"""What the history keeps of one start, stop or switch. Pure data; bytes, seconds, unix times; None is "not known"."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import StrEnum

from sparkctl.model.node import NodeName
from sparkctl.model.phase import ExpectedDurations, PhaseDuration
from sparkctl.model.verdict import Verdict


class OperationKind(StrEnum):
    """What an operation was."""

    START = "start"
    STOP = "stop"
    SWITCH = "switch"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeResult:
    """One instance's part of an operation on one node: of a model over several Sparks each has its own.

    ``available_before``: MemAvailable just before its container was created; ``peak`` and ``settled``: what the start took at
    most, and once it was ready; ``estimated``: what its sum had said. ``available_after``: MemAvailable once a stop was through,
    ``freed`` and ``missing`` of that. ``seconds`` to ready; ``cause``: why it failed. ``has_joined``: it was under way already,
    so its seconds are not its own. ``receipt``: the guard's, a path or a sentence. ``accept_length`` and ``tokens_per_second``
    (of generation) as seen while it ran.
    """

    node: NodeName
    instance: str
    container: str | None = None
    image_digest: str | None = None
    driver: str | None = None
    kernel: str | None = None
    engine_version: str | None = None
    available_before: int | None = None
    peak: int | None = None
    settled: int | None = None
    estimated: int | None = None
    available_after: int | None = None
    freed: int | None = None
    missing: int | None = None
    seconds: float | None = None
    cause: str | None = None
    has_joined: bool | None = None
    parts: tuple[PhaseDuration, ...] = ()
    accept_length: float | None = None
    tokens_per_second: float | None = None
    receipt: str | None = None
    log: str | None = None

    def merge_result(self, more: NodeResult) -> NodeResult:
        """Return both in one: what ``more`` knows counts."""
        told = {one.name: getattr(more, one.name) for one in fields(more)}
        return NodeResult(
            **{one.name: getattr(self, one.name) for one in fields(self)}
            | {name: value for name, value in told.items() if value not in (None, ())}
        )


@dataclass(frozen=True, slots=True)
class StepRecord:
    """A step of a switch: ``seconds`` after its beginning, and what proved it."""

    step: str
    instance: str
    seconds: float | None = None
    proof: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationRecord:
    """One row of the history. ``id`` is its number, ``parent`` that of the switch it was a part of.

    ``hash`` and ``text`` are the profile's, with ``--set`` in it and without secrets; ``command`` asks for the same again.
    ``alike``: what starts of the same image and model have in common. ``outcome`` is None while it goes on; ``is_running``
    tells whether the process that did it still lives (None: cannot be told from here). ``usual``: how long it and its parts
    were expected to take, at that time. ``why``: what was said at its end.
    """

    id: int
    kind: OperationKind
    began: float
    operator: str
    nodes: tuple[NodeName, ...]
    profile: str | None = None
    instance: str | None = None
    hash: str | None = None
    text: str | None = None
    engine: str | None = None
    image: str | None = None
    alike: str | None = None
    command: str | None = None
    parent: int | None = None
    ended: float | None = None
    seconds: float | None = None
    outcome: str | None = None
    exit_code: int | None = None
    why: str | None = None
    hint: str | None = None
    verdict: Verdict | None = None
    usual: ExpectedDurations = field(default_factory=ExpectedDurations)
    moments: tuple[StepRecord, ...] = ()
    shares: tuple[NodeResult, ...] = ()
    is_running: bool | None = None

    @property
    def has_succeeded(self) -> bool:
        """Tell whether it came to the end that was wanted."""
        return self.outcome in ("ready", "done", "detached")

    @property
    def has_failed(self) -> bool:
        """Tell whether it did not, or nobody knows; what goes on has not failed."""
        return not self.has_succeeded and not self.is_running
