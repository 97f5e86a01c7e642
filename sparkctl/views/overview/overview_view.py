"""The overview as rows: tiles, the link between the Sparks, what is wrong, what was just said. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby

from sparkctl.logs.line_classifier import LogLevel, parse_level_header
from sparkctl.model.finding import Severity
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.views.fabric_view import render_fabric
from sparkctl.views.finding_view import format_since
from sparkctl.views.overview.event_log_view import EventLogEntry, render_event_log_entry
from sparkctl.views.overview.tile_charts import compute_power_scale
from sparkctl.views.overview.tile_model import NodeTileModel
from sparkctl.views.overview.tile_view import NodeTile, count_useful_rows, render_tile_row
from sparkctl.views.text.frame_layout import TileBox, arrange_tiles, join_tiles, pad_screen, render_welcome
from sparkctl.views.text.line_wrap import find_command, wrap_line, wrap_line_for_screen
from sparkctl.views.text.state_symbols import get_state_symbol
from sparkctl.views.text.styled_text import Span, TextRow, TextStyle, make_row, measure_row, sanitize_span, truncate_row

_LEVEL_STYLES = {LogLevel.WARNING: TextStyle.ATTENTION, LogLevel.ERROR: TextStyle.BAD}
_SPACED_MIN_LINES = 10  # lines from which on what stands below the tiles has room between its parts
_MIN_EVENT_LINES = 6  # where there is little room; else as many as fill half of it
_SEVERITY_STYLES = {
    Severity.PROBLEM: TextStyle.BAD,
    Severity.WARNING: TextStyle.ATTENTION,
    Severity.NOTE: TextStyle.LABEL,
}


@dataclass(frozen=True, slots=True)
class RecentLogLine:
    """A log line that came a moment ago."""

    node: NodeName
    instance: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewScreenModel:
    """All that the overview shows. ``notice`` is what the last thing done has led to, with its tone."""

    glances: tuple[NodeTileModel, ...]
    chosen: int = 0
    lines: tuple[RecentLogLine, ...] = ()
    notices: tuple[tuple[str, TextStyle], ...] = ()
    ascii_only: bool = False
    happened: tuple[EventLogEntry, ...] = ()  # the latest comes last
    switching: tuple[
        TextRow, ...
    ] = ()  # a switch that goes on, or was left, a line each; what is carried between Sparks


@dataclass(frozen=True, slots=True)
class OverviewLayout:
    """Exactly as many rows as asked for, each exactly as wide, and where the tiles are among them."""

    rows: tuple[TextRow, ...]
    boxes: tuple[TileBox, ...]


def render_overview(scene: OverviewScreenModel, columns: int, lines: int) -> OverviewLayout:
    """Return the whole body between header and footer."""
    if not scene.glances:
        return OverviewLayout(pad_screen(render_welcome(), columns, lines, scene.ascii_only), ())

    power = compute_power_scale(scene.glances)
    tiles = [NodeTile(replace(one, most_power=power), ascii_only=scene.ascii_only) for one in scene.glances]

    def count_rows(wide: int, most: int) -> int:
        return count_useful_rows(tiles, wide, most)

    boxes = arrange_tiles(len(tiles), scene.chosen, columns, lines, count_rows)
    shown: list[tuple[TextRow, ...]] = []
    for _, group in groupby(boxes, key=lambda box: box.y):
        level = list(group)
        pairs = [(tiles[box.index], box.columns) for box in level]
        chosen = [box.index == scene.chosen and len(boxes) > 1 for box in level]
        shown += render_tile_row(pairs, level[0].lines, chosen)
    rows = join_tiles(boxes, shown)
    rows += _render_below_tiles(scene, len(boxes), columns, lines - len(rows))
    return OverviewLayout(pad_screen(rows, columns, lines, scene.ascii_only), boxes)


def _render_below_tiles(scene: OverviewScreenModel, shown: int, columns: int, room: int) -> list[TextRow]:
    """Return what stands below the tiles: of findings, what happened and log lines none takes another's last row."""
    if room <= 0:
        return []
    hidden = len(scene.glances) - shown
    rows = [make_row(Span(f" {hidden} more: tab goes on", TextStyle.LABEL))] if hidden > 0 else []
    rows += [make_row(" ", *each) for each in scene.switching[: max(1, room // 2)]]
    rows += _render_notices(scene, columns, max(2, (room - len(rows)) // 2))
    rows += render_fabric(scene.glances, scene.ascii_only)
    left = max(0, room - len(rows))
    airy = left >= _SPACED_MIN_LINES
    if airy:
        left -= 2
    logs, happened = _render_log_lines(scene), _render_events(scene, max(_MIN_EVENT_LINES, left // 2))
    whole = _render_full_findings(scene, columns)
    found = whole if len(whole) <= left // 2 else _render_findings(scene)
    for_logs = min(len(logs), max(left - len(found) - len(happened), left // 2))
    for_events = min(len(happened), max(0, left - len(found) - for_logs))
    blocks = [
        found[: left - for_logs - for_events],
        _take_last_rows(happened, for_events),
        _take_last_rows(logs, for_logs),
    ]
    blocks = [block for block in blocks if block]
    for at, block in enumerate(blocks):
        rows += [(), *block] if airy and (rows or at) else block
    return [truncate_row(one, columns) for one in rows[:room]]


def _render_notices(scene: OverviewScreenModel, columns: int, most: int) -> list[TextRow]:
    """Return what was said last, folded; of more lines than there is room for, the newest words."""
    rows: list[TextRow] = []
    for words, tone in reversed(scene.notices):
        told = [make_row(" ", Span(line, tone)) for line in _wrap_notice(words, max(20, columns - 2), most)]
        if rows and len(told) + len(rows) > most:
            break
        rows = [*told, *rows]
    return rows[:most]


def _wrap_notice(words: str, columns: int, most: int) -> list[str]:
    """Return a notice as lines; of one that has no room, its beginning and the first way out, whole: that is what helps."""
    lines = wrap_line_for_screen(words, columns, 2)
    told, *ways = words.split("   try: ")
    if len(lines) <= most or not ways:
        return lines
    command = find_command(ways[0])
    way = wrap_line_for_screen(f"  try: {ways[0]}" if command is None else f"  try: {command}", columns, 4)
    kept = wrap_line_for_screen(told, columns, 2)[: max(1, most - len(way))]
    return [*kept, *way]


def _take_last_rows(rows: list[TextRow], count: int) -> list[TextRow]:
    return rows[len(rows) - count :] if count else []


def _render_events(scene: OverviewScreenModel, most: int) -> list[TextRow]:
    names = max((len(one.name) for one in scene.glances), default=0)
    return [render_event_log_entry(one, names) for one in scene.happened[-most:]]


def _render_findings(scene: OverviewScreenModel) -> list[TextRow]:
    rows = []
    for seen in scene.glances:
        if seen.told.state is not NodeState.OK:
            continue
        for one in seen.view.findings:
            tone = _SEVERITY_STYLES.get(one.severity, TextStyle.LABEL)
            sign = get_state_symbol(one.severity, scene.ascii_only)
            rows.append(
                make_row(
                    " ",
                    Span(f"{sign} ", tone),
                    sanitize_span(f"{one.node}  ", TextStyle.TITLE),
                    sanitize_span(one.summary, TextStyle.PLAIN),
                )
            )
    return rows


def _render_full_findings(scene: OverviewScreenModel, columns: int) -> list[TextRow]:
    """Return each finding whole: what is, since when, and what to do."""
    rows: list[TextRow] = []
    for seen in scene.glances:
        if seen.told.state is not NodeState.OK:
            continue
        now = seen.view.sample.time if seen.view.sample is not None else seen.now
        for one in seen.view.findings:
            tone, sign = (
                _SEVERITY_STYLES.get(one.severity, TextStyle.LABEL),
                get_state_symbol(one.severity, scene.ascii_only),
            )
            head = make_row(" ", Span(f"{sign} ", tone), sanitize_span(f"{one.node}  ", TextStyle.TITLE))
            room = max(20, columns - measure_row(head) - 1)
            indent = " " * measure_row(head)
            words = wrap_line(f"{sanitize_line(one.summary)} · {format_since(one.since, now)}", room, 0)
            rows += [
                make_row(*(head if not at else (Span(indent),)), Span(line, TextStyle.PLAIN))
                for at, line in enumerate(words)
            ]
            if one.remedy:
                rows += [
                    make_row(indent, Span(line, TextStyle.LABEL))
                    for line in wrap_line_for_screen(f"do: {sanitize_line(one.remedy)}", room, 4)
                ]
    return rows


def _render_log_lines(scene: OverviewScreenModel) -> list[TextRow]:
    bar = "|" if scene.ascii_only else "│"
    wide = max((len(one.node) for one in scene.lines), default=0)
    return [
        make_row(
            " ",
            sanitize_span(f"{one.node:<{wide}}", TextStyle.LABEL),
            Span(f" {bar} ", TextStyle.FRAME),
            render_log_text(one.text),
        )
        for one in scene.lines
    ]


def render_log_text(line: str) -> Span:
    """Return what a log line says, without its header; a warning and an error stand out."""
    text = sanitize_line(line)
    level, head = parse_level_header(text)
    return Span(text[head:], _LEVEL_STYLES.get(level, TextStyle.LABEL) if level else TextStyle.LABEL)
