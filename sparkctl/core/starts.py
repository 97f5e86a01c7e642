"""The file of past starts: a line of JSON for each, at most so large, and one writer at a time."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

_LARGEST = 512 * 1024  # bytes; some thousand starts
_READ = 500  # lines


class StartsFile:
    """``path``, in a directory that is there. What is damaged in it is passed over; it never grows beyond half a MiB."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, record: Mapping[str, object]) -> None:
        """Add a record. Raises OSError."""
        line = (json.dumps(record) + "\n").encode()
        with _opened(self.path) as file:
            size = os.fstat(file).st_size
            if size + len(line) > _LARGEST:
                self._replace(_last_lines(file, size, _LARGEST // 2), line)
                return
            is_torn = size > 0 and os.pread(file, 1, size - 1) != b"\n"  # a crash left half a line: only that is lost
            os.write(file, b"\n" + line if is_torn else line)

    def records(self) -> list[dict[str, Any]]:
        """Return the last records, the oldest first; none where nothing can be read."""
        try:
            with self.path.open("rb") as file:
                lines = _last_lines(file.fileno(), os.fstat(file.fileno()).st_size, _LARGEST)[-_READ:]
        except OSError:
            return []
        records = []
        for line in lines:
            try:
                record = json.loads(line.decode(errors="replace"))
            except (ValueError, RecursionError):
                continue  # a line that a crash cut in half
            if isinstance(record, dict):
                records.append(record)
        return records

    def _replace(self, lines: list[bytes], last: bytes) -> None:
        """Put these lines and a last one in the place of what is there: all of them, or none."""
        handle, name = tempfile.mkstemp(".new", f"{self.path.name}.", self.path.parent)  # 0600
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(b"".join(line + b"\n" for line in lines[-_READ:]) + last)
            Path(name).replace(self.path)
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise


def _last_lines(file: int, size: int, most: int) -> list[bytes]:
    """Return the whole lines among the last ``most`` bytes."""
    begin = max(0, size - most)
    lines = os.pread(file, most, begin).splitlines()
    return lines[1:] if begin else lines


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    """Open for appending, for as long as nobody else does; a file system that knows no locks does without."""
    import fcntl  # not on every machine that only reads

    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            with suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_EX)
            if path.exists() and os.path.samestat(os.fstat(file), path.stat()):
                yield file
                return
        finally:
            os.close(file)
