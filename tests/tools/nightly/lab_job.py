"""A nightly job on the lab: the nodes, a command with a home of its own, and how the job tells what it saw."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.lab.bed.lab import BY_HAND, Lab, hold_lab
from tests.lab.support.sparkctl_process import Ran, Sparkctl

WITHIN = 600.0


class WrongOutcome(Exception):
    """Something was not as it should be."""


@contextmanager
def on_lab() -> Iterator[tuple[Lab, Sparkctl]]:
    """Have the lab alone, and leave it as it was: one that somebody began by hand stays up."""
    with hold_lab(WITHIN), tempfile.TemporaryDirectory(prefix="sparkctl-nightly-home-") as home:
        bed = Lab()
        if not BY_HAND.exists():
            bed.down()
        try:
            bed.up()
            command = Sparkctl(Path(home))
            try:
                yield bed, command
            finally:
                command.end_all()
        finally:
            if not BY_HAND.exists():
                bed.down()


def judge_play(command: Sparkctl, play: Callable[[], None]) -> int:
    """Play, stop whatever is left, and return the exit code; what was `Wrong` is printed."""
    try:
        play()
    except WrongOutcome as wrong:
        print(f"WRONG: {wrong}")
        return 1
    finally:
        command("down", "--all", "--json", timeout=WITHIN)
    return 0


def expect_outcome(holds: bool, what: str, ran: Ran) -> None:
    """Raise `Wrong` with the command's output unless it holds."""
    if not holds:
        raise WrongOutcome(f"{what}\n{ran!r}")


def print_step(what: str, began: float) -> None:
    """Print what was seen and how long it took."""
    print(f"{time.monotonic() - began:6.1f} s  {what}", flush=True)
