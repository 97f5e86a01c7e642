"""Keys that mean the same on every screen: views by number, a shell, an address, a plan, a picture, the way out."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from sparkctl.commands.actions import ACTIONS, LOGS
from sparkctl.simulator import SimulatedSparks
from sparkctl.tui.app import PanelApp
from sparkctl.tui.log_viewer.log_view import LogView
from sparkctl.tui.screens.base import PanelScreen
from tests.support.sim_clients import FAST
from tests.tui.panel_driver import (
    Driver,
    build_panel_options,
    open_black_hole,
    open_demo_panel,
    open_panel,
    panel_of,
    read_screen,
    read_toasts,
    wait_for_text,
    wait_until_true,
)


def get_screen_id(pilot: Driver) -> str:
    assert isinstance(pilot.app.screen, PanelScreen)
    return pilot.app.screen.SCREEN_ID


async def test_numbers_are_the_views_from_every_view(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with SimulatedSparks("two-stacks", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        for key, there in zip("2345", ("instance", "logs", "profiles", "doctor"), strict=True):
            await pilot.press(key)
            assert get_screen_id(pilot) == there
        for key, there in zip("43215321", ("profiles", "logs", "instance", "overview") * 2, strict=False):
            await pilot.press(key)
            assert get_screen_id(pilot) == {"5": "doctor", "3": "logs", "2": "instance", "1": "overview"}.get(
                key, there
            )
        assert len(pilot.app.screen_stack) == 1


async def test_g_is_the_first_and_G_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with SimulatedSparks("two-stacks", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        await wait_for_text(pilot, "━ spark1 ")
        await pilot.press("G")
        await wait_for_text(pilot, "━ spark2 ")
        await pilot.press("g")
        await wait_for_text(pilot, "━ spark1 ")
        await pilot.press("p")
        first = await wait_for_text(pilot, "▸ ")
        await pilot.press("G")
        last = await wait_for_text(pilot, lambda text: "▸ " in text and find_marked_row(text) != find_marked_row(first))
        await pilot.press("end")
        assert find_marked_row(read_screen(pilot)) == find_marked_row(last)
        await pilot.press("home")
        await wait_for_text(pilot, lambda text: find_marked_row(text) == find_marked_row(first))


def find_marked_row(text: str) -> str:
    return next(line.split()[1] for line in text.splitlines() if "▸ " in line)


async def test_the_address_is_copied_where_the_instance_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SimulatedSparks("two-stacks", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        await pilot.press("y")
        assert pilot.app.clipboard == "http://127.0.0.1:8003"
        await pilot.press("tab", "enter")
        await wait_for_text(pilot, "─ qwen36-vllm")
        await pilot.press("y")
        assert pilot.app.clipboard == "http://127.0.0.1:8000"


async def test_d_shows_what_the_selected_instance_runs_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with SimulatedSparks("two-stacks", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        await pilot.press("d")
        shown = await wait_for_text(pilot, "qwen36-ngram on spark1 runs with")
        assert "docker run" in shown


async def test_the_profile_of_an_instance_is_edited_from_where_it_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor = tmp_path / "editor"
    editor.write_text(
        f"#!{sys.executable}\nimport pathlib, sys\npathlib.Path({str(tmp_path / 'seen')!r}).write_text(sys.argv[1])\n"
    )
    editor.chmod(0o755)
    monkeypatch.setenv("EDITOR", str(editor))
    monkeypatch.delenv("VISUAL", raising=False)
    async with SimulatedSparks("two-stacks", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        await pilot.press("e")
        await wait_for_text(pilot, lambda _: (tmp_path / "seen").exists())
        assert (tmp_path / "seen").read_text().endswith("/qwen36-ngram.yaml")
        await wait_for_text(
            pilot, lambda _: any("nothing was changed" in one.message for one in pilot.app._notifications)
        )


async def test_nothing_is_edited_from_a_panel_that_is_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor = tmp_path / "editor"
    editor.write_text(f"#!/bin/sh\ntouch '{tmp_path / 'seen'}'\n")
    editor.chmod(0o755)
    monkeypatch.setenv("EDITOR", str(editor))
    monkeypatch.delenv("VISUAL", raising=False)
    async with (
        SimulatedSparks("two-stacks", **FAST) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch, readonly=True) as pilot,
    ):
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        for opens in ("1", "2", "p"):
            await pilot.press(opens, "e", "question_mark")
            shown = await wait_for_text(pilot, "esc goes back")
            assert "edit the profile" not in shown
            await pilot.press("escape")
        await pilot.pause(0.3)
    assert not (tmp_path / "seen").exists()
    assert not (tmp_path / "XDG_CONFIG_HOME").exists(), "no copy of a shipped profile was made"


async def test_what_a_profile_runs_is_stopped_and_its_log_read_from_the_profiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SimulatedSparks("two-stacks", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        await wait_for_text(pilot, lambda text: text.count("tok/s") == 2)
        await pilot.press("p")
        await wait_for_text(pilot, "▸ ")
        while find_marked_row(read_screen(pilot)) != "qwen36-ngram":
            await pilot.press("down")
        await pilot.press("x")
        await wait_for_text(pilot, "Stop qwen36-ngram on spark1?")
        await pilot.press("escape", "l")
        assert get_screen_id(pilot) == LOGS
        await wait_for_text(pilot, lambda _: list(pilot.app.screen.query(LogView)))


async def test_a_shell_is_the_operators_ssh_and_the_panel_is_there_again_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    ssh = tools / "ssh"
    ssh.write_text(
        f"#!{sys.executable}\nimport json, pathlib, sys\n"
        f"pathlib.Path({str(tmp_path / 'words')!r}).write_text(json.dumps(sys.argv[1:]))\n"
    )
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", str(tools), prepend=":")
    async with SimulatedSparks("two-stacks", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        await pilot.press("G", "dollar_sign")
        await wait_for_text(pilot, lambda _: (tmp_path / "words").exists())
        words = json.loads((tmp_path / "words").read_text())
        node = next(node for node in panel_of(pilot).config_nodes if node.name == "spark2")
        assert words[-2:] == ["--", "127.0.0.1"]
        assert words[words.index("-p") + 1] == str(node.port)
        assert words[words.index("-l") + 1] == node.user
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)


async def test_a_shell_inside_of_a_container_is_ssh_with_a_terminal_and_its_failure_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    ssh = tools / "ssh"
    ssh.write_text(
        f"#!{sys.executable}\nimport json, pathlib, sys\n"
        f"pathlib.Path({str(tmp_path / 'words')!r}).write_text(json.dumps(sys.argv[1:]))\n"
        "print('exec: sh: not found', file=sys.stderr)\nsys.exit(127)\n"
    )
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", str(tools), prepend=":")
    async with SimulatedSparks("two-stacks", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        await pilot.press("b")
        await wait_for_text(pilot, lambda _: any("exec: sh: not found" in one for one in read_toasts(pilot)))
        words = json.loads((tmp_path / "words").read_text())
        (running,) = sparks.docker["spark1"].running.values()
        assert words[-4:-1] == ["-t", "--", "127.0.0.1"]
        assert words[-1].startswith(f"docker exec -it -- {running.container.name} sh -c ")


@pytest.mark.skipif(shutil.which("ssh") is None, reason="there is no ssh on this machine")
async def test_what_ssh_says_when_it_cannot_connect_is_said_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SimulatedSparks("two-stacks", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        await pilot.press("dollar_sign")
        await wait_for_text(
            pilot,
            lambda _: any("spark1 is simulated: there is no shell" in one.message for one in pilot.app._notifications),
        )


async def test_the_screen_is_saved_as_a_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with open_panel(build_panel_options((open_black_hole(),), tmp_path)) as pilot:
        await wait_for_text(pilot, "dark")
        await pilot.press("f8")
        await wait_for_text(
            pilot, lambda _: any(f"in {tmp_path}/sparkctl-" in one.message for one in pilot.app._notifications)
        )
    assert [(text.startswith("<svg"), "dark" in text) for text in list_pictures(tmp_path)] == [(True, True)]


def list_pictures(directory: Path) -> list[str]:
    return [path.read_text() for path in directory.glob("sparkctl-*.svg")]


async def test_a_picture_that_cannot_be_saved_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    async with open_panel(build_panel_options((open_black_hole(),), tmp_path)) as pilot:
        await wait_for_text(pilot, "dark")
        monkeypatch.chdir(gone)
        gone.rmdir()
        await pilot.press("f8")
        await wait_for_text(pilot, lambda _: any("not saved" in one.message for one in pilot.app._notifications))


@pytest.mark.parametrize("keys", [(), ("question_mark",), ("colon",), ("ctrl+p",), ("5",), ("i",)])
async def test_ctrl_q_ends_the_panel_from_everywhere(
    keys: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SimulatedSparks("trouble", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        await wait_for_text(pilot, "is stuck at")
        await pilot.press(*keys)
        await pilot.pause()
        await pilot.press("ctrl+q")
        panel = pilot.app
        assert isinstance(panel, PanelApp)
        await wait_for_text(pilot, lambda _: panel.is_leaving)
    assert pilot.app.return_value


async def test_plus_and_minus_are_how_often_the_sparks_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SimulatedSparks("empty", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        await wait_for_text(pilot, lambda text: text.count("○ nothing runs") == 2)
        panel = pilot.app
        assert isinstance(panel, PanelApp)
        assert panel.controller is not None
        said = set[str]()  # one thing at a time stands there
        for key, seconds in zip("---+++++", (5, 10, 10, 5, 2, 1, 0.5, 0.5), strict=True):
            await pilot.press(key)
            assert panel.controller.supervisor.sample_interval == seconds
            await pilot.pause()
            said.update(one.message for one in pilot.app._notifications)
        assert "the Sparks are read every 5 s; every second while something loads" in said
        assert "the Sparks are read every 0.5 s, and there is nothing beyond that" in said
        store, node, times = panel.controller.store, panel.node_names[0], set[float]()

        def comes_often(_: str) -> bool:
            if (sample := store.get_last_known_view(node).sample) is not None:
                times.add(sample.time)
            latest = sorted(times)[-3:]
            return len(latest) == 3 and latest[-1] - latest[0] < 1.6

        await wait_for_text(pilot, comes_often)


async def test_a_spark_that_goes_is_told_on_every_screen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with SimulatedSparks("two-stacks", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        for key in "2345":
            await pilot.press(key)
            assert "spark2 unreachable" not in read_screen(pilot).splitlines()[0]
        await sparks.sshd["spark2"].close()
        for key in "2345":
            await pilot.press(key)
            await wait_for_text(pilot, lambda text: "◌ spark2 unreachable · " in text.splitlines()[0])


async def test_ctrl_c_says_what_ends_the_panel_and_twice_ends_it(tmp_path: Path) -> None:
    async with open_panel(build_panel_options((open_black_hole(),), tmp_path)) as pilot:
        await wait_for_text(pilot, "dark")
        await pilot.press("ctrl+c")
        await wait_for_text(
            pilot, lambda _: any("ctrl+c again ends the panel" in one.message for one in pilot.app._notifications)
        )
        assert pilot.app.is_running
        assert not pilot.app.is_leaving
        await pilot.press("ctrl+c")
        await wait_for_text(pilot, lambda _: pilot.app.is_leaving or not pilot.app.is_running)


def test_every_view_has_its_number() -> None:
    numbers = {key: one.screen for one in ACTIONS for key in one.keys if key.isdigit()}
    assert numbers == {
        "1": "overview",
        "2": "instance",
        "3": "logs",
        "4": "profiles",
        "5": "doctor",
        "6": "history",
        "7": "bench",
    }


@pytest.mark.parametrize("key", ["dollar_sign", "b"])
async def test_a_simulated_spark_has_no_shell_and_says_so(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        SimulatedSparks("two-stacks", **FAST) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch, badge=lambda: "simulated") as pilot,
    ):
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        await pilot.press(key)
        await wait_until_true(pilot, lambda: read_toasts(pilot) == ["simulated: there is no shell"])
