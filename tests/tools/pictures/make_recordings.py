"""Makes the recordings anew: ``python -m tests.tools.pictures.make_recordings [NAME ...]``, about a minute each.

A quarter of an hour is played twenty times as fast: the simulated machines, their clocks and ours alike, so that what is
written down is what a quarter of an hour would have been.
"""

from __future__ import annotations

import asyncio
import gzip
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from sparkctl.cli.command_line_parser import CommandLineParser
from sparkctl.cli.main import sparkctl_command
from sparkctl.cli.verbs.demo import seed_start_history
from sparkctl.commands.request import Request
from sparkctl.commands.show_log import ShowLog, show_log
from sparkctl.config import load_config
from sparkctl.context import CommandContext, InterruptSignal
from sparkctl.history.operation_history import OperationHistory
from sparkctl.model.events import CommandEnded, Event, LogArrived, NodeStateChanged, PhaseChanged
from sparkctl.model.node import NodeState
from sparkctl.monitor.node_monitor import NodeMonitor
from sparkctl.monitor.recording import EventRecorder
from sparkctl.simulator import SimClock, SimulatedSparks
from sparkctl.simulator.simulated_sparks import DEMO_SPEED
from tests.tools.pictures.panel_scenes import RECORDINGS

FASTER = 20.0
EVERY = 5.0  # seconds between samples
EVENING = datetime(2026, 5, 1, 21, 46, tzinfo=UTC).timestamp()
HOME = "/home/milo"
NAMES = ("spark1", "spark2")
TOO_MUCH = ("--force", "--set", "args.mem-fraction-static=0.95", "--set", "args.speculative-num-draft-tokens=6")


def start_fast_clock() -> SimClock:
    """Return the evening's clock, and make it this process's: what history writes down is stamped by that."""
    clock = SimClock(EVENING, FASTER)
    time.time = clock.unix_time
    return clock


class Stage:
    """Two simulated Sparks that are followed, and the verbs that an operator would type. Every event is written down."""

    def __init__(self, sparks: SimulatedSparks, recorder: EventRecorder, state: Path, clock: SimClock) -> None:
        self.sparks, self._recorder = sparks, recorder
        self.clock = clock
        self._context = CommandContext(history=OperationHistory(state), operator="milo@desk", clock=self.clock)
        self._nodes = load_config(sparks.config_path).nodes
        self._beside: list[asyncio.Task[None]] = []

    def begin(self) -> None:
        """Follow both, written down from now on."""
        for node in self._nodes:
            self._emit(NodeStateChanged(ts=self.clock.unix_time(), node=node.name, state=NodeState.UNKNOWN))
        for node in self._nodes:
            follower = NodeMonitor(ctx=self._context, node=node, every=EVERY, emit=self._emit)
            self._beside.append(asyncio.create_task(follower.run()))

    def read(self, instance: str, name: str, since: float | None = None) -> None:
        """Follow the log of an instance, as its screen does, from so many seconds ago on."""
        node = next(node for node in self._nodes if node.name == name)

        async def follow() -> None:
            ctx = replace(self._context, interrupt=InterruptSignal())
            async for event in show_log(ctx, ShowLog(instance=instance, nodes=[node], follow=True, since=since)):
                if isinstance(event, LogArrived):
                    self._emit(event)

        self._beside.append(asyncio.create_task(follow()))

    async def run(self, *words: str, result: bool = True) -> CommandEnded:
        """Run a verb to its end."""
        request = CommandLineParser(sparkctl_command).parse_request(words)
        assert isinstance(request, Request)
        ended = None
        async for event in request.run(replace(self._context, interrupt=InterruptSignal())):
            if result:
                self._emit(event)
            if isinstance(event, PhaseChanged):
                print(f"  {event.instance} {event.phase}", flush=True)
            if isinstance(event, CommandEnded):
                ended = event
        assert ended is not None
        print(f"  {' '.join(words)}: {ended.outcome}", flush=True)
        return ended

    def work(self, name: str, requests: int) -> None:
        """Let somebody use what runs on a node."""
        docker = self.sparks.docker[name]
        for process in docker.running.values():
            process.add_background_load(requests, since=0.0)

    def _emit(self, event: Event) -> None:
        self._recorder.write(event)

    async def aclose(self) -> None:
        """Follow nothing any more."""
        for task in self._beside:
            task.cancel()
        await asyncio.gather(*self._beside, return_exceptions=True)


async def record_evening(stage: Stage) -> None:
    """Two stacks at work; the second is stopped, and started anew, as once before: how long it takes is known."""
    for words in (("down", "qwen36-vllm"), ("up", "qwen36-vllm")):
        await stage.run(*words, "--node", "spark2", result=False)
    stage.work("spark2", 1)
    stage.begin()
    stage.read("qwen36-ngram", "spark1")
    await stage.clock.sleep(400)
    await stage.run("down", "qwen36-vllm", "--node", "spark2")
    await stage.clock.sleep(40)
    await stage.run("up", "qwen36-vllm", "--node", "spark2")
    stage.read("qwen36-vllm", "spark2", since=0.5)
    stage.work("spark2", 1)
    await stage.clock.sleep(150)


async def record_failure(stage: Stage) -> None:
    """The second Spark is at work; on the first, an engine runs out of CUDA memory while it loads."""
    await stage.run("down", "qwen36-ngram", "--node", "spark1", result=False)
    stage.begin()
    await stage.clock.sleep(300)
    await stage.run("up", "qwen36", "--node", "spark1", *TOO_MUCH)
    await stage.clock.sleep(30)


async def record_checkup(stage: Stage) -> None:
    """The big model on two Sparks that are not well; `doctor` looks at both."""
    stage.begin()
    await stage.clock.sleep(60)
    await stage.run("doctor")
    await stage.clock.sleep(10)


async def record_switching(stage: Stage) -> None:
    """The big model on both Sparks gives way to one on the first of them; the second is free."""
    stage.begin()
    await stage.clock.sleep(120)
    await stage.run("switch", "qwen36-ngram", "--node", "spark1")
    await stage.clock.sleep(30)


STORIES: dict[str, tuple[str, Callable[[Stage], Awaitable[None]]]] = {
    "evening": ("two-stacks", record_evening),
    "failure": ("two-stacks", record_failure),
    "checkup": ("trouble", record_checkup),
    "switching": ("big-model", record_switching),
}  # each with the scenario that it begins with


@asynccontextmanager
async def open_stage(scenario: str, recorder: EventRecorder, home: Path, clock: SimClock) -> AsyncIterator[Stage]:
    async with SimulatedSparks(scenario, speed=1 / DEMO_SPEED, nodes=NAMES, clock=clock) as sparks:
        os.environ["SPARKCTL_CONFIG"] = str(sparks.config_path)
        stage = Stage(sparks, recorder, home / "state", clock)
        try:
            yield stage
        finally:
            await stage.aclose()


async def record_story(name: str, home: Path, clock: SimClock) -> None:
    """Play one story and keep it."""
    plain = home / f"{name}.jsonl"
    seed_start_history(home / "state")
    with EventRecorder(plain, print) as recorder:
        scenario, story = STORIES[name]
        async with open_stage(scenario, recorder, home, clock) as stage:
            await story(stage)
    kept = RECORDINGS / f"{name}.jsonl.gz"
    kept.write_bytes(gzip.compress(plain.read_bytes().replace(str(home).encode(), HOME.encode()), 9, mtime=0))
    print(f"{kept}: {plain.stat().st_size >> 10} KiB, compressed {kept.stat().st_size >> 10} KiB", flush=True)


def main(names: Sequence[str]) -> None:
    """Make these, or all."""
    for name in names or tuple(STORIES):
        with tempfile.TemporaryDirectory() as home:
            os.environ |= {"HOME": home, "SPARKCTL_STATE": f"{home}/state", "XDG_CONFIG_HOME": f"{home}/config"}
            asyncio.run(record_story(name, Path(home), start_fast_clock()))


if __name__ == "__main__":
    main(sys.argv[1:])
