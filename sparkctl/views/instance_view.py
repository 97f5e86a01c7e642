"""The instance screen as rows: state and figures, memory against claim, the end of the log, the launch plan."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

from sparkctl.commands.start.launch_plans import ContainerLaunch
from sparkctl.model.decode_step import DecodeStepSpec
from sparkctl.model.engine_metrics import DraftAcceptance, EngineActivity, EngineMeter, Quantiles
from sparkctl.model.events import CommandEnded, WarningEmitted
from sparkctl.model.finding import Severity
from sparkctl.model.instance import InstanceView
from sparkctl.model.launch_plan import LaunchPlan
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.phase import Phase
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.text.units import GIB, format_duration, format_gib
from sparkctl.model.verdict import FieldChange, Verdict
from sparkctl.monitor.meters.bandwidth import estimate_instance_bandwidth
from sparkctl.monitor.ranks import is_head
from sparkctl.monitor.sample_series import LastValue, MeterSeries
from sparkctl.monitor.startup_timeline import StartupTimeline
from sparkctl.profiles.exporters.docker_command import format_docker_run
from sparkctl.views import meter_view
from sparkctl.views.event_text import TRANSITION_PHASES
from sparkctl.views.overview.startup_timeline_view import (
    render_startup_duration,
    render_startup_progress,
    render_startup_timeline,
)
from sparkctl.views.overview.tile_model import (
    NodeTileModel,
    StateBadge,
    build_instance_badge,
    format_age,
)
from sparkctl.views.overview.tile_rows import (
    LABEL_COLUMNS,
    MAX_CHART_ROWS,
    TALL_CHART_ROWS,
    AreaChart,
    DrawArea,
    build_chart_row,
    build_gpu_charts,
    build_machine_row,
    build_memory_groups,
    build_throughput_chart,
    choose_chart_seconds,
    describe_engine,
    describe_head,
    describe_rank,
    fill_series_gaps,
    format_chart_span,
    make_label,
    render_acceptance,
    render_bandwidth,
    render_engine_facts,
    render_failure,
    render_gpus,
    render_labelled_text,
    render_log_text,
    render_throughput,
    render_unreachable,
    tells_figures,
)
from sparkctl.views.profiles.launch_plan_view import describe_ready_rule
from sparkctl.views.text.charts import (
    ChartValues,
    RowBlock,
    dim_blocks,
    drop_least_important,
    expand_charts,
    make_block,
    render_claim_bar,
    render_gauge,
    round_above,
)
from sparkctl.views.text.frame_layout import FRAME_COLUMNS, draw_frame, pad_screen
from sparkctl.views.text.line_wrap import wrap_row, wrap_text
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
    sanitize_span,
    scroll_rows,
    truncate_row,
)

_PLAN_TITLE = make_row(Span("runs with", TextStyle.LABEL))
_SIDE_BY_SIDE_COLUMNS, _SIDE_BY_SIDE_LINES = 110, 20  # from this size on, the plan is shown beside the state
_FULL_KV_PERCENT = 80.0, 95.0  # from where on requests will wait for room, and do
_MIN_LOG_LINES = 8  # fewest useful lines of the log box or the plan box if both are shown
_MIN_BOX_LINES = 4  # fewest useful lines of a box
_MIN_LINES_WITH_MEMORY = 20
_FULL_DETAIL_LINES = 40  # from this height on, a start is shown in full above the rest


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceScreenModel:
    """The state of the instance screen. ``one`` is None if the instance is not there; ``end`` is the result of a
    watched start, ``timeline`` its progress. ``run`` is the launch plan, or ``run_trouble`` why it is not known;
    ``tail`` are the last log lines, ``tail_trouble`` the problem with following the log. ``remedies`` are keys that
    may fix a failure, with their labels; ``end_trouble`` is why there is no verdict. ``warnings``: from its last
    start from here. ``accepts``: the key that applies the verdict's proposal.
    ``bench``: its last benchmark in a line. ``are_charts_beside``: its curves have a box of their own."""

    seen: NodeTileModel
    name: str
    one: InstanceView | None
    timeline: StartupTimeline | None
    end: CommandEnded | None
    run: ContainerLaunch | None = None
    run_trouble: str | None = None
    tail: tuple[str, ...] = ()
    tail_trouble: str | None = None
    remedies: tuple[tuple[str, str], ...] = ()
    end_trouble: str | None = None
    warnings: tuple[WarningEmitted, ...] = ()
    accepts: str | None = None
    bench: str | None = None
    are_charts_beside: bool = False


def render_instance(scene: InstanceScreenModel, columns: int, lines: int) -> tuple[TextRow, ...]:
    """Return exactly ``lines`` rows of exactly ``columns``."""
    if not _has_columns(columns, lines):
        return pad_screen(_render_stacked(scene, columns, lines), columns, lines)
    rows = _render_columns(scene, columns, lines - _MIN_LOG_LINES)
    return pad_screen([*rows, *_render_log_box(scene, columns, lines - len(rows))], columns, lines)


def _has_columns(columns: int, lines: int) -> bool:
    """Tell whether the terminal has space for two columns."""
    return columns >= _SIDE_BY_SIDE_COLUMNS and lines >= _SIDE_BY_SIDE_LINES


def render_instance_page(scene: InstanceScreenModel, columns: int, lines: int, further: int) -> ScrollPage:
    """Return what fits in ``lines`` rows; when the user pages on, everything from row ``further`` on, in as many columns.
    In two columns there is nothing to page on to where all of it fits."""
    if further <= 0:
        return ScrollPage(render_instance(scene, columns, lines))
    if _has_columns(columns, lines):
        rows = _render_columns(scene, columns, None)
        if len(rows) + _MIN_LOG_LINES <= lines:
            return ScrollPage(render_instance(scene, columns, lines))
        rows += _render_log_box(scene, columns, _MIN_LOG_LINES)
    else:
        rows = _render_all(scene, columns, lines)
    page = scroll_rows(rows, further, lines)
    return ScrollPage(pad_screen(page.rows, columns, lines), page.further)


def _render_all(scene: InstanceScreenModel, columns: int, lines: int) -> list[TextRow]:
    """Return all boxes, each as tall as useful."""
    space = DrawArea(max(8, columns - 4))
    state, memory = _render_state(scene, space, roomy=True), _render_memory(scene, space)
    boxes = [
        (
            _render_title(scene),
            [each for part in expand_charts(state, _count_rows(state) + lines) for each in part.rows],
        )
    ]
    if memory:
        boxes.append((_render_memory_title(scene), [each for part in memory for each in part.rows]))
    boxes.append((_PLAN_TITLE, _render_plan(scene, columns - 4)))
    rows = [each for title, body in boxes for each in draw_frame(title, body, columns, len(body) + 2)]
    return [*rows, *_render_log_box(scene, columns, max(_MIN_LOG_LINES, lines - 1))]


def _render_columns(scene: InstanceScreenModel, columns: int, most: int | None) -> list[TextRow]:
    """Return the two columns above the log, in at most so many rows; None: in as many as they need."""
    left = max(columns // 2, 60)
    right = columns - left
    space = DrawArea(left - 4)
    curves = _build_live_charts(scene, DrawArea(right - 4, TALL_CHART_ROWS))
    scene = replace(scene, are_charts_beside=bool(curves))
    state, memory = _render_state(scene, space, roomy=True), _render_memory(scene, space)
    plan = _render_plan(scene, right - 4)
    needed = _count_rows(state) + 2 + (_count_rows(memory) + 2 if memory else 0)
    wanted = len(plan) if not curves else _count_rows(curves) if most is None else len(curves) * MAX_CHART_ROWS
    top = max(needed, wanted + 2)
    top = top if most is None else min(most, top)
    below = min(_count_rows(memory) + 2, top // 2) if memory else 0
    room = top - below - 2
    lefts = [
        *draw_frame(_render_title(scene), drop_least_important(expand_charts(state, room), room), left, top - below)
    ]
    if memory:
        lefts += draw_frame(
            _render_memory_title(scene),
            drop_least_important(memory, below - 2),
            left,
            below,
        )
    if curves:
        shown = drop_least_important(expand_charts(curves, top - 2), top - 2)
        title = make_row(Span(f"last {format_chart_span(scene.seen)}", TextStyle.LABEL))
        rights = draw_frame(title, shown, right, top)
    else:
        rights = draw_frame(_PLAN_TITLE, _limit_rows(plan, top - 2), right, top)
    return [(*one, *other) for one, other in zip(lefts, rights, strict=True)]


def _render_stacked(scene: InstanceScreenModel, columns: int, lines: int) -> list[TextRow]:
    space = DrawArea(max(8, columns - 4))
    state, memory = _render_state(scene, space, roomy=lines >= _FULL_DETAIL_LINES), _render_memory(scene, space)
    first = min(lines, _count_rows(state) + 2)
    is_ready = scene.one is not None and scene.one.phase is Phase.READY
    if memory and is_ready and lines >= _MIN_LINES_WITH_MEMORY:
        first = min(first, lines - 2 * _MIN_BOX_LINES)  # its memory is more than what it was started from
    left = lines - first
    title = _append_page_key(_render_title(scene), columns)
    if left < _MIN_BOX_LINES:  # too few for a box: the end of the log stands in this one
        shown = drop_least_important(state, lines - 2)
        if (free := lines - 2 - len(shown)) > 0 and (scene.tail or scene.tail_trouble):
            rows = render_log_tail(scene.tail, scene.tail_trouble, free, space.columns - LABEL_COLUMNS)[-free:]
            shown += [make_row(make_label("" if at else "log"), *row) for at, row in enumerate(rows)]
        return list(draw_frame(title, shown, columns, lines))
    rows = [*draw_frame(title, drop_least_important(state, first - 2), columns, first)]
    if memory and left >= _MIN_BOX_LINES:
        high = min(_count_rows(memory) + 2, max(3, left - _MIN_BOX_LINES))
        if left - high < _MIN_BOX_LINES:
            high = left
        rows += draw_frame(
            _render_memory_title(scene),
            drop_least_important(memory, high - 2),
            columns,
            high,
        )
        left -= high
    plan = _render_plan(scene, columns - 4)
    for_plan = min(len(plan) + 2, left // 2)
    if for_plan < _MIN_LOG_LINES:
        for_plan = 0  # one key away
    rows += _render_log_box(scene, columns, left - for_plan) if left else []
    if for_plan:
        rows += draw_frame(_PLAN_TITLE, _limit_rows(plan, for_plan - 2), columns, for_plan)
    return rows


def _count_rows(parts: Sequence[RowBlock]) -> int:
    return sum(len(part.rows) for part in parts)


def _render_memory_title(scene: InstanceScreenModel) -> TextRow:
    if _has_failed(scene):
        return make_row(sanitize_span(f"memory of {scene.seen.name} now, not at the failure", TextStyle.LABEL))
    is_marked = scene.one is not None and scene.one.memory is not None and scene.one.expected is not None
    mark = (Span("   ▐", TextStyle.STRONG), Span(" expected", TextStyle.LABEL)) if is_marked else ()
    return make_row(Span("memory", TextStyle.LABEL), *mark)


def _limit_rows(rows: Sequence[TextRow], room: int) -> list[TextRow]:
    if len(rows) <= room or room < 1:
        return list(rows)
    more = len(rows) - room + 1
    return [*rows[: room - 1], make_row(Span("d", TextStyle.KEY), Span(f" shows {more} lines more", TextStyle.LABEL))]


# --- state ------------------------------------------------------------------------------------------------------------


def _render_title(scene: InstanceScreenModel) -> TextRow:
    badge = _build_badge(scene)
    dash = Span(" ─ ", TextStyle.FRAME)
    return make_row(
        sanitize_span(scene.seen.name, TextStyle.TITLE),
        dash,
        Span(f"{badge.sign} {badge.word}", badge.tone),
        dash,
        sanitize_span(scene.name, TextStyle.TITLE),
    )


def _append_page_key(title: TextRow, columns: int) -> TextRow:
    """Return a title with the key that pages on, because there is always more below."""
    whole = make_row(Span("   pgdn", TextStyle.KEY), Span(" reads on", TextStyle.LABEL))
    fits = (one for one in (whole, whole[:1]) if measure_row(title) + measure_row(one) <= columns - FRAME_COLUMNS)
    return (*title, *next(fits, ()))


def _build_badge(scene: InstanceScreenModel) -> StateBadge:
    one = scene.one
    if not scene.seen.is_known:
        state = scene.seen.connection.state
        return StateBadge(get_state_symbol(state), str(state), TextStyle.STALE)
    if _has_failed(scene):
        taken = _get_start_seconds(scene)
        words = f"failed after {format_duration(taken)}" if taken else "failed"
        return StateBadge(get_state_symbol(Phase.FAILED), words, TextStyle.BAD)
    if one is None:
        return StateBadge(get_state_symbol(Phase.STOPPED), "not there", TextStyle.LABEL)
    return build_instance_badge(one, scene.seen.seconds_ready(one))


def _get_start_seconds(scene: InstanceScreenModel) -> float | None:
    """Return how long a failed start took: the sum of its phases, else the time of its end."""
    timeline = scene.timeline
    if timeline is not None and timeline.phase is Phase.FAILED and timeline.elapsed is not None:
        return timeline.elapsed
    return None if scene.end is None else scene.end.seconds


def _has_failed(scene: InstanceScreenModel) -> bool:
    if scene.one is None:
        return scene.end is not None and scene.end.verdict is not None
    return scene.one.phase is Phase.FAILED


def _render_state(scene: InstanceScreenModel, space: DrawArea, *, roomy: bool) -> list[RowBlock]:
    seen, one = scene.seen, scene.one
    if not seen.is_known:
        parts = [make_block(1, *render_unreachable(seen, space))]
        return parts if one is None else [*parts, *dim_blocks(_render_identity(one, space, scene.bench))]
    if _has_failed(scene):
        return [
            *_render_failure_blocks(scene, space, roomy=roomy),
            *_render_warnings(scene, space),
        ]  # phases before warnings
    if one is None:
        log = make_row(Span("l", TextStyle.KEY), Span(" shows its saved log, if there is one", TextStyle.LABEL))
        return [make_block(0, make_row(Span("It is not on this Spark now.", TextStyle.VALUE)), log)]
    if one.phase in TRANSITION_PHASES:
        return [
            *_render_startup(scene, one, space),
            *_render_warnings(scene, space),
            *_render_identity(one, space, scene.bench),
            *_render_gpu(scene, space),
            *(build_gpu_charts(seen, space) if roomy else []),
        ]
    return [
        *_render_throughput(scene, one, space, roomy=roomy),
        *_render_identity(one, space, scene.bench),
        *_render_folded_plan(scene, space),
        *_render_warnings(scene, space),
    ]


def _render_folded_plan(scene: InstanceScreenModel, space: DrawArea) -> list[RowBlock]:
    """Return what it was started from in a row, with the key that shows its whole ``docker run`` line."""
    plan = None if scene.run is None else scene.run.plan
    if plan is None or not plan.profile:
        return []
    key = make_row(Span("d", TextStyle.KEY), Span(" docker run line", TextStyle.LABEL))
    words = make_row(
        make_label("profile"),
        sanitize_span(plan.profile, TextStyle.VALUE),
        sanitize_span(f" {plan.profile_hash or ''}   ", TextStyle.LABEL),
        *key,
    )
    image = make_row(make_label("image"), sanitize_span(plan.image, TextStyle.VALUE))
    return [make_block(6, words), make_block(8, truncate_row(image, space.columns))]


def _build_live_charts(scene: InstanceScreenModel, space: DrawArea) -> list[RowBlock]:
    """Return the curves of an instance that answers, without those never read: speeds, bandwidth, KV cache, first token, GPU."""
    one, seen = scene.one, scene.seen
    series = None if one is None else seen.drafting.get(one.container_id or "")
    if one is None or one.phase is not Phase.READY or series is None or not seen.is_known:
        return []
    seconds = float(choose_chart_seconds(seen))
    widths = space.split_chart_columns(2)

    def make_chart(
        read: Callable[[float, float, int], ChartValues], unit: str, title: str, least: float, factor: float = 1.0,
        tone: TextStyle = TextStyle.RATE, most: float = math.inf,
    ) -> AreaChart | None:  # fmt: skip
        means = fill_series_gaps(read(seen.now, seconds, widths[1] * 2), seconds)
        values = [None if value is None else value * factor for value in means]
        known = [value for value in values if value is not None]
        if not known:
            return None
        top = min(most, round_above(max(known), least))
        return AreaChart(values=values, most=top, unit=unit, tone=tone, title=title)

    read = estimate_instance_bandwidth(one, seen.view)
    steps = None if one.numbers is None else one.numbers.steps
    kv = make_chart(series.get_kv_usages, "%", "KV cache", 10.0, 100.0, TextStyle.GPU, most=100.0)
    charts = [
        make_chart(series.get_generation_rates, "tok/s", "decode", 10.0),
        make_chart(series.get_accept_lengths, "per step", "accept", 2.0),
        None
        if read is None or not read.is_plausible or not steps
        else make_chart(
            series.get_step_rates, "GB/s", "BW est.", 100.0, (read.low + read.high) / 2e9 / steps, TextStyle.GPU
        ),
        None if kv is None else replace(kv, danger=_FULL_KV_PERCENT),
        make_chart(series.get_first_token_times, "ms", "first token", 100.0, 1000.0),
    ]
    known = [chart for chart in charts if chart is not None]
    if not known:
        return []
    rows = []
    for at in range(0, len(known), 2):
        pair = known[at : at + 2]
        row = build_chart_row(
            f"live {at}", pair, widths if len(pair) == 2 else space.split_chart_columns(1), space.chart_rows
        )
        if row is not None:
            rows.append(row)
    return [*rows, *build_gpu_charts(seen, space)]


def _render_warnings(scene: InstanceScreenModel, space: DrawArea) -> list[RowBlock]:
    """Return the warnings of its start, one line each with a symbol; the notice and key `i` show them in full."""
    sign = get_state_symbol(Severity.WARNING)
    return [
        make_block(
            9,
            truncate_row(
                make_row(make_label("warned"), sanitize_span(f"{sign} {one.message}", TextStyle.ATTENTION)),
                space.columns,
            ),
        )
        for one in scene.warnings[-3:]
    ]


def _render_identity(one: InstanceView, space: DrawArea, bench: str | None = None) -> list[RowBlock]:
    """Return engine, port and owner."""
    words = [
        describe_engine(one),
        f":{one.port}" if one.port is not None else "",
        one.container if not one.ours else "",
    ]
    if one.operator:
        words.append(f"by {one.operator}")
    rows = [make_row(make_label("what"), sanitize_span("   ".join(word for word in words if word), TextStyle.VALUE))]
    if one.endpoint and space.columns >= 56:
        rows.append(make_row(make_label("at"), sanitize_span(one.endpoint, TextStyle.VALUE)))
    if (uses := render_engine_facts(one, space)) is not None:
        rows.append(uses)
    if bench is not None:
        label = make_row(make_label("bench"))
        rows.append(truncate_row(make_row(*label, sanitize_span(bench, TextStyle.VALUE)), space.columns))
    blocks = [make_block(3, rows[0]), *(make_block(6, each) for each in rows[1:])]
    return [*blocks, *_render_ranks(one, space)] if is_head(one) or one.phase is not Phase.READY else blocks


def _render_ranks(one: InstanceView, space: DrawArea) -> list[RowBlock]:
    """Return its rank and where the others run; nothing for a model on one Spark."""
    if one.rank_position is None:
        return []
    others = [sanitize_line(node) for node in one.nodes if node != one.node]
    words = describe_rank(one) + (f", with {' and '.join(others)}" if others else "")
    return [make_block(3, *render_labelled_text("part", words, space, TextStyle.VALUE, 2))]


def _render_failure_blocks(scene: InstanceScreenModel, space: DrawArea, *, roomy: bool) -> list[RowBlock]:
    verdict = None if scene.end is None else scene.end.verdict
    if verdict is not None:
        parts = [
            *render_verdict(verdict, space),
            *(
                make_block(1, each)
                for each in render_verdict_keys(verdict, space, scene.remedies, scene.accepts, roomy=roomy)
            ),
        ]
    else:
        assert scene.one is not None
        rows = render_failure(scene.one, scene.seen, space)
        hint = make_row(
            Span("l", TextStyle.KEY),
            Span(" log, then ", TextStyle.LABEL),
            Span("E", TextStyle.KEY),
            Span(" for its first error", TextStyle.LABEL),
        )
        why = scene.end_trouble or "this start was not watched from here"
        parts = [
            make_block(0, *rows),
            make_block(1, *render_labelled_text("", why, space, TextStyle.STALE, 2), hint),
        ]
    parts += _render_startup_result(scene, space, roomy=roomy)
    return (
        parts
        if scene.one is None
        else [*parts, *_render_identity(scene.one, space)[:1], *_render_ranks(scene.one, space)]
    )


def _render_startup(scene: InstanceScreenModel, one: InstanceView, space: DrawArea) -> list[RowBlock]:
    if scene.timeline is not None and not scene.timeline.is_over and one.phase is not Phase.STOPPING:
        return render_startup_timeline(scene.timeline, scene.seen.now, space)
    blocks = [make_block(3, make_row(make_label(""), sanitize_span(one.detail, TextStyle.LABEL)))] if one.detail else []
    return [*render_startup_progress(one, scene.seen, space), *blocks]


def _render_startup_result(scene: InstanceScreenModel, space: DrawArea, *, roomy: bool) -> list[RowBlock]:
    """Return how a watched start went, phase by phase if there is room."""
    if scene.timeline is None or not scene.timeline.stretches:
        return []
    if roomy:
        return [
            make_block(7 + part.spare, *part.rows)
            for part in render_startup_timeline(scene.timeline, scene.seen.now, space)
        ]
    took = render_startup_duration(scene.timeline, space)
    return [] if took is None else [make_block(8, took)]


def _render_throughput(
    scene: InstanceScreenModel, one: InstanceView, space: DrawArea, *, roomy: bool
) -> list[RowBlock]:
    if one.phase is Phase.READY and (head := scene.seen.heads.get(one.name)) is not None:
        rank = describe_rank(one)
        part = make_row(
            make_label("part"), *([Span(f"{rank} · ", TextStyle.LABEL)] if rank else []), *describe_head(one, head)
        )
        decode = make_block(1, render_throughput(head, space))
        accept = render_acceptance(head, scene.seen, space)
        return [
            make_block(1, part),
            decode,
            *([] if accept is None else [make_block(2, accept)]),
            *_render_gpu(scene, space),
        ]
    if one.phase is not Phase.READY or one.port is None:
        words = one.detail or (
            "a container that sparkctl did not start; its figures are not read" if not one.ours else ""
        )
        parts = [make_block(1, *render_labelled_text("", words, space, TextStyle.LABEL, 3))] if words else []
        return [*parts, *_render_gpu(scene, space)]
    alone = replace(one, reference=None)  # all that was published stands below
    parts = [make_block(0, render_throughput(alone, space))] if tells_figures(one) else []
    beside = scene.are_charts_beside
    if roomy and not beside and (speed := build_throughput_chart(one, scene.seen, space)) is not None:
        parts.append(speed)
    numbers = one.numbers
    if one.reference is not None:
        reference = meter_view.format_reference(one.reference)
        parts.append(make_block(6, *render_labelled_text("", f"published {reference}", space, TextStyle.LABEL, 2)))
    if (accept := render_acceptance(one, None if beside else scene.seen, space)) is not None:
        parts.append(make_block(1, accept))
    if numbers is not None:
        if numbers.activity is EngineActivity.IDLE and one.per_step is not None and one.per_step.draft_tokens:
            parts.append(make_block(2, make_row(make_label("accept"), Span(meter_view.IDLE, TextStyle.VALUE))))
        last = scene.seen.drafting.get(one.container_id or "")
        if positions := render_position_acceptance(numbers.acceptance, space, last, scene.seen.now):
            parts.append(make_block(4, *positions))
        parts += [make_block(3, each) for each in render_bandwidth(one, scene.seen, space, most_lines=3)]
        drafts = one.per_step is not None and bool(one.per_step.draft_tokens)
        parts += [make_block(5, each) for each in render_latencies(numbers, drafts, last, scene.seen.now)]
        if (steps := render_step_cost(numbers, one.per_step)) is not None:
            parts.append(make_block(6, steps))
    if one.metrics_hint is not None:
        hint = f"off; in the profile: {one.metrics_hint}"
        parts.append(make_block(7, *render_labelled_text("metrics", hint, space, TextStyle.LABEL, 2)))
    parts += _render_gpu(scene, space)
    if (machine := build_machine_row(scene.seen, space)) is not None:
        parts.append(machine)
    if roomy and not beside:
        parts += build_gpu_charts(scene.seen, space)
    return [*parts, *_render_startup_result(scene, space, roomy=False)]


def _render_gpu(scene: InstanceScreenModel, space: DrawArea) -> list[RowBlock]:
    return [make_block(4, *render_gpus(scene.seen, space))]


# --- the other boxes --------------------------------------------------------------------------------------------------


def _render_memory(scene: InstanceScreenModel, space: DrawArea) -> list[RowBlock]:
    parts = []
    bar = scene.seen.view.memory
    if scene.one is not None:
        rows = render_memory_claim(scene.one, None if bar is None else bar.total, space)
        parts += [make_block(1 if not at else 2, each) for at, each in enumerate(rows)]
    if bar is not None:
        parts += build_memory_groups(scene.seen, space, "Spark")
    return parts if scene.seen.is_known else dim_blocks(parts)


def _render_plan(scene: InstanceScreenModel, columns: int) -> list[TextRow]:
    if scene.run is None:
        return [make_row(sanitize_span(scene.run_trouble or "being read from its container ...", TextStyle.STALE))]
    return render_launched_plan(scene.run, columns)


def _render_log_box(scene: InstanceScreenModel, columns: int, lines: int) -> tuple[TextRow, ...]:
    title = make_row(Span("log", TextStyle.LABEL), Span("   l", TextStyle.KEY), Span(" all of it", TextStyle.LABEL))
    return draw_frame(title, render_log_tail(scene.tail, scene.tail_trouble, lines - 2, columns - 4), columns, lines)


_POLLING_REQUEST_PATTERN = re.compile(r'"GET /(?:health|metrics)\S* HTTP')
_MAX_POSITIONS = 8
_EXCESS_RATIO = 1.1  # factor of the expected memory; smaller differences count as expected


# --- a verdict --------------------------------------------------------------------------------------------------------


def render_verdict(verdict: Verdict, space: DrawArea) -> list[RowBlock]:
    """Return what happened, the evidence from the log, and what to change."""
    room = max(8, space.columns)
    parts = [make_block(0, *wrap_text(verdict.headline, room, TextStyle.STRONG))]
    for at, proof in enumerate(verdict.evidence):
        where = f"{proof.location:<10} "
        parts.append(
            make_block(
                2 + at, *render_labelled_text("proof" if not at else "", where + proof.text, space, TextStyle.VALUE, 2)
            )
        )
    parts.append(make_block(1, *render_labelled_text("try", verdict.remedy, space, TextStyle.VALUE, 4)))
    if verdict.edit is not None:
        parts.append(make_block(1, *_wrap_change(verdict.edit, room)))
    for at, one in enumerate(verdict.contributing):
        line = find_evidence_line(one)
        where = "" if line is None else f"line {line:<5} "
        parts.append(
            make_block(
                3 + at, *render_labelled_text("also" if not at else "", where + one.summary, space, TextStyle.LABEL, 2)
            )
        )
    return parts


def _wrap_change(edit: FieldChange, columns: int) -> list[TextRow]:
    """Return the change in one row, or the field above and its values below if it is too long."""
    field, *values = render_change(edit)
    if measure_row(whole := make_row(make_label("change"), field, *values)) <= columns:
        return [whole]
    below = make_row(Span(values[0].text.lstrip(), values[0].tone), *values[1:])
    return [
        truncate_row(make_row(make_label("change"), field), columns),
        truncate_row(make_row(make_label(""), *below), columns),
    ]


def render_change(edit: FieldChange) -> TextRow:
    """Return the proposed change: the field, its value and the new value."""
    spans = [sanitize_span(edit.field, TextStyle.LABEL)]
    if edit.was is not None:
        spans += [sanitize_span(f"  {edit.was}", TextStyle.VALUE), Span(" → ", TextStyle.LABEL)]
    else:
        spans.append(Span("  " if edit.value == "null" else " = ", TextStyle.LABEL))
    spans.append(
        Span("removed", TextStyle.STRONG) if edit.value == "null" else sanitize_span(edit.value, TextStyle.STRONG)
    )
    return tuple(spans)


def render_verdict_keys(
    verdict: Verdict,
    space: DrawArea,
    more: Sequence[tuple[str, str]],
    accepts: str | None,
    *,
    roomy: bool,
) -> list[TextRow]:
    """Return the keys under a verdict: in one column if it is ``roomy``, else in several. ``more``: further keys with
    their labels; ``accepts``: the key that applies the proposed change."""
    line = find_evidence_line(verdict)
    tries = [] if accepts is None or verdict.edit is None else [(accepts, "tries the change")]
    log = ("l", "log") if line is None else ("enter", f"log at line {line}")
    keys = [*tries, log, *more, ("y", "copy verdict")]
    names, does = (max(measure_text(key[at]) for key in keys) for at in range(2))
    wide = names + 1 + does + 4
    across = 1 if roomy else max(1, min(len(keys), (space.columns + 4) // wide))
    made = [make_row(Span(f"{key:<{names}} ", TextStyle.KEY), Span(words, TextStyle.LABEL)) for key, words in keys]
    lines = [made[begin : begin + across] for begin in range(0, len(made), across)]
    return [make_row(*(span for one in line[:-1] for span in pad_row(one, wide)), *line[-1]) for line in lines]


def format_profile_field(field: str, run: ContainerLaunch | None) -> str:
    """Return a profile's field with the value that the container was started with, if it can be read back."""
    flag = f"--{field.removeprefix('args.')}"
    args = () if run is None or not field.startswith("args.") else run.plan.command
    value = next((after for one, after in pairwise(args) if one == flag), None)
    value = value or next((one.partition("=")[2] for one in args if one.startswith(f"{flag}=")), None)
    return sanitize_line(f"{field} {value}" if value else field)


def find_evidence_line(verdict: Verdict) -> int | None:
    """Return the number of the log line that proves the verdict best, None if no log line does."""
    return next((proof.line for proof in verdict.evidence if proof.line is not None), None)


def list_evidence_lines(verdict: Verdict) -> tuple[int, ...]:
    """Return the numbers of all log lines that prove the verdict or contributed to it, in order."""
    every = (proof.line for one in (verdict, *verdict.contributing) for proof in one.evidence)
    return tuple(sorted({line for line in every if line is not None}))


def format_verdict_for_copy(end: CommandEnded) -> str:
    verdict = end.verdict
    if verdict is None:
        return sanitize_line(end.message or str(end.outcome))
    lines = [f"{end.instance} on {end.node} failed: {verdict.summary}"]
    for proof in verdict.evidence:
        where = f"log {proof.location}" if proof.origin == "log" else proof.location
        lines.append(f"  {where}: {proof.text}")
    return "\n".join(sanitize_line(line) for line in [*lines, f"  try: {verdict.remedy}"])


# --- figures ----------------------------------------------------------------------------------------------------------


def render_position_acceptance(
    seen: DraftAcceptance | None, space: DrawArea, last: MeterSeries | None, now: float
) -> list[TextRow]:
    """Return the acceptance of the first, second and third draft token as bars; nothing if it was never reported.

    ``last`` is the last report, which stays, faded and with its age at ``now``, while there is no newer one.
    """
    kept = None if last is None else last.positions
    fresh = () if seen is None else seen.per_position or ()
    shares = fresh or (() if kept is None else kept.value)
    tone = TextStyle.RATE if fresh else TextStyle.STALE
    rows = []
    for at, share in enumerate(shares[:_MAX_POSITIONS], 1):
        name = f"draft {at}" if at < 10 else f"dr. {at}"
        line = render_gauge(share, space.bar_columns, tone)
        age = (
            Span(f"   {format_age(now - kept.ts)}", TextStyle.STALE)
            if kept is not None and not fresh and at == 1
            else Span("")
        )
        figure = Span(f"{meter_view.format_percent(share):>5}", TextStyle.VALUE if fresh else TextStyle.STALE)
        rows.append(make_row(make_label(name), *line, "  ", figure, age))
    if (more := len(shares) - _MAX_POSITIONS) > 0:
        rows.append(make_row(make_label(""), Span(f"{more} more", TextStyle.LABEL)))
    return rows


def render_latencies(numbers: EngineMeter, drafts: bool, last: MeterSeries | None, now: float) -> list[TextRow]:
    """Return time to first token, inter-token time, prompt throughput and prefix cache.

    ``last`` holds the last value of each. If there is nothing newer it stays, faded and with its age at ``now``, so
    that the rows below do not move with every request.
    """
    kept = last or MeterSeries()
    between = "steps" if drafts or numbers.acceptance is not None else "tokens"
    rows = [
        _render_latency("TTFT", numbers.ttft, kept.ttft, now),
        _render_latency("ITL", numbers.inter_token, kept.inter_token, now, f"   between {between}"),
        _render_prompt_rate(numbers, kept, now),
    ]
    return [each for each in rows if each is not None]


def _render_latency(
    name: str, fresh: Quantiles | None, last: LastValue[Quantiles] | None, now: float, of: str = ""
) -> TextRow | None:
    if fresh is not None:
        return make_row(
            make_label(name), Span(meter_view.format_latency(fresh), TextStyle.VALUE), Span(of, TextStyle.LABEL)
        )
    if last is None:
        return None
    return make_row(
        make_label(name),
        Span(f"{meter_view.format_latency(last.value)}   {format_age(now - last.ts)}", TextStyle.STALE),
    )


def _render_prompt_rate(numbers: EngineMeter, last: MeterSeries, now: float) -> TextRow | None:
    prompts: list[Span] = []
    if numbers.prompt_rate:
        prompts.append(Span(f"{meter_view.format_token_rate(numbers.prompt_rate):<12}", TextStyle.VALUE))
    if numbers.prefix_hit_rate is not None:
        prompts += [
            Span("prefix cache ", TextStyle.LABEL),
            Span(meter_view.format_percent(numbers.prefix_hit_rate), TextStyle.VALUE),
        ]
        prompts.append(Span(" found", TextStyle.UNIT))
    rate, found = last.prompt_rate, last.prefix_hit_rate
    if not prompts and (times := [one.ts for one in (rate, found) if one is not None]):
        text = "" if rate is None else f"{meter_view.format_token_rate(rate.value):<12}"
        text += "" if found is None else f"prefix cache {meter_view.format_percent(found.value)} found"
        prompts.append(Span(f"{text.rstrip()}   {format_age(now - max(times))}", TextStyle.STALE))
    return (make_label("prompts"), *prompts) if prompts else None


def render_step_cost(numbers: EngineMeter, per_step: DecodeStepSpec | None) -> TextRow | None:
    """Return steps per second, requests per step, and drafted tokens; None if nothing is known."""
    spans: list[Span] = []
    if numbers.steps is not None:
        spans += [Span(f"{numbers.steps:.1f}", TextStyle.VALUE), Span(" per second", TextStyle.UNIT)]
    if numbers.batch is not None:
        spans += [
            Span("   " if spans else ""),
            Span(f"{numbers.batch:.1f}", TextStyle.VALUE),
            Span(" requests each", TextStyle.UNIT),
        ]
    if per_step is not None and per_step.draft_tokens:
        spans += [
            Span("   " if spans else ""),
            Span(f"{per_step.draft_tokens}", TextStyle.VALUE),
            Span(" drafted", TextStyle.UNIT),
        ]
    return make_row(make_label("steps"), *spans) if spans else None


def render_memory_claim(one: InstanceView, total: int | None, space: DrawArea) -> list[TextRow]:
    """Return the held memory against the expected, on the memory bar's scale; nothing if neither is known."""
    if one.memory is None:
        if one.expected is None:
            return []
        expected = Span(f" of {format_gib(one.expected)} expected", TextStyle.UNIT)
        return [make_row(make_label("model"), Span(meter_view.UNKNOWN, TextStyle.STALE), expected)]
    more = 0 if one.expected is None else one.memory - one.expected
    over = one.expected is not None and one.memory > _EXCESS_RATIO * one.expected
    figure = make_row(Span(f"{one.memory / GIB:5.1f}", TextStyle.ATTENTION if over else TextStyle.STRONG))
    if one.expected is not None:
        figure = make_row(*figure, Span(f" of ≈{one.expected / GIB:.1f} GiB", TextStyle.UNIT))
    else:
        figure = make_row(*figure, Span(" GiB", TextStyle.UNIT))
    line = (
        ()
        if total is None
        else (
            *render_claim_bar(one.memory, one.expected, total, space.bar_columns, _EXCESS_RATIO),
            Span("  "),
        )
    )
    rows = [make_row(make_label("model"), *line, *figure)]
    if one.expected is None:
        rows.append(make_row(make_label(""), Span("no claim is known", TextStyle.LABEL)))
    elif over:
        rows.append(make_row(make_label(""), Span(f"{format_gib(more)} more than expected", TextStyle.ATTENTION)))
    elif one.expected > _EXCESS_RATIO * one.memory or (more < 0 and one.phase is not Phase.READY):
        less = "less than expected" if one.phase is Phase.READY else "still to come, as expected"
        rows.append(make_row(make_label(""), Span(f"{format_gib(one.expected - one.memory)} {less}", TextStyle.LABEL)))
    return rows


# --- what it runs with ------------------------------------------------------------------------------------------------


def render_launched_plan(run: ContainerLaunch, columns: int) -> list[TextRow]:
    """Return the plan as read back from the container: its labels, then the ``docker run`` line."""
    plan = run.plan
    heads = [
        ("profile", f"{plan.profile}   hash {plan.profile_hash}" if plan.profile else meter_view.UNKNOWN),
        ("image", plan.image),
        ("ready", describe_ready_rule(run.ready)),
        ("expects", meter_view.UNKNOWN if plan.expected_memory is None else format_gib(plan.expected_memory)),
    ]
    space = DrawArea(columns)
    rows = [
        each for name, sentence in heads for each in render_labelled_text(name, sentence, space, TextStyle.VALUE, 4)
    ]
    return [*rows, (), *render_docker_run(plan, columns)]


def render_docker_run(plan: LaunchPlan, columns: int) -> list[TextRow]:
    """Return the ``docker run`` line, one option per row; flags dim, values bright. Each row but the last ends with a backslash
    behind words, so that it is one command where it is pasted."""
    rows: list[TextRow] = []
    for line in format_docker_run(plan, with_labels=False).splitlines():
        text = sanitize_line(line).removesuffix("\\").rstrip(" ")
        indent = len(text) - len(text.lstrip(" "))
        flag, gap, value = text.strip().partition(" ")
        spans = [Span(" " * indent), Span(flag, TextStyle.LABEL if flag.startswith("-") else TextStyle.VALUE)]
        rows += wrap_row((*spans, Span(gap + value, TextStyle.VALUE)), columns - 2, 4)
    return [*((*row, Span(" \\", TextStyle.LABEL)) for row in rows[:-1]), *rows[-1:]]


def render_log_status(
    words: str | None, columns: int, tone: TextStyle = TextStyle.ACCENT, head: TextRow = ()
) -> list[TextRow]:
    """Return the problem of a log as rows, by default in a style that no log line has, after ``head``; a path at its end
    gets a line of its own if needed, so that it can be copied."""
    words, columns = sanitize_line(words or ""), max(8, columns)
    before, gap, path = words.rpartition(": ")
    if gap and path.startswith("/") and measure_text(words) + measure_row(head) > columns:
        words = f"{before}:\n{path}"
    return wrap_text(words, columns, tone, head=head)


def render_log_tail(lines: Sequence[str], trouble: str | None, room: int, columns: int) -> list[TextRow]:
    """Return the last log lines without headers, or why there are none; requests for health and metrics are left out."""
    last = render_log_status(trouble, columns)[-max(1, room) :]
    shown = (
        [line for line in lines if not _POLLING_REQUEST_PATTERN.search(line)][-max(1, room - len(last)) :]
        if room > len(last)
        else []
    )
    if not shown and not last:
        return [make_row(Span("reading ...", TextStyle.STALE))]
    return [*(make_row(render_log_text(line)) for line in shown), *last]
