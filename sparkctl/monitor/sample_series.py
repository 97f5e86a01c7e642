"""Time series in fixed memory. A node's samples: each second of the last 15 minutes, each 15 seconds of the last 6 hours.

Samples are placed by the node's monotonic clock, so setting the wall clock moves nothing. Unknown values stay unknown; no
value is carried over a gap. An engine's figures of the last minutes: accept length and throughput.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import takewhile
from typing import TYPE_CHECKING, Generic, TypeVar

from sparkctl.model.engine_metrics import EngineActivity, EngineMeter
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.sample import Sample, build_memory_bar

if TYPE_CHECKING:
    from sparkctl.model.engine_metrics import Quantiles


FINE_STEP, FINE_SPAN = 1.0, 900.0
COARSE_STEP, COARSE_SPAN = 15.0, 21_600.0
# the least time between a sample and the next but one: a rate of 1 s is never exact
_MIN_TWO_SAMPLE_SECONDS = 1.5 * FINE_STEP
_UNKNOWN_VALUE = math.nan


class SeriesName(StrEnum):
    """Names of the series. Bytes, shares 0..1, MHz, watts, degrees Celsius, bytes/s over all links of the kind."""

    AVAILABLE = "available"
    GPU_PROCESSES = "gpu_processes"
    OTHER_USED = "other_used"
    PAGE_CACHE = "page_cache"
    FREE = "free"
    SWAP_USED = "swap_used"
    PRESSURE = "pressure"
    CPU_BUSY = "cpu_busy"
    GPU_BUSY = "gpu_busy"
    SM_CLOCK = "sm_clock"
    POWER = "power"
    CELSIUS = "celsius"
    RECEIVE = "receive"
    SEND = "send"
    RDMA_RECEIVE = "rdma_receive"
    RDMA_SEND = "rdma_send"


@dataclass(frozen=True, slots=True)
class ValueRange:
    """The range of values within one stretch of time."""

    mean: float
    least: float
    most: float


@dataclass(frozen=True, slots=True)
class _BucketCache:
    """Cached buckets. ``first``: number of the oldest, counted from the axis' zero; ``newest``: time of the newest sample."""

    newest: float
    first: int
    spreads: tuple[ValueRange | None, ...]


class SampleSeries:
    """The series of one node, 0.4 MB. Values are 32-bit floats: at 128 GiB their resolution is 8 KiB."""

    def __init__(self) -> None:
        self._fine = _FineRing(round(FINE_SPAN / FINE_STEP), len(SeriesName))
        self._coarse = _CoarseRing(round(COARSE_SPAN / COARSE_STEP), len(SeriesName))
        self._boot: str | None = None
        self._uptime: float | None = None
        self._heard = 0.0
        self._now = 0.0  # on the axis: the node's uptime, boots laid one after the other
        self._ahead = 0.0  # of the axis before the uptime
        self._first: float | None = None  # on the axis
        self._made: dict[tuple[SeriesName, float, int], _BucketCache] = {}  # since the newest sample
        self._before: dict[tuple[SeriesName, float, int], _BucketCache] = {}  # the same, as it was before that

    @property
    def span_seconds(self) -> float:
        """Seconds between the first sample and the newest."""
        return 0.0 if self._first is None else self._now - self._first

    def add_sample(self, sample: Sample, ts: float, boot: str | None = None) -> bool:
        """Store a sample that arrived at ``ts`` (unix seconds), of the ``boot`` with this id; return whether it was new.

        A sample that is not later than the last one of its boot is not new.
        """
        if self._uptime is None:
            self._ahead = -sample.uptime
        elif self._is_reboot(sample.uptime, boot):
            # Only our own clock knows how long the node was away, and it may jump.
            away = min(max(ts - self._heard, COARSE_STEP), COARSE_SPAN)
            self._ahead = self._now + away - sample.uptime
        elif sample.uptime <= self._uptime:
            return False
        self._boot = boot or self._boot
        self._uptime, self._heard = sample.uptime, ts
        self._now = sample.uptime + self._ahead
        self._first = self._now if self._first is None else self._first
        if self._made:
            self._before, self._made = self._made, {}
        values = array("f", extract_values(sample))
        self._fine.add_values(self._now, values)
        self._coarse.add_values(self._now, values)
        return True

    def _is_reboot(self, uptime: float, boot: str | None) -> bool:
        assert self._uptime is not None
        if boot is not None and self._boot is not None:
            return boot != self._boot
        return uptime < self._uptime

    def _iterate_fine_values(self, series: SeriesName) -> Iterator[tuple[float, float]]:
        """Yield (when on the axis, value)."""
        for at, value in self._fine.iterate_oldest_first(_SERIES_COLUMNS[series]):
            if self._now - at <= FINE_SPAN:
                yield at, value

    def get_long_history(self, series: SeriesName) -> tuple[tuple[float, ValueRange | None], ...]:
        """Return (seconds before the newest sample, range) of each 15 s of the last 6 hours that had a sample."""
        return tuple(
            (max(0.0, self._now - at), spread)
            for at, spread in self._coarse.iterate_slots(_SERIES_COLUMNS[series], self._now)
            if self._now - at <= COARSE_SPAN
        )

    def get_buckets(self, series: SeriesName, seconds: float, count: int) -> tuple[ValueRange | None, ...]:
        """Return ``count`` equal buckets of the last ``seconds``, oldest first; None: nothing known in that bucket.

        Buckets begin at whole multiples of their width on the node's clock, and the last one has the newest sample: so a
        curve moves without flicker. A bucket that is shorter than the time between samples may be empty.
        """
        made = self._made.get((series, seconds, count))
        if made is None:
            before = self._before.get((series, seconds, count))
            width = seconds / count
            first = math.floor(self._now / width) - (count - 1)  # of the buckets, counted from the axis' zero
            if seconds > FINE_SPAN:
                spreads = self._compute_coarse_buckets(series, width, first, count)
            else:
                spreads = self._compute_fine_buckets(series, width, first, count, before)
            made = self._made[series, seconds, count] = _BucketCache(self._now, first, spreads)
        return made.spreads

    def _compute_fine_buckets(
        self, series: SeriesName, width: float, first: int, count: int, before: _BucketCache | None
    ) -> tuple[ValueRange | None, ...]:
        """Return the buckets, reusing those of ``before``: only its last bucket, and later ones, can have changed."""
        if before is None:
            return _group_into_buckets(self._iterate_fine_values(series), width, first, count)
        last = math.floor(before.newest / width)
        kept = before.spreads[first - before.first : max(0, last - before.first)]
        newer = takewhile(
            lambda one: math.floor(one[0] / width) >= last, self._fine.iterate_newest_first(_SERIES_COLUMNS[series])
        )
        begin = first + len(kept)
        return kept + _group_into_buckets([*newer][::-1], width, begin, count - len(kept))

    def _compute_coarse_buckets(
        self, series: SeriesName, width: float, first: int, count: int
    ) -> tuple[ValueRange | None, ...]:
        found: list[ValueRange | None] = [None] * count
        weights = [0] * count
        for age, spread in self.get_long_history(series):
            at = math.floor((self._now - age) / width) - first
            if spread is None or at < 0:
                continue
            found[at] = _merge_ranges(found[at], weights[at], spread)
            weights[at] += 1
        return tuple(found)


def extract_values(sample: Sample) -> list[float]:
    """Return one value for each of `SeriesName`, in its order; NaN for unknown values."""
    bar = None if sample.memory is None else build_memory_bar(sample.memory, sample.gpu_memory)
    pressure = sample.detail.pressure if sample.detail is not None else None
    gpus = sample.gpus or ()
    return [
        *_replace_unknown(
            (bar.available, bar.gpu_processes, bar.other_used, bar.page_cache, bar.free, bar.swap_used)
            if bar
            else [None] * 6
        ),
        *_replace_unknown([pressure.some if pressure else None, sample.cpu.busy if sample.cpu else None]),
        _max_known([gpu.busy for gpu in gpus]),
        _max_known([gpu.sm_clock for gpu in gpus]),
        _sum_known([gpu.power for gpu in gpus]),
        _max_known([gpu.celsius for gpu in gpus]),
        _sum_known([link.receive_rate for link in sample.links or ()]),
        _sum_known([link.send_rate for link in sample.links or ()]),
        _sum_known([port.receive_rate for port in sample.rdma or ()]),
        _sum_known([port.send_rate for port in sample.rdma or ()]),
    ]


_SERIES_COLUMNS = {series: column for column, series in enumerate(SeriesName)}


def _replace_unknown(values: Sequence[float | None]) -> list[float]:
    return [_UNKNOWN_VALUE if value is None else value for value in values]


def _max_known(values: Sequence[float | None]) -> float:
    return max((value for value in values if value is not None), default=_UNKNOWN_VALUE)


def _sum_known(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None]
    return sum(known) if known else _UNKNOWN_VALUE


def _group_into_buckets(
    values: Iterable[tuple[float, float]], width: float, first: int, count: int
) -> tuple[ValueRange | None, ...]:
    """Return the range of each bucket. It uses plain numbers until the end, as a screen needs thousands of them."""
    stretches: list[list[float]] = [[] for _ in range(count)]
    for when, value in values:
        at = math.floor(when / width) - first
        if at >= 0 and not math.isnan(value):
            stretches[at].append(value)
    return tuple(_compute_range(each) if each else None for each in stretches)


def _compute_range(values: Sequence[float]) -> ValueRange:
    least, most = min(values), max(values)
    return ValueRange(min(most, max(least, sum(values) / len(values))), least, most)  # a sum has rounding errors


def _merge_ranges(before: ValueRange | None, weight: int, more: ValueRange) -> ValueRange:
    if before is None:
        return more
    mean = before.mean + (more.mean - before.mean) / (weight + 1)
    return ValueRange(mean, min(before.least, more.least), max(before.most, more.most))


def _create_unknown_array(kind: str, count: int) -> array[float]:
    return array(kind, [_UNKNOWN_VALUE]) * count


def _rotate_array(places: array[float], first: int) -> array[float]:
    return places[first:] + places[:first]


class _FineRing:
    """A ring of the last samples."""

    def __init__(self, capacity: int, columns: int) -> None:
        self._at = _create_unknown_array("d", capacity)
        self._values = _create_unknown_array("f", capacity * columns)
        self._columns = columns
        self._next = 0  # place of the next sample; the newest is before it

    def add_values(self, at: float, values: array[float]) -> None:
        newest = (self._next - 1) % len(self._at)
        before = (newest - 1) % len(self._at)
        crowded = at - self._at[before] < _MIN_TWO_SAMPLE_SECONDS  # then it replaces the newest
        place = newest if crowded else self._next
        self._at[place] = at
        self._values[place * self._columns : (place + 1) * self._columns] = values
        if not crowded:
            self._next = (place + 1) % len(self._at)

    def iterate_oldest_first(self, column: int) -> Iterator[tuple[float, float]]:
        values = _rotate_array(self._values[column :: self._columns], self._next)
        for at, value in zip(_rotate_array(self._at, self._next), values, strict=True):
            if not math.isnan(at):
                yield at, value

    def iterate_newest_first(self, column: int) -> Iterator[tuple[float, float]]:
        for back in range(1, len(self._at) + 1):
            place = (self._next - back) % len(self._at)
            at = self._at[place]
            if math.isnan(at):
                return
            yield at, self._values[place * self._columns + column]


class _CoarseRing:
    """Mean, minimum and maximum of each 15 s. A place belongs to the slot whose number it holds."""

    def __init__(self, capacity: int, columns: int) -> None:
        self._slot = array("q", [-1]) * capacity
        self._counts = array("H", [0]) * (capacity * columns)
        self._mean = _create_unknown_array("f", capacity * columns)
        self._least = _create_unknown_array("f", capacity * columns)
        self._most = _create_unknown_array("f", capacity * columns)
        self._columns = columns

    def add_values(self, at: float, values: array[float]) -> None:
        slot = int(at // COARSE_STEP)
        place = slot % len(self._slot)
        first = place * self._columns
        if self._slot[place] != slot:
            self._slot[place] = slot
            for column in range(first, first + self._columns):
                self._counts[column] = 0
                self._mean[column] = self._least[column] = self._most[column] = _UNKNOWN_VALUE
        for column, value in enumerate(values, first):
            if not math.isnan(value):
                self._add_to_slot(column, value)

    def _add_to_slot(self, column: int, value: float) -> None:
        count = min(self._counts[column] + 1, 65_535)
        self._counts[column] = count
        if count == 1:
            self._mean[column] = self._least[column] = self._most[column] = value
            return
        self._mean[column] += (value - self._mean[column]) / count
        self._least[column] = min(self._least[column], value)
        self._most[column] = max(self._most[column], value)

    def iterate_slots(self, column: int, now: float) -> Iterator[tuple[float, ValueRange | None]]:
        """Yield (the middle of the slot, its range) from the oldest slot to that of ``now``."""
        last = int(now // COARSE_STEP)
        for slot in range(max(0, last - len(self._slot) + 1), last + 1):
            place = slot % len(self._slot)
            if self._slot[place] != slot:
                continue
            at = place * self._columns + column
            known = self._counts[at] > 0
            yield (
                (slot + 0.5) * COARSE_STEP,
                ValueRange(self._mean[at], self._least[at], self._most[at]) if known else None,
            )


T = TypeVar("T")
_MAX_READINGS = 450  # a quarter of an hour of readings, one every two seconds
_MAX_KEPT_CURVES = 24  # curves whose buckets are kept


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
        self._is_ordered = True  # no reading is older than the one before it: the clock was never set back
        self._kept: dict[tuple[int, float], tuple[int, dict[int, float]]] = {}  # by series and width of a bucket
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
        self._is_ordered = self._is_ordered and not ts < self._at[self._next - 1]
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
        """Return the mean of each bucket. Buckets before that of the newest reading are kept: no reading comes to them any more."""
        last = int(now / width)
        first = last - count + 1
        until, kept = self._kept.get((id(values), width), (first, {}))  # the buckets before ``until`` are kept
        if not self._is_ordered or until > last:
            until, kept = first, {}
        newest = until
        found: dict[int, list[float]] = {}
        for back in range(1, _MAX_READINGS + 1):
            place = (self._next - back) % _MAX_READINGS
            ts = self._at[place]
            if math.isnan(ts):
                break
            at = min(last, int(ts / width))
            if at < until and self._is_ordered:
                break
            newest = max(newest, at)
            if at >= first and not math.isnan(values[place]):
                found.setdefault(at, []).append(values[place])
        means = kept | {at: sum(reversed(each)) / len(each) for at, each in found.items()}
        if len(self._kept) >= _MAX_KEPT_CURVES:
            self._kept.clear()  # another size of the terminal has other curves
        self._kept[id(values), width] = newest, {at: mean for at, mean in means.items() if first <= at < newest}
        return tuple(means.get(at) for at in range(first, last + 1))
