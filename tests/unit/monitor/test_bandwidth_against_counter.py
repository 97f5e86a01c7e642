"""The estimate of memory bandwidth against the GPU's own counter: recordings of a real vLLM on an H100.

A recording's first line names its source and what a step of the model reads, by the headers of its files. Every reading is a
page of /metrics, and the counter's share of the peak in the second before. Between counter and truth there are up to 6 % in
a single second; over ten it is less. `recordings/README.md` tells how they were made.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from sparkctl.engines import load_engine
from sparkctl.model.decode_step import DecodeStepSpec
from sparkctl.model.engine_metrics import EngineActivity, EngineMeter
from sparkctl.monitor.meters.bandwidth import (
    Bandwidth,
    build_decode_step_reads,
    estimate_bandwidth,
    explain_missing_estimate,
    get_bandwidth_limit,
)
from sparkctl.monitor.meters.metrics_window import WINDOW_SECONDS, MetricsWindow
from sparkctl.profiles.container_labels import parse_decode_step_label

RECORDINGS = Path(__file__).parent / "recordings"
STEADY = ("b1", "b8", "b32", "b128", "b1-16k", "b8-12k", "chat-light")


@dataclass(frozen=True, slots=True)
class Look:
    """One look at the figures: seconds since its phase began, the estimate, and bytes/s by the counter over the window."""

    since: float
    meter: EngineMeter
    estimate: Bandwidth | None
    counted: float | None

    @property
    def ratio(self) -> float:
        assert self.estimate is not None
        assert self.counted is not None
        return self.estimate.low / self.counted


@cache
def read_looks(recording: str = "dense", copies: int = 1) -> dict[str, list[Look]]:
    """Return the looks of each phase, in order; ``copies``: as if so many engines did the same behind one endpoint."""
    with gzip.open(RECORDINGS / f"vllm-0.24-h100-{recording}.jsonl.gz", "rt", encoding="utf-8") as file:
        head, *readings = (json.loads(line) for line in file)
    reads = build_decode_step_reads(parse_decode_step_label(json.dumps(head["per_step"])))
    assert reads is not None
    limit, window, engine = get_bandwidth_limit(head["peak"] / 1e9), MetricsWindow(), load_engine("vllm")
    looks: dict[str, list[Look]] = defaultdict(list)
    for at, reading in enumerate(readings):
        now = reading["at"]
        page = "".join(reading["page"].replace("{", f'{{engine="{copy}",') for copy in range(copies))
        window.add_reading(now, engine.parse_metrics(page))
        meter = window.compute_meter(now)
        shares = [one["busy"] for one in readings[: at + 1] if now - one["at"] < WINDOW_SECONDS - 0.5]
        counted = sum(shares) / len(shares) / 100 * head["peak"] if None not in shares else None
        for name, began, ended in head["phases"]:
            if began <= now < ended:
                looks[name].append(Look(now - began, meter, estimate_bandwidth(meter, reads, limit), counted))
    return looks


def read_steady_looks(phase: str, recording: str = "dense") -> list[Look]:
    """Return those whose whole window lies in the phase."""
    return [look for look in read_looks(recording)[phase] if look.since > WINDOW_SECONDS + 1]


def compute_steady_ratios(recording: str, phase: str) -> tuple[float, float]:
    """Return the estimate's low and high end over the counter, each the mean of the steady looks."""
    looks = [look for look in read_steady_looks(phase, recording) if look.counted is not None]
    assert len(looks) >= 6
    counted = sum(look.counted or 0.0 for look in looks)
    found = [look.estimate for look in looks if look.estimate is not None]
    assert len(found) == len(looks)
    return sum(one.low for one in found) / counted, sum(one.high for one in found) / counted


@pytest.mark.parametrize("phase", STEADY)
def test_steady_decoding_is_within_five_percent_of_the_counter(phase: str) -> None:
    looks = read_steady_looks(phase)
    assert len(looks) >= 8
    if phase == "b8-12k":
        looks = looks[2:]  # the prompts of its requests took longer than the others'
    assert all(look.meter.activity is EngineActivity.DECODING for look in looks)
    assert [look.ratio for look in looks] == pytest.approx([1.0] * len(looks), abs=0.05)


@pytest.mark.parametrize(
    ("recording", "phase"),
    [
        ("draft", "draft-b1"),
        ("draft", "draft-b8"),
        ("draft", "draft-b32"),
        ("draft", "draft-b8-t1"),  # every draft is rejected
        ("ngram", "ngram-b1"),
        ("ngram", "ngram-b8"),
        ("mtp", "mtp-b1"),
        ("mtp", "mtp-b8"),
        ("mtp", "mtp-b8-chat"),  # short answers, with prompts between them
        ("moe", "moe-b1"),
        ("moe-skew", "skew-b1"),
    ],
)
def test_drafts_and_one_token_of_experts_are_within_five_percent_of_the_counter(recording: str, phase: str) -> None:
    low, high = compute_steady_ratios(recording, phase)
    assert (low, high) == (pytest.approx(1.0, abs=0.05), pytest.approx(low))


@pytest.mark.parametrize("phase", ["moe-b4", "moe-b8", "moe-b32", "moe-b32-t0"])
def test_the_middle_of_a_mixture_s_range_is_within_five_percent_of_a_choice_at_random(phase: str) -> None:
    low, high = compute_steady_ratios("moe", phase)
    assert low < 0.95
    assert high > 1
    assert (low + high) / 2 == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("phase", ["skew-b4", "skew-b8", "skew-b32"])
def test_a_choice_more_uneven_than_a_real_model_s_is_at_the_low_end(phase: str) -> None:
    """Of these routers 65 experts of 128 get 95 % of the choices, of a real model's 90 %."""
    low, high = compute_steady_ratios("moe-skew", phase)
    assert 0.9 < low < 1.08
    assert high > 1


@pytest.mark.parametrize("phase", ["moe-ngram-b1", "moe-ngram-b8"])
def test_drafts_of_a_text_that_repeats_choose_the_experts_that_it_chose(phase: str) -> None:
    low, high = compute_steady_ratios("moe-ngram", phase)
    assert low < 1 < high


@pytest.mark.parametrize(("recording", "phase"), [("dense", "b32"), ("draft", "draft-b8"), ("moe", "moe-b1")])
def test_a_data_parallel_engine_reads_all_but_its_part_of_context_and_experts(recording: str, phase: str) -> None:
    """Two engines in one page, each as the recorded one: their steps are the same, and each reads what it read."""
    steady = read_steady_looks(phase, recording)[-1]
    twin = read_looks(recording, copies=2)[phase][-1]
    assert steady.meter.step_load is not None
    assert twin.meter.step_load is not None
    assert (twin.meter.step_load.copies, twin.meter.steps) == (2, pytest.approx(steady.meter.steps))
    assert twin.meter.step_load.kv_tokens == pytest.approx(2 * (steady.meter.step_load.kv_tokens or 0.0))
    assert twin.estimate is not None
    assert steady.estimate is not None
    assert twin.estimate.high == pytest.approx(
        steady.estimate.high, rel=0.001
    )  # the low end: some tokens share experts


def test_decoding_after_long_prompts_is_within_five_percent_once_they_are_read() -> None:
    looks = [look for look in read_steady_looks("b32-10k") if look.since > 19.5]
    assert len(looks) > 20
    assert [look.ratio for look in looks] == pytest.approx([1.0] * len(looks), abs=0.05)


def test_prompts_alone_are_prefill_though_each_request_gets_its_first_token() -> None:
    looks = read_steady_looks("prefill")
    assert {look.meter.activity for look in looks} == {EngineActivity.PREFILL}
    assert all(look.estimate is None for look in looks)
    assert all(look.meter.prompt_rate is not None and look.meter.prompt_rate > 30_000 for look in looks)
    assert all(look.meter.generation_rate == pytest.approx(4.7, abs=0.6) for look in looks), "the tokens are counted"


def test_where_prompts_take_half_of_the_time_the_estimate_is_blank_and_says_why() -> None:
    spec = DecodeStepSpec(weights=16_381_470_720)
    for look in read_steady_looks("mixed"):
        assert (look.meter.activity, look.estimate) == (EngineActivity.DECODING, None)
        assert "too many prompts for an estimate" in explain_missing_estimate(look.meter, spec)


def test_the_estimate_ends_with_the_load() -> None:
    looks = read_looks()["idle1"]
    assert looks[-1].since > 3
    assert [look.estimate for look in looks if look.since > 1.5] == [None] * sum(look.since > 1.5 for look in looks)
    assert "the last request has ended" in explain_missing_estimate(looks[-1].meter, DecodeStepSpec(weights=10**9))


def test_no_estimate_anywhere_is_off_by_a_tenth() -> None:
    """Also where requests begin and end, and prompts are read between; except in the first seconds after idleness, in which
    the counter's second and the reading's are not quite the same."""
    looks = [look for name, looks in read_looks().items() for look in looks if name != "b1" or look.since > 3]
    pairs = [look for look in looks if look.estimate is not None and look.counted]
    assert len(pairs) > 150
    assert [look.ratio for look in pairs if not 0.9 < look.ratio < 1.1] == []
