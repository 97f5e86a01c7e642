"""The input and the output of an engine's memory rule: the estimate of a start within the available memory;
and the size of a model's files. Pure.

The KV cache's size per token comes from the model's config.json. Each layer keeps a key and a value of ``num_key_value_heads ×
head_dim`` numbers for a token (grouped-query attention), or one latent of ``kv_lora_rank + qk_rope_head_dim`` (MLA, DeepSeek-V2
and its successors). A layer with a sliding window keeps the window only; a layer with linear attention keeps a state of fixed
size for each request.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Any

from sparkctl.engines import load_engine, load_engine_part
from sparkctl.engines.engine_flags import CommandFlags, parse_positive_int
from sparkctl.model.launch_plan import ContainerSpec
from sparkctl.model.lazy_dataclass import dataclass
from sparkctl.model.memory_fit import CheckpointFiles, EstimatePart, EstimateSource
from sparkctl.model.text.sanitize import load_json_map
from sparkctl.model.text.units import GIB, format_gib
from sparkctl.model.verdict import FieldChange

CUDA_CONTEXT_BYTES = int(2.3 * GIB)
CUDA_CONTEXT_EVIDENCE = "three engine processes on a GB10 held 7 GiB in addition to what they had asked for"


class DraftWorkspace(StrEnum):
    """Whether an image allocates the draft workspace before the weights."""

    TAKEN = "taken"  # the profile says so, or a start failed because of it
    NOT_TAKEN = "not-taken"  # a start of this profile succeeded
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateInput:
    """A launch as the memory rules see it. ``ranks``: nodes that share the model; in ``copies`` groups of them that serve side by
    side and share the ``experts`` alone (bytes, None: not known). ``per_token``: the profile's own bytes of KV cache per token.

    ``version`` is empty if not known.
    """

    engine: str
    words: CommandFlags
    weights: WeightsSize
    draft: WeightsSize | None = None
    layout: KvCacheLayout | None = None
    per_token: int | None = None
    version: tuple[int, ...] = ()
    ranks: int = 1
    copies: int = 1
    experts: int | None = None
    expected: int | None = None
    workspace: DraftWorkspace = DraftWorkspace.UNKNOWN
    has_gpu: bool = True
    env: Mapping[str, str] = field(default_factory=dict)  # the container's

    @property
    def attention_ranks(self) -> int:
        """How many nodes share what is not an expert: those of one copy."""
        return max(1, self.ranks // self.copies)

    @property
    def cache_ranks(self) -> int:
        """How many nodes share a token's cache. Tensor parallelism splits it by its heads alone: a latent, and a head too few,
        is whole on each. Pipeline parallelism splits the layers, decode context parallelism the tokens.
        """
        parts = 1
        for flags in (("pipeline-parallel-size", "pp-size", "pp"), ("decode-context-parallel-size", "dcp-size", "dcp")):
            size = self.words.get_value(*flags) or ""
            parts *= int(size) if size.isdecimal() and int(size) else 1
        heads = self.layout.heads if self.layout is not None and self.layout.heads is not None else self.ranks
        return min(self.attention_ranks, parts * heads)

    def estimate_kv_cache(self, tokens: int) -> EstimatePart:
        """Return the KV cache for one request of this many tokens, on one node."""
        name = f"KV cache for 1 × {tokens:,} tokens"
        width, of_type = self.kv_number_width
        if self.layout is not None:
            size = -(-self.layout.count_cache_bytes(tokens, 1, width) // self.cache_ranks)
            return EstimatePart(
                name=name, size=size, obtained=EstimateSource.CONFIG, words=f"{self.layout.description}, {of_type}"
            )
        if self.per_token is not None:
            size = -(-self.per_token * tokens // self.attention_ranks)
            return EstimatePart(
                name=name, size=size, obtained=EstimateSource.PROFILE, words="model.kv_per_token of the profile"
            )
        return EstimatePart(
            name=name, size=None, obtained=EstimateSource.CONFIG, words="its config.json was not found or does not say"
        )

    @property
    def kv_number_width(self) -> tuple[float, str]:
        """Bytes per number in the cache, and the flag that sets it."""
        of_all = self.words.get_value("kv-cache-dtype")
        keys = (of_all or self.words.get_value("cache-type-k", "ctk") or "auto").lower()
        values = keys if of_all else (self.words.get_value("cache-type-v", "ctv") or "auto").lower()
        if self.layout is not None and self.layout.is_latent:  # keys and values are one
            values = keys
            if (packed := self.layout.get_packed_width(keys)) is not None:
                return packed, f"{keys}: packed, {packed * self.layout.numbers:g} bytes a token"
        width = (_parse_cache_width(keys) + _parse_cache_width(values)) / 2  # as many keys as values
        if width == _DEFAULT_NUMBER_BYTES:
            return width, "2 bytes each"
        dtypes = keys if keys == values else f"keys {keys}, values {values}"
        return width, f"{dtypes}: {width:g} byte{'' if width == 1 else 's'} each"


_DEFAULT_NUMBER_BYTES = 2.0
_SCALE_BYTES = 0.0625  # per number, of the scale that 64 numbers share
_CACHE_TYPE_BYTES = (
    ("q4_0", 18 / 32),  # bytes of a block by its 32 numbers, here and below
    ("q4_1", 20 / 32),
    ("q5_0", 22 / 32),
    ("q5_1", 24 / 32),
    ("q8", 34 / 32),
    ("iq4_nl", 18 / 32),
    ("fp8_per_token", 1 + _SCALE_BYTES),
    ("int8_per_token", 1 + _SCALE_BYTES),
    ("fp8", 1.0),
    ("int8", 1.0),
    ("fp4", 0.5 + _SCALE_BYTES),
    ("int4", 0.5 + _SCALE_BYTES),
    ("f32", 4.0),
    ("float32", 4.0),
)
_CACHE_BITS = re.compile(r"_(?:k(?P<keys>\d)v(?P<values>\d)|(?P<both>\d)bit)(?![a-z\d])")


def _parse_cache_width(dtype: str) -> float:
    """Return the bytes per number of a cache type. How 3 bits are packed is not known: they count as 4."""
    for mark, width in _CACHE_TYPE_BYTES:
        if mark in dtype:
            return width
    if (found := _CACHE_BITS.search(dtype)) is None:
        return _DEFAULT_NUMBER_BYTES
    bits = (found["both"], found["both"]) if found["both"] else (found["keys"], found["values"])
    return sum(max(4, int(one)) for one in bits) / 16 + _SCALE_BYTES


@dataclass(frozen=True, slots=True)
class AvailableMemory:
    """In bytes: all of the node's memory, and what is available to a start."""

    total: int
    available: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEstimate:
    """``lacking``: bytes by which the content of the engine's share exceeds the share, or the share exceeds what the
    engine's own check allows; ``why`` says which.

    ``is_known`` False: a part is not known.
    """

    parts: tuple[EstimatePart, ...]
    lacking: int = 0
    why: str = ""
    cautions: tuple[str, ...] = ()
    is_corrected: bool = False

    @property
    def is_known(self) -> bool:
        """Tell whether a start may be promised or refused: every part is known, or an earlier start gives the total."""
        return bool(self.parts) and (self.is_corrected or all(part.size is not None for part in self.parts))

    @property
    def needed_bytes(self) -> int:
        """The known part of it."""
        return sum(part.size or 0 for part in self.parts if not part.within)

    def with_total(self, whole: EstimatePart) -> MemoryEstimate:
        """Return the estimate with another total; its own parts are then included in that."""
        return replace(self, parts=(whole, *(replace(part, within=True) for part in self.parts)), is_corrected=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRule:
    """``field``: the flag of the profile that decides; ``share``: its value, None for an engine without one.

    ``most``: the largest share to propose, ``safe``: the largest to propose in the place of a larger one, ``doubt``: the
    estimate under an assumption that is not known to be true, and that assumption.
    """

    rule: Callable[[AvailableMemory, float], MemoryEstimate]
    field: str | None = None
    share: float = 0.0
    doubt: tuple[Callable[[AvailableMemory, float], MemoryEstimate], str] | None = None
    most: float = 1.0
    safe: float = 1.0


def estimate_cuda_context() -> EstimatePart:
    return EstimatePart(
        name="CUDA context, host side",
        size=CUDA_CONTEXT_BYTES,
        obtained=EstimateSource.ESTIMATE,
        words=CUDA_CONTEXT_EVIDENCE,
    )


def estimate_kv_remainder(name: str, size: int, subject: EstimateInput) -> EstimatePart:
    """Return what a share leaves for the KV cache, with the number of tokens if known, and of whole contexts."""
    width, _ = subject.kv_number_width
    layout = subject.layout
    each = layout.count_bytes_per_token(width) if layout else subject.per_token
    size = max(0, size)
    tokens = size * subject.cache_ranks // each if each else None
    holds = "" if tokens is None else f", about {tokens:,} tokens"
    context = subject.words.get_value(*load_engine(subject.engine).context_flags) or ""
    if tokens is not None and context.isdecimal() and int(context) > 0:
        holds += f", {tokens / int(context):.1f} times the whole context of {int(context):,}"
    return EstimatePart(
        name=name, size=size, obtained=EstimateSource.FLAGS, words=f"what the share leaves{holds}", within=True
    )


def list_model_parts(subject: EstimateInput, *, within: bool = False) -> list[EstimatePart]:
    """Return the weights, and those of the draft model if there is one."""
    weights = build_weights_part("weights", subject.weights, subject.ranks, within=within)
    whole, experts = subject.weights.size, subject.experts
    if subject.copies > 1 and experts is None:
        missing = "attention, which is whole on each, not counted apart: model.experts of the profile would tell"
        weights = replace(weights, words=f"{weights.words}; {missing}")
    elif subject.copies > 1 and whole is not None and experts is not None and experts <= whole:
        size = -(-(whole - experts) // subject.attention_ranks) + -(-experts // subject.ranks)
        words = (
            f"{subject.weights.why}, of the experts ({format_gib(experts)}) a share of 1/{subject.ranks} on each node"
        )
        weights = replace(weights, size=size, words=words)
    found = [weights]
    if subject.draft is not None:
        found.append(build_weights_part("draft model", subject.draft, subject.attention_ranks, within=within))
    return found


def build_expected_rule(subject: EstimateInput) -> MemoryRule:
    """Return the estimate for a program without a rule: only the profile knows what it takes."""
    known = "memory.expected of the profile"
    whole = EstimatePart(
        name="memory",
        size=subject.expected,
        obtained=EstimateSource.PROFILE,
        words=known if subject.expected is not None else "the profile has no memory.expected",
    )
    return MemoryRule(rule=lambda room, at: MemoryEstimate(parts=(whole,)))


def find_memory_rule(subject: EstimateInput, total: int) -> MemoryRule:
    """Return the memory estimate by the engine's rule; ``total``: all of the node's memory in bytes."""
    module = load_engine_part(subject.engine, "memory")
    rule: MemoryRule = module.build_memory_rule(subject, total) if module else build_expected_rule(subject)
    return rule


def has_shell_expansion(text: str) -> bool:
    """Tell whether a value is known only after a shell expands it."""
    return "$" in text or "`" in text


def find_unresolved_flag(engine: str, words: CommandFlags) -> tuple[str, str] | None:
    """Return the deciding flag whose value a shell still has to expand, and the value; None if there is none."""
    known = load_engine(engine)
    for flags in filter(None, (known.share_flags, known.context_flags)):
        text = words.get_value(*flags)
        if text is not None and has_shell_expansion(text):
            return flags[0], text
    return None


def find_invalid_memory_flag(engine: str, words: CommandFlags) -> tuple[str, FieldChange] | None:
    """Return what is wrong with a deciding flag, and what to set; None if all are valid."""
    known = load_engine(engine)
    flags = known.share_flags
    text = words.get_value(*flags)
    if text is not None and not has_shell_expansion(text) and words.get_fraction(*flags) is None:
        what = f"args.{flags[0]} is {text or 'without a value'}: it is a share of memory, more than 0 and at most 1"
        return what, FieldChange(f"args.{flags[0]}", _suggest_share(text))
    flags = known.context_flags
    text = words.get_value(*flags)
    if text is not None and not has_shell_expansion(text) and not known.context_pattern.fullmatch(text):
        what = f"args.{flags[0]} is {text or 'without a value'}: it is a number of tokens"
        return what, FieldChange(f"args.{flags[0]}", "32768")
    return None


def _suggest_share(text: str) -> str:
    """Return the share that was probably meant: 80 and 80% are 0.8."""
    digits = text.removesuffix("%")
    return f"{int(digits) / 100:g}" if re.fullmatch(r"[1-9]\d?", digits) and int(digits) >= 10 else "0.8"


_MAX_LAYERS = 4096
_MAX_SCALING = 1024  # of a model's positions
_STATE_NUMBER_BYTES = 4  # a linear layer's state is kept in 32 bits, whatever the cache's type
_CONVOLUTION_NUMBER_BYTES = 2
_STATELESS_LAYER = "mlp"
_STATELESS_LAYERS = (
    _STATELESS_LAYER,
    "moe",
    "conv",
)  # without a cache; the few inputs that a convolution keeps do not count
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
    sliding_numbers: int | None = None  # of a layer with a window, None: as many as the others keep
    heads: int | None  # of keys and values, by which tensor parallelism splits it; a latent has one
    rotary: int = 0  # of a latent's numbers: those of the position
    index: int = 0  # bytes a token and layer of the index of sparse attention, whatever the cache's type
    compressed: float = (
        0.0  # of layers that keep one latent for several tokens: latents per token, of all of them together
    )
    indexed: float = 0.0  # keys of the index per token in such layers

    def get_packed_width(self, dtype: str) -> float | None:
        """Return the bytes per number where a latent is packed by a layout of its own, None where it is not.

        vLLM 0.32 (vllm/v1/attention/backends/mla/flashmla_sparse.py, mla_attention.py): in fp8_ds_mla a latent of 512 + 64 takes 512
        bytes, four scales of 4 bytes and the 64 in 2 bytes each: 656; in nvfp4_ds_mla 256 + 32 of scales + 64: 352. Sparse attention
        stores every other kind of fp8 as fp8_ds_mla, too.
        """
        latent = self.numbers - self.rotary
        if dtype == "nvfp4_ds_mla":
            return (latent / 2 + latent / 16 + self.rotary) / self.numbers
        if dtype == "fp8_ds_mla" or (self.index and dtype.startswith("fp8")):
            return (latent + latent / 128 * 4 + self.rotary * 2) / self.numbers
        return None

    def count_cache_bytes(self, tokens: int, requests: int = 1, width: float = 2.0) -> int:
        """Return the bytes for ``requests`` of ``tokens`` each, ``width`` bytes per number."""
        seen = tokens if self.window is None else min(tokens, self.window)
        kept = (self.full + self.compressed) * self.numbers * tokens + self.sliding * self._windowed * seen
        return int(requests * (width * kept + (self.full + self.indexed) * self.index * tokens + self.state))

    def count_bytes_per_token(self, width: float) -> int:
        """Return the bytes for one more token of a long context."""
        windowed = self.sliding * self._windowed if self.window is None else 0
        return int(
            width * ((self.full + self.compressed) * self.numbers + windowed) + (self.full + self.indexed) * self.index
        )

    def count_bytes_per_layer(self, width: float) -> int:
        """Return the bytes that one layer without a window keeps of a token."""
        return int(width * self.numbers + self.index)

    @property
    def _windowed(self) -> int:
        return self.numbers if self.sliding_numbers is None else self.sliding_numbers

    @property
    def description(self) -> str:
        kinds = [f"{self.full} layers"] if self.full else []
        kinds += [f"{self.sliding} with a window of {self.window}"] if self.sliding else []
        kinds += [f"{self.compressed:.2f} latents a token of compressed layers"] if self.compressed else []
        each = f"a latent of {self.numbers}" if self.is_latent else f"{self.numbers} numbers"
        if self.sliding_numbers is not None:
            each += f" ({self.sliding_numbers} with a window)"
        state = f", and {self.state >> 20} MiB of state a request" if self.state else ""
        return f"{' + '.join(kinds) or 'no layers'}, {each} a token and layer{state}"


def parse_kv_layout(text: str | None) -> KvCacheLayout | None:
    """Return the layout from a config.json, None if it does not say enough."""
    config = load_json_map(text)
    if config is None:
        return None
    return _build_kv_layout(_select_language_config(config))


def parse_longest_context(text: str | None) -> int | None:
    """Return the tokens that an engine takes at most by a config.json where no flag says more, None if it does not say.

    Some engines count a scaling of the positions once more where the file has it in them already: then it is an upper bound.
    """
    config = _select_language_config(load_json_map(text) or {})
    longest = parse_positive_int(config.get("max_position_embeddings"))
    if longest is None:
        return None
    scaling = config.get("rope_parameters", config.get("rope_scaling")) or {}
    if not isinstance(scaling, Mapping):
        return None
    if any(isinstance(one, Mapping) for one in scaling.values()):  # of each kind of layer another
        return None
    factor = scaling.get("factor")
    if factor is None:
        return longest
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor <= _MAX_SCALING:
        return None
    trained = parse_positive_int(scaling.get("original_max_position_embeddings")) or longest
    return max(longest, int(trained * factor))


def _select_language_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the part of a config.json that is of the language model."""
    for inner in ("text_config", "llm_config", "language_config", "thinker_config"):
        nested = config.get(inner)
        if isinstance(nested, dict) and ("num_hidden_layers" in nested or "text_config" in nested):
            deeper = nested.get("text_config")
            return deeper if isinstance(deeper, dict) else nested
    return config


def _build_kv_layout(config: Mapping[str, Any]) -> KvCacheLayout | None:
    given = config.get("layer_types", config.get("layers_block_type"))
    declared = config.get("num_hidden_layers", config.get("n_layer", len(given) if isinstance(given, list) else None))
    layers = parse_positive_int(declared)
    if layers is None or layers > _MAX_LAYERS:
        return None
    if "compress_ratios" in config:
        return _build_compressed_layout(config, layers)
    latent, rope = parse_positive_int(config.get("kv_lora_rank")), parse_positive_int(config.get("qk_rope_head_dim"))
    numbers = (latent + rope) if latent is not None and rope is not None else _count_numbers_per_token(config)
    if numbers is None:
        return None
    is_latent = latent is not None and rope is not None
    sliding_numbers, heads = None, 1 if is_latent else _count_heads(config)
    of_full = {
        "head_dim": config.get("global_head_dim"),
        "num_key_value_heads": config.get("num_global_key_value_heads"),
    }
    if (
        config.get("attention_k_eq_v") is False
    ):  # only layers whose values are their keys have other heads; both are kept all the same
        del of_full["num_key_value_heads"]
    own = {name: value for name, value in of_full.items() if parse_positive_int(value)}
    if own and not is_latent:
        at_full = {**config, **own}
        sliding_numbers, numbers = numbers, _count_numbers_per_token(at_full)
        heads = min(filter(None, (heads, _count_heads(at_full))), default=None)
    if numbers is None:
        return None
    shared = (
        parse_positive_int(config.get("num_kv_shared_layers")) or 0
    )  # the last ones read the cache of an earlier one
    kinds = _list_layer_kinds(config, layers)[: max(0, layers - shared)]
    sliding = sum("sliding" in kind or "chunked" in kind for kind in kinds)
    linear = sum(kind in _LINEAR_LAYERS for kind in kinds)
    full = len(kinds) - sliding - linear - sum(kind in _STATELESS_LAYERS for kind in kinds)
    state = _count_state_bytes(config) if linear else 0
    if state is None:
        return None
    window = parse_positive_int(config.get("sliding_window", config.get("attention_chunk_size")))
    longest = parse_positive_int(config.get("max_position_embeddings"))
    return KvCacheLayout(
        full=full,
        sliding=sliding,
        window=window,
        numbers=numbers,
        state=linear * state,
        longest=longest,
        is_latent=is_latent,
        sliding_numbers=sliding_numbers,
        heads=heads,
        rotary=rope if is_latent and rope is not None else 0,
        index=_count_index_bytes(config) if is_latent else 0,
    )


def _build_compressed_layout(config: Mapping[str, Any], layers: int) -> KvCacheLayout | None:
    """Return what DeepSeek V4 keeps, None where its config does not tell.

    vLLM 0.32 (vllm/models/deepseek_v4/attention.py, vllm/v1/attention/backends/mla/sparse_swa.py): every layer keeps a latent of
    ``head_dim`` for each token of the window; one with a ratio above 1 also a latent for that many tokens, and one with a ratio of 4
    a key of the index beside it. In fp8_ds_mla a latent is 584 bytes (448 + 64 in 2 bytes + 8 of scales); `get_packed_width` says
    590. The compressors' own states, some MB a request, are not counted.
    """
    wide, rope = parse_positive_int(config.get("head_dim")), parse_positive_int(config.get("qk_rope_head_dim"))
    window, given = parse_positive_int(config.get("sliding_window")), config.get("compress_ratios")
    if wide is None or rope is None or window is None or not isinstance(given, list) or len(given) < layers:
        return None
    if "kv_source_layers" in config or any(
        one not in (0, 1, 4, 128) for one in given
    ):  # V4.1 shares and compresses otherwise
        return None
    ratios = [one for one in given[:layers] if one > 1]  # what follows is of the layers that draft
    return KvCacheLayout(
        full=0,
        sliding=layers,
        window=window,
        numbers=wide,
        state=0,
        longest=parse_positive_int(config.get("max_position_embeddings")),
        is_latent=True,
        heads=1,
        rotary=rope,
        index=_count_index_bytes(config),
        compressed=sum(1 / one for one in ratios),
        indexed=ratios.count(4) / 4,
    )


def _count_index_bytes(config: Mapping[str, Any]) -> int:
    """Return the bytes of a key of sparse attention's index: FP8 with a scale of 4 bytes for 128 numbers (vLLM 0.32)."""
    wide = parse_positive_int(config.get("index_head_dim")) or 0
    return wide + wide // 128 * 4


def _count_heads(config: Mapping[str, Any]) -> int | None:
    heads = parse_positive_int(config.get("num_attention_heads", config.get("n_head")))
    return parse_positive_int(config.get("num_key_value_heads", config.get("num_kv_heads"))) or heads


def _count_numbers_per_token(config: Mapping[str, Any]) -> int | None:
    heads = parse_positive_int(config.get("num_attention_heads", config.get("n_head")))
    kept = _count_heads(config)
    hidden = parse_positive_int(config.get("hidden_size", config.get("n_embd")))
    wide = parse_positive_int(config.get("head_dim")) or (hidden // heads if hidden and heads else None)
    return None if kept is None or not wide else 2 * kept * wide


def _list_layer_kinds(config: Mapping[str, Any], layers: int) -> Sequence[str]:
    given = config.get("layer_types", config.get("layers_block_type"))
    if isinstance(given, list) and len(given) == layers and all(isinstance(one, str) for one in given):
        return [_LAYER_ALIASES.get(str(one), str(one)) for one in given]
    if every := parse_positive_int(config.get("full_attention_interval")):
        return ["full_attention" if (at + 1) % every == 0 else "linear_attention" for at in range(layers)]
    if (every := parse_positive_int(config.get("sliding_window_pattern"))) and parse_positive_int(
        config.get("sliding_window")
    ):
        return ["full_attention" if (at + 1) % every == 0 else "sliding_attention" for at in range(layers)]
    pattern = config.get("hybrid_override_pattern")
    if isinstance(pattern, str) and len(pattern) == layers:  # Nemotron-H: M mamba, * attention, - or E neither
        return [{"M": "mamba", "*": "full_attention"}.get(one, _STATELESS_LAYER) for one in pattern]
    is_windowed = parse_positive_int(config.get("sliding_window")) and config.get("use_sliding_window", True) is True
    return ["sliding_attention" if is_windowed else "full_attention"] * layers


_LAYER_ALIASES = {"attention": "full_attention"}


def _count_state_bytes(config: Mapping[str, Any]) -> int | None:
    """Return a linear layer's bytes per request: a matrix per value head, and the last inputs of its convolution."""
    heads, wide = (
        parse_positive_int(config.get("linear_num_value_heads")),
        parse_positive_int(config.get("linear_value_head_dim")),
    )
    keys, deep = (
        parse_positive_int(config.get("linear_num_key_heads")),
        parse_positive_int(config.get("linear_key_head_dim")),
    )
    if heads and wide and keys and deep:
        kernel = parse_positive_int(config.get("linear_conv_kernel_dim")) or 4
        return (
            heads * wide * deep * _STATE_NUMBER_BYTES
            + (kernel - 1) * (2 * keys * deep + heads * wide) * _CONVOLUTION_NUMBER_BYTES
        )
    heads = parse_positive_int(config.get("mamba_num_heads", config.get("mamba_n_heads")))
    wide = parse_positive_int(config.get("mamba_head_dim", config.get("mamba_d_head")))
    size = parse_positive_int(config.get("ssm_state_size", config.get("mamba_d_state")))
    return heads * wide * size * _STATE_NUMBER_BYTES if heads and wide and size else None


_SHARD_NUMBER = re.compile(r"-(\d{5,6})-of-(\d{5,6})\.\w+$")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_WEIGHT_SUFFIXES = (".safetensors", ".gguf", ".bin", ".pt")
_HUB_CACHE_SUFFIX = "/.cache/huggingface"


@dataclass(frozen=True, slots=True)
class WeightsSize:
    """``size`` None: not known, ``why`` tells the reason; ``obtained`` and ``why`` go into an `EstimatePart`."""

    size: int | None
    obtained: EstimateSource
    why: str


def measure_weights(
    found: CheckpointFiles | None, declared: int | None, of_profile: str = "model.weights"
) -> WeightsSize:
    """Return the bytes of a model: of its files on the node if all are there, otherwise from the profile."""
    seen = None if found is None else _measure_files(found)
    if seen is not None and seen.size is not None:
        return seen
    if declared is not None:
        return WeightsSize(declared, EstimateSource.PROFILE, f"{of_profile} of the profile")
    if seen is not None:
        return seen
    where = "its place on the node is not known" if found is None else f"not found in {found.place}"
    return WeightsSize(None, EstimateSource.MEASURED, f"{where}, and the profile has no {of_profile}")


def _measure_files(found: CheckpointFiles) -> WeightsSize | None:
    files = _select_loaded_files(found.files)
    if not files:
        return None
    size, missing = sum(bytes_ for _, bytes_ in files), _count_missing_shards(files)
    count = f"{len(files)} file{'' if len(files) == 1 else 's'}"
    if found.origin is not None and not missing:
        return WeightsSize(size, EstimateSource.HUB, f"{count} of {found.origin}, not here yet")
    if not missing and not found.unfinished:
        return WeightsSize(size, EstimateSource.MEASURED, f"{count} in {found.place}")
    lack = f"{missing} of its files are missing" if missing else "a download has not ended"
    if found.index_total is not None and found.index_total >= size:
        return WeightsSize(found.index_total, EstimateSource.HEADERS, f"by its index; {lack} in {found.place}")
    return WeightsSize(None, EstimateSource.MEASURED, f"{lack} in {found.place}")


def _select_loaded_files(files: tuple[tuple[str, int], ...]) -> list[tuple[str, int]]:
    """Return the files that an engine loads: of one format, without duplicates of the same weights."""
    for kind in _WEIGHT_SUFFIXES:
        some = [one for one in files if one[0].endswith(kind)]
        if kind == ".safetensors" and len(some) > 1:
            some = [one for one in some if not one[0].startswith("consolidated")] or some
        if kind == ".gguf":
            some = [one for one in some if "mmproj" not in one[0]] or some
        if some:
            return some
    return []


def _count_missing_shards(files: list[tuple[str, int]]) -> int:
    """Return how many shards of ``-00001-of-00007`` are missing."""
    of: dict[str, tuple[int, int]] = {}
    for name, _ in files:
        if found := _SHARD_NUMBER.search(name):
            stem = name[: found.start()]
            of[stem] = (of.get(stem, (0, 0))[0] + 1, int(found[2]))
    return sum(max(0, total - seen) for seen, total in of.values())


def map_path_to_node(path: str | None, plan: ContainerSpec) -> str | None:
    """Return where a model's path in the container is on the node, None if not known: through the longest matching
    mount, or for a hub id through the mount of Hugging Face's cache.
    """
    if not path:
        return None
    if path.startswith("/"):
        return _map_through_mounts(path, plan)
    if not _HUB_ID.fullmatch(path):
        return None
    folder = f"models--{path.replace('/', '--')}"
    env = dict(plan.env)
    homes = [env["HF_HUB_CACHE"]] if env.get("HF_HUB_CACHE") else []
    homes += [f"{env['HF_HOME']}/hub"] if env.get("HF_HOME") else []
    homes += [
        f"{one.target.rstrip('/')}/hub" for one in plan.mounts if one.target.rstrip("/").endswith(_HUB_CACHE_SUFFIX)
    ]
    homes += [
        one.target.rstrip("/") for one in plan.mounts if one.target.rstrip("/").endswith(f"{_HUB_CACHE_SUFFIX}/hub")
    ]
    homes += [
        f"{one.target.rstrip('/')}/huggingface/hub" for one in plan.mounts if one.target.rstrip("/").endswith("/.cache")
    ]
    return next((on for home in homes if (on := _map_through_mounts(f"{home}/{folder}", plan)) is not None), None)


def _map_through_mounts(path: str, plan: ContainerSpec) -> str | None:
    mounts = [
        one for one in plan.mounts if PurePosixPath(path).is_relative_to(one.target) and one.source.startswith("/")
    ]
    if not mounts or "\n" in path or ".." in path.split("/"):
        return None
    mount = max(mounts, key=lambda one: len(one.target))
    return mount.source.rstrip("/") + path[len(mount.target.rstrip("/")) :]


def build_weights_part(name: str, found: WeightsSize, ranks: int, *, within: bool) -> EstimatePart:
    """Return the model's part of the estimate, on one of ``ranks`` nodes that share it evenly."""
    shared = "" if ranks == 1 else f", a share of 1/{ranks} on each node"
    size = None if found.size is None else -(-found.size // ranks)
    return EstimatePart(name=name, size=size, obtained=found.obtained, words=f"{found.why}{shared}", within=within)
