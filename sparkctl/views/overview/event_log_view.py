"""Recent events as one line each, for an owner who was away for a minute."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from sparkctl.model.events import (
    CachesDropped,
    CommandEnded,
    ContainersListed,
    Event,
    GuardActed,
    NodeStateChanged,
    PhaseChanged,
)
from sparkctl.model.guard_state import GuardAction
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.phase import Phase
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.text.units import GIB, format_clock
from sparkctl.views.event_text import format_cache_drop, format_guard_event, format_phase_name
from sparkctl.views.text.styled_text import Span, TextRow, TextStyle, make_row, pad_text, sanitize_span

_PHASE_STYLES = {Phase.READY: TextStyle.GOOD, Phase.FAILED: TextStyle.BAD}
_PERSISTENT_PHASES = (Phase.READY, Phase.FAILED)  # containers in these phases stay until they are removed
_GUARD_ACTION_STYLES = {
    GuardAction.WARNED: TextStyle.ATTENTION,
    GuardAction.KILLED: TextStyle.BAD,
    GuardAction.KILL_FAILED: TextStyle.BAD,
}

_MIN_DROP_BYTES = GIB // 20  # bytes; a smaller drop would be shown as 0.0
_REPEAT_SECONDS = 2.0  # seconds before the same news is shown again


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLogEntry:
    """An event worth a line. ``what`` is its subject; an equal entry is no news. ``when`` is Unix time in seconds."""

    when: float
    node: NodeName
    text: str
    tone: TextStyle
    what: tuple[str, ...]

    def supersedes(self, other: EventLogEntry) -> bool:
        """Tell whether this is the same news as another entry shortly before, with more detail."""
        same = (self.node, self.what, self.tone) == (other.node, other.what, other.tone)
        more = self.text.startswith(other.text.partition(", ")[0]) or self.tone is TextStyle.BAD
        return same and more and self.what[0] == "phase" and 0 <= self.when - other.when <= _REPEAT_SECONDS

    def repeats(self, other: EventLogEntry) -> bool:
        """Tell whether another entry says the same."""
        return (self.node, self.text, self.what) == (other.node, other.text, other.what)


def describe_event(event: Event) -> EventLogEntry | None:
    """Return what an event means to an owner, None if it is shown elsewhere or unimportant."""
    match event:
        case PhaseChanged():
            tone = _PHASE_STYLES.get(event.phase, TextStyle.VALUE)
            return _make_entry(event.ts, event.node, _describe_phase(event), tone, "phase", event.instance)
        case CachesDropped() if event.proven is False or _is_noticeable_drop(event):
            words = format_cache_drop(event)
            return _make_entry(event.ts, event.node, words, TextStyle.VALUE, "caches", str(event.ts))
        case GuardActed() if event.what in _GUARD_ACTION_STYLES:
            tone = _GUARD_ACTION_STYLES[event.what]
            return _make_entry(event.ts, event.node, format_guard_event(event), tone, "guard", str(event.at))
        case NodeStateChanged() if event.state is not NodeState.UNKNOWN:
            good = event.state is NodeState.OK
            words = "answers" if good else f"{event.state}" + (f": {event.detail}" if event.detail else "")
            return _make_entry(event.ts, event.node, words, TextStyle.VALUE if good else TextStyle.ATTENTION, "node")
        case CommandEnded() if event.verdict is not None and event.node is not None and event.instance is not None:
            words = f"{event.instance} failed: {event.verdict.summary}"
            return _make_entry(event.ts, event.node, words, TextStyle.BAD, "phase", event.instance)
        case _:
            return None


def _make_entry(when: float, node: NodeName, text: str, tone: TextStyle, *what: str) -> EventLogEntry:
    return EventLogEntry(when=when, node=node, text=text, tone=tone, what=what)


def describe_refusal(ended: CommandEnded, words: Sequence[str], node: NodeName) -> EventLogEntry:
    """Return that a command line was refused, with the reason in short."""
    why = (ended.message or "").splitlines()[0]
    words = f"{' '.join(words[:2])} refused: {why}"
    return _make_entry(ended.ts, node, words, TextStyle.ATTENTION, "refused", str(ended.ts))


def _is_noticeable_drop(event: CachesDropped) -> bool:
    before, after = event.before, event.after
    moved = (after.free - before.free, after.available - before.available, after.reclaimable - before.reclaimable)
    return max(map(abs, moved)) >= _MIN_DROP_BYTES


def describe_container_changes(
    event: ContainersListed, phases: dict[tuple[NodeName, str], Phase], *, is_first: bool = False
) -> list[EventLogEntry]:
    """Return what Docker's list shows as new, and store it in ``phases``: started by others, ended, removed. The
    first list of a node (``is_first``) brings no news."""
    found = []
    for one in event.instances:
        if not one.ours or one.phase is None or phases.get((event.node, one.name)) is one.phase:
            continue
        known = (event.node, one.name) in phases
        phases[event.node, one.name] = one.phase
        words = f"{one.name}: {format_phase_name(one.phase)}" + (f", {one.status}" if one.status and not known else "")
        tone = _PHASE_STYLES.get(one.phase, TextStyle.VALUE)
        found.append(_make_entry(event.ts, event.node, words, tone, "phase", one.name))
    names = {one.name for one in event.instances}
    for node, name in [key for key in phases if key[0] == event.node and key[1] not in names]:
        if phases[node, name] in _PERSISTENT_PHASES:
            del phases[node, name]
            words = f"{name}: gone from Docker's list"
            found.append(_make_entry(event.ts, node, words, TextStyle.ATTENTION, "phase", name))
    return [] if is_first else found


def render_event_log_entry(one: EventLogEntry, names: int) -> TextRow:
    """Return an entry as a row; ``names`` is the width of the node's name."""
    when = time.strftime("%H:%M:%S", time.localtime(one.when))
    return make_row(
        " ",
        Span(f"{when}  ", TextStyle.UNIT),
        sanitize_span(f"{pad_text(sanitize_line(one.node), names)}  ", TextStyle.LABEL),
        sanitize_span(one.text, one.tone),
    )


def _describe_phase(event: PhaseChanged) -> str:
    words = f"{event.instance}: {format_phase_name(event.phase)}"
    return words + (
        f" after {format_clock(event.elapsed)}" if event.phase in _PHASE_STYLES and event.elapsed is not None else ""
    )
