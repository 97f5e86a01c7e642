"""Parse an engine's /metrics page (Prometheus' text format), reduced to the series that an engine asks for by exact
name.

Exact names, because `_total` counters have `_created` twins with a unix time: a prefix would sum both.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping

from sparkctl.errors import MetricsUnreadable
from sparkctl.model.engine_metrics import Histogram
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.text.sanitize import sanitize_line, truncate_text

PROCESS_START_SERIES = "process_start_time_seconds"
_RANK_LABELS = ("pp_rank", "tp_rank", "moe_ep_rank")


@dataclass(frozen=True, slots=True)
class MetricSample:
    """One line of the page."""

    name: str
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class MetricsPage:
    """The finite samples of one reading. Every method returns None if the page has no such series."""

    samples: tuple[MetricSample, ...]

    def list_values(self, name: str, **labels: str) -> list[float]:
        """Return the values of a series, one for each engine, rank or other label."""
        return [each.value for each in self.samples if each.name == name and labels.items() <= each.labels.items()]

    def sum_of(self, name: str, **labels: str) -> float | None:
        """Return the sum over all other labels."""
        return _combine_values(sum, self.list_values(name, **labels))

    def max_of(self, name: str) -> float | None:
        """Return the largest value: of several parts, the one that is full first."""
        return _combine_values(max, self.list_values(name))

    def mean_above_zero(self, name: str) -> float | None:
        """Return the mean of the values above 0: a gauge at 0 has no information."""
        positive = [value for value in self.list_values(name) if value > 0]
        return sum(positive) / len(positive) if positive else None

    def sums_by_position(self, name: str) -> tuple[float, ...] | None:
        """Return the sums by label ``position``, position 0 first."""
        sums: dict[int, float] = {}
        for each in self.samples:
            position = each.labels.get("position", "")
            if each.name == name and position.isdecimal() and len(position) <= 3:
                sums[int(position)] = sums.get(int(position), 0.0) + each.value
        if not sums or sorted(sums) != list(range(len(sums))):
            return None
        return tuple(sums[position] for position in range(len(sums)))

    def sum_histogram(self, name: str) -> Histogram | None:
        """Return the buckets, summed over all labels but ``le``."""
        sums: dict[float, float] = {}
        for each in self.samples:
            if each.name == f"{name}_bucket" and (bound := _parse_number(each.labels.get("le", ""))) is not None:
                sums[bound] = sums.get(bound, 0.0) + each.value
        return Histogram(tuple(sorted(sums.items()))) if math.inf in sums else None

    def list_label_values(self, name: str, label: str) -> list[str]:
        """Return the values of a label, for series that keep facts in labels."""
        return [each.labels[label] for each in self.samples if each.name == name and label in each.labels]

    def without_rank_copies(self) -> MetricsPage:
        """Return the page with one rank of each data-parallel part: ranks of one model count the same tokens."""
        first: dict[object, MetricSample] = {}
        for each in self.samples:
            others = tuple(sorted(item for item in each.labels.items() if item[0] not in _RANK_LABELS))
            kept = first.get(key := (each.name, others))
            if kept is None or _rank_sort_key(each) < _rank_sort_key(kept):
                first[key] = each
        return MetricsPage(tuple(first.values()))


_SAMPLE_PATTERN = re.compile(
    r"""([a-zA-Z_:][\w:]*+)[ \t]*+(?:\{((?:[^"}]++|"(?:[^"\\]++|\\.)*+")*+)\})?+[ \t]*+(\S++)(?:[ \t]++-?\d++)?+[ \t\r]*+"""
)
_LABEL_PATTERN = re.compile(r"""[ \t]*+([a-zA-Z_]\w*+)[ \t]*+=[ \t]*+"((?:[^"\\]++|\\.)*+)"[ \t]*+(?:,|$)""")
_ESCAPE_PATTERN = re.compile(r"\\(.)")


def parse_metrics_page(text: str, wanted: Iterable[str]) -> MetricsPage:
    """Return the wanted series of a page. Raises MetricsUnreadable for text that is not Prometheus' format."""
    names = frozenset(wanted)
    samples = []
    for line in text.split("\n"):
        if _read_series_name(line) in names:
            try:
                sample = _parse_sample(line)
            except ValueError as broken:
                raise MetricsUnreadable(
                    f"The engine's /metrics cannot be read: {truncate_text(sanitize_line(str(broken)), 200)}",
                    "Look at it yourself: curl -s http://HOST:PORT/metrics | head; an engine in the middle of a stop cuts it short.",
                ) from broken
            if 0 <= sample.value < math.inf:  # nothing that an engine counts is below zero: such a value is not known
                samples.append(sample)
    return MetricsPage(tuple(samples))


def _parse_sample(line: str) -> MetricSample:
    """Return a line's sample. Raises ValueError."""
    found = _SAMPLE_PATTERN.fullmatch(line)
    if found is None:
        raise ValueError(f"not a sample: {line}")
    name, inside, value = found.groups()
    if "_" in value:
        raise ValueError(f"not a number: {value}")
    labels, at = {}, 0
    while inside and at < len(inside.rstrip()):
        label = _LABEL_PATTERN.match(inside, at)
        if label is None:
            raise ValueError(f"not a label: {inside[at:]}")
        labels[label[1]] = _ESCAPE_PATTERN.sub(_replace_escape, label[2]) if "\\" in label[2] else label[2]
        at = label.end()
    return MetricSample(name, labels, int(value) if value.isdecimal() else float(value))


def _replace_escape(found: re.Match[str]) -> str:
    return {"n": "\n", "\\": "\\", '"': '"'}.get(found[1], found[0])


def _read_series_name(line: str) -> str:
    for place, char in enumerate(line):
        if char in "{ \t":
            return line[:place]
    return line


def _combine_values(combine: Callable[[list[float]], float], values: list[float]) -> float | None:
    return combine(values) if values else None


def _rank_sort_key(sample: MetricSample) -> tuple[float, ...]:
    return tuple(_parse_number(sample.labels.get(name, "")) or 0.0 for name in _RANK_LABELS)


def _parse_number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return None if math.isnan(number) else number


_NUMBER_PATTERN = re.compile(r"[-+]?(?:\d++(?:\.\d*+)?|\.\d++)(?:e[-+]?\d++)?")


def parse_stats_fields(text: str) -> dict[str, str]:
    """Return the values by key. A part without a key belongs to the value before it (a list of numbers)."""
    found: dict[str, str] = {}
    key: str | None = None
    for part in text.split(", "):
        name, colon, value = part.partition(": ")
        if colon:
            key = name.strip()
            found[key] = value.strip()
        elif key is not None:
            found[key] += f", {part.strip()}"
    return found


def parse_leading_number(text: str | None) -> float | None:
    """Return the number at the beginning of ``12.7 tokens/s`` or ``0.7%`` (not divided by 100); None for ``nan``."""
    if text is None or (match := _NUMBER_PATTERN.match(text.strip())) is None:
        return None
    value = float(match[0])
    return value if math.isfinite(value) else None


def parse_percent(text: str | None) -> float | None:
    """Return 0.007 for ``0.7%``."""
    value = parse_leading_number(text)
    return None if value is None else value / 100


def parse_number_list(text: str | None) -> tuple[float, ...] | None:
    """Return the numbers of a list such as ``0.861, 0.707``; None if it is empty or holds anything else."""
    if not text:
        return None
    values = [parse_leading_number(part) for part in text.split(", ")]
    known = tuple(value for value in values if value is not None)
    return known if len(known) == len(values) else None
