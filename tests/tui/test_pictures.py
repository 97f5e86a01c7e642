"""What a picture alone would show: a path that is whole, a light ground, and no more rows than there are."""

from __future__ import annotations

from pathlib import Path

from sparkctl.tui.global_actions import export_screenshot_svg
from sparkctl.tui.screens.log_screen import LogScreen
from tests.tools.pictures.panel_scenes import build_panel, enact_scene, read_screen_text, when_there_are


async def test_a_saved_logs_path_is_whole_above_its_log(tmp_path: Path) -> None:
    scene = when_there_are()["logs"]
    path = "/home/milo/.local/state/sparkctl/logs/spark1/qwen36-20260501-215246.log"
    async with build_panel(scene, tmp_path).run_test(size=(80, 24)) as pilot:
        await enact_scene(pilot, scene)
        screen = pilot.app.screen
        assert isinstance(screen, LogScreen)
        screen._troubles[screen._sources[0]] = f"qwen36 is gone from spark1; this is its saved log: {path}"
        screen.paint_body()
        await pilot.pause(0.2)
        assert path in read_screen_text(pilot)
        assert "paused" in read_screen_text(pilot), "the line under the log is still there"


async def test_a_light_terminals_picture_is_light(tmp_path: Path) -> None:
    scene = when_there_are()["overview"]
    there = build_panel(scene, tmp_path)
    async with there.run_test(size=(80, 24)) as pilot:
        await enact_scene(pilot, scene)
        there.theme = "ansi-light"
        await pilot.pause(0.2)
        svg = export_screenshot_svg(there)
        assert "#292929" not in svg
        assert "#c5c8c6" not in svg
