"""The panel as a person drives it: keys into a terminal, and what is on its screen, on real nodes."""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkctl.core.actions import LOGS
from sparkctl.tui.screens import AVAILABLE
from tests.lab.bed.node import LabNode
from tests.lab.command import Sparkctl
from tests.lab.outcomes import containers, inspect
from tests.lab.test_hands import drops

PATIENCE = 40.0
COLUMNS, LINES = 100, 32


class Screen:
    """A terminal of tmux, on a server of its own, with one program in it."""

    def __init__(self, directory: Path, argv: list[str], env: dict[str, str]) -> None:
        self._socket = str(directory / "tmux")
        rules = directory / "tmux.conf"
        rules.write_text("set -g status off\nset -s escape-time 0\n")
        self._tmux(
            "-f", str(rules), "new-session", "-d", "-x", str(COLUMNS), "-y", str(LINES),
            f"{shlex.join(argv)}; echo ended with $?; exec cat", env=env,
        )  # fmt: skip

    def _tmux(self, *words: str, env: dict[str, str] | None = None) -> str:
        return subprocess.run(
            ["tmux", "-u", "-S", self._socket, *words], env=env, check=True, capture_output=True, text=True, timeout=20
        ).stdout

    def shown(self) -> str:
        """Return what a person sees."""
        return self._tmux("capture-pane", "-p")

    def press(self, *keys: str) -> None:
        """Press keys, by tmux's names for them."""
        self._tmux("send-keys", *keys)

    def type(self, text: str) -> None:
        """Type a text."""
        self._tmux("send-keys", "-l", text)

    def until(self, *parts: str, gone: str | None = None, within: float = PATIENCE) -> str:
        """Wait until all parts are seen, and ``gone`` is not; return the screen."""
        end = time.monotonic() + within
        while True:
            shown = self.shown()
            if all(part in shown for part in parts) and (gone is None or gone not in shown):
                return shown
            assert time.monotonic() < end, f"{parts} without {gone!r} not seen in {within} s:\n{shown}"
            time.sleep(0.1)

    def close(self) -> None:
        """End the terminal and what is in it."""
        self._tmux("kill-server")


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
    assert inspect(spark1, "sglang-tiny")["State"]["Status"] == "running"

    if LOGS in AVAILABLE:
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
    assert containers(spark1) == ["sglang-other"]

    before = drops(spark1)
    screen.press("c")
    screen.until("caches dropped")
    assert drops(spark1) == before + 1
    screen.press("q")
    screen.until("other goes on running on spark1", "ended with 0")
    assert inspect(spark1, "sglang-other")["State"]["Status"] == "running"
