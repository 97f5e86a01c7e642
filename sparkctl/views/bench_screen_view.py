"""The bench screen as rows: the selected benchmark as a table that fills, the meters meanwhile, and all that were measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sparkctl.logs.search import FilterPattern
from sparkctl.model.bench import BenchRun
from sparkctl.model.events import BenchCellMeasured, BenchCellProgressed, BenchDomainMeasured
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import NodeName
from sparkctl.model.phase import Phase
from sparkctl.model.text.units import format_duration
from sparkctl.views.bench_view import list_run_rows, list_table_rows
from sparkctl.views.overview.tile_model import NodeTileModel
from sparkctl.views.overview.tile_rows import (
    TALL_CHART_ROWS,
    DrawArea,
    build_gpu_charts,
    build_memory_bar,
    build_memory_chart,
    build_throughput_chart,
    render_gpus,
    render_throughput,
)
from sparkctl.views.text.charts import RowBlock, drop_least_important, expand_charts, make_block, render_gauge
from sparkctl.views.text.frame_layout import draw_frame, pad_screen
from sparkctl.views.text.line_wrap import align_cells, wrap_text
from sparkctl.views.text.styled_text import (
    ScrollPage,
    Span,
    TextRow,
    TextStyle,
    compute_visible_range,
    make_row,
    sanitize_span,
    scroll_rows,
    truncate_row,
)

BenchEvent = BenchCellMeasured | BenchCellProgressed | BenchDomainMeasured

_MIN_LIST_LINES, _MIN_METER_LINES = 5, 6  # of their boxes, the frames included
_MAX_LISTED = 8
_GAUGE_COLUMNS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchScreenModel:
    """The state of the bench screen.

    ``runs``: all benchmarks of this machine, the newest first; None until they are read. ``live``: what this panel measures now:
    the last event by instance and node. ``seen``: the node of the selected one. ``further``: scrolled rows of the table.
    """

    runs: tuple[BenchRun, ...] | None
    live: Mapping[tuple[str, NodeName], BenchEvent]
    chosen: int | None
    seen: NodeTileModel | None = None
    pattern: FilterPattern | None
    further: int

    @property
    def visible_runs(self) -> tuple[BenchRun, ...]:
        """The benchmarks that match the filter."""
        runs = self.runs or ()
        if self.pattern is None:
            return runs
        words = [f"{run.number} {run.instance} {' '.join(run.nodes)} {run.setup.engine or ''}" for run in runs]
        return tuple(runs[at] for at in self.pattern.select_indices(words))

    @property
    def selected(self) -> BenchRun | None:
        """The selected benchmark: the chosen one, else the one that is measured, else the newest."""
        shown = self.visible_runs
        chosen = next((run for run in shown if run.number == self.chosen), None)
        return chosen or next((run for run in shown if self.find_live(run)), shown[0] if shown else None)

    def find_live(self, run: BenchRun) -> BenchEvent | None:
        """Return the last event of a benchmark that is measured now, None where it is not."""
        newest = next((one for one in self.runs or () if one.instance == run.instance and one.nodes == run.nodes), None)
        if newest is not run or run.ended is not None or run.why is not None or not run.nodes:
            return None
        return self.live.get((run.instance, run.nodes[0]))


def render_bench_page(scene: BenchScreenModel, columns: int, lines: int) -> ScrollPage:
    """Return exactly ``lines`` rows: the selected benchmark, the meters while it is measured, and the list."""
    run = scene.selected
    if run is None:
        if scene.runs is None and not scene.live:
            words = "reading the benchmarks ..."
        elif scene.live:
            words = "preparing: the tokenizer is read from the Spark, and the load generator starts ..."
        elif scene.pattern is not None:
            words = "No benchmark matches. Esc clears the filter."
        else:
            words = (
                "Nothing was measured from here yet. B on an instance or a profile measures it, as :bench NAME does."
            )
        return ScrollPage(
            pad_screen([(), *wrap_text(words, columns - 2, TextStyle.STALE, head=make_row(" "))], columns, lines)
        )
    event = scene.find_live(run)
    table = _render_table(run, event, columns - 4)
    listed = min(len(scene.visible_runs), _MAX_LISTED) + 3
    listed = min(listed, max(_MIN_LIST_LINES, lines // 4))
    rest = lines - listed
    high = min(len(table) + 2, rest)
    meters = _build_meters(scene, columns - 4) if event is not None else []
    if meters and rest - high < _MIN_METER_LINES:
        high = max(min(high, rest // 2), rest - _MIN_METER_LINES - 2)
    if not meters:
        high = rest
    page = scroll_rows(table, scene.further, high - 2)
    rows = list(draw_frame(_render_title(run, event), page.rows, columns, high))
    if meters:
        room = rest - high - 2
        title = make_row(
            Span("meanwhile on ", TextStyle.LABEL),
            sanitize_span(run.nodes[0], TextStyle.TITLE),
            Span("   since it began", TextStyle.LABEL),
        )
        rows += draw_frame(title, drop_least_important(expand_charts(meters, room), room), columns, rest - high)
    list_rows, top, there = _render_list(scene, columns - 4, lines - len(rows) - 2)
    title = make_row(Span("benchmarks", TextStyle.LABEL), Span(f"   {len(scene.visible_runs)}", TextStyle.VALUE))
    if scene.pattern is not None:
        title = make_row(*title, sanitize_span(f"   / {scene.pattern.typed}", TextStyle.ACCENT))
    top += len(rows) + 1
    rows += draw_frame(title, list_rows, columns, lines - len(rows))
    return ScrollPage(pad_screen(rows, columns, lines), page.further, top, there)


def _render_title(run: BenchRun, event: BenchEvent | None) -> TextRow:
    state = Span("◐ measuring", TextStyle.ATTENTION) if event is not None else _render_outcome(run)
    engine = " ".join(word for word in (run.setup.engine, run.setup.engine_version) if word)
    where = f" on {' and '.join(run.nodes)}"
    return make_row(
        Span(f"benchmark {run.number} ", TextStyle.LABEL),
        sanitize_span(run.instance, TextStyle.TITLE),
        sanitize_span(f"{where}   {engine}   ", TextStyle.LABEL),
        state,
    )


def _render_outcome(run: BenchRun) -> Span:
    if run.why is not None:
        return sanitize_span(f"▲ ended early: {run.why}", TextStyle.ATTENTION)
    return Span("● done", TextStyle.GOOD) if run.ended is not None else Span("○ unfinished", TextStyle.LABEL)


def _render_table(run: BenchRun, event: BenchEvent | None, columns: int) -> list[TextRow]:
    """Return how far it is, and the cells: those that are measured, the one that is being measured, and those to come."""
    rows = [] if event is None else [_render_progress(event, columns), ()]
    now = event.cell if isinstance(event, BenchCellProgressed) else None
    rate = event.tokens_per_second if isinstance(event, BenchCellProgressed) else None
    rows += [truncate_row(row, columns) for row in list_table_rows(run, now, rate, is_measuring=event is not None)]
    if event is None and run.missing:
        rows += [
            (),
            make_row(sanitize_span(f"sparkctl bench --resume {run.number} measures the rest", TextStyle.LABEL)),
        ]
    return rows


def _render_progress(event: BenchEvent, columns: int) -> TextRow:
    """Return ``cell 3 of 8 ━━━──  2 of 3 requests   12.7 tok/s now   about 4 min left``."""
    is_going = isinstance(event, BenchCellProgressed)
    share = (event.number - 1 if is_going else event.number) / max(1, event.total)
    if isinstance(event, BenchCellProgressed) and event.requests:
        share += min(1.0, event.done / event.requests) / max(1, event.total)
    unit = "kind of text" if isinstance(event, BenchDomainMeasured) else "cell"
    spans: list[Span] = [
        Span(f"{unit} ", TextStyle.LABEL),
        Span(f"{event.number} of {event.total}  ", TextStyle.STRONG),
        *render_gauge(share, _GAUGE_COLUMNS, TextStyle.RATE),
    ]
    if isinstance(event, BenchCellProgressed):
        progress = f"{event.done} of {event.requests} requests" if event.done else "beginning"
        spans.append(Span(f"  {progress}", TextStyle.LABEL))
        if event.tokens_per_second:
            spans += [Span(f"   {event.tokens_per_second:.1f}", TextStyle.STRONG), Span(" tok/s now", TextStyle.UNIT)]
    if event.remaining:
        spans.append(Span(f"   about {format_duration(event.remaining)} left", TextStyle.VALUE))
    return truncate_row(tuple(spans), columns)


def _build_meters(scene: BenchScreenModel, columns: int) -> list[RowBlock]:
    """Return the figures and curves of the node and the instance that is measured."""
    run = scene.selected
    if scene.seen is None or run is None:
        return []
    seen = replace(scene.seen, since=run.began)
    space = DrawArea(columns, TALL_CHART_ROWS)
    one = next((each for each in seen.view.instances if each.ours and each.name == run.instance), None)
    blocks: list[RowBlock | None] = [build_memory_bar(seen, space)]
    if one is not None and one.phase is Phase.READY:
        blocks += [make_block(1, render_throughput(one, space)), build_throughput_chart(one, seen, space)]
    blocks += [
        make_block(2, *render_gpus(seen, space)),
        *build_gpu_charts(seen, space),
        build_memory_chart(seen, space),
    ]
    return [block for block in blocks if block is not None]


def _render_list(scene: BenchScreenModel, columns: int, lines: int) -> tuple[list[TextRow], int, range]:
    """Return the head of the list and the benchmarks that fit, the row of the first, and which they are."""
    runs, selected = scene.visible_runs, scene.selected
    table = align_cells(list_run_rows(runs))
    at = next((at for at, run in enumerate(runs) if run is selected), 0)
    there = compute_visible_range(len(runs), at, max(1, lines - 1))
    rows = [make_row(Span("  " + "  ".join(table[0]).rstrip(), TextStyle.UNIT))]
    for each in there:
        mine, is_live = each == at, scene.find_live(runs[each]) is not None
        tone = TextStyle.STRONG if mine else TextStyle.VALUE
        row = make_row(
            Span("▸ " if mine else "  ", TextStyle.ACCENT),
            Span("  ".join(table[each + 1]).rstrip(), tone),
            *((Span("   ◐ measuring", TextStyle.ATTENTION),) if is_live else ()),
        )
        rows.append(truncate_row(row, columns))
    return rows, 1, there
