"""Bars and curves as text, and the blocks of rows in which they stand, as tall as there is room."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.text.units import GIB
from sparkctl.views.text.styled_text import Span, TextRow, TextStyle, measure_row, restyle_row, truncate_row

if TYPE_CHECKING:
    from sparkctl.model.sample import MemoryBar

_MEMORY_TEXTURES = (
    ("█", TextStyle.GPU),
    ("▓", TextStyle.OTHER),
    ("▒", TextStyle.CACHE),
    ("░", TextStyle.FREE),
)
_CELL_DOT_ROWS = 4  # rows of dots in a braille cell, which has two columns
_ALL_DOTS_MASK = (1 << _CELL_DOT_ROWS) - 1
(
    _LEFT_DOT_BITS,
    _RIGHT_DOT_BITS,
) = (  # offset of the braille code point for each set of dots; the lowest dot is the lowest bit
    tuple(sum(sign for at, sign in enumerate(signs) if dots >> at & 1) for dots in range(_ALL_DOTS_MASK + 1))
    for signs in ((0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08))
)
_BRAILLE_SYMBOLS = " " + "".join(map(chr, range(0x2801, 0x2900)))
_RUN_PATTERN = re.compile(" +|[^ ]+")
_ROUND_STEPS = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
_CACHED_AREAS = 16  # filled curves, of which the new ones of each picture take some KiB
_CACHED_CURVES = 64  # curves of one row in one picture; it is painted more often than they change
_CACHED_CELLS = 4096  # of filled curves: with a new reading all of them move to the left, and few are new

ChartValues = Sequence[float | None]
DangerLimits = tuple[float, float]  # from which value on a curve or a gauge warns, and from which it is bad


def render_memory_bar(bar: MemoryBar, columns: int) -> TextRow:
    """Return the memory bar: GPU, other, cache and free, always in this order, each with its own texture.

    A part smaller than half a cell still gets a cell if the others can spare it.
    """
    sizes = (bar.gpu_processes or 0, bar.other_used, bar.page_cache, bar.free)
    counts = _distribute_columns(sizes, max(1, bar.total), columns)
    return tuple(
        Span(mark * count, tone) for (mark, tone), count in zip(_MEMORY_TEXTURES, counts, strict=True) if count
    )


def render_memory_bar_line(label: str, bar: MemoryBar, columns: int, *, is_expected: bool = False) -> TextRow:
    """Return ``then ████▓▓░░░ ≈ 105.8 of 121.7 GiB est.``: the bar in this many columns, and the used memory (GPU and
    other); more than the total stands out. ``is_expected``: it is an estimate."""
    used = (bar.gpu_processes or 0) + bar.other_used
    is_over = used > bar.total
    sign = "≈" if is_expected else " "
    over = (Span("▶", TextStyle.BAD),) if is_over else ()
    return (
        Span(label, TextStyle.LABEL),
        *render_memory_bar(bar, columns - is_over),
        *over,
        Span(f" {sign}{used / GIB:6.1f}", TextStyle.BAD if is_over else TextStyle.STRONG),
        Span(f" of {bar.total / GIB:.1f} GiB{' est.' if is_expected else ''}", TextStyle.UNIT),
    )


def render_claim_bar(memory: int, claimed: int | None, total: int, columns: int, tolerance: float) -> TextRow:
    """Return the memory held of ``total`` on the scale of the memory bar. Memory claimed but not yet held is faint;
    memory beyond ``tolerance`` times the claim stands out. A mark shows the end of the claim."""
    within = memory if claimed is None or memory <= tolerance * claimed else claimed
    ends = [within, max(memory, within), max(memory, claimed or 0)]
    places = [max(0, min(columns, round(end * columns / max(1, total)))) for end in ends]
    counts = (places[0], places[1] - places[0], places[2] - places[1], columns - places[2])
    parts = zip(
        "██░ ",
        (TextStyle.GPU, TextStyle.ATTENTION, TextStyle.FREE, TextStyle.PLAIN),
        counts,
        strict=True,
    )
    made = tuple(Span(mark * count, tone) for mark, tone, count in parts if count)
    if claimed is None or not 0 < claimed <= total or columns < 8:
        return made
    return _replace_character(made, max(0, round(claimed * columns / total) - 1), Span("▐", TextStyle.STRONG))


def _replace_character(spans: TextRow, at: int, mark: Span) -> TextRow:
    """Return the row with ``mark`` in place of the character at ``at``."""
    made: list[Span] = []
    for span in spans:
        here, at = at, at - len(span.text)
        if 0 <= here < len(span.text):
            parts = (Span(span.text[:here], span.tone), mark, Span(span.text[here + 1 :], span.tone))
            made += [part for part in parts if part.text]
        else:
            made.append(span)
    return tuple(made)


def _distribute_columns(sizes: Sequence[int], total: int, columns: int) -> list[int]:
    counts, upto = [], 0
    for size in sizes:
        start, upto = round(upto * columns / total), upto + size
        counts.append(max(0, min(columns, round(upto * columns / total)) - start))
    for at, size in enumerate(sizes):
        largest = counts.index(max(counts))
        if size * 200 > total and not counts[at] and counts[largest] > 2:
            counts[at], counts[largest] = 1, counts[largest] - 1
    return counts


def render_memory_legend(bar: MemoryBar, columns: int, forms: Sequence[tuple[int, str, int, int]]) -> TextRow:
    """Return the four parts of memory in GiB, each with its texture: the legend of the bar.

    ``forms``: the forms from the widest to the narrowest, of which the first that fits is used: its indent, the gap
    between two parts, the width of a figure and its decimals (none from 100 GiB on where figures have a width).
    """
    parts = (
        (TextStyle.GPU, "GPU", bar.gpu_processes),
        (TextStyle.OTHER, "other", bar.other_used),
        (TextStyle.CACHE, "cache", bar.page_cache),
        (TextStyle.FREE, "free", bar.free),
    )
    marks = {tone: mark for mark, tone in _MEMORY_TEXTURES}
    made: TextRow = ()
    for indent, gap, wide, places in forms:
        spans: list[Span] = [Span(" " * indent)]
        for at, (tone, name, size) in enumerate(parts):
            spans += [Span((gap if at else "") + marks[tone], tone), Span(f" {name} ", TextStyle.LABEL)]
            decimals = 0 if wide and size is not None and size / GIB >= 99.95 else places
            figure = "—" if size is None else f"{size / GIB:.{decimals}f}"
            spans.append(Span(f"{figure:>{wide}}", TextStyle.VALUE))
        made = tuple(spans)
        if measure_row(made) <= columns:
            break
    return truncate_row(made, columns)


def render_gauge(
    share: float, columns: int, tone: TextStyle = TextStyle.ACCENT, danger: DangerLimits | None = None
) -> TextRow:
    """Return a share 0..1 as a thin line on a faint one, in half cells. The part of the line beyond the limits of ``danger``, shares
    too, has the colour of a warning, then of a problem."""
    share = min(1.0, max(0.0, share))
    halves = round(share * columns * 2)
    full, half = divmod(halves, 2)
    line, rest = "━" * full + "╸" * half, Span("─" * (columns - full - half), TextStyle.FRAME)
    if danger is None:
        return Span(line, tone), rest
    ends = [round(limit * columns) for limit in danger]
    parts = zip(
        (line[: ends[0]], line[ends[0] : ends[1]], line[ends[1] :]),
        (tone, TextStyle.ATTENTION, TextStyle.BAD),
        strict=True,
    )
    return (*(Span(text, style) for text, style in parts if text), rest)


# --- curves -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AxisScale:
    """The lower and upper end of a curve's axis."""

    least: float
    most: float


def fit_axis_scale(values: ChartValues, least_spread: float, floor: float = 0.0) -> AxisScale | None:
    """Return the scale from the smallest to the largest value, at least ``least_spread`` wide and not below
    ``floor``, so that constant values give a line in the middle; None if nothing is known."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    low, high = min(known), max(known)
    if (missing := least_spread - (high - low)) > 0:
        low, high = low - missing / 2, high + missing / 2
        if low < floor:
            low, high = floor, max(high, floor + least_spread)
    return AxisScale(low, high)


def round_above(value: float, least: float) -> float:
    """Return the next round number from ``value`` on, at least ``least``: a scale's end that rarely changes."""
    value = max(value, least)
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in _ROUND_STEPS if step * power >= value * (1 - 1e-9))


def render_sparkline(values: ChartValues, scale: AxisScale, tone: TextStyle = TextStyle.ACCENT) -> TextRow:
    """Return a curve in one row, two values per cell; unknown values are gaps."""
    return _render_curve(tuple(_compute_dot_levels(values, scale, _CELL_DOT_ROWS)), tone)


@lru_cache(_CACHED_CURVES)
def _render_curve(dots: tuple[int | None, ...], tone: TextStyle) -> TextRow:
    return _paint_line_row(_compute_dot_strokes(dots), tone)


def render_area_chart(
    values: ChartValues,
    scale: AxisScale,
    height: int,
    tone: TextStyle = TextStyle.ACCENT,
    danger: DangerLimits | None = None,
) -> tuple[TextRow, ...]:
    """Return a filled curve of ``height`` rows in a hue, the highest first, two values per cell; unknown values are
    gaps. Where it comes near the limits of ``danger``, it goes over into the colour of a warning, and then of a problem, the higher
    the more."""
    tops = _compute_dot_levels(values, scale, _CELL_DOT_ROWS * height)
    strokes = [0 if top is None else (2 << top) - 1 for top in tops]
    if len(strokes) % 2:
        strokes.append(0)
    levels = [0] * (len(strokes) // 2)
    if danger is not None and _rate_danger(max((value for value in values if value is not None), default=0.0), danger):
        levels = [_rate_danger(max(pair, default=0.0), danger) for pair in _pair_known_values(values)]
    return _paint_area(tuple(strokes), tuple(levels), height, tone)


@lru_cache(_CACHED_AREAS)
def _paint_area(strokes: tuple[int, ...], levels: tuple[int, ...], height: int, tone: TextStyle) -> tuple[TextRow, ...]:
    cells = [
        _paint_area_cell(left, right, level, height, tone)
        for left, right, level in zip(strokes[::2], strokes[1::2], levels, strict=True)
    ]
    return tuple(map(_join_cells, zip(*cells, strict=True))) if cells else ((),) * height


def _join_cells(cells: Sequence[Span]) -> TextRow:
    """Return a row with one span for the cells beside each other that have one style."""
    return tuple(Span("".join([text for text, _ in run]), tone) for tone, run in groupby(cells, itemgetter(1)))


def _rate_danger(value: float, danger: DangerLimits) -> int:
    """Return the place of a value in `_DANGER_RAMPS`: 0 far below the limits, 2 a warning, 4 a problem."""
    warns, bad = danger
    half = (bad - warns) / 2
    return sum(value >= limit for limit in (warns - half, warns, warns + half, bad))


def _pair_known_values(values: ChartValues) -> list[list[float]]:
    """Return the known values of each cell."""
    return [[value for value in values[at : at + 2] if value is not None] for at in range(0, len(values), 2)]


def fill_gaps(values: ChartValues, most: int) -> list[float | None]:
    """Return the values with gaps of at most ``most`` filled evenly: an interval between two readings is no gap."""
    found = list(values)
    before: int | None = None
    for at, value in enumerate(values):
        if value is None:
            continue
        if before is not None and 1 < at - before <= most + 1:
            start = values[before] or 0.0
            for step in range(1, at - before):
                found[before + step] = start + (value - start) * step / (at - before)
        before = at
    return found


def _compute_dot_levels(values: ChartValues, scale: AxisScale, dots: int) -> list[int | None]:
    """Return for each value the level of its highest dot, counted from 0."""
    least, spread, top = scale.least, scale.most - scale.least, dots - 1
    if spread <= 0:
        return [None if value is None else int(0.5 * dots) for value in values]
    levels: list[int | None] = []
    for value in values:  # thousands of them a second: no call of min and max
        if value is None:
            levels.append(None)
        else:
            level = int((value - least) / spread * dots)
            levels.append(0 if level < 0 else top if level > top else level)
    return levels


def _compute_dot_strokes(levels: Sequence[int | None]) -> list[int]:
    """Return each value's dots as bits, the lowest first. A line is connected to the previous dot."""
    strokes: list[int] = []
    before: int | None = None
    for level in levels:
        if level is None:
            strokes.append(0)
        else:
            low, high = _connect_dots(level, before)
            strokes.append((1 << high) - (1 << low))
        before = level
    return [*strokes, 0] if len(strokes) % 2 else strokes


def _paint_line_row(strokes: Sequence[int], tone: TextStyle) -> TextRow:
    """Return a line in one row."""
    marks = "".join(
        _BRAILLE_SYMBOLS[_LEFT_DOT_BITS[left & _ALL_DOTS_MASK] | _RIGHT_DOT_BITS[right & _ALL_DOTS_MASK]]
        for left, right in zip(strokes[::2], strokes[1::2], strict=True)
    )
    return tuple(Span(run, TextStyle.PLAIN if run[0] == " " else tone) for run in _RUN_PATTERN.findall(marks))


_BODY_STYLES = {
    TextStyle.ACCENT: TextStyle.BODY,
    TextStyle.GPU: TextStyle.MEMORY_BODY,
    TextStyle.RATE: TextStyle.RATE_BODY,
    TextStyle.POWER: TextStyle.POWER_BODY,
    TextStyle.LINK: TextStyle.LINK_BODY,
    TextStyle.MEMORY_WARM: TextStyle.MEMORY_WARM_BODY,
    TextStyle.POWER_WARM: TextStyle.POWER_WARM_BODY,
    TextStyle.ATTENTION: TextStyle.ATTENTION_BODY,
    TextStyle.HOT: TextStyle.HOT_BODY,
    TextStyle.BAD: TextStyle.BAD_BODY,
}
_WARM_STYLES = {TextStyle.GPU: TextStyle.MEMORY_WARM, TextStyle.POWER: TextStyle.POWER_WARM}
_DANGER_RAMPS = {
    tone: (tone, _WARM_STYLES.get(tone, tone), TextStyle.ATTENTION, TextStyle.HOT, TextStyle.BAD)
    for tone in _BODY_STYLES
}


@lru_cache(_CACHED_CELLS)
def _paint_area_cell(left: int, right: int, level: int, height: int, tone: TextStyle) -> tuple[Span, ...]:
    """Return a cell of each of the ``height`` rows of a filled curve, the highest first, for the strokes of two values; the area
    below the line is fainter. ``level``: how dangerous it is at its top; below it goes over into the curve's hue."""
    ramp = _DANGER_RAMPS[tone]
    cells = []
    for shift in reversed(range(0, _CELL_DOT_ROWS * height, _CELL_DOT_ROWS)):
        mark = _BRAILLE_SYMBOLS[
            _LEFT_DOT_BITS[left >> shift & _ALL_DOTS_MASK] | _RIGHT_DOT_BITS[right >> shift & _ALL_DOTS_MASK]
        ]
        whole = _ALL_DOTS_MASK << shift | 1 << shift + _CELL_DOT_ROWS  # the whole cell, and a dot above it
        is_body = left & right & whole == whole
        style = (
            ramp[round(level * min(1.0, (shift + _CELL_DOT_ROWS) / max(left, right).bit_length()))] if level else tone
        )
        cells.append(Span(mark, TextStyle.PLAIN if mark == " " else _BODY_STYLES[style] if is_body else style))
    return tuple(cells)


def _connect_dots(level: int, before: int | None) -> tuple[int, int]:
    """Return the range of dots (first, end) of a column, so that the line has no break."""
    if before is None or before == level:
        return level, level + 1
    return (before + 1, level + 1) if before < level else (level, before)


BLANK_DROP_PRIORITY = 9  # priority of an empty row; it is dropped first


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBlock:
    """Rows that stay together. Blocks with a higher ``spare`` are left out first. For a chart, ``grow`` renders it in
    more rows, up to ``tallest``, if there is room. ``slot`` identifies the chart, so that charts of several Sparks
    get the same height. ``below``: in place of ``rows`` where the chart of ``slot`` above them is taller than one row."""

    spare: int
    rows: tuple[TextRow, ...]
    grow: Callable[[int], tuple[TextRow, ...]] | None = None
    slot: str = ""
    tallest: int = 1
    below: tuple[TextRow, ...] = ()


def make_block(spare: int, *rows: TextRow) -> RowBlock:
    return RowBlock(spare=spare, rows=rows)


def dim_blocks(blocks: Sequence[RowBlock]) -> list[RowBlock]:
    """Return blocks that are no longer sure: faint, and left out a little earlier."""
    return [make_block(one.spare + 1, *(restyle_row(each, TextStyle.STALE) for each in one.rows)) for one in blocks]


@dataclass(frozen=True, slots=True)
class TileSections:
    """The sections of a tile, which begin in the same row of all tiles. Not ``is_plain``: only the last one is aligned."""

    groups: tuple[tuple[RowBlock, ...], ...]
    is_plain: bool

    @property
    def parts(self) -> list[RowBlock]:
        """All parts in order."""
        return [part for group in self.groups for part in group]


def count_needed_rows(tiles: Sequence[TileSections]) -> int:
    """Return how many rows the parts can use."""
    return _count_total_rows(_group_parts(tiles), dict(_list_curves(tiles)))


def align_sections(tiles: Sequence[TileSections], room: int) -> list[list[TextRow]]:
    """Return at most ``room`` aligned rows of each tile, the most important if not all fit; the GPU is at the bottom."""
    grouped = _group_parts(tiles)
    curves = _list_curves(tiles)
    tight = [[[part for part in group if any(part.rows) or part.grow is not None] for group in one] for one in grouped]
    for kept, least in ((grouped, len(curves)), (tight, 0)):  # a row of each curve comes before a blank one
        spare = room - _count_total_rows(kept, {})
        if spare >= least:
            heights = distribute_chart_rows(curves, spare)
            # A tile without one of the curves may leave rows over. What it gets more makes no tile taller than that.
            while (left := room - _count_total_rows(kept, heights)) > 0:
                spare, before = spare + left, heights
                if (heights := distribute_chart_rows(curves, spare)) == before:
                    break
            return _lay_out_groups(kept, heights)
    return [_anchor_last_group(one, room) for one in tiles]


def distribute_chart_rows(curves: Sequence[tuple[str, int]], spare: int) -> dict[str, int]:
    """Return each chart's height, given its largest: one row each, the first ones first, then more, evenly."""
    heights = {slot: int(at < spare) for at, (slot, _) in enumerate(curves)}
    spare -= sum(heights.values())
    while spare > 0 and (open_ := [slot for slot, limit in curves if heights[slot] < limit]):
        heights[min(open_, key=heights.__getitem__)] += 1
        spare -= 1
    return heights


def expand_charts(parts: Sequence[RowBlock], room: int) -> list[RowBlock]:
    """Return the parts of one tile with its charts as tall as there is room for."""
    spare = room - sum(len(part.rows) for part in parts if part.grow is None)
    heights = distribute_chart_rows([(part.slot, part.tallest) for part in parts if part.grow is not None], spare)
    return [make_block(part.spare, *_render_block(part, heights)) for part in parts]


def drop_least_important(parts: Sequence[RowBlock], room: int) -> list[TextRow]:
    """Drop the least important parts until the rest fits; the order stays."""
    kept = list(parts)
    while kept and sum(len(part.rows) for part in kept) > room:
        worst = max(range(len(kept)), key=lambda at: (kept[at].spare, at))
        if len(kept) == 1:
            return list(kept[0].rows[:room])
        del kept[worst]
    rows = [each for part in kept for each in part.rows]
    while rows and not rows[-1]:
        rows.pop()
    return rows


def _group_parts(tiles: Sequence[TileSections]) -> list[list[list[RowBlock]]]:
    if all(one.is_plain for one in tiles):
        return [[list(group) for group in one.groups] for one in tiles]
    return [
        [[part for group in one.groups[:-1] for part in group], list(one.groups[-1]) if one.groups else []]
        for one in tiles
    ]


def _list_curves(tiles: Sequence[TileSections]) -> list[tuple[str, int]]:
    """Return the charts of all tiles from top to bottom, each with its largest height."""
    tallest: dict[str, int] = {}
    order = ("memory", "speed", "gpu", "power")
    for part in (part for one in tiles for part in one.parts if part.grow is not None):
        tallest[part.slot] = max(part.tallest, tallest.get(part.slot, 1))
    return sorted(tallest.items(), key=lambda one: order.index(one[0]) if one[0] in order else len(order))


def _count_block_rows(part: RowBlock, heights: dict[str, int]) -> int:
    return len(part.rows) if part.grow is None else heights.get(part.slot, 0)


def _render_block(part: RowBlock, heights: dict[str, int]) -> tuple[TextRow, ...]:
    height = heights.get(part.slot, 0)
    if part.grow is None:
        return part.below if part.below and height > 1 else part.rows
    return part.grow(height) if height else ()


def _count_total_rows(tiles: Sequence[Sequence[Sequence[RowBlock]]], heights: dict[str, int]) -> int:
    return sum(_count_tallest_rows(groups, heights) for groups in zip(*_equalize_groups(tiles), strict=True))


def _count_tallest_rows(groups: Sequence[Sequence[RowBlock]], heights: dict[str, int]) -> int:
    return max(sum(_count_block_rows(part, heights) for part in group) for group in groups)


def _equalize_groups(tiles: Sequence[Sequence[Sequence[RowBlock]]]) -> list[list[Sequence[RowBlock]]]:
    most = max((len(groups) for groups in tiles), default=0)
    return [[*groups, *([()] * (most - len(groups)))] for groups in tiles]


def _lay_out_groups(tiles: Sequence[Sequence[Sequence[RowBlock]]], heights: dict[str, int]) -> list[list[TextRow]]:
    laid: list[list[TextRow]] = [[] for _ in tiles]
    for groups in zip(*_equalize_groups(tiles), strict=True):
        tall = _count_tallest_rows(groups, heights)
        for rows, group in zip(laid, groups, strict=True):
            mine = [each for part in group for each in _render_block(part, heights)]
            rows += [*mine, *([()] * (tall - len(mine)))]
    return laid


def _anchor_last_group(one: TileSections, room: int) -> list[TextRow]:
    parts = [part for part in one.parts if part.grow is None or part.rows]
    rows = drop_least_important(parts, room)
    last = [each for part in (one.groups[-1] if one.groups else ()) if part.grow is None for each in part.rows]
    if last and rows[-len(last) :] == last:
        rows[-len(last) :] = [*([()] * (room - len(rows))), *last]
    return rows
