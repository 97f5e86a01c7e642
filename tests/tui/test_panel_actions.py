"""What the panel starts: by key, by dialog, by a typed line; and what it asks before."""

from __future__ import annotations

import re
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from textual.screen import ModalScreen
from textual.widgets import Input
from textual.widgets._toast import Toast

from sparkctl.cli.command_line_parser import CommandLineParser as Grammar
from sparkctl.cli.main import sparkctl_command
from sparkctl.commands.actions import find_action
from sparkctl.commands.request import Request, ScreenTarget
from sparkctl.errors import InvalidInput
from sparkctl.model.events import Outcome
from sparkctl.model.node import NodeName, NodeState
from sparkctl.simulator import SimNodeOptions, SimulatedSparks, SudoRule
from sparkctl.tui.app import PanelApp
from sparkctl.tui.dialogs.command_palette import THEME_PREFIX, filter_entries, list_palette_entries
from sparkctl.tui.dialogs.prompts import TypeNameDialog, build_confirmation
from sparkctl.tui.log_viewer.log_view import LogView
from sparkctl.tui.screens.overview_screen import TileGrid
from sparkctl.tui.text_surface import TextSurface
from tests.support.sim_clients import FAST
from tests.tui.panel_driver import (
    Driver,
    controller_of,
    is_idle,
    open_demo_panel,
    panel_of,
    read_screen,
    read_toasts,
    stop_background_requests,
    wait_for_text,
    wait_until_true,
)


async def type_line(pilot: Driver, line: str) -> None:
    await pilot.press("colon")
    await pilot.pause()
    pilot.app.screen.query_one(Input).value = line
    await pilot.press("enter")


async def test_stopping_asks_first_and_cancel_is_what_enter_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        SimulatedSparks("two-stacks", **FAST) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch) as pilot,
    ):
        stop_background_requests(sparks, "spark1")
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2 and is_idle(text))
        await pilot.press("x")
        shown = await wait_for_text(pilot, "Stop qwen36-ngram on spark1?")
        assert "[ Cancel ]" in shown
        assert "sparkctl down qwen36-ngram --node spark1" in shown
        await pilot.press("enter")
        await wait_for_text(pilot, lambda text: "Stop qwen36-ngram" not in text)
        assert sparks.docker["spark1"].running, "nothing was stopped"
        await pilot.press("x", "tab", "enter")
        await wait_for_text(pilot, lambda text: "spark1 ○ nothing runs" in text)
        assert not sparks.docker["spark1"].running
        assert sparks.docker["spark2"].running


async def test_who_answers_somebody_is_stopped_by_its_typed_name_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        SimulatedSparks("two-stacks", **FAST) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch) as pilot,
    ):
        await wait_for_text(pilot, lambda text: text.count("tok/s") == 2)
        await pilot.press("X")
        shown = await wait_for_text(pilot, "Kill qwen36-ngram on spark1?")
        assert "qwen36-ngram on spark1 is answering " in shown
        assert "--kill" in shown
        await pilot.press("enter")
        await wait_for_text(pilot, "Type qwen36-ngram to confirm")
        await pilot.press("escape")
        await wait_for_text(pilot, lambda text: "Kill qwen36-ngram" not in text)
        await pilot.press("x", *"yes", "enter")
        await wait_for_text(pilot, "That is not qwen36-ngram")
        await pilot.press("escape")
        await wait_for_text(pilot, lambda text: "Stop qwen36-ngram" not in text)
        assert sparks.docker["spark1"].running, "nothing was stopped"
        await pilot.press("X", *"qwen36-ngram", "enter")
        await wait_for_text(pilot, lambda text: "spark1 ○ nothing runs" in text)
        assert sparks.docker["spark2"].running


async def test_a_voice_is_not_offered_to_be_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        SimulatedSparks("speech", **FAST) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch, size=(200, 60)) as pilot,
    ):
        await wait_for_text(pilot, "orpheus-tts   orpheus-fastapi")
        await pilot.press("tab")
        await wait_for_text(pilot, lambda text: "x stop" in text and "B measure" not in text)
        await pilot.press("B")
        await wait_until_true(
            pilot, lambda: "orpheus-tts gives sound: there are no tokens to measure" in " ".join(read_toasts(pilot))
        )


async def test_a_profile_is_picked_started_and_gets_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with SimulatedSparks("empty", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        await wait_for_text(pilot, lambda text: text.count("○ nothing runs") == 2)
        await pilot.press("u")
        shown = await wait_for_text(pilot, "start a profile")
        while "▸ qwen36 " not in shown:
            await pilot.press("down")
            shown = read_screen(pilot)
        await pilot.press("tab")
        shown = await wait_for_text(pilot, lambda text: "▸ qwen36 " in text and "[ spark2 ]" in text)
        await wait_for_text(pilot, "  99.9 GiB")  # the sum of `sparkctl plan`, as soon as it is known
        await wait_for_text(pilot, "est.")  # memory afterwards is an estimate
        await pilot.press("enter")
        await wait_for_text(pilot, lambda text: "spark2 ● ready" in text and "qwen36 is ready on spark2" in text)
        assert "spark1 ○ nothing runs" in read_screen(pilot)


async def test_a_start_that_fails_says_why_with_its_proof(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        SimulatedSparks("empty", **FAST, faults={"spark1": "cuda-oom"}) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch, size=(120, 40)) as pilot,
    ):
        await wait_for_text(pilot, lambda text: text.count("○ nothing runs") == 2)
        await type_line(pilot, "up qwen36 --node spark1")
        shown = await wait_for_text(pilot, lambda text: "✕ failed" in text and "proof" in text)
        assert "CUDA ran out of memory" in shown
        assert "line " in shown
        assert "spark1 ✕ failed" in shown, "the tile has the cause; the events tell when"
        assert "spark1   qwen36: failed after" in shown


async def test_dropping_caches_says_once_what_it_gave_and_takes_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        SimulatedSparks("two-stacks", **FAST) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch, size=(120, 40)) as pilot,
    ):
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        await pilot.press("c")
        shown = await wait_for_text(pilot, "caches dropped")
        assert re.search(r"page cache \d+\.\d → \d+\.\d", re.sub(r"\s+", " ", shown))
        assert not isinstance(pilot.app.screen, ModalScreen), "the next key is the panel's"
        await type_line(pilot, "drop-caches")
        await wait_for_text(
            pilot,
            lambda text: re.search(r"spark1: .*caches dropped.*; spark2: .*caches dropped", re.sub(r"\s+", " ", text)),
        )


async def test_sudo_asks_for_the_password_in_a_dialog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"spark1": SimNodeOptions(sudo=SudoRule.PASSWORD)}
    async with (
        SimulatedSparks("two-stacks", **FAST, options=options) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch) as pilot,
    ):
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        sparks.nodes["spark1"].memory.drop_caches(1)  # no model's files are left there, which go without any right
        await pilot.press("c")
        await wait_for_text(pilot, "password on spark1")
        await pilot.press("escape")
        shown = await wait_for_text(pilot, "may not drop the page cache")
        assert shown.count("● ready") == 2, "the panel goes on"


async def test_read_only_has_no_key_no_help_and_no_line_that_changes_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        SimulatedSparks("two-stacks", **FAST) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch, readonly=True) as pilot,
    ):
        shown = await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        assert "read-only" in shown
        assert "stop" not in shown.splitlines()[-1]
        await pilot.press("x", "u", "c")
        await pilot.press("question_mark")
        shown = await wait_for_text(pilot, "keys")
        assert "stop the instance" not in shown
        await pilot.press("escape")
        await type_line(pilot, "down qwen36-ngram --node spark1")
        await pilot.pause(0.3)
        assert sparks.docker["spark1"].running


async def test_help_lists_every_key_with_why_it_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        SimulatedSparks("empty", **FAST) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch, size=(120, 40)) as pilot,
    ):
        await wait_for_text(pilot, lambda text: text.count("○ nothing runs") == 2)
        await pilot.press("question_mark")
        shown = await wait_for_text(pilot, "drop the page cache")
        assert "recording" not in shown, "what cannot be in a panel of what happens now is not there"
        await pilot.press(
            *"stop the instance"
        )  # what is searched for comes with its command and why it is not possible now
        await wait_for_text(pilot, lambda text: ":down" in text and "(nothing runs on spark1)" in text)


async def test_a_key_of_the_operators_own_does_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        SimulatedSparks("two-stacks", **FAST) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch, keys=(("down", ("D",)),)) as pilot,
    ):
        shown = await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        assert "D stop" in shown
        await pilot.press("x")
        await pilot.pause(0.2)
        assert "Stop qwen36" not in read_screen(pilot)
        await pilot.press("D")
        await wait_for_text(pilot, "Stop qwen36-ngram on spark1?")


async def test_the_line_completes_as_the_shell_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with SimulatedSparks("empty", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        await wait_for_text(pilot, lambda text: text.count("○ nothing runs") == 2)
        await pilot.press("colon", *"up qwen36")
        await wait_for_text(pilot, "qwen36-ngram")
        await pilot.press("tab")
        assert pilot.app.screen.query_one(Input).value == "up qwen36"
        await pilot.press(*" --no", "tab")
        assert pilot.app.screen.query_one(Input).value.startswith("up qwen36 --no")


LINES = [
    (["up"], "Missing argument 'PROFILE'"),
    (["up", "qwen"], "no profile is called `qwen`; did you mean"),
    (["up", "qwen36", "--node", "nowhere"], "no node is called `nowhere`"),
    (["down"], "name an instance, or use --all"),
    (["upp"], "no command `upp`; did you mean `up`?"),
    (["init"], "no command `init` in the panel; in a shell: sparkctl init"),
    (["exec", "qwen36", "ls", "-l"], "no command `exec` in the panel; in a shell: sparkctl exec qwen36 ls -l"),
    (["up", "qwen36", "--json"], "--json is for the command line"),
]


@pytest.mark.parametrize(("words", "said"), LINES)
async def test_a_wrong_line_is_told_as_the_command_line_tells_it(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("nodes: [{name: spark1, host: 192.0.2.1}]\n")
    monkeypatch.setenv("SPARKCTL_CONFIG", str(config))
    with pytest.raises(InvalidInput) as caught:
        Grammar(sparkctl_command).parse_request(words)
    assert said in caught.value.message


async def test_r_asks_before_it_restarts_what_runs_on_the_overview_and_on_its_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SimulatedSparks("two-stacks") as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        for _ in range(2):
            await pilot.press("R")
            await wait_for_text(pilot, "Restart qwen36-ngram on spark1?")
            await pilot.press("escape", "enter")
            await wait_for_text(pilot, "› qwen36-ngram")
        assert sparks.docker["spark1"].running


async def test_quitting_ends_the_watching_and_says_what_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SimulatedSparks("empty", speed=1.0) as sparks:
        async with open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
            await wait_for_text(pilot, lambda text: text.count("○ nothing runs") == 2)
            await type_line(pilot, "up qwen36 --node spark1")
            await wait_for_text(pilot, "loading")
            await pilot.press("q")
        assert "qwen36 keeps starting on spark1 in the background" in "".join(pilot.app.return_value or ())
        assert sparks.docker["spark1"].running, "an engine is never stopped by leaving"


@pytest.mark.parametrize("line", ["down --all", "down qwen36 --node=spark2", "down --grace 1s qwen36 -n spark2"])
async def test_a_start_that_is_stopped_is_left_wherever_it_is_and_has_not_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    async with SimulatedSparks("empty", speed=0.2) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        await wait_for_text(pilot, lambda text: text.count("○ nothing runs") == 2)
        await type_line(pilot, "up qwen36-vllm --node spark1")
        await type_line(pilot, "up qwen36 --node spark2")
        await wait_for_text(pilot, lambda text: all(len(docker.running) == 1 for docker in sparks.docker.values()))
        room, panel = controller_of(pilot), panel_of(pilot)
        panel.select_node(0)
        one, other = room.store.jobs.running.values()
        await type_line(pilot, line)
        await wait_for_text(pilot, "? ")
        await pilot.press("tab", "enter")
        await wait_for_text(pilot, lambda _: other.ended is not None)
        assert other.ended.outcome is Outcome.INTERRUPTED
        if "--all" in line:
            await wait_for_text(pilot, lambda _: one.ended is not None)
            assert one.ended.outcome is Outcome.INTERRUPTED
        else:
            assert one in room.store.jobs.running.values(), "the other Spark's start is still watched"
        await wait_for_text(pilot, "spark2 ○ nothing runs")


async def test_the_palette_offers_what_can_be_done_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SimulatedSparks("empty", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        await wait_for_text(pilot, lambda text: text.count("○ nothing runs") == 2)
        await pilot.press("ctrl+p")
        shown = await wait_for_text(pilot, "start a profile")
        assert "stop the instance and wait for its memory" not in shown, "nothing runs"
        await pilot.press(*"page cache")
        shown = await wait_for_text(pilot, "▸ drop the page cache; shows memory before and after")
        assert "start a profile" not in shown
        await pilot.press("enter")
        await wait_for_text(pilot, "caches dropped")


async def test_findings_are_one_line_each_and_all_of_it_on_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SimulatedSparks("trouble", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        await wait_for_text(pilot, "is stuck at")
        await pilot.press("i")
        shown = await wait_for_text(pilot, "─ what is wrong ─")
        assert "try: " in shown
        heads = [word for line in shown.splitlines() if (word := line.strip("│┃ ")) in {"spark1", "spark2"}]
        assert heads[0] == "spark1"


async def test_one_key_opens_a_tunnel_and_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        SimulatedSparks("two-stacks", **FAST) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch) as pilot,
    ):
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        await pilot.press("L")
        shown = await wait_for_text(pilot, "tunnel to qwen36-ngram is open: http://127.0.0.1:")
        port = int(re.findall(r"is open: http://127.0.0.1:(\d+)", shown)[0])
        with socket.create_connection(("127.0.0.1", port), timeout=10):
            pass
        await pilot.press("L")
        await wait_until_true(pilot, lambda: not controller_of(pilot).store.jobs.running)
        await wait_for_text(
            pilot, lambda text: "is open: http" not in text and "the tunnel to qwen36-ngram has ended" in text
        )
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=10)


async def test_a_pause_holds_the_picture_and_not_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with SimulatedSparks("two-stacks", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        await wait_for_text(pilot, lambda text: text.count("tok/s") == 2)
        for key, place in (
            ("", "sparkctl "),
            ("n", "› spark1 "),
            ("enter", "spark1 › qwen36-ngram"),
        ):
            await pilot.press(*([key] if key else []))
            await wait_for_text(
                pilot, lambda text, place=place: place in text.splitlines()[0] and "being read" not in text
            )
            await pilot.press("space")
            paused = await wait_for_text(pilot, "paused")
            await pilot.pause(2.0)
            panel_of(pilot).repaint_front_screen()  # as after a key
            assert read_screen(pilot) == paused
            await pilot.press("space")
            await wait_for_text(pilot, lambda text, paused=paused: "paused" not in text and text != paused)
            await pilot.press(*(["escape"] if key else []))
        await pilot.press("p")
        await wait_for_text(pilot, "› profiles")
        await pilot.press("space")
        await pilot.pause()
        assert "paused" not in read_screen(pilot), "nothing is held here, so nothing says so"


async def test_a_pause_follows_the_operators_own_moves_and_holds_no_other_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SimulatedSparks("two-stacks", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        panel = pilot.app
        assert isinstance(panel, PanelApp)
        await wait_for_text(pilot, lambda text: text.count("tok/s") == 2)

        def tiles() -> list[str]:
            return panel.screen.query_one(TileGrid).plain_lines

        await pilot.press("space")
        await wait_for_text(pilot, "paused")
        first = tiles()
        await pilot.press("tab")
        await pilot.pause(1.2)
        moved = tiles()
        assert moved != first, "which Spark is selected is seen at once"
        assert panel.selected_node == "spark2"
        await pilot.press("tab")
        await pilot.pause()
        assert tiles() == first, "the figures are those of the pause"
        await pilot.press("enter")
        shown = await wait_for_text(
            pilot, lambda text: "›" in text and "runs with" not in text.partition("being read")[0]
        )
        assert "paused" not in shown
        await pilot.press("escape")
        await wait_for_text(pilot, "paused")
        assert tiles() == first


async def test_the_palette_knows_an_action_by_the_word_of_the_footer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SimulatedSparks("two-stacks", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        panel = pilot.app
        assert isinstance(panel, PanelApp)
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        those = list_palette_entries(panel)
        for word, does in (
            ("logs", "logs"),
            ("doctor", "doctor"),
            ("stop", "down"),
            ("down", "down"),
            ("drop", "drop-caches"),
        ):
            assert filter_entries(those, word)[0].does == does, word
        assert filter_entries(those, "quit")[0].does in ("quit", "quit-at-once")
        assert filter_entries(those, "theme")[0].does.startswith(THEME_PREFIX)
        assert not any(one.changes for one in filter_entries(those, "theme"))
        assert filter_entries(those, "xyzzy") == []
        await pilot.press("ctrl+p", *"rop")
        shown = await wait_for_text(pilot, "drop the page cache")
        assert "▸" not in shown, "what changes something is not chosen by a part of a word"
        await pilot.press("enter")
        await pilot.pause()
        assert "drop the page cache" in read_screen(pilot), "and enter does nothing then"
        await pilot.press("down")
        await wait_for_text(pilot, "▸ drop the page cache")


async def test_a_line_about_instances_completes_those_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SimulatedSparks("two-stacks", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        await pilot.press("tab", "colon", *"down ")
        shown = await wait_for_text(pilot, "qwen36-vllm")
        assert "gpt-oss" not in shown, "a profile that does not run cannot be stopped"
        await pilot.press("tab")
        line = pilot.app.screen.query_one(Input)
        assert line.value == "down qwen36-vllm", "the selected one comes first"
        await pilot.press(*" --node ", "tab")
        assert line.value == "down qwen36-vllm --node spark1"


async def test_a_question_tells_that_its_spark_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with SimulatedSparks("two-stacks", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        await pilot.press("x")
        await wait_for_text(pilot, "Stop qwen36-ngram on spark1?")
        await sparks.sshd["spark1"].close()
        shown = await wait_for_text(pilot, "spark1 is unreachable: commands cannot reach it now")
        assert "Stop qwen36-ngram on spark1?" in shown


async def test_what_has_not_failed_has_neither_proof_nor_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SimulatedSparks("two-stacks", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        await pilot.press("enter")
        await wait_for_text(pilot, "› qwen36-ngram")
        for key in ("enter", "a"):
            await pilot.press(key)
            await wait_until_true(
                pilot, lambda: any("qwen36-ngram has not failed" in one for one in read_toasts(pilot))
            )
            pilot.app.clear_notifications()


async def test_a_log_of_nothing_says_that_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with SimulatedSparks("two-stacks", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        await type_line(pilot, "logs nothing-here --node spark1")
        await wait_for_text(pilot, "no saved log of one")
        pane = pilot.app.screen.query_one(LogView)
        await wait_until_true(pilot, lambda: pane.state.was_waited_for)


async def test_a_refused_start_says_why_until_a_key_and_is_among_what_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        SimulatedSparks("two-stacks", **FAST) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch, size=(80, 30)) as pilot,
    ):
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        await type_line(pilot, "up gpt-oss-120b --node spark1")
        shown = await wait_for_text(pilot, "not started")
        assert any("--force" in line and "sparkctl down" not in line for line in shown.splitlines()), shown
        await pilot.press("escape")
        await wait_for_text(pilot, "up gpt-oss-120b refused: ")


REFUSED = [
    ("upp qwen36", "no command `upp`; did you mean `up`?"),
    ("up qwen36 --node nowhere", "no node is called `nowhere`"),
    ("up 'qwen36", "cannot read this line: No closing quotation"),
]


@pytest.mark.parametrize(("line", "said"), REFUSED)
async def test_a_refused_line_comes_back_with_what_is_wrong_above_it(
    line: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SimulatedSparks("empty", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        await wait_for_text(pilot, lambda text: text.count("○ nothing runs") == 2)
        await type_line(pilot, line)
        await wait_for_text(pilot, said)
        assert pilot.app.screen.query_one(Input).value == line
        assert not read_toasts(pilot), "it is said once, and stays"
        pilot.app.screen.query_one(Input).value = "up qwen36 --node spark2"
        await pilot.press("enter")
        await wait_for_text(pilot, "spark2 ● ready")
        await pilot.press("colon", "up")
        assert pilot.app.screen.query_one(Input).value == "up qwen36 --node spark2"
        await pilot.press("up")
        assert pilot.app.screen.query_one(Input).value == line


async def test_a_line_that_changes_something_is_refused_where_it_is_typed_in_a_read_only_panel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        SimulatedSparks("two-stacks", **FAST) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch, readonly=True) as pilot,
    ):
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        await type_line(pilot, "down qwen36-ngram --node spark1")
        await wait_for_text(pilot, "this panel is read-only")
        await pilot.press("escape")
        await wait_for_text(pilot, lambda text: "read-only:" not in text)


async def test_a_result_is_said_once_below_the_tiles_and_in_the_corner_where_there_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SimulatedSparks("two-stacks", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        await pilot.press("c")
        await wait_for_text(pilot, "caches dropped")
        assert not read_toasts(pilot)
        await wait_for_text(pilot, "spark1: caches dropped")
        assert not read_toasts(pilot)
        await pilot.press("escape", "enter")
        await wait_for_text(pilot, "› qwen36-ngram")
        stop_background_requests(sparks, "spark2")
        await pilot.pause(2)
        await type_line(pilot, "down qwen36-vllm --node spark2")
        await wait_for_text(pilot, "Stop qwen36-vllm on spark2?")
        await pilot.press("tab", "enter")
        await wait_until_true(pilot, lambda: read_toasts(pilot))
        assert len([one for one in read_toasts(pilot) if "qwen36-vllm" in one]) == 1


async def test_what_has_to_be_said_waits_until_a_dialog_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SimulatedSparks("two-stacks", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        panel = pilot.app
        assert isinstance(panel, PanelApp)
        await pilot.press("question_mark")
        panel.show_toast("the config was read again")
        assert not read_toasts(pilot)
        await pilot.press("escape")
        await wait_for_text(pilot, lambda text: "esc goes back" not in text)
        assert read_toasts(pilot) == ["the config was read again"]


async def test_a_dry_run_shows_its_plan_and_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        SimulatedSparks("empty", **FAST) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch, size=(120, 40)) as pilot,
    ):
        await wait_for_text(pilot, lambda text: text.count("○ nothing runs") == 2)
        await type_line(pilot, "up qwen36 --node spark1 --dry-run")
        shown = await wait_for_text(pilot, "a dry run: nothing was changed")
        assert "docker run -d" in shown
        assert not sparks.docker["spark1"].running


SMALL = [(40, 10), (20, 5), (1, 1), (3, 2)]


async def test_a_dialog_shows_what_to_answer_in_any_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with SimulatedSparks("two-stacks", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        stop_background_requests(sparks, "spark1")
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2 and is_idle(text))
        for key, answer in (("x", "[ Cancel ]"), ("u", "leaves"), ("question_mark", "esc goes back"), ("colon", "")):
            await pilot.press(key)
            for size in SMALL:
                await pilot.resize_terminal(*size)
                await pilot.pause(0.05)
                shown = await wait_for_text(pilot, answer if size[0] >= 40 else "")
                assert shown.strip(), "never blank"
            await pilot.resize_terminal(80, 24)
            await pilot.press("escape")
            await wait_for_text(pilot, "? help")


async def test_a_dialog_outlives_the_loss_of_its_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with SimulatedSparks("two-stacks", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        await pilot.press("u")
        await wait_for_text(pilot, "start a profile")
        for name in ("spark1", "spark2"):
            await sparks.sshd[name].close()
        await wait_until_true(
            pilot,
            lambda: all(one.state is NodeState.UNREACHABLE for one in panel_of(pilot).build_action_context().views),
        )
        assert "start a profile" in read_screen(pilot)
        await pilot.press("down", "tab", "escape")
        await wait_for_text(pilot, lambda text: text.count("◌ unreachable") == 2)


async def test_what_a_start_warns_of_is_seen_at_once_and_where_its_instance_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        SimulatedSparks("empty", **FAST) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch, size=(120, 40)) as pilot,
    ):
        await wait_for_text(pilot, lambda text: text.count("nothing runs") >= 2 or text.count("starts a profile") >= 2)
        await type_line(pilot, "up qwen36-vllm --node spark1 --force --set args.max-model-lenn=8192")
        shown = await wait_for_text(pilot, "▲ spark1: ")
        line = next(line for line in shown.splitlines() if "▲ spark1: " in line)
        assert "max-model-lenn" in line
        await wait_for_text(pilot, "qwen36-vllm")
        await pilot.press("enter")
        shown = await wait_for_text(pilot, "warned")
        assert "max-model-lenn" in next(line for line in shown.splitlines() if "warned" in line)


def test_an_options_value_is_no_instance_and_what_no_log_screen_knows_is_refused() -> None:
    grammar = Grammar(sparkctl_command)
    meant = ScreenTarget(verb="logs", name="qwen36", nodes=(NodeName("spark2"),))
    assert grammar.parse_request(["logs", "qwen36", "--node", "spark2"]) == meant
    assert grammar.parse_request(["logs", "-n", "spark2", "-f", "qwen36"]) == meant
    assert grammar.parse_request(["logs", "-nspark2", "qwen36"]) == meant
    for words in (["--tail", "5"], ["--grep", "nothing"], ["--since", "1h"]):
        with pytest.raises(InvalidInput, match=f"{words[0]} is for the command line"):
            grammar.parse_request(["logs", "qwen36", *words])
    with pytest.raises(InvalidInput, match="No such option"):
        grammar.parse_request(["logs", "qwen36", "--tial=5"])
    assert set(grammar.complete_line("logs qwen36 --")) == {"--node", "--follow"}
    assert grammar.complete_line("profiles check ") == ()


async def test_a_model_on_two_sparks_is_stopped_on_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with SimulatedSparks("big-model", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2 and "tok/s" in text)
        await pilot.press("tab", "x")
        shown = await wait_for_text(pilot, "Stop minimax-m27 on spark1 and spark2?")
        assert "its parts stop together" in shown
        assert "sparkctl down minimax-m27 --node spark1 --node spark2" in shown
        assert "Type minimax-m27 to do it" in shown
        await pilot.press("escape")
        await type_line(pilot, "down minimax-m27")
        await wait_for_text(pilot, "Stop minimax-m27 on spark1 and spark2?")
        await pilot.press("escape")
        await type_line(pilot, "down minimax-m27 -n spark1")
        await wait_for_text(pilot, "Its part on spark2 stays, but cannot answer without this one.")
        await pilot.press("escape", "X", *"minimax-m27", "enter")
        await wait_for_text(pilot, lambda text: text.count("○ nothing runs") == 2, within=30)
        assert not sparks.docker["spark1"].running
        assert not sparks.docker["spark2"].running


async def test_a_worker_whose_head_is_gone_ends_and_its_tile_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SimulatedSparks("big-model", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2 and "tok/s" in text)
        for head in list(sparks.docker["spark1"].running.values()):
            head.kill()
        await wait_for_text(pilot, "spark2 ✕ failed", within=30)
        await wait_for_text(pilot, "Exited (1)", within=30)


async def test_while_it_is_not_known_whether_somebody_is_answered_the_name_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SimulatedSparks("two-stacks", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        panel = pilot.app
        assert isinstance(panel, PanelApp)
        now = panel.build_action_context()
        views = tuple(
            replace(view, instances=tuple(replace(one, numbers=None) for one in view.instances)) for view in now.views
        )
        request = Grammar(sparkctl_command).parse_request(["down", "qwen36-ngram", "--node", "spark1"])
        assert isinstance(request, Request)
        made = build_confirmation(request, find_action("down"), replace(now, views=views))
        assert isinstance(made, TypeNameDialog)
        panel.push_screen(made)
        shown = await wait_for_text(pilot, "Whether qwen36-ngram on spark1 is answering somebody")
        assert "Type qwen36-ngram to do it" in shown
        await pilot.press("enter")
        await wait_for_text(pilot, "Type qwen36-ngram to confirm; esc leaves it running.")
        await pilot.press(*"q", "escape")
        await wait_for_text(pilot, "? help")
        assert pilot.app.is_running


@pytest.mark.parametrize("ascii_only", [False, True])
async def test_the_palette_is_framed_and_has_actions_before_themes(
    ascii_only: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        SimulatedSparks("two-stacks", **FAST) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch, ascii_only=ascii_only) as pilot,
    ):
        panel = pilot.app
        assert isinstance(panel, PanelApp)
        await wait_for_text(pilot, lambda text: text.count("ready") >= 2)
        found = filter_entries(list_palette_entries(panel), "g")
        themes = [one.does.startswith(THEME_PREFIX) for one in found]
        assert any(themes)
        assert not themes[0]
        assert themes == sorted(themes)
        await pilot.press("ctrl+p")
        shown = await wait_for_text(pilot, "enter does it")
        assert all(len(line) == len(shown.splitlines()[0]) for line in shown.splitlines())
        assert shown.isascii() is ascii_only
        sheet, field = panel.screen.query_one(TextSurface).region, panel.screen.query_one(Input).region
        assert sheet.y < field.y < sheet.bottom
        await pilot.press(*"theme spark-l", "enter")
        await wait_until_true(pilot, lambda: panel.theme == "spark-light")


async def test_what_is_typed_in_a_dialog_stands_in_its_frame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with SimulatedSparks("two-stacks", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        await wait_for_text(pilot, lambda text: text.count("tok/s") == 2)
        await pilot.press("x")
        await wait_for_text(pilot, "Type qwen36-ngram to do it")
        await pilot.pause(0.1)
        sheet, field = pilot.app.screen.query_one(TextSurface).region, pilot.app.screen.query_one(Input).region
        assert (field.y, field.x, field.right) == (sheet.bottom - 2, sheet.x + 2, sheet.right - 2)
        assert not pilot.app.screen.query_one(TextSurface).plain_lines[-2].strip("│ ")


@pytest.mark.parametrize("line", ["q", "quit", "q!"])
async def test_quit_is_a_line_too(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with SimulatedSparks("two-stacks", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        await type_line(pilot, line)
        await wait_until_true(pilot, lambda: not pilot.app.is_running)
        assert sparks.docker["spark1"].running


async def test_help_is_a_line_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with SimulatedSparks("empty", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        await wait_for_text(pilot, lambda text: text.count("○ nothing runs") == 2)
        await type_line(pilot, "help")
        await wait_for_text(pilot, "─ keys ─")
        await pilot.press("escape")
        await type_line(pilot, "help down")
        await wait_for_text(pilot, "[OPTIONS] [INSTANCE...]")
        await pilot.press("escape")
        await type_line(pilot, "doctor")
        await wait_for_text(pilot, "› doctor")


async def test_a_key_that_a_read_only_panel_does_not_have_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        SimulatedSparks("two-stacks", **FAST) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch, readonly=True) as pilot,
    ):
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        for key in ("x", "u", "c"):
            await pilot.press(key)
            assert read_toasts(pilot) == ["this panel is read-only: it changes nothing on any Spark"]
            await pilot.press("escape")
            assert not read_toasts(pilot)


async def test_one_thing_is_said_at_a_time_and_never_over_the_last_two_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SimulatedSparks("two-stacks", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        panel = pilot.app
        assert isinstance(panel, PanelApp)
        panel.show_toast("the config is not taken in", severity="error")
        panel.show_toast("the config was read again")
        await wait_until_true(pilot, lambda: read_toasts(pilot) == ["the config was read again"])
        await wait_until_true(pilot, lambda: len(panel.screen.query(Toast)) == 1)
        await pilot.pause(0.2)
        assert panel.screen.query_one(Toast).region.bottom <= panel.size.height - 2
        await pilot.press("question_mark")
        panel.show_toast("first")
        panel.show_toast("second", severity="error")
        await pilot.press("escape")
        await wait_until_true(pilot, lambda: read_toasts(pilot) == ["first\nsecond"])


async def test_a_start_is_chosen_while_the_sparks_are_still_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SimulatedSparks("empty", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        await pilot.press("u", "down", "up")
        await wait_for_text(
            pilot, "start a profile"
        )  # reading the profiles takes a moment, and is done beside the keys
        assert not read_toasts(pilot)
        await wait_for_text(pilot, lambda text: " of 121.7 GiB" in text)


async def test_a_start_of_this_very_panel_is_not_blamed_on_another_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SimulatedSparks("empty", speed=1.0) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        await wait_for_text(pilot, lambda text: text.count("○ nothing runs") == 2)
        await type_line(pilot, "up qwen36 --node spark1")
        await wait_for_text(pilot, "loading")
        await type_line(pilot, "up orpheus-tts --node spark1")
        shown = await wait_for_text(pilot, "from here already")
        assert "another terminal" not in shown
