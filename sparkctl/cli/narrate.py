"""stderr: talk, for people. Nothing else in the tree writes there."""

from __future__ import annotations

import contextlib
import os
import re
import sys

import click

from sparkctl.cli.output import give_up
from sparkctl.cli.style import ascii_only, columns, paint, wants_colour
from sparkctl.model.text import clean_lines
from sparkctl.present.fold import cut, fold

_HOME = os.environ.get("HOME", "").rstrip("/")  # the operator's own, whatever `demo` makes of the variable
_AT_HOME = re.compile(rf"(?<![^\s(`]){re.escape(_HOME)}(?=/)") if len(_HOME) > 1 else None


def say(line: str = "", hang: int | None = None) -> None:
    """Print one line of talk: the home directory as ~, and on a terminal broken between words, ``hang`` indented."""
    if _AT_HOME is not None:
        line = _AT_HOME.sub("~", line)
    _write("".join(f"{part}\n" for part in fold(line, columns(sys.stderr), hang)))


def prompt(question: str) -> None:
    """Print a question whose answer is written beside it."""
    _write(question)


def _write(text: str) -> None:
    """Where nobody can hear it, talk is lost and the work goes on."""
    with contextlib.suppress(OSError):
        sys.stderr.write(text)
        sys.stderr.flush()


def finish() -> None:
    """Write what is still held back, or forget it: the interpreter's own last flush must not change the exit code."""
    try:
        sys.stderr.flush()
    except OSError:
        give_up(sys.stderr)


def error(message: str, hint: str | None) -> None:
    """Say what is wrong and what to do; both may quote a node, so both are cleaned."""
    colour = wants_colour(sys.stderr)
    first, *rest = clean_lines(message)
    say(f"{paint('sparkctl:', 'bad', colour)} {first}", 2)
    for line in rest:
        say(f"  {line}")
    if hint:
        tell_hint(hint)


def warning(where: str | None, message: str, hint: str | None) -> None:
    """Say loudly what does not end the work."""
    colour = wants_colour(sys.stderr)
    mark = "!" if ascii_only(sys.stderr) else "▲"
    first, *rest = clean_lines(message)
    say(paint(f"{mark} {where + ': ' if where and not first.startswith(where) else ''}{first}", "attention", colour), 2)
    for line in rest:
        say(f"  {line}")
    if hint:
        tell_hint(hint)


def tell_hint(hint: str) -> None:
    """Print what to do, one line each."""
    for line in clean_lines(hint):
        say(f"  {paint('try:', 'dim', wants_colour(sys.stderr))} {line}", 4)


def usage(wrong: click.ClickException) -> str | None:
    """Say what is wrong with the command line, and return the way to its help."""
    error(wrong.format_message(), None)
    ctx = getattr(wrong, "ctx", None)
    if ctx is None:
        return None
    say(f"  {ctx.get_usage()}")
    say(f"  {ctx.command_path} --help says more")
    return f"{ctx.command_path} --help"


def is_terminal() -> bool:
    """Tell whether somebody reads stderr."""
    return sys.stderr.isatty()


_hushed = False


def hush(on: bool) -> None:
    """Keep live lines off the screen while somebody types an answer there."""
    global _hushed
    _hushed = on


class LiveLine:
    """One line at the bottom that is rewritten while something goes on; silent where stderr is no terminal."""

    def __init__(self) -> None:
        self.on = is_terminal()
        self._shown = False

    def show(self, line: str) -> None:
        """Rewrite the line, cut to the terminal's width."""
        if not self.on or _hushed:
            return
        _write(f"\r\x1b[2K{cut(line, (columns(sys.stderr) or 80) - 1)}")
        self._shown = True

    def clear(self) -> None:
        """Take the line away, so that something lasting can be printed in its place."""
        if self._shown:
            _write("\r\x1b[2K")
            self._shown = False
