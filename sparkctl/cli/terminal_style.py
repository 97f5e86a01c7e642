"""Colour and size of the terminal. Colour is used only on a terminal, and never alone to show a state."""

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


def colour_text(text: str, style: str, on: bool) -> str:
    """Return ``text`` with the ANSI codes of a style, unchanged if ``on`` is False."""
    return f"\x1b[{_ANSI_CODES[style]}m{text}\x1b[0m" if on else text
