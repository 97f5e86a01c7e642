"""A long list of text lines that costs disk instead of memory: an unlinked private file, and where every 64th begins.

Lines have absolute numbers from 0; the oldest go when there are too many. A disk that is full (or no directory to
write in) is no error: the newest lines are then kept in memory, fewer of them, and `trouble` says so.
"""

from __future__ import annotations

import os
import tempfile
from array import array
from collections import deque
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from sparkctl.model.text.units import MIB

MAX_LINES = 1_000_000
MAX_BYTES = 1024 * MIB
MAX_MEMORY_BYTES = 8 * MIB  # where there is no disk

_LINES_PER_OFFSET = 64  # lines from one remembered offset to the next
_SEGMENT_COUNT = 8  # the oldest lines leave the disk an eighth at a time
_MEMORY_SEGMENT_BYTES = MIB // 2


class _LineSegment:
    """Some lines that follow each other, in a file of their own (``file``) or in memory (None)."""

    def __init__(self, base: int, file: int | None) -> None:
        self.base = base
        self.count = 0
        self.size = 0
        self.file = file
        self._memory = bytearray()
        self._offsets = array("Q")

    def append(self, lines: Sequence[str]) -> None:
        """Take lines; on OSError those that were taken before it are kept, and ``count`` tells how many."""
        lines = iter(lines)  # type: ignore[assignment]
        while group := list(islice(lines, _LINES_PER_OFFSET - self.count % _LINES_PER_OFFSET)):
            data = ("\n".join(group) + "\n").encode()
            self._write_bytes(data)
            if self.count % _LINES_PER_OFFSET == 0:
                self._offsets.append(self.size)
            self.size += len(data)
            self.count += len(group)

    def read(self, start: int, stop: int) -> list[str]:
        """Return the lines of absolute numbers ``start`` to ``stop``, all of which are here. Raises OSError."""
        first = (start - self.base) // _LINES_PER_OFFSET
        last = -(-(stop - self.base) // _LINES_PER_OFFSET)
        begin = self._offsets[first]
        end = self._offsets[last] if last < len(self._offsets) else self.size
        lines = self._read_bytes(begin, end).decode().split("\n")
        skip = start - self.base - first * _LINES_PER_OFFSET
        return lines[skip : skip + stop - start]

    def close(self) -> None:
        """Give the disk space, or the memory, back."""
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
    """See the module. Not for two threads; lines hold no newline and no lone surrogate (``text.clean`` sees to both).

    ``directory`` should be on a disk: what is written to a tmpfs is memory after all.
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
        """Add lines at the end and drop what is then too old. Never raises for a disk."""
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
        """Return the lines of these absolute numbers that are still here: fewer where the oldest have gone.

        A part that the disk does not give back is empty lines, and `trouble` says so.
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
        """Drop everything. The disk space is free again at once."""
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
    """Return $TMPDIR where it is set, else /var/tmp: /tmp is memory on many machines."""
    if named := os.environ.get("TMPDIR"):
        return Path(named)
    disk = Path("/var/tmp")  # noqa: S108 - the file has no name there, and mode 0600
    return disk if os.access(disk, os.W_OK) else Path(tempfile.gettempdir())


def _create_private_file(directory: Path) -> int:
    """Return an open file that has no name and that nobody else can open."""
    file, name = tempfile.mkstemp(prefix="sparkctl-log-", dir=directory)
    Path(name).unlink()
    return file
