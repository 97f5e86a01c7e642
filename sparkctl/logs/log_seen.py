"""A line of a log that may be evidence, and how much it weighs beside others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sparkctl.engines.base import Failure, FailureWeight

_MOST = 64  # failures that are kept


@dataclass(frozen=True, slots=True)
class EvidenceLine:
    """A line that may be evidence. ``serving``: the engine was ready by then. ``life`` and ``moves`` count what the
    log had told of it at work and of its progress until then, ``made`` the lines that told of tokens made."""

    number: int
    text: str
    failure: Failure | None = None
    serving: bool = False
    life: int = 0
    moves: int = 0
    made: int = 0


def failure_weight(seen: EvidenceLine) -> int:
    """Return how concrete a failure is: see `Weight`."""
    return seen.failure.weight if seen.failure else 0


def pick_most_specific(some: Iterable[EvidenceLine]) -> EvidenceLine | None:
    """Return the most concrete failure, among equals the first; None of none."""
    return max(some, key=failure_weight, default=None)


def make_room_for(failures: list[EvidenceLine], failure: Failure) -> bool:
    """Tell whether one more is to be kept: of too many (a client that asks for nonsense for days) the weakest gives way to
    what weighs more, and is taken out."""
    if len(failures) < _MOST:
        return True
    weakest = min(failures, key=lambda seen: (failure_weight(seen), -seen.number))
    if failure.weight <= failure_weight(weakest):
        return False
    failures.remove(weakest)
    return True


def has_consequences(of: EvidenceLine, failures: Iterable[EvidenceLine]) -> bool:
    """Tell whether some other part of the engine speaks of its end as well."""
    return of.failure is not None and (
        of.failure.weight <= FailureWeight.DEATH
        or any(
            one.serving and one.failure is not None and one.failure.fatal and one.failure.weight <= FailureWeight.DEATH
            for one in failures
        )
    )
