"""Receipts: what the guard did and why, with the memory before and after, one file per container.

Sent to the node with the guard: standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time

from sparkctl.node.guard.container_watch import IDENTITY_FIELDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from sparkctl.node.guard.container_watch import ContainerWatch
    from sparkctl.node.guard.decision import MeminfoReading
    from sparkctl.node.guard.guard_events import GuardEventLog
    from sparkctl.node.guard.memory_reader import MemoryReader

    Json = dict[str, Any]

MAX_RECEIPTS, MAX_RECEIPT_AGE_SECONDS = 10, 24 * 3600.0
RESERVED_BYTES = 1 << 16
RECEIPT_NAME_PATTERN = re.compile(r"receipt-([0-9a-f]{12})\.json")


class ReceiptStore:
    """The receipts in ``place``, and prepared draft files with reserved disk space."""

    def __init__(self, place: str, memory: MemoryReader, events: GuardEventLog) -> None:
        self.place = place
        self.memory = memory
        self.events = events

    def get_receipt_path(self, short: str) -> str:
        """Return the path of a receipt."""
        return f"{self.place}/receipt-{short}.json"

    def get_draft_path(self, watch: ContainerWatch) -> str:
        """Return the path of the draft file, which becomes the receipt by a rename."""
        return f"{self.place}/draft-{watch.container[:12]}"

    def reserve_draft(self, watch: ContainerWatch) -> None:
        """Create the draft file and reserve its disk space."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            watch.receipt = os.open(self.get_draft_path(watch), flags, 0o600)
            os.posix_fallocate(watch.receipt, 0, RESERVED_BYTES)
        except OSError:
            pass  # a full disk costs the receipt, not the guard

    def discard_draft(self, watch: ContainerWatch) -> None:
        """Close and remove the draft file: there is nothing to record."""
        if watch.receipt >= 0:
            os.close(watch.receipt)
            watch.receipt = -1
            with contextlib.suppress(OSError):
                os.unlink(self.get_draft_path(watch))  # noqa: PTH108

    def build_receipt(self, watch: ContainerWatch, event: Json, floor: int, sent_at: float) -> Json:
        """Return the receipt as far as it is known when the request has been sent."""
        readings = self.memory.readings
        crossed_at = compute_floor_crossing_time(floor, readings)
        return {
            **{name: getattr(watch, name) for name in (*IDENTITY_FIELDS, "role")},
            **{name: event[name] for name in ("at", "why", "rate", "to_zero")},
            "did": "killed",
            "floor": floor,
            "available": readings[-1].available,
            "reaction": None if crossed_at is None else round(sent_at - crossed_at, 4),
            "answer": None,
            "samples": self.memory.list_samples(),
            "events": self.events.list_watch_events(watch),
        }

    def write(self, watch: ContainerWatch, receipt: Json) -> None:
        """Write the receipt into the draft file and rename it, so that nobody reads an incomplete one."""
        if watch.receipt < 0:
            self.reserve_draft(watch)
        if watch.receipt < 0:
            return
        text = json.dumps(receipt, separators=(",", ":")).encode("ascii", "replace")
        try:
            os.pwrite(watch.receipt, text, 0)
            os.ftruncate(watch.receipt, len(text))
            os.rename(self.get_draft_path(watch), self.get_receipt_path(watch.container[:12]))  # noqa: PTH104
        except OSError:
            pass
        os.close(watch.receipt)
        watch.receipt = -1

    def list_ids(self) -> list[str]:
        """Return the short ids of all receipts, the newest first."""
        return [short for _, short in self._list_receipts_by_age()]

    def _list_names(self) -> list[str]:
        """Return the files in the directory; none if it was removed."""
        try:
            return os.listdir(self.place)  # noqa: PTH208
        except OSError:
            return []

    def _list_receipts_by_age(self) -> list[tuple[float, str]]:
        found = []
        for name in self._list_names():
            match = RECEIPT_NAME_PATTERN.fullmatch(name)
            if match:
                with contextlib.suppress(OSError):
                    found.append((os.lstat(f"{self.place}/{name}").st_mtime, match.group(1)))
        return sorted(found, reverse=True)

    def remove_old(self, drafts: bool = False) -> None:
        """Remove receipts that are old or too many; ``drafts``: also the drafts of a guard that was killed."""
        for name in self._list_names() if drafts else ():
            if name.startswith("draft-"):
                with contextlib.suppress(OSError):
                    os.unlink(f"{self.place}/{name}")  # noqa: PTH108
        for at, (when, short) in enumerate(self._list_receipts_by_age()):
            if at >= MAX_RECEIPTS or time.time() - when > MAX_RECEIPT_AGE_SECONDS:
                self.remove(short)

    def refresh_mtime(self) -> None:
        """Update the times of the directory and its files, so that a cleaner of /tmp leaves them alone; receipts keep
        theirs.
        """
        try:
            names = os.listdir(self.place)  # noqa: PTH208
        except OSError:
            return
        for path in (
            self.place,
            *(f"{self.place}/{name}" for name in names if not RECEIPT_NAME_PATTERN.fullmatch(name)),
        ):
            with contextlib.suppress(OSError):
                os.utime(path)

    def remove(self, short: str) -> None:
        """Remove a receipt if it exists."""
        with contextlib.suppress(OSError):
            os.unlink(self.get_receipt_path(short))  # noqa: PTH108

    def read(self, short: str) -> Json | None:
        """Return a receipt, None if there is none."""
        try:
            fd = os.open(self.get_receipt_path(short), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            found = json.loads(os.read(fd, 1 << 20))
        except (OSError, ValueError, RecursionError):
            return None
        finally:
            os.close(fd)
        return found if isinstance(found, dict) else None


def compute_floor_crossing_time(floor: int, readings: Sequence[MeminfoReading]) -> float | None:
    """Return when memory crossed the floor, interpolated between two readings; None if no reading is above it.

    The last reading's time if it has not crossed the floor.
    """
    after = readings[-1]
    if after.available >= floor:
        return after.at
    for before in reversed(readings[:-1]):
        if before.available >= floor:
            share = (before.available - floor) / (before.available - after.available)
            return before.at + share * (after.at - before.at)
        after = before
    return None
