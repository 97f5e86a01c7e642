"""In one line of the overview each: the switch that this panel does, one that was left, and what is carried. Pure."""

from __future__ import annotations

import time

from sparkctl.model.events import TransferProgressed
from sparkctl.model.finding import Severity
from sparkctl.model.node import NodeName
from sparkctl.model.phase import Phase
from sparkctl.model.switch_plan import SwitchJournalStatus, SwitchStep
from sparkctl.model.units import format_clock, format_size
from sparkctl.monitor.switch_progress import SwitchProgress
from sparkctl.views.switch_view import SWITCH_STEPS, describe_step
from sparkctl.views.text.charts import render_gauge
from sparkctl.views.text.line_wrap import wrap_line
from sparkctl.views.text.state_symbols import state_symbol
from sparkctl.views.text.styled_text import Span, TextRow, TextStyle, make_row, row_width, sanitized
from sparkctl.views.transfer_view import format_byte_rate

_BAR = 20  # columns


def render_switch_progress_line(
    course: SwitchProgress, now: float, key: str | None, ascii_only: bool = False
) -> TextRow:
    """Return how far a switch is that goes on; ``key`` shows it."""
    step = course.step
    tone = TextStyle.BAD if course.is_rolling_back else TextStyle.ATTENTION
    words = "beginning" if step is None else describe_step(step, course)
    which = _number(step)
    shows = () if key is None else (Span(f"   {key}", TextStyle.KEY), Span(" shows it", TextStyle.LABEL))
    return make_row(
        Span(f"{state_symbol(Phase.STARTING, ascii_only)} ", tone), sanitized(f"switch to {course.instance}", TextStyle.STRONG),
        sanitized(f"{which} · {format_clock(max(0.0, now - course.began))}", tone), *shows, sanitized(f"   {words}", tone),
    )  # fmt: skip


def _number(step: SwitchStep | None) -> str:
    return f", step {SWITCH_STEPS.index(step) + 1} of {len(SWITCH_STEPS)}" if step in SWITCH_STEPS else ""


def render_unfinished_switch(
    words: str, keys: tuple[tuple[str, str], ...], *, is_held: bool, ascii_only: bool = False, columns: int = 80
) -> tuple[TextRow, ...]:
    """Return a switch of somebody else's, or one that was left: ``words`` say who, which step, since when; ``keys`` what
    can be done, each with its word, in a row of their own. What is longer than so many ``columns`` is broken."""
    sign = state_symbol(Phase.STARTING if is_held else Severity.WARNING, ascii_only)
    shown = [
        span for key, does in keys for span in (Span(f"  {key}", TextStyle.KEY), Span(f" {does}", TextStyle.LABEL))
    ]
    lines = wrap_line(sanitized(words).text, max(20, columns - 2), 0)
    told = [
        make_row(Span("  " if at else f"{sign} ", TextStyle.ATTENTION), Span(line, TextStyle.ATTENTION))
        for at, line in enumerate(lines)
    ]
    if len(told) > 1 and shown and row_width(told[-1]) + row_width(tuple(shown)) <= columns:
        return (*told[:-1], (*told[-1], *shown))  # lines are few where the terminal is narrow
    return (*told, tuple(shown)) if shown else tuple(told)


def moved_row(one: TransferProgressed, ascii_only: bool = False) -> TextRow:
    """Return how far something is that is carried from one Spark to another: what matters most stands first."""
    arrow = ">" if ascii_only else "→"
    spans = [sanitized(f"{one.source} {arrow} {one.node}  ", TextStyle.TITLE)]
    if one.total:
        spans += [
            *render_gauge(one.done / one.total, _BAR, ascii_only),
            Span(f"  {min(100, one.done * 100 // one.total)} %"),
        ]
    if one.rate is not None:
        spans.append(Span(f"  {format_byte_rate(one.rate)}", TextStyle.VALUE))
    if one.left is not None and one.total and one.done < one.total:
        spans.append(Span(f"  {format_clock(one.left)} left", TextStyle.STRONG))
    of = f" of {format_size(one.total)}" if one.total else ""
    return make_row(*spans, sanitized(f"   {one.what}, {format_size(one.done)}{of}", TextStyle.LABEL))


def moved_short(one: TransferProgressed) -> str:
    """Return ``to spark2: 36 %, 0:18 left``."""
    share = f" {min(100, round(100 * one.done / one.total))} %" if one.total else ""
    left = "" if one.left is None else f", {format_clock(one.left)} left"
    return f"to {one.node}:{share}{left}"


def describe_switch_journal(node: NodeName, view: SwitchJournalStatus) -> str:
    """Return ``switch to qwen36 was left: step 3 of 6, releasing, by milo@laptop since 14:02``."""
    one = view.journal
    if one is None:
        return f"{node}: the journal of a switch lies there, and {view.why}"
    state = "goes on" if view.is_held else "was left"
    number = _number(one.step)
    where = number.removeprefix(", ") + f", {one.step}" if number else f"on its way back, {one.step}"
    since = time.strftime("%H:%M", time.localtime(one.since))
    return f"switch to {one.instance} {state}: {where}, by {one.operator} since {since}"
