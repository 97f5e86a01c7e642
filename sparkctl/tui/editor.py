"""The operator's own editor, on the operator's own terminal, while the panel waits behind it."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from sparkctl.errors import InvalidInput
from sparkctl.tui.outside import outside

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
    """Let the operator edit a file. Raises `InvalidInput` where there is no editor or it cannot be run."""
    await outside(panel, [*editor(), str(path)], "set $EDITOR to your editor")
