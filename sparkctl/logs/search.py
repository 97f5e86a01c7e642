"""Search and filters over a line buffer: the patterns as typed (``text``, ``!text``, ``/regular expression/``), and the
incremental search, a slice at a time, so that the screen stays responsive."""

from __future__ import annotations

import re
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from datetime import datetime

from sparkctl.logs.buffer import (
    ArrivalOrder,
    LineKey,
    LineOrder,
    LogBuffer,
    TimeOrder,
    get_record_source,
    get_record_text,
    is_error_mark,
)
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.text.bounded_pattern import BoundedPattern, compile_bounded

SLICE_LINES = 512  # lines: about a millisecond
RecordSelector = Callable[[Sequence[str]], list[int]]


class IncrementalSearch:
    """The matching lines of a buffer as far as it was searched, then kept up to date with new lines.

    Every `search_next` reads the next lines, old ones first. It is complete when it `is_done`; new lines need another
    call.
    """

    def __init__(self, buffer: LogBuffer, select: RecordSelector) -> None:
        self._buffer = buffer
        self._select = select
        self._began = buffer.spool.first
        self._next = buffer.spool.first
        self.rows = TimeOrder()

    @property
    def is_done(self) -> bool:
        """Whether all lines were searched."""
        return self._next >= self._buffer.spool.end

    @property
    def fraction(self) -> float:
        """The searched share, 0 to 1."""
        whole = self._buffer.spool.end - self._began
        return 1.0 if whole <= 0 else min(1.0, (self._next - self._began) / whole)

    def search_next(self) -> int:
        """Search the next lines; return how many of them match."""
        start = max(self._next, self._buffer.spool.first)
        records = self._buffer.spool.read(start, start + SLICE_LINES)
        chosen = self._select(records)
        self._next = start + len(records)
        moments = [0] * len(chosen)
        if not isinstance(self._buffer.order, ArrivalOrder):
            # the time is in the record: parse it for matching lines only
            moments = [int(records[index].partition("\t")[0][4:] or "0", 16) for index in chosen]
        self._add_sorted_runs(moments, [start + index for index in chosen])
        self.rows.drop_before(self._buffer.spool.first)
        return len(chosen)

    def _add_sorted_runs(self, moments: list[int], numbers: list[int]) -> None:
        """Add lines in runs with rising times: a slice may hold lines of several sources."""
        begin = 0
        for at in range(1, len(moments) + 1):
            if at == len(moments) or moments[at] < moments[at - 1]:
                self.rows.add_lines(moments[begin:at], numbers[begin:at])
                begin = at


def select_matching(patterns: Sequence[FilterPattern | None], source: int | None) -> RecordSelector:
    """Return a selector for records that match all patterns and are from this source (None: from any)."""

    def select_records(records: Sequence[str]) -> list[int]:
        chosen = list(range(len(records)))
        if source is not None:
            chosen = [index for index in chosen if get_record_source(records[index]) == source]
        for pattern in patterns:
            if pattern is not None and chosen:
                left = [records[index] for index in chosen]
                chosen = [chosen[index] for index in pattern.select_indices(left)]
        return chosen

    return select_records


def select_errors(records: Sequence[str]) -> list[int]:
    """Select the error records: those with an error level, and failures that an engine's rule found."""
    return [index for index, record in enumerate(records) if record and is_error_mark(record[0], record[1])]


def select_marks(records: Sequence[str]) -> list[int]:
    """Select ready lines and failures."""
    return [index for index, record in enumerate(records) if record and record[0] != "-"]


def select_evidence_line(source: int, line: int) -> RecordSelector:
    """Return a selector for a line by its number in its own log, as in a verdict."""
    needle = f"\t{line}\t"

    def select_records(records: Sequence[str]) -> list[int]:
        return [
            index
            for index, record in enumerate(records)
            if needle in record[:40] and get_record_source(record) == source and record.split("\t", 2)[1] == str(line)
        ]

    return select_records


_FILTER_JOB, _SEARCH_JOB, _SINGLE_SEARCH_JOB = "narrow", "find", "look"
RowsCallback = Callable[[LineOrder], None]


class LogFilter:
    """Filter and search of a log screen. ``rows``: the shown lines, still of the old filter while a new one runs."""

    def __init__(self, buffer: LogBuffer, clock: Callable[[], float] = time.monotonic) -> None:
        self.buffer = buffer
        self.rows: LineOrder = buffer.order
        self.source: int | None = None
        self.only = ""
        self.sought = ""
        self.pattern: FilterPattern | None = None  # the search pattern
        self._only: FilterPattern | None = None
        self._shown: IncrementalSearch | None = None
        self._found: IncrementalSearch | None = None
        self._jobs: dict[str, tuple[IncrementalSearch, RowsCallback]] = {}
        self._clock = clock

    # filter and search settings

    def set_filter(self, typed: str) -> None:
        """Show only matching lines; an empty or invalid pattern shows all."""
        pattern = parse_filter(typed)
        self.only = typed
        self._only = None if pattern is None or pattern.fault else pattern
        self._apply_filter()

    def select_source(self, source: int | None) -> None:
        """Show one source, or all of them merged (None)."""
        self.source = source
        self._apply_filter()

    def set_search(self, typed: str, then: RowsCallback | None = None) -> None:
        """Search the shown lines for a pattern; an empty one ends the search. ``then`` gets the result."""
        self.sought = typed
        self.pattern = parse_filter(typed)
        self._start_search(then)

    def search_once(self, select: RecordSelector, then: RowsCallback, *, everywhere: bool = False) -> None:
        """Search once, in the shown lines or everywhere, and pass the result to ``then`` when all were searched."""
        shown = select_matching((self._only,), self.source)
        wanted = select if everywhere else _combine_selectors(shown, select)
        self._jobs[_SINGLE_SEARCH_JOB] = (IncrementalSearch(self.buffer, wanted), then)

    # the work

    def run_for(self, seconds: float) -> bool:
        """Work for about ``seconds``, at least one slice; return whether work is left."""
        until = self._clock() + seconds
        while self._jobs:
            name, (scan, then) = next(iter(self._jobs.items()))
            while not scan.is_done:
                scan.search_next()
                if not scan.is_done and self._clock() >= until:
                    return True
            del self._jobs[name]
            then(scan.rows)
        return False

    def catch_up(self) -> None:
        """Process lines added since."""
        for scan in (self._shown, self._found):
            if scan is not None and not any(scan is job for job, _ in self._jobs.values()):
                while not scan.is_done:
                    scan.search_next()

    # results

    @property
    def fault(self) -> str | None:
        """The error of an invalid pattern."""
        kept = parse_filter(self.only)
        return next((each.fault for each in (kept, self.pattern) if each is not None and each.fault), None)

    @property
    def found_rows(self) -> LineOrder | None:
        """The shown lines that match the search so far; None without a search."""
        return None if self._found is None else self._found.rows

    @property
    def filter_progress(self) -> float | None:
        """Progress of a new filter, 0 to 1; None if there is none."""
        return self._get_job_progress(_FILTER_JOB)

    @property
    def search_progress(self) -> float | None:
        """Progress of a search, 0 to 1; None if there is none."""
        return self._get_job_progress(_SEARCH_JOB)

    def find_index_since(self, seconds: float) -> int | None:
        """Return the index of the first shown line of the last ``seconds`` before the newest; None if no line
        has a time. Timestamps of stdout and stderr differ by microseconds, which does not matter here."""
        rows = self.rows
        newest = next(
            (when for at in range(len(rows) - 1, max(-1, len(rows) - 100), -1) if (when := self._get_line_time(at))),
            None,
        )
        if newest is None:
            return None
        return bisect_left(range(len(rows)), newest - seconds, key=lambda at: self._get_line_time(at) or 0.0)

    def _get_line_time(self, index: int) -> float | None:
        line = self.buffer.get_line(self.rows.get_key(index)[1])
        try:
            return None if line is None else datetime.fromisoformat(line.when).timestamp()
        except (ValueError, OverflowError, OSError):
            return None

    def is_shown(self, key: LineKey) -> bool:
        """Tell whether a line is shown."""
        at = self.rows.find_index(key)
        return at < len(self.rows) and self.rows.get_key(at) == key

    def _apply_filter(self) -> None:
        if self._only is None and self.source is None:
            self._jobs.pop(_FILTER_JOB, None)
            self._shown, self.rows = None, self.buffer.order
            self._start_search()
            return
        scan = IncrementalSearch(self.buffer, select_matching((self._only,), self.source))

        def show_filtered_rows(rows: LineOrder) -> None:
            self._shown, self.rows = scan, rows
            self._start_search()

        self._jobs[_FILTER_JOB] = (scan, show_filtered_rows)

    def _start_search(self, then: RowsCallback | None = None) -> None:
        self._jobs.pop(_SEARCH_JOB, None)
        self._found = None
        if self.pattern is not None and self.pattern.fault is None:
            self._found = IncrementalSearch(self.buffer, select_matching((self._only, self.pattern), self.source))
            self._jobs[_SEARCH_JOB] = (self._found, then or _ignore_rows)

    def _get_job_progress(self, name: str) -> float | None:
        job = self._jobs.get(name)
        return None if job is None else job[0].fraction


def _ignore_rows(rows: LineOrder) -> None:
    """Do nothing with the result."""


def find_next_line(rows: LineOrder, key: LineKey, *, backwards: bool) -> tuple[LineKey, bool]:
    """Return the line of ``rows`` (not empty) after or before ``key``, and whether the search wrapped around."""
    at = rows.find_index(key)
    if backwards:
        return rows.get_key(at - 1 if at > 0 else len(rows) - 1), at == 0
    if at < len(rows) and rows.get_key(at) == key:
        at += 1
    return rows.get_key(at if at < len(rows) else 0), at >= len(rows)


def _combine_selectors(first: RecordSelector, second: RecordSelector) -> RecordSelector:
    def select_records(records: Sequence[str]) -> list[int]:
        chosen = first(records)
        left = [records[index] for index in chosen]
        return [chosen[index] for index in second(left)]

    return select_records


_MAX_SPANS = 200  # in one line
_ESCAPED_CHARACTER = re.compile(r"\\.")


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterPattern:
    """One pattern. It ignores case (of ASCII letters), unless it has an upper-case letter.

    ``fault`` is the error of a regular expression; such a pattern matches every line.
    """

    typed: str
    is_inverted: bool
    needle: str | None = None  # None: a regular expression
    expression: re.Pattern[str] | BoundedPattern | None = None
    fault: str | None = None

    def matches(self, text: str) -> bool:
        """Tell whether a line matches."""
        return bool(self.select_indices([text]))

    def select_indices(self, records: Sequence[str]) -> list[int]:
        """Return the indices of the records whose text matches. Plain text costs about 0.2 µs a record."""
        if self.expression is None:
            return list(range(len(records)))
        search = self.expression.search
        if self.needle is None:
            hits = [index for index, record in enumerate(records) if search(get_record_text(record))]
        else:
            needle = self.needle
            if needle.lower() == needle:
                near = [index for index, record in enumerate(records) if needle in record.lower()]
            else:
                near = [index for index, record in enumerate(records) if needle in record]
            hits = [
                index for index in near if search(get_record_text(records[index]))
            ]  # the match may be in the record's header only
        if not self.is_inverted:
            return hits
        chosen = set(hits)
        return [index for index in range(len(records)) if index not in chosen]

    def find_matches(self, text: str) -> list[tuple[int, int]]:
        """Return the matches in a line, for highlighting; none for an inverted pattern."""
        if self.expression is None or self.is_inverted:
            return []
        found: list[tuple[int, int]] = []
        for match in self.expression.finditer(text):
            if match.end() > match.start():
                found.append(match.span())
            if len(found) == _MAX_SPANS:
                break
        return found


def parse_filter(typed: str) -> FilterPattern | None:
    """Return the pattern for a typed text, None for an empty one (also while it is only ``!`` or ``/``).

    A backslash at the beginning escapes the next character: ``\\!`` searches for an exclamation mark.
    """
    rest = typed
    is_inverted = rest.startswith("!")
    if is_inverted:
        rest = rest[1:]
    if rest.startswith("/"):
        inner = rest[1:]
        if inner.endswith("/") and not inner.endswith(r"\/"):
            inner = inner[:-1]
        return _compile_expression_filter(typed, is_inverted, inner) if inner else None
    if rest.startswith("\\"):
        rest = rest[1:]
    if not rest:
        return None
    # ASCII: highlighting must match `select_indices`, and str.lower pairs other letters than re does
    flags = re.NOFLAG if rest != rest.lower() else re.IGNORECASE | re.ASCII
    return FilterPattern(
        typed=typed, is_inverted=is_inverted, needle=rest, expression=re.compile(re.escape(rest), flags)
    )


def _compile_expression_filter(typed: str, is_inverted: bool, inner: str) -> FilterPattern:
    plain = _ESCAPED_CHARACTER.sub("", inner)  # \S and \W are not upper-case letters
    try:
        flags = re.NOFLAG if plain != plain.lower() else re.IGNORECASE
        return FilterPattern(
            typed=typed, is_inverted=is_inverted, needle=None, expression=compile_bounded(inner, flags)
        )
    except (re.error, ValueError) as broken:
        what = broken.msg if isinstance(broken, re.error) else str(broken)
        return FilterPattern(typed=typed, is_inverted=is_inverted, fault=what)
