"""Failed starts, in the engines' own words: the root is found among its echoes, with its numbers and its field."""

from __future__ import annotations

import pytest

from sparkctl.model.verdict import FailureCause
from tests.unit.engines.engine_log_reading import read_engine_log

OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.25 GiB. GPU 0 has a total capacity of 119.64 GiB of "
    "which 1.18 GiB is free. Including non-PyTorch memory, this process has 96.40 GiB memory in use."
)
VLLM_OOM = f"""\
(EngineCore pid=9) ERROR 04-14 12:42:40 [core.py:1108] EngineCore failed to start.
(EngineCore pid=9) ERROR 04-14 12:42:40 [core.py:1108] Traceback (most recent call last):
(EngineCore pid=9) ERROR 04-14 12:42:40 [core.py:1108]     raise RuntimeError("CUDA error: out of memory")
(EngineCore pid=9) ERROR 04-14 12:42:40 [core.py:1108] {OOM}
(EngineCore pid=9) {OOM}
(APIServer pid=1) Traceback (most recent call last):
(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {{}}
"""
SGLANG_OOM = f"""\
[2026-06-03 09:14:19] Scheduler hit an exception: Traceback (most recent call last):
  File "/opt/engine", line 1, in __init__
{OOM}

[2026-06-03 09:14:20] Received sigquit from a child process. It usually means the child failed.
"""


@pytest.mark.parametrize(
    ("engine", "log", "line", "field"),
    [("vllm", VLLM_OOM, 4, "args.gpu-memory-utilization"), ("sglang", SGLANG_OOM, 3, "args.mem-fraction-static")],
)
def test_cuda_memory_beats_its_echoes(engine: str, log: str, line: int, field: str) -> None:
    reading = read_engine_log(engine, log)
    root = reading.root
    assert (root.cause, root.fatal, root.field, reading.root_line) == (
        FailureCause.CUDA_OUT_OF_MEMORY,
        True,
        field,
        line,
    )
    assert root.summary == "CUDA ran out of memory: it tried to allocate 2.25 GiB and 1.18 GiB was free."
    assert field in root.remedy
    assert "page caches" in root.remedy


def test_cuda_memory_is_not_the_end_of_any_container() -> None:
    root = read_engine_log("container", OOM).root
    assert root.cause is FailureCause.CUDA_OUT_OF_MEMORY
    assert not root.fatal


ONE_LINE = [
    (
        "sglang",
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: "
        "mem_fraction_static=0.8",
        FailureCause.WEIGHTS_DO_NOT_FIT,
        "args.mem-fraction-static",
        "fraction of 0.8",
    ),
    (
        "sglang",
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
        FailureCause.WEIGHTS_DO_NOT_FIT,
        "args.mem-fraction-static",
        "no room for the KV cache.",
    ),
    (
        "sglang",
        "Exception: Capture cuda graph failed: CUDA out of memory. Tried",
        FailureCause.CUDA_OUT_OF_MEMORY,
        "args.mem-fraction-static",
        "graphs",
    ),
    (
        "sglang",
        "RuntimeError: Rank 0 scheduler died during initialization (exit code: -9). If exit code is -9 (SIGKILL),",
        FailureCause.WORKER_LOST,
        "args.mem-fraction-static",
        "killed",
    ),
    (
        "sglang",
        "RuntimeError: Rank 0 scheduler died during initialization (exit code: 1). If exit code is -9 (SIGKILL),",
        FailureCause.WORKER_LOST,
        None,
        "exit code 1",
    ),
    (
        "sglang",
        "[2026-06-03 09:14:19] Subprocess scheduler_0 (pid=9) crashed with exit code 1. Triggering SIGQUIT",
        FailureCause.WORKER_LOST,
        None,
        "exit code 1",
    ),
    (
        "sglang",
        "[2026-06-03 09:14:19] Subprocess scheduler_0 (pid=9) crashed with exit code -9. Triggering SIGQUIT",
        FailureCause.WORKER_LOST,
        "args.mem-fraction-static",
        "scheduler_0",
    ),
    (
        "sglang",
        "Prefill out of memory. Try to lower your batch size.",
        FailureCause.KV_CACHE_TOO_SMALL,
        "args.max-running-requests",
        "full",
    ),
    (
        "sglang",
        "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 30000): address already in use",
        FailureCause.PORT_IN_USE,
        "port",
        "in use",
    ),
    (
        "sglang",
        "ValueError: Unknown speculative algorithm name: HOWL",
        FailureCause.BAD_VALUE,
        "args.speculative-algorithm",
        "HOWL",
    ),
    (
        "sglang",
        "TypeError: '>' not supported between instances of 'NoneType' and 'int'",
        FailureCause.ENGINE_BUG,
        "args.speculative-num-draft-tokens",
        "half",
    ),
    (
        "sglang",
        "sglang serve: error: ambiguous option: --cuda-graph-max-bs could match --cuda-graph-max-bs-decode,",
        FailureCause.UNKNOWN_FLAG,
        "args.cuda-graph-max-bs",
        "several flags",
    ),
    (
        "sglang",
        "launch_server.py: error: argument --kv-cache-dtype: invalid choice: 'fp8' (choose from 'auto')",
        FailureCause.BAD_VALUE,
        "args.kv-cache-dtype",
        "invalid choice: 'fp8'",
    ),
    (
        "sglang",
        "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined.",
        FailureCause.WORKER_LOST,
        None,
        "other node",
    ),
    (
        "vllm",
        "vllm: error: unrecognized arguments: --speculative-model foo",
        FailureCause.UNKNOWN_FLAG,
        "args.speculative-model",
        "foo",
    ),
    (
        "vllm",
        "ValueError: Free memory on device cuda:0 (84.12/119.64 GiB) on startup is less than desired GPU memory "
        "utilization (0.8, 95.71 GiB). Decrease GPU memory utilization",
        FailureCause.STARTUP_MEMORY_CHECK,
        "args.gpu-memory-utilization",
        "84.12 of 119.64 GiB were free at the start, and a share of 0.8 needs 95.71 GiB.",
    ),
    (
        "vllm",
        "ValueError: To serve at least one request with the models's max seq len (131072), (6.12 GiB KV cache is needed, "
        "which is larger than the available KV cache memory (3.47 GiB). Based on the available memory, the estimated maximum "
        "model length is 74208. Try increasing",
        FailureCause.KV_CACHE_TOO_SMALL,
        "args.max-model-len",
        "131072 needs 6.12 GiB",
    ),
    (
        "vllm",
        "ValueError: To serve at least one request with the model's max seq len (131072), 6.12 GiB KV cache is needed, "
        "which is larger than the available KV cache memory (3.47 GiB). Try increasing",
        FailureCause.KV_CACHE_TOO_SMALL,
        "args.max-model-len",
        "3.47 GiB is available",
    ),
    (
        "vllm",
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`",
        FailureCause.KV_CACHE_TOO_SMALL,
        "args.gpu-memory-utilization",
        "no room",
    ),
    (
        "vllm",
        "AssertionError: Error in memory profiling. Initial free memory 96.11 GiB, current free memory 97.80 GiB. This",
        FailureCause.MEMORY_CHANGED_DURING_START,
        None,
        "96.11 GiB",
    ),
    (
        "vllm",
        "RuntimeError: CUDA out of memory occurred when warming up sampler with 256 dummy requests. Please",
        FailureCause.CUDA_OUT_OF_MEMORY,
        "args.max-num-seqs",
        "256",
    ),
    (
        "vllm",
        "NotImplementedError: Unsupported speculative method: 'mtp'",
        FailureCause.BAD_VALUE,
        "args.speculative-config",
        "mtp",
    ),
    (
        "vllm",
        "ERROR 11-20 15:53:02 [core_client.py:667] Engine core proc EngineCore died unexpectedly, shutting down client.",
        FailureCause.WORKER_LOST,
        "args.gpu-memory-utilization",
        "EngineCore",
    ),
    (
        "vllm",
        "WARNING 11-20 15:53:02 [core_client.py:1] [shutdown] MPClient: engine core exited unexpectedly; starting cleanup",
        FailureCause.WORKER_LOST,
        "args.gpu-memory-utilization",
        "The engine core died",
    ),
    ("vllm", "OSError: [Errno 98] Address already in use", FailureCause.PORT_IN_USE, "port", "in use"),
    (
        "vllm",
        "2026-11-22 06:13:36,482 ERR scripts.py:1121 -- Some Ray subprocesses exited unexpectedly:",
        FailureCause.RAY,
        None,
        "Ray ended on this node",
    ),
    (
        "vllm",
        "huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' or 'namespace/repo_name': "
        "'/models/x'. Use",
        FailureCause.MODEL_NOT_FOUND,
        "model.path",
        "/models/x",
    ),
    (
        "vllm",
        "OSError: We couldn't connect to 'https://huggingface.co' to load the files",
        FailureCause.HUB_UNREACHABLE,
        "model.path",
        "https://huggingface.co",
    ),
    (
        "vllm",
        "huggingface_hub.errors.GatedRepoError: 401 Client Error.",
        FailureCause.MODEL_GATED,
        "env.HF_TOKEN",
        "hub",
    ),
    (
        "vllm",
        "RuntimeError: Cannot find any model weights with `/models/x`",
        FailureCause.MODEL_FILES,
        "model.path",
        "/models/x",
    ),
    (
        "vllm",
        "AssertionError: Tried to load weights of size torch.Size([6144, 30720])to a parameter of size torch.Size([6144, 18432])",
        FailureCause.MODEL_FILES,
        "model.path",
        "[6144, 30720] in place of [6144, 18432]",
    ),
    (
        "vllm",
        "RuntimeError: size mismatch for model.fc.weight: copying a param with shape torch.Size([2, 4]) from checkpoint, the shape "
        "in current model is torch.Size([4, 4]).",
        FailureCause.MODEL_FILES,
        "model.path",
        "model.fc.weight",
    ),
    (
        "vllm",
        "ValueError: The number of required TPUs exceeds the total number of available TPUs in the placement group.",
        FailureCause.RAY,
        None,
        "Ray",
    ),
    (
        "vllm",
        "ValueError: The number of required GPUs exceeds the total number of available GPUs in the cluster.",  # vllm#4655
        FailureCause.RAY,
        None,
        "Ray",
    ),
    (
        "vllm",
        "RuntimeError: The NVIDIA driver on your system is too old (found version 12080).",
        FailureCause.DRIVER_MISMATCH,
        "image",
        "driver",
    ),
    (
        "vllm",
        "torch.AcceleratorError: CUDA error: no kernel image is available for execution on the device",
        FailureCause.KERNEL_UNSUPPORTED,
        "image",
        "GB10",
    ),
    (
        "vllm",
        "ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'",
        FailureCause.KERNEL_UNSUPPORTED,
        "env.TRITON_PTXAS_PATH",
        "sm_121a",
    ),
    ("container", "exec /usr/bin/python3: exec format error", FailureCause.IMAGE_ARCH, "image", "arm64"),
    (
        "container",
        "0.00.1 E srv start: couldn't bind HTTP server socket, hostname: H, port: 8",
        FailureCause.PORT_IN_USE,
        "port",
        "use",
    ),
    ("container", "OSError: [Errno 28] No space left on device", FailureCause.DISK_FULL, "container.shm_size", "full"),
    ("container", "KeyError: 'voice'", FailureCause.CRASHED, None, "KeyError: 'voice'"),
]


@pytest.mark.parametrize(("engine", "line", "cause", "field", "says"), ONE_LINE, ids=[row[1][:50] for row in ONE_LINE])
def test_one_line_names_cause_and_field(
    engine: str, line: str, cause: FailureCause, field: str | None, says: str
) -> None:
    root = read_engine_log(engine, line).root
    assert (root.cause, root.field) == (cause, field)
    assert says in root.summary
    assert "(not said)" not in root.summary + root.remedy


def test_the_useful_half_of_a_validation_error_is_its_second() -> None:
    log = """\
(APIServer pid=5) pydantic_core._pydantic_core.ValidationError: 1 validation error for SpeculativeConfig
(APIServer pid=5) method
(APIServer pid=5)   Input should be 'ngram', 'eagle' or 'mtp' [type=literal_error, input_value='howl', input_type=str]
(APIServer pid=5)     For further information visit https://errors.pydantic.dev/2.14/v/literal_error
"""
    root = read_engine_log("vllm", log).root
    assert (root.cause, root.field) == (FailureCause.BAD_VALUE, "args.speculative-config")
    assert "'ngram', 'eagle' or 'mtp' (given: 'howl')" in root.summary


def test_a_context_beyond_the_model_names_its_limit() -> None:
    log = """\
pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig
  Value error, User-specified max_model_len (131072) is greater than the derived max_model_len \
(max_position_embeddings=8192.0 or model_max_length=None in model's config.json). [type=value_error, input_value=A]
    For further information visit https://errors.pydantic.dev/2.14/v/value_error
"""
    root = read_engine_log("vllm", log).root
    assert root.field == "args.max-model-len"
    assert root.remedy == "Lower args.max-model-len to 8192 or less."


def test_a_stop_that_was_asked_for_is_no_crash() -> None:
    line = "[2026-06-03 09:14:19] Subprocess detokenizer (pid=9) crashed with exit code -15. Triggering SIGQUIT for cleanup..."
    root = read_engine_log("sglang", line).root
    assert (root.cause, root.fatal) == (FailureCause.STOPPED_BY_OTHERS, False)


def test_a_killed_core_outweighs_an_earlier_bad_request() -> None:
    log = """\
vllm.exceptions.VLLMValidationError: max_tokens=999999 cannot be greater than max_model_len=2048.
(APIServer pid=1) ERROR 11-20 15:53:02 [core_client.py:667] Engine core proc EngineCore died unexpectedly, shutting down client.
vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.
"""
    assert read_engine_log("vllm", log).root.cause is FailureCause.WORKER_LOST
