"""What an engine is to sparkctl: a file of pure knowledge. No I/O here or in any engine; no engine knows another.

An engine sees lines that `engines.lines` has already prepared: one printable line, process prefixes stripped, each
state of a progress bar a line of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Protocol

from sparkctl.model.engine_metrics import EngineFact, EngineFactName, EngineMetrics, StatsLine
from sparkctl.model.phase import Phase, Step
from sparkctl.model.profile import Profile
from sparkctl.model.text.sanitize import truncate_text
from sparkctl.model.verdict import ChangeDirection, FailureCause


class FailureWeight(IntEnum):
    """How near a line is to the root of a failure."""

    AFTERMATH = 1  # "see above": something else went wrong before
    DYING = 2  # a part of the engine says that it ends, without the reason
    LOST = 3  # a process reports that it or another one ended: a reason that follows outweighs it
    EXCEPTION = 4  # the last line of a traceback that no rule knows; a client's bad request leaves one too
    DEATH = 6  # a part of the engine was killed: there is no nearer line, the reason is outside of the log
    LIKELY = 8  # names what is wrong in general terms: a flag, a status; a line that says more outweighs it
    CONCRETE = 10  # names the cause


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A line that says why. ``fatal``: the engine cannot come up any more, even if its process lingers.
    ``weight`` orders candidates: a concrete cause beats a generic aftermath; among equals the first line wins.
    ``field`` is the profile field to change and ``change`` which way; ``value`` is what the line itself says to set.

    Its words may mean something else elsewhere: ``needs`` is a fact that the engine has told by then if it told any,
    ``during`` the step of the start in which they mean this. Then and there it is this failure, else `placed` unnames it."""

    cause: FailureCause
    summary: str
    remedy: str
    field: str | None = None
    fatal: bool = True
    weight: int = FailureWeight.CONCRETE
    value: str | None = None
    change: ChangeDirection | None = None
    needs: EngineFactName | None = None
    during: str | None = None


@dataclass(frozen=True, slots=True)
class LineSignal:
    """What one line says, if it says anything: a phase, a step with progress, a failure, facts. Any of them together.

    Of a fact that is told twice the first holds, but that of a fallback outweighs one that is none.
    """

    phase: Phase | None = None
    step: Step | None = None
    failure: Failure | None = None
    facts: tuple[EngineFact, ...] = ()


def select_root_failure(failures: Iterable[tuple[int, str, Failure]]) -> tuple[int, str, Failure] | None:
    """Return the root among (line number, text, failure) triples in log order: the weightiest, of equals the first."""
    return max(failures, key=lambda found: found[2].weight, default=None)


_DRAFT_MODEL_METHODS = (
    "EAGLE",
    "NEXTN",
    "STANDALONE",
    "MTP",
    "DFLASH",
    "DRAFT",
    "DSPARK",
)  # methods that bring a model
_TOTAL_CAPACITY = re.compile(r"total capacity of (?P<gib>[\d.]+) GiB")
_MAX_LINE_CHARS = 400  # characters of a line that a sentence can bear
_SPARK_CUDA_GIB = 119.6  # GiB that CUDA says a Spark has


def refine_failure(
    failure: Failure, text: str, step: str | None, facts: Mapping[EngineFactName, str], *, is_serving: bool
) -> Failure:
    """Return the failure with what only its place in the log tells: CUDA memory that ran out at the start or while
    serving, whether the draft model's share is what did not fit, and whether its words mean that there at all.

    ``text``: the line it was read from; ``step``: the part of the start it came in; ``is_serving``: ready was reached.
    """
    is_meant = failure.needs is None or failure.needs in facts or not facts
    if (failure.needs and is_serving) or not is_meant or failure.during not in (None, step):
        return Failure(
            cause=FailureCause.CRASHED,
            summary=f"The engine stopped on an error: {truncate_text(text, _MAX_LINE_CHARS)}",
            remedy="Read the log around this line.",
            fatal=False,
            weight=FailureWeight.EXCEPTION,
        )
    if failure.cause is not FailureCause.CUDA_OUT_OF_MEMORY:
        return failure
    if is_serving:
        return replace(failure, summary=f"While serving: {failure.summary}")
    method = facts.get(EngineFactName.SPECULATIVE_METHOD, "")
    drafts = any(name in method.upper() for name in _DRAFT_MODEL_METHODS)
    left = facts.get(EngineFactName.AVAILABLE_AT_LOAD)
    total = _TOTAL_CAPACITY.search(text)
    half = (float(total["gib"]) if total else _SPARK_CUDA_GIB) / 2
    # Weights begin to load into an empty node: where half of it is gone by then, the draft workspace has it.
    is_second_load = step == "weights" and EngineFactName.KV_CACHE_TOKENS in facts
    has_gone = step == "weights" and left is not None and float(left) < half
    if drafts and (step in (None, "join", "draft") or is_second_load or has_gone):
        rest = f", and {left} GB were left for the weights" if has_gone and not is_second_load else ""
        return replace(
            failure,
            cause=FailureCause.DRAFT_WORKSPACE,
            summary=f"The draft workspace of {method} did not fit{rest}. {failure.summary}",
            remedy=f"{failure.remedy} Or speculate without a draft model (NGRAM).",
        )
    return replace(failure, summary=f"At the start{f' ({step})' if step else ''}: {failure.summary}")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineDefaults:
    """What holds where the profile says nothing. ``ready_line`` is a regex for a prepared line."""

    command: tuple[str, ...]
    port: int | None
    ready_line: str | None
    health: str | None
    probe: str  # completions | chat | none
    gpus: str | None


@dataclass(frozen=True, slots=True)
class LogSignature:
    """By what a log shows whose it is and how far. ``marks``: regex, searched in a line with its header, that no other
    program's log matches; ``hints``: words that make it likely. Beginnings of prepared lines: ``begins`` of one that every
    start prints once, early; ``serving`` of those that only an engine at work prints, of which `classify` says nothing."""

    marks: str | None = None
    hints: tuple[str, ...] = ()
    begins: tuple[str, ...] = ()
    serving: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DecodingSettings:
    """How a launch decodes. ``draft_tokens``: drafted per step and request, beside the bonus token; ``draft_passes``: how
    often a step runs the draft model. None: no drafts, or nobody knows. ``ranks``: what the model is shared by."""

    draft_tokens: int | None = None
    draft_passes: int | None = None
    ranks: int = 1


@dataclass(frozen=True, slots=True)
class EngineRank:
    """One Spark's part of a model that several run together. ``addresses`` of all of them, in the order of their ranks: the
    head's comes first, and it alone answers clients."""

    index: int
    addresses: tuple[str, ...]

    @property
    def is_head(self) -> bool:
        """Tell whether it is the one that answers clients."""
        return self.index == 0

    @property
    def head_address(self) -> str:
        """The head's address."""
        return self.addresses[0]

    @property
    def own_address(self) -> str:
        """Its own address."""
        return self.addresses[self.index]

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.addresses)


class Engine(Protocol):
    """One instance per module, named ``ENGINE``; found by file name (``engine: sglang`` is engines/sglang/)."""

    name: str
    title: str
    defaults: EngineDefaults
    signs: LogSignature
    memory_setting: str | None  # the profile field by which it claims memory, None where there is no such one
    metrics_setting: str | None  # what turns /metrics on in a profile, None where it is on or nobody knows
    metrics_path: str | None  # where its page in Prometheus' format is, None where it has none that is known

    def build_command(self, profile: Profile) -> tuple[str, ...]:
        """Return the container's command, launch words first, then model, host, port, served name, then ``args``."""
        ...

    def build_rank_command(self, words: tuple[str, ...], rank: EngineRank) -> tuple[str, ...]:
        """Return the command of one rank of several, from what `argv` gave: by the engine's own distributed runtime.

        Raises `InvalidInput` for an engine that has none here, and for flags that only sparkctl can give each rank.
        """
        ...

    def list_ssh_key_mounts(self, rank: EngineRank) -> tuple[str, ...]:
        """Return the mounts, as a profile writes them, of the SSH keys by which one rank's container logs in at another's; none
        where the ranks meet in another way."""
        ...

    def must_start_head_first(self, words: tuple[str, ...]) -> bool:
        """Tell whether the head has to be there before the others; else they wait for it, and it is started last."""
        ...

    def classify_line(self, line: str) -> LineSignal | None:
        """Return what a prepared line says, None for nothing. Called for every line: a cheap gate comes first."""
        ...

    def find_api_key(self, profile: Profile) -> str | None:
        """Return the key its HTTP API will demand, from the profile's args, or None."""
        ...

    def read_decoding_settings(self, words: tuple[str, ...]) -> DecodingSettings:
        """Return how a command line (as `argv` returns it) decodes, by this engine's flags."""
        ...

    def parse_metrics(self, page: str) -> EngineMetrics:
        """Return one reading of /metrics (Prometheus text). Raises MetricsUnreadable for anything else."""
        ...

    def parse_stats_line(self, line: str) -> StatsLine | None:
        """Return what a prepared line says of the engine's speed, None for any other line. Cheap: gated by beginning."""
        ...


@dataclass(frozen=True, slots=True)
class HealthPaths:
    """Paths to use in place of a health path that generates a token. ``ready`` answers 2xx if and only if the engine is ready;
    versions without it answer with another status. ``alive`` answers as soon as the HTTP server is up."""

    ready: str
    alive: str


# SGLang's /health generates a token on an engine at rest, by every version. 0.5.23 has /ready, which 0.5.12 has not.
_SGLANG_PATHS = HealthPaths("/ready", "/model_info")
_HEALTH_PATHS = {
    ("sglang", "/health"): _SGLANG_PATHS,
    ("sglang", "/health_generate"): _SGLANG_PATHS,
    ("trtllm", "/health_generate"): HealthPaths("/health", "/health"),
}


def find_health_paths(engine: str, health: str) -> HealthPaths | None:
    """Return what to use in place of an engine's ``health`` path; None where that path generates no token."""
    return _HEALTH_PATHS.get((engine, health.partition("?")[0]))
