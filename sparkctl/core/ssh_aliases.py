"""The names in the operator's ``~/.ssh/config``, to tell an alias from a typing error."""

from __future__ import annotations

import glob
import re
from pathlib import Path

_LINE = re.compile(r"\s*(?P<word>[A-Za-z]+)(?:\s*=\s*|\s+)(?P<rest>.*?)\s*")
_WORD = re.compile(r'"([^"]*)"|(\S+)')
_DEEPEST = 4


def ssh_aliases(path: Path | None = None) -> tuple[str, ...]:
    """Return every ``Host`` that is a plain name, included files too, in the order of the files.

    A file that cannot be read has no names: connecting will say what is wrong with it.
    """
    found: dict[str, None] = {}
    _collect(path or Path.home() / ".ssh" / "config", 0, found)
    return tuple(found)


def _collect(path: Path, depth: int, found: dict[str, None]) -> None:
    try:
        lines = path.read_text("utf-8", "replace").splitlines()
    except OSError:
        return
    for line in lines:
        match = _LINE.fullmatch(line)
        if match is None:
            continue
        words = [first or second for first, second in _WORD.findall(match["rest"])]
        if match["word"].lower() == "host":
            found.update((word, None) for word in words if not re.search(r"[*?!]", word))
        elif match["word"].lower() == "include" and depth < _DEEPEST:
            for word in words:
                for name in sorted(glob.glob(str(_from_ssh_directory(word)))):
                    _collect(Path(name), depth + 1, found)


def _from_ssh_directory(word: str) -> Path:
    path = Path(word).expanduser() if word.startswith(("~/", "~")) and "/" in word else Path(word)
    return path if path.is_absolute() else Path.home() / ".ssh" / path
