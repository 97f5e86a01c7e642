"""Runs another program, such as an editor or ssh, on the terminal while the panel is suspended."""

from __future__ import annotations

import asyncio
import signal
from asyncio.subprocess import PIPE
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING

from sparkctl.errors import InvalidInput

if TYPE_CHECKING:
    from sparkctl.tui.panel import Panel


async def run_external_program(
    panel: Panel, words: Sequence[str], hint: str, *, listen: bool = False
) -> tuple[int, str]:
    """Run a program to its end; return its exit status and, with ``listen``, its stderr.

    The nodes are followed meanwhile; nothing is painted. Raises `InvalidInput` with ``hint`` where it cannot be run.
    """
    loop = asyncio.get_running_loop()
    with panel.batch_update(), nullcontext() if panel.is_headless else panel.suspend():
        with suppress(NotImplementedError, ValueError, RuntimeError):  # not the main thread
            loop.add_signal_handler(signal.SIGINT, lambda: None)  # Ctrl-C is for the program
        try:
            process = await asyncio.create_subprocess_exec(*words, stderr=PIPE if listen else None)
            _, stderr = await process.communicate()
        except OSError as error:
            raise InvalidInput(f"{words[0]} cannot be run: {error.strerror}", hint) from error
        finally:
            panel.keyboard.resume_input()
            with suppress(NotImplementedError, ValueError, RuntimeError):
                loop.remove_signal_handler(signal.SIGINT)
    panel.refresh(layout=True)
    return process.returncode or 0, (stderr or b"").decode(errors="replace")
