"""A switch plan as rows: each Spark before and after, what stops, stays and starts, and its memory."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from sparkctl.model.finding import Severity
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
from sparkctl.model.text.units import format_duration, format_gib
from sparkctl.views.text.charts import render_memory_bar_line, render_memory_legend
from sparkctl.views.text.frame_layout import draw_frame
from sparkctl.views.text.line_wrap import find_command, wrap_rows, wrap_text
from sparkctl.views.text.styled_text import (
    Span,
    TextRow,
    TextStyle,
    get_state_symbol,
    justify_row,
    make_row,
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
    """Return until when, if at all, the stopped models can be started again; None if nothing stops."""
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
            f"the containers of {' and '.join(old)} are kept until {new} is ready; if it does not get "
            "ready, it is left as it failed, and they stay stopped until sparkctl abort (--no-rollback)"
        )
    unproved = " and ".join(plan.unproved)
    return (
        f"the containers of {' and '.join(old)} are kept until {new} is ready, and started again if it does "
        "not get ready"
    ) + (f"; {unproved}: not proved so far, so nobody waits for it then" if unproved else "")


def describe_switch_step(step: SwitchStep, instance: str, stops: Sequence[str], *, is_done: bool = False) -> str:
    """Return what a step does or, if it is done, did; ``stops``: the stopped models, empty if not known."""
    instance, names = distinguish_names(instance, stops)
    old = " and ".join(names) or "what was there"
    its, serve, run = ("its", "serves", "runs") if len(names) <= 1 else ("their", "serve", "run")
    going, done = {
        SwitchStep.CHECKING: (f"checking what can fail, while {old} {serve}", "checked what can fail"),
        SwitchStep.STOPPING: (
            f"stopping {old}; {its} containers are kept",
            f"{old} stopped; {its} containers are kept",
        ),
        SwitchStep.RELEASING: (f"waiting for {its} memory to be free again", f"{its} memory is free again"),
        SwitchStep.STARTING: (f"starting {instance}", f"{instance} started"),
        SwitchStep.CLEARING: (f"removing the containers of {old}", f"the containers of {old} removed"),
        SwitchStep.DONE: ("done", "done"),
        SwitchStep.UNDOING: (
            f"removing {instance}: saving its log, removing its containers",
            f"{instance} is removed: its log is saved, its containers are gone",
        ),
        SwitchStep.RESTORING: (f"starting {old} again", f"{old} started again"),
        SwitchStep.RESTORED: (f"{old} {run} again", f"{old} {run} again"),
        SwitchStep.LEFT: (f"{instance} is left as it failed", f"{instance} is left as it failed"),
    }[step]
    return done if is_done else going


def get_memory_before_switch(change: NodeSwitchPlan, bars: Mapping[NodeName, MemoryBar]) -> MemoryBar | None:
    """Return a Spark's memory as sampled, else as the plan saw it (page cache is free there); None if not known."""
    if (seen := bars.get(change.node)) is not None:
        return seen
    if change.total is None or change.available is None:
        return None
    free = max(0, min(change.total, change.available))
    memory = min(change.total - free, sum(one.held or 0 for one in change.tenants))
    return MemoryBar(
        total=change.total,
        available=free,
        gpu_processes=memory,
        other_used=change.total - free - memory,
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
    plan: SwitchPlan, bars: Mapping[NodeName, MemoryBar], columns: int, *, has_begun: bool
) -> list[TextRow]:
    """Return each Spark before and after the switch; ``bars``: its last known memory. Before it ``has_begun``, "before" is now."""
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
    body = _render_both(change, bars, columns - 4, was)
    title = make_row(sanitize_span(change.node, TextStyle.TITLE), Span(f" {was}, and afterwards", TextStyle.LABEL))
    return list(draw_frame(title, body, columns, len(body) + 2))


def _render_both(change: NodeSwitchPlan, bars: Mapping[NodeName, MemoryBar], columns: int, was: str) -> list[TextRow]:
    return [*_render_before(change, bars, columns, was), *_render_after(change, bars, columns, "then")]


def _render_before(
    change: NodeSwitchPlan, bars: Mapping[NodeName, MemoryBar], columns: int, name: str = "memory"
) -> list[TextRow]:
    rows = _render_memory(name, get_memory_before_switch(change, bars), columns, is_measured=change.node in bars)
    if not change.tenants:
        rows.append(make_row(" " * _LABEL_COLUMNS, Span("nothing runs here", TextStyle.STALE)))
    for one in change.tenants:
        rows.append(_render_instance(one, columns, "stops" if one.must_stop else "stays"))
        if one.must_stop:
            reasons = ", ".join(_CONFLICT_REASONS[each] for each in one.conflicts)
            why = make_row(Span(" " * (_LABEL_COLUMNS + 2) + reasons, TextStyle.LABEL))
            rows += wrap_rows([why], columns)
    return rows


def _render_after(
    change: NodeSwitchPlan, bars: Mapping[NodeName, MemoryBar], columns: int, name: str = "memory"
) -> list[TextRow]:
    then = predict_memory_after_switch(change, bars)
    rows = _render_memory(name, then, columns, is_measured=change.node in bars, is_expected=True)
    rows += [_render_instance(one, columns, "stays") for one in change.remaining_containers]
    if change.starts is not None:
        need = None if change.fit is None else change.fit.needed_bytes
        size = "not known  " if need is None else f"≈ {format_gib(need)} est.  "
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
        " " * _LABEL_COLUMNS,
        Span("- " if goes else "= ", TextStyle.ATTENTION if goes else TextStyle.LABEL),
        sanitize_span(one.instance, TextStyle.TITLE),
        sanitize_span(f"{port}{rank}{whose}", TextStyle.LABEL),
    )
    right = make_row(
        Span(f"{format_gib(one.held)}  ", TextStyle.UNIT),
        Span(does, TextStyle.ATTENTION if goes else TextStyle.LABEL),
    )
    return justify_row(left, right, columns)


def _render_memory(
    name: str, bar: MemoryBar | None, columns: int, *, is_measured: bool, is_expected: bool = False
) -> list[TextRow]:
    """Return the bar, and the figures of its four parts where they were measured."""
    if bar is None:
        return [make_row(Span(f"{name:<{_LABEL_COLUMNS}}", TextStyle.LABEL), Span("not known", TextStyle.STALE))]
    wide = max(4, min(_MAX_BAR_COLUMNS, columns - _LABEL_COLUMNS - _BAR_TEXT_COLUMNS))
    forms = [(_LABEL_COLUMNS, gap, 0, 0) for gap in ("  ", " ")]  # the same figures in any width
    return [
        render_memory_bar_line(f"{name:<{_LABEL_COLUMNS}}", bar, wide, is_expected=is_expected),
        *([render_memory_legend(bar, columns, forms)] if is_measured else []),
    ]


def render_plan_summary(
    plan: SwitchPlan, columns: int, hints: Sequence[str] = (), *, obstacles: Sequence[str] = ()
) -> list[TextRow]:
    """Return what a plan comes to: its result, its ``obstacles`` with the ``hints`` that solve them, and the way back."""
    usual = "" if plan.seconds is None else f" (usually ready after {format_duration(plan.seconds)})"
    usual = usual if plan.is_possible and not plan.is_there else ""
    bad, caution = (get_state_symbol(one) for one in (Severity.PROBLEM, Severity.WARNING))
    rows = render_sentences(summarize_switch_plan(plan) + usual, columns, "", TextStyle.STRONG)
    rows += [each for one in obstacles for each in render_sentences(one, columns, bad, TextStyle.BAD)]
    rows += [each for one in hints for each in render_hints(one, columns)]
    rows += [each for one in plan.cautions for each in render_sentences(one, columns, caution, TextStyle.ATTENTION)]
    return rows + render_sentences(describe_rollback_window(plan) or "", columns, "", TextStyle.LABEL)


def render_sentences(words: str, columns: int, sign: str, tone: TextStyle) -> list[TextRow]:
    """Return sentences, each line of them with the symbol."""
    head = make_row(Span(f"{sign} ", tone)) if sign else ()
    return [row for line in words.splitlines() for row in wrap_text(line, columns, tone, head=head)]


def render_hints(hint: str | None, columns: int) -> list[TextRow]:
    """Return the remedies, each in a row of its own, so that commands can be copied whole."""
    rows: list[TextRow] = []
    for line in filter(None, (hint or "").splitlines()):
        command = find_command(line)
        ways = (
            [line] if command is None or not line.startswith(f"{command}, or ") else [command, line[len(command) + 5 :]]
        )
        for at, way in enumerate(ways):
            head = "  or: " if at else "  try: "
            rows += wrap_text(way, columns, TextStyle.VALUE, head=make_row(Span(head, TextStyle.VALUE)))
    return rows


_PRINTED_COLUMNS = 80  # a printed picture is not wider, where the terminal is


def format_switch_plan(plan: SwitchPlan, columns: int | None) -> list[TextRow]:
    """Return the whole plan for a terminal of ``columns``, None: sentences are not wrapped. The pictures stand first, so
    that the result is read last. The obstacles are not in it: the error that follows names them, with what to do."""
    rows: list[TextRow] = []
    for change in plan.changes:
        both = _render_both(change, {}, min(columns or _PRINTED_COLUMNS, _PRINTED_COLUMNS) - 2, "now")
        rows += [make_row(sanitize_span(change.node, TextStyle.TITLE)), *(make_row("  ", *one) for one in both), ()]
    return rows + render_plan_summary(plan, columns or sys.maxsize)
