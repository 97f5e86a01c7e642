"""Writing data to stdout, for pipes and scripts; no other module writes there. Size, colour and characters of a terminal."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, TextIO

from sparkctl.errors import ExitCode, SparkctlError
from sparkctl.model.text.sanitize import sanitize_line

if TYPE_CHECKING:
    from sparkctl.views.text.styled_text import TextRow

_ANSI_CODES = {
    "good": "32", "attention": "33", "bad": "31", "label": "2", "unit": "2", "frame": "2", "stale": "2", "strong": "1",
    "title": "1", "accent": "36",
}  # by `TextStyle`  # fmt: skip


# in the meta data of the command that click runs: options of every verb
ASCII_OPTION = "sparkctl.ascii"
COLOUR_OPTION = "sparkctl.color"  # auto, always, never
FORMAT_OPTION = "sparkctl.output"  # wide, json, yaml
QUIET_OPTION = "sparkctl.quiet"


def get_option(name: str) -> object:
    """Return what the command line says of an option of every verb, None without it."""
    click = sys.modules.get("click")  # what click has not read is no option
    context = None if click is None else click.get_current_context(silent=True)
    return None if context is None else context.meta.get(name)


def supports_colour(stream: TextIO) -> bool:
    """Tell whether to colour what goes to ``stream``: by --color; else NO_COLOR, TERM=dumb and pipes say no."""
    wanted = get_option(COLOUR_OPTION)
    if wanted in ("always", "never"):
        return wanted == "always"
    if os.environ.get("CLICOLOR_FORCE", "0") != "0" and not os.environ.get("NO_COLOR"):
        return True
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def is_ascii_only(stream: TextIO) -> bool:
    """Tell whether only ASCII symbols may be used: ``--ascii``, SPARKCTL_ASCII, or an encoding that has no others."""
    if get_option(ASCII_OPTION):
        return True
    encoding = (getattr(stream, "encoding", None) or "ascii").lower().replace("-", "")
    return bool(os.environ.get("SPARKCTL_ASCII")) or not encoding.startswith("utf")


def terminal_columns(stream: TextIO) -> int | None:
    """Return the width of the terminal ``stream`` ($COLUMNS overrides it), None if it is no terminal."""
    if not stream.isatty():
        return None
    value = os.environ.get("COLUMNS", "")
    if value.isdecimal() and int(value) > 0:
        return int(value)
    with contextlib.suppress(OSError):
        return os.get_terminal_size(stream.fileno()).columns or 80
    return 80


def get_terminal_height() -> int:
    """Return the number of lines of the terminal on stdout ($LINES overrides it)."""
    value = os.environ.get("LINES", "")
    if value.isdecimal() and int(value) > 0:
        return int(value)
    with contextlib.suppress(OSError):
        return os.get_terminal_size(sys.stdout.fileno()).lines or 24
    return 24


def format_row(row: TextRow, stream: TextIO) -> str:
    """Return a row as text for ``stream``: with ANSI codes where it has colour, in ASCII where it has nothing else."""
    from sparkctl.views.text.styled_text import to_ascii

    colour, ascii_only = supports_colour(stream), is_ascii_only(stream)
    texts = [(to_ascii(span.text) if ascii_only else span.text, _ANSI_CODES.get(span.tone)) for span in row]
    return "".join(f"\x1b[{code}m{text}\x1b[0m" if code and colour and text else text for text, code in texts).rstrip(
        " "
    )


class StdoutClosed(Exception):
    """The reader of stdout has gone (`| head`). It is no OSError, because click would handle that itself."""


class StdoutWriteFailed(SparkctlError):
    """Writing to stdout failed: a full disk, a closed file."""

    exit_code = ExitCode.WRITE_FAILED


class _Stdout(io.TextIOWrapper):
    """stdout with write errors turned into our own exceptions, also for text that click writes."""

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
    """Prepare the standard streams: replace closed ones by /dev/null, and characters that a terminal cannot encode by `?`.

    To write to a closed stdout is an error, as coreutils have it.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by the shell (`<&-`, `>&-`)
            nowhere = os.open(os.devnull, os.O_WRONLY if name == "stderr" else os.O_RDONLY)
            setattr(sys, name, open(nowhere, mode, encoding="utf-8"))  # noqa: SIM115, PTH123
    if isinstance(sys.stdout, io.TextIOWrapper):
        encoding, line_buffering = sys.stdout.encoding, sys.stdout.line_buffering
        sys.stdout = _Stdout(sys.stdout.detach(), encoding=encoding, errors="replace", line_buffering=line_buffering)
        sys.__stdout__ = sys.stdout  # type: ignore[misc]  # shutil reads the terminal's size from it
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr.reconfigure(errors="replace")


def check_reader() -> None:
    """Raise `StdoutClosed` if the reader of a pipe has gone: a write would tell, and there may be none for hours."""
    import select

    with contextlib.suppress(OSError, ValueError):  # not a file that can be asked
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        is_gone = not is_terminal() and any(bits & select.POLLERR for _, bits in poll.poll(0))
        if is_gone:
            raise StdoutClosed


def flush_stdout() -> None:
    """Write buffered text. Raises `StdoutClosed` or `StdoutWriteFailed`."""
    sys.stdout.flush()


def discard_buffer(stream: TextIO) -> None:
    """Send a stream's buffered text to /dev/null, so that the interpreter's last flush reports no error."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def print_line(line: str = "") -> None:
    """Print one line. Text from a node must be sanitised before."""
    print(line, flush=True)  # noqa: T201


def print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        print_line(line)


def print_rows(rows: Iterable[TextRow | str]) -> None:
    """Print rows or lines of text in the characters and colours that the terminal has."""
    print_lines(_format_rows(rows))


def _format_rows(rows: Iterable[TextRow | str]) -> list[str]:
    from sparkctl.views.text.styled_text import paint_line

    return [format_row(paint_line(row) if isinstance(row, str) else row, sys.stdout) for row in rows]


_ASCII_CONTROLS = bytes({*range(32), 127} - {10})  # without the newline, which is counted


def print_sanitized_lines(lines: Collection[str]) -> None:
    """Print lines from a node in one write, sanitised so that no control character passes."""
    if not print_if_printable("\n".join(lines), len(lines)):
        sys.stdout.write("".join(f"{sanitize_line(line)}\n" for line in lines))
        sys.stdout.flush()


def print_if_printable(block: str, lines: int) -> bool:
    """Print so many joined lines in one write if they are printable ASCII, as nearly all are; else return False.

    It is seen at once: `isprintable` takes three times as long.
    """
    data = block.encode() if block.isascii() else b""
    if data.count(b"\n") != lines - 1 or len(data.translate(None, _ASCII_CONTROLS)) != len(block):
        return False
    sys.stdout.write(f"{block}\n")
    sys.stdout.flush()
    return True


def write_bytes(data: bytes) -> None:
    """Write data that is no text, such as sound."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def print_json(value: object, *, as_yaml: bool = False) -> None:
    """Print one JSON document, or one JSON line of a stream; as YAML for ``-o yaml``, or where told to."""
    if as_yaml or get_option(FORMAT_OPTION) == "yaml":
        import yaml

        text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, explicit_start=True)
        return print_lines(text.splitlines())
    import json  # the panel needs none of it

    return print(json.dumps(value, ensure_ascii=True, separators=(",", ":")), flush=True)  # noqa: T201


def repaint_screen(lines: Iterable[TextRow | str]) -> None:
    """Repaint the terminal from the top. Lines that do not fit are cut and counted, because scrolling would break it."""
    from sparkctl.views.text.line_wrap import limit_height

    body = "\x1b[K\n".join(limit_height(_format_rows(lines), get_terminal_height() - 1))
    sys.stdout.write(f"\x1b[H{body}\x1b[K\n\x1b[J")
    sys.stdout.flush()


def is_terminal() -> bool:
    return sys.stdout.isatty()


def get_terminal_width() -> int | None:
    """Return the columns of the terminal on stdout, None if it is no terminal: piped data is not wrapped."""
    return terminal_columns(sys.stdout)
