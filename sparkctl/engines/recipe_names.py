"""Names shared by recipes and sparkctl's exports: images by engine, flags by key, the mount point of the hub cache."""

from __future__ import annotations

# The image that sparkrun uses if a recipe names none. A guess for today's recipes.
DEFAULT_IMAGES = {
    "vllm": "scitrera/dgx-spark-vllm:latest",
    "sglang": "scitrera/dgx-spark-sglang:latest",
    "llama-cpp": "scitrera/dgx-spark-llama-cpp:latest",
    "trtllm": "nvcr.io/nvidia/tensorrt-llm/release:latest",
    "ollama": "ollama/ollama:latest",
}
HUB_CACHE = "~/.cache/huggingface"
HUB_CACHE_TARGET = "/root/.cache/huggingface"
EUGR_NIGHTLY_IMAGE = (
    "ghcr.io/spark-arena/dgx-vllm-eugr-nightly"  # eugr's image, built every night; also with -tf5 and -b12x
)
LAUNCH_WORDS = {
    "vllm": ("vllm", "serve", "{model}"),
    "sglang": ("python3", "-m", "sglang.launch_server", "--model-path", "{model}"),
    "llama-cpp": ("llama-server",),
    "trtllm": ("trtllm-serve", "{model}", "--backend", "pytorch"),
}
_COMMON_FLAGS = {
    "host": "--host",
    "port": "--port",
    "served_model_name": "--served-model-name",
    "dtype": "--dtype",
    "quantization": "--quantization",
    "trust_remote_code": "--trust-remote-code",
    "kv_cache_dtype": "--kv-cache-dtype",
    "api_key": "--api-key",
}
# Keys of defaults and their flags, used if a recipe has no command (sparkrun's own tables).
FLAGS_BY_RECIPE_KEY: dict[str, dict[str, str]] = {
    "vllm": _COMMON_FLAGS | {
        "tensor_parallel": "-tp", "pipeline_parallel": "-pp", "data_parallel": "--data-parallel-size",
        "gpu_memory_utilization": "--gpu-memory-utilization", "max_model_len": "--max-model-len",
        "max_num_batched_tokens": "--max-num-batched-tokens", "max_num_seqs": "--max-num-seqs",
        "enforce_eager": "--enforce-eager", "enable_prefix_caching": "--enable-prefix-caching",
        "distributed_executor_backend": "--distributed-executor-backend",
        "otlp_traces_endpoint": "--otlp-traces-endpoint",
    },
    "sglang": _COMMON_FLAGS | {
        "tensor_parallel": "--tp-size", "pipeline_parallel": "--pp-size", "gpu_memory_utilization": "--mem-fraction-static",
        "max_model_len": "--context-length", "max_num_seqs": "--max-running-requests",
        "chunked_prefill": "--chunked-prefill-size", "tokenizer_path": "--tokenizer-path",
        "speculative_algorithm": "--speculative-algorithm", "speculative_num_steps": "--speculative-num-steps",
        "speculative_eagle_topk": "--speculative-eagle-topk", "speculative_num_draft_tokens": "--speculative-num-draft-tokens",
        "speculative_draft_model_path": "--speculative-draft-model-path",
        "enable_torch_compile": "--enable-torch-compile", "disable_radix_cache": "--disable-radix-cache",
    },
    "llama-cpp": {
        "host": "--host", "port": "--port", "ctx_size": "--ctx-size", "n_gpu_layers": "--n-gpu-layers",
        "parallel": "--parallel", "threads": "--threads", "chat_template": "--chat-template",
        "reasoning_format": "--reasoning-format", "split_mode": "--split-mode", "served_model_name": "--alias",
        "api_key": "--api-key", "flash_attn": "--flash-attn", "cont_batching": "--cont-batching",
        "no_webui": "--no-webui", "jinja": "--jinja",
    },
    "trtllm": {
        "host": "--host", "port": "--port", "tensor_parallel": "--tp_size", "pipeline_parallel": "--pp_size",
        "expert_parallel": "--ep_size", "max_num_tokens": "--max_num_tokens", "max_batch_size": "--max_batch_size",
        "max_model_len": "--max_seq_len", "tokenizer": "--tokenizer",
        "kv_cache_free_gpu_memory_fraction": "--kv_cache_free_gpu_memory_fraction",
        "trust_remote_code": "--trust_remote_code",
    },
}  # fmt: skip
BOOLEAN_RECIPE_KEYS = frozenset({
    "enforce_eager", "enable_prefix_caching", "trust_remote_code", "enable_torch_compile",
    "disable_radix_cache", "flash_attn", "cont_batching", "no_webui", "jinja",
})  # fmt: skip


def detect_engine(word: str | None, command: str | None, image: str | None) -> str | None:
    """Return ``vllm``, ``sglang``, ``llama-cpp``, ``trtllm`` or another word in lower case; None if it is not clear."""
    text = (word or "").lower().replace("_", "-")
    if not text:
        text = (command or "").lower() or (image or "").lower()
    for name, marks in _ENGINE_WORDS.items():
        if any(mark in text for mark in marks):
            return name
    return text if word else None


_ENGINE_WORDS = {
    "sglang": ("sglang",),
    "llama-cpp": ("llama-server", "llama-cpp", "llama.cpp", "llamacpp"),
    "trtllm": ("trtllm", "tensorrt-llm", "trt-llm"),
    "ollama": ("ollama",),
    "vllm": ("vllm",),
}
