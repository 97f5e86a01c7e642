"""What happened lately, in a line each: what an owner who was away for a minute wants to read."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from sparkctl.model.events import (
    CachesDropped,
    ContainersListed,
    Ended,
    Event,
    GuardActed,
    NodeStateChanged,
    PhaseChanged,
)
from sparkctl.model.guard import GuardAct
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.phase import Phase
from sparkctl.model.units import GIB, clock
from sparkctl.present.sentences import caches_line, guard_line, phase_word
from sparkctl.present.spans import Row, Span, Tone, row, said

_PHASES = {Phase.READY: Tone.GOOD, Phase.FAILED: Tone.BAD}
_STAY = (Phase.READY, Phase.FAILED)  # what is there until somebody takes it away
_ACTS = {GuardAct.WARNED: Tone.ATTENTION, GuardAct.KILLED: Tone.BAD, GuardAct.KILL_FAILED: Tone.BAD}

_LEAST = GIB // 20  # bytes of a drop that is shown as other than nothing
_MOMENT = 2.0  # seconds between two tellings of one thing


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that is worth a line. ``what`` is what it is about: the same again is no news; ``when`` in unix seconds."""

    when: float
    node: NodeName
    text: str
    tone: Tone
    what: tuple[str, ...]

    def is_of(self, other: Happening) -> bool:
        """Tell whether it is the same news as another, told a moment before with fewer words."""
        same = (self.node, self.what, self.tone) == (other.node, other.what, other.tone)
        more = self.text.startswith(other.text.partition(", ")[0]) or self.tone is Tone.BAD
        return same and more and self.what[0] == "phase" and 0 <= self.when - other.when <= _MOMENT

    def is_as(self, other: Happening) -> bool:
        """Tell whether another one says the same."""
        return (self.node, self.text, self.what) == (other.node, other.text, other.what)


def happening(event: Event) -> Happening | None:
    """Return what an event means to an owner, None for what is told elsewhere, or of no weight."""
    match event:
        case PhaseChanged():
            return Happening(
                event.ts, event.node, _phase(event), _PHASES.get(event.phase, Tone.VALUE), ("phase", event.instance)
            )
        case CachesDropped() if event.proven is False or _is_felt(event):
            return Happening(event.ts, event.node, caches_line(event), Tone.VALUE, ("caches", str(event.ts)))
        case GuardActed() if event.what in _ACTS:
            return Happening(event.ts, event.node, guard_line(event), _ACTS[event.what], ("guard", str(event.at)))
        case NodeStateChanged() if event.state is not NodeState.UNKNOWN:
            good = event.state is NodeState.OK
            words = "answers" if good else f"{event.state}" + (f": {event.detail}" if event.detail else "")
            return Happening(event.ts, event.node, words, Tone.VALUE if good else Tone.ATTENTION, ("node",))
        case Ended() if event.verdict is not None and event.node is not None and event.instance is not None:
            words = f"{event.instance} failed: {event.verdict.summary}"
            return Happening(event.ts, event.node, words, Tone.BAD, ("phase", event.instance))
        case _:
            return None


def refusal(ended: Ended, words: Sequence[str], node: NodeName) -> Happening:
    """Return that a command line was refused, and why in short."""
    why = (ended.message or "").splitlines()[0]
    return Happening(
        ended.ts, node, f"{' '.join(words[:2])} refused: {why}", Tone.ATTENTION, ("refused", str(ended.ts))
    )


def _is_felt(event: CachesDropped) -> bool:
    before, after = event.before, event.after
    moved = (after.free - before.free, after.available - before.available, after.reclaimable - before.reclaimable)
    return max(map(abs, moved)) >= _LEAST


def appeared(
    event: ContainersListed, phases: dict[tuple[NodeName, str], Phase], *, is_first: bool = False
) -> list[Happening]:
    """Return what Docker's list tells that was not told before, and note it in ``phases``: what somebody else started,
    what ended by itself, what is gone. Of a node that ``is_first`` looked at it is no news: so it was before."""
    found = []
    for one in event.instances:
        if not one.ours or one.phase is None or phases.get((event.node, one.name)) is one.phase:
            continue
        known = (event.node, one.name) in phases
        phases[event.node, one.name] = one.phase
        words = f"{one.name}: {phase_word(one.phase)}" + (f", {one.status}" if one.status and not known else "")
        found.append(Happening(event.ts, event.node, words, _PHASES.get(one.phase, Tone.VALUE), ("phase", one.name)))
    names = {one.name for one in event.instances}
    for node, name in [key for key in phases if key[0] == event.node and key[1] not in names]:
        if phases[node, name] in _STAY:
            del phases[node, name]
            found.append(Happening(event.ts, node, f"{name}: gone from Docker's list", Tone.ATTENTION, ("phase", name)))
    return [] if is_first else found


def happened_row(one: Happening, names: int) -> Row:
    """Return it as a line; ``names`` columns for the Spark's."""
    when = time.strftime("%H:%M:%S", time.localtime(one.when))
    return row(" ", Span(f"{when}  ", Tone.UNIT), said(f"{one.node:<{names}}  ", Tone.LABEL), said(one.text, one.tone))


def _phase(event: PhaseChanged) -> str:
    words = f"{event.instance}: {phase_word(event.phase)}"
    return words + (f" after {clock(event.elapsed)}" if event.phase in _PHASES and event.elapsed is not None else "")
