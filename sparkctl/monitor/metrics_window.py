"""An engine in the last seconds, from successive readings of its counters and gauges. Pure: time is an argument."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from sparkctl.model.engine_metrics import DraftAcceptance, EngineActivity, EngineMeter, EngineMetrics, MeterSource
from sparkctl.monitor.pulse import ReportCadence
from sparkctl.monitor.rates import MetricsInterval, MetricsReading, has_restarted, has_stepped, reads_prompts

# Speculative decoding comes in bursts: over 1 s its figures jump between zero and too high.
WINDOW_SECONDS = 10.0
_LONGEST_STEP = 1.0  # seconds


class MetricsWindow:
    """Takes readings of one engine's /metrics as they come and tells its figures over the last ``seconds``.

    Nothing is told before the second reading, nor of a time when no reading came for two windows. An engine that
    restarted (a counter fell) begins anew.
    """

    def __init__(self, seconds: float = WINDOW_SECONDS) -> None:
        self.seconds = seconds
        self._readings: deque[MetricsReading] = deque()
        self._pulse = ReportCadence()
        self._stirred = 0.0  # when the engine last gave a sign of work, or was first seen
        self._prompts: float | None = None  # prompt tokens at the last beat
        self._has_stood = False  # no token was counted for longer than a step takes, since the last beat
        self._is_coarse = False  # its token counter was seen to move in strides

    def add_reading(self, when: float, metrics: EngineMetrics) -> None:
        """Take a reading at monotonic seconds. One that is not later than the last is not taken."""
        last = self._readings[-1] if self._readings else None
        if last is not None and when <= last.when:
            return
        if last is None or has_restarted(last.metrics, metrics):
            self._readings.clear()
            self._pulse = ReportCadence()
            self._stirred, self._prompts = when, None
            self._has_stood = self._is_coarse = False
        else:
            self._feel(last, MetricsReading(when, metrics))
        self._readings.append(MetricsReading(when, metrics))
        while when - self._readings[0].when > 3 * self.seconds:
            self._readings.popleft()

    def _feel(self, before: MetricsReading, now: MetricsReading) -> None:
        seconds, prompts = now.when - before.when, now.metrics.prompt_tokens
        if has_stepped(before.metrics, now.metrics):
            unbroken = self._prompts is not None and self._prompts == prompts  # no request began: there was no idling
            self._is_coarse = self._is_coarse or (unbroken and self._has_stood)
            self._pulse.record_report(now.when, unbroken=unbroken)
            self._stirred, self._prompts, self._has_stood = now.when, prompts, False
            return
        self._has_stood = self._has_stood or seconds > _LONGEST_STEP
        if reads_prompts(before.metrics, now.metrics, seconds):
            self._stirred = now.when

    def compute_meter(self, now: float) -> EngineMeter:
        """Return the figures as of ``now``; all are None where nothing is known."""
        if not self._readings or now - self._readings[-1].when > 2 * self.seconds:
            return EngineMeter()
        stretch = self._stretch()
        newest = stretch[-1].metrics
        if len(stretch) < 2:
            return EngineMeter() if newest.in_strides else _gauges(newest)
        change = MetricsInterval(stretch)
        if newest.in_strides:
            return self._compute_batched_meter(change, stretch)
        return _live(change)

    def _stretch(self) -> Sequence[MetricsReading]:
        """Return the readings that cover the window: from the last one before it, if that is not too old."""
        newest = self._readings[-1].when
        before = [each for each in self._readings if newest - each.when >= self.seconds]
        within = [each for each in self._readings if newest - each.when < self.seconds]
        if before and newest - before[-1].when <= 2 * self.seconds:
            return [before[-1], *within]
        return within

    def _compute_batched_meter(self, change: MetricsInterval, stretch: Sequence[MetricsReading]) -> EngineMeter:
        newest, when = change.last, stretch[-1].when
        is_exact = newest.counts_steps and not self._is_coarse and change.generated is not None
        # The speed gauge may keep its last value after the load stops: where every step is counted it proves nothing.
        resting = newest.running == 0 and not newest.waiting and (is_exact or not newest.generation_rate)
        if change.generated if is_exact else self._pulse.is_stepping(when, self.seconds) and not resting:
            return self._decoding_in_strides(change, is_exact=is_exact)
        if change.reads_prompts():
            return replace(_common(change), activity=EngineActivity.PREFILL, generation_rate=0.0)
        if resting:
            return _idle(change)
        if when - self._stirred < self._pulse.max_silence(self.seconds):
            return EngineMeter()  # not silent for long enough to call it idle
        # Its gauges froze with the last step: they are of another time.
        return replace(_idle(change), running=None, waiting=None, kv_usage=None, kv_tokens=None)

    def _decoding_in_strides(self, change: MetricsInterval, *, is_exact: bool) -> EngineMeter:
        newest = change.last
        # A counter that moves in strides moves too rarely within a window: the engine's own average over its last stride
        # is more accurate.
        rate = newest.generation_rate if self._pulse.trusted else None
        rate = change.compute_generation_rate() if is_exact else rate
        batch, length = change.batch(), newest.accept_length
        steps = None if rate is None or batch is None else rate / (length or 1.0) / batch
        acceptance = None if length is None else DraftAcceptance(length, newest.accept_rate, None, MeterSource.GAUGE)
        return replace(
            _common(change),
            activity=EngineActivity.DECODING,
            estimator=MeterSource.COUNTERS if is_exact else MeterSource.GAUGE,
            generation_rate=rate,
            steps=steps,
            acceptance=acceptance,
        )


def _live(change: MetricsInterval) -> EngineMeter:
    """Return the figures of an engine whose counters and gauges are of the moment."""
    seen = _common(change)
    if change.generated is None:
        return seen
    if change.generated > 0 or (change.passes or 0) > 0:
        return replace(
            seen,
            activity=EngineActivity.DECODING,
            generation_rate=change.compute_generation_rate(),
            steps=change.steps(),
            acceptance=change.acceptance(),
        )
    if change.last.at_request_end and change.passes is None and change.last.running:
        return seen  # tokens may well come: they are counted when the request ends
    if change.reads_prompts() or change.last.running:
        return replace(seen, activity=EngineActivity.PREFILL, generation_rate=0.0)
    return _idle(change)


def _common(change: MetricsInterval) -> EngineMeter:
    return replace(
        _gauges(change.last),
        seconds=change.seconds,
        estimator=MeterSource.COUNTERS,
        prompt_rate=change.per_second(change.prompted),
        batch=change.batch(),
        prefix_hit_rate=change.prefix_hit_rate(),
        ttft=change.ttft(),
        inter_token=change.inter_token(),
    )


def _idle(change: MetricsInterval) -> EngineMeter:
    idle = replace(_common(change), activity=EngineActivity.IDLE, generation_rate=0.0, steps=0.0, batch=None)
    return replace(idle, prompt_rate=0.0, prefix_hit_rate=None) if change.last.health_tokens else idle


def _gauges(metrics: EngineMetrics) -> EngineMeter:
    return EngineMeter(
        running=metrics.running, waiting=metrics.waiting, kv_usage=metrics.kv_usage, kv_tokens=metrics.kv_tokens
    )
