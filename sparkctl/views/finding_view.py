"""A finding as text: what is, why it matters, since when, what to do."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sparkctl.model.events import CommandEnded, FindingReported
from sparkctl.model.finding import Finding, Severity
from sparkctl.model.finding import FindingKind as Kind
from sparkctl.model.node import NodeState
from sparkctl.model.phase import Phase
from sparkctl.model.text.sanitize import sanitize_line, sanitize_lines
from sparkctl.model.text.units import format_duration
from sparkctl.monitor.node_views import NodeTelemetryView
from sparkctl.views.event_text import format_verdict
from sparkctl.views.overview.event_log_view import EventLogEntry
from sparkctl.views.text.line_wrap import wrap_line
from sparkctl.views.text.state_symbols import get_state_symbol
from sparkctl.views.text.styled_text import TextRow, TextStyle, make_row, sanitize_span

_INDENT_COLUMNS, _HANG_COLUMNS = 4, 6
_JUST_NOW_SECONDS = 1.0  # seconds: a finding that began with the newest sample


def format_finding(found: FindingReported, ascii_only: bool = False) -> list[str]:
    """Return one line, and the remedy under it where there is one."""
    lines = [f"  {get_state_symbol(found.severity, ascii_only)} {found.check:12}  {sanitize_line(found.message)}"]
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
        lines += wrap_line(
            f"{'':{_INDENT_COLUMNS}}{get_state_symbol(one.severity, ascii_only)} {words}", width, _HANG_COLUMNS
        )
        if proven:
            lines += wrap_line(f"{'':{_HANG_COLUMNS}}{_format_evidence(one, now)}", width, _HANG_COLUMNS)
        if one.remedy and (wanted is None or f"try {index}" in wanted):
            lines += wrap_line(f"{'':{_HANG_COLUMNS}}try: {sanitize_line(one.remedy)}", width, _HANG_COLUMNS)
    return lines


def _format_evidence(one: Finding, now: float) -> str:
    parts = [sanitize_line(str(figure)) for figure in one.evidence]
    return " · ".join([*parts, format_since(one.since, now)])


def format_since(since: float | None, now: float) -> str:
    """Return since when something is so; both are unix seconds by the node's clock."""
    if since is None:
        return "since before we looked"
    return "since just now" if now - since < _JUST_NOW_SECONDS else f"for {format_duration(now - since)}"


FINDING_EXPLANATIONS: dict[Kind, str] = {
    Kind.STUCK_CLOCK: "At this clock it decodes at a fraction of its speed, however the engine is set.",
    Kind.SLOW_PATH: "Weights are unpacked to 16 bits for every step: what they save of memory is not gained in speed.",
    Kind.THERMAL: "A GPU that is too hot slows down, and the engine with it.",
    Kind.BUSY_WAIT: "It costs power and heat that the GPU could have, and no request is served by it.",
    Kind.SWAP: "An engine in swap answers in minutes, and the node may freeze without ever saying that memory is out.",
    Kind.PAGE_CACHE: "Engines ask what is free, and page cache is not: a start fails although there is room.",
    Kind.IDLE_FUNCTION: "The link has two functions that share its speed: with one idle, half of it is left unused.",
    Kind.FABRIC_ROUTE: "Two Sparks that work together would talk over the slow network.",
    Kind.GID: "With another GID than its partner's, RDMA fails or falls back to TCP.",
    Kind.RDMA_OFF: "Without RDMA, what two Sparks send each other goes through the CPU.",
    Kind.DISK: "A full disk stops Docker, logs and the download of models.",
    Kind.ORPHAN: "It holds memory that the next start is going to miss.",
    Kind.RESTART_LOOP: "Each of its starts takes the memory and the disk from whatever else runs.",
    Kind.NOT_GENERATING: "It takes requests and answers none: its clients wait for nothing.",
    Kind.PARTNER: "A model on several Sparks answers only with all of them; what is left alone holds its memory for nothing.",
    Kind.MIN_FREE: "What the kernel keeps for itself, no engine can have.",
    Kind.SWAPPINESS: "Page cache is read again in seconds; an engine that was swapped out crawls.",
    Kind.EARLYOOM: "It has to act before the kernel does, and not before an engine is in trouble.",
    Kind.DIFFERENCE: "Engines that span two Sparks fail on unlike drivers, and figures do not compare.",
    Kind.SETTINGS: "What is set and what is written down should be the same, or a restart changes it.",
    Kind.KHO: "That memory is lost to every engine until the node is started without it.",
    Kind.VERSIONS: "What an engine supports depends on them; a bug report begins with them.",
    Kind.CONNECTION: "Everything sparkctl does on a node goes through this one SSH connection.",
    Kind.CLOCK: "Logs of two nodes are merged by their clocks, and `--since` counts by the node's.",
    Kind.MEMORY: "The GPU has no memory of its own: what is available here is all there is.",
    Kind.DROP_CACHES: "Before a start the page cache is dropped, or the engine finds too little memory.",
    Kind.PYTHON: "The live figures come from a small program that needs it on the node.",
    Kind.DOCKER: "Engines run in its containers.",
    Kind.GPU: "Without it a container starts and finds no GPU.",
    Kind.NVIDIA_SMI: "It says which process holds how much of the GPU's memory.",
    Kind.MODELS: "Profiles mount models from there.",
    Kind.FABRIC: "A model over several Sparks is as fast as the slowest lane between them.",
    Kind.RDMA: "With it what two Sparks send each other goes past the CPU; NCCL has to find it at its GID index.",
}  # fmt: skip


def explain_finding(check: str) -> str | None:
    """Return why a check matters; None for one that this version does not know."""
    return FINDING_EXPLANATIONS[Kind(check)] if check in set(Kind) else None


_BAD_STYLES = (TextStyle.BAD, TextStyle.ATTENTION)
_MAX_GUARD_ACTIONS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeProblems:
    """What is told about one node at ``now``, unix seconds by its own clock. ``view`` may be None: nothing is known.

    ``ends``: how starts ended, by instance. ``notices``: what the last things done there have led to. ``fault`` and
    ``hint``: of the config.
    """

    view: NodeTelemetryView | None
    now: float
    ends: Mapping[str, CommandEnded]
    happened: Sequence[EventLogEntry] = ()
    notices: Sequence[tuple[str, TextStyle]] = ()
    fault: str | None = None
    hint: str | None = None

    @property
    def has_other_problems(self) -> bool:
        """Tell whether there is anything that is no finding."""
        return bool(
            self.fault or self.is_unreachable or self.failed_instances or self.guard_actions or self.bad_notices
        )

    @property
    def is_unreachable(self) -> bool:
        """Tell whether the node does not answer, and why is known."""
        return self.view is not None and self.view.state is not NodeState.OK and bool(self.view.detail)

    @property
    def failed_instances(self) -> tuple[tuple[str, CommandEnded | None, str | None], ...]:
        """The instances that failed: name, how where that is known, and the words of its last phase."""
        there = {one.name: one for one in (self.view.instances if self.view else ())}
        listed = {name: one for name, one in there.items() if one.ours and one.phase is Phase.FAILED}
        gone = [name for name, end in self.ends.items() if end.verdict is not None and name not in there]
        return (
            *((name, self.ends.get(name), one.detail) for name, one in listed.items()),
            *((name, self.ends[name], None) for name in gone),
        )

    @property
    def guard_actions(self) -> tuple[EventLogEntry, ...]:
        """What the guard warned of or did lately, the latest last."""
        mine = [one for one in self.happened if self.view is not None and one.node == self.view.name]
        return tuple(one for one in mine if one.what[0] == "guard" and one.tone in _BAD_STYLES)[-_MAX_GUARD_ACTIONS:]

    @property
    def bad_notices(self) -> tuple[str, ...]:
        """The notices of what went wrong, but for those that are told here in full."""
        failed = [name for name, end, _ in self.failed_instances if end is not None]
        return tuple(
            words for words, tone in self.notices
            if tone in _BAD_STYLES and "guard: " not in words and not any(f" {name} failed" in words for name in failed)
        )  # fmt: skip


def render_problems(wrong: NodeProblems, columns: int, ascii_only: bool = False) -> list[TextRow]:
    """Return all of it, each part with its sign."""
    bad, warned = get_state_symbol(Phase.FAILED, ascii_only), get_state_symbol(Severity.WARNING, ascii_only)
    blocks: list[list[str]] = []
    if wrong.fault:
        lines = [f"{bad} the config is not taken in; what was read before it stays", *sanitize_lines(wrong.fault)]
        blocks.append([*lines, *([f"try: {sanitize_line(wrong.hint)}"] if wrong.hint else [])])
    view = wrong.view
    if wrong.is_unreachable and view is not None:
        lines = [f"{bad} {view.state}: {sanitize_line(view.detail or '')}"]
        blocks.append([*lines, *([f"try: {sanitize_line(view.hint)}"] if view.hint else [])])
    for name, end, detail in wrong.failed_instances:
        head = f"{bad} {sanitize_line(name)} failed"
        if end is not None and end.verdict is not None:
            blocks.append([head, *format_verdict(end.verdict, name, None if view is None else view.name)])
        else:
            blocks.append([head + (f": {sanitize_line(detail)}" if detail else "; enter on it says why")])
    for one in wrong.guard_actions:
        when = time.strftime("%H:%M:%S", time.localtime(one.when))
        blocks.append([f"{bad if one.tone is TextStyle.BAD else warned} guard, {when}: {sanitize_line(one.text)}"])
    blocks += [[sanitize_line(words)] for words in wrong.bad_notices]
    lines = [
        part
        for block in blocks
        for at, line in enumerate(block)
        for part in _wrap_text(line.strip(), " " * (6 if at else 4), columns)
    ]
    if view is not None:
        lines += format_node_findings(view.findings, wrong.now, ascii_only, columns)
    return [make_row(sanitize_span(line)) for line in lines]


def _wrap_text(line: str, indent: str, columns: int) -> list[str]:
    """Return a line as lines; a word that is longer than one, as the path of a file is, goes on in the next."""
    wide = max(20, columns)
    return textwrap.wrap(line, wide, initial_indent=indent, subsequent_indent=" " * 6, break_on_hyphens=False)
