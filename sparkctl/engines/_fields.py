"""Stats lines of the shape ``Head, key: value, key: value``: read by key, because their order differs by version."""

from __future__ import annotations

import math
import re

_NUMBER = re.compile(r"[-+]?(?:\d++(?:\.\d*+)?|\.\d++)(?:e[-+]?\d++)?")


def parse_stats_fields(text: str) -> dict[str, str]:
    """Return the values by key. A part without a key belongs to the value before it (a list of numbers)."""
    found: dict[str, str] = {}
    key: str | None = None
    for part in text.split(", "):
        name, colon, value = part.partition(": ")
        if colon:
            key = name.strip()
            found[key] = value.strip()
        elif key is not None:
            found[key] += f", {part.strip()}"
    return found


def parse_leading_number(text: str | None) -> float | None:
    """Return the number that ``12.7 tokens/s`` or ``0.7%`` begins with (the share is not divided); None for ``nan``."""
    if text is None or (match := _NUMBER.match(text.strip())) is None:
        return None
    value = float(match[0])
    return value if math.isfinite(value) else None


def parse_percent(text: str | None) -> float | None:
    """Return 0.007 for ``0.7%``."""
    value = parse_leading_number(text)
    return None if value is None else value / 100


def parse_number_list(text: str | None) -> tuple[float, ...] | None:
    """Return the numbers of a list such as ``0.861, 0.707``; None where it is empty or holds anything else."""
    if not text:
        return None
    values = [parse_leading_number(part) for part in text.split(", ")]
    known = tuple(value for value in values if value is not None)
    return known if len(known) == len(values) else None
