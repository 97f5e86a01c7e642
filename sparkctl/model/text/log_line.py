"""A line of a container's log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import count, repeat
from typing import overload


# Nobody changes a line; it is not frozen because that makes its creation 2.7 times as slow, and a log has millions of lines.
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


class LogLineBlock(Sequence[LogLine]):
    """The whole lines of one read, in columns: they are made when one is asked for. Most are only masked and printed."""

    __slots__ = ("_first", "_lines", "_stamps", "_streams", "joined")

    def __init__(self, first: int, stamps: Sequence[bytes], joined: str, streams: Sequence[str]) -> None:
        self.joined = joined  # the texts with newlines between, none within
        self._first, self._stamps, self._streams = first, stamps, streams
        self._lines: tuple[LogLine, ...] | None = None

    def __len__(self) -> int:
        return len(self._stamps)

    @overload
    def __getitem__(self, at: int) -> LogLine: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[LogLine, ...]: ...
    def __getitem__(self, at: int | slice) -> LogLine | tuple[LogLine, ...]:
        return self._make_lines()[at]

    def __iter__(self) -> Iterator[LogLine]:
        return iter(self._make_lines())

    def _make_lines(self) -> tuple[LogLine, ...]:
        if self._lines is None:
            whens = map(str, self._stamps, repeat("ascii"), repeat("replace"))
            self._lines = tuple(map(LogLine, whens, self.joined.split("\n"), count(self._first), self._streams))
        return self._lines


def join_texts(lines: Sequence[LogLine]) -> str:
    """Return the texts of lines with newlines between."""
    return lines.joined if isinstance(lines, LogLineBlock) else "\n".join([line.text for line in lines])
