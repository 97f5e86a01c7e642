"""``guard status`` as text: per node whether a guard runs, what it watches, and what it did."""

from __future__ import annotations

from collections.abc import Sequence

from sparkctl.commands.arm_guard import GuardStatus
from sparkctl.logs.start_verdict import describe_guard_kill
from sparkctl.model.container import shorten_id
from sparkctl.model.finding import Severity
from sparkctl.model.guard_state import (
    LEASE_EXPIRED_PREFIX,
    GuardAction,
    GuardAlertLevel,
    GuardEvent,
    GuardReceipt,
    GuardRunState,
    GuardState,
    GuardWatch,
)
from sparkctl.model.node import NodeState
from sparkctl.model.phase import Phase
from sparkctl.model.text.sanitize import sanitize_line
from sparkctl.model.text.units import format_date_time, format_duration, format_gib, format_size
from sparkctl.views.event_text import format_guard_event
from sparkctl.views.text.line_wrap import align_cells, wrap_line
from sparkctl.views.text.styled_text import get_state_symbol

_MAX_EVENTS = 5
_INDENT_COLUMNS = 4


def format_guard_status(views: Sequence[GuardStatus], width: int | None = None) -> list[str]:
    """Return the lines of ``guard status``, wrapped to ``width`` columns if given."""
    blocks = [_format_node_guard(view) for view in views]
    gap = [""] if any(len(block) > 1 for block in blocks) else []  # a line for each node is a list of its own
    lines = [line for at, block in enumerate(blocks) for line in (*(gap if at else ()), *block)]
    return [part for line in lines for part in wrap_line(line, width, _INDENT_COLUMNS + 2)]


def _format_node_guard(view: GuardStatus) -> list[str]:
    hint = [f"    try: {sanitize_line(view.hint)}"] if view.hint else []
    detail = [f"    {sanitize_line(view.detail)}"] if view.detail else []
    if view.state is not NodeState.OK:
        words = f"{get_state_symbol(view.state)} {view.name}   {view.state}"
        return [words + (f": {sanitize_line(view.detail)}" if view.detail else ""), *hint]
    if view.guard is None:
        is_silent = view.answer is GuardRunState.SILENT
        words = "a guard runs, but does not answer" if is_silent else "no guard runs"
        sign = get_state_symbol(Severity.WARNING if is_silent else Phase.STOPPED)
        lines = [f"{sign} {view.name}   {words}", *detail, *hint]
        return lines + [_format_receipt(receipt, view.name) for receipt in view.receipts]
    lines = [
        f"{get_state_symbol(view.state)} {view.name}   {_format_guard_state(view.guard)}",
        *detail,
        *hint,
    ]
    lines += (
        _format_watches(view.guard.watches, view.when)
        if view.guard.watches
        else ["    nothing is watched now: a start is watched until its model is ready"]
    )
    events = [one for one in view.guard.events if _is_worth_showing(one, view.receipts)][-_MAX_EVENTS:]
    lines += [f"    {format_date_time(one.at, has_seconds=True)}  {format_guard_event(one)}" for one in events]
    return lines + [_format_receipt(receipt, view.name) for receipt in view.receipts]


def _is_worth_showing(event: GuardEvent, receipts: Sequence[GuardReceipt]) -> bool:
    """Tell whether to list an event: not a kill that has a receipt, and not a watch that ended as planned."""
    if event.what is GuardAction.KILLED:
        return event.container not in [receipt.container for receipt in receipts]
    if event.what is GuardAction.ENDED:
        return event.why.startswith(LEASE_EXPIRED_PREFIX)
    return event.what is not GuardAction.COMPACTED


def _format_guard_state(guard: GuardState) -> str:
    words = [
        f"guard since {format_date_time(guard.since, has_seconds=True)}",
        f"{format_gib(guard.available)} available",
    ]
    if guard.docker is False:
        words.append("cannot reach Docker: it can warn, not act")
    words.append(
        {True: "may drop caches", False: "may not drop caches", None: "right to drop caches: not known"}[
            guard.rights.drop
        ]
    )
    if guard.locked is False:
        words.append("memory not locked")
    if guard.log_trouble is not None:
        words.append(f"does not see refusals of the GPU's driver ({sanitize_line(guard.log_trouble)})")
    return "   ".join(words)


def _format_watches(watches: Sequence[GuardWatch], now: float) -> list[str]:
    rows = [
        (
            sanitize_line(watch.instance),
            watch.role.value if watch.role is not None else "",
            "memory is short" if watch.level is GuardAlertLevel.WARNED else "calm",
            f"floor {format_size(watch.floor)}",
            f"for {format_duration(max(0.0, watch.ends - now))} more",
            sanitize_line(watch.operator or ""),
        )
        for watch in watches
    ]
    return [" " * _INDENT_COLUMNS + "   ".join(cells).rstrip() for cells in align_cells(rows)]


def _format_receipt(receipt: GuardReceipt, node: str) -> str:
    instance = sanitize_line(receipt.instance or shorten_id(receipt.container))
    when = format_date_time(receipt.at, has_seconds=True)
    return f"    {when}  stopped {instance}: {describe_guard_kill(receipt)}   sparkctl logs {instance} --node {node}"
