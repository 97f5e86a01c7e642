"""The file in which an earlier sparkctl kept its starts, a line of JSON for each: read once, and put aside."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from sparkctl.files import open_regular

_LARGEST = 16 << 20  # bytes: that sparkctl let it grow to half a MiB


def hash_legacy_file(path: Path) -> str:
    """Return a name for what is in the file. Raises OSError."""
    return hashlib.sha256(_bytes(path)).hexdigest()


def read_legacy_starts(path: Path) -> list[dict[str, Any]]:
    """Return the records, the oldest first; what is damaged is passed over. Raises OSError."""
    found = []
    for line in _bytes(path).splitlines():
        try:
            record = json.loads(line.decode(errors="replace"))
        except (ValueError, RecursionError):
            continue  # a line that a crash cut in half
        if isinstance(record, dict):
            found.append(record)
    return found


def archive_legacy_file(path: Path) -> None:
    """Put the file beside, under a name that nothing has; where that cannot be it stays, and is known by its content."""
    target, number = path.with_name(f"{path.name}.migrated"), 2
    while target.exists():
        target, number = path.with_name(f"{path.name}.migrated-{number}"), number + 1
    try:
        path.rename(target)
    except OSError:
        return


def _bytes(path: Path) -> bytes:
    try:
        with open_regular(path) as file:
            return file.read(_LARGEST)
    except FileNotFoundError:
        return b""  # another sparkctl has taken it over just now
