"""The panel: its first picture against an empty Textual app's, its cost against nvitop's and with many Sparks against two, in
the same run; and its first key in the list of profiles.

At rest means that nobody types: first at the rate at which it reads the Sparks by itself, then, after `+`, as often as
nvitop looks, which is what the goals are for.

The Sparks are simulated, in a process of their own; the panel is the real command in a terminal that is read and thrown away.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import yaml

from sparkctl.monitor.sampler import INTERACTIVE_INTERVAL
from sparkctl.tui.global_actions import SAMPLE_INTERVALS
from tests.tools.bench import probe
from tests.tools.bench.bench_report import Goal, LoadMeter, Report, Series, measure_interleaved
from tests.tools.bench.terminal import Terminal
from tests.unit.node.agent_process import build_nvml_stub

ROUNDS = 12
REST = 30.0  # seconds at each rate
FIRST_PAINT, BLACK_HOLED, CPU, RSS, KIB_PER_SECOND = 1.25, 1.3, 2.2, 3.0, 10.0
FIRST_KEYS, FIRST_KEY = 7, 100.0  # how often it is pressed, and the goal in ms
MANY = 32  # Sparks
MANY_NAME = f"panel, {MANY} Sparks"
_SIZE = (40, 140)
_WARM_UP = 10.0
FAST = 0.5  # seconds between two looks: nvitop's, and the panel's after `+`
_EMPTY = """
from textual.app import App
from textual.widgets import Static
class Empty(App):
    def compose(self):
        yield Static("an empty app")
Empty().run()
"""
_SPARKS = """
import sys, time
from sparkctl.simulator import run_in_background
with run_in_background(scenario="two-stacks", speed=1 / 42) as config:
    print(config, flush=True)
    sys.stdin.read()
"""


@dataclass(slots=True)
class Screen:
    """A program in a terminal, and how many bytes it has written there."""

    process: subprocess.Popen[bytes]
    terminal: int
    written: int = 0
    is_live: bool = False
    is_fast: bool = False


def run(rounds: int = ROUNDS) -> Report:
    """Measure first pictures, interleaved, then half a minute at rest at each rate, beside nvitop. nvitop is wanted."""
    load, notes = LoadMeter(), []
    with tempfile.TemporaryDirectory(prefix="sparkctl-bench-") as name, ExitStack() as stack:
        scratch = Path(name)
        env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        env |= {"TERM": "xterm-256color", "XDG_CONFIG_HOME": name, "XDG_STATE_HOME": name, "HOME": name}
        config = stack.enter_context(_run_demo_sparks(env))
        dark = scratch / "dark.yaml"
        port = stack.enter_context(_black_hole())
        nodes = [{"name": f"spark{at}", "host": "127.0.0.1", "port": port, "user": "nobody"} for at in (1, 2)]
        dark.write_text(json.dumps({"nodes": nodes}))
        panel = [sys.executable, "-m", "sparkctl"]
        worked: dict[str, list[float]] = {"panel": [], "empty Textual app": [], "panel, both black-holed": []}

        def note_processor_time(name: str, figures: tuple[float, float]) -> float:
            worked[name].append(figures[1])
            return figures[0]

        taken = measure_interleaved(
            rounds,
            {
                "panel": lambda: note_processor_time(
                    "panel", _time_first_picture(panel, {**env, "SPARKCTL_CONFIG": config}, b"spark2")
                ),
                "empty Textual app": lambda: note_processor_time(
                    "empty Textual app", _time_first_picture([sys.executable, "-c", _EMPTY], env, b"an empty app")
                ),
                "panel, both black-holed": lambda: note_processor_time(
                    "panel, both black-holed",
                    _time_first_picture(panel, {**env, "SPARKCTL_CONFIG": str(dark)}, b"spark2"),
                ),
            },
        )
        worked = {each: values[1:] for each, values in worked.items()}  # the first round is dropped, as above
        if not probe._has_driver():
            env["LD_LIBRARY_PATH"] = str(build_nvml_stub(scratch / "lib"))
            notes.append("no NVIDIA driver here: nvitop asks a stand-in library that answers as a GB10's does")
        nvitop = probe._install_nvitop(scratch)
        screens = {"panel": stack.enter_context(open_screen(panel, {**env, "SPARKCTL_CONFIG": config}))}
        if isinstance(nvitop, Path):
            screens["nvitop"] = stack.enter_context(open_screen([str(nvitop), "--interval", str(FAST)], env))
        else:
            notes.append(f"without nvitop: {nvitop}")
        time.sleep(_WARM_UP)
        if "nvitop" in screens and screens["nvitop"].process.poll() is not None:
            notes.append(f"without nvitop: it ended with exit {screens.pop('nvitop').process.returncode}")
        if not screens["panel"].is_live:
            raise RuntimeError("the panel shows no engine's figures: there is nothing to measure")
        many = {**env, "SPARKCTL_CONFIG": str(_write_many_nodes(Path(config), scratch / "many.yaml"))}
        with open_screen(panel, many) as crowd:
            time.sleep(_WARM_UP)
            if not crowd.is_live:
                raise RuntimeError(f"the panel of {MANY} Sparks shows no engine's figures: there is nothing to measure")
            panels = {"panel": screens["panel"], MANY_NAME: crowd}
            slow, written = _measure_at_rest(panels)
        _set_fast_refresh(screens["panel"])
        fast, more = _measure_at_rest(screens)
        keys = tuple(_time_first_key(panel, {**env, "SPARKCTL_CONFIG": config}) for _ in range(FIRST_KEYS))
    at_first, at_last = f"every {INTERACTIVE_INTERVAL:g} s", f"every {FAST:g} s"
    series = [Series(f"{each}: first picture", "ms", values) for each, values in taken.items()]
    series += [Series(f"{each}: first picture, CPU", "ms", tuple(values)) for each, values in worked.items()]
    for measured, rates, often in ((slow, written, at_first), (fast, more, at_last)):
        series += [Series(f"{each}: CPU at rest, {often}", "%", one.cpu) for each, one in measured.items()]
        series += [Series(f"{each}: to the terminal, {often}", "KiB/s", (rate,)) for each, rate in rates.items()]
    series += [Series(f"{each}: RSS", "MiB", (one.memory["RSS"],)) for each, one in fast.items()]
    series.append(Series("profiles: first key to paint", "ms", keys))
    crowded = statistics.mean(slow[MANY_NAME].cpu) / statistics.mean(slow["panel"].cpu)
    goals = (
        Goal("first key in the list of profiles", statistics.median(keys), FIRST_KEY, unit="ms"),
        Goal(f"CPU with {MANY} Sparks / with 2", crowded, MANY / 2),
        *(
            Goal(
                f"{what} / empty Textual app, CPU",
                statistics.median(worked[name]) / statistics.median(worked["empty Textual app"]),
                bound,
            )
            for what, name, bound in (
                ("first picture", "panel", FIRST_PAINT),
                ("first picture, both black-holed", "panel, both black-holed", BLACK_HOLED),
            )
        ),
        *_build_goals(taken, fast, more["panel"]),
    )
    title = "time to the first picture; two Sparks at rest, 140 x 40"
    return Report("panel", title, tuple(series), goals, load.read(), tuple(notes))


def _write_many_nodes(config: Path, path: Path) -> Path:
    """Write a config in which each of the two simulated Sparks stands under many names; return its path."""
    content = yaml.safe_load(config.read_text())
    nodes = [{**node, "name": f"{node['name']}-{at}"} for at in range(MANY // 2) for node in content["nodes"]]
    path.write_text(json.dumps({**content, "nodes": nodes}))
    return path


def _time_first_key(argv: Sequence[str], env: Mapping[str, str]) -> float:
    """Return the milliseconds from the first key in the list of profiles, typed as soon as it is there, to what it paints."""
    with Terminal(argv, env, quit_keys=b"qq") as panel:
        panel.wait_for(rb"tok/s")
        panel.rest(1.0)
        panel.type(b"p")
        panel.wait_for(rb"profiles")
        return panel.press(b"j", rb"NVFP4")  # of the title of qwen36-vllm, the second that runs


def _measure_at_rest(screens: Mapping[str, Screen]) -> tuple[dict[str, probe.Measured], dict[str, float]]:
    """Return what each costs while nobody types, and the KiB a second that it writes."""
    before = {each: screen.written for each, screen in screens.items()}
    measured = probe._measure_processes({each: screen.process for each, screen in screens.items()}, round(REST))
    written = {each: (screen.written - before[each]) / 1024 / REST for each, screen in screens.items()}
    return {one.name: one for one in measured}, written


def _set_fast_refresh(panel: Screen) -> None:
    """Let the panel read the Sparks as often as nvitop looks, and see that it says so."""
    os.write(panel.terminal, b"+" * SAMPLE_INTERVALS.index(INTERACTIVE_INTERVAL))
    time.sleep(_WARM_UP)  # what it says about that is gone from the screen by then
    if not panel.is_fast:
        raise RuntimeError(f"the panel does not say that it reads the Sparks every {FAST:g} s")


def _build_goals(
    taken: Mapping[str, Sequence[float]], fast: Mapping[str, probe.Measured], written: float
) -> Iterator[Goal]:
    empty = statistics.median(taken["empty Textual app"])
    yield Goal("first picture / empty Textual app", statistics.median(taken["panel"]) / empty, FIRST_PAINT)
    dark = statistics.median(taken["panel, both black-holed"])
    yield Goal("first picture, both black-holed / empty Textual app", dark / empty, BLACK_HOLED)
    ours, theirs = fast["panel"], fast.get("nvitop")
    busy = None if theirs is None else statistics.mean(ours.cpu) / statistics.mean(theirs.cpu)
    yield Goal(f"panel / nvitop, mean CPU, both every {FAST:g} s", busy, CPU)
    big = None if theirs is None else ours.memory["RSS"] / theirs.memory["RSS"]
    yield Goal("panel / nvitop, RSS", big, RSS)
    often = f"every {FAST:g} s"
    yield Goal(f"panel, to the terminal, Sparks read {often}", written, KIB_PER_SECOND, unit="KiB/s")


@contextmanager
def _run_demo_sparks(env: Mapping[str, str]) -> Iterator[str]:
    """Two simulated Sparks at a Spark's own pace; the value is their config."""
    with subprocess.Popen(
        [sys.executable, "-c", _SPARKS], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.stdout.readline().decode().strip()
        finally:
            process.stdin.close()
            process.wait(20)


@contextmanager
def _black_hole() -> Iterator[int]:
    """A port whose queue is full: whoever connects to it waits for an answer that never comes."""
    with socket.socket() as listener, ExitStack() as stack:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


def _open_terminal() -> tuple[int, int]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", *_SIZE, 0, 0))
    return ours, theirs


def _time_first_picture(argv: Sequence[str], env: Mapping[str, str], text: bytes) -> tuple[float, float]:
    """Return the milliseconds from starting a program to a text on its screen, and those of processor time until then."""
    ours, theirs = _open_terminal()
    began, seen = time.perf_counter(), b""
    with subprocess.Popen(argv, env=dict(env), stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        try:
            while text not in seen:
                ready, _, _ = select.select([ours], [], [], 30)
                if not ready:
                    raise RuntimeError(f"{argv}: {text!r} never came: {seen[-500:]!r}")
                seen += os.read(ours, 65536)
            return 1000 * (time.perf_counter() - began), 1000 * probe._read_cpu_seconds([process.pid])
        finally:
            process.kill()
            process.wait()
            os.close(ours)


@contextmanager
def open_screen(argv: Sequence[str], env: Mapping[str, str]) -> Iterator[Screen]:
    """A program that is looked at until the end."""
    ours, theirs = _open_terminal()
    with subprocess.Popen(argv, env=dict(env), stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        screen = Screen(process, ours)

        def drain() -> None:
            with suppress(OSError):
                while said := os.read(ours, 65536):
                    screen.written += len(said)
                    screen.is_live = screen.is_live or b"tok/s" in said
                    screen.is_fast = screen.is_fast or b"every %g s" % FAST in said

        draining = threading.Thread(target=drain)
        draining.start()
        try:
            yield screen
        finally:
            process.kill()
            process.wait()
            draining.join()
            os.close(ours)
