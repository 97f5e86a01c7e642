"""A switch as the command line shows it: each Spark before and after, what stops, what stays, what starts. Pure."""

from __future__ import annotations

from sparkctl.model.sample import MemoryBar
from sparkctl.model.switch_plan import NodeSwitchPlan, SwitchContainer, SwitchPlan
from sparkctl.model.units import format_duration, format_gib
from sparkctl.views.switch_memory import memory_after_switch, memory_before_switch
from sparkctl.views.switch_words import describe_conflicts, describe_rollback_window, summarize_switch_plan
from sparkctl.views.text.charts import render_memory_bar_line
from sparkctl.views.text.styled_text import Span, TextRow, TextStyle, make_row, sanitized

_BAR = 36
_BESIDE_ROW = 40  # columns that the words beside a bar take
_INDENT = " " * 8


def format_switch_plan(plan: SwitchPlan, columns: int = 80, ascii_only: bool = False) -> list[TextRow]:
    """Return the whole plan: a picture of each Spark before and after, then what stands against it."""
    if plan.is_there:
        return [make_row(sanitized(summarize_switch_plan(plan)))]
    rows: list[TextRow] = []
    for change in plan.changes:
        rows += [*format_node_change(change, columns, ascii_only), ()]
    usual = (
        ""
        if plan.seconds is None or not plan.is_possible
        else f" (usually ready after {format_duration(plan.seconds)})"
    )
    rows.append(make_row(sanitized(summarize_switch_plan(plan) + usual)))
    rows += [make_row(sanitized(each)) for each in (describe_rollback_window(plan),) if each is not None]
    mark = "x" if ascii_only else "✕"
    rows += [make_row(Span(f"{mark} ", TextStyle.BAD), sanitized(one, TextStyle.BAD)) for one in plan.obstacles]
    mark = "!" if ascii_only else "▲"
    rows += [
        make_row(Span(f"{mark} ", TextStyle.ATTENTION), sanitized(one, TextStyle.ATTENTION)) for one in plan.cautions
    ]
    return rows


def format_node_change(change: NodeSwitchPlan, columns: int = 80, ascii_only: bool = False) -> list[TextRow]:
    """Return one Spark before and after."""
    cells = max(8, min(_BAR, columns - _BESIDE_ROW))
    names = max((len(one.instance) for one in change.tenants), default=0)
    names = max(names, len(change.starts or ""))
    rows = [make_row(sanitized(change.node, TextStyle.TITLE))]
    rows.append(_format_memory_row("now", memory_before_switch(change, {}), cells, ascii_only))
    rows += [_format_instance(one, names) for one in change.tenants]
    if not change.tenants:
        rows.append(make_row(_INDENT, Span("nothing stands here", TextStyle.LABEL)))
    rows.append(_format_memory_row("then", memory_after_switch(change, {}), cells, ascii_only, expected=True))
    rows += [_format_kept_instance(one, names) for one in change.stays]
    if change.starts is not None:
        need = None if change.fit is None else change.fit.need
        size = "      not known" if need is None else f"≈ {format_gib(need):>9}"
        name = sanitized(f"{change.starts:<{names}}", TextStyle.TITLE)
        rows.append(make_row(_INDENT, name, Span(f"  {size:>11}", TextStyle.VALUE), Span("  starts", TextStyle.GOOD)))
    if change.is_free_after:
        rows.append(make_row(_INDENT, Span(f"nothing: {change.node} is free", TextStyle.GOOD)))
    return rows


def _format_instance(one: SwitchContainer, names: int) -> TextRow:
    words = (
        Span(f"  stops: {describe_conflicts(one.conflicts)}", TextStyle.ATTENTION)
        if one.goes
        else Span("  stays", TextStyle.LABEL)
    )
    foreign = () if one.ours else (Span(", not sparkctl's", TextStyle.LABEL),)
    return make_row(*_name(one, names), words, *foreign)


def _format_kept_instance(one: SwitchContainer, names: int) -> TextRow:
    return make_row(*_name(one, names), Span("  as before", TextStyle.LABEL))


def _name(one: SwitchContainer, names: int) -> tuple[Span, ...]:
    rank = "" if one.rank is None else f"  rank {one.rank}"
    held = "—" if one.held is None else format_gib(one.held)
    return (
        Span(_INDENT),
        sanitized(f"{one.instance:<{names}}", TextStyle.TITLE),
        Span(f"  {held:>11}", TextStyle.VALUE),
        Span(rank, TextStyle.LABEL),
    )


def _format_memory_row(name: str, bar: MemoryBar | None, cells: int, ascii_only: bool, *, expected: bool = False) -> TextRow:
    label = f"  {name:<6}"
    if bar is None:
        return make_row(Span(label, TextStyle.LABEL), Span("memory not known", TextStyle.STALE))
    return render_memory_bar_line(label, bar, cells, ascii_only, is_expected=expected)
