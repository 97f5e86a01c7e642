"""Reads a log from a file, stdin or a pipe in blocks of whole lines, with constant memory; takes off what a collector wrote
around each line, puts lines together that were cut at one width, and turns a log round whose newest line stands first."""

from __future__ import annotations

import codecs
import gzip
import json
import os
import re
import shlex
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from io import BufferedReader, FileIO
from itertools import chain, pairwise
from pathlib import Path
from typing import IO, Any, Protocol, TextIO, cast

from sparkctl.engines.log_rules import DIGITS_TO_ZERO
from sparkctl.errors import InvalidInput
from sparkctl.files import open_regular_file, open_user_file, refuse_device
from sparkctl.logs.line_effects import read_raw_line, split_raw_line
from sparkctl.logs.line_patterns import CLOCK, ZONE_OFFSET

BLOCK_BYTES = 64 << 10
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
_MAX_LAYERS = 2  # of collectors, one around the other
_ENOUGH_KNOWN = 0.25  # of the lines, where nothing stands around them
# Of a line that is a JSON object: Docker's file, journald, loggers.
_LINE_KEYS = ("log", "message", "msg", "MESSAGE", "text", "line", "textPayload", "@message")
_TEXT_KEYS = (*_LINE_KEYS, "body", "event")
_OUTER_KEYS = ("jsonPayload", "_source", "content", "fields", "record", "body")  # whose objects may hold the text
_LEVEL_KEYS = ("level", "severity", "levelname", "PRIORITY")  # of a logger's record, which may stand among plain lines
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
        raise InvalidInput(f"there is no file {path}", _advise_on_missing_file(path)) from None
    except OSError as error:
        if path.is_dir():
            raise InvalidInput(f"{path} is a directory", "name the log file in it") from None
        is_refused = isinstance(error, PermissionError)
        hint = f"sudo cat {shlex.quote(str(path))} | sparkctl diagnose -" if is_refused else "name a log file or a pipe"
        raise InvalidInput(f"{path} cannot be read: {error.strerror or error}", hint) from None
    with file:
        state = os.fstat(file.fileno())
        yield _BoundedSource(file, state.st_size) if stat.S_ISREG(state.st_mode) else _PipeSource(file)


def _advise_on_missing_file(path: Path) -> str:
    try:
        return f"check the path: it was looked for in {path.absolute().parent}"
    except FileNotFoundError:
        return "the working directory was removed: change to one that exists, or give the whole path"


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


_NO_BREAK_SPACE = "\u00a0".encode()


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
        if (
            b"\xa0" in piece and _NO_BREAK_SPACE in piece
        ):  # of a browser's page; one byte is found in a tenth of the time
            piece = piece.replace(_NO_BREAK_SPACE, b" ")
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
    for piece in chain([first.removeprefix(codecs.BOM_UTF8)], pieces):
        yield _HOLE.sub(b"\n", piece) if b"\0" in piece else piece


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


_SERVICE = re.compile(
    rb"(?:\x1b\[[\d;]{0,12}m){0,3}(?P<service>\w[\w.-]{0,63}) +\| |(?P<ended>\w[\w.-]{0,63}) exited with code \d"
)
_SERVICE_SHARE = 0.8  # of the first lines, where compose wrote a log


def leave_out_other_services(blocks: Iterable[bytes], has_engine_mark: Callable[[str], bool]) -> Iterator[bytes]:
    """Yield the blocks of a compose log with an empty line for each of a service beside the engine's: what fails there is not the
    engine's failure. ``has_engine_mark`` tells whether an engine wrote a line; without one all lines stay."""
    rest = iter(blocks)
    head = hold_sample(rest)
    lines = [line for line in b"".join(head)[:_SAMPLE_BYTES].split(b"\n")[:-1] if line.strip()]
    found = [(line, one["service"]) for line in lines if (one := _SERVICE.match(line)) is not None]
    services = {service for _, service in found if service is not None}
    if len(services) > 1 and len(found) >= _SERVICE_SHARE * len(lines):
        services -= {name for line, name in found if name and has_engine_mark(line.decode("utf-8", "replace"))}
        if len(services) < len({name for _, name in found if name is not None}):
            yield from (_blank_services(block, services) for block in chain(head, rest))
            return
    yield from head
    yield from rest


def _blank_services(block: bytes, services: set[bytes]) -> bytes:
    return b"\n".join(
        b"" if (one := _SERVICE.match(line)) is not None and (one["service"] or one["ended"]) in services else line
        for line in block.split(b"\n")
    )


def strip_wrapping(blocks: Iterable[bytes], read_header: Callable[[str], str | None]) -> Iterator[bytes]:
    """Yield the blocks without what a collector of logs put around each line: a JSON object, or a prefix that nearly all of the
    first lines share, whatever it is.

    A prefix counts only where more lines are understood without it: ``read_header`` returns what follows where a line begins as
    the programs that are known write it, None where it does not.
    """
    rest = iter(blocks)
    head = hold_sample(rest)
    first = b"".join(head)
    lines = [line for line in first[:_SAMPLE_BYTES].decode("utf-8", "replace").split("\n")[:-1] if line.strip()]
    strips = list[Callable[[bytes], bytes]]()
    while len(strips) < _MAX_LAYERS:
        sample = lines[:_SAMPLE_LINES]
        if (strip := _find_wrapping(sample, read_header)) is None:
            break
        strips.append(strip)
        stripped = strip("".join(f"{line}\n" for line in sample).encode("utf-8", "replace"))
        lines = [line for line in stripped.decode("utf-8", "replace").split("\n") if line.strip()]
    if not strips:
        yield from head
        yield from rest
        return
    begun = b""  # of a line that goes on in the next block
    for block in chain(head, rest):
        for strip in strips:
            block = strip(block)
        whole, newline, after = (begun + block).rpartition(b"\n")
        begun = after[-_HALF_LINE_BYTES:]
        yield whole + newline
    if begun:
        yield begun + b"\n"


def hold_sample(blocks: Iterator[bytes]) -> list[bytes]:
    """Take the first blocks, as many as show what a log is like."""
    head, size = list[bytes](), 0
    for block in blocks:
        head.append(block)
        size += len(block)
        if size >= _SAMPLE_BYTES:
            break
    return head


def _find_wrapping(lines: Sequence[str], read_header: Callable[[str], str | None]) -> Callable[[bytes], bytes] | None:
    if not lines:
        return None
    if all(line.startswith("{") for line in lines[:_MIN_SAMPLE_LINES]) and any(map(_read_json_line, lines)):
        return partial(_strip_json, has_ends=any((_read_json_line(line) or "").endswith("\n") for line in lines))
    if lines[0][:1] in "[{" and sum(_PRETTY_TEXT.match(line) is not None for line in lines) >= _MIN_PRETTY_LINES:
        return _strip_pretty_json
    if _are_logfmt(lines, read_header):
        return _strip_logfmt
    if (launcher := _find_launcher_shape(lines, read_header)) is not None:
        return launcher
    if any(line.startswith('{"') and _is_logger_record(_load_line(line)) for line in lines):
        return partial(_strip_json, has_ends=True)
    if (tag := _find_tag(lines)) is not None:
        return partial(re.compile(rf"(?m)^{re.escape(tag)} ?".encode()).sub, b"")
    known, enough = 0, len(lines) * _ENOUGH_KNOWN
    for line in lines:
        known += read_header(line) is not None
        if known >= enough:
            return None
    read = [*map(read_raw_line, lines)]
    understood = sum(_read_start(text, read_header) is not None for text in read)
    best, prefix = (2 * max(known, understood), 0), None
    for pattern in _list_prefixes(lines) if len(lines) >= _MIN_SAMPLE_LINES else ():
        found = _list_rests(lines, re.compile(pattern + r"(?P<rest>.*)"))
        if found is None:
            continue
        indent = _measure_indent(found)
        rests = [rest for text in found if (rest := _read_start(text[indent:], read_header)) is not None]
        score = len(rests), -sum(map(len, rests))  # of two as good, the shorter prefix: the header is the program's own
        if rests and score > best:
            best, prefix = score, _compile_prefix(pattern, indent)
    few = known <= len(lines) * _MOST_OTHERS / 2  # a line that was cut loses its prefix
    if prefix is None and few and (found := _list_shaped_rests(lines, read)) is not None:
        prefix = _compile_prefix(_SHAPE, _measure_indent(found))
    return None if prefix is None else partial(prefix.sub, b"")


# A name before each line, always the same: no time, no number, no level.
_TAG = re.compile(
    r"\[(?!(?:DEBUG|INFO|NOTICE|WARN|ERR|CRIT|FATAL))[^\W\d_][^\[\]\d\n]{0,40}\](?= |$)|<[A-Za-z][\w.-]{0,40}>(?= |$)",
    re.IGNORECASE,
)


def _find_tag(lines: Sequence[str]) -> str | None:
    """Return the name in brackets with which nearly all lines begin, None where there is none, or where the engines read it themselves."""
    first = _TAG.match(lines[0])
    if first is None or len(lines) < _MIN_SAMPLE_LINES or read_raw_line(f"{first[0]} x") != f"{first[0]} x":
        return None
    count = sum(line.startswith(first[0]) for line in lines)
    return first[0] if count >= len(lines) * (1 - _MOST_OTHERS) else None


def _find_launcher_shape(
    lines: Sequence[str], read_header: Callable[[str], str | None]
) -> Callable[[bytes], bytes] | None:
    """Return what removes the header of a program that passes another one's lines on, all at one level; None where it is not shown that
    these lines are another program's."""
    first = _LEVEL_SHAPE_AND_REST.match(lines[0])
    if first is None:
        return None
    level = first["level"]
    found = _list_rests(lines, _LEVEL_SHAPE_AND_REST, level)
    if found is None or not any(_read_start(text, read_header, is_in_c=False) is not None for text in found):
        return None
    return partial(_compile_prefix(_LEVEL_PREFIX.replace(_ANY_LEVEL, level), _measure_indent(found)).sub, b"")


def _list_rests(lines: Sequence[str], matcher: re.Pattern[str], level: str | None = None) -> list[str] | None:
    """Return what follows the prefix in each line that has it, None where too many have none."""
    found = [match for line in lines if (match := matcher.match(line)) is not None]
    if len(found) < len(lines) * (1 - _MOST_OTHERS):
        return None
    if level is not None and any(match["level"] != level for match in found):
        return None
    return [match["rest"] for match in found]


def _list_shaped_rests(lines: Sequence[str], read: Sequence[str]) -> list[str] | None:
    """Return what follows the columns of a collector in each line, None where too many have none, or where the lines are ``read`` as if
    there were none."""
    found = _list_rests(lines, _SHAPE_AND_REST)
    if found is None:
        return None
    rests = {read_raw_line(text).strip() for text in found}
    return found if any(text.strip() not in rests for text in read) else None


def _measure_indent(texts: Sequence[str]) -> int:
    return min((len(text) - len(text.lstrip(" ")) for text in texts if text.strip()), default=0)


def _compile_prefix(pattern: str, indent: int) -> re.Pattern[bytes]:
    end = f"(?: {{{indent}}}|(?=\\n))" if indent else ""
    return re.compile(f"(?m)^(?:{pattern}){end}".encode(), re.ASCII)


# How a program's own words begin where they have no header: an exception, a frame of a traceback; a function in C that says something.
_RAISED = re.compile(
    r"(?:[A-Za-z_][\w.]{0,100}\.)?\w{0,60}(?:Error|Exception|Interrupt)(?::|$)|  File \"[^\"]{1,300}\", line \d|  what\(\): |terminate called "
    r"|(?:CUDA|HIP|ROCm) error: |\S{1,200}:\d{1,6}: [A-Z_]{4,20}\("
)
_SAID_IN_C = re.compile(r"[a-z]\w{0,40}_\w{1,60}(?:\(\))?: |[\w./-]{1,40}: error: ")


def _read_start(text: str, read_header: Callable[[str], str | None], *, is_in_c: bool = True) -> str | None:
    """Return what follows a line's own header, or the line where it begins as a program's own words; None where it does neither."""
    rest = read_header(text)
    is_start = rest is None and (_RAISED.match(text) is not None or (is_in_c and _SAID_IN_C.match(text) is not None))
    return text if is_start else rest


_WHEN = (
    rf"(?:\d{{4}}[-/]\d\d[-/]\d\d(?:T| - | )(?:{CLOCK})|\d{{1,2}}/\d{{1,2}}/\d{{2,4}},? (?:{CLOCK})|(?:[A-Z][a-z]{{2}} )?[A-Z][a-z]{{2}} [ \d]\d"
    rf"(?:,? \d{{4}})?,? (?:{CLOCK})(?! \d{{4}})|{CLOCK}|\d{{10}}\.\d{{1,9}}|\d{{13,19}})"
)
_ZONE = rf"(?: ?(?:Z|UTC|GMT|CES?T|P[SD]T|E[SD]T|[AP]M|{ZONE_OFFSET}))?"
_ANY_LEVEL = r"(?P<level>[Dd][Ee][Bb][Uu]?[Gg]|[Ii][Nn][Ff][Oo]|[Nn]otice|NOTICE|[Ww][Aa][Rr][Nn](?:ing|ING)?|[Ee][Rr][Rr][Oo][Rr])"
# When a line was written, with or without brackets, and what a collector writes behind it: host and program, stream, labels, a path.
_STAMP = rf"[ \t|]{{0,8}}[\[(]?{_WHEN}{_ZONE}[\])]?(?: {{0,3}}[|,;>:-])?(?:[ \t]{{1,4}}|(?<=,))"
_LABELS = r'\{[A-Za-z_]\w{0,40}="[^"\n]{0,200}"(?:, ?[A-Za-z_]\w{0,40}="[^"\n]{0,200}"){0,20}\} '
_ORIGIN = (
    r"(?:(?!(?:DEBUG|INFO|WARN|ERROR|CRITICAL|FATAL)\w{0,4} )[\w.-]{1,64} (?!kernel: )[\w./@-]{1,64}(?:\[\d{1,9}\])?: "
    rf"|std(?:out|err) [FP] |(?:DEBG )?'[\w.:-]{{1,64}}' std(?:out|err) output: "
    rf"|[\w.-]{{1,64}}: (?=\{{\")|{_LABELS}"
    r"|[\w.-]{1,64}(?:/[\w.$\[\]-]{1,100}){1,6} |\d\d[OE] {0,3})"
)
# Without a time: a pod and its container, labels, a rank or a process by its number, a number of the line.
_POD = (
    r"[\w.-]{1,63}\.\d{1,5}\.[a-z0-9]{9,30}(?:@[\w.-]{1,63})? {1,60}\| "  # docker service logs
    r"|[a-z0-9][a-z0-9.-]{0,200}-[bcdfghjklmnpqrstvwxz2456789]{6,10}-[bcdfghjklmnpqrstvwxz2456789]{5} [a-z][\w.-]{0,62} "
)
_NUMBERED = r"\[\d{1,4},\d{1,4}\]<std(?:out|err)>: ?|\d{1,4}\|[\w.-]{1,60} {1,20}\| | {0,8}\d{1,7}\t|\d{1,4}: (?=\S)"
_JOB = r"[^\t\n]{1,200}\t[^\t\n]{1,200}\t(?=\d{4}-\d\d-\d\dT)"  # gh run view --log
_SHAPE = rf"{_STAMP}{_ORIGIN}?|{_JOB}|{_POD}|{_LABELS}|{_NUMBERED}"
_SHAPE_AND_REST = re.compile(f"(?:{_SHAPE})(?P<rest>.*)", re.ASCII)
# A program that logs what another one printed: a time, names and a level in any order, each in brackets or between dashes and bars.
_NAME_COLUMN = r"(?:\[?[A-Za-z_][\w.:/-]{0,60}\]?(?: {0,8}[|:-])? {1,4}){0,2}"
_LEVEL_PREFIX = (
    rf"(?:{_STAMP}(?:- )?)?(?:{_NAME_COLUMN}- )?[\[(<]?{_ANY_LEVEL}[\])>]?(?: {{0,8}}[|:-])? {{1,8}}"
    rf"(?:\[[\w.:-]{{1,60}}\] |[\w./-]{{1,60}}\.py:\d{{1,6}}:? "
    rf"|[\w.<>]{{1,100}}:[\w.<>]{{1,60}}:\d{{1,6}} - |(?![\w.]{{0,100}}(?:Error|Exception): )[\w.-]{{1,60}}: (?=[A-Z(\[]))?"
)
_LEVEL_SHAPE_AND_REST = re.compile(f"(?:{_LEVEL_PREFIX})(?P<rest>.*)", re.ASCII)
_MIN_PRETTY_LINES = 2
# A line of JSON that is written over several lines, with the text of a log's line.
_PRETTY_TEXT = re.compile(rf'\s{{1,16}}"(?:{"|".join(_LINE_KEYS)})": (?P<text>".*"),?\s*$')


_TOKENS = re.compile(r"\d+| +|[^\W\d_]+|.", re.DOTALL)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DAYS_AND_MONTHS = frozenset(("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun", *_MONTHS))
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
    return " " if text[0] == " " else "Mon" if text in _DAYS_AND_MONTHS else text


# What a program in Go writes around another one's line: time="…" level=info msg="…" key=value.
_LOGFMT_VALUE = r"(?:\"(?:[^\"\\\n]|\\.){0,400}+\"|[^\s\"]{0,400}+)"
_LOGFMT = re.compile(
    rf"(?:[\w.@]{{1,40}}={_LOGFMT_VALUE} ){{0,12}}(?:msg|message|log|line)=(?:(?P<text>\"(?:[^\"\\\n]|\\.)*+\")|(?P<word>\S*+))"
)


def _are_logfmt(lines: Sequence[str], read_header: Callable[[str], str | None]) -> bool:
    """Tell whether nearly all lines are records of this form, of which some hold another program's line: a program's own stay."""
    if "=" not in lines[0]:
        return False
    texts = [text for line in lines if (text := _find_logfmt_text(line)) is not None]
    return len(texts) >= len(lines) * (1 - _MOST_OTHERS) and any(
        _read_start(text, read_header, is_in_c=False) is not None for text in texts
    )


def _find_logfmt_text(line: str) -> str | None:
    """Return the message of a record of this form, None if the line is none."""
    found = _LOGFMT.match(line)
    if found is None or found["text"] is None:
        return None if found is None else found["word"]
    text = _load_text(found["text"])
    return text if isinstance(text, str) else found["text"][1:-1]


def _strip_logfmt(block: bytes) -> bytes:
    """Return the messages of a block of records of this form; other lines stay."""
    lines = block.decode("utf-8", "replace").split("\n")[:-1]
    texts = (line if (text := _find_logfmt_text(line)) is None else text.removesuffix("\n") for line in lines)
    return "".join(f"{text}\n" for text in texts).encode("utf-8", "replace")


def _strip_pretty_json(block: bytes) -> bytes:
    return b"".join(map(_strip_pretty_line, block.decode("utf-8", "replace").split("\n")[:-1]))


def _strip_pretty_line(line: str) -> bytes:
    """Return the text that a line of JSON holds, an empty line where it holds none."""
    found = _PRETTY_TEXT.match(line)
    text = None if found is None else _load_text(found["text"])
    return b"\n" if not isinstance(text, str) else f"{text.rstrip()}\n".encode("utf-8", "replace")


def _strip_json(block: bytes, *, has_ends: bool) -> bytes:
    """Return the texts of a block of objects. ``has_ends``: each text has its newline, unless it goes on in the next object."""
    lines = block.decode("utf-8", "replace").split("\n")[:-1]
    found = _load_lines(lines)
    texts = (line + "\n" if (text := _find_text(one)) is None else text for line, one in zip(lines, found, strict=True))
    ended = texts if has_ends else (text.removesuffix("\n") + "\n" for text in texts)
    return "".join(ended).encode("utf-8", "replace")


def _load_lines(lines: Sequence[str]) -> list[Any]:
    """Return what each line holds as JSON, None where it is none. Read at once they take a third of the time."""
    try:
        found = json.loads(f"[{','.join(lines)}]")
    except (ValueError, RecursionError):
        found = []
    return found if len(found) == len(lines) else [_load_line(line) for line in lines]


def _load_line(line: str) -> Any:
    return _load_text(line) if line.startswith("{") else None


def _load_text(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _is_logger_record(found: Any) -> bool:
    return _find_text(found) is not None and any(key in found for key in _LEVEL_KEYS)


def _read_json_line(line: str) -> str | None:
    return _find_text(_load_line(line))


def _find_text(found: Any) -> str | None:
    """Return the text that a JSON object of a line holds, with its newline; None if it is none.

    Docker's file keeps the newline of each line: without one, the next object goes on with the same line.
    """
    if not isinstance(found, dict):
        return None
    for key in _TEXT_KEYS:
        if isinstance(text := found.get(key), str):
            break
    else:
        inner = next((one for name in _OUTER_KEYS if isinstance(one := found.get(name), dict)), None)
        return _find_text(inner)
    if key == "log" and "stream" in found:
        return text
    more = [one for one in map(found.get, _TRACEBACK_KEYS) if isinstance(one, str) and one]
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


_MIN_WIDTH, _MAX_WIDTH = 40, 400  # columns of a terminal or a paste
_MIN_CUTS = 3  # different lines of exactly that length, with the next one, that go on there
_CUT_SHARE = 0.5  # of the lines of that length
_NEAR = 4  # columns: few lines end by chance as close to the width, where lines are cut
# The two parts of an exception's class that was cut.
_LAST_WORD = re.compile(r"(?<!\w)[A-Z]\w*$")
_FIRST_WORD = re.compile(r"[a-z]\w*(?=:)")
_SAME_START = 8  # characters, digits aside, by which the next line is one more of its kind and not its rest
_FILLING = " " * 12  # behind a text, up to the width
_RULE_CHARS = 3  # different ones, at most, of a line between two parts
# When a line was written, at its beginning; what another program put before it may stand there, too.
_TIMES = tuple(
    re.compile(rf"{pattern}(?P<clock>\d\d:\d\d:\d\d)(?:[.,](?P<part>\d{{1,9}}))?(?![\d:])")
    for pattern in (
        r".{0,160}?(?P<date>\d{4}-\d\d-\d\d)[T ]",
        rf".{{0,40}}?(?P<month>{'|'.join(_MONTHS)}) {{1,2}}(?P<date>\d{{1,2}})(?:, \d{{4}} @)? ",
        r".{0,60}?(?P<date>\d\d[-/]\d\d(?:[-/]\d{4})?)[- ]",
        r"\W?(?P<date>)",
    )
)
_ANY_CLOCK = re.compile(r"\d\d:\d\d:\d\d")  # it is in each
_MIN_FALLS, _FALLS_A_RISE = 4, 10  # from one line to the next, where the newest stands first
_TIME_SAMPLE_LINES = 60
_MAX_TURNED_BYTES = 64 << 20


def put_oldest_first(blocks: Iterable[bytes]) -> tuple[Iterator[bytes], Sequence[int]]:
    """Return the blocks of a log, turned round where its newest line stands first, and then the number of each line in the file, in the
    order of reading; else no numbers. Lines without a time stay after the one before them.

    What is larger than 64 MiB stays as it is: it has to be in memory.
    """
    rest = iter(blocks)
    head = hold_sample(rest)
    find_time = _find_falling_time(b"".join(head)[:_SAMPLE_BYTES].decode("utf-8", "replace").split("\n")[:-1])
    if find_time is None:
        return chain(head, rest), ()
    size = sum(map(len, head))
    for block in rest:
        head.append(block)
        size += len(block)
        if size > _MAX_TURNED_BYTES:
            return chain(head, rest), ()
    lines = b"".join(head).split(b"\n")[:-1]
    starts = [at for at, line in enumerate(lines) if not at or find_time(line.decode("utf-8", "replace")) is not None]
    numbers = [at for first, end in reversed(list(pairwise([*starts, len(lines)]))) for at in range(first, end)]
    turned = (
        b"".join(lines[at] + b"\n" for at in numbers[start : start + _TURNED_LINES])
        for start in range(0, len(lines), _TURNED_LINES)
    )
    return turned, [at + 1 for at in numbers]


_TURNED_LINES = 1000  # in a block
LineTime = tuple[int, list[int], str]  # the month if it has a name, the other figures, the part of a second


def _find_falling_time(lines: Sequence[str]) -> Callable[[str], LineTime | None] | None:
    """Return what finds the time of a line, if the times of these lines fall; None if they rise, or are too few to tell."""
    shown = [line for line in lines[:_TIME_SAMPLE_LINES] if _ANY_CLOCK.search(line) is not None]
    pattern = max(
        _TIMES, key=lambda time: sum(time.match(line) is not None for line in shown)
    )  # a collector's, or the program's own

    def find_time(line: str) -> LineTime | None:
        found = pattern.match(line)
        if found is None:
            return None
        month = found.groupdict().get("month")
        numbers = re.findall(r"\d+", f"{found['date']} {found['clock']}")
        return _MONTHS.index(month) if month else 0, [*map(int, numbers)], found["part"] or ""

    for some in (shown, lines):
        times = [time for line in some if (time := find_time(line)) is not None]
        falls = sum(after < before for before, after in pairwise(times))
        rises = sum(after > before for before, after in pairwise(times))
        if falls < _FALLS_A_RISE * rises:  # most logs end here, by their first lines
            return None
    return find_time if falls >= _MIN_FALLS else None


_MIN_PREFIX = 4  # characters: less is a quote or a mark, where not each piece has it
_MAX_PIECES = 1000  # of one line
_FRAMES = tuple("|+│┃║")  # on both sides of tables, whose lines have one length by themselves
_EDGES = tuple("─━═╭╰┌└┏┗├┣╔╚╠")  # the upper or lower edge of a frame


def join_wrapped_lines(blocks: Iterable[bytes], read_header: Callable[[str], str | None]) -> Iterator[bytes]:
    """Yield the blocks with the lines whole that were cut at one width, and an empty line for each piece that was put to one
    before it: the lines keep their numbers.

    Lines are joined only where the log's beginning shows the width: several different lines have it and go on in the next
    line (one is enough if it cuts an exception's class), and none is longer. Nothing is joined from the first longer line on.
    ``read_header``: see `strip_wrapping`.
    """
    rest = iter(blocks)
    head = hold_sample(rest)
    sample = b"".join(head)[:BLOCK_BYTES].decode("utf-8", "replace").split("\n")[:-1]
    joiner = _find_width([line.removesuffix("\r") for line in sample], read_header)
    if joiner is None:
        yield from head
        yield from rest
        return
    for block in chain(head, rest):
        yield joiner.join_block(block)
    yield joiner.take_line()


def _find_width(lines: Sequence[str], read_header: Callable[[str], str | None]) -> _Joiner | None:
    width = max(map(len, lines), default=0)
    full = {(line, after) for line, after in pairwise(lines) if _is_full(line, width)}
    near = {line.translate(DIGITS_TO_ZERO) for line in lines if width - _NEAR <= len(line) < width}
    if not _MIN_WIDTH <= width <= _MAX_WIDTH:
        return None
    is_shown = len(full) >= _MIN_CUTS and len(near) < len(full)
    for has_prefix in (False, True):
        joiner = _Joiner(width, has_prefix, read_header)
        cuts = [(line, rest) for line, after in full if (rest := joiner.find_rest(line, line, after)) is not None]
        if is_shown and len(cuts) >= max(_MIN_CUTS, len(full) * _CUT_SHARE):
            return joiner
        if any(_is_cut_class(line, rest) for line, rest in cuts):
            return joiner
    return None


def _is_cut_class(line: str, rest: str) -> bool:
    """Tell whether an exception's class begins at the end of a line and goes on in the next."""
    start, end = _LAST_WORD.search(line), _FIRST_WORD.match(rest)
    return start is not None and end is not None and (start[0] + end[0]).endswith(("Error", "Exception"))


def _is_full(line: str, width: int) -> bool:
    """Tell whether a line may have been cut: it has the width, and no table's frame, rule or filling made it so."""
    if len(line) != width or line.endswith(_FILLING) or len(set(line)) <= _RULE_CHARS:
        return False
    return not line.startswith(_EDGES) and not (line.startswith(_FRAMES) and line.endswith(_FRAMES))


class _Joiner:
    """Joins lines of ``width`` characters and what follows. ``has_prefix``: each piece has the prefix of its collector, such as
    a time; else the first one alone."""

    def __init__(self, width: int, has_prefix: bool, read_header: Callable[[str], str | None]) -> None:
        self._width = width
        self._has_prefix = has_prefix
        self._read_header = read_header
        self._pieces: list[str] = []  # of the line that may go on
        self._last = ""  # the line of the file that holds the last piece

    def join_block(self, block: bytes) -> bytes:
        """Return the block's lines joined, without its last line if that may go on, and after the one that was kept."""
        found: list[bytes] = []
        for raw in block.split(b"\n")[:-1]:
            line = raw.decode("utf-8", "surrogateescape").removesuffix("\r")
            if len(line) > self._width:
                self._width = 0  # it was not cut there
            after = self.find_rest(self._pieces[0], self._last, line) if self._pieces else None
            if after is None:
                found.append(self.take_line())
                self._pieces = [line]
            else:
                self._pieces.append(after)
            self._last = line
            if not self._goes_on(line):
                found.append(self.take_line())
        return b"".join(found)

    def take_line(self) -> bytes:
        """Return the line that was kept, with an empty one for each further piece, and forget it."""
        pieces, self._pieces = self._pieces, []
        text = "".join(pieces) + "\n" * len(pieces)
        return text.encode("utf-8", "surrogateescape")

    def _goes_on(self, line: str) -> bool:
        return len(self._pieces) < _MAX_PIECES and _is_full(line, self._width)

    def find_rest(self, first: str, last: str, after: str) -> str | None:
        """Return what the line ``after`` adds to one that began with ``first`` and reached its full width with ``last``, None if
        it is a line of its own."""
        if not after.strip() or after.startswith(_EDGES):
            return None
        text = split_raw_line(after)[1]
        prefix = min(len(after) - len(text), len(first) - len(split_raw_line(first)[1]))
        if prefix < 1 if self._has_prefix else prefix >= _MIN_PREFIX:
            return None
        rest = after[prefix:] if self._has_prefix else after
        if self._read_header(rest) is not None or rest.lstrip().startswith('File "'):
            return None
        starts = (split_raw_line(one)[1][:_SAME_START].translate(DIGITS_TO_ZERO) for one in (first, last))
        return None if text[:_SAME_START].translate(DIGITS_TO_ZERO) in starts else rest
