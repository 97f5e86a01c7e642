"""What the demo shows of its own accord: whoever only watches sees both stacks, a start that fails, and why."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from sparkctl.cli.command_line_parser import CommandLineParser
from sparkctl.cli.main import sparkctl_command
from sparkctl.cli.verbs.demo import DEMO_STEPS, format_clock_label, seed_start_history
from sparkctl.config import load_config
from sparkctl.context import CommandContext
from sparkctl.history.operation_history import OperationHistory
from sparkctl.model.questions import Prompter
from sparkctl.model.text.units import format_gib
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.simulator import DEMO_SPEED, SimClock, SimulatedSparks
from sparkctl.tui.panel_options import PanelOptions
from tests.tui.panel_driver import Driver, controller_of, open_panel, read_screen, wait_for_text, wait_until_true

FASTER = 12.0


def build_story_options(sparks: SimulatedSparks, clock: SimClock, state: Path) -> PanelOptions:
    def context(prompter: Prompter) -> CommandContext:
        return CommandContext(history=OperationHistory(state), operator="milo@desk", prompter=prompter, clock=clock)

    nodes = load_config(sparks.config_path).nodes
    return PanelOptions(
        nodes=nodes,
        make_context=context,
        load_commands=lambda: CommandLineParser(sparkctl_command),
        clock=clock,
        badge=lambda: format_clock_label(clock),
        story=DEMO_STEPS,
    )


def _cut_tile(text: str, engine: str) -> str:
    """What follows an engine's name and version, up to those of the next tile; empty where it is not on the screen."""
    return re.split(r"(?:SGLang|vLLM) \d", text.partition(engine)[2])[0]


def parse_tile_figures(text: str, engine: str) -> tuple[float, float]:
    """tok/s and tokens a step in the tile of an engine."""
    part = _cut_tile(text, engine)
    speed, steps = re.search(r"decode +([\d.]+) tok/s", part), re.search(r"accept +([\d.]+) per step", part)
    assert speed is not None, text
    assert steps is not None, text
    return float(speed[1]), float(steps[1])


def _has_tile_figures(text: str, engine: str) -> bool:
    """Whether an engine's tile has its figures, past the first stride, which begins with waiting."""
    return bool(re.search(r"decode +1[12]\.\d+ tok/s[\s\S]*accept +[\d.]+ per step", _cut_tile(text, engine)))


async def _wait_for_words(pilot: Driver, words: str) -> str:
    return await wait_for_text(pilot, words, within=120)


async def test_the_story_is_told_to_whoever_watches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimClock(rate=FASTER, elastic=True)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    seed_start_history(tmp_path / "state", scenario="empty")
    async with (
        SimulatedSparks("story", speed=FASTER / DEMO_SPEED, clock=clock, busy_rate=FASTER) as sparks,
        open_panel(build_story_options(sparks, clock, tmp_path / "state"), (90, 60)) as pilot,
    ):
        monkeypatch.setenv("SPARKCTL_CONFIG", str(sparks.config_path))
        await _wait_for_words(pilot, "minimax-m27")
        await _wait_for_words(pilot, "qwen36-ngram")
        shown = await wait_for_text(pilot, lambda text: _has_tile_figures(text, "SGLang 0.5.12"), within=120)
        assert not any(one.name == "vllm-minimax-m27" for one in sparks.docker["spark2"].containers.values())
        assert f"simulated, time ×{FASTER:g}" in shown.splitlines()[0]
        speed, steps = parse_tile_figures(shown, "SGLang 0.5.12")
        assert 11.5 < speed < 14
        assert 1.65 <= steps <= 1.85
        await _wait_for_words(pilot, "of about")
        shown = await _wait_for_words(pilot, "The draft workspace of EAGLE did not fit")
        assert "✕ failed" in shown
        said = re.sub(r"[│┃\s]+", " ", shown)  # the sentence is folded within its tile
        wanted, free = re.findall(r"(\d+\.\d+) GiB", said[said.index("it tried to allocate") :])[:2]
        assert float(wanted) > float(free)
        shown = await _wait_for_words(pilot, "/14")
        assert "qwen36-vllm" in shown
        began = clock.monotonic()
        await wait_for_text(
            pilot, lambda text: text.count("per step") >= 2 and clock.monotonic() - began > 200, within=120
        )
        speed, steps = parse_tile_figures(read_screen(pilot), "vLLM 0.19.1")
        assert 18 < speed < 29
        assert 2.4 <= steps <= 3.6
        assert "failed" in read_screen(pilot), "the one that failed is still listed"


async def test_the_story_waits_while_a_dialog_is_open_which_tells_what_loads_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimClock(elastic=True)
    async with (
        SimulatedSparks("empty", speed=1 / DEMO_SPEED, clock=clock) as sparks,
        open_panel(build_story_options(sparks, clock, tmp_path), (100, 30)) as pilot,
    ):
        monkeypatch.setenv("SPARKCTL_CONFIG", str(sparks.config_path))
        await wait_for_text(pilot, "○ nothing runs")
        await pilot.press("u")
        await wait_for_text(pilot, "start a profile")
        clock.set_rate(FASTER)
        begun = clock.monotonic()
        await wait_until_true(pilot, lambda: clock.monotonic() - begun > 40)
        assert not sparks.docker["spark1"].containers, "it would have started its own by now"
        clock.set_rate(1.0)
        room = controller_of(pilot)
        room.start_command(room.parse_command(("up", "qwen36-vllm", "--node", "spark2")), by_hand=False)
        await pilot.press("tab")
        expected = re.escape(format_gib(ProfileLibrary().load_profile("qwen36-vllm").expected_memory))
        said = rf"qwen36-vllm is (starting|loading)\S* here now, {expected} expected"
        await wait_for_text(pilot, lambda text: re.search(said, text))
        await wait_for_text(pilot, lambda text: re.search(r"≈ (19|20)\d\.", text))  # what is still to come counts


@pytest.mark.parametrize(("rate", "ahead", "says"), [
    (1.0, 0.0, "simulated"), (1.0, 544.0, "simulated, 9 min ahead"), (8.0, 544.0, "simulated, time ×8"),
])  # fmt: skip
def test_the_header_says_how_far_ahead_the_demo_is(rate: float, ahead: float, says: str) -> None:
    assert format_clock_label(SimClock(time.time() + ahead, rate)) == says


async def test_whoever_starts_something_has_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimClock(elastic=True)  # as a person has it: the story begins soon
    async with (
        SimulatedSparks("empty", speed=1.0, clock=clock) as sparks,
        open_panel(build_story_options(sparks, clock, tmp_path), (100, 30)) as pilot,
    ):
        monkeypatch.setenv("SPARKCTL_CONFIG", str(sparks.config_path))
        await wait_for_text(pilot, "○ nothing runs")
        await pilot.press("tab", "c")
        await wait_for_text(pilot, "caches dropped")
        clock.set_rate(FASTER)
        shown = await wait_for_text(pilot, "the demo is yours")
        assert "switch qwen36-ngram" not in shown
        assert not sparks.docker["spark1"].containers
    assert any(one.words for one in DEMO_STEPS)
