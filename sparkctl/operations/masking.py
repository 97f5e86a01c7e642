"""Log lines without secrets, before anything else is done with them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from sparkctl.model.log import LogLine
from sparkctl.model.secrets import may_hold_secret, redact


def masked(lines: Sequence[LogLine], secrets: Collection[str]) -> tuple[LogLine, ...]:
    """Return the lines with secrets masked. A batch is looked through as a whole: nearly all have none."""
    if not may_hold_secret("\n".join([line.text for line in lines]), secrets):
        return tuple(lines)
    return tuple(replace(line, text=redact(line.text, secrets)) for line in lines)
