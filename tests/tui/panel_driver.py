"""The panel on simulated Sparks, as a person would drive it: real SSH, no stand-in for anything of ours."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from sparkctl.cli.command_line_parser import CommandLineParser as Grammar
from sparkctl.cli.main import sparkctl_command
from sparkctl.config import load_config
from sparkctl.context import CommandContext
from sparkctl.history.operation_history import OperationHistory
from sparkctl.model.node import Node
from sparkctl.model.questions import Prompter
from sparkctl.simulator import SimulatedSparks
from sparkctl.tui.app import PanelApp
from sparkctl.tui.controller import PanelController
from sparkctl.tui.panel_options import PanelOptions
from sparkctl.tui.text_surface import TextSurface
from sparkctl.views.text.styled_text import to_ascii

Driver = Pilot[tuple[str, ...]]
PATIENCE = 60.0  # seconds: a test that passes never waits so long, however slow the machine
_LOOK_SECONDS = 0.02, 0.05  # between the first looks, and between later ones: each reads the whole screen


def build_panel_options(nodes: tuple[Node, ...], state: Path, **more: Any) -> PanelOptions:
    def context(prompter: Prompter) -> CommandContext:
        return CommandContext(history=OperationHistory(state), operator="tester", prompter=prompter)

    return PanelOptions(nodes=nodes, make_context=context, **more)


@asynccontextmanager
async def open_panel(made: PanelOptions, size: tuple[int, int] = (80, 24)) -> AsyncIterator[Driver]:
    async with PanelApp(made).run_test(size=size, notifications=True) as pilot:
        yield pilot


@asynccontextmanager
async def open_panel_on(
    sparks: SimulatedSparks, state: Path, size: tuple[int, int] = (80, 24), **more: Any
) -> AsyncIterator[Driver]:
    """The panel on simulated Sparks that are there already."""
    nodes = load_config(sparks.config_path).nodes
    async with open_panel(build_panel_options(nodes, state, **more), size) as pilot:
        yield pilot


def open_demo_panel(
    sparks: SimulatedSparks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **more: Any
) -> AbstractAsyncContextManager[Driver]:
    """The panel with all that it can be told to do: its `:` line reads the config of these Sparks."""
    monkeypatch.setenv("SPARKCTL_CONFIG", str(sparks.config_path))
    return open_panel_on(sparks, tmp_path / "state", load_commands=lambda: Grammar(sparkctl_command), **more)


def panel_of(pilot: Driver) -> PanelApp:
    """Return the panel that a test drives, with its type."""
    panel = pilot.app
    assert isinstance(panel, PanelApp)
    return panel


def controller_of(pilot: Driver) -> PanelController:
    """Return the controller of an opened panel."""
    room = panel_of(pilot).controller
    assert room is not None
    return room


def read_screen(pilot: Driver) -> str:
    """What is on the screen that is seen, sheet by sheet, as bare text, in the characters that are painted."""
    lines = [line for sheet in pilot.app.screen.query(TextSurface) if sheet.display for line in sheet.plain_lines]
    return "\n".join(map(to_ascii, lines) if getattr(pilot.app, "ascii_only", False) else lines)


def read_toasts(pilot: Driver) -> list[str]:
    """What is said in the corner."""
    return [str(one.message) for one in pilot.app._notifications]


async def wait_for_text(pilot: Driver, claim: str | Callable[[str], object], within: float = PATIENCE) -> str:
    """Wait until a text is on the screen, or a claim about it holds; return the screen."""
    seen = ""

    def holds() -> object:
        nonlocal seen
        seen = read_screen(pilot)
        return claim in seen if isinstance(claim, str) else claim(seen)

    try:
        await wait_until_true(pilot, holds, within)
    except TimeoutError:
        raise AssertionError(f"{claim!r} never came:\n{seen}") from None
    return seen


async def wait_until_true(pilot: Driver, claim: Callable[[], object], within: float = PATIENCE) -> None:
    """Wait until a claim about anything else holds, and all that came with it is done.

    `Pilot.pause` would send a message to each widget at every look.
    """
    waited = 0.0
    async with asyncio.timeout(within):
        while not claim():
            pause = _LOOK_SECONDS[waited > 1.0]
            await asyncio.sleep(pause)
            waited += pause
    if pilot.app.is_running:
        await pilot.pause(0)


def stop_background_requests(sparks: SimulatedSparks, node: str) -> None:
    """Let nobody ask the engines of a Spark for anything from now on."""
    for engine in sparks.docker[node].running.values():
        engine.decoding.background = 0


def open_black_hole(name: str = "dark") -> Node:
    """A node whose address drops everything (TEST-NET-1)."""
    return replace(Node(name=name, host="192.0.2.1"), user="nobody")  # type: ignore[arg-type]


def is_idle(text: str) -> bool:
    """Tell whether an engine is known to answer nobody; a link says that it is idle, too."""
    return any("decode" in line and "idle" in line for line in text.splitlines())
