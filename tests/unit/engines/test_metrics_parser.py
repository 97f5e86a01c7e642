"""Pages of /metrics in the engines' true formats, cut to what matters, and what is read from them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from sparkctl import engines
from sparkctl.engines import metrics_parser
from sparkctl.errors import MetricsUnreadable
from sparkctl.model.engine_metrics import EngineMetrics

VLLM = """\
# HELP vllm:generation_tokens_total Number of generation tokens processed.
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="m"} 84864.0
vllm:generation_tokens_total{engine="1",model_name="m"} 136.0
# HELP vllm:generation_tokens_created Number of generation tokens processed.
# TYPE vllm:generation_tokens_created gauge
vllm:generation_tokens_created{engine="0",model_name="m"} 1.795e+09
vllm:prompt_tokens_total{engine="0",model_name="m"} 54938.0
vllm:prompt_tokens_by_source_total{engine="0",model_name="m",source="local_compute"} 50000.0
vllm:prompt_tokens_by_source_total{engine="0",model_name="m",source="local_cache_hit"} 4938.0
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 23869.0
vllm:spec_decode_num_drafts_created{engine="0",model_name="m"} 1.795e+09
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 70117.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 49048.0
vllm:spec_decode_num_accepted_tokens_created{engine="0",model_name="m"} 1.795e+09
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 19336.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="1"} 15690.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="2"} 14022.0
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 1.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:cache_config_info{block_size="128",cache_dtype="auto",engine="0",num_gpu_blocks="4096",sliding_window="None"} 1.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.01",model_name="m"} 13.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.02",model_name="m"} 192.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="m"} 200.0
vllm:time_to_first_token_seconds_bucket{engine="1",le="0.01",model_name="m"} 1.0
vllm:time_to_first_token_seconds_bucket{engine="1",le="0.02",model_name="m"} 8.0
vllm:time_to_first_token_seconds_bucket{engine="1",le="+Inf",model_name="m"} 10.0
process_start_time_seconds 1.79518854593e+09
"""

_RANK = 'engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0"'
SGLANG = f"""\
# TYPE sglang:realtime_tokens_total counter
sglang:realtime_tokens_total{{{_RANK},mode="prefill_compute",tp_rank="0"}} 219.0
sglang:realtime_tokens_total{{{_RANK},mode="prefill_cache",tp_rank="0"}} 81.0
sglang:realtime_tokens_total{{{_RANK},mode="decode",tp_rank="0"}} 409.0
sglang:realtime_tokens_total{{{_RANK},mode="decode",tp_rank="1"}} 409.0
sglang:num_running_reqs{{{_RANK},tp_rank="0"}} 3.0
sglang:num_running_reqs{{{_RANK},tp_rank="1"}} 3.0
sglang:num_queue_reqs{{{_RANK},tp_rank="0"}} 0.0
sglang:token_usage{{{_RANK},tp_rank="0"}} 0.07
sglang:num_used_tokens{{{_RANK},tp_rank="0"}} 627.0
sglang:gen_throughput{{{_RANK},tp_rank="0"}} 71.92
sglang:spec_accept_length{{{_RANK},tp_rank="0"}} 2.88
sglang:spec_accept_rate{{{_RANK},tp_rank="0"}} 0.63
sglang:generation_tokens_total{{engine_type="unified",is_streaming="false",model_name="m"}} 410.0
sglang:generation_tokens_total{{engine_type="unified",is_streaming="true",model_name="m"}} 90.0
sglang:inter_token_latency_seconds_bucket{{engine_type="unified",is_streaming="false",le="0.1",model_name="m"}} 4.0
sglang:inter_token_latency_seconds_bucket{{engine_type="unified",is_streaming="false",le="+Inf",model_name="m"}} 5.0
"""

LLAMA = """\
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 30
llamacpp:prompt_tokens_cached_total 70
llamacpp:tokens_predicted_total 600
llamacpp:tokens_predicted_seconds_total 60.5
llamacpp:n_decode_total 320
# TYPE llamacpp:predicted_tokens_seconds gauge
llamacpp:predicted_tokens_seconds 562.9
llamacpp:requests_processing 2
llamacpp:requests_deferred 1
llamacpp:spec_decode_num_drafts_total 100
llamacpp:spec_decode_num_draft_tokens_total 291
llamacpp:spec_decode_num_accepted_tokens_total 126
"""


def parse_metrics_page(engine: str, page: str) -> EngineMetrics:
    return engines.load_engine(engine).parse_metrics(page)


def test_vllm_sums_its_engines_and_leaves_the_created_twins_alone() -> None:
    seen = parse_metrics_page("vllm", VLLM)
    assert (seen.generation_tokens, seen.running) == (85000, 4)
    assert (seen.drafts, seen.draft_tokens, seen.accepted_tokens) == (23869, 70117, 49048)
    assert seen.accepted_per_position == (19336, 15690, 14022)
    assert sum(seen.accepted_per_position) == seen.accepted_tokens
    assert seen.started == 1795188545.93


def test_vllm_prompt_tokens_are_those_computed() -> None:
    assert parse_metrics_page("vllm", VLLM).prompt_tokens == 50000
    older = "\n".join(line for line in VLLM.splitlines() if "by_source" not in line)
    assert parse_metrics_page("vllm", older + "\n").prompt_tokens == 54938


def test_vllm_kv_tokens_come_from_blocks_in_use() -> None:
    seen = parse_metrics_page("vllm", VLLM)
    assert seen.kv_usage == 0.25
    assert seen.kv_tokens == 0.25 * 4096 * 128


def test_histograms_are_summed_by_bound() -> None:
    seen = parse_metrics_page("vllm", VLLM).ttft
    assert seen is not None
    assert seen.buckets == ((0.01, 14), (0.02, 200), (math.inf, 210))
    assert parse_metrics_page("vllm", VLLM).inter_token is None


def test_without_speculation_its_counters_are_not_known_and_not_zero() -> None:
    plain = "\n".join(line for line in VLLM.splitlines() if "spec_decode" not in line)
    seen = parse_metrics_page("vllm", plain + "\n")
    assert seen.generation_tokens == 85000
    assert (seen.drafts, seen.draft_tokens, seen.accepted_tokens, seen.accepted_per_position) == (None,) * 4


def test_sglang_takes_the_live_counter_and_one_rank_of_each() -> None:
    seen = parse_metrics_page("sglang", SGLANG)
    assert (seen.generation_tokens, seen.prompt_tokens, seen.running) == (409, 219, 3)
    assert (seen.prefix_queries, seen.prefix_hits) == (300, 81)
    assert (seen.generation_rate, seen.accept_length, seen.accept_rate) == (71.92, 2.88, 0.63)
    assert (seen.in_strides, seen.counts_steps, seen.health_tokens) == (True, True, 1)


def test_sglang_sums_data_parallel_parts() -> None:
    gauge = 'sglang:num_running_reqs{{dp_rank="{0}",tp_rank="{0}"}} 2.0\n'
    assert parse_metrics_page("sglang", gauge.format(0) + gauge.format(1)).running == 4


def test_sglang_without_the_live_counter_falls_back_to_the_one_of_ended_requests() -> None:
    older = "\n".join(line for line in SGLANG.splitlines() if "realtime" not in line)
    assert parse_metrics_page("sglang", older + "\n").generation_tokens == 500
    assert not parse_metrics_page("sglang", older + "\n").counts_steps
    warmed_up = "\n".join(line for line in SGLANG.splitlines() if 'mode="decode"' not in line)
    assert parse_metrics_page("sglang", warmed_up + "\n").generation_tokens is None, "a live counter that has not begun"


def test_sglang_gauges_at_zero_are_no_acceptance() -> None:
    seen = parse_metrics_page("sglang", "sglang:spec_accept_length 0.0\nsglang:spec_accept_rate 0.0\n")
    assert (seen.accept_length, seen.accept_rate) == (None, None)


def test_llama_is_read_from_counters_alone() -> None:
    seen = parse_metrics_page("llamacpp", LLAMA)
    assert (seen.generation_tokens, seen.generation_seconds, seen.passes) == (600, 60.5, 320)
    assert (seen.prompt_tokens, seen.prefix_queries, seen.prefix_hits) == (30, 100, 70)
    assert (seen.drafts, seen.draft_tokens, seen.accepted_tokens) == (100, 291, 126)
    assert seen.accepted_per_position is None, "the series appears with the first draft"
    assert seen.generation_rate is None, "the gauge is set back by every scrape"
    assert (seen.running, seen.waiting) == (2, 1)


def test_another_scraper_changes_nothing_of_what_llama_says() -> None:
    """Every scrape, by anyone, sets its gauge back: 562.9 and then 0, with three requests running at 1242 tok/s in all."""
    scraped = LLAMA.replace("predicted_tokens_seconds 562.9", "predicted_tokens_seconds 0")
    assert scraped != LLAMA
    assert parse_metrics_page("llamacpp", scraped) == parse_metrics_page("llamacpp", LLAMA)


@pytest.mark.parametrize("name", engines.engine_names())
@pytest.mark.parametrize("page", ["", "\n", "# nothing\n", "other_metric 1\n", "<html><body>404</body></html>"])
def test_a_page_without_its_series_says_nothing(name: str, page: str) -> None:
    seen = parse_metrics_page(name, page)
    assert set(seen.list_counters()) == {None}
    assert (seen.running, seen.kv_usage, seen.ttft) == (None, None, None)


def test_a_value_below_zero_or_no_number_is_not_known() -> None:
    for value in ("-5.0", "NaN", "+Inf"):
        metrics = parse_metrics_page("vllm", f'vllm:num_requests_running{{engine="0"}} {value}\n')
        assert metrics.running is None


def test_a_page_that_was_cut_short_is_refused() -> None:
    with pytest.raises(MetricsUnreadable) as broken:
        parse_metrics_page("vllm", 'vllm:generation_tokens_total{engine="0",model_na')
    assert "/metrics" in broken.value.message
    assert "curl" in (broken.value.hint or "")


NAMES = st.sampled_from(
    [
        "vllm:generation_tokens_total",
        "vllm:time_to_first_token_seconds_bucket",
        "vllm:spec_decode_num_accepted_tokens_per_pos_total",
        "vllm:cache_config_info",
        "llamacpp:n_decode_total",
        "sglang:token_usage",
        "# TYPE sglang:token_usage",
    ]
)
LABELS = st.sampled_from(
    ["", "{}", "{", '{le="+Inf"}', '{le="x"}', '{position="0"}', '{position="9",', '{a="\\"}', "\x00"]
)
VALUES = st.sampled_from(
    ["1", " 1", " NaN", " +Inf", " -1e400", " ", " 1 2 3", " gauge", " é", ' {a="b"} 1', " 1 # {} 2"]
)


@given(st.lists(st.tuples(NAMES, LABELS, VALUES), max_size=6))
@settings(max_examples=200, deadline=None)
def test_any_text_is_read_or_refused(lines: list[tuple[str, str, str]]) -> None:
    page = "\n".join("".join(line) for line in lines)
    for name in engines.engine_names():
        try:
            seen = parse_metrics_page(name, page)
        except MetricsUnreadable:
            continue
        assert all(value is None or math.isfinite(value) for value in seen.list_counters())


def test_sglang_counts_first_tokens_apart_and_none_of_health_checks() -> None:
    ttft = 'sglang:time_to_first_token_seconds_bucket{{is_streaming="{0}",le="+Inf"}} {1}\n'
    seen = parse_metrics_page("sglang", SGLANG + ttft.format("true", 50) + ttft.format("false", 4))
    assert (seen.generation_tokens, seen.first_tokens) == (409, 54)


ODD = """\
odd{quoted="a \\"b\\" c",path="C:\\\\x",lines="one\\ntwo",brace="}",empty="",} 1.5e3 1700000000
odd { spaced = "1" , other = "2" }\t2
odd +Inf
odd NaN
"""


@pytest.mark.parametrize("page", [VLLM, SGLANG, LLAMA, ODD])
def test_samples_are_those_that_the_client_library_reads(page: str) -> None:
    theirs = [one for family in text_string_to_metric_families(page) for one in family.samples]
    ours = metrics_parser.parse_metrics_page(page, {one.name for one in theirs}).samples
    assert len(ours) >= 2
    assert sorted(map(repr, ((one.name, dict(one.labels), one.value) for one in ours))) == sorted(
        repr((one.name, one.labels, one.value)) for one in theirs if 0 <= one.value < math.inf
    )


@pytest.mark.parametrize("line", ["odd{a=1} 1", 'odd{a="b" 1', "odd 1_000", "odd one", "odd", 'odd{a="b"c="d"} 1'])
def test_a_line_that_is_no_sample_is_refused(line: str) -> None:
    with pytest.raises(MetricsUnreadable):
        metrics_parser.parse_metrics_page(f"{line}\n", {"odd"})


@pytest.mark.parametrize("char", ["\u2028", "\x0b", "\x85"])
def test_only_a_newline_ends_a_line(char: str) -> None:
    page = metrics_parser.parse_metrics_page(f'a_total{{model="x{char}y"}} 3.0\n', ["a_total"])
    assert page.sum_of("a_total") == 3.0
