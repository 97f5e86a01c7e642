"""What holds of every sum: nothing below zero, nothing promised on what is not known, more never fits better."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sparkctl.engines.engine_flags import CommandFlags
from sparkctl.engines.memory_estimate import DraftWorkspace, EstimateInput, KvCacheLayout, WeightsSize, find_memory_rule
from sparkctl.model.memory_fit import EstimateSource, FitOutcome, MeasuredPeak, MemoryBudget, MemoryFit, MemoryHolder
from sparkctl.model.node import NodeName
from sparkctl.model.text.units import GIB, MIB
from sparkctl.profiles.fit_evaluation import evaluate_memory_fit

SIZES = st.integers(0, 400 * GIB)
GOOD = (FitOutcome.FITS, FitOutcome.AFTER_DROP_CACHES)
COMMANDS = st.sampled_from([
    "sglang --mem-fraction-static 0.82", "sglang --mem-fraction-static 0.5 --speculative-algorithm NEXTN", "sglang",
    "vllm --gpu-memory-utilization 0.8 --max-model-len 8192", "vllm", "vllm --kv-cache-memory-bytes 8GiB",
    "llamacpp -c 32768", "trtllm", "container",
])  # fmt: skip
LAYOUTS = st.none() | st.builds(
    KvCacheLayout, full=st.integers(0, 100), sliding=st.integers(0, 100), window=st.none() | st.integers(1, 8192),
    numbers=st.integers(1, 8192), state=st.integers(0, GIB), longest=st.none() | st.integers(1, 1 << 20),
)  # fmt: skip
HOLDERS = st.lists(
    st.builds(
        MemoryHolder, name=st.text(max_size=4), ours=st.booleans(), held=st.none() | SIZES, coming=st.integers(0, 100 * GIB),
        is_replaced=st.booleans(),
    ),
    max_size=4,
).map(tuple)  # fmt: skip


@st.composite
def draw_memory_budget(draw: st.DrawFn) -> MemoryBudget:
    total = draw(st.integers(GIB, 256 * GIB))
    available = draw(st.integers(0, total))
    return MemoryBudget(
        total=total, available=available, droppable=draw(st.integers(0, available)), holders=draw(HOLDERS)
    )


@st.composite
def draw_estimate_input(draw: st.DrawFn) -> EstimateInput:
    command = draw(COMMANDS).split()
    size = draw(st.none() | SIZES)
    return EstimateInput(
        engine=command[0], words=CommandFlags(command), weights=WeightsSize(size, EstimateSource.MEASURED, "files"), layout=draw(LAYOUTS),
        per_token=draw(st.none() | st.integers(1, MIB)), version=draw(st.sampled_from([(), (0, 5, 12), (0, 19, 1)])),
        ranks=draw(st.integers(1, 2)), expected=draw(st.none() | SIZES), workspace=draw(st.sampled_from(list(DraftWorkspace))),
    )  # fmt: skip


def evaluate_fit(
    one: EstimateInput, there: MemoryBudget, floor: int = GIB, seen: MeasuredPeak | None = None
) -> MemoryFit:
    return evaluate_memory_fit(
        NodeName("n"),
        "p",
        claim=find_memory_rule(one, there.total),
        standing=there,
        floor=floor,
        expected=one.expected,
        seen=seen,
    )


@given(draw_estimate_input(), draw_memory_budget(), st.integers(0, 8 * GIB))
def test_nothing_is_below_zero_and_the_answer_is_the_margins(
    one: EstimateInput, there: MemoryBudget, floor: int
) -> None:
    found = evaluate_fit(one, there, floor)
    assert all(part.size is None or part.size >= 0 for part in found.parts)
    assert found.missing_bytes >= 0
    if found.answer in GOOD:
        assert found.margin is not None
        assert found.margin >= 0
        assert not found.stops
    elif found.is_refused:
        assert found.margin is not None
        assert found.margin < 0
        assert bool(found.stops) is (found.answer is FitOutcome.IF_STOPPED)
    assert found.summary_sentence


@given(draw_estimate_input(), draw_memory_budget())
def test_a_part_that_is_not_known_promises_nothing(one: EstimateInput, there: MemoryBudget) -> None:
    bare = replace(one, weights=WeightsSize(None, EstimateSource.MEASURED, "?"), expected=None)
    if bare.engine == "container":
        return
    found = evaluate_fit(bare, there)
    assert found.answer not in GOOD
    weightless = replace(bare, weights=WeightsSize(0, EstimateSource.MEASURED, "files"))
    assert not found.is_refused or evaluate_fit(weightless, there).is_refused, (
        "only what no weights could change is refused"
    )


@given(draw_estimate_input(), draw_memory_budget(), st.integers(0, 100 * GIB))
def test_more_weights_never_fit_better(one: EstimateInput, there: MemoryBudget, more: int) -> None:
    if one.weights.size is None:
        return
    heavier = replace(one, weights=replace(one.weights, size=one.weights.size + more))
    before, after = evaluate_fit(one, there), evaluate_fit(heavier, there)
    assert before.margin is not None or after.margin is None or one.expected is not None
    if before.margin is not None and after.margin is not None and before.answer is not FitOutcome.UNKNOWN:
        assert after.margin <= before.margin
        assert not (before.is_refused and after.answer in GOOD)


@given(draw_estimate_input(), draw_memory_budget(), st.integers(0, 50 * GIB))
def test_a_higher_floor_never_fits_better_and_more_seen_neither(
    one: EstimateInput, there: MemoryBudget, more: int
) -> None:
    low, high = evaluate_fit(one, there, GIB), evaluate_fit(one, there, GIB + more)
    assert not (low.is_refused and high.answer in GOOD)
    if low.estimated is not None:
        little, much = MeasuredPeak(low.estimated, low.estimated), MeasuredPeak(low.estimated + more, low.estimated)
        assert evaluate_fit(one, there, seen=little).needed_bytes == low.needed_bytes
        assert not (
            evaluate_fit(one, there, seen=little).is_refused and evaluate_fit(one, there, seen=much).answer in GOOD
        )


@given(draw_estimate_input(), draw_memory_budget())
def test_a_suggested_change_fits(one: EstimateInput, there: MemoryBudget) -> None:
    found = evaluate_fit(one, there)
    for advised in (found.largest, found.least):
        if advised is not None:
            flag = advised.field.removeprefix("args.")
            words = [*one.words._words, f"--{flag}", advised.value]
            assert evaluate_fit(replace(one, words=CommandFlags(words)), there).answer in GOOD
    if found.stops:
        gone = tuple(replace(each, is_replaced=True) if each.name in found.stops else each for each in there.holders)
        assert evaluate_fit(one, replace(there, holders=gone)).answer in (*GOOD, FitOutcome.UNKNOWN)
