"""The instance screen as rows: state and figures, memory against claim, the end of the log, the launch plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparkctl.commands.start.launch_plans import ContainerLaunch
from sparkctl.model.engine_metrics import EngineActivity
from sparkctl.model.events import CommandEnded, WarningEmitted
from sparkctl.model.finding import Severity
from sparkctl.model.instance import InstanceView
from sparkctl.model.phase import Phase
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.text.units import format_duration
from sparkctl.monitor.ranks import is_head
from sparkctl.monitor.startup_timeline import StartupTimeline
from sparkctl.views.instance_rows import (
    render_latencies,
    render_launched_plan,
    render_log_tail,
    render_memory_claim,
    render_position_acceptance,
    render_step_cost,
    render_verdict,
    render_verdict_keys,
)
from sparkctl.views.meter_view import IDLE
from sparkctl.views.overview.startup_timeline_view import (
    render_startup_duration,
    render_startup_progress,
    render_startup_timeline,
)
from sparkctl.views.overview.tile_charts import build_gpu_charts, build_memory_groups, build_throughput_chart
from sparkctl.views.overview.tile_model import TRANSITION_PHASES, NodeTileModel, StateBadge, build_instance_badge
from sparkctl.views.overview.tile_rows import (
    DrawArea,
    RowBlock,
    describe_engine,
    describe_head,
    describe_rank,
    make_label,
    render_acceptance,
    render_bandwidth,
    render_engine_facts,
    render_failure,
    render_gpus,
    render_labelled_text,
    render_throughput,
    render_unreachable,
)
from sparkctl.views.text.frame_layout import draw_frame, pad_screen
from sparkctl.views.text.row_layout import drop_least_important, expand_charts
from sparkctl.views.text.state_symbols import get_state_symbol
from sparkctl.views.text.styled_text import (
    ScrollPage,
    Span,
    TextRow,
    TextStyle,
    make_row,
    measure_row,
    restyle_row,
    sanitize_span,
    scroll_rows,
    truncate_row,
)

_SIDE_BY_SIDE_COLUMNS = 110  # from this width on, the plan is shown beside the state
_MIN_LOG_LINES = 8  # fewest useful lines of the log box or the plan box if both are shown
_MIN_BOX_LINES = 4  # fewest useful lines of a box
_FRAME_COLUMNS = 6  # width of a frame without its title
_FULL_DETAIL_LINES = 40  # from this height on, a start is shown in full above the rest


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceScreenModel:
    """The state of the instance screen. ``one`` is None if the instance is not there; ``end`` is the result of a
    watched start, ``course`` its progress. ``run`` is the launch plan, or ``run_trouble`` why it is not known;
    ``tail`` are the last log lines, ``tail_trouble`` the problem with following the log. ``remedies`` are keys that
    may fix a failure, with their labels; ``end_trouble`` is why there is no verdict. ``warnings``: from its last
    start from here. ``accepts``: the key that applies the verdict's proposal."""

    seen: NodeTileModel
    name: str
    one: InstanceView | None = None
    course: StartupTimeline | None = None
    end: CommandEnded | None = None
    run: ContainerLaunch | None = None
    run_trouble: str | None = None
    tail: tuple[str, ...] = ()
    tail_trouble: str | None = None
    ascii_only: bool = False
    remedies: tuple[tuple[str, str], ...] = ()
    end_trouble: str | None = None
    warnings: tuple[WarningEmitted, ...] = ()
    accepts: str | None = None


def render_instance(scene: InstanceScreenModel, columns: int, lines: int) -> tuple[TextRow, ...]:
    """Return exactly ``lines`` rows of exactly ``columns``."""
    rows = (
        _render_columns(scene, columns, lines)
        if columns >= _SIDE_BY_SIDE_COLUMNS and lines >= 20
        else _render_stacked(scene, columns, lines)
    )
    return pad_screen(rows, columns, lines, scene.ascii_only)


def render_instance_page(scene: InstanceScreenModel, columns: int, lines: int, further: int) -> ScrollPage:
    """Return what fits in ``lines`` rows; when the user pages on, everything in one column from row ``further`` on."""
    if further <= 0:
        return ScrollPage(render_instance(scene, columns, lines))
    page = scroll_rows(_render_all(scene, columns, lines), further, lines, scene.ascii_only)
    return ScrollPage(pad_screen(page.rows, columns, lines, scene.ascii_only), page.further)


def _render_all(scene: InstanceScreenModel, columns: int, lines: int) -> list[TextRow]:
    """Return all boxes, each as tall as useful."""
    space = DrawArea(max(8, columns - 4), scene.ascii_only)
    state, memory = _render_state(scene, space, roomy=True), _render_memory(scene, space)
    boxes = [
        (
            _render_title(scene),
            [each for part in expand_charts(state, _count_rows(state) + lines) for each in part.rows],
        )
    ]
    if memory:
        boxes.append(
            (_render_section_title(_format_memory_title(scene)), [each for part in memory for each in part.rows])
        )
    boxes.append((_render_section_title("runs with"), _render_plan(scene, columns - 4)))
    rows = [each for title, body in boxes for each in _draw_box(scene, title, body, columns, len(body) + 2)]
    return [*rows, *_render_log_box(scene, columns, max(_MIN_LOG_LINES, lines - 1))]


def _render_columns(scene: InstanceScreenModel, columns: int, lines: int) -> list[TextRow]:
    left = max(columns // 2, 60)
    right = columns - left
    space = DrawArea(left - 4, scene.ascii_only)
    state, memory = _render_state(scene, space, roomy=True), _render_memory(scene, space)
    plan = _render_plan(scene, right - 4)
    needed = _count_rows(state) + 2 + (_count_rows(memory) + 2 if memory else 0)
    top = min(lines - _MIN_LOG_LINES, max(needed, len(plan) + 2))
    below = min(_count_rows(memory) + 2, top // 2) if memory else 0
    room = top - below - 2
    lefts = [
        *_draw_box(
            scene, _render_title(scene), drop_least_important(expand_charts(state, room), room), left, top - below
        )
    ]
    if memory:
        lefts += _draw_box(
            scene,
            _render_section_title(_format_memory_title(scene)),
            drop_least_important(memory, below - 2),
            left,
            below,
        )
    rights = _draw_box(scene, _render_section_title("runs with"), _limit_rows(plan, top - 2), right, top)
    rows = [(*one, *other) for one, other in zip(lefts, rights, strict=True)]
    return [*rows, *_render_log_box(scene, columns, lines - top)]


def _render_stacked(scene: InstanceScreenModel, columns: int, lines: int) -> list[TextRow]:
    space = DrawArea(max(8, columns - 4), scene.ascii_only)
    state, memory = _render_state(scene, space, roomy=lines >= _FULL_DETAIL_LINES), _render_memory(scene, space)
    first = min(lines, _count_rows(state) + 2)
    left = lines - first
    title = _append_page_key(_render_title(scene), columns)
    if left < _MIN_BOX_LINES:
        return list(_draw_box(scene, title, drop_least_important(state, lines - 2), columns, lines))
    rows = [*_draw_box(scene, title, drop_least_important(state, first - 2), columns, first)]
    if memory and left >= _MIN_BOX_LINES:
        high = min(_count_rows(memory) + 2, max(3, left - _MIN_BOX_LINES))
        if left - high < _MIN_BOX_LINES:
            high = left
        rows += _draw_box(
            scene,
            _render_section_title(_format_memory_title(scene)),
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
        rows += _draw_box(scene, _render_section_title("runs with"), _limit_rows(plan, for_plan - 2), columns, for_plan)
    return rows


def _count_rows(parts: Sequence[RowBlock]) -> int:
    return sum(len(part.rows) for part in parts)


def _draw_box(
    scene: InstanceScreenModel, title: TextRow, rows: Sequence[TextRow], columns: int, lines: int
) -> tuple[TextRow, ...]:
    return draw_frame(title, rows, columns, lines, chosen=False, ascii_only=scene.ascii_only)


def _render_section_title(name: str) -> TextRow:
    return make_row(Span(name, TextStyle.LABEL))


def _format_memory_title(scene: InstanceScreenModel) -> str:
    return f"memory of {sanitize_line(scene.seen.name)} now, not at the failure" if _has_failed(scene) else "memory"


def _limit_rows(rows: Sequence[TextRow], room: int) -> list[TextRow]:
    if len(rows) <= room or room < 1:
        return list(rows)
    more = len(rows) - room + 1
    return [*rows[: room - 1], make_row(Span("d", TextStyle.KEY), Span(f" shows {more} lines more", TextStyle.LABEL))]


# --- state ------------------------------------------------------------------------------------------------------------


def _render_title(scene: InstanceScreenModel) -> TextRow:
    badge = _build_badge(scene)
    dash = Span(" - " if scene.ascii_only else " ─ ", TextStyle.FRAME)
    return make_row(
        sanitize_span(scene.seen.name, TextStyle.TITLE), dash, Span(f"{badge.sign} {badge.word}", badge.tone), dash,
        sanitize_span(scene.name, TextStyle.TITLE),
    )  # fmt: skip


def _append_page_key(title: TextRow, columns: int) -> TextRow:
    """Return a title with the key that pages on, because there is always more below."""
    whole = make_row(Span("   pgdn", TextStyle.KEY), Span(" reads on", TextStyle.LABEL))
    fits = (one for one in (whole, whole[:1]) if measure_row(title) + measure_row(one) <= columns - _FRAME_COLUMNS)
    return (*title, *next(fits, ()))


def _build_badge(scene: InstanceScreenModel) -> StateBadge:
    one = scene.one
    if not scene.seen.is_known:
        state = scene.seen.told.state
        return StateBadge(get_state_symbol(state, scene.ascii_only), str(state), TextStyle.STALE)
    if _has_failed(scene):
        taken = _get_start_seconds(scene)
        words = f"failed after {format_duration(taken)}" if taken else "failed"
        return StateBadge(get_state_symbol(Phase.FAILED, scene.ascii_only), words, TextStyle.BAD)
    if one is None:
        return StateBadge(get_state_symbol(Phase.STOPPED, scene.ascii_only), "not there", TextStyle.LABEL)
    return build_instance_badge(one, scene.ascii_only, scene.seen.seconds_ready(one))


def _get_start_seconds(scene: InstanceScreenModel) -> float | None:
    """Return how long a failed start took: the sum of its phases, else the time of its end."""
    course = scene.course
    if course is not None and course.phase is Phase.FAILED and course.elapsed is not None:
        return course.elapsed
    return None if scene.end is None else scene.end.seconds


def _has_failed(scene: InstanceScreenModel) -> bool:
    if scene.one is None:
        return scene.end is not None and scene.end.verdict is not None
    return scene.one.phase is Phase.FAILED


def _render_state(scene: InstanceScreenModel, space: DrawArea, *, roomy: bool) -> list[RowBlock]:
    seen, one = scene.seen, scene.one
    if not seen.is_known:
        parts = [RowBlock(spare=1, rows=tuple(render_unreachable(seen, space)))]
        return parts if one is None else [*parts, *_dim_blocks(_render_identity(one, space))]
    if _has_failed(scene):
        return [
            *_render_failure_blocks(scene, space, roomy=roomy),
            *_render_warnings(scene, space),
        ]  # phases before warnings
    if one is None:
        return [
            RowBlock(
                spare=0, rows=(make_row(Span("It is not on this Spark now.", TextStyle.VALUE)), _render_log_hint())
            )
        ]
    if one.phase in TRANSITION_PHASES:
        return [
            *_render_startup(scene, one, space),
            *_render_warnings(scene, space),
            *_render_identity(one, space),
            *_render_gpu(scene, space),
            *(build_gpu_charts(seen, space) if roomy else []),
        ]
    return [
        *_render_identity(one, space),
        *_render_throughput(scene, one, space, roomy=roomy),
        *_render_warnings(scene, space),
    ]


def _render_warnings(scene: InstanceScreenModel, space: DrawArea) -> list[RowBlock]:
    """Return the warnings of its start, one line each with a symbol; the notice and key `i` show them in full."""
    sign = get_state_symbol(Severity.WARNING, scene.ascii_only)
    return [
        RowBlock(
            spare=9,
            rows=(
                truncate_row(
                    make_row(make_label("warned"), sanitize_span(f"{sign} {one.message}", TextStyle.ATTENTION)),
                    space.columns,
                ),
            ),
        )
        for one in scene.warnings[-3:]
    ]


def _render_log_hint() -> TextRow:
    return make_row(Span("l", TextStyle.KEY), Span(" shows its saved log, if there is one", TextStyle.LABEL))


def _dim_blocks(parts: Sequence[RowBlock]) -> list[RowBlock]:
    return [
        RowBlock(spare=one.spare + 1, rows=tuple(restyle_row(each, TextStyle.STALE) for each in one.rows))
        for one in parts
    ]


def _render_identity(one: InstanceView, space: DrawArea) -> list[RowBlock]:
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
    told = [RowBlock(spare=3, rows=(rows[0],)), *(RowBlock(spare=6, rows=(each,)) for each in rows[1:])]
    return [*told, *_render_ranks(one, space)] if is_head(one) or one.phase is not Phase.READY else told


def _render_ranks(one: InstanceView, space: DrawArea) -> list[RowBlock]:
    """Return its rank and where the others run; nothing for a model on one Spark."""
    if one.rank_position is None:
        return []
    others = [sanitize_line(node) for node in one.nodes if node != one.node]
    words = describe_rank(one) + (f", with {' and '.join(others)}" if others else "")
    return [RowBlock(spare=3, rows=tuple(render_labelled_text("part", words, space, TextStyle.VALUE, 2)))]


def _render_failure_blocks(scene: InstanceScreenModel, space: DrawArea, *, roomy: bool) -> list[RowBlock]:
    verdict = None if scene.end is None else scene.end.verdict
    if verdict is not None:
        parts = [
            *render_verdict(verdict, space),
            *(
                RowBlock(spare=1, rows=(each,))
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
            RowBlock(spare=0, rows=tuple(rows)),
            RowBlock(spare=1, rows=(*render_labelled_text("", why, space, TextStyle.STALE, 2), hint)),
        ]
    parts += _render_startup_result(scene, space, roomy=roomy)
    return (
        parts
        if scene.one is None
        else [*parts, *_render_identity(scene.one, space)[:1], *_render_ranks(scene.one, space)]
    )


def _render_startup(scene: InstanceScreenModel, one: InstanceView, space: DrawArea) -> list[RowBlock]:
    if scene.course is not None and not scene.course.is_over and one.phase is not Phase.STOPPING:
        return render_startup_timeline(scene.course, scene.seen.now, space)
    told = (
        [RowBlock(spare=3, rows=(make_row(make_label(""), sanitize_span(one.detail, TextStyle.LABEL)),))]
        if one.detail
        else []
    )
    return [*render_startup_progress(one, scene.seen, space), *told]


def _render_startup_result(scene: InstanceScreenModel, space: DrawArea, *, roomy: bool) -> list[RowBlock]:
    """Return how a watched start went, phase by phase if there is room."""
    if scene.course is None or not scene.course.stretches:
        return []
    if roomy:
        return [
            RowBlock(spare=7 + part.spare, rows=part.rows)
            for part in render_startup_timeline(scene.course, scene.seen.now, space)
        ]
    took = render_startup_duration(scene.course, space)
    return [] if took is None else [RowBlock(spare=8, rows=(took,))]


def _render_throughput(
    scene: InstanceScreenModel, one: InstanceView, space: DrawArea, *, roomy: bool
) -> list[RowBlock]:
    if one.phase is Phase.READY and (head := scene.seen.heads.get(one.name)) is not None:
        rank = describe_rank(one)
        part = make_row(
            make_label("part"), *([Span(f"{rank} · ", TextStyle.LABEL)] if rank else []), *describe_head(one, head)
        )
        decode = RowBlock(spare=1, rows=(render_throughput(head.numbers, space),))
        accept = render_acceptance(head, scene.seen, space)
        return [
            RowBlock(spare=1, rows=(part,)),
            decode,
            *([] if accept is None else [RowBlock(spare=2, rows=(accept,))]),
            *_render_gpu(scene, space),
        ]
    if one.phase is not Phase.READY or one.port is None:
        words = one.detail or (
            "a container that sparkctl did not start; its figures are not read" if not one.ours else ""
        )
        parts = (
            [RowBlock(spare=1, rows=tuple(render_labelled_text("", words, space, TextStyle.LABEL, 3)))] if words else []
        )
        return [*parts, *_render_gpu(scene, space)]
    parts = [RowBlock(spare=0, rows=(render_throughput(one.numbers, space),))]
    if roomy and (speed := build_throughput_chart(one, scene.seen, space)) is not None:
        parts.append(speed)
    numbers = one.numbers
    if (accept := render_acceptance(one, scene.seen, space)) is not None:
        parts.append(RowBlock(spare=1, rows=(accept,)))
    if numbers is not None:
        if numbers.activity is EngineActivity.IDLE and one.per_step is not None and one.per_step.draft_tokens:
            parts.append(RowBlock(spare=2, rows=(make_row(make_label("accept"), Span(IDLE, TextStyle.VALUE)),)))
        last = scene.seen.drafting.get(one.container_id or "")
        if positions := render_position_acceptance(numbers.acceptance, space, last, scene.seen.now):
            parts.append(RowBlock(spare=4, rows=tuple(positions)))
        if (reads := render_bandwidth(one, scene.seen, space)) is not None:
            parts.append(RowBlock(spare=3, rows=(reads,)))
        drafts = one.per_step is not None and bool(one.per_step.draft_tokens)
        parts += [RowBlock(spare=5, rows=(each,)) for each in render_latencies(numbers, drafts, last, scene.seen.now)]
        if (steps := render_step_cost(numbers, one.per_step)) is not None:
            parts.append(RowBlock(spare=6, rows=(steps,)))
    if one.metrics_hint is not None:
        hint = f"/metrics is off; in the profile: {one.metrics_hint}"
        parts.append(RowBlock(spare=7, rows=tuple(render_labelled_text("", hint, space, TextStyle.LABEL, 2))))
    parts += _render_gpu(scene, space)
    if roomy:
        parts += build_gpu_charts(scene.seen, space)
    return [*parts, *_render_startup_result(scene, space, roomy=roomy)]


def _render_gpu(scene: InstanceScreenModel, space: DrawArea) -> list[RowBlock]:
    return [RowBlock(spare=4, rows=tuple(render_gpus(scene.seen, space)))]


# --- the other boxes --------------------------------------------------------------------------------------------------


def _render_memory(scene: InstanceScreenModel, space: DrawArea) -> list[RowBlock]:
    parts = []
    bar = scene.seen.view.memory
    if scene.one is not None:
        rows = render_memory_claim(scene.one, None if bar is None else bar.total, space)
        parts += [RowBlock(spare=1 if not at else 2, rows=(each,)) for at, each in enumerate(rows)]
    if bar is not None:
        parts += build_memory_groups(scene.seen, space)
    return parts if scene.seen.is_known else _dim_blocks(parts)


def _render_plan(scene: InstanceScreenModel, columns: int) -> list[TextRow]:
    if scene.run is None:
        return [make_row(sanitize_span(scene.run_trouble or "being read from its container ...", TextStyle.STALE))]
    return render_launched_plan(scene.run, columns)


def _render_log_box(scene: InstanceScreenModel, columns: int, lines: int) -> tuple[TextRow, ...]:
    title = make_row(Span("log", TextStyle.LABEL), Span("   l", TextStyle.KEY), Span(" all of it", TextStyle.LABEL))
    return _draw_box(
        scene, title, render_log_tail(scene.tail, scene.tail_trouble, lines - 2, columns - 4), columns, lines
    )
