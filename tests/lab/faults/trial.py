"""One row of the table: what is done, what is expected, and the verdict on what was seen."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from subprocess import SubprocessError
from typing import NoReturn

from tests.lab.bed.faults import Faults
from tests.lab.bed.lab import Lab
from tests.lab.bed.node import LabNode
from tests.lab.bed.shell import BedError
from tests.lab.support.clear_nodes import clear_nodes, end_guards
from tests.lab.support.sparkctl_process import Ran, Sparkctl, StillRunning

DEFECT = 70  # the exit code of a defect in sparkctl


class Verdict(StrEnum):
    """How a fault ended."""

    SURVIVED = "survived"  # it said what was so, nothing was lost or doubled, and the next normal command works
    LIED = "lied"  # it said, or kept silent about, something that was not so
    LOST = "lost"  # a model, a line, a file or the lock was lost or doubled
    HUNG = "hung"  # it did not end within its time
    CRASHED = "crashed"  # a traceback, or exit 70
    NOT_TRIED = "not tried"  # it cannot be tried on this machine, or what it waits for did not come about


class Failure(Exception):
    """A fault that was not survived."""

    def __init__(self, verdict: Verdict, what: str) -> None:
        super().__init__(what)
        self.verdict = verdict


@dataclass(slots=True)
class Trial:
    """What a row is played with: clean nodes, a command with a home of its own, and a record of what was seen."""

    lab: Lab
    faults: Faults
    home: Path
    rounds: int = 20
    seen: list[str] = field(default_factory=list)
    operators: list[Sparkctl] = field(default_factory=list)

    def operator(self, name: str = "milo") -> Sparkctl:
        """Return a new operator's command, with a home, keys and a config of its own."""
        made = Sparkctl(self.home, name)
        self.operators.append(made)
        return made

    @property
    def spark1(self) -> LabNode:
        """The first node."""
        return self.lab.nodes["spark1"]

    @property
    def spark2(self) -> LabNode:
        """The second node."""
        return self.lab.nodes["spark2"]

    def note(self, what: str) -> None:
        """Note something for the table."""
        self.seen.append(what)

    def check(self, verdict: Verdict, holds: bool, what: str, ran: Ran | None = None) -> None:
        """Raise `Failure` with this verdict unless it holds."""
        if not holds:
            raise Failure(verdict, f"{what}\n{ran!r}" if ran is not None else what)

    def check_truth(self, holds: bool, what: str, ran: Ran | None = None) -> None:
        """Raise `Failure` unless sparkctl said what was so."""
        self.check(Verdict.LIED, holds, what, ran)

    def check_intact(self, holds: bool, what: str, ran: Ran | None = None) -> None:
        """Raise `Failure` unless everything is there, once."""
        self.check(Verdict.LOST, holds, what, ran)

    def check_end(self, ran: Ran, *codes: int, words: str = "") -> Ran:
        """Check an exit code, and that a sentence is in what was said."""
        self.check_truth(ran.code in codes, f"exit {ran.code} in place of {' or '.join(map(str, codes))}", ran)
        self.check_truth(words in ran.out + ran.err, f"{words!r} was not said", ran)
        return ran


@dataclass(frozen=True, slots=True)
class Row:
    """``fault``: what is done; ``expected``: exit codes, words and what is left afterwards. ``why_not`` tells why it cannot
    be tried on this machine."""

    name: str
    group: str
    fault: str
    expected: str
    play: Callable[[Trial], None]
    why_not: Callable[[], str | None]


@dataclass(frozen=True, slots=True)
class Result:
    """What was seen of a row. ``details``: all that was said, where it was not survived; "" where it cannot be tried here."""

    row: Row
    verdict: Verdict
    seen: str
    seconds: float
    details: str = ""

    @property
    def is_good(self) -> bool:
        """Tell whether it was survived, or cannot be tried on this machine. A lab that failed in the middle is not good."""
        return self.verdict is Verdict.SURVIVED or (self.verdict is Verdict.NOT_TRIED and not self.details)


def add_row(
    name: str, group: str, fault: str, expected: str, why_not: Callable[[], str | None] = lambda: None
) -> Callable[[Callable[[Trial], None]], Row]:
    """Make a row of the function that plays it."""
    return lambda play: Row(name, group, fault, expected, play, why_not)


def skip_row(why: str) -> NoReturn:
    """Say that this row cannot be tried here."""
    raise Failure(Verdict.NOT_TRIED, why)


def judge_row(row: Row, lab: Lab, rounds: int) -> Result:
    """Play one row on clean nodes and return what came of it; whatever it broke is mended afterwards."""
    if reason := row.why_not():
        return Result(row, Verdict.NOT_TRIED, reason, 0.0)
    began = time.monotonic()

    def result(verdict: Verdict, seen: str, details: str = "") -> Result:
        return Result(row, verdict, seen, time.monotonic() - began, details)

    with _open_trial(lab, rounds) as trial:
        try:
            row.play(trial)
        except Failure as failure:
            details = "" if failure.verdict is Verdict.NOT_TRIED else str(failure)
            found = result(failure.verdict, str(failure).splitlines()[0], details)
        except StillRunning as hung:
            found = result(Verdict.HUNG, str(hung).splitlines()[0], str(hung))
        except AssertionError as wrong:
            found = result(Verdict.LIED, (str(wrong).splitlines() or ["an assertion"])[0], str(wrong))
        except (BedError, LookupError, ValueError, OSError, SubprocessError) as broken:
            said = f"the lab failed: {type(broken).__name__}: {broken}"
            found = result(Verdict.NOT_TRIED, said.splitlines()[0], said)
        else:
            found = result(Verdict.SURVIVED, "; ".join(trial.seen))
        if crash := _find_crash(trial):
            return result(Verdict.CRASHED, crash.splitlines()[0], crash)
        return found


@contextmanager
def _open_trial(lab: Lab, rounds: int) -> Iterator[Trial]:
    faults = Faults()
    _clear_nodes(lab, faults)
    with tempfile.TemporaryDirectory(prefix="sparkctl-fault-") as home:
        trial = Trial(lab, faults, Path(home), rounds)
        try:
            yield trial
        finally:
            for one in trial.operators:
                one.end_all()
            faults.undo()
            _clear_nodes(lab, faults)


def _clear_nodes(lab: Lab, faults: Faults) -> None:
    for node in lab.nodes.values():
        faults.kill_sessions(node)  # one whose link was cut still holds the node's lock
    clear_nodes(lab)
    end_guards(lab)


def _find_crash(trial: Trial) -> str:
    """Return what a command said that crashed, "" where none did."""
    for operator in trial.operators:
        for ran in operator.so_far():
            if ran.code == DEFECT or b"Traceback (most recent call last)" in ran.stderr:
                return f"a defect: exit {ran.code}\n{ran!r}"
    return ""
