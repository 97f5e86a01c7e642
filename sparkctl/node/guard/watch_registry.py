"""All the containers that the guard watches: begin and end a watch.

Sent to the node with the guard: standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import time

from sparkctl.node.guard.decision import compute_lowered_floor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkctl.node.guard.container_watch import ContainerWatch
    from sparkctl.node.guard.guard_events import GuardEventLog
    from sparkctl.node.guard.receipt_store import ReceiptStore
    from sparkctl.node.guard.socket_server import GuardConnection

MAX_WATCHES = 16


class WatchRegistry:
    """All watches, by container."""

    def __init__(self, events: GuardEventLog, receipts: ReceiptStore) -> None:
        self.events = events
        self.receipts = receipts
        self.by_container: dict[str, ContainerWatch] = {}
        self.quiet_since = time.monotonic()

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
        self.quiet_since = time.monotonic()
        for watch in self:
            if watch.client is client:
                watch.client = None

    def end_watch(self, watch: ContainerWatch, why: str) -> None:
        """End a watch and report why."""
        if self.find_watch(watch.container) is not watch:
            return
        del self.by_container[watch.container]
        self.close_watch(watch)
        self.quiet_since = time.monotonic()
        self.events.publish_event(self.events.make_event("ended", why, watch))

    def close_watch(self, watch: ContainerWatch) -> None:
        """Close the files and connections of a watch."""
        if watch.asking is not None:
            watch.asking.close()
            watch.asking = None
        self.receipts.discard_draft(watch)
