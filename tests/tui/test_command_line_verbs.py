"""What is asked on the `:` line of a profile, a log or a whole Spark, and answered there; on simulated Sparks."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.widgets import Input

from sparkctl.cli.command_line_parser import CommandLineParser as Grammar
from sparkctl.cli.main import sparkctl_command
from sparkctl.commands.request import ScreenTarget
from sparkctl.errors import InvalidInput
from sparkctl.model.node import NodeName
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.simulator import SimulatedSparks
from tests.support.sim_clients import FAST
from tests.tui.panel_driver import is_idle, open_demo_panel, stop_background_requests, wait_for_text
from tests.tui.test_panel_actions import type_line


async def test_a_plan_is_the_sum_of_the_command_line_and_of_several_sparks_says_what_it_comes_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        SimulatedSparks("big-model", **FAST) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch, size=(120, 50)) as pilot,
    ):
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        await type_line(pilot, "plan qwen36 --node spark2 --set args.mem-fraction-static=0.5")
        shown = await wait_for_text(pilot, "does qwen36 fit")
        assert "qwen36 fits on spark2 only if minimax-m27 stops" in shown
        assert "  together" in shown, "the sum is written out"
        assert "qwen36 claims" in shown
        await pilot.press("escape")
        await type_line(pilot, "plan minimax-m27")
        shown = await wait_for_text(pilot, "does minimax-m27 fit")
        assert "minimax-m27 needs 2 Sparks" in shown
        await pilot.press("escape", "p")
        await wait_for_text(pilot, "▸ minimax-m27")
        await pilot.press("j")
        await wait_for_text(pilot, "▸ gpt-oss-120b")
        await type_line(pilot, "plan")
        await wait_for_text(pilot, "does gpt-oss-120b fit")
        await pilot.press("escape")
        await type_line(pilot, "plan no-such-profile")
        await wait_for_text(pilot, "no profile is called `no-such-profile`")


async def test_a_log_is_read_and_one_that_failed_is_opened_where_its_verdict_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SimulatedSparks("empty", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        await wait_for_text(pilot, lambda text: text.count("○ nothing runs") == 2)
        await type_line(pilot, "diagnose")
        await wait_for_text(pilot, "nothing runs on spark1")
        await pilot.press("escape")
        await type_line(pilot, "up qwen36 --node spark1 --set env.SIM_FAULT=cuda-oom --no-guard")
        await wait_for_text(pilot, "✕ failed")
        await type_line(pilot, "diagnose qwen36")
        await wait_for_text(pilot, "spark1 › qwen36")
        await pilot.press("escape")
        await type_line(pilot, "up qwen36-vllm --node spark2 --no-guard")
        await wait_for_text(pilot, "spark2 ● ready")
        await type_line(pilot, "diagnose qwen36-vllm")
        shown = await wait_for_text(pilot, "what the log of qwen36-vllm shows")
        assert "on spark2, which runs" in shown
        assert "it was ready" in shown
        await pilot.press("escape")
        await type_line(pilot, "diagnose ./vllm.log")
        await wait_for_text(pilot, "use the command line: sparkctl diagnose ./vllm.log")


async def test_a_spark_is_freed_once_it_was_said_what_stops_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SimulatedSparks("big-model", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        stop_background_requests(sparks, "spark1")
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2 and is_idle(text))
        await type_line(pilot, "free spark2 --dry-run")
        await wait_for_text(pilot, "would stop minimax-m27 on spark1 and spark2")
        await pilot.press("escape")
        await type_line(pilot, "free spark2")
        shown = await wait_for_text(pilot, "Stop everything that sparkctl started on spark2?")
        assert "minimax-m27 stops on spark2 and spark1: one model" in " ".join(shown.replace("│", " ").split())
        await pilot.press("enter")
        await wait_for_text(pilot, lambda text: "Stop everything" not in text)
        assert sparks.docker["spark2"].running, "Cancel is the default"
        await type_line(pilot, "free nowhere")
        await wait_for_text(pilot, "no node is called `nowhere`")
        await pilot.press("escape")
        await type_line(pilot, "free spark2")
        await wait_for_text(pilot, "Stop everything that sparkctl started on spark2?")
        await pilot.press("tab", "enter")
        await wait_for_text(pilot, lambda text: text.count("○ nothing runs") == 2, within=30)
        await wait_for_text(pilot, "everything that sparkctl started on spark2 has stopped; spark2: ")


async def test_the_line_of_a_switch_is_for_the_selected_spark_unless_it_names_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SimulatedSparks("empty", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        await wait_for_text(pilot, lambda text: text.count("○ nothing runs") == 2)
        await pilot.press("tab")
        await type_line(pilot, "switch orpheus-tts")
        await wait_for_text(pilot, "orpheus-tts starts on spark2; nothing has to stop")
        await pilot.press("escape")
        await type_line(pilot, "switch minimax-m27")
        await wait_for_text(pilot, "minimax-m27 starts on spark2 and spark1; nothing has to stop")
        await pilot.press("escape")
        await type_line(pilot, "switch minimax")
        await wait_for_text(pilot, "no profile is called `minimax`")


async def test_a_question_breaks_its_sentences_where_the_dialog_ends_and_nowhere_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        SimulatedSparks("two-stacks", **FAST) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch, size=(60, 20)) as pilot,
    ):
        await wait_for_text(pilot, "● ready")
        await pilot.press("colon", *"free spark1 spark2", "enter")
        shown = await wait_for_text(pilot, "Stop everything that sparkctl started on")
        lines = [line.strip("│ ") for line in shown.splitlines() if line.startswith("│")]
        at = next(at for at, line in enumerate(lines) if line.startswith("Stop everything"))
        inner = max(map(len, shown.splitlines())) - 4
        assert len(lines[at]) + 1 + len(lines[at + 1].split()[0]) > inner, "the next word had no room"
        await pilot.resize_terminal(120, 40)
        await wait_for_text(pilot, "Stop everything that sparkctl started on spark1 and spark2?")


async def test_what_has_no_key_of_its_own_may_be_given_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = (("free", ("f2",)),)
    async with (
        SimulatedSparks("two-stacks", **FAST) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch, keys=keys) as pilot,
    ):
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        await pilot.press("tab", "f2")
        await wait_for_text(pilot, "Stop everything that sparkctl started on spark2?")


def test_what_only_prints_is_a_line_of_the_panel_and_what_changes_is_not() -> None:
    grammar = Grammar(sparkctl_command)
    for line in ("models", "images --node spark1", "endpoints", "check qwen36", "guard status", "profiles show qwen36"):
        assert grammar.parse_request(line.split()).format_as_command() == tuple(line.split())
    assert grammar.parse_request(["ps"]) == ScreenTarget(verb="status")
    assert grammar.parse_request(["top", "-n", "spark2"]) == ScreenTarget(verb="top", nodes=(NodeName("spark2"),))
    for line in ("models remove x", "images remove x", "profiles check x --fix", "guard disarm"):
        with pytest.raises(InvalidInput, match="is for the command line"):
            grammar.parse_request(line.split())
    assert "restart" in grammar.verbs
    with pytest.raises(InvalidInput) as refused:
        grammar.parse_request(["init"])
    assert {"status", "top", "models", "images", "endpoints", "check", "guard"} <= set(
        str(refused.value.hint).removeprefix("the panel knows: ").split(", ")
    )


async def test_ps_and_top_open_what_shows_it_and_models_shows_its_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        SimulatedSparks("two-stacks", **FAST) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch, size=(120, 40)) as pilot,
    ):
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        await type_line(pilot, "top --node spark2")
        await wait_for_text(pilot, "sparkctl › spark2 ")
        await type_line(pilot, "ps")
        await wait_for_text(pilot, lambda text: text.startswith(" sparkctl  ") and text.count("● ready") == 2)
        await type_line(pilot, "status qwen36-ngram")
        await wait_for_text(pilot, "sparkctl › spark1 › qwen36-ngram")
        await type_line(pilot, "status nowhere")
        await wait_for_text(pilot, "no instance is called nowhere")
        await pilot.press("escape", "escape")
        await type_line(pilot, "profiles show qwen36")
        shown = await wait_for_text(pilot, "more below")
        assert "sparkctl profiles show qwen36" in shown
        assert "mem-fraction-static" in shown


async def test_a_check_shows_at_once_that_it_runs_and_its_dialog_can_be_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        SimulatedSparks("two-stacks", **FAST) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch, size=(120, 40)) as pilot,
    ):
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        await type_line(pilot, "check qwen36-ngram")
        shown = await wait_for_text(pilot, "running ...")
        assert "─ sparkctl check qwen36-ngram ─" in shown
        await pilot.press("escape", "i")
        await wait_for_text(pilot, lambda text: "sparkctl check" not in text)


async def test_tab_completes_what_all_begin_with_before_it_takes_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SimulatedSparks("empty", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        await wait_for_text(pilot, lambda text: text.count("nothing runs") == 2)
        await pilot.press("colon", *"plan qwen36-v")
        await wait_for_text(pilot, "qwen36-v")
        field = pilot.app.screen.query_one(Input)
        field.value = "plan qw"
        await wait_for_text(pilot, "… ")
        await pilot.press("tab")
        assert field.value == "plan qwen3"
        await pilot.press("tab")
        assert field.value in {f"plan {name}" for name in ProfileLibrary().list_names() if name.startswith("qwen3")}
