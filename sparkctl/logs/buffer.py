"""The line buffer behind the log screen: cleaned, marked and numbered lines of all sources, on disk."""

from __future__ import annotations

import os
import tempfile
from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from itertools import islice
from math import floor
from pathlib import Path
from typing import Protocol

from sparkctl.engines.line_preparer import split_carriage_returns
from sparkctl.logs.line_marker import LineMark, LineMarker, LineMarks, LogLevel
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.text.log_line import LogLine
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.text.units import MIB

MAX_LINES = 1_000_000
MAX_BYTES = 1024 * MIB
MAX_MEMORY_BYTES = 8 * MIB  # where there is no disk

_LINES_PER_OFFSET = 64  # lines from one remembered offset to the next
_SEGMENT_COUNT = 8  # the oldest lines are dropped an eighth at a time
_MEMORY_SEGMENT_BYTES = MIB // 2


class _LineSegment:
    """Consecutive lines, in a file of their own (``file``) or in memory (None)."""

    def __init__(self, base: int, file: int | None) -> None:
        self.base = base
        self.count = 0
        self.size = 0
        self.file = file
        self._memory = bytearray()
        self._offsets = array("Q")

    def append(self, lines: Sequence[str]) -> None:
        """Append lines; after an OSError, the lines before it are stored, and ``count`` is their number."""
        lines = iter(lines)  # type: ignore[assignment]
        while group := list(islice(lines, _LINES_PER_OFFSET - self.count % _LINES_PER_OFFSET)):
            data = ("\n".join(group) + "\n").encode()
            self._write_bytes(data)
            if self.count % _LINES_PER_OFFSET == 0:
                self._offsets.append(self.size)
            self.size += len(data)
            self.count += len(group)

    def read(self, start: int, stop: int) -> list[str]:
        """Return the lines with absolute numbers ``start`` to ``stop``; the segment must have all of them. Raises OSError."""
        first = (start - self.base) // _LINES_PER_OFFSET
        last = -(-(stop - self.base) // _LINES_PER_OFFSET)
        begin = self._offsets[first]
        end = self._offsets[last] if last < len(self._offsets) else self.size
        lines = self._read_bytes(begin, end).decode().split("\n")
        skip = start - self.base - first * _LINES_PER_OFFSET
        return lines[skip : skip + stop - start]

    def close(self) -> None:
        """Free the disk space or memory."""
        if self.file is not None:
            os.close(self.file)
            self.file = None
        self._memory = bytearray()

    def _write_bytes(self, data: bytes) -> None:
        if self.file is None:
            self._memory += data
            return
        at, rest = self.size, memoryview(data)
        while rest:
            written = os.pwrite(self.file, rest, at)
            at, rest = at + written, rest[written:]

    def _read_bytes(self, begin: int, end: int) -> bytes:
        if self.file is None:
            return bytes(self._memory[begin:end])
        pieces = []
        while begin < end:
            piece = os.pread(self.file, end - begin, begin)
            if not piece:
                raise OSError("the spool file is shorter than what was written to it")
            pieces.append(piece)
            begin += len(piece)
        return b"".join(pieces)


class DiskLineBuffer:
    """The newest lines of a log on disk, or in memory without one. Not thread-safe. Lines have no newline, no lone surrogate.

    ``directory`` should be on a disk: a tmpfs is memory.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        most_lines: int = MAX_LINES,
        most_bytes: int = MAX_BYTES,
        in_memory: int = MAX_MEMORY_BYTES,
    ) -> None:
        self.most_lines = most_lines
        self.write_error: str | None = None
        self.first = 0
        self.end = 0
        self._directory = _get_default_directory() if directory is None else directory
        self._most_bytes = most_bytes
        self._in_memory = in_memory
        self._parts: deque[_LineSegment] = deque()

    def __len__(self) -> int:
        return self.end - self.first

    def append(self, lines: Sequence[str]) -> None:
        """Add lines at the end and drop the oldest. Disk errors never raise."""
        done = 0
        while done < len(lines):
            part = self._get_writable_segment()
            room = max(1, -(-self.most_lines // _SEGMENT_COUNT) - part.count)
            before = part.count
            try:
                part.append(lines[done : done + room])
            except OSError as broken:
                self._give_up_disk(broken)
            done += part.count - before
            self.end = part.base + part.count
            self._drop_oldest()

    def read(self, start: int, stop: int) -> list[str]:
        """Return the lines with these absolute numbers; fewer if the oldest were dropped.

        Lines that cannot be read back are empty, and ``write_error`` says so.
        """
        found: list[str] = []
        for part in self._parts:
            begin, end = max(start, part.base, self.first), min(stop, part.base + part.count)
            if begin >= end:
                continue
            try:
                found += part.read(begin, end)
            except OSError as broken:
                self.write_error = f"old log lines cannot be read back: {broken.strerror or broken}"
                found += [""] * (end - begin)
        return found

    def close(self) -> None:
        """Drop everything and free the disk space at once."""
        self.first = self.end
        while self._parts:
            self._parts.popleft().close()

    def _get_writable_segment(self) -> _LineSegment:
        if self._parts and not self._is_full(self._parts[-1]):
            return self._parts[-1]
        file = None
        if self.write_error is None:
            try:
                file = _create_private_file(self._directory)
            except OSError as broken:
                self._give_up_disk(broken)
        self._parts.append(_LineSegment(self.end, file))
        return self._parts[-1]

    def _is_full(self, part: _LineSegment) -> bool:
        if part.file is None:
            return part.size >= _MEMORY_SEGMENT_BYTES
        is_large = (
            part.count >= -(-self.most_lines // _SEGMENT_COUNT) or part.size >= self._most_bytes // _SEGMENT_COUNT
        )
        return is_large or self.write_error is not None

    def _give_up_disk(self, broken: OSError) -> None:
        self.write_error = (
            f"{self._directory}: {broken.strerror or broken}; "
            f"only the newest {self._in_memory // MIB or 1} MiB of the log stay readable here"
        )

    def _drop_oldest(self) -> None:
        self.first = max(self.first, self.end - self.most_lines)
        in_memory = sum(part.size for part in self._parts if part.file is None)
        on_disk = sum(part.size for part in self._parts) - in_memory
        while len(self._parts) > 1:
            oldest = self._parts[0]
            is_gone = oldest.base + oldest.count <= self.first
            if not (is_gone or in_memory > self._in_memory or on_disk > self._most_bytes):
                return
            if oldest.file is None:
                in_memory -= oldest.size
            else:
                on_disk -= oldest.size
            self._parts.popleft().close()
            self.first = max(self.first, self._parts[0].base)


def _get_default_directory() -> Path:
    """Return $TMPDIR if it is set, else /var/tmp: /tmp is in memory on many machines."""
    if named := os.environ.get("TMPDIR"):
        return Path(named)
    disk = Path("/var/tmp")  # noqa: S108 - the file has no name there, and mode 0600
    return disk if os.access(disk, os.W_OK) else Path(tempfile.gettempdir())


def _create_private_file(directory: Path) -> int:
    """Return an open file that has no name and that nobody else can open."""
    file, name = tempfile.mkstemp(prefix="sparkctl-log-", dir=directory)
    Path(name).unlink()
    return file


LineKey = tuple[int, int]  # (time in ms, number): the place of a line, independent of filters
_PRUNE_WINDOW_LINES = 4096


class LineOrder(Protocol):
    """Lines in display order."""

    @property
    def dropped(self) -> int:
        """Number of lines before the first one that is still there."""
        ...

    def __len__(self) -> int: ...

    def get_key(self, index: int) -> LineKey:
        """Return where the line at ``index`` stands."""
        ...

    def find_index(self, key: LineKey) -> int:
        """Return the index of the first line at ``key`` or after it; the length if there is none."""
        ...


class ArrivalOrder:
    """All lines of a buffer, in order of arrival; needs no memory."""

    def __init__(self, spool: DiskLineBuffer) -> None:
        self._spool = spool

    @property
    def dropped(self) -> int:
        """Number of dropped lines."""
        return self._spool.first

    def __len__(self) -> int:
        return len(self._spool)

    def get_key(self, index: int) -> LineKey:
        """Return where the line at ``index`` stands."""
        return 0, self._spool.first + index

    def find_index(self, key: LineKey) -> int:
        """Return the index of the first line at ``key`` or after it."""
        return min(len(self), max(0, key[1] - self._spool.first))


class TimeOrder:
    """Selected lines by time, then by number: 16 bytes a line."""

    EARLIEST, LATEST = -(1 << 63), (1 << 63) - 1

    def __init__(self) -> None:
        self.dropped = 0
        self._moments = array("q")
        self._numbers = array("Q")

    def __len__(self) -> int:
        return len(self._numbers)

    def get_key(self, index: int) -> LineKey:
        """Return where the line at ``index`` stands."""
        return self._moments[index], self._numbers[index]

    def find_index(self, key: LineKey) -> int:
        """Return the index of the first line at ``key`` or after it."""
        moment, number = key
        low = bisect_left(self._moments, moment)
        return bisect_left(self._numbers, number, low, bisect_right(self._moments, moment, low))

    def add_lines(self, moments: Sequence[int], numbers: Sequence[int]) -> None:
        """Add lines: times must not fall; numbers must rise and exceed all earlier ones."""
        if not moments:
            return
        if not self._moments or moments[0] >= self._moments[-1]:
            self._moments.extend(moments)
            self._numbers.extend(numbers)
            return
        low = bisect_right(self._moments, moments[0])
        later, theirs = self._moments[low:], self._numbers[low:]
        del self._moments[low:], self._numbers[low:]
        at = 0
        for moment, number in zip(moments, numbers, strict=True):
            upto = bisect_right(later, moment, at)
            self._moments += later[at:upto]
            self._numbers += theirs[at:upto]
            self._moments.append(moment)
            self._numbers.append(number)
            at = upto
        self._moments += later[at:]
        self._numbers += theirs[at:]

    def drop_before(self, first: int) -> None:
        """Forget the numbers below ``first``. They are near the front, mixed with a few that stay."""
        reach = 0
        window = _PRUNE_WINDOW_LINES
        while reach < len(self) and min(self._numbers[reach : reach + window]) < first:
            reach += window
            window *= 2
        kept = [index for index in range(min(reach, len(self))) if self._numbers[index] >= first]
        gone = min(reach, len(self)) - len(kept)
        if gone:
            self._moments[:reach] = array("q", [self._moments[index] for index in kept])
            self._numbers[:reach] = array("Q", [self._numbers[index] for index in kept])
            self.dropped += gone


MAX_LINE_CHARS = 16384  # characters stored of a line: three quarters from its head, a quarter from its tail
_MAX_SOURCES = 90
_NO_MARK = "-"  # for no mark and no level
_FIRST_SOURCE = 0x21  # a source is one printable character of the record
ClassifyLine = Callable[[str], LineMarks]
MarkedText = tuple[str, LogLevel | None, LineMark | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferedLine:
    """One line. ``number`` counts all lines of the buffer from 0; ``line`` those of its own log from 1 (as evidence does).

    ``text`` is one printable line. ``moment`` orders the lines of several sources, in ms; 0 with one source.
    """

    number: int
    source: int
    line: int
    when: str
    text: str
    moment: int = 0
    is_stderr: bool = False
    level: LogLevel | None = None
    mark: LineMark | None = None

    @property
    def line_key(self) -> LineKey:
        """Where the line stands among the others."""
        return self.moment, self.number


def is_error_mark(mark: str, level: str) -> bool:
    """Tell whether a record with these first two characters is an error."""
    return mark == LineMark.FAILURE or level == LogLevel.ERROR


class LogBuffer:
    """Stores the newest lines of ``sources`` (node names, or ranks).

    With one source the order is that of its log. Several are merged by Docker's timestamps, which are as good as the nodes'
    clocks; within a source, the order of its log always holds.
    """

    def __init__(
        self,
        sources: Sequence[str] = ("",),
        markers: Sequence[LineMarker] | None = None,
        spool: DiskLineBuffer | None = None,
    ) -> None:
        if not 1 <= len(sources) <= _MAX_SOURCES:
            raise ValueError(f"1 to {_MAX_SOURCES} sources, not {len(sources)}")
        self.sources = tuple(sanitize_line(name) for name in sources)
        self.spool = DiskLineBuffer() if spool is None else spool
        self.order: ArrivalOrder | TimeOrder = ArrivalOrder(self.spool) if len(sources) == 1 else TimeOrder()
        self._markers = tuple(markers) if markers is not None else tuple(LineMarker() for _ in sources)
        self._began: float | None = None
        self._latest = [0] * len(sources)
        self._last = [0] * len(sources)  # the number of each log's last line
        self.omitted = 0  # lines left out of the logs: those of our own requests

    def add_lines(self, source: int, lines: Iterable[LogLine]) -> None:
        """Add lines of one source; about 8 µs a line. A rewritten progress bar is one line, in its last state."""
        mark = self._markers[source].mark_line
        is_merged = isinstance(self.order, TimeOrder)
        place = chr(_FIRST_SOURCE + source)
        records: list[str] = []
        moments: list[int] = []
        for line in lines:
            moment = self._compute_moment(source, line.when) if is_merged else 0
            when = sanitize_line(line.when)[:40]
            stream = "e" if line.stream == "stderr" else "o"
            text, level, found = _mark_rewritten_line(line, mark) if "\r" in line.text else _mark_plain_line(line, mark)
            head = f"{found or _NO_MARK}{level or _NO_MARK}{stream}{place}{moment:x}"
            records.append(f"{head}\t{line.number}\t{when}\t{text}")
            moments.append(moment)
            if 0 < self._last[source] < line.number:
                self.omitted += line.number - self._last[source] - 1
            self._last[source] = line.number
        number = self.spool.end
        self.spool.append(records)
        if isinstance(self.order, TimeOrder):
            self.order.add_lines(moments, range(number, number + len(records)))
            self.order.drop_before(self.spool.first)

    def read_lines(self, start: int, stop: int) -> list[BufferedLine]:
        """Return lines by number; fewer if the oldest of them were dropped."""
        start = max(start, self.spool.first)
        records = self.spool.read(start, stop)
        return [decode_record(number, record) for number, record in enumerate(records, start)]

    def get_line(self, number: int) -> BufferedLine | None:
        """Return one line, None if it was dropped or does not exist yet."""
        return next(iter(self.read_lines(number, number + 1)), None) if number >= self.spool.first else None

    def close(self) -> None:
        """Free the disk space."""
        self.spool.close()

    def _compute_moment(self, source: int, when: str) -> int:
        """Return ms since the buffer's first line, never less than that of the source's line before."""
        try:
            stamp = datetime.fromisoformat(when).timestamp()
        except (ValueError, OverflowError, OSError):
            return self._latest[source]
        if self._began is None:
            self._began = stamp
            self._latest = [TimeOrder.EARLIEST] * len(self.sources)
        moment = min(TimeOrder.LATEST, max(TimeOrder.EARLIEST, floor((stamp - self._began) * 1000)))
        self._latest[source] = max(self._latest[source], moment)
        return self._latest[source]


def decode_record(number: int, record: str) -> BufferedLine:
    """Return the line of a stored record; an unreadable one (a broken disk) is an empty line."""
    head, _, rest = record.partition("\t")
    if not rest:
        return BufferedLine(number=number, source=0, line=0, when="", text="")
    line, when, text = rest.split("\t", 2)
    return BufferedLine(
        number=number,
        source=ord(head[3]) - _FIRST_SOURCE,
        line=int(line),
        when=when,
        text=text,
        moment=int(head[4:], 16),
        is_stderr=head[2] == "e",
        level=None if head[1] == _NO_MARK else LogLevel(head[1]),
        mark=None if head[0] == _NO_MARK else LineMark(head[0]),
    )


def _mark_plain_line(line: LogLine, mark: ClassifyLine) -> MarkedText:
    text = sanitize_line(line.text)
    if len(text) > MAX_LINE_CHARS:
        text = _cut_middle(text, line.cut)
    return text, *mark(text)


def _mark_rewritten_line(line: LogLine, mark: ClassifyLine) -> MarkedText:
    """Return the last state of a rewritten line, after its earlier states with a mark."""
    kept: list[str] = []
    level: LogLevel | None = None
    found: LineMark | None = None
    rewritten = [sanitize_line(state) for state in split_carriage_returns(line.text)]
    for at, state in enumerate(rewritten, 1):
        its_level, its_mark = mark(state)
        is_sought = is_error_mark(its_mark or _NO_MARK, its_level or _NO_MARK) or its_mark is not None
        if is_sought or at == len(rewritten):
            kept.append(state)
            found = its_mark if found is None or its_mark is LineMark.FAILURE else found
            level = its_level if level is not LogLevel.ERROR else level
    text = "  ".join(kept)
    return (text if len(text) <= MAX_LINE_CHARS else _cut_middle(text, line.cut)), level, found


def get_record_source(record: str) -> int:
    """Return which source a record is from."""
    return ord(record[3]) - _FIRST_SOURCE if record else 0


def get_record_text(record: str) -> str:
    """Return a record's text."""
    return record[record.rfind("\t") + 1 :]


def _cut_middle(text: str, cut: int) -> str:
    head, tail = MAX_LINE_CHARS * 3 // 4, MAX_LINE_CHARS // 4
    missing = len(text) - head - tail + cut
    return f"{text[:head]} … {missing:,} characters left out … {text[-tail:]}"
