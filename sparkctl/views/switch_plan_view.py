"""A switch plan as rows: each Spark before and after, what stops, stays and starts, and its memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sparkctl.model.node import NodeName
from sparkctl.model.sample import MemoryBar
from sparkctl.model.switch_plan import (
    NodeSwitchPlan,
    SwitchConflict,
    SwitchContainer,
    SwitchPlan,
    SwitchStep,
    distinguish_names,
)
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.text.units import format_duration, format_gib
from sparkctl.views.text.charts import render_memory_bar_line, render_memory_legend
from sparkctl.views.text.frame_layout import draw_frame
from sparkctl.views.text.line_wrap import wrap_rows
from sparkctl.views.text.styled_text import (
    Span,
    TextRow,
    TextStyle,
    justify_row,
    make_row,
    measure_text,
    pad_text,
    sanitize_span,
)

_CONFLICT_REASONS = {
    SwitchConflict.MEMORY: "no room for both",
    SwitchConflict.PORT: "the same port",
    SwitchConflict.GROUP: "of the same exclusive group",
    SwitchConflict.INSTANCE: "another version of the same",
    SwitchConflict.PLACES: "the same, its ranks placed otherwise",
    SwitchConflict.PART: "the same, and not all of it runs",
    SwitchConflict.NAME: "the same container name",
    SwitchConflict.NEED: "needed only by what stops",
    SwitchConflict.NODES: "its other half stops too",
}


def describe_conflicts(conflicts: Iterable[SwitchConflict]) -> str:
    """Return why an instance has to stop."""
    return ", ".join(_CONFLICT_REASONS[one] for one in conflicts)


def summarize_switch_plan(plan: SwitchPlan) -> str:
    """Return the result of a plan as one sentence."""
    where = " and ".join(plan.nodes)
    if plan.is_there:
        return f"{plan.instance} already runs on {where}: there is nothing to switch"
    if plan.obstacles:
        return f"it is not possible to switch to {plan.instance} on {where} now"
    free = [one.node for one in plan.changes if one.is_free_after]
    left = f", and {' and '.join(free)} {'is' if len(free) == 1 else 'are'} free" if free else ""
    if not plan.stops:
        return f"{plan.instance} starts on {where}; nothing has to stop{left}"
    new, old = distinguish_names(plan.instance, plan.stops)
    stops = f"{' and '.join(old)} {'stops' if len(old) == 1 else 'stop'}"
    return f"{stops}, {new} starts on {where}{left}"


def describe_rollback_window(plan: SwitchPlan) -> str | None:
    """Return until when the stopped models can be started again, or that they cannot; None if nothing stops or the
    plan switches nothing."""
    if not plan.stops or plan.obstacles or plan.is_there:
        return None
    new, old = distinguish_names(plan.instance, plan.stops)
    if plan.halves:
        return (
            f"there is no rollback if {new} fails: not all ranks of {' and '.join(plan.halves)} are seen to run, and "
            "half a model is not started again"
        )
    if not plan.rolls_back:
        return (
            f"the containers of {' and '.join(old)} are kept until {new} has answered with a token; if it does "
            "not, it is left as it failed, and they stay stopped until sparkctl abort (--no-rollback)"
        )
    return (
        f"the containers of {' and '.join(old)} are kept until {new} has answered with a token, and started "
        "again if it does not"
    )


def describe_switch_step(step: SwitchStep, instance: str, stops: Sequence[str] = (), *, is_done: bool = False) -> str:
    """Return what a step does or, if it is done, did; ``stops`` are the names of the stopped models, empty if not
    known."""
    instance, names = distinguish_names(instance, stops)
    old = " and ".join(names) or "what was there"
    going, done = {
        SwitchStep.CHECKING: (f"checking what can fail, while {old} serves", "checked what can fail"),
        SwitchStep.STOPPING: (f"stopping {old}; its containers are kept", f"{old} stopped; its containers are kept"),
        SwitchStep.RELEASING: ("waiting for its memory to be back", "its memory is back"),
        SwitchStep.STARTING: (f"starting {instance}", f"{instance} started"),
        SwitchStep.CLEARING: (f"removing the containers of {old}", f"the containers of {old} removed"),
        SwitchStep.DONE: ("done", "done"),
        SwitchStep.UNDOING: (f"removing {instance}: saving its log, removing its containers",
                             f"{instance} is removed: its log is saved, its containers are gone"),
        SwitchStep.RESTORING: (f"starting {old} again", f"{old} started again"),
        SwitchStep.RESTORED: (f"{old} serves again", f"{old} serves again"),
        SwitchStep.LEFT: (f"{instance} is left as it failed", f"{instance} is left as it failed"),
    }[step]  # fmt: skip
    return done if is_done else going


def get_memory_before_switch(change: NodeSwitchPlan, bars: Mapping[NodeName, MemoryBar]) -> MemoryBar | None:
    """Return a Spark's memory now: as sampled (``bars``), else as the plan saw it, where page cache counts as free;
    None if neither is known."""
    if (seen := bars.get(change.node)) is not None:
        return seen
    if change.total is None or change.available is None:
        return None
    free = max(0, min(change.total, change.available))
    held = min(change.total - free, sum(one.held or 0 for one in change.tenants))
    return MemoryBar(
        total=change.total,
        available=free,
        gpu_processes=held,
        other_used=change.total - free - held,
        page_cache=0,
        free=free,
        swap_used=0,
    )


def predict_memory_after_switch(change: NodeSwitchPlan, bars: Mapping[NodeName, MemoryBar]) -> MemoryBar | None:
    """Return the estimated memory of a Spark after the switch: without what stops, with the estimate of what starts,
    and with a dropped page cache if something starts. Models count as GPU memory. None if nothing is known."""
    now = get_memory_before_switch(change, bars)
    if now is None or change.available_after is None:
        return None
    used = now.total - max(0, min(now.total, change.available_after))
    need = 0 if change.fit is None else change.fit.needed_bytes or 0
    gone = sum(one.held or 0 for one in change.stopped_containers)
    gpu = min(used, max(0, (now.gpu_processes or 0) - gone) + need)
    cache = min(now.page_cache, now.total - used) if change.starts is None else 0
    free = now.total - used - cache
    return MemoryBar(
        total=now.total,
        available=free + cache,
        gpu_processes=gpu,
        other_used=used - gpu,
        page_cache=cache,
        free=free,
        swap_used=now.swap_used,
    )


SIDE_BY_SIDE_COLUMNS = 110  # from this width on, before and after are shown side by side
_LABEL_COLUMNS = 7
_BAR_TEXT_COLUMNS = 27  # width of the text beside a bar: ≈ 102.8 of 121.7 GiB est.
_MAX_BAR_COLUMNS = 44


def render_switch_plan(
    plan: SwitchPlan, bars: Mapping[NodeName, MemoryBar], columns: int, *, has_begun: bool = False
) -> list[TextRow]:  # fmt: skip
    """Return every Spark of a plan before and after the switch; ``bars`` is its last known memory. Until the switch
    ``has_begun``, "before" is now."""
    make = _render_columns if columns >= SIDE_BY_SIDE_COLUMNS else _render_stacked
    was = "before" if has_begun else "now"
    return [each for change in plan.changes for each in make(change, bars, columns, was)]


def _render_columns(
    change: NodeSwitchPlan, bars: Mapping[NodeName, MemoryBar], columns: int, was: str
) -> list[TextRow]:
    arrow = " → "
    left, right = (columns - len(arrow)) // 2, columns - len(arrow) - (columns - len(arrow)) // 2
    sides = [_render_before(change, bars, left - 4), _render_after(change, bars, right - 4)]
    lines = max(map(len, sides)) + 2
    titles = (
        make_row(sanitize_span(change.node, TextStyle.TITLE), Span(f" {was}", TextStyle.LABEL)),
        make_row(sanitize_span(change.node, TextStyle.TITLE), Span(" afterwards", TextStyle.LABEL)),
    )
    now, then = (
        draw_frame(title, side, wide, lines) for title, side, wide in zip(titles, sides, (left, right), strict=True)
    )
    gaps = [Span(arrow if at == lines // 2 else " " * len(arrow), TextStyle.ACCENT) for at in range(lines)]
    return [(*one, gap, *other) for one, gap, other in zip(now, gaps, then, strict=True)]


def _render_stacked(
    change: NodeSwitchPlan, bars: Mapping[NodeName, MemoryBar], columns: int, was: str
) -> list[TextRow]:
    now, then = (
        make(change, bars, columns - 4, name) for make, name in ((_render_before, was), (_render_after, "then"))
    )
    body = [*now, *then]
    title = make_row(sanitize_span(change.node, TextStyle.TITLE), Span(f" {was}, and afterwards", TextStyle.LABEL))
    return list(draw_frame(title, body, columns, len(body) + 2))


def _render_before(
    change: NodeSwitchPlan, bars: Mapping[NodeName, MemoryBar], columns: int, name: str = "memory"
) -> list[TextRow]:
    rows = _render_memory(name, get_memory_before_switch(change, bars), columns)
    if not change.tenants:
        rows.append(make_row(" " * _LABEL_COLUMNS, Span("nothing runs here", TextStyle.STALE)))
    for one in change.tenants:
        rows.append(_render_instance(one, columns, "stops" if one.must_stop else "stays"))
        if one.must_stop:
            why = make_row(Span(" " * (_LABEL_COLUMNS + 2) + describe_conflicts(one.conflicts), TextStyle.LABEL))
            rows += wrap_rows([why], columns)
    return rows


def _render_after(
    change: NodeSwitchPlan, bars: Mapping[NodeName, MemoryBar], columns: int, name: str = "memory"
) -> list[TextRow]:
    rows = _render_memory(name, predict_memory_after_switch(change, bars), columns, is_expected=True)
    rows += [_render_instance(one, columns, "stays") for one in change.remaining_containers]
    if change.starts is not None:
        need = None if change.fit is None else change.fit.needed_bytes
        size = "" if need is None else f"≈ {format_gib(need)} est.  "
        left = make_row(" " * _LABEL_COLUMNS, Span("+ ", TextStyle.GOOD), sanitize_span(change.starts, TextStyle.TITLE))
        rows.append(justify_row(left, make_row(Span(size, TextStyle.UNIT), Span("starts", TextStyle.GOOD)), columns))
    elif change.is_free_after:
        rows.append(make_row(" " * _LABEL_COLUMNS, Span("○ nothing: it is free", TextStyle.GOOD)))
    return rows


def _render_instance(one: SwitchContainer, columns: int, does: str) -> TextRow:
    goes = does == "stops"
    rank = f"  rank {one.rank.replace('/', ' of ')}" if one.rank else ""
    whose = "" if one.ours else "  not sparkctl's"
    port = f"  :{one.port}" if one.port is not None and SwitchConflict.PORT in one.conflicts else ""
    left = make_row(
        " " * _LABEL_COLUMNS, Span("- " if goes else "= ", TextStyle.ATTENTION if goes else TextStyle.LABEL),
        sanitize_span(one.instance, TextStyle.TITLE), sanitize_span(f"{port}{rank}{whose}", TextStyle.LABEL),
    )  # fmt: skip
    held = "" if one.held is None else f"{format_gib(one.held)}  "
    return justify_row(
        left,
        make_row(Span(held, TextStyle.UNIT), Span(does, TextStyle.ATTENTION if goes else TextStyle.LABEL)),
        columns,
    )


# --- memory -----------------------------------------------------------------------------------------------------------


def _render_memory(name: str, bar: MemoryBar | None, columns: int, is_expected: bool = False) -> list[TextRow]:
    if bar is None:
        return [make_row(Span(f"{name:<{_LABEL_COLUMNS}}", TextStyle.LABEL), Span("not known", TextStyle.STALE))]
    wide = max(4, min(_MAX_BAR_COLUMNS, columns - _LABEL_COLUMNS - _BAR_TEXT_COLUMNS))
    first = render_memory_bar_line(f"{name:<{_LABEL_COLUMNS}}", bar, wide, is_expected=is_expected)
    return [
        first,
        render_memory_legend(
            bar,
            columns,
            [(_LABEL_COLUMNS, gap, 0, 0) for gap in ("  ", " ")],  # the same figures in any width
        ),
    ]


_MAX_PLAIN_BAR_COLUMNS = 36
_PLAIN_BAR_TEXT_COLUMNS = 40  # width of the words beside a bar
_INDENT_TEXT = " " * 8


def format_switch_plan(plan: SwitchPlan, columns: int = 80) -> list[TextRow]:
    """Return the whole plan: each Spark before and after, then the problems."""
    if plan.is_there:
        return [make_row(sanitize_span(summarize_switch_plan(plan)))]
    rows: list[TextRow] = []
    for change in plan.changes:
        rows += [*format_node_change(change, columns), ()]
    usual = (
        ""
        if plan.seconds is None or not plan.is_possible
        else f" (usually ready after {format_duration(plan.seconds)})"
    )
    rows.append(make_row(sanitize_span(summarize_switch_plan(plan) + usual)))
    rows += [make_row(sanitize_span(each)) for each in (describe_rollback_window(plan),) if each is not None]
    rows += [make_row(Span("✕ ", TextStyle.BAD), sanitize_span(one, TextStyle.BAD)) for one in plan.obstacles]
    rows += [
        make_row(Span("▲ ", TextStyle.ATTENTION), sanitize_span(one, TextStyle.ATTENTION)) for one in plan.cautions
    ]
    return rows


def format_node_change(change: NodeSwitchPlan, columns: int = 80) -> list[TextRow]:
    """Return one Spark before and after."""
    cells = max(8, min(_MAX_PLAIN_BAR_COLUMNS, columns - _PLAIN_BAR_TEXT_COLUMNS))
    names = max((measure_text(sanitize_line(one.instance)) for one in change.tenants), default=0)
    names = max(names, measure_text(change.starts or ""))
    rows = [make_row(sanitize_span(change.node, TextStyle.TITLE))]
    rows.append(_format_memory_row("now", get_memory_before_switch(change, {}), cells))
    rows += [_format_instance(one, names) for one in change.tenants]
    if not change.tenants:
        rows.append(make_row(_INDENT_TEXT, Span("nothing is there", TextStyle.LABEL)))
    rows.append(_format_memory_row("then", predict_memory_after_switch(change, {}), cells, expected=True))
    rows += [_format_kept_instance(one, names) for one in change.remaining_containers]
    if change.starts is not None:
        need = None if change.fit is None else change.fit.needed_bytes
        size = "      not known" if need is None else f"≈ {format_gib(need):>9}"
        name = sanitize_span(pad_text(change.starts, names), TextStyle.TITLE)
        rows.append(
            make_row(_INDENT_TEXT, name, Span(f"  {size:>11}", TextStyle.VALUE), Span("  starts", TextStyle.GOOD))
        )
    if change.is_free_after:
        rows.append(make_row(_INDENT_TEXT, Span(f"nothing: {change.node} is free", TextStyle.GOOD)))
    return rows


def _format_instance(one: SwitchContainer, names: int) -> TextRow:
    words = (
        Span(f"  stops: {describe_conflicts(one.conflicts)}", TextStyle.ATTENTION)
        if one.must_stop
        else Span("  stays", TextStyle.LABEL)
    )
    foreign = () if one.ours else (Span(", not sparkctl's", TextStyle.LABEL),)
    return make_row(*_format_instance_name(one, names), words, *foreign)


def _format_kept_instance(one: SwitchContainer, names: int) -> TextRow:
    return make_row(*_format_instance_name(one, names), Span("  as before", TextStyle.LABEL))


def _format_instance_name(one: SwitchContainer, names: int) -> tuple[Span, ...]:
    rank = "" if one.rank is None else f"  rank {one.rank}"
    held = "—" if one.held is None else format_gib(one.held)
    return (
        Span(_INDENT_TEXT),
        sanitize_span(pad_text(sanitize_line(one.instance), names), TextStyle.TITLE),
        Span(f"  {held:>11}", TextStyle.VALUE),
        Span(rank, TextStyle.LABEL),
    )


def _format_memory_row(name: str, bar: MemoryBar | None, cells: int, *, expected: bool = False) -> TextRow:
    label = f"  {name:<6}"
    if bar is None:
        return make_row(Span(label, TextStyle.LABEL), Span("memory not known", TextStyle.STALE))
    return render_memory_bar_line(label, bar, cells, is_expected=expected)
