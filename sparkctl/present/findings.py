"""A finding as text: what is, why it matters, since when, what to do."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sparkctl.model.events import Found
from sparkctl.model.finding import Finding
from sparkctl.model.text import clean
from sparkctl.model.units import spoken
from sparkctl.present.fold import fold
from sparkctl.present.symbols import symbol

_INDENT, _HANG = 4, 6
_SLACK = 1.0  # seconds: a finding that began with the newest sample


def finding_lines(found: Found, ascii_only: bool = False) -> list[str]:
    """Return one line, and the remedy under it where there is one."""
    lines = [f"  {symbol(found.severity, ascii_only)} {found.check:12}  {clean(found.message)}"]
    if found.remedy:
        lines.append(f"    {'':12}  try: {clean(found.remedy)}")
    return lines


def trouble_lines(
    findings: Sequence[Finding], now: float, ascii_only: bool = False, width: int | None = None,
    wanted: Collection[str] | None = None,
) -> list[str]:  # fmt: skip
    """Return the block of what is wrong with a node: the sentence, its evidence and since when, the remedy.

    ``now`` is unix seconds by the node's own clock, as ``since`` is. ``wanted``: of the first finding ``proof 0`` and
    ``try 0``, and so on, those that there is room for beside the sentence; None: all.
    """
    lines: list[str] = []
    for index, one in enumerate(findings):
        proven = wanted is None or f"proof {index}" in wanted
        words = clean(one.summary) if proven else f"{clean(one.summary)} · {since_words(one.since, now)}"
        lines += fold(f"{'':{_INDENT}}{symbol(one.severity, ascii_only)} {words}", width, _HANG)
        if proven:
            lines += fold(f"{'':{_HANG}}{_proof(one, now)}", width, _HANG)
        if one.remedy and (wanted is None or f"try {index}" in wanted):
            lines += fold(f"{'':{_HANG}}try: {clean(one.remedy)}", width, _HANG)
    return lines


def _proof(one: Finding, now: float) -> str:
    parts = [clean(str(figure)) for figure in one.evidence]
    return " · ".join([*parts, since_words(one.since, now)])


def since_words(since: float | None, now: float) -> str:
    """Return since when something is so; both are unix seconds by the node's clock."""
    if since is None:
        return "since before we looked"
    return "since just now" if now - since < _SLACK else f"for {spoken(now - since)}"
