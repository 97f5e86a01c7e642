"""A crowd of idle processes, some of them as if in a container: what a busy node's /proc looks like to the probe.

``python -m tests.tools.bench.idle_processes COUNT`` forks so many, says "ready", and ends them when its stdin does.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.lab.bed.cgroups import list_hierarchies
from tests.tools.bench.timed_processes import ROOT

CONTAINER = "c0" * 32


@contextmanager
def run_crowd(count: int, contained: int) -> Iterator[bool]:
    """Keep ``count`` processes, ``contained`` of them in a cgroup named like a container; yield whether that could be."""
    command = [sys.executable, "-m", "tests.tools.bench.idle_processes", str(count)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        pids = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        made = _put_in_cgroup(pids[:contained])
        try:
            yield made is not None
        finally:
            process.stdin.close()
            process.wait(30)
            if made is not None:
                made.rmdir()


def _put_in_cgroup(pids: list[str]) -> Path | None:
    for root in list_hierarchies():
        group = root / CONTAINER
        with suppress(OSError):
            group.mkdir(exist_ok=True)
            for pid in pids:
                (group / "cgroup.procs").write_text(pid)
            return group
    return None


def _main(count: int) -> None:
    pids = []
    for _ in range(count):
        pid = os.fork()
        if not pid:
            signal.pause()
            os._exit(0)
        pids.append(pid)
    os.write(1, b"ready\n")
    os.read(0, 1)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    for pid in pids:
        os.waitpid(pid, 0)


if __name__ == "__main__":
    _main(int(sys.argv[1]))
