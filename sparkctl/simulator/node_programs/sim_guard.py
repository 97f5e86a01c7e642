"""The guard of a simulated Spark: the real one's protocol and decisions, on the memory of this process."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from sparkctl.engines.simulation.unified_memory import GIB, SWAP_TOTAL_BYTES, TOTAL_BYTES
from sparkctl.node import agent
from sparkctl.node.guard.container_watch import ContainerWatch, read_field
from sparkctl.node.guard.daemon import IDLE_EXIT_SECONDS, WEIGHTS_LEASE_SECONDS
from sparkctl.node.guard.decision import (
    CALM_READ_SECONDS,
    FAST_READ_SECONDS,
    RATE_WINDOW_SECONDS,
    GuardDecision,
    KillCandidate,
    MeminfoReading,
    choose_kill_candidate,
    decide_action,
    get_default_cache_below,
    is_starved_by_page_cache,
)
from sparkctl.node.guard.guard_sockets import GUARD_PROTOCOL
from sparkctl.simulator.docker_daemon import SimDockerDaemon
from sparkctl.simulator.http_server import ReadStream, SimHttpRequest, WriteStream
from sparkctl.simulator.sim_node import ByteSink, SimNode, SudoRule

GUARD_DIRECTORY = "/tmp/sparkctl-guard-1000"  # noqa: S108  # of a machine that has no disk
GUARD_SOCKET = f"{GUARD_DIRECTORY}/guard.sock"
MAX_FALL_BYTES_PER_SECOND = 14 * GIB  # bytes a second at which a real KV cache is allocated; here it appears at once
CACHE_DROP_SECONDS = 5.0
TICK_SECONDS = 0.25  # in real seconds
Json = dict[str, Any]


class SimGuard:
    """One per node, always present; it counts as running from its first start until it is not needed.

    Memory changes in jumps here. The readings between two jumps are made up: the old level first, and then a fall no
    faster than a real one. ``receipts``: the receipts on the node's disk, by short id.
    """

    def __init__(self, node: SimNode, docker: SimDockerDaemon) -> None:
        self.node = node
        self.docker = docker
        self.is_running = False
        self.is_hung = False  # as after kill -STOP: connections are accepted, but not answered
        self.since = 0.0
        self.watches: dict[str, ContainerWatch] = {}
        self.events: list[Json] = []
        self.receipts: dict[str, Json] = {}
        self._clients: list[WriteStream] = []
        self._readings: list[MeminfoReading] = [self._make_reading(0.0, node.memory.available_bytes)]
        self._recent: deque[MeminfoReading] = deque(maxlen=200)  # in the form for receipts
        self._dropped_at = -CACHE_DROP_SECONDS
        self._killed: set[str] = set()
        self._ticking: asyncio.Task[None] | None = None
        self._is_dropping = False
        node.memory.on_change = self.check_memory

    # its clients

    async def start(self, words: Sequence[str], stdin: ReadStream, stdout: ByteSink) -> None:
        """Run the start command: read all modules from stdin, print where the guard listens."""
        left = sum(int(part.rpartition(":")[2]) for part in words[0].split(",")) + int(words[1])
        while left > 0:
            taken = await stdin.read(min(left, 65536))
            if not taken:
                return
            left -= len(taken)
        message = {
            "probe": agent.AGENT_PROTOCOL,
            "kind": "guard",
            "socket": GUARD_SOCKET,
            "pid": 3100,
            "already": self.is_running,
        }
        if not self.is_running:
            self.is_running, self.since = True, self.node.unix_time()
            self._ticking = asyncio.ensure_future(self._run_ticks())
        stdout.write(_encode_json_line(message))

    def list_directory(self) -> bytes:
        """Return the content of its directory: the directory, the socket, the receipts."""
        own = [f"@@ own {'T' if self.is_hung else 'S'}"] if self.is_running else []
        lines = [*own, f"@@ dir {GUARD_DIRECTORY}", *(["@@ socket"] if self.is_running else [])]
        return "".join(f"{line}\n" for line in [*lines, *map(json.dumps, self.receipts.values()), "@@ end"]).encode()

    async def serve_client(self, reader: ReadStream, writer: WriteStream) -> None:
        """Serve one client until it leaves."""
        self._clients.append(writer)
        rest = b""
        try:
            while data := await reader.read(65536):
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    while self.is_hung:  # noqa: ASYNC110  a test sets it
                        await asyncio.sleep(TICK_SECONDS)
                    writer.write(_encode_guard_message(self._handle_line(line)))
                await writer.drain()
        except OSError:
            pass
        finally:
            self._clients.remove(writer)
            writer.close()

    async def close(self) -> None:
        """End with the node."""
        self.node.memory.on_change = None
        if self._ticking is not None:
            self._ticking.cancel()
            await asyncio.gather(self._ticking, return_exceptions=True)

    def _handle_line(self, line: bytes) -> Json:
        try:
            said = json.loads(line)
            return self._execute_command(said if isinstance(said, dict) else {})
        except ValueError as error:
            return {"kind": "refused", "what": str(error)}

    def _execute_command(self, said: Json) -> Json:
        command, now = said.get("do"), self.node.clock.monotonic()
        watch = self.watches.get(str(said.get("container")))
        if command == "watch":
            fresh = ContainerWatch(said, now)
            self.watches[fresh.container] = fresh
        elif command == "phase":
            if watch is None:
                raise ValueError("phase: no such watch")
            watch.weights_until = now + WEIGHTS_LEASE_SECONDS if read_field(said, "weights", bool) else 0.0
            self.check_memory()
        elif command == "unwatch":
            if watch is not None:
                self._end_watch(watch, read_field(said, "why", str))
        elif command == "receipt":
            return {"kind": "receipt", "receipt": self.receipts.get(str(said.get("container"))[:12])}
        elif command == "forget":
            self.receipts.pop(str(said.get("container"))[:12], None)
        elif command != "state":
            raise ValueError(f"no such command: {command!r}")
        return self._build_state(now)

    def _build_state(self, now: float) -> Json:
        last = self._readings[-1]._asdict()
        return {
            "kind": "state",
            "since": self.since,
            "pid": 3100,
            **{name: last[name] for name in ("available", "free", "page_cache", "swap_free")},
            "rights": {"drop": self.node.options.sudo is SudoRule.ALLOWED, "compact": False},
            "locked": True,
            "docker": True,
            "watches": [watch.to_json(now) for watch in self.watches.values()],
            "events": self.events[-50:],
            "receipts": list(self.receipts),
        }

    # memory and actions

    def check_memory(self) -> None:
        """Act on the present memory, through the readings that led to it."""
        if self._is_dropping:  # the guard's own drop changes memory, too
            return
        for reading in self._interpolate_readings():
            self._recent.append(reading)
            self._readings = [
                one for one in self._readings if reading.at - one.at <= RATE_WINDOW_SECONDS + CALM_READ_SECONDS
            ] + [reading]
            if self.watches and self._judge_memory():
                return

    def _interpolate_readings(self) -> list[MeminfoReading]:
        """Return the readings since the last one: level at first, then falling to the present value."""
        last, memory = self._readings[-1], self.node.memory
        fallen = max(0, last.available - memory.available_bytes)
        took = max(CALM_READ_SECONDS, fallen / MAX_FALL_BYTES_PER_SECOND)
        now = max(self.node.clock.monotonic() * self.node.pace.speed, last.at + took + CALM_READ_SECONDS)
        level = [
            self._make_reading(now - took - back, last.available)
            for back in (CALM_READ_SECONDS, 0.0)
            if now - took - back > last.at
        ]
        count = max(1, int(took / CALM_READ_SECONDS))
        falls = [
            self._make_reading(now - took + took * step / count, last.available - fallen * step // count)
            for step in range(1, count + 1)
        ]
        settled = [self._make_reading(now + FAST_READ_SECONDS * step, memory.available_bytes) for step in (1, 2)]
        return [*level, *falls, *settled]

    def _make_reading(self, at: float, available: int) -> MeminfoReading:
        memory = self.node.memory
        return MeminfoReading(at, available, memory.free_bytes, memory.file_cache_bytes, SWAP_TOTAL_BYTES)

    def _judge_memory(self) -> bool:
        """Act on the last reading; True if something was killed."""
        now = self._readings[-1]
        dying: list[tuple[ContainerWatch, GuardDecision]] = []
        for watch in list(self.watches.values()):
            may_drop = self.node.clock.monotonic() < watch.weights_until
            step = decide_action(watch.floor, self._readings, may_drop)
            if step.act != "calm" and not watch.is_warned:
                watch.is_warned = True
                self._publish_event("warned", step.why or "memory falls", watch, step)
            below = watch.cache_below if watch.cache_below is not None else get_default_cache_below(TOTAL_BYTES)
            if step.act == "kill":
                dying.append((watch, step))
            elif may_drop and (step.act == "drop" or is_starved_by_page_cache(now, below)):
                self._drop_caches(watch, now.at)
        if dying:
            self._kill_container(dying)
        return bool(dying)

    def _drop_caches(self, watch: ContainerWatch, now: float) -> None:
        if now - self._dropped_at < CACHE_DROP_SECONDS or self.node.options.sudo is not SudoRule.ALLOWED:
            return
        self._dropped_at, self._is_dropping = now, True
        try:
            self.node.memory.drop_caches(3)
        finally:
            self._is_dropping = False
        self._publish_event("dropped", "page cache dropped within 0.4 s", watch)

    def _kill_container(self, dying: list[tuple[ContainerWatch, GuardDecision]]) -> None:
        able = [watch for watch in self.watches.values() if watch.container not in self._killed]
        chosen = choose_kill_candidate(
            KillCandidate(w.container, w.role == "loading", None, w.began, w.tried) for w in able
        )
        if chosen is None:
            return
        watch = self.watches[chosen.container]
        step = next((step for one, step in dying if one is watch), dying[0][1])
        process = self.docker.running.get(watch.container)
        if process is not None:
            process.kill()
        self._killed.add(watch.container)
        event = self._publish_event("killed", step.why, watch, step)
        last, told, speed = self._readings[-1].at, self.node.unix_time(), self.node.pace.speed
        names = ("container", "instance", "profile", "operator", "floor", "role")
        self.receipts[watch.container[:12]] = {
            **{name: getattr(watch, name) for name in names},
            **{name: event[name] for name in ("at", "why", "rate", "to_zero", "available")},
            "did": "killed",
            "reaction": None,  # nothing takes time here
            "answer": 204,
            # in the operator's seconds, of which the machine has more
            "samples": [[round(told - (last - one.at) / speed, 3), *one[1:]] for one in self._recent],
            "events": [one for one in self.events if one["container"] in (None, watch.container)],
        }
        self._end_watch(watch, "ended by the guard")

    def _end_watch(self, watch: ContainerWatch, why: str) -> None:
        if self.watches.pop(watch.container, None) is not None:
            self._publish_event("ended", why, watch)

    def _publish_event(self, what: str, why: str, watch: ContainerWatch, step: GuardDecision | None = None) -> Json:
        now = self._readings[-1]
        event = {
            "at": round(self.node.unix_time(), 3),
            "what": what,
            "container": watch.container,
            "instance": watch.instance,
            "available": now.available,
            "free": self.node.memory.free_bytes,
            "rate": round(step.rate) if step and step.rate else None,
            "to_zero": round(step.to_zero, 3) if step and step.to_zero is not None else None,
            "why": why,
        }
        self.events.append(event)
        for client in self._clients:
            with suppress(OSError):
                client.write(_encode_guard_message({"kind": "event", "event": event}))
        return event

    # periodic work

    async def _run_ticks(self) -> None:
        quiet_since = self.node.clock.monotonic()
        while self.node.clock.monotonic() - quiet_since < IDLE_EXIT_SECONDS:
            await asyncio.sleep(TICK_SECONDS)
            if self.watches:
                quiet_since = self.node.clock.monotonic()
                self.check_memory()
            for receipt in self.receipts.values():
                if (
                    self.node.unix_time() - receipt["at"] < 2 * TICK_SECONDS
                ):  # readings after the kill are part of its receipt
                    receipt["samples"].append(
                        [self.node.unix_time(), *self._make_reading(0.0, self.node.memory.available_bytes)[1:]]
                    )
            for watch in list(self.watches.values()):
                await self._expire_watch(watch, self.node.clock.monotonic())
        self.is_running = False

    async def _expire_watch(self, watch: ContainerWatch, now: float) -> None:
        """End a watch whose time is over, whose container ended, or which is ready without a client."""
        if now - watch.began >= watch.limit:
            self._end_watch(watch, f"its time limit of {watch.limit:.0f} s")
        elif watch.container not in self.docker.running:
            self._end_watch(watch, "the container has ended")
        elif not self._clients and watch.role == "loading" and watch.port is not None and watch.health is not None:
            handler = self.node.ports.get(watch.port)
            reply = (
                None
                if handler is None
                else await handler(SimHttpRequest(method="GET", path=watch.health, query={}, headers={}, body=b""))
            )
            watch.healthy = watch.healthy + 1 if reply is not None and 200 <= reply.status < 300 else 0
            if watch.healthy >= 2:
                self._end_watch(watch, "it is ready, and nobody is attached")


def _encode_guard_message(message: Json) -> bytes:
    return _encode_json_line({"guard": GUARD_PROTOCOL, **message})


def _encode_json_line(message: Json) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"
