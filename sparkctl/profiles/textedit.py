"""A file of the operator's, changed in a single place of its text and written in one step."""

from __future__ import annotations

import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path

from sparkctl.errors import InvalidInput
from sparkctl.files import read_regular
from sparkctl.profiles.file_issues import FilePosition

_LINE_END = re.compile("\r\n|\r|\n|\u2028|\u2029")  # as YAML counts lines
_MARK = b"\xef\xbb\xbf"
_LARGEST = 1 << 20  # bytes


@dataclass(frozen=True, slots=True)
class TextEdit:
    """``old`` at ``start`` becomes ``new``."""

    start: int
    old: str
    new: str


def read_source(path: Path) -> tuple[bytes, str]:
    """Return a file's byte order mark, where it has one, and its text. Raises `InvalidInput` where it cannot be read."""
    try:
        raw = read_regular(path, _LARGEST)
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be read: {error.strerror or error}") from error
    mark = _MARK if raw.startswith(_MARK) else b""
    return mark, raw[len(mark) :].decode("utf-8")


def position_to_offset(text: str, place: FilePosition) -> int | None:
    """Return where in the text a place is."""
    starts = [0, *(found.end() for found in _LINE_END.finditer(text))]
    if place.line is None or place.column is None or place.line > len(starts):
        return None
    return starts[place.line - 1] + place.column - 1


def replace_file(path: Path, raw: bytes) -> None:
    """Write in one step, beside the file and over it; its mode stays."""
    real = path.resolve()
    fresh = real.with_name(f".{real.name}.{secrets.token_hex(4)}")
    try:
        file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(file, "wb") as stream:
                stream.write(raw)
            fresh.chmod(real.stat().st_mode & 0o777)
            fresh.replace(real)
        finally:
            fresh.unlink(missing_ok=True)
    except OSError as error:
        raise InvalidInput(f"{path}: cannot be written: {error.strerror or error}") from error
