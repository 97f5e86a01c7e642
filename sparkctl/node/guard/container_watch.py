"""The containers that the guard may kill: the fields of a watch, polling Docker and loading engines, begin and end.

Sent to the node with the guard: standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import json
import re

from sparkctl.node.guard.decision import compute_lowered_floor
from sparkctl.node.guard.guard_sockets import HttpConnection

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from sparkctl.node.guard.guard_memory import GuardEventLog
    from sparkctl.node.guard.guard_sockets import GuardConnection
    from sparkctl.node.guard.kill_requests import ReceiptStore

    Json = dict[str, Any]

DOCKER_ANSWER_SECONDS = 3.0  # how long Docker has to answer a request, and how long to wait before sending it again
CONTAINER_ID_PATTERN = re.compile(r"[0-9a-f]{64}")
IDENTITY_FIELDS = ("container", "instance", "profile", "operator")


class ContainerWatch:
    """One container that the guard may kill, as the operator's side asked for."""

    def __init__(self, said: Json, clock: Any) -> None:
        """Raises ValueError with a sentence if a field is missing or has another type."""
        self.container: str = read_field(said, "container", str)
        if not CONTAINER_ID_PATTERN.fullmatch(self.container):
            raise ValueError("container: the whole id, 64 hex digits")
        self.instance = read_field(said, "instance", str)
        self.profile: str | None = read_field(said, "profile", str, None)
        self.operator: str | None = read_field(said, "operator", str, None)
        self.role: str = read_field(said, "role", str)
        if self.role not in ("loading", "serving"):
            raise ValueError("role: loading or serving")
        self.floor: int = read_field(said, "floor", int)
        self.limit = float(read_field(said, "limit", (int, float)))
        if self.floor <= 0 or not 0 < self.limit <= 31 * 24 * 3600:
            raise ValueError("floor and limit: more than 0, the limit at most 31 days")
        self.port: int | None = read_field(said, "port", int, None)
        self.health: str | None = read_field(said, "health", str, None)
        if self.port is not None and not 0 < self.port < 65536:
            raise ValueError("port: 1 to 65535")
        if self.health is not None and not re.fullmatch(r"/[!-~]{0,200}", self.health):
            raise ValueError("health: a path, from the slash on")
        self.cache_below: int | None = read_field(said, "cache_below", int, None)
        self.clock = clock
        now = self.began = clock.monotonic()
        self.since = clock.time()
        self.weights_until = 0.0
        self.is_warned = False
        self.calm_since = now
        self.tried = 0
        self.refused_at = now - DOCKER_ANSWER_SECONDS
        # The floor in force: lower than asked for while memory has been below that from the beginning.
        self.active_floor = self.floor
        self.client: GuardConnection | None = (
            None  # the client that last sent a command about it, while it is connected
        )
        self.asked_at = 0.0
        self.healthy = 0
        self.takes_query = True  # until the engine answers that it does not know the path with a query
        self.health_at = now
        self.asking: HttpConnection | None = None
        self.receipt = -1

    def to_json(self) -> Json:
        """Return it as the guard reports it."""
        now = self.clock.monotonic()
        found = {
            name: getattr(self, name)
            for name in (*IDENTITY_FIELDS, "role", "floor", "limit", "port", "health", "cache_below")
        }
        found["since"] = round(self.since, 3)
        found["ends"] = round(self.clock.time() + self.began + self.limit - now, 3)
        found["weights"] = now < self.weights_until
        found["level"] = "warned" if self.is_warned else "calm"
        return found


def parse_command(line: bytes) -> Json:
    """Return the command in a line. Raises ValueError if it is not a JSON object."""
    try:
        said = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from error
    if not isinstance(said, dict):
        raise ValueError("a command is an object")
    return said


def read_field(said: Json, name: str, kind: Any, *default: Any) -> Any:
    """Return a field of a command. Raises ValueError if it has another type, or is missing without a default."""
    value = said.get(name)
    if value is None and default:
        return default[0]
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{name}: missing, or not what it should be")
    if isinstance(value, str) and len(value) > 256:
        raise ValueError(f"{name}: longer than 256 characters")
    if isinstance(value, (int, float)) and not -(1 << 62) < value < 1 << 62:
        raise ValueError(f"{name}: no such number")
    return value


# -- all watches

MAX_WATCHES = 16


class WatchRegistry:
    """All watches, by container."""

    def __init__(self, events: GuardEventLog, receipts: ReceiptStore) -> None:
        self.events = events
        self.receipts = receipts
        self.by_container: dict[str, ContainerWatch] = {}
        self.clock = events.memory.clock
        self.quiet_since = self.clock.monotonic()

    def __len__(self) -> int:
        return len(self.by_container)

    def __iter__(self) -> Iterator[ContainerWatch]:
        """Yield the present watches; any may end meanwhile."""
        return iter(list(self.by_container.values()))

    def find_watch(self, container: object) -> ContainerWatch | None:
        """Return the watch on a container."""
        return self.by_container.get(str(container))

    def begin_watch(self, watch: ContainerWatch) -> None:
        """Begin a watch, or replace the one for this container."""
        before = self.find_watch(watch.container)
        if before is None and len(self) >= MAX_WATCHES:
            raise ValueError(f"more than {MAX_WATCHES} watches")
        if before is not None:
            watch.receipt, before.receipt = before.receipt, -1
            watch.tried = before.tried
            watch.weights_until = before.weights_until
            watch.asked_at = before.asked_at
            self.close_watch(before)
        if before is not None and before.floor == watch.floor:
            watch.active_floor = before.active_floor
        else:
            self.lower_floor(watch)
        self.by_container[watch.container] = watch
        if watch.receipt < 0:
            self.receipts.reserve_draft(watch)

    def lower_floor(self, watch: ContainerWatch) -> None:
        """Lower the active floor of a watch that begins below its floor, and report it."""
        available = self.events.memory.read_available()
        if available is not None and available < watch.floor:
            watch.active_floor = compute_lowered_floor(watch.floor, available)
            watch.is_warned = True
            text = f"{available >> 20} MiB are available, under the floor of {watch.floor >> 20} MiB already"
            why = f"{text}; it acts when they fall to {max(0, watch.active_floor) >> 20} MiB"
            self.events.publish_event(self.events.make_event("warned", why, watch))

    def release_client(self, client: GuardConnection) -> None:
        """Detach a client from its watches."""
        self.quiet_since = self.clock.monotonic()
        for watch in self:
            if watch.client is client:
                watch.client = None

    def end_watch(self, watch: ContainerWatch, why: str) -> None:
        """End a watch and report why."""
        if self.find_watch(watch.container) is not watch:
            return
        del self.by_container[watch.container]
        self.close_watch(watch)
        self.quiet_since = self.clock.monotonic()
        self.events.publish_event(self.events.make_event("ended", why, watch))

    def close_watch(self, watch: ContainerWatch) -> None:
        """Close the files and connections of a watch."""
        if watch.asking is not None:
            watch.asking.close()
            watch.asking = None
        self.receipts.discard_draft(watch)


# -- polling

# marks sparkctl's own requests: such lines are not shown in the log
QUERY_MARK = "by=sparkctl"
_QUERY_REFUSED_STATUSES = (400, 404, 405)


class DockerPoller:
    """Docker's socket over two open connections: one for polling, one for kills. ``answers``: None = not known."""

    def __init__(self, path: str, every: float) -> None:
        self.every = every
        self.is_responding: bool | None = None
        self.asker = HttpConnection(path)
        self.killer = HttpConnection(path)
        self.question = ""
        self.pinged_at = 0.0

    def open_connections(self) -> None:
        """Open the connections that are closed."""
        for connection in (self.asker, self.killer):
            if connection.socket is None and not connection.open():
                self.is_responding = False

    def drop_late_answer(self, now: float) -> None:
        """Drop an answer that does not come in time."""
        if self.asker.asked_at is not None and now - self.asker.asked_at > self.every:
            self.is_responding = False
            self.asker.close()

    def poll_next_watch(self, now: float, watches: WatchRegistry) -> None:
        """Poll the watch that was polled longest ago; without a watch, ask whether Docker answers."""
        watch = min(watches, key=lambda one: (one.asked_at, one.container), default=None)
        before = self.pinged_at if watch is None else watch.asked_at
        if not self.asker.is_idle or now - before < self.every:
            return
        if watch is None:
            self.question, self.pinged_at, path = "", now, "/_ping"
        else:
            self.question, watch.asked_at, path = watch.container, now, f"/containers/{watch.container}/json"
        if not self.asker.send_request("GET", path, now):
            self.is_responding = False

    def handle_response(self, status: int | None, body: bytes) -> str | None:
        """Read an answer; return how the container of the last request ended, if that is known now."""
        self.is_responding = status is not None
        return describe_exit(status, body) if status is not None else None

    def send_kill(self, watch: ContainerWatch, now: float) -> bool:
        """Send a kill on the open connection; on a new one if it is closed or still waits for an answer."""
        path = f"/containers/{watch.container}/kill"
        if self.killer.is_idle and self.killer.send_request("POST", path, now):
            return True
        return self.killer.open() and self.killer.send_request("POST", path, now)

    def poll_health(self, now: float, watches: WatchRegistry) -> None:
        """Ask engines that load, and have no client attached, whether they are ready."""
        for watch in watches:
            if watch.client is not None or watch.port is None or watch.health is None or watch.role != "loading":
                continue
            if now - watch.health_at < self.every:
                continue
            watch.health_at = now
            if watch.asking is not None:
                watch.asking.close()
                watch.healthy = 0
            watch.asking = HttpConnection(("127.0.0.1", watch.port))
            watch.asking.open()
            query = ("&" if "?" in watch.health else "?") + QUERY_MARK if watch.takes_query else ""
            watch.asking.send_request("GET", watch.health + query, now)


def describe_exit(status: int, body: bytes) -> str | None:
    """Return how a container ended by Docker's answer; None if the answer does not say so."""
    if status == 404:
        return "the container is gone"
    if status != 200:
        return None
    try:
        state = json.loads(body)["State"]
        ended = state["Status"] in ("exited", "dead", "removing") and state["Running"] is False
        code = state.get("ExitCode")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    return f"the container ended with exit code {code if isinstance(code, int) else 'unknown'}" if ended else None


def parse_docker_message(body: bytes) -> str:
    """Return Docker's own sentence about an error."""
    try:
        return str(json.loads(body)["message"])[:200]
    except (ValueError, LookupError, TypeError, RecursionError):
        return body[:80].decode("utf-8", "replace")


def list_health_connections(watches: WatchRegistry) -> list[HttpConnection]:
    """Return the connections to engines."""
    return [watch.asking for watch in watches if watch.asking is not None]


def record_health_answer(watch: ContainerWatch, status: int | None) -> bool:
    """Read an engine's answer; two positive ones in a row count as ready."""
    assert watch.asking is not None
    watch.asking.close()
    watch.asking = None
    watch.takes_query = watch.takes_query and status not in _QUERY_REFUSED_STATUSES
    watch.healthy = watch.healthy + 1 if status is not None and 200 <= status < 300 else 0
    return watch.healthy >= 2
