"""Read the node's memory for the guard, and what each container holds of it.

Sent to the node with the guard: standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import time
from collections import deque

from sparkctl.node.agent import KernelFile, ProcessReader, find_container_id, parse_meminfo, start_reader_thread
from sparkctl.node.guard.decision import MeminfoReading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from sparkctl.node.agent import HelperChannel

    Json = dict[str, Any]

GROWTH_WINDOW_SECONDS = 8.0  # seconds over which a container's growth is measured
MAX_READ_SECONDS = 0.003  # seconds that a reading may take; a longer one was interrupted


class MemoryReader:
    """The readings for decisions, and those for receipts."""

    def __init__(self, root: str) -> None:
        self.meminfo = KernelFile(root + "/proc/meminfo")
        self.total = (parse_meminfo(self.meminfo.read())[0] or {}).get("total")
        self.readings: list[MeminfoReading] = []  # of the last second, for decisions
        self.recent: deque[list[float]] = deque(maxlen=200)  # for receipts
        self.minute: deque[list[float]] = deque(maxlen=60)

    @property
    def last_reading(self) -> MeminfoReading | None:
        """Return the last reading."""
        return self.readings[-1] if self.readings else None

    def read(self) -> MeminfoReading | None:
        """Read memory and keep the reading; None if not known."""
        for _ in range(3):  # repeat until the time of the reading is exact, because a rate is computed from it
            begun = time.monotonic()
            text = self.meminfo.read()
            now = time.monotonic()
            if now - begun < MAX_READ_SECONDS:
                break
        memory = parse_meminfo(text)[0]
        if memory is None:
            self.meminfo.retry_at = 0.0
            return None
        reading = MeminfoReading(now, memory["available"], memory["free"], memory["page_cache"], memory["swap_free"])
        old = max(0, len(self.readings) - 3)  # the last ones count however old they are: a busy node may delay reads
        self.readings = [one for at, one in enumerate(self.readings) if at >= old or now - one.at <= 1.1]
        self.readings.append(reading)
        self.recent.append([round(time.time(), 3), *reading[1:]])
        return reading

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


class ContainerMemory:
    """What each container holds, CPU and GPU side together, read every second by helper processes and threads."""

    def __init__(self, root: str, gpu: HelperChannel | None) -> None:
        processes = ProcessReader(root)
        self.gpu = gpu
        self.processes = start_reader_thread(lambda pids: {"processes": processes.read(pids)})
        self.parts = [part for part in (gpu, self.processes) if part is not None]
        self.root = root
        self.held: deque[tuple[float, dict[str, int]]] = deque(maxlen=6)
        self.taken: list[Json] = []  # the answers that the last reading is based on
        self.unlisted: dict[int, str | None] = {}
        self.has_gpus = False

    def request_readings(self, now: float) -> None:
        """Keep the last answers once all helpers have answered again, and send new requests."""
        gpus = self.gpu.answer.get("gpus") if self.gpu else None
        if (gpus is not None) != self.has_gpus:  # otherwise memory that it held all along would look like growth
            self.has_gpus = gpus is not None
            self.held.clear()
        on_gpu = sum_gpu_memory_by_pid(gpus or [])
        asked = [part for part in self.parts if not part.ended]
        answers = [part.answer for part in asked]
        is_new = len(answers) != len(self.taken) or not any(a is b for a, b in zip(answers, self.taken))  # noqa: B905
        if is_new and self.processes.answer.get("processes") is not None:
            self.taken = answers
            self.held.append((now, self.sum_by_container(on_gpu)))
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
        seen = [total[container] for at, total in self.held if now - at <= GROWTH_WINDOW_SECONDS and container in total]
        return seen[-1] - seen[0] if len(seen) > 1 else None


def sum_gpu_memory_by_pid(gpus: Sequence[Json]) -> dict[int, int]:
    """Return what each process holds on all GPUs."""
    found: dict[int, int] = {}
    for reading in gpus:
        for process in reading["processes"] or []:
            found[process["pid"]] = found.get(process["pid"], 0) + (process["memory"] or 0)
    return found
