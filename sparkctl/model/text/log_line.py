"""A line of a container's log."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass


# Nobody changes a line; it is not frozen because that makes its creation 2.7 times as slow, and a log has millions of lines.
# Nor are all its fields only for keywords: the reader makes a batch of lines with `map`, in half the time.
@dataclass(slots=True, unsafe_hash=True)
class LogLine:
    """``when`` is Docker's timestamp (RFC 3339, nanoseconds, UTC); ``number`` counts from 1 in this stream.

    ``text`` is decoded (invalid UTF-8 replaced) but otherwise raw: pass it through `sanitize_line` before you show it.
    A line over 256 KiB keeps its head and its tail; ``cut`` is the number of characters missing between them.
    """

    when: str
    text: str
    number: int
    stream: str = "stdout"  # stdout | stderr
    _: KW_ONLY
    cut: int = 0
