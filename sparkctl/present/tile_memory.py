"""A Spark's memory: the bar, its four parts in figures, and what was used in the last quarter of an hour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sparkctl.core.rings import Series
from sparkctl.model.sample import MemoryBar
from sparkctl.model.units import GIB
from sparkctl.present import numbers as words
from sparkctl.present.bars import Scale, area, curve, legend, memory_bar, scale_of
from sparkctl.present.glance import Glance
from sparkctl.present.spans import Row, Span, Tone, row, width
from sparkctl.present.tile_parts import Part, Space, label, smooth, window

_LEAST = 8 * GIB  # of a trend: what moves less is the same
_TALLEST = 6  # rows of its curve, whatever it shows: what moves must not move what stands below
_SHORT = 2 * GIB  # available: then the figure is a warning


def memory_parts(seen: Glance, space: Space) -> list[Part]:
    """Return all that is known of it."""
    shares, course = share_part(seen, space), trend_part(seen, space)
    return [memory_part(seen, space), *([shares] if shares else []), *([course] if course else [])]


def memory_part(seen: Glance, space: Space) -> Part:
    """Return the bar, and beside it what is really used: GPU and other. Page cache is shown and never counted as used."""
    bar = seen.view.memory
    if bar is None:
        return Part(0, (row(label("memory"), Span(words.UNKNOWN, Tone.STALE)),))
    return Part(0, (row(label("memory"), *memory_bar(bar, space.bar, space.ascii_only), "  ", *used_of(bar)),))


def used_of(bar: MemoryBar) -> Row:
    """Return ``98.4 of 121.7 GiB``."""
    used = bar.total - bar.free - bar.page_cache
    tone = Tone.BAD if bar.available < _SHORT else Tone.STRONG
    return row(Span(f"{used / GIB:5.1f}", tone), Span(f" of {bar.total / GIB:.1f} GiB", Tone.UNIT))


def share_part(seen: Glance, space: Space) -> Part | None:
    """Return the four parts in figures, each with its texture: the legend of the bar."""
    bar = seen.view.memory
    if bar is None:
        return None
    marks = legend(space.ascii_only)
    parts = (
        (Tone.GPU, "GPU", bar.gpu_processes),
        (Tone.OTHER, "other", bar.other_used),
        (Tone.CACHE, "cache", bar.page_cache),
        (Tone.FREE, "free", bar.free),
    )
    for gap, indent, decimals in (("  ", 1, 1), (" ", 1, 1), (" ", -1, 1), (" ", 1, 0), (" ", -1, 0)):
        made = _shares(parts, marks, gap, decimals, indent)
        if width(made) <= space.columns:
            break
    return Part(3, (made,))


def _shares(
    parts: Sequence[tuple[Tone, str, int | None]], marks: Mapping[Tone, str], gap: str, decimals: int, indent: int
) -> Row:
    """``indent``: columns by which the first sign stands beside the bar's begin, so that the two are not one."""
    spans: list[Span] = [Span(" " * (len(label("").text) + indent))]
    for at, (tone, name, size) in enumerate(parts):
        spans += [Span((gap if at else "") + marks[tone], tone), Span(f" {name} ", Tone.LABEL)]
        spans.append(Span(_figure(size, decimals), Tone.VALUE))
    return tuple(spans)


def _figure(size: int | None, decimals: int) -> str:
    """Return GiB in four columns, or in three: from 100 on there is no room for a decimal."""
    if size is None:
        return f"{words.UNKNOWN:>{3 + decimals}}"
    amount = size / GIB
    return f"{amount:>{3 + decimals}.{decimals if amount < 99.95 else 0}f}"


def trend_part(seen: Glance, space: Space) -> Part | None:
    """Return used memory over the last minutes, and swap: in one row as a line between its own bounds, in more
    as an area from nothing to all of it."""
    bar, rings = seen.view.memory, seen.rings
    if bar is None or rings is None:
        return None
    ascii_only, wide, total = space.ascii_only, space.bar, bar.total
    swap = row(Span("swap ", Tone.LABEL), Span(f"{bar.swap_used / GIB:.1f}", Tone.VALUE))
    minutes = window(seen)
    available = rings.cells(Series.AVAILABLE, minutes * 60.0, wide * 2)
    used = smooth([None if spread is None else total - spread.mean for spread in available], minutes * 60.0)
    name = label(f"{minutes} min")

    def tall(height: int) -> tuple[Row, ...]:
        if height == 1:
            return (short,)
        rows = [row(label(""), *each) for each in area(used, Scale(0.0, float(total)), height, ascii_only)]
        rows[0] = row(name, *rows[0][1:], Span(f"  {total / GIB:5.0f} GiB", Tone.UNIT))
        rows[-1] = row(*rows[-1], Span(f"  {0:5.0f}     ", Tone.UNIT), *swap)
        return tuple(rows)

    scale = scale_of(used, _LEAST)
    if scale is None:
        short = row(name, " " * wide, "  ", *swap)
        return Part(5, (short,), tall, "memory", 1)
    dash = "-" if ascii_only else "–"
    bounds = f"{scale.least / GIB:.0f}{dash}{scale.most / GIB:.0f}"
    short = row(name, *curve(used, scale, ascii_only), Span(f"  {bounds:<9}", Tone.UNIT), *swap)
    return Part(5, (short,), tall, "memory", _TALLEST)
