"""What an engine counts while it generates: tokens, drafts, requests.

A step reads the weights once and, where it drafts with a head of the model, that head once for each draft; how many tokens
come out of it depends on what is being written, so the accept length wanders within the range that owners measure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from sparkctl.engines.simulation.engine_launch import SimLaunch
from sparkctl.engines.simulation.simulated_clock import SimPace

# A request of the steady load: an agent's next turn, most of whose prompt was computed for the turn before.
PROMPT, CACHED, ANSWER = 5200, 4608, 700  # tokens
PREFILL = 1800.0  # prompt tokens a second
OVERHEAD = 0.04  # seconds before a prompt is read
FIRST_TOKEN = OVERHEAD + (PROMPT - CACHED) / PREFILL  # seconds
_WAVES = ((0.55, 41.0), (0.3, 17.0), (0.15, 7.3))  # share of the range, seconds
_FINEST, _SLICES = 1.0, 64  # seconds over which the accept length is taken for the same, and how many at most


@dataclass(frozen=True, slots=True)
class DecodeCounts:
    """Totals since the start; ``steps`` are decode steps summed over requests, ``accepted`` drafts by position."""

    generated: float = 0.0
    steps: float = 0.0
    requests: int = 0
    prompt: float = 0.0
    cached: float = 0.0
    accepted: tuple[float, ...] = ()
    seconds: float = 0.0

    def since(self, earlier: DecodeCounts) -> DecodeCounts:
        """Return what came since an earlier reading."""
        before = earlier.accepted or (0.0,) * len(self.accepted)
        return DecodeCounts(
            self.generated - earlier.generated,
            self.steps - earlier.steps,
            self.requests - earlier.requests,
            self.prompt - earlier.prompt,
            self.cached - earlier.cached,
            tuple(now - then for now, then in zip(self.accepted, before, strict=True)),
            self.seconds - earlier.seconds,
        )

    @property
    def length(self) -> float:
        """Tokens per step, the bonus token included."""
        return self.generated / self.steps if self.steps else 0.0

    @property
    def rate(self) -> float:
        """Generated tokens per second."""
        return self.generated / self.seconds if self.seconds else 0.0


class DecodeModel:
    """Requests served by HTTP, and, where a scenario asks for it, a steady load that nobody sees arrive.

    ``kv_tokens``: how many tokens its cache holds. ``stride``: what its last report was about, None before there was one.
    """

    def __init__(self, launch: SimLaunch, pace: SimPace) -> None:
        self.launch = launch
        self.pace = pace
        self.background = 0  # requests always running
        self.served = 0  # requests running for somebody
        self.health_checks = 0  # those that made an engine at rest generate
        self.kv_tokens = 1
        self.stride: DecodeCounts | None = None
        self._written = 0.0  # tokens of the steady load
        self._counts = self._reported = DecodeCounts(accepted=(0.0,) * launch.draft_tokens)
        self._age = 0.0  # seconds of decoding
        self._last = pace.clock.monotonic()

    @property
    def running(self) -> int:
        """Requests running now."""
        return self.background + self.served

    @property
    def rate(self) -> float:
        """Generated tokens per second now, all requests together."""
        return self._steps_per_second(self.running) * self._length(self._age)

    @property
    def context(self) -> int:
        """Tokens in the cache."""
        turn = int(self._written / max(1, self.background)) % ANSWER
        return self.background * (PROMPT + turn) + self.served * PROMPT

    def counts(self) -> DecodeCounts:
        """Return the totals as of now."""
        now = self.pace.clock.monotonic()
        passed, self._last = (now - self._last) * self.pace.decode, now
        self._go_on(passed)
        return self._counts

    def worked(self, seconds: float) -> None:
        """Count what the steady load has made in so many seconds before."""
        self.counts()
        self._go_on(seconds)
        self._reported = self._counts

    def take_report(self) -> DecodeCounts:
        """Return what was made since the last report."""
        before, self._reported = self._reported, self.counts()
        return self._reported.since(before)

    def past_counts(self, ago: float, seconds: float) -> DecodeCounts:
        """Return what the steady load made in ``seconds``, that many seconds ``ago``, as if it had always been there."""
        return self._made(self._age - ago, seconds)

    def _go_on(self, seconds: float) -> None:
        slices = max(1, min(_SLICES, math.ceil(seconds / _FINEST)))
        for _ in range(slices):
            self._take(self._made(self._age, seconds / slices))
            self._age += seconds / slices

    def _take(self, made: DecodeCounts) -> None:
        total, before = self._counts, self._written
        self._written += made.generated
        begun = int(self._written // ANSWER) - int(before // ANSWER)
        self._counts = DecodeCounts(
            total.generated + made.generated,
            total.steps + made.steps,
            total.requests + begun,
            total.prompt + begun * PROMPT,
            total.cached + begun * CACHED,
            tuple(old + new for old, new in zip(total.accepted, made.accepted, strict=True)),
            total.seconds + made.seconds,
        )

    def _made(self, age: float, seconds: float) -> DecodeCounts:
        steps = self._steps_per_second(self.background) * seconds
        length = self._length(age + seconds / 2)
        accepted = tuple(steps * share for share in acceptance_by_position(length, self.launch.draft_tokens))
        return DecodeCounts(steps * length, steps, accepted=accepted, seconds=seconds)

    def _steps_per_second(self, requests: int) -> float:
        """Steps, summed over requests: together they are somewhat slower each."""
        return self.launch.steps_per_second * requests**0.85 if requests else 0.0

    def _length(self, age: float) -> float:
        wave = sum(share * math.sin(age * math.tau / period) for share, period in _WAVES)
        return self.launch.accept_length + self.launch.accept_swing * wave

    def add(self, prompt: int, generated: int) -> None:
        """Count a request that was served."""
        total = self.counts()
        steps = generated / self._length(self._age)
        shares = acceptance_by_position(generated / steps if steps else 1.0, self.launch.draft_tokens)
        self._counts = replace(
            total,
            generated=total.generated + generated,
            steps=total.steps + steps,
            requests=total.requests + 1,
            prompt=total.prompt + prompt,
            accepted=tuple(old + steps * share for old, share in zip(total.accepted, shares, strict=True)),
        )

    async def wait_for_prefill(self, prompt: int) -> None:
        """Wait as long as a prompt of so many tokens takes to read."""
        await self.pace.decode_for(OVERHEAD + prompt / PREFILL)

    async def wait_for_decode(self, tokens: int) -> None:
        """Wait as long as so many tokens of one request take."""
        await self.pace.decode_for(tokens / (self.launch.steps_per_second * self._length(self._age)))


def acceptance_by_position(length: float, drafted: int) -> list[float]:
    """Return how often each draft token is accepted: p, p², p³ ..., which add up to all that came beyond the bonus token."""
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        if sum(middle**at for at in range(1, drafted + 1)) < length - 1:
            low = middle
        else:
            high = middle
    return [high**at for at in range(1, drafted + 1)]
