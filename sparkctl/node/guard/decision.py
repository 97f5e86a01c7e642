"""The guard's decision, as pure functions: when to kill an instance because memory falls, and which one.

Sent to the node with the guard: standard library only, Python 3.8 or newer. Bytes; seconds of a monotonic clock.
"""

from __future__ import annotations

from collections import namedtuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import NamedTuple

    class MeminfoReading(NamedTuple):
        """The node's memory at a moment of the clock."""

        at: float
        available: int
        free: int
        page_cache: int
        swap_free: int

    class GuardDecision(NamedTuple):
        """What to do now. ``close``: read memory every `FAST_READ_SECONDS` seconds. ``rate`` in bytes/s and ``to_zero`` are None if
        memory does not fall.
        """

        act: str
        close: bool
        rate: float | None
        to_zero: float | None
        why: str

    class KillCandidate(NamedTuple):
        """A container that the guard may kill. ``grown``: bytes over the last seconds, None = not known."""

        container: str
        loading: bool
        grown: int | None
        since: float
        tried: int
else:  # typing itself would cost the node a megabyte
    MeminfoReading = namedtuple("MeminfoReading", "at available free page_cache swap_free")
    GuardDecision = namedtuple("GuardDecision", "act close rate to_zero why")
    KillCandidate = namedtuple("KillCandidate", "container loading grown since tried")

MIB, GIB = 1 << 20, 1 << 30
CALM_READ_SECONDS, FAST_READ_SECONDS = 0.1, 0.01  # seconds between two readings
# A request is on its way within two fast readings; the rest is for a wake-up that comes late. It is no longer than this
# because a KV cache is taken at 14 GiB/s, and one that ends with 1 GiB left must not be ended 0.07 s before that.
KILL_LEAD_SECONDS = 0.05
WARNING_BAND_BYTES = GIB  # memory is read fast at most this far above the floor
WARNING_SECONDS = 1.0  # a fall is reported if it reaches the floor within this many seconds
RATE_WINDOW_SECONDS = 1.0  # for the readings from which the rate is computed
_MIN_RATE_SPAN_SECONDS = 0.018  # the shortest time for a rate: below it the kernel's rounding dominates
_CURRENT_FALL_SECONDS = 0.028  # the time over which memory must fall to count as falling now
MIN_DROP_BYTES = GIB  # less page cache than this is not worth a drop
# A single refused allocation is common in a good start, and engines probe for memory; several at once with little memory
# left, or while memory runs out, come before a freeze.
NEARLY_GONE_BYTES = 1 << 30  # where a refused driver is about to take the machine with it
REFUSALS_TO_ACT, REFUSAL_WINDOW_SECONDS, REFUSAL_TO_ZERO_SECONDS = 2, 5.0, 1.0
DEFAULT_CACHE_BELOW_BYTES, DEFAULT_CACHE_BELOW_SHARE = (
    8 * GIB,
    0.06,
)  # of MemFree: the default is the smaller of the two


def needs_fast_reads(floor: int, readings: Sequence[MeminfoReading], rate: float | None) -> bool:
    """Tell whether to read memory every `FAST_READ_SECONDS` seconds: below half of the way to `near`, or soon at the floor at the
    present rate, that of `compute_fastest_decline`.

    Soon is two seconds, or four reads if reads come late.
    """
    available = readings[-1].available
    soon = max(2.0, 4 * (readings[-1].at - readings[-2].at)) if len(readings) > 1 else 2.0
    return available < (floor + compute_warning_level(floor)) // 2 or (
        rate is not None and available - floor < soon * rate
    )


def measure_read_delay(floor: int, readings: Sequence[MeminfoReading]) -> float:
    """Return how late the last read came, in seconds; 0 if it came on time."""
    gap = readings[-1].at - readings[-2].at if len(readings) > 1 else 0.0
    if gap <= KILL_LEAD_SECONDS:
        return 0.0
    before = readings[:-1]
    return gap if needs_fast_reads(floor, before, compute_fastest_decline(before)) else 0.0


def compute_lowered_floor(floor: int, available: int) -> int:
    """Return the floor used while memory is already below ``floor``: an eighth below what is available, or 16 MiB.

    So memory that stays there kills nothing, and memory that falls further does.
    """
    return min(floor, available - max(16 * MIB, available // 8))


def adapt_floor(active: int, floor: int, available: int, is_ending: bool) -> int:
    """Return the floor in force from ``active``: a lowered one is the full one again when memory is back, and sinks with
    memory while a container that is being killed (``is_ending``) may still allocate.
    """
    if active >= floor or available >= (floor + compute_warning_level(floor)) // 2:
        return floor
    return min(active, compute_lowered_floor(floor, available)) if is_ending else active


def compute_warning_level(floor: int) -> int:
    """Return the available bytes below which the floor is close: twice the floor; for a high one, a GiB above it."""
    return floor + min(floor, WARNING_BAND_BYTES)


def compute_fastest_decline(readings: Sequence[MeminfoReading]) -> float | None:
    """Return the fastest fall of MemAvailable (bytes/s) from any reading of the last second to now, None if there is
    none.
    """
    at, available, best = readings[-1].at, readings[-1].available, 0.0
    for before, was_available, _, _, _ in reversed(readings):
        span, fall = at - before, was_available - available
        if span > RATE_WINDOW_SECONDS and best:
            break
        if fall > best * span and span >= _MIN_RATE_SPAN_SECONDS:
            best = fall / span
    return best or None


def compute_current_decline(readings: Sequence[MeminfoReading]) -> float:
    """Return how fast it falls now (bytes/s), 0 if the last reading is not lower than the one before.

    At most twice as fast as between the last two readings, so that a fall that has just ended does not count; and at
    most as fast as the second fastest step, so that one jump does not count.
    """
    now, at = readings[-1], len(readings) - 1
    slopes: list[float] = []
    while at > 0 and (len(slopes) < 2 or now.at - readings[at].at < _CURRENT_FALL_SECONDS):
        after, before = readings[at], readings[at - 1]
        if after.at <= before.at:
            break
        slopes.append((before.available - after.available) / (after.at - before.at))
        at -= 1
    if len(slopes) < 2:
        return 0.0
    lately = (readings[at].available - now.available) / (now.at - readings[at].at)
    return max(0.0, min(lately, 2 * slopes[0], 2 * sorted(slopes)[-2]))


def decide_action(floor: int, readings: Sequence[MeminfoReading], may_drop: bool = False) -> GuardDecision:
    """Return what to do for a watch with this floor: ``calm``, ``warn``, ``drop`` or ``kill``.

    ``readings``: those of the last second, the newest last, every `CALM_READ_SECONDS` or, if the last decision was
    ``close``, every `FAST_READ_SECONDS`.

    Kill: two readings in a row below the floor, however far apart, or a fall that leaves nothing after
    `KILL_LEAD_SECONDS`. Never on one reading alone, nor above the floor while memory does not fall. If the node delays
    reads so much that nothing may be left at the next one, that delay replaces `KILL_LEAD_SECONDS`, and below the floor
    it replaces the second reading.
    """
    now = readings[-1]
    rate = compute_fastest_decline(readings)
    to_zero = now.available / rate if rate else None
    is_near = now.available < compute_warning_level(floor)
    close = needs_fast_reads(floor, readings, rate)
    falling = compute_current_decline(readings)
    before = readings[-2] if len(readings) > 1 else now
    stall = measure_read_delay(floor, readings)
    gone_next = stall > 0 and before.available - now.available >= now.available
    if now.available < floor and (gone_next or (before is not now and before.available < floor)):
        return GuardDecision("kill", True, rate, to_zero, _describe_shortage(now, floor, rate, to_zero))
    lead = (
        max(KILL_LEAD_SECONDS, 1.5 * min(stall, measure_read_delay(floor, readings[:-1])))
        if stall
        else KILL_LEAD_SECONDS
    )
    if falling and now.available <= falling * lead:
        why = f"{_format_size(now.available)} are available and fall by {_format_size(falling)} a second: gone in "
        return GuardDecision(
            "kill", True, falling, now.available / falling, f"{why}{now.available / falling * 1000:.0f} ms"
        )
    if not is_near and now.available - floor >= falling * WARNING_SECONDS:
        return GuardDecision("calm", close, rate, to_zero, "")
    why = (
        _describe_shortage(now, compute_warning_level(floor), rate, to_zero)
        if is_near
        else f"memory falls by {_format_size(falling)} a second"
    )
    helps = may_drop and now.free < compute_warning_level(floor) and now.page_cache > MIN_DROP_BYTES // 4
    return GuardDecision(
        "drop" if helps else "warn", close, rate, to_zero, f"{why}; the floor is {_format_size(floor)}"
    )


def decide_on_refusals(
    bound: int, readings: Sequence[MeminfoReading], refusals: int, step: GuardDecision
) -> GuardDecision:
    """Return what to do though memory alone says ``step``: the driver was refused memory ``refusals`` times in the last
    `REFUSAL_WINDOW_SECONDS`.

    Kill as at the floor if memory is also below ``bound``, or gone in `REFUSAL_TO_ZERO_SECONDS` at the present rate.
    Refusals alone only warn.
    """
    if step.act == "kill" or not refusals:
        return step
    now = readings[-1]
    falling = compute_current_decline(readings)
    is_short = now.available < bound or now.available < falling * REFUSAL_TO_ZERO_SECONDS
    times = "once" if refusals == 1 else f"{refusals} times in {REFUSAL_WINDOW_SECONDS:.0f} s"
    why = f"the GPU's driver was refused memory {times} (NV_ERR_NO_MEMORY); {_format_size(now.available)} are available"
    if is_short and refusals >= REFUSALS_TO_ACT:
        return GuardDecision("kill", True, step.rate, step.to_zero, why)
    why += "; the guard acts if it is refused again" if is_short else ", so nothing is stopped"
    return GuardDecision("warn" if step.act == "calm" else step.act, True, step.rate, step.to_zero, why)


def is_starved_by_page_cache(now: MeminfoReading, below: int) -> bool:
    """Tell whether page cache keeps free memory below ``below``, so that a drop would help an engine."""
    return now.free < below and now.page_cache > MIN_DROP_BYTES


def compute_drop_pause(pause: float, before: MeminfoReading, after: MeminfoReading) -> float:
    """Return the pause after a drop that came after ``pause``: twice as long if it freed almost nothing.

    Page cache that is mapped or dirty survives every drop, and each drop slows down readers.
    """
    freed = max(after.free - before.free, before.page_cache - after.page_cache)
    return 0.0 if freed >= MIN_DROP_BYTES // 4 else min(60.0, 2 * pause)


def get_default_cache_below(total: int | None) -> int:
    return (
        DEFAULT_CACHE_BELOW_BYTES
        if total is None
        else min(DEFAULT_CACHE_BELOW_BYTES, int(total * DEFAULT_CACHE_BELOW_SHARE))
    )


def choose_kill_candidate(candidates: Iterable[KillCandidate]) -> KillCandidate | None:
    """Return which instance to kill: a loading one before a serving one, then the one that grew most, then the newest.

    One that survived two attempts comes last.
    """
    ranked = sorted(candidates, key=lambda one: (one.tried >= 2, not one.loading, -(one.grown or 0), -one.since))
    return ranked[0] if ranked else None


def _format_size(size: float) -> str:
    return f"{size / GIB:.1f} GiB" if size >= GIB else f"{size / MIB:.0f} MiB"


def _describe_shortage(now: MeminfoReading, bound: int, rate: float | None, to_zero: float | None) -> str:
    text = f"{_format_size(now.available)} are available, under {_format_size(bound)}"
    return (
        text
        if rate is None or to_zero is None or to_zero > 60
        else f"{text}; at this rate they are gone in {to_zero:.1f} s"
    )
