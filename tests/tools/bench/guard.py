"""From MemAvailable crossing the floor to the engine's end: the guard against earlyoom, under memory that is really taken.

A container locks memory at a rate; the floor lies 1.5 GiB under what is available, so the pressure on it is real and the
machine's own reserve is not touched. The guard runs on the lab's node as its ordinary user, as sparkctl starts it; earlyoom
(with its own best priority, as root) in the node's namespace of processes, so that it can reach no process outside.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from sparkctl.model.guard_state import GuardProcess
from sparkctl.model.text.units import KIB, MIB
from sparkctl.monitor.guard_client import decode_guard_start
from sparkctl.node import bootstrap
from tests.lab.bed import cgroups
from tests.lab.bed.names import CLEAN_ENV, IMAGE
from tests.lab.bed.node import LabNode
from tests.lab.bed.shell import await_true
from tests.tools.bench.bench_lab import Bed, open_bed
from tests.tools.bench.bench_report import Goal, LoadMeter, Report, Series, compute_quantile
from tests.unit.node.guard.guard_process import Client

ROUNDS, RATES = 10, (512, 2048)  # rounds at each rate, MiB/s
ROOM, LIMIT = 1536 * MIB, 2816  # from what is available to the floor, bytes; the most that is taken, MiB
NAME = "zz-eater"
_SIGNAL_SECONDS = 0.2  # seconds that earlyoom has to send the signal that it has just announced
_PAUSE = 3.3  # seconds that the guard gives memory to come back, before it would end another instance


@dataclass(frozen=True, slots=True)
class Fall:
    """Milliseconds from the crossing to the signal or request being sent, and to the process being dead."""

    sent: float
    dead: float


class _Guard:
    """sparkctl's own, started over SSH as sparkctl does it; it ends by itself when it has had nothing to do."""

    def __init__(self, bed: Bed, node: LabNode) -> None:
        start = bootstrap.build_guard_program(nvml=b"", options=["--linger", "30"])
        command = [*bed.ssh(node.name), shlex.join(start.argv)]
        done = subprocess.run(command, input=start.stdin, capture_output=True, env=CLEAN_ENV, timeout=30, check=False)
        said = decode_guard_start(done.stdout)
        if not isinstance(said, GuardProcess):
            raise RuntimeError(f"no guard: {said} {done.stderr.decode()}")
        self.client = Client(f"/proc/{node.pid1}/root{said.socket}")
        self.claims: list[float] = []
        self._rested = 0.0

    def arm(self, container: str, floor: int) -> None:
        """Watch this container."""
        time.sleep(max(0.0, self._rested - time.monotonic()))
        self.client.watch(container, floor=floor, limit=60)

    def sent(self, container: str) -> float:
        """Return when it sent its request (unix time)."""
        await_true("the receipt", lambda: self.client.receipt(container) is not None)
        receipt = self.client.receipt(container)
        assert receipt is not None
        assert receipt.reaction is not None
        self.claims.append(receipt.reaction * 1000)
        self._rested = time.monotonic() + _PAUSE
        return receipt.at


class _Earlyoom:
    """The reference, at the same floor, on everything that a node of the lab runs; it prefers the eater."""

    def __init__(self, node: LabNode) -> None:
        self.node = node
        self.acted_at: float | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def arm(self, _container: str, floor: int) -> None:
        """Start it, and return when it watches."""
        self.acted_at = None
        for pid in cgroups.list_processes(self.node.name).difference(self.node.pids(NAME)):
            with contextlib.suppress(OSError):  # what has this score it never chooses
                Path(f"/proc/{pid}/oom_score_adj").write_text("-1000")
        sizes = f"{floor // KIB},{floor // KIB}"
        words = ["earlyoom", "-M", sizes, "-s", "100,100", "-r", "0", "-p", "--prefer", f"^{NAME}$", "--avoid", "^[^z]"]
        self._process = subprocess.Popen(
            self.node.enter(*words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            preexec_fn=lambda: cgroups.join_cgroups(self.node.name),
        )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(b"sending SIGTERM when"):
                break
        (pid,) = self.node.pids("earlyoom")  # what we started is the way in
        threading.Thread(target=self._hear, args=(self._process.stdout, pid), daemon=True).start()
        time.sleep(1.2)  # its first sleep behind it

    def _hear(self, stdout: IO[bytes], pid: int) -> None:
        for line in stdout:
            if line.startswith(b"sending SIGKILL to"):
                now = time.time()
                time.sleep(_SIGNAL_SECONDS)
                os.kill(pid, signal.SIGKILL)  # then at once: memory may be back later than its next look
                self.acted_at = now
                if NAME.encode() not in line:
                    raise RuntimeError(f"not what it was to end: {line!r}")
                return

    def sent(self, _container: str) -> float:
        """Return when it said that it sends its signal (unix time), and end it."""
        await_true("earlyoom's word", lambda: self.acted_at is not None)
        assert self.acted_at is not None
        assert self._process is not None
        self._process.wait(10)
        return self.acted_at


def run(rounds: int = ROUNDS) -> Report:
    """Measure both by turns, at each rate, in milliseconds; the first pair does not count."""
    if shutil.which("earlyoom") is None:
        raise RuntimeError("the reference is missing: apt-get install -y --no-install-recommends earlyoom")
    taken: dict[str, list[Fall]] = {"guard": [], "earlyoom": []}
    with open_bed() as bed:
        node = bed.lab.nodes["spark1"]
        source = Path(__file__).with_name("eater.c")
        subprocess.run(["gcc", "-O2", "-static", "-o", str(node.shared / NAME), str(source)], check=True)
        load = LoadMeter()
        guard, earlyoom = _Guard(bed, node), _Earlyoom(node)
        try:
            for at in range(rounds * len(RATES) + 1):
                rate = RATES[at % len(RATES)]
                pair = _run_fall(node, rate, guard), _run_fall(node, rate, earlyoom)
                if at:
                    taken["guard"].append(pair[0])
                    taken["earlyoom"].append(pair[1])
        finally:
            guard.client.close()
        return _build_report(taken, guard.claims[1:], load.read())


def _build_report(taken: dict[str, list[Fall]], claims: list[float], load: tuple[float, float]) -> Report:
    series: list[Series] = []
    marks: dict[tuple[str, str, str], float] = {}
    for what in ("sent", "dead"):
        for actor, falls in taken.items():
            values = tuple(getattr(fall, what) for fall in falls)
            series.append(Series(f"crossing -> {what}, {actor}", "ms", values))
            marks[actor, what, "p50"], marks[actor, what, "p95"] = (
                compute_quantile(values, 0.5),
                compute_quantile(values, 0.95),
            )
    series.append(Series("crossing -> sent, by the guard's receipts", "ms", tuple(claims)))
    goals = [Goal("p95 crossing -> request sent, guard", marks["guard", "sent", "p95"], 200.0, unit="ms")]
    for what in ("sent", "dead"):
        for mark in ("p50", "p95"):
            ratio = marks["guard", what, mark] / marks["earlyoom", what, mark]
            goals.append(Goal(f"{mark} crossing -> {what}, guard / earlyoom", ratio, 1.0))
    notes = (
        f"locked at {' and '.join(str(rate) for rate in RATES)} MiB/s, by turns; the guard as an ordinary user",
        *(
            f"p95 {actor}: sent {marks[actor, 'sent', 'p95']:.1f} ms, dead {marks[actor, 'dead', 'p95']:.1f} ms"
            for actor in taken
        ),
    )
    return Report("guard", "MemAvailable under the floor", tuple(series), tuple(goals), load, notes)


def _run_fall(node: LabNode, rate: int, ender: _Guard | _Earlyoom) -> Fall:
    """Let a container take memory until it is ended; a witness on the host, with the best priority, notes the crossing."""
    go = node.shared / "go"
    go.unlink(missing_ok=True)
    words = ["/x/" + NAME, "/x/go", str(rate), str(LIMIT)]
    options = ["--network", "none", "--cap-add", "IPC_LOCK", "--ulimit", "memlock=-1:-1", "-v", "/run/lab:/x"]
    container = node.docker("run", "-d", *options, IMAGE, *words)
    await_true("the container's process", lambda: len(node.pids(NAME)) == 1)
    handle = os.pidfd_open(node.pids(NAME)[0])
    floor = _read_available() - ROOM
    witness = subprocess.Popen([str(node.shared / NAME), str(floor // KIB)], stdout=subprocess.PIPE, text=True)
    try:
        assert witness.stdout is not None
        witness.stdout.readline()
        ender.arm(container, floor)
        go.touch()
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        ended = poll.poll(20_000)
        dead = time.time()
        if not ended:
            raise RuntimeError("nobody ended it")
        if select.select([witness.stdout], [], [], 1.0)[0]:
            crossed = _find_crossing(witness.stdout.readline(), floor)
        else:
            raise RuntimeError("it was ended, and memory did not cross the floor")
    finally:
        witness.kill()
        witness.communicate()
        os.close(handle)
    sent = ender.sent(container)
    node.docker("rm", "-f", container)
    return Fall((sent - crossed) * 1000, (dead - crossed) * 1000)


def _find_crossing(line: str, floor: int) -> float:
    """Return when memory crossed the floor (unix time), between the witness's two readings in proportion."""
    before_ns, before, after_ns, after = map(int, line.split())
    share = (before - floor / KIB) / (before - after)
    return (before_ns + share * (after_ns - before_ns)) / 1e9


def _read_available() -> int:
    match = re.search(r"^MemAvailable:\s+(\d+)", Path("/proc/meminfo").read_text(), re.MULTILINE)
    assert match is not None
    return int(match[1]) * KIB
