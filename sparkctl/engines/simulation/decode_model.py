"""What a simulated engine counts while it generates: tokens, drafts, requests.

A step reads the weights once and, if it drafts with a head of the model, that head once for each draft. The tokens per
step depend on the text, so the accept length varies within the range that owners measure.
"""

from __future__ import annotations

import math
from dataclasses import replace

from sparkctl.engines.simulation.engine_launch import SimLaunch
from sparkctl.engines.simulation.simulated_clock import SimPace
from sparkctl.model.lazy_dataclass import dataclass

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
    accepted: tuple[float, ...]
    seconds: float = 0.0

    def subtract(self, earlier: DecodeCounts) -> DecodeCounts:
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
        return self.generated / self.seconds if self.seconds else 0.0


MetricRows = list[tuple[str, str, float]]  # name, kind, value


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
        return self.background + self.served

    @property
    def tokens_per_second(self) -> float:
        """Generated tokens per second now, all requests together."""
        return self._steps_per_second(self.running_requests) * self._accept_length_at(self._age)

    @property
    def cache_usage(self) -> float:
        return min(0.97, self.context_tokens / self.kv_tokens)

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
        slices = max(1, min(_MAX_SLICES, math.ceil(seconds / _SLICE_SECONDS))) if self.background else 1
        generated = steps = 0.0
        accepted = [0.0] * self.launch.draft_tokens
        for _ in range(slices):
            made = self._compute_counts(self._age, seconds / slices)
            self._age += seconds / slices
            generated += made.generated
            steps += made.steps
            accepted = [old + new for old, new in zip(accepted, made.accepted, strict=True)]
        total, before = self._counts, self._written
        self._written += generated
        begun = int(self._written // ANSWER_TOKENS) - int(before // ANSWER_TOKENS)
        self._counts = DecodeCounts(
            generated=total.generated + generated,
            steps=total.steps + steps,
            requests=total.requests + begun,
            prompt=total.prompt + begun * PROMPT_TOKENS,
            cached=total.cached + begun * CACHED_PROMPT_TOKENS,
            accepted=tuple(old + new for old, new in zip(total.accepted, accepted, strict=True)),
            seconds=total.seconds + seconds,
        )

    def _compute_counts(self, age: float, seconds: float) -> DecodeCounts:
        steps = self._steps_per_second(self.background) * seconds
        if not steps:
            return DecodeCounts(accepted=(0.0,) * self.launch.draft_tokens, seconds=seconds)
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
    """Return how often each draft token is accepted: p, p², p³ ...; their sum is the accept length less one."""
    if length <= 1.0 or not drafted:
        return [0.0] * drafted
    # Newton's method from above: the sum is convex, so each step comes closer and none passes the root. The first share is not
    # below it because the terms' arithmetic mean is not below their geometric mean.
    share = min(1.0, ((length - 1) / drafted) ** (2 / (drafted + 1)))
    while True:
        total = slope = 0.0
        for _ in range(drafted):  # of share * (1 + share * (1 + ...)), and of its derivative
            total, slope = share * (1 + total), 1 + total + share * slope
        closer = share - (total - (length - 1)) / slope
        if closer >= share - 1e-12:
            break
        share = closer
    return [share**at for at in range(1, drafted + 1)]
