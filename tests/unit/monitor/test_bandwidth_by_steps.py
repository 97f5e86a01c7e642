"""The estimate of memory bandwidth against runs that are rebuilt step by step, so that what each step reads is known.

A run is a few seconds of an engine whose steps take the time of their bytes: requests with drafts that are accepted by chance, a
context that grows, and a choice of experts for each token. Its counters and gauges are read once a second, as `top` does.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import pytest

from sparkctl.commands.start.start_measurements import count_context_bytes
from sparkctl.engines.engine_flags import CommandFlags
from sparkctl.engines.memory_estimate import EstimateInput, KvCacheLayout, WeightsSize
from sparkctl.model.decode_step import DecodeStepSpec, RoutedExperts
from sparkctl.model.engine_metrics import EngineMetrics
from sparkctl.model.memory_fit import EstimateSource
from sparkctl.monitor.meters.bandwidth import (
    Bandwidth,
    BandwidthLimit,
    build_decode_step_reads,
    estimate_bandwidth,
)
from sparkctl.monitor.meters.metrics_window import MetricsWindow

LIMIT = BandwidthLimit(None, 3352e9)
BYTES_PER_SECOND = 0.7 * LIMIT.spec
OVERHEAD = 0.0006  # seconds a step, beside its reads
SECONDS, SETTLED = 22, 12
TABLE = 1_244_659_712
QWEN3_8B = DecodeStepSpec(weights=16_381_470_720, unread=TABLE, kv_per_token=147_456, is_measured=True)
LAYER_KV = 147_456 // 36  # of one of its layers


@dataclass(frozen=True, kw_only=True)
class Run:
    """``drafts``: tokens drafted a step and request; ``accepted``: the chance of each that all before it are; ``found``: the share of
    steps in which a request has drafts. ``prompt``, ``answer``: tokens of a request, ``batch`` of which run at any time.
    """

    batch: int
    drafts: int = 0
    accepted: float = 0.0
    found: float = 1.0
    prompt: int = 40
    answer: int = 100_000
    read_step: Callable[[int, int], float]  # bytes by the tokens and the context of a step


def replay(run: Run, spec: DecodeStepSpec) -> list[tuple[Bandwidth, float]]:
    """Return the estimate of each second once the window is full, and bytes/s that were read in that window."""
    chance = random.Random(15)
    window, reads = MetricsWindow(), build_decode_step_reads(spec)
    assert reads is not None
    memory = [run.prompt] * run.batch
    left = [run.answer * (at + 1) // run.batch for at in range(run.batch)]  # they end one after the other
    counts = {
        "generation_tokens": 0.0,
        "prompt_tokens": float(sum(memory)),
        "drafts": 0.0,
        "draft_tokens": 0.0,
        "accepted_tokens": 0.0,
    }
    now, read, seen, found = 0.0, 0.0, [], []
    for second in range(SECONDS):
        while now < second:
            tokens = 0
            for at in range(run.batch):
                drafted = run.drafts if chance.random() < run.found else 0
                taken = next((one for one in range(drafted) if chance.random() >= run.accepted), drafted)
                counts["drafts"] += bool(drafted)
                counts["draft_tokens"] += drafted
                counts["accepted_tokens"] += taken
                counts["generation_tokens"] += 1 + taken
                tokens += 1 + drafted
                memory[at] += 1 + taken
                left[at] -= 1 + taken
                if left[at] <= 0:
                    memory[at], left[at] = run.prompt, run.answer
                    counts["prompt_tokens"] += run.prompt
            step = run.read_step(tokens, sum(memory))
            read += step
            now += step / BYTES_PER_SECOND + OVERHEAD
        optional = counts if run.drafts else {name: counts[name] for name in ("generation_tokens", "prompt_tokens")}
        page = EngineMetrics(**optional, running=run.batch, waiting=0, kv_tokens=sum(memory))
        window.add_reading(now, page)
        seen.append((now, read))
        if second > SETTLED:
            estimate = estimate_bandwidth(window.compute_meter(now), reads, LIMIT)
            assert estimate is not None
            then, before = seen[second - 10]
            found.append((estimate, (read - before) / (now - then)))
    return found


EAGLE = 500_000_000 + TABLE  # one layer and the model's output layer
DRAFT_MODEL = 4_033_000_000 - TABLE


def read_dense(draft: int, passes: int, draft_layers: int) -> Callable[[int, int], float]:
    always = 16_381_470_720 - TABLE + draft * passes
    return lambda tokens, context: always + context * (147_456 + LAYER_KV * draft_layers * passes)


RUNS = {
    "no drafts": (Run(batch=1, read_step=read_dense(0, 0, 0)), {}),
    "no drafts, 64 requests that come and go": (
        Run(batch=64, prompt=300, answer=700, read_step=read_dense(0, 0, 0)), {},
    ),
    "n-gram, found in one step of a hundred": (
        Run(batch=8, drafts=5, accepted=0.9, found=0.01, read_step=read_dense(0, 0, 0)),
        {"draft_tokens": 5, "draft_passes": 0},
    ),
    "n-gram, mostly found": (
        Run(batch=4, drafts=5, accepted=0.8, found=0.7, read_step=read_dense(0, 0, 0)),
        {"draft_tokens": 5, "draft_passes": 0},
    ),
    "a draft model": (
        Run(batch=1, drafts=3, accepted=0.38, read_step=read_dense(DRAFT_MODEL, 3, 4)),
        {"draft_tokens": 3, "draft_passes": 3, "draft_weights": DRAFT_MODEL},
    ),
    "a draft model that is never right, 8 requests of 12,000 tokens": (
        Run(batch=8, drafts=3, accepted=0.0, prompt=12_000, read_step=read_dense(DRAFT_MODEL, 3, 4)),
        {"draft_tokens": 3, "draft_passes": 3, "draft_weights": DRAFT_MODEL},
    ),
    "EAGLE, 8 requests": (
        Run(batch=8, drafts=4, accepted=0.7, prompt=600, answer=900, read_step=read_dense(EAGLE, 4, 1)),
        {"draft_tokens": 4, "draft_passes": 4, "draft_weights": EAGLE},
    ),
    "EAGLE, one long request": (
        Run(batch=1, drafts=5, accepted=0.8, prompt=100_000, read_step=read_dense(EAGLE, 5, 1)),
        {"draft_tokens": 5, "draft_passes": 5, "draft_weights": EAGLE},
    ),
    "MTP of one layer": (
        Run(batch=2, drafts=1, accepted=0.85, prompt=5000, read_step=read_dense(EAGLE, 1, 1)),
        {"draft_tokens": 1, "draft_passes": 1, "draft_weights": EAGLE},
    ),
}  # fmt: skip
DRAFT_LAYERS = {"a draft": 4, "EAGLE, ": 1, "MTP of ": 1}


@pytest.mark.parametrize("name", RUNS)
def test_a_step_of_known_bytes_is_estimated_within_five_percent(name: str) -> None:
    run, drafting = RUNS[name]
    spec = replace(QWEN3_8B, **drafting)
    layers = DRAFT_LAYERS.get(name[:7], 0)
    spec = replace(spec, kv_per_token=count_context_bytes(spec, SUBJECT, make_layout(layers), has_own_layers=False))
    found = replay(run, spec)
    assert len(found) == SECONDS - SETTLED - 1
    assert [estimate.low / read for estimate, read in found] == pytest.approx([1.0] * len(found), abs=0.05)


def make_layout(layers: int) -> KvCacheLayout | None:
    if not layers:
        return None
    return KvCacheLayout(full=layers, sliding=0, window=None, numbers=2 * 8 * 128, state=0, longest=None, heads=8)


SUBJECT = EstimateInput(
    engine="vllm", words=CommandFlags(("vllm", "serve", "/m")), weights=WeightsSize(1, EstimateSource.MEASURED, ""), layout=make_layout(36)
)  # fmt: skip


@pytest.mark.parametrize(("batch", "drafts"), [(1, 0), (8, 0), (4, 3)])
def test_the_state_of_linear_layers_is_read_for_each_request_and_written_for_each_token(
    batch: int, drafts: int
) -> None:
    """As Qwen3.6-27B in FP8 keeps it: 48 layers, each with 48 matrices of 128 x 128 numbers of 4 bytes."""
    state = 48 * 48 * 128 * 128 * 4
    spec = DecodeStepSpec(
        weights=27 * 10**9, kv_per_token=65_536, state_per_request=state, draft_tokens=drafts or None, draft_passes=0
    )
    run = Run(
        batch=batch, drafts=drafts, accepted=0.6,
        read_step=lambda tokens, context: 27e9 + context * 65_536 + (batch + tokens) * state,
    )  # fmt: skip
    found = replay(run, spec)
    assert [estimate.low / read for estimate, read in found] == pytest.approx([1.0] * len(found), abs=0.02)


EXPERTS = RoutedExperts(19_327_352_832, 128, 8)
MOE_ALWAYS, MOE_KV = 1_236_000_000, 32_768
MOE = DecodeStepSpec(
    weights=MOE_ALWAYS + EXPERTS.weights + 622_000_000, unread=622_000_000, experts=EXPERTS, kv_per_token=MOE_KV
)


@cache
def _draw_choices(hot: float) -> list[int]:
    """Return the experts that each of many tokens chooses, one bit an expert."""
    chance, found = random.Random(7), []
    for _ in range(4096):
        of_hot = sum(chance.random() < hot for _ in range(EXPERTS.per_token))
        chosen = [*chance.sample(range(64), of_hot), *chance.sample(range(64, 128), EXPERTS.per_token - of_hot)]
        found.append(sum(1 << expert for expert in chosen))
    return found


def read_moe(hot: float, draft: int = 0) -> Callable[[int, int], float]:
    """``hot``: the share of the choices that the first half of the experts gets; 0.5 is a choice at random."""
    chance, tokens_drawn = random.Random(7), _draw_choices(hot)

    def read(tokens: int, context: int) -> float:
        chosen = 0
        for of_token in chance.choices(tokens_drawn, k=tokens):
            chosen |= of_token
        return MOE_ALWAYS + draft + EXPERTS.weights * chosen.bit_count() / EXPERTS.count + context * MOE_KV

    return read


@pytest.mark.parametrize(("batch", "drafts"), [(2, 0), (4, 0), (16, 0), (32, 0), (1, 3), (4, 2)])
@pytest.mark.parametrize("hot", [0.5, 0.75, 0.88])
def test_experts_are_a_range_that_holds_what_was_read(batch: int, drafts: int, hot: float) -> None:
    """At random the middle of the range is within a tenth; real routers prefer some experts, down to its lower end."""
    spec = replace(
        MOE, draft_tokens=drafts or None, draft_passes=drafts or None, draft_weights=90_000_000 if drafts else None
    )
    run = Run(batch=batch, drafts=drafts, accepted=0.7, prompt=500, read_step=read_moe(hot, 90_000_000 * drafts))
    found = replay(run, spec)
    assert all(estimate.low * 0.97 <= read <= estimate.high * 1.03 for estimate, read in found)
    if hot < 0.8:
        middles = [(estimate.low + estimate.high) / 2 / read for estimate, read in found]
        assert middles == pytest.approx([1.0] * len(found), abs=0.1)


def test_one_request_without_drafts_reads_exactly_its_experts() -> None:
    found = replay(Run(batch=1, prompt=4000, read_step=read_moe(0.6)), MOE)
    assert [estimate.low / read for estimate, read in found] == pytest.approx([1.0] * len(found), abs=0.03)
    assert all(estimate.low == estimate.high for estimate, _ in found)
