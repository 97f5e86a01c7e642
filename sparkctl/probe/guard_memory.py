"""The node's memory as the guard reads it, and what each container holds of it.

Travels beside `guard.py`: standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import time
from collections import deque

from sparkctl.probe.agent import Processes, Source, memory_of, start_thread
from sparkctl.probe.guard_rule import Reading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sparkctl.probe.agent import Part

PROMPT = 0.003  # seconds that a reading may take; one that takes longer was interrupted


class Memory:
    """What is decided on, and what receipts tell of it."""

    def __init__(self, root: str) -> None:
        self.meminfo = Source(root + "/proc/meminfo")
        self.total = (memory_of(self.meminfo.read())[0] or {}).get("total")
        self.readings: list[Reading] = []  # of the last second: what is decided on
        self.recent: deque[list[float]] = deque(maxlen=200)  # as receipts tell them
        self.minute: deque[list[float]] = deque(maxlen=60)

    @property
    def now(self) -> Reading | None:
        """Return the last reading."""
        return self.readings[-1] if self.readings else None

    def read(self) -> Reading | None:
        """Read it and keep it; None where it is not known."""
        for _ in range(3):  # until it is known when it was read: a rate is taken from it
            begun = time.monotonic()
            text = self.meminfo.read()
            now = time.monotonic()
            if now - begun < PROMPT:
                break
        memory = memory_of(text)[0]
        if memory is None:
            self.meminfo.retry_at = 0.0
            return None
        reading = Reading(now, memory["available"], memory["free"], memory["page_cache"], memory["swap_free"])
        old = max(0, len(self.readings) - 3)  # the last ones count however old they are: a node may let us read seldom
        self.readings = [one for at, one in enumerate(self.readings) if at >= old or now - one.at <= 1.1]
        self.readings.append(reading)
        self.recent.append([round(time.time(), 3), *reading[1:]])
        return reading

    def available(self) -> int | None:
        """Return what is available at this moment; it is not decided on."""
        return (memory_of(self.meminfo.read())[0] or {}).get("available")

    def keep_one(self) -> None:
        """Keep the last reading for a minute: once a second."""
        if self.recent:
            self.minute.append(self.recent[-1])

    def samples(self) -> list[list[float]]:
        """Return the last minute, its end with every reading."""
        oldest = self.recent[0][0] if self.recent else 0.0
        return [row for row in self.minute if row[0] < oldest] + list(self.recent)


class Holdings:
    """What each container holds, CPU and GPU side together, asked every second in parts of their own."""

    def __init__(self, root: str, gpu: Part | None) -> None:
        processes = Processes(root)
        self.gpu = gpu
        self.processes = start_thread(lambda pids: {"processes": processes.read(pids)})
        self.parts = [part for part in (gpu, self.processes) if part is not None]
        self.held: deque[dict[str, int]] = deque(maxlen=6)
        self.has_gpus = False

    def ask(self, now: float) -> None:
        """Ask for another reading, and keep what the last one brought."""
        on_gpu: dict[int, int] = {}
        gpus = self.gpu.answer.get("gpus") if self.gpu else None
        if (gpus is not None) != self.has_gpus:  # what it held all along would look like growth
            self.has_gpus = gpus is not None
            self.held.clear()
        for reading in gpus or []:
            for process in reading["processes"] or []:
                on_gpu[process["pid"]] = on_gpu.get(process["pid"], 0) + (process["memory"] or 0)
        total: dict[str, int] = {}
        for process in self.processes.answer.get("processes") or []:
            if process["container"]:
                both = (process["resident"] or 0) + on_gpu.get(process["pid"], 0)
                total[process["container"]] = total.get(process["container"], 0) + both
        self.held.append(total)
        for part in self.parts:
            part.ask(now, sorted(on_gpu))

    def grown(self, container: str) -> int | None:
        """Return by how many bytes it grew over the last seconds, None where it was not seen."""
        seen = [total[container] for total in self.held if container in total]
        return seen[-1] - seen[0] if seen else None
