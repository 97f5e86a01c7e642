"""Poll Docker for the containers that the guard watches, and a loading engine for readiness.

Sent to the node with the guard: standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import json

from sparkctl.node.guard.nonblocking_http import HttpConnection

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sparkctl.node.guard.container_watch import ContainerWatch
    from sparkctl.node.guard.watch_registry import WatchRegistry

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


def poll_health(now: float, watches: WatchRegistry, every: float) -> None:
    """Ask engines that load, and have no client attached, whether they are ready."""
    for watch in watches:
        if watch.client is not None or watch.port is None or watch.health is None or watch.role != "loading":
            continue
        if now - watch.health_at < every:
            continue
        watch.health_at = now
        if watch.asking is not None:
            watch.asking.close()
            watch.healthy = 0
        watch.asking = HttpConnection(("127.0.0.1", watch.port))
        watch.asking.open()
        query = ("&" if "?" in watch.health else "?") + QUERY_MARK if watch.takes_query else ""
        watch.asking.send_request("GET", watch.health + query, now)


def record_health_answer(watch: ContainerWatch, status: int | None) -> bool:
    """Read an engine's answer; two positive ones in a row count as ready."""
    assert watch.asking is not None
    watch.asking.close()
    watch.asking = None
    watch.takes_query = watch.takes_query and status not in _QUERY_REFUSED_STATUSES
    watch.healthy = watch.healthy + 1 if status is not None and 200 <= status < 300 else 0
    return watch.healthy >= 2
