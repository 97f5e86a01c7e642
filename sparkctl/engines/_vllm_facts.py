"""What vLLM's log tells of how it runs. 0.19 names NVFP4 backends by an enum, 0.32 and later by the kernel's class."""

from __future__ import annotations

from sparkctl.engines._vocabulary import fact
from sparkctl.model.engine_facts import FactName

_ENGINE = "Initializing a V1 LLM engine"
_FP4, _FP8 = (f"Your GPU does not have native support for {kind} computation" for kind in ("FP4", "FP8"))
_PATH = FactName.QUANTIZATION_PATH

FACTS = (
    fact("vLLM API server version ", r"version v?(?P<it>\d[\w.+-]*)", FactName.ENGINE_VERSION),
    fact("vLLM server version ", r"version v?(?P<it>\d[\w.+-]*)", FactName.ENGINE_VERSION),
    fact("vLLM Version ", r"^vLLM Version v?(?P<it>\d[\w.+-]*)", FactName.ENGINE_VERSION),  # NVIDIA's images
    # The banner: two of vLLM's four lines of block letters end in a fact.
    fact(" ▄▄ ▄█", r" version (?P<it>\d[\w.+-]*)\s*$", FactName.ENGINE_VERSION),
    fact("  ▄▄ ▄█", r" version (?P<it>\d[\w.+-]*)\s*$", FactName.ENGINE_VERSION),
    fact("Launching vLLM (v", r"\(v(?P<it>\d[\w.+-]*)\)", FactName.ENGINE_VERSION),
    fact(_ENGINE, r"^[^(]*\(v(?P<it>\d[\w.+-]*)\)", FactName.ENGINE_VERSION),
    fact(_ENGINE, r" quantization=(?!None)(?P<it>[\w-]+)", FactName.QUANTIZATION),
    fact(_ENGINE, r" kv_cache_dtype=(?!auto)(?P<it>\w+)", FactName.KV_CACHE_DTYPE),
    fact(_ENGINE, r" max_seq_len=(?P<it>\d+)", FactName.CONTEXT_LENGTH),
    fact(_ENGINE, r"SpeculativeConfig\(method='(?P<it>\w+)'", FactName.SPECULATIVE_METHOD),
    fact(_ENGINE, r"SpeculativeConfig\([^)]*num_spec_tokens=(?P<it>\d+)", FactName.DRAFT_TOKENS),
    fact("Resolved architecture: ", r": (?P<it>\w+)", FactName.ARCHITECTURE),
    fact("Using max model len ", r"len (?P<it>\d+)", FactName.CONTEXT_LENGTH),
    fact(
        "Using ",
        r"^Using (?:AttentionBackendEnum\.)?(?P<it>[A-Z]\w+) attention backend out of",
        FactName.ATTENTION_BACKEND,
    ),
    fact(
        "Using ",
        r"^Using (?:AttentionBackendEnum\.)?(?P<it>[A-Z][A-Z0-9_]+) backend(?:\.$| \(selected)",
        FactName.ATTENTION_BACKEND,
    ),
    fact("GPU KV cache size: ", r"size: (?P<it>[\d,]+) tokens", FactName.KV_CACHE_TOKENS),
    fact("CPU KV cache size: ", r"size: (?P<it>[\d,]+) tokens", FactName.KV_CACHE_TOKENS),
    fact("XPU KV cache size: ", r"size: (?P<it>[\d,]+) tokens", FactName.KV_CACHE_TOKENS),
    fact(
        "GPU KV cache size: ",
        r"Maximum concurrency for [\d,]+ tokens per request: (?P<it>[\d.]+)x",
        FactName.MAX_CONCURRENCY,
    ),
    fact(
        "CPU KV cache size: ",
        r"Maximum concurrency for [\d,]+ tokens per request: (?P<it>[\d.]+)x",
        FactName.MAX_CONCURRENCY,
    ),
    fact(
        "XPU KV cache size: ",
        r"Maximum concurrency for [\d,]+ tokens per request: (?P<it>[\d.]+)x",
        FactName.MAX_CONCURRENCY,
    ),
    fact("Maximum concurrency for ", r"per request: (?P<it>[\d.]+)x", FactName.MAX_CONCURRENCY),
    fact(
        "Using ", r"^Using (?P<it>(?!Marlin|Emulation)\w*NvFp4LinearKernel) for NVFP4 GEMM", _PATH, "native FP4 ({it})"
    ),
    fact(
        "Using ",
        r"^Using NvFp4LinearBackend\.(?P<it>(?!MARLIN|EMULATION)\w+) for NVFP4 GEMM",
        _PATH,
        "native FP4 ({it})",
    ),
    fact(
        "Using ",
        r"^Using (?:NvFp4LinearBackend\.MARLIN|Marlin\w*Kernel) for NVFP4 GEMM",
        _PATH,
        "Marlin fallback (FP4 weights, 16-bit arithmetic)",
        is_fallback=True,
    ),
    fact(
        "Using ",
        r"^Using (?:NvFp4LinearBackend\.EMULATION|Emulation\w*Kernel) for NVFP4 GEMM",
        _PATH,
        "FP4 emulation",
        is_fallback=True,
    ),
    fact("Using '", r"^Using '(?P<it>(?!MARLIN|EMULATION)\w+)' NvFp4 MoE backend", _PATH, "native FP4 (MoE: {it})"),
    fact(
        "Using '",
        r"^Using '(?P<it>MARLIN|EMULATION)' NvFp4 MoE backend",
        _PATH,
        "Marlin fallback (MoE: {it})",
        is_fallback=True,
    ),
    fact(_FP4, "", _PATH, "Marlin fallback (FP4 weights, 16-bit arithmetic)", is_fallback=True),
    fact(_FP8, "", _PATH, "Marlin fallback (FP8 weights, 16-bit arithmetic)", is_fallback=True),
    fact("NVFP4 linear falling back to the slow", "", _PATH, "FP4 emulation", is_fallback=True),
)
