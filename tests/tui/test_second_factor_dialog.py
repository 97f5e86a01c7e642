"""A Spark that asks for a second factor asks on the panel: once, when the operator wanted a connection."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from textual.widgets import Input

from sparkctl.simulator import SimulatedSparks
from sparkctl.simulator.node_programs.shell_commands import KeyboardInteractiveLogin
from sparkctl.tui.dialogs.base import InputDialog
from sparkctl.tui.key_queue import IGNORED_KEY_SECONDS
from tests.support.sim_clients import FAST
from tests.tui.panel_driver import Driver, open_demo_panel, open_panel_on, read_screen, wait_for_text

FACTOR = KeyboardInteractiveLogin(
    (("Password: ", False), ("[/red]\x1b[2J code: ", True)), ("hunter2", "123456"), instructions="a [bold]word[/] first"
)


async def _type_words(pilot: Driver, words: str) -> None:
    await asyncio.sleep(IGNORED_KEY_SECONDS + 0.05)  # what is typed the moment a dialog comes up is no answer to it
    await pilot.press(*words, "enter")


async def test_each_prompt_is_a_dialog_a_lost_link_asks_nothing_and_r_asks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SimulatedSparks("two-stacks", **FAST) as sparks:
        sshd = sparks.sshd["spark1"]
        sshd.second_factor = FACTOR
        async with open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
            shown = await wait_for_text(pilot, "login on spark1 (1 of 2)")
            assert "a [bold]word[/] first" in shown
            assert pilot.app.screen.query_one(Input).password
            await _type_words(pilot, "hunter2")
            shown = await wait_for_text(pilot, "login on spark1 (2 of 2)")
            assert "[/red] code:" in shown
            assert not pilot.app.screen.query_one(Input).password
            await _type_words(pilot, "123456")
            await wait_for_text(pilot, "spark1 ● ready")

            await pilot.press("enter")  # what the instance runs with is read over the connection that is there
            await wait_for_text(pilot, "model   ")
            await asyncio.sleep(0.5)
            await pilot.press("d")
            await wait_for_text(pilot, "on spark1 runs with")
            await pilot.press("escape", "escape")
            assert sshd.asked == 1
            await pilot.press("c")  # what somebody starts goes over it as well
            await wait_for_text(pilot, "caches dropped")
            await pilot.press("escape", "exclamation_mark")
            await wait_for_text(pilot, "examined ")
            await pilot.press("escape")
            await wait_for_text(pilot, "spark1 ● ready")
            assert sshd.asked == 1
            sshd.drop_connections()
            await wait_for_text(pilot, "nobody can be asked now")
            assert not isinstance(pilot.app.screen, InputDialog)
            assert sshd.asked == 1

            await pilot.press("r")
            await wait_for_text(pilot, "login on spark1 (1 of 2)")
            await asyncio.sleep(IGNORED_KEY_SECONDS + 0.05)
            await pilot.press("escape")
            assert "the login was cancelled" in await wait_for_text(pilot, "was not answered")
            assert sshd.asked == 2


async def test_a_dialog_of_a_server_that_hung_up_goes_away(tmp_path: Path) -> None:
    async with SimulatedSparks("two-stacks", **FAST) as sparks:
        sshd = sparks.sshd["spark1"]
        sshd.second_factor = FACTOR
        async with open_panel_on(sparks, tmp_path) as pilot:
            await wait_for_text(pilot, "login on spark1 (1 of 2)")
            sshd.drop_connections()
            await wait_for_text(pilot, "ended the login before it was through")
            assert "login on spark1" not in read_screen(pilot)
