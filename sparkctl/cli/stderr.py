"""Writing messages to stderr; no other module writes there."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from typing import TYPE_CHECKING

import click

from sparkctl.cli.stdout import discard_buffer, format_row, terminal_columns
from sparkctl.model.text.sanitize import sanitize_lines

if TYPE_CHECKING:
    from sparkctl.views.text.styled_text import TextRow

_HOME_DIRECTORY = os.environ.get("HOME", "").rstrip("/")  # read at import, before `demo` changes the variable
_HOME_PATTERN = re.compile(rf"(?<![^\s(`]){re.escape(_HOME_DIRECTORY)}(?=/)") if len(_HOME_DIRECTORY) > 1 else None


def print_message(line: str | TextRow = "", hang: int | None = None) -> None:
    """Print one message: the home directory as ~; on a terminal wrapped between words, continued with ``hang`` spaces."""
    from sparkctl.views.text.line_wrap import wrap_styled_line
    from sparkctl.views.text.styled_text import Span

    row = (Span(line),) if isinstance(line, str) else line
    if _HOME_PATTERN is not None:
        row = tuple(Span(_HOME_PATTERN.sub("~", span.text), span.tone) for span in row)
    rows = wrap_styled_line(row, terminal_columns(sys.stderr), hang)
    _write_ignoring_errors("".join(f"{format_row(one, sys.stderr)}\n" for one in rows))


def print_prompt(question: str) -> None:
    """Print a question without a newline; the answer is typed after it."""
    _write_ignoring_errors(question)


def _write_ignoring_errors(text: str) -> None:
    """Write to stderr; if that fails the message is lost and the work goes on."""
    with contextlib.suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()


def flush_stderr() -> None:
    """Write buffered text or drop it, so that the interpreter's last flush cannot change the exit code."""
    try:
        sys.stderr.flush()
    except OSError:
        discard_buffer(sys.stderr)


def print_error(message: str, hint: str | None) -> None:
    """Print an error and its hint. Both may quote text from a node, so both are sanitised."""
    from sparkctl.views.text.styled_text import Span, TextStyle

    first, *rest = sanitize_lines(message)
    print_message((Span("sparkctl:", TextStyle.BAD), Span(f" {first}")), 2)
    for line in rest:
        print_message(f"  {line}")
    print_hints(hint)


def print_warning(where: str | None, message: str, hint: str | None) -> None:
    """Print a warning; the work goes on."""
    from sparkctl.model.finding import Severity
    from sparkctl.views.text.styled_text import Span, TextStyle, get_state_symbol

    first, *rest = sanitize_lines(message)
    place = f"{where}: " if where and not first.startswith(where) else ""
    print_message((Span(f"{get_state_symbol(Severity.WARNING)} {place}{first}", TextStyle.ATTENTION),), 2)
    for line in rest:
        print_message(f"  {line}")
    print_hints(hint)


def print_hints(hint: str | None) -> None:
    """Print hints, one a line."""
    from sparkctl.views.text.styled_text import Span, TextStyle

    for line in sanitize_lines(hint) if hint else ():
        print_message((Span("  "), Span("try:", TextStyle.LABEL), Span(f" {line}")), 4)


def print_usage_error(wrong: click.ClickException) -> str | None:
    """Print what is wrong with the command line; return the command that shows its help."""
    print_error(wrong.format_message(), None)
    ctx = getattr(wrong, "ctx", None)
    if ctx is None:
        return None
    print_message(f"  {ctx.get_usage()}")
    print_message(f"  {ctx.command_path} --help explains more")
    return f"{ctx.command_path} --help"


def is_terminal() -> bool:
    """Tell whether stderr is a terminal."""
    return sys.stderr.isatty()


_is_live_line_paused = False


def pause_live_line(on: bool) -> None:
    """Hide live lines while the user types an answer."""
    global _is_live_line_paused
    _is_live_line_paused = on


class LiveLine:
    """A line at the bottom of the terminal that is rewritten during work; silent if stderr is no terminal."""

    def __init__(self) -> None:
        self.on = is_terminal()
        self._shown = False

    def update(self, line: TextRow) -> None:
        """Rewrite the line, cut to the terminal's width."""
        if not self.on or _is_live_line_paused:
            return
        from sparkctl.views.text.styled_text import truncate_row

        row = truncate_row(line, (terminal_columns(sys.stderr) or 80) - 1, "")
        _write_ignoring_errors(f"\r\x1b[2K{format_row(row, sys.stderr)}")
        self._shown = True

    def clear(self) -> None:
        """Erase the line, so that a permanent line can be printed there."""
        if self._shown:
            _write_ignoring_errors("\r\x1b[2K")
            self._shown = False
