"""The verdict on a failed start: a cause out of a closed set, the log lines that prove it, and what to change."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from sparkctl.model.lazy_dataclass import dataclass

# A sentence of its own in a remedy: a verdict leaves it out where the start has just done it.
DROP_CACHES_REMEDY = "Drop the page caches before the start (sparkctl drop-caches)."


class FailureCause(StrEnum):
    """A closed set, each with its meaning in `CAUSE_MEANINGS`. An error without a cause of its own is ``crashed``, with
    its last line as evidence.
    """

    # Memory
    STARTUP_MEMORY_CHECK = "startup-memory-check"
    WEIGHTS_DO_NOT_FIT = "weights-do-not-fit"
    MEMORY_CHANGED_DURING_START = "memory-changed-during-start"
    KV_CACHE_TOO_SMALL = "kv-cache-too-small"
    DRAFT_WORKSPACE = "draft-workspace"
    CUDA_OUT_OF_MEMORY = "cuda-out-of-memory"
    HOST_OOM_KILL = "host-oom-kill"
    HOST_MEMORY = "host-memory"
    GUARD_STOPPED = "guard-stopped"
    # What was asked for
    UNKNOWN_FLAG = "unknown-flag"
    BAD_VALUE = "bad-value"
    TRUST_REMOTE_CODE = "trust-remote-code"
    ATTENTION_BACKEND = "attention-backend"
    PORT_IN_USE = "port-in-use"
    # The model
    MODEL_NOT_FOUND = "model-not-found"
    HUB_UNREACHABLE = "hub-unreachable"
    MODEL_GATED = "model-gated"
    MODEL_FILES = "model-files"
    TRUNCATED_WEIGHTS = "truncated-weights"
    MODEL_UNSUPPORTED = "model-unsupported"
    DRAFT_MISMATCH = "draft-mismatch"
    # The image and the node
    IMAGE_MISSING = "image-missing"
    IMAGE_ARCH = "image-arch"
    GPU_RUNTIME_MISSING = "gpu-runtime-missing"
    DRIVER_MISMATCH = "driver-mismatch"
    BROKEN_IMAGE = "broken-image"
    KERNEL_UNSUPPORTED = "kernel-unsupported"
    JIT_FAILED = "jit-failed"
    GPU_FAULT = "gpu-fault"
    DISK_FULL = "disk-full"
    PERMISSION = "permission"
    DOCKER_REFUSED = "docker-refused"
    # Several processes, several nodes
    NCCL = "nccl"
    WORKER_LOST = "worker-lost"
    RAY = "ray"
    # The program itself
    ENGINE_BUG = "engine-bug"
    WEDGED = "wedged"
    CRASHED = "crashed"
    # How it ended, if nothing says why
    KILLED = "killed"
    EXITED = "exited"
    STOPPED_BY_OTHERS = "stopped-by-others"
    TIMED_OUT = "timed-out"

    @classmethod
    def _missing_(cls, value: object) -> FailureCause | None:
        """Accept the names that an older sparkctl wrote into histories and records."""
        now = _FORMER_CAUSE_NAMES.get(value) if isinstance(value, str) else None
        return None if now is None else cls(now)


_FORMER_CAUSE_NAMES = {
    "no-memory-for-kv-cache": "kv-cache-too-small",
    "not-enough-free-memory": "startup-memory-check",
    "oom-killed": "host-oom-kill",
    "bad-flag": "unknown-flag",
    "gated-model": "model-gated",
    "port-busy": "port-in-use",
    "wrong-architecture": "image-arch",
    "peer-lost": "worker-lost",
    "not-generating": "wedged",
}

CAUSE_MEANINGS: Mapping[FailureCause, str] = MappingProxyType(
    {
        FailureCause.STARTUP_MEMORY_CHECK: "less memory was free at the start than the engine was set to take",
        FailureCause.WEIGHTS_DO_NOT_FIT: "the weights alone fill the memory that the engine may take",
        FailureCause.MEMORY_CHANGED_DURING_START: "something else freed or took memory while the engine measured it",
        FailureCause.KV_CACHE_TOO_SMALL: "what the weights left does not hold the KV cache that was asked for",
        FailureCause.DRAFT_WORKSPACE: "the draft model's share of speculative decoding did not fit next to the model",
        FailureCause.CUDA_OUT_OF_MEMORY: "CUDA could not allocate memory; the summary shows whether at the start or while serving",
        FailureCause.HOST_OOM_KILL: "the kernel's OOM killer ended it, as Docker or the kernel's log says",
        FailureCause.HOST_MEMORY: "the kernel refused memory to the engine's own process (ENOMEM), without killing it",
        FailureCause.GUARD_STOPPED: "sparkctl's guard on the node ended it before the memory ran out",
        FailureCause.UNKNOWN_FLAG: "the engine has no flag of this name, or several that begin so",
        FailureCause.BAD_VALUE: "the engine refused a flag's value, or two flags together",
        FailureCause.TRUST_REMOTE_CODE: "the model has its own code, which the engine does not run without permission",
        FailureCause.ATTENTION_BACKEND: "no attention backend does what the model needs on this GPU, or the chosen one does not",
        FailureCause.PORT_IN_USE: "another process listens on the port",
        FailureCause.MODEL_NOT_FOUND: "there is no such path in the container, and no such model on the hub",
        FailureCause.HUB_UNREACHABLE: "the model is not on the node, and the hub could not be asked for it",
        FailureCause.MODEL_GATED: "the hub requires an accepted licence or a token for this model",
        FailureCause.MODEL_FILES: "config, tokenizer or weights are missing, or are not what they are taken for",
        FailureCause.TRUNCATED_WEIGHTS: "a weight file is shorter than its header says: the download was cut",
        FailureCause.MODEL_UNSUPPORTED: "this engine version does not know the model's architecture",
        FailureCause.DRAFT_MISMATCH: "the draft model does not belong to the model: another vocabulary, size or family",
        FailureCause.IMAGE_MISSING: "the image is not on the node and could not be pulled",
        FailureCause.IMAGE_ARCH: "the image was built for another processor than the node's",
        FailureCause.GPU_RUNTIME_MISSING: "Docker could not give the container a GPU: the NVIDIA container toolkit or driver is missing",
        FailureCause.DRIVER_MISMATCH: "the node's driver is too old for the image's CUDA",
        FailureCause.BROKEN_IMAGE: "parts of the image do not fit together: an import, a library or a package version; or it could not be built",
        FailureCause.KERNEL_UNSUPPORTED: "a GPU kernel of the image does not run on this GPU (sm_121)",
        FailureCause.JIT_FAILED: "a kernel could not be compiled at the start: the compiler is missing or failed",
        FailureCause.GPU_FAULT: "a GPU kernel failed while it ran: an illegal address, an assertion, a launch failure",
        FailureCause.DISK_FULL: "a disk or the container's shared memory is full",
        FailureCause.PERMISSION: "the container's user may not open a file or device, or your user may not use Docker",
        FailureCause.DOCKER_REFUSED: "Docker could not create or start the container, for a reason that no other cause names",
        FailureCause.NCCL: "the ranks of a model could not talk to each other (NCCL, Gloo)",
        FailureCause.WORKER_LOST: "a process of the engine, here or on another node, died or never appeared, and its log does not say why",
        FailureCause.RAY: "Ray, which spreads the engine over nodes, failed or ended a worker itself",
        FailureCause.ENGINE_BUG: "a known fault of this engine version, with a workaround",
        FailureCause.WEDGED: "the engine runs and answers, but generates no tokens or hangs",
        FailureCause.CRASHED: "an error that no other cause names; its last error line is shown",
        FailureCause.KILLED: "it was killed (SIGKILL) without a message; nothing here shows by whom",
        FailureCause.EXITED: "it ended by itself with code 0, before it was ready or although nobody stopped it",
        FailureCause.STOPPED_BY_OTHERS: "somebody else stopped or removed the container",
        FailureCause.TIMED_OUT: "a phase of the start took longer than its limit",
    }
)


def normalize_cause_name(cause: str) -> str:
    """Return today's name of a cause that an older version wrote down; an unknown name is returned unchanged."""
    return _FORMER_CAUSE_NAMES.get(cause, cause)


class ChangeDirection(StrEnum):
    """The direction in which to change a setting, if the log line does not give the value."""

    SET = "set"
    LOWER = "lower"
    RAISE = "raise"
    REMOVE = "remove"


class Confidence(StrEnum):
    """How sure a cause is. Certain: a rule of this cause knows the line that says what failed first, or Docker or the guard
    tell. Likely: the cause follows from what came after it, from its place in the log, or from how the process ended.
    """

    CERTAIN = "certain"
    LIKELY = "likely"


LAST_LINE_ORIGIN = "its last line"  # the last line of a log shows how far the start came and proves nothing


MAX_EVIDENCE_CHARS = 400  # characters of a line that evidence shows


@dataclass(frozen=True, slots=True)
class Evidence:
    """One proof: a log line (``line`` counts from 1 within this run of the container), or a statement from another
    source.
    """

    text: str
    origin: str  # "log", LAST_LINE_ORIGIN, "docker", "http", "clock", "guard"
    line: int | None = None

    @property
    def location(self) -> str:
        if self.line is None:
            return self.origin
        return f"{self.origin}, {self.line}" if self.origin == LAST_LINE_ORIGIN else f"line {self.line}"


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A change of one profile field, ready to try: ``--set FIELD=VALUE``; ``null`` removes the field.

    ``was``: the value in the failed start, None if not known. ``is_first_try``: the direction is known, the size of the
    step is a guess.
    """

    field: str
    value: str
    was: str | None = None
    is_first_try: bool = False

    @property
    def set_argument(self) -> str:
        """Return it as ``--set`` takes it."""
        return f"{self.field}={self.value}"

    @property
    def removes(self) -> bool:
        """Tell whether it takes the field away."""
        return self.value == "null"


# They say how it ended, and claim nothing of why.
_CAUSES_WITHOUT_CLAIM = frozenset({FailureCause.CRASHED, FailureCause.KILLED, FailureCause.EXITED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The root cause of a failure. ``field``: the profile field to change, if there is one, e.g.
    ``args.mem-fraction-static``.

    ``edit``: the change to it, if a value is known. ``again``: the command of the failed start with that change.
    ``contributing``: other causes, without mere consequences. ``confidence``: of `crashed`, which names no cause, always likely.
    """

    cause: FailureCause
    summary: str
    evidence: tuple[Evidence, ...]
    remedy: str
    field: str | None = None
    again: str | None = None
    edit: FieldChange | None = None
    contributing: tuple[Verdict, ...] = ()
    confidence: Confidence = Confidence.CERTAIN

    @property
    def headline(self) -> str:
        """The summary, which says so where the cause is only likely."""
        is_guess = self.confidence is Confidence.LIKELY and self.cause not in _CAUSES_WITHOUT_CLAIM
        return f"Likely: {self.summary}" if is_guess else self.summary
