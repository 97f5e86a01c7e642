"""Running a command and waiting for a condition, the two things every part of the bed does."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

from tests.lab.bed.names import CLEAN_ENV


class BedError(RuntimeError):
    """The lab itself failed; says which command and what it answered."""


def run(*argv: str, stdin: str = "", check: bool = True, enter: Callable[[], None] | None = None) -> str:
    """Return a command's stdout; ``enter`` runs in the child before exec. Raises BedError unless ``check`` is off."""
    done = subprocess.run(
        argv,
        input=stdin,
        text=True,
        errors="replace",
        capture_output=True,
        env=CLEAN_ENV,
        cwd="/",
        timeout=60,
        preexec_fn=enter,
    )
    if check and done.returncode:
        raise BedError(f"{' '.join(argv)}: exit {done.returncode}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def ip(*commands: str, netns: str | None = None) -> None:
    """Run `ip` commands as one batch, in a network namespace where one is named."""
    if commands:
        run("ip", *(("-n", netns) if netns else ()), "-batch", "-", stdin="\n".join(commands) + "\n")


def await_true(what: str, condition: Callable[[], bool], timeout: float = 60.0, pause: float = 0.02) -> None:
    """Return as soon as ``condition`` holds; raise BedError naming ``what`` after ``timeout`` seconds.

    Between two looks it waits at least five times as long as one takes: asking must not take the processor from what is waited for.
    """
    end = time.monotonic() + timeout
    while True:
        asked = time.monotonic()
        if condition():
            return
        now = time.monotonic()
        if now > end:
            raise BedError(f"waited {timeout:.0f} s for {what}")
        time.sleep(max(pause, min(5 * (now - asked), 0.25)))
