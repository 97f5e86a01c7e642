"""An engine's speed from its log: lines are dated, bogus ones dropped, silence is idleness."""

from __future__ import annotations

import pytest

from sparkctl.model.engine_metrics import (
    DraftAcceptance,
    EngineActivity,
    EngineMeter,
    MeterSource,
    StatsLine,
    StatsLineKind,
)
from sparkctl.monitor.meters.engine_meters import StatsLineWindow, merge_meters


def read_meter_after(*lines: tuple[float, StatsLine], at: float | None = None) -> EngineMeter:
    window = StatsLineWindow()
    for when, line in lines:
        window.add_line(when, line)
    return window.compute_meter(lines[-1][0] if at is None else at)


def make_decode_line(rate: float, length: float | None = 1.75) -> StatsLine:
    share = None if length is None else (length - 1) / 3
    return StatsLine(
        kind=StatsLineKind.DECODE, generation_rate=rate, running=1, accept_length=length, accept_rate=share
    )


PREFILL = StatsLine(kind=StatsLineKind.PREFILL, running=0, prompt_tokens=300, cached_tokens=100)


def make_engine_line(rate: float, running: float = 1, source: str = "000") -> StatsLine:
    return StatsLine(
        kind=StatsLineKind.DECODE, source=source, generation_rate=rate, prompt_rate=5, running=running, every=10
    )


def make_draft_line(accepted: float, drafted: float, length: float | None) -> StatsLine:
    rate = accepted / drafted if drafted else None
    return StatsLine(
        kind=StatsLineKind.SPECULATION,
        accepted=accepted,
        drafted=drafted,
        accept_length=length,
        accept_rate=rate,
        every=10,
    )


def test_no_line_says_nothing() -> None:
    assert StatsLineWindow().compute_meter(1000) == EngineMeter()


def test_sglang_decode_lines() -> None:
    seen = read_meter_after(
        (0, PREFILL), (6, make_decode_line(4.0)), (12, make_decode_line(12.7, 1.7)), (18, make_decode_line(12.6, 1.8))
    )
    assert (seen.activity, seen.estimator, seen.generation_rate) == (EngineActivity.DECODING, MeterSource.LOG, 12.6)
    assert seen.acceptance is not None
    assert seen.acceptance.length == pytest.approx(1.75), "the mean of the lines in the window"
    assert seen.acceptance.estimator is MeterSource.LOG
    assert seen.steps == pytest.approx(12.6 / 1.75)


def test_the_first_decode_line_after_an_idle_gap_is_dropped() -> None:
    steady = [(0.0, make_decode_line(12.7)), (6.0, make_decode_line(12.7))]
    assert read_meter_after(*steady).generation_rate == 12.7
    again = [*steady, (300.0, PREFILL), (306.0, make_decode_line(0.3))]
    assert (read_meter_after(*again).activity, read_meter_after(*again).generation_rate) == (
        EngineActivity.DECODING,
        None,
    )
    assert read_meter_after(*again, (312.0, make_decode_line(12.5))).generation_rate == 12.5


def test_lines_far_apart_with_no_request_between_are_believed() -> None:
    """Forty steps of a large dense model take fifteen seconds; no request began, so nothing idled."""
    assert (
        read_meter_after((0, PREFILL), (15, make_decode_line(2.7)), (30, make_decode_line(2.7))).generation_rate == 2.7
    )


def test_a_prompt_is_being_read() -> None:
    seen = read_meter_after((0, PREFILL), at=2)
    assert (seen.activity, seen.prompt_rate, seen.generation_rate) == (EngineActivity.PREFILL, 30, 0)


def test_a_short_question_is_read_at_once_and_what_follows_is_not_known() -> None:
    """Answers of less than 40 tokens end before SGLang's first line about them."""
    short = StatsLine(kind=StatsLineKind.PREFILL, running=0, prompt_tokens=24, cached_tokens=0)
    assert read_meter_after((0, short), at=1).activity is EngineActivity.PREFILL
    assert read_meter_after((0, short), at=3) == EngineMeter()
    piece = StatsLine(kind=StatsLineKind.PREFILL, running=0, prompt_tokens=8192, cached_tokens=0)
    assert read_meter_after((0, piece), at=9).activity is EngineActivity.PREFILL


def test_health_checks_are_no_work() -> None:
    health = StatsLine(kind=StatsLineKind.HEALTH, running=0, prompt_tokens=1, cached_tokens=0)
    lines = [(float(at), health) for at in range(0, 60, 6)]
    assert read_meter_after(*lines).activity is EngineActivity.IDLE
    assert (
        read_meter_after(
            (0, make_decode_line(12.7)), (6, make_decode_line(12.7)), *((12.0 + at, one) for at, one in lines)
        ).activity
        is EngineActivity.IDLE
    )


def test_silence_is_idleness_and_holds_nothing() -> None:
    lines = [(0.0, make_decode_line(12.7)), (6.0, make_decode_line(12.7)), (12.0, make_decode_line(12.7))]
    assert read_meter_after(*lines, at=20).activity is EngineActivity.DECODING
    seen = read_meter_after(*lines, at=24)
    assert (seen.activity, seen.generation_rate, seen.acceptance, seen.running) == (EngineActivity.IDLE, 0, None, None)


def test_silence_after_a_prompt_of_an_engine_of_unknown_stride_is_not_yet_idle() -> None:
    assert read_meter_after((0, PREFILL), at=15).activity is None
    assert read_meter_after((0, PREFILL), at=31).activity is EngineActivity.IDLE


def test_vllm_lines_add_up_over_engines_and_drafts_weigh_by_number() -> None:
    seen = read_meter_after(
        (0, make_engine_line(100, 2, "000")),
        (0.1, make_engine_line(50, 1, "001")),
        (0.2, make_draft_line(100, 300, 2.0)),
        (0.3, make_draft_line(300, 900, 3.0)),
    )
    assert (seen.generation_rate, seen.running, seen.prompt_rate) == (150, 3, 10)
    assert seen.acceptance is not None
    assert seen.acceptance.length == pytest.approx(2.75)
    assert seen.acceptance.rate == pytest.approx(1 / 3)


def test_vllm_lines_without_drafts_are_no_acceptance() -> None:
    assert read_meter_after((0, make_engine_line(100)), (0.1, make_draft_line(0, 0, None))).acceptance is None
    assert read_meter_after((0, make_engine_line(100))).acceptance is None


def test_vllm_falls_silent_after_a_line_of_zeros() -> None:
    assert read_meter_after((0, make_engine_line(100)), at=14).activity is EngineActivity.DECODING
    assert read_meter_after((0, make_engine_line(100)), at=16).activity is EngineActivity.IDLE
    zeros = StatsLine(kind=StatsLineKind.DECODE, source="000", generation_rate=0, prompt_rate=0, running=0, every=10)
    assert read_meter_after((0, make_engine_line(100)), (10, zeros)).activity is EngineActivity.IDLE


def test_llama_slots_add_up_until_each_ends() -> None:
    first, second = (
        StatsLine(kind=StatsLineKind.DECODE, source=slot, generation_rate=4, running=1, every=3) for slot in "01"
    )
    ended = StatsLine(kind=StatsLineKind.REQUEST, source="0", generation_rate=0, running=0)
    assert read_meter_after((0, first), (1, second)).generation_rate == 8
    assert read_meter_after((0, first), (1, second), (2, ended)).generation_rate == 4
    assert read_meter_after((0, first), (2, ended), at=3).activity is EngineActivity.IDLE


COUNTED = EngineMeter(activity=EngineActivity.DECODING, seconds=10, estimator=MeterSource.COUNTERS, steps=7)
SAID = EngineMeter(
    activity=EngineActivity.DECODING,
    seconds=10,
    estimator=MeterSource.LOG,
    generation_rate=12,
    steps=6,
    acceptance=DraftAcceptance(1.75, 0.25, None, MeterSource.LOG),
)


def test_the_log_fills_what_the_counters_leave_open() -> None:
    seen = merge_meters(COUNTED, SAID)
    assert (seen.generation_rate, seen.estimator, seen.steps) == (12, MeterSource.LOG, 7)
    assert seen.acceptance == SAID.acceptance
    assert merge_meters(EngineMeter(), SAID) == SAID
    idle = EngineMeter(activity=EngineActivity.IDLE, seconds=10, estimator=MeterSource.COUNTERS, generation_rate=0)
    assert merge_meters(idle, SAID) == idle, "the counters are of the moment, the log is of before"
