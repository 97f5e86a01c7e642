"""A real probe on this machine, started as a node would start it, and machines made of files for it to look at."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sparkctl.node import bootstrap
from sparkctl.transport.ssh.login_shell import BEGIN_MARK, build_remote_command

GB10_MEMINFO = """MemTotal:       127535224 kB
MemFree:         4510768 kB
MemAvailable:   23135528 kB
Buffers:           77328 kB
Cached:         20448480 kB
SwapTotal:      16777212 kB
SwapFree:       16723228 kB
Dirty:               312 kB
Shmem:            755460 kB
SReclaimable:     231480 kB
HugePages_Total:       2
HugePages_Free:        1
Hugepagesize:       2048 kB
CmaTotal:              0 kB
CmaFree:          940604 kB
"""


class RunningAgent:
    """One probe. Every read has a deadline, so a probe that says nothing fails a test instead of hanging it."""

    def __init__(self, shell: Sequence[str] = (), **options: Any) -> None:
        self.start = bootstrap.build_agent_program(**options)
        line, script = build_remote_command(self.start.argv)
        argv = [*shell, line] if shell else self.start.argv
        self.process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
        )
        self._selector = selectors.DefaultSelector()
        assert self.process.stdout is not None
        self._selector.register(self.process.stdout, selectors.EVENT_READ)
        self._buffer = b""
        if shell:
            self.write(script)
            while self.line() != BEGIN_MARK.rstrip():
                pass
        self.write(self.start.stdin)

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        while data:
            data = data[self.process.stdin.write(data) :]

    def line(self, within: float = 10.0) -> bytes:
        """Return its next line, b"" at its end."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + within
        while b"\n" not in self._buffer:
            assert self._selector.select(max(0.0, deadline - time.monotonic())), "the probe says nothing"
            said = os.read(self.process.stdout.fileno(), 65536)
            if not said:
                return b""
            self._buffer += said
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def said(self) -> dict[str, Any]:
        line = self.line()
        assert line, self.error()
        found = json.loads(line)
        assert isinstance(found, dict)
        return found

    def error(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()

    def feed(self) -> None:
        self.write(b"\n")

    def children(self) -> list[int]:
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in path.read_text().split()]


@contextmanager
def run_agent(**options: Any) -> Iterator[RunningAgent]:
    """A running probe, past its hello; killed at the end if it did not end."""
    running = RunningAgent(**{"every": 0.05, **options})
    try:
        yield running
    finally:
        running.process.kill()
        running.process.wait()
        for stream in (running.process.stdin, running.process.stdout, running.process.stderr):
            assert stream is not None
            stream.close()


def write_machine_files(root: Path, files: Mapping[str, str]) -> str:
    """Write a machine's files under ``root``; return it as the probe's option."""
    for name, text in files.items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(root)


def build_nvml_stub(directory: Path) -> Path:
    """Build a library that answers as a GB10's driver does; return the directory for LD_LIBRARY_PATH."""
    source = Path(__file__).with_name("nvml_stub.c")
    directory.mkdir(exist_ok=True)
    library = directory / "libnvidia-ml.so.1"
    subprocess.run(["gcc", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o", library, source], check=True)
    return directory


def list_pythons() -> list[str]:
    """This Python, the system's and the oldest that is promised, as far as they are here."""
    wanted = [sys.executable, "/usr/bin/python3", *map(str, Path.home().glob(".pyenv/versions/3.8.*/bin/python3.8"))]
    return [python for python in wanted if Path(python).exists()]
