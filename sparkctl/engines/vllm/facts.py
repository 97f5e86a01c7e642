"""Facts in vLLM's log. 0.19 names NVFP4 backends by an enum, 0.32 and later by the kernel's class."""

from __future__ import annotations

from sparkctl.engines.log_rules import fact_rule, version_facts
from sparkctl.model.engine_metrics import EngineFactName

_ENGINE_INIT_START = "Initializing a V1 LLM engine"
_NO_FP4_TEXT, _NO_FP8_TEXT = (
    f"Your GPU does not have native support for {kind} computation" for kind in ("FP4", "FP8")
)
_QUANTIZATION_PATH = EngineFactName.QUANTIZATION_PATH

FACTS = (
    fact_rule("vLLM API server version ", r"version v?(?P<it>\d[\w.+-]*)", EngineFactName.ENGINE_VERSION),
    fact_rule("vLLM server version ", r"version v?(?P<it>\d[\w.+-]*)", EngineFactName.ENGINE_VERSION),
    fact_rule("vLLM Version ", r"^vLLM Version v?(?P<it>\d[\w.+-]*)", EngineFactName.ENGINE_VERSION),  # NVIDIA's images
    *version_facts("vllm"),
    # The banner: two of vLLM's four lines of block letters end in a fact.
    fact_rule(" ▄▄ ▄█", r" version (?P<it>\d[\w.+-]*)\s*$", EngineFactName.ENGINE_VERSION),
    fact_rule("  ▄▄ ▄█", r" version (?P<it>\d[\w.+-]*)\s*$", EngineFactName.ENGINE_VERSION),
    fact_rule("Launching vLLM (v", r"\(v(?P<it>\d[\w.+-]*)\)", EngineFactName.ENGINE_VERSION),
    fact_rule(_ENGINE_INIT_START, r"^[^(]*\(v(?P<it>\d[\w.+-]*)\)", EngineFactName.ENGINE_VERSION),
    fact_rule(_ENGINE_INIT_START, r" quantization=(?!None)(?P<it>[\w-]+)", EngineFactName.QUANTIZATION),
    fact_rule(_ENGINE_INIT_START, r" kv_cache_dtype=(?!auto)(?P<it>\w+)", EngineFactName.KV_CACHE_DTYPE),
    fact_rule(_ENGINE_INIT_START, r" max_seq_len=(?P<it>\d+)", EngineFactName.CONTEXT_LENGTH),
    fact_rule(_ENGINE_INIT_START, r"SpeculativeConfig\(method='(?P<it>\w+)'", EngineFactName.SPECULATIVE_METHOD),
    fact_rule(_ENGINE_INIT_START, r"SpeculativeConfig\([^)]*num_spec_tokens=(?P<it>\d+)", EngineFactName.DRAFT_TOKENS),
    fact_rule("Resolved architecture: ", r": (?P<it>\w+)", EngineFactName.ARCHITECTURE),
    fact_rule("Using max model len ", r"len (?P<it>\d+)", EngineFactName.CONTEXT_LENGTH),
    fact_rule(
        "Using ",
        r"^Using (?:AttentionBackendEnum\.)?(?P<it>[A-Z]\w+) attention backend out of",
        EngineFactName.ATTENTION_BACKEND,
    ),
    fact_rule(
        "Using ",
        r"^Using (?:AttentionBackendEnum\.)?(?P<it>[A-Z][A-Z0-9_]+) backend(?:\.$| \(selected)",
        EngineFactName.ATTENTION_BACKEND,
    ),
    fact_rule("GPU KV cache size: ", r"size: (?P<it>[\d,]+) tokens", EngineFactName.KV_CACHE_TOKENS),
    fact_rule("CPU KV cache size: ", r"size: (?P<it>[\d,]+) tokens", EngineFactName.KV_CACHE_TOKENS),
    fact_rule("XPU KV cache size: ", r"size: (?P<it>[\d,]+) tokens", EngineFactName.KV_CACHE_TOKENS),
    fact_rule(
        "GPU KV cache size: ",
        r"Maximum concurrency for [\d,]+ tokens per request: (?P<it>[\d.]+)x",
        EngineFactName.MAX_CONCURRENCY,
    ),
    fact_rule(
        "CPU KV cache size: ",
        r"Maximum concurrency for [\d,]+ tokens per request: (?P<it>[\d.]+)x",
        EngineFactName.MAX_CONCURRENCY,
    ),
    fact_rule(
        "XPU KV cache size: ",
        r"Maximum concurrency for [\d,]+ tokens per request: (?P<it>[\d.]+)x",
        EngineFactName.MAX_CONCURRENCY,
    ),
    fact_rule("Maximum concurrency for ", r"per request: (?P<it>[\d.]+)x", EngineFactName.MAX_CONCURRENCY),
    fact_rule(
        "Using ",
        r"^Using (?P<it>(?!Marlin|Emulation)\w*NvFp4LinearKernel) for NVFP4 GEMM",
        _QUANTIZATION_PATH,
        "native FP4 ({it})",
    ),
    fact_rule(
        "Using ",
        r"^Using NvFp4LinearBackend\.(?P<it>(?!MARLIN|EMULATION)\w+) for NVFP4 GEMM",
        _QUANTIZATION_PATH,
        "native FP4 ({it})",
    ),
    fact_rule(
        "Using ",
        r"^Using (?:NvFp4LinearBackend\.MARLIN|Marlin\w*Kernel) for NVFP4 GEMM",
        _QUANTIZATION_PATH,
        "Marlin fallback (FP4 weights, 16-bit arithmetic)",
        is_fallback=True,
    ),
    fact_rule(
        "Using ",
        r"^Using (?:NvFp4LinearBackend\.EMULATION|Emulation\w*Kernel) for NVFP4 GEMM",
        _QUANTIZATION_PATH,
        "FP4 emulation",
        is_fallback=True,
    ),
    fact_rule(
        "Using '",
        r"^Using '(?P<it>(?!MARLIN|EMULATION)\w+)' NvFp4 MoE backend",
        _QUANTIZATION_PATH,
        "native FP4 (MoE: {it})",
    ),
    fact_rule(
        "Using '",
        r"^Using '(?P<it>MARLIN|EMULATION)' NvFp4 MoE backend",
        _QUANTIZATION_PATH,
        "Marlin fallback (MoE: {it})",
        is_fallback=True,
    ),
    fact_rule(
        _NO_FP4_TEXT, "", _QUANTIZATION_PATH, "Marlin fallback (FP4 weights, 16-bit arithmetic)", is_fallback=True
    ),
    fact_rule(
        _NO_FP8_TEXT, "", _QUANTIZATION_PATH, "Marlin fallback (FP8 weights, 16-bit arithmetic)", is_fallback=True
    ),
    fact_rule("NVFP4 linear falling back to the slow", "", _QUANTIZATION_PATH, "FP4 emulation", is_fallback=True),
)
