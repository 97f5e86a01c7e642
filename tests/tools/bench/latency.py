"""From a line written in the container to its LogArrived event here, against ``ssh NODE docker logs -f``."""

from __future__ import annotations

import subprocess
import time

from tests.lab.bed.names import CLEAN_ENV, IMAGE
from tests.tools.bench.bench_lab import Bed, open_bed
from tests.tools.bench.bench_report import Goal, LoadMeter, Report, Series, compute_quantile
from tests.tools.bench.timed_processes import read_json_answer

ROUNDS, LINES, RATE = 5, 200, 100
OURS, THEIRS = "line -> LogArrived", "ssh docker logs -f"
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
    found = read_json_answer(
        "tests.tools.bench.log_client", "lag", "spark1", "ticker", str(LINES), env=bed.sparkctl.env
    )
    return [nanoseconds / 1e6 for nanoseconds in found["lags"]]


def _measure_docker_logs(bed: Bed) -> list[float]:
    """Read the lines in this process, which does nothing else."""
    command = [*bed.ssh("spark1"), "docker", "logs", "-f", "--tail", "0", "ticker"]
    lags: list[float] = []
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=CLEAN_ENV) as ssh:
        assert ssh.stdout is not None
        for line in ssh.stdout:
            lags.append((time.time_ns() - int(line)) / 1e6)
            if len(lags) >= LINES:
                break
        ssh.terminate()
    return lags
