"""Assembles log lines from Docker's fragments and resumes a log after a break, without losing or repeating a line.

Docker can return everything since a timestamp, but timestamps are no line numbers: several fragments share one, those of
stdout and stderr differ by some microseconds, and the later fragments of a long line have the timestamp of its first. So the
position is an anchor (an earlier timestamp; nothing after it is older) and the number of fragments since then. For the log
since the anchor, Docker repeats exactly those fragments, and they are skipped.

Docker before version 23 repeats the last lines before a rotation while the log is followed, though the log has them once. If
they were counted, as many new lines would be skipped after a break.
"""

from __future__ import annotations

import re
import struct
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import field
from datetime import date
from itertools import repeat
from operator import lt
from typing import NamedTuple, overload

from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.text.log_line import LogLine, LogLineBlock

_EPOCH_DAY = date(1970, 1, 1).toordinal()
_STAMP_BYTES = 31  # "2026-11-20T23:13:59.123456789Z " as the daemon writes it, always UTC, always nine digits
_FRAGMENT_BYTES = 16384  # bytes of text after which Docker cuts
_FRAME_HEADER = struct.Struct(">BxxxI")  # which stream, and the bytes that follow
_FRAME_HEADER_BYTES = _FRAME_HEADER.size
_MAX_HEADS = 4096  # of chunks with one line that are remembered
# A chunk with the frame of a whole line: what stands before its stamp, the stamp, the line without its newline.
_CHUNK_HEAD = rb"([0-9a-f]{1,8}\r\n[\x01\x02]\0\0\0.{4})"
_STAMPED_LINE_CHUNK = re.compile(_CHUNK_HEAD + rb"(.{30}) ([^\n]*+)\n\r\n", re.DOTALL)
_LINE_CHUNK = re.compile(_CHUNK_HEAD + rb"()([^\n]*+)\n\r\n", re.DOTALL)
_SYSTEM_STREAM = 3  # frames of the daemon itself: an error inside the stream
MAX_FRAME_BYTES = 64 << 20  # real chunks and frames are shorter


class InvalidLogStream(Exception):
    """The received data is not a Docker log stream."""


class DaemonError(Exception):
    """The daemon wrote an error into the stream. ``text`` is raw."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class LogFragment(NamedTuple):
    """A part of a log line. ``stream``: 1 is stdout, 2 stderr. ``whole``: a newline followed, which is not in ``text``."""

    stream: int
    stamp: bytes
    text: bytes
    whole: bool


class WholeLines(Sequence[LogFragment]):
    """Fragments that are whole lines, in columns: one is made when it is asked for."""

    __slots__ = ("stamps", "streams", "texts")

    def __init__(self, streams: Sequence[int], stamps: Sequence[bytes], texts: Sequence[bytes]) -> None:
        self.streams, self.stamps, self.texts = streams, stamps, texts

    def __len__(self) -> int:
        return len(self.texts)

    @overload
    def __getitem__(self, at: int) -> LogFragment: ...
    @overload
    def __getitem__(self, at: slice) -> list[LogFragment]: ...
    def __getitem__(self, at: int | slice) -> LogFragment | list[LogFragment]:
        if isinstance(at, slice):
            return [*map(LogFragment, self.streams[at], self.stamps[at], self.texts[at], repeat(True))]
        return LogFragment(self.streams[at], self.stamps[at], self.texts[at], True)

    def __iter__(self) -> Iterator[LogFragment]:
        return iter(self[:])


def _list_stamps(pieces: Sequence[LogFragment]) -> Sequence[bytes]:
    return pieces.stamps if isinstance(pieces, WholeLines) else [piece.stamp for piece in pieces]


class _ChunkHeads(dict[bytes, tuple[int, int]]):
    """By what stands before the text of a chunk with one line: its stream, and its length; -1 where the two lengths do not agree."""

    def __missing__(self, head: bytes) -> tuple[int, int]:
        size, frame = head[: -_FRAME_HEADER_BYTES - 2], head[-_FRAME_HEADER_BYTES:]
        stream, length = _FRAME_HEADER.unpack(frame)
        if len(self) >= _MAX_HEADS:
            self.clear()
        agree = int(size, 16) == length + _FRAME_HEADER_BYTES
        self[head] = stream, length if agree else -1
        return self[head]


class FragmentParser:
    """Parses bytes into complete fragments, whatever the size of the reads."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[LogFragment]:
        """Return the fragments that ``data`` completes."""
        raise NotImplementedError

    def feed_chunks(self, data: bytes, chunks: ChunkedBody) -> Sequence[LogFragment]:
        """Return the fragments that ``data``, which ``chunks`` decodes, completes."""
        return self.feed(chunks.feed(data))

    def finish(self) -> list[LogFragment]:
        """Return the rest at the regular end of the stream."""
        raise NotImplementedError


class ChunkedBody:
    """HTTP's chunked transfer coding, for logs alone: Docker sends a chunk for each line, and h11 takes 12 times the time
    for them (19 µs a chunk on one core; with all that a line costs, the log then takes 2.8 times as long).

    ``done`` after the final chunk; later data is ignored.
    """

    def __init__(self) -> None:
        self.done = False
        self._rest = b""

    def take_rest(self) -> bytes:
        """Return what was fed and is not complete, and forget it."""
        rest, self._rest = self._rest, b""
        return rest

    def feed(self, data: bytes) -> bytes:
        """Return the content of the chunks that ``data`` completes, up to a final chunk."""
        buffer = self._rest + data if self._rest else data
        parts: list[bytes] = []
        at = 0
        while (line_end := buffer.find(b"\r\n", at)) >= 0:
            size = _parse_chunk_size(buffer[at:line_end])
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


class MultiplexedParser(FragmentParser):
    """Parses the stream of a container without a terminal: one frame for each fragment, which begins with its stamp.

    Without ``stamped`` Docker was asked for none, and the fragments have empty ones.
    """

    def __init__(self, *, stamped: bool = True) -> None:
        super().__init__()
        self._stamp_bytes = _STAMP_BYTES if stamped else 0
        self._heads = _ChunkHeads()

    def feed_chunks(self, data: bytes, chunks: ChunkedBody) -> Sequence[LogFragment]:
        """Return the fragments that the chunks in ``data`` complete: nearly all of one frame with one line, which are read together."""
        if self._rest:
            return super().feed_chunks(data, chunks)
        data = chunks.take_rest() + data
        end = data.rfind(b"\n\r\n") + 3
        rows = (_STAMPED_LINE_CHUNK if self._stamp_bytes else _LINE_CHUNK).findall(data, 0, end)
        if not rows:
            return self.feed(chunks.feed(data))
        heads, stamps, texts = zip(*rows, strict=True)
        streams, stated = zip(*map(self._heads.__getitem__, heads), strict=True)
        lengths = [self._stamp_bytes + 1 + length for length in map(len, texts)]
        # otherwise these are no such chunks one after the other, or a line holds what looks like the end of one
        if (
            [*stated] != lengths
            or sum(map(len, heads)) + sum(lengths) + 2 * len(rows) != end
            or b" " in b"".join(stamps)
        ):
            return self.feed(chunks.feed(data))
        lines = WholeLines(streams, stamps, texts)
        rest = chunks.feed(data[end:])
        return self._parse(rest, lines[:]) if rest else lines

    def feed(self, data: bytes) -> list[LogFragment]:
        """Return the fragments that ``data`` completes. Raises DaemonError after earlier fragments were returned."""
        return self._parse(data, [])

    def _parse(self, data: bytes, pieces: list[LogFragment]) -> list[LogFragment]:
        """Return ``pieces``, which came before, with the fragments that ``data`` completes."""
        buffer = self._rest + data if self._rest else data
        at, end, unpack_header = 0, len(buffer), _FRAME_HEADER.unpack_from
        while end - at >= _FRAME_HEADER_BYTES:
            kind, length = unpack_header(buffer, at)
            start = at + _FRAME_HEADER_BYTES
            if kind > _SYSTEM_STREAM or length > MAX_FRAME_BYTES:
                raise InvalidLogStream(f"a frame of kind {kind} and {length} bytes")
            if end - start < length:
                break
            if kind == _SYSTEM_STREAM:
                if pieces:
                    break  # return the earlier fragments first
                raise DaemonError(buffer[start : start + length].decode("utf-8", "replace"))
            at = start + length
            if length:
                text = buffer[start:at]
                stamp, _, text = text.partition(b" ") if self._stamp_bytes else (b"", b"", text)
                whole = text.endswith(b"\n")
                pieces.append(LogFragment(kind, stamp, text[:-1] if whole else text, whole))
        self._rest = buffer[at:]
        return pieces

    def finish(self) -> list[LogFragment]:
        """Return nothing, as frames are complete; raise DaemonError if an error followed the last fragment."""
        return self.feed(b"") if self._rest else []


class RawStreamParser(FragmentParser):
    """Parses the stream of a container with a terminal: without frames, by timestamps, newlines and the cut length."""

    def feed(self, data: bytes) -> list[LogFragment]:
        """Return the fragments that ``data`` completes. The terminal's carriage return before a newline is dropped."""
        buffer = self._rest + data if self._rest else data
        pieces: list[LogFragment] = []
        at, end = 0, len(buffer)
        while end - at > _STAMP_BYTES:
            start = at + _STAMP_BYTES
            newline = buffer.find(b"\n", start, start + _FRAGMENT_BYTES)
            if newline < 0 and end - start < _FRAGMENT_BYTES:
                break
            stop = newline if newline >= 0 else start + _FRAGMENT_BYTES
            text = buffer[start:stop]
            whole = newline >= 0
            pieces.append(LogFragment(1, buffer[at : start - 1], text.removesuffix(b"\r") if whole else text, whole))
            at = stop + whole
        self._rest = buffer[at:]
        return pieces

    def finish(self) -> list[LogFragment]:
        """Return the last fragment, which has no newline."""
        rest, self._rest = self._rest, b""
        return (
            [LogFragment(1, rest[: _STAMP_BYTES - 1], rest[_STAMP_BYTES:], False)] if len(rest) > _STAMP_BYTES else []
        )


def _parse_chunk_size(digits: bytes) -> int:
    try:
        size = int(digits, 16)
    except ValueError as error:
        raise InvalidLogStream("a chunk without a length") from error
    if not 0 <= size <= MAX_FRAME_BYTES:
        raise InvalidLogStream(f"a chunk of {size} bytes")
    return size


MAX_LINE_BYTES = 256 << 10  # bytes; of a longer line, head and tail of half that size each are used
_HALF_LINE_BYTES = MAX_LINE_BYTES // 2
_SETTLED_NS = 1_000_000_000  # ns; timestamps differ by far less
_RECENT_FRAGMENTS = 64  # last fragments in which a repeated line is searched; Docker repeats one or two
_STREAM_NAMES = {1: "stdout", 2: "stderr"}
_WORD_END_PATTERN = re.compile(r"[\s\"',;&]")
_MAX_WORD_CHARS = 4096  # characters at each end of a cut
_ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialLine:
    """An incomplete line. ``missing``: number of characters already dropped from its middle."""

    stream: int
    stamp: bytes
    head: bytes
    tail: bytes = b""
    missing: int = 0

    def append_text(self, text: bytes) -> PartialLine:
        """Return it with another fragment; memory is limited to MAX_LINE_BYTES and one fragment."""
        if not self.tail and len(self.head) + len(text) <= MAX_LINE_BYTES:
            return PartialLine(stream=self.stream, stamp=self.stamp, head=self.head + text)
        whole = self.head[_HALF_LINE_BYTES:] + self.tail + text
        cut = max(0, len(whole) - _HALF_LINE_BYTES)
        dropped = len(whole[:cut].decode("utf-8", "replace"))
        return PartialLine(
            stream=self.stream,
            stamp=self.stamp,
            head=self.head[:_HALF_LINE_BYTES],
            tail=whole[cut:],
            missing=self.missing + dropped,
        )

    def to_log_line(self, number: int) -> LogLine:
        text, missing = self.head.decode("utf-8", "replace"), self.missing
        if self.tail:
            head, tail = text, self.tail.decode("utf-8", "replace")
            # Drop the rest of a word at the cut, too: masking does not find half a secret.
            before = len(_WORD_END_PATTERN.split(head[-_MAX_WORD_CHARS:])[-1])
            after = len(_WORD_END_PATTERN.split(tail[:_MAX_WORD_CHARS], maxsplit=1)[0])
            text = head[: len(head) - before] + _ELLIPSIS + tail[after:]
            missing += before + after
        return LogLine(
            when=_decode_stamp(self.stamp),
            text=text,
            number=number,
            stream=_STREAM_NAMES.get(self.stream, "stdout"),
            cut=missing,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPosition:
    """How far a log was read: ``seen`` fragments since ``anchor`` (empty: since the beginning of this reading).

    ``opening`` is the timestamp of the first fragment, ``last`` the latest one, ``seen_last`` the number of fragments with
    that; ``lines`` is the number of the last returned line.
    """

    anchor: bytes
    opening: bytes
    seen: int
    last: bytes
    seen_last: int
    lines: int
    pending: tuple[PartialLine, ...]

    @property
    def since_parameter(self) -> str | None:
        """The anchor in Docker's form: unix seconds with nanoseconds. None: repeat the first request."""
        if not self.anchor:
            return None
        whole, nanos = divmod(parse_timestamp_ns(self.anchor), 1_000_000_000)
        return f"{whole}.{nanos:09d}"


@dataclass(slots=True, kw_only=True)
class LogLineAssembler:
    """Assembles lines from fragments in the order of the log. ``gap``: the log no longer reaches back to our position.

    ``repeatable``: the first request can be repeated with the same beginning (not with a tail).
    """

    position: LogPosition | None = None
    repeatable: bool = True
    gap: bool = False
    _pending: dict[int, PartialLine] = field(default_factory=dict)
    _number: int = 0
    _anchor: bytes = b""
    _opening: bytes = b""
    _seen: int = 0
    _last: bytes = b""
    _seen_last: int = 0
    _candidate: bytes | None = None
    _candidate_seen: int = 0
    _skip: int = 0
    _fresh: bool = False
    _by_stamp: bool = False
    _recent: Sequence[LogFragment] = ()
    _highest: bytes = b""

    def __post_init__(self) -> None:
        if self.position is not None:
            self.resume_at(self.position)

    def resume_at(self, position: LogPosition) -> None:
        """Expect a stream that begins at ``position.anchor``, and skip the fragments seen before."""
        self._pending = {pending.stream: pending for pending in position.pending}
        self._number, self._anchor, self._opening = position.lines, position.anchor, position.opening
        self._seen = self._skip = position.seen
        self._last, self._seen_last = position.last, position.seen_last
        self._candidate = None
        self._fresh, self._by_stamp, self.gap = True, False, False
        self._recent = ()
        self._highest = b""

    def add_fragments(self, pieces: Sequence[LogFragment]) -> Sequence[LogLine]:
        """Return the lines that ``pieces`` complete, without those already returned. Without stamps there is no position."""
        if pieces and not pieces[0].stamp:
            return self._join_fragments(pieces)
        pieces = self._drop_repeated_lines(pieces)
        if self._skip:
            pieces = self._skip_seen(pieces)
        if not pieces:
            return ()
        lines = self._join_fragments(pieces)
        self._advance_position(_list_stamps(pieces))
        return lines

    def finish(self) -> Sequence[LogLine]:
        """Return the lines without a newline at the end of the stream."""
        lines = []
        for pending in sorted(self._pending.values(), key=lambda pending: pending.stamp):
            self._number += 1
            lines.append(pending.to_log_line(self._number))
        self._pending.clear()
        self._save_position()
        return tuple(lines)

    def _join_fragments(self, pieces: Sequence[LogFragment]) -> Sequence[LogLine]:
        pending, number = self._pending, self._number
        if not isinstance(pieces, WholeLines) and all(piece.whole for piece in pieces):
            streams, stamps, texts, _ = zip(*pieces, strict=True)
            pieces = WholeLines(streams, stamps, texts)
        if isinstance(pieces, WholeLines) and not pending and max(map(len, pieces.texts)) <= MAX_LINE_BYTES:
            joined = b"\n".join(pieces.texts).decode("utf-8", "replace")
            if joined.count("\n") == len(pieces) - 1:
                self._number += len(pieces)
                names = [*map(_STREAM_NAMES.__getitem__, pieces.streams)]
                return LogLineBlock(number + 1, pieces.stamps, joined, names)
        lines: list[LogLine] = []
        for stream, stamp, text, whole in pieces:
            if whole and stream not in pending and len(text) <= MAX_LINE_BYTES:
                number += 1
                lines.append(
                    LogLine(
                        when=_decode_stamp(stamp),
                        text=str(text, "utf-8", "replace"),
                        number=number,
                        stream=_STREAM_NAMES[stream],
                    )
                )
                continue
            begun = pending.pop(stream, None) or PartialLine(stream=stream, stamp=stamp, head=b"")
            begun = begun.append_text(text)
            if whole:
                number += 1
                lines.append(begun.to_log_line(number))
            else:
                pending[stream] = begun
        self._number = number
        return tuple(lines)

    def _advance_position(self, stamps: Sequence[bytes]) -> None:
        """Count fragments, and move the anchor forward once a later one is certain. Called once a read."""
        lowest, highest = min(stamps), max(stamps)
        if not self._opening:
            self._opening = stamps[0]
            self._anchor = b"" if self.repeatable else lowest
        if self._candidate is not None and lowest < self._candidate:
            self._candidate = None
        if self._candidate is None and stamps[0] == lowest > self._last:
            self._candidate, self._candidate_seen = lowest, 0
        if highest > self._last:
            self._last, self._seen_last = highest, 0
        self._seen_last += stamps.count(self._last)
        self._seen += len(stamps)
        self._candidate_seen += len(stamps)
        self._settle_anchor()
        self._save_position()

    def _settle_anchor(self) -> None:
        candidate = self._candidate
        if candidate is None or parse_timestamp_ns(self._last) - parse_timestamp_ns(candidate) < _SETTLED_NS:
            return
        # later fragments of an open line have its first timestamp: the anchor must not pass it
        if all(pending.stamp >= candidate for pending in self._pending.values()):
            self._anchor = self._opening = candidate
            self._seen, self._candidate = self._candidate_seen, None

    def _save_position(self) -> None:
        if self._opening:
            self.position = LogPosition(
                anchor=self._anchor,
                opening=self._opening,
                seen=self._seen,
                last=self._last,
                seen_last=self._seen_last,
                lines=self._number,
                pending=tuple(self._pending.values()),
            )

    def _drop_repeated_lines(self, pieces: Sequence[LogFragment]) -> Sequence[LogFragment]:
        """Drop whole lines that came a moment ago with the same timestamp. Parts of a long line may be equal."""
        stamps = _list_stamps(pieces)
        if stamps and self._highest < stamps[0] and all(map(lt, stamps, stamps[1:])):
            older = _RECENT_FRAGMENTS - len(pieces)
            self._recent = [*self._recent[-older:], *pieces] if older > 0 else pieces
            self._highest = stamps[-1]
            return pieces
        new: list[LogFragment] = []
        recent = deque(self._recent, _RECENT_FRAGMENTS)
        for piece in pieces:
            if piece.stamp <= self._highest and piece.whole and piece in recent:
                continue
            self._highest = max(self._highest, piece.stamp)
            recent.append(piece)
            new.append(piece)
        self._recent = [*recent]
        return new

    def _skip_seen(self, pieces: Sequence[LogFragment]) -> Sequence[LogFragment]:
        if self._fresh and pieces:
            self._fresh = False
            if pieces[0].stamp != self._opening:
                # the log was rotated and no longer reaches back that far: only timestamps remain
                self._by_stamp = True
                self.gap = min(piece.stamp for piece in pieces) > self._last
        if not self._by_stamp:
            rest = pieces[self._skip :]
            self._skip -= len(pieces) - len(rest)
            return rest
        return self._skip_to_last_stamp(pieces)

    def _skip_to_last_stamp(self, pieces: Sequence[LogFragment]) -> Sequence[LogFragment]:
        """Return the fragments after ``last``, and restart the count from the anchor."""
        for index, piece in enumerate(pieces):
            if piece.stamp < self._last:
                continue
            if piece.stamp == self._last and self._seen_last > 0:
                self._seen_last -= 1
                continue
            self._skip, self._by_stamp = 0, False
            self._anchor = self._opening = piece.stamp
            self._seen, self._seen_last, self._candidate = 0, 0, None
            return pieces[index:]
        return ()


def parse_timestamp_ns(stamp: bytes) -> int:
    """Return unix time in nanoseconds of ``2026-11-20T23:13:59.123456789Z``; 0 for any other text."""
    try:
        days = date(int(stamp[:4]), int(stamp[5:7]), int(stamp[8:10])).toordinal() - _EPOCH_DAY
        seconds = 3600 * int(stamp[11:13]) + 60 * int(stamp[14:16]) + int(stamp[17:19])
        fraction = stamp[20:].rstrip(b"Z")[:9].ljust(9, b"0")
        return (86400 * days + seconds) * 1_000_000_000 + int(fraction)
    except ValueError:
        return 0


def _decode_stamp(stamp: bytes) -> str:
    return str(stamp, "ascii", "replace")
