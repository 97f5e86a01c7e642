"""Events as text, for the command line and the panel: a line each; the progress of a transfer; the diffs of `setup`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sparkctl.model.finding import Severity
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.phase import STEP_NAMES, Phase, Step
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.text.units import GIB, format_clock, format_size
from sparkctl.model.verdict import LAST_LINE_ORIGIN, FieldChange, Verdict
from sparkctl.views.text.styled_text import Span, TextRow, TextStyle, format_progress_bar, make_row, sanitize_span

if TYPE_CHECKING:
    from sparkctl.model.events import (
        CachesDropped,
        FileChange,
        GuardActed,
        MemoryReleased,
        NodeStateChanged,
        PartsMissing,
        PhaseChanged,
        SetupStep,
        SetupStepDone,
        SetupStepKind,
        TransferProgressed,
        TunnelStateChanged,
    )
    from sparkctl.model.guard_state import GuardAction, GuardCoverage, GuardEvent


TRANSITION_PHASES = (
    Phase.PLANNED,
    Phase.PULLING,
    Phase.DROPPING_CACHES,
    Phase.CREATING,
    Phase.STARTING,
    Phase.LOADING,
    Phase.WARMING,
    Phase.STOPPING,
)


_PHASE_NAMES = {
    Phase.PULLING: "getting image and model",
    Phase.DROPPING_CACHES: "dropping caches",
    Phase.CREATING: "creating",
    Phase.STARTING: "starting",
    Phase.LOADING: "loading",
    Phase.WARMING: "warming up",
    Phase.UNPROVED: "up, not proved",
    Phase.READY: "ready",
    Phase.FAILED: "failed",
    Phase.STOPPING: "stopping",
    Phase.STOPPED: "stopped",
}


def format_phase_name(phase: Phase) -> str:
    return _PHASE_NAMES.get(phase, str(phase))


def format_step_name(step: Step) -> str:
    return STEP_NAMES.get(step.name, sanitize_line(step.name))


def format_step(step: Step | None, *, has_bar: bool = True) -> str:
    """Return ``weights ▕█████▋   ▏ 12/18``, or the known part of it; ``weights 12/18`` without the bar."""
    if step is None:
        return ""
    words = [format_step_name(step)]
    fraction = step.fraction
    if fraction is None and step.done is not None and step.total:
        fraction = step.done / step.total
    if fraction is not None and has_bar:
        words.append(format_progress_bar(fraction))
    if step.done is not None and step.total is not None:
        words.append(f"{step.done}/{step.total}")
    elif fraction is not None:
        words.append(f"{fraction:.0%}")
    return " ".join(words)


def format_elapsed(event: PhaseChanged, elapsed: float | None) -> str:
    """Return ``4:10 of about 6:55``, without the expectation if it is not known."""
    if elapsed is None:
        return ""
    return format_clock(elapsed) + (f" of about {format_clock(event.expected)}" if event.expected else "")


def format_phase(event: PhaseChanged, elapsed: float | None, *, has_bar: bool = True) -> str:
    """Return the live line of a phase, without the node."""
    parts = [format_phase_name(event.phase), format_step(event.step, has_bar=has_bar), format_elapsed(event, elapsed)]
    if event.detail:
        parts.append(sanitize_line(event.detail))
    return "   ".join(part for part in parts if part)


def format_cache_drop(event: CachesDropped) -> str:
    """Return free memory and page cache before and after a drop, and available memory if it changed."""
    before, after = event.before, event.after
    gained = round((after.free - before.free) / GIB, 1) or 0.0  # -0.0 is no loss
    line = (
        f"caches dropped  {gained:+.1f} GiB   free {_format_size_change(before.free, after.free)}   "
        f"page cache {_format_size_change(before.reclaimable, after.reclaimable)}"
    )
    if abs(after.available - before.available) > GIB:
        line += f"   available {_format_size_change(before.available, after.available)}"
    if event.proven is False:
        line += "   the kernel counted no drop"
    return line


def format_release(event: MemoryReleased) -> str:
    """Return the result of a stop: the proof that everything is released, or what is left."""
    instance = sanitize_line(event.instance)
    left = [
        sanitize_line(what) if memory is None else f"{sanitize_line(what)}: {format_size(memory)}"
        for what, memory in event.holders
    ]
    lacks = event.missing or 0
    missing = f"{format_size(lacks)} did not come back" if lacks > GIB else ""  # smaller differences are noise
    if missing or left:
        return f"{instance}: " + "; ".join([*([missing] if missing else []), *left])
    now = "" if event.available is None else f"; {event.available / GIB:.1f} GiB available"
    then = "" if event.before_start is None or not now else f", {event.before_start / GIB:.1f} before it was started"
    if event.missing is None:
        return f"{instance}: none of its processes is left; its memory could not be measured{now}"
    if event.kept is not None:
        return f"{instance}: its memory is back, its container {sanitize_line(event.kept)} was kept{now}{then}"
    return f"{instance}: nothing of it is left{now}{then}"


def describe_missing_guard(coverage: GuardCoverage | None) -> str | None:
    """Return a warning if a start was not guarded as intended, else None."""
    from sparkctl.model.guard_state import GuardCoverage  # `diagnose` needs nothing of the guard

    return {
        GuardCoverage.NONE: "no guard watched its start",
        GuardCoverage.PARTLY: "its guard did not answer for part of the start",
    }.get(coverage or GuardCoverage.OFF)


def judge_guard_action(what: GuardAction) -> Severity:
    """Return how bad it is for an owner that the guard did this."""
    from sparkctl.model.guard_state import GuardAction

    if what in (GuardAction.KILLED, GuardAction.KILL_FAILED):
        return Severity.PROBLEM
    return Severity.GOOD if what in (GuardAction.DROPPED, GuardAction.COMPACTED) else Severity.WARNING


def format_guard_event(event: GuardActed | GuardEvent) -> str:
    """Return what the guard did in one sentence, with the memory it saw."""
    from sparkctl.model.guard_state import GuardAction

    why, instance = sanitize_line(event.why), sanitize_line(event.instance or "a container")
    available = ""
    if event.available is not None and " available" not in why:
        available = f" at {format_size(event.available)} available"
    free = "" if event.free is None else f"; {format_size(event.free)} are free"
    match event.what:
        case GuardAction.WARNED if event.instance is None:
            return why  # what the driver met: memory need not be short
        case GuardAction.WARNED:
            return f"memory is getting short{available}: {why}"
        case GuardAction.KILLED:
            return f"{instance} was stopped{available}: {why}"
        case GuardAction.KILL_FAILED:
            return f"{instance} could not be stopped{available}: {why}"
        case GuardAction.ENDED:
            return f"{instance} is no longer guarded: {why}"
        case _:
            return f"{why}{free}"


def format_node_state(event: NodeStateChanged) -> str:
    if event.state is NodeState.OK:
        return "connected again"
    words = f"{event.state}"
    if event.detail:
        words += f": {sanitize_line(event.detail)}"
    if event.attempt is not None:
        words += f" (attempt {event.attempt}" + (f", next in {event.next_try:.1f} s" if event.next_try else "") + ")"
    return words


def format_verdict(verdict: Verdict) -> list[str]:
    """Return a verdict as lines: the summary, the evidence, the remedy, and the command that tries it."""
    lines = [sanitize_line(verdict.headline)]
    for evidence in verdict.evidence:
        what = "" if evidence.origin == LAST_LINE_ORIGIN else "proof"
        lines.append(f"  {what:<7} {evidence.location}: {sanitize_line(evidence.text)}")
    lines.append(f"  try     {sanitize_line(verdict.remedy)}")
    lines += [
        f"  also    {sanitize_line(other.summary)}{_format_evidence_line(other)}" for other in verdict.contributing
    ]
    if verdict.edit is not None and verdict.again is not None:
        lines.append(f"  again   {sanitize_line(verdict.again)}")
        lines += [f"          {words}" for words in [describe_edit_source(verdict.edit)] if words]
    return lines


def describe_edit_source(edit: FieldChange) -> str:
    """Return the source of a proposed value, "" if the engine itself names it."""
    if not edit.is_first_try:
        return ""
    return "a first try" + (f": it was {sanitize_line(edit.was)}" if edit.was is not None else "")


def _format_evidence_line(verdict: Verdict) -> str:
    line = next((proof.line for proof in verdict.evidence if proof.line is not None), None)
    return "" if line is None else f" (line {line})"


def _format_size_change(before: int, after: int) -> str:
    return f"{before / GIB:.1f} → {after / GIB:.1f}"


def format_cache_table(event: CachesDropped) -> list[str]:
    """Return memory before and after a drop as a table: three figures in GiB, right-aligned."""
    rows = [
        ("free", event.before.free, event.after.free),
        ("page cache", event.before.reclaimable, event.after.reclaimable),
        ("available", event.before.available, event.after.available),
    ]
    lines = [f"{sanitize_line(event.node)}   {'':10}  {'before':>7}  {'after':>7}"]
    pad = " " * len(sanitize_line(event.node))
    for name, before, after in rows:
        change = (after - before) / GIB
        lines.append(f"{pad}   {name:10}  {before / GIB:7.1f}  {after / GIB:7.1f}  GiB  {change:+.1f}")
    if event.proven is False:
        lines.append(f"{pad}   the kernel counted no drop")
    return lines


def format_missing_parts(event: PartsMissing) -> list[str]:
    """Return what of image and model is missing on a node, a line each, and the command that gets it."""
    lines = [f"missing: {part.sentence}" for part in event.parts]
    return [*lines, *(f"get it: {command}" for command in event.commands if lines)]


def format_setup_step_done(event: SetupStepDone) -> str:
    words = f"{format_step_kind(event.step)}: {'went back' if event.is_back else 'done'}"
    return words + (f" ({sanitize_line(event.detail)})" if event.detail else "")


def format_tunnel_state(event: TunnelStateChanged) -> str:
    what = f"tunnel to {sanitize_line(event.instance)}"
    words = {
        "open": f"{what} is open: {event.url}",
        "lost": f"{what} is cut, {event.url} waits for the connection",
        "refused": f"{what}: nothing answers there now",
        "closed": f"{what} is closed",
    }[event.state]
    return words + (f" ({sanitize_line(event.detail)})" if event.detail else "")


_BAR_COLUMNS, _MIN_BAR_COLUMNS, _MIN_NAME_COLUMNS = 20, 8, 10  # of the line of a download


def format_transfer(event: TransferProgressed, columns: int | None) -> str:
    """Return ``files of qwen36  12.3 of 34.2 GiB  36 %  1.21 GB/s  0:18 left``, without what is not known.

    ``columns``: what there is room for; the name is shortened for it, the figures never.
    """
    figures = _format_transfer_figures(event, columns)
    return _shorten_middle(event.what, None if columns is None else columns - len(figures)) + figures


def _format_transfer_figures(event: TransferProgressed, columns: int | None) -> str:
    parts = [format_size(event.done)]
    if event.total:
        share = min(100, round(100 * event.done / event.total))
        parts = [f"{parts[0]} of {format_size(event.total)}", f"{share} %"]
    if event.rate is not None:
        parts.append(format_byte_rate(event.rate))
    if event.left is not None and event.total and event.done < event.total:
        parts.append(f"{format_clock(event.left)} left")
    spacious = "   ".join(["", *parts])
    return spacious if columns is None or len(event.what + spacious) <= columns else "  ".join(["", *parts])


def _shorten_middle(text: str, columns: int | None) -> str:
    """Return a name that fits: what tells names apart stands at their beginning and at their end."""
    if columns is None or len(text) <= max(columns, _MIN_NAME_COLUMNS):
        return text
    kept = max(columns, _MIN_NAME_COLUMNS) - 1
    return f"{text[: kept // 2]}…{text[kept // 2 - kept :]}"


def render_transfer_bars(event: TransferProgressed, columns: int | None) -> list[TextRow]:
    """Return the progress as a terminal shows it: a bar for all of it, and one below it for each part that comes now.

    ``columns``: of the terminal; where it is narrow the bars are shorter, then the names, and the figures stay whole.
    """
    from sparkctl.views.text.charts import render_gauge  # nor charts

    head, room = [sanitize_span(f"{event.node}  ")], None if columns is None else columns - len(event.node) - 2
    bar_room = None if room is None else room - _BAR_COLUMNS - 2
    if event.total and (bar := _fit_bar(event.what, len(_format_transfer_figures(event, bar_room)), room)):
        head += [*render_gauge(min(1.0, event.done / event.total), bar), Span("  ")]
        room = None if room is None else room - bar - 2
    rows = [make_row(*head, sanitize_span(format_transfer(event, room)))]
    for part in event.parts:
        amount = f"  {format_size(part.done)} of {format_size(part.total)}" if part.total and part.done else ""
        words, room = f"{part.state}{amount}", None if columns is None else columns - 4
        bar = _fit_bar(part.name, len(words), room) if part.total and part.done is not None else 0
        name = _shorten_middle(part.name, None if room is None else room - len(words) - (bar + 2 if bar else 0))
        spans = [sanitize_span(f"  {name}  ", TextStyle.LABEL)]
        if bar and part.total and part.done is not None:
            spans += [*render_gauge(min(1.0, part.done / part.total), bar), Span("  ")]
        rows.append(make_row(*spans, sanitize_span(words, TextStyle.LABEL)))
    return rows


def _fit_bar(name: str, figures: int, room: int | None) -> int:
    """Return the columns of a bar beside a name, which may be shortened, and figures; 0 where there is no room for one."""
    if room is None:
        return _BAR_COLUMNS
    free = room - figures - 2
    bar = min(_BAR_COLUMNS, max(free - len(name), _MIN_BAR_COLUMNS))
    return bar if free - bar >= min(len(name), _MIN_NAME_COLUMNS) else 0


def format_byte_rate(rate: float) -> str:
    """Return bytes per second as ``1.21 GB/s``, or ``34 MB/s`` below 1 GB/s."""
    return f"{rate / 1e9:.2f} GB/s" if rate >= 1e8 else f"{rate / 1e6:.0f} MB/s"


def render_transfer(one: TransferProgressed) -> TextRow:
    """Return the progress of a transfer between Sparks, the most important figures first."""
    from sparkctl.views.text.charts import render_gauge

    spans = [sanitize_span(f"{one.source} → {one.node}  ", TextStyle.TITLE)]
    if one.total:
        spans += [
            *render_gauge(one.done / one.total, _BAR_COLUMNS),
            Span(f"  {min(100, one.done * 100 // one.total)} %"),
        ]
    if one.rate is not None:
        spans.append(Span(f"  {format_byte_rate(one.rate)}", TextStyle.VALUE))
    if one.left is not None and one.total and one.done < one.total:
        spans.append(Span(f"  {format_clock(one.left)} left", TextStyle.STRONG))
    of = f" of {format_size(one.total)}" if one.total else ""
    return make_row(*spans, sanitize_span(f"   {format_size(one.done)}{of}   {one.what}", TextStyle.LABEL))


def format_transfer_short(one: TransferProgressed) -> str:
    """Return ``to spark2: 36 %, 0:18 left``."""
    share = f" {min(100, round(100 * one.done / one.total))} %" if one.total else ""
    left = "" if one.left is None else f", {format_clock(one.left)} left"
    return f"to {one.node}:{share}{left}"


def format_step_kind(kind: SetupStepKind) -> str:
    from sparkctl.model.events import SetupStepKind  # `diagnose` needs none of the events

    return {
        SetupStepKind.DOCKER_GROUP: "group docker",
        SetupStepKind.DROP_CACHES: "right to drop the page cache",
        SetupStepKind.CABLE: "cable",
        SetupStepKind.SSH: "SSH between the Sparks",
        SetupStepKind.UNDO: "undo",
    }[kind]


def render_fine_part(node: NodeName, sentence: str) -> TextRow:
    """Return a line about what needs no set-up."""
    return make_row(Span(f"{node}  ", TextStyle.STRONG), Span(sanitize_line(sentence), TextStyle.LABEL))


def render_setup_step(node: NodeName, step: SetupStep) -> Iterator[TextRow]:
    """Yield a step: what it is good for, then each file as a diff."""
    yield make_row(Span(f"{node}  ", TextStyle.STRONG), Span(sanitize_line(step.summary)))
    for change in step.changes:
        for line in format_diff(change):
            style = {"+": TextStyle.GOOD, "-": TextStyle.BAD, "@": TextStyle.LABEL}.get(line[:1], TextStyle.PLAIN)
            yield make_row(Span(f"  {line}", TextStyle.LABEL if line.startswith(("+++", "---")) else style))


def format_diff(change: FileChange) -> list[str]:
    """Return the unified diff of a file; /dev/null stands for a file that is not there. A last line without an end is told."""
    from difflib import unified_diff

    before, after = (re.findall(r"[^\n]*\n|[^\n]+", text or "") for text in (change.before, change.after))
    old = change.path if change.before is not None else "/dev/null"
    new = change.path if change.after is not None else "/dev/null"
    lines = []
    for line in unified_diff(before, after, old, new):
        lines.append(sanitize_line(line.removesuffix("\n")))
        if not line.endswith("\n"):
            lines.append(r"\ No newline at end of file")
    return lines
