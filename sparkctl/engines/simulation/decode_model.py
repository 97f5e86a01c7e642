"""What a simulated engine counts while it generates: tokens, drafts, requests.

A step reads the weights once and, if it drafts with a head of the model, that head once for each draft. The tokens per
step depend on the text, so the accept length varies within the range that owners measure.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace

from sparkctl.engines.simulation.engine_launch import SimEngineKind, SimLaunch
from sparkctl.engines.simulation.script_steps import LOG_TIME
from sparkctl.engines.simulation.simulated_clock import SimPace
from sparkctl.engines.simulation.unified_memory import GIB

# A request of the steady load: an agent's next turn, most of whose prompt was computed for the turn before.
PROMPT_TOKENS, CACHED_PROMPT_TOKENS, ANSWER_TOKENS = 5200, 4608, 700  # tokens
PREFILL_TOKENS_PER_SECOND = 1800.0  # prompt tokens a second
REQUEST_OVERHEAD_SECONDS = 0.04  # seconds before a prompt is read
FIRST_TOKEN_SECONDS = (
    REQUEST_OVERHEAD_SECONDS + (PROMPT_TOKENS - CACHED_PROMPT_TOKENS) / PREFILL_TOKENS_PER_SECOND
)  # seconds
_ACCEPT_LENGTH_WAVES = ((0.55, 41.0), (0.3, 17.0), (0.15, 7.3))  # share of the range, seconds
_SLICE_SECONDS, _MAX_SLICES = (
    1.0,
    64,
)  # seconds for which the accept length counts as constant, and the maximum number of such stretches


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeCounts:
    """Totals since the start; ``steps`` are decode steps summed over requests, ``accepted`` drafts by position."""

    generated: float = 0.0
    steps: float = 0.0
    requests: int = 0
    prompt: float = 0.0
    cached: float = 0.0
    accepted: tuple[float, ...] = ()
    seconds: float = 0.0

    def subtract(self, earlier: DecodeCounts) -> DecodeCounts:
        """Return the difference to an earlier reading."""
        before = earlier.accepted or (0.0,) * len(self.accepted)
        return DecodeCounts(
            generated=self.generated - earlier.generated,
            steps=self.steps - earlier.steps,
            requests=self.requests - earlier.requests,
            prompt=self.prompt - earlier.prompt,
            cached=self.cached - earlier.cached,
            accepted=tuple(now - then for now, then in zip(self.accepted, before, strict=True)),
            seconds=self.seconds - earlier.seconds,
        )

    @property
    def accept_length(self) -> float:
        """Tokens per step, including the bonus token."""
        return self.generated / self.steps if self.steps else 0.0

    @property
    def tokens_per_second(self) -> float:
        """Generated tokens per second."""
        return self.generated / self.seconds if self.seconds else 0.0


class DecodeModel:
    """Requests served by HTTP, and, if a scenario asks for it, a steady load without HTTP requests.

    ``kv_tokens``: how many tokens its cache holds. ``stride``: the content of its last report, None before the first.
    """

    def __init__(self, launch: SimLaunch, pace: SimPace) -> None:
        self.launch = launch
        self.pace = pace
        self.background = 0  # requests always running
        self.served = 0  # requests running over HTTP
        self.health_checks = 0  # requests that made an idle engine generate
        self.kv_tokens = 1
        self.stride: DecodeCounts | None = None
        self._written = 0.0  # tokens of the steady load
        self._counts = self._reported = DecodeCounts(accepted=(0.0,) * launch.draft_tokens)
        self._age = 0.0  # seconds of decoding
        self._last = pace.clock.monotonic()

    @property
    def running_requests(self) -> int:
        """Requests running now."""
        return self.background + self.served

    @property
    def tokens_per_second(self) -> float:
        """Generated tokens per second now, all requests together."""
        return self._steps_per_second(self.running_requests) * self._accept_length_at(self._age)

    @property
    def context_tokens(self) -> int:
        """Tokens in the cache."""
        turn = int(self._written / max(1, self.background)) % ANSWER_TOKENS
        return self.background * (PROMPT_TOKENS + turn) + self.served * PROMPT_TOKENS

    def update_counts(self) -> DecodeCounts:
        """Return the totals as of now."""
        now = self.pace.clock.monotonic()
        passed, self._last = (now - self._last) * self.pace.decode, now
        self._advance(passed)
        return self._counts

    def add_past_load(self, seconds: float) -> None:
        """Count what the steady load produced in a number of seconds before the start."""
        self.update_counts()
        self._advance(seconds)
        self._reported = self._counts

    def take_report(self) -> DecodeCounts:
        """Return what was produced since the last report."""
        before, self._reported = self._reported, self.update_counts()
        return self._reported.subtract(before)

    def compute_past_counts(self, ago: float, seconds: float) -> DecodeCounts:
        """Return what the steady load produced in ``seconds``, that many seconds ``ago``, as if it had always run."""
        return self._compute_counts(self._age - ago, seconds)

    def _advance(self, seconds: float) -> None:
        slices = max(1, min(_MAX_SLICES, math.ceil(seconds / _SLICE_SECONDS)))
        for _ in range(slices):
            self._add_counts(self._compute_counts(self._age, seconds / slices))
            self._age += seconds / slices

    def _add_counts(self, made: DecodeCounts) -> None:
        total, before = self._counts, self._written
        self._written += made.generated
        begun = int(self._written // ANSWER_TOKENS) - int(before // ANSWER_TOKENS)
        self._counts = DecodeCounts(
            generated=total.generated + made.generated,
            steps=total.steps + made.steps,
            requests=total.requests + begun,
            prompt=total.prompt + begun * PROMPT_TOKENS,
            cached=total.cached + begun * CACHED_PROMPT_TOKENS,
            accepted=tuple(old + new for old, new in zip(total.accepted, made.accepted, strict=True)),
            seconds=total.seconds + made.seconds,
        )

    def _compute_counts(self, age: float, seconds: float) -> DecodeCounts:
        steps = self._steps_per_second(self.background) * seconds
        length = self._accept_length_at(age + seconds / 2)
        accepted = tuple(steps * share for share in compute_position_acceptance(length, self.launch.draft_tokens))
        return DecodeCounts(generated=steps * length, steps=steps, accepted=accepted, seconds=seconds)

    def _steps_per_second(self, requests: int) -> float:
        """Steps, summed over requests: with several requests each is somewhat slower."""
        return self.launch.steps_per_second * requests**0.85 if requests else 0.0

    def _accept_length_at(self, age: float) -> float:
        wave = sum(share * math.sin(age * math.tau / period) for share, period in _ACCEPT_LENGTH_WAVES)
        return self.launch.accept_length + self.launch.accept_swing * wave

    def add_request(self, prompt: int, generated: int) -> None:
        """Count a finished request."""
        total = self.update_counts()
        steps = generated / self._accept_length_at(self._age)
        shares = compute_position_acceptance(generated / steps if steps else 1.0, self.launch.draft_tokens)
        self._counts = replace(
            total,
            generated=total.generated + generated,
            steps=total.steps + steps,
            requests=total.requests + 1,
            prompt=total.prompt + prompt,
            accepted=tuple(old + steps * share for old, share in zip(total.accepted, shares, strict=True)),
        )

    async def wait_for_prefill(self, prompt: int) -> None:
        """Wait as long as a prompt of so many tokens takes."""
        await self.pace.decode_for(REQUEST_OVERHEAD_SECONDS + prompt / PREFILL_TOKENS_PER_SECOND)

    async def wait_for_decode(self, tokens: int) -> None:
        """Wait as long as so many tokens of one request take."""
        await self.pace.decode_for(tokens / (self.launch.steps_per_second * self._accept_length_at(self._age)))


def compute_position_acceptance(length: float, drafted: int) -> list[float]:
    """Return how often each draft token is accepted: p, p², p³ ..., which add up to the accept length without the bonus
    token.
    """
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        if sum(middle**at for at in range(1, drafted + 1)) < length - 1:
            low = middle
        else:
            high = middle
    return [high**at for at in range(1, drafted + 1)]


VLLM_LOG_SECONDS = 10.0
LLAMA_LOG_SECONDS = 3.0
SGLANG_LOG_STEPS = 40
SGLANG_MAX_REQUESTS = 48  # that SGLang lets run at once here


async def stream_decode_lines(launch: SimLaunch, decoding: DecodeModel) -> AsyncIterator[tuple[str, str]]:
    """Yield lines with their stream, as long as they are read."""
    stride = _log_interval(launch)
    was_idle = True
    decoding.take_report()
    while True:
        await decoding.pace.decode_for(stride)
        done = decoding.take_report()
        idle = done.generated < 1
        if not (idle and was_idle):
            for line in _build_log_lines(launch, decoding, done, max(done.seconds, 1e-3)):
                yield line
        if not idle:
            decoding.stride = done
        was_idle = idle


def build_past_decode_lines(
    launch: SimLaunch, decoding: DecodeModel, seconds: float
) -> Iterator[tuple[float, str, str]]:
    """Yield (age in seconds, line, stream) of the log that a steady load left over the last ``seconds``."""
    stride = _log_interval(launch)
    for back in range(int(seconds // stride) if decoding.background else 0, 0, -1):
        done = decoding.compute_past_counts(back * stride, stride)
        decoding.stride = done
        for line, stream in _build_log_lines(launch, decoding, done, stride):
            yield (back - 1) * stride, line, stream


def _log_interval(launch: SimLaunch) -> float:
    if launch.kind is SimEngineKind.LLAMA:
        return LLAMA_LOG_SECONDS
    return VLLM_LOG_SECONDS if launch.kind is SimEngineKind.VLLM else SGLANG_LOG_STEPS / launch.steps_per_second


def _build_log_lines(
    launch: SimLaunch, decoding: DecodeModel, done: DecodeCounts, seconds: float
) -> Iterator[tuple[str, str]]:
    """Yield the log lines of one stride; only the first rank counts."""
    if launch.rank:
        return
    idle = done.generated < 1
    if launch.kind is SimEngineKind.SGLANG and not idle:
        if done.requests:
            yield _format_sglang_prefill_line(launch), "stderr"
        yield _format_sglang_decode_line(launch, decoding, done, seconds), "stderr"
    if launch.kind is SimEngineKind.LLAMA and not idle:
        yield from ((line, "stderr") for line in _build_llama_lines(decoding, done, seconds))
    if launch.kind is SimEngineKind.VLLM:
        yield _format_vllm_line(decoding, done, seconds), "stdout"
        if launch.draft_tokens and not idle:
            yield _format_vllm_speculation_line(launch, done, seconds), "stdout"


def _build_llama_lines(decoding: DecodeModel, done: DecodeCounts, seconds: float) -> Iterator[str]:
    """Yield a line for each busy slot; there is no line for all of them."""
    for slot in range(decoding.running_requests):
        pace = done.generated / seconds / decoding.running_requests
        yield (
            f"{LOG_TIME} I slot print_timing: id  {slot} | task {slot} | n_gen = {pace * seconds:6.0f}, tg = {pace:6.2f} t/s, "
            f"tg_3s = {pace:6.2f} t/s"
        )


def format_cache_usage(launch: SimLaunch, tokens: int, running: int, capacity: int) -> str:
    """Return SGLang's figures of its cache: both pools for a hybrid model such as Qwen3.5 and 3.6."""
    used = tokens / capacity
    if not launch.is_hybrid:
        return f"#token: {tokens}, token usage: {used:.2f}"
    states = f"mamba num: {running}, mamba usage: {running / SGLANG_MAX_REQUESTS:.2f}"
    return f"#full token: {tokens}, full token usage: {used:.2f}, {states}"


def _format_sglang_prefill_line(launch: SimLaunch) -> str:
    """Return the line of a request that begins: the part of its prompt that was not cached."""
    new = PROMPT_TOKENS - CACHED_PROMPT_TOKENS
    usage = "full token usage: 0.00, mamba usage: 0.02" if launch.is_hybrid else "token usage: 0.00"
    return (
        f"[{LOG_TIME}] Prefill batch, #new-seq: 1, #new-token: {new}, #cached-token: {CACHED_PROMPT_TOKENS}, {usage}, #running-req: 0, "
        f"#queue-req: 0, #pending-token: 0, cuda graph: False, input throughput (token/s): {PREFILL_TOKENS_PER_SECOND:.2f}"
    )


def _format_sglang_decode_line(launch: SimLaunch, decoding: DecodeModel, done: DecodeCounts, seconds: float) -> str:
    usage = format_cache_usage(launch, decoding.context_tokens, decoding.running_requests, decoding.kv_tokens)
    spec = ""
    if launch.draft_tokens:
        rate = (done.accept_length - 1) / launch.draft_tokens
        spec = f"accept len: {done.accept_length:.2f}, accept rate: {rate:.2f}, "
    return (
        f"[{LOG_TIME}] Decode batch, #running-req: {decoding.running_requests}, {usage}, {spec}cuda graph: True, "
        f"gen throughput (token/s): {done.generated / seconds:.2f}, #queue-req: 0"
    )


def _format_vllm_line(decoding: DecodeModel, done: DecodeCounts, seconds: float) -> str:
    hits = f"{CACHED_PROMPT_TOKENS / PROMPT_TOKENS * 100:.1f}" if decoding.background else "0.0"
    return (
        f"(APIServer pid=1) INFO {LOG_TIME} [loggers.py:259] Engine 000: Avg prompt throughput: "
        f"{(done.prompt - done.cached) / seconds:.1f} tokens/s, "
        f"Avg generation throughput: {done.generated / seconds:.1f} tokens/s, Running: {decoding.running_requests} reqs, Waiting: 0 reqs, "
        f"GPU KV cache usage: {decoding.context_tokens * 100 / decoding.kv_tokens:.1f}%, Prefix cache hit rate: {hits}%"
    )


def _format_vllm_speculation_line(launch: SimLaunch, done: DecodeCounts, seconds: float) -> str:
    accepted, drafted = sum(done.accepted), done.steps * launch.draft_tokens
    positions = ", ".join(f"{count / done.steps:.3f}" for count in done.accepted)
    return (
        f"(APIServer pid=1) INFO {LOG_TIME} [metrics.py:101] SpecDecoding metrics: Mean acceptance length: {1 + accepted / done.steps:.2f}, "
        f"Accepted throughput: {accepted / seconds:.2f} tokens/s, Drafted throughput: {drafted / seconds:.2f} tokens/s, "
        f"Accepted: {accepted:.0f} tokens, Drafted: {drafted:.0f} tokens, Per-position acceptance rate: {positions}, "
        f"Avg Draft acceptance rate: {accepted / drafted * 100:.1f}%"
    )


METRICS_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_TTFT_BUCKETS = (("0.1", 0.0), ("0.25", 0.35), ("0.5", 0.85), ("1.0", 0.95), ("2.5", 1.0), ("+Inf", 1.0))  # share up to
_ITL_BUCKETS = ("0.025", "0.05", "0.075", "0.1", "0.15", "0.2", "0.3", "0.5", "1.0", "+Inf")
MetricRows = list[tuple[str, str, float]]  # name, kind, value


def build_metrics_page(launch: SimLaunch, decoding: DecodeModel) -> str:
    """Return the whole page."""
    counts = decoding.update_counts()
    if launch.kind is SimEngineKind.VLLM:
        labels = f'engine="0",model_name="{launch.served}"'
        rows = _build_vllm_metrics(launch, decoding, counts)
    elif launch.kind is SimEngineKind.SGLANG:
        labels = f'engine_type="unified",model_name="{launch.served}",moe_ep_rank="0",pp_rank="0",tp_rank="0"'
        rows = _build_sglang_metrics(launch, decoding, counts)
    else:
        labels, rows = "", _build_llama_metrics(launch, decoding, counts)
    lines: list[str] = []
    before = ""
    for name, kind, value in rows:
        bare, _, more = name.partition("|")
        inside = ",".join(part for part in (labels, more) if part)
        if bare != before:
            lines += [f"# HELP {bare} {bare.replace('_', ' ')}", f"# TYPE {bare} {kind}"]
        before = bare
        lines.append(f"{bare}{'{' + inside + '}' if inside else ''} {value!r}")
    return "\n".join([*lines, ""])


def _compute_cache_usage(decoding: DecodeModel) -> float:
    return min(0.97, decoding.context_tokens / decoding.kv_tokens)


def _build_vllm_metrics(launch: SimLaunch, decoding: DecodeModel, counts: DecodeCounts) -> MetricRows:
    rows: MetricRows = [
        ("vllm:num_requests_running", "gauge", float(decoding.running_requests)),
        ("vllm:num_requests_waiting", "gauge", 0.0),
        ('vllm:engine_sleep_state|sleep_state="awake"', "gauge", 1.0),
        ("vllm:kv_cache_usage_perc", "gauge", _compute_cache_usage(decoding)),
        ("vllm:prefix_cache_queries_total", "counter", counts.prompt // 1),
        ("vllm:prefix_cache_hits_total", "counter", counts.cached // 1),
        ("vllm:num_preemptions_total", "counter", 0.0),
        ("vllm:prompt_tokens_total", "counter", counts.prompt // 1),
        ("vllm:generation_tokens_total", "counter", counts.generated // 1),
        ('vllm:request_success_total|finished_reason="length"', "counter", float(counts.requests)),
    ]
    rows += _build_latency_metrics("vllm:", launch, counts)
    if launch.draft_tokens:
        rows += [
            ("vllm:spec_decode_num_drafts_total", "counter", counts.steps // 1),
            ("vllm:spec_decode_num_draft_tokens_total", "counter", counts.steps * launch.draft_tokens // 1),
            ("vllm:spec_decode_num_accepted_tokens_total", "counter", sum(counts.accepted) // 1),
        ]
        rows += [
            (
                f'vllm:spec_decode_num_accepted_tokens_per_pos_total|position="{at}"',
                "counter",
                accepted // 1,
            )
            for at, accepted in enumerate(counts.accepted)
        ]
    return rows


def _build_latency_metrics(prefix: str, launch: SimLaunch, counts: DecodeCounts) -> MetricRows:
    name = f"{prefix}time_to_first_token_seconds"
    between = f"{prefix}inter_token_latency_seconds"
    first = [
        (f'{name}_bucket|le="{le}"', "counter", float(int(counts.requests * share))) for le, share in _TTFT_BUCKETS
    ]
    step = 1 / launch.steps_per_second
    steps = [
        (f'{between}_bucket|le="{le}"', "counter", counts.steps // 1 if step <= float(le) else 0.0)
        for le in _ITL_BUCKETS
    ]
    return [
        *first,
        *steps,
        (f"{name}_count", "counter", float(counts.requests)),
        (f"{name}_sum", "counter", counts.requests * FIRST_TOKEN_SECONDS),
        (f"{between}_count", "counter", counts.steps // 1),
        (f"{between}_sum", "counter", counts.steps / launch.steps_per_second),
    ]


def _build_sglang_metrics(launch: SimLaunch, decoding: DecodeModel, counts: DecodeCounts) -> MetricRows:
    last = decoding.stride if decoding.running_requests else None  # its gauges are those of the last stride
    length = last.accept_length if last is not None and launch.draft_tokens else 0.0
    rate = (length - 1) / launch.draft_tokens if length else 0.0
    rows: MetricRows = [
        ("sglang:num_running_reqs", "gauge", float(decoding.running_requests)),
        ("sglang:num_queue_reqs", "gauge", 0.0),
        ("sglang:token_usage", "gauge", _compute_cache_usage(decoding)),
        ("sglang:num_used_tokens", "gauge", float(decoding.context_tokens)),
        ("sglang:max_total_num_tokens", "gauge", float(decoding.kv_tokens)),
        ("sglang:gen_throughput", "gauge", last.tokens_per_second if last is not None else 0.0),
        ("sglang:cache_hit_rate", "gauge", 0.0),
        ("sglang:spec_accept_length", "gauge", length),
        ("sglang:spec_accept_rate", "gauge", rate),
        ("sglang:prompt_tokens_total", "counter", counts.prompt // 1),
        ("sglang:generation_tokens_total", "counter", counts.generated // 1),
        *_build_realtime_metrics(decoding, counts),
        ("sglang:num_requests_total", "counter", float(counts.requests)),
        ("sglang:weight_memory_usage_gb", "gauge", launch.weights / GIB),
    ]
    return rows + _build_latency_metrics("sglang:", launch, counts)


def _build_realtime_metrics(decoding: DecodeModel, counts: DecodeCounts) -> MetricRows:
    """Return what is counted at every step, without a request's first token, which the prefill produces."""
    modes = {
        "prefill_compute": counts.prompt - counts.cached + decoding.health_checks,
        "prefill_cache": counts.cached,
        "decode": max(0.0, counts.generated - counts.requests),
    }
    return [(f'sglang:realtime_tokens_total|mode="{mode}"', "counter", tokens // 1) for mode, tokens in modes.items()]


def _build_llama_metrics(launch: SimLaunch, decoding: DecodeModel, counts: DecodeCounts) -> MetricRows:
    spec: MetricRows = [
        ("llamacpp:spec_decode_num_drafts_total", "counter", counts.steps // 1),
        ("llamacpp:spec_decode_num_draft_tokens_total", "counter", counts.steps * launch.draft_tokens // 1),
        ("llamacpp:spec_decode_num_accepted_tokens_total", "counter", sum(counts.accepted) // 1),
    ]
    return [
        *(spec if launch.draft_tokens else []),
        ("llamacpp:tokens_predicted_total", "counter", counts.generated // 1),
        ("llamacpp:tokens_predicted_seconds_total", "counter", counts.steps / launch.steps_per_second),
        ("llamacpp:n_decode_total", "counter", counts.steps // 1),
        ("llamacpp:prompt_tokens_total", "counter", (counts.prompt - counts.cached) // 1),
        ("llamacpp:prompt_tokens_cached_total", "counter", counts.cached // 1),
        ("llamacpp:requests_processing", "gauge", float(decoding.running_requests)),
        ("llamacpp:requests_deferred", "gauge", 0.0),
        ("llamacpp:predicted_tokens_seconds", "gauge", decoding.tokens_per_second),
    ]
