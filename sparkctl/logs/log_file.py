"""Reads a log from a file, stdin or a pipe in blocks of whole lines, with constant memory."""

from __future__ import annotations

import codecs
import gzip
import os
import re
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader, FileIO
from pathlib import Path
from typing import IO, Protocol, TextIO, cast

from sparkctl.errors import InvalidInput
from sparkctl.files import open_regular_file, open_user_file, refuse_device

BLOCK_BYTES = 64 << 10  # bytes
_HALF_LINE_BYTES = 64 << 10  # half of the limit: of a longer line, head and tail are used
_GZIP_MAGIC = b"\x1f\x8b"
_UTF16_BOMS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_SAMPLE_BYTES = 64 << 10
_CONTROL_CHARACTERS = re.compile(rb"[\x00-\x07\x0e-\x1a\x1c-\x1f\x7f]")
# A hole: the log was truncated, or its machine went down, while it was open for writing.
_HOLE = re.compile(rb"\x00{64,}")
_MAX_CONTROL_SHARE = 0.02  # of the bytes of a text, without those of colours and progress bars


class ByteSource(Protocol):
    """A source of bytes."""

    def read(self, size: int, /) -> bytes:
        """Return up to ``size`` bytes, none at the end."""
        ...


@contextmanager
def open_log(path: Path, *, is_saved: bool = False) -> Iterator[ByteSource]:
    """Open a log. Data appended while it is read is ignored. Raises `InvalidInput` if it cannot be read.

    ``is_saved``: sparkctl wrote it, so it must be a regular file; a log that the user names may be a pipe.
    """
    try:
        file: FileIO | BufferedReader = open_regular_file(path) if is_saved else open_user_file(path)
    except FileNotFoundError:
        raise InvalidInput(
            f"there is no file {path}", f"check the path: it was looked for in {path.absolute().parent}"
        ) from None
    except OSError as error:
        if path.is_dir():
            raise InvalidInput(f"{path} is a directory", "name the log file in it") from None
        raise InvalidInput(f"{path} cannot be read: {error.strerror or error}", "name a log file or a pipe") from None
    with file:
        state = os.fstat(file.fileno())
        yield _BoundedSource(file, state.st_size) if stat.S_ISREG(state.st_mode) else _PipeSource(file)


def refuse_endless_stdin(stdin: TextIO) -> None:
    """Raise `InvalidInput` if stdin is an endless device such as /dev/zero."""
    try:
        fd = stdin.fileno()
    except (OSError, ValueError, AttributeError):
        return  # not a file
    try:
        refuse_device(fd, "stdin")
    except OSError as error:
        raise InvalidInput(f"stdin cannot be read: {error.strerror}", "pipe a log into it, or name a file") from None


def read_line_blocks(source: ByteSource, name: str) -> Iterator[bytes]:
    """Yield blocks of whole lines, each with its newline, the last one too. Reads gzip and UTF-16 as well.

    Raises `InvalidInput` if it is not text, or if compressed data ends too early.
    """
    rest = b""
    is_first = True
    for piece in _read_decoded(source, name):
        if is_first:
            _refuse_binary(piece, name)
            is_first = False
        if b"\0" in piece:
            piece = piece.replace(b"\0", b"")
        whole, newline, after = piece.rpartition(b"\n")
        if newline:
            yield rest + whole + newline
            rest = after
        else:
            rest += after
        if len(rest) > 2 * _HALF_LINE_BYTES:
            rest = rest[:_HALF_LINE_BYTES] + rest[-_HALF_LINE_BYTES:]
    if rest:
        yield rest + b"\n"


def _read_decoded(source: ByteSource, name: str) -> Iterator[bytes]:
    first = _read_first_bytes(source)
    if first.startswith(_GZIP_MAGIC):
        yield from _decompress_gzip(_PrefixedSource(first, source), name)
        return
    if first.startswith(_UTF16_BOMS):
        decoder = codecs.getincrementaldecoder("utf-16")("replace")
        while first:
            yield decoder.decode(first).encode("utf-8")
            first = _read_block(source, name)
        return
    yield first.removeprefix(codecs.BOM_UTF8)
    while piece := _read_block(source, name):
        yield piece


def _read_first_bytes(source: ByteSource) -> bytes:
    """Return the first bytes without leading zeros: a log that was truncated while open for writing begins with zeros."""
    while piece := source.read(BLOCK_BYTES):
        if piece.startswith(_UTF16_BOMS):
            return piece
        if stripped := piece.lstrip(b"\0"):
            return stripped
    return b""


def _decompress_gzip(source: ByteSource, name: str) -> Iterator[bytes]:
    try:
        with gzip.GzipFile(mode="rb", fileobj=cast(IO[bytes], _GzipInput(source))) as file:  # it only reads
            while piece := file.read(BLOCK_BYTES):
                yield piece
    except (gzip.BadGzipFile, EOFError, zlib.error) as broken:
        raise InvalidInput(f"{name} is not a complete gzip file: {broken}", "unpack what there is: zcat FILE") from None


def _read_block(source: ByteSource, name: str) -> bytes:
    try:
        return source.read(BLOCK_BYTES)
    except OSError as error:
        raise InvalidInput(f"{name} cannot be read to its end: {error.strerror or error}") from None


def _refuse_binary(piece: bytes, name: str) -> None:
    sample = _HOLE.sub(b"", piece[:_SAMPLE_BYTES])
    if sample and len(_CONTROL_CHARACTERS.findall(sample)) / len(sample) > _MAX_CONTROL_SHARE:
        raise InvalidInput(f"{name} is not a log: it is not text", "name a log file, or an instance")


class _PipeSource:
    """A pipe, a terminal, a device."""

    def __init__(self, file: IO[bytes] | ByteSource) -> None:
        self._file = file

    def read(self, size: int, /) -> bytes:
        return self._file.read(size) or b""


class _BoundedSource:
    """A file up to its size at the beginning."""

    def __init__(self, file: ByteSource, size: int) -> None:
        self._file = file
        self._left = size

    def read(self, size: int, /) -> bytes:
        piece = self._file.read(min(size, self._left)) if self._left > 0 else b""
        self._left -= len(piece)
        return piece


class _PrefixedSource:
    """A source whose first bytes were read already."""

    def __init__(self, first: bytes, rest: ByteSource) -> None:
        self._first = first
        self._rest = rest

    def read(self, size: int, /) -> bytes:
        if self._first:
            piece, self._first = self._first[:size], self._first[size:]
            return piece
        return self._rest.read(size)


class _GzipInput:
    """The file methods that `gzip` needs."""

    def __init__(self, source: ByteSource) -> None:
        self.read = source.read
