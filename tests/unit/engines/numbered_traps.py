"""The dearest traps of 2026 by number: what is given, the cause, a word of the right advice and one of the wrong."""

from __future__ import annotations

from typing import NamedTuple

VLLM_DRAFTS = (
    "INFO 11-20 10:00:00 [core.py:93] Initializing a V1 LLM engine (v0.24.0) with config: model='/m', "
    "speculative_config=SpeculativeConfig(method='mtp', model='/m', num_spec_tokens=2)\n"
)
VLLM_SERVES = VLLM_DRAFTS + "INFO 11-20 10:01:00 [launcher.py:1] Application startup complete.\n"
RAISED = 'Traceback (most recent call last):\n  File "x.py", line 3, in load\n    call()\n'
STANDS = "No available shared memory broadcast block found in 60 seconds."
FP4_BACKEND = (
    "NvFp4 MoE backend 'FLASHINFER_TRTLLM' does not support the deployment configuration since kernel does not"
)
LESS_MEMORY = "gpu-memory-utilization"


class LogTrap(NamedTuple):
    """A log that shows a trap; ``advised`` stands in the advice or the summary, ``wrong`` does not stand in the advice."""

    number: int
    text: str
    cause: str
    advised: str
    wrong: str = LESS_MEMORY


class ProfileTrap(NamedTuple):
    """A profile that has a trap, and a word that `check` says of it."""

    number: int
    engine: str
    image: str
    model: str
    fields: str
    advised: str


LOG_TRAPS = (
    LogTrap(1, "vllm: error: unrecognized arguments: serve /model", "bad-value", "empty list as command"),
    LogTrap(2, "FAILED: [code=137] moe.cuda.o\nninja: build stopped: subcommand failed.", "jit-failed", "MAX_JOBS"),
    LogTrap(
        3,
        f'{VLLM_DRAFTS}{RAISED}  File "/usr/lib/torch/cuda/memory.py", line 905, in mem_get_info\n'
        "    return torch.cuda.cudart().cudaMemGetInfo(device)\ntorch.AcceleratorError: CUDA error: out of memory",
        "startup-memory-check",
        "sparkctl doctor",
        "without drafts",
    ),
    LogTrap(
        4,
        f"{RAISED}RuntimeError: [FP4 gemm Runner] Failed to run cutlass FP4 gemm on sm120. Error: Error Internal",
        "kernel-unsupported",
        "marlin",
    ),
    LogTrap(5, f"{RAISED}Exception: the rope of this model is odd", "crashed", "the rope of this model is odd"),
    LogTrap(
        6,
        f"{RAISED}triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 147456, "
        "Hardware limit: 101376.",
        "kernel-unsupported",
        "101376",
    ),
    LogTrap(6, f"{RAISED}cutlass.base_dsl.common.MLIRError: cannot lower", "kernel-unsupported", "backend"),
    LogTrap(6, f"{RAISED}pynvml.NVMLError_NotSupported: Not Supported", "engine-bug", "NVML"),
    LogTrap(
        7,
        VLLM_SERVES + "".join(f"INFO 11-20 10:0{n}:00 [shm_broadcast.py:501] {STANDS}\n" for n in range(2, 8)),
        "wedged",
        "without drafts",
    ),
    LogTrap(
        8,
        f"{VLLM_SERVES}ERROR 11-20 10:05:00 [core.py:900] TimeoutError: RPC call to sample_tokens timed out.",
        "wedged",
        "drafts (mtp), and that is the first suspect",
        "",
    ),
    LogTrap(
        8,
        "INFO:     Application startup complete.\nTimeoutError: RPC call to sample_tokens timed out.",
        "wedged",
        "first error above",
    ),
    LogTrap(
        8,
        "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.",
        "worker-lost",
        "first error above",
    ),
    LogTrap(
        28, f"{VLLM_SERVES}{RAISED}KeyError: 'cmpl-1234'", "engine-bug", "drafts (mtp), and that is the first suspect"
    ),
    LogTrap(
        13,
        f"{VLLM_DRAFTS}{RAISED}ValueError: To serve at least one request with the models's max seq len (131072), (12.00 GiB KV cache is "
        "needed, which is larger than the available KV cache memory (8.10 GiB).",
        "kv-cache-too-small",
        "The drafts (mtp) take a part of the memory",
        "",
    ),
    LogTrap(71, f"{RAISED}NotImplementedError: Unsupported speculative method: 'mtp'", "bad-value", "newer image"),
    LogTrap(
        123,
        f"{RAISED}ValueError: Free memory on device cuda:0 (12.3/121.69 GiB) on startup is less than desired GPU memory utilization "
        "(0.85, 103.4 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.",
        "startup-memory-check",
        "engine core that an earlier start left",
        "",
    ),
    LogTrap(
        118,
        "INFO 11-20 10:00:00 [api_server.py:1896] vLLM API server version 0.24.0\n"
        + "".join(f"INFO 11-20 10:0{n}:00 [shm_broadcast.py:501] {STANDS}\n" for n in range(2, 8)),
        "wedged",
        "before you stop it",
        "down, and up",
    ),
    LogTrap(
        9,
        f"{VLLM_SERVES}{RAISED}torch.AcceleratorError: CUDA error: device-side assert triggered",
        "gpu-fault",
        "without drafts",
    ),
    LogTrap(10, f"{RAISED}RuntimeError: CUDA error: CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "driver-mismatch", "driver"),
    LogTrap(10, f"{RAISED}RuntimeError: Triton Error [CUDA]: error code: 222", "driver-mismatch", "driver"),
    LogTrap(
        11,
        f"{RAISED}RuntimeError: Assertion error (csrc/apis/layout.hpp:59): Unsupported architecture",
        "kernel-unsupported",
        "backend",
    ),
    LogTrap(
        12,
        "ptxas error   : Feature '.tile::scatter4' not supported on .target 'sm_121a'",
        "kernel-unsupported",
        "backend",
    ),
    LogTrap(13, f"{RAISED}ValueError: {FP4_BACKEND} support current device cuda.", "kernel-unsupported", "marlin"),
    LogTrap(14, "NVRM: Xid (PCI:000f:01:00): 79, pid=9, GPU has fallen off the bus.", "gpu-fault", "power plug"),
    LogTrap(
        15, "NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY]", "host-memory", "claim less"
    ),
    LogTrap(
        19,
        "spark1:7:9 [0] NCCL WARN NET/IB : local GID index 3, local GID ::, remote GID",
        "nccl",
        "NCCL_IB_GID_INDEX unset",
    ),
    LogTrap(
        20,
        "spark1:7:9 [0] NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory",
        "nccl",
        "memlock: -1",
    ),
    LogTrap(
        23,
        "[TRT-LLM] [I] Loading weights concurrently\nrun.sh: line 3:    12 Killed                  trtllm-serve serve /m",
        "killed",
        "TRT_LLM_DISABLE_LOAD_WEIGHTS_IN_PARALLEL",
    ),
)
PROFILE_TRAPS = (
    ProfileTrap(1, "vllm", "vllm/vllm-openai:v0.24.0", "/m", "command: [vllm, serve]", "command: []"),
    ProfileTrap(21, "vllm", "x/vllm:0.19.1", "/m/Qwen3.5-122B", "args: {enable-prefix-caching: true}", "prefix"),
    ProfileTrap(22, "sglang", "x/sglang:0.5.12", "/m", "args: {mem-fraction-static: 0.92}", "0.85"),
    ProfileTrap(25, "vllm", "x/vllm:0.24.0", "/m-NVFP4", "args: {quantization: fp4}", "modelopt_fp4"),
)
