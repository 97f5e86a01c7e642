"""Frozen types of the history: one start, stop or switch. Bytes, seconds, unix times; None is "not known"."""

from __future__ import annotations

from dataclasses import field, fields
from enum import StrEnum

from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import NodeName
from sparkctl.model.phase import ExpectedDurations, PhaseDuration
from sparkctl.model.verdict import Verdict


class OperationKind(StrEnum):
    """The kinds of operations."""

    START = "start"
    STOP = "stop"
    SWITCH = "switch"
    REMOVE = "remove"  # a model or images from the disk
    PULL = "pull"  # an image or a model onto a node
    BENCH = "bench"  # one benchmark of a running instance


# Of `NodeResult`: what one short request took, the first time and once more.
REQUEST_FIGURES = ("cold_ttft", "cold_tokens_per_second", "warm_ttft", "warm_tokens_per_second")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeResult:
    """One instance's part of an operation on one node; a model over several Sparks has one for each node.

    ``available_before``: MemAvailable just before its container was created; ``peak`` and ``settled``: memory that the start
    took at most, and once it was ready; ``estimated``: the memory estimate. ``available_after``: MemAvailable after a stop, with
    ``freed`` and ``missing``. ``seconds`` to ready; ``cause``: why it failed. ``has_joined``: the start was already running, so
    ``seconds`` is not its full time. ``receipt``: the guard's, a path or a sentence. ``accept_length``: as
    measured while it ran. ``cold_ttft``: seconds from the first request to its token,
    ``cold_tokens_per_second``: of the first longer answer, over its whole time; ``warm_``: of the same requests, asked again;
    ``tokens_per_second`` is the latter, under its older name.

    Of a pull it is one image or one model: ``instance`` is its name, ``image_digest`` the registry's, ``received`` the bytes
    that came in ``seconds``; ``has_joined``: somebody else had begun it.
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
    cold_ttft: float | None = None
    cold_tokens_per_second: float | None = None
    warm_ttft: float | None = None
    warm_tokens_per_second: float | None = None
    receipt: str | None = None
    log: str | None = None
    received: int | None = None

    def merge_result(self, more: NodeResult) -> NodeResult:
        """Return both in one; known values of ``more`` win."""
        newer = {one.name: getattr(more, one.name) for one in fields(more)}
        return NodeResult(
            **{one.name: getattr(self, one.name) for one in fields(self)}
            | {name: value for name, value in newer.items() if value not in (None, ())}
        )


@dataclass(frozen=True, slots=True)
class StepRecord:
    """A step of a switch: ``seconds`` since the switch began, and what proved the step."""

    step: str
    instance: str
    seconds: float | None = None
    proof: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationRecord:
    """One row of the history. ``id`` is its number, ``parent`` the number of the switch that it was a part of.

    ``kind`` is a word where a newer sparkctl wrote one that this one does not know.
    ``hash`` and ``text`` are the profile's, with ``--set`` applied and without secrets; ``command`` repeats the operation.
    ``alike``: the key that starts of the same image and model share. ``outcome`` is None while it runs; ``is_running`` tells
    whether its process still lives (None: not known on this machine). ``usual``: how long it and its parts were expected to
    take at that time. ``why``: the message at its end.
    """

    id: int
    kind: OperationKind | str
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
        """Tell whether it reached its goal."""
        return self.outcome in ("ready", "done", "detached")

    @property
    def is_refusal(self) -> bool:
        """Tell whether it was refused, and so changed nothing."""
        return self.outcome == "refused"

    @property
    def has_failed(self) -> bool:
        """Tell whether it failed or its end is not known; a running operation has not failed."""
        return not self.has_succeeded and not self.is_running
