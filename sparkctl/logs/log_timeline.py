"""When each part of a start began, by the stamps of a log's lines. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from sparkctl.logs.timestamps import LogTime, parse_log_time
from sparkctl.model.log_line import LogLine
from sparkctl.model.phase import Phase, PhaseDuration

_MOST_STEPS = 64  # parts


@dataclass(slots=True)
class LogPhaseTimer:
    """Lines without a stamp are taken for as late as the last one that had one and was taken in."""

    _began: list[tuple[Phase, str | None, LogTime | None]] = field(default_factory=list)
    _latest: LogTime | None = None
    _ready: LogTime | None = None

    def advance_time(self, line: LogLine) -> LogTime | None:
        """Take in that it was as late as this line by then; return when that was, None where no line has told."""
        self._latest = parse_log_time(line.when, line.text) or self._latest
        return self._latest

    def start_phase(self, phase: Phase, step: str | None, line: LogLine) -> None:
        """Take in that a part began with this line."""
        now = self.advance_time(line)
        if len(self._began) < _MOST_STEPS:
            self._began.append((phase, step, now))

    def mark_ready(self, line: LogLine) -> None:
        """Take in that the last part ended with this line."""
        self._ready = parse_log_time(line.when, line.text) or self._latest

    def has(self, step: str) -> bool:
        """Tell whether there was a part of that name."""
        return any(name == step for _, name, _ in self._began)

    @property
    def parts(self) -> tuple[PhaseDuration, ...]:
        """What each part took, as far as the stamps tell."""
        ends = [*(at for _, _, at in self._began[1:]), self._ready or self._latest][: len(self._began)]
        taken = ((p, s, end.seconds_since(began)) for (p, s, began), end in zip(self._began, ends, strict=True) if end)
        return tuple(PhaseDuration(phase, step, seconds) for phase, step, seconds in taken if seconds is not None)
