"""Drop the page cache: through a waiting `tee`, with the kernel's own counter as proof.

Sent to the node with the guard: standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import os
import re

from sparkctl.node.agent import KernelFile
from sparkctl.node.guard.decision import compute_drop_pause, get_default_cache_below, is_starved_by_page_cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sparkctl.node.guard.container_watch import ContainerWatch
    from sparkctl.node.guard.decision import GuardDecision, MeminfoReading
    from sparkctl.node.guard.guard_events import GuardEventLog

DROP_CACHES_PATH, COMPACT_MEMORY_PATH = "/proc/sys/vm/drop_caches", "/proc/sys/vm/compact_memory"
DROP_PAUSE_SECONDS, CACHE_DROP_PAUSE_SECONDS, DROP_PROOF_SECONDS = (
    2.0,
    5.0,
    10.0,
)  # pauses between drops, near the floor and elsewhere, until one has failed
COMPACT_PAUSE_SECONDS = 60.0
DROP_COUNT_PATTERN = re.compile(rb"^drop_pagecache (\d+)$", re.MULTILINE)


class PrivilegedWriter:
    """``tee FILE``, started once with the right to write there; a write to its pipe is a write to the file."""

    def __init__(self, sudo: list[str], path: str) -> None:
        self.path = path
        self.needs_no_sudo = not sudo
        reader, self.pipe = os.pipe()
        os.set_blocking(self.pipe, False)
        nowhere = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_WRONLY, 0) for fd in (1, 2)]
        words = [*sudo, "/usr/bin/tee", path]
        try:
            streams = [(os.POSIX_SPAWN_DUP2, reader, 0), *nowhere]
            self.pid = os.posix_spawnp(words[0], words, os.environ, file_actions=streams)
        except OSError:
            self.pid = 0
        os.close(reader)

    def is_writable(self) -> bool:
        """Tell whether it accepts writes: sudo ends at once without the right."""
        if self.pid and os.waitpid(self.pid, os.WNOHANG) != (0, 0):
            self.pid = 0
        return self.pid != 0 and (not self.needs_no_sudo or os.access(self.path, os.W_OK))

    def write(self, what: bytes) -> bool:
        """Request a write; False if that is impossible."""
        try:
            return self.pid != 0 and os.write(self.pipe, what) == len(what)
        except OSError:
            return False


class PageCacheDropper:
    """Drops the page cache for a watch; one drop ends before the next one begins."""

    def __init__(self, root: str, sudo: list[str], events: GuardEventLog) -> None:
        self.tees = {path: PrivilegedWriter(sudo, path) for path in (DROP_CACHES_PATH, COMPACT_MEMORY_PATH)}
        self.vmstat = KernelFile(root + "/proc/vmstat", long=True)
        self.events = events
        self.drop: tuple[MeminfoReading, int | None, ContainerWatch, float] | None = None
        self.pause = 0.0  # longer than usual while drops free nothing
        self.dropped_at = self.compacted_at = -COMPACT_PAUSE_SECONDS

    def get_permissions(self) -> dict[str, bool]:
        """Return what this user may do."""
        return {
            "drop": self.tees[DROP_CACHES_PATH].is_writable(),
            "compact": self.tees[COMPACT_MEMORY_PATH].is_writable(),
        }

    def drop_if_needed(
        self, watch: ContainerWatch, step: GuardDecision, reading: MeminfoReading, total: int | None
    ) -> None:
        """Drop if a watch's decision says so, or if its weights load and page cache keeps memory from the engine."""
        below = watch.cache_below if watch.cache_below is not None else get_default_cache_below(total)
        if step.act == "drop":
            self.drop_caches(watch, reading, DROP_PAUSE_SECONDS)
        elif reading.at < watch.weights_until and step.act != "kill" and is_starved_by_page_cache(reading, below):
            self.drop_caches(watch, reading, CACHE_DROP_PAUSE_SECONDS)

    def drop_caches(self, watch: ContainerWatch, reading: MeminfoReading, every: float) -> None:
        """Request a drop of the page cache, unless there was one recently or one is in progress."""
        every = max(every, self.pause)
        if self.drop is not None or reading.at - self.dropped_at < every or not self.tees[DROP_CACHES_PATH].pid:
            return
        self.dropped_at = reading.at
        before = self.read_drop_count()
        if self.tees[DROP_CACHES_PATH].write(b"3\n"):
            self.drop = (reading, before, watch, every)
        else:
            self.events.publish_event(
                self.events.make_event("drop-failed", "the process that drops the page cache takes nothing", watch)
            )

    def confirm_drop(self, now: float, reading: MeminfoReading | None) -> None:
        """Report a drop once the kernel has counted it, or that it failed if the kernel does not count it."""
        if self.drop is None or reading is None:
            return
        first, before, watch, every = self.drop
        began = first.at
        count = self.read_drop_count()
        if count is not None and before is not None and count > before:
            self.drop, self.pause = None, compute_drop_pause(every, first, reading)
            futile = f" and freed little; the next one not before {self.pause:.0f} s" if self.pause else ""
            self.events.publish_event(
                self.events.make_event("dropped", f"page cache dropped within {now - began:.1f} s{futile}", watch)
            )
            if now - self.compacted_at >= COMPACT_PAUSE_SECONDS and self.tees[COMPACT_MEMORY_PATH].write(b"1\n"):
                self.compacted_at = now
                self.events.publish_event(
                    self.events.make_event("compacted", "the kernel was asked to join free memory", watch)
                )
        elif now - began > DROP_PROOF_SECONDS:
            self.drop, self.dropped_at = None, now + COMPACT_PAUSE_SECONDS - DROP_PAUSE_SECONDS
            self.events.publish_event(
                self.events.make_event(
                    "drop-failed", f"the kernel counted no drop within {DROP_PROOF_SECONDS:.0f} s", watch
                )
            )

    def read_drop_count(self) -> int | None:
        """Return how often the kernel has dropped the page cache."""
        found = DROP_COUNT_PATTERN.search(self.vmstat.read() or b"")
        return int(found.group(1)) if found else None
