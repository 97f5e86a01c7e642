"""Reading a log as ``up`` does: every line prepared, classified, the failures kept with their line numbers."""

from __future__ import annotations

from dataclasses import dataclass, field

from sparkctl import engines
from sparkctl.engines.base import Failure
from sparkctl.engines.line_preparer import LinePreparer
from sparkctl.model.engine_metrics import EngineFact
from sparkctl.model.phase import Phase, Step


@dataclass
class EngineLogReading:
    phases: list[Phase] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    failures: list[tuple[int, str, Failure]] = field(default_factory=list)
    facts: list[EngineFact] = field(default_factory=list)

    @property
    def _root_entry(self) -> tuple[int, str, Failure]:
        """The failure of the highest weight, the first of equal ones."""
        return max(self.failures, key=lambda found: found[2].weight)

    @property
    def root(self) -> Failure:
        return self._root_entry[2]

    @property
    def root_line(self) -> int:
        return self._root_entry[0]

    @property
    def root_text(self) -> str:
        return self._root_entry[1]


def read_engine_log(engine: str, log: str) -> EngineLogReading:
    one, preparer, reading = engines.load_engine(engine), LinePreparer(), EngineLogReading()
    for number, raw in enumerate(log.split("\n"), 1):
        for line in preparer.prepare_lines(raw):
            signal = one.classify_line(line)
            if signal is None:
                continue
            if signal.phase is not None and reading.phases[-1:] != [signal.phase]:
                reading.phases.append(signal.phase)
            if signal.step is not None:
                reading.steps.append(signal.step)
            reading.facts += signal.facts
            if signal.failure is not None:
                reading.failures.append((number, line, signal.failure))
    return reading
