"""Reads and writes recordings: one JSON line for each event. The ``--json`` output of `up` can be read, too."""

from __future__ import annotations

import json
import os
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from io import BufferedReader, FileIO
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Self

from sparkctl.errors import InvalidInput
from sparkctl.files import open_user_file
from sparkctl.model.events import Event
from sparkctl.model.json_codec import decode_event, encode_event
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.text.secrets import redact

if TYPE_CHECKING:
    from gzip import GzipFile

_MAX_LINE_BYTES = 16 << 20  # bytes of a line: a batch of log lines has a hundredth of that
_MAX_UNIX_TIME = 1e11  # unix seconds, year 5138: later times have no calendar date
_GZIP_MAGIC = b"\x1f\x8b"  # first bytes of a gzip file
_RECORDING_HINT = "a recording is what `sparkctl top --record FILE` writes"
_DAMAGED_LINE_HINT = f"{_RECORDING_HINT}; a damaged line can be taken out with an editor"


class EventRecorder:
    """Writes events to a file that only the operator can read, each line completely or not at all.

    A full disk ends the recording, never the command: ``on_failure`` gets the reason, once. Raises `InvalidInput` if
    the file cannot be created, or exists and ``force`` does not allow replacing it.
    """

    def __init__(self, path: Path, on_failure: Callable[[str], None], *, force: bool = False) -> None:
        self.path = path
        self._on_failure = on_failure
        self._whole = 0  # bytes of complete lines
        self._fd: int | None = _create_recording_file(path, force)
        self.failed = False  # whether a write failed

    def write(self, event: Event) -> None:
        """Write one event; does nothing once writing has failed."""
        if self._fd is None:
            return
        line = json.dumps(_redact_strings(encode_event(event)), separators=(",", ":")).encode() + b"\n"
        try:
            left = memoryview(line)
            while left:
                left = left[os.write(self._fd, left) :]
            self._whole += len(line)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._fd, self._whole)
            self.close()
            self.failed = True
            self._on_failure(f"the recording {self.path} ends here: {error.strerror or error}")

    def close(self) -> None:
        """Close the file."""
        if self._fd is not None:
            fd, self._fd = self._fd, None
            with suppress(OSError):
                os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _create_recording_file(path: Path, force: bool) -> int:
    try:
        if not force:
            return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
        os.set_blocking(fd, True)  # a FIFO without a reader is refused, and does not block the command
        if stat.S_ISREG(os.fstat(fd).st_mode):
            os.fchmod(fd, 0o600)  # it may have existed, readable by everybody
    except FileExistsError:
        raise InvalidInput(f"{path} already exists", "another name, or --overwrite") from None
    except OSError as error:
        raise InvalidInput(f"cannot write {path}: {error.strerror or error}", "another place for --record") from error
    return fd


def _redact_strings(value: object) -> object:
    """Return plain data with tokens and passwords in URLs masked."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {key: _redact_strings(item) for key, item in value.items()}
    return [_redact_strings(item) for item in value] if isinstance(value, list) else value


def read_recording(path: Path, on_cut: Callable[[str], None] | None = None) -> Iterator[Event]:
    """Yield the events of a recording; a cut last line is left out and reported to ``on_cut``.

    Raises `InvalidInput` for a file that cannot be read, and, with the line number, for a line that is no event.
    """
    number = 0
    try:
        with BufferedReader(open_user_file(path)) as raw, _open_unpacked(raw) as file:
            while line := file.readline(_MAX_LINE_BYTES):
                number += 1
                if len(line) == _MAX_LINE_BYTES:
                    _refuse_line(path, number, f"longer than {_MAX_LINE_BYTES >> 20} MiB")
                if (event := _parse_event_line(path, number, line)) is not None:
                    yield event
                elif line.strip() and on_cut is not None:
                    on_cut(f"the recording {path} ends in the middle of line {number}, which is left out")
    except EOFError:
        if on_cut is not None:
            on_cut(
                f"the recording {path} is compressed, and its end is missing: what comes after line {number} is left out"
            )
    except zlib.error as error:
        raise InvalidInput(f"cannot unpack {path} after line {number}: {error}", _RECORDING_HINT) from error
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror or error}", _RECORDING_HINT) from error
    if number == 0:
        raise InvalidInput(f"{path} is empty", _RECORDING_HINT)


def _open_unpacked(raw: BufferedReader[FileIO]) -> AbstractContextManager[BufferedReader[FileIO] | GzipFile]:
    """Return the file, unpacked if it is a gzip file."""
    if not raw.peek(len(_GZIP_MAGIC)).startswith(_GZIP_MAGIC):
        return nullcontext(raw)
    import gzip

    return gzip.open(raw)


def _parse_event_line(path: Path, number: int, line: bytes) -> Event | None:
    if not line.strip():
        return None
    try:
        data = json.loads(line, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        if line.endswith(b"\n") or number == 1:
            _refuse_line(path, number, "no JSON")
        return None
    if not isinstance(data, dict):
        _refuse_line(path, number, "no event")
    try:
        event = decode_event(data)
    except ValueError as wrong:
        _refuse_line(path, number, str(wrong))
    if not 0 <= event.ts < _MAX_UNIX_TIME:
        _refuse_line(path, number, "ts is not a valid time")
    return event


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a number")


def _refuse_line(path: Path, number: int, what: str) -> NoReturn:
    raise InvalidInput(redact(sanitize_line(f"{path}:{number}: {what}")), _DAMAGED_LINE_HINT)
