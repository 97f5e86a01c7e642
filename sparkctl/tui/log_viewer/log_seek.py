"""What a reader looks for in a log: a match, a mark, the first error, the line of a verdict, the last minute."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sparkctl.logs import search
from sparkctl.logs.logorder import LineOrder
from sparkctl.logs.logsight import LogFilter
from sparkctl.model.units import format_duration
from sparkctl.tui.log_viewer.log_navigation import LogViewPosition


class LogNavigator:
    """Takes ``place`` there as soon as ``sight`` has found it; ``say`` gets what there is to say about it."""

    def __init__(self, sight: LogFilter, place: LogViewPosition, say: Callable[[str], None]) -> None:
        self._sight, self._place, self._say = sight, place, say
        self._source, self._at = 0, 0
        self._lines: tuple[int, ...] = ()  # of what proves a verdict, and which line was gone to last

    def search_pattern(self, pattern: str, *, jump: bool) -> None:
        """Look for a pattern, and go to the nearest such line if asked to; whoever follows is nearest to the newest."""

        def arrive(rows: LineOrder) -> None:
            if len(rows):
                self._place.jump(rows, backwards=self._place.is_following, is_quiet=True)

        self._sight.set_search(pattern, arrive if jump else None)

    def go_to_match(self, *, backwards: bool) -> None:
        """Go to the next match, round the end of the log if need be."""
        found = self._sight.found
        if found is None and self._lines:
            self._at = (self._at + (-1 if backwards else 1)) % len(self._lines)
            self._prove()
        elif found is None:
            self._say("nothing is looked for yet: / finds")
        elif not len(found):
            self._say("no match" if self._sight.finding is None else "no match yet")
        else:
            self._jump(found, backwards=backwards)

    def go_to_marker(self, *, backwards: bool) -> None:
        """Go to the next ready line or failure."""

        def arrive(rows: LineOrder) -> None:
            if len(rows):
                self._jump(rows, backwards=backwards)
            else:
                self._say("no ready line and no failure among the shown lines")

        self._sight.search_once(search.select_marks, arrive)

    def first_error(self) -> None:
        """Go to the first error of the shown lines."""

        def arrive(rows: LineOrder) -> None:
            if len(rows):
                self._place.scroll_to_line(rows.key(0))
            else:
                self._say("no error among the shown lines")

        self._sight.search_once(search.select_errors, arrive)

    def go_to_evidence(self, source: int, line: int, others: Sequence[int]) -> None:
        """Go to the line that proves a verdict best; `match` goes on to the others, in the order of the log."""
        self._source, self._lines = source, tuple(sorted({line, *others}))
        self._at = self._lines.index(line)
        self._prove()

    def _prove(self) -> None:
        if len(self._lines) > 1:
            self._say(f"proof {self._at + 1} of {len(self._lines)}: n and N lead through them")
        self.go_to_line_number(self._source, self._lines[self._at])

    def go_to_line_number(self, source: int, line: int) -> None:
        """Go to a line by its number in its own log; a filter that hides it is taken away."""

        def arrive(rows: LineOrder) -> None:
            if not len(rows):
                self._say(f"line {line:,} is not in this log any more")
                return
            if not self._sight.shows(rows.key(0)):
                self._sight.set_filter("")
                if self._sight.source not in (None, source):
                    self._sight.select_source(None)
            self._place.scroll_to_line(rows.key(0))

        self._sight.search_once(search.select_evidence_line(source, line), arrive, everywhere=True)

    def go_back_seconds(self, seconds: float) -> None:
        """Go to where the last so many seconds of the log begin: those before its newest line, whatever time it is."""
        index = self._sight.since(seconds)
        if index is None:
            self._say("no line here has a time")
        else:
            self._place.scroll_to_position(self._place.layout.clamp_position((index, 0)))
            self._say(
                f"the last {format_duration(seconds)} of this log begin here" if index else "the whole log is younger"
            )

    def _jump(self, rows: LineOrder, *, backwards: bool) -> None:
        if self._place.jump(rows, backwards=backwards):
            self._say("from the end again" if backwards else "from the beginning again")
