"""From a line written in the container to stdout of ``sparkctl logs -f``, against ``ssh NODE docker logs -f``."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping, Sequence

from tests.lab.bed.names import CLEAN_ENV, IMAGE
from tests.tools.bench.bench_lab import Bed, open_bed
from tests.tools.bench.bench_report import Goal, LoadMeter, Report, Series, compute_quantile
from tests.tools.bench.timed_processes import build_operator_env

ROUNDS, LINES, RATE = 5, 200, 100
OURS, THEIRS = "sparkctl logs -f", "ssh docker logs -f"
# A line is the time it is written: containers and clients of the lab share one clock.
TICKER = f"import os, time\nwhile True:\n    os.write(1, b'%d\\n' % time.time_ns())\n    time.sleep(1 / {RATE})"


def run(rounds: int = ROUNDS) -> Report:
    """Measure single lines, in milliseconds, both ways by turns."""
    with open_bed() as bed:
        node = bed.lab.nodes["spark1"]
        node.docker("run", "-d", "--name", "ticker", "--network", "host", IMAGE, "python", "-c", TICKER)
        load = LoadMeter()
        ours: list[float] = []
        theirs: list[float] = []
        for round_ in range(rounds + 1):
            pair = _measure_sparkctl(bed), _measure_docker_logs(bed)
            if round_:
                ours += pair[0]
                theirs += pair[1]
        series = (Series(OURS, "ms", tuple(ours)), Series(THEIRS, "ms", tuple(theirs)))
        p95 = compute_quantile(ours, 0.95), compute_quantile(theirs, 0.95)
        goals = (
            Goal(f"p95 {OURS}", p95[0], 20.0, unit="ms"),
            Goal(f"p95 {OURS} / p95 {THEIRS}", p95[0] / p95[1]),
        )
        notes = (f"{RATE} lines a second; p95 {THEIRS}: {p95[1]:.2f} ms",)
        return Report("latency", "a line from the container to the client", series, goals, load.read(), notes)


def _measure_sparkctl(bed: Bed) -> list[float]:
    words = ("logs", "ticker", "--node", "spark1", "-f", "--tail", "0")
    return _measure_lags(bed.sparkctl.argv(*words), bed.sparkctl.env)


def _measure_docker_logs(bed: Bed) -> list[float]:
    return _measure_lags([*bed.ssh("spark1"), "docker", "logs", "-f", "--tail", "0", "ticker"], CLEAN_ENV)


def _measure_lags(command: Sequence[str], env: Mapping[str, str]) -> list[float]:
    """Read the lines that a command prints in this process, which does nothing else; in milliseconds."""
    lags: list[float] = []
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=build_operator_env(env)
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lags.append((time.time_ns() - int(line)) / 1e6)
            if len(lags) >= LINES:
                break
        process.terminate()
    return lags
