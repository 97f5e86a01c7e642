"""The instance screen on simulated Sparks: what it reads back, what it says of a failure, and what becomes of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from textual.widgets import Input

from sparkctl.cli.command_line_parser import CommandLineParser as Grammar
from sparkctl.cli.main import sparkctl_command
from sparkctl.commands.actions import ActionId
from sparkctl.model.text.units import format_gib
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.simulator import SimulatedSparks
from sparkctl.tui.log_viewer.log_view import LogView
from tests.support.sim_clients import FAST
from tests.tui.panel_driver import (
    Driver,
    open_panel_on,
    read_screen,
    stop_background_requests,
    wait_for_text,
    wait_until_true,
)


async def type_line(pilot: Driver, line: str) -> None:
    await pilot.press("colon")
    await pilot.pause()
    pilot.app.screen.query_one(Input).value = line
    await pilot.press("enter")


async def test_enter_opens_it_with_its_figures_its_plan_and_what_it_says(tmp_path: Path) -> None:
    async with SimulatedSparks("two-stacks", **FAST) as sparks, open_panel_on(sparks, tmp_path, (120, 40)) as pilot:
        await wait_for_text(pilot, lambda text: text.count("decode ") == 2 and "tok/s" in text)
        await pilot.press("tab", "enter")
        shown = await wait_for_text(
            pilot, lambda text: "docker run line" in text and "accept" in text and "Engine 000" in text
        )
        assert "sparkctl › spark2 › qwen36-vllm" in shown
        assert "● ready" in shown
        for curve in ("tok/s decode", "per step accept", "% KV cache", "ms first token", "% busy", "W power"):
            assert curve in shown, f"live figures come first: {curve}"
        assert "draft 1" in shown
        assert f"of ≈{format_gib(ProfileLibrary().load_profile('qwen36-vllm').expected_memory)}" in shown
        assert "than expected" not in shown, "a few per cent are as expected"
        await pilot.press("d")
        shown = await wait_for_text(pilot, "qwen36-vllm on spark2 runs with")
        assert "vllm serve /models/Qwen3.6-27B-NVFP4" in shown
        assert "/health answers" in shown, "when it counts as ready is part of what it runs with"
        await pilot.press("escape", "escape")
        await wait_for_text(pilot, lambda text: "spark1 ● ready" in text and "spark2 ● ready" in text)


async def test_a_page_key_that_comes_before_its_page_turns_it(tmp_path: Path) -> None:
    async with SimulatedSparks("two-stacks", **FAST) as sparks, open_panel_on(sparks, tmp_path, (80, 24)) as pilot:
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        pilot.app.open_screen("instance")
        pilot.app.perform_action(ActionId.PAGE_DOWN)
        await wait_for_text(pilot, lambda text: "qwen36-ngram" in text and "↑" in text)


async def test_stop_in_its_footer_is_about_this_instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with SimulatedSparks("two-stacks", **FAST) as sparks:
        monkeypatch.setenv("SPARKCTL_CONFIG", str(sparks.config_path))
        async with open_panel_on(sparks, tmp_path, load_commands=lambda: Grammar(sparkctl_command)) as pilot:
            await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
            await pilot.press("enter")
            shown = await wait_for_text(pilot, "─ qwen36-ngram")
            assert [
                key for key in ("u up", "x stop", "l logs", "c drop caches", "d plan", "? help") if key not in shown
            ] == []
            stop_background_requests(sparks, "spark1")
            await wait_for_text(pilot, "idle")
            await pilot.press("x")
            await wait_for_text(pilot, "Stop qwen36-ngram on spark1?")
            await pilot.press("tab", "enter")
            await wait_for_text(pilot, "It is not on this Spark now.")
            await pilot.press("x")
            await pilot.pause()
            assert sparks.docker["spark2"].running, "nothing else is stopped in its place"
            assert "Stop" not in read_screen(pilot)


async def test_a_failed_start_says_why_and_its_proof_is_one_key_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SimulatedSparks("empty", **FAST, faults={"spark1": "cuda-oom"}) as sparks:
        monkeypatch.setenv("SPARKCTL_CONFIG", str(sparks.config_path))
        async with open_panel_on(sparks, tmp_path, load_commands=lambda: Grammar(sparkctl_command)) as pilot:
            await wait_for_text(pilot, lambda text: text.count("○ nothing runs") == 2)
            await type_line(pilot, "up qwen36 --node spark1")
            await wait_for_text(pilot, "✕ failed")
            await pilot.press("enter")
            shown = await wait_for_text(pilot, "copy verdict")
            assert "CUDA ran out of memory" in shown.splitlines()[2]
            line = shown.partition("log at line ")[2].split()[0]
            await pilot.press("y")
            assert f"log line {line}: torch.OutOfMemoryError" in pilot.app.clipboard
            await pilot.press("l")
            await wait_for_text(pilot, "qwen36 › log")
            view = await wait_for_log_view(pilot, lambda view: view.position.current is not None)
            found = view.buffer.get_line(view.position.current[1])
            assert found is not None
            assert (found.line, "torch.OutOfMemoryError" in found.text) == (int(line), True)
            assert not view.is_following


async def test_a_failure_that_this_panel_did_not_see_is_judged_when_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened_at = tmp_path / "line"
    editor = tmp_path / "vi"
    editor.write_text(f'#!/bin/sh\necho "$@" > {opened_at}\n')
    editor.chmod(0o755)
    monkeypatch.setenv("VISUAL", str(editor))
    async with SimulatedSparks("empty", **FAST, faults={"spark1": "cuda-oom"}) as sparks:
        monkeypatch.setenv("SPARKCTL_CONFIG", str(sparks.config_path))
        async with open_panel_on(sparks, tmp_path, load_commands=lambda: Grammar(sparkctl_command)) as pilot:
            await wait_for_text(pilot, lambda text: text.count("○ nothing runs") == 2)
            await type_line(pilot, "up qwen36 --node spark1")
            await wait_for_text(pilot, "✕ failed")
        async with open_panel_on(sparks, tmp_path, (120, 40), load_commands=lambda: Grammar(sparkctl_command)) as pilot:
            await wait_for_text(pilot, "✕ failed")
            await pilot.press("enter")
            shown = await wait_for_text(pilot, "log at line ")
            assert "CUDA ran out of memory" in shown.splitlines()[2]
            share = dict(ProfileLibrary().load_profile("qwen36").args)["mem-fraction-static"]
            assert re.search(rf"\be +edit args\.mem-fraction-static {re.escape(str(share))} ", shown), shown
            assert re.search(r"\bR +restart as it was", shown), shown
            await pilot.press("e")
            await wait_until_true(pilot, lambda: opened_at.exists() and opened_at.read_text())
            line, _, path = opened_at.read_text().strip().partition(" ")
            assert (line[0], path.endswith("qwen36.yaml")) == ("+", True)
            await pilot.press("R")
            await wait_for_text(pilot, "Start qwen36 on spark1 again, as it was?")
            await pilot.press("escape")


async def test_the_page_of_the_head_gives_the_verdict_of_the_rank_that_failed_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SimulatedSparks("empty", **FAST) as sparks:
        monkeypatch.setenv("SPARKCTL_CONFIG", str(sparks.config_path))
        async with open_panel_on(sparks, tmp_path, (120, 40), load_commands=lambda: Grammar(sparkctl_command)) as pilot:
            await wait_for_text(pilot, lambda text: text.count("○ nothing runs") == 2)
            await type_line(pilot, "up minimax-m27 --set env.SIM_FAULT=worker-dies")
            await wait_for_text(pilot, lambda text: text.count("✕ failed") == 2)
            await type_line(pilot, "diagnose minimax-m27 --node spark1")
            shown = await wait_for_text(pilot, "Rank 1 of 2, on spark2: ")
            assert "spark1 › minimax-m27" in shown
            assert "Ray lost a worker" not in shown


async def wait_for_log_view(pilot: Driver, claim: Callable[[LogView], object]) -> LogView:
    """Wait until a log is on the screen of which a claim holds."""
    found: list[LogView] = []
    await wait_until_true(
        pilot, lambda: found.extend(view for view in pilot.app.screen.query(LogView) if claim(view)) or found
    )
    return found[0]


@pytest.mark.parametrize("size", [(40, 10), (60, 15), (200, 50)])
async def test_the_instance_screen_fits_every_size(tmp_path: Path, size: tuple[int, int]) -> None:
    async with SimulatedSparks("two-stacks", **FAST) as sparks, open_panel_on(sparks, tmp_path) as pilot:
        await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
        await pilot.press("enter")
        await wait_for_text(pilot, "─ qwen36-ngram")
        await pilot.resize_terminal(*size)
        await wait_for_text(pilot, "too small" if size[0] < 50 else "─ qwen36-ngram")
        await pilot.press("l")
        await wait_for_log_view(pilot, lambda view: len(view.buffer.spool) > 5)
        await pilot.resize_terminal(80, 24)
        await wait_for_text(pilot, "f follow")
        await pilot.press("escape", "escape")
        await wait_for_text(pilot, "spark2 ●")


@pytest.mark.parametrize("size", [(60, 15), (80, 24)])
async def test_text_below_the_screen_can_be_scrolled_to(size: tuple[int, int], tmp_path: Path) -> None:
    async with SimulatedSparks("two-stacks", **FAST) as sparks, open_panel_on(sparks, tmp_path, size) as pilot:
        await wait_for_text(pilot, "spark1 ● ready")
        await pilot.press("enter")
        first = await wait_for_text(pilot, lambda text: "› qwen36-ngram" in text and "decode" in text)
        assert "--mem-fraction-static" not in first, "there is no room for that at once"
        assert ("pgdn reads on" if size[0] == 80 else "pgdn") in first
        await pilot.press("pagedown")
        await wait_for_text(pilot, "more   pgup and pgdn")
        while "the end" not in read_screen(pilot):  # the log below may still grow
            await pilot.press("G")
            await pilot.pause(0.05)
        while "--mem-fraction-static" not in read_screen(pilot):
            await pilot.press("pageup")
            await pilot.pause(0.05)
        await pilot.press("g")
        await wait_for_text(pilot, lambda text: "the end" not in text and "more" not in text and "pgdn" in text)
