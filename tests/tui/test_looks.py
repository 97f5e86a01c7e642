"""What a picture alone would show: a path that is whole, a light ground, and no more rows than there are."""

from __future__ import annotations

from pathlib import Path

from sparkctl.tui.global_actions import export_screenshot_svg
from sparkctl.tui.screens.log_screen import LogScreen
from tests.shots.stage import enact, panel, shown, there_are


async def test_a_saved_logs_path_is_whole_above_its_log(tmp_path: Path) -> None:
    scene = there_are()["logs"]
    path = "/home/milo/.local/state/sparkctl/logs/spark1/qwen36-20260501-215246.log"
    async with panel(scene, tmp_path).run_test(size=(80, 24)) as pilot:
        await enact(pilot, scene)
        screen = pilot.app.screen
        assert isinstance(screen, LogScreen)
        screen._troubles[screen._sources[0]] = f"qwen36 is gone from spark1; this is its saved log: {path}"
        screen.paint_body()
        await pilot.pause(0.2)
        assert path in shown(pilot)
        assert "paused" in shown(pilot), "the line under the log is still there"


async def test_a_light_terminals_picture_is_light(tmp_path: Path) -> None:
    scene = there_are()["overview"]
    there = panel(scene, tmp_path)
    async with there.run_test(size=(80, 24)) as pilot:
        await enact(pilot, scene)
        there.theme = "ansi-light"
        await pilot.pause(0.2)
        svg = export_screenshot_svg(there)
        assert "#292929" not in svg
        assert "#c5c8c6" not in svg
