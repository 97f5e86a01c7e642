"""Timing whole processes, in an environment like an operator's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]


def build_operator_env(env: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return ``env`` (ours without it) with bytecode kept: an installed command does not compile itself each time."""
    unwanted = ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")
    return {key: value for key, value in (os.environ if env is None else env).items() if key not in unwanted}


def time_process(argv: Sequence[str], env: Mapping[str, str] | None = None) -> float:
    """Return the seconds from fork to exit of a command whose output goes nowhere. Raises where it fails."""
    begun = time.perf_counter()
    done = subprocess.run(
        argv,
        env=build_operator_env(env),
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


def measure_processor_time(argv: Sequence[str], env: Mapping[str, str] | None = None) -> float:
    """Return the seconds of processor time of a command whose output goes nowhere. Raises where it fails."""
    process = subprocess.Popen(
        argv,
        env=build_operator_env(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(argv)}: exit {process.returncode}")
    return used.ru_utime + used.ru_stime


def read_json_answer(module: str, *words: str, env: Mapping[str, str], timeout: float = 300.0) -> dict[str, Any]:
    """Run ``python -m module`` from the repository and return the JSON object that it prints. Raises where it fails."""
    command = [sys.executable, "-m", module, *words]
    done = subprocess.run(
        command,
        env=build_operator_env(env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=timeout,
        check=False,
        cwd=ROOT,
    )
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()[-2000:]
        raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}: {said}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found
