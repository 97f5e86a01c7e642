"""What is wrong with the Sparks, for the panel: what `doctor` found and what the samples show now, the worst first. Pure."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass

from sparkctl.core.actions import ACTIONS
from sparkctl.core.store import LoadView
from sparkctl.model.events import Found
from sparkctl.model.finding import FindingKind, Severity
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.text import clean
from sparkctl.present.findings import since_words
from sparkctl.present.fold import fold
from sparkctl.present.frame import filled, framed
from sparkctl.present.scrolled import Page, listed, scrolled
from sparkctl.present.spans import Row, Span, Tone, cells, row, said
from sparkctl.present.symbols import symbol

_ORDER = (Severity.PROBLEM, Severity.WARNING, Severity.UNKNOWN, Severity.NOTE, Severity.GOOD)
_TONES = {Severity.GOOD: Tone.GOOD, Severity.WARNING: Tone.ATTENTION, Severity.PROBLEM: Tone.BAD}
_COUNTED = {
    Severity.PROBLEM: ("problem", "problems"), Severity.WARNING: ("warning", "warnings"),
    Severity.UNKNOWN: ("not known", "not known"), Severity.NOTE: ("note", "notes"), Severity.GOOD: ("good", "good"),
}  # fmt: skip
_SILENT = (NodeState.UNREACHABLE, NodeState.UNTRUSTED, NodeState.REFUSED, NodeState.STARVED)
_OURS = re.compile(r"sparkctl [a-z][a-z-]*(?: [A-Za-z0-9_.:@-]+)*")  # one command, nothing beside it
_PLACEHOLDER = re.compile(r"\b[A-Z]{3,}\b")


@dataclass(frozen=True, slots=True)
class Entry:
    """One finding. ``is_live``: the samples show it now; else it was so when `doctor` looked. ``since`` in words."""

    found: Found
    is_live: bool
    since: str | None = None

    @property
    def key(self) -> tuple[str, ...]:
        """What stays the same while its figures change."""
        one = self.found
        return (one.node or "", one.check, one.instance or "", "" if one.instance or self.is_live else one.message)

    @property
    def command(self) -> str | None:
        """The remedy as it is copied: without the words that say where it is to be typed."""
        remedy = self.found.remedy
        if remedy is None:
            return None
        return re.sub(rf"^(?:once )?on {re.escape(self.found.node or '')}: |^once: ", "", remedy)

    @property
    def deed(self) -> tuple[str, ...] | None:
        """The command line of ours that the remedy is and nothing else; None where it is for the operator's own hands."""
        remedy = self.found.remedy
        if remedy is None or not _OURS.fullmatch(remedy) or _PLACEHOLDER.search(remedy):
            return None
        words = tuple(shlex.split(remedy)[1:])
        return words if any(one.changes and one.verb == words[0] for one in ACTIONS) else None


@dataclass(frozen=True, slots=True)
class Checkup:
    """All that the screen shows. ``when``: when `doctor` last looked, unix seconds; ``running`` are those being examined."""

    entries: tuple[Entry, ...] = ()
    when: float | None = None
    running: tuple[NodeName, ...] = ()
    chosen: tuple[str, ...] | None = None
    further: int = 0
    is_recording: bool = False
    ascii_only: bool = False

    @property
    def selected(self) -> Entry | None:
        """The chosen one, else the worst."""
        first = self.entries[0] if self.entries else None
        return next((one for one in self.entries if one.key == self.chosen), first)


def entries(
    found: Sequence[Found], views: Sequence[LoadView], told: Sequence[Found] = (), when: float | None = None
) -> tuple[Entry, ...]:
    """Return what a look found and what the views show, the worst first; of both the view's, which is newer.

    ``told`` is what was found by asking, whoever asked: it is in the views, too, but no sample shows it; what is older than
    the look at ``when``, and was not found by it, is over.
    """
    asked = {(one.node, one.check, one.instance, one.message) for one in told}
    live = [
        Entry(Found.of(view.when, one), True, since_words(one.since, _clock(view)))
        for view in views if view.state is NodeState.OK for one in view.findings
        if (one.node, one.kind.value, one.instance, one.summary) not in asked
    ]  # fmt: skip
    live += [_silence(view) for view in views if view.state in _SILENT]
    newer = {(one.found.node, one.found.check, one.found.instance) for one in live}
    seen = {(one.node, one.check, one.instance, one.message) for one in found}
    looked = [*found]
    looked += [
        one for one in told
        if (when is None or one.ts > when) and (one.node, one.check, one.instance, one.message) not in seen
    ]  # fmt: skip
    looks = [Entry(one, False) for one in looked if (one.node, one.check, one.instance) not in newer]
    names = [view.name for view in views]
    kinds = [kind.value for kind in FindingKind]

    def rank(one: Entry) -> tuple[int, int, int]:
        each = one.found
        return (
            _ORDER.index(each.severity),
            names.index(each.node) if each.node in names else len(names),
            kinds.index(each.check) if each.check in kinds else len(kinds),
        )

    return tuple(sorted((*live, *looks), key=rank))


def _time(when: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(when))


def _clock(view: LoadView) -> float:
    return view.sample.time if view.sample is not None else view.when


def _silence(view: LoadView) -> Entry:
    what = f"{view.state}" + (f": {view.detail}" if view.detail else "")
    return Entry(Found(view.when, view.name, FindingKind.CONNECTION.value, Severity.PROBLEM, what, view.hint), True)


def doctor_rows(checkup: Checkup, columns: int, lines: int) -> Page:
    """Return exactly ``lines`` rows: how it stands, the findings, and the selected one in full."""
    rows: list[Row] = [_standing(checkup)]
    further, count = 0, len(checkup.entries)
    if count:
        upper = min(count, max(3, lines - 1 - min(_most(checkup, columns), (lines - 1) // 2)))
        if lines - 1 - upper < 4:
            upper = min(count, lines - 1)
        rows += _list(checkup, upper)
        if (left := lines - len(rows)) >= 4 and checkup.selected is not None:
            below = _detail(checkup, checkup.selected, columns, min(left, _most(checkup, columns)))
            rows, further = [*rows, *below.rows], below.further
    return Page(filled(rows, columns, lines, checkup.ascii_only), further)


def _standing(checkup: Checkup) -> Row:
    if checkup.running:
        return row(" ", said(f"examining {' and '.join(checkup.running)} ...", Tone.ATTENTION))
    if checkup.is_recording:
        head = "a recording: what its samples show"
    elif checkup.when is None:
        head = "not examined yet"
    else:
        head = f"examined {_time(checkup.when)}"
    spans: list[Span] = [Span(f" {head}", Tone.LABEL)]
    for severity in _ORDER:
        if number := sum(one.found.severity is severity for one in checkup.entries):
            words = _COUNTED[severity][number != 1]
            spans += [Span(" · ", Tone.LABEL), Span(f"{number} {words}", _TONES.get(severity, Tone.LABEL))]
    bad = (Severity.PROBLEM, Severity.WARNING)
    if checkup.when is not None and not any(one.found.severity in bad for one in checkup.entries):
        spans.append(Span(" · nothing is wrong", Tone.GOOD))
    return tuple(spans)


def _list(checkup: Checkup, lines: int) -> list[Row]:
    wide = max(cells(clean(one.found.node or "")) for one in checkup.entries)
    kind = max(cells(clean(one.found.check)) for one in checkup.entries)
    mark = ">" if checkup.ascii_only else "▸"
    chosen = checkup.selected
    rows = []
    for one in checkup.entries:
        each, mine = one.found, one is chosen
        tone = Tone.STRONG if mine else Tone.LABEL if each.severity is Severity.GOOD else Tone.VALUE
        rows.append(
            row(
                Span(f" {mark if mine else ' '} ", Tone.ACCENT),
                Span(f"{symbol(each.severity, checkup.ascii_only)} ", _TONES.get(each.severity, Tone.LABEL)),
                said(f"{clean(each.node or ''):<{wide}}  ", Tone.TITLE if mine else Tone.LABEL),
                said(f"{clean(each.check):<{kind}}  ", Tone.LABEL), said(each.message, tone),
            )
        )  # fmt: skip
    at = 0 if chosen is None else checkup.entries.index(chosen)
    return listed(rows, at, lines)


def _most(checkup: Checkup, columns: int) -> int:
    """Return the lines of the longest finding, so that the list does not jump while it is gone through."""
    return max(len(_whole(one, columns - 4)) for one in checkup.entries) + 2


def _detail(checkup: Checkup, one: Entry, columns: int, lines: int) -> Page:
    tone = _TONES.get(one.found.severity, Tone.LABEL)
    sign = symbol(one.found.severity, checkup.ascii_only)
    title = row(Span(f"{sign} {_COUNTED[one.found.severity][0]}", tone), said(f"  {one.found.node or ''}", Tone.TITLE))
    page = scrolled(_whole(one, max(8, columns - 4)), checkup.further, lines - 2, checkup.ascii_only)
    return Page(framed(title, page.rows, columns, lines, chosen=False, ascii_only=checkup.ascii_only), page.further)


def _whole(one: Entry, columns: int) -> list[Row]:
    rows = [row(said(line, Tone.VALUE)) for line in fold(clean(one.found.message), columns, 0)]
    proof = [clean(str(figure)) for figure in one.found.evidence]
    proof += (
        ["seen now", *([one.since] if one.since else [])] if one.is_live else [f"as it was at {_time(one.found.ts)}"]
    )
    rows += [row(said(line, Tone.LABEL)) for line in fold(" · ".join(proof), columns, 0)]
    if one.found.remedy is None:
        return rows
    rows += [(), *(row(said(line, Tone.KEY)) for line in fold(clean(one.found.remedy), columns, 2))]
    does = (Span("   enter", Tone.KEY), Span(" does it, after a question", Tone.LABEL)) if one.deed else ()
    return [*rows, row(Span("y", Tone.KEY), Span(" copies it", Tone.LABEL), *does)]
