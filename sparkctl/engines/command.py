"""What stands on a command line, whoever starts it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

_SHELLS = ("sh", "bash", "dash", "zsh", "ash")


def find_shell_script(words: Sequence[str]) -> int | None:
    """Return where in ``bash -lc SCRIPT`` the script stands, whatever follows it; None for a command that is no such shell.

    What follows reaches the script alone (``$0``, ``$1``): flags added to such a command reach nobody.
    """
    if len(words) < 3 or words[0].rpartition("/")[2] not in _SHELLS:
        return None
    at = 1
    while at < len(words) - 1 and words[at].startswith("-") and not words[at].startswith("--"):
        if "c" in words[at]:
            return at + 1
        at += 2 if words[at] == "-o" else 1
    return None
