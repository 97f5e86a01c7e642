"""Charts of a tile over the last 15 minutes: throughput, GPU utilisation, GPU power and memory.

All curves start at zero, so that half the height is half the value on each Spark and at any time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sparkctl.model.instance import InstanceView
from sparkctl.model.sample import MemoryBar
from sparkctl.model.text.units import GIB
from sparkctl.monitor.sample_series import SeriesName
from sparkctl.views import meter_view as words
from sparkctl.views.overview.tile_model import NodeTileModel
from sparkctl.views.overview.tile_rows import DrawArea, RowBlock, choose_chart_minutes, fill_series_gaps, make_label
from sparkctl.views.text.charts import (
    AxisScale,
    fit_axis_scale,
    list_memory_bar_symbols,
    render_area_chart,
    render_line_chart,
    render_memory_bar,
    render_sparkline,
    round_above,
)
from sparkctl.views.text.styled_text import Span, TextRow, TextStyle, make_row, measure_row

MAX_CHART_ROWS = 6  # largest height of a curve; the same for all values, so that rows below do not move
_CHART_DROP_PRIORITY = 9
_MIN_RATE_SCALE, _MIN_POWER_SCALE = 10.0, 40.0  # smallest upper end of a scale, in tok/s and W
_FULL_PERCENT = 100.0


def build_throughput_chart(one: InstanceView, seen: NodeTileModel, space: DrawArea) -> RowBlock | None:
    """Return the curve of the throughput, None if there is no reading."""
    drafting = seen.drafting.get(one.container_id or "")
    if drafting is None:
        return None
    seconds = choose_chart_minutes(seen) * 60.0
    rates = fill_series_gaps(drafting.get_generation_rates(seen.now, seconds, space.bar_columns * 2), seconds)
    said = (
        None if one.numbers is None else one.numbers.generation_rate
    )  # the scale includes the figure beside the curve
    most = max((rate for rate in (*rates, said) if rate is not None), default=0.0)
    return _build_chart_block("speed", "", rates, round_above(most, _MIN_RATE_SCALE), "tok/s", space)


def build_gpu_charts(seen: NodeTileModel, space: DrawArea) -> list[RowBlock]:
    """Return the curves of GPU utilisation and power, as far as known."""
    busy = _read_series(seen, SeriesName.GPU_BUSY, space.bar_columns * 2)
    shares = [None if share is None else share * 100 for share in busy]
    power = _read_series(seen, SeriesName.POWER, space.bar_columns * 2)
    most = seen.most_power or compute_power_scale([seen])
    parts = (
        _build_chart_block("gpu", "", shares, _FULL_PERCENT, "%", space),
        _build_chart_block("power", "power", power, most or _MIN_POWER_SCALE, "W", space),
    )
    return [part for part in parts if part is not None]


def compute_power_scale(glances: Iterable[NodeTileModel]) -> float | None:
    """Return the upper end in watts of all power curves, which share one scale; None if nothing is known."""
    known = [watts for seen in glances for watts in _list_watts(seen)]
    return round_above(max(known), _MIN_POWER_SCALE) if known else None


def _list_watts(seen: NodeTileModel) -> list[float]:
    gpus = () if seen.view.sample is None else seen.view.sample.gpus or ()
    spreads = (
        () if seen.rings is None else seen.rings.get_buckets(SeriesName.POWER, choose_chart_minutes(seen) * 60.0, 60)
    )
    now = [gpu.power for gpu in gpus if gpu.power is not None]
    return [spread.most for spread in spreads if spread is not None] + now


def _read_series(seen: NodeTileModel, series: SeriesName, count: int) -> list[float | None]:
    if seen.rings is None:
        return []
    seconds = choose_chart_minutes(seen) * 60.0
    spreads = seen.rings.get_buckets(series, seconds, count)
    return fill_series_gaps([None if spread is None else spread.mean for spread in spreads], seconds)


def _build_chart_block(
    slot: str, name: str, values: Sequence[float | None], most: float, unit: str, space: DrawArea
) -> RowBlock | None:
    """Return a curve with the ends of its scale beside it."""
    if all(value is None for value in values):
        return None
    scale = AxisScale(0.0, most)

    def render_height(height: int) -> tuple[TextRow, ...]:
        rows = [make_row(make_label(""), *each) for each in render_line_chart(values, scale, height)]
        upto = f"0–{most:.0f} {unit}" if height == 1 else f"{most:5.0f} {unit}"
        rows[0] = make_row(make_label(name), *rows[0][1:], Span(f"  {upto}", TextStyle.UNIT))
        if height > 1:
            rows[-1] = make_row(*rows[-1], Span(f"  {0:5.0f}", TextStyle.UNIT))
        return tuple(rows)

    return RowBlock(spare=_CHART_DROP_PRIORITY, rows=(), grow=render_height, slot=slot, tallest=MAX_CHART_ROWS)


_MIN_TREND_BYTES = 8 * GIB  # smallest range of a trend; smaller changes are flat
_MAX_MEMORY_CHART_ROWS = 6  # largest height of its curve; the same for all values, so that rows below do not move
_LOW_MEMORY_BYTES = 2 * GIB  # available memory below which the figure is a warning


def build_memory_groups(seen: NodeTileModel, space: DrawArea) -> list[RowBlock]:
    """Return all rows about memory."""
    shares, course = build_memory_legend(seen, space), build_memory_chart(seen, space)
    return [build_memory_bar(seen, space), *([shares] if shares else []), *([course] if course else [])]


def build_memory_bar(seen: NodeTileModel, space: DrawArea) -> RowBlock:
    """Return the memory bar with the used memory (GPU and other) beside it. Page cache is shown, but never counted as
    used."""
    bar = seen.view.memory
    if bar is None:
        return RowBlock(spare=0, rows=(make_row(make_label("memory"), Span(words.UNKNOWN, TextStyle.STALE)),))
    return RowBlock(
        spare=0,
        rows=(
            make_row(
                make_label("memory"),
                *render_memory_bar(bar, space.bar_columns),
                "  ",
                *format_used_memory(bar),
            ),
        ),
    )


def format_used_memory(bar: MemoryBar) -> TextRow:
    """Return ``98.4 of 121.7 GiB``."""
    used = bar.total - bar.free - bar.page_cache
    tone = TextStyle.BAD if bar.available < _LOW_MEMORY_BYTES else TextStyle.STRONG
    return make_row(Span(f"{used / GIB:5.1f}", tone), Span(f" of {bar.total / GIB:.1f} GiB", TextStyle.UNIT))


def build_memory_legend(seen: NodeTileModel, space: DrawArea) -> RowBlock | None:
    """Return the four parts of memory in figures with their textures: the legend of the bar."""
    bar = seen.view.memory
    if bar is None:
        return None
    marks = list_memory_bar_symbols()
    parts = (
        (TextStyle.GPU, "GPU", bar.gpu_processes),
        (TextStyle.OTHER, "other", bar.other_used),
        (TextStyle.CACHE, "cache", bar.page_cache),
        (TextStyle.FREE, "free", bar.free),
    )
    for gap, indent, decimals in (("  ", 1, 1), (" ", 1, 1), (" ", -1, 1), (" ", 1, 0), (" ", -1, 0)):
        made = _render_memory_shares(parts, marks, gap, decimals, indent)
        if measure_row(made) <= space.columns:
            break
    return RowBlock(spare=3, rows=(made,))


def _render_memory_shares(
    parts: Sequence[tuple[TextStyle, str, int | None]],
    marks: Mapping[TextStyle, str],
    gap: str,
    decimals: int,
    indent: int,
) -> TextRow:
    """Return the legend as one row. ``indent``: columns between the bar's start and the first symbol."""
    spans: list[Span] = [Span(" " * (len(make_label("").text) + indent))]
    for at, (tone, name, size) in enumerate(parts):
        spans += [Span((gap if at else "") + marks[tone], tone), Span(f" {name} ", TextStyle.LABEL)]
        spans.append(Span(_format_gib_figure(size, decimals), TextStyle.VALUE))
    return tuple(spans)


def _format_gib_figure(size: int | None, decimals: int) -> str:
    """Return GiB in four columns, or in three; from 100 on without a decimal."""
    if size is None:
        return f"{words.UNKNOWN:>{3 + decimals}}"
    amount = size / GIB
    return f"{amount:>{3 + decimals}.{decimals if amount < 99.95 else 0}f}"


def build_memory_chart(seen: NodeTileModel, space: DrawArea) -> RowBlock | None:
    """Return used memory over the last minutes, and swap: in one row as a line between its own bounds, in more rows
    as an area from zero to the total."""
    bar, rings = seen.view.memory, seen.rings
    if bar is None or rings is None:
        return None
    wide, total = space.bar_columns, bar.total
    swap = make_row(Span("swap ", TextStyle.LABEL), Span(f"{bar.swap_used / GIB:.1f}", TextStyle.VALUE))
    minutes = choose_chart_minutes(seen)
    available = rings.get_buckets(SeriesName.AVAILABLE, minutes * 60.0, wide * 2)
    used = fill_series_gaps([None if spread is None else total - spread.mean for spread in available], minutes * 60.0)
    name = make_label(f"{minutes} min")

    def render_height(height: int) -> tuple[TextRow, ...]:
        if height == 1:
            return (short,)
        rows = [
            make_row(make_label(""), *each) for each in render_area_chart(used, AxisScale(0.0, float(total)), height)
        ]
        rows[0] = make_row(name, *rows[0][1:], Span(f"  {total / GIB:5.0f} GiB", TextStyle.UNIT))
        rows[-1] = make_row(*rows[-1], Span(f"  {0:5.0f}     ", TextStyle.UNIT), *swap)
        return tuple(rows)

    scale = fit_axis_scale(used, _MIN_TREND_BYTES)
    if scale is None:
        short = make_row(name, " " * wide, "  ", *swap)
        return RowBlock(spare=5, rows=(short,), grow=render_height, slot="memory", tallest=1)
    bounds = f"{scale.least / GIB:.0f}–{scale.most / GIB:.0f}"
    short = make_row(name, *render_sparkline(used, scale), Span(f"  {bounds:<9}", TextStyle.UNIT), *swap)
    return RowBlock(spare=5, rows=(short,), grow=render_height, slot="memory", tallest=_MAX_MEMORY_CHART_ROWS)
