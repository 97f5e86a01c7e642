"""Bytes and seconds as owners write and read them. Memory is binary (GiB) everywhere, as the kernel counts it."""

from __future__ import annotations

import re
import time

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
_SIZE_PATTERN = re.compile(r"\s*+(\d++(?:\.\d++)?)\s*+([kmgt]?)(i?b)?\s*+", re.IGNORECASE)
_UNIT_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_DURATION_PATTERN = re.compile(r"(\d++(?:\.\d++)?)\s*+(ms|s|m|h|d)?")
_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, None: 1.0}


def parse_size(text: str | int) -> int:
    """Return bytes for Docker's spelling of a size: ``16g``, ``512m``, ``1.5GiB``, ``4096``.

    Suffixes are powers of 1024, as `docker run --shm-size` takes them. Raises ValueError with the text.
    """
    match = _SIZE_PATTERN.fullmatch(str(text))
    if match is None:
        raise ValueError(f"{text!r} is not a size; write for example 16g, 512m or 4096")
    return int(float(match[1]) * 1024 ** _UNIT_POWERS[match[2].lower()])


def parse_duration(text: str | float) -> float:
    """Return seconds for ``90``, ``90s``, ``20m``, ``1h30m``, ``500ms``. Raises ValueError with the text."""
    if isinstance(text, int | float) and not isinstance(text, bool):
        if text < 0:
            raise ValueError(f"{text} is negative; a duration is 0 or more")
        return float(text)
    cleaned = str(text).replace(" ", "")
    parts = list(_DURATION_PATTERN.finditer(cleaned))
    if not parts or "".join(part[0] for part in parts) != cleaned:
        raise ValueError(f"{text!r} is not a duration; write for example 90s, 20m or 1h30m")
    return sum(float(part[1]) * _UNIT_SECONDS[part[2]] for part in parts)


def format_gib(count: int | None) -> str:
    """Return ``98.4 GiB``, from 1024 on ``2.2 TiB``, or an em dash where the number is not known."""
    if count is not None and count >= 1024 * GIB:
        return f"{count / GIB / 1024:.1f} TiB"
    return "—" if count is None else f"{count / GIB:.1f} GiB"


def format_size(count: int) -> str:
    """Return ``778 MiB`` below a GiB, ``1.5 GiB`` from there on: for what may be small."""
    return f"{count / MIB:.0f} MiB" if count < GIB else format_gib(count)


def format_clock(seconds: float | None) -> str:
    """Return ``4:10`` or ``1:02:03`` for a duration on a live line, an em dash where it is not known."""
    if seconds is None:
        return "—"
    whole = max(0, int(seconds))
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"


def format_date_time(when: float, *, has_seconds: bool = False) -> str:
    """Return ``2026-07-28 19:05`` for unix seconds, in this machine's time zone, an em dash where it is 0: not known."""
    return (
        time.strftime("%Y-%m-%d %H:%M:%S" if has_seconds else "%Y-%m-%d %H:%M", time.localtime(when)) if when else "—"
    )


def format_time_of_day(when: float, *, has_seconds: bool = False) -> str:
    """Return ``19:05`` for unix seconds, in this machine's time zone."""
    return time.strftime("%H:%M:%S" if has_seconds else "%H:%M", time.localtime(when))


_DAY_SECONDS = 86400.0


def format_ago(when: float | None, now: float) -> str:
    """Return ``just now``, ``12 min ago``, ``5 h ago`` or ``23 d ago`` for a time in unix seconds, an em dash where it is
    not known.
    """
    if when is None:
        return "—"
    passed = now - when
    if passed < 60:
        return "just now"
    if passed < 3600:
        return f"{int(passed // 60)} min ago"
    return f"{int(passed // 3600)} h ago" if passed < _DAY_SECONDS else f"{int(passed // _DAY_SECONDS)} d ago"


def format_duration(seconds: float | None) -> str:
    """Return ``48 s``, ``4 min 10 s`` or ``3 h 12 min`` for a sentence, an em dash where it is not known."""
    if seconds is None:
        return "—"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    unit, part, names = (60, 1, ("min", "s")) if whole < 3600 else (3600, 60, ("h", "min"))
    rest = f" {whole % unit // part} {names[1]}" if whole % unit // part else ""
    return f"{whole // unit} {names[0]}{rest}"
