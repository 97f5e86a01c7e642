"""The middle of several values. Python's own is in `statistics`, whose import, with fractions and decimals, takes 10 ms."""

from __future__ import annotations

from collections.abc import Iterable


def compute_median(values: Iterable[float]) -> float:
    """Return the middle value; of an even number, the mean of the middle two. Raises IndexError where there is none."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
