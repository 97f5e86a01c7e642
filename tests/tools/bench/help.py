"""The help of sparkctl and of a verb, and its version, against importing the library that parses its command line."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.tools.bench.bench_report import Goal, LoadMeter, Report, Series, measure_interleaved
from tests.tools.bench.timed_processes import measure_processor_time

ROUNDS = 21
OURS = ("--help", "status --help", "switch --help", "--version")
THEIRS = 'python -c "import click"'


def run(rounds: int = ROUNDS) -> Report:
    """Measure whole processes, in milliseconds of processor time."""
    load = LoadMeter()
    command = str(Path(sys.executable).with_name("sparkctl"))
    measures = {f"sparkctl {words}": [command, *words.split()] for words in OURS}
    measures[THEIRS] = [sys.executable, "-c", "import click"]
    taken = measure_interleaved(
        rounds, {name: lambda argv=argv: 1000 * measure_processor_time(argv) for name, argv in measures.items()}
    )
    series = tuple(Series(name, "ms", values) for name, values in taken.items())
    goals = tuple(Goal(f"{one.name} / {THEIRS}", one.median / series[-1].median, 1.5) for one in series[:-1])
    return Report("help", "the help of a cold process", series, goals, load.read())
