"""The mouse is never needed, and does what people expect of it: click, twice, wheel, and a click on a column."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from textual.events import MouseScrollDown, MouseScrollUp

from sparkctl.commands.actions import INSTANCE
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.simulator import SimulatedSparks
from sparkctl.tui.screens.base import PanelScreen
from sparkctl.tui.text_surface import TextSurface
from tests.support.sim_clients import FAST
from tests.tui.panel_driver import Driver, open_demo_panel, read_screen, wait_for_text

NAMES = ProfileLibrary(Path("/nonexistent")).list_names()


RUNNING = ("qwen36-ngram", "qwen36-vllm")  # in the scenario
RUNNING_FIRST = [*RUNNING, *(name for name in NAMES if name not in RUNNING)]


def get_text_surface(pilot: Driver) -> TextSurface:
    return pilot.app.screen.query_one("#list", TextSurface)


def find_row_number(pilot: Driver, words: str) -> int:
    return next(y for y, line in enumerate(get_text_surface(pilot).plain_lines) if words in line)


async def turn_wheel(pilot: Driver, y: int, *, up: bool = False) -> None:
    kind = MouseScrollUp if up else MouseScrollDown
    event = kind(get_text_surface(pilot), 5, y, 0, 0, 0, False, False, False, 5, y + 1, None)
    get_text_surface(pilot).post_message(event)
    await pilot.pause()


def list_profile_names(text: str) -> Iterator[str]:
    """The names of the profiles in the order of their rows."""
    for line in text.splitlines():
        words = line.replace("▸", " ").split()
        if words and words[0] in NAMES:
            yield words[0]


def find_marked_row(text: str) -> str:
    return next(line.split()[1] for line in text.splitlines() if "▸ " in line)


async def test_a_click_selects_a_tile_and_two_open_its_instance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SimulatedSparks("two-stacks", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        await pilot.click(offset=(20, 12))
        await wait_for_text(pilot, "━ spark2 ")
        await pilot.click(offset=(20, 12), times=2)
        await wait_for_text(pilot, "─ qwen36-vllm")
        assert isinstance(pilot.app.screen, PanelScreen)
        assert pilot.app.screen.SCREEN_ID == INSTANCE


async def test_in_a_list_a_click_selects_and_the_wheel_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with SimulatedSparks("empty", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        await wait_for_text(pilot, lambda text: text.count("○ nothing runs") == 2)
        await pilot.press("p")
        await wait_for_text(pilot, lambda text: find_marked_row(text) == NAMES[0] if "▸ " in text else False)
        await pilot.press("slash", *"qwen36", "enter")
        await wait_for_text(pilot, "qwen36-ngram")
        y = find_row_number(pilot, "qwen36-ngram ")
        await pilot.click("#list", offset=(10, y))
        await wait_for_text(pilot, lambda text: find_marked_row(text) == "qwen36-ngram")
        await turn_wheel(pilot, y)
        await wait_for_text(pilot, lambda text: find_marked_row(text) == "qwen36-tp2")
        await turn_wheel(pilot, y, up=True)
        await wait_for_text(pilot, lambda text: find_marked_row(text) == "qwen36-ngram")
        before = read_screen(pilot)
        assert "more" in before, "there is something to scroll down"
        await turn_wheel(pilot, len(get_text_surface(pilot).plain_lines) - 3)
        await wait_for_text(pilot, lambda text: text != before and find_marked_row(text) == "qwen36-ngram")
        await pilot.click("#list", offset=(10, len(get_text_surface(pilot).plain_lines) - 3))
        assert find_marked_row(read_screen(pilot)) == "qwen36-ngram", "what is told of a profile is no profile"


async def test_profiles_are_sorted_by_a_key_and_by_a_click_on_a_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        SimulatedSparks("two-stacks", **FAST) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch, size=(120, 60)) as pilot,
    ):
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        await pilot.press("p")
        shown = await wait_for_text(pilot, lambda text: "profile ↓" in text and "● spark2" in text)
        assert list(list_profile_names(shown)) == RUNNING_FIRST
        await pilot.press("S")
        await wait_for_text(pilot, "engine ↓")
        await pilot.press("S")
        await wait_for_text(pilot, "model ↓")
        await pilot.click("#list", offset=(get_text_surface(pilot).plain_lines[0].index("runs on") + 1, 0))
        shown = await wait_for_text(pilot, "runs on ↓")
        assert list(list_profile_names(shown))[:2] == ["qwen36-ngram", "qwen36-vllm"]
        await pilot.click("#list", offset=(4, 0))
        shown = await wait_for_text(pilot, "profile ↓")
        assert list(list_profile_names(shown)) == RUNNING_FIRST


async def test_two_clicks_on_a_finding_offer_to_do_what_helps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with SimulatedSparks("trouble", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        await wait_for_text(pilot, "stuck clock")
        await pilot.press("5")
        await wait_for_text(pilot, lambda text: "▸ " in text and "examined" in text)
        y = find_row_number(pilot, "▸") + 1
        words = get_text_surface(pilot).plain_lines[y].split()[2:6]
        await pilot.click("#list", offset=(10, y))
        await wait_for_text(
            pilot,
            lambda _: all(word in get_text_surface(pilot).plain_lines[find_row_number(pilot, "▸")] for word in words),
        )


async def test_the_wheel_reads_on_in_the_help(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with SimulatedSparks("empty", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        await wait_for_text(pilot, lambda text: text.count("○ nothing runs") == 2)
        await pilot.press("question_mark")
        shown = await wait_for_text(pilot, "more below")
        dialog = pilot.app.screen
        event = MouseScrollDown(
            dialog,
            5,
            y=5,
            delta_x=0,
            delta_y=0,
            button=0,
            shift=False,
            meta=False,
            ctrl=False,
            screen_x=5,
            screen_y=5,
            style=None,
        )
        dialog.query_one(TextSurface).post_message(event)
        await wait_for_text(pilot, lambda text: text != shown and "more below" in text)
