"""A profile in the operator's editor, checked on return; a shipped one is copied to the operator's own first."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from sparkctl.core.profiles import ProfileLibrary
from sparkctl.errors import SparkctlError
from sparkctl.tui.editor import edit

if TYPE_CHECKING:
    from sparkctl.tui.app import Panel


async def edit_profile(panel: Panel, name: str) -> None:
    """Let a profile be edited, and say what is wrong with it then."""
    library = ProfileLibrary()
    try:
        path, copied = await asyncio.to_thread(library.own, name)
        before = path.read_bytes()
        try:
            await edit(panel, path)
        finally:
            same = path.exists() and path.read_bytes() == before
            if copied and same:
                path.unlink()
        _tell(panel, name, path, await asyncio.to_thread(_faults, library, path), copied=copied, same=same)
    except SparkctlError as error:
        panel.say(error.message + (f"\n{error.hint}" if error.hint else ""), severity="error")
    except OSError as error:
        panel.say(f"{error.filename or name}: {error.strerror or error}", severity="error")


def _tell(panel: Panel, name: str, path: Path, faults: tuple[str, ...], *, copied: bool, same: bool) -> None:
    if faults:
        panel.say("\n".join(faults[:3]), severity="error")
    elif same:
        panel.say(f"{name}: nothing was changed" + (", the shipped one stays" if copied else ""))
    else:
        panel.say(f"{name}: good" + (f"; yours now goes before the shipped one: {path}" if copied else ""))


def _faults(library: ProfileLibrary, path: Path) -> tuple[str, ...]:
    """Return what is wrong with a file that was edited; nothing of one that is no longer there."""
    return tuple(map(str, library.check(path))) if path.exists() else ()
