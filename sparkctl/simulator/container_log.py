"""A simulated container's log, as Docker stores and serves it."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from sparkctl.engines.simulation.simulated_clock import format_rfc3339

MAX_RECORD_BYTES = 16 << 10  # bytes; a longer line is stored in pieces
READ_BATCH_RECORDS = 256  # records in one HTTP chunk
STREAM_NUMBERS = {"stdout": 1, "stderr": 2}


@dataclass(frozen=True, slots=True)
class LogRecord:
    """A line with its newline, or a piece of a line without one."""

    stamp: int  # unix nanoseconds
    stream: str
    data: bytes

    def encode_frame(self, *, timestamps: bool, tty: bool) -> bytes:
        """Return the record in Docker's stream format: 8 bytes of header (none with a tty), then the text."""
        text = (format_rfc3339(self.stamp).encode() + b" " if timestamps else b"") + self.data
        return text if tty else struct.pack(">BxxxI", STREAM_NUMBERS[self.stream], len(text)) + text


@dataclass(frozen=True, slots=True, kw_only=True)
class LogQuery:
    """A reader's query. ``since`` and ``until``: unix nanoseconds, both inclusive; ``tail``: None means everything."""

    streams: frozenset[str]
    follow: bool = False
    timestamps: bool = False
    since: int = 0
    until: int | None = None
    tail: int | None = None
    tty: bool = False

    def matches(self, record: LogRecord) -> bool:
        """Tell whether a record matches the query."""
        return record.stream in self.streams and self.since <= record.stamp and not self.is_past(record)

    def is_past(self, record: LogRecord) -> bool:
        """Tell whether the record, and with it every later one, is too late."""
        return self.until is not None and record.stamp > self.until


def parse_nanoseconds(text: str) -> int:
    """Return unix nanoseconds for ``since``: seconds with up to nine digits of a fraction, read without rounding."""
    whole, _, fraction = text.partition(".")
    return int(whole or 0) * 1_000_000_000 + int(fraction[:9].ljust(9, "0") or 0)


class ContainerLog:
    """Records in order, stamps strictly rising from line to line. A line is stored when its newline arrives."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self.clock = clock
        self._records: list[LogRecord] = []
        self._unfinished = dict.fromkeys(STREAM_NUMBERS, b"")
        self._last = 0
        self._news = asyncio.Event()
        self._open = False

    @property
    def newest_nanoseconds(self) -> int:
        """Unix nanoseconds of the newest line, 0 without any."""
        return self._last

    def open_run(self) -> None:
        """Begin a run of the container: followers wait for more."""
        self._open = True

    def close_run(self) -> None:
        """End the run: text without a newline is stored as it is, followers stop."""
        for stream, rest in self._unfinished.items():
            self._store_records(stream, [rest] if rest else [])
            self._unfinished[stream] = b""
        self._open = False
        self._wake_followers()

    def write(self, text: str | bytes, stream: str = "stderr") -> None:
        """Add what a process wrote, complete lines or not."""
        data = text if isinstance(text, bytes) else text.encode()
        *lines, rest = (self._unfinished[stream] + data).split(b"\n")
        for line in lines:
            self._store_records(stream, _split_into_pieces(line + b"\n"))
        if len(rest) >= MAX_RECORD_BYTES:
            *full, rest = _split_into_pieces(rest)
            self._store_records(stream, full)
        self._unfinished[stream] = rest
        if lines:
            self._wake_followers()

    def _store_records(self, stream: str, pieces: list[bytes]) -> None:
        self._last = max(self._last + 1, self.clock())
        self._records += [LogRecord(self._last, stream, piece) for piece in pieces]

    def _wake_followers(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def read_records(self, wanted: LogQuery) -> AsyncIterator[bytes]:
        """Yield framed records, several at a time; with ``follow``, until the run ends."""
        start = 0
        if wanted.tail is not None:
            ours = [n for n, record in enumerate(self._records) if record.stream in wanted.streams]
            start = (
                ours[-wanted.tail] if 0 < wanted.tail <= len(ours) else (len(self._records) if not wanted.tail else 0)
            )
        while True:
            news, is_open, end = self._news, self._open, len(self._records)
            for first in range(start, end, READ_BATCH_RECORDS):
                batch = self._records[first : min(first + READ_BATCH_RECORDS, end)]
                yield b"".join(
                    record.encode_frame(timestamps=wanted.timestamps, tty=wanted.tty)
                    for record in batch
                    if wanted.matches(record)
                )
                if wanted.is_past(batch[-1]):
                    return
            start = end
            if not (wanted.follow and is_open):
                return
            await news.wait()


def _split_into_pieces(line: bytes) -> list[bytes]:
    return [line[at : at + MAX_RECORD_BYTES] for at in range(0, len(line), MAX_RECORD_BYTES)]
