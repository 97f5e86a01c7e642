"""``sparkctl status`` on two nodes, everything cold: against a bare asyncssh program that asks both nodes the same, and against
``docker ps`` over ssh."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.lab.bed.lab import KEYS
from tests.lab.bed.names import USER
from tests.tools.bench.bench_lab import Bed, open_bed
from tests.tools.bench.bench_report import Goal, LoadMeter, Report, Series, measure_interleaved
from tests.tools.bench.timed_processes import measure_processor_time, time_process

ROUNDS = 15
OURS, THEIRS, COLD = "sparkctl status", "docker ps, warm ssh, twice", "docker ps, new ssh, twice"
OURS_CPU, BARE_CPU = "sparkctl status, CPU", "bare asyncssh, CPU"
_BARE = """
import asyncio, sys
import asyncssh
async def ask(user, host, key, known):
    options = {"username": user, "client_keys": [key], "known_hosts": known, "config": None}
    async with asyncssh.connect(host, **options) as link:
        answers = await asyncio.gather(
            link.run("cat /proc/meminfo", check=True), link.run("docker ps --no-trunc --format json", check=True)
        )
    for answer in answers:
        print(answer.stdout)
async def main():
    user, key, known, *hosts = sys.argv[1:]
    await asyncio.gather(*(ask(user, host, key, known) for host in hosts))
asyncio.run(main())
"""


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
        median = {one.name: one.median for one in series}
        goals = (
            Goal(f"{OURS_CPU} / {BARE_CPU}", median[OURS_CPU] / median[BARE_CPU], 1.25),
            Goal(f"{OURS} / {COLD}", median[OURS] / median[COLD]),
            Goal(f"{OURS} / {THEIRS}", median[OURS] / median[THEIRS]),
        )
        return Report("status", "two nodes, one instance on each, a cold process", series, goals, load.read())


def _measure_status(bed: Bed, rounds: int) -> tuple[Series, ...]:
    command, env = str(Path(sys.executable).with_name("sparkctl")), bed.sparkctl.env
    with bed.masters() as warm:

        def docker_ps(ssh: dict[str, list[str]]) -> float:
            return 1000 * sum(time_process([*words, "docker", "ps"]) for words in ssh.values())

        cold = {name: bed.ssh(name) for name in bed.lab.nodes}
        hosts = [node.address for node in bed.lab.nodes.values()]
        known = str(bed.sparkctl.home / ".ssh/known_hosts")
        bare = [sys.executable, "-c", _BARE, USER, str(KEYS / "client"), known, *hosts]
        measures = {
            OURS: lambda: 1000 * time_process([command, "status"], env),
            THEIRS: lambda: docker_ps(warm),
            COLD: lambda: docker_ps(cold),
            OURS_CPU: lambda: 1000 * measure_processor_time([command, "status"], env),
            BARE_CPU: lambda: 1000 * measure_processor_time(bare, env),
        }
        return tuple(Series(name, "ms", values) for name, values in measure_interleaved(rounds, measures).items())
