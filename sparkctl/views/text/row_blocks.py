"""The parts of a tile: the same figure in the same row of each, charts as tall as there is room, the least important left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sparkctl.views.text.styled_text import TextRow, TextStyle, restyle_row

BLANK_DROP_PRIORITY = 9  # priority of an empty row; it is dropped first


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBlock:
    """Rows that stay together. Blocks with a higher ``spare`` are left out first. For a chart, ``grow`` renders it in
    more rows, up to ``tallest``, if there is room. ``slot`` identifies the chart, so that charts of several Sparks
    get the same height."""

    spare: int
    rows: tuple[TextRow, ...]
    grow: Callable[[int], tuple[TextRow, ...]] | None = None
    slot: str = ""
    tallest: int = 1


def make_block(spare: int, *rows: TextRow) -> RowBlock:
    """Return rows that stay together."""
    return RowBlock(spare=spare, rows=rows)


def dim_blocks(blocks: Sequence[RowBlock]) -> list[RowBlock]:
    """Return blocks that are no longer sure: faint, and left out a little earlier."""
    return [make_block(one.spare + 1, *(restyle_row(each, TextStyle.STALE) for each in one.rows)) for one in blocks]


@dataclass(frozen=True, slots=True)
class TileSections:
    """The parts of a tile in sections that start in the same row of all tiles: identity, memory, activity, GPU. If
    ``is_plain`` is False, only the last section is aligned."""

    groups: tuple[tuple[RowBlock, ...], ...]
    is_plain: bool = True

    @property
    def parts(self) -> list[RowBlock]:
        """All parts in order."""
        return [part for group in self.groups for part in group]


def count_needed_rows(tiles: Sequence[TileSections]) -> int:
    """Return how many rows the parts can use."""
    return _count_total_rows(_group_parts(tiles), dict(_list_curves(tiles)))


def align_sections(tiles: Sequence[TileSections], room: int) -> list[list[TextRow]]:
    """Return at most ``room`` rows of each tile, aligned; if not all fit, the most important of each, with the GPU at
    the bottom."""
    grouped = _group_parts(tiles)
    for kept in (grouped, [[_drop_blank_rows(group) for group in one] for one in grouped]):
        spare = room - _count_total_rows(kept, {})
        if spare >= 0:
            heights = distribute_chart_rows(_list_curves(tiles), spare)
            return _lay_out_groups(kept, heights)
    return [_anchor_last_group(one, room) for one in tiles]


def distribute_chart_rows(curves: Sequence[tuple[str, int]], spare: int) -> dict[str, int]:
    """Return the height of each chart, given its largest height: one row each, the first ones first, then more,
    evenly."""
    heights = {slot: int(at < spare) for at, (slot, _) in enumerate(curves)}
    spare -= sum(heights.values())
    while spare > 0 and (open_ := [slot for slot, limit in curves if heights[slot] < limit]):
        heights[min(open_, key=heights.__getitem__)] += 1
        spare -= 1
    return heights


def expand_charts(parts: Sequence[RowBlock], room: int) -> list[RowBlock]:
    """Return the parts of one tile with its charts as tall as there is room for."""
    spare = room - sum(len(part.rows) for part in parts if part.grow is None)
    heights = distribute_chart_rows([(part.slot, part.tallest) for part in parts if part.grow is not None], spare)
    return [part if part.grow is None else make_block(part.spare, *_render_block(part, heights)) for part in parts]


def drop_least_important(parts: Sequence[RowBlock], room: int) -> list[TextRow]:
    """Drop the least important parts until the rest fits; the order stays."""
    kept = list(parts)
    while kept and sum(len(part.rows) for part in kept) > room:
        worst = max(range(len(kept)), key=lambda at: (kept[at].spare, at))
        if len(kept) == 1:
            return list(kept[0].rows[:room])
        del kept[worst]
    rows = [each for part in kept for each in part.rows]
    while rows and not rows[-1]:
        rows.pop()
    return rows


def _group_parts(tiles: Sequence[TileSections]) -> list[list[list[RowBlock]]]:
    if all(one.is_plain for one in tiles):
        return [[list(group) for group in one.groups] for one in tiles]
    return [
        [[part for group in one.groups[:-1] for part in group], list(one.groups[-1]) if one.groups else []]
        for one in tiles
    ]


def _drop_blank_rows(group: Sequence[RowBlock]) -> list[RowBlock]:
    return [part for part in group if any(part.rows) or part.grow is not None]


def _list_curves(tiles: Sequence[TileSections]) -> list[tuple[str, int]]:
    """Return the charts of all tiles from top to bottom, each with its largest height."""
    tallest: dict[str, int] = {}
    order = ("memory", "speed", "gpu", "power")
    for part in (part for one in tiles for part in one.parts if part.grow is not None):
        tallest[part.slot] = max(part.tallest, tallest.get(part.slot, 1))
    return sorted(tallest.items(), key=lambda one: order.index(one[0]) if one[0] in order else len(order))


def _count_block_rows(part: RowBlock, heights: dict[str, int]) -> int:
    return len(part.rows) if part.grow is None else heights.get(part.slot, 0)


def _render_block(part: RowBlock, heights: dict[str, int]) -> tuple[TextRow, ...]:
    if part.grow is None:
        return part.rows
    height = heights.get(part.slot, 0)
    return part.grow(height) if height else ()


def _count_total_rows(tiles: Sequence[Sequence[Sequence[RowBlock]]], heights: dict[str, int]) -> int:
    return sum(_count_tallest_rows(groups, heights) for groups in zip(*_equalize_groups(tiles), strict=True))


def _count_tallest_rows(groups: Sequence[Sequence[RowBlock]], heights: dict[str, int]) -> int:
    return max(sum(_count_block_rows(part, heights) for part in group) for group in groups)


def _equalize_groups(tiles: Sequence[Sequence[Sequence[RowBlock]]]) -> list[list[Sequence[RowBlock]]]:
    most = max((len(groups) for groups in tiles), default=0)
    return [[*groups, *([()] * (most - len(groups)))] for groups in tiles]


def _lay_out_groups(tiles: Sequence[Sequence[Sequence[RowBlock]]], heights: dict[str, int]) -> list[list[TextRow]]:
    laid: list[list[TextRow]] = [[] for _ in tiles]
    for groups in zip(*_equalize_groups(tiles), strict=True):
        tall = _count_tallest_rows(groups, heights)
        for rows, group in zip(laid, groups, strict=True):
            mine = [each for part in group for each in _render_block(part, heights)]
            rows += [*mine, *([()] * (tall - len(mine)))]
    return laid


def _anchor_last_group(one: TileSections, room: int) -> list[TextRow]:
    parts = [part for part in one.parts if part.grow is None or part.rows]
    rows = drop_least_important(parts, room)
    last = [each for part in (one.groups[-1] if one.groups else ()) if part.grow is None for each in part.rows]
    if last and rows[-len(last) :] == last:
        rows[-len(last) :] = [*([()] * (room - len(rows))), *last]
    return rows
