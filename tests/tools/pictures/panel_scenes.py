"""The scenes: which screen of which recording, at which moment; and how a panel gets there and stands still."""

from __future__ import annotations

import asyncio
import gzip
import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from textual._compositor import LayoutUpdate
from textual.pilot import Pilot

from sparkctl.commands.actions import BENCH, DOCTOR, INSTANCE, LOGS, NODE, PROFILES, SWITCH
from sparkctl.commands.bench.run_bench import PRESETS
from sparkctl.context import CommandContext
from sparkctl.history.bench_store import BenchStore
from sparkctl.history.operation_history import OperationHistory
from sparkctl.model.bench import BenchCell, BenchRun, BenchSetup, CellResult, Measurements
from sparkctl.model.events import BenchCellProgressed, CommandEnded, Event, PhaseChanged
from sparkctl.model.node import NodeName
from sparkctl.model.phase import Phase
from sparkctl.model.questions import Prompter
from sparkctl.model.text.units import GIB
from sparkctl.monitor.recording import read_recording
from sparkctl.tui.app import PanelApp
from sparkctl.tui.panel_options import AVAILABLE_SCREENS, PanelOptions

RECORDINGS = Path(__file__).with_name("recordings")
PATIENCE = 30.0  # seconds

Driver = Pilot[tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Scene:
    """``until`` ends the recording after the first event for which it holds; ``keys`` are pressed there (``~text``: wait
    until that is seen), and ``shows`` is what has to be seen then. ``place`` is the screen, None for the overview. ``prepare``
    writes files that the screen reads, and returns what happens after the recording, at its last moment (unix seconds)."""

    recording: str
    shows: str
    until: Callable[[Event], bool] = lambda _: False
    keys: tuple[str, ...] = ()
    place: str | None = None
    prepare: Callable[[float], Sequence[Event]] = lambda _: ()


def when_weights_loaded(share: float) -> Callable[[Event], bool]:
    """Hold as soon as so much of the weights is loaded."""

    def there(event: Event) -> bool:
        step = event.step if isinstance(event, PhaseChanged) and event.phase is Phase.LOADING else None
        return step is not None and bool(step.total) and (step.done or 0) >= share * (step.total or 0)

    return there


def measure_cells(moment: float) -> Sequence[Event]:
    """Keep two benchmarks, one of which is at its fourth cell."""
    cells = PRESETS["quick"]
    speeds = (12.7, 43.1, 13.4, 35.3, 12.2, 19.4, 12.8, 17.2)

    def measure(cell: BenchCell, speed: float, factor: float) -> CellResult:
        return CellResult(
            cell=cell, generation_rate=Measurements((speed * factor,)), prompt_rate=Measurements((1253.0 * factor,)),
            ttft=Measurements((0.41 * cell.pp / 512 * cell.concurrency**0.9,)), accept_length=1.6 + factor / 10, accept_rate=0.07 * factor,
            memory_peak=int((99 + factor) * GIB), power=58.0 + cell.concurrency, tokens_per_joule=speed * factor / (58 + cell.concurrency),
            clock=2411.0 - cell.concurrency, disturbed=False, throttled=cell.concurrency > 1 and cell.depth > 0,
        )  # fmt: skip

    def build(instance: str, node: str, engine: str, version: str, factor: float, count: int, began: float) -> BenchRun:
        results = tuple(measure(cell, speed, factor) for cell, speed in zip(cells[:count], speeds[:count], strict=True))
        return BenchRun(
            number=0, began=began, instance=instance, nodes=(NodeName(node),), wanted=cells, results=results,
            ended=began + 900 if count == len(cells) else None, setup=BenchSetup(engine=engine, engine_version=version),
        )  # fmt: skip

    store = BenchStore()
    if not store.list_runs():
        store.add(build("qwen36-ngram", "spark1", "sglang", "0.5.12", 1.0, len(cells), moment - 5400))
        store.add(build("qwen36-vllm", "spark2", "vllm", "0.19.1", 1.81, 3, moment - 240))
    return (
        BenchCellProgressed(
            ts=moment, node=NodeName("spark2"), instance="qwen36-vllm", cell=cells[3], number=4, total=len(cells), done=5, requests=8,
            tokens_per_second=61.4, remaining=312.0,
        ),
    )  # fmt: skip


SCENES: dict[str, Scene] = {
    "overview": Scene("evening", "loading", when_weights_loaded(0.6)),
    "failure": Scene("failure", "failed", lambda event: isinstance(event, CommandEnded)),
    "instance": Scene("evening", "accept", keys=("tab", "enter"), place=INSTANCE),
    "verdict": Scene("failure", "proof", keys=("enter",), place=INSTANCE),
    "logs": Scene("failure", "paused", keys=("l", "~27 lines", "G", "~Received sigquit", "E"), place=LOGS),
    "switch": Scene("switching", "switch ›", when_weights_loaded(0.6), keys=("s",), place=SWITCH),
    "profiles": Scene("evening", "SGLang", keys=("p", *"jjjjjjjjjj"), place=PROFILES),
    "node": Scene("evening", "processes", keys=("tab", "n"), place=NODE),
    "bench": Scene("evening", "of 8", keys=("7",), place=BENCH, prepare=measure_cells),
    "doctor": Scene("checkup", "problem", keys=("!",), place=DOCTOR),
}


def when_there_are() -> dict[str, Scene]:
    """Return the scenes whose screens exist."""
    return {name: scene for name, scene in SCENES.items() if scene.place in (None, *AVAILABLE_SCREENS)}


class FrozenClock:
    """The clock of a panel that stands still: a recording is over as soon as it begins."""

    def unix_time(self) -> float:
        return 0.0

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


@cache
def load_recording(name: str) -> tuple[Event, ...]:
    """Return the events of a recording."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / f"{name}.jsonl"
        path.write_bytes(gzip.decompress((RECORDINGS / f"{name}.jsonl.gz").read_bytes()))
        return tuple(read_recording(path))


def cut_recording(scene: Scene) -> Sequence[Event]:
    """Return the events up to the scene's moment."""
    events = load_recording(scene.recording)
    last = next((at for at, event in enumerate(events) if scene.until(event)), len(events) - 1)
    return (*events[: last + 1], *scene.prepare(events[last].ts))


def build_panel(scene: Scene, state: Path) -> PanelApp:
    """Return a panel that plays the recording up to the scene's moment."""
    events, clock = cut_recording(scene), FrozenClock()

    def context(prompter: Prompter) -> CommandContext:
        return CommandContext(history=OperationHistory(state), operator="milo@desk", prompter=prompter, clock=clock)

    return PanelApp(PanelOptions(nodes=(), make_context=context, recording=(events, 1.0), clock=clock))


def read_screen_text(pilot: Driver) -> str:
    """Return what is on the screen, as bare text. A screenshot would take ten times as long."""
    app = pilot.app
    update = app.screen._compositor.render_update(full=True, screen_stack=app._background_screens)
    assert isinstance(update, LayoutUpdate)
    return "\n".join("".join(strip.text for strip in line) for line in update.strips)


async def enact_scene(pilot: Driver, scene: Scene) -> None:
    """Go to the end of the recording, press the keys, and wait until the picture is whole and rests."""
    there = pilot.app
    assert isinstance(there, PanelApp)
    moment = cut_recording(scene)[-1].ts
    now = ""
    try:
        async with asyncio.timeout(PATIENCE):
            while there.controller is None or (player := there.controller.player) is None:
                await pilot.pause(0.02)
            player.seek(math.inf)  # played, it would be painted all the way
            while there.displayed_time() != moment:
                await pilot.pause(0.02)
            there.repaint_unless_frozen()
            await pilot.pause()
            for key in scene.keys:
                if key.startswith("~"):
                    while key[1:] not in (now := read_screen_text(pilot)):
                        await pilot.pause(0.02)
                    continue
                await pilot.press(key)
                await pilot.pause()
            before: str | None = None
            now = ""
            while before != now or scene.shows not in now:
                before = now
                while not there.is_idle:  # a repaint asks for what is missing, and the next one paints it
                    await pilot.pause(0.02)
                there.repaint_unless_frozen()
                await pilot.pause(0.1)
                now = read_screen_text(pilot)
    except TimeoutError:
        raise AssertionError(f"{scene.shows!r} never came:\n{now}") from None
