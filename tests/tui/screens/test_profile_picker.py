"""What the picker asks before it starts what it says cannot do well, and how it looks where there is little room."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sparkctl import files
from sparkctl.simulator import SimulatedSparks
from sparkctl.tui.app import PanelApp
from tests.support.sim_clients import FAST
from tests.tui.panel_driver import Driver, open_demo_panel, stop_background_requests, wait_for_text, wait_until_true


async def open_picker_at(pilot: Driver, name: str) -> str:
    await pilot.press("u")
    shown = await wait_for_text(pilot, "start a profile")
    while f"▸ {name} " not in shown:
        await pilot.press("down")
        shown = await wait_for_text(pilot, lambda text, before=shown: text != before)
    return shown


async def test_what_cannot_fit_is_asked_again_with_the_sum_and_cancel_is_what_enter_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SimulatedSparks("two-stacks", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        for node in ("spark1", "spark2"):
            stop_background_requests(sparks, node)
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        before = {node: set(sparks.docker[node].running) for node in ("spark1", "spark2")}
        shown = await open_picker_at(pilot, "qwen36")
        shown = await wait_for_text(pilot, "only if qwen36-ngram stops: short by")
        assert "too little" not in shown, "there is one figure"
        assert "▶ ≈" in shown
        await pilot.press("enter")
        shown = await wait_for_text(pilot, "[ Cancel ]")
        assert "Start qwen36 on spark1 anyway?" in shown
        assert "short by" in shown
        await pilot.press("enter")
        await wait_for_text(pilot, "start a profile")
        await pilot.press("escape")
        await wait_for_text(pilot, lambda text: "start a profile" not in text)
        assert {node: set(sparks.docker[node].running) for node in before} == before, "nothing was started"
        await open_picker_at(pilot, "qwen36")
        await wait_for_text(pilot, "short by")
        await pilot.press("enter", "tab", "enter")
        await wait_for_text(pilot, lambda text: "start a profile" not in text and "[ Cancel ]" not in text)
        await wait_for_text(pilot, lambda text: "qwen36 " in text)


async def test_what_is_for_two_sparks_is_started_on_both_with_the_selected_one_as_its_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        SimulatedSparks("empty", **FAST) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch, size=(120, 40)) as pilot,
    ):
        await wait_for_text(pilot, "○ nothing runs")
        await open_picker_at(pilot, "minimax-m27")
        await wait_for_text(pilot, "for 2 Sparks together: the head on spark1, a rank on spark2")
        await pilot.press("tab")
        await wait_for_text(pilot, "for 2 Sparks together: the head on spark2, a rank on spark1")
        await pilot.press("enter")
        shown = await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        assert "rank 0 of 2 · head" in shown
        await pilot.press("tab", "l")
        await wait_for_text(pilot, "minimax-m27 on 2 Sparks › log")


async def test_what_is_for_two_sparks_is_not_started_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        SimulatedSparks("empty", nodes=("spark1",), **FAST) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch, size=(120, 40)) as pilot,
    ):
        await wait_for_text(pilot, "○ nothing runs")
        await open_picker_at(pilot, "minimax-m27")
        shown = await wait_for_text(pilot, "for 2 Sparks together, and only spark1 is there")
        assert "enter starts" not in shown
        await pilot.press("enter")
        await wait_for_text(pilot, "start a profile")
        assert not any(node.running for node in sparks.docker.values())


@pytest.mark.parametrize(("count", "words"), [(1, None), (2, "tab the other Spark"), (4, "tab another Spark")])
async def test_the_picker_lists_every_node(
    count: int, words: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = tuple(f"spark{at}" for at in range(1, count + 1))
    async with (
        SimulatedSparks("empty", nodes=names, **FAST) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch) as pilot,
    ):
        await wait_for_text(pilot, "○ nothing runs")
        await pilot.press("u")
        shown = await wait_for_text(pilot, lambda text: "start a profile" in text and "enter starts" in text)
        assert words in shown if words else "tab" not in shown


@pytest.mark.parametrize("size", [(60, 15), (80, 24), (120, 40)])
async def test_the_figures_behind_its_bars_stay_whole(
    size: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        SimulatedSparks("two-stacks", **FAST) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch, size=size) as pilot,
    ):
        await wait_for_text(pilot, "● ready")
        await open_picker_at(pilot, "qwen36")
        shown = await wait_for_text(pilot, "est.")
        (then,) = [line for line in shown.splitlines() if "≈" in line]
        assert re.search(r"≈ +[0-9.]+ of [0-9.]+ GiB est\.", then), shown


async def test_it_begins_with_what_was_started_last_and_says_how_many_more_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = files.user_profiles_dir()
    mine.mkdir(parents=True)
    (mine / "aaa-cannot-be-read.yaml").write_text("engine: [")
    async with SimulatedSparks("empty", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        await wait_for_text(pilot, lambda text: text.count("○ nothing runs") == 2)
        panel = pilot.app
        assert isinstance(panel, PanelApp)
        assert panel.controller is not None
        offers = await panel.controller.load_profile_offers()
        assert [one.name for one in offers if one.profile is None] == [offers[-1].name] == ["aaa-cannot-be-read"]
        await pilot.press("colon", *"up qwen36 --node spark1", "enter")
        await wait_for_text(pilot, "spark1 ● ready")
        await wait_until_true(pilot, lambda: panel.controller is not None and panel.controller.recent == ("qwen36",))
        await pilot.press("u")
        shown = await wait_for_text(pilot, "start a profile")
        assert "▸ qwen36 " in shown
        assert re.search(r"↓ \d+ more", shown)


async def test_each_row_has_its_sign_and_no_figure_is_shown_that_changes_a_moment_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        SimulatedSparks("two-stacks", **FAST) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch, size=(120, 40)) as pilot,
    ):
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        figures: dict[str, set[str]] = {"row": set(), "then": set()}

        def is_counted(shown: str) -> bool:
            for line in shown.splitlines():
                if "▸ " in line:
                    figures["row"] |= set(re.findall("[0-9.]+ GiB", line))
                if "then " in line:
                    figures["then"] |= set(re.findall("≈ +([0-9.]+)", line))
            rows = [line for line in shown.splitlines() if re.search(r" GiB  [✓△↓▲✕]", line)]
            return bool(figures["then"]) and len(rows) >= 10

        await open_picker_at(pilot, "gpt-oss-120b")
        shown = await wait_for_text(pilot, is_counted)
        assert {len(each) for each in figures.values()} == {1}, (
            "neither the profile's own figure first, nor another later"
        )
        (runs,) = [line for line in shown.splitlines() if "runs  ●" in line]
        assert "qwen36-ngram" in runs
        await pilot.press("tab")
        await wait_for_text(
            pilot, lambda text: any("qwen36-vllm" in line and "runs  ●" in line for line in text.splitlines())
        )


async def test_typing_filters_by_name_engine_and_title_and_only_tab_changes_the_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        SimulatedSparks("empty", **FAST) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch, size=(120, 40)) as pilot,
    ):
        await wait_for_text(pilot, lambda text: text.count("○ nothing runs") == 2)
        await pilot.press("u")
        await wait_for_text(pilot, "start a profile")
        await pilot.press(*"orph")
        shown = await wait_for_text(pilot, lambda text: "orpheus-tts" in text and "gpt-oss-120b" not in text)
        assert "[ spark1 ]" in shown, "h is a letter of what is searched"
        await pilot.press("space", *"llm")
        shown = await wait_for_text(pilot, lambda text: "▸ orpheus-llm" in text and "orph llm" in text)
        assert "1 of 22" in shown
        await pilot.press("tab")
        await wait_for_text(pilot, "[ spark2 ]")
        await pilot.press("escape")
        await wait_for_text(pilot, lambda text: "gpt-oss-120b" in text and "start a profile" in text)
        await pilot.press(*"no-such-thing")
        await wait_for_text(pilot, lambda text: "gpt-oss-120b" not in text and "start a profile" in text)
        await pilot.press("enter")
        await wait_for_text(pilot, "start a profile")
        assert not any(node.running for node in sparks.docker.values())
        await pilot.press("ctrl+u", *"orpheus-llm", "enter")
        await wait_for_text(pilot, lambda text: "spark2" in text and "start a profile" not in text)
        await wait_until_true(pilot, lambda: sparks.docker["spark2"].running)
        assert not sparks.docker["spark1"].running
