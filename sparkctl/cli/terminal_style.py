"""Colour and size of the terminal. Colour is used only on a terminal, and never alone to show a state."""

from __future__ import annotations

import contextlib
import os
from typing import TextIO

from sparkctl.views.text.styled_text import TextRow, TextStyle, to_ascii

_ANSI_CODES = {
    TextStyle.GOOD: "32",
    TextStyle.ATTENTION: "33",
    TextStyle.BAD: "31",
    TextStyle.LABEL: "2",
    TextStyle.FRAME: "2",
}


def supports_colour(stream: TextIO) -> bool:
    """Tell whether to colour what goes to ``stream`` (NO_COLOR, TERM=dumb and pipes say no)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def is_ascii_only(stream: TextIO) -> bool:
    """Tell whether only ASCII symbols may be used: SPARKCTL_ASCII, or an encoding that has no others."""
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


def terminal_rows(stream: TextIO) -> int:
    """Return the number of lines of the terminal ``stream`` ($LINES overrides it)."""
    value = os.environ.get("LINES", "")
    if value.isdecimal() and int(value) > 0:
        return int(value)
    with contextlib.suppress(OSError):
        return os.get_terminal_size(stream.fileno()).lines or 24
    return 24


def format_row(row: TextRow, stream: TextIO) -> str:
    """Return a row as text for ``stream``: with ANSI codes where it has colour, in ASCII where it has nothing else."""
    colour, ascii_only = supports_colour(stream), is_ascii_only(stream)
    texts = [(to_ascii(span.text) if ascii_only else span.text, _ANSI_CODES.get(span.tone)) for span in row]
    return "".join(f"\x1b[{code}m{text}\x1b[0m" if code and colour and text else text for text, code in texts).rstrip(
        " "
    )
