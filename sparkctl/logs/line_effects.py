"""Tells which lines of a log change nothing that is known of it, so that they need not be read one by one. Pure.

A log of 300,000 lines holds some thousand different ones, digits aside. Each is judged once, by its shape: the line with
every digit as 0. What a line says is looked for in its shape in the same notation, so a judgement holds for all lines of a shape.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import cache, lru_cache
from itertools import islice, repeat

from sparkctl.engines import engine_names, load_engine
from sparkctl.engines.base import Engine
from sparkctl.engines.line_preparer import MAX_LINE_LENGTH, VALIDATION_MESSAGES, prepare_text
from sparkctl.engines.log_rules import DIGITS_TO_ZERO, DIGITS_TO_ZERO_BYTES
from sparkctl.logs.line_patterns import (
    ACCESS_LINE,
    ACCESS_LINE_STARTS,
    ASSERTION_START,
    CAUSES_HEADER,
    CHAIN_STARTS,
    DURATION_WORDS,
    ERROR_LEVELS,
    FRAME_PATTERN,
    FRAME_START,
    LOGGING_ERROR,
    MODEL_CONFIG_READ,
    PACKAGE_VERSION,
    PRINTED_VERSION,
    RELOADS,
    SELF_KILLS,
    SHUTDOWN_PHRASES,
    STOP_REQUESTS,
    TRACEBACK_HEADER,
    TRACEBACK_STARTS,
    find_frame_step,
    is_below_error,
    is_module_frame,
    is_own_request,
    is_quoted,
    is_settings_frame,
    looks_like_error,
    match_compiler_frame,
    match_reader_frame,
    says_it_is_done,
    says_it_listens,
    says_it_tries_again,
    split_prefix,
    strip_broken_colour_codes,
)
from sparkctl.model.launch_plan import REQUEST_MARK
from sparkctl.model.text.sanitize import ESCAPE_SEQUENCE, sanitize_line

_MAX_SHAPE_BYTES = 24 << 20  # of all shapes that are known
_BYTES_BESIDE_SHAPE = 128  # that a known shape takes, its text aside
_MAX_WORK_SHAPE = 400  # bytes; figures of an engine at work are shorter than a client's text mostly
_KNOWN_LINES = 4096


class LineEffect(IntEnum):
    """What a line changes."""

    INVISIBLE = 1  # nothing: it has no text, or is a question of ours
    REMEMBERED = 2  # it is the last line so far, no more
    REQUEST = 3  # somebody asked a server; it matters until the engine is ready
    WORK = 4  # an engine at work; it matters until that is known
    MATTERS = 5  # it may change anything: read it
    OPENS = 6  # and another engine may begin with it
    UNKNOWN = 7  # not judged yet


def get_shapes(block: bytes) -> list[bytes]:
    """Return the shape of each line of a block."""
    return block.translate(DIGITS_TO_ZERO_BYTES).split(b"\n")[:-1]


@cache
def compile_effect_run(most: int) -> Callable[[bytes, int], re.Match[bytes] | None]:
    """Return a matcher for lines, each given by its effect as a byte, that change no more than ``most``."""
    return re.compile(b"[%c-%c]*+" % (LineEffect.INVISIBLE, most)).match


@cache
def list_run_starts(engine: Engine) -> tuple[str, ...]:
    """Return the beginnings of lines with which a run begins."""
    return (*engine.signs.begins, *RELOADS)


@cache
def list_turning_points(engine: Engine) -> tuple[str, ...]:
    """Return the beginnings of lines with which a run, a stop, a traceback or a list of causes begins."""
    ends = (*STOP_REQUESTS, *SHUTDOWN_PHRASES, *SELF_KILLS)
    return (*list_run_starts(engine), *engine.signs.loads, *TRACEBACK_STARTS, CAUSES_HEADER, *ends)


# A byte holds the effect of a line outside of tracebacks, and in its higher half that in one.
_IN_TRACEBACK_BITS = 4
_EFFECTS_BY_PLACE = tuple(
    bytes(code >> bits & (1 << _IN_TRACEBACK_BITS) - 1 for code in range(256)) for bits in (0, _IN_TRACEBACK_BITS)
)
_UNKNOWN_EFFECTS = LineEffect.UNKNOWN | LineEffect.UNKNOWN << _IN_TRACEBACK_BITS


def choose_effects(effects: bytes, *, in_traceback: bool) -> bytes:
    """Return of the effects of lines, as `EffectTable.list_effects` has them, those outside of tracebacks or in one."""
    return effects.translate(_EFFECTS_BY_PLACE[in_traceback])


class EffectTable:
    """The effects of the lines of one engine's log."""

    def __init__(self, engine: Engine, is_ready_line: Callable[[str], object] | None) -> None:
        self._engine = engine
        self._is_ready_line = is_ready_line
        signs = engine.signs
        self._starts = _get_text_shapes(
            (*list_turning_points(engine), *signs.standstill, *signs.served, PACKAGE_VERSION, *CHAIN_STARTS)
        )
        self._words = _get_text_shapes(
            (TRACEBACK_HEADER, LOGGING_ERROR, "validation error", *VALIDATION_MESSAGES, *DURATION_WORDS)
        )
        self._openings = list_opening_words()
        self._effects: dict[bytes, int] = {}
        self._bytes = 0  # of the shapes that are known

    def list_effects(self, shapes: Sequence[bytes]) -> bytes:
        """Return the effects of these shapes, a byte each: see `choose_effects`."""
        return bytes(map(self._effects.get, shapes, repeat(_UNKNOWN_EFFECTS)))

    def find_effect(self, shape: bytes, raw: bytes, *, in_traceback: bool) -> int:
        """Return the effect of the lines of this shape, of which ``raw`` is one."""
        if (known := self._effects.get(shape)) is not None:
            return _EFFECTS_BY_PLACE[in_traceback][known]
        if len(shape) > _MAX_WORK_SHAPE and self._is_work(raw):
            return LineEffect.WORK  # of texts of clients no two are alike
        effects = self._judge(raw)
        self._bytes += len(shape) + _BYTES_BESIDE_SHAPE
        if self._bytes > _MAX_SHAPE_BYTES:
            self._effects.clear()
            self._bytes = 0
        self._effects[shape] = effects[0] | effects[1] << _IN_TRACEBACK_BITS
        return effects[in_traceback]

    def _is_work(self, raw: bytes) -> bool:
        """Tell by the beginning of a line whether an engine at work wrote it."""
        return b"\r" not in raw[:-1] and prepare_raw_line(raw[:_MAX_WORK_SHAPE]).startswith(self._engine.signs.serving)

    def _judge(self, raw: bytes) -> tuple[LineEffect, LineEffect]:
        """Return the effect of a line outside of tracebacks, and in one."""
        text = split_raw_bytes(raw)[1]
        if "\r" in text:
            return LineEffect.MATTERS, LineEffect.MATTERS
        level, line = prepare_text(text[:MAX_LINE_LENGTH])
        effect = self._judge_traffic(line)
        if effect is None and (text.startswith("usage: ") or any(map(text.__contains__, self._openings))):
            effect = LineEffect.OPENS
        if effect is not None:
            return effect, effect
        source = line.lstrip()
        is_of_group = source.startswith(("|", "+ ", "+-"))  # the frame of an ExceptionGroup
        outside, inside = is_of_group or FRAME_START in line, is_of_group or _matters_in_traceback(text, line, source)
        effect = LineEffect.MATTERS if outside and inside else self._judge_words(line, level)
        return LineEffect.MATTERS if outside else effect, LineEffect.MATTERS if inside else effect

    def _judge_traffic(self, line: str) -> LineEffect | None:
        """Return the effect of a line without text, or of one that a server writes of its work; None of any other."""
        if not line or line.isspace():
            return LineEffect.INVISIBLE
        if REQUEST_MARK in line:
            return LineEffect.INVISIBLE if is_own_request(line) else LineEffect.MATTERS
        if line.startswith(self._engine.signs.serving):
            return LineEffect.WORK
        if line.startswith(ACCESS_LINE_STARTS) and (line[0] == "[" or ACCESS_LINE.match(line)):
            # Which version, and of gin's which status, a shape does not tell.
            return LineEffect.WORK if "POST /v" in line or line[0] == "[" else LineEffect.REQUEST
        return None

    def _judge_words(self, line: str, level: str | None) -> LineEffect:
        if level in ERROR_LEVELS and not line[0].isspace():
            return LineEffect.MATTERS
        # A third of the time that ``str.translate`` takes.
        shape = line.encode().translate(DIGITS_TO_ZERO_BYTES).decode()
        if shape.startswith(self._starts) or any(map(shape.__contains__, self._words)):
            return LineEffect.MATTERS
        if looks_like_error(line) and not is_below_error(level):
            return LineEffect.MATTERS
        if PRINTED_VERSION.match(line) or says_it_tries_again(line) or says_it_listens(line) or says_it_is_done(line):
            return LineEffect.MATTERS
        if self._engine.classify_line(line) is not None or self._engine.depends_on_digits(line, shape):
            return LineEffect.MATTERS
        is_ready = self._is_ready_line is not None and self._is_ready_line(line)
        return LineEffect.MATTERS if is_ready else LineEffect.REMEMBERED


def _matters_in_traceback(text: str, line: str, source: str) -> bool:
    """Tell whether a traceback goes on otherwise than by one more frame with this line; ``source`` is it without its indentation."""
    return (
        source is line
        or (FRAME_START in line and FRAME_PATTERN.match(line) is None)
        or source.startswith(ASSERTION_START)
        or MODEL_CONFIG_READ in source
        or match_reader_frame(source) is not None
        or is_settings_frame(source)
        or is_module_frame(source)
        or match_compiler_frame(source) is not None
        or find_frame_step(source) is not None
        or "serving" in text[:200]
    )


def split_raw_line(raw: str) -> tuple[str, str]:
    """Return the timestamp of a line of a file, empty if there is none, and the program's own line."""
    plain = raw if raw.isprintable() else ESCAPE_SEQUENCE.sub("", raw)
    return split_prefix(strip_broken_colour_codes(plain))


def decode_line(raw: bytes) -> str:
    """Return the text of a line that is not decoded yet, without the carriage return that may end it."""
    return raw.decode("utf-8", "replace").removesuffix("\r")


@lru_cache(_KNOWN_LINES)
def split_raw_bytes(raw: bytes) -> tuple[str, str]:
    """Return the same of a line that is not decoded yet."""
    return split_raw_line(decode_line(raw))


def prepare_raw_line(raw: bytes) -> str:
    """Return a line of a file as the engines read it."""
    return prepare_text(split_raw_bytes(raw)[1])[1]


def read_raw_line(raw: str) -> str:
    """Return the same of a line that is decoded."""
    return prepare_text(split_raw_line(raw)[1])[1]


_MAX_PREFIX_CHARS, _MAX_PREFIX_PARTS = 200, 16
_MAX_OTHER_LINES = 20  # of other programs within a traceback, or after its exception
_FRAME_AT_END = re.compile(r"(?P<bare>  File \"[^\"]+\", line \d+, in [\w.<>]+)\s*$")
_PREFIX_ENDS = re.compile(r"(?<=[ \]>:|)])(?! )")
_PREFIX_TOKENS = re.compile(r"\d+| +|.", re.DOTALL)
# A program that calls it less than an error goes on after it.
_BELOW_ERROR = re.compile(
    r"\b(?:DEBUG|INFO|NOTICE|WARN(?:ING)?)\b|[\[(](?:[DIW]|info|debug|warn(?:ing)?)[\])]", re.IGNORECASE
)


class TracebackPrefix:
    """Takes off what stands before the frames of a traceback and all that follows them, whatever it is: the same, digits aside.
    Other lines stay: in a log of several writers only some have a prefix."""

    def __init__(self) -> None:
        self.pattern: re.Pattern[str] | None = None  # of what the next line may have; None outside of such a traceback
        self._is_open = False  # its exception was not read yet
        self._others = 0

    def strip_line(self, raw: str) -> str:
        """Return the next line without the prefix, and without what a collector wrote behind it."""
        text = sanitize_line(raw)
        if FRAME_START in text and (prefix := _find_traceback_prefix(text)) is not None:
            self.pattern, self._is_open, self._others = prefix, True, 0
        found = None if self.pattern is None else self.pattern.match(text)
        known = len(text) - len(prepare_text(text)[1])  # of a record's header, which is not the traceback's
        if found is None or known >= found.end() < len(text):
            self._others += 1
            if not self._is_open or self._others > _MAX_OTHER_LINES:
                self.pattern = None
            return raw
        rest = text[found.end() :]
        self._is_open = rest[:1] in ("", " ", "|", "+") or TRACEBACK_HEADER in rest
        self._others = 0 if self._is_open else self._others + 1
        if self._others > _MAX_OTHER_LINES:
            self.pattern = None
        return split_raw_line(rest)[1]


def _find_traceback_prefix(line: str) -> re.Pattern[str] | None:
    """Return a matcher for what stands before a frame of a traceback; None where that is nothing, or is known, or the line is none."""
    if FRAME_PATTERN.match(prepare_text(line)[1]) or (frame := _FRAME_AT_END.search(line)) is None:
        return None
    head = line[: frame.start()]
    if not head.strip() or len(head) > _MAX_PREFIX_CHARS or is_quoted(line) or _BELOW_ERROR.search(head):
        return None
    for at in [*(end.start() for end in islice(_PREFIX_ENDS.finditer(head), _MAX_PREFIX_PARTS)), len(head)]:
        if read_raw_line(line[at:]).startswith(frame["bare"]):
            return _compile_prefix(line[:at])
    return None


def _compile_prefix(text: str) -> re.Pattern[str]:
    """Return a matcher for a prefix with any digits, whose last blanks are missing where the line has nothing else."""
    tokens = _PREFIX_TOKENS.findall(text.rstrip(" "))
    parts = (r"\d+" if token.isdecimal() else " +" if token[0] == " " else re.escape(token) for token in tokens)
    return re.compile(f"{''.join(parts)}(?:{' ' * (len(text) - len(text.rstrip(' ')))}| *$)")


def _get_text_shapes(texts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple({text.translate(DIGITS_TO_ZERO): None for text in texts})


@cache
def list_opening_words() -> tuple[str, ...]:
    """Return texts of which a line that does not begin with ``usage:`` contains one where the run of an engine begins."""
    engines = (load_engine(name) for name in engine_names())
    begins = [begin for one in engines if one.signs.marks for begin in one.signs.begins]
    return (*begins, ": error: ", "error: invalid argument: ")
