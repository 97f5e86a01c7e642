"""Start `collect.py` on a node and decode its lines as readings. Data from a node is not trusted."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from sparkctl.model.text.sanitize import load_json
from sparkctl.node.bootstrap import RemoteProgram, build_program, pack_pynvml

END_NAME = "end"
_NAME_PATTERN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(?:/[A-Za-z0-9_][A-Za-z0-9_.-]*){0,8}")
_MAX_NAME_CHARS = 200
_MAX_READINGS = 500
_MAX_READING_CHARS = 1 << 20  # maximum characters of one reading


@dataclass(frozen=True, slots=True)
class CollectedReading:
    """One reading by its name (a path without its first slash, or a name of sparkctl). ``why``: why it is incomplete."""

    name: str
    text: str
    why: str | None = None
    cut: bool = False


def build_collect_program(root: str = "", nvml: bytes | None = None, python: str = "python3") -> RemoteProgram:
    """Return the program's start command. ``root``: where the node's /proc and /sys are; ``nvml``: as for the agent."""
    packed = pack_pynvml(nvml, "collect")
    return build_program(
        "sparkctl-collect", ["kernel_log", "agent", "collect"], [str(len(packed)), root], packed, python
    )


@dataclass(slots=True)
class ReadingCollector:
    """Collects lines. ``whole``: the end was received."""

    whole: bool = False
    _pieces: dict[str, list[str]] = field(default_factory=dict)
    _ended: dict[str, tuple[str | None, bool]] = field(default_factory=dict)

    def add_line(self, line: bytes) -> None:
        """Add a line; a foreign line (a login shell's greeting) is ignored."""
        try:
            said = load_json(line)
        except (ValueError, RecursionError):
            return
        name = said.get("name") if isinstance(said, dict) else None
        if not isinstance(name, str) or len(name) > _MAX_NAME_CHARS or not _NAME_PATTERN.fullmatch(name):
            return
        if name == END_NAME:
            self.whole = True
        elif name in self._pieces or len(self._pieces) < _MAX_READINGS:
            pieces = self._pieces.setdefault(name, [])
            text = said.get("text")
            if isinstance(text, str) and sum(map(len, pieces)) + len(text) <= _MAX_READING_CHARS:
                pieces.append(text)
            if said.get("end") is True:
                why = said.get("why")
                self._ended[name] = (why if isinstance(why, str) else None, said.get("cut") is True)

    def list_readings(self) -> tuple[CollectedReading, ...]:
        """Return the readings; one without its end is marked as incomplete."""
        unfinished = ("the node went silent in the middle of it", False)
        return tuple(
            CollectedReading(name, "".join(pieces), *self._ended.get(name, unfinished))
            for name, pieces in self._pieces.items()
        )
