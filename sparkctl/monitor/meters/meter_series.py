"""Time series of an engine's figures in the last minutes: accept length, throughput, steps, KV cache, first token. Pure."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from sparkctl.model.engine_metrics import EngineActivity, EngineMeter

if TYPE_CHECKING:
    from sparkctl.model.engine_metrics import Quantiles

T = TypeVar("T")
_MAX_READINGS = 450  # a quarter of an hour of readings, one every two seconds


@dataclass(frozen=True, slots=True)
class LastValue(Generic[T]):
    """A figure, and when (unix seconds) the engine last reported it."""

    ts: float
    value: T


class MeterSeries:
    """The readings of one container. A reading without an accept length (idle, prompts, nothing known) is a gap in that
    series; in the throughput only unknown values are gaps, as an idle engine has 0 tok/s. The memory is allocated at once:
    many small objects with different lifetimes would fragment it.

    ``ttft``, ``inter_token``, ``positions`` (the share of drafts accepted first, second, ...), ``prompt_rate`` and
    ``prefix_hit_rate`` are reported only while a request begins or runs: the last value of each, None before the first."""

    def __init__(self) -> None:
        self._at, self._lengths, self._rates, self._steps, self._usages, self._waits = (
            array("d", [math.nan]) * _MAX_READINGS for _ in range(6)
        )
        self._next = 0  # the place of the next reading
        self.ttft: LastValue[Quantiles] | None = None
        self.inter_token: LastValue[Quantiles] | None = None
        self.positions: LastValue[tuple[float, ...]] | None = None
        self.prompt_rate: LastValue[float] | None = None
        self.prefix_hit_rate: LastValue[float] | None = None

    def add_meter(self, ts: float, numbers: EngineMeter | None) -> None:
        """Add a reading at ``ts``, unix seconds."""
        seen = None if numbers is None else numbers.acceptance
        rate = None if numbers is None else 0.0 if numbers.activity is EngineActivity.IDLE else numbers.generation_rate
        length = None if seen is None else seen.length
        self._at[self._next] = ts
        self._lengths[self._next] = math.nan if length is None else length
        self._rates[self._next] = math.nan if rate is None else rate
        for series, figure in (
            (self._steps, None if numbers is None else numbers.steps),
            (self._usages, None if numbers is None else numbers.kv_usage),
            (self._waits, None if numbers is None or numbers.ttft is None else numbers.ttft.p50),
        ):
            series[self._next] = math.nan if figure is None else figure
        self._next = (self._next + 1) % _MAX_READINGS
        if numbers is not None:
            self._update_last_values(ts, numbers)

    def _update_last_values(self, ts: float, numbers: EngineMeter) -> None:
        if numbers.ttft is not None:
            self.ttft = LastValue(ts, numbers.ttft)
        if numbers.inter_token is not None:
            self.inter_token = LastValue(ts, numbers.inter_token)
        if numbers.acceptance is not None and numbers.acceptance.per_position:
            self.positions = LastValue(ts, numbers.acceptance.per_position)
        if numbers.prompt_rate:
            self.prompt_rate = LastValue(ts, numbers.prompt_rate)
        if numbers.prefix_hit_rate is not None:
            self.prefix_hit_rate = LastValue(ts, numbers.prefix_hit_rate)

    def get_accept_lengths(self, now: float, seconds: float, count: int) -> tuple[float | None, ...]:
        """Return the mean accept length of ``count`` equal buckets, oldest first, the last one with ``now`` in it; None: no
        reading in that bucket. Buckets begin at whole multiples of their width, so that a curve moves without flicker."""
        return self._compute_bucket_means(self._lengths, now, seconds / count, count)

    def get_generation_rates(self, now: float, seconds: float, count: int) -> tuple[float | None, ...]:
        """Return the same for the throughput, tok/s."""
        return self._compute_bucket_means(self._rates, now, seconds / count, count)

    def get_step_rates(self, now: float, seconds: float, count: int) -> tuple[float | None, ...]:
        """Return the same for the steps per second."""
        return self._compute_bucket_means(self._steps, now, seconds / count, count)

    def get_kv_usages(self, now: float, seconds: float, count: int) -> tuple[float | None, ...]:
        """Return the same for the share of the KV cache in use, 0..1."""
        return self._compute_bucket_means(self._usages, now, seconds / count, count)

    def get_first_token_times(self, now: float, seconds: float, count: int) -> tuple[float | None, ...]:
        """Return the same for the median time to the first token, seconds."""
        return self._compute_bucket_means(self._waits, now, seconds / count, count)

    def _compute_bucket_means(
        self, values: array[float], now: float, width: float, count: int
    ) -> tuple[float | None, ...]:
        sums, seen = [0.0] * count, [0] * count
        last = int(now / width)
        for ts, value in zip(self._at, values, strict=True):
            if math.isnan(value):
                continue
            at = count - 1 - max(0, last - int(ts / width))
            if at >= 0:
                sums[at] += value
                seen[at] += 1
        return tuple(total / times if times else None for total, times in zip(sums, seen, strict=True))
