"""The guard of a simulated Spark: the real one, with the memory, the Docker and the clock of this process."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from sparkctl.concurrency import cancel_and_wait
from sparkctl.engines.simulation.unified_memory import SWAP_TOTAL_BYTES
from sparkctl.model.text.units import GIB
from sparkctl.node.agent import encode_message
from sparkctl.node.guard.container_watch import ContainerWatch
from sparkctl.node.guard.daemon import IDLE_EXIT_SECONDS, GuardDaemon
from sparkctl.node.guard.decision import CALM_READ_SECONDS, FAST_READ_SECONDS, MeminfoReading
from sparkctl.node.guard.guard_memory import (
    COMPACT_MEMORY_PATH,
    DROP_CACHES_PATH,
    DriverRefusals,
    GuardEventLog,
    MemoryReader,
    PageCacheDropper,
)
from sparkctl.node.guard.guard_sockets import GUARD_PROTOCOL
from sparkctl.node.guard.kill_requests import DockerPoller, ReceiptStore, WatchRegistry
from sparkctl.simulator.docker_daemon import SimDockerDaemon
from sparkctl.simulator.http_server import ReadStream, SimHttpRequest, WriteStream
from sparkctl.simulator.sim_node import ByteSink, SimKernelFile, SimNode, SudoRule, open_sim_kernel_log

GUARD_DIRECTORY = "/tmp/sparkctl-guard-1000"  # noqa: S108  # of a machine that has no disk
GUARD_SOCKET = f"{GUARD_DIRECTORY}/guard.sock"
MAX_FALL_BYTES_PER_SECOND = 14 * GIB  # bytes a second at which a real KV cache is allocated; here it appears at once
TICK_SECONDS = 0.25  # in real seconds
Json = dict[str, Any]


class SimMemoryReader(MemoryReader):
    """Memory changes in jumps here. The readings between two jumps are made up: the old level first, and then a fall no
    faster than a real one, by the machine's own seconds, which pass faster than those of the operator.
    """

    def __init__(self, node: SimNode) -> None:
        self.node = node
        self.monotonic, self.time = node.clock.monotonic, node.unix_time  # it is also the guard's clock
        self.waiting: deque[MeminfoReading] = deque()
        super().__init__(SimKernelFile(node.memory.format_meminfo), self)

    def read(self) -> MeminfoReading | None:
        """Return the next of the readings that wait; without any, nothing is known."""
        if not self.waiting:
            return None
        reading, last = self.waiting.popleft(), self.waiting[-1] if self.waiting else None
        back = 0.0 if last is None else (last.at - reading.at) / self.node.pace.speed
        self.add_reading(reading, self.node.unix_time() - back)
        return reading

    def interpolate(self) -> None:
        """Make up the readings since the last one: level at first, then falling to the present value."""
        memory = self.node.memory
        present = memory.available_bytes
        now = self.node.clock.monotonic() * self.node.pace.speed
        last = self.last_reading or self._make_reading(now - 1.0, present)
        fallen = max(0, last.available - present)
        took = max(CALM_READ_SECONDS, fallen / MAX_FALL_BYTES_PER_SECOND)
        now = max(now, last.at + took + CALM_READ_SECONDS)
        for back in (CALM_READ_SECONDS, 0.0):
            if now - took - back > last.at:
                self.waiting.append(self._make_reading(now - took - back, last.available))
        count = max(1, int(took / CALM_READ_SECONDS))
        for step in range(1, count + 1):
            at = now - took + took * step / count
            self.waiting.append(self._make_reading(at, last.available - fallen * step // count))
        self.waiting += [self._make_reading(now + FAST_READ_SECONDS * step, present) for step in (1, 2)]

    def _make_reading(self, at: float, available: int) -> MeminfoReading:
        memory = self.node.memory
        return MeminfoReading(at, available, memory.free_bytes, memory.file_cache_bytes, SWAP_TOTAL_BYTES)


class SimReceiptStore(ReceiptStore):
    """Receipts in a directory of the simulation. Nothing takes time here, so there is no reaction time."""

    def build_receipt(self, *given: Any) -> Json:
        """Return the receipt without a reaction time."""
        return dict(super().build_receipt(*given), reaction=None)


class SimDockerPoller(DockerPoller):
    """Knows at once what runs."""

    def __init__(self, guard: SimGuard) -> None:
        super().__init__("", every=0.0)
        self.guard = guard
        self.is_responding = True

    def open_connections(self) -> None:
        """Do nothing: there is no socket."""

    def poll_next_watch(self, now: float, watches: WatchRegistry) -> None:
        """Report what has ended."""
        for watch in watches:
            if watch.container not in self.guard.docker.running:
                self.guard.daemon.kills.handle_container_end(watch, "the container has ended")

    def poll_health(self, now: float, watches: WatchRegistry) -> None:
        """Do nothing: the simulation asks its engines in its own loop."""

    def send_kill(self, watch: ContainerWatch, now: float) -> bool:
        """Kill its process; the answer comes when it has ended."""
        process = self.guard.docker.running.get(watch.container)
        if process is not None:
            process.kill()
        self.guard.answer_soon(process.container.ended if process is not None else None)
        return True


def open_tee(write: Callable[[int], None] | None) -> Any:
    """Return ``tee`` for one of the kernel's files; None: this user may not write there."""
    return SimpleNamespace(
        pid=int(write is not None),
        is_writable=lambda: write is not None,
        write=lambda what: write is not None and write(int(what)) is None,
    )


class SimGuardDaemon(GuardDaemon):
    """Asks simulated downloads."""

    docker_daemon: SimDockerDaemon

    def mark_loading(self) -> None:
        """Have them wait."""
        self.docker_daemon.hold_downloads_back()


class SimGuard:
    """One per node. It runs from its first start until it is not needed; ``place``: where its receipts lie.

    ``is_hung``: as after kill -STOP: connections are accepted, but not answered.
    """

    def __init__(self, node: SimNode, docker: SimDockerDaemon, place: Path) -> None:
        self.node = node
        self.docker = docker
        self.place = place
        self.is_running = False
        self.is_hung = False
        self.clients: list[WriteStream] = []
        self.daemon = self._open_daemon()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_reading = False
        node.memory.on_change = self.check_memory

    def _open_daemon(self) -> GuardDaemon:
        self.memory = SimMemoryReader(self.node)
        events = GuardEventLog(self.memory, self._broadcast)
        drop = self.node.memory.drop_caches if self.node.options.sudo is SudoRule.ALLOWED else None
        tees = {DROP_CACHES_PATH: open_tee(drop), COMPACT_MEMORY_PATH: open_tee(None)}
        caches = PageCacheDropper(SimKernelFile(self.node.format_vmstat), tees, events)
        self.place.mkdir(exist_ok=True)
        receipts = SimReceiptStore(str(self.place), self.memory, events)
        refusals = DriverRefusals(open_sim_kernel_log(self.node))
        clients: Any = self.clients
        holdings: Any = SimpleNamespace(request_readings=lambda now: None, compute_growth=lambda container: None)
        daemon = SimGuardDaemon(caches, clients, holdings, receipts, SimDockerPoller(self), refusals, IDLE_EXIT_SECONDS)
        daemon.docker_daemon = self.docker
        return daemon

    def start(self, stdout: ByteSink) -> None:
        """Run the start command: print where the guard listens."""
        message = {"kind": "guard", "socket": GUARD_SOCKET, "already": self.is_running}
        if not self.is_running:
            self.is_running = True
            self.daemon = self._open_daemon()
            self.daemon.is_locked = True
            self.check_memory()
            self._begin_task(self._run())
        stdout.write(encode_message({**message, "pid": 3100}))

    def list_directory(self) -> bytes:
        """Return the content of its directory: the directory, the socket, the receipts."""
        own = [f"@@ own {'T' if self.is_hung else 'S'}"] if self.is_running else []
        lines = [*own, f"@@ dir {GUARD_DIRECTORY}", *(["@@ socket"] if self.is_running else [])]
        receipts = self.daemon.receipts
        lines += [json.dumps(receipts.read(short)) for short in receipts.list_ids()]
        return "".join(f"{line}\n" for line in [*lines, "@@ end"]).encode()

    async def serve_client(self, reader: ReadStream, writer: WriteStream) -> None:
        """Serve one client until it leaves."""
        client: Any = writer  # a client is only compared with others
        self.clients.append(writer)
        rest = b""
        try:
            while data := await reader.read(65536):
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    while self.is_hung:  # noqa: ASYNC110  a test sets it
                        await asyncio.sleep(TICK_SECONDS)
                    self._send_message(writer, self.daemon.answer_command(line, client))
                    self.check_memory()
                await writer.drain()
        except OSError:
            pass
        finally:
            self.clients.remove(writer)
            self.daemon.watches.release_client(client)
            writer.close()

    def _broadcast(self, message: Json) -> None:
        for writer in self.clients:
            with suppress(OSError):
                self._send_message(writer, message)

    def _send_message(self, writer: WriteStream, message: Json) -> None:
        line = json.dumps({"guard": GUARD_PROTOCOL, **message}, separators=(",", ":"))
        writer.write(line.encode() + b"\n")

    async def close(self) -> None:
        """End with the node."""
        self.node.memory.on_change = None
        await cancel_and_wait(self._tasks)

    def check_memory(self) -> None:
        """Let it read the present memory, through the readings that led to it."""
        if not self.is_running or self._is_reading:  # its own drop changes memory, too
            return
        self._is_reading = True
        self.memory.interpolate()
        while self.memory.waiting:
            self.daemon.look_at = 0.0
            self.daemon.read_memory()
            self.daemon.caches.confirm_drop()
        self._is_reading = False

    def answer_soon(self, ended: asyncio.Event | None) -> None:
        """Answer the request to kill a container as Docker does: once it has ended, or that it is not there."""

        async def answer() -> None:
            if ended is not None:
                await ended.wait()
            self.daemon.kills.handle_response(404 if ended is None else 204, b"{}", self.node.clock.monotonic())

        self._begin_task(answer())

    def _begin_task(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._end_task)

    def _end_task(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.result()  # an error surfaces in the loop's handler, when it happens

    async def _run(self) -> None:
        while self.daemon.is_needed(self.node.clock.monotonic()):
            await asyncio.sleep(TICK_SECONDS)
            self.check_memory()
            self.daemon.tick_at = 0.0
            self.daemon.run_periodic()
            for watch in self.daemon.watches:
                await self._ask_engine(watch)
        self.is_running = False

    async def _ask_engine(self, watch: ContainerWatch) -> None:
        """Ask an engine that loads, and has no client attached, whether it is ready."""
        if watch.client is not None or watch.role != "loading" or watch.port is None or watch.health is None:
            return
        handler = self.node.ports.get(watch.port)
        request = SimHttpRequest(method="GET", path=watch.health, query={}, headers={}, body=b"")
        reply = None if handler is None else await handler(request)
        watch.healthy = watch.healthy + 1 if reply is not None and 200 <= reply.status < 300 else 0
        if watch.healthy >= 2:
            self.daemon.watches.end_watch(watch, "it is ready, and nobody is attached")
