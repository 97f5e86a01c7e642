"""The page of one Spark: its machine, live, and its processes, which are sorted, filtered, and ended after a question."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from sparkctl.simulator import SimulatedSparks
from sparkctl.simulator.simulated_sparks import ORPHAN_PID
from tests.support.sim_clients import FAST
from tests.tui.panel_driver import Driver, open_demo_panel, read_screen, read_toasts, wait_for_text, wait_until_true

SIZE = (120, 40)


def list_pids(shown: str) -> list[int]:
    """The processes in the order of their rows."""
    return [int(found) for found in re.findall(r"^│ (?:▸| )\s+(\d+)  \S", shown, re.M)]


def find_owner_rows(shown: str, owner: str) -> Iterator[str]:
    return (line for line in shown.splitlines() if re.search(rf"^│ .*\d  \S+ +{owner} ", line))


async def open_node_page(pilot: Driver, *, second: bool = False) -> str:
    await wait_for_text(pilot, lambda text: text.count(" GiB") >= 2 and "connecting" not in text)
    await pilot.press(*(("tab",) if second else ()), "n")
    return await wait_for_text(pilot, lambda text: "processes" in text and "PID" in text)


async def test_n_shows_the_machine_with_its_curves_and_whose_each_process_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        SimulatedSparks("two-stacks", **FAST) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch, size=SIZE) as pilot,
    ):
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        await open_node_page(pilot)
        shown = await wait_for_text(pilot, lambda text: "cores" in text and "% CPU" in text and "W power" in text)
        assert "spark1 ● ready" in shown
        for name in ("memory", "GPU", "CPU", "load", "heat", "disk", "link"):
            assert re.search(rf"^│ {name} ", shown, re.M), f"{name}:\n{shown}"
        memory = sparks.nodes["spark1"].memory.gpu
        first = next(find_owner_rows(shown, "qwen36-ngram"))
        assert f" {max(memory, key=memory.__getitem__)} " in first, "what holds the GPU comes first"
        assert re.search(r"\d+\.\d GiB +\d+\.\d GiB", first)
        await pilot.press("tab")
        await wait_for_text(pilot, lambda text: "spark2 ● ready" in text and "qwen36-vllm" in text)
        await pilot.press("escape")
        await wait_for_text(pilot, lambda text: "━ spark2 " in text and "─ spark1 " in text)


async def test_processes_are_sorted_by_a_key_or_a_click_and_filtered_by_what_is_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        SimulatedSparks("trouble", **FAST) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch, size=SIZE) as pilot,
    ):
        await open_node_page(pilot, second=True)
        shown = await wait_for_text(pilot, lambda text: f" {ORPHAN_PID} " in text and len(list_pids(text)) > 2)
        assert "by gpu" in shown
        await pilot.press("S")
        await wait_for_text(pilot, "by memory")
        await pilot.press("S", "S", "S")
        shown = await wait_for_text(pilot, "by pid")
        assert list_pids(shown) == sorted(list_pids(shown))
        (y,) = (at for at, line in enumerate(shown.splitlines()) if "PID" in line and "NAME" in line)
        await pilot.click(offset=(shown.splitlines()[y].index("NAME") + 1, y))
        shown = await wait_for_text(pilot, "by name")
        assert list_pids(shown)[0] == ORPHAN_PID, "VLLM:: is before python3"
        await pilot.press("slash", *"vllm", "enter")
        await wait_for_text(pilot, lambda text: list_pids(text) == [ORPHAN_PID])
        await pilot.press("escape")
        await wait_for_text(pilot, lambda text: len(list_pids(text)) > 2)


async def test_a_process_ends_only_after_a_question_whose_enter_is_cancel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        SimulatedSparks("trouble", **FAST) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch, size=SIZE) as pilot,
    ):
        memory = sparks.nodes["spark2"].memory
        await open_node_page(pilot, second=True)
        await wait_for_text(pilot, f" {ORPHAN_PID} ")
        await pilot.press("slash", *str(ORPHAN_PID), "enter")
        await wait_for_text(pilot, lambda text: list_pids(text) == [ORPHAN_PID])
        await pilot.press("X")
        shown = await wait_for_text(pilot, "[ Cancel ]")
        assert f"End VLLM::EngineCor ({ORPHAN_PID}" in shown
        assert "on spark2?" in shown
        await pilot.press("enter")
        await wait_for_text(pilot, lambda text: "[ Cancel ]" not in text)
        assert memory.gpu[ORPHAN_PID] > 0, "cancel sends nothing"
        await pilot.press("X", "right")
        await wait_for_text(pilot, "[ TERM ]")
        await pilot.press("enter")
        await wait_until_true(pilot, lambda: ORPHAN_PID not in memory.gpu)
        await wait_until_true(
            pilot, lambda: any(f"TERM was sent to VLLM::EngineCor ({ORPHAN_PID}" in one for one in read_toasts(pilot))
        )
        await wait_for_text(pilot, "nothing matches")


async def test_a_process_that_is_gone_or_of_root_is_not_ended_and_the_panel_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        SimulatedSparks("trouble", **FAST) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch, size=SIZE) as pilot,
    ):
        node = sparks.nodes["spark2"]
        await open_node_page(pilot, second=True)
        await wait_for_text(pilot, f" {ORPHAN_PID} ")
        await pilot.press("slash", *str(ORPHAN_PID), "enter")
        await wait_for_text(pilot, lambda text: list_pids(text) == [ORPHAN_PID])
        await pilot.press("X", "right")
        await wait_for_text(pilot, "[ TERM ]")
        node.processes[ORPHAN_PID], node.remains.born[ORPHAN_PID] = (
            "0" * 64,
            7,
        )  # its number went to a process of a container
        await pilot.press("enter")
        await wait_until_true(
            pilot,
            lambda: any("is now another one, python3: nothing was sent to it" in one for one in read_toasts(pilot)),
        )
        assert node.memory.gpu[ORPHAN_PID] > 0


async def test_an_engine_of_sparkctl_is_stopped_as_an_instance_and_not_killed_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        SimulatedSparks("two-stacks", **FAST) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch, size=SIZE) as pilot,
    ):
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        await open_node_page(pilot)
        await wait_for_text(pilot, lambda text: any(find_owner_rows(text, "qwen36-ngram")))
        before = dict(sparks.nodes["spark1"].processes)
        await pilot.press("X")
        await wait_until_true(
            pilot,
            lambda: any("is part of qwen36-ngram: x stops it" in one for one in read_toasts(pilot)),
        )
        assert "[ Cancel ]" not in read_screen(pilot)
        await pilot.press("x")
        await wait_for_text(pilot, "Stop qwen36-ngram on spark1?")
        await pilot.press("escape")
        assert sparks.nodes["spark1"].processes == before


async def test_a_panel_that_only_reads_shows_the_page_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_panel() -> AbstractAsyncContextManager[Driver]:
        return open_demo_panel(sparks, tmp_path, monkeypatch, size=SIZE, readonly=True)

    async with SimulatedSparks("trouble", **FAST) as sparks, open_panel() as pilot:
        shown = await open_node_page(pilot, second=True)
        assert "end process" not in shown
        await pilot.press("X")
        await wait_until_true(pilot, lambda: read_toasts(pilot))
        assert "[ Cancel ]" not in read_screen(pilot)
        assert sparks.nodes["spark2"].memory.gpu[ORPHAN_PID] > 0


@pytest.mark.parametrize("size", [(60, 15), (80, 24), (200, 60)])
async def test_the_page_fits_every_size(size: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        SimulatedSparks("two-stacks", **FAST) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch, size=size) as pilot,
    ):
        await wait_for_text(pilot, "● ready")
        shown = await open_node_page(pilot)
        assert all(len(line) <= size[0] for line in shown.splitlines())
        shown = await wait_for_text(pilot, lambda text: bool(list_pids(text)))
        await pilot.press("j", "G", "space")
        await wait_for_text(pilot, "paused")
