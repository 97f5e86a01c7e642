"""Findings from an engine's own figures: what is wrong is told with its evidence, and a healthy engine gives none."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from sparkctl.engines import load_engine
from sparkctl.model.decode_step import DecodeStepSpec
from sparkctl.model.engine_metrics import (
    DraftAcceptance,
    EngineActivity,
    EngineMeter,
    EngineMetrics,
    MeterSource,
    Quantiles,
    StepLoad,
)
from sparkctl.model.finding import Finding, FindingKind, Severity
from sparkctl.model.phase import Phase
from sparkctl.monitor.findings import Detector, NodeSnapshot
from sparkctl.monitor.findings.engine_detectors import (
    FullCacheDetector,
    LostPrefixDetector,
    RejectedDraftsDetector,
    StalledRequestsDetector,
    StarvedDecodeDetector,
)
from sparkctl.monitor.meters.metrics_window import MetricsWindow
from tests.unit.monitor.findings.node_snapshots import (
    make_instance_view,
    make_snapshot,
    make_snapshot_series,
    run_detector,
)
from tests.unit.monitor.test_bandwidth_against_counter import RECORDINGS

DECODING = EngineMeter(
    activity=EngineActivity.DECODING, seconds=10, estimator=MeterSource.COUNTERS, generation_rate=20.0, prompt_rate=0.0,
    steps=7.0, running=1, waiting=0, batch=1, kv_usage=0.2, preemptions=0,
)  # fmt: skip
STANDING = replace(DECODING, activity=EngineActivity.PREFILL, generation_rate=0.0, steps=None, running=2)
ALL = (RejectedDraftsDetector, LostPrefixDetector, StarvedDecodeDetector, StalledRequestsDetector, FullCacheDetector)


def see(at: float, meter: EngineMeter | None, **more: object) -> NodeSnapshot:
    return make_snapshot(at, instances=(make_instance_view(Phase.READY, numbers=meter, **more),))


def run(detector: Detector, until: float, meter_at: Callable[[float], EngineMeter | None]) -> list[list[Finding]]:
    """What a detector says every two seconds."""
    return run_detector(detector, make_snapshot_series(2, until, lambda at: see(at, meter_at(at))))


def find_first(result: list[list[Finding]]) -> tuple[float, Finding]:
    """Return the second of the first finding, and the finding."""
    return next((2.0 * at, found[0]) for at, found in enumerate(result) if found)


def accept(length: float | None, rate: float | None, meter: EngineMeter = DECODING) -> EngineMeter:
    return replace(meter, acceptance=DraftAcceptance(length, rate, None, MeterSource.COUNTERS))


def test_drafts_of_which_none_is_accepted() -> None:
    findings = run(RejectedDraftsDetector(), 30, lambda at: accept(1.0, 0.0))
    at, finding = find_first(findings)
    assert (at, finding.kind, finding.severity) == (10, FindingKind.DRAFTS_REJECTED, Severity.WARNING)
    assert "accepts none of its drafts" in finding.summary
    assert [str(one) for one in finding.evidence] == ["accept length 1.00 tokens a step", "accepted 0 % of drafts"]
    assert "without drafts" in (finding.remedy or "")


def test_few_accepted_drafts_take_minutes_and_half_a_token_a_step_is_enough() -> None:
    at, finding = find_first(run(RejectedDraftsDetector(), 200, lambda at: accept(1.3, 0.1)))
    assert (at, "nearly all" in finding.summary) == (180, True)
    for length, rate in ((1.6, 0.205), (1.98, 0.14), (1.45, 0.45), (2.27, 0.3)):
        assert not any(run(RejectedDraftsDetector(), 300, lambda at, one=(length, rate): accept(*one)))


@pytest.mark.parametrize(
    "meter",
    [
        accept(1.0, 0.0, replace(DECODING, steps=3.0)),  # 30 steps in a window
        accept(None, None),
        DECODING,
        replace(accept(1.0, 0.0), activity=EngineActivity.IDLE),
        None,
    ],
)
def test_too_few_steps_or_no_drafts_prove_nothing(meter: EngineMeter | None) -> None:
    assert not any(run(RejectedDraftsDetector(), 60, lambda at: meter))


def test_drafts_without_a_model_are_a_note() -> None:
    step = DecodeStepSpec(draft_tokens=3, draft_passes=0)
    snapshots = make_snapshot_series(2, 20, lambda at: see(at, accept(1.0, 0.0), per_step=step))
    assert run_detector(RejectedDraftsDetector(), snapshots)[-1][0].severity is Severity.NOTE


def read_prompts(rate: float, hits: float, **more: object) -> EngineMeter:
    meter = replace(DECODING, prompt_rate=rate, prefix_hit_rate=hits, ttft=Quantiles(9.0, 9.0, 1.0))
    return replace(meter, **more)  # type: ignore[arg-type]


def test_a_session_whose_prefixes_are_lost() -> None:
    """An agent's turns: first 90 % of their prompts is found, then nothing."""
    findings = run(
        LostPrefixDetector(), 400, lambda at: read_prompts(600, 0.9) if at < 100 else read_prompts(1500, 0.02)
    )
    at, finding = find_first(findings)
    assert 160 <= at <= 180, "100,000 tokens at 1,500 a second"
    assert (finding.kind, finding.severity) == (FindingKind.PREFIX_CACHE, Severity.NOTE)
    assert finding.since is not None
    full = run(
        LostPrefixDetector(),
        200,
        lambda at: read_prompts(600 if at < 100 else 1500, 0.9 if at < 100 else 0.0, kv_usage=0.97),
    )
    assert full[-1][0].severity is Severity.WARNING
    healed = run(
        LostPrefixDetector(), 400,
        lambda at: read_prompts(600, 0.9) if at < 100 or at > 300 else read_prompts(1500, 0.02),
    )  # fmt: skip
    assert healed[140]
    assert not healed[-1]


def test_other_prompts_or_short_ones_are_no_lost_prefix() -> None:
    """Documents that were never seen; chats of 600 tokens after a long session; a prefix that is half found."""
    assert not any(run(LostPrefixDetector(), 400, lambda at: read_prompts(1800, 0.0)))
    short = read_prompts(1500, 0.0, ttft=Quantiles(0.5, 0.5, 25.0))
    assert not any(run(LostPrefixDetector(), 400, lambda at: read_prompts(600, 0.9) if at < 100 else short))
    assert not any(
        run(LostPrefixDetector(), 400, lambda at: read_prompts(600, 0.9) if at < 100 else read_prompts(1500, 0.2))
    )


def test_a_long_prompt_that_lets_no_other_request_step() -> None:
    reading = replace(STANDING, prompt_rate=1500.0)
    at, finding = find_first(run(StarvedDecodeDetector(), 60, lambda at: DECODING if at < 20 else reading))
    assert (at, finding.kind) == (30, FindingKind.PREFILL_STARVES)
    assert "get no token" in finding.summary
    assert "max-num-batched-tokens" in (finding.remedy or "")


def test_an_engine_that_tells_who_has_a_first_token_is_believed() -> None:
    """SGLang's `running` leaves out the request whose prompt is being read."""
    reading = replace(STANDING, prompt_rate=1500.0, running=1, decoding=1)
    assert find_first(run(StarvedDecodeDetector(), 60, lambda at: DECODING if at < 20 else reading))[0] == 30
    alone = replace(reading, running=0, decoding=0)
    assert not any(run(StarvedDecodeDetector(), 60, lambda at: DECODING if at < 20 else alone))


def test_a_prompt_that_is_counted_when_it_ends_fills_the_cache_meanwhile() -> None:
    findings = run(
        StarvedDecodeDetector(), 60, lambda at: DECODING if at < 20 else replace(STANDING, kv_usage=0.2 + at / 1000)
    )
    assert find_first(findings)[0] == 30
    assert not any(run(StarvedDecodeDetector(), 60, lambda at: DECODING if at < 20 else STANDING)), "nothing is read"


def test_tokens_that_come_seconds_apart_beside_prompts() -> None:
    slow = replace(
        DECODING, prompt_rate=1500.0, inter_token=Quantiles(0.2, 4.5, 90), step_load=StepLoad(prompt_tokens=800)
    )
    at, _ = find_first(run(StarvedDecodeDetector(), 60, lambda at: slow))
    assert at == 30
    for meter in (
        replace(slow, inter_token=Quantiles(0.2, 1.2, 90)),
        replace(slow, step_load=StepLoad(prompt_tokens=4)),  # slow for another reason
        replace(slow, inter_token=None),
    ):
        assert not any(run(StarvedDecodeDetector(), 120, lambda at, one=meter: one))


def test_prompts_that_starve_nobody() -> None:
    """One request whose own prompt is long; prompts after idleness; prompts that each get their first token."""
    alone = replace(STANDING, prompt_rate=1500.0, running=1)
    assert not any(run(StarvedDecodeDetector(), 120, lambda at: DECODING if at < 20 else alone))
    idle, many = (
        replace(DECODING, activity=EngineActivity.IDLE, running=0),
        replace(STANDING, prompt_rate=1500.0, running=4),
    )
    assert not any(run(StarvedDecodeDetector(), 120, lambda at: DECODING if at < 20 else idle if at < 40 else many))
    answered = replace(many, generation_rate=4.7, ttft=Quantiles(1.0, 2.0, 47))
    assert not any(run(StarvedDecodeDetector(), 120, lambda at: DECODING if at < 20 else answered))


def test_requests_that_stand_still() -> None:
    findings = run(StalledRequestsDetector(), 240, lambda at: STANDING)
    at, finding = find_first(findings)
    assert (at, finding.kind, finding.severity) == (180, FindingKind.STALLED, Severity.PROBLEM)
    waiting = replace(DECODING, activity=EngineActivity.IDLE, generation_rate=0.0, steps=0.0, running=0, waiting=3)
    assert find_first(run(StalledRequestsDetector(), 240, lambda at: waiting))[0] == 180


@pytest.mark.parametrize(
    "meter_at",
    [
        lambda at: DECODING,
        lambda at: replace(STANDING, prompt_rate=900.0),
        lambda at: replace(STANDING, kv_usage=0.001 * at),  # a prompt in pieces, counted when it ends
        lambda at: replace(STANDING, generation_rate=None),  # counts at the end of a request
        lambda at: replace(STANDING, running=0, waiting=0),
        lambda at: STANDING if at % 120 else DECODING,
        lambda at: None,
    ],
)
def test_requests_that_do_not_stand_still(meter_at: Callable[[float], EngineMeter | None]) -> None:
    assert not any(run(StalledRequestsDetector(), 600, meter_at))


def test_a_full_cache_that_throws_requests_out() -> None:
    full = replace(DECODING, kv_usage=0.99, preemptions=3, running=9, waiting=4)
    at, finding = find_first(run(FullCacheDetector(), 60, lambda at: full))
    assert (at, finding.kind, finding.severity) == (30, FindingKind.KV_FULL, Severity.WARNING)
    assert "thrown out 3 requests in 10 s" in [str(one) for one in finding.evidence]
    for meter in (replace(full, preemptions=0), replace(full, preemptions=None), replace(full, kv_usage=0.5)):
        assert not any(run(FullCacheDetector(), 120, lambda at, one=meter: one))
    assert not any(run(FullCacheDetector(), 120, lambda at: full if at % 40 < 20 else replace(full, preemptions=0))), (
        "short"
    )


def test_what_throws_requests_out_is_counted_by_the_engines() -> None:
    pages = {
        "vllm": 'vllm:num_preemptions_total{engine="0"} 7.0\n',
        "sglang": "sglang:num_retracted_requests_total{} 7.0\n",
    }
    for engine, page in pages.items():
        assert load_engine(engine).parse_metrics(page).preemptions == 7
    window = MetricsWindow()
    for at, count in ((0, 2), (5, 2), (10, 7)):
        window.add_reading(at, EngineMetrics(generation_tokens=10.0 * at, preemptions=count, running=2))
    assert window.compute_meter(10).preemptions == 5


@pytest.mark.parametrize("recording", ["dense", "draft", "mtp", "moe", "moe-skew", "moe-ngram"])
@pytest.mark.parametrize("detector", ALL)
def test_a_real_engine_under_load_gives_no_finding_but_of_drafts_that_are_rejected(
    detector: type[Detector], recording: str
) -> None:
    """vLLM on an H100: one to 128 requests, contexts of 16,000 tokens, prompts alone, mixed load, idleness between."""
    with gzip.open(RECORDINGS / f"vllm-0.24-h100-{recording}.jsonl.gz", "rt", encoding="utf-8") as file:
        _, *readings = (json.loads(line) for line in file)
    window, engine, judge, result = MetricsWindow(), load_engine("vllm"), detector(), []
    for reading in readings:
        window.add_reading(reading["at"], engine.parse_metrics(reading["page"]))
        result += judge.detect(see(reading["at"] + 100, window.compute_meter(reading["at"])))
    are_rejected = detector is RejectedDraftsDetector and recording in ("draft", "mtp")  # in a phase, or in all
    assert bool(result) is are_rejected


@pytest.mark.parametrize("detector", ALL)
def test_what_is_not_ready_or_not_ours_is_not_judged(detector: type[Detector]) -> None:
    bad = replace(accept(1.0, 0.0, STANDING), activity=EngineActivity.DECODING, kv_usage=1.0, preemptions=5)
    for view in (
        make_instance_view(Phase.LOADING, numbers=bad),
        replace(make_instance_view(Phase.READY, numbers=bad), ours=False),
    ):
        snapshots = make_snapshot_series(2, 400, lambda at, one=view: make_snapshot(at, instances=(one,)))
        assert not any(run_detector(detector(), snapshots))
    assert not any(run_detector(detector(), make_snapshot_series(2, 60, lambda at: make_snapshot(at, instances=None))))
