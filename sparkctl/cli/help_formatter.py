"""How help looks: nothing is wider than the terminal, and an example that is too long goes on with a backslash."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Sequence

import click

_MARGIN = 2  # columns that stay free at the right
_LEAST_WIDTH, _LARGEST_WIDTH = 38, 118
_HANG = 4
_COMMENT = re.compile(r"^(?P<indent> *)(?P<words>\S.*?) {2,}(?P<comment>\S.*)$")
_COMMAND = re.compile(r"^ *(?:[A-Z]+=\S+ )?(?:sparkctl|eval|curl) ")
_QUOTED = r"(?:'[^']*'|\"[^\"]*\"|\\.|[^\s'\"\\])+"  # a word of a shell line
_WORD = re.compile(
    rf"sparkctl [a-z-]+|--?[a-z][a-z-]* (?=[^-|>&]){_QUOTED}|{_QUOTED}"
)  # `sparkctl VERB` and an option with its value are one


class TerminalHelpFormatter(click.HelpFormatter):
    """A formatter whose examples wrap, too: click leaves paragraphs that begin with ``\\b`` as wide as they are."""

    def __init__(self, indent_increment: int = 2, width: int | None = None, max_width: int | None = None) -> None:
        if width is None:
            width = min(max(shutil.get_terminal_size().columns - _MARGIN, _LEAST_WIDTH), max_width or _LARGEST_WIDTH)
        super().__init__(indent_increment, width, max_width)

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        """Write a list of terms; where the terminal is narrow the first column is, too, and long choices go on below."""
        widest = self.width - self.current_indent
        col_max = min(col_max, max(widest * 2 // 5, 18))
        super().write_dl([(_break_choices(term, widest), about) for term, about in rows], col_max, col_spacing)

    def write_text(self, text: str) -> None:
        """Write paragraphs; one that begins with ``\\b`` keeps its lines as far as they fit."""
        for number, paragraph in enumerate(re.split(r"\n(?:[ \t]*\n)+", text.strip("\n"))):
            if number:
                self.write_paragraph()
            first, _, rest = paragraph.partition("\n")
            if first.strip() != "\b":
                super().write_text(paragraph)
                continue
            for line in fit_example_lines(rest.splitlines(), self.width - self.current_indent):
                self.write(f"{'':{self.current_indent}}{line}\n")


def _break_choices(term: str, width: int) -> str:
    """Return ``--as [env|json|...]`` on several lines where it is wider than ``width``."""
    if len(term) <= width:
        return term
    lines = [""]
    for part in re.findall(r"[^|]*\|?", term):
        if len(lines[-1]) + len(part) > width:
            lines.append(" " * 2 * _HANG)
        lines[-1] += part
    return "\n".join(lines)


class HelpContext(click.Context):
    """The context of every command: its help is set by `TerminalHelpFormatter`."""

    formatter_class = TerminalHelpFormatter


def fit_example_lines(lines: Sequence[str], width: int) -> list[str]:
    """Return example lines, each no wider than ``width``: the comments move nearer to their commands, or below them, and a
    command goes on in the next line after a backslash. Words of a shell stay whole."""
    comments = [match for line in lines if (match := _COMMENT.match(line)) is not None]
    column = max((match.end("words") for match in comments), default=0) + 2
    is_near = all(column + len(match["comment"]) <= width for match in comments)
    found: list[str] = []
    for line in lines:
        comment = _COMMENT.match(line)
        if max(map(len, lines)) <= width or (len(line) <= width and not (is_near and comment)):
            found.append(line)
        elif comment is None:
            found += _wrap_command(line, width)
        elif is_near:
            found.append(f"{line[: comment.end('words')]:{column}}{comment['comment']}")
        else:
            indent = len(comment["indent"]) + _HANG
            found += _wrap_command(line[: comment.end("words")], width)
            found += [f"{'':{indent}}{row}" for row in fill_words(comment["comment"].split(), width - indent)]
    return found


def _wrap_command(line: str, width: int) -> list[str]:
    if len(line) <= width:
        return [line]
    indent = len(line) - len(line.lstrip())
    if _COMMAND.search(line) is None:
        return [f"{'':{indent}}{row}" for row in fill_words(line.split(), width - indent)]
    first, *more = fill_words(_WORD.findall(line), width - indent - _HANG - 2)
    rows = [f"{'':{indent}}{first}", *(f"{'':{indent + _HANG}}{row}" for row in more)]
    return [*(f"{row} \\" for row in rows[:-1]), rows[-1]]


def fill_words(words: Iterable[str], width: int) -> list[str]:
    """Return rows of whole words, as many as fit."""
    rows: list[str] = []
    for word in words:
        if rows and len(rows[-1]) + 1 + len(word) <= width:
            rows[-1] += f" {word}"
        else:
            rows.append(word)
    return rows
