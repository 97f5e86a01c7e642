"""The help of sparkctl and of a verb, its version, and what completion offers, against importing the library that parses its
command line."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from tests.tools.bench.bench_report import Goal, LoadMeter, Report, Series, measure_interleaved
from tests.tools.bench.timed_processes import measure_processor_time

ROUNDS = 21
OURS = ("--help", "status --help", "switch --help", "--version")
COMPLETED = {
    "verbs": "sparkctl ",
    "profiles": "sparkctl up ",
    "nodes": "sparkctl up x --node ",
    "instances": "sparkctl down ",
}
COMPLETION_LIMIT_MS = 100.0
THEIRS = 'python -c "import click"'
_CONFIG = "nodes:\n- {name: spark1, host: 192.0.2.1, user: milo}\n- {name: spark2, host: 192.0.2.2}\n"


def run(rounds: int = ROUNDS) -> Report:
    """Measure whole processes, in milliseconds of processor time."""
    load = LoadMeter()
    command = str(Path(sys.executable).with_name("sparkctl"))
    measures = {f"sparkctl {words}": [command, *words.split()] for words in OURS}
    measures[THEIRS] = [sys.executable, "-c", "import click"]
    with tempfile.TemporaryDirectory(prefix="sparkctl-bench-") as home:
        (Path(home) / "config.yaml").write_text(_CONFIG)
        env = {**os.environ, "SPARKCTL_CONFIG": f"{home}/config.yaml", "XDG_CACHE_HOME": home, "XDG_CONFIG_HOME": home}
        asking = {
            f"completion of {what}": {
                **env, "_SPARKCTL_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split()))
            }
            for what, line in COMPLETED.items()
        }  # fmt: skip
        taken = measure_interleaved(
            rounds,
            {name: lambda argv=argv: 1000 * measure_processor_time(argv) for name, argv in measures.items()}
            | {
                name: lambda asked=asked: 1000 * measure_processor_time([command], asked)
                for name, asked in asking.items()
            },
        )
    series = {name: Series(name, "ms", values) for name, values in taken.items()}
    theirs = series[THEIRS].median
    goals = (
        *(Goal(f"{name} / {THEIRS}", series[name].median / theirs, 1.5) for name in measures if name != THEIRS),
        *(Goal(name, series[name].median, COMPLETION_LIMIT_MS, unit="ms") for name in asking),
    )
    return Report("help", "the help of a cold process, and completion", tuple(series.values()), goals, load.read())
