"""The overview on simulated Sparks: what is painted first, what comes, what keys do, and what a tiny terminal says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sparkctl.clock import SystemClock
from sparkctl.history.model import NodeResult, OperationKind
from sparkctl.history.operation_history import OperationHistory
from sparkctl.model.events import GuardActed, GuardStatusChanged, NodeStateChanged
from sparkctl.model.guard_state import GuardAction
from sparkctl.model.node import Node, NodeName, NodeState
from sparkctl.simulator import SimulatedSparks
from sparkctl.simulator.sim_container import ContainerLog
from sparkctl.simulator.sim_node import NodeFault, SimNodeOptions
from tests.support.sim_clients import FAST
from tests.tui.panel_driver import (
    build_panel_options,
    controller_of,
    is_idle,
    open_black_hole,
    open_demo_panel,
    open_panel,
    open_panel_on,
    panel_of,
    read_screen,
    stop_background_requests,
    wait_for_text,
    wait_until_true,
)
from tests.tui.test_panel_actions import type_line


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


async def test_the_guards_newest_notice_of_a_spark_stands_alone_and_ends_with_its_watch(tmp_path: Path) -> None:
    async with SimulatedSparks("two-stacks", **FAST) as sparks, open_panel_on(sparks, tmp_path, (120, 40)) as pilot:
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)

        def act(node: str, what: GuardAction, why: str) -> None:
            acted = GuardActed(ts=1.0, at=1.0, node=NodeName(node), what=what, why=why, instance="qwen36")
            controller_of(pilot).handle_event(acted)

        act("spark1", GuardAction.DROPPED, "the first drop")
        act("spark2", GuardAction.WARNED, "short here")
        act("spark1", GuardAction.WARNED, "short there")
        shown = await wait_for_text(pilot, "spark1: guard: memory is getting short: short there")
        assert "the first drop" not in shown.partition("══")[0]
        assert "spark2: guard: memory is getting short: short here" in shown
        act("spark1", GuardAction.ENDED, "ready")
        shown = await wait_for_text(pilot, lambda text: "spark1: guard" not in text)
        assert "spark2: guard: memory is getting short: short here" in shown


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
    async with open_panel(build_panel_options((), tmp_path, recording=(events, 10.0))) as pilot:
        shown = await wait_for_text(pilot, "guard armed on spark1 · ")
        assert "guard armed" in shown.splitlines()[0]


async def test_a_link_known_to_be_idle_says_so_and_a_part_of_a_model_says_whose_it_is(tmp_path: Path) -> None:
    async with SimulatedSparks("empty") as sparks, open_panel_on(sparks, tmp_path) as pilot:
        await wait_for_text(pilot, "spark2   idle   2 functions up")
    async with SimulatedSparks("big-model") as sparks, open_panel_on(sparks, tmp_path) as pilot:
        shown = await wait_for_text(pilot, lambda text: "its head answers, on spark1" in text and "0.9 GB/s" in text)
        assert "idle" not in shown


def find_row(text: str, words: str) -> int:
    """The row of the screen, header included, that has these words."""
    return next(y for y, line in enumerate(text.splitlines()) if words in line)


async def test_enter_and_a_click_on_a_finding_go_to_what_it_is_why_it_matters_and_what_to_do(tmp_path: Path) -> None:
    async with SimulatedSparks("trouble", **FAST) as sparks, open_panel_on(sparks, tmp_path, (120, 40)) as pilot:
        shown = await wait_for_text(
            pilot, lambda text: "✕ stuck clock" in text and "heat slows the GPU" in text and "fatal AER" in text
        )
        y = find_row(shown, "✕ stuck clock")
        await pilot.click(offset=(shown.splitlines()[y].index("stuck clock") + 2, y))
        shown = await wait_for_text(pilot, "esc goes back")
        assert "spark1: stuck clock" in shown
        for label in ("seen", "why", "do"):
            assert re.search(rf"│ {label} +\w", shown), shown
        assert "unplug" in shown
        await pilot.press("escape")
        shown = await wait_for_text(pilot, "heat slows the GPU down at")
        await pilot.click(offset=(30, find_row(shown, "heat slows the GPU down at")))
        await wait_for_text(pilot, "spark2: hot")
        await pilot.press("escape")
        # Arrows go on from the instances to the findings of the selected Spark; enter opens what is marked.
        await pilot.press("down")
        await wait_for_text(pilot, lambda text: any(line.startswith("▸✕ spark1") for line in text.splitlines()))
        await pilot.press("down")
        await wait_for_text(pilot, lambda text: any(line.startswith("▸▲ spark1  only") for line in text.splitlines()))
        await pilot.press("enter")
        await wait_for_text(pilot, "spark1: disk low")
        await pilot.press("escape", "up", "up")
        await wait_for_text(pilot, lambda text: not any(line.startswith("▸") for line in text.splitlines()))
        await pilot.press("enter")
        await wait_for_text(pilot, "spark1 › minimax-m27")


async def test_where_nothing_runs_enter_opens_the_worst_finding(tmp_path: Path) -> None:
    options = {"spark1": SimNodeOptions(troubles=frozenset({NodeFault.FULL_DISK}))}
    async with (
        SimulatedSparks("empty", **FAST, options=options) as sparks,
        open_panel_on(sparks, tmp_path, (120, 40)) as pilot,
    ):
        await wait_for_text(pilot, "▲ disk low")
        await pilot.press("enter")
        shown = await wait_for_text(pilot, "spark1: disk low")
        assert "free for /var/lib/docker" in shown


async def test_a_thing_is_said_once(tmp_path: Path) -> None:
    async with SimulatedSparks("trouble", **FAST) as sparks, open_panel_on(sparks, tmp_path, (120, 40)) as pilot:
        shown = await wait_for_text(pilot, lambda text: "fatal AER error" in text and "heat slows" in text)
        below = shown.splitlines()[find_row(shown, "200G") :]
        assert sum("failed for good" in line for line in below) == 1, (
            "the finding says it, the list of events not again"
        )


def take_log(sparks: SimulatedSparks) -> ContainerLog:
    """Return the log of the container that runs on the first Spark, which its engine leaves alone from now on."""
    stop_background_requests(sparks, "spark1")
    (container,) = [one for one in sparks.docker["spark1"].containers.values() if one.state == "running"]
    return container.journal


async def test_the_log_of_what_runs_is_followed_below_the_tiles_while_they_are_shown(tmp_path: Path) -> None:
    async with SimulatedSparks("two-stacks", **FAST) as sparks, open_panel_on(sparks, tmp_path, (120, 40)) as pilot:
        await wait_for_text(pilot, lambda text: "spark1 │" in text and "spark2 │" in text)
        log = take_log(sparks)
        log.write("a line that nobody expects\n")
        await wait_for_text(pilot, "spark1 │ a line that nobody expects")
        await pilot.press("p")
        await wait_for_text(pilot, "sparkctl › profiles")
        log.write("a line that came meanwhile\n")
        await pilot.press("1")
        shown = await wait_for_text(pilot, "spark1 │ a line that came meanwhile")
        assert shown.count("a line that nobody expects") <= 1, "what was shown before is read anew, not added"


async def test_a_log_that_floods_is_left_for_a_while_and_goes_on_at_its_end(tmp_path: Path) -> None:
    async with SimulatedSparks("two-stacks", **FAST) as sparks, open_panel_on(sparks, tmp_path, (120, 40)) as pilot:
        await wait_for_text(pilot, "spark1 │")
        log = take_log(sparks)
        log.write("".join(f"flood {at}\n" for at in range(20_000)))
        shown = await wait_for_text(pilot, "spark1 │ flood")
        assert "flood 19999" not in shown, "not all of it was read"
        log.write("after the flood\n")
        await wait_for_text(pilot, "spark1 │ after the flood")


async def test_what_was_done_before_fills_the_room_below_the_tiles_of_idle_sparks(tmp_path: Path) -> None:
    before = OperationHistory(tmp_path).begin_operation(
        OperationKind.START, SystemClock(), "milo", [NodeName("spark1")], profile="qwen36", instance="qwen36"
    )
    before.record_end("failed", 5)
    async with SimulatedSparks("empty", **FAST) as sparks, open_panel_on(sparks, tmp_path, (120, 40)) as pilot:
        shown = await wait_for_text(pilot, lambda text: "200G" in text and "start qwen36: failed" in text)
        assert "spark1   start qwen36: failed" in shown[shown.index("200G") :]


async def test_an_idle_spark_offers_what_fits_with_what_its_last_start_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        SimulatedSparks("empty", **FAST) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch, size=(120, 40)) as pilot,
    ):
        shown = await wait_for_text(pilot, lambda text: len(re.findall(r"[✓△↓] gpt-oss-120b ", text)) == 2)
        assert "u starts a profile" in shown
        assert "to get" not in shown
        await type_line(pilot, "up qwen36-vllm --node spark1 --no-guard")
        await wait_for_text(pilot, "spark1 ● ready")
        shown = await wait_for_text(pilot, lambda text: len(re.findall(r"[✓△↓] gpt-oss-120b ", text)) == 1)
        stop_background_requests(sparks, "spark1")
        await wait_for_text(pilot, is_idle)
        await type_line(pilot, "down qwen36-vllm")
        await wait_for_text(pilot, "[ Cancel ]")
        await pilot.press("y")

        def has_first_offer_twice(text: str) -> bool:
            offers = [line for line in text.splitlines() if "to ready" in line]
            return bool(offers) and offers[0].count("qwen36-vllm") == 2

        await wait_for_text(pilot, has_first_offer_twice)  # what was used last comes first, on both


async def test_an_idle_spark_says_what_is_missing_and_gets_it_with_progress_in_its_tile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = OperationHistory(tmp_path / "state").begin_operation(
        OperationKind.PULL, SystemClock(), "milo", [NodeName("spark1")]
    )
    before.record_node_result(
        NodeResult(node=NodeName("spark1"), instance="x", image_digest="sha256:a", received=9 << 30, seconds=90.5)
    )
    before.record_end("done", 0)
    async with (
        SimulatedSparks("fresh", speed=0.2) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch, size=(120, 40)) as pilot,
    ):
        await wait_for_text(pilot, lambda text: len(re.findall(r"▽ gpt-oss-120b +to get: image, model", text)) == 2)
        await pilot.press("u")
        await wait_for_text(pilot, "start a profile")
        await pilot.press(*"qwen36-ngram")
        await wait_for_text(pilot, lambda text: re.search(r"get +image 9\.0 GiB in about 1 min 30 s and model", text))
        await pilot.press("enter")
        shown = await wait_for_text(pilot, "get what qwen36-ngram lacks?")
        assert "[ Cancel ]" in shown
        await wait_until_true(pilot, lambda: not panel_of(pilot).keyboard.is_deaf)
        await pilot.press("y")
        await wait_for_text(
            pilot, lambda text: "spark1 ◐ getting image and model" in text and "registry → spark1" in text
        )
        await wait_for_text(
            pilot, lambda text: re.search(r"image +[^\w ]* +(\d+ %  )?\d+(\.\d)? [MG]iB of 9\.0 GiB", text)
        )
        assert "spark2 ○ nothing runs" in read_screen(pilot)
        assert not sparks.docker["spark1"].running


async def test_a_failed_start_is_explained_in_its_tile_and_nowhere_else_on_the_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        SimulatedSparks("empty", **FAST) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch, size=(120, 40)) as pilot,
    ):
        await wait_for_text(pilot, lambda text: text.count("○ nothing runs") == 2)
        await type_line(pilot, "up qwen36 --node spark1 --no-guard --set env.SIM_FAULT=cuda-oom")
        shown = await wait_for_text(
            pilot, lambda text: "✕ failed" in text and "qwen36: failed after" in text and re.search(r"[│┃] try ", text)
        )
        why = re.search(r"why +(\w+ \w+)", shown)
        assert why is not None
        assert sum(why[1] in line for line in shown.splitlines()) == 1, shown
