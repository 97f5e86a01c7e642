"""Symbols and words for states, with an ASCII set."""

from __future__ import annotations

from enum import StrEnum

from sparkctl.model.finding import Severity
from sparkctl.model.node import NodeState
from sparkctl.model.phase import Phase

_PHASE_SYMBOLS = {
    Phase.PLANNED: ("○", "o"),
    Phase.DROPPING_CACHES: ("◐", "*"),
    Phase.CREATING: ("◐", "*"),
    Phase.STARTING: ("◐", "*"),
    Phase.LOADING: ("◐", "*"),
    Phase.WARMING: ("◐", "*"),
    Phase.READY: ("●", "+"),
    Phase.FAILED: ("✕", "x"),
    Phase.STOPPING: ("◐", "*"),
    Phase.STOPPED: ("○", "o"),
    Phase.UNKNOWN: ("◌", "?"),
}
_NODE_STATE_SYMBOLS = {
    NodeState.OK: ("●", "+"),
    NodeState.STARVED: ("◍", "!"),
    NodeState.UNREACHABLE: ("◌", "?"),
    NodeState.UNTRUSTED: ("✕", "x"),
    NodeState.REFUSED: ("✕", "x"),
    NodeState.UNKNOWN: ("◌", "?"),
}
_SEVERITY_SYMBOLS = {
    Severity.GOOD: ("●", "+"),
    Severity.NOTE: ("·", "."),
    Severity.WARNING: ("▲", "!"),
    Severity.PROBLEM: ("✕", "x"),
    Severity.UNKNOWN: ("◌", "?"),
}
_SYMBOLS: dict[StrEnum, tuple[str, str]] = {}
for _table in (_PHASE_SYMBOLS, _NODE_STATE_SYMBOLS, _SEVERITY_SYMBOLS):
    _SYMBOLS.update(_table)  # type: ignore[arg-type]


_ASCII_TRANSLATION = str.maketrans(
    {"—": "-", "–": "-", "≈": "~", "°": None, "·": ".", "↓": "v", "↑": "^", "→": ">", "×": "x", "…": "."}
)


def to_ascii(line: str) -> str:
    """Return a line for a terminal with only ASCII, no longer than before.

    Other characters, such as those of a node's text, become question marks.
    """
    return line.replace(" · ", ", ").translate(_ASCII_TRANSLATION).encode("ascii", "replace").decode("ascii")


def get_state_symbol(state: Phase | NodeState | Severity, ascii_only: bool = False) -> str:
    """Return the one-character symbol of a state."""
    return _SYMBOLS[state][1 if ascii_only else 0]


def format_progress_bar(fraction: float, width: int = 10, ascii_only: bool = False) -> str:
    """Return a progress bar of ``width`` cells for a share 0..1, in eighths of a cell."""
    fraction = min(1.0, max(0.0, fraction))
    if ascii_only:
        full = round(fraction * width)
        return "[" + "#" * full + "-" * (width - full) + "]"
    eighths = round(fraction * width * 8)
    partial = " ▏▎▍▌▋▊▉"[eighths % 8] if eighths % 8 else ""
    return "▕" + ("█" * (eighths // 8) + partial).ljust(width) + "▏"
