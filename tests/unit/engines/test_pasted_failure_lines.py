"""Lines that name their cause though no other line is there: pasted alone, often before an engine has said who it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkctl.engines.base import Failure, FailureWeight, refine_failure
from sparkctl.engines.lint import LintRule
from sparkctl.logs.analyzer import LogDiagnosis
from sparkctl.logs.diagnosis import LogDiagnoser
from sparkctl.model.engine_metrics import EngineFactName
from sparkctl.model.verdict import FailureCause
from sparkctl.profiles import profile_lint
from sparkctl.profiles.profile_library import ProfileLibrary
from tests.unit.engines.engine_log_reading import read_engine_log

_DAEMON = "docker: Error response from daemon: "
_HUB = "for url: https://huggingface.co/api/models/a/b"
_WORKER = "(EngineCore pid=77) RuntimeError: Worker failed with error '"
_SETTINGS = "[2026-05-02 10:13:09] server_args=ServerArgs(model_path='/m', speculative_algorithm="
_NONE_AND_INT = "TypeError: '>' not supported between instances of 'NoneType' and 'int'"
_FRACTION, _KV_FRACTION = "args.mem-fraction-static", "args.kv_cache_free_gpu_memory_fraction"

DEATHS = [
    (
        "RuntimeError: NVFP4 is not supported on this GPU",
        FailureCause.KERNEL_UNSUPPORTED,
        "image",
        "not supported on this GPU",
    ),
    (
        "AssertionError: modelopt w4a4 requires GPU compute capability >= 8.9",
        FailureCause.KERNEL_UNSUPPORTED,
        "image",
        "compute capability",
    ),
    (
        "RuntimeError: NVFP4 weight_scale for\nlayer 'parallel_lm_head' was never loaded (still NaN)",
        FailureCause.MODEL_FILES,
        "model.path",
        "parallel_lm_head",
    ),
    (
        "ray.exceptions.RayTaskError(OutOfMemoryError): ray::Worker.load() (pid=7, ip=10.0.0.1)",
        FailureCause.CUDA_OUT_OF_MEMORY,
        None,
        "Ray task",
    ),
    (
        "ray.exceptions.RayTaskError(KeyError): ray::Worker.load() (pid=7, ip=10.0.0.1)\n"
        '  File "/x/load.py", line 3, in load\n    get()\nRuntimeError: the rope is odd',
        FailureCause.CRASHED,
        None,
        "the rope is odd",
    ),
    (
        "RuntimeError: Check failed: (false) is false: Could not construct fused moe op with the\nrequested input combination "
        "Activation: bfloat16, Weight: uint8, Output: bfloat16",
        FailureCause.KERNEL_UNSUPPORTED,
        "image",
        "fused moe op",
    ),
    (
        "ValueError: SM121 sparse-MLA has no decode kernel\nfor this shape",
        FailureCause.KERNEL_UNSUPPORTED,
        "image",
        "no decode kernel",
    ),
    ("RuntimeError: FlashInfer requires GPUs with sm75 or higher", FailureCause.KERNEL_UNSUPPORTED, "image", "sm75"),
    (
        "RuntimeError: Worker failed with error 'Failed to set the allowed dynamic\nshared memory size to 106496'",
        FailureCause.KERNEL_UNSUPPORTED,
        "args.attention-backend",
        "106496 bytes",
    ),
    (
        "AttributeError: '_OpNamespace' '_C' object has no attribute 'scaled_fp4_quant'",
        FailureCause.BROKEN_IMAGE,
        "image",
        "scaled_fp4_quant",
    ),
    (
        f"{_DAEMON}Cannot link to /redis, as it does not belong to the default network.",
        FailureCause.DOCKER_REFUSED,
        None,
        "/redis",
    ),
    (
        f"{_DAEMON}Ports are not available: exposing port TCP 0.0.0.0:8000 -> 0.0.0.0:0: listen tcp 0.0.0.0:8000: bind: access",
        FailureCause.PORT_IN_USE,
        "port",
        "0.0.0.0:8000",
    ),
    ("nvidia-container-cli: command not found", FailureCause.GPU_RUNTIME_MISSING, None, "toolkit"),
    (
        "[TRT-LLM] [E] Failed to parse the arguments for the LLM constructor: 1 validation error for TrtLlmArgs\n"
        "  Value error, max_batch_size [2048] is greater than build_config.max_batch_size [64] [type=value_error]\n"
        "    For further information visit https://errors.pydantic.dev/2.10/v/value_error",
        FailureCause.BAD_VALUE,
        None,
        "greater than build_config",
    ),
    (
        "(EngineCore pid=81) ValueError: VLLM_PORT 'tcp://10.1.2.3:8000' appears to be a URI.",
        FailureCause.BAD_VALUE,
        "env.VLLM_PORT",
        "Kubernetes",
    ),
    (
        "(APIServer pid=8) KeyError: \"tool helper: 'opanai' not found in tool_parsers\"",
        FailureCause.BAD_VALUE,
        "args.tool-call-parser",
        "opanai",
    ),
    (
        "(APIServer pid=8) KeyError: \"Reasoning parser 'super_v3' not found.\"",
        FailureCause.BAD_VALUE,
        "args.reasoning-parser",
        "super_v3",
    ),
    (
        "(EngineCore pid=108) RuntimeError: Model does not support EAGLE3 interface but aux_hidden_state_outputs was requested",
        FailureCause.ENGINE_BUG,
        "args.speculative-config",
        "hidden states",
    ),
    (
        "(EngineCore pid=108) ValueError: Selected backend AttentionBackendEnum.FLASHINFER is not valid for this configuration. "
        "Reason: ['non-causal attention not supported']",
        FailureCause.ATTENTION_BACKEND,
        "args.attention-backend",
        "backend FLASHINFER does not do",
    ),
    (
        "requests.exceptions.ReadTimeout: (ReadTimeoutError(\"HTTPSConnectionPool(host='huggingface.co', port=443): Read timed "
        "out. (read timeout=10)\"), '(Request ID: 1)')",
        FailureCause.HUB_UNREACHABLE,
        "model.path",
        "(huggingface.co)",
    ),
    (
        f"huggingface_hub.errors.HfHubHTTPError: 429 Client Error: Too Many Requests {_HUB}",
        FailureCause.HUB_UNREACHABLE,
        "env.HF_TOKEN",
        "429",
    ),
    (
        f"huggingface_hub.errors.HfHubHTTPError: 503 Server Error: Service Unavailable {_HUB}",
        FailureCause.HUB_UNREACHABLE,
        "model.path",
        "503",
    ),
    ("httpx.ConnectTimeout: timed out", FailureCause.CRASHED, None, "httpx.ConnectTimeout"),
    (
        "torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:",
        FailureCause.JIT_FAILED,
        "image",
        "BackendCompilerFailed",
    ),
    (
        f"{_WORKER}CUDA error: an illegal instruction was encountered', please check the stack trace above for the root cause",
        FailureCause.KERNEL_UNSUPPORTED,
        "image",
        "instruction",
    ),
    (
        f"{_WORKER}CUDA error: an illegal instruction was encountered",
        FailureCause.KERNEL_UNSUPPORTED,
        "image",
        "instruction",
    ),
    (
        f"{_WORKER}whatever', please check the stack trace above for the root cause",
        FailureCause.CRASHED,
        None,
        "failed: whatever",
    ),
    (
        "NotImplementedError: No compiled nvfp4 quantization kernel for CUDA device capability: 121",
        FailureCause.KERNEL_UNSUPPORTED,
        "image",
        "sm_121",
    ),
    ("RuntimeError: fused_moe: arch sm_121 unsupported", FailureCause.KERNEL_UNSUPPORTED, "image", "sm_121"),
    (
        "[TRT-LLM] [E] Failed to initialize executor on rank 0: CUDA out of memory. Tried to allocate 2.00 GiB.",
        FailureCause.CUDA_OUT_OF_MEMORY,
        _KV_FRACTION,
        "2.00 GiB",
    ),
    (
        "[TensorRT-LLM][ERROR] CUDA runtime error in ::cudaMallocAsync(ptr, n, pool, stream): out of memory (/src/b.h:86)",
        FailureCause.CUDA_OUT_OF_MEMORY,
        _KV_FRACTION,
        "CUDA ran out of memory",
    ),
    (
        "gguf_init_from_file: failed to open GGUF file /models/x.gguf",
        FailureCause.MODEL_NOT_FOUND,
        "model.path",
        "no /models/x.gguf",
    ),
    (
        "llama_model_load: error loading model: failed to open /models/x.gguf: Permission denied",
        FailureCause.PERMISSION,
        "model.path",
        "/models/x.gguf cannot",
    ),
    (
        "error while handling argument \"-fa\": error: unkown value for --flash-attn: '--port'",
        FailureCause.BAD_VALUE,
        "args.-fa",
        "--port",
    ),
    (
        f"{_SETTINGS}None)\nRank 0 scheduler is dead. Please check if there are relevant logs.\nExit code: -9\nEOFError",
        FailureCause.WORKER_LOST,
        _FRACTION,
        "killed",
    ),
    (f"{_SETTINGS}None)\n{_NONE_AND_INT}", FailureCause.CRASHED, None, "TypeError"),
    (f"{_SETTINGS}'NEXTN')\n{_NONE_AND_INT}", FailureCause.ENGINE_BUG, "args.speculative-num-draft-tokens", "half"),
    (
        f'  File "/opt/sglang/srt/server_args.py", line 3838\n{_NONE_AND_INT}',
        FailureCause.ENGINE_BUG,
        "args.speculative-num-draft-tokens",
        "half",
    ),
    (
        "write /var/lib/docker/tmp/GetImageBlob1: no space left on device",
        FailureCause.DISK_FULL,
        None,
        "/var/lib/docker/tmp",
    ),
    (
        f'{_DAEMON}Head "https://nvcr.io/v2/nvidia/x/manifests/1": unauthorized: <html>',
        FailureCause.IMAGE_MISSING,
        "image",
        "nvcr.io",
    ),
    (
        'Error response from daemon: Get "https://registry-1.docker.io/v2/": net/http: request canceled while waiting for '
        "connection",
        FailureCause.IMAGE_MISSING,
        "image",
        "request canceled",
    ),
    (
        f'{_DAEMON}failed to create task for container: runc create failed: exec: "vllm": executable file not found in $PATH: '
        "unknown.",
        FailureCause.BAD_VALUE,
        "command",
        "no program vllm.",
    ),
    ("/bin/sh: 1: vllm: not found", FailureCause.BAD_VALUE, "command", "no program vllm."),
    ("bash: line 1: vllm: command not found", FailureCause.BAD_VALUE, "command", "no program vllm."),
    (
        f'{_DAEMON}invalid mount config for type "bind": bind source path does not exist: /models/x.',
        FailureCause.MODEL_NOT_FOUND,
        "mounts",
        "no /models/x on the node",
    ),
    (
        f'{_DAEMON}invalid mount config for type "bind": bind source path does not exist: /srv/cache.',
        FailureCause.BAD_VALUE,
        "mounts",
        "no /srv/cache on the node",
    ),
    (
        f'{_DAEMON}Conflict. The container name "/x" is already in use by container "ab12". You have to remove (or rename) it.',
        FailureCause.DOCKER_REFUSED,
        None,
        "named x ",
    ),
    (
        "RuntimeError: DataLoader worker (pid 44) is killed by signal: Bus error. It is possible that dataloader's workers are out "
        "of shared memory.",
        FailureCause.DISK_FULL,
        "container.shm_size",
        "shared memory",
    ),
    ("KeyError: 'model.layers.0.mlp.experts.w13_input_scale'", FailureCause.MODEL_FILES, None, "w13_input_scale"),
    (
        "AssertionError: Attempted to load weight (torch.Size([2048])) into parameter (torch.Size([4096]))",
        FailureCause.MODEL_FILES,
        None,
        "[2048]",
    ),
    (
        "ERROR: This container was built for NVIDIA Driver Release 580.82 or later, but version 570.124 was detected and "
        "compatibility mode is UNAVAILABLE.",
        FailureCause.DRIVER_MISMATCH,
        "image",
        "580.82): the node has 570.124.",
    ),
    (
        "WARNING: The NVIDIA Driver was not detected.  GPU functionality will not be available.",
        FailureCause.GPU_RUNTIME_MISSING,
        "container.gpus",
        "no GPU",
    ),
    ("Loading the model\nKilled", FailureCause.KILLED, None, "SIGKILL"),
    ("bash: line 1:    12 Killed                  python3 -m server", FailureCause.KILLED, None, "SIGKILL"),
    (
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        FailureCause.GPU_FAULT,
        None,
        "illegal memory access",
    ),
    (
        "(EngineCore pid=77) AssertionError: spec decode is not supported.",
        FailureCause.BAD_VALUE,
        "args.speculative-config",
        "speculative",
    ),
]


def _diagnose_paste(log: str, engine: str | None = None) -> LogDiagnosis:
    found = LogDiagnoser(engine)
    for line in log.split("\n"):
        found.feed_raw_line(line)
    return found.build_diagnosis()


@pytest.mark.parametrize(("log", "cause", "field", "says"), DEATHS, ids=[row[0][-50:] for row in DEATHS])
def test_a_paste_names_its_cause_though_nobody_said_whose_it_is(
    log: str, cause: FailureCause, field: str | None, says: str
) -> None:
    verdict = _diagnose_paste(log).verdict
    assert verdict is not None
    assert (verdict.cause, verdict.field) == (cause, field)
    assert says in verdict.summary
    assert "(not said)" not in verdict.summary + verdict.remedy


@pytest.mark.parametrize(
    "line",
    [
        "Killed the request 4711 that its client left",
        "sh: 1: lsmod: not found",
        "INFO: the pool has no space left for more, 3 requests wait",
        "server unauthorized users: 0",
    ],
)
def test_words_like_these_alone_are_no_failure(line: str) -> None:
    for engine in ("vllm", "sglang", "llamacpp", "trtllm", "container"):
        assert read_engine_log(engine, line).failures == []


def test_what_an_nvidia_image_prints_first_tells_engine_and_version() -> None:
    found = _diagnose_paste(
        "\n".join(["==========", "== vLLM ==", "==========", "NVIDIA Release 25.11", "vLLM Version 0.11.0+582e4e37"])
    )
    assert (found.engine, found.version, found.verdict) == ("vllm", "0.11.0+582e4e37", None)


def test_llama_server_that_runs_out_of_cuda_memory_is_not_said_to_have_served() -> None:
    verdict = _diagnose_paste("/src/ggml-cuda.cu:88: CUDA error: out of memory", "llamacpp").verdict
    assert verdict is not None
    assert (verdict.cause, verdict.field) == (FailureCause.CUDA_OUT_OF_MEMORY, "args.ctx-size")
    assert verdict.summary == "CUDA ran out of memory."


def test_sizes_that_do_not_match_are_the_files_fault_only_while_weights_load() -> None:
    text = (
        "RuntimeError: The size of tensor a (4096) must match the size of tensor b (2048) at non-singleton dimension 0"
    )
    failure = read_engine_log("vllm", text).root
    assert failure.cause is FailureCause.MODEL_FILES
    assert refine_failure(failure, text, "weights", {}, is_serving=False) is failure
    later = refine_failure(failure, text, "graphs", {}, is_serving=False)
    assert (later.cause, later.weight, text in later.summary) == (FailureCause.CRASHED, FailureWeight.EXCEPTION, True)


def test_a_half_set_speculation_is_none_without_any_or_while_serving() -> None:
    failure: Failure = read_engine_log("sglang", _NONE_AND_INT).root
    drafts = {EngineFactName.SPECULATIVE_METHOD: "NEXTN"}
    assert refine_failure(failure, _NONE_AND_INT, None, {}, is_serving=False) is failure
    assert refine_failure(failure, _NONE_AND_INT, None, drafts, is_serving=False) is failure
    other = {EngineFactName.ATTENTION_BACKEND: "triton"}
    assert refine_failure(failure, _NONE_AND_INT, None, other, is_serving=False).cause is FailureCause.CRASHED
    assert refine_failure(failure, _NONE_AND_INT, None, drafts, is_serving=True).cause is FailureCause.CRASHED


def test_the_check_the_way_up_and_the_verdict_name_the_same_number_of_draft_tokens() -> None:
    library = ProfileLibrary(Path("/nonexistent"))
    profile = library.load_profile("qwen36-as-posted")
    checked = [one.setting for one in profile_lint.lint_profile(profile) if one.kind is LintRule.KNOWN_TRAP]
    before_the_start = [one.setting for one in profile_lint.list_start_warnings(profile, library) if one.instead]
    failure = read_engine_log("sglang", _NONE_AND_INT).root
    setting = f"{failure.field}={failure.value}"
    assert checked == before_the_start == [setting] == ["args.speculative-num-draft-tokens=20"]
    assert setting.replace("=", ": ") in failure.remedy


@pytest.mark.parametrize(
    ("line", "sizes", "field", "value"),
    [
        (_NONE_AND_INT, "speculative_num_steps=3, speculative_eagle_topk=2", "num-draft-tokens", "6"),
        (_NONE_AND_INT, "speculative_num_steps=5, speculative_eagle_topk=4", "num-draft-tokens", "20"),
        (_NONE_AND_INT, "speculative_num_steps=3, speculative_eagle_topk=None", "eagle-topk", "1"),
        (
            "TypeError: unsupported operand type(s) for *: 'NoneType' and 'int'",
            "speculative_num_steps=3, speculative_eagle_topk=None",
            "eagle-topk",
            "1",
        ),
        (_NONE_AND_INT, "page_size=1", "num-draft-tokens", "20"),
    ],
)
def test_a_half_set_speculation_is_completed_by_the_sizes_that_the_log_tells(
    line: str, sizes: str, field: str, value: str
) -> None:
    verdict = _diagnose_paste(f"{_SETTINGS}'NEXTN', {sizes}, speculative_num_draft_tokens=None)\n{line}").verdict
    assert verdict is not None
    assert verdict.edit is not None
    assert (verdict.field, verdict.edit.value) == (f"args.speculative-{field}", value)
    assert f"args.speculative-{field}: {value}, " in verdict.remedy


def test_a_banner_before_the_settings_leaves_the_half_set_speculation_what_it_is() -> None:
    verdict = _diagnose_paste(f"== SGLang ==\n{_NONE_AND_INT}").verdict
    assert verdict is not None
    assert verdict.cause is FailureCause.ENGINE_BUG


@pytest.mark.parametrize(
    ("paste", "cause"),
    [
        ("what():  CUDA out of memory. Tried to allocate 512.00 MiB.", FailureCause.CUDA_OUT_OF_MEMORY),
        ("[TM][ERROR] CUDA runtime error: out of memory /src/memory_utils.cu:32", FailureCause.CUDA_OUT_OF_MEMORY),
        ("torch.OutOfMemoryError: Allocation on device ", FailureCause.CUDA_OUT_OF_MEMORY),
        (
            "| m | 1 | UNAVAILABLE: Internal: OSError: /m does not appear to have a file named config.json. |",
            FailureCause.MODEL_FILES,
        ),
        ("safetensors_rust.SafetensorError: File does not contain tensor lm_head.weight", FailureCause.MODEL_FILES),
        ("FileNotFoundError: No .safetensors files found in /models/x", FailureCause.MODEL_FILES),
        ("httpx.ConnectError: [Errno 101] Network is unreachable", FailureCause.HUB_UNREACHABLE),
        ("OSError: [Errno 113] No route to host", FailureCause.WORKER_LOST),
        ("RuntimeError: Port 30000 is already in use. Please choose a different port.", FailureCause.PORT_IN_USE),
        ("AssertionError: Torch not compiled with CUDA enabled", FailureCause.BROKEN_IMAGE),
        ("/usr/bin/ld: cannot find -lcuda: No such file or directory", FailureCause.JIT_FAILED),
        ("RuntimeError: FlashMLA is only supported on Hopper devices", FailureCause.KERNEL_UNSUPPORTED),
        ("Error: open /root/.ollama/id_ed25519: permission denied", FailureCause.PERMISSION),
        (
            "Error response from daemon: toomanyrequests: You have reached your pull rate limit.",
            FailureCause.IMAGE_MISSING,
        ),
    ],
)
def test_a_librarys_sentence_names_the_cause_whoever_passes_it_on(paste: str, cause: FailureCause) -> None:
    verdict = _diagnose_paste(paste).verdict
    assert verdict is not None
    assert verdict.cause is cause


@pytest.mark.parametrize(
    "paste",
    [
        "(APIServer pid=1) ERROR 05-01 10:00:02 [repo_utils.py:43] Error retrieving safetensors: Repo id must be in the form "
        "'repo_name' or 'namespace/repo_name': '/models/x'. Use `repo_type` argument if needed.\n"
        "(EngineCore pid=2) INFO 05-01 10:00:09 [gpu_model_runner.py:3338] Starting to load model /models/x...",
        "[W1127 10:00:00.123456789 socket.cpp:460] [c10d] The client socket cannot be initialized to connect to [spark-1]:29500 "
        "(errno: 97 - Address family not supported by protocol).",
        "2026-05-01 10:00:00,123 - WARNING - autotuner.py:496 - flashinfer.jit: [Autotuner]: Skipping tactic <x> 14, due to failure "
        "while profiling: [TensorRT-LLM][ERROR] Assertion failed: Failed to initialize cutlass TMA WS grouped gemm.",
    ],
)
def test_a_sentence_of_a_good_start_is_no_failure(paste: str) -> None:
    assert _diagnose_paste(paste).verdict is None
