"""What a log from end to end tells: whose it is, how far it came, and why it went no further."""

from __future__ import annotations

from dataclasses import dataclass

from sparkctl.model.engine_facts import EngineFact
from sparkctl.model.phase import Phase, PhaseDuration
from sparkctl.model.verdict import Verdict


@dataclass(frozen=True, slots=True)
class ReportedDuration:
    """What the engine itself says a part took, in seconds."""

    what: str
    seconds: float
    line: int


@dataclass(frozen=True, slots=True)
class LogDiagnosis:
    """``engine`` None: no engine's log; ``ready``: readiness was reached at any time of the last run; ``verdict`` None:
    nothing went wrong that it did not live through. ``parts``: what each part of the start took by the stamps of its lines.

    Where the log holds several ``runs``, all this is of the last, which began at line ``run_began``; ``before`` is why the
    one before it ended. ``lines`` counts them all. ``is_stopped``: the log ends with a stop that it was told to;
    ``sounds_like_an_engine``: some line is one that an engine prints.
    """

    engine: str | None
    version: str | None
    phase: Phase
    step: str | None
    ready: bool
    verdict: Verdict | None
    facts: tuple[EngineFact, ...] = ()
    parts: tuple[PhaseDuration, ...] = ()
    took: tuple[ReportedDuration, ...] = ()
    lines: int = 0
    runs: int = 1
    run_began: int = 1
    before: Verdict | None = None
    is_stopped: bool = False
    sounds_like_an_engine: bool = True
