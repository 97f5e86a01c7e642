"""In one line of the overview each: the switch that this panel does, one that was left, and what is carried. Pure."""

from __future__ import annotations

import time

from sparkctl.core.switch_course import SwitchCourse
from sparkctl.model.events import Moved
from sparkctl.model.finding import Severity
from sparkctl.model.node import NodeName
from sparkctl.model.phase import Phase
from sparkctl.model.switch import JournalView, SwitchStep
from sparkctl.model.units import clock, size
from sparkctl.present.bars import gauge
from sparkctl.present.fold import fold
from sparkctl.present.moving import rate_words
from sparkctl.present.spans import Row, Span, Tone, row, said, width
from sparkctl.present.switch_screen import WAY, words_of
from sparkctl.present.symbols import symbol

_BAR = 20  # columns


def course_line(course: SwitchCourse, now: float, key: str | None, ascii_only: bool = False) -> Row:
    """Return how far a switch is that goes on; ``key`` shows it."""
    step = course.step
    tone = Tone.BAD if course.is_going_back else Tone.ATTENTION
    words = "beginning" if step is None else words_of(step, course)
    which = _number(step)
    shows = () if key is None else (Span(f"   {key}", Tone.KEY), Span(" shows it", Tone.LABEL))
    return row(
        Span(f"{symbol(Phase.STARTING, ascii_only)} ", tone), said(f"switch to {course.instance}", Tone.STRONG),
        said(f"{which} · {clock(max(0.0, now - course.began))}", tone), *shows, said(f"   {words}", tone),
    )  # fmt: skip


def _number(step: SwitchStep | None) -> str:
    return f", step {WAY.index(step) + 1} of {len(WAY)}" if step in WAY else ""


def left_lines(
    words: str, keys: tuple[tuple[str, str], ...], *, is_held: bool, ascii_only: bool = False, columns: int = 80
) -> tuple[Row, ...]:
    """Return a switch of somebody else's, or one that was left: ``words`` say who, which step, since when; ``keys`` what
    can be done, each with its word, in a row of their own. What is longer than so many ``columns`` is broken."""
    sign = symbol(Phase.STARTING if is_held else Severity.WARNING, ascii_only)
    shown = [span for key, does in keys for span in (Span(f"  {key}", Tone.KEY), Span(f" {does}", Tone.LABEL))]
    lines = fold(said(words).text, max(20, columns - 2), 0)
    told = [
        row(Span("  " if at else f"{sign} ", Tone.ATTENTION), Span(line, Tone.ATTENTION))
        for at, line in enumerate(lines)
    ]
    if len(told) > 1 and shown and width(told[-1]) + width(tuple(shown)) <= columns:
        return (*told[:-1], (*told[-1], *shown))  # lines are few where the terminal is narrow
    return (*told, tuple(shown)) if shown else tuple(told)


def moved_row(one: Moved, ascii_only: bool = False) -> Row:
    """Return how far something is that is carried from one Spark to another: what matters most stands first."""
    arrow = ">" if ascii_only else "→"
    spans = [said(f"{one.source} {arrow} {one.node}  ", Tone.TITLE)]
    if one.total:
        spans += [*gauge(one.done / one.total, _BAR, ascii_only), Span(f"  {min(100, one.done * 100 // one.total)} %")]
    if one.rate is not None:
        spans.append(Span(f"  {rate_words(one.rate)}", Tone.VALUE))
    if one.left is not None and one.total and one.done < one.total:
        spans.append(Span(f"  {clock(one.left)} left", Tone.STRONG))
    of = f" of {size(one.total)}" if one.total else ""
    return row(*spans, said(f"   {one.what}, {size(one.done)}{of}", Tone.LABEL))


def moved_short(one: Moved) -> str:
    """Return ``to spark2: 36 %, 0:18 left``."""
    share = f" {min(100, round(100 * one.done / one.total))} %" if one.total else ""
    left = "" if one.left is None else f", {clock(one.left)} left"
    return f"to {one.node}:{share}{left}"


def journal_words(node: NodeName, view: JournalView) -> str:
    """Return ``switch to qwen36 was left: step 3 of 6, releasing, by milo@laptop since 14:02``."""
    one = view.journal
    if one is None:
        return f"{node}: the journal of a switch lies there, and {view.why}"
    state = "goes on" if view.is_held else "was left"
    number = _number(one.step)
    where = number.removeprefix(", ") + f", {one.step}" if number else f"on its way back, {one.step}"
    since = time.strftime("%H:%M", time.localtime(one.since))
    return f"switch to {one.instance} {state}: {where}, by {one.operator} since {since}"
