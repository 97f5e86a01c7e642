"""Benchmarks as rows: the cells of a run, the comparison of two, and both as Markdown or CSV."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from sparkctl.engines import load_engines
from sparkctl.history.bench_store import BenchComparison, BenchFigure, FigureComparison, SourceFigure
from sparkctl.model.bench import BenchCell, BenchRun, BenchSetup, CellResult, DomainKey, DomainResult, Measurements
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.text.units import GIB, format_date_time, format_duration
from sparkctl.views.text.line_wrap import align_cells
from sparkctl.views.text.styled_text import Span, TextRow, TextStyle, make_row

if TYPE_CHECKING:
    from sparkctl.history.start_diff import StartDifference
    from sparkctl.model.events import BenchCellMeasured, BenchCellProgressed, BenchDomainMeasured

_HEADINGS = ("cell", "tok/s", "prompt tok/s", "first token", "accepted", "memory", "power", "tok/J", "clock", "")
_UNKNOWN = "-"


def list_cell_columns(one: CellResult) -> tuple[str, ...]:
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
        ", ".join(_list_marks(one)),
    )


def _list_marks(one: CellResult | DomainResult) -> tuple[str, ...]:
    marks = ("disturbed",) if one.disturbed else ()
    return (*marks, "throttled") if isinstance(one, CellResult) and one.throttled else marks


def _format_measurements(one: Measurements | None, digits: int, unit: str = "") -> str:
    """Return the median, with half of the spread where there are several values."""
    if one is None:
        return _UNKNOWN
    spread = f" ±{(one.high - one.low) / 2:.{digits}f}" if len(one.values) > 1 else ""
    return f"{one.median:.{digits}f}{spread}{unit}"


_WIDE_HEADINGS = ("cell", "peak tok/s", "steps/s", "by position", "reads est.", "hottest")


def _list_wide_columns(one: CellResult) -> tuple[str, ...]:
    positions = " · ".join(f"{share:.0%}" for share in one.accept_positions or ()) or _UNKNOWN
    return (
        str(one.cell),
        _format_measurements(one.peak_rate, 0),
        _UNKNOWN if one.steps is None else f"{one.steps:.1f}",
        positions,
        _format_bandwidth(one),
        _UNKNOWN if one.celsius is None else f"{one.celsius:.0f} °C",
    )


def _format_bandwidth(one: CellResult) -> str:
    """Return ``189 GB/s``, a range where it depends on which experts were chosen."""
    if one.bandwidth is None:
        return _UNKNOWN
    ends = dict.fromkeys(f"{end / 1e9:.0f}" for end in one.bandwidth_range or (one.bandwidth,))
    return f"{'-'.join(ends)} GB/s"


def _render_wide(run: BenchRun) -> list[TextRow]:
    """Return the figures that have no room beside the others."""
    table = [_WIDE_HEADINGS, *(_list_wide_columns(one) for one in sort_results(run) if one.error is None)]
    styles = [TextStyle.LABEL, *(TextStyle.PLAIN for _ in table[1:])]
    return [
        make_row(""),
        *(make_row(Span(text, style)) for text, style in zip(_join_columns(table), styles, strict=True)),
    ]


def render_run(run: BenchRun, baseline: BenchRun | None, *, is_wide: bool = False) -> list[TextRow]:
    """Return a run: its set-up, its cells or kinds of text; ``baseline``: the run without drafts that these are compared with.

    ``is_wide``: with steps, acceptance by position, estimated bandwidth and temperature of each cell.
    """
    if run.domains or run.setup.prompts:
        return _render_domains(run, baseline)
    generator = sanitize_line(run.setup.generator or "load generator not known")
    rows = [
        *_render_heading(run, _format_runs(run.setup.runs), generator),
        *_align([_HEADINGS, *(list_cell_columns(one) for one in sort_results(run))]),
    ]
    rows += _render_wide(run) if is_wide else []
    failed = {one.cell for one in run.results if one.error is not None}  # they have a row of their own
    left = ", ".join(str(cell) for cell in run.missing if cell not in failed)
    words = [f"ended early: {sanitize_line(run.why)}"] if run.why else []
    words += [f"not measured: {left}"] if left else []
    rows += [row for line in words for row in (make_row(""), make_row(Span(line, TextStyle.ATTENTION)))]
    return rows


def _render_heading(run: BenchRun, *how: str) -> list[TextRow]:
    """Return what was measured, and ``how``."""
    setup = run.setup
    what = " ".join(word for word in (setup.engine, setup.engine_version) if word)
    where = f"  {sanitize_line(run.instance)} on {' and '.join(run.nodes)}  {sanitize_line(what)}  {format_date_time(run.began)}"
    settings = ", ".join((*how, *_list_request_settings(setup)))
    return [
        make_row(Span(f"benchmark {run.number}", TextStyle.STRONG), where),
        make_row(Span(settings, TextStyle.LABEL)),
        make_row(""),
    ]


def _list_request_settings(setup: BenchSetup) -> list[str]:
    """Return what is known of how requests were answered; what the engine or the model decides by itself is left out."""
    known = [] if setup.temperature is None else [f"temperature {setup.temperature:g}"]
    known += [] if setup.thinking is None else [f"thinking {'on' if setup.thinking else 'off'}"]
    return known + ([] if setup.prefix_cache is None else [f"prefix cache {'on' if setup.prefix_cache else 'off'}"])


def _format_runs(runs: int) -> str:
    return (
        f"{runs} runs of each cell"
        if runs > 1
        else "1 run of each cell (no spread: --runs 3 tells a difference from chance)"
    )


_DOMAIN_HEADINGS = ("kind of text", "thinking", "tok/s", "first token", "accepted", "steps", "")


def _render_domains(run: BenchRun, baseline: BenchRun | None) -> list[TextRow]:
    setup = run.setup
    gains = {} if baseline is None else compute_gains(run, baseline)
    table = [
        (*_DOMAIN_HEADINGS[:-1], "to baseline" if baseline else "", ""),
        *((*_list_domain_columns(one), *_format_domain_marks(one, gains)) for one in run.domains),
    ]
    styles = [TextStyle.LABEL, *(TextStyle.ATTENTION if one.error else TextStyle.PLAIN for one in run.domains)]
    sentence = f"prompts {(setup.prompts or '')[:12]}, answers of at most {setup.answer_tokens} tokens, one at a time"
    rows = [
        *_render_heading(run, sentence),
        *(make_row(Span(text, style)) for text, style in zip(_join_columns(table), styles, strict=True)),
    ]
    notes = [f"not measured to the end: {sanitize_line(run.why)}"] if run.why is not None else []
    there = {one.key for one in run.domains}  # one that failed has a row of its own
    if left := [key for key in run.missing_domains if key not in there]:
        notes.append(f"not measured: {', '.join(sanitize_line(str(key)) for key in left)}")
    rows += [row for line in notes for row in (make_row(""), make_row(Span(line, TextStyle.ATTENTION)))]
    engine = next((one for one in load_engines() if one.name == setup.engine), None)
    is_untold = setup.draft_tokens != 0 and any(one.accept_length is None for one in run.domains)
    if engine is not None and engine.acceptance_steps and is_untold:
        words = (
            f"{engine.title} reports its acceptance every {engine.acceptance_steps} steps: shorter answers have none; "
        )
        words += "ask for longer ones with --max-tokens"
        rows += [make_row(""), make_row(Span(words, TextStyle.LABEL))]
    if baseline is not None:
        rows += [make_row(""), *(make_row(Span(text, style)) for text, style in _tell_gains(run, baseline))]
    return rows


def compute_gains(run: BenchRun, baseline: BenchRun) -> dict[tuple[str, bool | None], float]:
    """Return each kind of text's speed as a multiple of the baseline's (of its only pass, if that has no such): 0.9 is a loss."""
    slow = {(one.domain, one.thinking): one.generation_rate for one in baseline.domains}
    found = {}
    for one in run.domains:
        other = slow.get((one.domain, one.thinking)) or slow.get((one.domain, None))
        if one.generation_rate is not None and other is not None and other.median > 0:
            found[one.domain, one.thinking] = one.generation_rate.median / other.median
    return found


def _tell_gains(run: BenchRun, baseline: BenchRun) -> list[tuple[str, TextStyle]]:
    """Return in a sentence each what drafts gain or cost."""
    gains = compute_gains(run, baseline)
    lines = [(f"compared with {sanitize_line(baseline.instance)}, benchmark {baseline.number}", TextStyle.LABEL)]
    cost, gain_most = "drafts cost on", "drafts gain most on"
    if baseline.setup.draft_tokens:  # then the difference is not that of drafts alone
        lines.append(
            (
                f"{sanitize_line(baseline.instance)} drafts too: this is not the gain of drafts alone",
                TextStyle.ATTENTION,
            )
        )
        cost, gain_most = "slower on", "fastest on"
    places = {key: sanitize_line(key[0]) + _format_thinking(key[1], ", thinking {}") for key in gains}
    lines += [
        (f"{cost} {places[key]}: {gain:.2f}x", TextStyle.ATTENTION)
        for key, gain in gains.items()
        if gain < 1 - _EVEN_SHARE
    ]
    best = max(gains, key=lambda key: gains[key], default=None)
    if best is not None and gains[best] > 1 + _EVEN_SHARE:
        lines.append((f"{gain_most} {places[best]}: {gains[best]:.2f}x", TextStyle.GOOD))
    return lines


_EVEN_SHARE = 0.02  # a difference of this share is none


def _format_thinking(thinking: bool | None, form: str = "{}") -> str:
    return "" if thinking is None else form.format("on" if thinking else "off")


def _list_domain_columns(one: DomainResult) -> tuple[str, ...]:
    length = _UNKNOWN if one.accept_length is None else f"{one.accept_length:.2f}"
    rate = "" if one.accept_rate is None else f" {one.accept_rate:.0%}"
    return (
        sanitize_line(one.domain),
        _format_thinking(one.thinking) or _UNKNOWN,
        _format_measurements(one.generation_rate, 1),
        _format_measurements(one.ttft, 2, " s"),
        length + rate,
        _UNKNOWN if one.steps is None else f"{one.steps:.0f}",
    )


def _format_domain_marks(one: DomainResult, gains: dict[tuple[str, bool | None], float]) -> tuple[str, str]:
    gain = gains.get((one.domain, one.thinking))
    marks = [*_list_marks(one)]
    if one.error is not None:
        marks.append(f"{one.failed} of {one.prompts} failed: {sanitize_line(one.error)}")
    return "" if gain is None else f"{gain:.2f}x", ", ".join(marks)


def format_domain_progress(event: BenchDomainMeasured) -> str:
    """Return one line about a kind of text that was just measured, and how long the rest takes."""
    domain, thinking, rate, first, accepted, _ = _list_domain_columns(event.result)
    _, marks = _format_domain_marks(event.result, {})
    mode = "" if event.result.thinking is None else f" thinking {thinking}"
    left = "" if not event.remaining else f"   about {format_duration(event.remaining)} left"
    accepted = "" if accepted == _UNKNOWN else f"   accepted {accepted}"
    return f"{event.number}/{event.total}  {domain}{mode}   {rate} tok/s   first token {first}{accepted}{'   ' if marks else ''}{marks}{left}"


def format_last_result(run: BenchRun) -> str:
    """Return the benchmark in one line: the acceptance by kind of text, or the speed of its first cell."""
    when = time.strftime("%Y-%m-%d", time.localtime(run.began))
    if run.domains:
        known = [one for one in run.domains if one.generation_rate is not None]
        parts = [
            f"{sanitize_line(one.domain)} {f'{one.accept_length:.2f}' if one.accept_length else f'{one.generation_rate.median:.1f} tok/s'}"
            for one in known
            if one.thinking in (None, False) and one.generation_rate is not None
        ]
        return f"no {run.number}, {when}: {' · '.join(parts) or 'nothing was measured'}"
    cell = next((one for one in sort_results(run) if one.generation_rate is not None), None)
    figure = (
        "nothing was measured" if cell is None else f"{cell.cell} {_format_measurements(cell.generation_rate, 1)} tok/s"
    )
    return f"no {run.number}, {when}: {figure}"


def sort_results(run: BenchRun) -> list[CellResult]:
    """Return the results in the order in which their cells were asked for."""
    by_cell = {one.cell: one for one in run.results}
    return [by_cell[cell] for cell in run.wanted if cell in by_cell]


def list_table_rows(run: BenchRun, now: BenchCell | None, rate: float | None, *, is_measuring: bool) -> list[TextRow]:
    """Return the table of a run that may not be over: measured cells, ``now`` with its tokens/s so far, and the cells to come."""
    if run.domains or run.setup.prompts:
        table = [
            _DOMAIN_HEADINGS,
            *((*_list_domain_columns(one), _format_domain_marks(one, {})[1]) for one in run.domains),
        ]
        styles = [TextStyle.LABEL, *(TextStyle.ATTENTION if one.error else TextStyle.PLAIN for one in run.domains)]
        return [make_row(Span(text, style)) for text, style in zip(_join_columns(table), styles, strict=True)]
    by_cell = {one.cell: one for one in run.results}
    blank = ("",) * (len(_HEADINGS) - 2)
    cells: list[tuple[str, ...]] = [_HEADINGS]
    styles = [TextStyle.LABEL]
    for cell in run.wanted:
        result = by_cell.get(cell)
        if result is not None and cell != now:
            columns = list_cell_columns(result)
            cells.append(
                columns if result.error is None else (columns[0], "-", *("",) * (len(_HEADINGS) - 3), columns[1])
            )
            styles.append(TextStyle.PLAIN if result.error is None else TextStyle.ATTENTION)
        elif cell == now:
            cells.append((str(cell), "..." if rate is None else f"{rate:.1f} now", *blank))
            styles.append(TextStyle.RATE)
        else:
            cells.append((str(cell), "to come" if is_measuring else "not measured", *blank))
            styles.append(TextStyle.STALE)
    return [make_row(Span(text, style)) for text, style in zip(_join_columns(cells), styles, strict=True)]


def _align(cells: Sequence[Sequence[str]]) -> list[TextRow]:
    whole = [row for row in cells if len(row) == len(_HEADINGS)]
    texts = iter(_join_columns(whole))
    return [
        make_row(Span(next(texts), TextStyle.LABEL if at == 0 else TextStyle.PLAIN))
        if len(row) == len(_HEADINGS)
        else make_row(Span(f"{row[0]}  {row[1]}", TextStyle.ATTENTION))
        for at, row in enumerate(cells)
    ]


def _join_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    return ["  ".join(cells).rstrip() for cells in align_cells(rows)]


def render_list(runs: Sequence[BenchRun]) -> list[TextRow]:
    """Return one row for each benchmark, the newest first."""
    if not runs:
        return [make_row("no benchmark was run from this machine: sparkctl bench INSTANCE")]
    return [
        make_row(Span(text, TextStyle.LABEL if at == 0 else TextStyle.PLAIN))
        for at, text in enumerate(_join_columns(list_run_rows(runs)))
    ]


def list_run_rows(runs: Sequence[BenchRun]) -> list[tuple[str, ...]]:
    """Return the head of the list of benchmarks, and the columns of each."""
    rows: list[tuple[str, ...]] = [("no", "when", "instance", "node", "engine", "cells")]
    for run in runs:
        done = f"{len(run.wanted) - len(run.missing)} of {len(run.wanted)}"
        if run.setup.prompts:
            kinds = len({one.domain for one in run.domains})
            all_kinds = len({one.domain for one in run.wanted_domains}) or kinds
            noun = "kind of text" if all_kinds == 1 else "kinds of text"
            done = f"{kinds} {noun}" if kinds == all_kinds else f"{kinds} of {all_kinds} {noun}"
        when = format_date_time(run.began)
        engine = " ".join(word for word in (run.setup.engine, run.setup.engine_version) if word)
        rows.append(
            (str(run.number), when, sanitize_line(run.instance), " ".join(run.nodes), sanitize_line(engine), done)
        )
    return rows


def format_progress(event: BenchCellMeasured) -> str:
    """Return one line about a cell that was just measured, and how long the rest takes."""
    columns = list_cell_columns(event.result)
    figures = columns[1] if event.result.error is not None else f"{columns[1]} tok/s   first token {columns[3]}"
    marks = "" if event.result.error is not None or not columns[-1] else f"   {columns[-1]}"
    left = "" if not event.remaining else f"   about {format_duration(event.remaining)} left"
    return f"{event.number}/{event.total}  {columns[0]}   {figures}{marks}{left}"


def format_cell_progress(event: BenchCellProgressed) -> str:
    """Return one line about the cell that is being measured: how far it is, and the speed now."""
    rate = f"   {event.tokens_per_second:.1f} tok/s" if event.tokens_per_second else ""
    left = f"   about {format_duration(event.remaining)} left" if event.remaining else ""
    progress = f"{event.done} of {event.requests} requests" if event.done else "beginning"
    return f"{event.number}/{event.total}  {event.cell}   {progress}{rate}{left}"


def format_sweep_time(event: BenchCellProgressed) -> str:
    """Return how much is measured, and how long it takes."""
    runs = max(1, event.requests // event.cell.concurrency)
    left = event.total - event.number + 1
    cells = f"{left} cell{'s' if left > 1 else ''}"
    each = f"{runs} runs each" if runs > 1 else "1 run each, which has no spread"
    return f"{sanitize_line(event.instance)} on {event.node}: {cells}, {each}: about {format_duration(event.remaining or 0.0)}"


def render_comparison(one: BenchComparison, *, is_wide: bool = False) -> list[TextRow]:
    """Return the table A, B, difference, then what differed in the set-ups; ``is_wide``: with the range of the values."""
    table = [_comparison_headings(one, is_wide), *(_list_comparison_columns(row, is_wide) for row in one.rows)]
    rows = [
        make_row(Span(text, TextStyle.LABEL if at == 0 else _choose_style(one.rows[at - 1])))
        for at, text in enumerate(_join_columns(table))
    ]
    if not one.rows:
        rows.append(make_row(Span("the two have no cell in common", TextStyle.ATTENTION)))
    for letter, run in one.lettered_runs:
        for cell in (each for each in run.results if each.error is not None):
            words = f"{letter} did not measure {cell.cell}: {sanitize_line(cell.error or '')}"
            rows.append(make_row(Span(words, TextStyle.ATTENTION)))
    if one.missing:
        rows += [
            make_row(""),
            make_row(Span(f"measured in one of them only: {', '.join(map(str, one.missing))}", TextStyle.LABEL)),
        ]
    if doubts := _list_doubts(one):
        rows += [make_row(""), *(make_row(Span(words, TextStyle.ATTENTION)) for words in doubts)]
    return [*rows, *_render_sources(one), *_render_setup(one)]


_DOUBTS = {
    "disturbed": "other clients generated tokens meanwhile, so these figures are not the model's alone: measure again without them",
    "throttled": "the GPU was slowed down for its heat or power",
}


def _list_doubts(one: BenchComparison) -> list[str]:
    """Return, in a sentence each, why figures that are compared may mislead."""
    compared = [*dict.fromkeys(row.cell for row in one.rows)]
    found = []
    for letter, run in one.lettered_runs:
        marks = _map_marks(run)
        for mark, meaning in _DOUBTS.items():
            if cells := [sanitize_line(str(cell)) for cell in compared if mark in marks.get(cell, ())]:
                found.append(f"{letter} {', '.join(cells) if len(cells) < len(compared) else 'throughout'}: {meaning}")
    if unknown := [letter for letter, run in one.lettered_runs if run.setup.text is None]:
        whose = "of either" if len(unknown) == 2 else f"of {unknown[0]}"
        found.append(
            f"the settings {whose} are not known, as this computer did not start it: model, quantization and drafts may differ, too"
        )
    return found


def _map_marks(run: BenchRun) -> dict[BenchCell | DomainKey, tuple[str, ...]]:
    """Return what makes each cell or kind of text doubtful: disturbed, throttled."""
    found: dict[BenchCell | DomainKey, tuple[str, ...]] = {one.cell: _list_marks(one) for one in run.results}
    return found | {one.key: _list_marks(one) for one in run.domains}


def _render_sources(one: BenchComparison) -> Iterator[TextRow]:
    """Yield each figure beside what the source of its profile measured there."""
    table = _list_source_rows(one)
    if not table:
        return
    yield make_row("")
    yield make_row(Span("what is published for these profiles", TextStyle.STRONG))
    for text in _join_columns(table):
        yield make_row(text)


def _list_source_rows(one: BenchComparison) -> list[tuple[str, ...]]:
    """Return run, cell, figure, ours, the source's and by how much ours is off; none where no source measured such a cell."""
    both = [
        *(("A", one.before, row, row.before, row.source_before) for row in one.rows),
        *(("B", one.after, row, row.after, row.source_after) for row in one.rows),
    ]
    return [
        (
            f"{letter}: {sanitize_line(run.instance)}",
            sanitize_line(str(row.cell)),
            row.figure.value,
            _format_measurements(own, row.figure.digits),
            f"published {source_figure.figure.as_text()}",
            _format_deviation(own, source_figure),
            sanitize_line(source_figure.source),
        )
        for letter, run, row, own, source_figure in both
        if own is not None and source_figure is not None
    ]


def _format_deviation(own: Measurements, source_figure: SourceFigure) -> str:
    """Return by how much a figure is above or below the source's nearest one."""
    low, high = source_figure.figure.low, source_figure.figure.high
    nearest = min(max(own.median, low), high)
    share = own.median / nearest - 1
    return "as published" if abs(share) < _EVEN_SHARE else f"{share:+.0%}"


def _list_stack_differences(one: BenchComparison) -> list[StartDifference]:
    """Return what differs and may change what is measured: no title, port, limit or expectation."""
    from sparkctl.profiles.schema import iter_value_fields

    words = {key for key, declared in iter_value_fields() if not declared.spec.is_hashed}
    return [row for row in one.setup if row.what not in words and row.what.partition(".")[0] not in _LIMITING_SECTIONS]


_LIMITING_SECTIONS = ("port", "memory", "start", "stop", "guard")


def _render_setup(one: BenchComparison) -> Iterator[TextRow]:
    yield make_row("")
    unknown = f"not known of either: {', '.join(one.unknown)}" if one.unknown else ""
    differences = _list_stack_differences(one)
    if not differences:
        words = f"both set-ups are the same, as far as is known ({unknown})" if unknown else "both set-ups are the same"
        yield make_row(Span(words, TextStyle.LABEL))
        return
    yield make_row(Span("what differs", TextStyle.STRONG))
    table = [
        (sanitize_line(row.what), sanitize_line(row.before or _UNKNOWN), sanitize_line(row.after or _UNKNOWN))
        for row in differences
    ]
    for text in _join_columns(table):
        yield make_row(text)
    if unknown:
        yield make_row(Span(unknown, TextStyle.LABEL))


def _comparison_headings(one: BenchComparison, is_wide: bool = False) -> tuple[str, ...]:
    names = [f"{letter}: {sanitize_line(run.instance)}" for letter, run in one.lettered_runs]
    return ("cell", "figure", *names, "B is", *(("A: lowest-highest", "B: lowest-highest", "runs") if is_wide else ()))


def _list_comparison_columns(row: FigureComparison, is_wide: bool = False) -> tuple[str, ...]:
    digits = row.figure.digits
    pair = (row.before, row.after)
    ranges = [_UNKNOWN if one is None else f"{one.low:.{digits}f}-{one.high:.{digits}f}" for one in pair]
    runs = (
        _UNKNOWN
        if row.figure is BenchFigure.ACCEPTED
        else "/".join("0" if one is None else str(len(one.values)) for one in pair)
    )
    return (
        sanitize_line(str(row.cell)),
        row.figure.value,
        _format_measurements(row.before, digits),
        _format_measurements(row.after, digits),
        _format_gain(row),
        *((*ranges, runs) if is_wide else ()),
    )


def _format_gain(row: FigureComparison) -> str:
    if row.gain is None:
        return "not known"
    if row.is_distinct is False:
        return "not distinguishable"
    words = f"{abs(row.gain):.0%} {'better' if row.gain >= 0 else 'worse'}"  # a sign would puzzle where less is better
    if row.is_distinct or row.figure is BenchFigure.ACCEPTED:  # one figure of all runs
        return words
    single = [letter for letter, one in (("A", row.before), ("B", row.after)) if one is None or len(one.values) < 2]
    return f"{words} (one run {'each' if len(single) == 2 else f'of {single[0]}'}: no spread)"


def _choose_style(row: FigureComparison) -> TextStyle:
    if row.gain is None or not row.is_distinct:
        return TextStyle.LABEL
    return TextStyle.GOOD if row.gain > 0 else TextStyle.ATTENTION


def format_comparison_markdown(one: BenchComparison) -> list[str]:
    """Return a table to paste into a forum, with the set-ups beneath."""
    lines = _format_markdown_table([_comparison_headings(one), *map(_list_comparison_columns, one.rows)])
    for letter, run in one.lettered_runs:
        setup = run.setup
        parts = (
            setup.profile, setup.image, setup.engine_version, setup.driver and f"driver {setup.driver}",
            setup.kernel and f"kernel {setup.kernel}", f"{setup.runs} run{'s' if setup.runs != 1 else ''}",
            setup.generator, *_list_request_settings(setup),
        )  # fmt: skip
        words = ", ".join(sanitize_line(part) for part in parts if part)
        lines += ["", f"{letter}: {sanitize_line(run.instance)} on {' and '.join(run.nodes)}: {words}"]
    for words in _list_doubts(one):
        lines += ["", words]
    if sources := _list_source_rows(one):
        headings = ("of", "cell", "figure", "measured here", "published", "off by", "source")
        lines += ["", *_format_markdown_table([headings, *sources])]
    if differences := _list_stack_differences(one):
        lines += [
            "",
            *_format_markdown_table(
                [("what differs", "A", "B"), *((row.what, row.before or "", row.after or "") for row in differences)]
            ),
        ]
    return lines


def _format_markdown_table(rows: Sequence[Sequence[str]]) -> list[str]:
    escaped = [[sanitize_line(cell).replace("|", "\\|") for cell in row] for row in rows]
    lines = [f"| {' | '.join(row)} |" for row in escaped]
    return [lines[0], f"|{' --- |' * len(rows[0])}", *lines[1:]]


_CSV_HEADINGS = (
    "pp", "tg", "depth", "concurrency", "figure", "a", "b", "gain", "distinct", "a_low", "a_high", "b_low", "b_high", "kind",
    "a_source", "b_source", "a_marks", "b_marks",
)  # fmt: skip


def format_comparison_csv(one: BenchComparison) -> list[str]:
    """Return one line for each figure, with medians and ranges, and the gain of B as a share; ``kind``: of text, in place of a cell;
    ``a_source`` and ``b_source``: what the source of each profile measured there (`12.7`, or a range `23-27`);
    ``a_marks`` and ``b_marks``: disturbed, throttled.
    """
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(_CSV_HEADINGS)
    marks = [_map_marks(run) for _, run in one.lettered_runs]
    for row in one.rows:
        values = [None if value is None else round(value.median, 4) for value in (row.before, row.after)]
        gain = None if row.gain is None else round(row.gain, 4)
        ranges: list[float | None] = []
        for one_side in (row.before, row.after):
            ranges += [None, None] if one_side is None else [round(one_side.low, 4), round(one_side.high, 4)]
        kind = str(row.cell) if isinstance(row.cell, DomainKey) else None
        sources = [
            None if source_figure is None else source_figure.figure.as_text().replace("–", "-")
            for source_figure in (row.source_before, row.source_after)
        ]
        row_marks = [" ".join(each.get(row.cell, ())) for each in marks]
        table.writerow(
            (
                *_list_cell_sizes(row.cell),
                row.figure.value,
                *values,
                gain,
                row.is_distinct,
                *ranges,
                kind,
                *sources,
                *row_marks,
            )
        )
    return out.getvalue().splitlines()


def _list_cell_sizes(cell: BenchCell | DomainKey) -> tuple[object, ...]:
    return (None, None, None, None) if isinstance(cell, DomainKey) else (cell.pp, cell.tg, cell.depth, cell.concurrency)


def build_leaderboard_document(run: BenchRun) -> dict[str, object]:
    """Return a run in llama-benchy's own schema, which leaderboards read."""
    import statistics  # imported late, as in `model.bench`

    latencies = [one.latency * 1000 for one in run.results if one.latency is not None]
    version = (run.setup.generator or "").removeprefix("llama-benchy ") or None
    return {
        "version": version, "timestamp": time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(run.began)), "latency_mode": "api",
        "latency_ms": statistics.median(latencies) if latencies else None, "model": run.setup.served,
        "prefix_caching_enabled": run.setup.prefix_caching,
        "max_concurrency": max((cell.concurrency for cell in run.wanted), default=1),
        "benchmarks": [
            {
                "concurrency": one.cell.concurrency, "context_size": one.cell.depth, "prompt_size": one.cell.pp,
                "response_size": one.cell.tg, "is_context_prefill_phase": False,
                "pp_throughput": _build_metric(one.prompt_rate, 1), "tg_throughput": _build_metric(one.generation_rate, 1),
                "peak_throughput": _build_metric(one.peak_rate, 1), "e2e_ttft": _build_metric(one.ttft, 1000),
                "pp_req_throughput": _build_metric(one.prompt_rate_each, 1),
                "tg_req_throughput": _build_metric(one.generation_rate_each, 1),
                "peak_req_throughput": _build_metric(one.peak_rate_each, 1), "ttfr": _build_metric(one.first_response, 1000),
                "est_ppt": _build_metric(one.prompt_seconds, 1000),
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
