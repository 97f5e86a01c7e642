"""What the guard decides, on curves that it samples as it would: no false alarm, and no machine that reaches zero."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkctl.model.launch_plan import DEFAULT_FLOOR_BYTES
from sparkctl.node.guard.decision import (
    CALM_READ_SECONDS,
    FAST_READ_SECONDS,
    GIB,
    KILL_LEAD_SECONDS,
    MIB,
    NEARLY_GONE_BYTES,
    KillCandidate,
    MeminfoReading,
    choose_kill_candidate,
    compute_drop_pause,
    compute_lowered_floor,
    decide_action,
    decide_on_refusals,
    get_default_cache_below,
    is_starved_by_page_cache,
)

settings.register_profile("curves", max_examples=60, deadline=None)
CURVES = settings.get_profile("curves")
Curve = Callable[[float], float]
CACHE = 3 * GIB
PHASES = st.floats(0, CALM_READ_SECONDS)
LATE = st.floats(0, 0.002)


@dataclass(frozen=True)
class GuardCourse:
    """How a curve went: when it was to be ended and what was left then; how many looks; what was done before."""

    killed_at: float | None
    left: float
    looks: int
    acts: frozenset[str]


def play_curve(
    curve: Curve, seconds: float, floor: int = DEFAULT_FLOOR_BYTES, phase: float = 0.0, late: float = 0.0
) -> GuardCourse:
    """Sample a curve as the guard does: every CALM, or FAST where the last step asked for it, each look ``late``."""
    at, count, readings, acts = phase, 0, list[MeminfoReading](), set[str]()
    while at < seconds:
        available = max(0, int(curve(at)))
        readings.append(MeminfoReading(at, available, available, CACHE, 0))
        if len(readings) > 250:
            del readings[:125]
        step = decide_action(floor, readings)
        count += 1
        acts.add(step.act)
        if step.act == "kill":
            return GuardCourse(at, curve(at), count, frozenset(acts))
        at += (FAST_READ_SECONDS if step.close else CALM_READ_SECONDS) + late
    return GuardCourse(None, curve(seconds), count, frozenset(acts))


def make_falling_curve(start: float, slope: float, end: float = -1e18, since: float = 1.0) -> Curve:
    """From ``start`` at ``slope`` bytes/s from ``since`` on, until ``end``."""
    return lambda t: max(end, start - slope * max(0.0, t - since))


@CURVES
@given(
    base=st.integers(DEFAULT_FLOOR_BYTES + 20 * MIB, 120 * GIB),
    noise=st.lists(st.integers(-8 * MIB, 8 * MIB), min_size=7, max_size=40),
    phase=PHASES,
)
def test_steady_above_the_floor_is_never_ended(base: int, noise: list[int], phase: float) -> None:
    assert play_curve(lambda t: base + noise[int(t * 97) % len(noise)], 4, phase=phase).killed_at is None


@CURVES
@given(
    start=st.floats(2 * GIB, 120 * GIB),
    slope=st.floats(20 * MIB, 60 * GIB),
    floor=st.integers(64 * MIB, 16 * GIB),
    phase=PHASES,
    late=LATE,
)
def test_any_slope_that_can_be_seen_is_ended_before_zero(
    start: float, slope: float, floor: int, phase: float, late: float
) -> None:
    if (
        slope * 0.15 > start and start / slope < CALM_READ_SECONDS + 3 * (FAST_READ_SECONDS + late) + 0.02
    ):  # all gone between two looks
        start = slope * (CALM_READ_SECONDS + 3 * (FAST_READ_SECONDS + late) + 0.02)
    start = min(start, 2 * floor + 3 * slope)  # of a long way its end
    found = play_curve(make_falling_curve(start, slope), 1 + start / slope, floor, phase, late)
    assert found.killed_at is not None
    assert found.left > 0
    if start > floor and slope * KILL_LEAD_SECONDS < floor:
        assert found.left > floor - slope * (CALM_READ_SECONDS + 3 * (FAST_READ_SECONDS + late))


@CURVES
@given(
    slope=st.floats(0.05 * GIB, 14 * GIB),
    start=st.floats(4 * GIB, 60 * GIB),
    stall=st.floats(0.02, 1.5),
    phase=PHASES,
)
def test_a_node_that_lets_us_look_seldom_is_ended_before_zero(
    slope: float, start: float, stall: float, phase: float
) -> None:
    start = max(start, slope * 4 * (CALM_READ_SECONDS + stall))  # it can be seen
    start = min(start, 2 * DEFAULT_FLOOR_BYTES + slope * 6 * (CALM_READ_SECONDS + stall))
    found = play_curve(make_falling_curve(start, slope), 3 + start / slope, phase=phase, late=stall)
    assert found.killed_at is not None
    assert found.left > 0


@CURVES
@given(stall=st.floats(0.0, 1.5), size=st.floats(1, 100), left=st.floats(0.55, 60), phase=PHASES)
def test_a_stall_alone_ends_nothing_above_the_floor(stall: float, size: float, left: float, phase: float) -> None:
    jump = lambda t: (left + (size if t < 1.0 else 0)) * GIB  # noqa: E731
    assert play_curve(jump, 8, phase=phase, late=stall).killed_at is None


@CURVES
@given(slope=st.floats(200 * MIB, 8 * GIB), burst=st.integers(16 * MIB, 128 * MIB), phase=PHASES, late=LATE)
def test_a_fall_in_bursts_is_ended_before_zero(slope: float, burst: int, phase: float, late: float) -> None:
    smooth = make_falling_curve(12 * GIB, slope)
    found = play_curve(lambda t: smooth(t) // burst * burst, 1 + 12 * GIB / slope, phase=phase, late=late)
    assert found.killed_at is not None
    assert found.left > 0


@CURVES
@given(
    speeds=st.lists(st.floats(0.05, 14), min_size=1, max_size=4),
    pauses=st.lists(st.floats(0, 2), min_size=4, max_size=4),
    phase=PHASES,
)
def test_a_load_that_ends_with_one_gib_and_stays_is_not_ended(
    speeds: list[float], pauses: list[float], phase: float
) -> None:
    pieces = [(speed, 15 * GIB / (speed * GIB), pause) for speed, pause in zip(speeds, pauses, strict=False)]

    def curve(t: float) -> float:
        gone, at = 0.0, 0.5
        for speed, lasts, pause in pieces:
            gone += speed * GIB * min(lasts, max(0.0, t - at))
            at += lasts + pause
        return GIB + 15 * GIB * len(pieces) - gone

    end = 0.5 + sum(lasts + pause for _, lasts, pause in pieces)
    window = min(end, 8.0)  # of a slow one its end
    found = play_curve(lambda t: curve(t + end - window), window + 3, phase=phase)
    assert found.killed_at is None
    assert found.left == pytest.approx(GIB)


@CURVES
@given(left=st.floats(0.7, 100), phase=PHASES, late=LATE)
def test_a_jump_of_20_gib_that_stops_above_the_floor_is_not_ended(left: float, phase: float, late: float) -> None:
    jump = make_falling_curve((left + 20) * GIB, 20 * GIB / 1.5, left * GIB)
    assert play_curve(jump, 8, phase=phase, late=late).killed_at is None


@CURVES
@given(size=st.floats(1, 100), left=st.floats(0.55, 8), phase=PHASES)
def test_a_jump_between_two_readings_is_not_ended(size: float, left: float, phase: float) -> None:
    wobble = [0, 1, 0, 2, 1, 3]
    jump = lambda t: (left + (size if t < 1.0 else 0)) * GIB - wobble[int(t * 83) % 6] * MIB  # noqa: E731
    assert play_curve(jump, 6, phase=phase).killed_at is None


@pytest.mark.parametrize("phase", [0.0, 0.02, 0.04, 0.06, 0.08])
def test_the_falls_that_froze_real_machines(phase: float) -> None:
    memory = play_curve(make_falling_curve(34 * GIB, 21.3 * GIB / 1.5, 12.7 * GIB), 10, phase=phase)
    assert memory.killed_at is None
    for start, slope in ((34, 21.3 / 1.5), (9.9, 7.5 / 2.9), (9.9, 7.5 / 1.0)):
        lost = play_curve(make_falling_curve(start * GIB, slope * GIB), 30, phase=phase)
        assert lost.killed_at is not None
        assert lost.left > 0.25 * GIB, "time for the request to be sent"
        assert lost.left < 0.9 * GIB, "and not on a fall that a good load may have"
        assert "warn" in lost.acts


def test_page_cache_that_fills_all_memory_is_nothing_to_the_memory_guard() -> None:
    readings = [
        MeminfoReading(t / 10, 60 * GIB, max(GIB // 2, 60 * GIB - t * GIB), min(59, t) * GIB, 0) for t in range(100)
    ]
    steps = [decide_action(DEFAULT_FLOOR_BYTES, readings[: at + 1], may_drop=True) for at in range(len(readings))]
    assert {(step.act, step.close) for step in steps} == {("calm", False)}
    assert not is_starved_by_page_cache(readings[5], 8 * GIB)
    assert is_starved_by_page_cache(readings[-1], 8 * GIB)
    assert not is_starved_by_page_cache(readings[-1]._replace(page_cache=MIB), 8 * GIB), "nothing there to drop"


def test_under_the_floor_it_takes_two_readings() -> None:
    above, below = (
        MeminfoReading(0.0, DEFAULT_FLOOR_BYTES + 9 * MIB, 0, 0, 0),
        MeminfoReading(0.01, DEFAULT_FLOOR_BYTES - 1, 0, 0, 0),
    )
    assert decide_action(DEFAULT_FLOOR_BYTES, [below]).act == "warn"
    assert decide_action(DEFAULT_FLOOR_BYTES, [above, below]).act == "warn"
    killing = decide_action(DEFAULT_FLOOR_BYTES, [above, below, below._replace(at=0.02)])
    assert (killing.act, killing.close) == ("kill", True)
    assert "under 512 MiB" in killing.why
    assert decide_action(DEFAULT_FLOOR_BYTES, [below, below._replace(at=9.0)]).act == "kill", (
        "a node that stalls us is short of memory"
    )
    assert decide_action(DEFAULT_FLOOR_BYTES, [below, above._replace(at=0.02)]).act == "warn"


def test_while_memory_is_under_the_floor_already_it_takes_a_further_fall() -> None:
    assert compute_lowered_floor(32 * GIB, 20 * GIB) == 20 * GIB - 20 * GIB // 8
    assert compute_lowered_floor(512 * MIB, 64 * MIB) == 48 * MIB
    assert compute_lowered_floor(512 * MIB, 4 * GIB) == 512 * MIB, "never above the floor"


def test_drop_only_where_it_can_help() -> None:
    low = MeminfoReading(0.0, 700 * MIB, 300 * MIB, GIB, 0)
    assert decide_action(DEFAULT_FLOOR_BYTES, [low], may_drop=True).act == "drop"
    assert decide_action(DEFAULT_FLOOR_BYTES, [low]).act == "warn"
    assert decide_action(DEFAULT_FLOOR_BYTES, [low._replace(page_cache=100 * MIB)], may_drop=True).act == "warn"
    assert decide_action(DEFAULT_FLOOR_BYTES, [low._replace(free=2 * GIB)], may_drop=True).act == "warn"


def test_it_looks_rarely_far_from_the_floor_and_often_near_it() -> None:
    assert play_curve(lambda _: 60 * GIB, 10).looks == pytest.approx(101, abs=1)
    assert play_curve(lambda _: 0.9 * GIB, 10).looks == pytest.approx(101, abs=1), "one lives well near a GiB"
    assert play_curve(lambda _: 0.7 * GIB, 10).looks == pytest.approx(1000, rel=0.02)


def test_a_drop_that_frees_nothing_is_repeated_ever_more_rarely() -> None:
    now = MeminfoReading(0.0, 60 * GIB, 2 * GIB, 50 * GIB, 0)
    assert compute_drop_pause(5.0, now, now._replace(free=40 * GIB, page_cache=12 * GIB)) == 0
    assert compute_drop_pause(5.0, now, now._replace(page_cache=45 * GIB)) == 0, "an engine took what came free"
    pauses = [5.0]
    for _ in range(6):
        pauses.append(compute_drop_pause(pauses[-1], now, now._replace(free=now.free + MIB)))
    assert pauses == [5, 10, 20, 40, 60, 60, 60]


def test_the_cache_guards_default_is_the_smaller_of_the_two() -> None:
    assert get_default_cache_below(121 * GIB) == int(121 * GIB * 0.06)
    assert get_default_cache_below(1024 * GIB) == 8 * GIB
    assert get_default_cache_below(None) == 8 * GIB


def test_the_kill_candidate_is_chosen() -> None:
    serving = KillCandidate("s", False, 9 * GIB, 1.0, 0)
    loading = KillCandidate("l", True, MIB, 0.0, 0)
    grew = KillCandidate("g", True, GIB, 0.0, 0)
    newest = KillCandidate("n", True, None, 5.0, 0)
    assert choose_kill_candidate([]) is None
    assert choose_kill_candidate([serving]) == serving
    assert choose_kill_candidate([serving, loading]) == loading
    assert choose_kill_candidate([serving, loading, grew, newest]) == grew
    assert choose_kill_candidate([newest, loading._replace(grown=None)]) == newest
    assert choose_kill_candidate([serving, loading._replace(tried=2)]) == serving, (
        "one that cannot be ended is not asked for ever"
    )


def decide_refused(
    refusals: int, *available: float, step: float = FAST_READ_SECONDS, floor: int = DEFAULT_FLOOR_BYTES
) -> str:
    readings = [MeminfoReading(at * step, int(size), int(size), CACHE, 0) for at, size in enumerate(available)]
    return decide_on_refusals(max(floor, NEARLY_GONE_BYTES), readings, refusals, decide_action(floor, readings)).act


def test_a_refused_allocation_alone_only_warns() -> None:
    level = [22 * GIB] * 5
    assert decide_refused(0, *level) == "calm"
    assert decide_refused(1, *level) == "warn"
    assert decide_refused(60, *level) == "warn", "engines probe for memory, and nothing is short"
    assert decide_refused(1, *[900 * MIB] * 5) == "warn", "good starts have one such line"
    assert decide_refused(2, *[2.9 * GIB] * 5, floor=2 * GIB) == "warn", "above the floor, and memory does not fall"
    claims = [(34 - 14 * at * 0.05) * GIB for at in range(10)]
    assert decide_refused(2, *claims, step=0.05) == "warn", "a KV cache is claimed as fast as that"


def test_refusals_near_the_floor_or_in_a_fall_act_as_the_floor_does() -> None:
    assert decide_refused(2, *[900 * MIB] * 5) == "kill"
    # dgx-spark-playbooks#116: 34 to 12.7 GiB in 1.5 s, with two lines of the driver
    falling = [(34 - 14.2 * at * 0.1) * GIB for at in range(16)]
    assert decide_refused(2, *falling, step=0.1) == "kill"
    assert decide_refused(1, *falling, step=0.1) == "warn"


def test_the_reason_names_the_driver_and_what_was_left() -> None:
    readings = [MeminfoReading(at * 0.01, 900 * MIB, 900 * MIB, CACHE, 0) for at in range(5)]
    step = decide_on_refusals(NEARLY_GONE_BYTES, readings, 3, decide_action(DEFAULT_FLOOR_BYTES, readings))
    assert step.why == "the GPU's driver was refused memory 3 times in 5 s (NV_ERR_NO_MEMORY); 900 MiB are available"
    once = decide_on_refusals(NEARLY_GONE_BYTES, readings, 1, decide_action(DEFAULT_FLOOR_BYTES, readings)).why
    assert once.endswith("900 MiB are available; the guard acts if it is refused again")
    plenty = [MeminfoReading(at * 0.01, 22 * GIB, 22 * GIB, CACHE, 0) for at in range(5)]
    calm = decide_on_refusals(NEARLY_GONE_BYTES, plenty, 3, decide_action(DEFAULT_FLOOR_BYTES, plenty)).why
    assert calm.endswith("22.0 GiB are available, so nothing is stopped")
