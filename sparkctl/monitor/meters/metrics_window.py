"""Computes an engine's figures over the last seconds from readings of its counters and gauges. Pure: time is an argument."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

from sparkctl.model.engine_metrics import (
    DraftAcceptance,
    EngineActivity,
    EngineMeter,
    EngineMetrics,
    Histogram,
    MeterSource,
    Quantiles,
    StepLoad,
)
from sparkctl.model.lazy_dataclass import dataclass

IDLE_GAP_SECONDS = 10.0  # seconds between two reports, from which on the rate of the second may include idle time
_MAX_STRIDE_SECONDS = 30.0  # SGLang writes its gauges anew after this silence; no engine at work is silent for longer
_FRESH_GAUGE_SECONDS = 40.0  # seconds of silence, after which a gauge in strides was written since, and may be believed
_STRIDE_TOLERANCE = 1.5


class ReportCadence:
    """Remembers when the engine last reported steps and how far apart its reports usually are.

    The first report after an idle gap averages its tokens over the gap: 4 tok/s from an engine that does 15. A gap is
    an idle one when it is longer than 10 s and longer than 1.5 times the usual, so that a large model with reports
    13 s apart is not taken for idle.
    """

    def __init__(self) -> None:
        self._last: float | None = None
        self._gaps: deque[float] = deque(maxlen=3)
        self.trusted = False  # the rate of the last report covers steps alone

    def record_report(self, when: float, unbroken: bool) -> None:
        """Record a report of steps; ``when`` in seconds. ``unbroken``: no request began since the last, so there was no idle time."""
        gap = None if self._last is None else when - self._last
        self.trusted = gap is not None and (
            unbroken or gap <= max(IDLE_GAP_SECONDS, _STRIDE_TOLERANCE * self._usual_gap())
        )
        if gap is not None and gap <= _MAX_STRIDE_SECONDS:
            self._gaps.append(gap)
        self._last = when

    def is_stepping(self, now: float, window: float) -> bool:
        """Tell whether steps were reported recently."""
        return self._last is not None and now - self._last <= max(window, _STRIDE_TOLERANCE * self._usual_gap())

    def max_silence(self, window: float) -> float:
        """Return after how many seconds of silence it is certain that no step happened; long while the interval is not known."""
        return max(window, _STRIDE_TOLERANCE * self._usual_gap()) if self._gaps else max(window, _MAX_STRIDE_SECONDS)

    def _usual_gap(self) -> float:
        return min(self._gaps, default=0.0)


# Prompt tokens for each decode step, from which on the engine does hardly anything else: it takes them in pieces of
# 2,048 and more, and a step's time is that of some 300 (an H100 reads 37,600 a second, or makes 144 steps).
PREFILL_TOKENS_PER_STEP = 1500.0

# A question for one token, as sparkctl asks one now and then to see whether an engine lives: no more of them than one in five
# seconds, with a prompt of no more than a chat template's words around it.
_QUESTION_SECONDS, _QUESTION_PROMPT_TOKENS = 5.0, 256.0
_HEALTH_CHECK_TOKEN_RATE = (
    4.0  # prompt tokens a second: each health check costs SGLang one, and several clients may send them
)


@dataclass(frozen=True, slots=True)
class MetricsReading:
    """One reading of /metrics, at monotonic seconds."""

    when: float
    metrics: EngineMetrics


def has_restarted(before: EngineMetrics, now: EngineMetrics) -> bool:
    """Tell whether the engine process restarted: a counter fell or vanished, or the process start time changed."""
    if before.started is not None and now.started is not None and before.started != now.started:
        return True
    pairs = zip(before.list_counters(), now.list_counters(), strict=True)
    return any(old is not None and (new is None or new < old) for old, new in pairs)


def has_stepped(before: EngineMetrics, now: EngineMetrics) -> bool:
    """Tell whether decode steps were reported between two readings: by a counter, or by a changed gauge."""
    more = subtract_counters(before.generation_tokens, now.generation_tokens)
    if more is not None and (more > 0 or not now.in_strides or now.counts_steps):
        return more > 0
    return bool(now.generation_rate) and now.generation_rate != before.generation_rate


def subtract_counters(before: float | None, now: float | None) -> float | None:
    """Return the difference, None if one is not known."""
    return None if before is None or now is None else now - before


def sum_known(values: Iterable[float | None]) -> float | None:
    """Return the sum of the known values, None without any."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def compute_weighted_mean(weighted: Iterable[tuple[float | None, float]]) -> float | None:
    """Return the mean of the known values, each with its weight; None without any weight."""
    known = [(value, weight) for value, weight in weighted if value is not None]
    total = sum(weight for _, weight in known)
    return sum(value * weight for value, weight in known) / total if total else None


def reads_prompts(before: EngineMetrics, now: EngineMetrics, seconds: float) -> bool:
    """Tell whether more prompt tokens were processed in ``seconds`` than health checks cause."""
    prompted = subtract_counters(before.prompt_tokens, now.prompt_tokens) or 0.0
    return prompted > now.health_tokens * (1 + _HEALTH_CHECK_TOKEN_RATE * seconds)


class MetricsInterval:
    """The interval from the first to the last of two or more readings."""

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
        """Return the amount per second of the interval."""
        return None if amount is None else amount / self.seconds

    def reads_prompts(self) -> bool:
        """Tell whether prompts were processed, other than those of health checks."""
        return reads_prompts(self.first, self.last, self.seconds)

    def is_question(self) -> bool:
        """Tell whether all that happened was that the engine was asked whether it lives: that is no work, whoever asks."""
        made, is_resting = self.generated or 0.0, self.last.running == 0 and not self.last.waiting
        is_rare = 0 < made <= max(1.0, self.seconds / _QUESTION_SECONDS)
        return is_rare and is_resting and (self.prompted or 0.0) <= made * _QUESTION_PROMPT_TOKENS

    def compute_generation_rate(self) -> float | None:
        """Return tokens/s of all requests together.

        If tokens are counted at the end of a request, a jump by a whole request says nothing about these seconds. Then
        it is the speed of the ended requests, times the number of running ones; None while none ended.
        """
        if not self.last.at_request_end:
            return self.per_second(self.generated)
        spent = subtract_counters(self.first.generation_seconds, self.last.generation_seconds)
        if not self.generated or not spent:
            return None
        return self.generated / spent * (self.compute_batch_size() or 1.0)

    def compute_batch_size(self) -> float | None:
        """Return how many requests a step serves: the mean over its steps; while requests wait, the most that ran.

        A gauge that changes only every so many steps is too low after each prompt: then it is the most, too.
        """
        busy = [each.metrics for each in self._readings if each.metrics.running]
        running = [each.running for each in busy if each.running]
        if not running:
            return None if self.last.running is None else 1.0
        if self.last.in_strides or any(each.waiting for each in busy):
            return max(running)
        parts = [(made, batch) for made, batch, _ in self._list_steps() if batch is not None]
        steps = sum(made / batch for made, batch in parts)
        return sum(made for made, _ in parts) / steps if steps else sum(running) / len(running)

    def _list_steps(self) -> list[tuple[float, float | None, float | None]]:
        """Return tokens, requests and context of each pair of readings between which tokens were generated.

        A reading before the first request or after the last one shows nothing that a step has read.
        """
        found = []
        for before, now in pairwise(each.metrics for each in self._readings):
            made = subtract_counters(before.generation_tokens, now.generation_tokens)
            if not made:
                continue
            busy = [each for each in (before, now) if each.running] or [before, now]
            running = [each.running for each in busy if each.running]
            kv_tokens = [each.kv_tokens for each in busy if each.kv_tokens is not None]
            found.append(
                (
                    made,
                    sum(running) / len(running) if running else None,
                    sum(kv_tokens) / len(kv_tokens) if kv_tokens else None,
                )
            )
        return found

    def compute_step_rate(self) -> float | None:
        """Return decode steps (forward passes) per second.

        Each step of a request gives one token and those accepted, so a request's steps are tokens minus accepted. The
        drafts counter alone is too low where a step can be without a draft (n-gram); it is the higher of the two where
        a request ends in the middle of accepted tokens.
        """
        if self.last.at_request_end:
            return self.per_second(self.passes)
        batch = self.compute_batch_size()
        if self.generated is None or batch is None:
            return None
        return max(self.generated - (self.accepted or 0.0), self.drafts or 0.0) / self.seconds / batch

    def compute_step_load(self, steps: float | None) -> StepLoad | None:
        """Return what a step had to do; ``steps`` per second. None without steps."""
        if not steps:
            return None
        count, batch = steps * self.seconds, self.compute_batch_size()
        drafted = subtract_counters(self.first.draft_tokens, self.last.draft_tokens)
        before, last = self._readings[-2].metrics, self._readings[-1].metrics
        is_still = not subtract_counters(before.generation_tokens, last.generation_tokens)
        return StepLoad(
            tokens=None if batch is None or drafted is None else batch + drafted / count,
            kv_tokens=self._compute_context(),
            prompt_tokens=None if self.prompted is None else self.prompted / count,
            is_running=not (is_still and last.running == 0 and not last.waiting and not last.at_request_end),
            copies=last.copies,
        )

    def _compute_context(self) -> float | None:
        """Return the tokens in the KV cache, the mean over the steps; where no step is counted, the last reading's."""
        parts = [
            (made / (batch or 1.0), kv_tokens) for made, batch, kv_tokens in self._list_steps() if kv_tokens is not None
        ]
        steps = sum(weight for weight, _ in parts)
        return sum(weight * kv_tokens for weight, kv_tokens in parts) / steps if steps else self.last.kv_tokens

    def is_prefill(self, steps: float | None) -> bool:
        """Tell whether prompts took nearly all of the time: no token but the first of a request, or hardly a step.

        Where tokens are counted at the end of a request, prompts and steps of these seconds cannot be compared.
        """
        if self.last.at_request_end or not self.reads_prompts() or self.prompted is None:
            return False
        begun = (
            subtract_counters(self.first.ttft.count, self.last.ttft.count)
            if self.first.ttft and self.last.ttft
            else None
        )
        if begun is not None and (self.generated or 0.0) <= begun:
            return True
        return bool(steps) and self.prompted > PREFILL_TOKENS_PER_STEP * (steps or 0.0) * self.seconds

    def compute_acceptance(self) -> DraftAcceptance | None:
        """Return accept length 1 + accepted/drafts, rate accepted/drafted, and the rate by position; None without drafts."""
        drafted = subtract_counters(self.first.draft_tokens, self.last.draft_tokens)
        if self.drafts is None or self.accepted is None:
            return None
        length = 1 + self.accepted / self.drafts if self.drafts > 0 else None
        rate = self.accepted / drafted if drafted else None
        return DraftAcceptance(length, rate, self._compute_position_rates(), MeterSource.COUNTERS)

    def compute_prefix_hit_rate(self) -> float | None:
        """Return the share of prompt tokens found in the prefix cache, None without lookups."""
        queries = subtract_counters(self.first.prefix_queries, self.last.prefix_queries)
        hits = subtract_counters(self.first.prefix_hits, self.last.prefix_hits)
        return hits / queries if queries and hits is not None else None

    def _compute_position_rates(self) -> tuple[float, ...] | None:
        before, now = self.first.accepted_per_position, self.last.accepted_per_position
        if before is None or now is None or len(before) != len(now) or not self.drafts:
            return None
        return tuple((new - old) / self.drafts for old, new in zip(before, now, strict=True))


def compute_quantiles(before: Histogram | None, now: Histogram | None) -> Quantiles | None:
    """Return p50 and p95 of the observations between two readings, None without any."""
    between = now.subtract(before) if now is not None and before is not None else None
    if between is None:
        return None
    p50, p95 = between.estimate_quantile(0.5), between.estimate_quantile(0.95)
    return None if p50 is None or p95 is None else Quantiles(p50, p95, between.count)


# Speculative decoding is bursty: over 1 s its figures jump between zero and too high.
WINDOW_SECONDS = 10.0
_MAX_STEP_SECONDS = 1.0


class MetricsWindow:
    """Collects readings of one engine's /metrics and computes its figures over the last ``seconds``.

    There are no figures before the second reading, and none if no reading came for two windows. After a restart of the
    engine (a counter fell) it begins again.
    """

    def __init__(self, seconds: float = WINDOW_SECONDS) -> None:
        self.seconds = seconds
        self._readings: deque[MetricsReading] = deque()
        self._pulse = ReportCadence()
        self._stirred = 0.0  # when the engine last showed work, or was first seen
        self._prompts: float | None = None  # prompt tokens at the last report
        self._has_stood = False  # since the last report, no token was counted for longer than a step takes
        self._is_coarse = False  # its token counter moves in large steps
        self._moves_since = 0.0  # from when on it moved with each report
        self._has_ended = False  # a request ended with the last report, or after it

    def add_reading(self, when: float, metrics: EngineMetrics) -> None:
        """Add a reading at monotonic seconds. A reading that is not later than the last is ignored."""
        last = self._readings[-1] if self._readings else None
        if last is not None and when <= last.when:
            return
        if last is None or has_restarted(last.metrics, metrics):
            self._readings.clear()
            self._pulse = ReportCadence()
            self._stirred = self._moves_since = when
            self._prompts = None
            self._has_stood = self._is_coarse = self._has_ended = False
        else:
            self._detect_activity(last, MetricsReading(when, metrics))
        self._readings.append(MetricsReading(when, metrics))
        while when - self._readings[0].when > 3 * self.seconds:
            self._readings.popleft()

    def _detect_activity(self, before: MetricsReading, now: MetricsReading) -> None:
        seconds, prompts = now.when - before.when, now.metrics.prompt_tokens
        is_ending = bool(subtract_counters(before.metrics.ended_requests, now.metrics.ended_requests))
        if has_stepped(before.metrics, now.metrics):
            # no request began: there was no idle time
            unbroken = self._prompts is not None and self._prompts == prompts
            if self._has_stood:
                self._moves_since, self._is_coarse = now.when, self._is_coarse or unbroken
            elif now.when - self._moves_since > self.seconds:
                self._is_coarse = False  # it stood once, and does not move in large steps
            self._pulse.record_report(now.when, unbroken=unbroken)
            self._stirred, self._prompts, self._has_stood = now.when, prompts, False
            self._has_ended = is_ending
            return
        self._has_ended = self._has_ended or is_ending
        self._has_stood = self._has_stood or now.when - self._stirred > _MAX_STEP_SECONDS
        if reads_prompts(before.metrics, now.metrics, seconds):
            self._stirred = now.when

    def compute_meter(self, now: float) -> EngineMeter:
        """Return the figures as of ``now``; all are None if nothing is known."""
        if not self._readings or now - self._readings[-1].when > 2 * self.seconds:
            return EngineMeter()
        stretch = self._select_window_readings()
        newest = stretch[-1].metrics
        if len(stretch) < 2:
            return EngineMeter() if newest.in_strides else _build_gauge_meter(newest)
        change = MetricsInterval(stretch)
        if newest.in_strides:
            return self._compute_batched_meter(change, stretch)
        return _compute_live_meter(change)

    def _select_window_readings(self) -> Sequence[MetricsReading]:
        """Return the readings that cover the window: from the last one before it, if that is not too old."""
        newest = self._readings[-1].when
        before = [each for each in self._readings if newest - each.when >= self.seconds]
        within = [each for each in self._readings if newest - each.when < self.seconds]
        if before and newest - before[-1].when <= 2 * self.seconds:
            return [before[-1], *within]
        return within

    def _compute_batched_meter(self, change: MetricsInterval, stretch: Sequence[MetricsReading]) -> EngineMeter:
        if change.is_question():
            return _build_idle_meter(change)
        newest, when = change.last, stretch[-1].when
        is_exact = newest.counts_steps and not self._is_coarse and change.generated is not None
        # The speed gauge may keep its last value after the load stops: where every step is counted it proves nothing.
        resting = newest.running == 0 and not newest.waiting and (is_exact or not newest.generation_rate)
        if change.generated if is_exact else self._pulse.is_stepping(when, self.seconds) and not resting:
            return self._compute_decoding_meter(change, is_exact=is_exact)
        if change.reads_prompts():
            return replace(_build_common_meter(change), activity=EngineActivity.PREFILL, generation_rate=0.0)
        if resting:
            return _build_idle_meter(change)
        silence, patience = when - self._stirred, self._pulse.max_silence(self.seconds)
        has_work = bool(newest.running) or bool(newest.waiting)
        if has_work and silence >= max(_FRESH_GAUGE_SECONDS, patience):
            # its requests get nothing; what health checks read is no progress of theirs
            common = _build_common_meter(change)
            return replace(common, activity=EngineActivity.PREFILL, generation_rate=0.0, prompt_rate=0.0)
        if silence < patience or (has_work and not (self._has_ended and newest.has_ended_all)):
            return EngineMeter()  # not silent for long enough to call it idle, or to believe its gauges
        # Every request has ended, and its gauges stopped with the last step: they are outdated.
        return replace(
            _build_idle_meter(change), running=None, waiting=None, decoding=None, kv_usage=None, kv_tokens=None
        )

    def _compute_decoding_meter(self, change: MetricsInterval, *, is_exact: bool) -> EngineMeter:
        newest = change.last
        # A counter that moves in large steps moves too rarely within a window: the engine's own latest average is more
        # accurate.
        rate = newest.generation_rate if self._pulse.trusted else None
        rate = change.compute_generation_rate() if is_exact else rate
        batch, length = change.compute_batch_size(), newest.accept_length
        steps = None if rate is None or batch is None else rate / (length or 1.0) / batch
        if is_exact and change.is_prefill(steps):
            return replace(_build_common_meter(change), activity=EngineActivity.PREFILL, generation_rate=rate)
        acceptance = None if length is None else DraftAcceptance(length, newest.accept_rate, None, MeterSource.GAUGE)
        return replace(
            _build_common_meter(change),
            activity=EngineActivity.DECODING,
            estimator=MeterSource.COUNTERS if is_exact else MeterSource.GAUGE,
            generation_rate=rate,
            steps=steps,
            step_load=change.compute_step_load(steps),
            acceptance=acceptance,
        )


def _compute_live_meter(change: MetricsInterval) -> EngineMeter:
    """Return the figures of an engine whose counters and gauges are current."""
    seen = _build_common_meter(change)
    if change.generated is None:
        return seen
    if change.is_question():
        return _build_idle_meter(change)
    if change.generated > 0 or (change.passes or 0) > 0:
        rate, steps = change.compute_generation_rate(), change.compute_step_rate()
        if change.is_prefill(steps):
            return replace(seen, activity=EngineActivity.PREFILL, generation_rate=rate)
        return replace(
            seen,
            activity=EngineActivity.DECODING,
            generation_rate=rate,
            steps=steps,
            step_load=change.compute_step_load(steps),
            acceptance=change.compute_acceptance(),
        )
    if change.last.at_request_end and change.passes is None and change.last.running:
        return seen  # tokens may be coming: they are counted when the request ends
    if change.reads_prompts() or change.last.running:
        return replace(seen, activity=EngineActivity.PREFILL, generation_rate=0.0)
    return _build_idle_meter(change)


def _build_common_meter(change: MetricsInterval) -> EngineMeter:
    return replace(
        _build_gauge_meter(change.last),
        seconds=change.seconds,
        estimator=MeterSource.COUNTERS,
        prompt_rate=change.per_second(change.prompted),
        batch=change.compute_batch_size(),
        prefix_hit_rate=change.compute_prefix_hit_rate(),
        preemptions=subtract_counters(change.first.preemptions, change.last.preemptions),
        ttft=compute_quantiles(change.first.ttft, change.last.ttft),
        inter_token=compute_quantiles(change.first.inter_token, change.last.inter_token),
    )


def _build_idle_meter(change: MetricsInterval) -> EngineMeter:
    """Return the figures of an engine without work; what health checks and questions read and took is none."""
    return replace(
        _build_common_meter(change),
        activity=EngineActivity.IDLE,
        generation_rate=0.0,
        steps=0.0,
        prompt_rate=None if change.prompted is None else 0.0,
        batch=None,
        prefix_hit_rate=None,
        ttft=None,
        inter_token=None,
    )


def _build_gauge_meter(metrics: EngineMetrics) -> EngineMeter:
    return EngineMeter(
        running=metrics.running,
        waiting=metrics.waiting,
        decoding=metrics.running if metrics.counts_prefill_apart else None,
        kv_usage=metrics.kv_usage,
        kv_tokens=metrics.kv_tokens,
    )
