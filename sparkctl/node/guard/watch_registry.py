"""What may be ended: a watch on a container as it was asked for, and all the watches there are.

Travels beside `guard.py`: standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import json
import re
import time

from sparkctl.node.guard.decision import compute_lowered_floor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from sparkctl.node.guard.guard_events import GuardEventLog
    from sparkctl.node.guard.nonblocking_http import HttpConnection
    from sparkctl.node.guard.receipt_store import ReceiptStore
    from sparkctl.node.guard.socket_server import GuardConnection

    Json = dict[str, Any]

DOCKER_ANSWER_SECONDS = 3.0  # seconds in which a request is answered, and after which it may be sent again
MAX_WATCHES = 16
CONTAINER_ID_PATTERN = re.compile(r"[0-9a-f]{64}")
IDENTITY_FIELDS = ("container", "instance", "profile", "operator")


class ContainerWatch:
    """One container that may be ended, as the operator's side asked for."""

    def __init__(self, said: Json, now: float) -> None:
        """Raises ValueError with a sentence where something is missing or is of another kind."""
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
        self.began = now
        self.since = time.time()
        self.weights_until = 0.0
        self.is_warned = False
        self.calm_since = now
        self.tried = 0
        self.refused_at = now - DOCKER_ANSWER_SECONDS
        self.active_floor = (
            self.floor
        )  # the floor that holds now: lower while memory has been under it from the beginning
        self.client: GuardConnection | None = None  # who spoke of it last, and is still there
        self.asked_at = 0.0
        self.healthy = 0
        self.takes_query = True  # until it says that it does not know the path with one
        self.health_at = now
        self.asking: HttpConnection | None = None
        self.receipt = -1

    def to_json(self, now: float) -> Json:
        """Return it as the state tells it."""
        found = {
            name: getattr(self, name)
            for name in (*IDENTITY_FIELDS, "role", "floor", "limit", "port", "health", "cache_below")
        }
        found["since"] = round(self.since, 3)
        found["ends"] = round(time.time() + self.began + self.limit - now, 3)
        found["weights"] = now < self.weights_until
        found["level"] = "warned" if self.is_warned else "calm"
        return found


class WatchRegistry:
    """All of them, by container."""

    def __init__(self, events: GuardEventLog, receipts: ReceiptStore) -> None:
        self.events = events
        self.receipts = receipts
        self.by_container: dict[str, ContainerWatch] = {}
        self.quiet_since = time.monotonic()

    def __len__(self) -> int:
        return len(self.by_container)

    def __iter__(self) -> Iterator[ContainerWatch]:
        """Yield those there are now: any may end meanwhile."""
        return iter(list(self.by_container.values()))

    def find_watch(self, container: object) -> ContainerWatch | None:
        """Return the watch on a container."""
        return self.by_container.get(str(container))

    def begin_watch(self, watch: ContainerWatch) -> None:
        """Begin a watch, or put it in the place of the one there is for this container."""
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
        """Lower the bar of a watch that begins under its floor, and tell so."""
        available = self.events.memory.read_available()
        if available is not None and available < watch.floor:
            watch.active_floor = compute_lowered_floor(watch.floor, available)
            watch.is_warned = True
            text = f"{available >> 20} MiB are available, under the floor of {watch.floor >> 20} MiB already"
            why = f"{text}; it acts when they fall to {max(0, watch.active_floor) >> 20} MiB"
            self.events.publish_event(self.events.make_event("warned", why, watch))

    def release_client(self, client: GuardConnection) -> None:
        """Nobody speaks of a client's watches any more."""
        self.quiet_since = time.monotonic()
        for watch in self:
            if watch.client is client:
                watch.client = None

    def end_watch(self, watch: ContainerWatch, why: str) -> None:
        """End a watch and tell why."""
        if self.find_watch(watch.container) is not watch:
            return
        del self.by_container[watch.container]
        self.close_watch(watch)
        self.quiet_since = time.monotonic()
        self.events.publish_event(self.events.make_event("ended", why, watch))

    def close_watch(self, watch: ContainerWatch) -> None:
        """Close what a watch holds."""
        if watch.asking is not None:
            watch.asking.close()
            watch.asking = None
        self.receipts.discard_draft(watch)


def parse_command(line: bytes) -> Json:
    """Return what a line says. Raises ValueError for what is no object of JSON."""
    try:
        said = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from error
    if not isinstance(said, dict):
        raise ValueError("a command is an object")
    return said


def read_field(said: Json, name: str, kind: Any, *default: Any) -> Any:
    """Return a field of a command. Raises ValueError where it is of another kind, or missing without a default."""
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
