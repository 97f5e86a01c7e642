"""What `journal.sh` does on a node, and what its answer means."""

from __future__ import annotations

from pathlib import Path

FIRST_LINE = "# sparkctl journal 1"
PATH = "${XDG_STATE_HOME:-~/.local/state}/sparkctl/switch.json"  # as it is told to people


def script() -> bytes:
    """Return the source, for the stdin of ``sh -s -- ...``."""
    return (Path(__file__).parent / "journal.sh").read_bytes()


def writing(text: str) -> list[str]:
    """Return the argv that writes the journal."""
    return ["sh", "-s", "--", "write", text]


def removing() -> list[str]:
    """Return the argv that removes it."""
    return ["sh", "-s", "--", "remove"]


def was_done(answer: bytes) -> bool:
    """Tell whether it was written, or removed."""
    return any(line in (b"@@ written", b"@@ removed") for line in answer.splitlines())
