"""An engine's figures as people read them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkctl.model.engine_metrics import DraftAcceptance, EngineActivity, EngineMeter, MeterSource, Quantiles
from sparkctl.model.sample import Gpu, Sample
from sparkctl.monitor.meters.bandwidth import (
    DecodeStepReads,
    ExpertReads,
    estimate_bandwidth,
    get_bandwidth_limit,
    read_gpu_bandwidth,
)
from sparkctl.views import meter_view as words

SEEN = EngineMeter(
    activity=EngineActivity.DECODING,
    seconds=10,
    estimator=MeterSource.COUNTERS,
    generation_rate=12.7,
    steps=12.7 / 1.75,
    batch=1,
    running=1,
    waiting=0,
    acceptance=DraftAcceptance(1.75, 0.2, (0.5, 0.2, 0.05), MeterSource.COUNTERS),
)
IDLE = EngineMeter(
    activity=EngineActivity.IDLE, seconds=10, estimator=MeterSource.COUNTERS, generation_rate=0.0, steps=0.0
)
DENSE = DecodeStepReads(weights=27_000_000_000)


def test_an_engine_at_work() -> None:
    assert words.format_throughput(SEEN) == "12.7 tok/s"
    assert words.format_draft_acceptance(SEEN) == "1.75 per step · 20 % of drafts"
    assert words.format_draft_acceptance(SEEN, 3) == "1.75 per step · 20 % of 3 drafts"
    assert words.format_draft_acceptance(SEEN, 1) == "1.75 per step · 20 % of 1 draft"
    assert words.format_position_acceptance(SEEN.acceptance) == "50 · 20 · 5 %"
    assert (
        words.format_bandwidth(estimate_bandwidth(SEEN, DENSE))
        == "≈ 196 GB/s est. · 85 % of 230 measured, 72 % of 273 spec"
    )
    assert words.format_queue(SEEN) == "1 running"
    assert words.format_queue(replace(SEEN, running=3, waiting=2)) == "3 running, 2 waiting"


def test_idle_is_said_and_unknown_is_a_dash() -> None:
    assert [words.format_throughput(IDLE), words.format_draft_acceptance(IDLE)] == ["idle"] * 2
    nothing = EngineMeter()
    assert [words.format_throughput(nothing), words.format_draft_acceptance(nothing)] == ["—"] * 2
    assert [
        words.format_queue(nothing),
        words.format_latency(None),
        words.format_percent(None),
        words.format_position_acceptance(None),
    ] == ["—"] * 4


def test_prompts_being_read() -> None:
    seen = replace(IDLE, activity=EngineActivity.PREFILL, prompt_rate=1843.2)
    assert words.format_throughput(seen) == "reading prompts · 1843 tok/s"
    assert words.format_bandwidth(estimate_bandwidth(seen, DENSE)) == "", "arithmetic bounds it: blank"


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (DraftAcceptance(2.88, 0.63, None, MeterSource.GAUGE), "2.88 per step · 63 % of drafts · by its gauge"),
        (DraftAcceptance(1.05, 0.0134, None, MeterSource.LOG), "1.05 per step · 1.3 % of drafts · by its log"),
        (DraftAcceptance(1.0, 0.0, None, MeterSource.COUNTERS), "1.00 per step · 0 % of drafts"),
        (DraftAcceptance(None, 0.57, None, MeterSource.LOG), "57 % of drafts · by its log"),
        (DraftAcceptance(None, None, None, MeterSource.COUNTERS), "no drafts"),
    ],
)
def test_acceptance_names_its_estimator(seen: DraftAcceptance, said: str) -> None:
    assert words.format_draft_acceptance(replace(SEEN, acceptance=seen)) == said


def test_a_mixture_of_experts_is_told_as_a_range() -> None:
    reads = DecodeStepReads(weights=2_000_000_000, experts=ExpertReads(64_000_000_000, 128, 8), draft_tokens=3)
    said = words.format_bandwidth(estimate_bandwidth(SEEN, reads))
    assert said == "≈ 114–131 GB/s est. · 50–57 % of 230 measured, 42–48 % of 273 spec"


def test_the_specification_ends_the_range() -> None:
    reads = DecodeStepReads(weights=2_000_000_000, experts=ExpertReads(64_000_000_000, 128, 8), draft_tokens=3)
    said = words.format_bandwidth(estimate_bandwidth(replace(SEEN, steps=16.0), reads))
    assert said.startswith("≈ 251–273 GB/s est.")
    assert "100 % of 273 spec" in said


def test_an_impossible_estimate_is_said_to_be_one() -> None:
    fast = replace(SEEN, steps=20.0)
    said = words.format_bandwidth(estimate_bandwidth(fast, DENSE))
    assert said.startswith(
        "not known: the estimate is more than the memory can do, model.weights in the profile must be wrong"
    )


def test_a_counter_is_a_measurement_and_another_machine_has_another_ceiling() -> None:
    gpu = Gpu(index=0, name="NVIDIA H200", bandwidth_share=0.44, bandwidth_peak=4_814_000_000_000)
    assert (
        words.format_bandwidth(read_gpu_bandwidth(Sample(sequence=1, time=1.0, uptime=1.0, gpus=(gpu,))))
        == "2118 GB/s measured · 44 % of 4814 spec"
    )
    assert (
        words.format_bandwidth(estimate_bandwidth(SEEN, DENSE, get_bandwidth_limit(546)))
        == "≈ 196 GB/s est. · 36 % of 546 spec"
    )


def test_rates_and_latencies() -> None:
    assert [words.format_token_rate(value) for value in (0.0, 99.94, 99.96, 2851.3, None)] == [
        "0.0 tok/s",
        "99.9 tok/s",
        "100 tok/s",
        "2851 tok/s",
        "—",
    ]
    assert words.format_latency(Quantiles(0.005, 0.31, 9)) == "5.0 ms p50, 310 ms p95"
    assert words.format_latency(Quantiles(1.2, 14.4, 9)) == "1.20 s p50, 14 s p95"
