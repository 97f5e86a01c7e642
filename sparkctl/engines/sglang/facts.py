"""Facts in SGLang's log. 0.5.12 prints its settings as ``ServerArgs(name=value, ...)``, 0.5.23 as a dict."""

from __future__ import annotations

from sparkctl.engines.log_rules import FactRule, fact_rule, version_facts
from sparkctl.model.engine_metrics import EngineFactName

_QUANTIZATION_PATH = EngineFactName.QUANTIZATION_PATH
_WEIGHT_ONLY_TEXT = "this checkpoint weight-only via FP4 Marlin"


def _server_args_fact(key: str, value: str, name: EngineFactName, says: str = "{it}") -> FactRule:
    return fact_rule("server_args=", rf"[ ({{]'?{key}(?:'\s*: |=)(?!None\b|'auto'){value}", name, says)


FACTS = (
    fact_rule(
        "SGLang Version ", r"^SGLang Version v?(?P<it>\d[\w.+-]*)", EngineFactName.ENGINE_VERSION
    ),  # NVIDIA's images
    *version_facts("sglang"),
    # The engine itself never prints its version; the format of its settings tells older from newer versions.
    fact_rule("server_args=ServerArgs(", "", EngineFactName.ENGINE_VERSION, "0.5.12 or like it"),
    fact_rule("server_args={", "", EngineFactName.ENGINE_VERSION, "0.5.23 or like it"),
    fact_rule("Init torch distributed begin", "", EngineFactName.ENGINE_VERSION, "0.5.12 or like it"),
    fact_rule("Init parallel begin", "", EngineFactName.ENGINE_VERSION, "0.5.23 or like it"),
    _server_args_fact("quantization", r"'(?P<it>[\w-]+)'", EngineFactName.QUANTIZATION),
    _server_args_fact("kv_cache_dtype", r"'(?P<it>\w+)'", EngineFactName.KV_CACHE_DTYPE),
    _server_args_fact("attention_backend", r"'(?P<it>\w+)'", EngineFactName.ATTENTION_BACKEND),
    _server_args_fact("speculative_algorithm", r"'(?P<it>\w+)'", EngineFactName.SPECULATIVE_METHOD),
    _server_args_fact(
        "speculative_num_draft_tokens", r"(?P<it>\d+)", EngineFactName.DRAFT_TOKENS, "{it} verified a step"
    ),
    _server_args_fact("speculative_num_steps", r"(?P<it>\d+)", EngineFactName.DRAFT_TOKENS, "{it} steps"),
    _server_args_fact("context_length", r"(?P<it>\d+)", EngineFactName.CONTEXT_LENGTH),
    fact_rule("Load weight begin", r"avail mem=(?P<it>[\d.]+) GB", EngineFactName.AVAILABLE_AT_LOAD),
    fact_rule("Load weight end", r" type=(?P<it>\w+)", EngineFactName.ARCHITECTURE),
    fact_rule("Load weight end", r" quant=(?!None)(?P<it>[\w-]+)", EngineFactName.QUANTIZATION),
    fact_rule("Using KV cache dtype: ", r": (?:torch\.)?(?P<it>\w+)", EngineFactName.KV_CACHE_DTYPE),
    fact_rule("KV Cache is allocated", r"dtype: (?:torch\.)?(?P<it>\w+)", EngineFactName.KV_CACHE_DTYPE),
    fact_rule("KV Cache is allocated", r"#tokens: (?P<it>\d+)", EngineFactName.KV_CACHE_TOKENS),
    fact_rule("max_total_num_tokens=", r"^max_total_num_tokens=(?P<it>\d+)", EngineFactName.KV_CACHE_TOKENS),
    fact_rule("max_total_num_tokens=", r" max_running_requests=(?P<it>\d+)", EngineFactName.MAX_CONCURRENCY),
    fact_rule("max_total_num_tokens=", r" context_len=(?P<it>\d+)", EngineFactName.CONTEXT_LENGTH),
    fact_rule("Attention backend not ", r"Use (?P<it>\w+) backend by default", EngineFactName.ATTENTION_BACKEND),
    fact_rule("Attention backend not ", r"Falling back to '(?P<it>\w+)'", EngineFactName.ATTENTION_BACKEND),
    fact_rule("Use ", r"^Use (?P<it>\w+) as (?:default )?attention backend", EngineFactName.ATTENTION_BACKEND),
    fact_rule("Using ", r"^Using (?P<it>\w+) as attention backend", EngineFactName.ATTENTION_BACKEND),
    fact_rule("Using ", r"^Using (?P<it>\w*NvFp4\w*Kernel) for NVFP4 GEMM", _QUANTIZATION_PATH, "native FP4 ({it})"),
    fact_rule(
        "Your GPU does not have native support for FP4",
        "",
        _QUANTIZATION_PATH,
        "Marlin fallback (FP4 weights, 16-bit arithmetic)",
        is_fallback=True,
    ),
    fact_rule(
        "Your GPU does not have native support for FP8",
        "",
        _QUANTIZATION_PATH,
        "Marlin fallback (FP8 weights, 16-bit arithmetic)",
        is_fallback=True,
    ),
    fact_rule(
        "NVFP4 w4a4",
        _WEIGHT_ONLY_TEXT,
        _QUANTIZATION_PATH,
        "Marlin fallback (FP4 weights, 16-bit arithmetic)",
        is_fallback=True,
    ),
    fact_rule(
        "--fp4-gemm-backend",
        "FP4 Marlin",
        _QUANTIZATION_PATH,
        "Marlin fallback (FP4 weights, 16-bit arithmetic)",
        is_fallback=True,
    ),
)
