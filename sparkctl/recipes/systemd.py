"""A systemd unit whose ExecStart is a `docker run`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sparkctl.errors import InvalidInput
from sparkctl.recipes import docker_line
from sparkctl.recipes.draft import Draft, Kind
from sparkctl.recipes.ledger import Ledger

_SECTION = re.compile(r"^\[(Unit|Service|Install|Container)\]\s*$", re.MULTILINE)
_OURS = ("Description", "ExecStart", "ExecStartPre", "ExecStop", "ExecStopPost", "Type", "Restart", "TimeoutStartSec",
         "TimeoutStopSec", "After", "Requires", "Wants", "WantedBy", "RestartSec", "RemainAfterExit")  # fmt: skip


def is_unit(text: str) -> bool:
    """Tell whether a text is a unit file."""
    return _SECTION.search(text) is not None and "ExecStart" in text


def read(text: str, ledger: Ledger, defined: Mapping[str, str]) -> Draft:
    """Return the draft of the `docker run` in a unit. Raises `InvalidInput` where there is none."""
    joined = re.sub(r"\\[ \t]*\n[ \t]*", " ", text.replace("\r\n", "\n"))
    pairs = [
        line.partition("=")[::2] for line in joined.splitlines() if "=" in line and not line.startswith(("#", ";"))
    ]
    starts = [value.strip() for key, value in pairs if key.strip() == "ExecStart"]
    line = next((value for value in starts if docker_line.is_line(value)), None)
    if line is None:
        raise InvalidInput("the unit starts no `docker run`", "ExecStart= is read")
    environment = _environment(pairs)
    draft = docker_line.read(_unescaped(line), ledger, {**environment, **defined})
    draft.kind = Kind.SYSTEMD
    beside = next((row for row in text.splitlines() if row.startswith(docker_line.BESIDE)), None)
    draft.beside = beside.removeprefix(docker_line.BESIDE) if beside else None
    for key, value in pairs:
        key = key.strip()
        if key == "Description":
            draft.title = value.strip() or None
            ledger.mapped(key, "title")
        elif key in ("Environment", "EnvironmentFile"):
            ledger.mapped(key, "env") if key == "Environment" else ledger.unsupported(
                key, "systemd's own; see env_file"
            )
        elif (key.startswith("ExecStart") and key != "ExecStart") or key.startswith("ExecStop"):
            ledger.unsupported(key, "sparkctl makes room, stops and removes by itself")
        elif key not in _OURS:
            ledger.unsupported(key, "how systemd runs it; sparkctl starts it in another way")
    return draft


def _environment(pairs: list[tuple[str, str]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in pairs:
        if key.strip() == "Environment":
            for match in re.finditer(r'"([A-Za-z_]\w*)=([^"]*)"|([A-Za-z_]\w*)=(\S*)', value):
                found[match[1] or match[3]] = match[2] if match[1] else match[4]
    return found


def _unescaped(line: str) -> str:
    """Undo what a unit needs: ``%%`` and ``$$``, and ``%h`` is the user's home."""
    line = re.sub(r"^[-@:+!]+", "", line)
    return line.replace("%h", "${HOME}").replace("%%", "%").replace("$$", "\\$")
