"""``sparkctl status`` on two nodes, everything cold, against ``docker ps`` over a warm ssh ControlMaster, twice."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.tools.bench.bench_lab import Bed, open_bed
from tests.tools.bench.bench_report import Goal, LoadMeter, Report, Series, measure_interleaved
from tests.tools.bench.timed_processes import time_process

ROUNDS = 15
OURS, THEIRS, COLD = "sparkctl status", "docker ps, warm ssh, twice", "docker ps, new ssh, twice"


def run(rounds: int = ROUNDS) -> Report:
    """Measure whole processes, in milliseconds; on each node one instance runs."""
    with open_bed() as bed:
        profile = bed.sparkctl.profile()
        for name in bed.lab.nodes:
            started = bed.sparkctl("up", profile, "--node", name, "--json")
            if started.code:
                raise RuntimeError(f"the instance to look at did not start on {name}: {started}")
        load = LoadMeter()
        series = _measure_status(bed, rounds)
        goal = Goal(f"{OURS} / {THEIRS}", series[0].median / series[1].median, 5.0)
        return Report("status", "two nodes, one instance on each, a cold process", series, (goal,), load.read())


def _measure_status(bed: Bed, rounds: int) -> tuple[Series, ...]:
    command, env = str(Path(sys.executable).with_name("sparkctl")), bed.sparkctl.env
    with bed.masters() as warm:

        def docker_ps(ssh: dict[str, list[str]]) -> float:
            return 1000 * sum(time_process([*words, "docker", "ps"]) for words in ssh.values())

        cold = {name: bed.ssh(name) for name in bed.lab.nodes}
        measures = {
            OURS: lambda: 1000 * time_process([command, "status"], env),
            THEIRS: lambda: docker_ps(warm),
            COLD: lambda: docker_ps(cold),
        }
        return tuple(Series(name, "ms", values) for name, values in measure_interleaved(rounds, measures).items())
