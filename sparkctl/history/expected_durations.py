"""How long a start and its phases usually take: medians of earlier successful starts. Pure."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

from sparkctl.model.phase import ExpectedDurations, Phase, PhaseDuration

_MAX_STARTS = 5  # starts that count
_MAX_PARTS = 32  # parts of one start
_MAX_STEP_NAME_CHARS = 64  # characters of a step's name

StartRow = Mapping[str, Any]


def compute_model_key(image: str, model: str | None) -> str:
    """Return a short hash that starts of the same image and model share."""
    return hashlib.sha256(f"{image}\n{model or ''}".encode()).hexdigest()[:12]


def estimate_durations(
    records: Sequence[StartRow], profile: str, digest: str, node: str, kind: str
) -> ExpectedDurations:
    """Return medians of the last five starts: of this exact profile on this node, else of the profile of this name; another
    profile may start otherwise. For the parts alone, starts of the same image and model are the last choice.

    A part is expected if half of the starts had it: compiled kernels are cached, so not every start compiles.
    """
    same, own, alike = _group_starts(records, profile, digest, node, kind)
    if not (same or own or alike):
        return ExpectedDurations()
    parts = [each for one in same if (each := decode_durations(one.get("parts")))] or [
        each for one in alike if (each := decode_durations(one.get("parts")))
    ]
    import statistics  # imported late: it takes 10 ms

    chosen = [float(one["seconds"]) for one in _choose_starts((same, own))]
    return ExpectedDurations(statistics.median(chosen) if chosen else None, _compute_part_medians(parts[-_MAX_STARTS:]))


def find_longest_phases(
    records: Sequence[StartRow], profile: str, digest: str, node: str, kind: str
) -> dict[Phase, float]:
    """Return the longest time that each phase took in the starts that `estimate_durations` counts: what a limit has to leave."""
    longest: dict[Phase, float] = {}
    for start in _choose_starts(_group_starts(records, profile, digest, node, kind)):
        took: dict[Phase, float] = {}
        for part in decode_durations(start.get("parts")):
            took[part.phase] = took.get(part.phase, 0.0) + part.seconds
        longest = {phase: max(took.get(phase, 0.0), longest.get(phase, 0.0)) for phase in took | longest}
    return longest


def find_longest_start(records: Sequence[StartRow], profile: str, digest: str, node: str, kind: str) -> float | None:
    """Return the longest of these starts, in seconds; None where there is none."""
    chosen = _choose_starts(_group_starts(records, profile, digest, node, kind))
    return max((float(one["seconds"]) for one in chosen), default=None)


def _choose_starts(groups: Sequence[list[StartRow]]) -> list[StartRow]:
    """Return the last starts of the first group that has any."""
    return next(filter(None, groups), [])[-_MAX_STARTS:]


def _group_starts(
    records: Sequence[StartRow], profile: str, digest: str, node: str, kind: str
) -> tuple[list[StartRow], list[StartRow], list[StartRow]]:
    """Return the whole starts of this exact profile on this node, of the profile's name (with the same image and model, if
    there are such), and of the same image and model."""
    whole = [one for one in records if is_duration(one.get("seconds")) and not one.get("joined")]
    alike = [one for one in whole if kind and one.get("kind") == kind]
    own = [[one for one in some if one.get("profile") == profile] for some in (alike, whole)]
    return [one for one in whole if one.get("hash") == digest and one.get("node") == node], own[0] or own[1], alike


def _compute_part_medians(starts: Sequence[Sequence[PhaseDuration]]) -> tuple[PhaseDuration, ...]:
    """Return the median of each part, in the order of the last start that had it."""
    import statistics

    took: dict[tuple[Phase, str | None, int], list[float]] = {}
    for start in reversed(starts):
        times: dict[tuple[Phase, str | None], int] = {}
        for one in start:
            times[one.part_key] = times.get(one.part_key, 0) + 1
            took.setdefault((*one.part_key, times[one.part_key]), []).append(one.seconds)
    usual = [
        PhaseDuration(key[0], key[1], statistics.median(each))
        for key, each in took.items()
        if 2 * len(each) >= len(starts)
    ]
    return tuple(sorted(usual, key=lambda one: one.phase.order))


def encode_durations(parts: Sequence[PhaseDuration]) -> list[list[object]]:
    """Return parts as the history stores them; `decode_durations` reads them again."""
    return [
        [str(one.phase), one.step and one.step[:_MAX_STEP_NAME_CHARS], round(one.seconds, 1)]
        for one in parts[:_MAX_PARTS]
    ]


def decode_durations(value: object) -> tuple[PhaseDuration, ...]:
    """Return the parts that `encode_durations` wrote, none at all if one of them is damaged."""
    found: list[PhaseDuration] = []
    for one in value[: _MAX_PARTS + 1] if isinstance(value, list) else ():
        match one:
            case [str(phase), str() | None as step, int() | float() as seconds] if (
                phase in _PHASE_NAMES and is_duration(seconds) and len(step or "") <= _MAX_STEP_NAME_CHARS
            ):
                found.append(PhaseDuration(Phase(phase), step, float(seconds)))
            case _:
                return ()
    return tuple(found) if len(found) <= _MAX_PARTS else ()


_PHASE_NAMES = frozenset(map(str, Phase))


def is_duration(value: object) -> bool:
    """Tell whether it is a usable number of seconds: JSON as Python reads it allows NaN and Infinity."""
    return isinstance(value, int | float) and abs(value) < 1e9 and math.isfinite(value) and value >= 0


def is_byte_count(value: object) -> bool:
    """Tell whether a stored value is a plausible number of bytes."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 50
