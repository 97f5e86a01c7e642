"""Parses the time of a log line: from Docker's timestamp, else from the engine's own header. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

# Used for lines without a year; a leap year has every day.
_DEFAULT_YEAR = 2000
_HEADER_PATTERN = re.compile(
    r"\[(?P<date>\d{4}-\d\d-\d\d) (?P<time>\d\d:\d\d:\d\d(?:\.\d+)?)[ \]]"  # SGLang
    r"|(?:\((?:[\w-]+ )?pid=\d+[^)]{0,40}\) ?){0,3}(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) "
    r"(?P<day>\d\d-\d\d) (?P<clock>\d\d:\d\d:\d\d(?:\.\d+)?) \["  # vLLM, without a year
    r"|\[(?P<us>\d\d/\d\d/\d{4})-(?P<hour>\d\d:\d\d:\d\d)\]"  # TensorRT-LLM
    r"|(?P<minutes>\d+)\.(?P<seconds>\d\d)\.(?P<ms>\d{3})\.\d{3} [DIWE] "  # llama-server: since its start
)


@dataclass(frozen=True, slots=True)
class LogTime:
    """``seconds`` of one ``clock``; times of different clocks cannot be compared."""

    clock: str  # docker | engine | start
    seconds: float

    def seconds_since(self, earlier: LogTime | None) -> float | None:
        """Return the seconds between the two, None if not known."""
        if earlier is None or earlier.clock != self.clock or self.seconds < earlier.seconds:
            return None
        return self.seconds - earlier.seconds


def parse_log_time(when: str, text: str) -> LogTime | None:
    """Return when a line was written. ``when``: Docker's timestamp, empty if there is none; ``text``: the raw line."""
    if when:
        return _parse_timestamp("docker", when)
    found = _HEADER_PATTERN.match(text)
    if found is None:
        return None
    if found["date"]:
        return _parse_timestamp("engine", f"{found['date']}T{found['time']}")
    if found["day"]:
        return _parse_timestamp("engine", f"{_DEFAULT_YEAR}-{found['day']}T{found['clock']}")
    if found["us"]:
        month, day, year = found["us"].split("/")
        return _parse_timestamp("engine", f"{year}-{month}-{day}T{found['hour']}")
    return LogTime("start", int(found["minutes"]) * 60 + int(found["seconds"]) + int(found["ms"]) / 1000)


def _parse_timestamp(clock: str, text: str) -> LogTime | None:
    try:
        stamp = datetime.fromisoformat(text.replace(",", "."))
        return LogTime(clock, (stamp if stamp.tzinfo else stamp.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError, OSError):
        return None
