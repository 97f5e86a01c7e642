"""What two readings of an engine's counters say together. Pure: the same readings give the same figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparkctl.model.engine_metrics import DraftAcceptance, EngineMetrics, Histogram, MeterSource, Quantiles

_HEALTH_CHECKS = 4.0  # prompt tokens a second: a health check costs SGLang one, and a few clients send them


@dataclass(frozen=True, slots=True)
class MetricsReading:
    """One reading of /metrics, at monotonic seconds."""

    when: float
    metrics: EngineMetrics


def has_restarted(before: EngineMetrics, now: EngineMetrics) -> bool:
    """Say whether another process counts now: a counter fell or vanished, or the process began at another time."""
    if before.started is not None and now.started is not None and before.started != now.started:
        return True
    pairs = zip(before.counters(), now.counters(), strict=True)
    return any(old is not None and (new is None or new < old) for old, new in pairs)


def has_stepped(before: EngineMetrics, now: EngineMetrics) -> bool:
    """Say whether decode steps were reported between two readings: by a counter, or by a gauge that was written anew."""
    more = subtract_counters(before.generation_tokens, now.generation_tokens)
    if more is not None:
        return more > 0
    return bool(now.generation_rate) and now.generation_rate != before.generation_rate


def subtract_counters(before: float | None, now: float | None) -> float | None:
    """Return the difference, None where either is not known."""
    return None if before is None or now is None else now - before


def reads_prompts(before: EngineMetrics, now: EngineMetrics, seconds: float) -> bool:
    """Say whether more prompt tokens were read in so many seconds than whoever asks for its health makes an engine read."""
    prompted = subtract_counters(before.prompt_tokens, now.prompt_tokens) or 0.0
    return prompted > now.health_tokens * (1 + _HEALTH_CHECKS * seconds)


class MetricsInterval:
    """The stretch from the first to the last of two or more readings."""

    def __init__(self, readings: Sequence[MetricsReading]) -> None:
        self._readings = readings
        self.first, self.last = readings[0].metrics, readings[-1].metrics
        self.seconds = readings[-1].when - readings[0].when
        made = subtract_counters(self.first.generation_tokens, self.last.generation_tokens)
        self.generated = (
            None if made is None else made + (subtract_counters(self.first.first_tokens, self.last.first_tokens) or 0.0)
        )
        self.prompted = subtract_counters(self.first.prompt_tokens, self.last.prompt_tokens)
        self.passes = subtract_counters(self.first.passes, self.last.passes)
        self.accepted = subtract_counters(self.first.accepted_tokens, self.last.accepted_tokens)
        self.drafts = subtract_counters(self.first.drafts, self.last.drafts)

    def per_second(self, amount: float | None) -> float | None:
        """Return the amount per second of the stretch."""
        return None if amount is None else amount / self.seconds

    def reads_prompts(self) -> bool:
        """Say whether prompts were read, beside those of health checks."""
        return reads_prompts(self.first, self.last, self.seconds)

    def compute_generation_rate(self) -> float | None:
        """Return tokens/s of all requests together.

        Where tokens are counted at the end of a request, a jump by a whole request says nothing of these seconds: the
        speed of the requests that ended, times how many run, does. None while none ended.
        """
        if not self.last.at_request_end:
            return self.per_second(self.generated)
        spent = subtract_counters(self.first.generation_seconds, self.last.generation_seconds)
        if not self.generated or not spent:
            return None
        return self.generated / spent * (self.batch() or 1.0)

    def batch(self) -> float | None:
        """Return how many requests a step serves: the mean over readings with any; their most where others wait."""
        busy = [each.metrics for each in self._readings if each.metrics.running]
        running = [each.running for each in busy if each.running]
        if not running:
            return None if self.last.running is None else 1.0
        return max(running) if any(each.waiting for each in busy) else sum(running) / len(running)

    def steps(self) -> float | None:
        """Return decode steps (forward passes) per second.

        Each step of a request gives one token and those accepted, so a request's steps are tokens minus accepted. The
        drafts counter alone is too low where a step can be without a draft (n-gram); it is the higher of the two where
        a request ends in the middle of accepted tokens.
        """
        if self.last.at_request_end:
            return self.per_second(self.passes)
        batch = self.batch()
        if self.generated is None or batch is None:
            return None
        return max(self.generated - (self.accepted or 0.0), self.drafts or 0.0) / self.seconds / batch

    def acceptance(self) -> DraftAcceptance | None:
        """Return accept length 1 + accepted/drafts, rate accepted/drafted, and the rate by position; None without."""
        drafted = subtract_counters(self.first.draft_tokens, self.last.draft_tokens)
        if self.drafts is None or self.accepted is None:
            return None
        length = 1 + self.accepted / self.drafts if self.drafts > 0 else None
        rate = self.accepted / drafted if drafted else None
        return DraftAcceptance(length, rate, self._positions(), MeterSource.COUNTERS)

    def prefix_hit_rate(self) -> float | None:
        """Return the share of prompt tokens found in the prefix cache, None where none was looked up."""
        queries = subtract_counters(self.first.prefix_queries, self.last.prefix_queries)
        hits = subtract_counters(self.first.prefix_hits, self.last.prefix_hits)
        return hits / queries if queries and hits is not None else None

    def ttft(self) -> Quantiles | None:
        """Return time to first token of the requests that got theirs in the stretch."""
        return compute_quantiles(self.first.ttft, self.last.ttft)

    def inter_token(self) -> Quantiles | None:
        """Return the latency between tokens; between steps where there is speculation."""
        return compute_quantiles(self.first.inter_token, self.last.inter_token)

    def _positions(self) -> tuple[float, ...] | None:
        before, now = self.first.accepted_per_position, self.last.accepted_per_position
        if before is None or now is None or len(before) != len(now) or not self.drafts:
            return None
        return tuple((new - old) / self.drafts for old, new in zip(before, now, strict=True))


def compute_quantiles(before: Histogram | None, now: Histogram | None) -> Quantiles | None:
    """Return p50 and p95 of what was observed between two readings, None without observations."""
    between = now.subtract(before) if now is not None and before is not None else None
    if between is None:
        return None
    p50, p95 = between.estimate_quantile(0.5), between.estimate_quantile(0.95)
    return None if p50 is None or p95 is None else Quantiles(p50, p95, between.count)
