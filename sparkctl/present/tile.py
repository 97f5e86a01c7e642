"""One Spark as a tile: a frame with its state, and within as many rows as there is room for. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest

from sparkctl.model.finding import FindingKind
from sparkctl.model.instance import InstanceView
from sparkctl.model.node import NodeState
from sparkctl.model.phase import Phase
from sparkctl.present.frame import LEAST, framed
from sparkctl.present.glance import Glance, in_order, instance_badge, node_badges, old
from sparkctl.present.level import BLANK, Sections, levelled, needed
from sparkctl.present.spans import Row, Span, Tone, cut, row, said, toned
from sparkctl.present.start_parts import start_parts
from sparkctl.present.tile_curves import gpu_parts, speed_part
from sparkctl.present.tile_memory import memory_parts
from sparkctl.present.tile_parts import (
    Part,
    Space,
    accept_row,
    away_rows,
    decode_row,
    engine_words,
    failure_rows,
    gpu_rows,
    head_words,
    instance_row,
    is_coming,
    rank_of,
    reads_row,
    short_row,
    uses_row,
)

_ROOMY = 8  # lines within the frame from which on each figure has its own


class Tile:
    """One Spark in one picture: how it looks, of parts that are made once for each width."""

    def __init__(self, seen: Glance, *, ascii_only: bool = False) -> None:
        self._seen, self._ascii_only = seen, ascii_only
        self._made: dict[tuple[int, bool], Sections] = {}

    def natural_lines(self, columns: int, lines: int) -> int:
        """Return how many of at most ``lines`` it has a use for."""
        return natural_lines([self], columns, lines)

    def rows(self, columns: int, lines: int, *, chosen: bool = False) -> tuple[Row, ...]:
        """Return exactly ``lines`` rows of exactly ``columns``: state, how full, how fast, how well drafted, how hot."""
        room = max(0, lines - 2)
        return self.framed(levelled([self.sections(columns, room >= _ROOMY)], room)[0], columns, lines, chosen=chosen)

    def framed(self, rows: Sequence[Row], columns: int, lines: int, *, chosen: bool) -> tuple[Row, ...]:
        """Return the rows in its frame, which says its state."""
        title = _title(self._seen, lines - 2 >= _ROOMY, self._ascii_only)
        return framed(title, rows, columns, lines, chosen=chosen, ascii_only=self._ascii_only)

    def sections(self, columns: int, roomy: bool) -> Sections:
        """Return what it is made of."""
        made = self._made.get((columns, roomy))
        if made is None:
            space = Space(max(8, columns - 4), self._ascii_only)
            made = self._made[columns, roomy] = _sections(self._seen, space, roomy)
        return made


def natural_lines(tiles: Sequence[Tile], columns: int, lines: int) -> int:
    """Return how many of at most ``lines`` these have a use for, level with each other."""
    if lines - 2 >= _ROOMY:
        wanted = needed([one.sections(columns, True) for one in tiles])
        if wanted >= _ROOMY:
            return min(lines, wanted + 2)
    wanted = max(sum(len(part.rows) for part in one.sections(columns, False).parts) for one in tiles)
    return max(LEAST, min(lines, wanted + 2))


def side_by_side(tiles: Sequence[tuple[Tile, int]], lines: int, chosen: Sequence[bool]) -> list[tuple[Row, ...]]:
    """Return tiles, each with how many columns it has, that stand beside each other: level."""
    room = max(0, lines - 2)
    rows = levelled([tile.sections(columns, room >= _ROOMY) for tile, columns in tiles], room)
    return [
        tile.framed(made, columns, lines, chosen=mine)
        for (tile, columns), made, mine in zip(tiles, rows, chosen, strict=True)
    ]


def _sections(seen: Glance, space: Space, roomy: bool) -> Sections:
    first = [Part(1, (said_job,)) for said_job in _jobs(seen)]
    if not seen.is_known:
        if away := away_rows(seen, space):
            first.append(Part(1, tuple(away[:3])))
            first += [Part(4, (one,)) for one in away[3:]]
        if seen.view.sampled is None and seen.view.memory is None:
            return _grouped([first if first else [Part(0, ((Span("not looked yet", Tone.STALE),),))]], is_plain=False)
    made = _instances(seen, space, roomy)
    memory = [each if roomy else replace(each, tallest=1) for each in memory_parts(seen, space)]
    gpu = [Part(2, tuple(gpu_rows(seen, space))), *(gpu_parts(seen, space) if roomy else [])]
    blank = [Part(BLANK, ((),))] if roomy else []
    if not seen.is_known:
        memory, made, gpu = _faded(memory), _faded(made), []
    head, rest = made[:1], made[1:]
    if any(one.ours and one.phase is Phase.FAILED for one in seen.view.instances[:1]):
        return _grouped([first, made, blank, memory, blank, gpu], is_plain=False)  # the verdict first
    if not roomy:
        return _grouped([first, memory, made, gpu], is_plain=seen.is_known)
    return _grouped([[*first, *head, *blank], [*memory, *blank], [*rest, *blank], gpu], is_plain=seen.is_known)


def _grouped(groups: Sequence[Sequence[Part]], *, is_plain: bool) -> Sections:
    return Sections(tuple(map(tuple, groups)), is_plain)


def _faded(parts: Sequence[Part]) -> list[Part]:
    return [Part(one.spare + 1, tuple(toned(each, Tone.STALE) for each in one.rows)) for one in parts]


def _jobs(seen: Glance) -> list[Row]:
    return [row(said(job, Tone.ATTENTION)) for job in seen.jobs]


def _instances(seen: Glance, space: Space, roomy: bool) -> list[Part]:
    """Return the parts of what runs: the first of ours in full, the others with a row each."""
    view = seen.view
    ordered = in_order(view)
    if not ordered:
        return [Part(2, (_nothing(seen),))]
    parts: list[Part] = []
    many = len(ordered) > 1
    for at, one in enumerate(ordered):
        marked = many and one.name == seen.chosen
        if at == 0 and one.ours:
            if roomy or many:
                head = instance_row(one, space, marked=marked, badge=False)
                parts.append(Part(2 if roomy else 6, (_aged(head, seen, space),)))
            parts += _doings(one, seen, space, roomy)
        else:
            serves = one.ours and one.phase is Phase.READY
            parts.append(Part(0 if serves else 3 + at, (_named(one, seen, space, marked),)))
            if serves and one.numbers is not None:
                parts.append(Part(4 + at, (row("  ", *decode_row(one.numbers, space)),)))
    return parts


def _named(one: InstanceView, seen: Glance, space: Space, marked: bool) -> Row:
    end = seen.ends.get(one.name)
    if one.phase is not Phase.FAILED or end is None or end.verdict is None:
        return instance_row(one, space, marked=marked, badge=True, ready_for=seen.ready_for(one))
    mark = (">" if space.ascii_only else "▸") if marked else " "
    state = instance_badge(one, space.ascii_only)
    why = row(Span(f"  {state.sign} {state.word}: ", state.tone), said(end.verdict.summary, Tone.VALUE))
    return cut(row(Span(f"{mark} ", Tone.ACCENT), said(one.name, Tone.TITLE), *why), space.columns)


def _aged(head: Row, seen: Glance, space: Space) -> Row:
    view = seen.view
    if view.docker_known or view.instances_seen is None or not seen.is_known:
        return head  # of a node that does not answer all is as old
    return cut((*head, Span(f"   {old(seen.now - view.instances_seen)}", Tone.STALE)), space.columns)


def _nothing(seen: Glance) -> Row:
    if seen.view.instances_seen is None:
        if not seen.view.docker_known and seen.is_known:
            return row(said(f"Docker: {seen.view.detail or 'no answer'}", Tone.ATTENTION))
        return row(Span("what runs is not known yet", Tone.STALE))
    recent = f": {', '.join(seen.recent)} ..." if seen.recent else ""
    if seen.start_key is None:
        return row(Span("nothing runs", Tone.STALE))
    return row(Span(seen.start_key, Tone.KEY), Span(" starts a profile", Tone.LABEL), said(recent, Tone.LABEL))


def _doings(one: InstanceView, seen: Glance, space: Space, roomy: bool) -> list[Part]:
    """Return what the instance that matters most does: how far, why not, or how fast."""
    if is_coming(one):
        return start_parts(one, seen, space)
    if one.phase is Phase.FAILED:
        why = failure_rows(one, seen, space)
        return [Part(1, tuple(why[:2])), *(Part(3, (each,)) for each in why[2:])]
    if any(found.kind is FindingKind.PARTNER and found.instance == one.name for found in seen.view.findings):
        return [Part(1, (row(Span("  its partner on another Spark is gone", Tone.BAD)),))]
    if one.phase is Phase.READY and one.name in seen.heads:
        return [Part(1, (row(Span("  "), *head_words(one, seen.heads[one.name])),))]
    if one.phase is not Phase.READY or one.port is None:
        return [Part(3, (row(said(one.detail, Tone.STALE)),))] if one.detail else []
    decode, accept = decode_row(one.numbers, space), accept_row(one, seen, space)
    reads = reads_row(one, seen, space)
    last = [] if reads is None else [Part(4, (reads,))]
    if roomy and (uses := uses_row(one, space)) is not None:
        last.append(Part(6, (uses,)))
    speed = speed_part(one, seen, space) if roomy else None
    course = [] if speed is None else [speed]
    if accept is None:
        return [Part(1, (decode,)), *course, *last]
    if not roomy and space.is_wide and (beside := short_row(one, seen, space)) is not None:
        return [Part(1, (beside,)), *last]
    return [Part(1, (decode,)), *course, Part(1, (accept,)), *last]


def _title(seen: Glance, roomy: bool, ascii_only: bool) -> Row:
    badges = [Span(f"{one.sign} {one.word}", one.tone) for one in node_badges(seen, ascii_only)]
    apart = [Span(" · ", Tone.FRAME)] * (len(badges) - 1)
    title = row(
        said(seen.name, Tone.TITLE), " ", *(span for each in zip_longest(badges, apart) for span in each if span)
    )
    ordered = in_order(seen.view)
    if not roomy and len(badges) == 1 and ordered and ordered[0].ours and seen.told.state is NodeState.OK:
        one = ordered[0]
        dash = " - " if ascii_only else " ─ "
        port = f" :{one.port}" if one.port is not None else ""
        rank = f" · {rank_of(one).partition(' · ')[0]}" if rank_of(one) else ""
        more = f" +{len(ordered) - 1}" if len(ordered) > 1 else ""
        title = row(
            *title, Span(dash, Tone.FRAME), said(one.name, Tone.TITLE), said(f" {engine_words(one)}{port}{rank}{more}", Tone.LABEL)
        )  # fmt: skip
    return title
