"""The log view against Textual's own ``Log`` and an empty Textual app, each in a real terminal: a key's way to the screen
while lines pour in. The empty app tells what the machine allows at that moment: on a busy one keys wait there as well."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import random
import re
import select
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from tests.tools.bench.bench_report import Goal, LoadMeter, Report, Series, compute_quantile
from tests.tools.bench.timed_processes import ROOT, build_operator_env

ROUNDS, RATE, LINES, KEYS = 3, 20_000, 1_000_000, 80
OURS, THEIRS, IDLE, EMPTY = "log view", "textual Log", "log view at rest", "empty Textual app"
OWN = ("f", "j", "/", "esc")  # keys of the log itself
_FIRST_ROW, _LAST_ROW = rb"\x1b\[2;1H", rb"\x1b\[39;1H"  # of the log, painted anew; the prompt stands on the last one
ROWS, COLUMNS = 40, 120


def run(rounds: int = ROUNDS) -> Report:
    """Measure ms from a key's write to its mark on the screen, and MiB for a million lines."""
    load = LoadMeter()
    taken: dict[str, list[float]] = {}

    def note(name: str, value: float) -> None:
        taken.setdefault(name, []).append(value)

    for round_ in range(rounds + 1):
        if round_ == 1:
            taken.clear()  # the first round warms up
        apps = (("ours", OURS, RATE), ("empty", EMPTY, 0), ("log", THEIRS, RATE), ("ours", IDLE, 0))
        for which, name, rate in apps:
            with _Terminal(which, rate, 0) as terminal:
                terminal.wait_for(rb"mark 0; full")
                waits = [terminal.press(b"x", rb"mark %d;" % number) for number in range(1, KEYS + 1)]
                if name == OURS:
                    for key, own in _measure_own_keys(terminal).items():
                        note(f"{key} p95", compute_quantile(own, 0.95))
            note(f"{name} p95", compute_quantile(waits, 0.95))
            note(f"{name} median", statistics.median(waits))
            if "rate" in terminal.figures:  # the empty app takes no lines
                note(f"{name} rate", terminal.figures["rate"] / 1000)
    for which, name in (("ours", OURS), ("log", THEIRS)):
        with _Terminal(which, 0, LINES) as terminal:
            terminal.wait_for(rb"mark 0; full", 300)
            if which == "ours":
                note("searching p95", compute_quantile(_measure_search(terminal), 0.95))
        note(f"{name} held", terminal.figures["held"])
        if which == "ours":
            note("page", terminal.figures["page"])
    return _build_report(taken, load.read())


def _measure_own_keys(terminal: _Terminal) -> dict[str, list[float]]:
    """Return the waits for each of the log's own keys: follow and pause, a line down, the prompt opened and closed."""
    waits: dict[str, list[float]] = {key: [] for key in OWN}
    for _ in range(KEYS // 2):
        waits["f"] += [terminal.press(b"f", rb"paused"), terminal.press(b"f", rb"following")]
    terminal.press(b"f", rb"paused")
    terminal.press(b"g", _FIRST_ROW)
    for _ in range(KEYS // 2):
        waits["j"].append(terminal.press(b"j", _FIRST_ROW))
        waits["/"].append(terminal.press(b"/", rb"ext, !text or"))  # the cursor stands on the hint's first letter
        terminal.rest(0.3)  # the prompt stands and is painted no more
        waits["esc"].append(terminal.press(b"\x1b", _LAST_ROW))
        terminal.rest(0.3)
    return waits


def _measure_search(terminal: _Terminal) -> list[float]:
    """A search begins with each mark; what counts is the mark that comes right after it."""
    waits = []
    for number in range(1, KEYS // 2 + 1):
        os.write(terminal.master, b"s")
        waits.append(terminal.press(b"x", rb"mark %d;" % number))
    return waits


def _build_report(taken: dict[str, list[float]], load: tuple[float, float]) -> Report:
    def series(name: str, unit: str, label: str) -> Series:
        return Series(label, unit, tuple(taken[name]))

    ours, theirs = series(f"{OURS} p95", "ms", f"{OURS}, p95"), series(f"{THEIRS} p95", "ms", f"{THEIRS}, p95")
    own = {key: series(f"{key} p95", "ms", f"{OURS}, {key}, p95") for key in OWN}
    searching = series("searching p95", "ms", "searching, p95")
    held, heavy = series(f"{OURS} held", "MiB", f"{OURS}, held"), series(f"{THEIRS} held", "MiB", f"{THEIRS}, held")
    rest, empty = (series(f"{name} p95", "ms", f"{name}, p95") for name in (IDLE, EMPTY))
    every = (
        ours,
        theirs,
        rest,
        empty,
        series(f"{OURS} median", "ms", f"{OURS}, median"),
        series(f"{THEIRS} median", "ms", f"{THEIRS}, median"),
        *own.values(),
        searching,
        series(f"{OURS} rate", "k lines/s", f"{OURS}, took"),
        series(f"{THEIRS} rate", "k lines/s", f"{THEIRS}, took"),
        held,
        heavy,
        series("page", "ms", "worst page"),
    )
    goals = (
        Goal(f"key to paint at p95, {OURS} / {THEIRS}", ours.median / theirs.median),
        Goal(f"key to paint at p95, {OURS} / {IDLE}", ours.median / rest.median),
        Goal(f"key to paint at p95, {OURS} / {EMPTY}", ours.median / empty.median),
        Goal(f"key to paint at p95, {OURS}", ours.median, 50, unit="ms"),
        *(Goal(f"its own key {key} at p95", one.median, 50, unit="ms") for key, one in own.items()),
        *(
            Goal(f"its own key {key} at p95 / a key in an {EMPTY}", one.median / empty.median)
            for key, one in own.items()
        ),
        Goal(f"key to paint at p95 while {LINES:,} lines are searched", searching.median, 50, unit="ms"),
        Goal(f"{LINES:,} lines, {OURS} / {THEIRS}", held.median / heavy.median, 0.1),
        Goal(f"{LINES:,} lines, {OURS}", held.median, 20, unit="MiB"),
        Goal("a page anywhere in them", max(taken["page"]), 5, unit="ms"),
        Goal(f"lines taken of {RATE:,} a second", min(taken[f"{OURS} rate"]) * 1000 / RATE, 0.95, at_most=False),
    )
    title = f"{RATE:,} lines a second in a {COLUMNS}x{ROWS} terminal, {KEYS} keys a round"
    return Report("logview", title, every, goals, load)


@dataclass(slots=True)
class _Terminal:
    """The app in a pseudo terminal that is read as fast as it writes."""

    which: str
    rate: int
    lines: int
    master: int = -1
    figures: dict[str, float] = field(default_factory=dict)
    _seen: bytes = b""
    _process: subprocess.Popen[bytes] | None = None
    _report: Path = Path()

    def __enter__(self) -> _Terminal:
        handle, name = tempfile.mkstemp()
        os.close(handle)
        self._report = Path(name)
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        words = [self.which, str(self.rate), str(self.lines), name]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.tools.bench.logview_app", *words],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=ROOT,
            env={**build_operator_env(), "TERM": "xterm-256color", "COLORTERM": "truecolor"},
            start_new_session=True,
        )
        os.close(slave)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._process is not None
        try:
            if kind is None:
                os.write(self.master, b"q")
                self._drain_to_end()
                self.figures = json.loads(self._report.read_text())
        finally:
            self._process.kill()
            self._process.wait()
            os.close(self.master)
            self._report.unlink()

    def press(self, key: bytes, mark: bytes) -> float:
        """Press a key at some moment and return the ms until its mark is written."""
        self.rest(random.uniform(0.02, 0.08))
        begun = time.perf_counter()
        os.write(self.master, key)
        self.wait_for(mark)
        return 1000 * (time.perf_counter() - begun)

    def wait_for(self, mark: bytes, seconds: float = 30) -> None:
        """Read until the mark was written."""
        pattern, until = re.compile(mark), time.monotonic() + seconds
        while not pattern.search(self._seen):
            if time.monotonic() > until:
                raise RuntimeError(f"{self.which}: no {mark!r} in {seconds:.0f} s: {self._seen[-300:]!r}")
            self._seen = self._seen[-64:] + self._read(0.1)
        self._seen = b""

    def rest(self, seconds: float) -> None:
        """Read on for so long, and forget what was read."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._read(left)
        self._seen = b""

    def _read(self, seconds: float) -> bytes:
        ready, _, _ = select.select([self.master], [], [], seconds)
        return os.read(self.master, 1 << 16) if ready else b""

    def _drain_to_end(self) -> None:
        until = time.monotonic() + 30
        while time.monotonic() < until:
            try:
                if not self._read(0.5) and self._process is not None and self._process.poll() is not None:
                    return
            except OSError:
                return
