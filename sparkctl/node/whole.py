"""Whether a model's files are whole: the program that reads their headers on the node, and what its answer means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sparkctl.model.sanitize import load_json, sanitize_line

TIMEOUT = 60.0  # seconds: a hundred headers of a disk at work
_MARK = b"@@ "
_LONGEST = 300
_MOST = 20  # faults of one place


@dataclass(frozen=True, slots=True)
class WeightsCheck:
    """Of one place: how many files were found, and what is wrong with which of them, a sentence each.

    ``unread``: the names of what the user who looked has no right to read, ``.`` for the place itself; nothing is known of
    those.
    """

    place: str
    files: int
    faults: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()


def weights_check_command(places: Sequence[str]) -> list[str]:
    """Return the argv that reads the headers in these places: nothing is changed, and no weights are read."""
    program = (Path(__file__).parent / "weights_check.py").read_text(encoding="utf-8")
    return ["python3", "-IS", "-c", program, *places]


def decode_weights_check(answer: bytes) -> tuple[WeightsCheck, ...]:
    """Return what was found in each place. Raises ValueError where the program did not get to its end."""
    found, is_whole = [], False
    for line in answer.splitlines():
        if not line.startswith(_MARK):
            continue
        said = load_json(line.removeprefix(_MARK))
        if said == "end":
            is_whole = True
            continue
        faults, unread = (
            tuple(sanitize_line(str(one))[:_LONGEST] for one in said[key][:_MOST]) for key in ("faults", "unread")
        )
        found.append(WeightsCheck(str(said["place"]), int(said["files"]), faults, unread))
    if not is_whole:
        raise ValueError("it was cut short")
    return tuple(found)
