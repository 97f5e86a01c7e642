"""Colour where a terminal wants it, and only there. State is never told by colour alone."""

from __future__ import annotations

import contextlib
import os
from typing import TextIO

_ANSI_CODES = {"good": "32", "attention": "33", "bad": "31", "dim": "2", "bold": "1"}


def supports_colour(stream: TextIO) -> bool:
    """Tell whether to colour what goes to ``stream`` (NO_COLOR, TERM=dumb and pipes say no)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def is_ascii_only(stream: TextIO) -> bool:
    """Tell whether only ASCII symbols may be used: SPARKCTL_ASCII, or an encoding that has no others."""
    encoding = (getattr(stream, "encoding", None) or "ascii").lower().replace("-", "")
    return bool(os.environ.get("SPARKCTL_ASCII")) or not encoding.startswith("utf")


def terminal_columns(stream: TextIO) -> int | None:
    """Return how wide the terminal is that ``stream`` is (COLUMNS, where set, says it), None where it is none."""
    if not stream.isatty():
        return None
    told = os.environ.get("COLUMNS", "")
    if told.isdecimal() and int(told) > 0:
        return int(told)
    with contextlib.suppress(OSError):
        return os.get_terminal_size(stream.fileno()).columns or 80
    return 80


def terminal_rows(stream: TextIO) -> int:
    """Return how many lines the terminal that ``stream`` is has (LINES, where set, says it)."""
    told = os.environ.get("LINES", "")
    if told.isdecimal() and int(told) > 0:
        return int(told)
    with contextlib.suppress(OSError):
        return os.get_terminal_size(stream.fileno()).lines or 24
    return 24


def colour_text(text: str, style: str, on: bool) -> str:
    """Return ``text`` in a style, or as it is."""
    return f"\x1b[{_ANSI_CODES[style]}m{text}\x1b[0m" if on else text
