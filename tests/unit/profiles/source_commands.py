"""The commands of the posts, recipes and playbooks that the shipped profiles come from, as far as each gives one.

``command``: the server's words; ``image`` and ``env`` where the source names them. None: it gives figures or words alone,
which ``SOURCES_WITHOUT_A_COMMAND`` lists.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SourceCommand:
    """What a source starts."""

    command: str
    image: str | None = None
    env: dict[str, str] = field(default_factory=dict)


_SGLANG_IMAGE = "scitrera/dgx-spark-sglang:0.5.12"
_QWEN36 = (
    "python -m sglang.launch_server --model-path /models/Qwen3.6-27B-FP8 --host 0.0.0.0 --port 8003 "
    "--served-model-name qwen3.6-27b --tp 1 --speculative-algorithm NEXTN --speculative-num-steps 5 "
    "--speculative-eagle-topk 4 --mem-fraction-static 0.82 --trust-remote-code"
)
_QWEN35_122B = (
    "serve /models/qwen35-122b-hybrid-int4fp8 --served-model-name qwen --port 8000 --max-model-len 262144 "
    "--gpu-memory-utilization 0.90 --reasoning-parser qwen3 "
)
_MTP_2 = """--speculative-config '{"method":"mtp","num_speculative_tokens":2}'"""
_DFLASH_15 = """--speculative-config '{"method": "dflash", "model": "%s", "num_speculative_tokens": 15}'"""

SOURCE_COMMANDS = {
    "qwen36": SourceCommand(_QWEN36, _SGLANG_IMAGE),
    "qwen36-as-posted": SourceCommand(_QWEN36, _SGLANG_IMAGE),
    "qwen35-35b-awq": SourceCommand(
        "python -m sglang.launch_server --model-path cyankiwi/Qwen3.5-35B-A3B-AWQ-4bit --quantization awq "
        "--kv-cache-dtype fp8_e5m2 --context-length 196608 --mem-fraction-static 0.75 --enable-prefix-caching "
        "--triton-attention-num-kv-splits 16 --chunked-prefill-size 4096 --max-running-requests 4"
    ),
    "qwen35-35b-dflash": SourceCommand(
        "vllm serve Intel/Qwen3.5-35B-A3B-int4-AutoRound --host 0.0.0.0 --port 8888 --max-model-len 262144 "
        "--max-num-batched-tokens 32768 --gpu-memory-utilization 0.7 --enable-auto-tool-choice --tool-call-parser qwen3_xml "
        "--load-format fastsafetensors --enable-prefix-caching --chat-template unsloth.jinja "
        f"{_DFLASH_15 % 'z-lab/Qwen3.5-35B-A3B-DFlash'} --attention-backend flash_attn",
        "vllm-node-tf5",
        {"VLLM_MARLIN_USE_ATOMIC_ADD": "1"},
    ),
    "qwen3-coder-next-dflash": SourceCommand(
        "vllm serve saricles/Qwen3-Coder-Next-NVFP4-GB10 --enforce-eager --attention-backend flash_attn "
        "--max-num-batched-tokens 32768 --max-num-seqs 4 --gpu-memory-utilization 0.60 "
        f"{_DFLASH_15 % 'z-lab/Qwen3-Coder-Next-DFlash'}",
        "vllm-node-tf5",
    ),
    "qwen35-122b": SourceCommand(f"{_QWEN35_122B} --attention-backend FLASHINFER {_MTP_2}", "vllm-qwen35-v2"),
    "qwen35-122b-tq": SourceCommand(
        f"{_QWEN35_122B} --kv-cache-dtype turboquant35 --enable-turboquant "
        f"--turboquant-metadata-path /models/qwen35-122b-hybrid-int4fp8/turboquant_kv_tq35.json {_MTP_2}",
        "vllm-qwen35-v2-tq",
    ),
    "qwen3-next-avarok": SourceCommand(
        "vllm serve nvidia/Qwen3-Next-80B-A3B-Instruct-NVFP4 --host 0.0.0.0 --port 8888 --max-model-len 65536 "
        "--gpu-memory-utilization 0.90 --max-num-seqs 128 --attention-backend flashinfer --kv-cache-dtype fp8",
        "avarok/dgx-vllm-nvfp4-kernel:v22",
        {
            "VLLM_USE_FLASHINFER_MOE_FP4": "0",
            "VLLM_TEST_FORCE_FP8_MARLIN": "1",
            "VLLM_NVFP4_GEMM_BACKEND": "marlin",
            "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        },
    ),
    "gpt-oss-120b": SourceCommand(
        "vllm serve openai/gpt-oss-120b --quantization=mxfp4 --kv-cache-dtype=fp8 --attention-backend=TRITON_ATTN "
        "--moe-backend=marlin --gpu-memory-utilization=0.87 --max-cudagraph-capture-size=2048",
        "nvcr.io/nvidia/vllm:26.04-py3",
    ),
    "qwen36-vllm": SourceCommand(
        "vllm serve /models/Qwen3.6-27B-NVFP4 --max-model-len 8192 "
        """--speculative-config '{"method": "mtp", "num_speculative_tokens": 3}'"""
    ),
    "qwen36-tp2": SourceCommand(
        "python -m sglang.launch_server --model-path /models/Qwen3.6-27B-FP8 --tp 2 --nnodes 2 --dist-init-addr 10.0.0.1:20000",
        _SGLANG_IMAGE,
    ),
    "qwen35-35b-mtp": SourceCommand(
        "vllm serve Qwen/Qwen3.5-35B-A3B-FP8 --host 0.0.0.0 --port 8000 --max-model-len 131072 --max-num-batched-tokens 16384 "
        "--gpu-memory-utilization 0.45 --enable-auto-tool-choice --reasoning-parser qwen3 --tool-call-parser qwen3_xml "
        "--kv-cache-dtype fp8 --load-format fastsafetensors --attention-backend flashinfer --enable-prefix-caching "
        '--chat-template unsloth.jinja --speculative-config \'{"method":"mtp","num_speculative_tokens":1}\' --tensor-parallel-size 1',
        "vllm-node",
        {"VLLM_MARLIN_USE_ATOMIC_ADD": "1"},
    ),
    "orpheus-llm": SourceCommand(
        "llama-server -m /models/Orpheus-3b-FT-Q8_0.gguf --port 5006 --host 0.0.0.0 --n-gpu-layers 29 --ctx-size 8192 "
        "--n-predict 8192 --rope-scaling linear",
        "ghcr.io/ggml-org/llama.cpp:server-cuda",
    ),
    "trtllm-gpt-oss-20b": SourceCommand(
        "trtllm-serve openai/gpt-oss-20b --max_batch_size 64 --trust_remote_code --port 8355 "
        "--extra_llm_api_options /tmp/extra-llm-api-config.yml",
        "nvcr.io/nvidia/tensorrt-llm/release:1.3.0rc13",
        {"TIKTOKEN_ENCODINGS_BASE": "/tmp/harmony-reqs"},
    ),
    "trtllm-qwen3-235b": SourceCommand(
        "trtllm-serve nvidia/Qwen3-235B-A22B-FP4 --tp_size 2 --backend pytorch --max_num_tokens 32768 --max_batch_size 4 "
        "--extra_llm_api_options /tmp/extra-llm-api-config.yml --port 8355",
        "nvcr.io/nvidia/tensorrt-llm/release:1.3.0rc5",
        {"CPATH": "/usr/local/cuda/include", "TRITON_PTXAS_PATH": "/usr/local/cuda/bin/ptxas"},
    ),
}

# Why there is nothing to compare with, in words that stand in the profile's notes.
SOURCES_WITHOUT_A_COMMAND = {
    "qwen36-ngram": "does not tell its flags",
    "qwen35-35b-hybrid": "gives no command",
    "qwen3-30b-fp8": "no command",
    "minimax-m27": "those of spark-arena's recipe",
    "llamacpp-gpt-oss-120b": "The server was not what it measured",
    "orpheus-tts": "front end",
    "kokoro-tts": "Nothing to build",
}

# What each profile has in place of its source's: None is left out. The notes of the profile say why.
DIFFERENCES: dict[str, dict[str, str | None]] = {
    "gpt-oss-120b": {
        "enable-auto-tool-choice": "True",
        "gpu-memory-utilization": "0.8",
        "max-model-len": "131072",
        "tool-call-parser": "openai",
    },
    "orpheus-llm": {
        "image": "ghcr.io/ggml-org/llama.cpp:server-cuda13",
        "metrics": "True",
        "n-gpu-layers": "99",
        "parallel": "1",
    },
    "qwen3-coder-next-dflash": {
        "enable-auto-tool-choice": "True",
        "image": "ghcr.io/spark-arena/dgx-vllm-eugr-nightly-tf5:latest",
        "tool-call-parser": "qwen3_coder",
    },
    "qwen3-next-avarok": {"PYTORCH_CUDA_ALLOC_CONF": None, "gpu-memory-utilization": "0.8"},
    "qwen35-122b": {"VLLM_CACHE_ROOT": "/models/.cache/vllm", "gpu-memory-utilization": "0.85"},
    "qwen35-122b-tq": {"VLLM_CACHE_ROOT": "/models/.cache/vllm", "gpu-memory-utilization": "0.85"},
    "qwen35-35b-awq": {
        "enable-metrics": "True",
        "enable-prefix-caching": None,
        "model-path": "/models/Qwen3.5-35B-A3B-AWQ-4bit",
        "quantization": None,
        "reasoning-parser": "qwen3",
    },
    "qwen35-35b-dflash": {"chat-template": None, "image": "ghcr.io/spark-arena/dgx-vllm-eugr-nightly-tf5:latest"},
    "qwen35-35b-mtp": {
        "chat-template": None,
        "enable-prefix-caching": None,
        "gpu-memory-utilization": "0.7",
        "image": "ghcr.io/spark-arena/dgx-vllm-eugr-nightly-tf5:latest",
        "tensor-parallel-size": None,
    },
    "qwen36": {"enable-metrics": "True", "mem-fraction-static": "0.6", "speculative-num-draft-tokens": "20"},
    "qwen36-as-posted": {},
    "qwen36-tp2": {
        "dist-init-addr": None,
        "enable-metrics": "True",
        "mem-fraction-static": "0.82",
        "nnodes": None,
        "trust-remote-code": "True",
    },
    "qwen36-vllm": {"gpu-memory-utilization": "0.8"},
    "trtllm-gpt-oss-20b": {
        "TIKTOKEN_ENCODINGS_BASE": "/harmony",
        "extra-llm-api-options": None,
        "kv-cache-free-gpu-memory-fraction": "0.7",
    },
    "trtllm-qwen3-235b": {"extra-llm-api-options": None, "kv-cache-free-gpu-memory-fraction": "0.7"},
}
