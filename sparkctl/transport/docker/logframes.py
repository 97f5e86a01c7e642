"""Docker's log stream taken apart: HTTP chunks, then 8-byte frames (or none with a terminal), then stamped pieces. Pure.

Docker cuts what a container writes at newlines and at 16 KiB; each cut is a piece with a stamp of its own.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

_STAMP = 31  # "2026-11-20T23:13:59.123456789Z " as the daemon writes it, always UTC, always nine digits
_PIECE = 16384  # bytes of text after which Docker cuts
_HEADER = 8
_SYSTEM = 3  # frames of the daemon itself: an error in the middle of the stream
LARGEST_UNIT = 64 << 20  # no honest chunk or frame is longer


class InvalidLogStream(Exception):
    """What arrived is not a Docker log stream."""


class DaemonError(Exception):
    """The daemon put an error of its own into the stream. ``text`` is raw."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class LogFragment(NamedTuple):
    """``stream`` 1 is stdout, 2 stderr. ``whole``: a newline followed, which is not part of ``text``."""

    stream: int
    stamp: bytes
    text: bytes
    whole: bool


class FragmentParser(Protocol):
    """Bytes in, complete pieces out, whatever the size of the reads."""

    def feed(self, data: bytes) -> list[LogFragment]:
        """Return the pieces that ``data`` completes."""
        ...

    def finish(self) -> list[LogFragment]:
        """Return what is left at the proper end of the stream."""
        ...


class ChunkedBody:
    """HTTP's chunked transfer coding. ``done`` after the final chunk; nothing after it is looked at."""

    def __init__(self) -> None:
        self.done = False
        self._rest = b""

    def feed(self, data: bytes) -> bytes:
        """Return the content of the chunks that ``data`` completes; also that before a final chunk in it."""
        buffer = self._rest + data if self._rest else data
        parts: list[bytes] = []
        at = 0
        while (line_end := buffer.find(b"\r\n", at)) >= 0:
            size = _hex(buffer[at:line_end])
            if size == 0:
                self.done = True
                break
            start = line_end + 2
            if len(buffer) < start + size + 2:
                break
            parts.append(buffer[start : start + size])
            at = start + size + 2
        self._rest = buffer[at:]
        return b"".join(parts)


class FixedLengthBody:
    """A body of known length, as Docker sends where there is nothing to tell."""

    def __init__(self, length: int) -> None:
        self._left = length
        self.done = length == 0

    def feed(self, data: bytes) -> bytes:
        """Return what belongs to the body."""
        part = data[: self._left]
        self._left -= len(part)
        self.done = self._left == 0
        return part


class MultiplexedParser:
    """Pieces of a container without a terminal: one frame each."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[LogFragment]:
        """Return the pieces that ``data`` completes. Raises DaemonSays after the pieces before it were returned."""
        buffer = self._rest + data if self._rest else data
        pieces: list[LogFragment] = []
        at, end = 0, len(buffer)
        while end - at >= _HEADER:
            length = int.from_bytes(buffer[at + 4 : at + _HEADER], "big")
            start = at + _HEADER
            if buffer[at] > _SYSTEM or length > LARGEST_UNIT:
                raise InvalidLogStream(f"a frame of kind {buffer[at]} and {length} bytes")
            if end - start < length:
                break
            if buffer[at] == _SYSTEM:
                if pieces:
                    break  # what came before it is given out first
                raise DaemonError(buffer[start : start + length].decode("utf-8", "replace"))
            at = start + length
            if length:
                stamp, _, text = buffer[start:at].partition(b" ")
                whole = text.endswith(b"\n")
                pieces.append(LogFragment(buffer[start - _HEADER], stamp, text[:-1] if whole else text, whole))
        self._rest = buffer[at:]
        return pieces

    def finish(self) -> list[LogFragment]:
        """Frames end with themselves; raises DaemonSays for a complaint that came right after the last piece."""
        return self.feed(b"") if self._rest else []


class RawStreamParser:
    """Pieces of a container with a terminal: no frames, so stamps, newlines and the cut length tell them apart."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[LogFragment]:
        """Return the pieces that ``data`` completes. The terminal's carriage return before a newline is dropped."""
        buffer = self._rest + data if self._rest else data
        pieces: list[LogFragment] = []
        at, end = 0, len(buffer)
        while end - at > _STAMP:
            start = at + _STAMP
            newline = buffer.find(b"\n", start, start + _PIECE)
            if newline < 0 and end - start < _PIECE:
                break
            stop = newline if newline >= 0 else start + _PIECE
            text = buffer[start:stop]
            whole = newline >= 0
            pieces.append(LogFragment(1, buffer[at : start - 1], text.removesuffix(b"\r") if whole else text, whole))
            at = stop + whole
        self._rest = buffer[at:]
        return pieces

    def finish(self) -> list[LogFragment]:
        """Return the last words, which no newline ended."""
        rest, self._rest = self._rest, b""
        return [LogFragment(1, rest[: _STAMP - 1], rest[_STAMP:], False)] if len(rest) > _STAMP else []


def _hex(digits: bytes) -> int:
    try:
        size = int(digits, 16)
    except ValueError as error:
        raise InvalidLogStream("a chunk without a length") from error
    if not 0 <= size <= LARGEST_UNIT:
        raise InvalidLogStream(f"a chunk of {size} bytes")
    return size
