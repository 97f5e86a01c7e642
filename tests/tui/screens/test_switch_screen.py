"""A switch as a person does it: seen before anything is done, asked for by name, followed step by step; on simulated Sparks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sparkctl.commands.switch.switch_instance import switch_instance
from sparkctl.model.events import Event, SwitchStepReported
from sparkctl.model.switch_plan import SwitchStep
from sparkctl.simulator import SimulatedSparks
from sparkctl.tui.app import PanelApp
from tests.support.sim_clients import FAST
from tests.support.switch_scene import NEW, OLD, open_two_rank_model
from tests.tui.panel_driver import (
    Driver,
    open_demo_panel,
    read_toasts,
    stop_background_requests,
    wait_for_text,
    wait_until_true,
)


async def open_switch_plan(pilot: Driver, line: str = "switch qwen36 --node spark1") -> str:
    await wait_for_text(pilot, lambda text: text.count("● ready") == 2)
    await pilot.press("colon", *line, "enter")
    return await wait_for_text(pilot, "enter does it, after a question")


async def test_each_spark_is_shown_before_and_after_and_what_stops_is_asked_for_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        SimulatedSparks("big-model", **FAST) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch, size=(120, 40)) as pilot,
    ):
        shown = await open_switch_plan(pilot, "switch qwen36-as-posted --node spark1")
        assert "qwen36-as-posted starts on spark1, and spark2 is free" in shown
        for each in ("spark1 now", "spark1 afterwards", "spark2 now", "spark2 afterwards"):
            assert each in shown
        (then,) = [line for line in shown.splitlines() if "+ qwen36-as-posted " in line]
        assert "GiB est.  starts" in then
        assert "○ nothing: it is free" in shown
        assert "▲ spark1: " in shown, "what is said of its flags"
        assert "try: sparkctl switch qwen36-as-posted --node spark1 --set " in shown
        panel = pilot.app
        assert isinstance(panel, PanelApp)
        assert panel.front_screen is not None
        result = "dies of that with a TypeError"
        said = next(line for line in " ".join(shown.split()).split("▲ spark1: ")[1:] if result in line)
        assert panel.front_screen.already_shows(said.partition(result)[0] + result), "no toast says that again"
        assert not panel.front_screen.already_shows("the guard has dropped the page cache")
        await pilot.press("y")
        assert pilot.app.clipboard.startswith("sparkctl switch qwen36-as-posted --node spark1 --set args.")
        assert "," not in pilot.app.clipboard
        await pilot.press("enter")
        shown = await wait_for_text(pilot, "to do it; esc leaves it running")
        assert "is answering somebody right now" in shown
        assert "minimax-m27 runs on spark1 and spark2" in shown
        assert "The containers of minimax-m27 are kept until qwen36-as-posted" in shown
        await pilot.press("y", "e", "s", "enter")
        assert "That is not" in await wait_for_text(pilot, "That is not")
        await pilot.press("escape")
        await wait_for_text(pilot, "enter does it, after a question")
        assert all(node.running for node in sparks.docker.values()), "nothing was stopped"


async def test_tab_plans_it_for_the_other_spark_and_r_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        SimulatedSparks("big-model", **FAST) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch, size=(120, 40)) as pilot,
    ):
        await open_switch_plan(pilot)
        await pilot.press("tab")
        await wait_for_text(pilot, "qwen36 starts on spark2, and spark1 is free")
        for node in sparks.docker:
            stop_background_requests(sparks, node)
        await pilot.press("r")
        await wait_for_text(pilot, "enter does it, after a question")


async def test_it_is_planned_from_the_picker_and_from_the_list_of_profiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SimulatedSparks("empty", **FAST) as sparks, open_demo_panel(sparks, tmp_path, monkeypatch) as pilot:
        await wait_for_text(pilot, lambda text: text.count("○ nothing runs") == 2)
        await pilot.press("s")
        shown = await wait_for_text(pilot, "switch to a profile")
        assert "enter shows the switch" in shown
        await pilot.press("tab", "enter")
        shown = await wait_for_text(pilot, "starts on spark2; nothing has to stop")
        await pilot.press("escape", "u")
        await wait_for_text(pilot, "ctrl+s switches")
        await pilot.press("ctrl+s")
        await wait_for_text(pilot, "starts on spark1; nothing has to stop")
        await pilot.press("escape", "p", "slash", *"front end", "enter")
        await wait_for_text(pilot, "▸ orpheus-tts")
        await pilot.press("s")
        await wait_for_text(pilot, "orpheus-tts starts on spark1; nothing has to stop")


async def test_what_cannot_be_switched_to_says_why_and_is_not_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        SimulatedSparks("empty", nodes=("spark1",), **FAST) as sparks,
        open_demo_panel(sparks, tmp_path, monkeypatch, size=(60, 15)) as pilot,
    ):
        await wait_for_text(pilot, "○ nothing runs")
        await pilot.press("colon", *"switch minimax-m27", "enter")
        await wait_for_text(pilot, "minimax-m27 is for 2 Sparks")
        await pilot.press("escape")
        await pilot.press("colon", *"switch no-such-profile", "enter")
        await wait_for_text(pilot, "no-such-profile")
        await pilot.press("escape")
        await wait_for_text(pilot, "○ nothing runs")
        assert not sparks.docker["spark1"].running


async def confirm_switch(pilot: Driver) -> None:
    """Say yes, whichever way it is asked: who may be answering wants its name typed."""
    shown = await wait_for_text(pilot, lambda text: "[ Cancel ]" in text or "to do it; esc leaves it running" in text)
    await pilot.press(*(("tab",) if "[ Cancel ]" in shown else OLD), "enter")


async def test_it_is_done_step_by_step_with_its_proofs_and_the_other_spark_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        open_two_rank_model(tmp_path / "beds") as bed,
        open_demo_panel(bed.sparks, tmp_path, monkeypatch) as pilot,
    ):
        await open_switch_plan(pilot, f"switch {NEW} --node spark1 --no-guard")
        await pilot.press("enter")
        await confirm_switch(pilot)
        shown = await wait_for_text(pilot, f"{NEW} serves on spark1 in place of {OLD}")
        panel = pilot.app
        assert isinstance(panel, PanelApp)
        assert panel.controller is not None
        assert set(panel.controller.store.switches.memory_at_start) == {"spark1", "spark2"}, (
            "as sampled, and not as the plan makes it"
        )
        assert "spark2 is free" in shown
        for step in ("checked  ", "stopped  ", "released ", "started  ", "cleared  "):
            assert f"  {step}" in shown, shown
        assert bed.is_new()
        await pilot.press("escape")
        await wait_for_text(pilot, lambda text: "spark1 ● ready" in text and "spark2 ○ nothing runs" in text)
        await pilot.press("h")
        await wait_for_text(pilot, f"start {NEW}")
        await pilot.press("down")
        await wait_for_text(pilot, f"switch {NEW}")


async def test_one_that_fails_tells_both_stories_and_the_old_one_serves_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        open_two_rank_model(tmp_path / "beds") as bed,
        open_demo_panel(bed.sparks, tmp_path, monkeypatch, size=(120, 40)) as pilot,
    ):
        await open_switch_plan(pilot, f"switch {NEW} --node spark1 --no-guard --set env.SIM_FAULT=cuda-oom")
        await pilot.press("enter")
        await confirm_switch(pilot)
        shown = await wait_for_text(pilot, f"● {OLD} runs again")
        assert f"✕ {NEW} failed: " in shown
        assert "✓        " in shown
        assert bed.is_old()
        await pilot.press("r")
        await wait_for_text(pilot, "enter does it, after a question")


async def test_one_that_somebody_left_is_a_line_of_the_overview_and_is_undone_by_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def at(event: Event) -> bool:
        return isinstance(event, SwitchStepReported) and event.step is SwitchStep.RELEASING

    async with open_two_rank_model(tmp_path / "beds") as bed:
        assert await bed.crash(switch_instance(bed.ctx("ada@desk"), bed.request()), at)
        async with open_demo_panel(bed.sparks, tmp_path, monkeypatch) as pilot:
            await wait_for_text(pilot, "○ stopped, kept for the way back")
            shown = await wait_for_text(pilot, f"switch to {NEW} was left: step 3 of 6, releasing, by ada@desk since ")
            assert "✕" not in shown
            assert "o goes on with it  A undoes it" in shown
            await pilot.press("A")
            shown = await wait_for_text(pilot, f"Undo the switch to {NEW} that ada@desk left")
            assert f"{OLD} is started again" in " ".join(shown.replace("│", " ").split())
            assert "[ Cancel ]" in shown
            await pilot.press("escape")
            await pilot.press("colon", *"abort --give-up", "enter")
            shown = await wait_for_text(pilot, f"Give up the switch to {NEW} that ada@desk left")
            assert f"{NEW} and {OLD} go, logs saved" in " ".join(shown.replace("│", " ").split())
            await pilot.press("escape", "A")
            await wait_for_text(pilot, f"Undo the switch to {NEW}")
            await pilot.press("tab", "enter")
            await wait_for_text(pilot, f"{OLD} serves again")
            assert bed.is_old()
            await pilot.press("escape")
            await wait_for_text(pilot, lambda text: "was left" not in text and text.count("● ready") == 2)
            await pilot.press("o")
            await wait_until_true(pilot, lambda: "there is no unfinished switch on these Sparks" in read_toasts(pilot))
            pilot.app.clear_notifications()
            await pilot.press("colon", *"abort", "enter")
            await wait_for_text(
                pilot, lambda text: "there is no unfinished switch on these Sparks" in text and "Undo" not in text
            )


def flatten_screen(shown: str) -> str:
    """What is shown as one line, without frames."""
    return " ".join(shown.replace("│", " ").split())


async def begin_switch(pilot: Driver) -> None:
    """Have a switch loading what it starts: what was there has stopped."""
    await open_switch_plan(pilot, f"switch {NEW} --node spark1 --no-guard")
    await pilot.press("enter")
    await confirm_switch(pilot)
    goes_on = re.compile(rf"◐[^\n]*starting {NEW}.*loading", re.DOTALL)
    await wait_for_text(pilot, lambda text: goes_on.search(text) is not None)


async def test_leaving_in_the_middle_asks_and_tells_what_stands_still_and_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_two_rank_model(tmp_path / "beds", speed=1.0) as bed:
        async with open_demo_panel(bed.sparks, tmp_path, monkeypatch, size=(120, 40)) as pilot:
            await begin_switch(pilot)
            await pilot.press("ctrl+c")
            await wait_until_true(
                pilot, lambda: any(f"its switch to {NEW} is left where it is" in one for one in read_toasts(pilot))
            )
            await pilot.press("question_mark")
            await wait_for_text(pilot, "end the panel and leave")
            await pilot.press("escape", "escape", "q")
            shown = flatten_screen(await wait_for_text(pilot, f"Leave the switch to {NEW} in the middle?"))
            assert "step 4 of 6 (starting)" in shown
            assert f"{OLD} is stopped; its containers are kept." in shown, shown
            await pilot.press("enter")
            await wait_for_text(pilot, lambda text: "in the middle?" not in text)
            assert pilot.app.is_running
            await pilot.press("ctrl+q")
            await wait_for_text(pilot, "in the middle?")
            await pilot.press("tab", "enter")
        said = pilot.app.return_value or ()
        assert f"{OLD} is stopped; its containers are kept" in said
        assert not [line for line in said if OLD in line and "running" in line]
        assert f"the switch to {NEW} is left at step 4 of 6 (starting)" in said
        ways = [line for line in said if line.startswith("  try: ")]
        assert any("sparkctl resume" in line for line in ways)
        assert any("sparkctl abort" in line for line in ways)


async def test_its_own_switch_is_interrupted_on_its_screen_and_nowhere_stopped_under_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        open_two_rank_model(tmp_path / "beds", speed=2.0) as bed,
        open_demo_panel(bed.sparks, tmp_path, monkeypatch) as pilot,
    ):
        await begin_switch(pilot)
        await pilot.press("escape", "x")
        await wait_until_true(
            pilot,
            lambda: any(f"this panel's switch to {NEW} is still changing it" in one for one in read_toasts(pilot)),
        )
        await pilot.press("s")
        await wait_for_text(pilot, "x interrupt")
        await pilot.press("x")
        await wait_for_text(pilot, f"Interrupt the switch to {NEW}?")
        await pilot.press("tab", "enter")
        shown = await wait_for_text(
            pilot, lambda text: f"the switch to {NEW} is left at step 4 of 6 (starting)" in flatten_screen(text)
        )
        assert "sparkctl resume" in shown
        assert bed.journals.count(None) < len(bed.journals), "it lies there for whoever goes on"
        await pilot.press("escape")
        await wait_for_text(pilot, "o goes on with it  A undoes it")
