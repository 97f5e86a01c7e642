"""A switch as pictures: each Spark before and after, what stops, what stays, what starts; then its steps in words."""

from __future__ import annotations

from collections.abc import Iterable

from sparkctl.model.sample import MemoryBar
from sparkctl.model.switch import Conflict, NodeChange, SwitchPlan, SwitchStep, Tenant
from sparkctl.model.units import GIB, gib, spoken
from sparkctl.present.bars import memory_bar
from sparkctl.present.spans import Row, Span, Tone, row, said

_BAR = 36
_BESIDE = 40  # columns that the words beside a bar take
_INDENT = " " * 8

_WHY = {
    Conflict.MEMORY: "no room for both",
    Conflict.PORT: "the same port",
    Conflict.GROUP: "of the same exclusive group",
    Conflict.INSTANCE: "another version of the same",
    Conflict.NAME: "the same container name",
    Conflict.NODES: "no half of it is left behind",
}
_STEPS = {
    SwitchStep.CHECKING: "checking, while the old one serves",
    SwitchStep.STOPPING: "stopping the old one; its container is kept",
    SwitchStep.RELEASING: "proving that its memory is back",
    SwitchStep.STARTING: "starting the new one",
    SwitchStep.CLEARING: "the new one has proved itself: clearing the old one's containers",
    SwitchStep.DONE: "done",
    SwitchStep.UNDOING: "taking back what was started of the new one",
    SwitchStep.RESTORING: "starting the old one again",
    SwitchStep.RESTORED: "the old one serves again",
    SwitchStep.LEFT: "left as it is",
}


def step_words(step: SwitchStep) -> str:
    """Return what a step does."""
    return _STEPS[step]


def why_words(conflicts: Iterable[Conflict]) -> str:
    """Return why something stops."""
    return ", ".join(_WHY[one] for one in conflicts)


def plan_rows(plan: SwitchPlan, columns: int = 80, ascii_only: bool = False) -> list[Row]:
    """Return the whole plan: a picture of each Spark before and after, then what stands against it."""
    if plan.is_there:
        where = " and ".join(plan.nodes)
        return [row(said(f"{plan.instance} already stands on {where}: nothing is switched"))]
    rows: list[Row] = []
    for change in plan.changes:
        rows += [*node_rows(change, columns, ascii_only), ()]
    rows += [row(said(sentence)) for sentence in last_sentences(plan)]
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
    rows.append(_memory("now", _before(change), cells, ascii_only))
    rows += [_tenant(one, names) for one in change.tenants]
    if not change.tenants:
        rows.append(row(_INDENT, Span("nothing stands here", Tone.LABEL)))
    rows.append(_memory("then", _after(change), cells, ascii_only, expected=True))
    rows += [_stays(one, names) for one in change.stays]
    if change.starts is not None:
        need = None if change.fit is None else change.fit.need
        size = "      not known" if need is None else f"≈ {gib(need):>9}"
        name = said(f"{change.starts:<{names}}", Tone.TITLE)
        rows.append(row(_INDENT, name, Span(f"  {size:>11}", Tone.VALUE), Span("  starts", Tone.GOOD)))
    if change.is_free_after:
        rows.append(row(_INDENT, Span(f"nothing: {change.node} is free", Tone.GOOD)))
    return rows


def last_sentences(plan: SwitchPlan) -> list[str]:
    """Return what it comes to, a sentence each."""
    where = " and ".join(plan.nodes)
    goes = " and ".join(plan.stops)
    stop = "stops" if len(plan.stops) == 1 else "stop"
    first = (
        f"{goes} {stop}, {plan.instance} starts on {where}"
        if plan.stops
        else f"{plan.instance} starts on {where}; nothing stops"
    )
    usual = "" if plan.seconds is None else f" (usually {spoken(plan.seconds)})"
    found = [f"{first}{usual}"] if plan.is_possible else [f"{plan.instance} cannot start on {where} as things are"]
    if plan.stops and plan.is_possible:
        found.append(
            f"the containers of {goes} are kept until {plan.instance} has answered with a token, and started again if not"
        )
    return found


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


def _before(change: NodeChange) -> MemoryBar | None:
    if change.total is None or change.available is None:
        return None
    held = sum(one.held or 0 for one in change.tenants)
    return _bar(change.total, change.available, held)


def _after(change: NodeChange) -> MemoryBar | None:
    if change.total is None or change.available_after is None:
        return None
    need = 0 if change.fit is None else change.fit.need or 0
    return _bar(change.total, change.available_after, need + sum(one.held or 0 for one in change.stays))


def _bar(total: int, available: int, held: int) -> MemoryBar:
    """Return memory in the parts that a plan knows: what models hold, what else is used, what is to be had."""
    free = max(0, min(total, available))
    models = min(total - free, held)
    return MemoryBar(total, free, models, total - free - models, 0, free, 0)


def _memory(name: str, bar: MemoryBar | None, cells: int, ascii_only: bool, *, expected: bool = False) -> Row:
    if bar is None:
        return row(Span(f"  {name:<6}", Tone.LABEL), Span("memory not known", Tone.STALE))
    used = (bar.total - bar.free) / GIB
    sign = "≈" if expected else " "
    return row(
        Span(f"  {name:<6}", Tone.LABEL), *memory_bar(bar, cells, ascii_only), Span(f" {sign}{used:6.1f}", Tone.VALUE),
        Span(f" of {bar.total / GIB:.1f} GiB" + (" est." if expected else ""), Tone.UNIT),
    )  # fmt: skip
