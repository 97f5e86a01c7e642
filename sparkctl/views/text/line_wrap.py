"""Wrapping lines for a narrow terminal: between words, never within a command that users copy."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

_COLOR_CODE_PATTERN = re.compile(r"\x1b\[[0-9;]*m")
_PROGRAM_NAMES = r"(?:sudo|sparkctl|docker|ssh|ssh-[a-z-]+|systemctl|journalctl|chmod|nano|curl|df|du|sh|ls|kill)"
# A command starts a line, or follows a colon or the gap after a label; it ends with the sentence, a backtick or a gap.
_COMMAND_START = r"(?:(?<=: )|(?<=:\x1b\[0m )|(?<=  )|(?<=^))"
_COMMAND_REGEX = rf"{_COMMAND_START}{_PROGRAM_NAMES} .+?(?=; |\. |, or |   |$)"
_PIECE_PATTERN = re.compile(rf"\S*`[^`]+`\S*|{_COMMAND_REGEX}|\S+")
_COMMAND_PATTERN = re.compile(_COMMAND_REGEX)
_WORD_PATTERN = re.compile(r"""(?:'[^']*'|"[^"]*"|\\.|\S)+""")


def wrap_line(line: str, width: int | None, hang: int | None = None) -> list[str]:
    """Return ``line`` as lines of at most ``width`` columns; later lines are indented by ``hang``.

    ``width`` None does not wrap. The default of ``hang`` is the line's own indent plus two. A command longer than a
    line stays whole on a line of its own; a long word, such as a path, stays whole in its place.
    """
    if width is None or visible_width(line) <= width:
        return [line]
    own = len(line) - len(line.lstrip(" "))
    hang = min(own + 2 if hang is None else hang, width // 2)
    lines: list[str] = []
    current, end, filled = "", 0, False
    for piece in _PIECE_PATTERN.finditer(line):
        gap = line[end : piece.start()]
        end = piece.end()
        wide = visible_width(piece[0])
        fits_nowhere = hang + wide > width and " " not in piece[0]
        if filled and gap and not fits_nowhere and visible_width(current) + len(gap) + wide > width:
            lines.append(current)
            current, gap = " " * hang, ""
        current += gap + piece[0]
        filled = True
    return [*lines, current]


def wrap_line_for_screen(line: str, width: int, hang: int | None = None) -> list[str]:
    """Return the lines of `wrap_line` for a screen that cuts long lines: a long command continues after a backslash,
    as in a shell; a long word, such as a path, continues on the next line."""
    return [
        part
        for one in wrap_line(line, width, hang)
        for part in (_break_long_line(one, width) if visible_width(one) > width else [one])
    ]


def find_command(line: str) -> str | None:
    """Return the first command in a hint, None if there is none."""
    found = _COMMAND_PATTERN.search(line)
    return None if found is None else found[0]


def _break_long_line(line: str, width: int) -> list[str]:
    indent = line[: len(line) - len(line.lstrip(" "))]
    if not _COMMAND_PATTERN.match(line.lstrip(" ")):
        return textwrap.wrap(line, width, subsequent_indent=indent, break_on_hyphens=False, drop_whitespace=True)
    pieces: list[str] = []
    for word in _WORD_PATTERN.findall(line):  # keep an option and its value together
        is_value = bool(pieces) and pieces[-1].startswith("-") and " " not in pieces[-1] and not word.startswith("-")
        pieces[len(pieces) - is_value :] = [f"{pieces[-1]} {word}" if is_value else word]
    lines, current = [], indent + pieces[0]
    for piece in pieces[1:]:
        if visible_width(current) + visible_width(piece) + 3 > width:
            lines.append(f"{current} \\")
            current = f"{indent}  {piece}"
        else:
            current += f" {piece}"
    return [*lines, current]


def wrap_cells(head: str, cells: Sequence[str], width: int | None, gap: str = "   ") -> list[str]:
    """Return ``head`` and the cells on as many lines as needed, with gaps, broken between cells.

    Later lines start under the first cell. A cell that is longer than a line is wrapped.
    """
    hang = " " * visible_width(head)
    rows, current, filled = [], head, False
    for cell in cells:
        if filled and width is not None and visible_width(current) + len(gap) + visible_width(cell) > width:
            rows.append(current)
            current, filled = hang, False
        current += (gap if filled else "") + cell
        filled = True
    return [line for row in [*rows, current] for line in wrap_line(row.rstrip(), width, len(hang))]


def limit_height(lines: Sequence[str], height: int) -> list[str]:
    """Return the lines for a terminal of ``height`` rows; if some are cut, the last row says how many."""
    if len(lines) <= height:
        return list(lines)
    missing = len(lines) - height + 1
    return [*lines[: height - 1], f"({missing} lines more: make the window taller, or choose with --node)"]


def visible_width(text: str) -> int:
    """Return the columns that ``text`` takes, without colour codes."""
    return len(_COLOR_CODE_PATTERN.sub("", text))


def truncate_line(text: str, width: int) -> str:
    """Return ``text`` cut to ``width`` columns; colour codes are kept, so that colour ends."""
    if visible_width(text) <= width:
        return text
    kept, left = "", width
    for index, part in enumerate(re.split(rf"({_COLOR_CODE_PATTERN.pattern})", text)):
        if index % 2:
            kept += part
        else:
            kept += part[:left]
            left -= len(part[:left])
    return kept
