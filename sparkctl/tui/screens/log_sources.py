"""Whose logs a log screen shows: those of one instance, on every Spark where it has a part, or more of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from sparkctl.model.node import NodeName
from sparkctl.model.units import format_duration

if TYPE_CHECKING:
    from sparkctl.monitor.store import Store

_MOST = 24  # logs at once
_CLOCKS = 0.5  # s between two Sparks' clocks that are worth a word; less is the way of a sample to us


class LogScope(StrEnum):
    """How much is shown, from the least on."""

    INSTANCE = "instance"
    SPARK = "spark"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class LogSource:
    """One container's log."""

    node: NodeName
    instance: str


def list_log_sources(store: Store, scope: LogScope, chosen: LogSource) -> tuple[LogSource, ...]:
    """Return whose logs there are now; the chosen one is always among them, and so are its other parts.

    Containers of one instance name on several Sparks are taken for the parts of one model.
    """
    found = [
        LogSource(node, one.name)
        for node in store.nodes
        for one in store.get_last_known_view(node).instances
        if one.is_alive
        and (one.name == chosen.instance or scope is LogScope.ALL or (scope is LogScope.SPARK and node == chosen.node))
    ]
    unique = list(dict.fromkeys(found))
    if chosen not in unique:
        unique.insert(0, chosen)
    return tuple(unique[:_MOST])


def label_log_sources(shown: Sequence[LogSource], store: Store) -> tuple[str, ...]:
    """Return a short name for each: what tells it from the others; of ranks of one model which it is."""
    if len({one.instance for one in shown}) == 1:
        ranks = (_rank(store, one) if len(shown) > 1 else None for one in shown)
        return tuple(
            str(one.node) if rank is None else f"{one.node} rank {rank}" for one, rank in zip(shown, ranks, strict=True)
        )
    if len({one.instance for one in shown}) == len(shown):
        return tuple(one.instance for one in shown)
    return tuple(f"{one.node} {one.instance}" for one in shown)


def _rank(store: Store, source: LogSource) -> int | None:
    if source.node not in store.nodes:
        return None
    found = (
        one.rank_position for one in store.get_last_known_view(source.node).instances if one.name == source.instance
    )
    return next((place[0] for place in found if place is not None), None)


def format_log_title(scope: LogScope, shown: Sequence[LogSource], chosen: LogSource) -> str:
    """Return what stands in the header for these."""
    if scope is LogScope.ALL:
        return "all logs"
    if scope is LogScope.SPARK and any(one.node != chosen.node for one in shown):
        return f"{chosen.instance} and all of {chosen.node} › logs"
    if scope is LogScope.SPARK:
        return f"{chosen.node} › all logs"
    if len(shown) > 1:
        return f"{chosen.instance} on {len(shown)} Sparks › log"
    return f"{chosen.node} › {chosen.instance} › log"


def describe_clock_skew(store: Store, shown: Sequence[LogSource]) -> str | None:
    """Return by how much the clocks differ by which the lines are merged, None where that is nothing to speak of."""
    ahead = {node: store.get_clock_offset(node) for node in dict.fromkeys(one.node for one in shown)}
    known = sorted((seconds, node) for node, seconds in ahead.items() if seconds is not None)
    if len(known) < 2 or known[-1][0] - known[0][0] < _CLOCKS:
        return None
    (least, behind), (most, before) = known[0], known[-1]
    return f"merged by each Spark's own clock: {before}'s is {format_duration(most - least)} ahead of {behind}'s"
