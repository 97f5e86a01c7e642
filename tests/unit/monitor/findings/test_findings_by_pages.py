"""The findings of an engine's figures, from its /metrics pages, as vLLM and SGLang write them, to what is told.

The names are those of vLLM 0.19.1 to 0.33.0 and of SGLang 0.5.12 and 0.5.23. SGLang's gauges are of its last stride.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from sparkctl.engines import load_engine
from sparkctl.model.finding import FindingKind
from sparkctl.model.phase import Phase
from sparkctl.monitor.findings.engine_detectors import (
    FullCacheDetector,
    LostPrefixDetector,
    RejectedDraftsDetector,
    StalledRequestsDetector,
    StarvedDecodeDetector,
)
from sparkctl.monitor.meters.metrics_window import MetricsWindow
from tests.unit.monitor.findings.node_snapshots import make_instance_view, make_snapshot

ALL = (RejectedDraftsDetector, LostPrefixDetector, StarvedDecodeDetector, StalledRequestsDetector, FullCacheDetector)
ENGINES = pytest.mark.parametrize("engine", ["vllm", "sglang"])


@dataclass(frozen=True, kw_only=True)
class Load:
    """What an engine does in one second: tokens, prompt tokens computed and found, steps with a draft of three tokens."""

    tokens: float = 30.0
    computed: float = 0.0
    found: float = 0.0
    accepted: float = 0.0
    drafted: float = 0.0
    thrown: float = 0.0
    begun: float = 0.0
    running: int = 3
    waiting: int = 0
    usage: float = 0.3
    gap: float = 0.1  # seconds between two tokens of a request


class Counters:
    """An engine's counters, and its page."""

    def __init__(self) -> None:
        self.tokens = self.computed = self.found = self.accepted = self.drafted = self.thrown = self.begun = 0.0
        self.gaps = {0.5: 0.0, 2.5: 0.0, 5.0: 0.0, 10.0: 0.0}

    def add(self, load: Load) -> None:
        """Let a second pass."""
        for name in ("tokens", "computed", "found", "accepted", "drafted", "thrown", "begun"):
            setattr(self, name, getattr(self, name) + getattr(load, name))
        for bound in self.gaps:
            self.gaps[bound] += load.tokens if load.gap <= bound else 0.0

    def build_page(self, engine: str, load: Load) -> str:
        """Return its page."""
        latency = "inter_token_latency_seconds"
        rows = {
            **{f'{latency}_bucket{{le="{bound}"}}': count for bound, count in self.gaps.items()},
            f'{latency}_bucket{{le="+Inf"}}': self.gaps[10.0],
            'time_to_first_token_seconds_bucket{le="1.0"}': self.begun,
            'time_to_first_token_seconds_bucket{le="+Inf"}': self.begun,
        }
        if engine == "vllm":
            rows |= {
                "generation_tokens_total{}": self.tokens,
                "prompt_tokens_total{}": self.computed + self.found,
                'prompt_tokens_by_source_total{source="local_compute"}': self.computed,
                'prompt_tokens_by_source_total{source="local_cache_hit"}': self.found,
                "prefix_cache_queries_total{}": self.computed + self.found,
                "prefix_cache_hits_total{}": self.found,
                "num_preemptions_total{}": self.thrown,
                "num_requests_running{}": load.running,
                "num_requests_waiting{}": load.waiting,
                "kv_cache_usage_perc{}": load.usage,
            }
            if load.drafted:
                rows |= {
                    "spec_decode_num_drafts_total{}": self.drafted,
                    "spec_decode_num_draft_tokens_total{}": 3 * self.drafted,
                    "spec_decode_num_accepted_tokens_total{}": self.accepted,
                }
        else:
            rows |= {
                'realtime_tokens_total{mode="decode"}': self.tokens,
                'realtime_tokens_total{mode="prefill_compute"}': self.computed,
                'realtime_tokens_total{mode="prefill_cache"}': self.found,
                "num_retracted_requests_total{}": self.thrown,
                "num_running_reqs{}": load.running,
                "num_queue_reqs{}": load.waiting,
                "token_usage{}": load.usage,
                "gen_throughput{}": 30.0,
                "spec_accept_length{}": 1 + load.accepted / load.drafted if load.drafted else 0.0,
                "spec_accept_rate{}": load.accepted / load.drafted / 3 if load.drafted else 0.0,
            }
        return "".join(f"{engine}:{name} {value}\n" for name, value in rows.items()).replace("{}", "")


def watch(engine: str, until: int, load_at: Callable[[int], Load]) -> dict[FindingKind, int]:
    """Return each finding with the second of its first appearance, read every two seconds."""
    counters, window, reader = Counters(), MetricsWindow(), load_engine(engine)
    detectors, first = [one() for one in ALL], {}
    for second in range(until):
        load = load_at(second)
        counters.add(load)
        if second % 2:
            continue
        window.add_reading(second, reader.parse_metrics(counters.build_page(engine, load)))
        view = make_instance_view(Phase.READY, numbers=window.compute_meter(second))
        snapshot = make_snapshot(second + 100, instances=(view,))
        for detector in detectors:
            for finding in detector.detect(snapshot):
                first.setdefault(finding.kind, second)
    return first


@ENGINES
def test_drafts_of_which_none_is_accepted(engine: str) -> None:
    findings = watch(engine, 60, lambda at: Load(drafted=30.0))
    assert set(findings) == {FindingKind.DRAFTS_REJECTED}
    assert findings[FindingKind.DRAFTS_REJECTED] <= 20
    assert watch(engine, 300, lambda at: Load(drafted=30.0, accepted=40.0, tokens=70.0)) == {}


@ENGINES
def test_a_prefix_cache_that_serves_no_more(engine: str) -> None:
    """Turns of an agent: 60,000 tokens of context each, of which first nearly all, then nothing is found."""

    def load_at(at: int) -> Load:
        is_lost = at >= 120
        return Load(computed=2000.0 if is_lost else 100.0, found=0.0 if is_lost else 2000.0, begun=at % 30 == 0)

    findings = watch(engine, 300, load_at)
    assert FindingKind.PREFIX_CACHE in findings
    assert 160 <= findings[FindingKind.PREFIX_CACHE] <= 200, "100,000 tokens at 2,000 a second"
    assert watch(engine, 300, lambda at: Load(computed=100.0, found=2000.0, begun=at % 30 == 0)) == {}


@ENGINES
def test_a_long_prompt_that_takes_every_step(engine: str) -> None:
    """In pieces of 8,192: each of the others gets a token in five seconds. Before, ten in a second."""

    def load_at(at: int) -> Load:
        return Load() if at < 30 else Load(tokens=3.0 * (at % 5 == 0), computed=8192.0 * (at % 5 == 0), gap=4.8)

    findings = watch(engine, 120, load_at)
    assert set(findings) == {FindingKind.PREFILL_STARVES}
    assert 60 <= findings[FindingKind.PREFILL_STARVES] <= 90
    mixed = watch(engine, 120, lambda at: Load(tokens=15.0, computed=1000.0, gap=0.2, begun=1.0))
    assert mixed == {}, "prompts beside tokens that come"


@ENGINES
def test_a_prompt_that_lets_the_others_no_token_at_all(engine: str) -> None:
    findings = watch(engine, 80, lambda at: Load() if at < 30 else Load(tokens=0.0, computed=1500.0, running=4))
    assert set(findings) == {FindingKind.PREFILL_STARVES}


@ENGINES
def test_requests_that_stand_although_metrics_and_health_answer(engine: str) -> None:
    """One token of a prompt each six seconds is SGLang's health check; vLLM's reads nothing."""

    def load_at(at: int) -> Load:
        checked = float(at % 6 == 0) if engine == "sglang" else 0.0
        return Load(waiting=1) if at < 30 else Load(tokens=0.0, computed=checked, waiting=1)

    findings = watch(engine, 300, load_at)
    assert set(findings) == {FindingKind.STALLED}
    assert 210 <= findings[FindingKind.STALLED] <= 260
    ended = watch(engine, 400, lambda at: Load() if at < 30 else Load(tokens=0.0, running=3 * (at < 60)))
    assert ended == {}, "gauges that stand for half a minute after the load"


@ENGINES
def test_a_full_cache_that_throws_requests_out(engine: str) -> None:
    findings = watch(engine, 80, lambda at: Load(usage=0.97, thrown=0.5, running=20, waiting=6))
    assert set(findings) == {FindingKind.KV_FULL}
    assert findings[FindingKind.KV_FULL] <= 40
    assert watch(engine, 80, lambda at: Load(usage=0.99, running=20, waiting=6)) == {}, "full alone is no fault"


@ENGINES
def test_a_healthy_engine_gives_none(engine: str) -> None:
    """Idle, then a chat, then a batch of prompts, then idle again."""

    def load_at(at: int) -> Load:
        if at % 200 < 40 or at % 200 >= 160:
            return Load(tokens=0.0, running=0, usage=0.0)
        return Load(begun=0.2, computed=120.0, found=600.0) if at % 200 < 100 else Load(computed=900.0, begun=0.5)

    assert watch(engine, 800, load_at) == {}
