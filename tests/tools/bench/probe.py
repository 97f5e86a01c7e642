"""What the travelling probe costs a node at one sample a second, against ``top -b -d1`` and ``nvitop`` in the same run.

Where this machine has no NVIDIA driver, all of them ask a stand-in library that answers as a GB10's does. It weighs
nothing, a driver does: the figure for memory with a real driver has to be taken on a machine that has one.
"""

from __future__ import annotations

import ctypes
import os
import pty
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from sparkctl.node import agent, bootstrap
from tests.tools.bench.bench_report import Goal, LoadMeter, Report, Series
from tests.tools.bench.idle_processes import run_crowd
from tests.unit.node.agent_process import build_nvml_stub

ROUNDS = 30  # seconds
PER_CENT, MIB_LIMIT = 0.3, 20.0
CROWD, CONTAINED = 600, 60
_WARM_UP = 4.0
_MEMORY = {"RSS": ("Rss",), "PSS": ("Pss",), "USS": ("Private_Clean", "Private_Dirty")}
_TICKS = b" 1073741 2048 524288 99999999 4096 0 1024 0 0 0\n"


@dataclass(frozen=True, slots=True)
class Measured:
    """Per cent of one core in each second, and MiB by kind at the end."""

    name: str
    cpu: tuple[float, ...]
    memory: dict[str, float]


def run(rounds: int = ROUNDS) -> Report:
    """Let all of them run side by side, then the probe alone with a crowd of processes around it."""
    load, notes = LoadMeter(), []
    with tempfile.TemporaryDirectory(prefix="sparkctl-bench-") as scratch:
        env = dict(os.environ)
        if not _has_driver():
            env["LD_LIBRARY_PATH"] = str(build_nvml_stub(Path(scratch) / "lib"))
            notes.append("no NVIDIA driver here: a stand-in library without its weight answers as a GB10's does")
        with ExitStack() as stack:
            running = {"probe": stack.enter_context(_run_probe(env))}
            running["top"] = stack.enter_context(_run_command(["top", "-b", "-d1"], env))
            nvitop = _install_nvitop(Path(scratch))
            if isinstance(nvitop, Path):
                running["nvitop"] = stack.enter_context(_run_on_terminal([str(nvitop), "--interval", "1"], env))
            else:
                notes.append(f"without nvitop: {nvitop}")
            time.sleep(_WARM_UP)
            if "nvitop" in running and running["nvitop"].poll() is not None:
                notes.append(f"without nvitop: it ended with exit {running.pop('nvitop').returncode}")
            measured = _measure_processes(running, rounds)
        with ExitStack() as stack:
            if not stack.enter_context(run_crowd(CROWD, CONTAINED)):
                notes.append("no cgroup could be made: none of the crowd is in a container")
            amid = {f"probe amid {CROWD} processes": stack.enter_context(_run_probe(env))}
            time.sleep(_WARM_UP)
            measured += _measure_processes(amid, rounds)
    series = [Series(f"{one.name}: CPU", "%", one.cpu) for one in measured]
    series += [Series(f"{one.name}: {kind}", "MiB", (size,)) for one in measured for kind, size in one.memory.items()]
    notes.append(f"twenty cores: {_twenty_cores():.0f} us a sample to read and compare their ticks")
    title = "CPU of one core and memory at 1 Hz; the probe is two processes, both counted"
    return Report("probe", title, tuple(series), tuple(_build_goals(measured)), load.read(), tuple(notes))


def _build_goals(measured: list[Measured]) -> Iterator[Goal]:
    by_name = {one.name: one for one in measured}
    probe, crowded = by_name["probe"], measured[-1]
    yield Goal("probe, mean CPU of one core", statistics.mean(probe.cpu), PER_CENT, unit="%")
    yield Goal(f"{crowded.name}, mean CPU of one core", statistics.mean(crowded.cpu), PER_CENT, unit="%")
    yield Goal("probe, PSS", probe.memory["PSS"], MIB_LIMIT, unit="MiB")
    yield Goal("probe, RSS, pages that it shares with others included", probe.memory["RSS"], unit="MiB")
    for other in ("top", "nvitop"):
        if other in by_name:
            theirs = by_name[other]
            yield Goal(f"probe / {other}, mean CPU", statistics.mean(probe.cpu) / statistics.mean(theirs.cpu))
            yield Goal(f"probe / {other}, PSS", probe.memory["PSS"] / theirs.memory["PSS"])


def _measure_processes(running: dict[str, subprocess.Popen[bytes]], rounds: int) -> list[Measured]:
    """Look once a second. Raises RuntimeError where one of them ends."""
    pids = {name: _list_process_tree(process.pid) for name, process in running.items()}
    shares: dict[str, list[float]] = {name: [] for name in running}
    before = {name: (time.monotonic(), _read_cpu_seconds(tree)) for name, tree in pids.items()}
    due = time.monotonic()
    for _ in range(rounds):
        due += 1.0
        time.sleep(max(0.0, due - time.monotonic()))
        for name, tree in pids.items():
            (when, spent), now = before[name], (time.monotonic(), _read_cpu_seconds(tree))
            shares[name].append(100 * (now[1] - spent) / (now[0] - when))
            before[name] = now
    for name, process in running.items():
        if process.poll() is not None:
            raise RuntimeError(f"{name} ended: exit {process.returncode}")
    return [Measured(name, tuple(shares[name]), _read_memory(tree)) for name, tree in pids.items()]


def _list_process_tree(pid: int) -> list[int]:
    found = [pid]
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [one for child in (task / "children").read_text().split() for one in _list_process_tree(int(child))]
    return found


def _read_cpu_seconds(pids: list[int]) -> float:
    """Return the seconds on a CPU by the scheduler's own account: ticks of 10 ms would be too coarse."""
    files = [file for pid in pids for file in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    return sum(int(file.read_text().split()[0]) for file in files) / 1e9


def _read_memory(pids: list[int]) -> dict[str, float]:
    sizes: dict[str, int] = {}
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
            name, size = line.split()[:2]
            sizes[name.rstrip(":")] = sizes.get(name.rstrip(":"), 0) + int(size)
    return {kind: sum(sizes[name] for name in names) / 1024 for kind, names in _MEMORY.items()}


@contextmanager
def _run_probe(env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """The probe under the Python that a node would have, fed as sparkctl feeds it."""
    python = next((path for path in ("/usr/bin/python3",) if Path(path).exists()), sys.executable)
    start = bootstrap.build_agent_program(1.0, ["/"], python=python)
    with subprocess.Popen(start.argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        assert process.stdin is not None
        process.stdin.write(start.stdin)
        process.stdin.flush()
        over = threading.Event()

        def feed() -> None:
            assert process.stdin is not None
            while not over.wait(bootstrap.KEEPALIVE_SECONDS / 4):
                with suppress(OSError):
                    process.stdin.write(b"\n")
                    process.stdin.flush()

        feeding = threading.Thread(target=feed)
        feeding.start()
        try:
            yield process
        finally:
            over.set()
            feeding.join()
            process.kill()


@contextmanager
def _run_command(argv: list[str], env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def _run_on_terminal(argv: list[str], env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A command that wants a terminal, on one that is read and thrown away."""
    ours, theirs = pty.openpty()
    env = {**env, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
    with subprocess.Popen(argv, env=env, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True) as process:
        os.close(theirs)

        def drain() -> None:
            with suppress(OSError):
                while os.read(ours, 65536):
                    pass

        draining = threading.Thread(target=drain)
        draining.start()
        try:
            yield process
        finally:
            process.kill()
            process.wait()
            draining.join()
            os.close(ours)


def _install_nvitop(scratch: Path) -> Path | str:
    """Install nvitop into an environment of its own; return the command, or why there is none."""
    if found := shutil.which("nvitop"):
        return Path(found)
    place = scratch / "nvitop"
    for argv in ([sys.executable, "-m", "venv", str(place)], [str(place / "bin/pip"), "install", "-q", "nvitop"]):
        done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode:
            return f"it could not be installed: {done.stderr.strip().splitlines()[-1:]}"
    return place / "bin/nvitop"


def _has_driver() -> bool:
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True


def _twenty_cores() -> float:
    """Return the microseconds that a GB10's twenty cores take of every sample, reading the file apart."""
    text = b"cpu " + _TICKS + b"".join(b"cpu%d" % core + _TICKS for core in range(20))
    cores, times = agent.CpuUsage(), []
    for _ in range(200):
        begun = time.perf_counter()
        agent.build_cpu_sample(cores.compute_shares(text), [], b"0.1 0.1 0.1 1/1 1\n")
        times.append(time.perf_counter() - begun)
    return 1e6 * statistics.median(times)
