"""The overview as rows: tiles, the link between the Sparks, what is wrong, what was just said. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from sparkctl.model.finding import Severity
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.sample import NetLink, RdmaPort
from sparkctl.present.fold import fold
from sparkctl.present.frame import Box, arrange, beside, filled, welcome
from sparkctl.present.glance import Glance
from sparkctl.present.spans import Row, Span, Tone, cut, row, said
from sparkctl.present.symbols import symbol
from sparkctl.present.tile import natural_lines, tile

_GB = 1e9
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


@dataclass(frozen=True, slots=True)
class Painted:
    """Exactly as many rows as asked for, each exactly as wide, and where the tiles are among them."""

    rows: tuple[Row, ...]
    boxes: tuple[Box, ...]


def overview(scene: Scene, columns: int, lines: int) -> Painted:
    """Return the whole body between header and footer."""
    if not scene.glances:
        return Painted(filled(welcome(), columns, lines, scene.ascii_only), ())

    def wanted(wide: int, most: int) -> int:
        return max(natural_lines(one, wide, most) for one in scene.glances)

    boxes = arrange(len(scene.glances), scene.chosen, columns, lines, wanted)
    tiles = [
        tile(
            scene.glances[box.index], box.columns, box.lines, chosen=box.index == scene.chosen and len(boxes) > 1,
            ascii_only=scene.ascii_only,
        )
        for box in boxes
    ]  # fmt: skip
    rows = beside(boxes, tiles)
    rows += _below(scene, len(boxes), columns, lines - len(rows))
    return Painted(filled(rows, columns, lines, scene.ascii_only), boxes)


def _below(scene: Scene, shown: int, columns: int, room: int) -> list[Row]:
    """Return what stands below the tiles; of findings and log lines none takes the other's last row."""
    if room <= 0:
        return []
    hidden = len(scene.glances) - shown
    rows = [row(Span(f" {hidden} more: tab goes on", Tone.LABEL))] if hidden > 0 else []
    rows += _notices(scene, columns, max(2, room // 2))
    rows += _links(scene)
    found = _findings(scene)
    left = max(0, room - len(rows))
    logs = _logs(scene)
    for_logs = min(len(logs), max(left - len(found), left // 2))
    rows += found[: left - for_logs]
    rows += logs[len(logs) - for_logs :] if for_logs else []
    return [cut(one, columns) for one in rows[:room]]


def _notices(scene: Scene, columns: int, most: int) -> list[Row]:
    """Return what was said last, folded; of more lines than there is room for, the newest words."""
    rows: list[Row] = []
    for words, tone in reversed(scene.notices):
        told = [row(" ", Span(line, tone)) for line in fold(words, max(20, columns - 2), 2)]
        if rows and len(told) + len(rows) > most:
            break
        rows = [*told, *rows]
    return rows[:most]


def _links(scene: Scene) -> list[Row]:
    """Return the link of the Sparks: what its interfaces carry on the first of each pair, RDMA included."""
    if len(scene.glances) < 2:
        return []
    rows = []
    for one, other in zip(scene.glances[::2], scene.glances[1::2], strict=False):
        if (words := _link(one, other, scene.ascii_only)) is not None:
            rows.append(words)
    return rows


def _link(one: Glance, other: Glance, ascii_only: bool) -> Row | None:
    ports = _fast_ports(one)
    if not ports or not _fast_ports(other):
        return None
    speed = max(link.speed or 0 for link, _ in ports) / 1000
    line = "=" if ascii_only else "═"
    received, sent = (
        sum(rates) if (rates := [rate for rate in found if rate is not None]) else None
        for found in (
            [getattr(one, way) for pair in ports for one in pair if one is not None]
            for way in ("receive_rate", "send_rate")
        )
    )
    up, down = ("out", "in") if ascii_only else ("↑", "↓")
    name = f"{line}{line} {speed:g}G {line}{line}"
    return row(
        " ", said(one.name, Tone.TITLE), Span(f" {name} ", Tone.ACCENT), said(other.name, Tone.TITLE),
        Span(f"   {up}", Tone.LABEL), Span(_rate(sent), Tone.VALUE), Span(f"  {down}", Tone.LABEL),
        Span(_rate(received), Tone.VALUE), Span(" GB/s", Tone.UNIT),
        Span(f"   {len(ports)} functions up" if len(ports) > 1 else "   one function up", Tone.LABEL),
    )  # fmt: skip


def _fast_ports(seen: Glance) -> list[tuple[NetLink, RdmaPort | None]]:
    """Return the interfaces of the fabric that have a carrier: those of RDMA ports."""
    sample = seen.view.sample
    if sample is None or not seen.is_known:
        return []
    ports = {port.interface: port for port in sample.rdma or ()}
    return [(link, ports[link.name]) for link in sample.links or () if link.carrier and link.name in ports]


def _rate(rate: float | None) -> str:
    return f"{'—':>6}" if rate is None else f"{rate / _GB:6.1f}"


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


def _logs(scene: Scene) -> list[Row]:
    bar = "|" if scene.ascii_only else "│"
    wide = max((len(one.node) for one in scene.lines), default=0)
    return [
        row(" ", said(f"{one.node:<{wide}}", Tone.LABEL), Span(f" {bar} ", Tone.FRAME), said(one.text, Tone.LABEL))
        for one in scene.lines
    ]
