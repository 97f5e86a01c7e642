"""An engine that generates less than its source measured, for minutes, in the same situation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkctl.model.engine_metrics import DraftAcceptance, EngineActivity, EngineMeter, MeterSource
from sparkctl.model.finding import Finding, FindingKind, Severity
from sparkctl.model.phase import Phase
from sparkctl.model.reference import ComparableReference, FigureRange, ReferenceRate
from sparkctl.monitor.findings.node_detectors import SlowGenerationDetector
from tests.unit.monitor.findings.node_snapshots import (
    MEMORY,
    STUCK,
    WORKING,
    make_instance_view,
    make_snapshot,
    make_snapshot_series,
    run_detector,
)

POST = ComparableReference(
    "https://example.org/post",
    (ReferenceRate(1, FigureRange(12.7, 12.7), 640), ReferenceRate(8, FigureRange(43.1, 43.1), 640)),
    FigureRange(1.65, 1.85),
)
SLOW = EngineMeter(
    activity=EngineActivity.DECODING, generation_rate=9.0, prompt_rate=0.0, running=1.0, waiting=0.0, kv_tokens=700.0
)


def watch(numbers: EngineMeter | None, reference: ComparableReference | None = POST, **sample: object) -> list[Finding]:
    """What is found after four minutes of these figures."""
    one = make_instance_view(Phase.READY, numbers=numbers, reference=reference, profile="qwen36-ngram")
    snapshots = make_snapshot_series(2.0, 240.0, lambda at: make_snapshot(at, instances=(one,), **sample))
    return run_detector(SlowGenerationDetector(), snapshots)[-1]


def test_a_fifth_less_for_minutes_is_a_finding() -> None:
    (found,) = watch(SLOW, gpus=(WORKING,), memory=MEMORY)
    assert found.kind is FindingKind.BELOW_REFERENCE
    assert found.severity is Severity.NOTE
    assert found.summary == "qwen36 generates 9.0 tok/s where its source measured 12.7"
    assert "sparkctl profiles show qwen36-ngram" in (found.remedy or "")
    assert "quantization" in (found.remedy or "")


def test_it_takes_three_minutes() -> None:
    one = make_instance_view(Phase.READY, numbers=SLOW, reference=POST)
    snapshots = make_snapshot_series(2.0, 240.0, lambda at: make_snapshot(at, instances=(one,)))
    first = next(at for at, found in enumerate(run_detector(SlowGenerationDetector(), snapshots)) if found)
    assert snapshots[first].sample.uptime == 180.0


@pytest.mark.parametrize(
    ("numbers", "sample", "reason"),
    [
        (SLOW, {"gpus": (STUCK,)}, "the GPU's clock is low"),
        (SLOW, {"memory": replace(MEMORY, swap_free=2 * 2**30)}, "memory is in swap"),
        (
            replace(SLOW, acceptance=DraftAcceptance(1.2, 0.05, None, MeterSource.COUNTERS)),
            {},
            "it accepts fewer drafts",
        ),
    ],
)
def test_the_reason_that_can_be_seen_is_named(numbers: EngineMeter, sample: dict[str, object], reason: str) -> None:
    (found,) = watch(numbers, **sample)
    assert reason in found.summary


@pytest.mark.parametrize(
    "numbers",
    [
        None,
        EngineMeter(),
        replace(SLOW, generation_rate=10.5),  # within a fifth
        replace(SLOW, generation_rate=40.0),
        replace(SLOW, generation_rate=None),
        replace(SLOW, running=3.0),  # nobody measured three
        replace(SLOW, waiting=1.0),
        replace(SLOW, prompt_rate=500.0),  # a prompt is read beside
        replace(SLOW, kv_tokens=90_000.0),  # a long context
        replace(SLOW, kv_tokens=None),  # a context of unknown length
        replace(SLOW, activity=EngineActivity.PREFILL, generation_rate=0.0),
        replace(SLOW, activity=EngineActivity.IDLE, generation_rate=0.0, running=0.0),
    ],
)
def test_what_cannot_be_compared_is_no_finding(numbers: EngineMeter | None) -> None:
    assert watch(numbers) == []


def test_without_a_reference_there_is_no_finding() -> None:
    assert watch(SLOW, None) == []


def test_one_window_as_fast_as_there_begins_anew() -> None:
    slow = make_instance_view(Phase.READY, numbers=SLOW, reference=POST)
    fast = replace(slow, numbers=replace(SLOW, generation_rate=12.5))
    snapshots = make_snapshot_series(
        2.0, 240.0, lambda at: make_snapshot(at, instances=(fast if at == 120.0 else slow,))
    )
    assert not any(run_detector(SlowGenerationDetector(), snapshots))
