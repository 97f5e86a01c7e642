"""A terminal with a program in it: keys go in, and what a person would see comes out."""

from __future__ import annotations

import shlex
import subprocess
import time
from pathlib import Path

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
            time.sleep(0.25)  # asking takes the time of two processes

    def close(self) -> None:
        """End the terminal and what is in it."""
        self._tmux("kill-server")
