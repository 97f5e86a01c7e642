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
    # llama.cpp issue 7799
    "a projector as the model": (
        "args.mmproj", "newer image", "model.path",
        ("llama_model_load: error loading model: error loading model architecture: unknown model architecture: 'clip'",),
    ),
    # llama.cpp issue 14691
    "a build without its CPU part": (
        "libggml-cpu", "file is complete", "image",
        ("llama_model_load: error loading model: make_cpu_buft_list: no CPU backend found",),
    ),
    # llama.cpp issue 12836
    "a prompt that is larger than a batch": (
        "Raise args.ubatch-size", "newer build", "args.ubatch-size",
        ("llama-context.cpp:1220: GGML_ASSERT((cparams.causal_attn || cparams.n_ubatch >= n_tokens_all) && "
         '"non-causal attention requires n_ubatch >= n_tokens") failed',),
    ),
    # llama.cpp issue 13978
    "a quantized cache without flash attention": (
        "args.flash-attn: on", "newer", "args.ctx-size",
        ("llama_context: flash_attn    = 0", "llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache"),
    ),
    # llama.cpp issue 12692
    "rows that are split": (
        "Leave out args.split-mode", "lines before and after", "args.split-mode",
        ("ggml-backend.cpp:748: pre-allocated tensor (blk.0.time_mix_w2.weight (reshaped)) in a buffer (CUDA0_Split) that cannot run the "
         "operation (RESHAPE)", "Aborted (core dumped)"),
    ),
    # llama.cpp issue 13467
    "a picture that is too large": (
        "args.image-max-tokens", "CUDA", None,
        ("encoding image or slice...", "ggml_aligned_malloc: insufficient memory (attempted to allocate 44668.09 MB)",
         "ggml_gallocr_reserve_n: failed to allocate CPU buffer of size 46837887616"),
    ),
    # vllm issue 17770
    "a crash within NCCL": (
        "another version of NCCL", "oom", None,
        ("(RayWorkerWrapper pid=2191173, ip=10.52.51.232) *** SIGSEGV received at time=1746566409 on cpu 131 ***",
         "(RayWorkerWrapper pid=2191173, ip=10.52.51.232) Fatal Python error: Segmentation fault",
         '(RayWorkerWrapper pid=2191173, ip=10.52.51.232)   File "/usr/lib/vllm/distributed/device_communicators/pynccl_wrapper.py", line 290 in '
         "ncclAllReduce", "(raylet) A worker died or was killed while executing a task by an unexpected system error. Worker exit type: SYSTEM_ERROR "
         "Worker exit detail: Worker unexpectedly exits with a connection error code 2. End of file. There are some potential root causes."),
    ),
    # vllm issue 17770
    "a worker of Ray that crashed": (
        "newer or an older image", "oom", None,
        ("(RayWorkerWrapper pid=2191173, ip=10.52.51.232) *** SIGSEGV received at time=1746566409 on cpu 131 ***",
         "(raylet) A worker died or was killed while executing a task by an unexpected system error. Worker exit type: SYSTEM_ERROR "
         "Worker exit detail: Worker unexpectedly exits with a connection error code 2. End of file. There are some potential root causes."),
    ),
    # vllm issue 19703
    "a step that takes longer than Ray waits": (
        "Raise env.RAY_CGRAPH_get_timeout", "lost a worker", "env.RAY_CGRAPH_get_timeout",
        ("ray.exceptions.RayChannelTimeoutError: System error: Timed out waiting for object available to read. ObjectID: 00fc911a7833d5d0",
         "ray.exceptions.RayChannelTimeoutError: System error: If the execution is expected to take a long time, increase RAY_CGRAPH_get_timeout "
         "which is currently 10 seconds. Otherwise, this may indicate that the execution is hanging."),
    ),
    # vllm issue 9082
    "an engine that is busy for too long": (
        "Raise env.VLLM_RPC_TIMEOUT", "no line says why", "env.VLLM_RPC_TIMEOUT",
        ("ERROR 10-04 20:05:26 client.py:244] TimeoutError('No heartbeat received from MQLLMEngine')",
         "CRITICAL 10-04 20:05:29 launcher.py:99] MQLLMEngine is already dead, terminating server process"),
    ),
    # machuanhu/lmcache, vllm_cachehub5.log
    "a socket that is a file": (
        "lmcache_rpc_port", "ss -ltnp", None,
        ("ERROR 11-14 20:58:03 [core.py:586] zmq.error.ZMQError: Address already in use (addr='ipc:///tmp/lmcache_rpc_port_0')",),
    ),
    # vllm issue 14093
    "a driver that does not know the GPU": (
        "nvidia-smi", "NCCL_SOCKET_IFNAME", None,
        ("WORKSTATION-01:301:301 [0] misc/nvmlwrap.cc:187 NCCL WARN nvmlDeviceGetHandleByPciBusId() failed: Not Found",
         "RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)"),
    ),
    # vllm issue 19656
    "a compiler without C's headers": (
        "build-essential", "KV cache", "image",
        ("/usr/include/stdlib.h:31:10: fatal error: stddef.h: No such file or directory",),
    ),
    # sglang issue 3571
    "a model that does not split": (
        "Or try what the message offers: --quantization gptq", "2 on two", "args.tensor-parallel-size",
        ("ValueError: Weight input_size_per_partition = 14784 is not divisible by min_thread_k = 128. Consider reducing tensor_parallel_size or "
         "running with --quantization gptq.",),
    ),
    # jethac/dgx-spark-hijinks, google-gemma-4-e4b-it, fp8_server.log
    "heads of 512": (
        "triton takes most sizes", "github.com", "args.attention-backend",
        ("tvm.error.InternalError: Error in function 'BatchPrefillWithPagedKVCacheDispatched' at prefill.cuh:3215: FlashInfer Internal Error: "
         "Invalid configuration : NUM_MMA_Q=1 NUM_MMA_D_QK=32 NUM_MMA_D_VO=16 NUM_MMA_KV=1 NUM_WARPS_Q=4 NUM_WARPS_KV=1 please create an issue "
         "(https://github.com/flashinfer-ai/flashinfer/issues) and report the issue to the developers.",),
    ),
    # ik_llama.cpp issue 398
    "a kernel that failed in llama.cpp": (
        "env.GGML_CUDA_DISABLE_GRAPHS", "traceback", None,
        ("INFO [   launch_slot_with_task] slot is processing task | id_slot=0 id_task=2449", "CUDA error: an illegal memory access was encountered",
         "  current device: 1, in function ggml_cuda_up_gate_unary at /x/ggml-cuda.cu:2555"),
    ),
    # xbill9/gemma4-tips-aws, previous_crash.txt
    "a kernel that failed on another maker's device": (
        "the runtime's own variable", "CUDA_LAUNCH_BLOCKING", None,
        (_VLLM_START, "RuntimeError: Failed to execute the model status=1006 message=Execution Out-Of-Bounds Memory Access"),
    ),
    # shaamil101-etched/trtllm-benchmarks, nohup.out
    "another command of TensorRT-LLM": (
        "nearest to 0.16.0", "image has is not known", "args.dataset",
        ("[TensorRT-LLM] TensorRT-LLM version: 0.16.0", "Usage: trtllm-bench [OPTIONS] COMMAND [ARGS]...", "Error: No such option: --dataset"),
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
