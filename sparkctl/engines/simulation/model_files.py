"""The models on a simulated Spark: the file list and the config.json of a directory with a model's name."""

from __future__ import annotations

import json
import re

from sparkctl.engines.simulation.engine_launch import guess_model_size

# layers, attention heads, key-value heads, head dimension, value heads of its linear layers (0: it has none), context
_KNOWN_SHAPES = (
    ("Qwen3.6-27B", 64, 24, 4, 256, 48, 262144),
    ("Qwen3.5-27B", 64, 24, 4, 256, 48, 262144),
    ("35B-A3B", 40, 16, 2, 256, 32, 262144),
    ("35b-hybrid", 40, 16, 2, 256, 32, 262144),
    ("122B-A10B", 48, 32, 2, 256, 64, 262144),
    ("122b-hybrid", 48, 32, 2, 256, 64, 262144),
    ("Coder-Next", 48, 16, 2, 256, 32, 262144),
    ("MiniMax-M2", 62, 48, 8, 128, 0, 196608),
    ("gpt-oss-120b", 36, 64, 8, 64, 0, 131072),
    ("235B-A22B", 94, 64, 4, 128, 0, 40960),
)
_DEFAULT_SHAPE = (36, 32, 8, 128, 0, 40960)
_DRAFT_LAYERS = re.compile(r"qwen-?3\.?[56]|minimax", re.IGNORECASE)  # models that are published with draft layers
_MAX_SHARD_BYTES = 4 * 10**9


def list_model_files(place: str) -> list[str]:
    """Return what the node inspection reports of a model's path."""
    name = place.rstrip("/").rpartition("/")[2]
    if name.startswith("models--"):
        name = name.removeprefix("models--").replace("--", "/", 1)
    weights = guess_model_size(name)[0]
    if place.endswith(".gguf"):
        return [f"@@ model {place}", "there file", f"file {weights} {place}"]
    shards = max(1, -(-weights // _MAX_SHARD_BYTES))
    files = [f"file {size} {place}/{shard}" for shard, size in _split_into_shards(weights, shards)]
    return [
        f"@@ model {place}", "there dir", *files, f'total "total_size": {weights}',
        f"drafts {'yes' if _DRAFT_LAYERS.search(name) else 'no'}",
        f"config {json.dumps(build_model_config(name), separators=(',', ':'))}",
    ]  # fmt: skip


def get_model_architecture(model_path: str) -> str:
    """Return the class that engines log after they read a model's config."""
    name = model_path.lower()
    if "minimax" in name:
        return "MiniMaxM2ForCausalLM"
    return "Qwen3_5ForConditionalGeneration"


def compute_kv_bytes_per_token(model_path: str) -> int:
    """Return the bytes per token in a cache of two bytes per number, on all Sparks together."""
    said = build_model_config(model_path)
    text = said.get("text_config", said)
    assert isinstance(text, dict)
    layers = int(text["num_hidden_layers"]) // int(text.get("full_attention_interval", 1))
    return layers * 2 * int(text["num_key_value_heads"]) * int(text["head_dim"]) * 2


def _split_into_shards(weights: int, shards: int) -> list[tuple[str, int]]:
    if shards == 1:
        return [("model.safetensors", weights)]
    each = weights // shards
    sizes_ = [each] * (shards - 1) + [weights - each * (shards - 1)]
    return [(f"model-{at:05}-of-{shards:05}.safetensors", size) for at, size in enumerate(sizes_, 1)]


def build_model_config(name: str) -> dict[str, object]:
    """Return the part of its config.json that determines the cache size per token."""
    shape = next(
        (rest for mark, *rest in _KNOWN_SHAPES if re.search(re.escape(mark), name, re.IGNORECASE)), list(_DEFAULT_SHAPE)
    )
    layers, heads, kept, wide, linear, longest = shape
    said: dict[str, object] = {
        "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kept, "head_dim": wide,
        "max_position_embeddings": longest,
    }  # fmt: skip
    if "gpt-oss" in name.lower():
        said |= {"sliding_window": 128, "layer_types": ["sliding_attention", "full_attention"] * (layers // 2)}
    if not linear:
        return {"architectures": ["SimulatedForCausalLM"], **said}
    said |= {
        "full_attention_interval": 4, "linear_num_value_heads": linear, "linear_num_key_heads": 16,
        "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4,
    }  # fmt: skip
    return {"architectures": ["SimulatedForConditionalGeneration"], "text_config": said}
