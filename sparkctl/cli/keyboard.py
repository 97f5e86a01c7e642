"""Reading a line from the terminal on the event loop: Ctrl-C ends it at once, and the terminal is left as it was."""

from __future__ import annotations

import asyncio
import os
import sys
import termios

from sparkctl.cli import stderr

_LONGEST = 4096


async def read_line(prompt: str, *, echo: bool = True) -> str:
    """Return what is typed up to Enter, without it; "" at the end of input. Nothing else is shown meanwhile.

    No thread: one that waits for a key could not be ended, and the program would stay until the key came.
    """
    keyboard = sys.stdin.fileno()
    loop = asyncio.get_running_loop()
    typed: asyncio.Future[str] = loop.create_future()

    def take() -> None:
        if not typed.done():
            typed.set_result(os.read(keyboard, _LONGEST).decode("utf-8", "replace").rstrip("\r\n"))

    before = termios.tcgetattr(keyboard)
    stderr.pause_live_line(True)
    try:
        if not echo:
            silent = termios.tcgetattr(keyboard)
            silent[3] &= ~termios.ECHO
            termios.tcsetattr(keyboard, termios.TCSAFLUSH, silent)
        stderr.print_prompt(prompt)
        loop.add_reader(keyboard, take)
        return await typed
    finally:
        loop.remove_reader(keyboard)
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
        if not echo or not typed.done():
            stderr.print_message()
        stderr.pause_live_line(False)
