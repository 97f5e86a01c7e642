"""An engine in the last ten seconds: restarts, missing series and idleness are told for what they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sparkctl.model.engine_metrics import EngineActivity, EngineMeter, EngineMetrics, Histogram, MeterSource
from sparkctl.monitor.meters.metrics_window import MetricsWindow


def read_meter_after(*readings: tuple[float, EngineMetrics], at: float | None = None) -> EngineMeter:
    window = MetricsWindow()
    for when, metrics in readings:
        window.add_reading(when, metrics)
    return window.compute_meter(readings[-1][0] if at is None else at)


def make_vllm_metrics(steps: float, accepted: float = 0.0, **more: float) -> EngineMetrics:
    """An engine with three drafts a step, in which ``steps`` were done by all requests together."""
    seen = EngineMetrics(
        generation_tokens=steps + accepted,
        prompt_tokens=0,
        drafts=steps,
        draft_tokens=3 * steps,
        accepted_tokens=accepted,
        running=1,
        waiting=0,
    )
    return replace(seen, **more)  # type: ignore[arg-type]


def test_rates_are_differences_over_time() -> None:
    seen = read_meter_after((0, make_vllm_metrics(100, 50)), (10, make_vllm_metrics(200, 125, prompt_tokens=400)))
    assert seen.activity is EngineActivity.DECODING
    assert seen.estimator is MeterSource.COUNTERS
    assert seen.seconds == 10
    assert (seen.generation_rate, seen.prompt_rate, seen.steps) == (17.5, 40, 10)
    assert seen.acceptance is not None
    assert (seen.acceptance.length, seen.acceptance.rate) == (1.75, 0.25)
    assert seen.acceptance.estimator is MeterSource.COUNTERS


def test_acceptance_of_a_real_run() -> None:
    """vLLM's own counters of one run, and what its log said of it: 3.45 tokens a step, 68.6 % of drafts."""
    start = EngineMetrics(generation_tokens=0, drafts=0, draft_tokens=0, accepted_tokens=0, running=1)
    end = EngineMetrics(generation_tokens=22736, drafts=6584, draft_tokens=23534, accepted_tokens=16152, running=1)
    seen = read_meter_after((0, start), (10, end)).acceptance
    assert seen is not None
    assert seen.length == pytest.approx(3.45, abs=0.005)
    assert seen.rate == pytest.approx(0.686, abs=0.0005)


def test_acceptance_per_draft_position() -> None:
    first = make_vllm_metrics(0, 0, accepted_per_position=(0.0, 0.0))  # type: ignore[arg-type]
    last = make_vllm_metrics(100, 120, accepted_per_position=(80.0, 40.0))  # type: ignore[arg-type]
    seen = read_meter_after((0, first), (10, last)).acceptance
    assert seen is not None
    assert seen.per_position == (0.8, 0.4)
    appeared = read_meter_after((0, make_vllm_metrics(0)), (10, last)).acceptance
    assert appeared is not None
    assert appeared.per_position is None, "a series that was not there has no difference"


def test_no_rate_before_the_second_reading() -> None:
    seen = read_meter_after((0, make_vllm_metrics(100, 50)))
    assert (seen.activity, seen.generation_rate, seen.acceptance, seen.steps) == (None, None, None, None)
    assert seen.running == 1


def test_no_rate_after_readings_stop() -> None:
    assert read_meter_after((0, make_vllm_metrics(0)), (10, make_vllm_metrics(100)), at=31) == EngineMeter()


def test_without_speculation_there_is_no_acceptance_and_a_step_is_a_token() -> None:
    plain = {"drafts": None, "draft_tokens": None, "accepted_tokens": None}
    seen = read_meter_after(
        (0, replace(make_vllm_metrics(0, running=3), **plain)),
        (10, replace(make_vllm_metrics(300, running=3), **plain)),
    )  # type: ignore[arg-type]
    assert (seen.generation_rate, seen.acceptance, seen.batch, seen.steps) == (30, None, 3, 10)


def test_steps_without_a_draft_are_steps() -> None:
    """n-gram finds no draft at temperature 1: tokens come, the drafts counter stands."""
    seen = read_meter_after((0, make_vllm_metrics(100, 50)), (10, make_vllm_metrics(100, 50, generation_tokens=250)))
    assert seen.activity is EngineActivity.DECODING
    assert seen.steps == 10
    assert seen.acceptance is not None
    assert (seen.acceptance.length, seen.acceptance.rate) == (None, None)


def test_a_step_serves_the_whole_batch_and_the_largest_where_requests_wait() -> None:
    readings = [
        (0, make_vllm_metrics(0, running=2)),
        (5, make_vllm_metrics(100, running=4)),
        (10, make_vllm_metrics(200, running=0)),
    ]
    assert read_meter_after(*readings).batch == pytest.approx(200 / (100 / 3 + 100 / 4)), "tokens over steps"
    readings[1] = (5, make_vllm_metrics(100, running=4, waiting=1))
    assert read_meter_after(*readings).steps == 5


def test_idle_is_idle_and_holds_nothing_of_before() -> None:
    busy, still = make_vllm_metrics(100, 50, running=1), make_vllm_metrics(100, 50, running=0)
    seen = read_meter_after((0, make_vllm_metrics(0)), (10, busy), (20, still), (30, still))
    assert seen.activity is EngineActivity.IDLE
    assert (seen.generation_rate, seen.steps, seen.acceptance, seen.batch) == (0, 0, None, None)


def test_a_prompt_being_read_is_not_idle() -> None:
    seen = read_meter_after((0, make_vllm_metrics(100)), (10, make_vllm_metrics(100, running=1)))
    assert (seen.activity, seen.generation_rate, seen.steps) == (EngineActivity.PREFILL, 0, None)


def test_a_restart_is_a_new_baseline() -> None:
    window = MetricsWindow()
    window.add_reading(0, make_vllm_metrics(1000, 500))
    window.add_reading(5, make_vllm_metrics(1050, 520))
    window.add_reading(10, make_vllm_metrics(20, 10))
    assert window.compute_meter(10).generation_rate is None
    window.add_reading(15, make_vllm_metrics(70, 35))
    assert window.compute_meter(15).generation_rate == 15


def test_another_process_is_a_restart_even_if_it_has_overtaken() -> None:
    seen = read_meter_after((0, make_vllm_metrics(100, started=1.0)), (10, make_vllm_metrics(900, started=2.0)))
    assert (seen.activity, seen.generation_rate) == (None, None)


def test_a_series_that_vanished_is_a_restart() -> None:
    seen = read_meter_after((0, make_vllm_metrics(100)), (10, replace(make_vllm_metrics(900), drafts=None)))
    assert seen.generation_rate is None


def test_a_pause_of_the_readings_is_not_averaged_over() -> None:
    assert read_meter_after((0, make_vllm_metrics(0)), (300, make_vllm_metrics(600))).generation_rate is None
    assert (
        read_meter_after(
            (0, make_vllm_metrics(0)), (300, make_vllm_metrics(600)), (305, make_vllm_metrics(700))
        ).generation_rate
        == 20
    )


def test_latencies_are_those_of_the_window() -> None:
    def ttft(*counts: float) -> Histogram:
        return Histogram(tuple(zip((0.1, 0.2, math.inf), counts, strict=True)))

    first = replace(make_vllm_metrics(0), ttft=ttft(90, 90, 90))
    seen = read_meter_after((0, first), (10, replace(make_vllm_metrics(10), ttft=ttft(90, 100, 100))))
    assert seen.ttft is not None
    assert (seen.ttft.observations, seen.ttft.p50) == (10, pytest.approx(0.15))
    assert read_meter_after((0, first), (10, replace(make_vllm_metrics(10), ttft=ttft(90, 90, 90)))).ttft is None
    assert (
        read_meter_after((0, make_vllm_metrics(0)), (10, replace(make_vllm_metrics(10), ttft=ttft(1, 1, 1)))).ttft
        is None
    )


counts = st.lists(st.integers(0, 1000), min_size=2, max_size=8)


@given(counts, st.floats(0.01, 1), st.floats(0.01, 1))
@example([57, 0], 1.0, 1.0)
def test_quantiles_lie_within_the_bounds_and_in_order(steps: list[int], one: float, other: float) -> None:
    bounds = [*(0.01 * 2**n for n in range(len(steps) - 1)), math.inf]
    totals = [sum(steps[: n + 1]) for n in range(len(steps))]
    seen = Histogram(tuple(zip(bounds, map(float, totals), strict=True)))
    low, high = seen.estimate_quantile(min(one, other)), seen.estimate_quantile(max(one, other))
    if not totals[-1]:
        assert (low, high) == (None, None)
        return
    assert low is not None
    assert high is not None
    assert 0 <= low <= high <= bounds[-2]


@given(st.lists(st.tuples(st.floats(0.5, 8), st.integers(0, 200), st.integers(0, 3)), min_size=1, max_size=30))
def test_figures_agree_with_what_was_done(stretches: list[tuple[float, int, int]]) -> None:
    """Whatever the engine does between readings: no rate is below 0 or above the fastest stretch, no share above 1."""
    window, now, steps, accepted, fastest = MetricsWindow(), 0.0, 0, 0, 0.0
    window.add_reading(now, make_vllm_metrics(0))
    for seconds, more, lucky in stretches:
        now, steps, accepted = now + seconds, steps + more, accepted + more * lucky
        fastest = max(fastest, more * (1 + lucky) / seconds)
        window.add_reading(now, make_vllm_metrics(steps, accepted, running=1 if more else 0))
        seen = window.compute_meter(now)
        assert seen.generation_rate is not None
        assert 0 <= seen.generation_rate <= fastest + 1e-6
        assert (seen.activity is EngineActivity.IDLE) == (seen.generation_rate == 0)
        if seen.acceptance is not None and seen.acceptance.length is not None:
            assert 1 <= seen.acceptance.length <= 4
            assert seen.acceptance.rate is not None
            assert seen.acceptance.length == pytest.approx(1 + 3 * seen.acceptance.rate)


@given(st.lists(st.tuples(st.floats(0.5, 8), st.integers(0, 200), st.booleans()), min_size=1, max_size=30))
def test_restarts_never_show_as_a_rate_below_zero(stretches: list[tuple[float, int, bool]]) -> None:
    window, now, steps = MetricsWindow(), 0.0, 0
    for seconds, more, restart in stretches:
        now, steps = now + seconds, more if restart else steps + more
        window.add_reading(now, make_vllm_metrics(steps))
        seen = window.compute_meter(now)
        for value in (seen.generation_rate, seen.prompt_rate, seen.steps):
            assert value is None or value >= 0


FIELDS = ("generation_tokens", "prompt_tokens", "drafts", "draft_tokens", "accepted_tokens", "running", "waiting")


@given(st.lists(st.tuples(st.sets(st.sampled_from(FIELDS)), st.booleans(), st.booleans()), min_size=1, max_size=8))
def test_missing_series_make_figures_unknown_and_break_nothing(pages: Sequence[tuple[set[str], bool, bool]]) -> None:
    window = MetricsWindow()
    for number, (missing, in_strides, at_end) in enumerate(pages):
        page = make_vllm_metrics(100 * number, 50 * number, in_strides=in_strides, at_request_end=at_end)
        window.add_reading(5 * number, replace(page, **dict.fromkeys(missing)))  # type: ignore[arg-type]
        seen = window.compute_meter(5 * number)
        if "generation_tokens" in missing and not in_strides:
            assert (seen.activity, seen.generation_rate) == (None, None)
        if "drafts" in missing:
            assert seen.acceptance is None


@pytest.mark.parametrize(
    ("made", "prompts", "more", "activity"),
    [
        (2, 14, {}, EngineActivity.IDLE),  # two front ends ask whether it lives
        (2, 14, {"running": 1}, EngineActivity.DECODING),  # or its first tokens have come
        (2, 14, {"waiting": 1}, EngineActivity.DECODING),
        (2, 1_200, {}, EngineActivity.DECODING),  # somebody wants one token of long prompts
        (3, 14, {}, EngineActivity.DECODING),
    ],
)
def test_a_question_for_one_token_is_no_work(
    made: float, prompts: float, more: dict[str, float], activity: EngineActivity
) -> None:
    last = make_vllm_metrics(100 + made, 50, prompt_tokens=500.0 + prompts, **{"running": 0, "waiting": 0} | more)
    seen = read_meter_after((0, make_vllm_metrics(100, 50, prompt_tokens=500.0, running=0, waiting=0)), (10, last))
    assert seen.activity is activity
    assert (seen.generation_rate == 0) is (activity is EngineActivity.IDLE)


# --- engines that report in strides (SGLang) -------------------------------------------------------------------------


def make_sglang_metrics(tokens: float | None, rate: float = 12.7, prompts: float = 100, **more: float) -> EngineMetrics:
    seen = EngineMetrics(
        generation_tokens=tokens,
        prompt_tokens=prompts,
        running=1,
        waiting=0,
        kv_usage=0.07,
        generation_rate=rate,
        accept_length=1.75,
        accept_rate=0.25,
        in_strides=True,
    )
    return replace(seen, **more)  # type: ignore[arg-type]


def test_gauges_are_the_estimator_while_the_counter_moves() -> None:
    seen = read_meter_after(*((5 * n, make_sglang_metrics(70 * n, 12.7 + n / 100)) for n in range(4)))
    assert (seen.activity, seen.estimator) == (EngineActivity.DECODING, MeterSource.GAUGE)
    assert seen.generation_rate == pytest.approx(12.73)
    assert seen.steps == pytest.approx(12.73 / 1.75)
    assert seen.acceptance is not None
    assert seen.acceptance.estimator is MeterSource.GAUGE


def test_frozen_gauges_are_idle_once_every_request_has_ended() -> None:
    """After the load they stand for half a minute: three running, 12.7 tok/s, and not one step."""
    ttft = Histogram(((1.0, 3.0), (float("inf"), 3.0)))
    window = MetricsWindow()
    for second in range(0, 50, 2):
        ended = 3.0 if second > 20 else 0.0
        reading = replace(make_sglang_metrics(14 * min(second, 20), running=3, ended_requests=ended), ttft=ttft)
        window.add_reading(second, reading)
        seen = window.compute_meter(second)
        if 4 <= second <= 20:
            assert seen.activity is EngineActivity.DECODING
        if second > 30:
            assert (seen.activity, seen.generation_rate, seen.acceptance) == (EngineActivity.IDLE, 0, None)
            assert (seen.running, seen.kv_usage) == (None, None), "as of the last step, which is over"


@pytest.mark.parametrize("counts_steps", [True, False])
def test_frozen_gauges_of_requests_that_have_not_ended_are_not_idle(counts_steps: bool) -> None:
    """Outdated or true is not known for half a minute; what they say later was written after the last step."""
    window, health = MetricsWindow(), 0.0
    for second in range(0, 120, 2):
        health += second % 6 == 0
        reading = make_sglang_metrics(14 * min(second, 20), running=2, waiting=1, prompts=100 + health)
        window.add_reading(second, replace(reading, counts_steps=counts_steps, health_tokens=1.0))
        seen = window.compute_meter(second)
        if 32 <= second < 60:
            assert seen == EngineMeter(), second
        if second >= 60:
            assert (seen.activity, seen.running, seen.waiting) == (EngineActivity.PREFILL, 2, 1), second
            assert (seen.generation_rate, seen.prompt_rate) == (0, 0), "health checks are no progress"


def test_where_tokens_are_counted_at_the_end_a_gauge_written_anew_is_a_step() -> None:
    """SGLang before 0.5.12: one request of two minutes, and its counter stands all the time."""
    window = MetricsWindow()
    for second in range(0, 120, 2):
        window.add_reading(second, make_sglang_metrics(400, 12.7 + second // 4 / 100))
        if second > 8:
            assert window.compute_meter(second).activity is EngineActivity.DECODING, second


def test_zeroed_gauges_are_idle_at_once() -> None:
    rest = make_sglang_metrics(100, 0.0, running=0, kv_usage=0)
    seen = read_meter_after((0, rest), (2, rest))
    assert (seen.activity, seen.running, seen.kv_usage) == (EngineActivity.IDLE, 0, 0)


def test_the_first_rate_after_an_idle_gap_is_not_believed() -> None:
    readings = [(5.0 * n, make_sglang_metrics(70 * n)) for n in range(4)]
    readings += [(5.0 * n, make_sglang_metrics(210)) for n in range(4, 12)]
    bogus = (60.0, make_sglang_metrics(280, 1.5, prompts=150))
    seen = read_meter_after(*readings, bogus)
    assert (seen.activity, seen.generation_rate, seen.steps) == (EngineActivity.DECODING, None, None)
    assert (
        read_meter_after(*readings, bogus, (65.0, make_sglang_metrics(350, 12.6, prompts=150))).generation_rate == 12.6
    )


def test_long_strides_are_neither_idle_nor_distrusted() -> None:
    """Forty steps of a large dense model take longer than the window."""
    window = MetricsWindow()
    for second in range(0, 120, 2):
        window.add_reading(second, make_sglang_metrics(40 * (second // 14), 2.8))
        seen = window.compute_meter(second)
        assert seen.activity is not EngineActivity.IDLE, second
        if second > 30:
            assert seen.generation_rate == 2.8


def test_without_the_counter_a_gauge_written_anew_is_a_step() -> None:
    seen = read_meter_after(*((5 * n, make_sglang_metrics(None, 12.7 + n / 100)) for n in range(4)))
    assert seen.activity is EngineActivity.DECODING
    assert seen.generation_rate == pytest.approx(12.73)


# --- SGLang 0.5.12 and later: gauges move in strides, one counter at every step --------------------------------------


def make_step_metrics(decoded: float, first: float = 0, **more: float) -> EngineMetrics:
    """Three streams; what the gauges say is of the last stride, or of the last prompt."""
    usual = {"rate": 121.0, "prompts": 100.0, "running": 0, "accept_length": None, "accept_rate": None} | more
    return replace(make_sglang_metrics(decoded, **usual), counts_steps=True, first_tokens=first, health_tokens=1.0)  # type: ignore[arg-type]


def test_a_counter_of_steps_is_the_rate_of_the_window_whatever_the_last_stride_was() -> None:
    """Bursts and pauses: the gauge said 121 of each stride, which was 81 over all."""
    window, decoded, prompts, first = MetricsWindow(), 0.0, 100.0, 0.0
    for second in range(41):
        if second % 10 < 6 and second:
            decoded += 135
        if second % 10 == 0:
            prompts, first = prompts + 90, first + 3  # a request begins after each pause
        window.add_reading(second, make_step_metrics(decoded, first, prompts=prompts, running=second % 3))
        if second >= 20:
            seen = window.compute_meter(second)
            assert (seen.activity, seen.estimator) == (EngineActivity.DECODING, MeterSource.COUNTERS)
            assert seen.generation_rate == pytest.approx(81, rel=0.18)
    assert seen.generation_rate == pytest.approx((135 * 6 + 3) / 10, abs=14)


def test_the_first_token_of_a_request_is_a_token() -> None:
    seen = read_meter_after((0, make_step_metrics(100, 10)), (10, make_step_metrics(100, 30, prompts=2000)))
    assert (seen.activity, seen.generation_rate) == (EngineActivity.DECODING, 2)


def test_an_engine_that_is_only_asked_for_its_health_is_idle() -> None:
    """Each answer reads a prompt of one token, and the gauge of its speed stands where the load left it."""
    window = MetricsWindow()
    for second in range(0, 300, 2):
        load = min(second, 20)
        window.add_reading(
            second,
            make_step_metrics(240 * load, load, prompts=100 * load + second // 3, running=3 if second < 20 else 0),
        )
        seen = window.compute_meter(second)
        if 2 <= second <= 20:
            assert seen.activity is EngineActivity.DECODING, second
        if second > 32:
            assert (seen.activity, seen.generation_rate, seen.prompt_rate) == (EngineActivity.IDLE, 0, 0), second
            assert (seen.running, seen.waiting) == (0, 0), "so that its liveness may be asked"


def test_a_prompt_being_read_is_more_than_health_checks() -> None:
    seen = read_meter_after((0, make_step_metrics(100)), (4, make_step_metrics(100, prompts=8292, running=0)))
    assert (seen.activity, seen.generation_rate) == (EngineActivity.PREFILL, 0)


@pytest.mark.parametrize("gap", [2.0, 0.7])  # seconds between two readings
def test_a_counter_that_stands_while_it_decodes_moves_in_strides_and_the_gauge_is_nearer(gap: float) -> None:
    """As versions may have it that count once a stride: forty steps of three streams, every 14 s."""
    window = MetricsWindow()
    for reading in range(int(120 / gap)):
        second = reading * gap
        window.add_reading(second, make_step_metrics(120 * (second // 14), rate=8.57, running=3))
        seen = window.compute_meter(second)
        if second >= 44:
            assert (seen.generation_rate, seen.estimator) == (8.57, MeterSource.GAUGE), second


def test_a_counter_that_stood_once_is_believed_again_when_it_moves_with_each_reading() -> None:
    """The engine stood for seconds in the middle of its requests: a graph that was made, or a machine that was busy."""
    window, decoded = MetricsWindow(), 0.0
    for second in range(0, 120, 2):
        decoded += 0 if 40 <= second < 46 else 48
        window.add_reading(second, make_step_metrics(decoded, rate=60.0, running=3))
        seen = window.compute_meter(second)
        if second >= 70:
            assert (seen.estimator, seen.generation_rate) == (MeterSource.COUNTERS, 24), second


# --- engines that count at the end of a request (llama-server) ------------------------------------------------------


def make_llama_metrics(tokens: float, seconds: float, passes: float | None, running: float = 1) -> EngineMetrics:
    return EngineMetrics(
        generation_tokens=tokens,
        generation_seconds=seconds,
        passes=passes,
        prompt_tokens=10,
        running=running,
        waiting=0,
        at_request_end=True,
    )


def test_a_request_that_ends_does_not_show_as_a_burst() -> None:
    """600 tokens over a minute arrive in the counter at once: 10 tok/s, not 60."""
    seen = read_meter_after((0, make_llama_metrics(0, 0, 500)), (10, make_llama_metrics(600, 60, 600)))
    assert (seen.generation_rate, seen.steps) == (10, 10)


def test_while_a_request_runs_its_speed_is_not_known_and_it_is_not_idle() -> None:
    seen = read_meter_after((0, make_llama_metrics(0, 0, 500)), (10, make_llama_metrics(0, 0, 600)))
    assert (seen.activity, seen.generation_rate, seen.steps) == (EngineActivity.DECODING, None, 10)
    older = read_meter_after((0, make_llama_metrics(0, 0, None)), (10, make_llama_metrics(0, 0, None)))
    assert older.activity is None
    assert (
        read_meter_after((0, make_llama_metrics(0, 0, 9)), (10, make_llama_metrics(0, 0, 9, running=0))).activity
        is EngineActivity.IDLE
    )
