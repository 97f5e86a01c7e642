"""A switch as the command line shows it: each Spark before and after, what stops, what stays, what starts. Pure."""

from __future__ import annotations

from sparkctl.model.sample import MemoryBar
from sparkctl.model.switch import NodeChange, SwitchPlan, Tenant
from sparkctl.model.units import gib, spoken
from sparkctl.present.bars import memory_line
from sparkctl.present.spans import Row, Span, Tone, row, said
from sparkctl.present.switch_memory import after, before
from sparkctl.present.switch_words import kept, summary, why_words

_BAR = 36
_BESIDE = 40  # columns that the words beside a bar take
_INDENT = " " * 8


def plan_rows(plan: SwitchPlan, columns: int = 80, ascii_only: bool = False) -> list[Row]:
    """Return the whole plan: a picture of each Spark before and after, then what stands against it."""
    if plan.is_there:
        return [row(said(summary(plan)))]
    rows: list[Row] = []
    for change in plan.changes:
        rows += [*node_rows(change, columns, ascii_only), ()]
    usual = "" if plan.seconds is None or not plan.is_possible else f" (usually ready after {spoken(plan.seconds)})"
    rows.append(row(said(summary(plan) + usual)))
    rows += [row(said(each)) for each in (kept(plan),) if each is not None]
    mark = "x" if ascii_only else "✕"
    rows += [row(Span(f"{mark} ", Tone.BAD), said(one, Tone.BAD)) for one in plan.obstacles]
    mark = "!" if ascii_only else "▲"
    rows += [row(Span(f"{mark} ", Tone.ATTENTION), said(one, Tone.ATTENTION)) for one in plan.cautions]
    return rows


def node_rows(change: NodeChange, columns: int = 80, ascii_only: bool = False) -> list[Row]:
    """Return one Spark before and after."""
    cells = max(8, min(_BAR, columns - _BESIDE))
    names = max((len(one.instance) for one in change.tenants), default=0)
    names = max(names, len(change.starts or ""))
    rows = [row(said(change.node, Tone.TITLE))]
    rows.append(_memory("now", before(change, {}), cells, ascii_only))
    rows += [_tenant(one, names) for one in change.tenants]
    if not change.tenants:
        rows.append(row(_INDENT, Span("nothing stands here", Tone.LABEL)))
    rows.append(_memory("then", after(change, {}), cells, ascii_only, expected=True))
    rows += [_stays(one, names) for one in change.stays]
    if change.starts is not None:
        need = None if change.fit is None else change.fit.need
        size = "      not known" if need is None else f"≈ {gib(need):>9}"
        name = said(f"{change.starts:<{names}}", Tone.TITLE)
        rows.append(row(_INDENT, name, Span(f"  {size:>11}", Tone.VALUE), Span("  starts", Tone.GOOD)))
    if change.is_free_after:
        rows.append(row(_INDENT, Span(f"nothing: {change.node} is free", Tone.GOOD)))
    return rows


def _tenant(one: Tenant, names: int) -> Row:
    words = Span(f"  stops: {why_words(one.conflicts)}", Tone.ATTENTION) if one.goes else Span("  stays", Tone.LABEL)
    foreign = () if one.ours else (Span(", not sparkctl's", Tone.LABEL),)
    return row(*_name(one, names), words, *foreign)


def _stays(one: Tenant, names: int) -> Row:
    return row(*_name(one, names), Span("  as before", Tone.LABEL))


def _name(one: Tenant, names: int) -> tuple[Span, ...]:
    rank = "" if one.rank is None else f"  rank {one.rank}"
    held = "—" if one.held is None else gib(one.held)
    return (
        Span(_INDENT), said(f"{one.instance:<{names}}", Tone.TITLE), Span(f"  {held:>11}", Tone.VALUE), Span(rank, Tone.LABEL)
    )  # fmt: skip


def _memory(name: str, bar: MemoryBar | None, cells: int, ascii_only: bool, *, expected: bool = False) -> Row:
    label = f"  {name:<6}"
    if bar is None:
        return row(Span(label, Tone.LABEL), Span("memory not known", Tone.STALE))
    return memory_line(label, bar, cells, ascii_only, is_expected=expected)
