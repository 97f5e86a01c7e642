"""What a bench brings back: series of numbers, the goals they are held against, and the load they were taken under."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Series:
    """Numbers of one kind, one a round."""

    name: str
    unit: str
    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle one."""
        return statistics.median(self.values)


@dataclass(frozen=True, slots=True)
class Goal:
    """A figure, None where it could not be taken, and its bound, None where it is only told; a ratio has no unit."""

    what: str
    value: float | None
    bound: float | None = None
    at_most: bool = True
    unit: str = ""

    @property
    def holds(self) -> bool:
        """Tell whether the figure is on the right side of the bound; one that was not taken is not."""
        if self.bound is None:
            return True
        if self.value is None:
            return False
        return self.value <= self.bound if self.at_most else self.value >= self.bound


@dataclass(frozen=True, slots=True)
class Report:
    """One bench: the first series is ours, the second its reference where it has one."""

    bench: str
    title: str
    series: tuple[Series, ...]
    goals: tuple[Goal, ...]
    load: tuple[float, float]
    notes: tuple[str, ...] = ()


class LoadMeter:
    """The machine's load average (1 min), at the beginning and now."""

    def __init__(self) -> None:
        self._before = os.getloadavg()[0]

    def read(self) -> tuple[float, float]:
        """Return both."""
        return self._before, os.getloadavg()[0]


def measure_interleaved(rounds: int, measures: Mapping[str, Callable[[], float]]) -> dict[str, tuple[float, ...]]:
    """Take every measure once a round, A B A B, so that a busy minute hits all alike. The first round is dropped."""
    taken: dict[str, list[float]] = {name: [] for name in measures}
    for round_ in range(rounds + 1):
        for name, measure in measures.items():
            value = measure()
            if round_:
                taken[name].append(value)
    return {name: tuple(values) for name, values in taken.items()}


def compute_quantile(values: Sequence[float], share: float) -> float:
    """Return the value that ``share`` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
