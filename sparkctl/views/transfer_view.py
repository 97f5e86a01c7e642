"""The progress of a transfer between two nodes, in one line."""

from __future__ import annotations

from sparkctl.model.events import TransferProgressed
from sparkctl.model.text.units import format_clock, format_size


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


def format_byte_rate(rate: float) -> str:
    """Return bytes per second as ``1.21 GB/s``, or ``34 MB/s`` below 1 GB/s."""
    return f"{rate / 1e9:.2f} GB/s" if rate >= 1e8 else f"{rate / 1e6:.0f} MB/s"
