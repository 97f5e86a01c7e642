"""The log view alone against Textual's own ``Log`` and an empty Textual app, each in a real terminal: a key's way to the
screen while lines pour in from memory. What a user of the panel waits is measured by ``storm``, and only that has a goal.
The empty app tells what the machine allows at that moment: on a busy one keys wait there as well."""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
from pathlib import Path
from types import TracebackType

from tests.tools.bench.bench_report import Goal, LoadMeter, Report, Series, compute_quantile
from tests.tools.bench.terminal import COLUMNS, ROWS, Terminal
from tests.tools.bench.timed_processes import build_operator_env

ROUNDS, RATE, LINES, KEYS = 3, 20_000, 1_000_000, 80
OURS, THEIRS, IDLE, EMPTY = "log view", "textual Log", "log view at rest", "empty Textual app"
OWN = ("f", "j", "/", "esc")  # keys of the log itself
_FIRST_ROW, _LAST_ROW = rb"\x1b\[2;1H", rb"\x1b\[39;1H"  # of the log, painted anew; the prompt stands on the last one


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
            with _LogTerminal(which, rate, 0) as terminal:
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
        with _LogTerminal(which, 0, LINES) as terminal:
            terminal.wait_for(rb"mark 0; full", 300)
            if which == "ours":
                note("searching p95", compute_quantile(_measure_search(terminal), 0.95))
        note(f"{name} held", terminal.figures["held"])
        if which == "ours":
            note("page", terminal.figures["page"])
    return _build_report(taken, load.read())


def _measure_own_keys(terminal: _LogTerminal) -> dict[str, list[float]]:
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


def _measure_search(terminal: _LogTerminal) -> list[float]:
    """A search begins with each mark; what counts is the mark that comes right after it."""
    waits = []
    for number in range(1, KEYS // 2 + 1):
        terminal.type(b"s")
        waits.append(terminal.press(b"x", rb"mark %d;" % number))
    return waits


def _build_report(taken: dict[str, list[float]], load: tuple[float, float]) -> Report:
    def series(name: str, unit: str, label: str) -> Series:
        return Series(label, unit, tuple(taken[name]))

    ours, theirs = series(f"{OURS} p95", "ms", f"{OURS}, p95"), series(f"{THEIRS} p95", "ms", f"{THEIRS}, p95")
    own = {key: series(f"{key} p95", "ms", f"{OURS}, {key}, p95") for key in OWN}
    searching = series("searching p95", "ms", "searching, p95")
    memory, heavy = series(f"{OURS} held", "MiB", f"{OURS}, held"), series(f"{THEIRS} held", "MiB", f"{THEIRS}, held")
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
        memory,
        heavy,
        series("page", "ms", "worst page"),
    )
    goals = (
        Goal(f"key to paint at p95, {OURS} / {THEIRS}", ours.median / theirs.median),
        Goal(f"key to paint at p95, {OURS} / {IDLE}", ours.median / rest.median),
        Goal(f"key to paint at p95, {OURS} / {EMPTY}", ours.median / empty.median),
        Goal(f"key to paint at p95, {OURS}", ours.median, unit="ms"),
        *(Goal(f"its own key {key} at p95", one.median, unit="ms") for key, one in own.items()),
        *(
            Goal(f"its own key {key} at p95 / a key in an {EMPTY}", one.median / empty.median)
            for key, one in own.items()
        ),
        Goal(f"key to paint at p95 while {LINES:,} lines are searched", searching.median, unit="ms"),
        Goal(f"{LINES:,} lines, {OURS} / {THEIRS}", memory.median / heavy.median, 0.1),
        Goal(f"{LINES:,} lines, {OURS}", memory.median, 20, unit="MiB"),
        Goal("a page anywhere in them", max(taken["page"]), 5, unit="ms"),
        Goal(f"lines taken of {RATE:,} a second", min(taken[f"{OURS} rate"]) * 1000 / RATE, 0.95, at_most=False),
    )
    title = f"{RATE:,} lines a second in a {COLUMNS}x{ROWS} terminal, {KEYS} keys a round"
    return Report("logview", title, every, goals, load)


class _LogTerminal(Terminal):
    """The bench's app in a terminal; ``figures`` are what it reports when it has ended."""

    def __init__(self, which: str, rate: int, lines: int) -> None:
        self.figures: dict[str, float] = {}
        handle, name = tempfile.mkstemp()
        os.close(handle)
        self._report = Path(name)
        words = [which, str(rate), str(lines), name]
        super().__init__([sys.executable, "-m", "tests.tools.bench.logview_app", *words], build_operator_env())

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        super().__exit__(kind, error, at)
        if kind is None:
            self.figures = json.loads(self._report.read_text())
        self._report.unlink()
