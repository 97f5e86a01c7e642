"""stderr: talk, for people. Nothing else in the tree writes there."""

from __future__ import annotations

import contextlib
import os
import re
import sys

import click

from sparkctl.cli.stdout import discard_buffer
from sparkctl.cli.terminal_style import colour_text, is_ascii_only, supports_colour, terminal_columns
from sparkctl.model.text.sanitize import sanitize_lines
from sparkctl.views.text.line_wrap import truncate_line, wrap_line

_HOME_DIRECTORY = os.environ.get("HOME", "").rstrip("/")  # the operator's own, whatever `demo` makes of the variable
_HOME_PATTERN = re.compile(rf"(?<![^\s(`]){re.escape(_HOME_DIRECTORY)}(?=/)") if len(_HOME_DIRECTORY) > 1 else None


def print_message(line: str = "", hang: int | None = None) -> None:
    """Print one line of talk: the home directory as ~, and on a terminal broken between words, ``hang`` indented."""
    if _HOME_PATTERN is not None:
        line = _HOME_PATTERN.sub("~", line)
    _write_ignoring_errors("".join(f"{part}\n" for part in wrap_line(line, terminal_columns(sys.stderr), hang)))


def print_prompt(question: str) -> None:
    """Print a question whose answer is written beside it."""
    _write_ignoring_errors(question)


def _write_ignoring_errors(text: str) -> None:
    """Where nobody can hear it, talk is lost and the work goes on."""
    with contextlib.suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()


def flush_stderr() -> None:
    """Write what is still held back, or forget it: the interpreter's own last flush must not change the exit code."""
    try:
        sys.stderr.flush()
    except OSError:
        discard_buffer(sys.stderr)


def print_error(message: str, hint: str | None) -> None:
    """Say what is wrong and what to do; both may quote a node, so both are cleaned."""
    colour = supports_colour(sys.stderr)
    first, *rest = sanitize_lines(message)
    print_message(f"{colour_text('sparkctl:', 'bad', colour)} {first}", 2)
    for line in rest:
        print_message(f"  {line}")
    if hint:
        print_hints(hint)


def print_warning(where: str | None, message: str, hint: str | None) -> None:
    """Say loudly what does not end the work."""
    colour = supports_colour(sys.stderr)
    mark = "!" if is_ascii_only(sys.stderr) else "▲"
    first, *rest = sanitize_lines(message)
    print_message(
        colour_text(
            f"{mark} {where + ': ' if where and not first.startswith(where) else ''}{first}", "attention", colour
        ),
        2,
    )
    for line in rest:
        print_message(f"  {line}")
    if hint:
        print_hints(hint)


def print_hints(hint: str) -> None:
    """Print what to do, one line each."""
    for line in sanitize_lines(hint):
        print_message(f"  {colour_text('try:', 'dim', supports_colour(sys.stderr))} {line}", 4)


def print_usage_error(wrong: click.ClickException) -> str | None:
    """Say what is wrong with the command line, and return the way to its help."""
    print_error(wrong.format_message(), None)
    ctx = getattr(wrong, "ctx", None)
    if ctx is None:
        return None
    print_message(f"  {ctx.get_usage()}")
    print_message(f"  {ctx.command_path} --help says more")
    return f"{ctx.command_path} --help"


def is_terminal() -> bool:
    """Tell whether somebody reads stderr."""
    return sys.stderr.isatty()


_is_live_line_paused = False


def pause_live_line(on: bool) -> None:
    """Keep live lines off the screen while somebody types an answer there."""
    global _is_live_line_paused
    _is_live_line_paused = on


class LiveLine:
    """One line at the bottom that is rewritten while something goes on; silent where stderr is no terminal."""

    def __init__(self) -> None:
        self.on = is_terminal()
        self._shown = False

    def update(self, line: str) -> None:
        """Rewrite the line, cut to the terminal's width."""
        if not self.on or _is_live_line_paused:
            return
        _write_ignoring_errors(f"\r\x1b[2K{truncate_line(line, (terminal_columns(sys.stderr) or 80) - 1)}")
        self._shown = True

    def clear(self) -> None:
        """Take the line away, so that something lasting can be printed in its place."""
        if self._shown:
            _write_ignoring_errors("\r\x1b[2K")
            self._shown = False
