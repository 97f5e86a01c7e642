"""``sparkctl --help`` against importing the library that parses its command line."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.tools.bench.bench_report import Goal, LoadMeter, Report, Series, measure_interleaved
from tests.tools.bench.timed_processes import time_process

ROUNDS = 21
OURS, THEIRS = "sparkctl --help", 'python -c "import click"'


def run(rounds: int = ROUNDS) -> Report:
    """Measure whole processes, in milliseconds."""
    load = LoadMeter()
    command = str(Path(sys.executable).with_name("sparkctl"))
    taken = measure_interleaved(
        rounds,
        {
            OURS: lambda: 1000 * time_process([command, "--help"]),
            THEIRS: lambda: 1000 * time_process([sys.executable, "-c", "import click"]),
        },
    )
    series = tuple(Series(name, "ms", values) for name, values in taken.items())
    goal = Goal(f"{OURS} / {THEIRS}", series[0].median / series[1].median, 1.5)
    return Report("help", "the help of a cold process", series, (goal,), load.read())
