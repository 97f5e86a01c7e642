"""The estimate of memory bandwidth against the GPU's own counter: a recording of a real vLLM on an H100.

The recording's first line names its source and the model. Every reading is a page of /metrics, and the counter's share of
the peak in the second before. Between counter and truth there are up to 6 % in a single second; over ten it is less.
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

RECORDING = Path(__file__).parent / "recordings" / "vllm-0.24-h100-dense.jsonl.gz"
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
def read_looks() -> dict[str, list[Look]]:
    """Return the looks of each phase, in order."""
    with gzip.open(RECORDING, "rt", encoding="utf-8") as file:
        head, *readings = (json.loads(line) for line in file)
    reads = build_decode_step_reads(build_spec(head))
    assert reads is not None
    limit, window, engine = get_bandwidth_limit(head["peak"] / 1e9), MetricsWindow(), load_engine("vllm")
    looks: dict[str, list[Look]] = defaultdict(list)
    for at, reading in enumerate(readings):
        now = reading["at"]
        window.add_reading(now, engine.parse_metrics(reading["page"]))
        meter = window.compute_meter(now)
        shares = [one["busy"] for one in readings[: at + 1] if now - one["at"] < WINDOW_SECONDS - 0.5]
        counted = sum(shares) / len(shares) / 100 * head["peak"] if None not in shares else None
        for name, began, ended in head["phases"]:
            if began <= now < ended:
                looks[name].append(Look(now - began, meter, estimate_bandwidth(meter, reads, limit), counted))
    return looks


def build_spec(head: dict[str, int]) -> DecodeStepSpec:
    return DecodeStepSpec(
        weights=head["weights"], unread=head["embedding"], kv_per_token=head["kv_per_token"], is_measured=True
    )


def read_steady_looks(phase: str) -> list[Look]:
    """Return those whose whole window lies in the phase."""
    return [look for look in read_looks()[phase] if look.since > WINDOW_SECONDS + 1]


@pytest.mark.parametrize("phase", STEADY)
def test_steady_decoding_is_within_five_percent_of_the_counter(phase: str) -> None:
    looks = read_steady_looks(phase)
    assert len(looks) >= 8
    if phase == "b8-12k":
        looks = looks[2:]  # the prompts of its requests took longer than the others'
    assert all(look.meter.activity is EngineActivity.DECODING for look in looks)
    assert [look.ratio for look in looks] == pytest.approx([1.0] * len(looks), abs=0.05)


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
