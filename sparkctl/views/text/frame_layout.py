"""The layout of tiles: where they are, and their frames; and the header. It imports little, because the first frame needs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.node import NodeName
from sparkctl.views.text.styled_text import (
    ScrollPage,
    Span,
    TextRow,
    TextStyle,
    make_row,
    measure_row,
    pad_row,
    sanitize_span,
    scroll_rows,
    truncate_row,
)

MIN_TILE_LINES = 5  # smallest height of a tile with state, memory and throughput
_TWO_TILES_MIN_COLUMNS = 110  # from this width on, tiles are side by side
_THREE_TILES_MIN_COLUMNS = 168
_TALL_SCREEN_LINES = 30  # from this height on, there is room for more rows below the tiles
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
    *, has_news: bool = False,
) -> tuple[TileBox, ...]:  # fmt: skip
    """Return the positions of the tiles: side by side if there is room, all of one size; if not all fit, those around
    the selected one. A fifth of the lines (at least two) is reserved for the rows below, so that nothing moves.

    ``wanted``: returns how many lines a tile of a given width can use (columns, lines). ``has_news``: much is told below; a tall
    screen reserves three tenths for that.
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
    if has_news and lines >= _TALL_SCREEN_LINES:
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
    """Return exactly ``lines`` rows of exactly ``columns``: the body in a frame; ``tone``: an unusual style of it."""
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
    """Return which Sparks are guarded; None if not known. ``guarded``: the watched instances of each, whether a guard runs or not."""
    armed = [name for name, watched in guarded.items() if watched]
    if armed:
        return "guard armed" if len(armed) == len(guarded) else f"guard armed on {' and '.join(armed)}"
    return "unguarded" if guarded and None not in guarded.values() else None


def render_header(title: Sequence[Span], right: Sequence[Span], columns: int) -> TextRow:
    """Return the first line: program and screen left, state and time right. The time is dropped last."""
    left, end = (Span(" "), *title), (*right, Span(" "))
    if len(title) > 2 and measure_row(left) + measure_row(end) + 2 > columns:
        left = (Span(" "), *title[2:])  # the screen's name matters more than the program's
    while len(end) > 2 and measure_row(left) + measure_row(end) + 2 > columns:
        end = end[1:]
    room = max(0, columns - measure_row(end) - 2)
    return pad_row((*pad_row(left, room), Span("  "), *end), columns, "")
