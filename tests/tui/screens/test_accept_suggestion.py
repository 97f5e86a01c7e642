"""A verdict's proof one key away, and its change accepted: once, or for good; on simulated Sparks."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from sparkctl import files
from sparkctl.model.node import NodeName
from sparkctl.model.verdict import Evidence, FieldChange
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.simulator import SimulatedSparks
from sparkctl.tui.app import PanelApp
from sparkctl.tui.log_viewer.log_view import LogView
from tests.support.sim_clients import FAST
from tests.tui.panel_driver import Driver, open_demo_panel, read_screen, wait_for_text, wait_until_true
from tests.tui.screens.test_instance_screen import type_line, wait_for_log_view

BEFORE = str(dict(ProfileLibrary().load_profile("qwen36").args)["mem-fraction-static"])
AFTER = f"{float(BEFORE) - 0.08:.2f}"
EDIT = FieldChange("args.mem-fraction-static", AFTER, BEFORE, is_first_try=True)
AGAIN = f"sparkctl up qwen36 --node spark1 --set {EDIT.set_argument}"


@asynccontextmanager
async def open_failed_instance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int] = (80, 24)
) -> AsyncIterator[tuple[Driver, SimulatedSparks]]:
    """The screen of a model whose start has failed, with a change that may mend it and proofs on three lines."""
    async with (
        SimulatedSparks("empty", **FAST, faults={"spark1": "cuda-oom"}) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch, size=size) as pilot,
    ):
        await wait_for_text(pilot, lambda text: text.count("○ nothing runs") == 2)
        await type_line(pilot, "up qwen36 --node spark1")
        await wait_for_text(pilot, "✕ failed")
        app = pilot.app
        assert isinstance(app, PanelApp)
        controller = app.controller
        assert controller is not None
        await wait_for_text(pilot, lambda _: "qwen36" in controller.store.get_start_results(NodeName("spark1")))
        end = controller.store.get_start_results(NodeName("spark1"))["qwen36"]
        assert end.verdict is not None
        proofs = (*end.verdict.evidence, Evidence("a", "log", 8), Evidence("b", "log", 3))
        controller.record_diagnosis(
            NodeName("spark1"), replace(end, verdict=replace(end.verdict, evidence=proofs, edit=EDIT, again=AGAIN))
        )
        await pilot.press("enter")
        await wait_for_text(pilot, "copy verdict")
        yield pilot, sparks


def get_cursor_line(view: LogView) -> int:
    """The number of the line that was gone to."""
    assert view.position.current is not None
    found = view.buffer.get_line(view.position.current[1])
    assert found is not None
    return found.line


async def test_enter_shows_the_proof_and_n_leads_through_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_failed_instance(tmp_path, monkeypatch) as (pilot, _):
        shown = read_screen(pilot)
        best = int(shown.partition("log at line ")[2].split()[0])
        assert "enter log at line" in shown
        await pilot.press("enter")
        await wait_for_text(pilot, "qwen36 › log")
        view = await wait_for_log_view(pilot, lambda view: view.position.current is not None)
        assert get_cursor_line(view) == best
        assert not view.is_following
        seen = []
        for key in ("n", "n", "n", "N"):
            before = view.position.current
            await pilot.press(key)
            await wait_until_true(pilot, lambda: view.position.current != before)  # noqa: B023
            seen.append(get_cursor_line(view))
        assert seen == [3, 8, best, 8], "in the order of the log, and round its end"
        await pilot.press("slash", *"Load", "enter")
        await wait_until_true(pilot, lambda: view.filter.found_rows is not None and len(view.filter.found_rows))
        await pilot.press("n")
        await wait_until_true(
            pilot,
            lambda: "Load" in (view.buffer.get_line(view.position.current[1]) or view.buffer.read_lines(0, 1)[0]).text,
        )


async def test_a_change_is_tried_once_and_the_profile_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_failed_instance(tmp_path, monkeypatch) as (pilot, sparks):
        assert f"args.mem-fraction-static  {BEFORE} → {AFTER}" in read_screen(pilot)
        assert re.search(r"a +tries the change", read_screen(pilot))
        await pilot.press("a")
        shown = await wait_for_text(pilot, "change qwen36 and start it again")
        assert f"args.mem-fraction-static  {BEFORE} → {AFTER}" in shown
        assert "the value is a guess" in shown
        words = " ".join(shown.replace("│", " ").split())
        assert AGAIN in words.replace(" \\ ", " "), "a shell reads the command, also where it goes on in a next row"
        assert "now  " in shown, "and what it would meet there, as u shows it"
        await pilot.press("enter")
        await pilot.pause(0.2)
        assert "change qwen36 and" not in read_screen(pilot), "no is the default"
        assert "✕ failed" in read_screen(pilot)
        sparks.nodes["spark1"].fault = None
        await pilot.press("a")
        await wait_for_text(pilot, "change qwen36 and start it again")
        await pilot.press("tab", "enter")
        await wait_for_text(pilot, "● ready")
        assert not list(files.user_profiles_dir().glob("*"))


async def test_a_change_is_kept_in_a_copy_of_the_shipped_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_failed_instance(tmp_path, monkeypatch, size=(120, 40)) as (pilot, sparks):
        sparks.nodes["spark1"].fault = None
        await pilot.press("a")
        shown = await wait_for_text(
            pilot, lambda text: "your copy of the shipped one" in " ".join(text.replace("│", " ").split())
        )
        assert "change qwen36 and start it again" in shown
        await pilot.press("tab", "tab", "enter")
        await wait_for_text(pilot, "● ready")
        mine = ProfileLibrary().load_profile("qwen36")
        assert dict(mine.args)["mem-fraction-static"] == AFTER
        assert not mine.shipped
        await wait_for_text(pilot, f"--mem-fraction-static {AFTER}")
