"""Timing whole processes, in an environment like an operator's."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence


def operators_env(env: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return ``env`` (ours without it) with bytecode kept: an installed command does not compile itself each time."""
    unwanted = ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")
    return {key: value for key, value in (os.environ if env is None else env).items() if key not in unwanted}


def timed(argv: Sequence[str], env: Mapping[str, str] | None = None) -> float:
    """Return the seconds from fork to exit of a command whose output goes nowhere. Raises where it fails."""
    begun = time.perf_counter()
    done = subprocess.run(
        argv,
        env=operators_env(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        timeout=300,
        check=False,
    )
    seconds = time.perf_counter() - begun
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()[-2000:]
        raise RuntimeError(f"{' '.join(argv)}: exit {done.returncode}: {said}")
    return seconds
