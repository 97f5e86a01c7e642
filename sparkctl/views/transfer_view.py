"""The progress of a transfer between two nodes, in one line: for the command line, for the panel, and in short."""

from __future__ import annotations

from sparkctl.model.events import TransferProgressed
from sparkctl.model.text.units import format_clock, format_size
from sparkctl.views.text.charts import render_gauge
from sparkctl.views.text.styled_text import Span, TextRow, TextStyle, make_row, sanitize_span

_BAR_COLUMNS = 20


def format_transfer(event: TransferProgressed) -> str:
    """Return ``files of qwen36  12.3 of 34.2 GiB  36 %  1.21 GB/s  0:18 left``, without what is not known."""
    parts = [event.what]
    if event.total:
        share = min(100, round(100 * event.done / event.total))
        parts += [f"{format_size(event.done)} of {format_size(event.total)}", f"{share} %"]
    else:
        parts.append(format_size(event.done))
    if event.rate is not None:
        parts.append(format_byte_rate(event.rate))
    if event.left is not None and event.total and event.done < event.total:
        parts.append(f"{format_clock(event.left)} left")
    return "   ".join(parts)


def render_transfer_bars(event: TransferProgressed) -> list[TextRow]:
    """Return the progress as a terminal shows it: a bar for all of it, and one below it for each part that comes now."""
    head = [sanitize_span(f"{event.node}  ")]
    if event.total:
        head += [*render_gauge(min(1.0, event.done / event.total), _BAR_COLUMNS), Span("  ")]
    rows = [make_row(*head, sanitize_span(format_transfer(event)))]
    for part in event.parts:
        spans = [sanitize_span(f"  {part.name}  ", TextStyle.LABEL)]
        if part.total and part.done is not None:
            spans += [*render_gauge(min(1.0, part.done / part.total), _BAR_COLUMNS), Span("  ")]
        amount = f"  {format_size(part.done)} of {format_size(part.total)}" if part.total and part.done else ""
        rows.append(make_row(*spans, sanitize_span(f"{part.state}{amount}", TextStyle.LABEL)))
    return rows


def format_byte_rate(rate: float) -> str:
    """Return bytes per second as ``1.21 GB/s``, or ``34 MB/s`` below 1 GB/s."""
    return f"{rate / 1e9:.2f} GB/s" if rate >= 1e8 else f"{rate / 1e6:.0f} MB/s"


def render_transfer(one: TransferProgressed) -> TextRow:
    """Return the progress of a transfer between Sparks, the most important figures first."""
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
    return make_row(*spans, sanitize_span(f"   {one.what}, {format_size(one.done)}{of}", TextStyle.LABEL))


def format_transfer_short(one: TransferProgressed) -> str:
    """Return ``to spark2: 36 %, 0:18 left``."""
    share = f" {min(100, round(100 * one.done / one.total))} %" if one.total else ""
    left = "" if one.left is None else f", {format_clock(one.left)} left"
    return f"to {one.node}:{share}{left}"
