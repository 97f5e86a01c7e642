"""The node's memory for the guard: reading it, what each container holds of it, events, and dropping the page cache.

Sent to the node with the guard: standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import os
import re
import time
from collections import deque

from sparkctl.node.agent import KernelFile, ProcessReader, find_container_id, parse_meminfo, start_reader_thread
from sparkctl.node.guard.decision import (
    REFUSAL_WINDOW_SECONDS,
    MeminfoReading,
    compute_drop_pause,
    get_default_cache_below,
    is_starved_by_page_cache,
)
from sparkctl.node.kernel_log import DRIVER_REFUSAL_PATTERN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from sparkctl.node.agent import HelperChannel
    from sparkctl.node.guard.container_watch import ContainerWatch
    from sparkctl.node.guard.decision import GuardDecision
    from sparkctl.node.kernel_log import KernelLogReader

    Json = dict[str, Any]

GROWTH_WINDOW_SECONDS = 8.0  # seconds over which a container's growth is measured
REFUSAL_QUIET_SECONDS = 60.0  # seconds without a refusal after which another one is news
MAX_READ_SECONDS = 0.003  # seconds that a reading may take; a longer one was interrupted


class MemoryReader:
    """The readings for decisions, and those for receipts."""

    def __init__(self, meminfo: KernelFile, clock: Any = time) -> None:
        self.meminfo = meminfo
        self.clock = clock
        self.total = (parse_meminfo(self.meminfo.read())[0] or {}).get("total")
        self.readings: list[MeminfoReading] = []  # of the last second, for decisions
        self.recent: deque[list[float]] = deque(maxlen=200)  # for receipts
        self.minute: deque[list[float]] = deque(maxlen=60)

    @property
    def last_reading(self) -> MeminfoReading | None:
        return self.readings[-1] if self.readings else None

    def read(self) -> MeminfoReading | None:
        """Read memory and keep the reading; None if not known."""
        for _ in range(3):  # repeat until the time of the reading is exact, because a rate is computed from it
            begun = self.clock.monotonic()
            text = self.meminfo.read()
            now = self.clock.monotonic()
            if now - begun < MAX_READ_SECONDS:
                break
        memory = parse_meminfo(text)[0]
        if memory is None:
            self.meminfo.retry_at = 0.0
            return None
        reading = MeminfoReading(now, memory["available"], memory["free"], memory["page_cache"], memory["swap_free"])
        self.add_reading(reading, self.clock.time())
        return reading

    def add_reading(self, reading: MeminfoReading, unix_time: float) -> None:
        """Keep a reading, and forget those that are too old for a decision."""
        old = max(0, len(self.readings) - 3)  # the last ones count however old they are: a busy node may delay reads
        self.readings = [one for at, one in enumerate(self.readings) if at >= old or reading.at - one.at <= 1.1]
        self.readings.append(reading)
        self.recent.append([round(unix_time, 3), *reading[1:]])

    def read_available(self) -> int | None:
        """Return the bytes available now; not used for decisions."""
        return (parse_meminfo(self.meminfo.read())[0] or {}).get("available")

    def record_second(self) -> None:
        """Keep the last reading for a minute, once a second."""
        if self.recent:
            self.minute.append(self.recent[-1])

    def list_samples(self) -> list[list[float]]:
        """Return the samples of the last minute, and every reading at its end."""
        oldest = self.recent[0][0] if self.recent else 0.0
        return [row for row in self.minute if row[0] < oldest] + list(self.recent)


class DriverRefusals:
    """When the GPU's driver was refused memory, by the kernel's log. Where that cannot be read, it knows of none."""

    def __init__(self, kernel_log: KernelLogReader) -> None:
        self.kernel_log = kernel_log
        self.seen: deque[float] = deque(maxlen=64)
        self.told_at = -REFUSAL_QUIET_SECONDS

    def is_news(self, now: float) -> bool:
        """Tell whether to warn of what was seen: once, until there has been none for a minute."""
        is_told = self.told_at > now - REFUSAL_QUIET_SECONDS
        self.told_at = now
        return not is_told

    def read(self, now: float) -> None:
        """Read the new lines. They count from when they are read: the kernel's clock drifts against ours."""
        self.seen.extend(now for _, text in self.kernel_log.read_new() if DRIVER_REFUSAL_PATTERN.search(text))

    def count_since(self, began: float, now: float) -> int:
        """Return how many there were lately, since a watch began."""
        return sum(1 for at in self.seen if at > began and now - at <= REFUSAL_WINDOW_SECONDS)


class ContainerMemory:
    """What each container holds, CPU and GPU side together, read every second by helper processes and threads."""

    def __init__(self, root: str, gpu: HelperChannel | None) -> None:
        processes = ProcessReader(root)
        self.gpu = gpu
        self.processes = start_reader_thread(lambda pids: {"processes": processes.read(pids)})
        self.parts = [part for part in (gpu, self.processes) if part is not None]
        self.root = root
        self.container_totals: deque[tuple[float, dict[str, int]]] = deque(maxlen=6)
        self.taken: list[Json] = []  # the answers that the last reading is based on
        self.unlisted: dict[int, str | None] = {}
        self.has_gpus = False

    def request_readings(self, now: float) -> None:
        """Keep the last answers once all helpers have answered again, and send new requests."""
        gpus = self.gpu.answer.get("gpus") if self.gpu else None
        if (gpus is not None) != self.has_gpus:  # otherwise memory that it held all along would look like growth
            self.has_gpus = gpus is not None
            self.container_totals.clear()
        on_gpu = sum_gpu_memory_by_pid(gpus or [])
        parts = [part for part in self.parts if not part.ended]
        answers = [part.answer for part in parts]
        is_new = len(answers) != len(self.taken) or not any(a is b for a, b in zip(answers, self.taken))  # noqa: B905
        if is_new and self.processes.answer.get("processes") is not None:
            self.taken = answers
            self.container_totals.append((now, self.sum_by_container(on_gpu)))
        for part in self.parts:
            part.send_request(now, sorted(on_gpu))

    def sum_by_container(self, on_gpu: dict[int, int]) -> dict[str, int]:
        """Return what each container holds, as far as its processes are known."""
        left = dict(on_gpu)
        found: dict[str, int] = {}
        for process in self.processes.answer["processes"]:
            size = left.pop(process["pid"], 0)
            if process["container"]:
                found[process["container"]] = found.get(process["container"], 0) + (process["resident"] or 0) + size
        for pid, size in left.items():  # not among the largest of the list, but it holds memory of the GPU
            if pid not in self.unlisted:
                self.unlisted[pid] = find_container_id(self.root, pid)
            container = self.unlisted[pid]
            if container:
                found[container] = found.get(container, 0) + size
        self.unlisted = {pid: container for pid, container in self.unlisted.items() if pid in left}
        return found

    def compute_growth(self, container: str) -> int | None:
        """Return by how many bytes a container grew over the last seconds, None if not known."""
        now = time.monotonic()
        seen = [
            total[container]
            for at, total in self.container_totals
            if now - at <= GROWTH_WINDOW_SECONDS and container in total
        ]
        return seen[-1] - seen[0] if len(seen) > 1 else None


def sum_gpu_memory_by_pid(gpus: Sequence[Json]) -> dict[int, int]:
    """Return what each process holds on all GPUs."""
    found: dict[int, int] = {}
    for reading in gpus:
        for process in reading["processes"] or []:
            found[process["pid"]] = found.get(process["pid"], 0) + (process["memory"] or 0)
    return found


# -- events

MAX_EVENTS = 50


class GuardEventLog:
    """The last events. ``say`` sends a message to all clients."""

    def __init__(self, memory: MemoryReader, say: Callable[[Json], None]) -> None:
        self.memory = memory
        self.say = say
        self.last: deque[Json] = deque(maxlen=MAX_EVENTS)

    def make_event(
        self, what: str, why: str, watch: ContainerWatch | None = None, step: GuardDecision | None = None
    ) -> Json:
        now = self.memory.last_reading
        return {
            "at": round(self.memory.clock.time(), 3),
            "what": what,
            "container": watch.container if watch else None,
            "instance": watch.instance if watch else None,
            "available": now.available if now else None,
            "free": now.free if now else None,
            "rate": round(step.rate) if step and step.rate else None,
            "to_zero": round(step.to_zero, 3) if step and step.to_zero is not None else None,
            "why": why,
        }

    def publish_event(self, event: Json) -> None:
        """Keep an event and send it to all clients."""
        append_event(self.last, event)
        self.say({"kind": "event", "event": event})

    def list_watch_events(self, watch: ContainerWatch) -> list[Json]:
        """Return the events of a watch, and those of no particular watch."""
        return [one for one in self.last if one["container"] in (None, watch.container)]


def append_event(events: deque[Json], event: Json) -> None:
    """Add an event; if there are too many, remove the oldest about page cache before any about a kill or a warning."""
    if len(events) == events.maxlen:
        minor = (one for one in events if one["what"] in ("dropped", "compacted", "drop-failed"))
        events.remove(next(minor, events[0]))
    events.append(event)


# -- the page cache: dropped through a waiting `tee`, with the kernel's own counter as proof

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

    def __init__(self, vmstat: KernelFile, tees: dict[str, PrivilegedWriter], events: GuardEventLog) -> None:
        self.vmstat = vmstat
        self.tees = tees
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
        self, watch: ContainerWatch, step: GuardDecision, reading: MeminfoReading, is_loading: bool
    ) -> None:
        """Drop if a watch's decision says so, or if its weights load and page cache keeps memory from the engine."""
        below = (
            watch.cache_below if watch.cache_below is not None else get_default_cache_below(self.events.memory.total)
        )
        if step.act == "drop":
            self.request_drop(watch, reading, DROP_PAUSE_SECONDS)
        elif is_loading and step.act != "kill" and is_starved_by_page_cache(reading, below):
            self.request_drop(watch, reading, CACHE_DROP_PAUSE_SECONDS)

    def request_drop(self, watch: ContainerWatch, reading: MeminfoReading, every: float) -> None:
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

    def confirm_drop(self) -> None:
        """Report a drop once the kernel has counted it, or that it failed if the kernel does not count it."""
        reading = self.events.memory.last_reading
        if self.drop is None or reading is None:
            return
        first, before, watch, every = self.drop
        began, now = first.at, reading.at
        count = self.read_drop_count()
        if count is not None and before is not None and count > before:
            self.drop, self.pause = None, compute_drop_pause(every, first, reading)
            futile = f" and freed little; the next drop in {self.pause:.0f} s at the earliest" if self.pause else ""
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
