"""A container that the guard may kill: the fields of a watch, and reading them from a command.

Sent to the node with the guard: standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import json
import re

from sparkctl.node.guard.decision import NEARLY_GONE_BYTES, adapt_floor, compute_lowered_floor
from sparkctl.node.guard.guard_sockets import HttpConnection

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from sparkctl.node.guard.guard_sockets import GuardConnection

    Json = dict[str, Any]

DOCKER_ANSWER_SECONDS = 3.0  # how long Docker has to answer a request, and how long to wait before sending it again
WEIGHTS_LEASE_SECONDS = 4.0  # seconds for which it is valid whether weights are loading
CLIENT_SILENCE_SECONDS = 30.0  # a client of a start sends a command every few seconds
CONTAINER_ID_PATTERN = re.compile(r"[0-9a-f]{64}")
IDENTITY_FIELDS = ("container", "instance", "profile", "operator")


class ContainerWatch:
    """One container that the guard may kill, as the operator's side asked for."""

    def __init__(self, command: Json, clock: Any) -> None:
        """Raises ValueError with a sentence if a field is missing or has another type."""
        self.container: str = read_field(command, "container", str)
        if not CONTAINER_ID_PATTERN.fullmatch(self.container):
            raise ValueError("container: the whole id, 64 hex digits")
        self.instance = read_field(command, "instance", str)
        self.profile: str | None = read_field(command, "profile", str, None)
        self.operator: str | None = read_field(command, "operator", str, None)
        self.role: str = read_field(command, "role", str)
        if self.role not in ("loading", "serving"):
            raise ValueError("role: loading or serving")
        self.floor: int = read_field(command, "floor", int)
        self.limit = float(read_field(command, "limit", (int, float)))
        if self.floor <= 0 or not 0 < self.limit <= 31 * 24 * 3600:
            raise ValueError("floor and limit: more than 0, the limit at most 31 days")
        self.port: int | None = read_field(command, "port", int, None)
        self.health: str | None = read_field(command, "health", str, None)
        if self.port is not None and not 0 < self.port < 65536:
            raise ValueError("port: 1 to 65535")
        if self.health is not None and not re.fullmatch(r"/[!-~]{0,200}", self.health):
            raise ValueError("health: a path, from the slash on")
        self.cache_below: int | None = read_field(command, "cache_below", int, None)
        self.clock = clock
        now = self.began = clock.monotonic()
        self.since = clock.time()
        self.weights_until = 0.0
        self.is_warned = False
        self.calm_since = now
        self.tried = 0
        self.refused_at = now - DOCKER_ANSWER_SECONDS
        # The floor in force: lower than asked for while memory has been below that from the beginning, or since a kill.
        self.active_floor = self.floor
        # The same of what must be available where the driver is refused memory.
        self.active_refusal_bound = self.refusal_bound = max(self.floor, NEARLY_GONE_BYTES)
        self.client: GuardConnection | None = (
            None  # the client that last sent a command about it, while it is connected
        )
        self.asked_at = 0.0
        self.healthy = 0
        self.takes_query = True  # until the engine answers that it does not know the path with a query
        self.health_at = now
        self.asking: HttpConnection | None = None
        self.receipt = -1

    def lower_floors(self, available: int) -> None:
        """Act only if memory falls further than to ``available``."""
        self.active_floor = compute_lowered_floor(self.floor, available)
        self.active_refusal_bound = compute_lowered_floor(self.refusal_bound, available)

    def adapt_floors(self, available: int, is_ending: bool) -> None:
        """Raise lowered floors again when memory is back; lower them while a container that is being killed allocates."""
        self.active_floor = adapt_floor(self.active_floor, self.floor, available, is_ending)
        self.active_refusal_bound = adapt_floor(self.active_refusal_bound, self.refusal_bound, available, is_ending)

    def copy_floors(self, before: ContainerWatch) -> None:
        """Keep the floors in force of the watch that this one replaces."""
        self.active_floor, self.active_refusal_bound = before.active_floor, before.active_refusal_bound

    def is_attended(self) -> bool:
        """Tell whether a client looks after its start: one that is silent is gone, though its connection may stand for long."""
        return self.client is not None and self.clock.monotonic() - self.client.heard_at < CLIENT_SILENCE_SECONDS

    def may_load_weights(self, now: float) -> bool:
        """Tell whether its engine loads weights: as its client says, or as long as it is not ready and nobody says."""
        if self.client is not None and now - self.client.heard_at <= WEIGHTS_LEASE_SECONDS:
            return now < self.weights_until
        return self.role == "loading" and self.port is not None and self.health is not None  # asked until it is ready

    def to_json(self) -> Json:
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
        command = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from error
    if not isinstance(command, dict):
        raise ValueError("a command is an object")
    return command


def read_field(command: Json, name: str, kind: Any, *default: Any) -> Any:
    """Return a field of a command. Raises ValueError if it has another type, or is missing without a default."""
    value = command.get(name)
    if value is None and default:
        return default[0]
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{name}: missing, or not what it should be")
    if isinstance(value, str) and len(value) > 256:
        raise ValueError(f"{name}: longer than 256 characters")
    if isinstance(value, (int, float)) and not -(1 << 62) < value < 1 << 62:
        raise ValueError(f"{name}: no such number")
    return value
