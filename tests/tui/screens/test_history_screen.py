"""What was done from here, as a person looks for it: the list, one of it in full, and what had changed; on simulated Sparks."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkctl import files
from sparkctl.simulator import SimulatedSparks
from tests.support.sim_clients import FAST
from tests.tui.panel_driver import is_idle, open_demo_panel, wait_for_text


async def test_every_start_and_stop_is_there_with_its_phases_and_what_had_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Not so fast that a process that waits for a core reads the whole log of a start at once, and sees no phase of it.
    async with (
        SimulatedSparks("empty", **{**FAST, "speed": 5.0}) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch, size=(120, 40)) as pilot,
    ):
        await wait_for_text(pilot, lambda text: text.count("○ nothing runs") == 2)
        await pilot.press("h")
        await wait_for_text(pilot, "The history is empty")
        await pilot.press("escape", "colon", *"up qwen36 --node spark1", "enter")
        await wait_for_text(pilot, lambda text: "spark1 ● ready" in text and is_idle(text))
        await pilot.press("colon", *"down qwen36 --node spark1", "enter")
        await wait_for_text(pilot, "[ Cancel ]     stop it")
        await pilot.press("tab", "enter")
        await wait_for_text(pilot, lambda text: text.count("○ nothing runs") == 2)
        await pilot.press("colon", *"up qwen36 --node spark2 --set args.mem-fraction-static=0.5", "enter")
        await wait_for_text(pilot, "spark2 ● ready")
        await pilot.press("6")
        shown = await wait_for_text(pilot, lambda text: "- args.mem-fraction-static" in text)
        rows = [line for line in shown.splitlines() if "qwen36 " in line and (" start " in line or " stop " in line)]
        assert ["start" in line for line in rows[:3]] == [True, False, True], shown
        assert "loading: weights" in shown
        assert "+ args.mem-fraction-static: 0.5" in shown
        await pilot.press("down")
        await wait_for_text(pilot, "stop qwen36")
        await pilot.press("slash", *"start", "enter")
        await wait_for_text(pilot, "/ 2/3")
        await pilot.press("escape", "escape")
        await wait_for_text(pilot, "spark2 ● ready")


async def test_small_terminals_and_a_damaged_file_break_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state"
    state.mkdir()
    (state / "history.db").write_bytes(b"this is no database at all, and never was one" * 50)
    async with (
        SimulatedSparks("empty", nodes=("spark1",), **FAST) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch, size=(60, 15)) as pilot,
    ):
        await wait_for_text(pilot, "○ nothing runs")
        await pilot.press("h")
        await wait_for_text(pilot, lambda text: "history" in text)
        await pilot.press("down", "pagedown", "y", "up", "G", "g")
        await wait_for_text(pilot, lambda text: "sparkctl › history" in text)
    assert files.state_dir() != state
