"""The overview on simulated Sparks: what is painted first, what comes, what keys do, and what a tiny terminal says."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkctl.model.events import GuardStatusChanged, NodeStateChanged
from sparkctl.model.node import Node, NodeName, NodeState
from sparkctl.simulator import SimulatedSparks
from tests.support.sim_clients import FAST
from tests.tui.panel_driver import (
    build_panel_options,
    open_black_hole,
    open_panel,
    open_panel_on,
    read_screen,
    wait_for_text,
)


async def test_the_first_picture_comes_from_the_config_alone(tmp_path: Path) -> None:
    nodes = (Node(name=NodeName("spark1"), host="192.0.2.1"), Node(name=NodeName("spark2"), host="192.0.2.1"))
    async with open_panel(build_panel_options(nodes, tmp_path)) as pilot:
        shown = read_screen(pilot)
        assert "spark1 ◌ connecting" in shown
        assert "spark2 ◌ connecting" in shown
        assert "? help" in shown


async def test_tiles_fill_with_what_the_nodes_say(tmp_path: Path) -> None:
    async with SimulatedSparks("two-stacks", **FAST) as sparks, open_panel_on(sparks, tmp_path) as pilot:
        shown = await wait_for_text(pilot, lambda text: text.count("decode") == 2 and text.count("tok/s") == 2)
        assert "spark1 ● ready" in shown
        assert "qwen36-vllm vLLM 0.19.1 :8000" in shown
        assert "of 121.7 GiB" in shown
        assert "spark1 ══ 200G ══ spark2" in shown


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50), (60, 15)])
async def test_four_sparks_fit_or_say_how_many_more_there_are(tmp_path: Path, size: tuple[int, int]) -> None:
    names = ("spark1", "spark2", "spark3", "spark4")
    async with (
        SimulatedSparks("two-stacks", **FAST, nodes=names) as sparks,
        open_panel_on(sparks, tmp_path, size) as pilot,
    ):
        shown = await wait_for_text(pilot, lambda text: "GiB" in text and "connecting" not in text)
        # Of tiles: below them those that are not seen are named, too.
        there = [name for name in names if f"━ {name} " in shown or f"─ {name} " in shown]
        assert there[0] == "spark1"
        assert len(there) == 4 or f"{4 - len(there)} more: press tab" in shown
        for _ in range(3):
            await pilot.press("tab")
        await wait_for_text(pilot, "━ spark4 ")


async def test_a_tiny_terminal_says_what_it_needs_and_still_takes_keys(tmp_path: Path) -> None:
    async with open_panel(build_panel_options((open_black_hole(),), tmp_path), (40, 10)) as pilot:
        shown = await wait_for_text(pilot, "too small")
        assert "needed  50 × 12" in shown
        assert "dark" not in shown
        await pilot.press("q")
    assert pilot.app.return_value == ()


async def test_without_a_config_it_teaches(tmp_path: Path) -> None:
    async with open_panel(build_panel_options((), tmp_path)) as pilot:
        assert "sparkctl init" in await wait_for_text(pilot, "No Spark is configured yet")


async def test_quitting_says_what_goes_on_running(tmp_path: Path) -> None:
    async with SimulatedSparks("two-stacks", **FAST) as sparks, open_panel_on(sparks, tmp_path) as pilot:
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        await pilot.press("q")
    assert pilot.app.return_value == ("qwen36-ngram goes on running on spark1", "qwen36-vllm goes on running on spark2")


async def test_a_node_that_goes_is_said_and_fades_and_comes_back(tmp_path: Path) -> None:
    async with SimulatedSparks("two-stacks", **FAST) as sparks, open_panel_on(sparks, tmp_path) as pilot:
        await wait_for_text(pilot, lambda text: text.count("tok/s") == 2)
        await sparks.sshd["spark2"].close()
        shown = await wait_for_text(pilot, lambda text: "next" in text and "attempt" in text)
        assert "tried" in shown
        assert "spark1 ● ready" in shown, "the other one is as it was"
        assert shown.count("tok/s") == 1, "what an engine does is not known of a node that does not answer"
        assert shown.count("of 121.7 GiB") == 2, "what was last known stays, as old"


async def test_selecting_goes_round(tmp_path: Path) -> None:
    nodes = (open_black_hole("one"), open_black_hole("two"))
    async with open_panel(build_panel_options(nodes, tmp_path)) as pilot:
        await wait_for_text(pilot, "━ one ")
        await pilot.press("tab")
        await wait_for_text(pilot, "━ two ")
        await pilot.press("right")
        await wait_for_text(pilot, "━ one ")
        await pilot.press("shift+tab")
        await wait_for_text(pilot, "━ two ")


async def test_the_header_says_where_a_guard_is_armed(tmp_path: Path) -> None:
    events = (
        NodeStateChanged(ts=1.0, node=NodeName("spark1"), state=NodeState.OK), NodeStateChanged(ts=1.0, node=NodeName("spark2"), state=NodeState.OK),
        GuardStatusChanged(1.1, NodeName("spark1"), ("qwen36",)), GuardStatusChanged(1.1, NodeName("spark2"), ()),
    )  # fmt: skip
    async with open_panel(build_panel_options((), tmp_path, recording=lambda: (events, 10.0))) as pilot:
        shown = await wait_for_text(pilot, "guard armed on spark1 · ")
        assert "guard armed" in shown.splitlines()[0]


async def test_a_link_known_to_be_idle_says_so_and_a_part_of_a_model_says_whose_it_is(tmp_path: Path) -> None:
    async with SimulatedSparks("empty") as sparks, open_panel_on(sparks, tmp_path) as pilot:
        await wait_for_text(pilot, "spark2   idle   2 functions up")
    async with SimulatedSparks("big-model") as sparks, open_panel_on(sparks, tmp_path) as pilot:
        shown = await wait_for_text(pilot, lambda text: "its head answers, on spark1" in text and "0.9 GB/s" in text)
        assert "idle" not in shown
