"""The two ways a verb's events are told: JSON lines on stdout, or words on stderr."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

from sparkctl.cli import narrate, output
from sparkctl.cli.style import ascii_only, paint, wants_colour
from sparkctl.core.record import encode
from sparkctl.model.events import (
    CachesDropped,
    Ended,
    Event,
    FitJudged,
    GuardActed,
    LogArrived,
    NodeStateChanged,
    Outcome,
    PhaseChanged,
    Released,
    Warned,
)
from sparkctl.model.finding import Severity
from sparkctl.model.guard import GuardAct
from sparkctl.model.node import NodeState
from sparkctl.model.phase import Phase
from sparkctl.model.text import clean, clean_lines
from sparkctl.model.units import GIB, spoken
from sparkctl.present.fit_rows import sum_lines
from sparkctl.present.sentences import (
    caches_line,
    guard_coverage_warning,
    guard_line,
    node_line,
    phase_line,
    phase_word,
    released_line,
    step_words,
    verdict_lines,
)
from sparkctl.present.symbols import symbol

_WORTH_A_LINE = (Phase.LOADING, Phase.WARMING)  # phases whose length an owner wants to see afterwards
_SETTLED = (Phase.READY, Phase.FAILED, Phase.STOPPED)
_QUIET = (GuardAct.ENDED, GuardAct.COMPACTED)
_PLAIN_PAUSE = 10.0  # without a terminal, progress within a step is told this often
_STILL_PAUSE = 30.0  # and that something lasts without progress, this often
_VERDICT_HANG = 10


class JsonTeller:
    """One event a line; log lines only where the verb is about them."""

    def __init__(self, *, logs: bool = False) -> None:
        self.logs = logs

    def tell(self, event: Event) -> None:
        """Print one event."""
        if isinstance(event, LogArrived) and not self.logs:
            return
        output.document(encode(event))

    def tick(self) -> None:
        """Nothing lives here."""

    def interrupted(self, presses: int) -> None:
        """The result line says it."""


@dataclass(slots=True)
class _Told:
    """The phase of a node that was told of last; moments are monotonic: when it began, when the event came, and when a line
    of it was said."""

    event: PhaseChanged
    since: float
    at: float
    said: float = 0.0

    @property
    def elapsed(self) -> float | None:
        """Seconds since the verb began, by now."""
        return None if self.event.elapsed is None else self.event.elapsed + (time.monotonic() - self.at)

    @property
    def is_settled(self) -> bool:
        """Whether nothing follows it by itself."""
        return self.event.phase in _SETTLED


class WordTeller:
    """For people: one live line per phase on a terminal, plain lines elsewhere. stdout gets the endpoint alone."""

    def __init__(self, on_interrupt: str = "stopping ...") -> None:
        self.on_interrupt = on_interrupt
        self.live = narrate.LiveLine()
        self.colour = wants_colour(sys.stderr)
        self.ascii = ascii_only(sys.stderr)
        self._phases: dict[str, _Told] = {}  # by node
        self._connected: set[str] = set()
        self._away: set[str] = set()
        self._warned: set[str] = set()
        self._has_ended = False

    def tell(self, event: Event) -> None:
        """Say one event."""
        match event:
            case PhaseChanged():
                self._tell_phase(event)
            case CachesDropped():
                self._line(event.node, "good", symbol(Phase.READY, self.ascii), caches_line(event))
                self._phases.pop(event.node, None)
            case GuardActed():
                self._tell_guard(event)
            case Released() if (
                not event.holders and (event.missing or 0) <= GIB
            ):  # the rest is a warning with a next step
                severity = Severity.WARNING if event.missing is None else Severity.GOOD
                style = "attention" if event.missing is None else "good"
                self._line(event.node, style, symbol(severity, self.ascii), released_line(event))
            case FitJudged() if event.fit.is_refused:
                self.live.clear()
                for line in sum_lines(event.fit):
                    narrate.say(f"  {line}", _VERDICT_HANG)
            case NodeStateChanged():
                self._tell_node(event)
            case Warned():
                self.live.clear()
                self._warned.add(event.message)
                narrate.warning(event.node, event.message, event.hint)
            case Ended():
                self._has_ended = True
                self._tell_end(event)
            case _:
                pass

    def tick(self) -> None:
        """Move the clock on the live line; without a terminal, say now and then that it lasts."""
        going, now = [told for told in self._phases.values() if not told.is_settled], time.monotonic()
        if self.live.on:
            return self._show()
        for told in going:
            if now - told.said >= _STILL_PAUSE and told.event.node not in self._away:
                told.said = now
                narrate.say(f"{told.event.node}  {phase_line(told.event, told.elapsed, self.ascii)}")
        return None

    def interrupted(self, presses: int) -> None:
        """Say that the key was heard."""
        self.live.clear()
        if not self._has_ended:
            narrate.say(self.on_interrupt if presses == 1 else "heard; it ends as soon as nothing is half done ...")

    def _tell_guard(self, event: GuardActed) -> None:
        """That a watch has ended because we ended it is no news."""
        if event.what in _QUIET:
            return
        bad = event.what in (GuardAct.KILLED, GuardAct.KILL_FAILED)
        good = event.what in (GuardAct.DROPPED, GuardAct.COMPACTED)
        severity = Severity.PROBLEM if bad else Severity.GOOD if good else Severity.WARNING
        style = "bad" if bad else "good" if good else "attention"
        self._line(event.node, style, symbol(severity, self.ascii), f"guard: {guard_line(event)}")

    def _tell_node(self, event: NodeStateChanged) -> None:
        """A lost connection is news, and so are its attempts and its return. A first one that fails is the verb's end."""
        was_away, away = event.node in self._away, event.state is not NodeState.OK
        if not away:
            self._away.discard(event.node)
            self._connected.add(event.node)
        elif event.attempt is None and (was_away or event.node not in self._connected):
            return
        else:
            self._away.add(event.node)
        if away or was_away:
            self._line(event.node, "attention" if away else "good", symbol(event.state, self.ascii), node_line(event))

    def _tell_phase(self, event: PhaseChanged) -> None:
        told, now = self._phases.get(event.node), time.monotonic()
        before = None if told is None else told.event
        moved_on = before is not None and event.phase not in (before.phase, Phase.FAILED, Phase.STOPPED)
        if told is not None and before is not None and moved_on and before.phase in _WORTH_A_LINE and self.live.on:
            words = f"{phase_word(before.phase)} done   {spoken(now - told.since)}{_usually(before)}"
            self._line(before.node, "good", symbol(Phase.READY, self.ascii), words)
        new_phase = told is None or before is None or before.phase is not event.phase
        since = now if told is None or new_phase else told.since
        told = self._phases[event.node] = _Told(event, since, now, 0.0 if told is None else told.said)
        if told.is_settled:
            return self._tell_settled(event)
        if self.live.on:
            return self._show()
        new_step = before is None or (before.step and before.step.name) != (event.step and event.step.name)
        if new_phase or new_step or now - told.said > _PLAIN_PAUSE:
            told.said = now
            narrate.say(f"{event.node}  {phase_line(event, event.elapsed, self.ascii)}")
        return None

    def _tell_settled(self, event: PhaseChanged) -> None:
        style = {Phase.READY: "good", Phase.FAILED: "bad"}.get(event.phase, "dim")
        words = f"{event.instance} {phase_word(event.phase)}"
        if event.elapsed:
            words += f" after {spoken(event.elapsed)}"
        if event.detail:
            words += f"   {clean(event.detail)}"
        self._line(event.node, style, symbol(event.phase, self.ascii), words)

    def _tell_end(self, event: Ended) -> None:
        self._phases.clear()
        self.live.clear()
        if event.verdict is not None:
            if event.outcome is Outcome.TIMED_OUT:
                words = f"{event.instance} not ready after {spoken(event.seconds)}"
                self._line(event.node or "", "attention", symbol(Phase.UNKNOWN, self.ascii), words)
            narrate.say()
            for line in verdict_lines(event.verdict, event.instance, event.node):
                narrate.say(line, _VERDICT_HANG if line.startswith(" ") else 0)
        if event.message and event.outcome in (Outcome.DONE, Outcome.READY, Outcome.DETACHED, Outcome.PLANNED):
            for line in clean_lines(event.message):
                narrate.say(line)
        elif event.message and event.message not in self._warned:
            narrate.error(_of_its_node(event, event.message), event.hint)
        if event.outcome is Outcome.READY and (unguarded := guard_coverage_warning(event.guard)) is not None:
            narrate.warning(event.node, f"{event.instance}: {unguarded}", f"sparkctl guard status --node {event.node}")
        if event.log and event.outcome in (Outcome.FAILED, Outcome.TIMED_OUT):
            narrate.say(f"  log     {event.log}", _VERDICT_HANG)
            for _, path in event.more_logs:  # the path names its Spark
                narrate.say(f"          {path}", _VERDICT_HANG)
        if event.endpoint:
            output.text(event.endpoint)

    def _show(self) -> None:
        """Rewrite the live line: how far the first node is, and behind it the others."""
        going = [told for told in self._phases.values() if not told.is_settled]
        if not going:
            return
        first, *others = going
        mark = paint(symbol(first.event.phase, self.ascii), "attention", self.colour)
        line = f"{first.event.node}  {mark} {phase_line(first.event, first.elapsed, self.ascii)}"
        for told in others:
            line += f"   {told.event.node} {phase_word(told.event.phase)} {step_words(told.event.step, self.ascii)}".rstrip()
        self.live.show(line)

    def _line(self, node: str, style: str, mark: str, words: str) -> None:
        self.live.clear()
        narrate.say(f"{node}  {paint(mark, style, self.colour)} {words}", len(node) + 4)
        if self.live.on:
            self._show()


def _usually(event: PhaseChanged) -> str:
    """Return how long a phase usually takes, with all its steps, where that is known."""
    seconds = sum(one.seconds for one in event.expected_parts if one.phase is event.phase)
    return f", usually {spoken(seconds)}" if seconds >= 1 else ""


def _of_its_node(event: Ended, message: str) -> str:
    """Return the message with the node it is about, where it does not say so itself."""
    if event.outcome is not Outcome.UNREACHABLE or event.node is None or event.node in message:
        return message
    return f"{event.node}: {message}"
