"""``sparkctl sync`` of a model between the lab's nodes, against one stream of ``rsync --daemon``, over the second link.

sync encrypts, and proves the checksum of each file at both ends; rsync does neither here. So the ratio is a matter of
the cores that both nodes share: it is told, without a bound.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.lab.bed.names import FABRIC
from tests.lab.bed.node import LabNode
from tests.lab.bed.shell import await_true
from tests.tools.bench.bench_lab import Bed, open_bed
from tests.tools.bench.bench_report import Goal, LoadMeter, Report, Series, measure_interleaved
from tests.tools.bench.timed_processes import time_process

ROUNDS = 3
FILES, FILE_BYTES = 6, 143 << 20  # 858 MiB
MODELS = "/home/milo/models"
MODEL = f"{MODELS}/bench"
OURS, THEIRS = "sparkctl sync", "rsync --daemon, one stream"
PORT = 8730
DAEMON = f"[models]\npath = {MODELS}\nread only = no\nuid = root\ngid = root\nuse chroot = no\n"


def run(rounds: int = ROUNDS) -> Report:
    """Measure whole processes, in seconds. The target is empty before each. Needs rsync on the machine."""
    with open_bed() as bed:
        one, two = bed.lab.nodes["spark1"], bed.lab.nodes["spark2"]
        script = (
            f"mkdir -p {MODEL}; cd {MODEL}; echo '{{}}' >config.json; for n in $(seq {FILES}); do "
            f"head -c {FILE_BYTES} /dev/urandom >model-0000$n-of-0000{FILES}.safetensors; done"
        )
        one.sh("sudo", "-u", "milo", "-H", "sh", "-c", script)
        bed.sparkctl.configure(fabric=FABRIC)
        load = LoadMeter()
        try:
            with serve_rsync(two):
                series = _measure_copies(bed, one, two, rounds)
        finally:
            for node in (one, two):
                node.sh("rm", "-rf", MODEL)
        goal = Goal(f"{OURS} / {THEIRS}", series[0].median / series[1].median)
        return Report("sync", f"{FILES} files of {FILE_BYTES >> 20} MiB", series, (goal,), load.read())


@contextmanager
def serve_rsync(node: LabNode) -> Iterator[None]:
    """Run rsync's daemon on a node."""
    node.put("/tmp/rsyncd.conf", DAEMON)
    command = ["rsync", "--daemon", "--no-detach", "--config=/tmp/rsyncd.conf", f"--port={PORT}"]
    daemon = subprocess.Popen(node.enter(*command), stdin=subprocess.DEVNULL)
    try:
        await_true("rsync to listen", lambda: bool(node.sh("ss", "-Hltn", f"sport = :{PORT}", check=False)))
        yield
    finally:
        daemon.terminate()
        daemon.wait(10)


def _measure_copies(bed: Bed, one: LabNode, two: LabNode, rounds: int) -> tuple[Series, ...]:
    profile = bed.sparkctl.profile(model={"path": "/models/bench", "served_name": "bench"}, mounts=["~/models:/models"])
    ours = [str(Path(sys.executable).with_name("sparkctl")), "sync", profile, "--from", "spark1", "--to", "spark2"]
    theirs = one.enter("rsync", "-a", MODEL, f"rsync://{two.fabric_address}:{PORT}/models/")

    def copy(command: list[str], env: dict[str, str] | None = None) -> float:
        two.sh("rm", "-rf", MODEL)
        return time_process(command, env)

    measures = {OURS: lambda: copy([*ours, "--model-only"], bed.sparkctl.env), THEIRS: lambda: copy(theirs)}
    return tuple(Series(name, "s", values) for name, values in measure_interleaved(rounds, measures).items())
