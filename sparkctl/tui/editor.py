"""The operator's own editor, on the operator's own terminal, while the panel waits behind it."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from sparkctl.errors import InvalidInput

if TYPE_CHECKING:
    from sparkctl.tui.app import Panel

_USUAL = ("nano", "vi")


def editor() -> list[str]:
    """Return the editor's words: ``$VISUAL``, ``$EDITOR``, or what is there. Raises `InvalidInput` for none."""
    for name in ("VISUAL", "EDITOR"):
        try:
            if words := shlex.split(os.environ.get(name, "")):
                return words
        except ValueError as wrong:
            raise InvalidInput(f"${name}: {wrong}", f"export {name}=nano") from wrong
    found = next((path for name in _USUAL if (path := shutil.which(name))), None)
    if found is None:
        raise InvalidInput("no editor is known", "export EDITOR=nano")
    return [found]


async def edit(panel: Panel, path: Path) -> None:
    """Let the operator edit a file. The nodes are followed meanwhile, and nothing is painted.

    Raises `InvalidInput` where there is no editor or it cannot be run.
    """
    words = [*editor(), str(path)]
    loop = asyncio.get_running_loop()
    with panel.batch_update(), nullcontext() if panel.is_headless else panel.suspend():
        with suppress(NotImplementedError, ValueError, RuntimeError):  # not the main thread
            loop.add_signal_handler(signal.SIGINT, lambda: None)  # Ctrl-C is the editor's
        try:
            process = await asyncio.create_subprocess_exec(*words)
            await process.wait()
        except OSError as error:
            raise InvalidInput(f"{words[0]} cannot be run: {error.strerror}", "set $EDITOR to your editor") from error
        finally:
            with suppress(NotImplementedError, ValueError, RuntimeError):
                loop.remove_signal_handler(signal.SIGINT)
    panel.refresh(layout=True)
