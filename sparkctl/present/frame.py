"""Where tiles stand and how they are framed. Light: this is what the first picture is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sparkctl.model.node import NodeName
from sparkctl.present.spans import Row, Span, Tone, cut, fit, plain_ascii, row, said, width

LEAST = 5  # lines of a tile that still says what state, how full, how fast
_TWO_COLUMNS = 110  # from this width on tiles stand beside each other
_THREE_COLUMNS = 168
_TALL = 30  # lines from which on there is room for what is said below
_FRAMES = {False: tuple("╭─╮│╰╯"), True: tuple("+-+|++")}
_CHOSEN = {False: tuple("┏━┓┃┗┛"), True: tuple("#=####")}


@dataclass(frozen=True, slots=True)
class Box:
    """Where a tile is."""

    index: int
    x: int
    y: int
    columns: int
    lines: int


def arrange(
    count: int, chosen: int, columns: int, lines: int, wanted: Callable[[int, int], int] = lambda _, __: LEAST,
) -> tuple[Box, ...]:  # fmt: skip
    """Return where the tiles stand: beside each other where there is room, all alike; around the chosen one where not
    all have room. A fifth of the lines, two at least, is left for what stands below, of a tall screen three tenths; whatever
    is said there, so that nothing above it moves.

    ``wanted``: how many of at most so many lines some tile of so many columns has a use for (columns, lines).
    """
    if not count:
        return ()
    across = 1 if columns < _TWO_COLUMNS or count == 1 else 3 if count == 3 and columns >= _THREE_COLUMNS else 2
    down = -(-count // across)
    below = 2 if lines < 20 else max(4, lines // 5)
    if lines >= _TALL:
        below = lines * 3 // 10
    wide = columns // across
    each = max(LEAST, (lines - below) // down)
    each = max(LEAST, min(each, wanted(wide, each)))
    shown = max(1, min(down, lines // each))
    first = max(0, min(chosen // across - (shown - 1) // 2, down - shown))
    boxes = []
    for index in range(first * across, min(count, (first + shown) * across)):
        column, line = index % across, index // across - first
        last = column == across - 1 or index == count - 1
        boxes.append(Box(index, column * wide, line * each, columns - column * wide if last else wide, each))
    return tuple(boxes)


def framed(
    title: Row, body: Sequence[Row], columns: int, lines: int, *, chosen: bool, ascii_only: bool
) -> tuple[Row, ...]:
    """Return exactly ``lines`` rows of exactly ``columns``: the body in a frame that bears the title."""
    left, dash, right, side, under, end = (_CHOSEN if chosen else _FRAMES)[ascii_only]
    tone = Tone.CHOSEN if chosen else Tone.FRAME
    mark = "~" if ascii_only else "…"
    if ascii_only:  # before anything is fitted: plain signs may be narrower
        title, body = plain_ascii(title), [plain_ascii(one) for one in body]
    title = cut(title, max(0, columns - 6), mark)
    fill = max(0, columns - 5 - width(title))
    top = (Span(f"{left}{dash} ", tone), *title, Span(f" {dash * fill}{right}", tone))
    within, room = max(0, columns - 4), max(0, lines - 2)
    inner = [fit(one, within, mark) for one in body[:room]]
    inner += [fit((), within)] * (room - len(inner))
    sides = [(Span(f"{side} ", tone), *one, Span(f" {side}", tone)) for one in inner]
    bottom = (Span(under + dash * (columns - 2) + end, tone),)
    return (fit(top, columns, ""), *sides, fit(bottom, columns, ""))


def beside(boxes: Sequence[Box], tiles: Sequence[tuple[Row, ...]]) -> list[Row]:
    """Return the rows of tiles that stand in their boxes."""
    rows: list[Row] = []
    for line in sorted({box.y for box in boxes}):
        group = [made for box, made in zip(boxes, tiles, strict=True) if box.y == line]
        rows += [tuple(span for part in parts for span in part) for parts in zip(*group, strict=True)]
    return rows


def filled(rows: Sequence[Row], columns: int, lines: int, ascii_only: bool) -> tuple[Row, ...]:
    """Return exactly so many rows, each exactly so wide."""
    fitted = [fit(plain_ascii(one), columns, "~") if ascii_only else fit(one, columns) for one in rows[:lines]]
    return (*fitted, *([fit((), columns)] * (lines - len(fitted))))


def first_frame(names: Sequence[str], columns: int, lines: int, ascii_only: bool = False) -> tuple[Row, ...]:
    """Return the picture before anything was asked: the Sparks by their names, and nothing pretended."""
    boxes = arrange(len(names), 0, columns, lines)
    tiles = []
    for box in boxes:
        sign = "?" if ascii_only else "◌"
        title = row(said(names[box.index], Tone.TITLE), Span(f" {sign} connecting", Tone.STALE))
        body = [row(Span("not looked yet", Tone.STALE))]
        chosen = box.index == 0 and len(boxes) > 1
        tiles.append(framed(title, body, box.columns, box.lines, chosen=chosen, ascii_only=ascii_only))
    return filled(beside(boxes, tiles), columns, lines, ascii_only)


def too_small(columns: int, lines: int, least: tuple[int, int], ascii_only: bool = False) -> tuple[Row, ...]:
    """Return the message for a terminal that holds no tile."""
    sign = "x" if ascii_only else "×"
    words = [
        row(Span("This terminal is too small.", Tone.STRONG)),
        row(Span(f"needed  {least[0]} {sign} {least[1]}", Tone.VALUE)),
        row(Span(f"it is   {columns} {sign} {lines}", Tone.VALUE)),
        row(Span("Keys still work; q ends.", Tone.LABEL)),
    ]
    above: list[Row] = [()] * max(0, (lines - len(words)) // 2)
    indent = " " * max(0, (columns - 27) // 2)
    return filled([*above, *(row(indent, *one) for one in words)], columns, lines, ascii_only)


def welcome() -> list[Row]:
    """Return what an empty panel teaches."""
    commands = (
        ("sparkctl init", "asks for each Spark's address, visits it, writes the config"),
        ("sparkctl demo", "this panel on two simulated Sparks, without hardware"),
    )
    rows: list[Row] = [(), row("  ", Span("No Spark is configured yet.", Tone.STRONG)), ()]
    wide = max(len(command) for command, _ in commands)
    rows += [row("  ", Span(f"{command:<{wide}}   ", Tone.KEY), Span(about, Tone.LABEL)) for command, about in commands]
    return [*rows, (), row("  ", Span("q", Tone.KEY), Span(" ends the panel", Tone.LABEL))]


def reading() -> list[Row]:
    """Return what a recording shows before its first node."""
    return [(), row("  ", Span("reading the recording ...", Tone.STALE))]


def guard_words(guarded: Mapping[NodeName, tuple[str, ...] | None]) -> str | None:
    """Return in how far the Sparks are guarded; None where that is not known. ``guarded``: what is watched on each."""
    armed = [name for name, watched in guarded.items() if watched]
    if armed:
        return "guard armed" if len(armed) == len(guarded) else f"guard armed on {' and '.join(armed)}"
    return "guard off" if guarded and None not in guarded.values() else None


def header(title: Sequence[Span], right: Sequence[Span], columns: int, ascii_only: bool = False) -> Row:
    """Return the first line: what this is on the left; how it stands and the time on the right. The time stays longest, and
    two columns between the two are left."""
    if ascii_only:  # before anything is fitted: plain signs may be narrower
        title, right = plain_ascii(tuple(title)), plain_ascii(tuple(right))
    left, end = (Span(" "), *title), (*right, Span(" "))
    if len(title) > 2 and width(left) + width(end) + 2 > columns:
        left = (Span(" "), *title[2:])  # what this program is called is known; where one is in it is not
    while len(end) > 2 and width(left) + width(end) + 2 > columns:
        end = end[1:]
    room = max(0, columns - width(end) - 2)
    return fit((*fit(left, room, "~" if ascii_only else "…"), Span("  "), *end), columns, "")
