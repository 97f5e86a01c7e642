"""The switch screen: the plan, then each step with its proof, then the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from itertools import dropwhile

from sparkctl.model.events import CommandEnded, Outcome
from sparkctl.model.finding import Severity
from sparkctl.model.instance import InstanceView
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import NodeName
from sparkctl.model.phase import Phase
from sparkctl.model.sample import MemoryBar
from sparkctl.model.switch_plan import SwitchJournalStatus, SwitchPlan, SwitchStep
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.text.units import format_clock, format_duration, format_time_of_day
from sparkctl.monitor.event_log import RecentLogLine
from sparkctl.monitor.switch_progress import SwitchProgress
from sparkctl.monitor.switch_progress import SwitchStepProgress as Taken
from sparkctl.views.event_log_view import describe_command_result
from sparkctl.views.event_text import TRANSITION_PHASES
from sparkctl.views.overview.startup_timeline_view import render_startup_progress
from sparkctl.views.overview.tile_model import NodeTileModel, build_node_badges
from sparkctl.views.overview.tile_rows import (
    DrawArea,
    build_memory_bar,
    build_memory_chart,
    build_memory_legend,
    render_log_text,
)
from sparkctl.views.switch_plan_view import (
    describe_switch_step,
    render_hints,
    render_plan_summary,
    render_sentences,
    render_switch_plan,
)
from sparkctl.views.text.charts import drop_least_important, expand_charts, make_block
from sparkctl.views.text.frame_layout import draw_frame, pad_screen
from sparkctl.views.text.line_wrap import find_command, wrap_text
from sparkctl.views.text.styled_text import (
    ScrollPage,
    Span,
    TextRow,
    TextStyle,
    get_state_symbol,
    make_row,
    measure_row,
    measure_text,
    pad_row,
    pad_text,
    sanitize_span,
    scroll_rows,
    truncate_row,
)

SWITCH_STEPS = (
    SwitchStep.CHECKING, SwitchStep.STOPPING, SwitchStep.RELEASING, SwitchStep.STARTING, SwitchStep.CLEARING, SwitchStep.DONE,
)  # fmt: skip
ROLLBACK_STEPS = (SwitchStep.UNDOING, SwitchStep.RESTORING, SwitchStep.RESTORED)
_FINAL_STEPS = (SwitchStep.DONE, SwitchStep.RESTORED, SwitchStep.LEFT)
_STEP_DONE_WORDS = {
    SwitchStep.CHECKING: "checked",
    SwitchStep.STOPPING: "stopped",
    SwitchStep.RELEASING: "released",
    SwitchStep.STARTING: "started",
    SwitchStep.CLEARING: "cleared",
    SwitchStep.RESTORING: "restored",
}
_HANG_COLUMNS = 9  # indent of a step's text
_MAX_PROOF_LINES = 3  # most log lines to show; the log has all
_DONE_WORD_COLUMNS = 10  # width of the word for a finished step


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchScreenModel:
    """The state of the switch screen. ``nodes``: the nodes chosen so far. ``plan`` is None before it is made, or if
    it cannot be made; then ``trouble`` says why. ``bars``: the Sparks' memory now, or when the switch began;
    ``glances``: what is known of them now; ``now``: Unix time in seconds. ``progress``: a switch that has begun.
    ``do_key``: the key that starts it. ``cautions``: warnings of the plan, each with a remedy."""

    profile: str
    nodes: tuple[NodeName, ...] = ()
    plan: SwitchPlan | None = None
    is_planning: bool = False
    trouble: str | None = None
    hint: str | None = None
    bars: Mapping[NodeName, MemoryBar] = field(default_factory=dict)
    glances: Mapping[NodeName, NodeTileModel] = field(default_factory=dict)
    progress: SwitchProgress | None = None
    now: float = 0.0
    further: int = 0
    do_key: str | None = "enter"
    cautions: tuple[tuple[str, str | None], ...] = ()
    log: tuple[RecentLogLine, ...] = ()  # the last lines of what is being started
    notices: tuple[tuple[str, TextStyle], ...] = ()  # what was said since the switch began, the latest last


_BESIDE_MIN_COLUMNS, _BESIDE_MIN_LINES = 100, 20  # from this size on, memory stands beside the steps
_MAX_NOTICE_LINES = 2
_MIN_LOG_LINES = 4  # fewest useful rows of the log, frame included


def render_switch(scene: SwitchScreenModel, columns: int, lines: int) -> ScrollPage:
    """Return exactly ``lines`` rows; the rest is reached by scrolling. The last of the notices has the lowest rows."""
    rows = [
        make_row(" ", *row)
        for words, tone in scene.notices[-1:]
        for row in wrap_text(words, max(20, columns - 2), tone)
    ]
    rows = [pad_row(row, columns) for row in rows[:_MAX_NOTICE_LINES]]
    page = _render_page(scene, columns, lines - len(rows))
    return replace(page, rows=(*page.rows, *rows))


def _render_page(scene: SwitchScreenModel, columns: int, lines: int) -> ScrollPage:
    inner = max(20, columns - 2)
    progress = scene.progress
    is_running = progress is not None and not progress.is_over
    is_large = columns >= _BESIDE_MIN_COLUMNS and lines >= _BESIDE_MIN_LINES and bool(scene.glances)
    if progress is not None and is_running and not scene.further:
        render = _render_running if is_large else _render_running_narrow
        if made := render(progress, scene, columns, lines):
            return ScrollPage(pad_screen(made, columns, lines))
    rows: list[TextRow] = []
    if progress is not None:
        if progress.end is not None:
            rows += [*_render_result(progress, progress.end, scene, inner), ()]
        rows += [*_render_steps(progress, scene, inner), ()]
        plan = progress.plan
    else:
        plan = scene.plan
        rows += [*_render_plan_summary(scene, inner), ()]
    if progress is not None and progress.is_over and scene.glances:
        rows += _render_memories(scene, plan, inner, _MAX_MEMORY_LINES)  # as they are now, in place of the plan
    elif plan is not None and not (progress is not None and _is_undone(progress)):
        rows += render_switch_plan(plan, scene.bars, inner, has_begun=progress is not None)
    if progress is None and plan is not None and plan.is_possible and not plan.is_there:
        steps = _render_planned_steps(plan, inner)
        rows += steps if len(rows) + len(steps) <= lines else []
    page = scroll_rows(rows, scene.further, lines)
    shown = [make_row(" ", *one) for one in page.rows]
    if progress is not None and (is_running or scene.log) and (left := lines - len(shown)) >= _MIN_LOG_LINES:
        shown += _render_log(progress, scene, columns, left)
    elif progress is None and scene.plan is not None and (left := lines - len(shown) - 1) >= _MIN_MEMORY_LINES:
        boxes = _render_memories(scene, plan, inner, min(left, _MAX_MEMORY_LINES))
        shown += [(), *(make_row(" ", *one) for one in boxes)]
    return ScrollPage(pad_screen(shown, columns, lines), page.further)


def _render_running(progress: SwitchProgress, scene: SwitchScreenModel, columns: int, lines: int) -> list[TextRow]:
    """Return a running switch: its steps, its Sparks' memory beside them, and the log of what starts below."""
    first = () if progress.plan is None else progress.plan.nodes
    nodes = sorted(scene.glances.values(), key=lambda seen: seen.name not in first)[:_MAX_MEMORY_BOXES]
    left = columns * 11 // 20
    steps = [make_row(" ", *one) for one in _render_steps(progress, scene, max(20, left - 3))]
    most = max(len(steps), min(lines - _MIN_LOG_LINES, lines * 3 // 5))
    each = max(5, min(_MAX_MEMORY_LINES, most // len(nodes)))
    boxes = [row for seen in nodes for row in _render_memory_box(seen, columns - left, each)]
    high = min(lines, max(len(steps), len(boxes)))
    steps += [()] * (high - len(steps))
    boxes += [()] * (high - len(boxes))
    rows: list[TextRow] = [(*pad_row(one, left), *other) for one, other in zip(steps[:high], boxes[:high], strict=True)]
    if (left_over := lines - len(rows)) >= _MIN_LOG_LINES:
        rows += _render_log(progress, scene, columns, left_over)
    return rows[:lines]


def _render_running_narrow(
    progress: SwitchProgress, scene: SwitchScreenModel, columns: int, lines: int
) -> list[TextRow]:
    """Return a running switch in few columns: a row a step, its Sparks' memory, the log; empty without room for a memory."""
    rows = [make_row(" ", *one) for one in _render_steps(progress, scene, max(20, columns - 2), is_folded=True)]
    goes_on = {seen.name for seen, _ in _list_moving_instances(progress, scene)}
    nodes = () if progress.plan is None else progress.plan.nodes
    seen = [one for one in scene.glances.values() if one.name in goes_on or one.name in nodes]
    left = lines - len(rows)
    seen = sorted(seen, key=lambda one: one.name not in nodes)[: left // _MIN_BOX_LINES]
    if not seen:
        return []
    each = max(_MIN_BOX_LINES, min(_MAX_MEMORY_LINES, left // 2 // len(seen)))
    rows += [row for one in seen for row in _render_memory_box(one, columns, each, progress, scene)]
    if (left := lines - len(rows)) >= _MIN_LOG_LINES:
        rows += _render_log(progress, scene, columns, left)
    return rows


_MIN_BOX_LINES, _MAX_MEMORY_LINES, _MAX_MEMORY_BOXES = 5, 10, 3
_MIN_MEMORY_LINES, _MIN_MEMORY_COLUMNS = 6, 56


def _render_memory_box(
    seen: NodeTileModel,
    columns: int,
    lines: int,
    progress: SwitchProgress | None = None,
    scene: SwitchScreenModel | None = None,
) -> list[TextRow]:
    """Return the memory of a Spark in a frame: the bar, its legend, what starts or stops there in a switch, and its curve."""
    space = DrawArea(columns - 4)
    legend, curve = build_memory_legend(seen, space), build_memory_chart(seen, space)
    parts = [build_memory_bar(seen, space), *([] if legend is None else [legend])]
    moving = [] if progress is None or scene is None else _list_moving_instances(progress, scene)
    names = [one.name for where, one in moving if where.name == seen.name]
    for one in (one for where, one in moving if where.name == seen.name):
        whole, *trail = render_startup_progress(one, seen, space)
        parts += [*(make_block(1, row) for row in whole.rows[1:]), *trail] or [whole]  # the step has the time
    parts += [] if curve is None else [curve]
    rows = drop_least_important(expand_charts(parts, lines - 2), lines - 2)
    badges = build_node_badges(seen)
    title = make_row(
        sanitize_span(seen.name, TextStyle.TITLE),
        *(Span(f" {one.sign} {one.word}", one.tone) for one in badges),
        sanitize_span(f"  {', '.join(names)}" if names else "", TextStyle.LABEL),
    )
    return list(draw_frame(title, rows, columns, lines))


def _render_memories(scene: SwitchScreenModel, plan: SwitchPlan | None, columns: int, lines: int) -> list[TextRow]:
    """Return the memory of the Sparks until now, beside each other."""
    first = () if plan is None else plan.nodes
    nodes = sorted(scene.glances.values(), key=lambda seen: seen.name not in first)
    nodes = nodes[: max(1, min(_MAX_MEMORY_BOXES, columns // _MIN_MEMORY_COLUMNS))]
    if not nodes:
        return []
    boxes = [_render_memory_box(seen, columns // len(nodes), lines) for seen in nodes]
    return [tuple(span for row in rows for span in row) for rows in zip(*boxes, strict=True)]


def _render_log(progress: SwitchProgress, scene: SwitchScreenModel, columns: int, lines: int) -> list[TextRow]:
    """Return the last lines of the log of what is started, in a frame."""
    wide = max((measure_text(sanitize_line(one.node)) for one in scene.log), default=0)
    several = len({one.node for one in scene.log}) > 1
    rows = [
        make_row(
            *(
                [sanitize_span(pad_text(sanitize_line(one.node), wide), TextStyle.LABEL), Span(" │ ", TextStyle.FRAME)]
                if several
                else []
            ),
            render_log_text(one.text),
        )
        for one in scene.log[-max(1, lines - 2) :]
    ]
    names = " and ".join(dict.fromkeys(one.instance for one in scene.log)) or progress.instance
    title = make_row(Span("log of ", TextStyle.LABEL), sanitize_span(names, TextStyle.VALUE))
    if not rows:
        rows = [make_row(Span("it has not begun yet", TextStyle.STALE))]
    return list(draw_frame(title, rows, columns, lines))


def _is_undone(progress: SwitchProgress) -> bool:
    """Tell whether the switch ended differently from its plan, so that the plan no longer describes the Sparks."""
    return progress.end is not None and progress.end.outcome not in (Outcome.READY, Outcome.DONE)


# --- before ------------------------------------------------------------------------------------------------------------


def _render_plan_summary(scene: SwitchScreenModel, columns: int) -> list[TextRow]:
    """Return the result of the plan, its problems, and the key to press."""
    if scene.plan is None:
        if scene.trouble is not None:
            rows = render_sentences(scene.trouble, columns, get_state_symbol(Severity.PROBLEM), TextStyle.BAD)
            return rows + render_hints(scene.hint, columns)
        return [make_row(Span("reading the Sparks: what runs there, and what conflicts ...", TextStyle.STALE))]
    plan = scene.plan
    rows = render_plan_summary(plan, columns, plan.hints, obstacles=plan.obstacles)
    caution = get_state_symbol(Severity.WARNING)
    for words, hint in scene.cautions:
        if words not in plan.cautions:
            rows += [*render_sentences(words, columns, caution, TextStyle.ATTENTION), *render_hints(hint, columns)]
    if plan.obstacles or plan.is_there:
        return rows
    if scene.do_key is not None and not scene.is_planning:
        rows.append(make_row(Span(scene.do_key, TextStyle.KEY), Span(" does it, after a question", TextStyle.LABEL)))
    elif scene.is_planning:
        rows.append(make_row(Span("reading the Sparks again ...", TextStyle.STALE)))
    return rows


def find_offered_command(scene: SwitchScreenModel) -> str | None:
    """Return the first command that the screen proposes, None if there is none."""
    hints = [scene.hint, *(hint for _, hint in scene.cautions)]
    if scene.progress is not None:
        hints = [None if scene.progress.end is None else scene.progress.end.hint]
    lines = [line for hint in hints if hint for line in hint.splitlines()]
    return next((one for one in map(find_command, lines) if one is not None), None)


# --- its steps ---------------------------------------------------------------------------------------------------------


def describe_step(step: SwitchStep, progress: SwitchProgress, *, is_done: bool = False) -> str:
    """Return what a step of this switch does, or did."""
    stops = () if progress.plan is None else progress.plan.stops
    return describe_switch_step(step, progress.instance, stops, is_done=is_done)


def _render_planned_steps(plan: SwitchPlan, columns: int) -> list[TextRow]:
    progress = SwitchProgress(instance=plan.instance, began=0.0, plan=plan)
    steps = (SwitchStep.STARTING,) if progress.is_only_start else SWITCH_STEPS[:-1]
    rows = [make_row(Span("what happens, step by step", TextStyle.LABEL))]
    for number, step in enumerate(steps, 1):
        head = make_row(Span(f"  {number}  ", TextStyle.LABEL))
        rows += wrap_text(describe_step(step, progress), columns, TextStyle.VALUE, head=head)
    return [(), *rows]


def _render_steps(
    progress: SwitchProgress, scene: SwitchScreenModel, columns: int, *, is_folded: bool = False
) -> list[TextRow]:
    """Return the steps; if ``is_folded`` in a row each, those to come in one, without what starts and stops."""
    rows: list[TextRow] = []
    for at, one in enumerate(progress.steps):
        if at and one.step in _FINAL_STEPS and one.proofs and set(one.proofs) <= set(progress.steps[at - 1].proofs):
            continue  # the previous step has said so
        is_last = at == len(progress.steps) - 1
        goes_on = is_last and one.ended is None and not progress.is_over
        step = _render_step(one, progress, scene, columns, goes_on=goes_on)
        if is_folded:
            step = [
                step[0] if len(step) == 1 else (*truncate_row(step[0], columns - 2, ""), Span(" …", TextStyle.LABEL))
            ]
        elif goes_on:
            step += _render_live_progress(progress, scene, columns)
        rows += step
    if not progress.is_over:
        coming = _list_pending_steps(progress)
        rows += [_render_pending_step(step, progress) for step in (coming[:1] if is_folded else coming)]
    return rows or ([] if progress.is_over else [make_row(Span("beginning ...", TextStyle.STALE))])


def _render_step(
    one: Taken, progress: SwitchProgress, scene: SwitchScreenModel, columns: int, *, goes_on: bool
) -> list[TextRow]:
    is_asked = one.step is SwitchStep.UNDOING and all(each.step in ROLLBACK_STEPS for each in progress.steps)
    sign, tone = _choose_step_symbol(one, goes_on=goes_on, is_asked=is_asked)
    until = scene.now if goes_on else one.ended
    taken = "" if until is None or one.step in _FINAL_STEPS else format_clock(max(0.0, until - one.began))
    head, hang = make_row(Span(f"{sign} ", tone), Span(f"{taken:>5}  ", TextStyle.VALUE)), _HANG_COLUMNS
    several = len({proof.node for proof in one.proofs}) > 1
    lines = [
        (f"{proof.node}: {proof.text}" if several and proof.node else proof.text, TextStyle.LABEL)
        for proof in one.proofs
    ]
    if lines and one.ended is not None and one.step in _STEP_DONE_WORDS:
        head, hang = (
            make_row(*head, Span(f"{_STEP_DONE_WORDS[one.step]:<{_DONE_WORD_COLUMNS}}", TextStyle.PLAIN)),
            _HANG_COLUMNS + _DONE_WORD_COLUMNS,
        )
    elif not lines or one.step not in (SwitchStep.DONE, SwitchStep.RESTORED):  # the proof of the last step says it
        words = describe_step(one.step, progress, is_done=one.ended is not None)
        lines = (
            lines
            if lines and one.step in _FINAL_STEPS
            else [(words, TextStyle.STRONG if goes_on else TextStyle.PLAIN), *lines]
        )
    rows: list[TextRow] = []
    for words, kind in lines:
        rows += wrap_text(words, columns, kind, head=make_row(" " * hang) if rows else head)
    return rows


def _render_live_progress(progress: SwitchProgress, scene: SwitchScreenModel, columns: int) -> list[TextRow]:
    """Return the progress of the instances that this step stops or starts, on each Spark."""
    rows: list[TextRow] = []
    space = DrawArea(max(24, columns - _HANG_COLUMNS))
    for seen, one in _list_moving_instances(progress, scene):
        rows.append(make_row(" " * _HANG_COLUMNS, sanitize_span(f"{one.name} on {seen.name}", TextStyle.LABEL)))
        rows += [
            make_row(" " * _HANG_COLUMNS, *each)
            for part in render_startup_progress(one, seen, space)
            for each in part.rows
        ]
    return rows


def _list_moving_instances(
    progress: SwitchProgress, scene: SwitchScreenModel
) -> list[tuple[NodeTileModel, InstanceView]]:
    """Return what the current step stops or starts, each with its Spark."""
    old, step = () if progress.plan is None else progress.plan.stops, progress.current_step
    found = []
    for seen in scene.glances.values():
        for one in seen.view.instances:
            stops = one.phase is Phase.STOPPING
            is_new = step is SwitchStep.STARTING and one.name in (*progress.needs, progress.instance) and not stops
            is_old = step is SwitchStep.RESTORING and one.name != progress.instance and not stops
            goes = step is SwitchStep.STOPPING and stops and (not old or one.name in old)
            if one.ours and one.phase in TRANSITION_PHASES and (is_new or is_old or goes):
                found.append((seen, one))
    return found


def _choose_step_symbol(one: Taken, *, goes_on: bool, is_asked: bool) -> tuple[str, TextStyle]:
    """Return the symbol of a step. ``is_asked``: nothing failed; an operator undoes an interrupted switch."""
    if one.step in (SwitchStep.UNDOING, SwitchStep.LEFT) and not is_asked:
        return get_state_symbol(Phase.FAILED), TextStyle.BAD
    if goes_on:
        return get_state_symbol(Phase.STARTING), TextStyle.ATTENTION
    if one.ended is None:
        return get_state_symbol(Phase.FAILED), TextStyle.BAD
    return "✓", TextStyle.GOOD


def _list_pending_steps(progress: SwitchProgress) -> Sequence[SwitchStep]:
    step = progress.current_step
    if progress.is_only_start:
        return ()
    if step is None:
        return SWITCH_STEPS
    way = ROLLBACK_STEPS if step in ROLLBACK_STEPS else SWITCH_STEPS
    return list(dropwhile(lambda each: each is not step, way))[1:]


def _render_pending_step(step: SwitchStep, progress: SwitchProgress) -> TextRow:
    return make_row(Span(f"· {'':5}  {describe_step(step, progress)}", TextStyle.STALE))


# --- its end -----------------------------------------------------------------------------------------------------------


def _render_result(
    progress: SwitchProgress, end: CommandEnded, scene: SwitchScreenModel, columns: int
) -> list[TextRow]:
    """Return how the switch ended: ready, or why not, and the state of the previous models."""
    if end.outcome in (Outcome.READY, Outcome.DONE):
        words, tone = describe_command_result("switch", end, [end.node] if end.node else [], ())
        rows = render_sentences(words, columns, "", tone)
        return [*rows, make_row(Span(f"{format_duration(end.seconds)} in all", TextStyle.LABEL))]
    bad = get_state_symbol(Phase.FAILED)
    rows = _render_rollback(progress, scene, columns)
    has_story = end.verdict is not None
    if end.verdict is not None:
        instance = end.instance or progress.instance
        rows += render_sentences(f"{instance} failed: {end.verdict.summary}", columns, bad, TextStyle.BAD)
        for proof in end.verdict.evidence[:1]:
            proof_rows = render_sentences(f"{proof.location}: {proof.text}", columns, " ", TextStyle.VALUE)
            rows += proof_rows[:_MAX_PROOF_LINES]
            if len(proof_rows) > _MAX_PROOF_LINES:
                rows[-1] = (*rows[-1], Span(" …", TextStyle.LABEL))
        rows += render_hints(end.verdict.remedy, columns)
    if end.message is not None and not (has_story and progress.current_step is SwitchStep.RESTORED):
        rows += render_sentences(
            end.message, columns, " " if has_story else bad, TextStyle.ATTENTION if rows else TextStyle.BAD
        )
    rows += render_hints(end.hint, columns)
    return rows or render_sentences(f"{end.outcome} after {format_duration(end.seconds)}", columns, bad, TextStyle.BAD)


def _render_rollback(progress: SwitchProgress, scene: SwitchScreenModel, columns: int) -> list[TextRow]:
    """Return that the previous models serve again, with the proof; this is what an owner wants to know first."""
    restored = next((one for one in progress.steps if one.step is SwitchStep.RESTORED), None)
    if restored is None:
        return []
    old = describe_step(SwitchStep.RESTORED, progress, is_done=True)
    proofs = "; ".join(one.text for one in restored.proofs)
    sentences = proofs if proofs.startswith(old) else f"{old}: {proofs}" if proofs else old
    return render_sentences(sentences, columns, get_state_symbol(Phase.READY), TextStyle.GOOD)


def render_switch_progress_line(progress: SwitchProgress, now: float, key: str | None) -> TextRow:
    """Return the progress of a running switch; ``key`` shows its screen."""
    step = progress.current_step
    tone = TextStyle.BAD if progress.is_rolling_back else TextStyle.ATTENTION
    words = "beginning" if step is None else describe_step(step, progress)
    which = "" if progress.is_only_start else _format_step_number(step)
    shows = () if key is None else (Span(f"   {key}", TextStyle.KEY), Span(" shows it", TextStyle.LABEL))
    return make_row(
        Span(f"{get_state_symbol(Phase.STARTING)} ", tone),
        sanitize_span(f"switch to {progress.instance}", TextStyle.STRONG),
        sanitize_span(f"{which} · {format_clock(max(0.0, now - progress.began))}", tone),
        *shows,
        sanitize_span(f"   {words}", tone),
    )


def _format_step_number(step: SwitchStep | None) -> str:
    return f", step {SWITCH_STEPS.index(step) + 1} of {len(SWITCH_STEPS)}" if step in SWITCH_STEPS else ""


def render_unfinished_switch(
    words: str, keys: tuple[tuple[str, str], ...], *, is_held: bool, columns: int
) -> tuple[TextRow, ...]:
    """Return the rows about a switch that another operator runs or that was interrupted: ``words`` say who, which
    step, since when; ``keys`` are the actions with their labels. Rows are wrapped to ``columns``."""
    sign = get_state_symbol(Phase.STARTING if is_held else Severity.WARNING)
    shown = [
        span for key, does in keys for span in (Span(f"  {key}", TextStyle.KEY), Span(f" {does}", TextStyle.LABEL))
    ]
    rows = wrap_text(words, columns, TextStyle.ATTENTION, head=make_row(Span(f"{sign} ", TextStyle.ATTENTION)))
    if len(rows) > 1 and shown and measure_row(rows[-1]) + measure_row(tuple(shown)) <= columns:
        return (*rows[:-1], (*rows[-1], *shown))  # a narrow terminal has few lines
    return (*rows, tuple(shown)) if shown else tuple(rows)


def describe_switch_journal(node: NodeName, view: SwitchJournalStatus) -> str:
    """Return ``switch to qwen36 was left: step 3 of 6, releasing, by milo@laptop since 14:02``."""
    one = view.journal
    if one is None:
        return f"{node}: there is a journal of a switch, but {view.why}"
    state = "goes on" if view.is_held else "was left"
    number = _format_step_number(one.step)
    where = number.removeprefix(", ") + f", {one.step}" if number else f"on its way back, {one.step}"
    since = format_time_of_day(one.since)
    return f"switch to {one.instance} {state}: {where}, by {one.operator} since {since}"
