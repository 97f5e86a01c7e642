"""The guard's events: each is sent to all clients, and the last ones are kept for clients that come later.

Sent to the node with the guard: standard library only, Python 3.8 or newer.
"""

from __future__ import annotations

import time
from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from sparkctl.node.guard.container_watch import ContainerWatch
    from sparkctl.node.guard.decision import GuardDecision
    from sparkctl.node.guard.memory_reader import MemoryReader

    Json = dict[str, Any]

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
        """Return an event with the present time."""
        now = self.memory.last_reading
        return {
            "at": round(time.time(), 3),
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
