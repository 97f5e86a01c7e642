"""What happened, as lines of the panel: the result of a command with what to do next, the notices, the event log."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from sparkctl.model.events import (
    CachesDropped,
    CommandEnded,
    GuardActed,
    NodeStateChanged,
    Outcome,
    PhaseChanged,
    WarningEmitted,
)
from sparkctl.model.finding import Severity
from sparkctl.model.guard_state import GuardAction
from sparkctl.model.instance import InstanceView
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.phase import Phase
from sparkctl.model.switch_plan import SwitchStep
from sparkctl.model.text.sanitize import sanitize_line, sanitize_lines
from sparkctl.model.text.units import format_clock, format_duration
from sparkctl.monitor.activity import Notice
from sparkctl.monitor.event_log import ContainerChanged, EventLogEntry, KernelEventLogged, StartRefused
from sparkctl.monitor.node_views import NodeTelemetryView
from sparkctl.monitor.switch_progress import SwitchProgress
from sparkctl.views.event_text import (
    describe_missing_guard,
    format_cache_drop,
    format_guard_event,
    format_phase_name,
    judge_guard_action,
)
from sparkctl.views.text.line_wrap import wrap_text
from sparkctl.views.text.styled_text import (
    Span,
    TextRow,
    TextStyle,
    get_severity_style,
    get_state_symbol,
    make_row,
    pad_text,
    sanitize_span,
    truncate_row,
)

if TYPE_CHECKING:
    from sparkctl.history.model import OperationRecord

_SUCCESS_OUTCOMES = (Outcome.READY, Outcome.DONE, Outcome.PLANNED, Outcome.DETACHED)
_VERB_PAST_FORMS = {"up": "started", "down": "stopped"}


def describe_command_result(
    verb: str, ended: CommandEnded, nodes: Sequence[str], caches: Sequence[CachesDropped] = ()
) -> tuple[str, TextStyle]:
    """Return how a command ended as one sentence with its symbol, and its style. The text is not sanitised yet."""
    good = ended.outcome in _SUCCESS_OUTCOMES
    sign = get_state_symbol(Phase.READY if good else Phase.FAILED)
    where = f" on {' and '.join(nodes)}" if nodes else ""
    tone = TextStyle.GOOD if good else TextStyle.BAD if ended.outcome is Outcome.FAILED else TextStyle.ATTENTION
    if caches and verb == "drop-caches":
        last = {one.node: one for one in caches}.values()
        return f"{sign} " + "; ".join(f"{one.node}: {format_cache_drop(one)}" for one in last), tone
    if ended.outcome is Outcome.READY:
        after = f" after {format_duration(ended.seconds)}" if ended.message is None else ""
        words = ended.message or f"{ended.instance} is ready{where}{after}"
        if (unguarded := describe_missing_guard(ended.guard)) is not None:
            words, tone = f"{words}; {unguarded}", TextStyle.ATTENTION
        return f"{sign} {words}" + (f"   {ended.endpoint}" if ended.endpoint else ""), tone
    if ended.verdict is not None:
        return f"{sign} {ended.instance} failed{where}: {ended.verdict.summary}", tone
    if verb == "free" and ended.outcome is Outcome.DONE:
        message = "; ".join((ended.message or "").splitlines())
        return f"{sign} everything that sparkctl started{where} has stopped{f'; {message}' if message else ''}", tone
    if verb == "tunnel" and good:
        return f"{sign} the tunnel to {ended.instance} has ended", tone
    if ended.message:
        return f"{sign} {ended.message}" + (format_hints(ended.hint) if not good else ""), tone
    what = f"{ended.instance} {_VERB_PAST_FORMS.get(verb, verb)}" if ended.instance else verb
    return f"{sign} {what}{where}: {ended.outcome}, {format_duration(ended.seconds)}", tone


def describe_warning(event: WarningEmitted) -> tuple[str, TextStyle]:
    """Return a warning as one sentence with its symbol."""
    where = f"{event.node}: " if event.node else ""
    return (
        f"{get_state_symbol(Severity.WARNING)} {where}{event.message}{format_hints(event.hint)}",
        TextStyle.ATTENTION,
    )


def format_hints(hint: str | None) -> str:
    """Return hints as the end of a sentence, each after "try:"; "" without hints."""
    return "".join(f"   try: {line}" for line in (hint or "").splitlines())


def describe_guard_action(event: GuardActed) -> tuple[str, TextStyle] | None:
    """Return what the guard did as one sentence; None if a watch ended because sparkctl ended it."""
    if event.what is GuardAction.ENDED:
        return None
    severity = judge_guard_action(event.what)
    words = f"{get_state_symbol(severity)} {event.node}: guard: {format_guard_event(event)}"
    return words, get_severity_style(severity)


def render_refused_start(words: Sequence[str], ended: CommandEnded, columns: int) -> list[TextRow]:
    """Return why a start was refused, followed by each remedy on lines of its own."""
    rows = [make_row(sanitize_span(f"sparkctl {' '.join(words)}", TextStyle.LABEL)), ()]
    for line in sanitize_lines(ended.message or ""):
        rows += wrap_text(line, columns, TextStyle.BAD)
    for way in sanitize_lines(ended.hint or ""):
        rows += [(), *wrap_text(way, columns, TextStyle.VALUE, 2)]
    return rows


def render_refused_line(message: str, hint: str | None, columns: int, lines: int) -> list[TextRow]:
    """Return why a typed command was refused and what to do, in at most this many lines."""
    rows = wrap_text(message, columns - 1, TextStyle.BAD, head=make_row(" "))
    rows += wrap_text(hint or "", columns - 1, TextStyle.LABEL, head=make_row(" "))
    return [truncate_row(one, columns) for one in rows[:lines]]


_ENDED_PHASES = (Phase.STOPPING, Phase.STOPPED, Phase.FAILED)
_STEPS_AFTER_STOP = (SwitchStep.RELEASING, SwitchStep.STARTING, SwitchStep.UNDOING, SwitchStep.LEFT)
_TODAY_SECONDS = 20 * 3600.0  # seconds; within a day the time of day is enough


def describe_running_instances(view: NodeTelemetryView, instances: Sequence[InstanceView], now: float) -> str | None:
    """Return which instances keep running, in a sentence; None if none do. ``view``: the last known state."""
    running = [one.name for one in instances if one.ours and one.is_alive and one.phase not in _ENDED_PHASES]
    if not running:
        return None
    names = " and ".join(running)
    if view.state is NodeState.OK:
        return f"{names} {'goes' if len(running) == 1 else 'go'} on running on {view.name}"
    if view.instances_seen is None:
        return None
    form = "%H:%M" if now - view.instances_seen < _TODAY_SECONDS else "%Y-%m-%d %H:%M"
    when = time.strftime(form, time.localtime(view.instances_seen))
    return f"{view.name} did not answer; {names} ran there at {when}"


def describe_stopped_models(progress: SwitchProgress) -> tuple[str, ...]:
    """Return the state of the models that a switch stops, in sentences; none if it touched none."""
    old, step = " and ".join(progress.stops) or "what was there", progress.steps[-1] if progress.steps else None
    is_one = len(progress.stops) <= 1
    verb = "is" if is_one else "are"
    if step is None:
        return ()
    if step.step in _STEPS_AFTER_STOP or (step.step is SwitchStep.STOPPING and step.ended is not None):
        return (f"{old} {verb} stopped; {'its' if is_one else 'their'} containers are kept",)
    if step.step is SwitchStep.STOPPING:
        return (f"{old} {verb} being stopped; {'its' if is_one else 'their'} containers are kept",)
    return (f"{old} {verb} being started again",) if step.step is SwitchStep.RESTORING else ()


def describe_unfinished_switch(progress: SwitchProgress, at: str) -> tuple[str, ...]:
    """Return the message about a switch that did not report where it stopped; ``at``: such as ``step 4 of 6``."""
    return (
        f"the switch to {progress.instance} was left {'' if at.startswith('on ') else 'at '}{at}",
        "  try: finish it: sparkctl resume",
        "  try: undo it: sparkctl abort",
    )


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


def render_event_log_entry(
    one: EventLogEntry, when: str, names: int, explained: Collection[tuple[NodeName, str]]
) -> TextRow:
    """Return an entry as a row; ``when``: its time in words; ``names``: the width of the node's name. ``explained``: the instances
    whose failure is explained on the same screen."""
    words, tone = describe_log_entry(one)
    if isinstance(one.event, CommandEnded) and (one.node, one.event.instance) in explained:
        words = f"{one.event.instance}: failed after {format_clock(one.event.seconds)}"
    return _render_row(when, one.node, names, sanitize_span(words, tone))


def render_past_operation(one: OperationRecord, when: str, names: int) -> TextRow:
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
        when,
        ", ".join(one.nodes),
        names,
        sanitize_span(f"{describe_verb(one)} {describe_subject(one)}: ", TextStyle.LABEL),
        sanitize_span(describe_outcome(one), choose_outcome_style(one)),
        Span(f" after {took}" if took else "", TextStyle.LABEL),
    )


def _render_row(when: str, node: str, names: int, *words: Span) -> TextRow:
    return make_row(
        " ",
        Span(f"{when}  ", TextStyle.UNIT),
        sanitize_span(f"{pad_text(sanitize_line(node), names)}   ", TextStyle.LABEL),
        *words,
    )
