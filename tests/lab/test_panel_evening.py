"""The panel as a person drives it: keys into a terminal, and what is on its screen, on real nodes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkctl.commands.actions import LOGS
from sparkctl.tui.panel_options import AVAILABLE_SCREENS
from tests.lab.bed.node import LabNode
from tests.lab.support.command_outcomes import count_cache_drops, count_kernel_drops, list_containers
from tests.lab.support.sparkctl_process import Sparkctl
from tests.lab.support.tmux_screen import Screen


@pytest.fixture
def home(sparkctl: Sparkctl) -> Sparkctl:
    """An operator with two profiles."""
    sparkctl.profile("tiny", env={"LAB_LOAD_S": "3", "LAB_LINES": "20"})
    sparkctl.profile("other", port=8102, env={"LAB_LOAD_S": "1"})
    return sparkctl


@pytest.fixture
def screen(home: Sparkctl, tmp_path: Path) -> Iterator[Screen]:
    opened = Screen(tmp_path, home.argv(), home.env)
    yield opened
    opened.close()


def test_an_evening_at_the_panel(spark1: LabNode, screen: Screen) -> None:
    screen.until("spark1 ○ nothing", "spark2", "GiB", "? help")

    screen.press("u")
    shown = screen.until("start a profile", "enter starts")
    while "▸ tiny" not in shown:
        chosen = next(line for line in shown.splitlines() if "▸" in line)
        screen.press("Down")
        shown = screen.until("▸", gone=chosen)
    screen.press("Enter")
    screen.until("spark1 ◐", "tiny", gone="enter starts")
    screen.until("spark1 ● ready", "tiny", ":8101")
    assert spark1.inspect_container("sglang-tiny")["State"]["Status"] == "running"

    if LOGS in AVAILABLE_SCREENS:
        screen.press("l")
        screen.until("› tiny › log", "numbered 0000020")
        screen.press("Escape")
        screen.until("spark1 ● ready", gone="› log")

    screen.until(
        "decode", "idle"
    )  # before that it is not known whether somebody is being answered, and the name is asked
    screen.press("x")
    screen.until("Stop tiny on spark1?", "Cancel")
    screen.press("Tab", "Enter")
    screen.until("spark1 ○ nothing", gone="Stop tiny")
    screen.press(":")
    screen.type("up other --node spark1")
    screen.press("Enter")
    screen.until("spark1 ● ready", "other", ":8102")
    assert list_containers(spark1) == ["sglang-other"]

    before, machine = count_cache_drops(spark1), count_kernel_drops()
    screen.press("c")
    screen.until("caches dropped")
    assert count_cache_drops(spark1) == before + 1
    assert count_kernel_drops() > machine
    screen.press("q")
    screen.until("other goes on running on spark1", "ended with 0")
    assert spark1.inspect_container("sglang-other")["State"]["Status"] == "running"
