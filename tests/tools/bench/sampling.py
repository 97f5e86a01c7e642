"""What `sparkctl bench` costs the engine that it measures: tokens/s with our sampling beside, and without it, by turns.

A real vLLM on one core of this machine answers one request after the other over SSH, each of the same length. In every other one
the node is sampled and the engine's figures are read as beside a cell. The first of each pair changes from pair to pair.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from statistics import median

from sparkctl.commands.bench.cell_watch import CellWatch
from sparkctl.commands.bench.chat_stream import stream_chat
from sparkctl.config import find_node, load_config
from sparkctl.engines import load_engine
from sparkctl.model.questions import NonInteractivePrompter
from sparkctl.transport.node_session import NodeSession
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
_TOKENS, _SETTLE_SECONDS = 600, 0.5
_ENGINE = "vllm"


def run(rounds: int = ROUNDS) -> Report:
    """Measure so many pairs. Raises RuntimeError where no vLLM can be had, or the lab cannot run."""
    install = Install(cache_directory())
    install.install_vllm()
    bench = Bench(install, install.root / "models", Path(tempfile.gettempdir()), 0.0)
    random_model.write_directory(bench.models / random_model.NAME)
    taken: dict[str, list[float]] = {}
    load = LoadMeter()

    def play(bench: Bench, node: LabNode, command: Sparkctl) -> None:
        del node
        name = f"{_ENGINE}-real"
        write_profile(bench, command, _ENGINE, name, drafts=False)
        if (ran := command("up", name, "--node", NODE, "--json", timeout=WITHIN)).code:
            raise RuntimeError(f"{ran!r}"[-1500:])
        taken.update(
            read_json_answer(
                "tests.tools.bench.sampling", NODE, str(rounds), env=command.env, timeout=WITHIN + 30.0 * rounds
            )
        )
        command("down", "--all", "--node", NODE, "--json", timeout=WITHIN)

    if reason := run_on_node(bench, play):
        raise RuntimeError(reason)
    shares = [with_it / without for with_it, without in zip(taken["sampled"], taken["bare"], strict=True)]
    low, high = (compute_quantile(shares, at) for at in (0.25, 0.75))
    middle = median(shares)
    series = (
        Series("with our sampling", "tok/s", tuple(taken["sampled"])),
        Series("without", "tok/s", tuple(taken["bare"])),
        Series("of each pair", "x", tuple(shares)),
    )
    note = f"of each pair: median {middle:.3f}x, half of the pairs from {low:.3f}x to {high:.3f}x"
    goals = (Goal("tok/s with our sampling / without", middle, 0.97, at_most=False),)
    return Report(
        "sampling", f"vLLM on one core, {_TOKENS} tokens, one request at a time", series, goals, load.read(), (note,)
    )


async def measure_pairs(node_name: str, rounds: int) -> dict[str, list[float]]:
    """Return tokens/s of each request, with and without our sampling; a first pair is dropped."""
    taken: dict[str, list[float]] = {"sampled": [], "bare": []}
    async with NodeSession(find_node(load_config(), node_name), NonInteractivePrompter()) as session:
        await session.link.connect()
        container = next(one for one in await session.docker.list_containers() if one.is_alive)
        for number in range(rounds + 1):
            for kind in ("sampled", "bare") if number % 2 else ("bare", "sampled"):
                watch = CellWatch(session, load_engine(_ENGINE), port=PORT, container=container.id)
                if kind == "sampled":
                    watch.start()
                await asyncio.sleep(_SETTLE_SECONDS)
                rate = await _measure_request(session, number)
                await watch.aclose()
                if number:
                    taken[kind].append(rate)
    return taken


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
    print(json.dumps(asyncio.run(measure_pairs(sys.argv[1], int(sys.argv[2])))))
