"""What YAML gave, as the kind of thing that is wanted: people write lists for strings, strings for numbers, null for nothing."""

from __future__ import annotations

import datetime
import json
import re
from typing import Any

# What no profile may hold: controls but for tab and line end, halves of surrogates.
UNWELCOME = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def scalar_text(value: object) -> str | None:
    """Return a scalar's text as YAML means it to be read (true, not True), None for null, lists and maps."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    return value.isoformat() if isinstance(value, datetime.date) else None


def scalar_texts(value: object) -> list[str]:
    """Return a list's scalars, or one scalar as a list."""
    values = value if isinstance(value, list | tuple) else [value]
    return [found for one in values if (found := scalar_text(one)) is not None]


def as_mapping(value: object) -> dict[str, Any]:
    """Return a map with text for keys; a list of maps merged; ``K=V`` words of a list as pairs; else an empty one."""
    if isinstance(value, dict):
        return {key: one for raw, one in value.items() if (key := scalar_text(raw)) is not None}
    found: dict[str, Any] = {}
    for one in value if isinstance(value, list | tuple) else []:
        if isinstance(one, dict):
            found |= as_mapping(one)
        elif (word := scalar_text(one)) is not None:
            name, equals, rest = word.partition("=")
            found[name.strip()] = rest if equals else None
    return found


def whole_number(value: object) -> int | None:
    """Return a whole number, also one that is written as text or as 2.0; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str | int | float):
        try:
            found = float(str(value).strip())
        except ValueError:
            return None
        return int(found) if found == found and abs(found) < 1e15 and found == int(found) else None
    return None


def is_truthy(value: object) -> bool:
    """Tell whether something is meant to be on."""
    return str(value).strip().lower() in ("true", "yes", "on", "1") if value is not None else False


def to_json_data(value: object) -> object:
    """Return JSON data: what YAML has more of (dates, sets, keys that are no text) as text."""
    if isinstance(value, dict):
        return {UNWELCOME.sub(" ", scalar_text(key) or str(key)): to_json_data(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set):
        return [to_json_data(one) for one in value]
    if isinstance(value, str):
        return UNWELCOME.sub(" ", value)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else str(value)
    return scalar_text(value) or str(value)


def kind(value: object) -> str:
    """Return in words what kind of thing it is."""
    if isinstance(value, dict):
        return "a map"
    if isinstance(value, list | tuple):
        return "a list of such things"
    return f"`{(scalar_text(value) or str(value))[:40]}`"


def is_empty_value(value: object) -> bool:
    """Tell whether a key says nothing: null, an empty text, list or map."""
    return value is None or value == "" or value == [] or value == {}


def compact_json(value: object) -> str:
    """Return JSON text."""
    return json.dumps(to_json_data(value), ensure_ascii=False, separators=(",", ":"))
