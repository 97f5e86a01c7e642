"""How a verb ended, in one line, and what there is to read about it."""

from __future__ import annotations

from collections.abc import Sequence

from sparkctl.model.events import CachesDropped, Ended, GuardActed, Outcome, Warned
from sparkctl.model.finding import Severity
from sparkctl.model.guard import GuardAct
from sparkctl.model.phase import Phase
from sparkctl.model.text import clean_lines
from sparkctl.model.units import spoken
from sparkctl.present.fold import within
from sparkctl.present.sentences import caches_line, guard_coverage_warning, guard_line
from sparkctl.present.spans import Row, Tone, cut, row, said
from sparkctl.present.symbols import symbol

_GOOD = (Outcome.READY, Outcome.DONE, Outcome.PLANNED, Outcome.DETACHED)
_DID = {"up": "started", "down": "stopped"}


def result_line(
    verb: str, ended: Ended, nodes: Sequence[str], caches: Sequence[CachesDropped] = (), ascii_only: bool = False
) -> tuple[str, Tone]:
    """Return how it ended as one sentence, with its sign, and its tone. Nothing in it was cleaned yet."""
    good = ended.outcome in _GOOD
    sign = symbol(Phase.READY if good else Phase.FAILED, ascii_only)
    where = f" on {' and '.join(nodes)}" if nodes else ""
    tone = Tone.GOOD if good else Tone.BAD if ended.outcome is Outcome.FAILED else Tone.ATTENTION
    if caches and verb == "drop-caches":
        return f"{sign} " + "; ".join(f"{one.node}: {caches_line(one)}" for one in last_of_each(caches)), tone
    if ended.outcome is Outcome.READY:
        after = f" after {spoken(ended.seconds)}" if ended.message is None else ""
        words = ended.message or f"{ended.instance} is ready{where}{after}"
        if (unguarded := guard_coverage_warning(ended.guard)) is not None:
            words, tone = f"{words}; {unguarded}", Tone.ATTENTION
        return f"{sign} {words}" + (f"   {ended.endpoint}" if ended.endpoint else ""), tone
    if ended.verdict is not None:
        return f"{sign} {ended.instance} failed{where}: {ended.verdict.summary}", tone
    if verb == "free" and ended.outcome is Outcome.DONE:
        told = "; ".join((ended.message or "").splitlines())
        return f"{sign} everything of sparkctl's{where} has stopped{f'; {told}' if told else ''}", tone
    if ended.message:
        return f"{sign} {ended.message}" + (ways(ended.hint) if not good else ""), tone
    what = f"{ended.instance} {_DID.get(verb, verb)}" if ended.instance else verb
    return f"{sign} {what}{where}: {ended.outcome}, {spoken(ended.seconds)}", tone


def warning_notice(event: Warned, ascii_only: bool = False) -> tuple[str, Tone]:
    """Return a warning as one sentence, with its sign."""
    where = f"{event.node}: " if event.node else ""
    return f"{symbol(Severity.WARNING, ascii_only)} {where}{event.message}{ways(event.hint)}", Tone.ATTENTION


def ways(hint: str | None) -> str:
    """Return what can be done as the end of a sentence, each way behind its own word; nothing where there is none."""
    return "".join(f"   try: {line}" for line in (hint or "").splitlines())


def guard_notice(event: GuardActed, ascii_only: bool = False) -> tuple[str, Tone] | None:
    """Return what the guard did as one sentence; that a watch has ended because we ended it is no news."""
    if event.what is GuardAct.ENDED:
        return None
    bad = event.what in (GuardAct.KILLED, GuardAct.KILL_FAILED)
    good = event.what in (GuardAct.DROPPED, GuardAct.COMPACTED)
    sign = symbol(Severity.PROBLEM if bad else Severity.GOOD if good else Severity.WARNING, ascii_only)
    tone = Tone.BAD if bad else Tone.GOOD if good else Tone.ATTENTION
    return f"{sign} {event.node}: guard: {guard_line(event)}", tone


def last_of_each(caches: Sequence[CachesDropped]) -> list[CachesDropped]:
    """Return the last drop of each node."""
    return list({one.node: one for one in caches}.values())


def refused_rows(words: Sequence[str], ended: Ended, columns: int) -> list[Row]:
    """Return why a start was refused, and each way out on lines of its own."""
    rows = [row(said(f"sparkctl {' '.join(words)}", Tone.LABEL)), ()]
    for line in clean_lines(ended.message or ""):
        rows += [row(said(one, Tone.BAD)) for one in within(line, columns, 0)]
    for way in clean_lines(ended.hint or ""):
        rows += [(), *(row(said(one, Tone.VALUE)) for one in within(way, columns, 2))]
    return rows


def refusal_rows(message: str, hint: str | None, columns: int, lines: int) -> list[Row]:
    """Return why a line was refused and what to do, on at most so many lines: they stand above the line."""
    rows = []
    for words, tone in ((message, Tone.BAD), *(((hint, Tone.LABEL),) if hint else ())):
        rows += [row(" ", said(one, tone)) for line in clean_lines(words) for one in within(line, columns - 2, 0)]
    return [cut(one, columns) for one in rows[:lines]]
