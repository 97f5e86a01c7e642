"""The bench screen: a table that fills while this panel measures, with the meters, and all that was measured before."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from sparkctl.history.bench_store import BenchStore
from sparkctl.simulator import SimulatedSparks
from tests.support import load_generator_stand_in
from tests.support.sim_clients import FAST
from tests.tui.panel_driver import (
    controller_of,
    open_demo_panel,
    panel_of,
    read_screen,
    read_toasts,
    wait_for_text,
    wait_until_true,
)
from tests.tui.test_panel_actions import type_line

SIZE = (120, 40)


@pytest.fixture(autouse=True)
def _generator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARKCTL_BENCH_COMMAND", f"{sys.executable} {load_generator_stand_in.__file__}")


async def test_a_typed_bench_opens_the_screen_and_its_table_fills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        SimulatedSparks(
            "two-stacks", speed=50.0, decode_speed=16.0
        ) as sparks,  # each cell lasts long enough to be seen
        open_demo_panel(sparks, tmp_path, monkeypatch, size=SIZE) as pilot,
    ):
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        await type_line(pilot, "bench qwen36-ngram --pp 32 --tg 32,64 --concurrency 1,2 --runs 1")
        shown = await wait_for_text(pilot, "[ Cancel ]")
        assert "Measure qwen36-ngram" in shown
        assert "4 cells?" in shown
        await pilot.press("right", "enter")
        shown = await wait_for_text(pilot, lambda text: "to come" in text and re.search(r"cell \d of 4", text))
        assert "◐ measuring" in shown
        assert "meanwhile on spark1" in shown
        assert "memory" in shown
        shown = await wait_for_text(pilot, "● done")
        for cell in ("pp32 tg32 c1", "pp32 tg64 c1", "pp32 tg32 c2", "pp32 tg64 c2"):
            assert re.search(rf"│ {cell} +\d+\.\d", shown), shown
        assert "meanwhile on" not in shown, "the meters are there while it runs"
        assert "to come" not in shown
        (run,) = BenchStore().list_runs()
        assert run.ended is not None
        await pilot.press("escape", "2")
        await wait_for_text(pilot, lambda text: re.search(r"bench +no 1, ", text))
        await pilot.press("7")
        await wait_for_text(pilot, "benchmark 1 qwen36-ngram on spark1")


async def test_a_key_asks_first_and_x_stops_it_with_what_was_measured_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        SimulatedSparks("two-stacks", speed=50.0, decode_speed=4.0) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch, size=SIZE) as pilot,
    ):
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        await pilot.press("B")
        shown = await wait_for_text(pilot, "Measure qwen36-ngram on spark1: 8 cells?")
        assert "[ Cancel ]" in shown
        await pilot.press("enter")
        await wait_for_text(pilot, lambda text: "[ Cancel ]" not in text)
        assert BenchStore().list_runs() == ()
        await pilot.press("B")
        await wait_for_text(pilot, "[ Cancel ]")
        await pilot.press("y")
        await wait_for_text(
            pilot, lambda text: re.search(r"cell [2-7] of 8", text)
        )  # one before the first result is not kept
        await pilot.press("x")
        shown = await wait_for_text(pilot, "ended early: interrupted")
        (run,) = BenchStore().list_runs()
        assert run.why == "interrupted"
        assert run.results
        assert len(run.missing) + len(run.results) == 8
        assert "sparkctl bench --resume 1 measures the rest" in shown
        assert not controller_of(pilot).store.jobs.running
        await pilot.press("x")
        await wait_until_true(pilot, lambda: "this panel measures nothing now" in read_toasts(pilot))


async def test_why_nothing_was_measured_stays_on_the_screen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARKCTL_BENCH_COMMAND", str(tmp_path / "no-such-generator"))
    async with (
        SimulatedSparks("two-stacks", **FAST) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch, size=SIZE) as pilot,
    ):
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        await pilot.press("B")
        await wait_for_text(pilot, "[ Cancel ]")
        await pilot.press("y")
        shown = await wait_for_text(pilot, "no-such-generator")
        assert "Nothing was measured from here yet" in shown
        assert not read_toasts(pilot)


async def test_without_a_benchmark_it_says_how_to_begin_and_a_recording_has_no_such_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        SimulatedSparks("empty", **FAST) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch) as pilot,
    ):
        await wait_for_text(pilot, "○ nothing runs")
        await type_line(pilot, "bench")
        await wait_for_text(pilot, "Nothing was measured from here yet")
        await pilot.press("escape", "B")
        await wait_until_true(pilot, lambda: "nothing runs on spark1" in read_toasts(pilot))


async def test_a_profile_that_does_not_run_is_started_for_it_and_stopped_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        SimulatedSparks("empty", **FAST) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch, size=SIZE) as pilot,
    ):
        await wait_for_text(pilot, lambda text: text.count("○ nothing runs") == 2)
        await pilot.press("p")
        await wait_for_text(pilot, "▸ ")
        await pilot.press("slash", *"qwen36-vllm", "enter")
        await wait_for_text(pilot, "▸ qwen36-vllm")
        await pilot.press("B")
        await wait_for_text(pilot, "Measure qwen36-vllm on spark1: 8 cells?")
        await pilot.press("y")
        await wait_for_text(pilot, "Start qwen36-vllm")
        await wait_until_true(pilot, lambda: not panel_of(pilot).keyboard.is_deaf)
        await pilot.press("y")
        await wait_for_text(pilot, lambda text: "● done" in text, within=180.0)  # eight cells, each a process
        assert "8 of 8" in read_screen(pilot)
        await wait_until_true(pilot, lambda: not sparks.docker["spark1"].running)
