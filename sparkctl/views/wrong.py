"""All that is wrong with a Spark, to be read in full: the config, the connection, failed instances, the guard, findings."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sparkctl.model.events import CommandEnded
from sparkctl.model.finding import Severity
from sparkctl.model.node import NodeState
from sparkctl.model.phase import Phase
from sparkctl.model.sanitize import sanitize_line, sanitize_lines
from sparkctl.monitor.node_views import NodeTelemetryView
from sparkctl.views.event_text import format_verdict
from sparkctl.views.finding_view import format_node_findings
from sparkctl.views.overview.event_log_view import EventLogEntry
from sparkctl.views.text.state_symbols import state_symbol
from sparkctl.views.text.styled_text import TextRow, TextStyle, make_row, sanitized

_BAD = (TextStyle.BAD, TextStyle.ATTENTION)
_MOST_ACTS = 5


@dataclass(frozen=True, slots=True)
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
    def is_more_than_findings(self) -> bool:
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
        return tuple(one for one in mine if one.what[0] == "guard" and one.tone in _BAD)[-_MOST_ACTS:]

    @property
    def bad_notices(self) -> tuple[str, ...]:
        """The notices of what went wrong, but for those that are told here in full."""
        failed = [name for name, end, _ in self.failed_instances if end is not None]
        return tuple(
            words for words, tone in self.notices
            if tone in _BAD and "guard: " not in words and not any(f" {name} failed" in words for name in failed)
        )  # fmt: skip


def render_problems(wrong: NodeProblems, columns: int, ascii_only: bool = False) -> list[TextRow]:
    """Return all of it, each part with its sign."""
    bad, warned = state_symbol(Phase.FAILED, ascii_only), state_symbol(Severity.WARNING, ascii_only)
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
    return [make_row(sanitized(line)) for line in lines]


def _wrap_text(line: str, indent: str, columns: int) -> list[str]:
    """Return a line as lines; a word that is longer than one, as the path of a file is, goes on in the next."""
    wide = max(20, columns)
    return textwrap.wrap(line, wide, initial_indent=indent, subsequent_indent=" " * 6, break_on_hyphens=False)
