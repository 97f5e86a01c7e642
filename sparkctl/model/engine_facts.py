"""What an engine's log tells of how it runs: facts that are worth a badge, each read from the line that states it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class EngineFactName(StrEnum):
    """Closed. A value is text for a reader: ``1806336``, ``13.78``, ``native FP4``, ``FLASH_ATTN``."""

    ENGINE_VERSION = "engine_version"
    ARCHITECTURE = "architecture"  # the model's class, e.g. Qwen3ForCausalLM
    QUANTIZATION = "quantization"  # the checkpoint's: fp8, modelopt_fp4, compressed-tensors
    QUANTIZATION_PATH = "quantization_path"  # what computes it: native FP4, or a fallback such as Marlin
    ATTENTION_BACKEND = "attention_backend"
    AVAILABLE_AT_LOAD = "available_at_load"  # GiB that were free when the weights began to load
    KV_CACHE_DTYPE = "kv_cache_dtype"
    KV_CACHE_TOKENS = "kv_cache_tokens"  # a count
    CONTEXT_LENGTH = "context_length"  # tokens
    MAX_CONCURRENCY = "max_concurrency"  # requests: of full context (vLLM), or at most at once (SGLang)
    SPECULATIVE_METHOD = "speculative_method"
    DRAFT_TOKENS = "draft_tokens"  # drafted for each step; SGLang tells its steps or what it verifies


@dataclass(frozen=True, slots=True)
class EngineFact:
    """One fact. ``is_fallback``: the engine runs, on a slower path than this GPU has."""

    name: EngineFactName
    value: str
    is_fallback: bool = False
