"""Reading the events of a command to their end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from sparkctl.model.events import CommandEnded, Event, WarningEmitted


async def collect_events(events: AsyncIterator[Event]) -> list[Event]:
    """Run a command to its end and return its events."""
    return [event async for event in events]


async def collect_events_and_end(events: AsyncIterator[Event]) -> tuple[list[Event], CommandEnded]:
    """Run a command to its end and return its events, and the last of them."""
    seen = await collect_events(events)
    return seen, find_command_end(seen)


def find_command_end(events: Sequence[Event]) -> CommandEnded:
    """Return the last event, which ends the command."""
    last = events[-1]
    assert isinstance(last, CommandEnded)
    return last


def list_warnings(events: Sequence[Event]) -> list[str]:
    """Return the warnings, each as "message | hint"."""
    return [f"{event.message} | {event.hint}" for event in events if isinstance(event, WarningEmitted)]
