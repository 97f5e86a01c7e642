"""What a switch costs beside waiting for engines, against the same by hand: docker stop, docker run, poll, over ssh.

A model over both nodes gives way to one on the first, and comes back. The engines are stand-ins that load for a known
time; from each whole time the engine's own part is taken off, from its (last) container's start to its ready line by
Docker's clock. By hand: `ssh NODE 'docker stop NAME && docker rm NAME'` on each node, then `ssh NODE docker run ...`
with the line that `sparkctl up --dry-run --format docker` prints, one after the other, as a script does it; /health is
asked twice a second, and then one token. Nothing by hand looks, proves or keeps anything. Both begin from nothing: a
new process, new connections. The same over connections that are open already (a warm ControlMaster) is measured beside
it. Without a model: from the first question to /health that fails to the first that is answered, asked a hundred times
a second; of that, too, the engine's part is taken off.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from tests.lab.bed.names import CLEAN_ENV
from tests.lab.bed.node import LabNode
from tests.lab.support.rank_containers import write_two_node_profile
from tests.tools.bench.bench_lab import Bed, open_bed
from tests.tools.bench.bench_report import Goal, LoadMeter, Report, Series
from tests.tools.bench.timed_processes import time_process

ROUNDS = 7
LOAD = 2.0  # seconds that each engine loads
READY = "The server is fired up and ready to roll!"
POLL = 0.5
BY_HAND, OPEN = "by hand", "by hand over open connections"
Ssh = Mapping[str, list[str]]


@dataclass(frozen=True, slots=True)
class SwitchWay:
    """From one model to another. ``stops`` are the nodes of the old one, ``starts`` those of the new one."""

    name: str
    words: tuple[str, ...]
    old: str
    new: str
    stops: tuple[str, ...]
    starts: tuple[str, ...]


TO_ONE = SwitchWay("two to one", ("tiny", "--node", "spark1"), "pair", "tiny", ("spark1", "spark2"), ("spark1",))
TO_TWO = SwitchWay("one to two", ("pair",), "tiny", "pair", ("spark1",), ("spark2", "spark1"))


def run(rounds: int = ROUNDS) -> Report:
    """Measure both directions, ours and by hand in turn, in seconds."""
    with open_bed() as bed, bed.masters() as warm:
        env = {"LAB_LOAD_S": LOAD}
        bed.sparkctl.configure()
        write_two_node_profile(bed.sparkctl, env=env)
        bed.sparkctl.profile(env={name: str(value) for name, value in env.items()})
        lines = {way.new: _read_docker_lines(bed, way) for way in (TO_ONE, TO_TWO)}
        if (started := bed.sparkctl("up", "pair", "--json")).code:
            raise RuntimeError(f"the model to switch from did not start: {started}")
        load = LoadMeter()
        whole: dict[str, list[float]] = {}
        own: dict[str, list[float]] = {}
        without: dict[str, list[float]] = {}
        for round_ in range(rounds + 1):
            for caller, go in _open_goers(bed, warm, lines).items():
                for way in (TO_ONE, TO_TWO):
                    with _Gap(bed.lab.nodes["spark1"].address) as gap:
                        seconds = go(way)
                    engines = _measure_engine_part(bed, way)
                    if round_:
                        key = f"{caller}, {way.name}"
                        whole.setdefault(key, []).append(seconds)
                        own.setdefault(key, []).append(seconds - engines)
                        without.setdefault(key, []).append(gap.seconds - engines)
        return _build_report({"own": own, "without a model": without, "whole": whole}, load.read())


def _build_report(taken: Mapping[str, Mapping[str, Sequence[float]]], load: tuple[float, float]) -> Report:
    series = tuple(
        Series(f"{name}, {what}", "s", tuple(values)) for what, each in taken.items() for name, values in each.items()
    )
    median = {one.name: one.median for one in series}
    goals = [
        Goal(
            f"{what}, switch / {hand}, {way.name}",
            median[f"switch, {way.name}, {what}"] / median[f"{hand}, {way.name}, {what}"],
            1.3 if (hand, what) == (BY_HAND, "own") else None,
        )
        for what in ("own", "without a model")
        for hand in (BY_HAND, OPEN)
        for way in (TO_ONE, TO_TWO)
    ]
    title = f"engines load for {LOAD:g} s; own and without a model: all but the engines' part"
    return Report("switch", title, series, tuple(goals), load)


class _Gap:
    """How long nobody was served while something was done."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._began: float | None = None
        self._ended: float | None = None

    def __enter__(self) -> _Gap:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(10)

    @property
    def seconds(self) -> float:
        """From the first failure to the first answer after it."""
        if self._began is None or self._ended is None:
            raise RuntimeError("the old model was never seen to go, or the new one to come")
        return self._ended - self._began

    def _ask(self) -> None:
        while not self._over.wait(0.01) or self._ended is None:
            at = time.perf_counter()
            if not _is_healthy(self._address):
                self._began = self._began or at
                self._ended = None
            elif self._began is not None and self._ended is None:
                self._ended = time.perf_counter()
            if self._over.is_set():
                return


def _open_goers(bed: Bed, warm: Ssh, lines: Mapping[str, Mapping[str, str]]) -> dict[str, Callable[[SwitchWay], float]]:
    new = {name: bed.ssh(name) for name in bed.lab.nodes}
    return {
        "switch": lambda way: time_process(bed.sparkctl.argv("switch", *way.words), bed.sparkctl.env),
        BY_HAND: lambda way: _switch_by_hand(bed, new, way, lines[way.new]),
        OPEN: lambda way: _switch_by_hand(bed, warm, way, lines[way.new]),
    }


def _read_docker_lines(bed: Bed, way: SwitchWay) -> dict[str, str]:
    """Return the docker run line for each node of a model, the worker's first."""
    shown = bed.sparkctl("up", *way.words, "--dry-run", "--format", "docker")
    found = [one for one in shown.out.replace("\\\n", "").splitlines() if one.startswith("docker run")]
    if shown.code or len(found) != len(way.starts):
        raise RuntimeError(f"no docker run line for each node: {shown}")
    return dict(zip(sorted(way.starts), found, strict=True))


def _switch_by_hand(bed: Bed, ssh: Ssh, way: SwitchWay, lines: Mapping[str, str]) -> float:
    begun = time.perf_counter()
    name = f"sglang-{way.old}"
    for node in way.stops:
        _run_over_ssh(ssh[node], f"docker stop {name} && docker rm {name}")
    for node in way.starts:
        _run_over_ssh(ssh[node], lines[node])
    address = bed.lab.nodes["spark1"].address
    while not _is_healthy(address):
        time.sleep(POLL)
    asked = json.dumps({"model": way.new, "prompt": "The capital of France is", "max_tokens": 1}).encode()
    request = urllib.request.Request(f"http://{address}:8101/v1/completions", asked)
    with urllib.request.urlopen(request, timeout=10) as answer:
        json.load(answer)
    return time.perf_counter() - begun


def _run_over_ssh(ssh: Sequence[str], line: str) -> None:
    subprocess.run([*ssh, line], check=True, capture_output=True, env=CLEAN_ENV, timeout=60)


def _is_healthy(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{address}:8101/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _measure_engine_part(bed: Bed, way: SwitchWay) -> float:
    """Return the engine's own part of the start: from when its last container runs to its ready line."""
    nodes = [bed.lab.nodes[name] for name in way.starts]
    name = f"sglang-{way.new}"
    began = max(_parse_unix_time(node.docker("inspect", "-f", "{{.State.StartedAt}}", name)) for node in nodes)
    return _read_ready_time(bed.lab.nodes["spark1"], name) - began


def _read_ready_time(node: LabNode, name: str) -> float:
    lines = node.sh("sh", "-c", f"docker logs -t {name} 2>&1").splitlines()
    return next(_parse_unix_time(line.split()[0]) for line in lines if READY in line)


def _parse_unix_time(stamp: str) -> float:
    whole, _, part = stamp.rstrip("Z").partition(".")
    return datetime.fromisoformat(whole).replace(tzinfo=UTC).timestamp() + float(f"0.{part or 0}")
