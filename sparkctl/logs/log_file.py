"""Reads a log from a file, stdin or a pipe in blocks of whole lines, with constant memory."""

from __future__ import annotations

import codecs
import gzip
import json
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
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
_MAX_CONTROL_SHARE = 0.02  # of the bytes of a text, without those of colours and progress bars
# What a power cut, or a truncation while it was open for writing, leaves in a file.
_HOLE = re.compile(rb"\n?\0{16,}")
_UTF16_ZEROS = 0.4  # of the bytes at even or odd places, in a text whose letters are mostly Latin
_SAMPLE_LINES, _MIN_SAMPLE_LINES, _MOST_OTHERS = 400, 4, 0.1  # that show what stands around each line; lines without it
_MAX_PREFIX_CHARS = 200
_ENOUGH_KNOWN = 0.25  # of the lines, where nothing stands around them
_TEXT_KEYS = (
    "log",
    "message",
    "msg",
    "MESSAGE",
    "text",
)  # of a line that is a JSON object: Docker's file, journald, loggers
_TRACEBACK_KEYS = ("exc_info", "exception", "traceback", "stack_trace", "stack")


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
    pieces = _read_pieces(_PrefixedSource(first, source), name)
    if first.startswith(_GZIP_MAGIC):
        pieces = _decompress_gzip(_PrefixedSource(first, source), name)
    first = next(pieces, b"")
    encoding = _find_utf16(first)
    if encoding is not None:
        decoder = codecs.getincrementaldecoder(encoding)("replace")
        yield decoder.decode(first).encode("utf-8")
        yield from (decoder.decode(piece).encode("utf-8") for piece in pieces)
        return
    yield _HOLE.sub(b"\n", first.removeprefix(codecs.BOM_UTF8))
    yield from (_HOLE.sub(b"\n", piece) if b"\0" in piece else piece for piece in pieces)


def _read_pieces(source: ByteSource, name: str) -> Iterator[bytes]:
    while piece := _read_block(source, name):
        yield piece


def _find_utf16(piece: bytes) -> str | None:
    """Return the encoding of a text of two bytes a character, None if it is none."""
    if piece.startswith(_UTF16_BOMS):
        return "utf-16"
    half = len(piece) // 2
    even, odd = piece[::2].count(0), piece[1::2].count(0)
    if half and min(even, odd) <= half * _MAX_CONTROL_SHARE and max(even, odd) >= half * _UTF16_ZEROS:
        return "utf-16-be" if even > odd else "utf-16-le"
    return None


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
    sample = piece[:_SAMPLE_BYTES]
    if sample and len(_CONTROL_CHARACTERS.findall(sample)) / len(sample) > _MAX_CONTROL_SHARE:
        raise InvalidInput(f"{name} is not a log: it is not text", "name a log file, or an instance")


def strip_wrapping(blocks: Iterable[bytes], read_header: Callable[[str], str | None]) -> Iterator[bytes]:
    """Yield the blocks without what a collector of logs put around each line: a JSON object, or a prefix that nearly all of the
    first lines share, whatever it is.

    A prefix counts only where more lines are understood without it: ``read_header`` returns what follows where a line begins as
    the programs that are known write it, None where it does not.
    """
    rest = iter(blocks)
    held = hold_sample(rest)
    first = b"".join(held)
    lines = [line for line in first[:_SAMPLE_BYTES].decode("utf-8", "replace").split("\n")[:-1] if line.strip()]
    strip = _find_wrapping(lines[:_SAMPLE_LINES], read_header)
    yield from held if strip is None else map(strip, held)
    yield from rest if strip is None else map(strip, rest)


def hold_sample(blocks: Iterator[bytes]) -> list[bytes]:
    """Take the first blocks, as many as show what a log is like."""
    held, size = list[bytes](), 0
    for block in blocks:
        held.append(block)
        size += len(block)
        if size >= _SAMPLE_BYTES:
            break
    return held


def _find_wrapping(lines: Sequence[str], read_header: Callable[[str], str | None]) -> Callable[[bytes], bytes] | None:
    if lines and all(line.startswith("{") for line in lines[:_MIN_SAMPLE_LINES]) and any(map(_read_json_line, lines)):
        return _strip_json
    known = sum(read_header(line) is not None for line in lines)
    if len(lines) < _MIN_SAMPLE_LINES or known >= len(lines) * _ENOUGH_KNOWN:
        return None
    best, prefix = (2 * known, 0), None
    for pattern in _list_prefixes(lines):
        matcher = re.compile(pattern + r"(?P<rest>.*)")
        found = [match["rest"] for line in lines if (match := matcher.match(line)) is not None]
        if len(found) < len(lines) * (1 - _MOST_OTHERS):
            continue
        indent = min((len(text) - len(text.lstrip(" ")) for text in found if text.strip()), default=0)
        told = [rest for text in found if (rest := read_header(text[indent:])) is not None]
        score = len(told), -sum(map(len, told))  # of two as good, the shorter prefix: the header is the program's own
        if told and score > best:
            end = f"(?: {{{indent}}}|(?=\\n))" if indent else ""
            best, prefix = score, re.compile(f"(?m)^{pattern}{end}".encode())
    return None if prefix is None else partial(prefix.sub, b"")


_TOKENS = re.compile(r"\d+| +|[^\W\d_]+|.", re.DOTALL)
_DAY_OR_MONTH = re.compile("Mon|Tue|Wed|Thu|Fri|Sat|Sun|Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec")
_CLASSES = {"0": r"\d{1,20}", " ": " {1,40}", "Mon": "[A-Z][a-z]{2}", "[": r"\[ {0,20}"}
_ENDS = frozenset("|:>])")
# Where the prefix has columns that vary: a job and its step (gh run view --log), the pod and its container (stern).
_COLUMNS = (r"[^\t\n]{1,200}\t[^\t\n]{1,200}\t", r"[\w.-]{1,253} [\w.-]{1,63}")


def _list_prefixes(lines: Sequence[str]) -> Iterator[str]:
    """Yield patterns of what nearly all lines may begin with, the shortest first; what they share, digits and dates aside."""
    shapes = sorted([*map(_classify_token, _TOKENS.findall(line[:_MAX_PREFIX_CHARS]))] for line in lines)
    few = int(len(shapes) * _MOST_OTHERS / 2)
    pattern = ""
    for part, other in zip(shapes[few], shapes[-1 - few], strict=False):
        if part == " " and pattern:
            yield pattern
        if part != other:
            break
        pattern += _CLASSES.get(part) or re.escape(part)
        if part in _ENDS:
            yield pattern
    yield from _COLUMNS


def _classify_token(text: str) -> str:
    if text.isdecimal():
        return "0"
    return " " if text[0] == " " else "Mon" if _DAY_OR_MONTH.fullmatch(text) else text


def _strip_json(block: bytes) -> bytes:
    lines = block.decode("utf-8", "replace").split("\n")[:-1]
    return "".join(line + "\n" if (text := _read_json_line(line)) is None else text for line in lines).encode(
        "utf-8", "replace"
    )


def _read_json_line(line: str) -> str | None:
    """Return the text that a JSON object in a line holds, with its newline; None if the line is none.

    Docker's file keeps the newline of each line: without one, the next object goes on with the same line.
    """
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    key = next((key for key in _TEXT_KEYS if isinstance(found.get(key), str)), None)
    if key is None:
        return None
    text = str(found[key])
    if key == "log" and "stream" in found:
        return text
    more = [str(found[one]) for one in _TRACEBACK_KEYS if isinstance(found.get(one), str) and found[one]]
    return "\n".join([text.removesuffix("\n"), *(one.removesuffix("\n") for one in more)]) + "\n"


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
