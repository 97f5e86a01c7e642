"""A report as a short table, or as one line of JSON."""

from __future__ import annotations

import json
from dataclasses import asdict

from tests.tools.bench.bench_report import Goal, Report, Series


def format_report(report: Report) -> list[str]:
    """Return the table's lines."""
    wide = max(len(series.name) for series in report.series)
    before, after = report.load
    head = f"{report.bench}: {report.title}"
    columns = f"  {'':{wide}}  {'median':>10}  {'min - max':>21}  {'n':>3}"
    rows = [_format_row(series, wide) for series in report.series]
    goals = [_format_goal(goal) for goal in report.goals]
    return [head, columns, *rows, *goals, *(f"  {note}" for note in report.notes), f"  load {before:.1f} - {after:.1f}"]


def _format_row(series: Series, wide: int) -> str:
    span = f"{_format_number(min(series.values))} - {_format_number(max(series.values))}"
    median = f"{_format_number(series.median)} {series.unit}"
    return f"  {series.name:{wide}}  {median:>10}  {span:>21}  {len(series.values):>3}"


def _format_goal(goal: Goal) -> str:
    sign = "<=" if goal.at_most else ">="
    unit = f" {goal.unit}" if goal.unit else "x"
    value = "not measured" if goal.value is None else f"{goal.value:.2f}{unit}"
    if goal.bound is None:
        return f"  {goal.what}: {value}"
    verdict = "holds" if goal.holds else "short"
    return f"  {goal.what}: {value}  (goal {sign} {goal.bound:g}{unit}: {verdict})"


def _format_number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def format_json(report: Report) -> str:
    """Return the whole report with every value, on one line."""
    whole = asdict(report)
    for made, series in zip(whole["series"], report.series, strict=True):
        made["median"] = series.median
    for made, goal in zip(whole["goals"], report.goals, strict=True):
        made["holds"] = goal.holds
    return json.dumps(whole)
