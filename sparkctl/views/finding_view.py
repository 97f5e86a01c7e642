"""A finding as text: what is, why it matters, since when, what to do."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sparkctl.model.events import FindingReported
from sparkctl.model.finding import Finding
from sparkctl.model.sanitize import sanitize_line
from sparkctl.model.units import format_duration
from sparkctl.views.text.line_wrap import wrap_line
from sparkctl.views.text.state_symbols import state_symbol

_INDENT, _HANG = 4, 6
_SLACK = 1.0  # seconds: a finding that began with the newest sample


def format_finding(found: FindingReported, ascii_only: bool = False) -> list[str]:
    """Return one line, and the remedy under it where there is one."""
    lines = [f"  {state_symbol(found.severity, ascii_only)} {found.check:12}  {sanitize_line(found.message)}"]
    if found.remedy:
        lines.append(f"    {'':12}  try: {sanitize_line(found.remedy)}")
    return lines


def format_node_findings(
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
        words = (
            sanitize_line(one.summary) if proven else f"{sanitize_line(one.summary)} · {format_since(one.since, now)}"
        )
        lines += wrap_line(f"{'':{_INDENT}}{state_symbol(one.severity, ascii_only)} {words}", width, _HANG)
        if proven:
            lines += wrap_line(f"{'':{_HANG}}{_format_evidence(one, now)}", width, _HANG)
        if one.remedy and (wanted is None or f"try {index}" in wanted):
            lines += wrap_line(f"{'':{_HANG}}try: {sanitize_line(one.remedy)}", width, _HANG)
    return lines


def _format_evidence(one: Finding, now: float) -> str:
    parts = [sanitize_line(str(figure)) for figure in one.evidence]
    return " · ".join([*parts, format_since(one.since, now)])


def format_since(since: float | None, now: float) -> str:
    """Return since when something is so; both are unix seconds by the node's clock."""
    if since is None:
        return "since before we looked"
    return "since just now" if now - since < _SLACK else f"for {format_duration(now - since)}"
