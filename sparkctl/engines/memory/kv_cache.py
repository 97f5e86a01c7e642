"""The size of the KV cache per token, from the model's config.json. Pure.

Each layer keeps a key and a value of ``num_key_value_heads × head_dim`` numbers for a token (grouped-query attention),
or one latent of ``kv_lora_rank + qk_rope_head_dim`` (MLA, DeepSeek-V2 and its successors). A layer with a sliding
window keeps the window only; a layer with linear attention keeps a state of fixed size for each request.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparkctl.engines.flags.command_flags import parse_positive_int

_MAX_LAYERS = 4096
_STATE_NUMBER_BYTES = 4  # a linear layer's state is kept in 32 bits, whatever the cache's type
_CONVOLUTION_NUMBER_BYTES = 2
_STATELESS_LAYER = "mlp"  # a layer without a cache
_LINEAR_LAYERS = ("linear_attention", "mamba", "mamba2", "recurrent")


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCacheLayout:
    """``full`` and ``sliding``: number of layers of each kind; ``numbers``: numbers that one of them keeps per token;
    ``state``: bytes per request of all linear layers. ``longest``: the context that the model was made for.
    """

    full: int
    sliding: int
    window: int | None
    numbers: int
    state: int
    longest: int | None
    is_latent: bool = False

    def count_cache_bytes(self, tokens: int, requests: int = 1, width: float = 2.0) -> int:
        """Return the bytes for ``requests`` of ``tokens`` each, ``width`` bytes per number."""
        seen = tokens if self.window is None else min(tokens, self.window)
        return int(requests * (self.numbers * width * (self.full * tokens + self.sliding * seen) + self.state))

    def count_bytes_per_token(self, width: float = 2.0) -> int:
        """Return the bytes for one more token of a long context."""
        return int(self.numbers * width * (self.full + (self.sliding if self.window is None else 0)))

    @property
    def description(self) -> str:
        """How it was calculated."""
        kinds = [f"{self.full} layers"] if self.full else []
        kinds += [f"{self.sliding} with a window of {self.window}"] if self.sliding else []
        each = f"a latent of {self.numbers}" if self.is_latent else f"{self.numbers} numbers"
        state = f", and {self.state >> 20} MiB of state a request" if self.state else ""
        return f"{' + '.join(kinds) or 'no layers'}, {each} a token and layer{state}"


def parse_kv_layout(text: str | None) -> KvCacheLayout | None:
    """Return the layout from a config.json, None if it does not say enough."""
    try:
        said = json.loads(text or "")
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict):
        return None
    for inner in ("text_config", "llm_config", "language_config", "thinker_config"):
        nested = said.get(inner)
        if isinstance(nested, dict) and ("num_hidden_layers" in nested or "text_config" in nested):
            said = nested.get("text_config") if isinstance(nested.get("text_config"), dict) else nested
            break
    return _build_kv_layout(said)


def _build_kv_layout(said: Mapping[str, Any]) -> KvCacheLayout | None:
    layers = parse_positive_int(said.get("num_hidden_layers", said.get("n_layer")))
    if layers is None or layers > _MAX_LAYERS:
        return None
    latent, rope = parse_positive_int(said.get("kv_lora_rank")), parse_positive_int(said.get("qk_rope_head_dim"))
    numbers = (latent + rope) if latent is not None and rope is not None else _count_numbers_per_token(said)
    if numbers is None:
        return None
    kinds = _list_layer_kinds(said, layers)
    sliding = sum("sliding" in kind or "chunked" in kind for kind in kinds)
    linear = sum(kind in _LINEAR_LAYERS for kind in kinds)
    full = layers - sliding - linear - sum(kind == _STATELESS_LAYER for kind in kinds)
    state = _count_state_bytes(said) if linear else 0
    if state is None:
        return None
    window = parse_positive_int(said.get("sliding_window", said.get("attention_chunk_size")))
    longest = parse_positive_int(said.get("max_position_embeddings"))
    return KvCacheLayout(
        full=full,
        sliding=sliding,
        window=window,
        numbers=numbers,
        state=linear * state,
        longest=longest,
        is_latent=latent is not None and rope is not None,
    )


def _count_numbers_per_token(said: Mapping[str, Any]) -> int | None:
    heads = parse_positive_int(said.get("num_attention_heads", said.get("n_head")))
    kept = parse_positive_int(said.get("num_key_value_heads", said.get("num_kv_heads"))) or heads
    hidden = parse_positive_int(said.get("hidden_size", said.get("n_embd")))
    wide = parse_positive_int(said.get("head_dim")) or (hidden // heads if hidden and heads else None)
    return None if kept is None or not wide else 2 * kept * wide


def _list_layer_kinds(said: Mapping[str, Any], layers: int) -> Sequence[str]:
    """Return the kind of each layer."""
    given = said.get("layer_types", said.get("layers_block_type"))
    if isinstance(given, list) and len(given) == layers and all(isinstance(one, str) for one in given):
        return [_LAYER_ALIASES.get(str(one), str(one)) for one in given]
    if every := parse_positive_int(said.get("full_attention_interval")):
        return ["full_attention" if (at + 1) % every == 0 else "linear_attention" for at in range(layers)]
    if (every := parse_positive_int(said.get("sliding_window_pattern"))) and parse_positive_int(
        said.get("sliding_window")
    ):
        return ["full_attention" if (at + 1) % every == 0 else "sliding_attention" for at in range(layers)]
    pattern = said.get("hybrid_override_pattern")
    if isinstance(pattern, str) and len(pattern) == layers:  # Nemotron-H: M mamba, * attention, - or E neither
        return [{"M": "mamba", "*": "full_attention"}.get(one, _STATELESS_LAYER) for one in pattern]
    is_windowed = parse_positive_int(said.get("sliding_window")) and said.get("use_sliding_window", True) is True
    return ["sliding_attention" if is_windowed else "full_attention"] * layers


_LAYER_ALIASES = {"attention": "full_attention"}


def _count_state_bytes(said: Mapping[str, Any]) -> int | None:
    """Return the bytes that a linear layer keeps per request: a matrix per value head, and the last inputs of its
    convolution.
    """
    heads, wide = (
        parse_positive_int(said.get("linear_num_value_heads")),
        parse_positive_int(said.get("linear_value_head_dim")),
    )
    keys, deep = (
        parse_positive_int(said.get("linear_num_key_heads")),
        parse_positive_int(said.get("linear_key_head_dim")),
    )
    if heads and wide and keys and deep:
        kernel = parse_positive_int(said.get("linear_conv_kernel_dim")) or 4
        return (
            heads * wide * deep * _STATE_NUMBER_BYTES
            + (kernel - 1) * (2 * keys * deep + heads * wide) * _CONVOLUTION_NUMBER_BYTES
        )
    heads, wide = parse_positive_int(said.get("mamba_num_heads")), parse_positive_int(said.get("mamba_head_dim"))
    size = parse_positive_int(said.get("ssm_state_size", said.get("mamba_d_state")))
    return heads * wide * size * _STATE_NUMBER_BYTES if heads and wide and size else None
