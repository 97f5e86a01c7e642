"""The remedy of a verdict helps against what the log shows; each case is the shortest part of a log that somebody posted."""

from __future__ import annotations

import io

import pytest

from sparkctl.commands.diagnose_file import diagnose_bytes
from sparkctl.model.verdict import Verdict

_SITE = '  File "/usr/lib/python3.12/site-packages/'
_VLLM_START = "INFO 04-14 14:20:01 [api_server.py:1034] vLLM API server version 0.8.3"
_VLLM_LOADS = "INFO 04-14 14:20:09 [gpu_model_runner.py:1258] Starting to load model /m..."
_SGLANG_LOADS = "[2025-04-29 10:08:40] Load weight begin. avail mem=31.42 GB"
_SGLANG_SERVES = "[2025-06-05 14:56:21] server_args=ServerArgs(model_path='/m', mem_fraction_static=0.8)"
_ASKED = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate"


def _raise(*frames: str) -> tuple[str, ...]:
    return (
        "Traceback (most recent call last):",
        *(f'{_SITE}{file}", line 1, in {name}' for file, name in map(str.split, frames)),
    )


def diagnose(*lines: str) -> Verdict:
    log = "".join(f"{line}\n" for line in lines).encode()
    verdict = diagnose_bytes(io.BytesIO(log), "it", None).diagnosis.verdict
    assert verdict is not None
    return verdict


# By name: what the remedy says, what it must not say, the field, and the lines.
REMEDIES: dict[str, tuple[str, str, str | None, tuple[str, ...]]] = {
    # vllm issue 11560
    "vLLM, weights": (
        "smaller model or quantization", "gpu-memory-utilization", None,
        (_VLLM_START, _VLLM_LOADS, *_raise("vllm/worker/model_runner.py load_model", "vllm/model_executor/layers/linear.py create_weights"),
         f"{_ASKED} 462.00 MiB. GPU 0 has a total capacity of 79.25 GiB of which 278.75 MiB is free."),
    ),
    # mattbucci/2x-R9700-RDNA4-GFX1201-sglang-inference, Qwen3-Coder-Next-REAM-AWQ.log
    "SGLang, weights": (
        "smaller model or quantization", "mem-fraction-static", None,
        (_SGLANG_LOADS, *_raise("sglang/srt/model_executor/model_runner.py load_model"),
         f"{_ASKED} 384.00 MiB. GPU 1 has a total capacity of 31.86 GiB of which 124.00 MiB is free."),
    ),
    # vllm issue 8903
    "vLLM, the run that measures": (
        "args.limit-mm-per-prompt", "Lower args.gpu-memory-utilization", "args.max-num-batched-tokens",
        (_VLLM_START, *_raise("vllm/worker/worker.py determine_num_available_blocks", "vllm/worker/enc_dec_model_runner.py profile_run"),
         f"{_ASKED} 19.63 GiB. GPU 3 has a total capacity of 79.15 GiB of which 17.73 GiB is free."),
    ),
    # vllm issue 16570
    "vLLM, the sampler": (
        "Lower args.max-num-seqs", "smaller model", "args.max-num-seqs",
        (_VLLM_START, "INFO 04-14 14:23:49 [kv_cache_utils.py:578] GPU KV cache size: 9,072 tokens",
         *_raise("vllm/v1/worker/gpu_model_runner.py _dummy_sampler_run", "vllm/v1/sample/sampler.py sample"),
         f"{_ASKED} 298.00 MiB. GPU 1 has a total capacity of 39.38 GiB of which 65.38 MiB is free."),
    ),
    # sglang issue 6933
    "the engine's own process": (
        "Stop process 235237 on the node, which holds 946.00 MiB", "235597", "args.mem-fraction-static",
        (_SGLANG_SERVES, f"{_ASKED} 174.00 MiB. GPU 0 has a total capacity of 79.44 GiB of which 137.00 MiB is free. Process 235237 has 946.00 MiB "
         "memory in use. Process 235597 has 78.37 GiB memory in use. Of the allocated memory 74.79 GiB is allocated by PyTorch, with 38.04 MiB"),
    ),
    # vllm issue 8903
    "no process but the engine's own": (
        "Stop whatever else", "78729", "args.gpu-memory-utilization",
        (_VLLM_START, f"{_ASKED} 19.63 GiB. GPU 3 has a total capacity of 79.15 GiB of which 17.73 GiB is free. Process 78729 has 61.41 GiB memory "
         "in use. Of the allocated memory 56.64 GiB is allocated by PyTorch, and 4.07 GiB is reserved by PyTorch but unallocated."),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("helps", "not_said", "field", "lines"), REMEDIES.values(), ids=REMEDIES.keys())
def test_a_remedy_is_for_what_the_log_shows(
    helps: str, not_said: str, field: str | None, lines: tuple[str, ...]
) -> None:
    verdict = diagnose(*lines)
    assert helps in verdict.remedy
    assert not_said not in verdict.remedy + verdict.summary
    assert verdict.field == field
