"""Screens and dialogs as text, on a small and a large terminal, from recordings and with a clock that stands still.

The snapshots of tests/tui hold the screens with their colours at 60x15, 80x24, 120x40 and 200x50; here it is the words, their
places, and what opens over them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from textual.geometry import Size

from sparkctl.cli.command_line_parser import CommandLineParser
from sparkctl.cli.main import sparkctl_command
from sparkctl.commands.actions import find_action
from sparkctl.commands.stop.stop_instance import StopInstance
from sparkctl.context import CommandContext
from sparkctl.history.operation_history import OperationHistory
from sparkctl.model.node import Node, NodeName
from sparkctl.model.questions import Prompter
from sparkctl.profiles.profile_library import list_startable_profiles
from sparkctl.tui.app import PanelApp
from sparkctl.tui.dialogs.import_profile_dialog import ImportProfileDialog
from sparkctl.tui.dialogs.profile_picker import ProfilePicker
from sparkctl.tui.dialogs.prompts import build_confirmation
from sparkctl.tui.estimate_cache import MemoryEstimateCache
from sparkctl.tui.panel_options import PanelOptions
from tests.golden.comparison import assert_no_diffs, assert_same_files, diff_golden
from tests.tools.pictures.panel_scenes import (
    SCENES,
    Driver,
    FrozenClock,
    Scene,
    cut_recording,
    enact_scene,
    when_there_are,
)

PATIENCE = 120.0  # seconds
RESTS = 2  # looks at which the picture is the same as at the one before
SIZES = ((80, 24), (200, 60))


@dataclass(frozen=True, slots=True)
class DialogScene:
    """What is opened over a screen: by keys, or by what is pushed. Escape closes it."""

    name: str
    keys: tuple[str, ...] = ()
    push: Callable[[PanelApp], object] = lambda _: None


def ask_to_stop(instance: str | None) -> Callable[[PanelApp], object]:
    """Return what opens the question before an instance on spark1 is stopped, or before spark1 is freed."""
    node = Node(name=NodeName("spark1"), host="spark1")
    request = StopInstance(instance=instance, nodes=(node,), frees=instance is None)

    def push(panel: PanelApp) -> object:
        return panel.push_screen(build_confirmation(request, find_action(request.verb), panel.build_action_context()))

    return push


def pick_profile(panel: PanelApp) -> object:
    """Open the list of profiles to start."""
    return panel.push_screen(
        ProfilePicker(
            list_startable_profiles(()),
            lambda: panel.build_action_context().views,
            panel.selected_node,
            to_switch=False,
            title="start a profile",
        )
    )


DIALOGS: dict[str, tuple[DialogScene, ...]] = {
    "overview": (
        DialogScene("keys", ("?",)),
        DialogScene("palette", ("ctrl+p",)),
        DialogScene("command-line", (":", *"up q")),
        DialogScene("stop", push=ask_to_stop("qwen36-ngram")),
        DialogScene("free", push=ask_to_stop(None)),
        DialogScene("start", push=pick_profile),
        DialogScene("import", push=lambda panel: panel.push_screen(ImportProfileDialog())),
    ),
    "failure": (DialogScene("remove", push=ask_to_stop("qwen36")),),
    "logs": (DialogScene("keys-of-log", ("?",)), DialogScene("find-in-log", ("/", *"error"))),
    "profiles": (DialogScene("filter", ("/", *"vllm")),),
    "instance": (DialogScene("runs-with", ("d",)),),
    "verdict": (DialogScene("findings", ("i",)),),
}


@pytest.fixture(autouse=True)
def _noon(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """The same hours and home everywhere."""
    monkeypatch.delenv("TEXTUAL_ANIMATIONS", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def make_panel(scene: Scene, state: Path) -> PanelApp:
    """Return a panel that plays a recording up to the scene's moment, and knows the command line."""
    events, clock = cut_recording(scene), FrozenClock()

    def make_context(prompter: Prompter) -> CommandContext:
        return CommandContext(history=OperationHistory(state), operator="milo@desk", prompter=prompter, clock=clock)

    return PanelApp(
        PanelOptions(
            nodes=(),
            make_context=make_context,
            load_commands=lambda: CommandLineParser(sparkctl_command),
            recording=(events, 1.0),
            clock=clock,
        )
    )


def read_screen(pilot: Driver) -> list[str]:
    """Return the lines of the terminal, what lies over others included."""
    screen = pilot.app.screen
    strips = screen._compositor.render_strips(Size(*pilot.app.size))
    return [strip.text.rstrip() for strip in strips]


async def read_resting(pilot: Driver, size: tuple[int, int]) -> str:
    """Return the text once the terminal has its size, nothing is fetched any more and the picture rests.

    A repaint asks for what is missing, and the next one paints it: there is none before all that was asked for is there.
    """
    panel = pilot.app
    assert isinstance(panel, PanelApp)
    before: list[str] = []
    rests = 0
    # The list of profiles to start has no Spark to ask in a recording: it calculates for good.
    counting = ": calculating" if isinstance(panel.screen, ProfilePicker) else "calculating"
    async with asyncio.timeout(PATIENCE):
        while rests < RESTS:
            await pilot.pause(0.01)
            await pilot.pause()
            if not panel.is_idle:
                continue
            panel.repaint_unless_frozen()
            await pilot.pause()
            now = read_screen(pilot)
            is_counting = any(counting in line for line in now)
            is_same = now == before and panel.size == Size(*size) and not is_counting
            rests = rests + 1 if is_same else 0
            before = now
    return "\n".join(before)


@pytest.mark.parametrize("name", list(when_there_are()))
async def test_screens_are_unchanged(name: str, tmp_path: Path) -> None:
    """A screen, then what opens over it."""
    panel = make_panel(SCENES[name], tmp_path)
    diffs = []
    async with panel.run_test(size=SIZES[0], notifications=True) as pilot:
        await enact_scene(pilot, SCENES[name])
        for size in SIZES:
            await pilot.resize_terminal(*size)
            diffs.append(diff_golden(f"screens/{name_file(name, size)}", await read_resting(pilot, size)))
            for dialog in DIALOGS.get(name, ()):
                await pilot.press(*dialog.keys)
                dialog.push(panel)
                text = await read_resting(pilot, size)
                diffs.append(diff_golden(f"screens/dialogs/{name_file(dialog.name, size)}", text))
                await pilot.press("escape")
    assert_no_diffs(diffs)


async def test_estimates_that_take_their_time_are_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    update = MemoryEstimateCache._update_estimates

    def update_slowly(*given: Any) -> bool:
        time.sleep(0.3)  # in its thread: as beside other tests
        return update(*given)

    monkeypatch.setattr(MemoryEstimateCache, "_update_estimates", update_slowly)
    await test_screens_are_unchanged("profiles", tmp_path)


def name_file(name: str, size: tuple[int, int]) -> str:
    """Return the name of the golden file of a screen."""
    return f"{name}-{size[0]}x{size[1]}.txt"


def test_every_golden_screen_is_drawn() -> None:
    names = [*when_there_are(), *(f"dialogs/{dialog.name}" for scene in DIALOGS.values() for dialog in scene)]
    assert_same_files("screens", (name_file(name, size) for name in names for size in SIZES))
