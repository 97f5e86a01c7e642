"""A switch as a person does it: seen before anything is done, asked for by name, followed step by step; on simulated Sparks."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkctl.sim import SimulatedSparks
from tests.sim.clients import FAST
from tests.tui.driving import Driver, idle, on_sparks, until


async def planned(pilot: Driver, line: str = "switch qwen36 --node spark1") -> str:
    await until(pilot, lambda text: text.count("● ready") == 2)
    await pilot.press("colon", *line, "enter")
    return await until(pilot, "enter does it, after a question")


async def test_each_spark_is_shown_before_and_after_and_what_stops_is_asked_for_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        SimulatedSparks("big-model", **FAST) as sparks,
        on_sparks(sparks, tmp_path, monkeypatch, size=(120, 40)) as pilot,
    ):
        shown = await planned(pilot)
        assert "qwen36 starts on spark1, and spark2 is free" in shown
        for each in ("spark1 now", "spark1 afterwards", "spark2 now", "spark2 afterwards"):
            assert each in shown
        (then,) = [line for line in shown.splitlines() if "+ qwen36 " in line]
        assert "GiB est.  starts" in then
        assert "○ nothing: it is free" in shown
        await pilot.press("enter")
        shown = await until(pilot, "to do it; esc leaves it running")
        assert "is answering somebody right now" in shown
        assert "on spark1 and spark2" in shown
        await pilot.press("y", "e", "s", "enter")
        assert "That is not" in await until(pilot, "That is not")
        await pilot.press("escape")
        await until(pilot, "enter does it, after a question")
        assert all(node.running for node in sparks.docker.values()), "nothing was stopped"


async def test_tab_plans_it_for_the_other_spark_and_r_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        SimulatedSparks("big-model", **FAST) as sparks,
        on_sparks(sparks, tmp_path, monkeypatch, size=(120, 40)) as pilot,
    ):
        await planned(pilot)
        await pilot.press("tab")
        await until(pilot, "qwen36 starts on spark2, and spark1 is free")
        for node in sparks.docker:
            idle(sparks, node)
        await pilot.press("r")
        await until(pilot, "enter does it, after a question")


async def test_it_is_planned_from_the_picker_and_from_the_list_of_profiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SimulatedSparks("empty", **FAST) as sparks, on_sparks(sparks, tmp_path, monkeypatch) as pilot:
        await until(pilot, lambda text: text.count("○ nothing runs") == 2)
        await pilot.press("s")
        shown = await until(pilot, "switch to a profile")
        assert "enter shows the switch" in shown
        await pilot.press("tab", "enter")
        shown = await until(pilot, "starts on spark2; nothing has to stop")
        await pilot.press("escape", "u")
        await until(pilot, "s switches")
        await pilot.press("s")
        await until(pilot, "starts on spark1; nothing has to stop")
        await pilot.press("escape", "p", "slash", *"orpheus", "enter")
        await until(pilot, "▸ orpheus-tts")
        await pilot.press("s")
        await until(pilot, "orpheus-tts starts on spark1; nothing has to stop")


async def test_what_cannot_be_switched_to_says_why_and_is_not_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        SimulatedSparks("empty", nodes=("spark1",), **FAST) as sparks,
        on_sparks(sparks, tmp_path, monkeypatch, size=(60, 15)) as pilot,
    ):
        await until(pilot, "○ nothing runs")
        await pilot.press("colon", *"switch minimax-m27", "enter")
        await until(pilot, "is for 2 nodes")
        await pilot.press("escape")
        await pilot.press("colon", *"switch no-such-profile", "enter")
        await until(pilot, "no-such-profile")
        await pilot.press("escape")
        await until(pilot, "○ nothing runs")
        assert not sparks.docker["spark1"].running
