"""What owners report of real Sparks, as sums: 121.7 GiB of memory, about 116 of it available after a boot."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkctl.engines.engine_flags import CommandFlags
from sparkctl.engines.memory_estimate import (
    DraftWorkspace,
    EstimateInput,
    WeightsSize,
    find_memory_rule,
    list_model_parts,
    parse_kv_layout,
)
from sparkctl.model.decode_step import RoutedExperts
from sparkctl.model.memory_fit import EstimateSource, FitOutcome, MeasuredPeak, MemoryBudget, MemoryFit, MemoryHolder
from sparkctl.model.node import Node, NodeName
from sparkctl.model.profile import ModelSpec, Profile
from sparkctl.model.text.units import GIB, KIB
from sparkctl.model.verdict import FieldChange
from sparkctl.profiles.fit_evaluation import build_estimate_input, count_weight_shards, evaluate_memory_fit
from sparkctl.profiles.launch_planning import build_launch_plan
from tests.unit.engines import model_configs

TOTAL = 127_600_592 * KIB
SPARK = MemoryBudget(total=TOTAL, available=116 * GIB, droppable=38 * GIB)
NODE = NodeName("spark1")


def make_weights_size(gigabytes: float) -> WeightsSize:
    return WeightsSize(int(gigabytes * 1e9), EstimateSource.MEASURED, "files")


def make_estimate_input(
    command: str, weights: float, config: str | None, version: tuple[int, ...], **more: object
) -> EstimateInput:
    engine = "vllm" if "vllm" in command else "sglang"
    return EstimateInput(
        engine=engine,
        words=CommandFlags(command.split()),
        weights=make_weights_size(weights),
        layout=parse_kv_layout(config),
        version=version,
        **more,
    )


def evaluate_fit(one: EstimateInput, standing: MemoryBudget | None = SPARK, **more: object) -> MemoryFit:
    claim = find_memory_rule(one, standing.total if standing else 0)
    return evaluate_memory_fit(NODE, "it", claim, standing, floor=GIB, **more)


def fit_qwen36(
    algorithm: str, share: float = 0.82, workspace: DraftWorkspace = DraftWorkspace.UNKNOWN
) -> EstimateInput:
    command = f"sglang serve --model-path /m --mem-fraction-static {share} --speculative-algorithm {algorithm}"
    return make_estimate_input(command, 27, model_configs.QWEN36_27B, (0, 5, 12), workspace=workspace)


def test_nextn_at_082_with_a_workspace_that_is_taken_before_the_weights_does_not_fit_and_ngram_does() -> None:
    nextn = evaluate_fit(fit_qwen36("NEXTN", workspace=DraftWorkspace.TAKEN))
    assert nextn.answer is FitOutcome.SHORT
    assert nextn.missing_bytes > 10 * GIB
    (space,) = [part for part in nextn.parts if part.name == "draft workspace with KV cache"]
    assert space.size is not None
    assert 91 * GIB < space.size < 96 * GIB, (
        "the post saw about 92 of the 112 that CUDA had free: not 0.82 of all memory"
    )
    assert nextn.largest is not None
    assert (nextn.largest.field, nextn.least) == ("args.mem-fraction-static", None)
    assert (
        evaluate_fit(fit_qwen36("NEXTN", float(nextn.largest.value), DraftWorkspace.TAKEN)).answer
        is FitOutcome.AFTER_DROP_CACHES
    )
    assert (
        evaluate_fit(fit_qwen36("NEXTN", float(nextn.largest.value) + 0.01, DraftWorkspace.TAKEN)).answer
        is FitOutcome.SHORT
    )
    assert evaluate_fit(fit_qwen36("NGRAM", workspace=DraftWorkspace.TAKEN)).answer is FitOutcome.AFTER_DROP_CACHES


def test_nextn_at_082_that_came_up_for_its_author_is_told_of_the_images_where_it_does_not() -> None:
    doubted = evaluate_fit(fit_qwen36("NEXTN"))
    assert doubted.answer is FitOutcome.AFTER_DROP_CACHES
    assert any(
        "before the weights" in caution and "args.mem-fraction-static=0.7 fits" in caution
        for caution in doubted.cautions
    ), "a round share, as the advice on the flags gives"
    assert not evaluate_fit(fit_qwen36("NEXTN", workspace=DraftWorkspace.NOT_TAKEN)).cautions, "a start of it went well"
    assert not evaluate_fit(replace(fit_qwen36("NEXTN"), version=(0, 5, 23))).cautions, "no such image was reported"
    assert not evaluate_fit(fit_qwen36("NEXTN", 0.6)).cautions, "it fits either way"


def test_all_three_flags_on_0512_take_the_workspace_first_unless_a_start_of_them_went_well() -> None:
    flags = "NEXTN --speculative-num-steps 5 --speculative-eagle-topk 4 --speculative-num-draft-tokens 20"
    assert evaluate_fit(fit_qwen36(flags)).answer is FitOutcome.SHORT
    assert evaluate_fit(fit_qwen36(flags, 0.6)).answer is FitOutcome.AFTER_DROP_CACHES
    assert not evaluate_fit(fit_qwen36(flags, workspace=DraftWorkspace.NOT_TAKEN)).is_refused
    assert not evaluate_fit(replace(fit_qwen36(flags), version=(0, 5, 23))).is_refused


@pytest.mark.parametrize(
    ("config", "flags", "nodes"),
    [
        (model_configs.DEEPSEEK, "-tp 2", 1),  # one latent, which each rank keeps whole
        (model_configs.DEEPSEEK, "--pipeline-parallel-size 2", 2),
        (model_configs.DEEPSEEK, "-tp 2 -dcp 2", 2),
        (model_configs.MINIMAX_M27, "-tp 2", 2),
        ('{"num_hidden_layers": 8, "num_attention_heads": 16, "num_key_value_heads": 1, "head_dim": 128}', "-tp 2", 1),
    ],
)
def test_a_cache_is_shared_by_its_heads_and_layers(config: str, flags: str, nodes: int) -> None:
    sizes = [
        make_estimate_input(f"vllm serve /m {flags}", 1, config, (0, 19, 1), ranks=ranks).estimate_kv_cache(8192).size
        for ranks in (1, 2)
    ]
    assert None not in sizes
    assert sizes[0] == pytest.approx(nodes * (sizes[1] or 0), abs=2)


@pytest.mark.parametrize(
    ("flags", "shards"),
    [
        ("", 2),
        ("--data-parallel-size 1", 2),
        ("--data-parallel-size 2", 1),
        ("-dp 2", 1),
        ("--dp-size 2", 1),
        ("--data-parallel-size 2 --enable-expert-parallel", 2),
        ("--data-parallel-size 2 --tensor-parallel-size 2", 2),
    ],
)
def test_copies_that_serve_side_by_side_share_no_weights(flags: str, shards: int) -> None:
    profile = Profile(
        name="two",
        engine="vllm",
        image="img:1",
        origin="two.yaml",
        shipped=False,
        model=ModelSpec(path="/m"),
        port=8000,
        nodes=2,
    )
    assert count_weight_shards(profile, CommandFlags(("serve", *flags.split()))) == shards


@pytest.mark.parametrize(
    ("flags", "experts", "weights", "cache_share"),
    [
        ("--data-parallel-size 2 --enable-expert-parallel", 90, 25 + 45, 1),
        ("--data-parallel-size 2 --enable-expert-parallel", None, 57.5, 1),
        ("--tensor-parallel-size 2 --enable-expert-parallel", 90, 57.5, 2),
        ("--enable-dp-attention --dp-size 2 --tp-size 2", 90, 25 + 45, 1),
        ("", 90, 57.5, 2),
    ],
)
def test_with_data_parallel_experts_each_spark_has_all_of_the_attention_and_its_cache(
    flags: str, experts: int | None, weights: float, cache_share: int
) -> None:
    routed = None if experts is None else RoutedExperts(experts * 10**9, 256, 8)
    model = ModelSpec(path="/m", weights=115 * 10**9, experts=routed, kv_per_token=1000)
    profile = Profile(
        name="two", engine="vllm", image="img:1", origin="two.yaml", shipped=False, model=model, port=8000, nodes=2
    )
    node = Node(name=NODE, host="h")
    plan = build_launch_plan(profile, node, home="/h", operator="milo", environ={})
    subject = build_estimate_input(profile, replace(plan, command=("vllm", "serve", "/m", *flags.split())), ())
    (part,) = list_model_parts(subject)
    assert part.size == weights * 1e9
    assert ("model.experts" in part.words) == (experts is None)
    assert subject.estimate_kv_cache(8000).size == 8_000_000 // cache_share


def fit_minimax(ranks: int, share: float) -> MemoryFit:
    command = f"vllm serve /m --gpu-memory-utilization {share} --max-model-len 196608"
    return evaluate_fit(make_estimate_input(command, 115, model_configs.MINIMAX_M27, (0, 19, 1), ranks=ranks))


@pytest.mark.parametrize("share", [0.8, 0.85, 0.9, 0.95])
def test_minimax_of_115_gb_needs_both_sparks(share: float) -> None:
    alone = fit_minimax(1, share)
    assert alone.answer is FitOutcome.SHORT
    assert (alone.largest, alone.least) == (None, None), "no share of one Spark would do"
    if share <= 0.9:
        assert fit_minimax(2, share).answer is FitOutcome.AFTER_DROP_CACHES


def fit_coder_next(share: float) -> MemoryFit:
    config = '{"method":"dflash","model":"z-lab/Qwen3-Coder-Next-DFlash","num_speculative_tokens":15}'
    command = f"vllm serve /m --enforce-eager --max-model-len 65536 --gpu-memory-utilization {share}"
    one = make_estimate_input(command, 47, model_configs.CODER_NEXT, (0, 19, 1), draft=make_weights_size(1.1))
    return evaluate_fit(replace(one, words=CommandFlags([*command.split(), "--speculative-config", config])))


def test_the_share_that_owners_advise_for_dflash_bounds_what_is_proposed_and_is_said_above_it() -> None:
    above = fit_coder_next(0.75)
    assert above.answer is FitOutcome.AFTER_DROP_CACHES
    assert any("0.60 or less is what owners" in caution for caution in above.cautions)
    assert not fit_coder_next(0.6).cautions
    assert not fit_coder_next(0.85).cautions, "the check of the flags warns there"


def test_vllm_with_dflash_is_unsafe_at_085_and_not_at_060() -> None:
    assert fit_coder_next(0.60).answer is FitOutcome.AFTER_DROP_CACHES
    assert fit_coder_next(0.80).answer is FitOutcome.AFTER_DROP_CACHES, "is published as running"
    unsafe = fit_coder_next(0.85)
    assert unsafe.answer is FitOutcome.SHORT
    assert unsafe.largest == FieldChange("args.gpu-memory-utilization", "0.60"), (
        "what owners advise, not what the sum allows"
    )


def fit_vllm(share: float, standing: MemoryBudget = SPARK) -> MemoryFit:
    command = f"vllm serve /m --gpu-memory-utilization {share} --max-model-len 8192"
    return evaluate_fit(make_estimate_input(command, 17, model_configs.QWEN36_27B, (0, 33, 0)), standing)


def test_vllms_own_check_is_of_all_memory_and_sglangs_share_of_what_is_available() -> None:
    half = replace(SPARK, available=60 * GIB, holders=(MemoryHolder(name="other", ours=True, held=55 * GIB),))
    refused = fit_vllm(0.8, half)
    assert refused.answer is FitOutcome.IF_STOPPED
    assert refused.stops == ("other",)
    assert refused.missing_bytes >= int(0.8 * TOTAL) - 60 * GIB
    assert "vLLM's own check" in refused.cautions[0]
    assert refused.largest is not None
    assert float(refused.largest.value) < 0.5
    assert evaluate_fit(fit_qwen36("NGRAM"), half).answer is FitOutcome.AFTER_DROP_CACHES, (
        "its share shrinks with what there is"
    )


def test_a_share_that_the_check_calls_unsafe_is_not_proposed() -> None:
    one = replace(SPARK, available=int(0.945 * TOTAL))
    refused = fit_vllm(0.95, one)
    assert refused.answer is FitOutcome.SHORT
    assert refused.largest == FieldChange("args.gpu-memory-utilization", "0.85")


def test_weights_that_do_not_go_into_the_share_want_a_larger_one() -> None:
    small = fit_vllm(0.1)
    assert small.answer is FitOutcome.SHORT
    assert small.largest is None
    assert small.least is not None
    assert fit_vllm(float(small.least.value)).answer is not FitOutcome.SHORT
    tiny = evaluate_fit(fit_qwen36("NGRAM", 0.2))
    assert tiny.least is not None
    assert evaluate_fit(fit_qwen36("NGRAM", float(tiny.least.value))).answer is not FitOutcome.SHORT


def test_the_defaults_of_the_engines_are_those_of_their_versions() -> None:
    def share(command: str, version: tuple[int, ...]) -> float:
        return find_memory_rule(make_estimate_input(command, 17, model_configs.QWEN36_27B, version), TOTAL).share

    assert share("vllm serve /m", (0, 19, 1)) == 0.9
    assert share("vllm serve /m", (0, 33, 0)) == 0.92
    assert share("sglang serve --model-path /m", (0, 5, 12)) == pytest.approx(0.89, abs=0.005)
    assert share("sglang serve --model-path /m --speculative-algorithm EAGLE3", ()) == pytest.approx(0.86, abs=0.005)


def test_a_share_of_what_is_free_is_told_as_it_is_once_what_has_to_stop_is_gone() -> None:
    words = CommandFlags(["trtllm-serve", "m", "--kv_cache_free_gpu_memory_fraction", "0.7", "--tp_size", "2"])
    one = EstimateInput(engine="trtllm", words=words, weights=make_weights_size(133), ranks=2)
    free = evaluate_fit(one, replace(SPARK, available=118 * GIB))
    beside = MemoryBudget(
        total=TOTAL,
        available=18 * GIB,
        droppable=10 * GIB,
        holders=(MemoryHolder(name="minimax-m27", ours=True, held=100 * GIB),),
    )
    busy = evaluate_fit(one, beside)
    assert (free.answer, busy.answer, busy.stops) == (
        FitOutcome.AFTER_DROP_CACHES,
        FitOutcome.IF_STOPPED,
        ("minimax-m27",),
    )
    assert busy.needed_bytes == free.needed_bytes
    assert busy.needed_bytes is not None
    assert busy.missing_bytes == busy.needed_bytes + GIB - 18 * GIB
    assert (
        evaluate_fit(one, replace(beside, holders=(replace(beside.holders[0], is_replaced=True),))).needed_bytes
        == busy.needed_bytes
    )
    assert busy.needed_bytes == pytest.approx(102 * GIB, rel=0.02), "as memory.expected of trtllm-qwen3-235b has it"


def test_the_last_start_corrects_the_sum() -> None:
    plain = evaluate_fit(fit_qwen36("NGRAM"))
    assert plain.estimated is not None
    more = evaluate_fit(fit_qwen36("NGRAM"), seen=MeasuredPeak(plain.estimated + 30 * GIB, plain.estimated))
    assert more.answer is FitOutcome.SHORT
    assert more.needed_bytes == plain.estimated + 30 * GIB
    assert more.parts[0].obtained is EstimateSource.HISTORY
    assert more.estimated == plain.estimated, "the next start is compared with the sum, not with its correction"
    wrong = evaluate_fit(fit_qwen36("NEXTN", workspace=DraftWorkspace.TAKEN))
    assert wrong.estimated is not None
    forced = evaluate_fit(
        fit_qwen36("NEXTN", workspace=DraftWorkspace.TAKEN),
        seen=MeasuredPeak(wrong.estimated - 30 * GIB, wrong.estimated),
    )
    assert forced.answer is FitOutcome.AFTER_DROP_CACHES, "forced once, it is known to run"


@pytest.mark.parametrize("comes_first", [False, True], ids=["the image takes none first", "it does"])
def test_after_the_first_start_the_sum_is_what_that_start_took(comes_first: bool) -> None:
    """Whatever rule the sum before it was made by: a start that got ready is not counted with a workspace first again."""
    before = evaluate_fit(fit_qwen36("NEXTN", 0.6, DraftWorkspace.TAKEN))
    without = evaluate_fit(fit_qwen36("NEXTN", 0.6, DraftWorkspace.NOT_TAKEN))
    assert before.estimated is not None
    assert without.estimated is not None
    assert before.estimated - without.estimated > 24 * GIB
    peak = (before if comes_first else without).estimated - GIB // 2
    seen = MeasuredPeak(peak, before.estimated, SPARK.available_after_drop)
    after = evaluate_fit(fit_qwen36("NEXTN", 0.6, DraftWorkspace.NOT_TAKEN), seen=seen)
    assert after.needed_bytes == peak
    less = replace(SPARK, available=SPARK.available - 10 * GIB)
    in_less = evaluate_fit(fit_qwen36("NEXTN", 0.6, DraftWorkspace.NOT_TAKEN), less, seen=seen)
    assert in_less.needed_bytes == pytest.approx(peak - 6 * GIB, abs=4), "0.6 of what is available now"


def test_what_is_not_known_is_not_promised_and_a_whole_figure_decides() -> None:
    unknown = replace(fit_qwen36("NGRAM"), weights=WeightsSize(None, EstimateSource.MEASURED, "no files"))
    assert evaluate_fit(unknown).answer is FitOutcome.UNKNOWN
    assert not evaluate_fit(unknown).is_refused
    assert evaluate_fit(unknown, expected=96 * GIB).answer is FitOutcome.AFTER_DROP_CACHES
    assert evaluate_fit(unknown, expected=119 * GIB).answer is FitOutcome.SHORT
    assert evaluate_fit(unknown, seen=MeasuredPeak(96 * GIB)).answer is FitOutcome.AFTER_DROP_CACHES
    assert evaluate_fit(fit_qwen36("NGRAM"), None).answer is FitOutcome.UNKNOWN
    no_config = make_estimate_input("vllm serve /m --max-model-len 8192 --gpu-memory-utilization 0.5", 17, None, ())
    assert evaluate_fit(no_config).answer is FitOutcome.UNKNOWN


def test_what_is_replaced_comes_back_and_what_still_loads_is_taken() -> None:
    busy = MemoryBudget(
        total=TOTAL,
        available=18 * GIB,
        droppable=10 * GIB,
        holders=(MemoryHolder(name="it", ours=True, held=96 * GIB, is_replaced=True),),
    )
    assert not evaluate_fit(fit_qwen36("NGRAM"), busy).is_refused
    silent = replace(busy, holders=(MemoryHolder(name="it", ours=True, held=None, is_replaced=True),))
    assert evaluate_fit(fit_qwen36("NGRAM"), silent).answer is FitOutcome.UNKNOWN, "unknown is never zero"
    loads = replace(SPARK, holders=(MemoryHolder(name="other", ours=True, held=10 * GIB, coming=90 * GIB),))
    assert evaluate_fit(fit_qwen36("NGRAM"), loads).stops == ("other",)


def test_one_that_is_enough_is_stopped_before_several_and_ours_before_others() -> None:
    holders = (
        MemoryHolder(name="tts", ours=True, held=6 * GIB),
        MemoryHolder(name="ours", ours=True, held=40 * GIB),
        MemoryHolder(name="foreign", ours=False, held=45 * GIB),
        MemoryHolder(name="odd", ours=False, held=None),
    )
    crowded = MemoryBudget(total=TOTAL, available=25 * GIB, droppable=5 * GIB, holders=holders)
    assert fit_vllm(0.5, crowded).stops == ("ours",)
    assert fit_vllm(0.55, crowded).stops == ("ours", "tts")
    assert fit_vllm(0.8, crowded).stops == ("foreign", "ours")


def test_a_sum_on_free_memory_needs_no_drop() -> None:
    assert fit_vllm(0.5).answer is FitOutcome.FITS
    assert fit_vllm(0.8).answer is FitOutcome.AFTER_DROP_CACHES


def test_what_is_left_less_than_what_is_guessed_is_called_tight() -> None:
    share = next(at / 100 for at in range(99, 50, -1) if not fit_vllm_before_021(at / 100).is_refused)
    assert any(caution.startswith("tight: ") for caution in fit_vllm_before_021(share).cautions)
    assert not any(caution.startswith("tight: ") for caution in fit_vllm_before_021(share - 0.05).cautions)


def fit_vllm_before_021(share: float) -> MemoryFit:
    command = f"vllm serve /m --gpu-memory-utilization {share} --max-model-len 8192"
    tight = replace(SPARK, available=int(0.8 * TOTAL) + 2 * GIB)
    return evaluate_fit(make_estimate_input(command, 17, model_configs.QWEN36_27B, (0, 19, 1)), tight)


def make_cpu_environment(gigabytes: str) -> dict[str, object]:
    return {"has_gpu": False, "env": {"VLLM_CPU_KVCACHE_SPACE": gigabytes}}


def test_a_vllm_without_a_gpu_takes_the_cache_that_its_environment_says_and_no_share() -> None:
    result = evaluate_fit(make_estimate_input("vllm serve m", 4, None, (0, 32), **make_cpu_environment("1")))
    assert [part.size for part in result.parts if part.name == "KV cache"] == [GIB]
    assert result.answer is FitOutcome.FITS
    for unsaid in ("", "0"):
        usual = evaluate_fit(make_estimate_input("vllm serve m", 4, None, (0, 32), **make_cpu_environment(unsaid)))
        assert any(part.name == "share of vLLM" for part in usual.parts)


@pytest.mark.parametrize(
    ("short", "answer"),
    [
        (-1, FitOutcome.FITS),
        (0, FitOutcome.FITS),
        (1, FitOutcome.AFTER_DROP_CACHES),
        (38 * GIB, FitOutcome.AFTER_DROP_CACHES),
        (38 * GIB + 1, FitOutcome.SHORT),
    ],
)
def test_to_the_byte_what_is_free_at_once_is_enough_and_the_page_cache_is_the_rest(
    short: int, answer: FitOutcome
) -> None:
    """``short``: bytes that estimate and floor need beyond what is free without a drop of the page cache."""
    one = make_estimate_input("vllm serve /m --gpu-memory-utilization 0.3", 10, model_configs.QWEN36_27B, (0, 19, 1))
    claim = find_memory_rule(one, TOTAL)
    needed = evaluate_memory_fit(NODE, "it", claim, SPARK, floor=0).needed_bytes
    assert needed is not None
    floor = SPARK.available_after_drop - SPARK.droppable - needed + short
    assert evaluate_memory_fit(NODE, "it", claim, SPARK, floor=floor).answer is answer


UNKNOWN_WEIGHTS = WeightsSize(None, EstimateSource.MEASURED, "its place on the node is not known")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("vllm serve m --gpu-memory-utilization 0.7", "short by 44.9 GiB"),  # a share of everything
        ("vllm serve m --kv-cache-memory-bytes 60g", "short by at least 22.0 GiB"),  # the weights come on top
    ],
)
def test_known_parts_without_room_are_a_misfit_whatever_the_rest_is(command: str, words: str) -> None:
    one = replace(make_estimate_input(command, 1, None, (0, 32, 0)), weights=UNKNOWN_WEIGHTS)
    other = MemoryHolder(name="big2", ours=True, held=74 * GIB)
    beside = evaluate_fit(one, replace(SPARK, available=int(41.3 * GIB), holders=(other,)))
    assert (beside.answer, beside.stops) == (FitOutcome.IF_STOPPED, ("big2",))
    assert words in beside.summary_sentence
    assert any(one.startswith("weights: not known") for one in beside.cautions)
    assert (beside.largest, beside.least) == (None, None), "no share is known to hold it"
    alone = evaluate_fit(one)
    assert (alone.answer, alone.lacking) == (FitOutcome.UNKNOWN, 0)
    full = evaluate_fit(one, replace(SPARK, available=int(41.3 * GIB)))
    assert full.answer is FitOutcome.SHORT


def test_what_is_not_known_shows_no_shortfall() -> None:
    one = make_estimate_input("vllm serve m --gpu-memory-utilization 0.7", 1, None, (0, 32, 0))
    replaced = MemoryHolder(name="it", ours=True, held=None, is_replaced=True)
    found = evaluate_fit(one, replace(SPARK, available=10 * GIB, holders=(replaced,)))
    assert (found.answer, found.margin, found.missing_bytes) == (FitOutcome.UNKNOWN, None, 0)
