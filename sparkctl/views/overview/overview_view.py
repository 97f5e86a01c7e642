"""The overview screen as rows: tiles, the fabric between the Sparks, findings and recent messages."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime
from functools import lru_cache
from itertools import groupby, zip_longest
from typing import TYPE_CHECKING

from sparkctl.model.finding import Finding, FindingKind, find_same, sort_by_severity
from sparkctl.model.instance import InstanceView
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.memory_fit import FitOutcome
from sparkctl.model.node import NodeState
from sparkctl.model.phase import Phase
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.text.units import GIB, format_clock
from sparkctl.monitor.event_log import EventLogEntry, RecentLogLine
from sparkctl.views.event_log_view import describe_log_entry, render_event_log_entry, render_past_operation
from sparkctl.views.finding_view import format_since
from sparkctl.views.overview.fabric_view import render_fabric
from sparkctl.views.overview.startup_timeline_view import render_startup_progress
from sparkctl.views.overview.tile_model import (
    NodeTileModel,
    StartOffer,
    build_finding_badge,
    build_instance_badge,
    build_node_badges,
    format_age,
    sort_by_urgency,
)
from sparkctl.views.overview.tile_rows import (
    MAX_CHART_ROWS,
    TALL_CHART_ROWS,
    DrawArea,
    build_cpu_chart,
    build_gpu_charts,
    build_machine_row,
    build_memory_groups,
    build_rdma_chart,
    build_substitute_chart,
    build_throughput_chart,
    compute_power_scale,
    describe_engine,
    describe_head,
    describe_rank,
    is_in_transition,
    render_acceptance,
    render_bandwidth,
    render_decode_summary,
    render_engine_facts,
    render_failure,
    render_gpus,
    render_instance_row,
    render_log_text,
    render_throughput,
    render_unreachable,
    tells_figures,
)
from sparkctl.views.profiles.memory_estimate_view import render_estimate_symbol
from sparkctl.views.text.charts import (
    BLANK_DROP_PRIORITY,
    RowBlock,
    TileSections,
    align_sections,
    count_needed_rows,
    dim_blocks,
    make_block,
)
from sparkctl.views.text.frame_layout import (
    FRAME_COLUMNS,
    MIN_TILE_LINES,
    TileBox,
    arrange_tiles,
    draw_frame,
    join_tiles,
    pad_screen,
    render_welcome,
)
from sparkctl.views.text.line_wrap import find_command, wrap_row, wrap_text
from sparkctl.views.text.styled_text import (
    Span,
    TextRow,
    TextStyle,
    get_severity_style,
    justify_row,
    make_row,
    measure_row,
    measure_text,
    pad_row,
    pad_text,
    render_severity,
    sanitize_span,
    truncate_row,
)

if TYPE_CHECKING:
    from sparkctl.history.model import OperationRecord

_ROOMY_LINES = 9  # from this height on, each figure has a row of its own, and that of the machine still has one
_WHOLE_VERDICT_LINES = 20  # from this height on, a verdict stands in the tile in full


class NodeTile:
    """One Spark as a tile; its parts are built once for each width."""

    def __init__(self, seen: NodeTileModel, chart_rows: int = MAX_CHART_ROWS) -> None:
        self._seen, self._chart_rows = seen, chart_rows
        self._made: dict[tuple[int, bool, bool], TileSections] = {}

    def render_rows(self, columns: int, lines: int, *, chosen: bool = False) -> tuple[TextRow, ...]:
        """Return exactly ``lines`` rows of exactly ``columns``: state, memory, throughput, acceptance, temperature."""
        room = max(0, lines - 2)
        return self.frame_rows(
            align_sections([self.get_sections(columns, room)], room)[0], columns, lines, chosen=chosen
        )

    def frame_rows(self, rows: Sequence[TextRow], columns: int, lines: int, *, chosen: bool) -> tuple[TextRow, ...]:
        """Return the rows in a frame whose title shows the state."""
        title = _render_title(self._seen, lines - 2 >= _ROOMY_LINES, columns - FRAME_COLUMNS)
        worst = self._seen.worst_finding
        tone = None if worst is None else get_severity_style(worst.severity)
        if self._seen.list_failures():
            tone = TextStyle.BAD
        return draw_frame(title, rows, columns, lines, chosen=chosen, tone=tone)

    def get_sections(self, columns: int, room: int) -> TileSections:
        """Return the sections of the tile for this many rows."""
        key = columns, room >= _ROOMY_LINES, room >= _WHOLE_VERDICT_LINES
        made = self._made.get(key)
        if made is None:
            space = DrawArea(max(8, columns - 4), self._chart_rows, is_tall=key[2])
            made = self._made[key] = _build_sections(self._seen, space, key[1])
        return made


def count_useful_rows(tiles: Sequence[NodeTile], columns: int, lines: int) -> int:
    """Return how many of at most ``lines`` these tiles can use when aligned with each other."""
    if lines - 2 >= _ROOMY_LINES:
        wanted = count_needed_rows([one.get_sections(columns, lines - 2) for one in tiles])
        if wanted >= _ROOMY_LINES:
            return min(lines, wanted + 2)
    wanted = max(sum(len(part.rows) for part in one.get_sections(columns, 0).parts) for one in tiles)
    return max(MIN_TILE_LINES, min(lines, wanted + 2))


def render_tile_row(
    tiles: Sequence[tuple[NodeTile, int]], lines: int, chosen: Sequence[bool]
) -> list[tuple[TextRow, ...]]:
    """Return tiles side by side, each with its width in columns, with aligned sections."""
    room = max(0, lines - 2)
    rows = align_sections([tile.get_sections(columns, room) for tile, columns in tiles], room)
    return [
        tile.frame_rows(made, columns, lines, chosen=mine)
        for (tile, columns), made, mine in zip(tiles, rows, chosen, strict=True)
    ]


def _build_sections(seen: NodeTileModel, space: DrawArea, roomy: bool) -> TileSections:
    first = [make_block(1, make_row(sanitize_span(job, TextStyle.ATTENTION))) for job in seen.jobs]
    if not seen.is_known:
        if away := render_unreachable(seen, space):
            first.append(make_block(1, *away[:3]))
            first += [make_block(4, one) for one in away[3:]]
        if seen.view.sampled is None and seen.view.memory is None:
            return _make_sections(
                [first if first else [make_block(0, (Span("no data yet", TextStyle.STALE),))]],
                is_plain=False,
            )
    made = _render_instances(seen, space, roomy)
    memory = [each if roomy else replace(each, tallest=1) for each in build_memory_groups(seen, space)]
    machine = build_machine_row(seen, space)
    gpu = [
        make_block(2, *render_gpus(seen, space)),
        *(build_gpu_charts(seen, space) if roomy else []),
        *([] if machine is None else [machine]),
    ]
    blank = [make_block(BLANK_DROP_PRIORITY, ())] if roomy else []
    if not seen.is_known:
        memory, made, gpu = dim_blocks(memory), dim_blocks(made), []
    head, rest = made[:1], made[1:]
    if any(one.ours and one.phase is Phase.FAILED for one in seen.view.instances[:1]):
        return _make_sections([first, made, blank, memory, blank, gpu], is_plain=False)  # the verdict first
    if not roomy:
        return _make_sections([first, memory, made, gpu], is_plain=seen.is_known)
    return _make_sections([[*first, *head, *blank], [*memory, *blank], [*rest, *blank], gpu], is_plain=seen.is_known)


def _make_sections(groups: Sequence[Sequence[RowBlock]], *, is_plain: bool) -> TileSections:
    return TileSections(tuple(map(tuple, groups)), is_plain)


def _render_instances(seen: NodeTileModel, space: DrawArea, roomy: bool) -> list[RowBlock]:
    """Return the rows of the instances: the first of sparkctl's in full, the others in one row each."""
    view = seen.view
    ordered = sort_by_urgency(view)
    if not ordered:
        return [make_block(2, _render_nothing_runs(seen)), *_render_start_offers(seen, space)]
    parts: list[RowBlock] = []
    many = len(ordered) > 1
    for at, one in enumerate(ordered):
        marked = many and one.name == seen.chosen
        if at == 0 and one.ours:
            if roomy or many:
                head = render_instance_row(one, space, marked=marked if many else None, badge=False)
                parts.append(make_block(2 if roomy else 6, _append_age(head, seen, space)))
            parts += _render_main_instance(one, seen, space, roomy)
        else:
            serves = one.ours and one.phase is Phase.READY
            parts.append(make_block(0 if serves else 3 + at, *_render_named_instance(one, seen, space, marked, roomy)))
            if serves and one.numbers is not None:
                parts.append(make_block(4 + at, make_row("  ", *render_throughput(one, space))))
    return parts


_MOST_FAILURE_ROWS = 3


def _render_named_instance(
    one: InstanceView, seen: NodeTileModel, space: DrawArea, marked: bool, roomy: bool
) -> list[TextRow]:
    """Return an instance in one row; one that failed with the sentence of its verdict, in a roomy tile in full."""
    end = seen.ends.get(one.name)
    if one.phase is not Phase.FAILED or end is None or end.verdict is None:
        return [render_instance_row(one, space, marked=marked, badge=True, ready_for=seen.seconds_ready(one))]
    state = build_instance_badge(one)
    head = make_row(
        Span("▸ " if marked else "  ", TextStyle.ACCENT),
        sanitize_span(one.name, TextStyle.TITLE),
        Span(f"  {state.sign} {state.word}: ", state.tone),
    )
    rows = wrap_row(make_row(*head, sanitize_span(end.verdict.headline, TextStyle.VALUE)), space.columns, 4)
    most = _MOST_FAILURE_ROWS if roomy else 1
    if len(rows) > most:
        rows[most - 1] = make_row(*truncate_row(rows[most - 1], space.columns - 2, ""), Span(" …", TextStyle.VALUE))
    return rows[:most]


def _append_age(head: TextRow, seen: NodeTileModel, space: DrawArea) -> TextRow:
    view = seen.view
    if view.docker_known or view.instances_seen is None or not seen.is_known:
        return head  # on a node that does not answer everything has the same age
    return truncate_row(
        (*head, Span(f"   {format_age(seen.now - view.instances_seen)}", TextStyle.STALE)), space.columns
    )


def _render_nothing_runs(seen: NodeTileModel) -> TextRow:
    if seen.view.instances_seen is None:
        if not seen.view.docker_known and seen.is_known:
            return make_row(sanitize_span(f"Docker: {seen.view.detail or 'no answer'}", TextStyle.ATTENTION))
        return make_row(Span("what runs is not known yet", TextStyle.STALE))
    recent = f": {', '.join(seen.recent)} ..." if seen.recent and not seen.offers else ""
    if seen.offers:
        recent = ""
        if any(one.missing for one in seen.offers):
            recent = ", and gets what is missing first"
    if seen.start_key is None:
        return make_row(Span("nothing runs", TextStyle.STALE))
    return make_row(
        Span(seen.start_key, TextStyle.KEY),
        Span(" starts a profile", TextStyle.LABEL),
        sanitize_span(recent, TextStyle.LABEL),
    )


_OFFER_NAME_COLUMNS = 20
_MIN_OFFER_COLUMNS = 50
_SHORT_RATE_COLUMNS, _LONG_RATE_COLUMNS = 15, 29  # of ``18.7–22.6 tok/s``, and of ``23.3 tok/s published``
_UNTIL_READY_COLUMNS = 16
_WIDE_OFFER_COLUMNS = 78  # from which width on a source's figure is told in full


def _render_start_offers(seen: NodeTileModel, space: DrawArea) -> list[RowBlock]:
    """Return what could be started here: whether it can start now, its speed, and how long its start takes."""
    if not seen.offers or space.columns < _MIN_OFFER_COLUMNS:
        return []
    wide = max(_OFFER_NAME_COLUMNS, *(measure_text(sanitize_line(one.name)) for one in seen.offers))
    rows: list[tuple[TextRow, TextRow]] = []
    for one in seen.offers:
        name = make_row(
            Span(" ", TextStyle.LABEL),
            _render_offer_sign(one),
            " ",
            sanitize_span(pad_text(sanitize_line(one.name), wide), TextStyle.VALUE),
        )
        until = (
            ()
            if one.seconds is None
            else make_row(Span(f"{format_clock(one.seconds):>7}", TextStyle.VALUE), Span(" to ready", TextStyle.UNIT))
        )
        ends = make_row(*_render_offer_rate(one, space), *pad_row(until, _UNTIL_READY_COLUMNS))
        if one.missing:
            ends = make_row(sanitize_span(f"   to get: {', '.join(one.missing)}", TextStyle.ATTENTION))
        claim = (
            ()
            if one.fit is None or one.fit.needed_bytes is None
            else (Span(f"{one.fit.needed_bytes / GIB:7.0f}", TextStyle.VALUE), Span(" GiB", TextStyle.UNIT))
        )
        rows.append((make_row(*name, *ends), claim))
    longest = max(measure_row(row) for row, _ in rows)
    room = space.columns - max(measure_row(claim) for _, claim in rows)
    blocks = [
        make_block(
            6 + at, truncate_row(row, space.columns) if longest > room else make_row(*pad_row(row, longest), *claim)
        )
        for at, (row, claim) in enumerate(rows)
    ]  # a column of claims for all of them, or for none
    if space.columns < _WIDE_OFFER_COLUMNS and any(one.rate is None and one.source_rate for one in seen.offers):
        blocks.append(make_block(6, make_row(Span("   grey figures: published", TextStyle.LABEL))))
    return blocks


def _render_offer_sign(one: StartOffer) -> Span:
    """Return the symbol of the estimate: what fits starts now (a start drops the page cache), unless something is to be got."""
    fits = one.fit is not None and one.fit.answer in (FitOutcome.FITS, FitOutcome.AFTER_DROP_CACHES)
    if one.fit is None or not fits:
        return render_estimate_symbol(one.fit)
    if one.missing:
        return Span("▽", TextStyle.ATTENTION)
    return render_estimate_symbol(replace(one.fit, answer=FitOutcome.FITS))


def _render_offer_rate(one: StartOffer, space: DrawArea) -> TextRow:
    """Return what the last start here measured, else what its source did; blanks where neither is known."""
    wide = _LONG_RATE_COLUMNS if space.columns >= _WIDE_OFFER_COLUMNS else _SHORT_RATE_COLUMNS
    if one.rate is not None:
        figure = make_row(Span(f"{one.rate:.1f}", TextStyle.VALUE), Span(" tok/s", TextStyle.UNIT))
        return pad_row(make_row(" " * (_SHORT_RATE_COLUMNS - measure_row(figure)), *figure), wide)
    if one.source_rate is None:
        return make_row(" " * wide)
    text = one.source_rate.as_text()
    if wide == _SHORT_RATE_COLUMNS:
        return make_row(Span(f"{f'{text} tok/s':>{wide}}", TextStyle.LABEL))
    return pad_row(make_row(Span(f"{text:>9}", TextStyle.VALUE), Span(" tok/s published", TextStyle.UNIT)), wide)


def _render_main_instance(one: InstanceView, seen: NodeTileModel, space: DrawArea, roomy: bool) -> list[RowBlock]:
    """Return the main instance: the progress of its start, its failure, or its figures."""
    if is_in_transition(one):
        busy = build_substitute_chart(build_cpu_chart(seen, space.chart_columns), space) if roomy else None
        return [*render_startup_progress(one, seen, space), *([] if busy is None else [busy])]
    if one.phase is Phase.FAILED:
        why = render_failure(one, seen, space)
        return [make_block(1, *why[:2]), *(make_block(3, each) for each in why[2:])]
    if any(found.kind is FindingKind.PARTNER and found.instance == one.name for found in seen.view.findings):
        return [make_block(1, make_row(Span("its other rank on another Spark is gone", TextStyle.BAD)))]
    if one.phase is Phase.READY and one.name in seen.heads:
        moved = build_substitute_chart(build_rdma_chart(seen, space.chart_columns), space) if roomy else None
        block = make_block(1, describe_head(one, seen.heads[one.name]))
        return [block, *([] if moved is None else [moved])]
    if one.phase is not Phase.READY or one.port is None:
        return [make_block(3, make_row(sanitize_span(one.detail, TextStyle.STALE)))] if one.detail else []
    if not tells_figures(one):
        return []
    speed = build_throughput_chart(one, seen, space) if roomy else None
    # which shows the accept length over time, too, where it has rows
    has_chart = speed is not None and space.is_chart_row_wide and space.is_tall
    decode, accept = render_throughput(one, space), render_acceptance(one, None if has_chart else seen, space)
    last = [make_block(4, each) for each in render_bandwidth(one, seen, space)]
    if roomy and (facts := render_engine_facts(one, space)) is not None:
        last.append(make_block(6, facts))
    speeds = [] if speed is None else [speed]
    if accept is None:
        return [make_block(1, decode), *speeds, *last]
    if not roomy and space.is_wide and (summary := render_decode_summary(one, seen, space)) is not None:
        return [make_block(1, summary), *last]
    return [make_block(1, decode), *speeds, make_block(1, accept), *last]


def _render_title(seen: NodeTileModel, roomy: bool, columns: int) -> TextRow:
    """Return name, state, worst finding and, without room in the tile, what runs; the finding is kept if not all fits."""
    if (worst := seen.worst_finding) is None:
        return _render_state_title(seen, roomy, columns)
    badge = build_finding_badge(worst)
    sick = make_row(Span(" · ", TextStyle.FRAME), Span(f"{badge.sign} {badge.word}", badge.tone))
    room = max(0, columns - measure_row(sick))
    return (*truncate_row(_render_state_title(seen, roomy, room), room), *sick)


def _render_state_title(seen: NodeTileModel, roomy: bool, columns: int) -> TextRow:
    badges = [Span(f"{one.sign} {one.word}", one.tone) for one in build_node_badges(seen)]
    apart = [Span(" · ", TextStyle.FRAME)] * (len(badges) - 1)
    title = make_row(
        sanitize_span(seen.name, TextStyle.TITLE),
        " ",
        *(span for each in zip_longest(badges, apart) for span in each if span),
    )
    ordered = sort_by_urgency(seen.view)
    if not roomy and len(badges) == 1 and ordered and ordered[0].ours and seen.connection.state is NodeState.OK:
        one = ordered[0]
        dash = " ─ "
        port = f" :{one.port}" if one.port is not None else ""
        rank = f" · {describe_rank(one).partition(' · ')[0]}" if describe_rank(one) else ""
        more = f" +{len(ordered) - 1}" if len(ordered) > 1 else ""
        title = make_row(*title, Span(dash, TextStyle.FRAME), sanitize_span(one.name, TextStyle.TITLE))
        forms = (f" {describe_engine(one)}{port}{rank}{more}", f"{port}{rank}{more}", f"{port}{more}")
        whole = [make_row(*title, sanitize_span(words, TextStyle.LABEL)) for words in forms]
        return next((row for row in whole if measure_row(row) <= columns), whole[-1])
    return title


_TALL_SCREEN_LINES = 44  # from this height on, curves may be taller and leave room below the tiles
_SPACED_MIN_LINES = 10  # from this height on, the parts below the tiles are separated
_CACHED_LOG_LINES = 64  # each picture shows those of the one before
_MIN_EVENT_LINES = 6  # with little room; otherwise as many as fill half of it


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewScreenModel:
    """The state of the overview. ``notices`` are the results of the last actions, with their styles; the latest is last."""

    glances: tuple[NodeTileModel, ...]
    chosen: int = 0
    lines: tuple[RecentLogLine, ...] = ()
    notices: tuple[tuple[str, TextStyle], ...] = ()
    happened: tuple[EventLogEntry, ...] = ()  # the latest is last
    past: tuple[OperationRecord, ...] = ()  # what was done before the panel was opened; the latest is last
    switching: tuple[TextRow, ...] = ()  # running and interrupted switches, and transfers, one line each
    finding: Finding | None = None  # the finding that is selected
    findings_key: str | None = None  # the key that shows all findings


@dataclass(frozen=True, slots=True)
class OverviewLayout:
    """The rows of the overview, as many and as wide as requested, the tiles' positions, and ``findings`` by row."""

    rows: tuple[TextRow, ...]
    boxes: tuple[TileBox, ...]
    findings: Mapping[int, Finding] = field(default_factory=dict)


def render_overview(scene: OverviewScreenModel, columns: int, lines: int) -> OverviewLayout:
    """Return everything between header and footer."""
    if not scene.glances:
        return OverviewLayout(pad_screen(render_welcome(), columns, lines), ())

    power = compute_power_scale(scene.glances)
    tallest = TALL_CHART_ROWS if lines >= _TALL_SCREEN_LINES else MAX_CHART_ROWS
    tiles = [NodeTile(replace(one, most_power=power), tallest) for one in scene.glances]

    def count_rows(wide: int, most: int) -> int:
        return count_useful_rows(tiles, wide, most)

    boxes = arrange_tiles(len(tiles), scene.chosen, columns, lines, count_rows, has_news=_has_news(scene))
    shown: list[tuple[TextRow, ...]] = []
    for _, group in groupby(boxes, key=lambda box: box.y):
        level = list(group)
        pairs = [(tiles[box.index], box.columns) for box in level]
        chosen = [box.index == scene.chosen and len(boxes) > 1 for box in level]
        shown += render_tile_row(pairs, level[0].lines, chosen)
    rows = join_tiles(boxes, shown)
    below = _render_below_tiles(scene, len(boxes), columns, lines - len(rows))
    findings = {len(rows) + at: found for at, (_, found) in enumerate(below) if found is not None}
    return OverviewLayout(pad_screen([*rows, *(row for row, _ in below)], columns, lines), boxes, findings)


_MANY_FINDINGS = 4


def _has_news(scene: OverviewScreenModel) -> bool:
    """Tell whether more than a few rows below the tiles are used: something starts, stops or switches, or much is wrong."""
    findings = sum(len(seen.view.findings) for seen in scene.glances if seen.is_known)
    return _has_moves(scene) or bool(scene.switching) or findings > _MANY_FINDINGS


def _has_moves(scene: OverviewScreenModel) -> bool:
    """Tell whether something starts or stops."""
    return any(is_in_transition(one) for seen in scene.glances if seen.is_known for one in seen.view.instances)


_TimeFormatter = Callable[[float | None], str]
_RowOfFinding = tuple[TextRow, Finding | None]


def _render_below_tiles(scene: OverviewScreenModel, shown: int, columns: int, room: int) -> list[_RowOfFinding]:
    """Return the rows below the tiles, each with its finding; findings, events and log lines keep a row each."""
    if room <= 0:
        return []
    hidden = len(scene.glances) - shown
    rows = [make_row(Span(f" {hidden} more: press tab", TextStyle.LABEL))] if hidden > 0 else []
    rows += [make_row(" ", *each) for each in scene.switching[: max(1, room // 2)]]
    rows += _render_notices(scene, columns, max(2, (room - len(rows)) // 2))
    rows += render_fabric(scene.glances)
    left = max(0, room - len(rows))
    airy = left >= _SPACED_MIN_LINES
    if airy:
        left -= 2
    logs = _choose_log_lines(scene, left)
    happened = _choose_events(scene, max(_MIN_EVENT_LINES, left // 2))
    whole = _render_findings(scene, columns, is_full=True)
    moves = _has_moves(scene)
    others = min(len(logs) + len(happened), left // (2 if moves else 4))
    found = whole if len(whole) <= left - others else _render_findings(scene, columns, is_full=False)
    rest = max(0, left - len(found))  # what runs undisturbed leaves room to what is wrong
    for_logs = min(len(logs), max(rest - len(happened), (left if moves else rest) // 2))
    for_events = min(len(happened), max(0, left - len(found) - for_logs))
    for_past = max(0, left - len(found) - len(happened) - for_logs)
    past = scene.past[len(scene.past) - min(for_past, len(scene.past)) :]
    logs, happened = _choose_log_lines(scene, for_logs), happened[len(happened) - for_events :]
    times = (
        *(one.began for one in past),
        *(one.when for one in happened),
        *(_parse_log_time(one.when) for one in logs),
    )
    format_time = _make_time_formatter(max(one.now for one in scene.glances), times)
    blocks: list[list[_RowOfFinding]] = [
        _fit_findings(scene, found, left - for_logs - for_events, columns),
        [(row, None) for row in _render_events(scene, past, happened, format_time)],
        [(row, None) for row in _render_log_lines(scene, logs, format_time)],
    ]
    made: list[_RowOfFinding] = [(row, None) for row in rows]
    for block in filter(None, blocks):
        made += [((), None), *block] if airy and made else block
    return [(truncate_row(row, columns), about) for row, about in made[:room]]


def _render_notices(scene: OverviewScreenModel, columns: int, most: int) -> list[TextRow]:
    """Return the latest notices, wrapped; if there is too little room, the newest text."""
    rows: list[TextRow] = []
    failed = [name for seen in scene.glances for name in seen.list_failures()]
    for words, tone in reversed(scene.notices):
        if any(f" {name} {ended}" in words for name in failed for ended in ("failed", "was stopped")):
            continue  # its tile says why
        notice_rows = [make_row(" ", *row) for row in _wrap_notice(words, tone, max(20, columns - 2), most)]
        if rows and len(notice_rows) + len(rows) > most:
            break
        rows = [*notice_rows, *rows]
    return rows[:most]


def _wrap_notice(words: str, tone: TextStyle, columns: int, most: int) -> list[TextRow]:
    """Return a notice as rows; if there is too little room, its beginning and the whole first remedy."""
    lines = wrap_text(words, columns, tone, 2)
    sentence, *ways = words.split("   try: ")
    if len(lines) <= most or not ways:
        return lines
    command = find_command(ways[0])
    way = wrap_text(f"  try: {ways[0] if command is None else command}", columns, tone, 4)
    kept = wrap_text(sentence, columns, tone, 2)[: max(1, most - len(way))]
    return [*kept, *way]


def _choose_events(scene: OverviewScreenModel, most: int) -> list[EventLogEntry]:
    """Return what happened last, without what a notice, a finding or a tile says now."""
    shown_texts = [words for words, _ in scene.notices]
    shown_texts += [found.summary for seen in scene.glances if seen.is_known for found in seen.view.findings]
    return [one for one in scene.happened if not _is_said(one, shown_texts)][-most:]


def _render_events(
    scene: OverviewScreenModel,
    past: Sequence[OperationRecord],
    happened: Sequence[EventLogEntry],
    format_time: _TimeFormatter,
) -> list[TextRow]:
    """Return what was done before the panel was opened, and what happened since."""
    names = max((measure_text(sanitize_line(one.name)) for one in scene.glances), default=0)
    failed = {(seen.name, name) for seen in scene.glances for name in seen.list_failures()}
    return [
        *(render_past_operation(one, format_time(one.began), names) for one in past),
        *(render_event_log_entry(one, format_time(one.when), names, failed) for one in happened),
    ]


def _is_said(one: EventLogEntry, texts: Sequence[str]) -> bool:
    news = describe_log_entry(one)[0].removeprefix("kernel: ")
    return any(news in words for words in texts)


def _render_findings(scene: OverviewScreenModel, columns: int, *, is_full: bool) -> list[_RowOfFinding]:
    """Return all findings, the worst first, a row each; ``is_full``: with since when and what to do."""
    rows: list[_RowOfFinding] = []
    times = {seen.name: seen.now if seen.view.sample is None else seen.view.sample.time for seen in scene.glances}
    every = [one for seen in scene.glances if seen.connection.state is NodeState.OK for one in seen.view.findings]
    chosen = find_same(every, scene.finding)
    for one in sort_by_severity(every):
        mine = one is chosen
        mark = Span("▸" if mine else " ", TextStyle.ACCENT)
        head = make_row(mark, render_severity(one.severity), sanitize_span(f"{one.node}  ", TextStyle.TITLE))
        words = sanitize_span(one.summary, TextStyle.STRONG if mine else TextStyle.PLAIN)
        if not is_full:
            rows.append(((*head, words), one))
            continue
        since = format_since(one.since, times.get(one.node, 0.0))
        wrapped = wrap_text(f"{one.summary} · {since}", columns - 1, words.tone, head=head)
        if one.remedy:
            indent = make_row(" " * measure_row(head))
            wrapped += wrap_text(f"do: {one.remedy}", columns - 1, TextStyle.LABEL, 4, indent)
        rows += [(row, one) for row in wrapped]
    return rows


def _fit_findings(
    scene: OverviewScreenModel, found: list[_RowOfFinding], room: int, columns: int
) -> list[_RowOfFinding]:
    """Return at most ``room`` rows of findings: the worst, the selected one in any case, and in the last how many more there are."""
    if room <= 0 or len(found) <= room:
        return found[: max(0, room)]
    every = [one for _, one in found if one is not None]
    chosen = find_same(every, scene.finding)
    at = 0 if chosen is None else every.index(chosen)
    *shown, (row, about) = found[:room] if at < room else [*found[: room - 1], found[at]]
    key = "" if scene.findings_key is None else f": {scene.findings_key}"
    more = make_row(Span(f"  {len(found) - room} more{key} ", TextStyle.ATTENTION))
    return [*shown, (justify_row(truncate_row(row, columns - measure_row(more)), more, columns), about)]


@lru_cache(_CACHED_LOG_LINES)
def _render_log_line(node: str, text: str, wide: int) -> TextRow:
    name = Span(pad_text(sanitize_line(node), wide), TextStyle.LABEL)
    return (name, Span(" │ ", TextStyle.FRAME), render_log_text(text))


def _choose_log_lines(scene: OverviewScreenModel, most: int) -> list[RecentLogLine]:
    """Return at most this many of the last log lines; where several Sparks log, each has its share."""
    kept = Counter(one.node for one in scene.lines)
    while sum(kept.values()) > most:
        kept[max(kept, key=kept.__getitem__)] -= 1
    shown = []
    for one in reversed(scene.lines):
        if kept[one.node]:
            kept[one.node] -= 1
            shown.append(one)
    return shown[::-1]


def _render_log_lines(
    scene: OverviewScreenModel, shown: Sequence[RecentLogLine], format_time: _TimeFormatter
) -> list[TextRow]:
    """Return log lines in the columns of events."""
    wide = max((measure_text(sanitize_line(node)) for node in {one.node for one in scene.lines}), default=0)
    return [
        make_row(
            " ",
            Span(f"{format_time(_parse_log_time(one.when))}  ", TextStyle.UNIT),
            *_render_log_line(one.node, one.text, wide),
        )
        for one in shown
    ]


def _parse_log_time(when: str) -> float | None:
    try:
        return datetime.fromisoformat(when).timestamp()
    except (ValueError, OverflowError):
        return None


def _make_time_formatter(now: float, times: Sequence[float | None]) -> _TimeFormatter:
    """Return what writes the times of rows, all equally wide: of today ``19:05:33``, of another day ``07-28 19:05``, in this
    machine's time zone. ``times``: of every row that is shown."""
    year, month, day, *_ = time.localtime(now)
    today, tomorrow = (time.mktime((year, month, each, 0, 0, 0, 0, 0, -1)) for each in (day, day + 1))
    wide = 8 if all(one is None or today <= one < tomorrow for one in times) else 11

    def format_time(when: float | None) -> str:
        form = "%H:%M:%S" if when is not None and today <= when < tomorrow else "%m-%d %H:%M"
        try:
            return "".ljust(wide) if when is None else time.strftime(form, time.localtime(when)).ljust(wide)
        except (ValueError, OverflowError, OSError):  # a node can send any time
            return "".ljust(wide)

    return format_time
