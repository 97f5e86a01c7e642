"""The estimate of memory bandwidth: steps per second times bytes per step."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkctl.core.bandwidth import FORMULA, GB, Bandwidth, Experts, Reads, estimate
from sparkctl.core.window import MetricsWindow
from sparkctl.model.metrics import Acceptance, Activity, EngineMetrics, Estimator, Numbers

DENSE = Reads(weights=27_000_000_000)
ACCEPTED = Acceptance(1.75, 0.25, None, Estimator.COUNTERS)
DECODING = Numbers(
    Activity.DECODING, 10, Estimator.COUNTERS, generation_rate=12.7, steps=12.7 / 1.75, batch=1, acceptance=ACCEPTED
)


def of(numbers: Numbers, reads: Reads) -> Bandwidth:
    found = estimate(numbers, reads)
    assert found is not None
    return found


def test_the_worked_example_from_counters_to_share() -> None:
    """27 GB of dense FP8, 12.7 tok/s at accept length 1.75: 7.26 steps/s, 196 GB/s, 85 % of 230, 72 % of 273."""
    window = MetricsWindow()
    steps = 100 * 12.7 / 1.75
    for when, share in ((0, 0), (50, 0.5), (95, 0.95), (100, 1)):
        window.add(
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
    numbers = window.numbers(100)
    assert numbers.generation_rate == pytest.approx(12.7)
    assert numbers.acceptance is not None
    assert numbers.acceptance.length == pytest.approx(1.75)
    assert numbers.steps == pytest.approx(7.26, abs=0.005)
    seen = of(numbers, DENSE)
    assert seen.low == seen.high
    assert round(seen.low / GB) == 196
    assert [round(share * 100) for share in (*seen.of_measured(), *seen.of_spec())] == [85, 85, 72, 72]


def test_nothing_is_estimated_while_prompts_are_read_or_nothing_happens_or_is_known() -> None:
    for activity in (Activity.PREFILL, Activity.IDLE, None):
        assert estimate(replace(DECODING, activity=activity), DENSE) is None
    assert estimate(replace(DECODING, steps=None), DENSE) is None
    assert estimate(replace(DECODING, steps=0.0), DENSE) is None


def test_draft_model_and_context_are_read_too() -> None:
    reads = replace(DENSE, draft=1_000_000_000, draft_passes=3, kv_per_token=100_000)
    seen = of(replace(DECODING, steps=2.0, kv_tokens=20_000), reads)
    assert seen.low == pytest.approx(2 * (27e9 + 3e9 + 2e9))


def test_a_mixture_of_experts_is_a_range() -> None:
    reads = Reads(weights=2_000_000_000, experts=Experts(64_000_000_000, 128, 8), draft_tokens=3)
    seen = of(replace(DECODING, steps=10.0), reads)
    assert seen.is_range
    assert seen.low == pytest.approx(10 * (2e9 + 4e9)), "one token's experts: 8 of 128"
    assert seen.high == pytest.approx(10 * (2e9 + 64e9 * (1 - (1 - 8 / 128) ** 4)))


@given(st.integers(1, 512), st.integers(1, 16), st.floats(1, 256))
def test_experts_touched_lie_between_one_tokens_and_all(count: int, per_token: int, tokens: float) -> None:
    experts = Experts(10**9, count, min(per_token, count))
    assert experts.per_token <= experts.touched(tokens) * (1 + 1e-9)
    assert experts.touched(tokens) <= count
    low, high = experts.read(tokens)
    assert 0 < low <= high * (1 + 1e-9)


def test_more_than_the_memory_can_do_is_not_plausible() -> None:
    assert of(DECODING, DENSE).plausible
    assert not of(replace(DECODING, steps=20.0), DENSE).plausible


def test_the_explanation_names_formula_and_inputs() -> None:
    text = "\n".join(of(DECODING, DENSE).explain())
    assert text.startswith(FORMULA)
    for part in ("7.26 per second over 10 s (counters)", "12.7 tok/s", "1.75 tokens per step", "27.00 GB"):
        assert part in text
    assert "KV cache" in text
    assert "not counted" in text
    reads = Reads(
        weights=2 * 10**9, experts=Experts(64 * 10**9, 128, 8), draft=10**8, draft_tokens=3, kv_per_token=1000
    )
    more = "\n".join(of(replace(DECODING, kv_tokens=5000, prompt_rate=400), reads).explain())
    for part in ("8 of 128", "4 tokens verified at once", "0.10 GB x 1", "5.0 MB (5000 tokens", "400 tok/s were read"):
        assert part in more
