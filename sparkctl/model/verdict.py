"""Why a start failed: a cause out of a closed set, the lines that prove it, and what to change."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Cause(StrEnum):
    """Closed: a cause that is not here is ``crashed`` with its last error line as evidence."""

    CUDA_OUT_OF_MEMORY = "cuda-out-of-memory"
    NO_MEMORY_FOR_KV_CACHE = "no-memory-for-kv-cache"
    NOT_ENOUGH_FREE_MEMORY = "not-enough-free-memory"
    OOM_KILLED = "oom-killed"  # the kernel, by a container limit
    KILLED = "killed"  # SIGKILL from outside, or the machine's own OOM killer: the exit code alone cannot tell
    GUARD_STOPPED = "guard-stopped"  # our guard on the node, before its memory ran out
    BAD_FLAG = "bad-flag"
    MODEL_NOT_FOUND = "model-not-found"
    MODEL_UNSUPPORTED = "model-unsupported"
    GATED_MODEL = "gated-model"
    PORT_BUSY = "port-busy"
    DRIVER_MISMATCH = "driver-mismatch"
    WRONG_ARCHITECTURE = "wrong-architecture"
    PEER_LOST = "peer-lost"
    DISK_FULL = "disk-full"
    CRASHED = "crashed"
    EXITED = "exited"  # ended with code 0 though nobody stopped it
    STOPPED_BY_OTHERS = "stopped-by-others"  # a docker stop or rm that was not ours
    TIMED_OUT = "timed-out"
    NOT_GENERATING = "not-generating"  # health answers, no token came
    DOCKER_REFUSED = "docker-refused"  # the container could not be created or started


@dataclass(frozen=True, slots=True)
class Evidence:
    """One proof: a log line (``line`` counts from 1 within this run of the container) or another source's statement."""

    text: str
    origin: str  # "log", "docker", "http", "clock", "guard"
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """``field`` names the profile field to change where there is one, e.g. ``args.mem-fraction-static``; ``again`` is the
    command of the failed start with that field to be filled in."""

    cause: Cause
    summary: str
    evidence: tuple[Evidence, ...]
    remedy: str
    field: str | None = None
    again: str | None = None
