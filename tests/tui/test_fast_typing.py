"""What is typed without a pause does what it says: no key is lost, none reaches the screen below."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from textual import events
from textual.screen import ModalScreen
from textual.widgets import Input

from sparkctl.simulator import SimNodeOptions, SimulatedSparks, SudoRule
from sparkctl.tui.controller import PanelController
from sparkctl.tui.key_queue import IGNORED_KEY_SECONDS, KEY_PRIORITY_SECONDS, MAX_OPENING_SECONDS
from sparkctl.tui.log_viewer.log_view import LogView
from tests.support.sim_clients import FAST
from tests.tui.panel_driver import (
    Driver,
    is_idle,
    open_demo_panel,
    open_panel_on,
    panel_of,
    read_screen,
    read_toasts,
    stop_background_requests,
    wait_for_text,
    wait_until_true,
)

SIGNS = {" ": "space", "-": "minus", ":": "colon", "/": "slash", "?": "question_mark", "\t": "tab", "\r": "enter"}


def type_at_once(pilot: Driver, *keys: str) -> None:
    """Type as a terminal does that has a whole line to give: every key in one go. One word is one key or a text."""
    for word in keys:
        named = word in SIGNS.values() or word in ("down", "up", "escape", "right", "backspace")
        for key in [word] if named else list(word):
            name = SIGNS.get(key, key)
            character = next((sign for sign, it in SIGNS.items() if it == name), key if len(key) == 1 else None)
            pilot.app.post_message(events.Key(name, character))


def click_at(pilot: Driver, x: int, y: int) -> None:
    for event in (events.MouseDown, events.MouseUp):
        pilot.app.post_message(event(None, x, y, 0, 0, 1, False, False, False))


async def test_a_line_typed_in_one_go_is_the_whole_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with SimulatedSparks("empty", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        await wait_for_text(pilot, lambda text: text.count("○ nothing runs") == 2)
        type_at_once(pilot, ":up qwen36 --node spark2\r")
        await wait_for_text(pilot, "spark2 ● ready")
        assert "spark1 ○ nothing runs" in read_screen(pilot)


async def test_what_follows_a_line_is_for_the_screen_below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with SimulatedSparks("two-stacks", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        type_at_once(pilot, ":profiles\r", "escape", "tab", "x")
        await wait_for_text(pilot, "Stop qwen36-vllm on spark2?")


async def test_a_question_takes_the_keys_behind_the_one_that_asks_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SimulatedSparks("two-stacks", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        stop_background_requests(sparks, "spark1")
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2 and is_idle(text))
        type_at_once(pilot, "x", "tab", "enter")
        await wait_for_text(pilot, lambda text: "spark1 ○ nothing runs" in text)
        assert sparks.docker["spark2"].running, "tab was for the question, not for the next Spark"


async def test_what_can_wait_waits_for_a_key_but_not_for_good(tmp_path: Path) -> None:
    async with SimulatedSparks("empty", **FAST) as sparks, open_panel_on(sparks, tmp_path) as pilot:
        keyboard = panel_of(pilot).keyboard
        await wait_until_true(pilot, lambda: not keyboard.has_pending_key())
        keyboard.expect_key(5.0)  # an escape was read, and may be the beginning of another key
        assert keyboard.has_pending_key()
        keyboard.expect_key()
        await wait_until_true(pilot, lambda: not keyboard.has_pending_key())
        has_opened = asyncio.Event()
        keyboard.hold_until_mounted(has_opened.wait())
        keyboard.put_event(events.Key("question_mark", "?"))
        assert keyboard.has_pending_key()
        await asyncio.sleep(2 * KEY_PRIORITY_SECONDS)
        assert not keyboard.has_pending_key(), "what the key waits for itself is not waited for"
        has_opened.set()
        await wait_until_true(pilot, lambda: isinstance(pilot.app.screen, ModalScreen))


@pytest.mark.parametrize("is_clicked", [True, False])
async def test_keys_wait_for_a_log_that_is_being_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_clicked: bool
) -> None:
    async with SimulatedSparks("two-stacks", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        if is_clicked:  # no key goes before that would wait until all is there
            panel_of(pilot).open_screen("logs")
            type_at_once(pilot, "/wMTPx\r")
        else:
            type_at_once(pilot, "l", "/wMTPx\r")
        await wait_until_true(
            pilot, lambda: isinstance(view := pilot.app.focused, LogView) and view.filter.sought == "wMTPx"
        )
        (view,) = pilot.app.screen.query(LogView)
        assert not view.state.is_wrapped, "w was a letter, not a key"
        type_at_once(pilot, "escape", "l", "escape", "tab")
        await wait_for_text(pilot, lambda text: "sparkctl ›" not in text and "spark2 ●" in text)
        await wait_until_true(pilot, lambda: panel_of(pilot).selected_node == "spark2")


async def test_the_first_key_waits_as_well_for_what_is_being_mounted_and_so_does_escape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SimulatedSparks("empty", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        await wait_for_text(pilot, lambda text: text.count("○ nothing runs") == 2)
        mounted, keyboard = asyncio.Event(), panel_of(pilot).keyboard
        keyboard.hold_until_mounted(mounted.wait())
        type_at_once(pilot, "escape", "p")
        await pilot.pause(0.3)
        assert "sparkctl ›" not in read_screen(pilot)
        mounted.set()
        await wait_for_text(pilot, "sparkctl › profiles")
        keyboard.hold_until_mounted(asyncio.Event().wait())  # never there: it was left
        type_at_once(pilot, "escape")
        await wait_until_true(pilot, lambda: not keyboard._mounting, within=MAX_OPENING_SECONDS + 10)
        type_at_once(pilot, "escape")
        await wait_for_text(pilot, lambda text: "sparkctl ›" not in text)


async def test_keys_wait_for_the_picker_until_profiles_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profiles = PanelController.load_profile_offers
    read = asyncio.Event()

    async def slow(self: PanelController) -> object:
        await read.wait()
        return await profiles(self)

    monkeypatch.setattr(PanelController, "load_profile_offers", slow)
    async with SimulatedSparks("two-stacks", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        shown = await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        type_at_once(pilot, "u", "x", "backspace", "down", "tab")
        await pilot.pause(0.3)
        assert "Stop " not in read_screen(pilot), "x is for the picker, which filters by it"
        click_at(pilot, shown.splitlines()[-1].index("stop"), 23)
        await pilot.pause(0.1)
        assert "Stop " not in read_screen(pilot)
        read.set()
        await wait_for_text(pilot, lambda text: "▸ orpheus-llm " in text and "[ spark2 ]" in text)
        await pilot.press("escape")
        await wait_for_text(pilot, lambda text: "start a profile" not in text)
        assert "Stop " not in read_screen(pilot)


async def test_escape_gives_up_what_takes_long_to_open_and_what_was_typed_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(_: PanelController) -> object:
        await asyncio.Event().wait()

    monkeypatch.setattr(PanelController, "load_profile_offers", never)
    async with SimulatedSparks("two-stacks", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        type_at_once(pilot, "u", "x", "enter")
        await pilot.pause(0.1)
        type_at_once(pilot, "escape", "tab", "x")
        await wait_for_text(pilot, "Stop qwen36-vllm on spark2?")


async def test_a_password_typed_in_one_go_is_whole_and_shown_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"spark1": SimNodeOptions(sudo=SudoRule.PASSWORD)}
    async with (
        SimulatedSparks("two-stacks", **FAST, options=options) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch) as pilot,
    ):
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        await pilot.press("c")
        await wait_for_text(pilot, "password on spark1")
        await pilot.pause(IGNORED_KEY_SECONDS)
        type_at_once(pilot, "xqulp")
        await wait_until_true(pilot, lambda: pilot.app.screen.query_one(Input).value == "xqulp")
        assert "xqulp" not in pilot.app.export_screenshot()


async def test_a_filter_and_a_pattern_take_all_that_is_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with SimulatedSparks("two-stacks", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        type_at_once(pilot, "p", "/tts\r", "u")
        await wait_for_text(pilot, "start kokoro-tts")
        type_at_once(pilot, "escape", "escape", "escape", "l")
        await wait_for_text(pilot, "› log")
        await pilot.pause(0.5)
        type_at_once(pilot, "/loaded\r")
        await wait_until_true(pilot, lambda: pilot.app.screen.query_one(LogView).filter.sought == "loaded")


async def test_the_palette_takes_what_is_typed_behind_its_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with SimulatedSparks("two-stacks", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        pilot.app.post_message(events.Key("ctrl+p", None))
        type_at_once(pilot, "xlup")
        await wait_until_true(
            pilot, lambda: bool(found := pilot.app.screen.query(Input)) and found.first().value == "xlup"
        )


@pytest.mark.parametrize(
    ("key", "place", "seen"), [("p", "› profiles", "▸ qwen36-ngram"), ("enter", "› qwen36-ngram", "model   ")]
)
async def test_what_is_typed_before_the_editor_is_there_is_nobodys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, place: str, seen: str
) -> None:
    monkeypatch.setenv("EDITOR", "sh -c 'sleep 0.3'")
    async with SimulatedSparks("two-stacks", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        await pilot.press(key)
        await wait_for_text(pilot, seen)
        type_at_once(pilot, "e")
        await wait_until_true(pilot, lambda: panel_of(pilot).keyboard.is_opening)
        type_at_once(pilot, "escape", "q", "q")
        await wait_until_true(pilot, lambda: bool(read_toasts(pilot)))
        assert place in read_screen(pilot)
        type_at_once(pilot, "escape")
        await wait_for_text(pilot, lambda text: place not in text)
