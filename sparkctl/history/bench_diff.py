"""Compares two benchmarks: cell by cell, and what differed in their set-ups. Pure."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum

from sparkctl.history.start_diff import StartDifference, diff_profiles
from sparkctl.model.bench import BenchCell, BenchRun, BenchSetup, CellResult, DomainResult, Measurements

_NOT_COMPARED = ("digest", "text", "runs", "served", "profile", "context", "draft_tokens")


@dataclass(frozen=True, slots=True)
class DomainKey:
    """A kind of text, where benchmarks have these in place of cells."""

    domain: str
    thinking: bool | None

    def __str__(self) -> str:
        """Return its name, with the pass."""
        return self.domain if self.thinking is None else f"{self.domain}, thinking {'on' if self.thinking else 'off'}"


class BenchFigure(StrEnum):
    """The compared figures; the value is the row's name."""

    GENERATION = "generation tok/s"
    PROMPT = "prompt tok/s"
    TTFT = "time to first token, s"

    @property
    def is_better_when_lower(self) -> bool:
        """Tell whether less is better."""
        return self is BenchFigure.TTFT

    def get_values(self, one: CellResult | DomainResult) -> Measurements | None:
        """Return the figure of a cell."""
        return {
            BenchFigure.GENERATION: one.generation_rate,
            BenchFigure.PROMPT: None if isinstance(one, DomainResult) else one.prompt_rate,
            BenchFigure.TTFT: one.ttft,
        }[self]


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureComparison:
    """One figure of one cell in both runs.

    ``gain``: the share by which B is better (0.68 = +68 %; for latencies, less time is better), None where one is not
    known. ``is_distinct``: the two ranges of values do not touch; None where a run has a single value, which has no spread.
    """

    cell: BenchCell | DomainKey
    figure: BenchFigure
    before: Measurements | None
    after: Measurements | None

    @property
    def gain(self) -> float | None:
        """By which share B is better."""
        if self.before is None or self.after is None or not self.before.median or not self.after.median:
            return None
        old, new = self.before.median, self.after.median
        return old / new - 1 if self.figure.is_better_when_lower else new / old - 1

    @property
    def is_distinct(self) -> bool | None:
        """Tell whether the difference is more than the spread."""
        if self.before is None or self.after is None or min(len(self.before.values), len(self.after.values)) < 2:
            return None
        return self.before.high < self.after.low or self.after.high < self.before.low


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchComparison:
    """Two runs side by side. ``missing``: cells that only one of them has. ``setup``: what was different."""

    before: BenchRun
    after: BenchRun
    rows: tuple[FigureComparison, ...]
    missing: tuple[BenchCell | DomainKey, ...]
    setup: tuple[StartDifference, ...]


def compare_benches(before: BenchRun, after: BenchRun) -> BenchComparison:
    """Return the comparison of the cells that both have, in the order of the first."""
    old, new = _list_measured(before), _list_measured(after)
    rows = [
        FigureComparison(cell=cell, figure=figure, before=figure.get_values(one), after=figure.get_values(new[cell]))
        for cell, one in old.items()
        if cell in new
        for figure in BenchFigure
        if figure is not BenchFigure.PROMPT or not isinstance(cell, DomainKey)
    ]
    return BenchComparison(
        before=before,
        after=after,
        rows=tuple(rows),
        missing=tuple(cell for cell in (*old, *new) if (cell in old) != (cell in new)),
        setup=_compare_setups(before, after),
    )


def _list_measured(run: BenchRun) -> dict[BenchCell | DomainKey, CellResult | DomainResult]:
    """Return what was measured of a run, by cell or kind of text."""
    found: dict[BenchCell | DomainKey, CellResult | DomainResult] = {
        one.cell: one for one in run.results if one.error is None
    }
    for one in run.domains:
        if one.generation_rate is not None:
            found[DomainKey(one.domain, one.thinking)] = one
    return found


def _compare_setups(before: BenchRun, after: BenchRun) -> tuple[StartDifference, ...]:
    found = [] if before.nodes == after.nodes else [_describe("nodes", " ".join(before.nodes), " ".join(after.nodes))]
    for one in fields(BenchSetup):
        old, new = getattr(before.setup, one.name), getattr(after.setup, one.name)
        if one.name not in _NOT_COMPARED and old != new:
            found.append(_describe(one.name.replace("_", " "), old, new))
    return (*found, *(diff_profiles(before.setup.text, after.setup.text) or ()))


def _describe(what: str, before: object, after: object) -> StartDifference:
    old, new = (None if value is None else str(value) for value in (before, after))
    return StartDifference(what, old, new)
