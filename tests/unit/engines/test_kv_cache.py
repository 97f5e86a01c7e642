"""What a token of context takes, counted by hand against the code."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkctl.engines.engine_flags import CommandFlags
from sparkctl.engines.memory_estimate import EstimateInput, WeightsSize, parse_kv_layout, parse_longest_context
from sparkctl.model.memory_fit import EstimateSource
from tests.unit.engines import model_configs


@pytest.mark.parametrize(
    ("config", "per_token"),
    [
        (model_configs.QWEN36_27B, 16 * 2 * 4 * 256 * 2),  # a layer in four keeps keys and values
        (model_configs.MINIMAX_M27, 62 * 2 * 8 * 128 * 2),
        (model_configs.DEEPSEEK, 61 * (512 + 64) * 2),  # one latent, no key and value
        (model_configs.GPT_OSS, 18 * 2 * 8 * 64 * 2),  # beyond the window only the other half grows
        (model_configs.LLAMA, 32 * 2 * 8 * (4096 // 32) * 2),  # no head_dim: hidden size by heads
    ],
)
def test_a_token_of_a_long_context(config: str, per_token: int) -> None:
    found = parse_kv_layout(config)
    assert found is not None
    assert found.count_bytes_per_token(width=2.0) == per_token
    assert found.count_bytes_per_token(1.0) == per_token // 2, "FP8 takes half"
    assert found.count_cache_bytes(100_001) - found.count_cache_bytes(100_000) == per_token


@pytest.mark.parametrize(
    ("config", "longest"),
    [
        ({"max_position_embeddings": 40960}, 40960),
        ({"text_config": {"num_hidden_layers": 2, "max_position_embeddings": 262144}, "max_position_embeddings": 5}, 262144),
        ({"max_position_embeddings": 40960, "rope_scaling": None}, 40960),
        ({"max_position_embeddings": 131072, "rope_scaling": {"rope_type": "llama3", "factor": 8.0,
          "original_max_position_embeddings": 8192}}, 131072),
        ({"max_position_embeddings": 40960, "rope_scaling": {"rope_type": "yarn", "factor": 4.0,
          "original_max_position_embeddings": 32768}}, 131072),
        ({"max_position_embeddings": 2048, "rope_parameters": {"type": "linear", "factor": 4}}, 8192),
        ({"max_position_embeddings": 2048, "rope_parameters": {"full_attention": {"factor": 4}}}, None),
        ({"max_position_embeddings": 2048, "rope_scaling": {"factor": "four"}}, None),
        ({"max_position_embeddings": 2048, "rope_scaling": [4]}, None),
        ({"max_position_embeddings": "many"}, None),
        ({}, None),
    ],
)  # fmt: skip
def test_the_longest_context_is_never_told_too_short(config: object, longest: int | None) -> None:
    assert parse_longest_context(json.dumps(config)) == longest


def test_a_window_takes_no_more_than_the_window_and_a_state_is_per_request() -> None:
    windowed = parse_kv_layout(model_configs.GPT_OSS)
    hybrid = parse_kv_layout(model_configs.QWEN36_27B)
    assert windowed is not None
    assert hybrid is not None
    each = 2 * 8 * 64 * 2
    assert windowed.count_cache_bytes(131072) == 18 * each * (131072 + 128)
    state = 48 * (48 * 128 * 128 * 4 + 3 * (2 * 16 * 128 + 48 * 128) * 2)
    assert hybrid.count_cache_bytes(0, requests=3) == 3 * state
    assert hybrid.longest == 262144


@pytest.mark.parametrize(
    "said",
    [None, "", "{", "[]", "7", "{}", '{"num_hidden_layers": 2}', '{"num_hidden_layers": 1e9, "num_key_value_heads": 1}',
     '{"num_hidden_layers": true, "num_attention_heads": 2, "head_dim": 2}', "[" * 100_000,
     '{"num_hidden_layers": 8, "full_attention_interval": 4, "num_attention_heads": 2, "head_dim": 2}'],
)  # fmt: skip
def test_an_incomplete_config_gives_no_cache_size(said: str | None) -> None:
    assert parse_kv_layout(said) is None


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
_KEYS = st.sampled_from([
    "text_config", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "hidden_size", "layer_types",
    "full_attention_interval", "sliding_window", "kv_lora_rank", "qk_rope_head_dim", "hybrid_override_pattern",
    "linear_num_value_heads", "linear_value_head_dim", "linear_num_key_heads", "linear_key_head_dim", "mamba_num_heads",
])  # fmt: skip


@given(st.dictionaries(_KEYS, _JSON, max_size=10), st.integers(0, 1 << 22), st.integers(0, 512))
def test_any_config_gives_a_figure_or_none_and_never_less_than_nothing(
    said: dict[str, object], tokens: int, n: int
) -> None:
    found = parse_kv_layout(json.dumps(said))
    assert found is None or (
        found.count_cache_bytes(tokens, n) >= 0
        and found.count_cache_bytes(tokens + 1, n) >= found.count_cache_bytes(tokens, n)
    )


@pytest.mark.parametrize(
    ("engine", "flags", "width"),
    [
        ("llamacpp", "", 2),
        ("llamacpp", "-ctk q4_0", (18 / 32 + 2) / 2),
        ("llamacpp", "-ctv q4_0", (18 / 32 + 2) / 2),
        ("llamacpp", "-ctk q8_0 -ctv q4_0", (34 + 18) / 64),
        ("llamacpp", "-ctk q5_0 -ctv q5_1", (22 + 24) / 64),
        ("llamacpp", "-ctk q4_1 -ctv iq4_nl", (20 + 18) / 64),
        ("vllm", "--kv-cache-dtype auto", 2),
        ("vllm", "--kv-cache-dtype bfloat16", 2),
        ("vllm", "--kv-cache-dtype fp8_e4m3", 1),
        ("vllm", "--kv-cache-dtype nvfp4", 0.5625),
        ("vllm", "--kv-cache-dtype int4_per_token_head", 0.5625),
        ("vllm", "--kv-cache-dtype turboquant_4bit_nc", 0.5625),
        ("vllm", "--kv-cache-dtype ultraquant_4bit", 0.5625),
        ("vllm", "--kv-cache-dtype octave_k3v3_compact", 0.5625),
        ("vllm", "--kv-cache-dtype turboquant_k8v4", 0.8125),
    ],
)
def test_keys_and_values_take_what_their_types_say(engine: str, flags: str, width: float) -> None:
    words = CommandFlags(("serve", *flags.split()))
    layout = parse_kv_layout(model_configs.MINIMAX_M27)
    subject = EstimateInput(
        engine=engine, words=words, weights=WeightsSize(1, EstimateSource.MEASURED, ""), layout=layout
    )
    assert subject.kv_number_width[0] == width
    assert subject.estimate_kv_cache(1000).size == int(62 * 2 * 8 * 128 * 1000 * width)


def test_layers_without_attention_keep_no_keys_and_values() -> None:
    kinds = {"M": "mamba", "E": "moe", "*": "attention", "-": "mlp", "C": "conv"}
    pattern = "MEM*E-C*"
    shape = {"num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 128, "mamba_num_heads": 64, "mamba_head_dim": 64,
             "ssm_state_size": 128, "layers_block_type": [kinds[one] for one in pattern]}  # fmt: skip
    result, derived = (parse_kv_layout(json.dumps(one)) for one in ({**shape, "num_hidden_layers": 8}, shape))
    assert result is not None
    assert result == derived
    assert result.full == 2
    assert result.state == 2 * 64 * 64 * 128 * 4


def test_full_layers_have_their_own_heads_and_the_last_layers_share_a_cache() -> None:
    shape = {"num_hidden_layers": 12, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 256,
             "global_head_dim": 512, "num_global_key_value_heads": 2, "sliding_window": 1024,
             "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 2}  # fmt: skip
    both = parse_kv_layout(json.dumps(shape))
    shared = parse_kv_layout(json.dumps({**shape, "num_kv_shared_layers": 6}))
    assert both is not None
    assert shared is not None
    assert both.heads == 2
    assert both.count_bytes_per_token(width=2.0) == 2 * 2 * 2 * 512 * 2
    assert both.count_cache_bytes(131072) == 2 * (2 * 2 * 2 * 512 * 131072 + 10 * 2 * 8 * 256 * 1024)
    assert shared.count_cache_bytes(131072) * 2 == both.count_cache_bytes(131072)


def test_only_layers_whose_values_are_their_keys_have_heads_of_their_own() -> None:
    """transformers' Gemma 4: attention_k_eq_v decides of the heads; the cache keeps keys and values either way."""
    shape = {"num_hidden_layers": 2, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 256, "global_head_dim": 512,
             "num_global_key_value_heads": 2, "layer_types": ["full_attention"] * 2}  # fmt: skip
    with_own, without = (parse_kv_layout(json.dumps({**shape, "attention_k_eq_v": one})) for one in (True, False))
    assert with_own is not None
    assert without is not None
    assert (with_own.count_bytes_per_token(width=2.0), with_own.heads) == (2 * 2 * 2 * 512 * 2, 2)
    assert (without.count_bytes_per_token(width=2.0), without.heads) == (2 * 2 * 8 * 512 * 2, 8)


@pytest.mark.parametrize(
    ("dtype", "is_sparse", "per_layer"),
    [("auto", False, 576 * 2), ("fp8", False, 576), ("fp8_ds_mla", False, 656), ("nvfp4_ds_mla", False, 352),
     ("auto", True, 576 * 2 + 132), ("fp8", True, 656 + 132), ("fp8_e4m3", True, 656 + 132), ("fp8_ds_mla", True, 656 + 132)],
)  # fmt: skip
def test_a_packed_latent_takes_the_bytes_of_vllms_layout(dtype: str, is_sparse: bool, per_layer: int) -> None:
    """656 = 512 FP8 + 4 scales of 4 bytes + 64 of 2 bytes; 352 = 256 + 32 + 64; an index key 128 + 4 (vLLM 0.32.0)."""
    config = json.loads(model_configs.DEEPSEEK) | ({"index_head_dim": 128, "index_topk": 2048} if is_sparse else {})
    subject = EstimateInput(
        engine="vllm", words=CommandFlags(("serve", "--kv-cache-dtype", dtype)),
        weights=WeightsSize(1, EstimateSource.MEASURED, ""), layout=parse_kv_layout(json.dumps(config)),
    )  # fmt: skip
    assert subject.layout is not None
    assert subject.estimate_kv_cache(1000).size == 61 * 1000 * per_layer
    assert subject.layout.count_bytes_per_token(subject.kv_number_width[0]) == 61 * per_layer


# The fields of a DeepSeek-V4 config.json that the cache depends on: two plain layers, one compressed by 4, one by 128, and drafts.
DEEPSEEK_V4 = {
    "num_hidden_layers": 4, "num_attention_heads": 64, "num_key_value_heads": 1, "head_dim": 512, "qk_rope_head_dim": 64,
    "sliding_window": 128, "index_head_dim": 128, "compress_ratios": [0, 0, 4, 128, 0], "max_position_embeddings": 1048576,
}  # fmt: skip


def test_compressed_layers_keep_one_latent_for_several_tokens() -> None:
    """vLLM 0.32.0, vllm/models/deepseek_v4/attention.py: a window in each layer, 1/4 and 1/128 latents, an index key for 4 tokens."""
    layout = parse_kv_layout(json.dumps(DEEPSEEK_V4))
    assert layout is not None
    windows = 4 * 128 * 512 * 2
    assert layout.count_cache_bytes(128_000) == windows + 128_000 * (512 * 2 // 4 + 132 // 4) + 1000 * 512 * 2
    assert layout.count_cache_bytes(128_000, width=layout.get_packed_width("fp8_ds_mla") or 0) == pytest.approx(
        (4 * 128 + 32_000 + 1000) * 584 + 32_000 * 132, rel=0.011
    )


@pytest.mark.parametrize(
    "change",
    [{"compress_ratios": [0, 2, 2, 1]}, {"kv_source_layers": [1]}, {"compress_ratios": [4]}, {"compress_ratios": "4"}, {"sliding_window": None}],
)  # fmt: skip
def test_what_compresses_in_another_way_has_no_figure(change: dict[str, object]) -> None:
    assert parse_kv_layout(json.dumps(DEEPSEEK_V4 | change)) is None
