"""The lines in which engines tell their speed. Formats are theirs, figures ours."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkctl import engines
from sparkctl.engines.line_preparer import LinePreparer
from sparkctl.model.engine_metrics import StatsLine, StatsLineKind


def find_stats_line(engine: str, raw: str) -> StatsLine | None:
    (line,) = LinePreparer().prepare_lines(raw)
    found = engines.load_engine(engine).parse_stats_line(line)
    # the live meter reads no line without one of them
    assert found is None or any(word in raw for word in engines.load_engine(engine).stats_words)
    return found


def read_stats_line(engine: str, raw: str) -> StatsLine:
    found = find_stats_line(engine, raw)
    assert found is not None
    return found


def test_vllm_engine_line() -> None:
    seen = read_stats_line(
        "vllm",
        "(APIServer pid=7) INFO 05-01 10:00:00 [loggers.py:259] Engine 000: Avg prompt throughput: 71.8 tokens/s, "
        "Avg generation throughput: 132.3 tokens/s, Running: 3 reqs, Waiting: 1 reqs, GPU KV cache usage: 50.0%, "
        "Prefix cache hit rate: 25.0%",
    )
    assert (seen.kind, seen.source, seen.every) == (StatsLineKind.DECODE, "000", 10.0)
    assert (seen.prompt_rate, seen.generation_rate, seen.running, seen.waiting) == (71.8, 132.3, 3, 1)
    assert (seen.kv_usage, seen.prefix_hit_rate) == (0.5, 0.25)


def test_vllm_line_of_later_versions_and_of_several_engines() -> None:
    seen = read_stats_line(
        "vllm",
        "INFO 05-01 10:00:00 [loggers.py:335] 2 Engines Aggregated: Avg prompt throughput: 0.0 tokens/s, "
        "Avg generation throughput: 551.0 tokens/s, Running: 2 reqs, Waiting: 0 reqs, Deferred: 0 reqs, "
        "CPU KV cache usage: 0.5%",
    )
    assert (seen.generation_rate, seen.kv_usage, seen.prefix_hit_rate) == (551.0, 0.005, None)


SPECULATION = (
    "(APIServer pid=7) INFO 05-01 10:00:00 [metrics.py:101] SpecDecoding metrics: Mean acceptance length: {length}, "
    "Accepted throughput: 22.85 tokens/s, Drafted throughput: 30.00 tokens/s, Accepted: {accepted} tokens, "
    "Drafted: {drafted} tokens, Per-position acceptance rate: {positions}, Avg Draft acceptance rate: {rate}%"
)


def test_vllm_speculation_line() -> None:
    line = SPECULATION.format(length="3.50", accepted=250, drafted=300, positions="0.900, 0.850, 0.750", rate="83.3")
    seen = read_stats_line("vllm", line)
    assert seen.kind is StatsLineKind.SPECULATION
    assert (seen.accept_length, seen.accepted, seen.drafted) == (3.5, 250, 300)
    assert seen.accept_rate == pytest.approx(0.833)
    assert seen.per_position == (0.9, 0.85, 0.75)
    assert seen.generation_rate is None, "its throughputs are averaged over idle time"


def test_vllm_speculation_line_without_drafts_says_not_a_number() -> None:
    seen = read_stats_line(
        "vllm", SPECULATION.format(length="nan", accepted=0, drafted=0, positions="nan, nan", rate="nan")
    )
    assert (seen.drafted, seen.accept_length, seen.accept_rate, seen.per_position) == (0, None, None, None)


@pytest.mark.parametrize(
    ("usage", "tokens", "share"),
    [
        ("#token: 422, token usage: 0.25", 422, 0.25),
        ("#full token: 4224, full token usage: 0.20, mamba num: 2, mamba usage: 0.40", 4224, 0.4),
        ("#full token: 99, full token usage: 0.25, #swa token: 9, swa token usage: 0.10", 99, 0.25),
    ],
)
def test_sglang_decode_line(usage: str, tokens: float, share: float) -> None:
    seen = read_stats_line(
        "sglang",
        f"[2026-05-01 10:00:00 TP0] Decode batch, #running-req: 3, {usage}, accept len: 2.88, accept rate: 0.63, "
        "cuda graph: True, gen throughput (token/s): 71.92, #queue-req: 5",
    )
    assert (seen.kind, seen.running, seen.waiting, seen.every) == (StatsLineKind.DECODE, 3, 5, None)
    assert (seen.accept_length, seen.accept_rate, seen.generation_rate) == (2.88, 0.63, 71.92)
    assert (seen.kv_tokens, seen.kv_usage) == (tokens, share)


@pytest.mark.parametrize("head", ["Decode batch.", "Decode batch [123],", "Decode batch,"])
def test_sglang_heads_of_other_versions(head: str) -> None:
    seen = read_stats_line(
        "sglang", f"[2026-05-01 10:00:00] {head} #running-req: 1, #token: 7, gen throughput (token/s): 14.70"
    )
    assert (seen.running, seen.generation_rate, seen.accept_length) == (1, 14.7, None)


def test_sglang_prefill_line() -> None:
    seen = read_stats_line(
        "sglang",
        "[2026-05-01 10:00:00] Prefill batch, #new-seq: 2, #new-token: 152, #cached-token: 48, token usage: 0.00, "
        "#running-req: 1, #queue-req: 0, #pending-token: 0, cuda graph: False, input throughput (token/s): 155.17",
    )
    assert (seen.kind, seen.prompt_tokens, seen.cached_tokens, seen.running) == (StatsLineKind.PREFILL, 152, 48, 1)


LLAMA = "0.24.777.216 I slot print_timing: id  1 | task 0 | "


def test_llama_lines() -> None:
    live = read_stats_line("llamacpp", LLAMA + "n_gen =    100, tg =   4.28 t/s, tg_3s =   4.32 t/s")
    assert (live.kind, live.source, live.generation_rate, live.running) == (StatsLineKind.DECODE, "1", 4.32, 1)
    ended = read_stats_line(
        "llamacpp",
        LLAMA + "       eval time =   25660.27 ms /   120 tokens (  215.63 ms per token,     4.64 tokens per second)",
    )
    assert (ended.kind, ended.generation_rate, ended.running) == (StatsLineKind.REQUEST, 0, 0)
    drafts = read_stats_line(
        "llamacpp", LLAMA + "draft acceptance = 0.43299 (  126 accepted /   291 generated), mean len =  2.73"
    )
    assert (drafts.accept_rate, drafts.accepted, drafts.drafted, drafts.accept_length) == (0.43299, 126, 291, 2.73)
    older = read_stats_line("llamacpp", LLAMA + "draft acceptance rate = 0.57000 (  171 accepted /   300 generated)")
    assert (older.accept_rate, older.accept_length) == (0.57, None)


@pytest.mark.parametrize(
    "rest",
    [
        "prompt eval time =     351.87 ms /     5 tokens (   70.37 ms per token,    14.21 tokens per second)",
        "      total time =   10997.76 ms /   205 tokens",
        "   graphs reused =        185",
    ],
)
def test_llama_lines_told_too_late_or_of_other_things(rest: str) -> None:
    assert find_stats_line("llamacpp", LLAMA + rest) is None


@pytest.mark.parametrize("name", engines.engine_names())
@given(
    st.lists(
        st.sampled_from(["Decode batch, ", "Prefill batch", "Engine 000: Avg ", "SpecDecoding metrics: ", ": ", ", "])
        | st.sampled_from(
            [
                "slot print_timing: id 1 | task 0 | ",
                "n_gen = 1, tg = ",
                "throughput",
                "nan%",
                "1.5.5",
                "9" * 400,
                " t/s",
            ]
        )
        | st.text(max_size=5),
        max_size=12,
    )
)
def test_no_line_breaks_the_reading(name: str, parts: list[str]) -> None:
    seen = engines.load_engine(name).parse_stats_line("".join(parts))
    assert seen is None or isinstance(seen, StatsLine)


def test_sglangs_answer_to_a_health_check_is_no_prompt() -> None:
    """As 0.5.23 prints it of an engine at rest; a prompt of more, or beside others, is one."""
    line = (
        "Prefill batch, #new-seq: 1, #new-token: 1, #cached-token: 0, token usage: 0.00, #running-req: 0, #queue-req: 0, "
        "#pending-token: 0, cpu graph: False, input throughput (token/s): 0.82"
    )
    kinds = [
        engines.load_engine("sglang").parse_stats_line(line.replace(old, new))
        for old, new in (("", ""), ("#new-token: 1", "#new-token: 11"), ("#cached-token: 0", "#cached-token: 640"),
                         ("#running-req: 0", "#running-req: 1"))
    ]  # fmt: skip
    assert [one and one.kind for one in kinds] == [
        StatsLineKind.HEALTH,
        StatsLineKind.PREFILL,
        StatsLineKind.PREFILL,
        StatsLineKind.PREFILL,
    ]
