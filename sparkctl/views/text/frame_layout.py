"""The layout of tiles: where they are, their frames, the same figure in the same row of each; and the header. It imports
little, because the first frame needs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sparkctl.model.node import NodeName
from sparkctl.views.text.styled_text import (
    ScrollPage,
    Span,
    TextRow,
    TextStyle,
    make_row,
    measure_row,
    pad_row,
    restyle_row,
    sanitize_span,
    scroll_rows,
    truncate_row,
)

MIN_TILE_LINES = 5  # smallest height of a tile with state, memory and throughput
_TWO_TILES_MIN_COLUMNS = 110  # from this width on, tiles are side by side
_THREE_TILES_MIN_COLUMNS = 168
_TALL_SCREEN_LINES = 30  # from this height on, there is room below the tiles
FRAME_COLUMNS = 6  # width of a frame without its title
_FRAME_SYMBOLS = tuple("╭─╮│╰╯")
_SELECTED_FRAME_SYMBOLS = tuple("┏━┓┃┗┛")


@dataclass(frozen=True, slots=True, kw_only=True)
class TileBox:
    """The position and size of a tile."""

    index: int
    x: int
    y: int
    columns: int
    lines: int


def arrange_tiles(
    count: int, chosen: int, columns: int, lines: int, wanted: Callable[[int, int], int] = lambda _, __: MIN_TILE_LINES,
) -> tuple[TileBox, ...]:  # fmt: skip
    """Return the positions of the tiles: side by side if there is room, all of one size; if not all fit, those around
    the selected one. A fifth of the lines (at least two; three tenths of a tall screen) is reserved for the rows
    below, so that nothing moves.

    ``wanted``: returns how many lines a tile of a given width can use (columns, lines).
    """
    if not count:
        return ()
    across = (
        1
        if columns < _TWO_TILES_MIN_COLUMNS or count == 1
        else 3
        if count == 3 and columns >= _THREE_TILES_MIN_COLUMNS
        else 2
    )
    down = -(-count // across)
    below = 2 if lines < 20 else max(4, lines // 5)
    if lines >= _TALL_SCREEN_LINES:
        below = lines * 3 // 10
    wide = columns // across
    each = max(MIN_TILE_LINES, (lines - below) // down)
    if each > MIN_TILE_LINES:  # else no tile has a choice, and counting what each can use means building all of them
        each = max(MIN_TILE_LINES, min(each, wanted(wide, each)))
    shown = max(1, min(down, lines // each))
    first = max(0, min(chosen // across - (shown - 1) // 2, down - shown))
    boxes = []
    for index in range(first * across, min(count, (first + shown) * across)):
        column, line = index % across, index // across - first
        last = column == across - 1 or index == count - 1
        boxes.append(
            TileBox(
                index=index,
                x=column * wide,
                y=line * each,
                columns=columns - column * wide if last else wide,
                lines=each,
            )
        )
    return tuple(boxes)


def draw_frame(
    title: TextRow,
    body: Sequence[TextRow],
    columns: int,
    lines: int,
    *,
    chosen: bool = False,
    tone: TextStyle | None = None,
) -> tuple[TextRow, ...]:
    """Return exactly ``lines`` rows of exactly ``columns``: the body in a frame with the title; ``tone``: the frame's
    style if not the usual one."""
    left, dash, right, side, under, end = _SELECTED_FRAME_SYMBOLS if chosen else _FRAME_SYMBOLS
    tone = tone or (TextStyle.CHOSEN if chosen else TextStyle.FRAME)
    title = truncate_row(title, max(0, columns - FRAME_COLUMNS))
    fill = max(0, columns - 5 - measure_row(title))
    top = (Span(f"{left}{dash} ", tone), *title, Span(f" {dash * fill}{right}", tone))
    within, room = max(0, columns - 4), max(0, lines - 2)
    inner = [pad_row(one, within) for one in body[:room]]
    inner += [pad_row((), within)] * (room - len(inner))
    sides = [(Span(f"{side} ", tone), *one, Span(f" {side}", tone)) for one in inner]
    bottom = (Span(under + dash * (columns - 2) + end, tone),)
    return (pad_row(top, columns, ""), *sides, pad_row(bottom, columns, ""))


def draw_page(title: TextRow, rows: Sequence[TextRow], further: int, columns: int, lines: int) -> ScrollPage:
    """Return a frame of exactly this size with the rows from ``further`` on."""
    page = scroll_rows(rows, further, lines - 2)
    return ScrollPage(draw_frame(title, page.rows, columns, lines), page.further)


def join_tiles(boxes: Sequence[TileBox], tiles: Sequence[tuple[TextRow, ...]]) -> list[TextRow]:
    """Return the rows of tiles placed in their boxes."""
    rows: list[TextRow] = []
    for line in sorted({box.y for box in boxes}):
        group = [made for box, made in zip(boxes, tiles, strict=True) if box.y == line]
        rows += [tuple(span for part in parts for span in part) for parts in zip(*group, strict=True)]
    return rows


def pad_screen(rows: Sequence[TextRow], columns: int, lines: int) -> tuple[TextRow, ...]:
    """Return exactly this many rows of exactly this width."""
    fitted = [pad_row(one, columns) for one in rows[:lines]]
    return (*fitted, *([pad_row((), columns)] * (lines - len(fitted))))


def render_first_frame(names: Sequence[str], columns: int, lines: int) -> tuple[TextRow, ...]:
    """Return the first frame before any node was contacted: only the names of the Sparks."""
    boxes = arrange_tiles(len(names), 0, columns, lines)
    tiles = []
    for box in boxes:
        title = make_row(sanitize_span(names[box.index], TextStyle.TITLE), Span(" ◌ connecting", TextStyle.STALE))
        body = [make_row(Span("no data yet", TextStyle.STALE))]
        chosen = box.index == 0 and len(boxes) > 1
        tiles.append(draw_frame(title, body, box.columns, box.lines, chosen=chosen))
    return pad_screen(join_tiles(boxes, tiles), columns, lines)


def render_too_small(columns: int, lines: int, least: tuple[int, int]) -> tuple[TextRow, ...]:
    """Return the message for a terminal that is too small for a tile."""
    words = [
        make_row(Span("This terminal is too small.", TextStyle.STRONG)),
        make_row(Span(f"needed  {least[0]} × {least[1]}", TextStyle.VALUE)),
        make_row(Span(f"it is   {columns} × {lines}", TextStyle.VALUE)),
        make_row(Span("Keys still work; q ends.", TextStyle.LABEL)),
    ]
    above: list[TextRow] = [()] * max(0, (lines - len(words)) // 2)
    indent = " " * max(0, (columns - 27) // 2)
    return pad_screen([*above, *(make_row(indent, *one) for one in words)], columns, lines)


def render_welcome() -> list[TextRow]:
    """Return the help of a panel without configured nodes."""
    commands = (
        ("sparkctl init", "asks for each Spark's address, tests it, writes the config"),
        ("sparkctl demo", "this panel on two simulated Sparks, without hardware"),
    )
    rows: list[TextRow] = [(), make_row("  ", Span("No Spark is configured yet.", TextStyle.STRONG)), ()]
    wide = max(len(command) for command, _ in commands)
    rows += [
        make_row("  ", Span(f"{command:<{wide}}   ", TextStyle.KEY), Span(about, TextStyle.LABEL))
        for command, about in commands
    ]
    return [*rows, (), make_row("  ", Span("q", TextStyle.KEY), Span(" ends the panel", TextStyle.LABEL))]


def render_recording_wait() -> list[TextRow]:
    """Return the screen of a recording before its first node."""
    return [(), make_row("  ", Span("reading the recording ...", TextStyle.STALE))]


def describe_guard_coverage(guarded: Mapping[NodeName, tuple[str, ...] | None]) -> str | None:
    """Return which Sparks are guarded; None if not known. ``guarded``: the watched instances of each."""
    armed = [name for name, watched in guarded.items() if watched]
    if armed:
        return "guard armed" if len(armed) == len(guarded) else f"guard armed on {' and '.join(armed)}"
    return "guard off" if guarded and None not in guarded.values() else None


def render_header(title: Sequence[Span], right: Sequence[Span], columns: int) -> TextRow:
    """Return the first line: program and screen on the left; state and time on the right, at least two columns apart.
    The time is dropped last."""
    left, end = (Span(" "), *title), (*right, Span(" "))
    if len(title) > 2 and measure_row(left) + measure_row(end) + 2 > columns:
        left = (Span(" "), *title[2:])  # the screen's name matters more than the program's
    while len(end) > 2 and measure_row(left) + measure_row(end) + 2 > columns:
        end = end[1:]
    room = max(0, columns - measure_row(end) - 2)
    return pad_row((*pad_row(left, room), Span("  "), *end), columns, "")


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
