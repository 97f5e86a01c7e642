"""A log as Docker keeps it, and the ways in which its two generations answer a request for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sparkctl.transport.docker.log_resume import LogFragment

BASE = 1_795_218_300  # seconds; any fixed moment


def format_stamp(nanos: int) -> bytes:
    """Return the stamp ``nanos`` after a fixed minute, as the daemon writes it."""
    seconds, rest = divmod(nanos, 1_000_000_000)
    minutes, seconds = divmod(seconds, 60)
    return b"2026-11-20T23:%02d:%02d.%09dZ" % (minutes % 60, seconds, rest)


def build_frame(stream: int, nanos: int, text: bytes) -> bytes:
    """Return one frame of the stream, with its stamp."""
    payload = format_stamp(nanos) + b" " + text
    return bytes([stream, 0, 0, 0]) + len(payload).to_bytes(4, "big") + payload


def build_chunks(parts: Sequence[bytes], final: bool = True) -> bytes:
    """Return ``parts`` as HTTP chunks, with or without the final one."""
    body = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)
    return body + b"0\r\n\r\n" if final else body


@dataclass(frozen=True)
class DaemonLog:
    """Pieces in the order in which they were written. ``filters``: whether every older piece is left out (20.10), or
    only those before the first that is young enough (later)."""

    pieces: tuple[LogFragment, ...]
    filters: bool

    def since(self, anchor: bytes | None) -> tuple[LogFragment, ...]:
        """Return what a request with ``since`` brings."""
        if anchor is None:
            return self.pieces
        if self.filters:
            return tuple(piece for piece in self.pieces if piece.stamp >= anchor)
        first = next((i for i, piece in enumerate(self.pieces) if piece.stamp >= anchor), len(self.pieces))
        return self.pieces[first:]
