"""TensorRT-LLM's trtllm-serve: its start, what it dies of, its figures and its command line."""

from __future__ import annotations

import pytest

from sparkctl import engines
from sparkctl.engines.base import DecodingSettings
from sparkctl.engines.line_preparer import LinePreparer, strip_log_prefix
from sparkctl.model.engine_metrics import EngineFactName
from sparkctl.model.phase import Phase, Step
from sparkctl.model.profile import ModelSpec, Profile
from sparkctl.model.verdict import FailureCause
from tests.unit.engines.engine_log_reading import read_engine_log

ENGINE = engines.load_engine("trtllm")
START = (
    "2026-05-02 10:00:01,114 - INFO - flashinfer.jit: Prebuilt kernels not found, using JIT backend\n"
    "[TensorRT-LLM] TensorRT-LLM version: 1.3.0rc13\n"
    "[05/02/2026-10:00:04] [TRT-LLM] [I] Using LLM with PyTorch backend\n"
    "[TensorRT-LLM][INFO] Refreshed the MPI local session\n"
    "[05/02/2026-10:00:19] [TRT-LLM] [I] PyTorchConfig(use_cuda_graph=True, attn_backend='TRTLLM', moe_backend='CUTLASS', "
    "oom_error=False)\n"
    "Loading safetensors weights in parallel:  50%|█████     | 7/14 [00:00<00:00, 81.92it/s]\r"
    "Loading safetensors weights in parallel: 100%|██████████| 14/14 [00:00<00:00, 81.92it/s]\n"
    "Loading weights:  25%|██▌       | 200/800 [00:11<00:34, 17.29it/s]\rLoading weights: 100%|██████████| 800/800 "
    "[00:46<00:00, 17.29it/s]\n"
    "Model init total -- 49.14s\n"
    "[TensorRT-LLM][INFO] Number of tokens per block: 32.\n"
    "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 0.56 GiB for max tokens in paged KV cache (8224).\n"
    "[05/02/2026-10:01:10] [TRT-LLM] [I] max_seq_len=8224, max_num_requests=64, max_num_tokens=8192, max_batch_size=64\n"
    "[05/02/2026-10:01:10] [TRT-LLM] [I] [Autotuner] Autotuning process starts ...\n"
    "[05/02/2026-10:01:37] [TRT-LLM] [I] Creating CUDA graph instances for 11 batch sizes.\n"
    "[05/02/2026-10:01:37] [TRT-LLM] [RANK 0] [I] Run generation only CUDA graph warmup for batch size=64, draft_len=0\n"
    "[05/02/2026-10:01:50] [TRT-LLM] [I] Memory used outside torch (e.g., NCCL and CUDA graphs) in profiling: 49.28 GiB\n"
    "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 5.95 GiB for max tokens in paged KV cache (86720).\n"
    "[05/02/2026-10:01:52] [TRT-LLM] [I] max_seq_len=86720, max_num_requests=64, max_num_tokens=8192, max_batch_size=64\n"
    "INFO:     Started server process [41]\n"
    "INFO:     Waiting for application startup.\n"
    "INFO:     Application startup complete.\n"
    "INFO:     Uvicorn running on http://0.0.0.0:8355 (Press CTRL+C to quit)\n"
)


def test_trtllm_starts() -> None:
    reading = read_engine_log("trtllm", START)
    assert reading.phases == [Phase.LOADING, Phase.WARMING, Phase.READY]
    assert Step("weights", 200, 800, 0.25) in reading.steps
    names = list(dict.fromkeys(step.name for step in reading.steps))
    assert names == ["join", "weights", "profiling", "kv-cache", "autotune", "graphs", "http"]
    assert not reading.failures


def test_the_cache_that_stays_is_told_last() -> None:
    preparer, found = LinePreparer(), {}
    for raw in START.split("\n"):
        for line in preparer.prepare_lines(raw):
            signal = ENGINE.classify_line(line)
            found |= {fact.name: fact.value for fact in signal.facts} if signal else {}
    assert found == {
        EngineFactName.ENGINE_VERSION: "1.3.0rc13",
        EngineFactName.ATTENTION_BACKEND: "TRTLLM",
        EngineFactName.KV_CACHE_TOKENS: "86720",
        EngineFactName.CONTEXT_LENGTH: "86720",
        EngineFactName.MAX_CONCURRENCY: "64",
    }


@pytest.mark.parametrize(
    ("line", "level", "rest"),
    [
        ("[05/02/2026-10:00:04] [TRT-LLM] [W] slow", "WARNING", "slow"),
        ("[05/02/2026-10:00:04] [TRT-LLM] [RANK 1] [E] bad", "ERROR", "bad"),
        ("[05/02/2026-10:00:04] [TRT-LLM] [E] [RANK 1] bad", "ERROR", "bad"),
        ("[TensorRT-LLM][INFO] [MemUsageChange] Allocated", "INFO", "[MemUsageChange] Allocated"),
        ("[TensorRT-LLM] TensorRT-LLM version: 1", None, "[TensorRT-LLM] TensorRT-LLM version: 1"),
    ],
)
def test_trtllm_log_prefixes_are_stripped(line: str, level: str | None, rest: str) -> None:
    assert strip_log_prefix(line) == (level, rest)


TORCH = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 48.00 MiB. GPU 0 has a total capacity of 119.70 GiB "
    "of which 42.69 MiB is free."
)


def explain_component(component: str) -> str:
    return (
        f"[05/02/2026-10:00:04] [TRT-LLM] [E] Failed to initialize executor on rank 0: CUDA out of memory.\n{TORCH}\n"
        "RuntimeError: Executor creation failed due to insufficient GPU memory.\n\n"
        f"The following component could not be created: {component}\nTotal GPU memory (GiB): 119.70\n"
        "RuntimeError: Executor worker returned error\n"
    )


@pytest.mark.parametrize(
    ("log", "cause", "field"),
    [
        (explain_component("KV cache"), FailureCause.KV_CACHE_TOO_SMALL, "args.kv_cache_free_gpu_memory_fraction"),
        (
            explain_component("Initial KV cache (temporary for KV cache size estimation)"),
            FailureCause.KV_CACHE_TOO_SMALL,
            "args.max_num_tokens",
        ),
        (explain_component("Model"), FailureCause.WEIGHTS_DO_NOT_FIT, None),
        (
            explain_component("Model resources created during usage"),
            FailureCause.CUDA_OUT_OF_MEMORY,
            "args.max_num_tokens",
        ),
        (
            explain_component("Draft model for speculative decoding"),
            FailureCause.DRAFT_WORKSPACE,
            "args.kv_cache_free_gpu_memory_fraction",
        ),
        (explain_component("Sampler"), FailureCause.CUDA_OUT_OF_MEMORY, "args.max_num_tokens"),
        (TORCH, FailureCause.CUDA_OUT_OF_MEMORY, "args.kv_cache_free_gpu_memory_fraction"),
        (
            f"[11/12/2025-11:21:22] [TRT-LLM] [E] Encountered an error in forward function: {TORCH[24:]}\n{TORCH}",
            FailureCause.CUDA_OUT_OF_MEMORY,
            "args.kv_cache_free_gpu_memory_fraction",
        ),
        (
            "Error: No such option: --max-batch-size (Possible options: --max_batch_size)",
            FailureCause.UNKNOWN_FLAG,
            "args.max-batch-size",
        ),
        ("Error: No such option '--tp'.", FailureCause.UNKNOWN_FLAG, "args.tp"),
        ("Error: Invalid value for '--port': 'x' is not a valid integer.", FailureCause.BAD_VALUE, "args.port"),
        (
            "Error: Invalid value for '--tensor_parallel_size' / '--tp_size': 'x' is not a valid integer.",
            FailureCause.BAD_VALUE,
            "args.tensor_parallel_size",
        ),
        ("Error: Missing argument 'MODEL'.", FailureCause.BAD_VALUE, "args"),
        (
            "RuntimeError: Failed to bind socket to 0.0.0.0:8355: [Errno 98] Address already in use",
            FailureCause.PORT_IN_USE,
            "port",
        ),
        (
            "ValueError: Unknown architecture for AutoModelForCausalLM: Qwen9ForCausalLM",
            FailureCause.MODEL_UNSUPPORTED,
            "image",
        ),
        ("!!!!!!! Segfault encountered !!!!!!!", FailureCause.CRASHED, "image"),
    ],
    ids=lambda value: value[-60:] if isinstance(value, str) else None,
)
def test_trtllm_failures_are_recognized(log: str, cause: FailureCause, field: str | None) -> None:
    reading = read_engine_log("trtllm", log)
    assert (reading.root.cause, reading.root.field) == (cause, field)
    assert reading.root.fatal


@pytest.mark.parametrize(
    "line",
    [
        "[05/02/2026-10:00:04] [TRT-LLM] [W] insufficient GPU memory for CUDA graphs, capturing fewer batch sizes",
        "[TensorRT-LLM][WARNING] Attention workspace size is not enough, increase the size from 0 bytes to 100738816 bytes",
        "[05/02/2026-10:00:04] [TRT-LLM] [W] Both free_gpu_memory_fraction and max_tokens are set. The smaller is used.",
        "[TensorRT-LLM][ERROR] CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED not supported on GPU0.",
    ],
)
def test_harmless_trtllm_lines_are_no_failure(line: str) -> None:
    assert not read_engine_log("trtllm", line).failures


PAGE = """\
# TYPE trtllm_generation_tokens_total counter
trtllm_generation_tokens_total{engine_type="undefined",model_name="undefined"} 600.0
trtllm_generation_tokens_created{engine_type="undefined",model_name="undefined"} 1.79e+09
trtllm_prompt_tokens_total{engine_type="undefined",model_name="undefined"} 100.0
trtllm_prompt_cached_tokens_total{engine_type="undefined",model_name="undefined"} 70.0
trtllm_num_requests_running{engine_type="undefined",model_name="undefined"} 2.0
trtllm_num_requests_waiting{engine_type="undefined",model_name="undefined"} 1.0
trtllm_kv_cache_utilization{engine_type="undefined",model_name="undefined"} 0.25
trtllm_kv_cache_used_blocks{engine_type="undefined",model_name="undefined"} 10.0
trtllm_kv_cache_tokens_per_block{engine_type="undefined",model_name="undefined"} 32.0
"""


def test_trtllm_metrics_are_read() -> None:
    seen = ENGINE.parse_metrics(PAGE)
    assert (seen.generation_tokens, seen.prompt_tokens, seen.prefix_queries, seen.prefix_hits) == (600, 30, 100, 70)
    assert (seen.running, seen.waiting, seen.kv_usage, seen.kv_tokens) == (2, 1, 0.25, 320)
    assert seen.drafts is None
    assert seen.at_request_end


def test_a_version_that_tells_less_leaves_it_unknown() -> None:
    seen = ENGINE.parse_metrics("trtllm_prompt_tokens_total 100.0\n")
    assert (seen.prompt_tokens, seen.prefix_queries, seen.kv_tokens, seen.generation_tokens) == (100, None, None, None)


def test_trtllm_command_line() -> None:
    profile = Profile(
        name="p", engine="trtllm", image="i", origin="p.yaml", shipped=False, port=8355,
        model=ModelSpec(path="openai/gpt-oss-20b", served_name="oss"), args=(("max_batch_size", "64"), ("trust_remote_code", True)),
    )  # fmt: skip
    assert ENGINE.build_command(profile) == (
        *("trtllm-serve", "openai/gpt-oss-20b", "--host", "0.0.0.0", "--port", "8355"),
        *("--max_batch_size", "64", "--trust_remote_code"),
    )
    assert ENGINE.read_decoding_settings(("trtllm-serve", "m", "--tp_size", "2")) == DecodingSettings(ranks=2)


@pytest.mark.parametrize(
    ("line", "cause", "message"),
    [
        # As Open MPI 4.1.4 and OpenSSH 9.2 said them.
        (
            "ORTE was unable to reliably start one or more daemons.",
            FailureCause.WORKER_LOST,
            "could not start its daemon",
        ),
        ("ORTE has lost communication with a remote daemon.", FailureCause.WORKER_LOST, "lost its daemon"),
        ("PRTE has lost communication with a remote daemon.", FailureCause.WORKER_LOST, "lost its daemon"),
        (
            "mpirun was unable to find the specified executable file, and therefore",
            FailureCause.BAD_VALUE,
            "ranks' command",
        ),
        (
            "mpirun noticed that process rank 1 with PID 77 on node spark2 exited on signal 9 (Killed).",
            FailureCause.WORKER_LOST,
            "lost rank 1: signal 9",
        ),
        ("Primary job  terminated normally, but 1 process returned", FailureCause.WORKER_LOST, "A rank ended"),
        ("MPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD", FailureCause.CRASHED, "ended itself"),
        ("root@10.80.0.12: Permission denied (publickey).", FailureCause.PERMISSION, "refused"),
        (
            "Error: cannot log in at the worker 10.80.0.12: root@10.80.0.12: Permission denied (publickey).",
            FailureCause.PERMISSION,
            "(10.80.0.12)",
        ),
        (
            "Error: cannot log in at the worker 10.80.0.12: ssh: connect to host 10.80.0.12 port 2233: Connection refused",
            FailureCause.WORKER_LOST,
            "Connection refused",
        ),
        (
            "error: Bind to port 2233 on 10.80.0.12 failed: Address already in use.",
            FailureCause.PORT_IN_USE,
            "port 2233",
        ),
        (
            "Error: the image lacks openssh-server, and it could not be installed",
            FailureCause.BAD_VALUE,
            "openssh-server",
        ),
        ("sh: 1: exec: trtllm-llmapi-launch: not found", FailureCause.BAD_VALUE, "trtllm-llmapi-launch"),
        ("This rank is over: mpirun's daemon ended with 1", FailureCause.WORKER_LOST, "is over"),
    ],
)
def test_failures_of_mpirun_ranks_are_recognized(line: str, cause: FailureCause, message: str) -> None:
    signal = ENGINE.classify_line(line)
    assert signal is not None
    assert signal.failure is not None
    assert (signal.failure.cause, message in signal.failure.summary) == (cause, True)


def test_a_rank_that_did_not_start_is_told_with_the_reason_that_its_line_names() -> None:
    line = "[05/02/2026-10:00:04] [TRT-LLM] [E] Failed to initialize executor on rank 0: no recipe for layer 7"
    root = read_engine_log("trtllm", f"{line}\nRuntimeError: Executor worker returned error").root
    assert root.summary == "The engine's worker of rank 0 did not start: no recipe for layer 7"


def test_a_ranks_own_reason_outweighs_what_mpirun_says_of_it() -> None:
    said = read_engine_log("trtllm", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
                          "This rank is over: mpirun's daemon ended with 1\n")  # fmt: skip
    assert said.root.cause is FailureCause.CUDA_OUT_OF_MEMORY


def test_a_head_that_waits_for_its_workers_is_joining() -> None:
    signal = ENGINE.classify_line("Waiting for sshd on 10.80.0.12 port 2233")
    assert signal is not None
    assert (signal.phase, signal.step) == (Phase.LOADING, Step("join"))
