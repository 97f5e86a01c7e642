"""Wrapping for a narrow terminal: between words, never within a command that users copy. One rule for lines of text, which
a terminal scrolls, and for rows of a screen, which cuts what is too wide."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.text import lazy_pattern
from sparkctl.model.text.sanitize import sanitize_lines
from sparkctl.views.text.styled_text import (
    Span,
    TextRow,
    TextStyle,
    join_text,
    measure_row,
    measure_text,
    split_graphemes,
)

_PROGRAM_NAMES = r"(?:sudo|sparkctl|docker|ssh|ssh-[a-z-]+|systemctl|journalctl|chmod|nano|curl|df|du|sh|ls|kill)"
# A command starts a line, or follows a colon or the gap after a label; it ends with the sentence, a backtick or a gap.
_COMMAND_START = r"(?:(?<=: )|(?<=  )|(?<=^))"
_COMMAND_REGEX = rf"{_COMMAND_START}{_PROGRAM_NAMES} .+?(?=; |\. |, or |   |$)"
_PIECE_PATTERN = lazy_pattern.compile(rf"[^\s`]*(?:`[^`]+`[^\s`]*)+|{_COMMAND_REGEX}|\S+")
_COMMAND_PATTERN = lazy_pattern.compile(_COMMAND_REGEX)
_MIN_TEXT_COLUMNS = 8  # a sentence beside a head gets at least this many columns
_WORD_PATTERN = lazy_pattern.compile(r"""(?:'[^']*'|"[^"]*"|\\.|\S)+""")


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of a wrapped text: an indent in columns, the text from ``start`` to before ``end``, and what is added."""

    indent: int
    start: int
    end: int
    suffix: str = ""


def wrap_line(line: str, width: int | None, hang: int | None = None) -> list[str]:
    """Return ``line`` as lines of at most ``width`` columns; later lines are indented by ``hang``.

    ``width`` None does not wrap. The default of ``hang`` is the line's own indent plus two. A command longer than a
    line stays whole on a line of its own, and so does a word, such as a path, that needs part of the indent; one that
    is longer than a line stays whole in its place.
    """
    return [join_text(row) for row in wrap_styled_line((Span(line),), width, hang)]


def wrap_styled_line(row: TextRow, width: int | None, hang: int | None = None) -> list[TextRow]:
    """Return a row as `wrap_line` wraps its text."""
    if width is None or measure_row(row) <= width:
        return [row]
    return [_slice_row(row, one) for one in _break_text(join_text(row), width, hang)]


def wrap_row(row: TextRow, columns: int, hang: int | None) -> list[TextRow]:
    """Return a row as rows of at most ``columns``, like `wrap_line`, but nothing is wider: a long command continues after
    a backslash, as in a shell; a long word, such as a path, continues on the next line."""
    if measure_row(row) <= columns:
        return [row]
    text = join_text(row)
    lines = [part for one in _break_text(text, columns, hang) for part in _break_long_line(text, one, columns)]
    return [_slice_row(row, one) for one in lines]


def wrap_rows(rows: Iterable[TextRow], columns: int, hang: int = 0) -> list[TextRow]:
    """Return the rows wrapped to ``columns``; continuation lines keep the indent, at least ``hang``."""
    found: list[TextRow] = []
    for row in rows:
        text = "" if measure_row(row) <= columns else join_text(row)
        indent = max(hang, len(text) - len(text.lstrip(" ")))
        found += wrap_row(row, columns, min(indent, columns // 3)) if text else [row]
    return found


def wrap_text(
    words: str, columns: int, tone: TextStyle = TextStyle.PLAIN, hang: int = 0, head: TextRow = ()
) -> list[TextRow]:
    """Return sentences, one a line, as rows of at most ``columns``; ``head`` stands before the first, blanks before the others."""
    before = measure_row(head)
    room = max(_MIN_TEXT_COLUMNS, columns - before)
    lines = [row for line in sanitize_lines(words) if line for row in wrap_row((Span(line, tone),), room, hang)]
    if not head:
        return lines
    return [(*(head if not at else (Span(" " * before, head[-1].tone),)), *line) for at, line in enumerate(lines)]


def find_command(line: str) -> str | None:
    """Return the first command in a hint, None if there is none."""
    found = _COMMAND_PATTERN.search(line)
    return None if found is None else found[0]


def _break_text(text: str, width: int, hang: int | None) -> Iterator[_Line]:
    """Yield the lines of a text; a word or a command that is wider than a line stays whole."""
    own = len(text) - len(text.lstrip(" "))
    hang = min(own + 2 if hang is None else hang, width // 2)
    indent = start = end = used = 0
    for piece in _PIECE_PATTERN.finditer(text):
        gap, wide = piece.start() - end, measure_text(piece[0])
        fits_nowhere = wide > width and " " not in piece[0]
        if end and gap and not fits_nowhere and used + gap + wide > width:
            yield _Line(indent, start, end)
            indent = hang if " " in piece[0] else min(hang, width - wide)
            start, used, gap = piece.start(), indent, 0
        end, used = piece.end(), used + gap + wide
    yield _Line(indent, start, end)


def _break_long_line(text: str, line: _Line, width: int) -> Iterator[_Line]:
    """Yield the parts of a line that is too wide."""
    words = text[line.start : line.end]
    if line.indent + measure_text(words) <= width:
        yield line
        return
    begin = line.start + len(words) - len(words.lstrip(" "))
    line = replace(line, indent=min(line.indent + begin - line.start, width // 2), start=begin)
    is_command = _COMMAND_PATTERN.match(text[begin : line.end]) is not None
    for one in _break_command(text, line, width) if is_command else (line,):
        yield from _chop_line(text, one, width)


def _chop_line(text: str, line: _Line, width: int) -> Iterator[_Line]:
    """Yield the parts of a line, broken also within words that are wider than a line."""
    start, used = line.start, line.indent
    for piece in re.finditer(r" *[^ ]+", text[start : line.end]):
        at, word = line.start + piece.start(), piece[0].lstrip(" ")
        if at > start and used + measure_text(piece[0]) > width >= line.indent + measure_text(word):
            yield _Line(line.indent, start, at)
            start, used = line.start + piece.end() - len(word), line.indent + measure_text(word)
            continue
        for part in split_graphemes(piece[0]):
            if at > start and used + measure_text(part) > width:
                yield _Line(line.indent, start, at)
                start, used = at, line.indent
            at, used = at + len(part), used + measure_text(part)
    yield replace(line, start=start)


def _break_command(text: str, line: _Line, width: int) -> Iterator[_Line]:
    """Yield the lines of a command, each with a backslash but the last; an option and its value stay together."""
    words = [
        (line.start + one.start(), line.start + one.end())
        for one in _WORD_PATTERN.finditer(text[line.start : line.end])
    ]
    pieces: list[tuple[int, int]] = []
    for start, end in words:
        before = text[pieces[-1][0] : pieces[-1][1]] if pieces else ""
        is_value = before.startswith("-") and " " not in before and text[start] != "-"
        pieces[len(pieces) - is_value :] = [(pieces[-1][0] if is_value else start, end)]
    now = replace(line, end=pieces[0][1])
    for start, end in pieces[1:]:
        if now.indent + measure_text(text[now.start : end]) + 2 > width:
            yield replace(now, suffix=" \\")
            now = _Line(line.indent + 2, start, end)
        now = replace(now, end=end)
    yield now


def _slice_row(row: TextRow, line: _Line) -> TextRow:
    """Return the part of a row that a line is made of, in its styles."""
    spans: list[Span] = []
    at, before = 0, " " * line.indent
    for span in row:
        piece = span.text[max(0, line.start - at) : max(0, line.end - at)]
        at += len(span.text)
        if piece:
            spans.append(Span(before + piece, span.tone))
            before = ""
    return (*spans, Span(line.suffix, spans[-1].tone)) if line.suffix else tuple(spans)


def wrap_cells(head: str, cells: Sequence[str], width: int | None, gap: str = "   ") -> list[str]:
    """Return ``head`` and the cells on as many lines as needed, with gaps, broken between cells.

    Later lines start under the first cell. A cell that is longer than a line is wrapped.
    """
    hang = " " * measure_text(head)
    rows, current, filled = [], head, False
    for cell in cells:
        if filled and width is not None and measure_text(current) + len(gap) + measure_text(cell) > width:
            rows.append(current)
            current, filled = hang, False
        current += (gap if filled else "") + cell
        filled = True
    return [line for row in [*rows, current] for line in wrap_line(row.rstrip(), width, len(hang))]


def align_cells(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> list[list[str]]:
    """Return a table's cells padded to their columns; those at ``right`` align there. The last column is not padded."""
    if not rows:
        return []
    widths = [max(measure_text(row[at]) for row in rows) for at in range(len(rows[0]) - 1)]
    return [
        [
            " " * (wide - measure_text(cell)) + cell if at in right else cell + " " * (wide - measure_text(cell))
            for at, (cell, wide) in enumerate(zip(row, widths, strict=False))
        ]
        + [row[-1]]
        for row in rows
    ]


def limit_height(lines: Sequence[str], height: int) -> list[str]:
    """Return the lines for a terminal of ``height`` rows; if some are cut, the last row says how many."""
    if len(lines) <= height:
        return list(lines)
    missing = len(lines) - height + 1
    return [*lines[: height - 1], f"({missing} more lines: make the window taller, or choose with --node)"]
