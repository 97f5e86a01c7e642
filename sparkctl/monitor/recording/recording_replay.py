"""Replays a recording as if it happened now: same events, same store, same views. It contacts no node."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing

from sparkctl.clock import Clock
from sparkctl.errors import InvalidInput
from sparkctl.model.events import Event
from sparkctl.monitor.node_views import NodeTelemetryView
from sparkctl.monitor.store import Store

_MAX_PAUSE_SECONDS = 30.0  # seconds of the recording: longer pauses are cut


async def replay_recording(
    clock: Clock, events: Iterable[Event], names: Sequence[str] = (), speed: float = 1.0
) -> AsyncGenerator[tuple[NodeTelemetryView, ...], None]:
    """Yield all nodes, or the named ones, whenever one of them changes, ``speed`` times as fast as it happened.

    Pauses over half a minute, and clocks that were set back, are skipped. Raises `InvalidInput` as `read_recording` does,
    and for a name that is not in the recording.
    """
    store = Store()
    async with aclosing(pace_events(clock, events, speed)) as due:
        async for event in due:
            if any(topic.node is not None for topic in store.apply_event(event)):
                yield _select_views(store, names)
    _refuse_unknown_nodes(store, names)


async def pace_events(clock: Clock, events: Iterable[Event], speed: float = 1.0) -> AsyncGenerator[Event, None]:
    """Yield events ``speed`` times as fast as they happened; skip long pauses and clocks that were set back."""
    before = None
    for event in events:
        if before is not None and event.ts > before:
            await clock.sleep(min(event.ts - before, _MAX_PAUSE_SECONDS) / speed)
        before = event.ts
        yield event


def load_final_views(events: Iterable[Event], names: Sequence[str] = ()) -> tuple[NodeTelemetryView, ...]:
    """Return all nodes, or the named ones, as they were at the end of a recording. Raises as `replay_recording` does."""
    store = Store()
    for event in events:
        store.apply_event(event)
    _refuse_unknown_nodes(store, names)
    return _select_views(store, names)


def _select_views(store: Store, names: Sequence[str]) -> tuple[NodeTelemetryView, ...]:
    return tuple(view for view in store.get_views() if not names or view.name in names)


def _refuse_unknown_nodes(store: Store, names: Sequence[str]) -> None:
    for name in names:
        if name not in store.nodes:
            known = ", ".join(store.nodes) or "no node"
            raise InvalidInput(f"{name} is not in the recording", f"it has {known}")
