"""What `journal.sh` does on a node, and what its answer means."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

SCRIPT_MARKER = "# sparkctl journal 1"
NO_JOURNAL = ""  # what lies there where no journal does
JOURNAL_PATH = "${XDG_STATE_HOME:-~/.local/state}/sparkctl/switch.json"  # as it is told to people


def journal_script() -> bytes:
    """Return the source, for the stdin of ``sh -s -- ...``."""
    return (Path(__file__).parent / "switch_journal.sh").read_bytes()


class JournalWriteResult(StrEnum):
    """What the script did. ``OTHER``: nothing, since something else lies there."""

    DONE = "done"
    OTHER = "other"
    FAILED = "failed"


def write_command(text: str, over: Iterable[str] = ()) -> list[str]:
    """Return the argv that writes the journal; with ``over`` only where one of these texts lies, or `NOTHING`."""
    return ["sh", "-s", "--", "write", text, *over]


def remove_command(over: Iterable[str] = ()) -> list[str]:
    """Return the argv that removes it; ``over`` as in `writing`."""
    return ["sh", "-s", "--", "remove", *over]


def decode_result(answer: bytes) -> JournalWriteResult:
    """Return what came of it."""
    lines = answer.splitlines()
    if b"@@ written" in lines or b"@@ removed" in lines:
        return JournalWriteResult.DONE
    return JournalWriteResult.OTHER if b"@@ other" in lines else JournalWriteResult.FAILED
