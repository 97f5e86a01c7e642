"""One check's outcome, before it becomes an event."""

from __future__ import annotations

from dataclasses import dataclass

from sparkctl.model.events import Severity


@dataclass(frozen=True, slots=True)
class Finding:
    """What was checked, how it is, and what mends it: a command or a sentence."""

    check: str
    severity: Severity
    message: str
    remedy: str | None = None
