"""The profiles as a person uses them: look, filter, start, edit; on simulated Sparks."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from sparkctl import files
from sparkctl.cli.main import sparkctl_command
from sparkctl.history.operation_history import OperationHistory
from sparkctl.model.phase import Phase, PhaseDuration
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.simulator import SimulatedSparks
from tests.support.sim_clients import FAST
from tests.tui.panel_driver import (
    Driver,
    build_panel_options,
    open_black_hole,
    open_demo_panel,
    open_panel,
    read_screen,
    read_toasts,
    wait_for_text,
)


@pytest.fixture(autouse=True)
def mine(_operator: None) -> Path:
    """Where the operator's own profiles are."""
    folder = files.user_profiles_dir()
    folder.mkdir(parents=True)
    return folder


def set_editor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str) -> None:
    """An editor that does what a script says to the file ``$1``."""
    path = tmp_path / "an editor"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", f"'{path}'")


async def select_profile(pilot: Driver, name: str) -> None:
    await wait_for_text(pilot, "▸ ")
    for _ in range(40):
        if f"▸ {name} " in read_screen(pilot):
            return
        await pilot.press("j")
    raise AssertionError(read_screen(pilot))


async def test_the_list_says_where_each_runs_and_how_its_last_start_went(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mine: Path
) -> None:
    (mine / "broken.yaml").write_text("schema: 1\nname: broken\nengine: sglang\nimage: a:1\nport: many\n")
    OperationHistory(tmp_path / "state").record_failure("qwen36", "h", "spark2", "cuda-oom", "0123", time.time() - 4000)
    async with (
        SimulatedSparks("two-stacks", **FAST) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch, size=(120, 60)) as pilot,
    ):
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        await pilot.press("p")
        await select_profile(pilot, "broken")
        shown = await wait_for_text(pilot, "▸ broken")
        lines = {line.strip("▸ ").split(" ")[0]: line for line in shown.splitlines()}
        assert "● spark1" in lines["qwen36-ngram"]
        assert "● spark2" in lines["qwen36-vllm"]
        assert "✕ cuda-oom, 1 h ago" in lines["qwen36"]
        assert "broken.yaml:5:7" in shown
        assert "     5 │ port: many" in shown
        await pilot.press("u")
        await pilot.pause(0.1)
        assert "start broken" not in read_screen(pilot)


async def test_the_command_is_the_one_of_a_dry_run_with_secrets_masked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mine: Path
) -> None:
    monkeypatch.setenv("MY_TOKEN", "canary-4711")
    (mine / "own.yaml").write_text(
        "schema: 1\nname: own\nextends: qwen36\nmounts: ['~/models:/models:ro']\nenv: {HF_TOKEN: '${MY_TOKEN}'}\n"
    )
    async with (
        SimulatedSparks("empty", **FAST) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch, size=(100, 70)) as pilot,
    ):
        await wait_for_text(pilot, lambda text: text.count("nothing runs") >= 2)
        await pilot.press("p")
        await select_profile(pilot, "own")
        shown = await wait_for_text(pilot, "docker run -d")
        assert "-v /home/" in shown, "the home of the user there"
        assert "-e HF_TOKEN " in shown
        assert "canary" not in shown
        await pilot.press("y")
        assert pilot.app.clipboard.startswith("docker run -d \\\n  --name ")
        assert "canary" not in pilot.app.clipboard
        assert "[ spark1 ]" in shown
        await pilot.press("tab")
        await wait_for_text(pilot, "[ spark2 ]")


async def test_it_is_started_from_here_where_the_dialog_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with SimulatedSparks("empty", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        await wait_for_text(pilot, lambda text: text.count("nothing runs") >= 2)
        await pilot.press("p")
        await select_profile(pilot, "qwen36-vllm")
        await pilot.press("u")
        shown = await wait_for_text(pilot, "start qwen36-vllm")
        assert "orpheus" not in shown.split("start qwen36-vllm")[1], "only the one that was selected"
        await pilot.press("tab", "enter")
        await wait_for_text(pilot, lambda text: "spark2" in text and "● spark2" in text)
        assert sparks.docker["spark2"].running
        assert not sparks.docker["spark1"].running
        await wait_for_text(pilot, "just now")


async def test_typing_filters_and_escape_drops_the_filter_before_the_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_panel(build_panel_options((), tmp_path)) as pilot:
        await pilot.press("p")
        names = ProfileLibrary(tmp_path).list_names()
        await wait_for_text(pilot, f"▸ {names[0]} ")
        await pilot.press("slash", *f"!{names[0]}")
        shown = await wait_for_text(pilot, f"/{len(names)}  !{names[0]}")
        assert f" {names[0]} " not in shown
        await pilot.press("enter")
        await pilot.press("escape")
        await wait_for_text(pilot, f" {names[0]} ")
        await pilot.press("escape")
        await wait_for_text(pilot, lambda text: "profiles" not in text.splitlines()[0])


async def test_a_shipped_profile_is_copied_before_it_is_edited_and_checked_on_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mine: Path
) -> None:
    set_editor(monkeypatch, tmp_path, "echo 'port: many' >>\"$1\"")
    async with open_panel(build_panel_options((), tmp_path), (120, 60)) as pilot:
        await pilot.press("p")
        await select_profile(pilot, "qwen36-as-posted")
        await pilot.press("e")
        shown = await wait_for_text(pilot, "yours, replaces the shipped one")
        assert "broken: line" in shown
        assert "must be a whole number" in shown
        assert "many" in (mine / "qwen36-as-posted.yaml").read_text()
        assert "many" not in (files.shipped_profiles_dir() / "qwen36-as-posted.yaml").read_text()
        set_editor(monkeypatch, tmp_path, "sed -i 's/^port: many/port: 8004/' \"$1\"")
        await pilot.press("e")
        await wait_for_text(pilot, lambda text: "broken" not in text and "checked: good, 1 warning" in text)
        told = "\n".join(read_toasts(pilot))
        assert "qwen36-as-posted: good, 1 warning" in told
        assert "warning[known-trap]" in told


async def test_the_check_is_that_of_the_command_line_flags_and_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mine: Path
) -> None:
    (mine / "mine.yaml").write_text(
        "schema: 1\nname: mine\nextends: qwen36\nargs:\n  tpp: 1\n  speculative-algorithm: HOWL\n"
    )
    result = CliRunner().invoke(sparkctl_command, ["profiles", "check", "mine"], standalone_mode=False)
    assert result.return_value == 2
    *findings, sum_of_them = result.output.splitlines()
    async with open_panel(build_panel_options((), tmp_path), (140, 90)) as pilot:
        await pilot.press("p")
        await select_profile(pilot, "mine")
        shown = await wait_for_text(pilot, "2 errors, 4 infos")
        assert sum_of_them.removeprefix("mine: ") in shown
        whole = " ".join(shown.replace("│", " ").split())
        for line in findings:
            level, _, message = line.partition(": ")[2].partition(": ")
            assert level in whole
            assert message[:30] in whole
        assert "5 │   tpp: 1" in shown
        assert "good" not in shown.split("2 errors")[0].splitlines()[-1]
        set_editor(monkeypatch, tmp_path, "sed -i 's/tpp: 1/tpq: 1/' \"$1\"")
        await pilot.press("e")
        await wait_for_text(pilot, "5 │   tpq: 1")
        said = "\n".join(read_toasts(pilot))
        assert "mine: 2 errors, 4 infos" in said
        assert "error[unknown-flag]" in said


async def test_an_editor_goes_to_the_first_fault_and_what_became_of_the_file_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mine: Path
) -> None:
    file = mine / "own.yaml"
    file.write_text("schema: 1\nname: own\nextends: qwen36\nport: many\n")
    editor = tmp_path / "nano"
    editor.write_text(f"#!/bin/sh\necho \"$@\" >> '{tmp_path}/words'\nexit 3\n")
    editor.chmod(0o755)
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", f"{editor} -l")
    async with open_panel(build_panel_options((), tmp_path), (120, 40)) as pilot:
        await pilot.press("p")
        await select_profile(pilot, "own")
        shown = await wait_for_text(pilot, "   4 │ port: many")
        assert "own.yaml:4:7" in shown
        assert "port: must be a whole number" in shown
        assert "     │       ^" in shown
        await pilot.press("e")
        await wait_for_text(
            pilot, lambda _: any("ended with exit 3" in one.message for one in pilot.app._notifications)
        )
        assert (tmp_path / "words").read_text() == f"-l +4 {file}\n"
        set_editor(monkeypatch, tmp_path, 'rm "$1"')
        await pilot.press("e")
        await wait_for_text(pilot, lambda _: any("own.yaml is gone" in one.message for one in pilot.app._notifications))
        await wait_for_text(pilot, lambda text: " own " not in text)


async def test_a_limit_that_such_a_start_exceeded_is_told_as_by_plan(tmp_path: Path, mine: Path) -> None:
    (mine / "own.yaml").write_text("schema: 1\nname: own\nextends: qwen36\nstart: {timeouts: {loading: 8m}}\n")
    parts = [PhaseDuration(Phase.LOADING, "weights", 900.0)]
    OperationHistory(tmp_path).record_start("own", "0123", "spark2", 1000.0, parts=parts)
    async with open_panel(build_panel_options((), tmp_path), (120, 60)) as pilot:
        await pilot.press("p")
        await select_profile(pilot, "own")
        await wait_for_text(pilot, "start.timeouts.loading 8 min is shorter than such a start took: 15 min")


async def test_without_a_spark_the_command_is_what_the_profile_says(tmp_path: Path, mine: Path) -> None:
    (mine / "own.yaml").write_text(
        "schema: 1\nname: own\nextends: qwen36\nmounts: ['~/models:/models:ro']\nenv: {HF_TOKEN: '${NOT_SET_ANYWHERE}'}\n"
    )
    async with open_panel(build_panel_options((), tmp_path), (120, 60)) as pilot:
        await pilot.press("p")
        await select_profile(pilot, "own")
        shown = await wait_for_text(pilot, "docker run -d")
        assert "as the profile has it: there is no Spark to ask" in shown
        assert "-v '~/models:/models:ro'" in shown.replace("-v ~/models:/models:ro", "-v '~/models:/models:ro'")
        assert "${NOT_SET_ANYWHERE} is not set in your environment" in shown, "and it would be refused"
        assert "-e HF_TOKEN" in shown


async def test_two_hundred_profiles_can_be_gone_through_and_filtered(tmp_path: Path, mine: Path) -> None:
    for number in range(200):
        (mine / f"p{number:03}.yaml").write_text(f"schema: 1\nname: p{number:03}\nextends: qwen36\n")
    async with open_panel(build_panel_options((), tmp_path)) as pilot:
        await pilot.press("p")
        names = ProfileLibrary(mine).list_names()
        await wait_for_text(pilot, f"▸ {names[0]}")
        await pilot.press(*["j"] * names.index("p149"))
        await wait_for_text(pilot, "▸ p149")
        for half, whole, back in (("ctrl+d", "ctrl+f", "ctrl+u"), ("ctrl+u", "ctrl+b", "ctrl+d")):
            await pilot.press(half, back, half, half)
            two_halves = re.findall("▸ p(...)", await wait_for_text(pilot, lambda text: "▸ p149" not in text))
            await pilot.press(back, back)
            await wait_for_text(pilot, "▸ p149")
            await pilot.press(whole)
            one_page = re.findall("▸ p(...)", await wait_for_text(pilot, lambda text: "▸ p149" not in text))
            assert abs(int(one_page[0]) - int(two_halves[0])) <= 1
            assert (int(one_page[0]) > 149) is (whole == "ctrl+f")
            await pilot.press(*({"ctrl+f": "ctrl+b", "ctrl+b": "ctrl+f"}[whole],))
            await wait_for_text(pilot, "▸ p149")
        await pilot.press("slash", *"p19", "enter")
        await wait_for_text(pilot, f"/ 10/{len(names)}  p19")


async def test_an_edit_that_changes_nothing_leaves_no_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mine: Path
) -> None:
    set_editor(monkeypatch, tmp_path, f"touch '{tmp_path}/was-here'; exit 1")
    async with open_panel(build_panel_options((), tmp_path)) as pilot:
        await pilot.press("p")
        await select_profile(pilot, "qwen36")
        await pilot.press("e")
        await wait_for_text(pilot, lambda _: (tmp_path / "was-here").exists() and not list(mine.iterdir()))
        monkeypatch.setenv("EDITOR", "no-such-editor-anywhere")
        await pilot.press("e")
        await wait_for_text(pilot, lambda _: any("no-such-editor" in one.message for one in pilot.app._notifications))
        await wait_for_text(pilot, lambda _: not list(mine.iterdir()))


async def test_a_file_that_is_saved_elsewhere_is_read_again(tmp_path: Path, mine: Path) -> None:
    async with open_panel(build_panel_options((), tmp_path)) as pilot:
        await pilot.press("p")
        await wait_for_text(pilot, "▸ gpt-oss-120b")
        (mine / "another.yaml").write_text("schema: 1\nname: another\nextends: qwen36\n")
        await wait_for_text(pilot, " another ")


@pytest.mark.parametrize("size", [(40, 10), (60, 15), (50, 12)])
async def test_small_terminals_and_dead_nodes_break_nothing(tmp_path: Path, size: tuple[int, int]) -> None:
    async with open_panel(build_panel_options((open_black_hole(),), tmp_path), size) as pilot:
        await pilot.press("p")
        if size[0] >= 50:
            await wait_for_text(pilot, "▸ gpt-oss-120b")
        await pilot.press(
            "down", "pagedown", "pagedown", "pageup", "u", "escape", "c", "y", "tab", "slash", "x", "enter", "escape"
        )
        await pilot.resize_terminal(120, 40)
        await pilot.press("p")  # escape went back where there was no picker to leave
        await wait_for_text(pilot, "gpt-oss-120b")
        await pilot.press("q")


async def test_each_profile_that_is_seen_is_checked_and_what_is_safe_is_mended_by_a_key(
    tmp_path: Path, mine: Path
) -> None:
    shipped = (files.shipped_profiles_dir() / "qwen36.yaml").read_text()
    text = shipped.replace("name: qwen36", "name: mine").replace(
        "  speculative-algorithm:", "  tpp: 1\n  speculative-algo:"
    )
    (mine / "mine.yaml").write_text(text)
    async with open_panel(build_panel_options((), tmp_path), (100, 60)) as pilot:
        await pilot.press("p")
        shown = await wait_for_text(pilot, lambda text: "✕1" in text and "✓" in text)
        listed = {line.strip("▸ ").split(" ")[0]: line for line in shown.splitlines()}
        assert "✕1" in listed["mine"]
        await select_profile(pilot, "mine")
        await wait_for_text(pilot, "F fixes 2 of them")
        await pilot.press("F")
        await wait_for_text(pilot, lambda _: any("fixed: " in one for one in read_toasts(pilot)))
        after = (mine / "mine.yaml").read_text()
        assert "  speculative-algorithm: " in after
        assert "  tpp: 1" in after, "what it should be nobody knows"
        assert "  tp-size: 1\n" in after
        await wait_for_text(pilot, lambda text: "▸ mine" in text and "✕1" in text and "F fixes" not in text)
        await pilot.press("F")
        await wait_for_text(
            pilot, lambda _: any("mine: nothing here can be fixed" in one for one in read_toasts(pilot))
        )
        await select_profile(pilot, "qwen36-ngram")
        await wait_for_text(pilot, "F fixes")
        await pilot.press("F")
        await wait_for_text(pilot, "yours, replaces the shipped one")
        assert (mine / "qwen36-ngram.yaml").exists()
