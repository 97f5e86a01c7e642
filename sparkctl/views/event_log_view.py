"""The event log and the notices as text."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import TYPE_CHECKING

from sparkctl.model.events import CachesDropped, CommandEnded, GuardActed, NodeStateChanged, PhaseChanged
from sparkctl.model.finding import Severity
from sparkctl.model.guard_state import GuardAction
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.phase import Phase
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.text.units import format_clock, format_time_of_day
from sparkctl.monitor.activity import Notice
from sparkctl.monitor.event_log import ContainerChanged, EventLogEntry, KernelEventLogged, StartRefused
from sparkctl.views.event_text import format_cache_drop, format_guard_event, format_phase_name
from sparkctl.views.text.styled_text import Span, TextRow, TextStyle, make_row, pad_text, sanitize_span

if TYPE_CHECKING:
    from sparkctl.history.model import OperationRecord

_NOTICE_STYLES = {
    Severity.GOOD: TextStyle.GOOD,
    Severity.WARNING: TextStyle.ATTENTION,
    Severity.NOTE: TextStyle.ACCENT,
}
_PHASE_STYLES = {Phase.READY: TextStyle.GOOD, Phase.UNPROVED: TextStyle.ATTENTION, Phase.FAILED: TextStyle.BAD}


def style_notice(one: Notice) -> tuple[str, TextStyle]:
    """Return the words of a notice and their style."""
    return one.text, _NOTICE_STYLES.get(one.severity, TextStyle.BAD)


def describe_log_entry(one: EventLogEntry) -> tuple[str, TextStyle]:
    """Return what an entry means to an owner, and its style."""
    event = one.event
    match event:
        case PhaseChanged():
            words, style = (
                f"{event.instance}: {format_phase_name(event.phase)}",
                _PHASE_STYLES.get(event.phase, TextStyle.VALUE),
            )
            is_timed = event.phase in _PHASE_STYLES and event.elapsed is not None
            return words + (f" after {format_clock(event.elapsed or 0.0)}" if is_timed else ""), style
        case ContainerChanged(phase=None):
            return f"{event.instance}: gone from Docker's list", TextStyle.ATTENTION
        case ContainerChanged(phase=Phase() as phase):
            words = f"{event.instance}: {format_phase_name(phase)}" + (f", {event.status}" if event.status else "")
            return words, _PHASE_STYLES.get(phase, TextStyle.VALUE)
        case CachesDropped():
            return format_cache_drop(event), TextStyle.VALUE
        case GuardActed():
            style = TextStyle.ATTENTION if event.what is GuardAction.WARNED else TextStyle.BAD
            return format_guard_event(event), style
        case NodeStateChanged(state=NodeState.OK):
            return "answers", TextStyle.VALUE
        case NodeStateChanged():
            return f"{event.state}" + (f": {event.detail}" if event.detail else ""), TextStyle.ATTENTION
        case KernelEventLogged():
            logged = event.event
            style = TextStyle.BAD if logged.severity is Severity.PROBLEM else TextStyle.ATTENTION
            return f"kernel: {logged.meaning}", style
        case StartRefused():
            return f"{' '.join(event.words[:2])} refused: {event.reason}", TextStyle.ATTENTION
        case CommandEnded():
            return f"{event.instance}: failed: {event.verdict.summary if event.verdict else ''}", TextStyle.BAD
        case _:
            raise AssertionError(f"no words for {event!r}")


def render_event_log_entry(one: EventLogEntry, names: int, explained: Collection[tuple[NodeName, str]] = ()) -> TextRow:
    """Return an entry as a row; ``names`` is the width of the node's name. ``explained``: the instances whose failure is explained
    on the same screen."""
    words, tone = describe_log_entry(one)
    if isinstance(one.event, CommandEnded) and (one.node, one.event.instance) in explained:
        words = f"{one.event.instance}: failed after {format_clock(one.event.seconds)}"
    return _render_row(format_time_of_day(one.when, has_seconds=True), one.node, names, sanitize_span(words, tone))


def render_past_operation(one: OperationRecord, names: int) -> TextRow:
    """Return what was done before the panel was opened as a row like those of the event log."""
    from sparkctl.views.history_view import (
        choose_outcome_style,
        describe_duration,
        describe_outcome,
        describe_subject,
        describe_verb,
    )

    took = describe_duration(one)
    return _render_row(
        time.strftime("%m-%d", time.localtime(one.began)),
        ", ".join(one.nodes),
        names,
        sanitize_span(f"{describe_verb(one)} {describe_subject(one)}: ", TextStyle.LABEL),
        sanitize_span(describe_outcome(one), choose_outcome_style(one)),
        Span(f" after {took}" if took else "", TextStyle.LABEL),
    )


def _render_row(when: str, node: str, names: int, *words: Span) -> TextRow:
    return make_row(
        " ",
        Span(f"{when:8}  ", TextStyle.UNIT),
        sanitize_span(f"{pad_text(sanitize_line(node), names)}  ", TextStyle.LABEL),
        *words,
    )
