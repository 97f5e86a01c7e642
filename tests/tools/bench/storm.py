"""The log screen of the real panel under a flood: keys, and whether it keeps up, beside a key in an empty Textual app.

The Sparks are simulated, in a process of their own behind a real SSH server; the engine there has no /metrics, so that the
panel's meters read its log as well. The panel is the real command in a terminal. The empty app's keys are typed between
those of the panel while the flood goes on: they tell what the machine allows at that moment.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from tests.tools.bench.bench_report import Goal, LoadMeter, Report, Series, compute_quantile
from tests.tools.bench.terminal import COLUMNS, ROWS, Terminal
from tests.tools.bench.timed_processes import ROOT, build_operator_env

ROUNDS, RATE, SECONDS, GROUP = 3, 20_000, 30, 10
KEY_LIMIT_MS, LATE_LIMIT_SECONDS, GROWTH_LIMIT_MIB = 50.0, 2.0, 20.0
PANEL, EMPTY, REST = "panel, log screen", "empty Textual app", "panel at rest"
_SPARKS = """
import asyncio, sys, time
from dataclasses import replace
from sparkctl.simulator import SimulatedSparks
LINES = (
    '(EngineCore_DP0 pid=152) INFO 11-20 15:59:12 [loggers.py:248] Engine 000: Avg prompt throughput: 11.1 tokens/s, '
    'Running: 2 reqs, Waiting: 0 reqs, GPU KV cache usage: 3.1%',
    '(APIServer pid=1) INFO:     127.0.0.1:58862 - "POST /v1/completions HTTP/1.1" 200 OK',
    '(APIServer pid=1) WARNING 11-20 15:53:55 [system_utils.py:289] Found ulimit of 20000 and failed to increase it',
    '[2026-05-01 10:00:00] Decode batch, #running-req: 2, #token: 4312, token usage: 0.02, accept len: 1.75',
)
async def main():
    async with SimulatedSparks("two-stacks", speed=1 / 42) as sparks:
        engine = next(iter(sparks.docker["spark1"].running.values()))
        engine.serving.launch = replace(engine.serving.launch, metrics=False)
        log = engine.container.journal
        print(sparks.config_path, flush=True)
        while wanted := await asyncio.to_thread(sys.stdin.readline):
            rate, seconds = map(float, wanted.split())
            began, written = time.monotonic(), 0
            while written < rate * seconds:
                due = min(int(rate * (time.monotonic() - began)), int(rate * seconds))
                log.write("".join(f"{LINES[n % len(LINES)]} {n}\\n" for n in range(written, due)))
                written = due
                await asyncio.sleep(0.01)
            print(time.monotonic() - began, flush=True)
asyncio.run(main())
"""
_EMPTY = """
from textual.app import App
from textual.widgets import Label
class Empty(App):
    BINDINGS = [("x", "count", "count"), ("q", "quit", "quit")]
    def compose(self):
        self.count = 0
        yield Label("mark 0;")
    def action_count(self):
        self.count += 1
        self.query_one(Label).update(f"mark {self.count};")
Empty().run()
"""


def run(rounds: int = ROUNDS) -> Report:
    """Measure ms from a key's write to its mark on the screen, and s until the last line of the flood is counted."""
    load = LoadMeter()
    results = [measure_storm([sys.executable, "-m", "sparkctl"]) for _ in range(rounds)]
    taken = {name: tuple(one[name] for one in results) for name in results[0]}
    units = {"late": "s", "RSS growth": "MiB", "CPU share": "of a core"}
    series = tuple(Series(name, units.get(name, "ms"), each) for name, each in taken.items())
    worst = {name: max(values) for name, values in taken.items()}
    goals = (
        Goal(f"{PANEL}: key to paint at p95", worst[f"{PANEL} p95"], KEY_LIMIT_MS, unit="ms"),
        Goal(f"{PANEL} / {EMPTY}, p95", worst[f"{PANEL} p95"] / worst[f"{EMPTY} p95"]),
        Goal("late behind the engine at its end", worst["late"], LATE_LIMIT_SECONDS, unit="s"),
        Goal(f"growth over {RATE * SECONDS:,} lines", worst["RSS growth"], GROWTH_LIMIT_MIB, unit="MiB"),
    )
    title = f"{RATE:,} lines a second for {SECONDS} s over SSH, {COLUMNS} x {ROWS}"
    return Report("storm", title, series, goals, load.read())


def measure_storm(command: Sequence[str], rate: int = RATE, seconds: int = SECONDS) -> dict[str, float]:
    """Return the figures of one flood through the log screen of the panel that ``command`` runs."""
    with ExitStack() as stack:
        home = stack.enter_context(tempfile.TemporaryDirectory(prefix="sparkctl-bench-"))
        env = build_operator_env() | {"XDG_CONFIG_HOME": home, "XDG_STATE_HOME": home, "HOME": home}
        config, orders, answers = stack.enter_context(_run_sparks(env))
        empty = stack.enter_context(Terminal([sys.executable, "-c", _EMPTY], env))
        panel = stack.enter_context(Terminal(command, {**env, "SPARKCTL_CONFIG": config}, quit_keys=b"qq"))
        empty.wait_for(rb"mark 0;")
        panel.wait_for(rb"tok/s")
        panel.type(b"l")
        panel.wait_for(rb"following")
        panel.rest(6.0)  # until the meters have found that there is no /metrics
        at_rest = _press_follow(panel, GROUP)
        orders.write(f"{rate} {seconds}\n")
        orders.flush()
        panel.rest(2.0)
        before, processor, began = read_resident_mib(panel.process.pid), _read_cpu(panel.process.pid), time.monotonic()
        ours: list[float] = []
        theirs: list[float] = []
        while time.monotonic() < began + seconds - 3:
            ours += _press_follow(panel, GROUP)
            theirs += [empty.press(b"x", rb"mark %d;" % (len(theirs) + at)) for at in range(1, GROUP + 1)]
        processor = (_read_cpu(panel.process.pid) - processor) / (time.monotonic() - began)
        answers.readline()  # the engine has written everything
        late = _wait_until_counted(panel, rate * seconds)
        grown = read_resident_mib(panel.process.pid) - before
        panel.type(b"\x1b")
        panel.rest(1.0)
    figures = {"late": late, "RSS growth": grown, "CPU share": processor}
    for name, waits in ((PANEL, ours), (EMPTY, theirs), (REST, at_rest)):
        figures |= {f"{name} p50": compute_quantile(waits, 0.5), f"{name} p95": compute_quantile(waits, 0.95)}
    return figures


def _press_follow(panel: Terminal, count: int) -> list[float]:
    """Press ``f`` again and again: it pauses the log, and follows it again."""
    return [panel.press(b"f", (rb"paused", rb"following")[at % 2]) for at in range(count)]


def _wait_until_counted(panel: Terminal, lines: int) -> float:
    """Return the seconds until the status line shows that at least so many lines have come; 60 at most."""
    began = time.monotonic()
    while panel.read_largest(rb"([\d,]+) (?:of [\d,]+|lines)", 0.5) < lines:
        if time.monotonic() - began > 60:
            return 60.0
        panel.type(b"t")  # paints everything again
    return time.monotonic() - began


def read_resident_mib(pid: int) -> float:
    """Return a process' resident memory, in MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")) / 1024


def _read_cpu(pid: int) -> float:
    """Return the seconds of processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _run_sparks(env: dict[str, str]) -> Iterator[tuple[str, IO[str], IO[str]]]:
    """The simulated Sparks; the values are their config, where a flood is ordered, and where its end is told."""
    with subprocess.Popen(
        [sys.executable, "-c", _SPARKS], env=env, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip(), process.stdin, process.stdout
        finally:
            process.stdin.close()
            process.wait(30)
