"""What `sparkctl bench` costs the engine that it measures: tokens/s with our sampling beside, and without it, by turns.

A real vLLM on one core of this machine answers one request after the other over SSH, each of the same length, one process for all. In
every other one the node is sampled and the engine's figures are read as beside a cell; the first of each pair changes from pair to
pair, and before each the engine rests alike. Held against the goal is the lower end of the median's interval. Before that the engine
rests, and the processor time of the sampling alone is counted: that is known also where the machine is busy. (While it
answers it tells nothing: the engine's processes poll each other, so their processor time is the time that passed.)
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from statistics import mean, median
from typing import Any

from sparkctl.commands.bench.cell_watch import CellWatch
from sparkctl.commands.bench.chat_stream import stream_chat
from sparkctl.config import find_node, load_config
from sparkctl.engines import load_engine
from sparkctl.model.questions import NonInteractivePrompter
from sparkctl.transport.node_session import NodeSession
from tests.lab.bed import cgroups
from tests.lab.bed.names import CGROUP
from tests.lab.bed.node import LabNode
from tests.lab.support.sparkctl_process import Sparkctl
from tests.tools.bench.bench_report import Goal, LoadMeter, Report, Series, compute_quantile
from tests.tools.bench.timed_processes import read_json_answer
from tests.tools.nightly.engines import random_model
from tests.tools.nightly.engines.bench_start import PORT, write_profile
from tests.tools.nightly.engines.install import Install, cache_directory
from tests.tools.nightly.engines.lab_start import NODE, run_on_node
from tests.tools.nightly.engines.scenes import Bench
from tests.tools.nightly.lab_job import WITHIN

ROUNDS = 30
_TOKENS = 1500
_SETTLE_SECONDS = 1.0  # the agent has started then, as it has long before the first cell
_IDLE_SECONDS = 10.0  # each of four
_ENGINE = "vllm"
_COUNTERS = ("cpuacct.usage", "cpu.stat")  # of cgroup v1, of v2
_LEAST, _MOST_CORES = 0.97, 0.03
_RESAMPLES, _TAIL = 4000, 0.025


def run(rounds: int = ROUNDS) -> Report:
    """Measure so many pairs. Raises RuntimeError where no vLLM can be had, or the lab cannot run."""
    install = Install(cache_directory())
    install.install_vllm()
    bench = Bench(install, install.root / "models", Path(tempfile.gettempdir()), 0.0)
    random_model.write_directory(bench.models / random_model.NAME)
    taken: dict[str, Any] = {}
    load = LoadMeter()

    def play(bench: Bench, node: LabNode, command: Sparkctl) -> None:
        del node
        name = f"{_ENGINE}-real"
        write_profile(bench, command, _ENGINE, name, drafts=False)
        if (ran := command("up", name, "--node", NODE, "--json", timeout=WITHIN)).code:
            raise RuntimeError(f"{ran!r}"[-1500:])
        taken.update(
            read_json_answer(
                "tests.tools.bench.sampling",
                NODE,
                str(find_counter(NODE)),
                str(rounds),
                env=command.env,
                timeout=WITHIN + 60.0 * rounds,
            )
        )
        command("down", "--all", "--node", NODE, "--json", timeout=WITHIN)

    if reason := run_on_node(bench, play):
        raise RuntimeError(reason)
    shares = [with_it / without for with_it, without in zip(taken["sampled"], taken["bare"], strict=True)]
    low, high = find_median_interval(shares)
    quarters = [compute_quantile(shares, at) for at in (0.25, 0.75)]
    series = (
        Series("with our sampling", "tok/s", tuple(taken["sampled"])),
        Series("without", "tok/s", tuple(taken["bare"])),
        Series("of each pair", "x", tuple(shares)),
    )
    notes = (
        f"of each pair: median {median(shares):.3f}x, 95 % sure from {low:.3f}x to {high:.3f}x; half of the pairs from "
        f"{quarters[0]:.3f}x to {quarters[1]:.3f}x",
        f"tokens/s: {judge_interval(low, high, _LEAST)}",
        f"processor time beside an engine that rests, for each second: {1000 * taken['node']:.1f} ms on the node, "
        f"{1000 * taken['own']:.1f} ms here; the node alone, with its engine, takes {1000 * taken['rest']:.1f} ms",
    )
    goals = (
        Goal("tok/s with our sampling / without, lower end", low, _LEAST, at_most=False),
        Goal("processor time of the sampling on the node", taken["node"], _MOST_CORES, unit="cores"),
    )
    return Report(
        "sampling", f"vLLM on one core, {_TOKENS} tokens, one request at a time", series, goals, load.read(), notes
    )


def find_median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the interval that holds the median of what these values are drawn from, in 19 cases of 20, by drawing again from them."""
    chance = Random(len(values))
    medians = [median(chance.choices(values, k=len(values))) for _ in range(_RESAMPLES)]
    return compute_quantile(medians, _TAIL), compute_quantile(medians, 1 - _TAIL)


def judge_interval(low: float, high: float, bound: float) -> str:
    """Tell in words on which side of a bound an interval lies."""
    if low >= bound:
        return f"at least {bound:g}x, and settled"
    return f"less than {bound:g}x, and settled" if high < bound else "not settled: take more rounds, or a quiet machine"


async def measure_pairs(node_name: str, counter: Path, rounds: int) -> dict[str, Any]:
    """Return tokens/s of each request, with and without our sampling, and the seconds of processor time that a second of sampling
    takes beside an engine that rests, on the node and here. A first pair is dropped.
    """
    taken: dict[str, list[float]] = {"sampled": [], "bare": []}
    async with NodeSession(find_node(load_config(), node_name), NonInteractivePrompter()) as session:
        await session.link.connect()
        container = next(one for one in await session.docker.list_containers() if one.is_alive)

        def build_watch() -> CellWatch:
            return CellWatch(session, load_engine(_ENGINE), port=PORT, container=container.id)

        await _measure_request(session, 0)
        idle: dict[str, list[tuple[float, float]]] = {"sampled": [], "bare": []}
        for kind in ("bare", "sampled", "sampled", "bare"):
            watch = build_watch()
            if kind == "sampled":
                watch.start()
            await asyncio.sleep(_SETTLE_SECONDS)
            idle[kind].append(await _count_processor_time(counter))
            await watch.aclose()
        node, own = (mean(one[at] for one in idle["sampled"]) - mean(one[at] for one in idle["bare"]) for at in (0, 1))
        for number in range(rounds + 1):
            for kind in ("sampled", "bare") if number % 2 else ("bare", "sampled"):
                watch = build_watch()
                if kind == "sampled":
                    watch.start()
                await asyncio.sleep(_SETTLE_SECONDS)  # both: an engine that has rested begins more slowly
                rate = await _measure_request(session, number)
                await watch.aclose()
                if number:
                    taken[kind].append(rate)
    return {**taken, "node": node, "own": own, "rest": mean(one[0] for one in idle["bare"])}


async def _count_processor_time(counter: Path) -> tuple[float, float]:
    """Return the processor time of the node and of this process, in seconds for each second of a while."""
    began = time.monotonic()
    before = _read_processor_seconds(counter), time.process_time()
    await asyncio.sleep(_IDLE_SECONDS)
    after, seconds = (_read_processor_seconds(counter), time.process_time()), time.monotonic() - began
    node, own = ((now - then) / seconds for now, then in zip(after, before, strict=True))
    return node, own


def find_counter(node_name: str) -> Path:
    """Return the file with the processor time of all that runs in a node, its containers included."""
    places = [root / CGROUP / node_name for root in cgroups.list_hierarchies()]
    return next(file for name in _COUNTERS for place in places if (file := place / name).exists())


def _read_processor_seconds(counter: Path) -> float:
    words = counter.read_text().split()
    return int(words[0]) / 1e9 if len(words) == 1 else int(words[words.index("usage_usec") + 1]) / 1e6


async def _measure_request(session: NodeSession, number: int) -> float:
    body = {
        "model": random_model.NAME, "messages": [{"role": "user", "content": f"{number} " * 20}], "max_tokens": _TOKENS,
        "ignore_eos": True, "temperature": 0,
    }  # fmt: skip
    began = session.clock.monotonic()
    answer = await stream_chat(session.link, PORT, body, (), clock=session.clock, timeout=WITHIN)
    if answer.tokens != _TOKENS:
        raise RuntimeError(f"the engine answered with {answer.tokens} tokens")
    return answer.tokens / (
        session.clock.monotonic() - began
    )  # bytes of a random model are no text: its pieces come late


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure_pairs(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))))
