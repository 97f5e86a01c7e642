"""An engine's own figures under one set of names. Seconds, tokens, shares 0..1; None is "not known".

Accept length is tokens per verification step with the bonus token counted (1.00 = no draft was ever accepted); accept
rate is accepted / drafted. Which engine calls what: docs/numbers.md.
"""

from __future__ import annotations

from dataclasses import KW_ONLY
from enum import StrEnum

from sparkctl.model.lazy_dataclass import dataclass


class MeterSource(StrEnum):
    """Where a figure comes from. Two sources may differ in the last digits, so each figure names its source."""

    COUNTERS = "counters"  # differences of the engine's counters in the window
    GAUGE = "gauge"  # the engine's own average over its latest steps
    LOG = "log"  # its log lines in the window


class EngineActivity(StrEnum):
    """What the engine did in the window."""

    DECODING = "decoding"
    PREFILL = "prefill"  # prompts were processed; at most the first tokens of their requests were generated
    IDLE = "idle"


@dataclass(frozen=True, slots=True)
class Histogram:
    """A cumulative histogram. ``buckets`` are (upper bound, observations up to it), ascending, the last bound inf."""

    buckets: tuple[tuple[float, float], ...]

    @property
    def count(self) -> float:
        """The number of all observations."""
        return self.buckets[-1][1] if self.buckets else 0.0

    def subtract(self, earlier: Histogram) -> Histogram | None:
        """Return the observations made after ``earlier``, None if the two have different buckets."""
        if [bound for bound, _ in self.buckets] != [bound for bound, _ in earlier.buckets]:
            return None
        pairs = zip(self.buckets, earlier.buckets, strict=True)
        return Histogram(tuple((bound, now - before) for (bound, now), (_, before) in pairs))

    def estimate_quantile(self, share: float) -> float | None:
        """Return the value that ``share`` (0..1) of the observations do not exceed, None without observations.

        Linear within a bucket, from 0 in the first, as Prometheus' histogram_quantile does. In the last, open bucket:
        its lower bound.
        """
        if self.count <= 0:
            return None
        rank, lower, below = share * self.count, 0.0, 0.0
        for bound, upto in self.buckets:
            if upto >= rank and upto > below:
                if bound == float("inf"):
                    return lower
                inside = max(0.0, rank - below) / (upto - below)
                return min(bound, lower + (bound - lower) * inside)  # rounding may exceed the bound
            lower, below = bound, upto
        return lower


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineMetrics:
    """One reading of an engine's /metrics. A series that the page does not have is None, never 0.

    Counters are totals since the engine started, summed over its data-parallel parts. ``prompt_tokens`` are computed
    prompt tokens, without those found in the prefix cache.
    """

    # counters
    generation_tokens: float | None = None
    ended_requests: float | None = None  # requests that have got all of their tokens
    first_tokens: float | None = None  # the first token of each request, where generation_tokens does not count it
    prompt_tokens: float | None = None
    prefix_queries: float | None = None
    prefix_hits: float | None = None
    drafts: float | None = None  # verification steps with a draft, summed over requests
    draft_tokens: float | None = None
    accepted_tokens: float | None = None
    accepted_per_position: tuple[float, ...] | None = None  # position 0 first
    preemptions: float | None = None  # running requests that lost their KV cache to others
    passes: float | None = None  # forward passes of the model, including those of prompts
    generation_seconds: float | None = None  # spent on generation, summed over requests
    # gauges
    running: float | None = None
    waiting: float | None = None
    kv_usage: float | None = None
    kv_tokens: float | None = None  # tokens that the KV cache holds for running requests
    generation_rate: float | None = None  # tokens/s as the engine itself averages it
    accept_length: float | None = None
    accept_rate: float | None = None
    # histograms, seconds
    ttft: Histogram | None = None
    inter_token: Histogram | None = None  # with speculation: between steps, not tokens
    # how the engine counts
    copies: int = 1  # data-parallel engines behind the endpoint: each steps by itself, on GPUs of its own
    started: float | None = None  # unix start time of the process that counts; another value means another process
    in_strides: bool = False  # gauges change only every so many steps, and freeze when the load stops
    counts_prefill_apart: bool = False  # `running` leaves out requests whose prompt is being read
    counts_steps: bool = False  # with in_strides: the token counter changes with every step although the gauges do not
    health_tokens: float = 0.0  # prompt tokens that one health check costs, where it runs a generation
    at_request_end: bool = False  # the token counters change when a request ends, by all of its tokens at once

    @property
    def has_ended_all(self) -> bool:
        """Tell whether every request that got a first token has ended; False if that is not known."""
        return self.ttft is not None and self.ended_requests is not None and self.ended_requests >= self.ttft.count

    def list_counters(self) -> tuple[float | None, ...]:
        """Return every value that can only grow while the engine runs."""
        histograms = (each.count if each else None for each in (self.ttft, self.inter_token))
        return (
            self.generation_tokens,
            self.ended_requests,
            self.prompt_tokens,
            self.prefix_queries,
            self.prefix_hits,
            self.drafts,
            self.draft_tokens,
            self.accepted_tokens,
            self.preemptions,
            self.passes,
            self.generation_seconds,
            *histograms,
        )


class StatsLineKind(StrEnum):
    """The kind of an engine's stats line."""

    DECODE = "decode"
    PREFILL = "prefill"
    HEALTH = "health"  # a prompt of one token, as a health check sends it
    SPECULATION = "speculation"
    REQUEST = "request"  # written once, at the end of a request


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsLine:
    """The content of one stats line. ``source`` is the part that wrote it (engine number, slot) where several report."""

    kind: StatsLineKind
    source: str = ""
    generation_rate: float | None = None
    prompt_rate: float | None = None
    running: float | None = None
    waiting: float | None = None
    kv_usage: float | None = None
    kv_tokens: float | None = None
    prefix_hit_rate: float | None = None
    accept_length: float | None = None
    accept_rate: float | None = None
    accepted: float | None = None  # draft tokens, since the previous such line
    drafted: float | None = None
    per_position: tuple[float, ...] | None = None
    prompt_tokens: float | None = None  # computed in this batch
    cached_tokens: float | None = None  # found in the prefix cache, of this batch
    every: float | None = None  # seconds between two such lines under load, None if lines come per number of steps


@dataclass(frozen=True, slots=True)
class DraftAcceptance:
    """How many drafts were accepted in the window. ``length`` and ``rate`` are None if there was no draft."""

    length: float | None
    rate: float | None
    per_position: tuple[float, ...] | None
    estimator: MeterSource


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Quantiles in seconds, from ``observations`` in the window."""

    p50: float
    p95: float
    observations: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLoad:
    """What one decode step of the window had to do, as the mean over its steps.

    ``tokens``: requests and their drafts; ``kv_tokens``: context in the KV cache; ``prompt_tokens``: prompt tokens that
    were computed meanwhile. ``is_running`` False: nothing runs any more, and the newest reading shows no further token.
    ``copies``: data-parallel engines, each of which has its part of the first two.
    """

    tokens: float | None = None
    kv_tokens: float | None = None
    prompt_tokens: float | None = None
    is_running: bool = True
    copies: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineMeter:
    """An engine's figures in the window. While ``idle`` its rates are 0 and there is no acceptance; old values are not
    kept.

    ``steps``: decode steps (forward passes) per second; one step serves all running requests. ``seconds``: the time
    that the figures cover.
    """

    activity: EngineActivity | None = None
    seconds: float | None = None
    estimator: MeterSource | None = None
    generation_rate: float | None = None
    prompt_rate: float | None = None
    steps: float | None = None
    running: float | None = None
    waiting: float | None = None
    decoding: float | None = None  # of `running`, those with a first token, where the engine tells them apart
    batch: float | None = None  # requests that one step serves, the mean over the window
    step_load: StepLoad | None = None
    kv_usage: float | None = None
    kv_tokens: float | None = None
    prefix_hit_rate: float | None = None
    preemptions: float | None = None  # how many requests lost their KV cache to others in the window
    acceptance: DraftAcceptance | None = None
    ttft: Quantiles | None = None
    inter_token: Quantiles | None = None


NO_GPU_PATH = "CPU"  # a `QUANTIZATION_PATH`: no GPU was found


class EngineFactName(StrEnum):
    """A closed set. The value is text for a reader: ``1806336``, ``13.78``, ``native FP4``, ``FLASH_ATTN``."""

    ENGINE_VERSION = "engine_version"
    ARCHITECTURE = "architecture"  # the model's class, e.g. Qwen3ForCausalLM
    QUANTIZATION = "quantization"  # the checkpoint's: fp8, modelopt_fp4, compressed-tensors
    QUANTIZATION_PATH = "quantization_path"  # what computes it: native FP4, or a fallback such as Marlin
    ATTENTION_BACKEND = "attention_backend"
    AVAILABLE_AT_LOAD = "available_at_load"  # GiB that were free when the weights began to load
    KV_CACHE_DTYPE = "kv_cache_dtype"
    KV_CACHE_TOKENS = "kv_cache_tokens"  # a count
    CONTEXT_LENGTH = "context_length"  # tokens
    MAX_CONCURRENCY = "max_concurrency"  # requests: of full context (vLLM), or the most that run at once (SGLang)
    SPECULATIVE_METHOD = "speculative_method"
    DRAFT_TOKENS = "draft_tokens"  # drafted in each step; SGLang reports the tokens it verifies
    DRAFT_STEPS = "draft_steps"  # passes of the draft model in each step
    DRAFT_TOP_K = "draft_top_k"  # how many branches each of them has
    DRAFT_ACCEPTANCE = "draft_acceptance"  # in the last lines that a log has about it
    GPU_CODE = "gpu_code"  # what the program was compiled for, where that is not this GPU
    TRAINED_CONTEXT = "trained_context"  # tokens that the model was trained for, where it runs with more
    NETWORK = "network"  # what connects the ranks, where it is not RDMA
    CHAT_TEMPLATE = "chat_template"  # what is wrong with it
    PREFIX_CACHE = "prefix_cache"  # why it does not help
    REFUSED_REQUEST = "refused_request"  # the last one, and why
    WAITING_REQUESTS = "waiting_requests"  # at the end of a log, where none runs


@dataclass(frozen=True, slots=True)
class EngineFact:
    """One fact. ``is_fallback``: the engine does not use the GPU's own arithmetic for the format; ``is_guess``: a
    line that tells it better replaces it; ``share``: 0 to 1, where the value tells one."""

    name: EngineFactName
    value: str
    _: KW_ONLY
    is_fallback: bool = False
    is_guess: bool = False
    share: float | None = None
