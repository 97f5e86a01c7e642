"""Plays a recording as if it happened now: in the panel with position, speed and pause, or as views. No node is contacted."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import accumulate, pairwise

from sparkctl.clock import Clock
from sparkctl.concurrency import run_in_background
from sparkctl.errors import InvalidInput
from sparkctl.model.events import Event
from sparkctl.monitor.node_views import NodeTelemetryView
from sparkctl.monitor.store import Store

MAX_PAUSE_SECONDS = 30.0  # seconds of the recording: longer pauses are cut
SPEEDS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 60.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaybackProgress:
    """Position and length in seconds of the recording; ``is_over``: its last event was shown."""

    at: float
    whole: float
    speed: float
    is_paused: bool
    is_over: bool

    @property
    def description(self) -> str:
        """The text for the header."""
        if self.is_over:
            return f"recording {_format_clock(self.whole)}, its end"
        return f"recording {_format_clock(self.at)} of {_format_clock(self.whole)} {'paused' if self.is_paused else f'×{self.speed:g}'}"


class RecordingPlayer:
    """Plays events: ``emit`` gets every event in order, ``rewound`` is called before they begin again.

    Pauses over half a minute, and clocks that were set back, are skipped.
    """

    def __init__(
        self, clock: Clock, events: Sequence[Event], speed: float, emit: Callable[[Event], None], rewound: Callable[[], None]
    ) -> None:  # fmt: skip
        self.speed = speed
        self.is_paused = False
        self._clock, self._events, self._emit, self._rewound = clock, events, emit, rewound
        gaps = (min(MAX_PAUSE_SECONDS, max(0.0, after.ts - before.ts)) for before, after in pairwise(events))
        self._due = tuple(accumulate(gaps, initial=0.0)) if events else ()  # for each event, seconds from the beginning
        self._next = 0  # index of the next event
        self._at = 0.0  # position at the last reading of the clock
        self._looked: float | None = None  # when that was; None while paused
        self._wakeup = asyncio.Event()
        self._is_changed = False  # by a control, since the last event

    @property
    def progress(self) -> PlaybackProgress:
        """The current position."""
        whole = self._due[-1] if self._due else 0.0
        over = self._next >= len(self._events)
        return PlaybackProgress(
            at=whole if over else min(self._current_position(), whole),
            whole=whole,
            speed=self.speed,
            is_paused=self.is_paused,
            is_over=over,
        )

    async def run(self) -> None:
        """Play; at the end, wait for a seek back."""
        while True:
            self._wakeup.clear()
            self._is_changed = False
            self._at, self._looked = self._current_position(), None if self.is_paused else self._clock.monotonic()
            if self._next >= len(self._events) or self.is_paused:
                await self._wakeup.wait()
                continue
            left = self._due[self._next] - self._at
            if left > 0 and await self._wait_for_control(left / self.speed):
                continue
            self._at = max(self._current_position(), self._due[self._next])
            self._looked = self._clock.monotonic()
            self._emit_until(self._next + 1)
            await asyncio.sleep(0)

    def toggle_pause(self) -> None:
        """Pause, or continue."""
        self.is_paused = not self.is_paused
        self._update_position()
        self._apply_control()

    def change_speed(self, by: int) -> None:
        """Change the speed by ``by`` steps, faster or slower."""
        self._update_position()
        near = min(range(len(SPEEDS)), key=lambda at: abs(SPEEDS[at] - self.speed))
        self.speed = SPEEDS[max(0, min(len(SPEEDS) - 1, near + by))]
        self._apply_control()

    def seek(self, seconds: float) -> None:
        """Move forward or back by seconds of the recording."""
        if not self._due:
            return
        wanted = max(0.0, min(self.progress.at + seconds, self._due[-1]))
        if seconds < 0:
            self._next = 0
            self._rewound()
        self._emit_until(max(1, bisect_right(self._due, wanted)))
        self._at, self._looked = wanted, None if self.is_paused else self._clock.monotonic()
        self._apply_control()

    def _apply_control(self) -> None:
        self._is_changed = True
        self._wakeup.set()

    def _emit_until(self, end: int) -> None:
        while self._next < min(end, len(self._events)):
            self._next += 1
            self._emit(self._events[self._next - 1])

    def _current_position(self) -> float:
        return self._at if self._looked is None else self._at + (self._clock.monotonic() - self._looked) * self.speed

    def _update_position(self) -> None:
        self._at = min(self._current_position(), self._due[min(self._next, len(self._due) - 1)] if self._due else 0.0)
        self._looked = None if self.is_paused else self._clock.monotonic()

    async def _wait_for_control(self, seconds: float) -> bool:
        """Wait for ``seconds``, or until a control changes; return whether one has."""

        async def end_wait() -> None:
            await self._clock.sleep(seconds)
            self._wakeup.set()

        async with run_in_background(end_wait()):
            await self._wakeup.wait()
        return self._is_changed


def _format_clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


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
            await clock.sleep(min(event.ts - before, MAX_PAUSE_SECONDS) / speed)
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
