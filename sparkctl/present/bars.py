"""Bars and trends in one row: memory in four textures, a curve in eighths of a cell."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from sparkctl.model.sample import MemoryBar
from sparkctl.present.spans import Row, Span, Tone

_PARTS = (("█", "#", Tone.GPU), ("▓", "=", Tone.OTHER), ("▒", "-", Tone.CACHE), ("░", ".", Tone.FREE))
_STEPS, _ASCII_STEPS = "▁▂▃▄▅▆▇█", "_.-~=+*#"


def memory_bar(bar: MemoryBar, columns: int, ascii_only: bool = False) -> Row:
    """Return GPU, other, cache and free, always in this order, each with a texture of its own.

    A part that is there but smaller than half a cell still gets one where the others can spare it.
    """
    sizes = (bar.gpu_processes or 0, bar.other_used, bar.page_cache, bar.free)
    counts = _shares(sizes, max(1, bar.total), columns)
    return tuple(
        Span((plain if ascii_only else mark) * count, tone)
        for (mark, plain, tone), count in zip(_PARTS, counts, strict=True)
        if count
    )


def _shares(sizes: Sequence[int], total: int, columns: int) -> list[int]:
    counts, upto = [], 0
    for size in sizes:
        start, upto = round(upto * columns / total), upto + size
        counts.append(max(0, min(columns, round(upto * columns / total)) - start))
    for at, size in enumerate(sizes):
        largest = counts.index(max(counts))
        if size * 200 > total and not counts[at] and counts[largest] > 2:
            counts[at], counts[largest] = 1, counts[largest] - 1
    return counts


def legend(ascii_only: bool = False) -> dict[Tone, str]:
    """Return the texture of each part."""
    return {tone: plain if ascii_only else mark for mark, plain, tone in _PARTS}


def trend(values: Sequence[float | None], least: float, most: float, ascii_only: bool = False) -> Row:
    """Return a curve, a cell a value, between ``least`` and ``most``; what is not known is a faint dot."""
    steps, gap = (_ASCII_STEPS, " ") if ascii_only else (_STEPS, "·")
    spread = most - least

    def mark(value: float | None) -> str:
        if value is None:
            return gap
        share = 0.0 if spread <= 0 else (value - least) / spread
        return steps[min(len(steps) - 1, max(0, int(share * len(steps))))]

    groups = groupby(values, key=lambda value: value is None)
    return tuple(Span("".join(map(mark, group)), Tone.FRAME if unknown else Tone.ACCENT) for unknown, group in groups)
