"""Finds the exceptions at the end of Python tracebacks, whatever their classes are called, also where a log is cut or wrapped."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

TRACEBACK_HEADER = "Traceback (most recent call last):"
# A class with a module ("triton.runtime.errors.OutOfResources"), or a bare one that is written as classes are ("TimeoutError",
# "OutOfResources"): not a log level, not a file, not a word of a sentence.
_EXCEPTION = re.compile(r"(?P<name>(?:[A-Za-z_]\w*+\.)*+[A-Z]\w{1,99}+)(?:: |:?$)")
_RAISED = re.compile(r"raise (?P<name>(?:[A-Za-z_]\w*+\.)*+[A-Z]\w++)\(")
FRAME_PATTERN = re.compile(r"\s+File \"[^\"]+\", line \d+, in ")
_STRING = re.compile(r"""[rRfFbB]{0,2}(?:"(?P<double>(?:[^"\\]|\\.){0,500}+)"|'(?P<single>(?:[^'\\]|\\.){0,500}+)')""")
_MARKERS = re.compile(r"[\s~^]*+$")  # the line below a source line that points at the expression
_GROUP_EDGE = re.compile(r"[\s|+-]*+(?:\d{1,4} -++)?")  # the frame that Python draws around an ExceptionGroup
ASSERTION_START = "assert "
_STATEMENT_STARTS = ("raise ", ASSERTION_START)
_MAX_FOREIGN_LINES = 20  # lines of other processes within a traceback
_MAX_SOURCE_LINES = 12  # lines of one raise statement


@dataclass(slots=True)
class TracebackReader:
    """Reads prepared lines one by one. ``raise_line``: number of the last ``raise`` statement that a traceback showed.
    ``assertion``: the ``assert`` statement above the last line, if this is a bare ``AssertionError``. ``first_line``: the number of
    the traceback's first line; ``is_open``: it began, and its exception was not read yet."""

    is_open: bool = False
    raise_line: int | None = None
    assertion: str | None = None
    first_line: int = 0
    _foreign: int = 0
    _statement: list[str] = field(default_factory=list)

    def read_line(self, number: int, text: str) -> bool:
        """Return whether this line is the last line of a traceback: the exception."""
        self.assertion = None
        if TRACEBACK_HEADER in text:
            self.is_open, self._foreign, self.raise_line, self._statement = True, 0, None, []
            self.first_line = number
            return False
        if not self.is_open:
            self.is_open = FRAME_PATTERN.match(text) is not None  # the excerpt begins within a traceback
            self.first_line = number
            self._foreign, self.raise_line, self._statement = 0, None, []
            return False
        if text[:1].isspace():
            self._read_frame_line(number, text)
            return False
        if (found := _EXCEPTION.match(text)) and not found["name"].isupper():
            if text.rstrip() == "AssertionError" and self._statement and self._statement[0].startswith("assert "):
                self.assertion = " ".join(self._statement)
            self.close()
            return True
        self._foreign += 1
        self.is_open = self._foreign <= _MAX_FOREIGN_LINES
        return False

    @property
    def is_in_statement(self) -> bool:
        """Whether the next line may go on with a ``raise`` or ``assert`` statement."""
        return self.is_open and bool(self._statement)

    def close(self) -> None:
        """Forget the traceback that is open."""
        self.is_open, self.raise_line, self._statement = False, None, []

    @property
    def cut_exception(self) -> str | None:
        """The exception of a traceback whose last line is missing, as its ``raise`` statement has it; None if there is none."""
        if not self.is_open or not self._statement:
            return None
        source = " ".join(self._statement)
        raised = _RAISED.match(source)
        said = "".join(found["double"] or found["single"] or "" for found in _STRING.finditer(source))
        return f"{raised['name']}: {said}" if raised and said else None

    def _read_frame_line(self, number: int, text: str) -> None:
        source = text.strip()
        if source.startswith(_STATEMENT_STARTS):
            self.raise_line, self._statement = number, [source]
        elif source.startswith('File "'):
            self.raise_line, self._statement = None, []
        elif self._statement and len(self._statement) < _MAX_SOURCE_LINES and not _MARKERS.match(source):
            self._statement.append(source)


def strip_group_frame(text: str) -> str:
    """Return a line without the frame that Python draws around an ``ExceptionGroup`` (``  | ValueError: x``)."""
    if "|" not in text and "+" not in text:
        return text
    stripped = text.lstrip()
    if not stripped.startswith(("|", "+ ", "+-")):
        return text
    found = _GROUP_EDGE.match(text)
    return text[found.end() :] if found else text
