"""Lists the host names in the operator's ``~/.ssh/config``, to tell an alias from a typing error."""

from __future__ import annotations

import re
from pathlib import Path

from sparkctl.files import read_regular_file

_LINE_PATTERN = re.compile(r"(?P<word>[A-Za-z]++)(?:\s*+=|\s)(?P<rest>.*)")
_WORD_PATTERN = re.compile(r'"([^"]*)"|(\S+)')
_MAX_INCLUDE_DEPTH = 4
_MAX_CONFIG_BYTES = 1 << 20  # bytes


def list_ssh_aliases(path: Path | None = None) -> tuple[str, ...]:
    """Return every ``Host`` that is a plain name, from included files too, in the order of the files.

    An unreadable file has no names: connecting reports its error.
    """
    found: dict[str, None] = {}
    _collect_aliases(path or Path.home() / ".ssh" / "config", 0, found)
    return tuple(found)


def _collect_aliases(path: Path, depth: int, found: dict[str, None]) -> None:
    try:
        lines = read_regular_file(path, _MAX_CONFIG_BYTES).decode("utf-8", "replace").splitlines()
    except OSError:
        return
    for line in lines:
        match = _LINE_PATTERN.fullmatch(line.strip())
        if match is None:
            continue
        words = [first or second for first, second in _WORD_PATTERN.findall(match["rest"])]
        if match["word"].lower() == "host":
            found.update((word, None) for word in words if not re.search(r"[*?!]", word))
        elif match["word"].lower() == "include" and depth < _MAX_INCLUDE_DEPTH:
            for word in words:
                for included in _list_included_files(word):
                    _collect_aliases(included, depth + 1, found)


def _list_included_files(pattern: str) -> list[Path]:
    """Return the files of an Include; relative paths are in ~/.ssh, as in ssh."""
    home = str(Path.home())
    absolute = Path(home + pattern[1:]) if pattern.startswith("~/") else Path(home, ".ssh", pattern)
    return sorted(Path("/").glob(str(absolute.relative_to("/"))))
