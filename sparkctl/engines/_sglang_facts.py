"""What SGLang's log tells of how it runs. 0.5.12 prints its settings as ``ServerArgs(name=value, ...)``, 0.5.23 as a dict."""

from __future__ import annotations

from sparkctl.engines._vocabulary import FactRule, fact
from sparkctl.model.engine_facts import FactName

_PATH = FactName.QUANTIZATION_PATH
_WEIGHT_ONLY = "this checkpoint weight-only via FP4 Marlin"


def _setting(key: str, value: str, name: FactName, says: str = "{it}") -> FactRule:
    return fact("server_args=", rf"[ ({{]'?{key}(?:'\s*: |=)(?!None\b|'auto'){value}", name, says)


FACTS = (
    # It never names its version; how it prints its settings tells the older ones from the newer.
    fact("server_args=ServerArgs(", "", FactName.ENGINE_VERSION, "0.5.12 or like it"),
    fact("server_args={", "", FactName.ENGINE_VERSION, "0.5.23 or like it"),
    fact("Init torch distributed begin", "", FactName.ENGINE_VERSION, "0.5.12 or like it"),
    fact("Init parallel begin", "", FactName.ENGINE_VERSION, "0.5.23 or like it"),
    _setting("quantization", r"'(?P<it>[\w-]+)'", FactName.QUANTIZATION),
    _setting("kv_cache_dtype", r"'(?P<it>\w+)'", FactName.KV_CACHE_DTYPE),
    _setting("attention_backend", r"'(?P<it>\w+)'", FactName.ATTENTION_BACKEND),
    _setting("speculative_algorithm", r"'(?P<it>\w+)'", FactName.SPECULATIVE_METHOD),
    _setting("speculative_num_draft_tokens", r"(?P<it>\d+)", FactName.DRAFT_TOKENS, "{it} verified a step"),
    _setting("speculative_num_steps", r"(?P<it>\d+)", FactName.DRAFT_TOKENS, "{it} steps"),
    _setting("context_length", r"(?P<it>\d+)", FactName.CONTEXT_LENGTH),
    fact("Load weight begin", r"avail mem=(?P<it>[\d.]+) GB", FactName.AVAILABLE_AT_LOAD),
    fact("Load weight end", r" type=(?P<it>\w+)", FactName.ARCHITECTURE),
    fact("Load weight end", r" quant=(?!None)(?P<it>[\w-]+)", FactName.QUANTIZATION),
    fact("Using KV cache dtype: ", r": (?:torch\.)?(?P<it>\w+)", FactName.KV_CACHE_DTYPE),
    fact("KV Cache is allocated", r"dtype: (?:torch\.)?(?P<it>\w+)", FactName.KV_CACHE_DTYPE),
    fact("KV Cache is allocated", r"#tokens: (?P<it>\d+)", FactName.KV_CACHE_TOKENS),
    fact("max_total_num_tokens=", r"^max_total_num_tokens=(?P<it>\d+)", FactName.KV_CACHE_TOKENS),
    fact("max_total_num_tokens=", r" max_running_requests=(?P<it>\d+)", FactName.MAX_CONCURRENCY),
    fact("max_total_num_tokens=", r" context_len=(?P<it>\d+)", FactName.CONTEXT_LENGTH),
    fact("Attention backend not ", r"Use (?P<it>\w+) backend by default", FactName.ATTENTION_BACKEND),
    fact("Attention backend not ", r"Falling back to '(?P<it>\w+)'", FactName.ATTENTION_BACKEND),
    fact("Use ", r"^Use (?P<it>\w+) as (?:default )?attention backend", FactName.ATTENTION_BACKEND),
    fact("Using ", r"^Using (?P<it>\w+) as attention backend", FactName.ATTENTION_BACKEND),
    fact("Using ", r"^Using (?P<it>\w*NvFp4\w*Kernel) for NVFP4 GEMM", _PATH, "native FP4 ({it})"),
    fact(
        "Your GPU does not have native support for FP4",
        "",
        _PATH,
        "Marlin fallback (FP4 weights, 16-bit arithmetic)",
        is_fallback=True,
    ),
    fact(
        "Your GPU does not have native support for FP8",
        "",
        _PATH,
        "Marlin fallback (FP8 weights, 16-bit arithmetic)",
        is_fallback=True,
    ),
    fact("NVFP4 w4a4", _WEIGHT_ONLY, _PATH, "Marlin fallback (FP4 weights, 16-bit arithmetic)", is_fallback=True),
    fact(
        "--fp4-gemm-backend", "FP4 Marlin", _PATH, "Marlin fallback (FP4 weights, 16-bit arithmetic)", is_fallback=True
    ),
)
