"""Writing messages to stderr; no other module writes there."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
from typing import TYPE_CHECKING

from sparkctl.cli.stdout import QUIET_OPTION, discard_buffer, format_row, get_option, terminal_columns
from sparkctl.model.text.sanitize import sanitize_lines

if TYPE_CHECKING:
    import click

    from sparkctl.views.text.styled_text import TextRow

_HOME_DIRECTORY = os.environ.get("HOME", "").rstrip("/")  # read at import, before `demo` changes the variable
_HOME_PATTERN = re.compile(rf"(?<![^\s(`]){re.escape(_HOME_DIRECTORY)}(?=/)") if len(_HOME_DIRECTORY) > 1 else None


def print_message(line: str | TextRow = "", hang: int | None = None, *, is_trouble: bool = False) -> None:
    """Print one message, home as ~, wrapped on a terminal with ``hang`` spaces. With ``--quiet`` only if it ``is_trouble``."""
    if get_option(QUIET_OPTION) and not is_trouble:
        return
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
    print_message((Span("sparkctl:", TextStyle.BAD), Span(f" {first}")), 2, is_trouble=True)
    for line in rest:
        print_message(f"  {line}", is_trouble=True)
    print_hints(hint)


def print_warning(where: str | None, message: str, hint: str | None) -> None:
    """Print a warning; the work goes on."""
    from sparkctl.model.finding import Severity
    from sparkctl.views.text.styled_text import Span, TextStyle, get_state_symbol

    first, *rest = sanitize_lines(message)
    place = f"{where}: " if where and not first.startswith(where) else ""
    print_message(
        (Span(f"{get_state_symbol(Severity.WARNING)} {place}{first}", TextStyle.ATTENTION),), 2, is_trouble=True
    )
    for line in rest:
        print_message(f"  {line}", is_trouble=True)
    print_hints(hint)


def print_hints(hint: str | None) -> None:
    from sparkctl.views.text.styled_text import Span, TextStyle

    for line in sanitize_lines(hint) if hint else ():
        print_message((Span("  "), Span("try:", TextStyle.LABEL), Span(f" {line}")), 4, is_trouble=True)


def print_usage_error(wrong: click.ClickException, hint: str | None) -> str | None:
    """Print what is wrong with the command line; return the command that shows its help."""
    from click import MissingParameter, NoSuchOption

    is_known = hint is not None and isinstance(wrong, NoSuchOption)
    print_error(
        wrong.message if is_known else wrong.format_message(), hint
    )  # an option that only looks alike is not meant
    ctx = getattr(wrong, "ctx", None)
    if ctx is None:
        return None
    print_message(f"  {ctx.get_usage()}", is_trouble=True)
    if isinstance(wrong, MissingParameter) and (example := _find_example(ctx)):
        print_message(f"  for example: {example}", is_trouble=True)
    print_message(f"  {ctx.command_path} --help explains more", is_trouble=True)
    return f"{ctx.command_path} --help"


def _find_example(ctx: click.Context) -> str | None:
    """Return the first example in the help of a command."""
    lines = (line.strip() for line in (ctx.command.help or "").splitlines())
    example = next((line for line in lines if line.startswith(f"{ctx.command_path} ")), None)
    return None if example is None else example.split("  ", 1)[0]  # what it does stands behind it


def is_terminal() -> bool:
    return sys.stderr.isatty()


_is_live_line_paused = False


def pause_live_line(on: bool) -> None:
    """Hide live lines while the user types an answer."""
    global _is_live_line_paused
    _is_live_line_paused = on


class LiveLine:
    """Lines at the bottom of the terminal, mostly one, that are rewritten during work; silent if stderr is no terminal."""

    def __init__(self) -> None:
        self.on = is_terminal() and not get_option(QUIET_OPTION)
        self._shown = 0  # lines

    def update(self, *lines: TextRow) -> None:
        """Rewrite the lines, cut to the terminal's width and to half its height."""
        if not self.on or _is_live_line_paused:
            return
        from sparkctl.views.text.styled_text import truncate_row

        width = (terminal_columns(sys.stderr) or 80) - 1
        shown = lines[: max(1, shutil.get_terminal_size().lines // 2)]
        text = "\n".join(format_row(truncate_row(line, width, ""), sys.stderr) for line in shown)
        _write_ignoring_errors(self._erase() + text)
        self._shown = len(shown)

    def clear(self) -> None:
        """Erase the lines, so that a permanent line can be printed there."""
        if self._shown:
            _write_ignoring_errors(self._erase())
            self._shown = 0

    def _erase(self) -> str:
        """Return what erases the lines and goes to the first of them."""
        return "\r\x1b[2K" + "\x1b[A\x1b[2K" * (self._shown - 1)
