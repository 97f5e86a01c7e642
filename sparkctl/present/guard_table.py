"""``guard status`` as text: per node whether a guard runs, what it watches, what it did."""

from __future__ import annotations

import time
from collections.abc import Sequence

from sparkctl.model.events import GuardActed
from sparkctl.model.finding import Severity
from sparkctl.model.guard import (
    OUT_OF_TIME,
    GuardAct,
    GuardAnswer,
    GuardEvent,
    GuardLevel,
    GuardState,
    GuardWatch,
    Receipt,
)
from sparkctl.model.node import NodeState
from sparkctl.model.phase import Phase
from sparkctl.model.text import clean
from sparkctl.model.units import gib, size, spoken
from sparkctl.operations.guard import GuardView
from sparkctl.operations.starting.judge import fall
from sparkctl.present.fold import fold
from sparkctl.present.sentences import guard_line
from sparkctl.present.symbols import symbol

_EVENTS = 5
_INDENT = 4


def guard_lines(views: Sequence[GuardView], ascii_only: bool = False, width: int | None = None) -> list[str]:
    """Return the lines of the whole picture; where ``width`` (columns) is given, none that can be broken is longer."""
    lines: list[str] = []
    for view in views:
        lines += ([""] if lines else []) + _node(view, ascii_only)
    return [part for line in lines for part in fold(line, width, _INDENT + 2)]


def _node(view: GuardView, ascii_only: bool) -> list[str]:
    hint = [f"    try: {clean(view.hint)}"] if view.hint else []
    detail = [f"    {clean(view.detail)}"] if view.detail else []
    if view.state is not NodeState.OK:
        words = f"{symbol(view.state, ascii_only)} {view.name}   {view.state}"
        return [words + (f": {clean(view.detail)}" if view.detail else ""), *hint]
    if view.guard is None:
        is_silent = view.answer is GuardAnswer.SILENT
        words = "a guard runs, but does not answer" if is_silent else "no guard runs"
        sign = symbol(Severity.WARNING if is_silent else Phase.STOPPED, ascii_only)
        lines = [f"{sign} {view.name}   {words}", *detail, *hint]
        return lines + [_receipt(receipt, view.name) for receipt in view.receipts]
    lines = [f"{symbol(view.state, ascii_only)} {view.name}   {_guard(view.guard)}", *detail, *hint]
    lines += _watches(view.guard.watches, view.when) if view.guard.watches else ["    nothing is watched"]
    told = [one for one in view.guard.events if _is_news(one, view.receipts)][-_EVENTS:]
    for one in told:
        acted = GuardActed(one.at, view.name, one.what, one.why, one.at, one.instance, None, one.available, one.free)
        lines.append(f"    {_clock(one.at)}  {guard_line(acted)}")
    return lines + [_receipt(receipt, view.name) for receipt in view.receipts]


def _is_news(event: GuardEvent, receipts: Sequence[Receipt]) -> bool:
    """A kill that has a receipt is told by it; a watch that ended with its purpose is no news, one out of time is."""
    if event.what is GuardAct.KILLED:
        return event.container not in [receipt.container for receipt in receipts]
    if event.what is GuardAct.ENDED:
        return event.why.startswith(OUT_OF_TIME)
    return event.what is not GuardAct.COMPACTED


def _guard(guard: GuardState) -> str:
    words = [f"guard since {_clock(guard.since)}", f"{gib(guard.available)} available"]
    if guard.docker is False:
        words.append("cannot reach Docker: it can warn, not act")
    words.append(
        {True: "may drop caches", False: "may not drop caches", None: "drop of caches: not known"}[guard.rights.drop]
    )
    if guard.locked is False:
        words.append("memory not locked")
    return "   ".join(words)


def _watches(watches: Sequence[GuardWatch], now: float) -> list[str]:
    rows = [
        (
            clean(watch.instance),
            watch.role.value if watch.role is not None else "",
            "memory is short" if watch.level is GuardLevel.WARNED else "calm",
            f"floor {size(watch.floor)}",
            f"for {spoken(max(0.0, watch.ends - now))} more",
            clean(watch.operator or ""),
        )
        for watch in watches
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        " " * _INDENT + "   ".join(cell.ljust(wide) for cell, wide in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _receipt(receipt: Receipt, node: str) -> str:
    instance = clean(receipt.instance or receipt.container[:12])
    return f"    {_clock(receipt.at)}  stopped {instance}: {fall(receipt)}   sparkctl logs {instance} --node {node}"


def _clock(when: float) -> str:
    """Return the date and the time of day: what is told here may be of another day, and is copied into reports."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(when))
