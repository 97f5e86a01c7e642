"""What a start's log has told so far. Pure: lines in, phase, step and failures out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from sparkctl.core.own_questions import is_ours
from sparkctl.engines.base import Engine, Failure, Signal
from sparkctl.engines.lines import LinePreparer
from sparkctl.model.log import LogLine
from sparkctl.model.phase import Phase, Step
from sparkctl.model.plan import ReadyRule
from sparkctl.model.text import clean

# What engines print of every good start: optional models they lack, and their settings with words like "error" in them.
_HARMLESS = re.compile(r"^(?:Ignore import error|server_args=|non-default args|Initializing a V1)")
_SOUNDS_BAD = re.compile(r"\b(?:error|exception|fatal|failed|cannot|could not|no such|denied|killed)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Seen:
    """A line that may be evidence."""

    number: int
    text: str
    failure: Failure | None = None


@dataclass(slots=True)
class LogReader:
    """Reads one start. A phase is never left backwards: draft models load weights after graphs were captured."""

    engine: Engine
    ready: ReadyRule
    phase: Phase = Phase.STARTING
    step: Step | None = None
    ready_line_seen: bool = False
    failures: list[Seen] = field(default_factory=list)
    last_error: Seen | None = None
    latest: Seen | None = None
    _preparer: LinePreparer = field(default_factory=LinePreparer)
    _is_ready_line: Callable[[str], object] | None = None

    def __post_init__(self) -> None:
        self._is_ready_line = re.compile(self.ready.line).search if self.ready.line else None
        self.ready_line_seen = self.ready.line is None

    def read(self, lines: Iterable[LogLine]) -> bool:
        """Take in lines; return whether phase or step moved."""
        before = (self.phase, self.step, self.ready_line_seen)
        for line in lines:
            for text in self._preparer.feed(line.text):
                self._read_one(line.number, text)
        return (self.phase, self.step, self.ready_line_seen) != before

    @property
    def fatal(self) -> Seen | None:
        """The first line after which the engine cannot come up any more, even if its process lingers."""
        return next((seen for seen in self.failures if seen.failure and seen.failure.fatal), None)

    def _read_one(self, number: int, text: str) -> None:
        if is_ours(text):
            return
        if text.strip():
            self.latest = Seen(number, text)
        if self.phase is Phase.STARTING and text.strip():
            self._move(Phase.LOADING, None)
        if self._is_ready_line is not None and not self.ready_line_seen and self._is_ready_line(text):
            self.ready_line_seen = True
            self._move(Phase.WARMING, Step("first token"))
        signal = self.engine.classify(text)
        if signal is not None:
            self._take(signal, number, text)
        elif _SOUNDS_BAD.search(text) and not _HARMLESS.match(text):
            self.last_error = Seen(number, clean(text))

    def _take(self, signal: Signal, number: int, text: str) -> None:
        if signal.failure is not None:
            self.failures.append(Seen(number, clean(text), signal.failure))
        # The engine's own idea of ready is not ours: the rule's line, health and a token decide.
        phase = Phase.WARMING if signal.phase is Phase.READY else signal.phase
        if phase is not None and phase.rank >= self.phase.rank:
            self._move(phase, signal.step or (self.step if phase is self.phase else None))
        elif signal.step is not None and phase is None:
            self.step = signal.step

    def _move(self, phase: Phase, step: Step | None) -> None:
        self.phase, self.step = phase, step
