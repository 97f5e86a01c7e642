"""An engine in the last seconds, from the stats lines of its log. Pure: time is an argument."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from sparkctl.model.engine_metrics import (
    DraftAcceptance,
    EngineActivity,
    EngineMeter,
    MeterSource,
    StatsLine,
    StatsLineKind,
)
from sparkctl.monitor.meters.metrics_window import WINDOW_SECONDS, ReportCadence

_LATE_FACTOR = 1.5  # a line that comes every 10 s is late after 15
TimedStatsLine = tuple[float, StatsLine]


class StatsLineWindow:
    """Takes stats lines as they come, each with its own time, and tells the engine's figures over ``seconds``.

    An engine of which no line was ever seen is not known (its stats may be off). One that has fallen silent is idle:
    engines write these lines while they step, and only then. Whoever knows that the log itself is cut must not ask.
    """

    def __init__(self, seconds: float = WINDOW_SECONDS) -> None:
        self.seconds = seconds
        self._lines: deque[TimedStatsLine] = deque()
        self._last: dict[str, TimedStatsLine] = {}  # of each engine or slot, its newest word on speed
        self._pulse = ReportCadence()
        self._last_work = float("-inf")  # when the last line came that tells of work
        self._began = False  # a request began on an empty engine since the last beat

    def add_line(self, when: float, line: StatsLine) -> None:
        """Take a line, at seconds of the clock that ``numbers`` is asked with."""
        self._lines.append((when, line))
        if line.kind is not StatsLineKind.HEALTH:
            self._last_work = when
        while when - self._lines[0][0] > 6 * self.seconds:
            self._lines.popleft()
        if line.kind is StatsLineKind.PREFILL and not line.running:
            self._began = True
        if line.kind is StatsLineKind.DECODE and line.every is None:
            self._pulse.record_report(when, unbroken=not self._began)
            self._began = False
        if line.kind in (StatsLineKind.DECODE, StatsLineKind.REQUEST):
            self._last[line.source] = (when, line)

    def compute_meter(self, now: float) -> EngineMeter:
        """Return the figures as of ``now``; all are None where no line was ever seen."""
        if not self._last and not self._lines:
            return EngineMeter()
        told = [line for when, line in self._last.values() if self._is_current(now, when, line)]
        seen = replace(self._build_gauge_meter(told), seconds=self.seconds, estimator=MeterSource.LOG)
        if any(line.generation_rate for line in told):
            return self._compute_decoding_meter(seen, told, now)
        if self._recent_prompt_lines(now) or any(line.prompt_rate or line.running for line in told):
            return replace(
                seen,
                activity=EngineActivity.PREFILL,
                generation_rate=0.0,
                prompt_rate=self._compute_prompt_rate(told, now),
            )
        if self._reports_in_strides() and now - self._last_work < self._pulse.max_silence(self.seconds):
            return EngineMeter()  # not silent for long enough to call it idle
        return EngineMeter(
            activity=EngineActivity.IDLE,
            seconds=self.seconds,
            estimator=MeterSource.LOG,
            generation_rate=0.0,
            prompt_rate=0.0,
            steps=0.0,
        )

    def _reports_in_strides(self) -> bool:
        lines = [line for _, line in self._last.values()]
        return not lines or any(line.kind is StatsLineKind.DECODE and line.every is None for line in lines)

    def _is_current(self, now: float, when: float, line: StatsLine) -> bool:
        if line.every is None and line.kind is StatsLineKind.DECODE:
            return self._pulse.is_stepping(now, self.seconds)
        return now - when <= max(self.seconds, _LATE_FACTOR * (line.every or 0.0))

    def _compute_decoding_meter(self, seen: EngineMeter, told: list[StatsLine], now: float) -> EngineMeter:
        rate = sum(line.generation_rate or 0.0 for line in told)
        known = rate if self._pulse.trusted or not self._reports_in_strides() else None
        acceptance = self._compute_acceptance(told, now)
        length = (acceptance.length if acceptance else None) or 1.0
        batch = max(1.0, seen.running or 0.0)
        return replace(
            seen,
            activity=EngineActivity.DECODING,
            generation_rate=known,
            prompt_rate=self._compute_prompt_rate(told, now),
            prefix_hit_rate=self._compute_prefix_hit_rate(told, now),
            batch=batch,
            steps=None if known is None else known / length / batch,
            acceptance=acceptance,
        )

    def _build_gauge_meter(self, told: list[StatsLine]) -> EngineMeter:
        usages = [line.kv_usage for line in told if line.kv_usage is not None]
        return EngineMeter(
            running=_sum_known([line.running for line in told]),
            waiting=_sum_known([line.waiting for line in told]),
            kv_usage=max(usages, default=None),
            kv_tokens=_sum_known([line.kv_tokens for line in told]),
        )

    def _compute_acceptance(self, told: list[StatsLine], now: float) -> DraftAcceptance | None:
        own = [line for line in told if line.accept_length is not None]
        late = max(self.seconds, *(_LATE_FACTOR * (line.every or 0.0) for line in told))
        lines = self._select_lines(now, late, StatsLineKind.SPECULATION) or (
            [
                line
                for line in self._select_lines(now, self.seconds, StatsLineKind.DECODE)
                if line.accept_length is not None
            ]
            or own
        )
        lengths = [(line.accept_length, line.drafted or 1.0) for line in lines if line.drafted != 0]
        rates = [(line.accept_rate, line.drafted or 1.0) for line in lines if line.drafted != 0]
        length, rate = _weighted_mean(lengths), _weighted_mean(rates)
        if length is None and rate is None:
            return None
        positions = lines[-1].per_position if lines else None
        return DraftAcceptance(length, rate, positions, MeterSource.LOG)

    def _recent_prompt_lines(self, now: float) -> list[StatsLine]:
        return self._select_lines(now, self.seconds, StatsLineKind.PREFILL)

    def _compute_prompt_rate(self, told: list[StatsLine], now: float) -> float | None:
        said = _sum_known([line.prompt_rate for line in told])
        if said is not None:
            return said
        tokens = _sum_known([line.prompt_tokens for line in self._recent_prompt_lines(now)])
        if tokens is not None:
            return tokens / self.seconds
        return _sum_known([line.prompt_rate for line in self._recent_prompt_lines(now)])

    def _compute_prefix_hit_rate(self, told: list[StatsLine], now: float) -> float | None:
        said = [line.prefix_hit_rate for line in told if line.prefix_hit_rate is not None]
        if said:
            return sum(said) / len(said)
        cached = _sum_known([line.cached_tokens for line in self._recent_prompt_lines(now)])
        computed = _sum_known([line.prompt_tokens for line in self._recent_prompt_lines(now)])
        return cached / (cached + computed) if cached is not None and computed else None

    def _select_lines(self, now: float, seconds: float, kind: StatsLineKind) -> list[StatsLine]:
        return [line for when, line in self._lines if line.kind is kind and now - when <= seconds]


def merge_meters(counted: EngineMeter, said: EngineMeter) -> EngineMeter:
    """Return the counted figures, with the log's where the counters have nothing to say of an engine at work."""
    if counted.activity is None:
        return counted if said.activity is None else said
    if counted.activity is not EngineActivity.DECODING or said.activity is not EngineActivity.DECODING:
        return counted
    if counted.generation_rate is None and said.generation_rate is not None:
        counted = replace(counted, generation_rate=said.generation_rate, estimator=MeterSource.LOG)
    judged = counted.acceptance is not None and counted.acceptance.length is not None
    acceptance = counted.acceptance if judged else said.acceptance or counted.acceptance
    return replace(counted, steps=counted.steps or said.steps, acceptance=acceptance)


def _sum_known(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _weighted_mean(weighted: list[tuple[float | None, float]]) -> float | None:
    known = [(value, weight) for value, weight in weighted if value is not None]
    total = sum(weight for _, weight in known)
    return sum(value * weight for value, weight in known) / total if total else None
