"""A Spark before a switch and after it: who stops, who stays, who comes, and its memory in the same four textures. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sparkctl.model.node import NodeName
from sparkctl.model.sample import MemoryBar
from sparkctl.model.switch_plan import NodeSwitchPlan, SwitchConflict, SwitchContainer, SwitchPlan
from sparkctl.model.units import GIB, format_gib
from sparkctl.views.switch_memory import memory_after_switch, memory_before_switch
from sparkctl.views.switch_words import describe_conflicts
from sparkctl.views.text.charts import memory_bar_symbols, render_memory_bar_line
from sparkctl.views.text.frame_layout import draw_frame
from sparkctl.views.text.styled_text import (
    Span,
    TextRow,
    TextStyle,
    justify_row,
    make_row,
    row_width,
    sanitized,
    truncate_row,
)
from sparkctl.views.text.wrap import wrap_rows

WIDE = 110  # columns from which on before and after stand beside each other
_LABEL = 7
_BESIDE = 27  # columns of what stands beside a bar: ≈ 102.8 of 121.7 GiB est.
_WIDEST_BAR = 44


def render_switch_plan(
    plan: SwitchPlan, bars: Mapping[NodeName, MemoryBar], columns: int, ascii_only: bool = False, *, has_begun: bool = False
) -> list[TextRow]:  # fmt: skip
    """Return every Spark of a plan before and after; ``bars`` is their memory as it was last seen, where it was. What was
    before is now as long as nothing ``has_begun``."""
    make = _render_columns if columns >= WIDE else _render_stacked
    was = "before" if has_begun else "now"
    return [each for change in plan.changes for each in make(change, bars, columns, ascii_only, was)]


def _render_columns(
    change: NodeSwitchPlan, bars: Mapping[NodeName, MemoryBar], columns: int, ascii_only: bool, was: str
) -> list[TextRow]:
    arrow = " > " if ascii_only else " → "
    left, right = (columns - len(arrow)) // 2, columns - len(arrow) - (columns - len(arrow)) // 2
    sides = [_render_before(change, bars, left - 4, ascii_only), _render_after(change, bars, right - 4, ascii_only)]
    lines = max(map(len, sides)) + 2
    titles = (
        make_row(sanitized(change.node, TextStyle.TITLE), Span(f" {was}", TextStyle.LABEL)),
        make_row(sanitized(change.node, TextStyle.TITLE), Span(" afterwards", TextStyle.LABEL)),
    )
    now, then = (
        draw_frame(title, side, wide, lines, chosen=False, ascii_only=ascii_only)
        for title, side, wide in zip(titles, sides, (left, right), strict=True)
    )
    gaps = [Span(arrow if at == lines // 2 else " " * len(arrow), TextStyle.ACCENT) for at in range(lines)]
    return [(*one, gap, *other) for one, gap, other in zip(now, gaps, then, strict=True)]


def _render_stacked(
    change: NodeSwitchPlan, bars: Mapping[NodeName, MemoryBar], columns: int, ascii_only: bool, was: str
) -> list[TextRow]:
    now, then = (
        make(change, bars, columns - 4, ascii_only, name)
        for make, name in ((_render_before, was), (_render_after, "then"))
    )
    body = [*now, *then]
    title = make_row(sanitized(change.node, TextStyle.TITLE), Span(f" {was}, and afterwards", TextStyle.LABEL))
    return list(draw_frame(title, body, columns, len(body) + 2, chosen=False, ascii_only=ascii_only))


def _render_before(
    change: NodeSwitchPlan, bars: Mapping[NodeName, MemoryBar], columns: int, ascii_only: bool, name: str = "memory"
) -> list[TextRow]:
    rows = _memory(name, memory_before_switch(change, bars), columns, ascii_only)
    if not change.tenants:
        rows.append(make_row(" " * _LABEL, Span("nothing runs here", TextStyle.STALE)))
    for one in change.tenants:
        rows.append(_render_instance(one, columns, "stops" if one.goes else "stays"))
        if one.goes:
            why = make_row(Span(" " * (_LABEL + 2) + describe_conflicts(one.conflicts), TextStyle.LABEL))
            rows += wrap_rows([why], columns)
    return rows


def _render_after(
    change: NodeSwitchPlan, bars: Mapping[NodeName, MemoryBar], columns: int, ascii_only: bool, name: str = "memory"
) -> list[TextRow]:
    rows = _memory(name, memory_after_switch(change, bars), columns, ascii_only, is_expected=True)
    rows += [_render_instance(one, columns, "stays") for one in change.stays]
    if change.starts is not None:
        need = None if change.fit is None else change.fit.need
        size = "" if need is None else f"{'~' if ascii_only else '≈'} {format_gib(need)} est.  "
        left = make_row(" " * _LABEL, Span("+ ", TextStyle.GOOD), sanitized(change.starts, TextStyle.TITLE))
        rows.append(justify_row(left, make_row(Span(size, TextStyle.UNIT), Span("starts", TextStyle.GOOD)), columns))
    elif change.is_free_after:
        rows.append(make_row(" " * _LABEL, Span(f"{'o' if ascii_only else '○'} nothing: it is free", TextStyle.GOOD)))
    return rows


def _render_instance(one: SwitchContainer, columns: int, does: str) -> TextRow:
    goes = does == "stops"
    rank = f"  rank {one.rank.replace('/', ' of ')}" if one.rank else ""
    whose = "" if one.ours else "  not sparkctl's"
    port = f"  :{one.port}" if one.port is not None and SwitchConflict.PORT in one.conflicts else ""
    left = make_row(
        " " * _LABEL, Span("- " if goes else "= ", TextStyle.ATTENTION if goes else TextStyle.LABEL),
        sanitized(one.instance, TextStyle.TITLE), sanitized(f"{port}{rank}{whose}", TextStyle.LABEL),
    )  # fmt: skip
    held = "" if one.held is None else f"{format_gib(one.held)}  "
    return justify_row(
        left,
        make_row(Span(held, TextStyle.UNIT), Span(does, TextStyle.ATTENTION if goes else TextStyle.LABEL)),
        columns,
    )


# --- memory -----------------------------------------------------------------------------------------------------------


def _memory(
    name: str, bar: MemoryBar | None, columns: int, ascii_only: bool, is_expected: bool = False
) -> list[TextRow]:
    if bar is None:
        return [make_row(Span(f"{name:<{_LABEL}}", TextStyle.LABEL), Span("not known", TextStyle.STALE))]
    wide = max(4, min(_WIDEST_BAR, columns - _LABEL - _BESIDE))
    first = render_memory_bar_line(f"{name:<{_LABEL}}", bar, wide, ascii_only, is_expected=is_expected)
    return [first, _shares(bar, columns, ascii_only)]


def _shares(bar: MemoryBar, columns: int, ascii_only: bool) -> TextRow:
    """Return the four parts in figures, each with its texture; with fewer words where it is narrow."""
    marks = memory_bar_symbols(ascii_only)
    parts: Sequence[tuple[TextStyle, str, int | None]] = (
        (TextStyle.GPU, "GPU", bar.gpu_processes),
        (TextStyle.OTHER, "other", bar.other_used),
        (TextStyle.CACHE, "cache", bar.page_cache),
        (TextStyle.FREE, "free", bar.free),
    )
    made: TextRow = ()
    for decimals, gap in ((1, "  "), (0, "  "), (0, " ")):
        spans: list[Span] = [Span(" " * _LABEL)]
        for at, (tone, name, amount) in enumerate(parts):
            figure = "—" if amount is None else f"{amount / GIB:.{decimals}f}"
            spans += [
                Span((gap if at else "") + marks[tone], tone),
                Span(f" {name} ", TextStyle.LABEL),
                Span(figure, TextStyle.VALUE),
            ]
        made = tuple(spans)
        if row_width(made) <= columns:
            break
    return truncate_row(made, columns)
