"""The overview as rows: tiles, the link between the Sparks, what is wrong, what was just said. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby

from sparkctl.core.logmarks import Level, header
from sparkctl.model.finding import Severity
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.text import clean
from sparkctl.present.fabric_rows import link_rows
from sparkctl.present.findings import since_words
from sparkctl.present.fold import first_command, fold, within
from sparkctl.present.frame import Box, arrange, beside, filled, welcome
from sparkctl.present.glance import Glance
from sparkctl.present.happened import Happening, happened_row
from sparkctl.present.spans import Row, Span, Tone, cut, row, said, width
from sparkctl.present.symbols import symbol
from sparkctl.present.tile import Tile, natural_lines, side_by_side
from sparkctl.present.tile_curves import most_power

_LEVELS = {Level.WARNING: Tone.ATTENTION, Level.ERROR: Tone.BAD}
_AIRY = 10  # lines from which on what stands below the tiles has room between its parts
_MOST_HAPPENED = 6  # where there is little room; else as many as fill half of it
_TONES = {Severity.PROBLEM: Tone.BAD, Severity.WARNING: Tone.ATTENTION, Severity.NOTE: Tone.LABEL}


@dataclass(frozen=True, slots=True)
class LastLine:
    """A log line that came a moment ago."""

    node: NodeName
    instance: str
    text: str


@dataclass(frozen=True, slots=True)
class Scene:
    """All that the overview shows. ``notice`` is what the last thing done has led to, with its tone."""

    glances: tuple[Glance, ...]
    chosen: int = 0
    lines: tuple[LastLine, ...] = ()
    notices: tuple[tuple[str, Tone], ...] = ()
    ascii_only: bool = False
    happened: tuple[Happening, ...] = ()  # the latest comes last
    switching: tuple[Row, ...] = ()  # a switch that goes on, or was left, a line each; what is carried between Sparks


@dataclass(frozen=True, slots=True)
class Painted:
    """Exactly as many rows as asked for, each exactly as wide, and where the tiles are among them."""

    rows: tuple[Row, ...]
    boxes: tuple[Box, ...]


def overview(scene: Scene, columns: int, lines: int) -> Painted:
    """Return the whole body between header and footer."""
    if not scene.glances:
        return Painted(filled(welcome(), columns, lines, scene.ascii_only), ())

    power = most_power(scene.glances)
    tiles = [Tile(replace(one, most_power=power), ascii_only=scene.ascii_only) for one in scene.glances]

    def wanted(wide: int, most: int) -> int:
        return natural_lines(tiles, wide, most)

    boxes = arrange(len(tiles), scene.chosen, columns, lines, wanted)
    shown: list[tuple[Row, ...]] = []
    for _, group in groupby(boxes, key=lambda box: box.y):
        level = list(group)
        pairs = [(tiles[box.index], box.columns) for box in level]
        chosen = [box.index == scene.chosen and len(boxes) > 1 for box in level]
        shown += side_by_side(pairs, level[0].lines, chosen)
    rows = beside(boxes, shown)
    rows += _below(scene, len(boxes), columns, lines - len(rows))
    return Painted(filled(rows, columns, lines, scene.ascii_only), boxes)


def _below(scene: Scene, shown: int, columns: int, room: int) -> list[Row]:
    """Return what stands below the tiles: of findings, what happened and log lines none takes another's last row."""
    if room <= 0:
        return []
    hidden = len(scene.glances) - shown
    rows = [row(Span(f" {hidden} more: tab goes on", Tone.LABEL))] if hidden > 0 else []
    rows += [row(" ", *each) for each in scene.switching[: max(1, room // 2)]]
    rows += _notices(scene, columns, max(2, (room - len(rows)) // 2))
    rows += link_rows(scene.glances, scene.ascii_only)
    left = max(0, room - len(rows))
    airy = left >= _AIRY
    if airy:
        left -= 2
    logs, happened = _logs(scene), _happened(scene, max(_MOST_HAPPENED, left // 2))
    whole = _whole_findings(scene, columns)
    found = whole if len(whole) <= left // 2 else _findings(scene)
    for_logs = min(len(logs), max(left - len(found) - len(happened), left // 2))
    for_events = min(len(happened), max(0, left - len(found) - for_logs))
    blocks = [found[: left - for_logs - for_events], _last(happened, for_events), _last(logs, for_logs)]
    blocks = [block for block in blocks if block]
    for at, block in enumerate(blocks):
        rows += [(), *block] if airy and (rows or at) else block
    return [cut(one, columns) for one in rows[:room]]


def _notices(scene: Scene, columns: int, most: int) -> list[Row]:
    """Return what was said last, folded; of more lines than there is room for, the newest words."""
    rows: list[Row] = []
    for words, tone in reversed(scene.notices):
        told = [row(" ", Span(line, tone)) for line in _in_lines(words, max(20, columns - 2), most)]
        if rows and len(told) + len(rows) > most:
            break
        rows = [*told, *rows]
    return rows[:most]


def _in_lines(words: str, columns: int, most: int) -> list[str]:
    """Return a notice as lines; of one that has no room, its beginning and the first way out, whole: that is what helps."""
    lines = within(words, columns, 2)
    told, *ways = words.split("   try: ")
    if len(lines) <= most or not ways:
        return lines
    command = first_command(ways[0])
    way = within(f"  try: {ways[0]}" if command is None else f"  try: {command}", columns, 4)
    kept = within(told, columns, 2)[: max(1, most - len(way))]
    return [*kept, *way]


def _last(rows: list[Row], count: int) -> list[Row]:
    return rows[len(rows) - count :] if count else []


def _happened(scene: Scene, most: int) -> list[Row]:
    names = max((len(one.name) for one in scene.glances), default=0)
    return [happened_row(one, names) for one in scene.happened[-most:]]


def _findings(scene: Scene) -> list[Row]:
    rows = []
    for seen in scene.glances:
        if seen.told.state is not NodeState.OK:
            continue
        for one in seen.view.findings:
            tone = _TONES.get(one.severity, Tone.LABEL)
            sign = symbol(one.severity, scene.ascii_only)
            rows.append(
                row(" ", Span(f"{sign} ", tone), said(f"{one.node}  ", Tone.TITLE), said(one.summary, Tone.PLAIN))
            )
    return rows


def _whole_findings(scene: Scene, columns: int) -> list[Row]:
    """Return each finding whole: what is, since when, and what to do."""
    rows: list[Row] = []
    for seen in scene.glances:
        if seen.told.state is not NodeState.OK:
            continue
        now = seen.view.sample.time if seen.view.sample is not None else seen.now
        for one in seen.view.findings:
            tone, sign = _TONES.get(one.severity, Tone.LABEL), symbol(one.severity, scene.ascii_only)
            head = row(" ", Span(f"{sign} ", tone), said(f"{one.node}  ", Tone.TITLE))
            room = max(20, columns - width(head) - 1)
            indent = " " * width(head)
            words = fold(f"{clean(one.summary)} · {since_words(one.since, now)}", room, 0)
            rows += [
                row(*(head if not at else (Span(indent),)), Span(line, Tone.PLAIN)) for at, line in enumerate(words)
            ]
            if one.remedy:
                rows += [row(indent, Span(line, Tone.LABEL)) for line in within(f"do: {clean(one.remedy)}", room, 4)]
    return rows


def _logs(scene: Scene) -> list[Row]:
    bar = "|" if scene.ascii_only else "│"
    wide = max((len(one.node) for one in scene.lines), default=0)
    return [
        row(" ", said(f"{one.node:<{wide}}", Tone.LABEL), Span(f" {bar} ", Tone.FRAME), log_span(one.text))
        for one in scene.lines
    ]


def log_span(line: str) -> Span:
    """Return what a log line says, without its header; a warning and an error stand out."""
    text = clean(line)
    level, head = header(text)
    return Span(text[head:], _LEVELS.get(level, Tone.LABEL) if level else Tone.LABEL)
