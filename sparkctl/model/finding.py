"""Findings: what is wrong with a node or an instance, the figures that show it, and what to do."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import KW_ONLY
from enum import StrEnum

from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import NodeName


class Severity(StrEnum):
    """How serious a finding is."""

    GOOD = "good"
    NOTE = "note"
    WARNING = "warning"
    PROBLEM = "problem"
    UNKNOWN = "unknown"


_FIGURES_PATTERN = re.compile(r"\d[\d.,]*")
_SEVERITY_ORDER = (Severity.PROBLEM, Severity.WARNING, Severity.UNKNOWN, Severity.NOTE, Severity.GOOD)


class FindingKind(StrEnum):
    """A closed set: what samples can show, and what only `doctor` checks."""

    # judged from samples, containers and host identities
    STUCK_CLOCK = "stuck-clock"
    THERMAL = "thermal"
    BUSY_WAIT = "busy-wait"
    SWAP = "swap"
    PAGE_CACHE = "page-cache"
    IDLE_FUNCTION = "idle-function"
    FABRIC_ROUTE = "fabric-route"
    GID = "gid"
    RDMA_OFF = "rdma-off"
    DISK = "disk"
    ORPHAN = "orphan"
    RESTART_LOOP = "restart-loop"
    NOT_GENERATING = "not-generating"
    ANSWERS = "answers"
    STALLED = "stalled"
    DRAFTS_REJECTED = "drafts-rejected"
    PREFIX_CACHE = "prefix-cache"
    PREFILL_STARVES = "prefill-starves"
    KV_FULL = "kv-full"
    PARTNER = "partner"
    MIN_FREE = "min_free_kbytes"
    SWAPPINESS = "swappiness"
    EARLYOOM = "earlyoom"
    DIFFERENCE = "difference"
    SETTINGS = "settings"
    KHO = "kho"
    SLOW_PATH = "slow-path"
    KERNEL = "kernel"
    LAST_BOOT = "last-boot"
    KNOWN_BAD = "known-bad"
    BELOW_REFERENCE = "below-reference"
    # checked by doctor
    VERSIONS = "versions"
    CONNECTION = "connection"
    CLOCK = "clock"
    MEMORY = "memory"
    DROP_CACHES = "drop-caches"
    PYTHON = "python"
    KERNEL_LOG = "kernel-log"
    DOCKER = "docker"
    GPU = "gpu"
    NVIDIA_SMI = "nvidia-smi"
    MODELS = "models"
    OPEN_SERVER = "open-server"
    FABRIC = "fabric"
    RDMA = "rdma"


@dataclass(frozen=True, slots=True)
class FindingEvidence:
    """One piece of evidence: ``value`` as text in ``unit``, and its ``origin`` (nvml, meminfo, docker ...)."""

    name: str
    value: str
    unit: str | None = None
    origin: str | None = None

    def __str__(self) -> str:
        return f"{self.name} {self.value}" + (f" {self.unit}" if self.unit else "")


@dataclass(frozen=True, slots=True)
class Finding:
    """``since``: unix seconds by the node's clock; None is "since before sparkctl looked". ``remedy``: a sentence or a
    command.
    """

    kind: FindingKind
    severity: Severity
    node: NodeName
    summary: str
    _: KW_ONLY
    remedy: str | None = None
    instance: str | None = None
    evidence: tuple[FindingEvidence, ...] = ()
    since: float | None = None


def find_same(findings: Sequence[Finding], wanted: Finding | None) -> Finding | None:
    """Return the finding that is about the same thing as ``wanted``, whatever its figures are now; None where it is over. Of several
    of a kind, the one with the same words."""
    if wanted is None:
        return None
    subject, words = (wanted.kind, wanted.node, wanted.instance), _FIGURES_PATTERN.sub("", wanted.summary)
    same = [one for one in findings if (one.kind, one.node, one.instance) == subject]
    return max(same, key=lambda one: (one == wanted, _FIGURES_PATTERN.sub("", one.summary) == words), default=None)


def sort_by_severity(findings: tuple[Finding, ...] | list[Finding]) -> tuple[Finding, ...]:
    """Return findings by severity, then in the order of `FindingKind`."""
    kinds = list(FindingKind)
    return tuple(sorted(findings, key=lambda one: (_SEVERITY_ORDER.index(one.severity), kinds.index(one.kind))))
