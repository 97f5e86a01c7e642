"""stdout: data, for pipes and scripts. Nothing else in the tree writes there."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from collections.abc import Iterable, Iterator
from typing import TextIO

from sparkctl.cli.terminal_style import terminal_columns, terminal_rows
from sparkctl.errors import ExitCode, SparkctlError
from sparkctl.model.text.sanitize import sanitize_line


class StdoutClosed(Exception):
    """Whoever read stdout has gone (`| head`). No OSError: click would make its own end of one."""


class StdoutWriteFailed(SparkctlError):
    """stdout does not take what we have to say: a full disk, a closed file."""

    exit_code = ExitCode.USAGE


class _Stdout(io.TextIOWrapper):
    """stdout whose faults are ours to tell, whoever writes: we, or click with a help text."""

    def write(self, text: str, /) -> int:
        with _translate_write_errors():
            return super().write(text)

    def flush(self) -> None:
        with _translate_write_errors():
            super().flush()


@contextlib.contextmanager
def _translate_write_errors() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as gone:
        raise StdoutClosed from gone
    except OSError as error:
        raise StdoutWriteFailed(f"cannot write to stdout: {error.strerror or error}") from error


def wrap_streams() -> None:
    """Make the streams fit for what comes: closed ones are empty or go nowhere, any terminal gets every line it can show."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by the shell (`<&-`, `>&-`)
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123
    if isinstance(sys.stdout, io.TextIOWrapper):
        encoding, line_buffering = sys.stdout.encoding, sys.stdout.line_buffering
        sys.stdout = _Stdout(sys.stdout.detach(), encoding=encoding, errors="replace", line_buffering=line_buffering)
        sys.__stdout__ = sys.stdout  # type: ignore[misc]  # where the terminal's size is asked for
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr.reconfigure(errors="replace")


def flush_stdout() -> None:
    """Write what is still held back. Raises `ReaderGone` or `CannotWrite`."""
    sys.stdout.flush()


def discard_buffer(stream: TextIO) -> None:
    """Send what a stream still holds back nowhere, so that the interpreter's own last flush has nothing to say."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def print_line(line: str = "") -> None:
    """Print one line of ours; text from a node must have been cleaned by whoever made the line."""
    print(line, flush=True)  # noqa: T201


def print_lines(lines: Iterable[str]) -> None:
    """Print lines."""
    for line in lines:
        print_line(line)


def print_sanitized_lines(lines: Iterable[str]) -> None:
    """Print lines that came from a node: cleaned here, so that no control character can pass. One write for all."""
    sys.stdout.write("".join(f"{sanitize_line(line)}\n" for line in lines))
    sys.stdout.flush()


def print_json(value: object) -> None:
    """Print one JSON document, or one JSON line of a stream."""
    print(json.dumps(value, ensure_ascii=True, separators=(",", ":")), flush=True)  # noqa: T201


def repaint_screen(lines: Iterable[str]) -> None:
    """Repaint a terminal from the top; what it has no room for is counted, because scrolling would spoil the picture."""
    from sparkctl.views.text.line_wrap import limit_height

    body = "\x1b[K\n".join(limit_height(list(lines), terminal_rows(sys.stdout) - 1))
    sys.stdout.write(f"\x1b[H{body}\x1b[K\n\x1b[J")
    sys.stdout.flush()


def get_terminal_height() -> int:
    """Return the lines of the terminal that stdout is."""
    return terminal_rows(sys.stdout)


def is_terminal() -> bool:
    """Tell whether somebody looks at stdout."""
    return sys.stdout.isatty()


def get_terminal_width() -> int | None:
    """Return the columns of the terminal that stdout is, None where it is none: data is not broken."""
    return terminal_columns(sys.stdout)
