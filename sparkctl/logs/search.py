"""Finding lines of a book a slice at a time, so that whoever asked can do something else, or stop, in between."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sparkctl.logs.buffer import LogBuffer, get_source, is_error
from sparkctl.logs.filter_pattern import FilterPattern
from sparkctl.logs.logorder import ArrivalOrder, TimeOrder

SLICE = 512  # lines: about a millisecond
RecordSelector = Callable[[Sequence[str]], list[int]]


class IncrementalSearch:
    """The lines of a book that are wanted, as far as it was looked through; then kept up with what arrives.

    Every `step` looks at the next lines, old ones first. It is complete when it `is_done`, and again after each step
    once lines were added to the book.
    """

    def __init__(self, book: LogBuffer, select: RecordSelector) -> None:
        self._book = book
        self._select = select
        self._began = book.spool.first
        self._next = book.spool.first
        self.rows = TimeOrder()

    @property
    def is_done(self) -> bool:
        """Whether every line was looked at."""
        return self._next >= self._book.spool.end

    @property
    def fraction(self) -> float:
        """How much of it is done, 0 to 1."""
        whole = self._book.spool.end - self._began
        return 1.0 if whole <= 0 else min(1.0, (self._next - self._began) / whole)

    def search_next(self, lines: int = SLICE) -> int:
        """Look at the next lines; return how many of them are wanted."""
        start = max(self._next, self._book.spool.first)
        records = self._book.spool.read(start, start + lines)
        chosen = self._select(records)
        self._next = start + len(records)
        moments = [0] * len(chosen)
        if not isinstance(self._book.order, ArrivalOrder):
            # the moment is in the record: looked up for those lines only that are wanted
            moments = [int(records[index].partition("\t")[0][4:] or "0", 16) for index in chosen]
        self._add(moments, [start + index for index in chosen])
        self.rows.drop(self._book.spool.first)
        return len(chosen)

    def _add(self, moments: list[int], numbers: list[int]) -> None:
        """Add in runs that do not fall: a slice may hold lines of several sources."""
        begin = 0
        for at in range(1, len(moments) + 1):
            if at == len(moments) or moments[at] < moments[at - 1]:
                self.rows.add(moments[begin:at], numbers[begin:at])
                begin = at


def select_matching(patterns: Sequence[FilterPattern | None], source: int | None = None) -> RecordSelector:
    """Return what selects the records that match every pattern and are from this source (None: from any)."""

    def select(records: Sequence[str]) -> list[int]:
        chosen = list(range(len(records)))
        if source is not None:
            chosen = [index for index in chosen if get_source(records[index]) == source]
        for pattern in patterns:
            if pattern is not None and chosen:
                left = [records[index] for index in chosen]
                chosen = [chosen[index] for index in pattern.select(left)]
        return chosen

    return select


def select_errors(records: Sequence[str]) -> list[int]:
    """Select the records that are errors: a level that says so, or a failure that the engine's knowledge found."""
    return [index for index, record in enumerate(records) if record and is_error(record[0], record[1])]


def select_marks(records: Sequence[str]) -> list[int]:
    """Select ready lines and failures."""
    return [index for index, record in enumerate(records) if record and record[0] != "-"]


def select_evidence_line(source: int, line: int) -> RecordSelector:
    """Return what selects a line by its number in its own log, as a verdict names it."""
    needle = f"\t{line}\t"

    def select(records: Sequence[str]) -> list[int]:
        return [
            index
            for index, record in enumerate(records)
            if needle in record[:40] and get_source(record) == source and record.split("\t", 2)[1] == str(line)
        ]

    return select
