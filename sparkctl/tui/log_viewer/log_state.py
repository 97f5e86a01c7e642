"""What a log view says of itself, for whoever shows it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogViewState:
    """``shown`` of ``total`` lines pass the filter and the choice of source; ``new`` came since the reader paused; ``hidden``
    ones, of our own questions, are in the log and not here.

    ``found`` is None while nothing is looked for; ``at`` counts from 1 and is None before the first jump. A share of
    work (0 to 1) is None when that work is done. ``fault`` is what is wrong with a pattern, ``note`` what just happened.
    ``was_waited_for``: whatever there is would have come by now.
    """

    is_following: bool = True
    new: int = 0
    total: int = 0
    hidden: int = 0
    shown: int = 0
    find: str = ""
    found: int | None = None
    at: int | None = None
    finding: float | None = None
    only: str = ""
    narrowing: float | None = None
    fault: str | None = None
    is_wrapped: bool = False
    has_times: bool = False
    has_numbers: bool = False
    left: int = 0
    source: str | None = None
    sources: int = 1
    trouble: str | None = None
    note: str | None = None
    was_waited_for: bool = False
