"""What the panel's memory does in the long run: a million lines through its opened log, an hour of a recording.

The log against the opened log screen when it begins to read, the recording against itself near its beginning. The panel
is a process of its own on a terminal that is read and thrown away; the Sparks of the first part are simulated, in another.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.tools.bench.bench_report import Goal, LoadMeter, Report, Series
from tests.tools.bench.panel import open_screen

ROUNDS = 1
LINES, HOUR = 1_000_000, 3600.0
FIRST_LINES, FIRST_SECONDS = 0, 120.0
GROWTH, GROWTH_MIB = 1.05, 20.0
_PATIENCE = 240.0
_PRINTING = """
import asyncio, sys
from sparkctl.simulator import SimulatedSparks
async def main():
    async with SimulatedSparks("two-stacks", speed=1 / 42) as sparks:
        journal = next(iter(sparks.docker["spark1"].running.values())).container.journal
        filler = "x" * 90
        for first in range(1, {count} + 1, 1000):
            journal.write("".join(f"{{n:08d}} {{filler}}\\n" for n in range(first, first + 1000)))
            await asyncio.sleep(0)
        print(sparks.config_path, flush=True)
        await asyncio.to_thread(sys.stdin.read)
asyncio.run(main())
"""
Course = Sequence[tuple[float, float]]  # how far it has come, and MiB there


def run(rounds: int = ROUNDS) -> Report:
    """Measure resident MiB all the way; the growth is that of the worst moment after the first part."""
    load = LoadMeter()
    read = [_run_log_panel() for _ in range(rounds)]
    played = [_run_panel("replay", "-", HOUR) for _ in range(rounds)]
    series = (
        *_build_goals(f"{LINES:,} log lines", read, FIRST_LINES, "opening it"),
        *_build_goals("an hour", played, FIRST_SECONDS, "2 min"),
    )
    goals = (
        Goal(
            "the log: RSS at worst - before its first line",
            max(_find_worst(course, FIRST_LINES) - _read_first(course, FIRST_LINES) for course in read),
            GROWTH_MIB,
            unit="MiB",
        ),
        Goal("the recording: RSS at worst / after 2 minutes of it", _compute_growth(played, FIRST_SECONDS), GROWTH),
    )
    title = "the panel's memory, 140 x 40: a million lines of 100 bytes in the opened log; an hour replayed"
    return Report("growth", title, series, goals, load.read())


def _build_goals(what: str, courses: Sequence[Course], first: float, name: str) -> tuple[Series, ...]:
    return (
        Series(f"{what}: RSS after {name}", "MiB", tuple(_read_first(course, first) for course in courses)),
        Series(f"{what}: RSS at worst", "MiB", tuple(_find_worst(course, first) for course in courses)),
        Series(f"{what}: RSS at the end", "MiB", tuple(course[-1][1] for course in courses)),
    )


def _read_first(course: Course, first: float) -> float:
    return next(held for come, held in course if come >= first)


def _find_worst(course: Course, first: float) -> float:
    return max(held for come, held in course if come >= first)


def _compute_growth(courses: Sequence[Course], first: float) -> float:
    return max(_find_worst(course, first) / _read_first(course, first) for course in courses)


def _run_log_panel() -> Course:
    """Let the panel read a log that is there, every line over SSH."""
    program = _PRINTING.format(count=LINES)
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as sparks:
        assert sparks.stdin is not None
        assert sparks.stdout is not None
        try:
            return _run_panel("logs", sparks.stdout.readline().decode().strip(), LINES)
        finally:
            sparks.stdin.close()
            sparks.wait(30)


def _run_panel(which: str, config: str, until: float) -> Course:
    with tempfile.TemporaryDirectory(prefix="sparkctl-bench-") as name:
        report = Path(name) / "report.json"
        env = {**os.environ, "TERM": "xterm-256color", "XDG_CONFIG_HOME": name, "XDG_STATE_HOME": name}
        argv = [sys.executable, "-m", "tests.tools.bench.growth_app", which, config, str(until), str(report)]
        with open_screen(argv, env) as screen:
            try:
                screen.process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                raise RuntimeError(f"{which}: not there after {_PATIENCE:.0f} s") from None
            time.sleep(0.1)
        if not report.exists():
            raise RuntimeError(f"{which}: the panel ended with exit {screen.process.returncode} and told nothing")
        course: list[tuple[float, float]] = [(come, held) for come, held in json.loads(report.read_text())]
    if course[-1][0] < until:
        raise RuntimeError(f"{which}: it came to {course[-1][0]:,.0f} of {until:,.0f}")
    return course
