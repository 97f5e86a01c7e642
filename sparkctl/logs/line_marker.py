"""Classifies lines of an engine's log: the level, and whether it is the ready line or a failure. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum

from sparkctl.engines.base import Engine, FailureWeight
from sparkctl.engines.line_preparer import LinePreparer, strip_log_prefix
from sparkctl.engines.log_rules import DIGITS_TO_ZERO, DIGITS_TO_ZERO_BYTES
from sparkctl.model.text.bounded_pattern import compile_bounded


class LogLevel(StrEnum):
    """The level in a line's own header; a line without a header (a traceback, a banner) has none."""

    DEBUG = "D"
    INFO = "I"
    WARNING = "W"
    ERROR = "E"


class LineMark(StrEnum):
    """Marks that an operator searches for. A failure is a line that one of the engine's rules knows."""

    READY = "R"
    FAILURE = "F"


_LEVELS = {
    "DEBUG": LogLevel.DEBUG,
    "INFO": LogLevel.INFO,
    "WARNING": LogLevel.WARNING,
    "ERROR": LogLevel.ERROR,
    "CRITICAL": LogLevel.ERROR,
}
_MAX_JOINED_LINES = 48  # lines, more than a preparer ever joins
_MAX_SILENT_SHAPES = 4096
_MAX_SILENT_CHARS = 1000  # of a line whose shape is remembered
LineMarks = tuple[LogLevel | None, LineMark | None]
# Headers of other programs in the container: uvicorn's INFO:     text, glog's W1120 16:25:16.286 36 a.py:1]
_FOREIGN_HEADER = re.compile(
    r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL):\s+"
    r"|(?P<letter>[IWEF])\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ [^\]\s]+:\d+\] "
)
_LEVEL_LETTERS = {"I": LogLevel.INFO, "W": LogLevel.WARNING, "E": LogLevel.ERROR, "F": LogLevel.ERROR}


def parse_level_header(text: str) -> tuple[LogLevel | None, int]:
    """Return the level in a line's header, and the header's length in characters."""
    name, rest = strip_log_prefix(text)
    level, inner = _parse_inner_header(name, rest)
    return level, len(text) - len(rest) + inner


def _parse_inner_header(name: str | None, rest: str) -> tuple[LogLevel | None, int]:
    """Return the level and length of another program's header after the engine's prefixes, if there is one."""
    level = _LEVELS.get(name or "")
    if rest[:1] in ("D", "I", "W", "E", "C", "F") and (found := _FOREIGN_HEADER.match(rest)) is not None:
        level = level or _LEVELS.get(found["level"] or "") or _LEVEL_LETTERS.get(found["letter"] or "")
        return level, found.end()
    return level, 0


class LineMarker:
    """Marks the lines of one container's log, in order: an error may span several lines.

    Without ``engine`` it knows levels only; ``ready_line`` is a regular expression for a prepared line, as in a profile.
    """

    def __init__(self, engine: Engine | None = None, ready_line: str | None = None) -> None:
        self._engine = engine
        self._is_ready: Callable[[str], object] | None = _compile_ready_line(ready_line) if ready_line else None
        self._preparer = LinePreparer()
        self._joining = 0  # lines that the preparer must see, because an error spans them
        # of lines by shape that say nothing to the engine, whatever their digits: level, characters of the prefix
        self._silent: dict[bytes, tuple[LogLevel | None, int]] = {}

    def mark_line(self, text: str) -> LineMarks:
        """Return the marks of this line (cleaned, one state of a progress bar). The last signal counts."""
        shape = text.encode("utf-8", "replace").translate(DIGITS_TO_ZERO_BYTES)
        if not self._joining and (silent := self._silent.get(shape)) is not None:
            level, start = silent
            is_ready = self._is_ready is not None and self._is_ready(text[start:])
            return level, LineMark.READY if is_ready else None
        return self._mark_new_shape(text, shape)

    def _mark_new_shape(self, text: str, shape: bytes) -> LineMarks:
        name, rest = strip_log_prefix(text)
        level, _ = _parse_inner_header(name, rest)
        mark: LineMark | None = None
        start = len(text) - len(rest)
        if self._is_silent(rest):
            if len(self._silent) >= _MAX_SILENT_SHAPES:
                self._silent.clear()
            self._silent[shape] = level, start
        if "validation error" in rest:
            self._joining = _MAX_JOINED_LINES
        if self._joining:
            self._joining -= 1
        for line in self._preparer.prepare_lines(rest) if self._joining else (rest,):
            if self._is_ready is not None and self._is_ready(line):
                mark = LineMark.READY
            signal = self._engine.classify_line(line) if self._engine is not None else None
            if signal is None or signal.failure is None:
                continue
            level = LogLevel.ERROR
            if signal.failure.weight != FailureWeight.EXCEPTION:  # a client's bad request causes an exception, too
                mark = LineMark.FAILURE
        return level, mark

    def _is_silent(self, rest: str) -> bool:
        """Tell whether no line of its shape says anything to the engine; ``rest`` is one of them, without its prefixes."""
        if "validation error" in rest or len(rest) > _MAX_SILENT_CHARS:
            return False
        if self._engine is None:
            return True
        shape = rest.translate(DIGITS_TO_ZERO)
        return self._engine.classify_line(rest) is None and not self._engine.depends_on_digits(rest, shape)


def _compile_ready_line(ready_line: str) -> Callable[[str], object] | None:
    """Return a matcher for the ready line, None for an invalid expression: a recording may hold any."""
    try:
        return compile_bounded(ready_line).search
    except ValueError:
        return None
