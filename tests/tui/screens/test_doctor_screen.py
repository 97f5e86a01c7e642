"""The doctor as a person uses it: all Sparks at once, remedies copied or done; on simulated Sparks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sparkctl.cli.command_line_parser import CommandLineParser as Grammar
from sparkctl.cli.main import sparkctl_command
from sparkctl.config import load_config
from sparkctl.model.events import CheckCompleted, Event, FindingReported, NodeStateChanged
from sparkctl.model.finding import Severity
from sparkctl.model.node import Node, NodeName, NodeState
from sparkctl.simulator import SimNodeOptions, SimulatedSparks, SudoRule
from sparkctl.tui.app import PanelApp
from sparkctl.tui.panel_options import PanelOptions
from tests.support.sim_clients import FAST
from tests.tui.panel_driver import (
    Driver,
    build_panel_options,
    controller_of,
    open_black_hole,
    open_demo_panel,
    open_panel,
    read_screen,
    read_toasts,
    wait_for_text,
    wait_until_true,
)


async def test_what_was_found_in_a_recording_is_here_as_of_the_moment_that_is_shown(tmp_path: Path) -> None:
    """Also three findings of one check; and none before it was made, where somebody goes back."""
    node, when = NodeName("spark1"), 1777672000.0
    disks = [
        FindingReported(
            ts=when + 25 + at, node=node, check="disk", severity=Severity.GOOD, message=f"enough for {name}"
        )
        for at, name in enumerate("abc")
    ]
    events: tuple[Event, ...] = (
        NodeStateChanged(ts=when, node=node, state=NodeState.OK), *disks, CheckCompleted(when + 40, node, 20.0),
    )  # fmt: skip
    async with open_panel(build_panel_options((), tmp_path, recording=(events, 1.0)), (100, 30)) as pilot:
        await wait_for_text(pilot, "recording 0:00 of 0:40")
        await pilot.press("space", "exclamation_mark")
        await wait_for_text(pilot, "what its samples show")
        await pilot.press("shift+right")
        shown = await wait_for_text(pilot, "3 good")
        assert all(f"enough for {name}" in shown for name in "abc")
        await pilot.press("shift+left")
        assert "enough for" not in await wait_for_text(pilot, "what its samples show")


def report_page_cache_problem(pilot: Driver, node: str) -> None:
    """Let the store be told what a follower tells of a load in a full page cache."""
    panel = pilot.app
    assert isinstance(panel, PanelApp)
    assert panel.controller is not None
    panel.controller.handle_event(
        FindingReported(
            ts=time.time(), node=NodeName(node), check="page-cache", severity=Severity.WARNING, message="page cache takes the room of a load",
            remedy=f"sparkctl drop-caches --node {node}",
        )
    )  # fmt: skip


@asynccontextmanager
async def open_silent_node() -> AsyncIterator[Node]:
    """A node that takes connections and says nothing."""

    async def hold(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await leave.wait()
        writer.close()

    leave = asyncio.Event()
    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    async with server:
        yield Node(name=NodeName("dark"), host="127.0.0.1", user="nobody", port=server.sockets[0].getsockname()[1])
        leave.set()


async def test_all_sparks_are_examined_the_worst_comes_first_and_its_remedy_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"spark2": SimNodeOptions(sudo=SudoRule.PASSWORD)}
    async with (
        SimulatedSparks("two-stacks", **FAST, options=options) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch) as pilot,
    ):
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        await pilot.press("exclamation_mark")
        shown = await wait_for_text(pilot, "1 problem")
        assert "▸ ✕ spark2  drop-caches  no right to drop the page cache" in shown
        assert "checks are good: connection, memory" in shown
        await pilot.press("G")
        await wait_for_text(pilot, "│ spark1  connection")
        await pilot.press("g", "y")
        assert pilot.app.clipboard == "sparkctl setup spark2"
        await pilot.press("enter")
        await wait_for_text(pilot, "Look at what is missing on spark2?")
        await pilot.press("tab", "enter")
        await wait_for_text(pilot, "+milo ALL=(root) NOPASSWD: /usr/bin/tee")
        await pilot.press("escape")
        await wait_until_true(
            pilot, lambda: "setup" not in [job.started.verb for job in controller_of(pilot).store.jobs.running.values()]
        )
        await wait_for_text(pilot, "examined ")  # findings are told while it goes on, and r begins nothing then
        seen = controller_of(pilot).store.jobs.doctor
        before = seen.get_last_run_time(NodeName("spark1"))
        await pilot.press("r")
        await wait_until_true(pilot, lambda: seen.get_last_run_time(NodeName("spark1")) > before)
        await wait_for_text(pilot, lambda text: "1 problem" in text and "examined " in text)


async def test_dropping_caches_is_done_from_here_after_a_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        SimulatedSparks("two-stacks", **FAST) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch) as pilot,
    ):
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        await pilot.press("exclamation_mark")
        await wait_for_text(pilot, "examined ")
        report_page_cache_problem(pilot, "spark1")
        shown = await wait_for_text(pilot, "▸ ▲ spark1")
        assert "enter does it, after a question" in shown
        await pilot.press("enter")
        shown = await wait_for_text(pilot, "Run this for spark1?")
        assert "[ Cancel ]" in shown
        assert "sparkctl drop-caches --node spark1" in shown
        await pilot.press("enter")
        await wait_for_text(pilot, "examined ")
        await pilot.press("enter")
        await wait_for_text(pilot, "Run this for spark1?")
        await pilot.press("tab", "enter")
        await wait_until_true(pilot, lambda: any("caches dropped" in one for one in read_toasts(pilot)))


async def test_read_only_copies_and_does_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        SimulatedSparks("two-stacks", **FAST) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch, readonly=True) as pilot,
    ):
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        await pilot.press("exclamation_mark")
        await wait_for_text(pilot, "examined ")
        report_page_cache_problem(pilot, "spark1")
        shown = await wait_for_text(pilot, "▸ ▲ spark1")
        assert "do it" not in shown.splitlines()[-1]
        await pilot.press("enter")
        await pilot.pause(0.2)
        assert "Run this" not in read_screen(pilot)


async def test_a_typed_doctor_opens_the_screen_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with SimulatedSparks("empty", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        await wait_for_text(pilot, lambda text: text.count("nothing runs") >= 2)
        await pilot.press("colon", *"doctor --node spark2", "enter")
        shown = await wait_for_text(pilot, "examined ")
        assert "▸" in shown
        assert "spark1" not in shown


async def test_a_spark_that_does_not_answer_holds_up_no_other_and_is_asked_again_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SimulatedSparks("two-stacks", **FAST) as sparks:
        monkeypatch.setenv("SPARKCTL_CONFIG", str(sparks.config_path))
        async with open_silent_node() as dark:
            nodes = (*load_config(sparks.config_path).nodes, dark)
            made = build_panel_options(nodes, tmp_path / "state", load_commands=lambda: Grammar(sparkctl_command))
            await _holds_up_nobody(made)


async def _holds_up_nobody(made: PanelOptions) -> None:
    async with open_panel(made, (100, 40)) as pilot:
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        await pilot.press("exclamation_mark")
        shown = await wait_for_text(pilot, lambda text: "versions" in text and "examining dark" in text)
        assert "│ spark1  docker" in shown, "each finding is there as soon as it is made"
        await wait_for_text(pilot, lambda text: text.count(" versions ") == 2 and "examining dark" in text)
        await pilot.press("r")
        await wait_for_text(pilot, lambda text: "examining" in text and "spark1" in text.splitlines()[1])
        await pilot.press("slash", *"docker", "enter")
        shown = await wait_for_text(pilot, "  docker")
        assert " memory " not in shown
        await pilot.press("escape")
        await wait_for_text(pilot, " memory ")


async def test_a_fixed_problem_is_examined_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        SimulatedSparks("two-stacks", **FAST) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch) as pilot,
    ):
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        await pilot.press("exclamation_mark")
        await wait_for_text(pilot, "examined ")
        report_page_cache_problem(pilot, "spark1")
        await wait_for_text(pilot, "▸ ▲ spark1")
        await pilot.press("enter")
        await wait_for_text(pilot, "Run this for spark1?")
        await pilot.press("tab", "enter")
        await wait_until_true(pilot, lambda: any("caches dropped" in one for one in read_toasts(pilot)))
        await wait_for_text(pilot, lambda text: "examined " in text and "page-cache" not in text)


@pytest.mark.parametrize("size", [(40, 10), (60, 15), (50, 12)])
async def test_a_spark_that_does_not_answer_and_small_terminals_break_nothing(
    tmp_path: Path, size: tuple[int, int]
) -> None:
    async with open_panel(build_panel_options((open_black_hole(),), tmp_path), size) as pilot:
        await pilot.press("exclamation_mark")
        await pilot.press("down", "pagedown", "up", "pageup", "y", "enter", "r")
        await pilot.resize_terminal(120, 40)
        await wait_for_text(pilot, "✕ dark  connection")
        await pilot.press("p")
        await wait_for_text(pilot, "qwen36")
        await pilot.press("exclamation_mark")
        await wait_for_text(pilot, "✕ dark  connection")
        assert len(pilot.app.screen_stack) == 2, "back to the one that was open"
