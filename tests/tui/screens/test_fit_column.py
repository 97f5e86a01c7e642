"""Whether a profile fits, in the panel: counted live for each Spark, from what its files and its memory say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from textual.widgets import Input

from sparkctl.model.events import ContainersListed
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.simulator import SimulatedSparks
from sparkctl.tui.app import PanelApp
from tests.support.sim_clients import FAST
from tests.tui.panel_driver import (
    Driver,
    build_panel_options,
    open_black_hole,
    open_demo_panel,
    open_panel,
    read_screen,
    wait_for_text,
)
from tests.tui.screens.test_profiles_screen import select_profile

_BETWEEN_SIGNS = re.compile(r"(?<=[✓↓△▲✕–·]) {1,2}(?=[✓↓△▲✕–·])")


def find_profile_row(pilot: Driver, name: str) -> str:
    """The row of a profile in the list, the signs of the Sparks without the blanks between them."""
    row = next((line for line in read_screen(pilot).splitlines() if line.strip("▸> ").startswith(f"{name} ")), "")
    return _BETWEEN_SIGNS.sub("", row)


async def test_each_spark_has_its_answer_in_the_list_and_the_sum_below(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        SimulatedSparks("two-stacks", **FAST) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch, size=(180, 100)) as pilot,
    ):
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        await pilot.press("p")
        await wait_for_text(pilot, lambda _: "▲▲  spark1: stop qwen36-ngram" in find_profile_row(pilot, "qwen36"))
        await wait_for_text(
            pilot,
            lambda _: any(
                sign in find_profile_row(pilot, "qwen36-ngram")
                for sign in ("✓▲  spark1: fits, ", "↓▲  spark1: after drop")
            ),
        )
        await wait_for_text(
            pilot, lambda _: any(sign in find_profile_row(pilot, "qwen36-vllm") for sign in ("▲✓", "▲↓"))
        )
        await select_profile(pilot, "qwen36")
        shown = await wait_for_text(pilot, "qwen36 fits on spark1 only if qwen36-ngram stops: short by ")
        assert "qwen36 claims" in shown
        assert "measured: 7 files in" in shown
        assert " short" in shown
        await pilot.press("tab")
        await wait_for_text(pilot, "qwen36 fits on spark2 only if qwen36-vllm stops")
        await pilot.press("u")
        await wait_for_text(pilot, lambda text: "enter starts" in text and "only if qwen36-vllm stops" in text)
        await pilot.press("enter")
        await wait_for_text(pilot, "this cannot do well")
        await pilot.press("escape", "escape")
        await pilot.resize_terminal(80, 24)
        await wait_for_text(
            pilot,
            lambda _: "▲▲ " in find_profile_row(pilot, "qwen36") and "stop" not in find_profile_row(pilot, "qwen36"),
        )


async def test_an_answer_changes_with_what_stands_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        SimulatedSparks("two-stacks", **FAST) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch, size=(140, 50)) as pilot,
    ):
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        await pilot.press("p")
        await wait_for_text(pilot, lambda _: "▲▲" in find_profile_row(pilot, "qwen36"))
        await select_profile(pilot, "qwen36-ngram")
        await pilot.press("x")
        await wait_for_text(pilot, "Stop qwen36-ngram on spark1?")
        if pilot.app.screen.query(Input):  # it is answering somebody: its name has to be typed
            pilot.app.screen.query_one(Input).value = "qwen36-ngram"
            await pilot.press("enter")
        else:
            await pilot.press("tab", "enter")
        await wait_for_text(pilot, lambda _: any(sign in find_profile_row(pilot, "qwen36") for sign in ("✓▲", "↓▲")))


async def test_an_unknown_fit_is_shown_as_unknown(tmp_path: Path) -> None:
    async with open_panel(build_panel_options((open_black_hole(),), tmp_path), (160, 40)) as pilot:
        await pilot.press("p")
        await wait_for_text(pilot, lambda text: "fits" in text and ": not known" in text)
        await wait_for_text(pilot, "is not known")


async def test_an_answer_for_others_than_stand_there_now_is_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SimulatedSparks("two-stacks", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        panel = pilot.app
        assert isinstance(panel, PanelApp)
        assert panel.controller is not None
        room, node, one = panel.controller, panel.node_names[0], ProfileLibrary().load_profile("qwen36")
        await pilot.press("u")
        await wait_for_text(pilot, lambda text: "✓ fits" in text and "▲ stop first" in text)
        await wait_for_text(pilot, lambda _: room.fits.get_estimate(one, node) is not None)
        room.handle_event(ContainersListed(ts=room.displayed_time(), node=node, instances=()))
        assert room.fits.get_estimate(one, node) is None, "it was counted beside an engine that is gone"
