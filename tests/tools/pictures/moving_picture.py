"""Makes the moving picture of the README, ``screenshots/demo.gif``: ``python -m tests.tools.pictures.moving_picture``.

A real terminal (tmux) runs sparkctl on the simulated Sparks, and is drawn several times a second. It wants tmux, Debian's
fonts-dejavu-core and ``pip install -e '.[test,pictures]'``.
"""

from __future__ import annotations

import io
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import resvg_py
from PIL import Image
from rich.ansi import AnsiDecoder
from rich.console import Console
from rich.terminal_theme import MONOKAI

from tests.tools.pictures.__main__ import FONTS, PICTURES, make_svg_self_contained

COLUMNS, LINES = 112, 34
WIDTH = 960  # pixels
COLOURS = 96
FRAME_SECONDS = 0.4
KEY_SECONDS = 0.05
LAST_SECONDS = 4.0  # how long the last frame stays, and any other at most: a slow machine is not the story
PATIENCE = 60.0  # seconds


@dataclass(slots=True)
class Terminal:
    """A tmux session of its own server, and what was seen of it: each screen and for how many seconds it stood."""

    socket: Path
    screens: list[tuple[str, float]] = field(default_factory=list)

    def run_tmux(self, *words: str) -> str:
        return subprocess.run(
            ["tmux", "-S", str(self.socket), "-f", "/dev/null", *words], check=True, capture_output=True, text=True
        ).stdout

    def watch(self, seconds: float) -> None:
        """Draw the screen for so long."""
        until = time.monotonic() + seconds
        while (began := time.monotonic()) < until:
            screen = self.run_tmux("capture-pane", "-p", "-e", "-N", "-t", "demo")
            time.sleep(max(0.0, FRAME_SECONDS - (time.monotonic() - began)))
            if self.screens and self.screens[-1][0] == screen:
                self.screens[-1] = (screen, self.screens[-1][1] + FRAME_SECONDS)
            else:
                self.screens.append((screen, FRAME_SECONDS))

    def watch_until(self, text: str) -> None:
        """Draw the screen until it shows this."""
        until = time.monotonic() + PATIENCE
        while text not in self.run_tmux("capture-pane", "-p", "-t", "demo"):
            if time.monotonic() > until:
                raise SystemExit(f"the terminal does not show {text!r}")
            self.watch(FRAME_SECONDS)

    def type_line(self, line: str) -> None:
        """Type a line as a person does, and send it."""
        for at in range(0, len(line), 4):
            self.run_tmux("send-keys", "-t", "demo", "-l", "--", line[at : at + 4])
            self.watch(KEY_SECONDS)
        self.watch(FRAME_SECONDS)
        self.press("Enter")

    def press(self, key: str) -> None:
        self.run_tmux("send-keys", "-t", "demo", key)


@contextmanager
def serve_simulated_sparks() -> Iterator[str]:
    """Run ``sparkctl demo --serve``; yield the lines that name its config."""
    command = [sys.executable, "-m", "sparkctl", "demo", "--serve", "--speed", "1.2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as serving:
        assert serving.stdout is not None
        try:
            yield "".join(serving.stdout.readline() for _ in range(4))  # four lines: export NAME=VALUE
        finally:
            serving.terminate()


def play_story(terminal: Terminal) -> None:
    """What the picture tells: a start with its check and its progress, what runs, and the panel."""
    terminal.type_line("sparkctl plan qwen36-vllm --node spark1")
    terminal.watch_until("then:")
    terminal.watch(3.0)
    terminal.run_tmux("send-keys", "-t", "demo", "C-l")
    terminal.type_line("sparkctl up qwen36-vllm --node spark1")
    terminal.watch_until("http://")
    terminal.watch(1.5)
    terminal.type_line("sparkctl status")
    terminal.watch_until("AGE")
    terminal.watch(2.0)
    terminal.run_tmux("send-keys", "-t", "demo", "C-l")
    terminal.type_line("sparkctl demo --scenario two-stacks")
    terminal.watch_until("tok/s")
    terminal.watch(5.0)
    terminal.press("Enter")
    terminal.watch(5.0)


def draw_screen(screen: str) -> Image.Image:
    """Return a captured screen as a picture."""
    console = Console(
        width=COLUMNS, height=LINES, record=True, file=io.StringIO(), force_terminal=True, color_system="truecolor"
    )
    decoder = AnsiDecoder()  # tmux writes a style once, also where it goes on in the next line
    for line in screen.split("\n")[:LINES]:
        console.print(decoder.decode_line(line), no_wrap=True, overflow="crop", crop=True)
    svg = make_svg_self_contained(console.export_svg(title="sparkctl", theme=MONOKAI))
    png = bytes(resvg_py.svg_to_bytes(svg_string=svg, width=WIDTH, font_dirs=[FONTS], skip_system_fonts=True))
    return Image.open(io.BytesIO(png)).convert("RGB")


def save_moving_picture(screens: Sequence[tuple[str, float]], path: Path) -> None:
    """Write the screens as a GIF in the few colours that all of them share; it repeats."""
    drawn = [draw_screen(screen) for screen, _ in screens]
    strip = Image.new("RGB", (WIDTH, drawn[0].height * min(6, len(drawn))))
    for row in range(min(6, len(drawn))):
        strip.paste(drawn[-1 - row * (len(drawn) // 6)], (0, row * drawn[0].height))
    palette = strip.quantize(COLOURS, dither=Image.Dither.NONE)
    frames = [one.quantize(palette=palette, dither=Image.Dither.NONE) for one in drawn]
    times = [round(min(seconds, LAST_SECONDS) * 1000) for _, seconds in screens]
    times[-1] = round(LAST_SECONDS * 1000)
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=times, loop=0, optimize=True, disposal=1)
    print(path.name, f"{len(frames)} frames, {sum(times) / 1000:.0f} s, {path.stat().st_size >> 10} KiB")


def main() -> None:
    """Play the story in a terminal, and write the picture."""
    with tempfile.TemporaryDirectory() as folder, serve_simulated_sparks() as exports:
        rc = Path(folder) / "rc"
        rc.write_text(
            f"{exports}\nPATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH\nPS1='$ '\n", encoding="utf-8"
        )
        terminal = Terminal(Path(folder) / "tmux")
        environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
        subprocess.run(
            ["tmux", "-S", str(terminal.socket), "-f", "/dev/null", "new-session", "-d", "-s", "demo", "-x", str(COLUMNS),
             "-y", str(LINES), f"COLORTERM=truecolor bash --rcfile {shlex.quote(str(rc))}"],
            check=True, env=environment,
        )  # fmt: skip
        try:
            terminal.run_tmux("set", "-g", "status", "off")
            time.sleep(1.0)
            play_story(terminal)
        finally:
            terminal.run_tmux("kill-server")
    save_moving_picture(terminal.screens, PICTURES / "demo.gif")


if __name__ == "__main__":
    main()
