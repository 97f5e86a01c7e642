"""The operator's own editor, on the operator's own terminal, while the panel waits behind it."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sparkctl.errors import InvalidInput
from sparkctl.tui.external_program import run_external_program

if TYPE_CHECKING:
    from sparkctl.tui.app import PanelApp

_USUAL = ("nano", "vi")
_PLUS = (  # +LINE FILE
    "vi", "vim", "nvim", "view", "gvim", "nano", "pico", "emacs", "emacsclient", "joe", "jed", "kak", "micro", "mg", "ne",
)  # fmt: skip
_BEHIND = ("hx", "helix", "subl", "zed")  # FILE:LINE:COLUMN
_GOTO = ("code", "code-insiders", "codium", "cursor", "windsurf")  # --goto FILE:LINE:COLUMN
_WINDOWS = (*_GOTO, "subl", "zed")  # they go on in a window of their own, and return at once unless asked not to


def find_editor() -> list[str]:
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


def build_editor_argv(
    words: Sequence[str], path: Path, line: int | None = None, column: int | None = None
) -> list[str]:
    """Return what opens a file in an editor, at a line and a column where it is known how this one is told."""
    name = Path(words[0]).name
    wait = ["--wait"] if name in _WINDOWS and not {"--wait", "-w"} & set(words) else []
    if line is None or name not in (*_PLUS, *_BEHIND, *_GOTO):
        return [*words, *wait, str(path)]
    if name in _PLUS:
        return [*words, f"+{line}", str(path)]
    return [*words, *wait, *(["--goto"] if name in _GOTO else []), f"{path}:{line}:{column or 1}"]


async def open_editor(panel: PanelApp, path: Path, line: int | None = None, column: int | None = None) -> int:
    """Let the operator edit a file, at a line where there is one; return the editor's exit status, negative for a signal.

    Raises `InvalidInput` where there is no editor or it cannot be run.
    """
    status, _ = await run_external_program(
        panel, build_editor_argv(find_editor(), path, line, column), "set $EDITOR to your editor"
    )
    return status
