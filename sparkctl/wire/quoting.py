"""Command lines that mean the same to every login shell we meet on a Spark: sh, dash, bash, zsh and fish."""

from __future__ import annotations

import re
from collections.abc import Sequence

# Without "=" (zsh expands =word), "%" and "@" (old fish) that shlex would leave bare.
_BARE = re.compile(r"[A-Za-z0-9_./:,+-]+")
_PART = re.compile(r"[^'\\]+|['\\]")


def quote(word: str) -> str:
    """Return ``word`` quoted. fish reads backslashes inside single quotes, so those stand in double quotes.

    Raises ValueError for a NUL, which no argument can hold.
    """
    if "\0" in word:
        raise ValueError("an argument cannot contain a NUL byte")
    if _BARE.fullmatch(word):
        return word
    return "".join(_quoted(part) for part in _PART.findall(word)) or "''"


def command_line(argv: Sequence[str]) -> str:
    """Return the command line for a remote exec request; ``argv`` arrives word for word."""
    if not argv:
        raise ValueError("a command needs at least one word")
    return " ".join(quote(word) for word in argv)


def _quoted(part: str) -> str:
    if part == "'":
        return '"\'"'
    if part == "\\":
        return '"\\\\"'
    return f"'{part}'"
