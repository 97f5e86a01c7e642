"""Printing a long log, and reading it alone, against ``ssh NODE docker logs NAME >/dev/null``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.lab.bed.names import CLEAN_ENV
from tests.tools.bench.bench_lab import Bed, open_bed
from tests.tools.bench.bench_report import Goal, LoadMeter, Report, Series, measure_interleaved
from tests.tools.bench.numbered_lines import WIDTH, build_numbered_program
from tests.tools.bench.timed_processes import read_json_answer, time_process

ROUNDS, LINES = 5, 300_000
OURS, THEIRS, VERB = "LogFollower", "ssh docker logs", "sparkctl logs, whole process"


def run(rounds: int = ROUNDS) -> Report:
    """Measure thousands of lines a second, from the connect to the last line; every line is counted."""
    with open_bed() as bed:
        bed.printed("spark1", "many", build_numbered_program(LINES))
        _check_reference(bed)
        load = LoadMeter()
        processor: list[float] = []

        def ours() -> float:
            found = read_json_answer("tests.tools.bench.log_client", "spark1", "many", env=bed.sparkctl.env)
            if found["lines"] != LINES:
                raise RuntimeError(f"{found['lines']} of {LINES} lines arrived")
            processor.append(found["cpu"] * 1e6 / LINES)
            return float(LINES / found["seconds"] / 1000)

        command = [str(Path(sys.executable).with_name("sparkctl")), "logs", "many", "--node", "spark1"]
        taken = measure_interleaved(
            rounds,
            {
                OURS: ours,
                THEIRS: lambda: LINES / time_process([*bed.ssh("spark1"), "docker", "logs", "many"]) / 1000,
                VERB: lambda: LINES / time_process(command, bed.sparkctl.env) / 1000,
            },
        )
        rates = [Series(name, "k lines/s", values) for name, values in taken.items()]
        processor_time = Series(f"{OURS}, CPU", "s/M lines", tuple(processor[1:]))
        goals = (
            Goal(f"{VERB} / {THEIRS}", rates[2].median / rates[1].median, 0.8, at_most=False),
            Goal(f"{OURS} / {THEIRS}", rates[0].median / rates[1].median),
        )
        title = f"{LINES:,} lines of {WIDTH} bytes, connect included"
        return Report("throughput", title, (*rates, processor_time), goals, load.read())


def _check_reference(bed: Bed) -> None:
    """What the reference reads has to be the same number of lines."""
    command = [*bed.ssh("spark1"), "docker logs many | wc -l"]
    counted = subprocess.run(command, capture_output=True, text=True, check=True, env=CLEAN_ENV).stdout
    if int(counted) != LINES:
        raise RuntimeError(f"the log has {counted.strip()} lines, not {LINES}")
