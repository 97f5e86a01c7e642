"""Benchmarks as rows: the cells of a run, the comparison of two, and both as Markdown or CSV."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from sparkctl.history.bench_diff import BenchComparison, FigureComparison
from sparkctl.model.bench import BenchRun, CellResult, Measurements
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.text.units import GIB, format_duration
from sparkctl.views.text.line_wrap import align_cells
from sparkctl.views.text.styled_text import Span, TextRow, TextStyle, make_row

if TYPE_CHECKING:
    from sparkctl.model.events import BenchCellMeasured

_HEADINGS = ("cell", "tok/s", "prompt tok/s", "first token", "accepted", "memory", "power", "tok/J", "clock", "")
_UNKNOWN = "-"


def list_cell_columns(one: CellResult) -> tuple[str, ...]:
    """Return the columns of one measured cell."""
    if one.error is not None:
        return (str(one.cell), f"not measured: {sanitize_line(one.error)}")
    length = _UNKNOWN if one.accept_length is None else f"{one.accept_length:.2f}"
    rate = "" if one.accept_rate is None else f" {one.accept_rate:.0%}"
    return (
        str(one.cell),
        _format_measurements(one.generation_rate, 1),
        _format_measurements(one.prompt_rate, 0),
        _format_measurements(one.ttft, 2, " s"),
        length + rate,
        _UNKNOWN if one.memory_peak is None else f"{one.memory_peak / GIB:.1f} GiB",
        _UNKNOWN if one.power is None else f"{one.power:.0f} W",
        _UNKNOWN if one.tokens_per_joule is None else f"{one.tokens_per_joule:.2f}",
        _UNKNOWN if one.clock is None else f"{one.clock:.0f} MHz",
        _format_marks(one),
    )


def _format_marks(one: CellResult) -> str:
    marks = ("disturbed",) if one.disturbed else ()
    return ", ".join((*marks, "throttled") if one.throttled else marks)


def _format_measurements(one: Measurements | None, digits: int, unit: str = "") -> str:
    """Return the median, with half of the spread where there are several values."""
    if one is None:
        return _UNKNOWN
    spread = f" ±{(one.high - one.low) / 2:.{digits}f}" if len(one.values) > 1 else ""
    return f"{one.median:.{digits}f}{spread}{unit}"


def render_run(run: BenchRun) -> list[TextRow]:
    """Return a run: its set-up, its cells."""
    setup, when = run.setup, time.strftime("%Y-%m-%d %H:%M", time.localtime(run.began))
    what = " ".join(word for word in (setup.engine, setup.engine_version) if word)
    rows = [
        make_row(
            Span(f"benchmark {run.number}", TextStyle.STRONG),
            f"  {sanitize_line(run.instance)} on {' and '.join(run.nodes)}  {sanitize_line(what)}  {when}",
        ),
        make_row(Span(f"{setup.runs} runs of each cell, {sanitize_line(setup.generator or 'load generator not known')}", TextStyle.LABEL)),
        make_row(""),
        *_align(
            [_HEADINGS, *(list_cell_columns(one) for one in sort_results(run))],
        ),
    ]  # fmt: skip
    if run.missing:
        cells = ", ".join(str(cell) for cell in run.missing)
        why = f" ({sanitize_line(run.why)})" if run.why else ""
        rows += [make_row(""), make_row(Span(f"not measured{why}: {cells}", TextStyle.ATTENTION))]
    return rows


def sort_results(run: BenchRun) -> list[CellResult]:
    """Return the results in the order in which their cells were asked for."""
    by_cell = {one.cell: one for one in run.results}
    return [by_cell[cell] for cell in run.wanted if cell in by_cell]


def _align(cells: Sequence[Sequence[str]]) -> list[TextRow]:
    whole = [row for row in cells if len(row) == len(_HEADINGS)]
    texts = iter(_join_columns(whole))
    return [
        make_row(Span(next(texts), TextStyle.LABEL if at == 0 else TextStyle.PLAIN)) if len(row) == len(_HEADINGS)
        else make_row(Span(f"{row[0]}  {row[1]}", TextStyle.ATTENTION))
        for at, row in enumerate(cells)
    ]  # fmt: skip


def _join_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    return ["  ".join(cells).rstrip() for cells in align_cells(rows)]


def render_list(runs: Sequence[BenchRun]) -> list[TextRow]:
    """Return one row for each benchmark, the newest first."""
    if not runs:
        return [make_row("no benchmark was run from this machine: sparkctl bench INSTANCE")]
    rows = [("no", "when", "instance", "node", "engine", "cells")]
    for run in runs:
        done = f"{len(run.wanted) - len(run.missing)} of {len(run.wanted)}"
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.began))
        engine = " ".join(word for word in (run.setup.engine, run.setup.engine_version) if word)
        rows.append(
            (str(run.number), when, sanitize_line(run.instance), " ".join(run.nodes), sanitize_line(engine), done)
        )
    return [
        make_row(Span(text, TextStyle.LABEL if at == 0 else TextStyle.PLAIN))
        for at, text in enumerate(_join_columns(rows))
    ]


def format_progress(event: BenchCellMeasured) -> str:
    """Return one line about a cell that was just measured, and how long the rest takes."""
    columns = list_cell_columns(event.result)
    figures = columns[1] if event.result.error is not None else f"{columns[1]} tok/s   first token {columns[3]}"
    marks = "" if event.result.error is not None or not columns[-1] else f"   {columns[-1]}"
    left = "" if not event.remaining else f"   about {format_duration(event.remaining)} left"
    return f"{event.number}/{event.total}  {columns[0]}   {figures}{marks}{left}"


def render_comparison(one: BenchComparison) -> list[TextRow]:
    """Return the table A, B, difference, then what differed in the set-ups."""
    table = [_comparison_headings(one), *(_list_comparison_columns(row) for row in one.rows)]
    rows = [
        make_row(Span(text, TextStyle.LABEL if at == 0 else _choose_style(one.rows[at - 1])))
        for at, text in enumerate(_join_columns(table))
    ]
    if not one.rows:
        rows.append(make_row(Span("the two have no cell in common", TextStyle.ATTENTION)))
    if one.missing:
        rows += [
            make_row(""),
            make_row(Span(f"measured in one of them only: {', '.join(map(str, one.missing))}", TextStyle.LABEL)),
        ]
    return [*rows, *_render_setup(one)]


def _render_setup(one: BenchComparison) -> Iterator[TextRow]:
    yield make_row("")
    if not one.setup:
        yield make_row(Span("both set-ups are the same", TextStyle.LABEL))
        return
    yield make_row(Span("what differs", TextStyle.STRONG))
    table = [
        (sanitize_line(row.what), sanitize_line(row.before or _UNKNOWN), sanitize_line(row.after or _UNKNOWN))
        for row in one.setup
    ]
    for text in _join_columns(table):
        yield make_row(text)


def _comparison_headings(one: BenchComparison) -> tuple[str, ...]:
    names = [f"{letter} {sanitize_line(run.instance)}" for letter, run in (("A:", one.before), ("B:", one.after))]
    return ("cell", "figure", *names, "B is")


def _list_comparison_columns(row: FigureComparison) -> tuple[str, ...]:
    digits = 2 if row.figure.is_better_when_lower else 1
    return (
        str(row.cell), row.figure.value, _format_measurements(row.before, digits), _format_measurements(row.after, digits),
        _format_gain(row),
    )  # fmt: skip


def _format_gain(row: FigureComparison) -> str:
    if row.gain is None:
        return "not known"
    if row.is_distinct is False:
        return "not distinguishable"
    words = f"{row.gain:+.0%}"
    return words if row.is_distinct else f"{words} (one run each: no spread)"


def _choose_style(row: FigureComparison) -> TextStyle:
    if row.gain is None or not row.is_distinct:
        return TextStyle.LABEL
    return TextStyle.GOOD if row.gain > 0 else TextStyle.ATTENTION


def format_comparison_markdown(one: BenchComparison) -> list[str]:
    """Return a table to paste into a forum, with the set-ups beneath."""
    lines = _format_markdown_table([_comparison_headings(one), *map(_list_comparison_columns, one.rows)])
    for letter, run in (("A", one.before), ("B", one.after)):
        setup = run.setup
        parts = (
            setup.profile, setup.image, setup.engine_version, setup.driver and f"driver {setup.driver}",
            setup.kernel and f"kernel {setup.kernel}", f"{setup.runs} runs", setup.generator,
        )  # fmt: skip
        words = ", ".join(sanitize_line(part) for part in parts if part)
        lines += ["", f"{letter}: {sanitize_line(run.instance)} on {' and '.join(run.nodes)}: {words}"]
    if one.setup:
        lines += [
            "",
            *_format_markdown_table(
                [("what differs", "A", "B"), *((row.what, row.before or "", row.after or "") for row in one.setup)]
            ),
        ]
    return lines


def _format_markdown_table(rows: Sequence[Sequence[str]]) -> list[str]:
    escaped = [[sanitize_line(cell).replace("|", "\\|") for cell in row] for row in rows]
    lines = [f"| {' | '.join(row)} |" for row in escaped]
    return [lines[0], f"|{' --- |' * len(rows[0])}", *lines[1:]]


def format_comparison_csv(one: BenchComparison) -> list[str]:
    """Return one line for each figure, with medians, and the gain of B as a share."""
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(("pp", "tg", "depth", "concurrency", "figure", "a", "b", "gain", "distinct"))
    for row in one.rows:
        values = [None if value is None else round(value.median, 4) for value in (row.before, row.after)]
        gain = None if row.gain is None else round(row.gain, 4)
        table.writerow(
            (row.cell.pp, row.cell.tg, row.cell.depth, row.cell.concurrency, row.figure.value, *values, gain, row.is_distinct)
        )  # fmt: skip
    return out.getvalue().splitlines()


def build_leaderboard_document(run: BenchRun) -> dict[str, object]:
    """Return a run in llama-benchy's own schema, which leaderboards read."""
    return {
        "version": run.setup.generator, "timestamp": time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(run.began)),
        "latency_mode": "api", "latency_ms": None, "model": run.setup.served, "prefix_caching_enabled": run.setup.prefix_caching,
        "max_concurrency": max((cell.concurrency for cell in run.wanted), default=1),
        "benchmarks": [
            {
                "concurrency": one.cell.concurrency, "context_size": one.cell.depth, "prompt_size": one.cell.pp,
                "response_size": one.cell.tg, "is_context_prefill_phase": False,
                "pp_throughput": _build_metric(one.prompt_rate, 1), "tg_throughput": _build_metric(one.generation_rate, 1),
                "e2e_ttft": _build_metric(one.ttft, 1000),
            }
            for one in sort_results(run) if one.error is None
        ],
    }  # fmt: skip


def _build_metric(one: Measurements | None, factor: float) -> dict[str, object] | None:
    if one is None:
        return None
    values = [value * factor for value in one.values]
    mean = sum(values) / len(values)
    deviation = (sum((value - mean) ** 2 for value in values) / len(values)) ** 0.5
    return {"mean": mean, "std": deviation, "values": values}
