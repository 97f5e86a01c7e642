"""The estimate of memory bandwidth: steps per second times bytes per step."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkctl.model.container import ContainerState
from sparkctl.model.decode_step import DecodeStepSpec, RoutedExperts
from sparkctl.model.engine_metrics import (
    DraftAcceptance,
    EngineActivity,
    EngineMeter,
    EngineMetrics,
    MeterSource,
    StepLoad,
)
from sparkctl.model.instance import InstanceView
from sparkctl.model.node import NodeName, NodeState
from sparkctl.model.phase import Phase
from sparkctl.model.sample import Gpu, Sample
from sparkctl.monitor.meters.bandwidth import (
    FORMULA,
    GB,
    Bandwidth,
    BandwidthLimit,
    BandwidthSource,
    DecodeStepReads,
    ExpertReads,
    build_decode_step_reads,
    estimate_bandwidth,
    estimate_instance_bandwidth,
    explain_missing_estimate,
    get_bandwidth_limit,
    read_gpu_bandwidth,
)
from sparkctl.monitor.meters.metrics_window import MetricsWindow
from sparkctl.monitor.node_views import NodeTelemetryView

DENSE = DecodeStepReads(weights=27_000_000_000)
ACCEPTED = DraftAcceptance(1.75, 0.25, None, MeterSource.COUNTERS)
DECODING = EngineMeter(
    activity=EngineActivity.DECODING,
    seconds=10,
    estimator=MeterSource.COUNTERS,
    generation_rate=12.7,
    steps=12.7 / 1.75,
    batch=1,
    acceptance=ACCEPTED,
)


def estimate_from(numbers: EngineMeter, reads: DecodeStepReads) -> Bandwidth:
    found = estimate_bandwidth(numbers, reads)
    assert found is not None
    return found


def test_the_worked_example_from_counters_to_share() -> None:
    """27 GB of dense FP8, 12.7 tok/s at accept length 1.75: 7.26 steps/s, 196 GB/s, 85 % of 230, 72 % of 273."""
    window = MetricsWindow()
    steps = 100 * 12.7 / 1.75
    for when, share in ((0, 0), (50, 0.5), (95, 0.95), (100, 1)):
        window.add_reading(
            when,
            EngineMetrics(
                generation_tokens=1270 * share,
                drafts=steps * share,
                draft_tokens=3 * steps * share,
                accepted_tokens=0.75 * steps * share,
                running=1,
                waiting=0,
            ),
        )
    numbers = window.compute_meter(100)
    assert numbers.generation_rate == pytest.approx(12.7)
    assert numbers.acceptance is not None
    assert numbers.acceptance.length == pytest.approx(1.75)
    assert numbers.steps == pytest.approx(7.26, abs=0.005)
    seen = estimate_from(numbers, DENSE)
    assert seen.low == seen.high
    assert round(seen.low / GB) == 196
    assert [round(share * 100) for share in (*(seen.get_measured_shares() or ()), *seen.get_spec_shares())] == [
        85,
        85,
        72,
        72,
    ]


def test_nothing_is_estimated_while_prompts_are_read_or_nothing_happens_or_is_known() -> None:
    for activity in (EngineActivity.PREFILL, EngineActivity.IDLE, None):
        assert estimate_bandwidth(replace(DECODING, activity=activity), DENSE) is None
    assert estimate_bandwidth(replace(DECODING, steps=None), DENSE) is None
    assert estimate_bandwidth(replace(DECODING, steps=0.0), DENSE) is None


def test_draft_model_and_context_are_read_too() -> None:
    reads = replace(DENSE, draft=1_000_000_000, draft_passes=3, kv_per_token=100_000)
    seen = estimate_from(replace(DECODING, steps=2.0, kv_tokens=20_000), reads)
    assert seen.low == pytest.approx(2 * (27e9 + 3e9 + 2e9))


def test_a_mixture_of_experts_is_a_range() -> None:
    reads = DecodeStepReads(weights=2_000_000_000, experts=ExpertReads(64_000_000_000, 128, 8), draft_tokens=3)
    seen = estimate_from(replace(DECODING, steps=10.0), reads)
    assert seen.high == pytest.approx(10 * (2e9 + 64e9 * 32 / 128)), "four tokens with eight experts each, none twice"
    skewed = 64 * ((1 - (1 - 0.9 / 8) ** 4) + (1 - (1 - 0.1 / 8) ** 4))
    assert seen.low == pytest.approx(10 * (2e9 + 64e9 * skewed / 128)), "half of them get nine tenths of the choices"
    one = estimate_from(replace(DECODING, steps=10.0), replace(reads, draft_tokens=0))
    assert (one.low, one.high) == pytest.approx((10 * (2e9 + 4e9),) * 2), "one token's experts: 8 of 128, exactly"


@pytest.mark.parametrize(("tokens", "share"), [(4, 0.2275), (32, 0.873)])
def test_a_choice_at_random_is_near_the_middle_of_the_range(tokens: int, share: float) -> None:
    """A model with random weights on an H100: 128 experts, top 8, 4 and 32 requests; by its counter 2003 and 2570 GB/s."""
    experts = ExpertReads(19_327_000_000, 128, 8)
    least, random, most = experts.count_touched_experts(tokens)
    assert random / 128 == pytest.approx(share, abs=0.001)
    assert 0.25 < (random - least) / (most - least) < 0.75


def test_measured_tokens_of_a_step_outrank_the_configured_drafts() -> None:
    """An n-gram finds a draft in few steps only; drafts that were not made read no expert."""
    reads = DecodeStepReads(weights=10**9, experts=ExpertReads(64 * 10**9, 128, 8), draft_tokens=5)
    few = estimate_from(replace(DECODING, step_load=StepLoad(tokens=1.0)), reads)
    assert few.low == few.high == pytest.approx(estimate_from(DECODING, replace(reads, draft_tokens=0)).low)


def test_what_no_step_reads_is_left_out() -> None:
    facts = DecodeStepSpec(weights=16 * 10**9, unread=10**9, is_measured=True)
    reads = build_decode_step_reads(facts)
    assert reads is not None
    assert estimate_from(replace(DECODING, steps=1.0), reads).low == pytest.approx(15e9)
    text = "\n".join(estimate_from(DECODING, reads).explain_formula())
    assert "16.00 GB (measured by the headers of its files)" in text
    assert "1.00 GB of it: embedding table" in text


@given(st.integers(1, 512), st.integers(1, 16), st.floats(1, 256))
def test_experts_touched_lie_between_one_tokens_and_all(count: int, per_token: int, tokens: float) -> None:
    experts = ExpertReads(10**9, count, min(per_token, count))
    least, random, most = experts.count_touched_experts(tokens)
    assert experts.per_token <= least * (1 + 1e-9)
    assert least <= random <= most <= count
    low, high = experts.estimate_read_bytes(tokens)
    assert 0 < low <= high * (1 + 1e-9)


def test_more_than_the_memory_can_do_is_not_plausible() -> None:
    assert estimate_from(DECODING, DENSE).is_plausible
    wrong = estimate_from(replace(DECODING, steps=20.0), DENSE)
    assert not wrong.is_plausible
    assert wrong.suspect is not None
    assert wrong.suspect.startswith("model.weights in the profile must be wrong (a mixture of experts?")
    assert estimate_from(DECODING, DENSE).suspect is None


def test_the_input_that_must_be_wrong_is_the_largest() -> None:
    for reads, name in (
        (replace(DENSE, kv_per_token=10_000_000), "model.kv_per_token"),
        (replace(DENSE, draft=30_000_000_000, draft_passes=5), "model.draft_weights"),
        (DecodeStepReads(weights=10**9, experts=ExpertReads(400 * 10**9, 8, 4)), "model.experts"),
        (
            DecodeStepReads(weights=0, experts=ExpertReads(400 * 10**9, 8 * 10**9, 4 * 10**9, True)),
            "model.active_parameters",
        ),
    ):
        suspect = estimate_from(replace(DECODING, kv_tokens=20_000), reads).suspect
        assert suspect is not None
        assert suspect.startswith(name)


def test_what_a_rank_reads_is_its_share_of_the_model() -> None:
    assert build_decode_step_reads(None) is None
    assert build_decode_step_reads(DecodeStepSpec(draft_tokens=3)) is None
    facts = DecodeStepSpec(
        weights=60 * 10**9, draft_weights=2 * 10**9, draft_passes=3, draft_tokens=3, kv_per_token=1001, ranks=2
    )
    assert build_decode_step_reads(facts) == DecodeStepReads(
        weights=30 * 10**9,
        experts=None,
        draft=10**9,
        draft_passes=3,
        draft_tokens=3,
        kv_per_token=500.5,
        whole=60 * 10**9,
        ranks=2,
    )
    routed = replace(facts, experts=RoutedExperts(56 * 10**9, 128, 8))
    assert build_decode_step_reads(routed) == DecodeStepReads(
        weights=2 * 10**9,
        experts=ExpertReads(28 * 10**9, 128, 8),
        draft=10**9,
        draft_passes=3,
        draft_tokens=3,
        kv_per_token=500.5,
        whole=60 * 10**9,
        ranks=2,
    )
    dense = replace(facts, parameters=27 * 10**9, active_parameters=27 * 10**9)
    assert build_decode_step_reads(dense) == build_decode_step_reads(facts)
    share = build_decode_step_reads(
        DecodeStepSpec(weights=60 * 10**9, parameters=30 * 10**9, active_parameters=3 * 10**9)
    )
    assert share is not None
    one = estimate_bandwidth(replace(DECODING, steps=1.0), share)
    assert one is not None
    assert (one.low, one.high) == pytest.approx((6e9, 6e9)), "a tenth of it, and no drafts"


@given(
    st.integers(1, 64), st.integers(0, 63), st.integers(1, 10**6), st.floats(1, 64),
)  # fmt: skip
def test_a_share_of_active_parameters_bounds_what_experts_would_tell(
    count: int, chosen: int, always: int, tokens: float
) -> None:
    """Without the number of experts the range is wider, never narrower: both of its ends hold."""
    per_token, each = 1 + chosen % count, 1000
    parameters, active = always + count * each, always + per_token * each
    known = ExpertReads(count * each, count, per_token).estimate_read_bytes(tokens)
    guessed = ExpertReads(parameters, parameters, active, are_parameters=True).estimate_read_bytes(tokens)
    assert guessed[0] <= (always + known[0]) * (1 + 1e-9)
    assert guessed[1] >= (always + known[1]) * (1 - 1e-9)


@given(
    st.builds(
        DecodeStepSpec,
        **{name: st.none() | st.integers(-(1 << 70), 1 << 70) for name in ("weights", "parameters", "active_parameters")},
        experts=st.none()
        | st.builds(RoutedExperts, st.integers(-9, 1 << 70), st.integers(-9, 9), st.integers(-9, 9)),
        **{
            name: st.none() | st.integers(-9, 1 << 70)
            for name in ("draft_weights", "draft_passes", "draft_tokens", "kv_per_token")
        },
        ranks=st.integers(-1, 3),
    ),
    st.floats(-1.0, 1e308), st.none() | st.floats(-1.0, 1e308),
)  # fmt: skip
def test_facts_that_make_no_sense_give_no_figure_and_break_nothing(
    facts: DecodeStepSpec, steps: float, kv_tokens: float | None
) -> None:
    """They may come from a recording that somebody wrote."""
    numbers = replace(DECODING, steps=steps, kv_tokens=kv_tokens)
    one = InstanceView(
        name="a",
        node=NodeName("n"),
        container="a",
        image="image",
        state=ContainerState.RUNNING,
        status="Up",
        ours=True,
        memory=None,
        phase=Phase.READY,
        numbers=numbers,
        per_step=facts,
    )
    seen = estimate_instance_bandwidth(one, NodeTelemetryView(name=NodeName("n"), state=NodeState.OK, when=1.0))
    assert seen is None or 0 <= seen.low <= seen.high < float("inf")


@given(bytes_=st.integers(1, 10**13), count=st.integers(1, 10**12), share=st.floats(0, 1), tokens=st.floats(0, 10**4))
def test_experts_are_read_from_one_tokens_to_all_whatever_the_rounding(
    bytes_: int, count: int, share: float, tokens: float
) -> None:
    least, most = ExpertReads(bytes_, count, int(count * share)).estimate_read_bytes(tokens)
    assert 0 <= least <= most <= bytes_ * (1 + 1e-9)


def test_one_request_of_minimax_m27_over_two_sparks_has_a_bandwidth() -> None:
    facts = DecodeStepSpec(weights=115 * 10**9, parameters=230 * 10**9, active_parameters=10 * 10**9, ranks=2)
    numbers = EngineMeter(
        activity=EngineActivity.DECODING,
        seconds=10,
        estimator=MeterSource.COUNTERS,
        generation_rate=12.7,
        steps=12.7,
        batch=1.0,
    )
    one = InstanceView(
        name="minimax-m27",
        node=NodeName("spark1"),
        container="a",
        image="image",
        state=ContainerState.RUNNING,
        status="Up",
        ours=True,
        memory=None,
        phase=Phase.READY,
        numbers=numbers,
        per_step=facts,
    )
    seen = estimate_instance_bandwidth(one, NodeTelemetryView(name=NodeName("spark1"), state=NodeState.OK, when=1.0))
    assert seen is not None
    assert seen.low <= seen.high
    assert (seen.low, seen.high) == (pytest.approx(12.7 * 2.5e9), pytest.approx(12.7 * 2.5e9))


def test_a_draft_model_of_unknown_size_is_not_passed_over_in_silence() -> None:
    reads = build_decode_step_reads(DecodeStepSpec(weights=27 * 10**9, draft_passes=3, draft_tokens=3))
    assert reads is not None
    assert reads.draft is None
    assert "draft model    not counted: set model.draft_weights" in "\n".join(
        estimate_from(DECODING, reads).explain_formula()
    )
    ngram = build_decode_step_reads(DecodeStepSpec(weights=27 * 10**9, draft_passes=0, draft_tokens=11))
    assert ngram is not None
    assert "draft model " not in "\n".join(estimate_from(DECODING, ngram).explain_formula()[1:])


def test_a_counter_of_the_hardware_is_a_measurement() -> None:
    gpu = Gpu(index=0, name="NVIDIA H200", bandwidth_share=0.44, bandwidth_peak=4_814_000_000_000)
    seen = read_gpu_bandwidth(Sample(sequence=1, time=1.0, uptime=1.0, gpus=(gpu,)))
    assert seen is not None
    assert (seen.source, seen.low, seen.high) == (
        BandwidthSource.COUNTER,
        pytest.approx(2.11816e12),
        pytest.approx(2.11816e12),
    )
    assert (seen.get_measured_shares(), seen.get_spec_shares()) == (None, pytest.approx((0.44, 0.44)))
    assert "44.0 % of the peak" in "\n".join(seen.explain_formula())
    assert (
        read_gpu_bandwidth(
            Sample(sequence=1, time=1.0, uptime=1.0, gpus=(gpu, replace(gpu, index=1, bandwidth_share=None)))
        )
        is None
    )
    assert (
        read_gpu_bandwidth(Sample(sequence=1, time=1.0, uptime=1.0, gpus=(Gpu(index=0, name="NVIDIA GB10"),))) is None
    )
    for wrong in (
        replace(gpu, bandwidth_peak=0),
        replace(gpu, bandwidth_share=-0.1),
        replace(gpu, bandwidth_peak=1 << 80),
    ):
        assert read_gpu_bandwidth(Sample(sequence=1, time=1.0, uptime=1.0, gpus=(wrong,))) is None
    assert read_gpu_bandwidth(Sample(sequence=1, time=1.0, uptime=1.0)) is None


def test_only_a_gb10s_ceiling_has_been_measured() -> None:
    assert get_bandwidth_limit(273.0) == BandwidthLimit(230e9, 273e9)
    other = get_bandwidth_limit(546.0)
    assert (other.measured, other.spec) == (None, 546e9)
    seen = estimate_bandwidth(DECODING, DENSE, other)
    assert seen is not None
    assert seen.get_measured_shares() is None


def test_a_blank_says_why() -> None:
    facts = DecodeStepSpec(weights=27 * 10**9)
    assert "model.weights in the profile" in explain_missing_estimate(DECODING, DecodeStepSpec(draft_tokens=3))
    assert "model.weights in the profile" in explain_missing_estimate(None, None)
    assert "arithmetic" in explain_missing_estimate(replace(DECODING, activity=EngineActivity.PREFILL), facts)
    assert "no decode step" in explain_missing_estimate(replace(DECODING, activity=EngineActivity.IDLE), facts)
    assert "is not known" in explain_missing_estimate(None, facts)
    assert "has not reported its step rate yet" in explain_missing_estimate(replace(DECODING, steps=None), facts)


def test_the_explanation_names_formula_and_inputs() -> None:
    text = "\n".join(estimate_from(DECODING, DENSE).explain_formula())
    assert text.startswith(FORMULA)
    for part in ("7.26 per second over 10 s (counters)", "12.7 tok/s", "1.75 tokens per step", "27.00 GB"):
        assert part in text
    assert "KV cache" in text
    assert "not counted" in text
    reads = DecodeStepReads(
        weights=2 * 10**9, experts=ExpertReads(64 * 10**9, 128, 8), draft=10**8, draft_tokens=3, kv_per_token=1000
    )
    more = "\n".join(estimate_from(replace(DECODING, kv_tokens=5000, prompt_rate=400), reads).explain_formula())
    facts = DecodeStepSpec(weights=146 * 10**9, parameters=235 * 10**9, active_parameters=22 * 10**9, ranks=2)
    shared = build_decode_step_reads(facts)
    assert shared is not None
    told = "\n".join(estimate_from(DECODING, shared).explain_formula())
    for part in (
        "146.00 GB (model.weights of the profile)",
        "2, each reads its share",
        "active share",
        "22.0 billion",
        "of 235.0 billion",
        "= 1.0 requests",
    ):
        assert part in told
    assert "experts " not in told.partition("\n")[2]
    for part in (
        "4 tokens at once: 27 to 32 of 128, at random 29",
        "0.10 GB x 1",
        "5.0 MB (5000 tokens",
        "400 tok/s were read",
    ):
        assert part in more
