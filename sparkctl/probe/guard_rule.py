"""What the guard decides, as pure functions: when memory falls so that an instance has to end, and which one.

Travels beside `guard.py`: standard library only, Python 3.8 or newer. Bytes, seconds of a clock that only goes forward.
"""

from __future__ import annotations

from collections import namedtuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import NamedTuple

    class Reading(NamedTuple):
        """The node's memory at a moment of the clock."""

        at: float
        available: int
        free: int
        page_cache: int
        swap_free: int

    class Step(NamedTuple):
        """What to do now. ``close``: look every `FAST`. ``rate`` in bytes/s and ``to_zero`` are None without a fall."""

        act: str
        close: bool
        rate: float | None
        to_zero: float | None
        why: str

    class Candidate(NamedTuple):
        """A container that may be ended. ``grown``: bytes over the last seconds, None = not known."""

        container: str
        loading: bool
        grown: int | None
        since: float
        tried: int
else:  # typing itself would cost the node a megabyte
    Reading = namedtuple("Reading", "at available free page_cache swap_free")
    Step = namedtuple("Step", "act close rate to_zero why")
    Candidate = namedtuple("Candidate", "container loading grown since tried")

MIB, GIB = 1 << 20, 1 << 30
CALM, FAST = 0.1, 0.01  # seconds between two readings
# A request is on its way within two fast readings; the rest is for a wake-up that comes late. It is no longer than this
# because a KV cache is taken at 14 GiB/s, and one that ends with 1 GiB left must not be ended 0.07 s before that.
LEAD = 0.05
BAND = GIB  # at most so far above the floor one looks closely
SOON = 1.0  # seconds to the floor under which a fall is told
WINDOW = 1.0  # of the readings that the rate is taken from
_SPAN = 0.018  # the shortest time that a rate is taken over: less is the kernel's own rounding
_NOW = 0.028  # the time over which memory has to fall for it to be falling now
_STALE = 0.5  # a reading older than this proves nothing about now
CACHE_WORTH = GIB  # less page cache than this is not worth a drop
CACHE_BELOW, CACHE_SHARE = 8 * GIB, 0.06  # of MemFree: the default of the cache guard is the smaller of the two


def near(floor: int) -> int:
    """Return the available bytes under which the floor is close: twice the floor, for a high one a GiB above it."""
    return floor + min(floor, BAND)


def fastest_fall(readings: Sequence[Reading]) -> float | None:
    """Return the fastest fall of MemAvailable (bytes/s) to now from any reading of the last second, None without one."""
    now, best = readings[-1], 0.0
    for reading in reversed(readings):
        span = now.at - reading.at
        if span > WINDOW:
            break
        if span >= _SPAN:
            best = max(best, (reading.available - now.available) / span)
    return best or None


def falling_now(readings: Sequence[Reading]) -> float:
    """Return how fast it falls at this moment (bytes/s), 0 where the last reading is no lower than the one before.

    At most twice as fast as between the last two readings, so that a fall that has just ended is none; nor than in the
    second fastest step of the last moments, so that one jump is none.
    """
    now, at = readings[-1], len(readings) - 1
    slopes: list[float] = []
    while at > 0 and (len(slopes) < 2 or now.at - readings[at].at < _NOW):
        after, before = readings[at], readings[at - 1]
        if not 0 < after.at - before.at <= _STALE:
            break
        slopes.append((before.available - after.available) / (after.at - before.at))
        at -= 1
    if len(slopes) < 2:
        return 0.0
    lately = (readings[at].available - now.available) / (now.at - readings[at].at)
    return max(0.0, min(lately, 2 * slopes[0], 2 * sorted(slopes)[-2]))


def decide(floor: int, readings: Sequence[Reading], may_drop: bool = False) -> Step:
    """Return what to do for a watch with this floor: ``calm``, ``warn``, ``drop`` or ``kill``.

    ``readings``: the last second's, the newest last, every `CALM` or, where the last step said ``close``, every `FAST`.
    Kill: under the floor on two readings in a row, or falling so that nothing is left after `LEAD`. Nothing is done on
    one reading alone, nor above the floor while memory does not fall.
    """
    now = readings[-1]
    rate = fastest_fall(readings)
    to_zero = now.available / rate if rate else None
    to_floor = max(0, now.available - floor) / rate if rate else None
    is_near = now.available < near(floor)
    close = is_near or (to_floor is not None and to_floor < 2.0)
    falling = falling_now(readings)
    before = readings[-2] if len(readings) > 1 and now.at - readings[-2].at <= _STALE else None
    if before is not None and max(now.available, before.available) < floor:
        return Step("kill", True, rate, to_zero, _under(now, floor, rate, to_zero))
    if falling and now.available <= falling * LEAD:
        why = f"{_size(now.available)} are available and fall by {_size(falling)} a second: gone in "
        return Step("kill", True, falling, now.available / falling, f"{why}{now.available / falling * 1000:.0f} ms")
    if not is_near and now.available - floor >= falling * SOON:
        return Step("calm", close, rate, to_zero, "")
    why = _under(now, near(floor), rate, to_zero) if is_near else f"memory falls by {_size(falling)} a second"
    helps = may_drop and now.free < near(floor) and now.page_cache > CACHE_WORTH // 4
    return Step("drop" if helps else "warn", close, rate, to_zero, f"{why}; the floor is {_size(floor)}")


def cache_starves(now: Reading, below: int) -> bool:
    """Tell whether page cache keeps free memory under ``below``, so that a drop would give an engine room."""
    return now.free < below and now.page_cache > CACHE_WORTH


def default_cache_below(total: int | None) -> int:
    """Return the default of ``cache_below`` for a machine of ``total`` bytes."""
    return CACHE_BELOW if total is None else min(CACHE_BELOW, int(total * CACHE_SHARE))


def choose(candidates: Iterable[Candidate]) -> Candidate | None:
    """Return which instance is to end: one that loads before one that serves, then the one that grew most, then the newest.

    One that was to end twice already and is still there comes last.
    """
    ranked = sorted(candidates, key=lambda one: (one.tried >= 2, not one.loading, -(one.grown or 0), -one.since))
    return ranked[0] if ranked else None


def _size(size: float) -> str:
    return f"{size / GIB:.1f} GiB" if size >= GIB else f"{size / MIB:.0f} MiB"


def _under(now: Reading, bound: int, rate: float | None, to_zero: float | None) -> str:
    text = f"{_size(now.available)} are available, under {_size(bound)}"
    return text if rate is None or to_zero is None or to_zero > 60 else f"{text}, and last {to_zero:.1f} s at this rate"
