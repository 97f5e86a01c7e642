"""The memory of ``sparkctl logs NAME -f`` on the way through a million lines, against itself at a tenth of them."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.tools.bench.bench_lab import Bed, open_bed
from tests.tools.bench.bench_report import Goal, LoadMeter, Report, Series
from tests.tools.bench.numbered_lines import WIDTH, build_numbered_program
from tests.tools.bench.timed_processes import build_operator_env

ROUNDS, LINES, GROWTH = 3, 1_000_000, 5.0
SHARES = (0.1, 0.5, 1.0)
_PAUSE = 0.02  # between two looks at the process


@dataclass(frozen=True, slots=True)
class MemoryLook:
    """``done`` is the share of the log's bytes that was written out, ``rss`` is MiB."""

    done: float
    rss: float


def run(rounds: int = ROUNDS) -> Report:
    """Measure resident MiB at shares of the log; the growth is that of the worst moment after the first tenth."""
    with open_bed() as bed:
        bed.printed("spark1", "million", build_numbered_program(LINES))
        load = LoadMeter()
        courses = [_watch_process(bed) for _ in range(rounds)]
        marks = [[next(look.rss for look in course if look.done >= share) for share in SHARES] for course in courses]
        series = tuple(
            Series(f"RSS at {share:.0%}", "MiB", tuple(values))
            for share, values in zip(SHARES, zip(*marks, strict=True), strict=True)
        )
        worst = max(
            max(look.rss for look in course if look.done >= SHARES[0]) - at[0]
            for course, at in zip(courses, marks, strict=True)
        )
        goals = (
            Goal("growth after the first 10 %, worst moment of all rounds", worst, GROWTH, unit="MiB"),
            Goal("RSS at 100 % / RSS at 10 %", series[2].median / series[0].median),
        )
        title = f"sparkctl logs -f to /dev/null, {LINES:,} lines of {WIDTH} bytes"
        return Report("memory", title, series, goals, load.read())


def _watch_process(bed: Bed) -> list[MemoryLook]:
    """Look at the process until it ends; the last look counts as its end."""
    command = [str(Path(sys.executable).with_name("sparkctl")), "logs", "million", "--node", "spark1", "-f"]
    looks: list[MemoryLook] = []
    with subprocess.Popen(
        command,
        env=build_operator_env(bed.sparkctl.env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as process:
        while process.poll() is None:
            if look := _read_process(process.pid):
                looks.append(look)
            time.sleep(_PAUSE)
        assert process.stderr is not None
        said = process.stderr.read().decode(errors="replace")
    if process.returncode or not looks or looks[-1].done < 0.99:
        raise RuntimeError(f"exit {process.returncode} at {looks[-1:]}: {said}")
    return [*looks[:-1], MemoryLook(1.0, looks[-1].rss)]


def _read_process(pid: int) -> MemoryLook | None:
    """Read what the process wrote so far (`wchar`; sockets are not in it) and what it holds; None when it is gone."""
    proc = Path(f"/proc/{pid}")
    try:
        counters = dict(line.split(": ") for line in (proc / "io").read_text().splitlines())
        status = (proc / "status").read_text()
    except OSError:
        return None
    held = next((line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:")), None)
    return None if held is None else MemoryLook(int(counters["wchar"]) / (LINES * WIDTH), int(held) / 1024)
