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
_SETTINGS = (
    "[2026-05-02 10:13:09] server_args=ServerArgs(model_path='/m', attention_backend='triton', speculative_algorithm="
)
_NONE_AND_INT = "TypeError: '>' not supported between instances of 'NoneType' and 'int'"
_FRACTION, _KV_FRACTION = "args.mem-fraction-static", "args.kv_cache_free_gpu_memory_fraction"

DEATHS = [
    (
        "ollama.service: A process of this unit has been killed by the OOM killer.",
        FailureCause.HOST_OOM_KILL,
        None,
        "a process of ollama.service",
    ),
    ("llm@1.service: Failed with result 'oom-kill'.", FailureCause.HOST_OOM_KILL, None, "a process of llm@1.service"),
    (
        "RuntimeError: fp8 tensor core is not supported in fa2 backend",
        FailureCause.ATTENTION_BACKEND,
        "args.attention-backend",
        "in fa2 backend",
    ),
    (
        "ValueError: Some modules are dispatched on the CPU or the disk. Make sure you have enough GPU RAM to fit the quantized model.",
        FailureCause.WEIGHTS_DO_NOT_FIT,
        None,
        "a part of the model",
    ),
    (
        "ValueError: The current `device_map` had weights offloaded to the disk. Please provide an `offload_folder` for them.",
        FailureCause.WEIGHTS_DO_NOT_FIT,
        None,
        "a part of the model",
    ),
    (
        "text_generation_launcher: Shard process was signaled to shutdown with signal 9 rank=0",
        FailureCause.KILLED,
        None,
        "SIGKILL",
    ),
    (
        "ValueError: Head size 80 is not supported by FlashInfer. Supported head sizes are: [64, 128, 256].",
        FailureCause.ATTENTION_BACKEND,
        "args.attention-backend",
        "Head size 80",
    ),
    ("ValueError: Unsupported kv_cache_dtype: fp4_e2m1.", FailureCause.BAD_VALUE, None, "kv_cache_dtype"),
    ("ValueError: Sleep mode is not supported on current platform.", FailureCause.BAD_VALUE, None, "Sleep mode"),
    ("ImportError: NIXL is not available", FailureCause.BROKEN_IMAGE, "image", "NIXL"),
    (
        "There are not enough slots available in the system to satisfy the 2\nslots that were requested by the application:",
        FailureCause.BAD_VALUE,
        "command",
        "2 ranks",
    ),
    ("mpirun has detected an attempt to run as root.", FailureCause.BAD_VALUE, "command", "root"),
    (
        "[1700000000.123456] [spark1:77   :0]          ib_device.c:500  UCX  ERROR ibv_create_ah failed: Connection timed out",
        FailureCause.NCCL,
        None,
        "ibv_create_ah",
    ),
    (
        "error: failed to get manifest at https://huggingface.co/v2/a/b/manifests/latest: x",
        FailureCause.HUB_UNREACHABLE,
        "model.path",
        "huggingface.co",
    ),
    (
        "ValueError: LoRA rank 64 is greater than max_lora_rank 16.",
        FailureCause.BAD_VALUE,
        "args.max-lora-rank",
        "LoRA rank 64",
    ),
    ("AssertionError: page_size must be 64 for trtllm_mla backend", FailureCause.BAD_VALUE, None, "page_size"),
    (
        "ImportError: Using `tokenizers` requires sentencepiece. You need to install sentencepiece to convert slow tokenizers",
        FailureCause.BROKEN_IMAGE,
        "image",
        "sentencepiece",
    ),
    ("RuntimeError: espeak not installed on your system", FailureCause.BROKEN_IMAGE, "image", "espeak"),
    (
        'RuntimeError: Form data requires "python-multipart" to be installed. ',
        FailureCause.BROKEN_IMAGE,
        "image",
        "python-multipart",
    ),
    ("RuntimeError: Could not load libtorchcodec. Likely causes:", FailureCause.BROKEN_IMAGE, "image", "libtorchcodec"),
    (
        "ImportError: \n[sgl_kernel] CRITICAL: Could not load any common_ops library!\n\nAttempted locations:",
        FailureCause.BROKEN_IMAGE,
        "image",
        "sgl_kernel",
    ),
    (
        "OSError: [E050] Can't find model 'en_core_web_sm'. It doesn't seem to be a Python package",
        FailureCause.BROKEN_IMAGE,
        "image",
        "en_core_web_sm",
    ),
    (
        'ERROR:    Error loading ASGI app. Could not import module "main".',
        FailureCause.BAD_VALUE,
        "command",
        'module "main"',
    ),
    (
        "Error: pull model manifest: 412: \n\nThe model you are attempting to pull requires a newer version of Ollama.",
        FailureCause.MODEL_UNSUPPORTED,
        "image",
        "Ollama",
    ),
    (
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. Container vllm was using 110Gi, "
        "request is 0.",
        FailureCause.HOST_MEMORY,
        None,
        "110Gi",
    ),
    (
        "/usr/bin/python3: /lib/aarch64-linux-gnu/libc.so.6: version `GLIBC_2.38' not found (required by /usr/lib/libfoo.so)",
        FailureCause.BROKEN_IMAGE,
        "image",
        "GLIBC_2.38",
    ),
    (
        "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
        FailureCause.CRASHED,
        None,
        "should be JSON",
    ),
    ("AssertionError: Unsupported cuda arch sm121", FailureCause.KERNEL_UNSUPPORTED, "image", "sm121"),
    # In the shape of text-embeddings-inference's logger; the words of backends/candle/src/lib.rs.
    (
        "2026-07-24T10:00:02.123456Z ERROR text_embeddings_backend: backends/src/lib.rs:567: Could not start Candle backend: "
        "Could not start backend: Runtime compute cap 121 is not compatible with compile time compute cap 90",
        FailureCause.KERNEL_UNSUPPORTED,
        "image",
        "built for GPUs of sm_90",
    ),
    # The kernel's own log, as dmesg and the journal print it.
    (
        "[  100.0] mlx5_core 0000:01:00.0: mlx5_cmd_out_err:808:(pid 1): CREATE_MKEY(0x200) op_mod(0x0) failed, err(-12)",
        FailureCause.NCCL,
        None,
        "RDMA could not register memory",
    ),
    (
        "[  101.0] nvme nvme0: I/O tag 12 (100c) opcode 0x2 (I/O Cmd) QID 3 timeout, aborting req_op:READ(0) size:131072",
        FailureCause.CRASHED,
        None,
        "the drive nvme0 did not answer",
    ),
    (
        "[  102.0] Unable to handle kernel NULL pointer dereference at virtual address 0010\n"
        "[  102.1] pc : mt7925_mac_add_txs+0x1c/0x80 [mt7925_common]",
        FailureCause.CRASHED,
        None,
        "Wi-Fi driver (mt7925) crashed",
    ),
    (
        "Nov 28 08:20:34 spark-1 kernel: mlx5_core 0000:41:00.1: temp_warn:170:(pid 0): High temperature on sensors with bit set 0 1",
        FailureCause.NCCL,
        None,
        "0000:41:00.1 is too hot",
    ),
    (
        "[ 9.1] NVRM: krcWatchdog_IMPL: RC watchdog: GPU is probably locked!  Notify Timeout Seconds: 7",
        FailureCause.GPU_FAULT,
        None,
        "watchdog",
    ),
    # A directory's name (jit/) says nothing; what is asserted does.
    (
        "RuntimeError: Failed: Assertion error /w/deepgemm-src/csrc/apis/../jit/device_runtime.hpp:60 'arch_major == 9 or arch_major == 10'",
        FailureCause.KERNEL_UNSUPPORTED,
        "image",
        "asks for arch_major == 9 or arch_major == 10",
    ),
    (
        "RuntimeError: nvrtc: error: invalid value for --gpu-architecture (-arch)",
        FailureCause.KERNEL_UNSUPPORTED,
        "image",
        "compiler is older",
    ),
    (
        "RuntimeError: cuDNN error: CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH",
        FailureCause.KERNEL_UNSUPPORTED,
        "image",
        "ARCH_MISMATCH",
    ),
    (
        "RuntimeError: This kernel requires at least 227 KB of shared memory per block but the device supports 99 KB",
        FailureCause.KERNEL_UNSUPPORTED,
        "args.attention-backend",
        "needs 227 KB",
    ),
    (
        "RuntimeError: Tensor Memory Accelerator multicast not available on this architecture (sm_121)",
        FailureCause.KERNEL_UNSUPPORTED,
        "image",
        "Accelerator multicast not available",
    ),
    (
        "AssertionError: Draft model hidden size (4096) must match target hidden size (5120) for EAGLE3",
        FailureCause.DRAFT_MISMATCH,
        None,
        "hidden size (4096)",
    ),
    (
        "terminate called after throwing an instance of 'c10::DistBackendError'\n  what():  [PG ID 2 PG GUID 3 Rank 1] Process group watchdog "
        "thread terminated with exception: NCCL communicator was aborted on rank 1.",
        FailureCause.NCCL,
        None,
        "stopped on rank 1",
    ),
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
    (
        "ollama : Error: listen tcp 127.0.0.1:11434: bind: Only one usage of each socket address (protocol/network ",  # 90678asdfg/rag
        FailureCause.PORT_IN_USE,
        "port",
        "in use",
    ),
    ("start_server: failed to bind: Address already in use", FailureCause.PORT_IN_USE, "port", "in use"),
    ("Error: listen tcp :80: bind: permission denied", FailureCause.PERMISSION, "port", ":80"),
    (
        "cp: cannot create regular file '/app/x.css': Permission denied",
        FailureCause.PERMISSION,
        "mounts",
        "is refused access: cannot create regular file '/app/x.css': Permission denied.",
    ),
    (
        "PermissionError: [Errno 13] Permission denied: '/root/.cache'",
        FailureCause.PERMISSION,
        "mounts",
        "is refused access to /root/.cache: Permission denied.",
    ),
    ("Error: Permission denied (os error 13)", FailureCause.PERMISSION, "mounts", "is refused access."),
    (
        "TimeoutError: timed out waiting for '[pflash-daemon] ready'; tail=['x']",  # noonghunna/club-3090
        FailureCause.TIMED_OUT,
        None,
        "pflash-daemon",
    ),
    ("ERROR: server did not become ready within 600 seconds", FailureCause.TIMED_OUT, None, "600 seconds"),
    ("RuntimeError: vLLM server did not start in 300s", FailureCause.TIMED_OUT, None, "300s"),
    (
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:525] Read error [172.26.161.177]:50407: Connection reset by peer",
        FailureCause.WORKER_LOST,
        None,
        "reset by peer",
    ),
    ("httpx.ConnectError: All connection attempts failed", FailureCause.WORKER_LOST, None, "does not listen"),
    (
        "requests.exceptions.ConnectionError: HTTPConnectionPool(host='localhost', port=8000): Max retries exceeded with url: /v1/models",
        FailureCause.WORKER_LOST,
        None,
        "port=8000",
    ),
    ("/entrypoint.sh: line 12: MODEL: unbound variable", FailureCause.BAD_VALUE, "env.MODEL", "MODEL"),
    ("ValueError: no CUDA-capable device found", FailureCause.GPU_RUNTIME_MISSING, "container.gpus", "no GPU"),
    ("error: unknown argument: --flash-attn2", FailureCause.UNKNOWN_FLAG, "args.flash-attn2", "flash-attn2"),
    ("error: the argument '--x <X>' cannot be used with '--y <Y>'", FailureCause.BAD_VALUE, "args", "--x"),
    (
        "slurmstepd: error: Detected 1 oom_kill event in StepId=954640.0. Some of the step tasks have been OOM Killed.",
        FailureCause.HOST_OOM_KILL,
        None,
        "StepId=954640.0",
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
    ("program", "remedy"),
    [("/app/ComfyUI/main.py", "Build its image again with what"), ("/opt/vllm/__init__.py", "Take another tag of")],
)
def test_a_program_of_ones_own_is_built_again_with_the_module_that_it_lacks(program: str, remedy: str) -> None:
    log = f'Traceback (most recent call last):\n  File "{program}", line 3, in <module>\n    import torchsde\n'
    verdict = _diagnose_paste(f"{log}ModuleNotFoundError: No module named 'torchsde'").verdict
    assert verdict is not None
    assert verdict.remedy.startswith(remedy)


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


def test_what_the_gpu_does_not_have_is_told_by_llama_server_as_by_others() -> None:
    line = "1.22.756.113 E CUDA error: the requested functionality is not supported"  # cuBLAS in ggml_cuda_mul_mat
    verdict = _diagnose_paste(line, "llamacpp").verdict
    assert verdict is not None
    assert verdict.cause is FailureCause.KERNEL_UNSUPPORTED


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
        ("AssertionError: Torch not compiled with XPU enabled", FailureCause.BROKEN_IMAGE),
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


_GH = "https://github.com/"
# Lines of logs that their owners posted, each with where.
POSTED = [
    (
        "2025-06-11 11:01:08    error stdout RuntimeError: CUDA error: device-side assert triggered",
        FailureCause.GPU_FAULT,
        f"{_GH}resemble-ai/chatterbox/issues/148",
    ),
    (
        " [rank3]:[E227 16:30:43.526306740 ProcessGroupNCCL.cpp:630] [Rank 3] Some NCCL operations have failed or timed out. Due to the "
        "asynchronous nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete data.",
        FailureCause.NCCL,
        f"{_GH}sgl-project/sglang/issues/3932",
    ),
    (
        "RuntimeError: Check failed: (lib_handle_ != nullptr) is false: Failed to load dynamic shared library "
        "/home/ray/anaconda3/lib/python3.11/site-packages/deep_gemm/_C.so libn",
        FailureCause.BROKEN_IMAGE,
        f"{_GH}sgl-project/sglang/issues/25069",
    ),
    (
        "  Device 0: NVIDIA GB10, compute capability 12.1, VMM: yes\nSegmentation fault (core dumped)",
        FailureCause.CRASHED,
        f"{_GH}geerlingguy/beowulf-ai-cluster/issues/15",
    ),
    (
        "(EngineCore pid=1632893) TypeError: type 'array.array' is not subscriptable",
        FailureCause.BROKEN_IMAGE,
        f"{_GH}phivan3008/meeting-translator/blob/HEAD/vllm_serve.log",
    ),
    (
        "RuntimeError: Tried to instantiate class '_core_C.ScalarType', but it does not exist! Ensure that it is registered via torch::class_",
        FailureCause.BROKEN_IMAGE,
        f"{_GH}apollo-mg/Project-Apollo/blob/HEAD/vllm_server.log",
    ),
    (
        "(EngineCore pid=274) ERROR 06-13 20:09:13 [core.py:1167] RuntimeError: Worker failed with error 'Check failed: (status == "
        "cudaSuccess) is false: BatchPrefillWithPagedKVCache failed with error invalid argument', please check the stack trace above "
        "for the root cause",
        FailureCause.GPU_FAULT,
        f"{_GH}trietnguyeminh/Submission---EXACT--IJCNN/blob/HEAD/vllm_server.log",
    ),
    (
        "llama_model_loader: loaded meta data with 26 key-value pairs and 579 tensors from /m\n ROCm error: unspecified launch failure",
        FailureCause.GPU_FAULT,
        f"{_GH}apollo-mg/Project-Apollo/blob/HEAD/llama_server.log",
    ),
    (
        "(APIServer pid=1939745) INFO:     Application startup complete.\n"
        "slurmstepd: error: *** JOB 6753 ON gpuh04 CANCELLED AT 2026-01-07T10:29:37 DUE TO TIME LIMIT ***",
        FailureCause.STOPPED_BY_OTHERS,
        f"{_GH}Zzsf11/VideoCuttingAgent/blob/HEAD/output/Qwen3VL_vllm-server.out",
    ),
    (
        "[2026-07-26 10:13:09] server_args=ServerArgs(model_path='/m', speculative_algorithm='DSPARK')\n"
        "ValueError: DSpark could not resolve speculative_num_draft_tokens; set --speculative-dspark-block-size (= gamma).",
        FailureCause.DRAFT_MISMATCH,
        f"{_GH}sgl-project/sglang/blob/main/python/sglang/srt/server_args.py",
    ),
    (
        'Error: unsupported architecture "Mistral3ForConditionalGeneration"',
        FailureCause.MODEL_UNSUPPORTED,
        f"{_GH}ollama/ollama/blob/main/convert/convert.go",
    ),
    (
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (308x2048 and 768x320)",
        FailureCause.CRASHED,
        f"{_GH}city96/SD-Latent-Interposer/issues/2",
    ),
    (
        "ValueError: Invalid token id 131072.",
        FailureCause.CRASHED,
        f"{_GH}huggingface/transformers/blob/main/src/transformers/tokenization_mistral_common.py",
    ),
    (
        "ValueError: You must specify exactly one of input_ids or inputs_embeds",
        FailureCause.CRASHED,
        f"{_GH}huggingface/transformers/blob/main/src/transformers/models/llama/modeling_llama.py",
    ),
    (
        "RuntimeError: Assertion error (csrc/apis/layout.hpp:60): Unknown SF transformation",
        FailureCause.KERNEL_UNSUPPORTED,
        f"{_GH}deepseek-ai/DeepGEMM/pull/403",
    ),
    (
        "RuntimeError: Failed: Assertion error csrc/utils/layout.hpp:57 'Unknown recipe'",
        FailureCause.KERNEL_UNSUPPORTED,
        f"{_GH}vllm-project/vllm/pull/21533",
    ),
    (
        "    return pwd.getpwuid(os.getuid())[0]\nKeyError: 'getpwuid(): uid not found: 1000910000'",
        FailureCause.PERMISSION,
        f"{_GH}vllm-project/vllm/issues/44548",
    ),
    (
        "AssertionError: libcudart.so is not loaded in the current process",
        FailureCause.BROKEN_IMAGE,
        f"{_GH}vllm-project/vllm/issues/7588",
    ),
    (
        "NVIDIA modifications are covered by the license terms that apply to the underlying\nproject or file.\n"
        "ERROR: No supported GPU(s) detected to run this container",
        FailureCause.GPU_RUNTIME_MISSING,
        f"{_GH}triton-inference-server/server/issues/135",
    ),
    (
        "Error: Invalid configuration : NUM_MMA_Q=2 NUM_MMA_D_QK=2 NUM_MMA_D_VO=2 NUM_MMA_KV=4 NUM_WARPS_Q=4 ",
        FailureCause.ATTENTION_BACKEND,
        f"{_GH}flashinfer-ai/flashinfer/issues/1048",
    ),
    (
        '  File "/home/user/.local/lib/python3.9/site-packages/pynvml/nvml.py", line 1744, in wrapper\n    return res.decode()\n'
        "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xf8 in position 0: invalid start byte",
        FailureCause.GPU_RUNTIME_MISSING,
        f"{_GH}gpuopenanalytics/pynvml/issues/53",
    ),
]


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        # SGLang passes on what FlashInfer says; vLLM and flash-attn for attention sinks; TensorRT-LLM's own check
        (
            "Exception: Capture cuda graph failed: Error in function 'PrefillPlan' at /f/scheduler.cuh:551: Unsupported head_dim: 80",
            FailureCause.ATTENTION_BACKEND,
        ),
        ("RuntimeError: Decode failed to dispatch with dtype BFloat16, head_dim 96", FailureCause.ATTENTION_BACKEND),
        ("AssertionError: Sinks are only supported in FlashAttention 3", FailureCause.ATTENTION_BACKEND),
        ("AssertionError: Only SM 9.x, 10.x, and 11.x are supported", FailureCause.KERNEL_UNSUPPORTED),
        ("NotImplementedError: MXFP4 MoE is not supported on SM 12.1.", FailureCause.KERNEL_UNSUPPORTED),
        ("NotImplementedError: The fused MoE does not support SM120 and above.", FailureCause.KERNEL_UNSUPPORTED),
        ("Duplicate GPU detected : rank 1 and rank 0 both on CUDA device f000", FailureCause.NCCL),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'ffmpeg'", FailureCause.BROKEN_IMAGE),
        ("KeyError: 'rope_type'", FailureCause.BROKEN_IMAGE),
        (
            "json.decoder.JSONDecodeError: Expecting ',' delimiter: line 12 column 3 (char 301)",
            FailureCause.MODEL_FILES,
        ),
        (
            "error: mismatch between text model (n_embd = 5120) and mmproj (n_embd = 4096)",
            FailureCause.MODEL_FILES,
        ),
        ("main: error: the supplied chat template is not supported: x", FailureCause.BAD_VALUE),
        ("docker: Error response from daemon: unauthorized: <html>", FailureCause.IMAGE_MISSING),
        # pydantic's message without its header, which an excerpt lost
        (
            "(APIServer pid=1)   Value error, World size (2) is larger than the number of available GPUs (1) in this node. [type=value_error]",
            FailureCause.BAD_VALUE,
        ),
    ],
)
def test_a_sentence_that_a_wrapper_or_an_excerpt_passes_on_names_its_cause(line: str, cause: FailureCause) -> None:
    engine = "llamacpp" if "mmproj" in line or "chat template" in line else None
    verdict = _diagnose_paste(line, engine).verdict
    assert verdict is not None
    assert verdict.cause is cause
    assert "(not said)" not in verdict.summary + verdict.remedy


@pytest.mark.parametrize(
    ("cut", "cause"),
    [
        (
            "ValueError: Free memory on device cuda:0 (109.53/121.69 GiB) on startup is less ...",
            FailureCause.STARTUP_MEMORY_CHECK,
        ),
        ("RuntimeError: CUDA error: no kernel image is avai", FailureCause.KERNEL_UNSUPPORTED),
        ("RuntimeError: CUDA error: operation not permitted when stre[truncated]", FailureCause.ENGINE_BUG),
        ("RuntimeError: Cannot find any model weig…", FailureCause.MODEL_FILES),
        (
            "huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_na",
            FailureCause.MODEL_NOT_FOUND,
        ),
        (
            "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 131072, Hardwa",
            FailureCause.KERNEL_UNSUPPORTED,
        ),
    ],
)
def test_an_error_that_is_cut_off_is_known_by_its_first_words(cut: str, cause: FailureCause) -> None:
    start = "(EngineCore pid=7) INFO 05-01 10:00:05 [core.py:65] Initializing a V1 LLM engine (v0.11.0) with config: model='/m'\n"
    verdict = _diagnose_paste(start + cut).verdict
    assert verdict is not None
    assert verdict.cause is cause
    assert "(not said)" not in verdict.summary + verdict.remedy


@pytest.mark.parametrize(
    "line",
    [
        # what several rules may go on with, and words of a good start
        "ValueError: the manager is disabled but failed to con",
        "torch.AcceleratorError: CUDA error: an illega",
    ],
)
def test_an_error_that_is_cut_off_too_early_is_given_no_cause(line: str) -> None:
    verdict = _diagnose_paste(line).verdict
    assert verdict is not None
    assert verdict.cause is FailureCause.CRASHED


def test_a_log_of_a_good_start_may_break_off_within_any_word() -> None:
    start = "(EngineCore pid=7) INFO 05-01 10:00:05 [core.py:65] Initializing a V1 LLM engine (v0.11.0) with config: model='/m'\n"
    line = "(EngineCore pid=7) INFO 05-01 10:00:09 [gpu.py:1] Model loading took 60.1 GiB; No available memory was lost, not enough for KV"
    for end in range(40, len(line)):
        assert _diagnose_paste(start + line[:end]).verdict is None


def test_a_fault_of_another_makers_gpu_gets_no_advice_for_cuda() -> None:
    for line in (
        "RuntimeError: HIP error: an illegal memory access was encountered",
        "RuntimeError: NRT_EXEC_BAD_INPUT status_code=1002",
    ):
        verdict = _diagnose_paste(line).verdict
        assert verdict is not None
        assert verdict.cause is FailureCause.GPU_FAULT
        assert "CUDA_LAUNCH_BLOCKING" not in verdict.remedy
        assert "Xid" not in verdict.remedy


def test_who_read_json_tells_what_it_was() -> None:
    fault = "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)"
    for frame, cause in (
        ('File "/d/transformers/configuration_utils.py", line 828, in _dict_from_json_file', FailureCause.MODEL_FILES),
        ('File "/d/vllm/engine/arg_utils.py", line 8, in create_engine_config', FailureCause.CRASHED),
        ('File "/d/requests/models.py", line 971, in json', FailureCause.CRASHED),
    ):
        log = f"Traceback (most recent call last):\n  {frame}\n    return json.loads(text)\n{fault}"
        verdict = _diagnose_paste(log).verdict
        assert verdict is not None
        assert verdict.cause is cause


@pytest.mark.parametrize(
    ("paste", "cause", "source"), POSTED, ids=[row[2].rpartition("/")[2] + row[1] for row in POSTED]
)
def test_a_line_that_somebody_posted_names_its_cause(paste: str, cause: FailureCause, source: str) -> None:
    verdict = _diagnose_paste(paste).verdict
    assert verdict is not None, source
    assert verdict.cause is cause, source
    assert "(not said)" not in verdict.summary + verdict.remedy


@pytest.mark.parametrize(
    ("paste", "cause"),
    [
        # ONNX Runtime's own header, csrc/jit of DeepGEMM, CUDA's words for cudaErrorNotSupported, PyTorch for two dtypes
        (
            "[E:onnxruntime:Default, cuda_call.cc:118 CudaCall] CUDA failure 2: out of memory ; GPU=0 ; hostname=a ; line=110",
            FailureCause.CUDA_OUT_OF_MEMORY,
        ),
        (
            "RuntimeError: Failed: CUDA driver error csrc/jit/kernel_runtime.hpp:108 '301'",
            FailureCause.JIT_FAILED,
        ),
        ("RuntimeError: CUDA error: operation not supported", FailureCause.KERNEL_UNSUPPORTED),
        ("AssertionError: FlashAttention v3 Only supports SM90", FailureCause.KERNEL_UNSUPPORTED),
        ("RuntimeError: expected scalar type BFloat16 but found Half", FailureCause.BAD_VALUE),
        (
            "RuntimeError: forward: embed_token failed: expected scalar type BFloat16 but found Half",
            FailureCause.BAD_VALUE,
        ),
        ("ValueError: invalid literal for int() with base 10: 'auto'", FailureCause.BAD_VALUE),
        (
            "json.decoder.JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
            FailureCause.BAD_VALUE,
        ),
        ("AssertionError: DP adjusted local rank 1 is out of bounds.", FailureCause.BAD_VALUE),
        ("Error: accepts 1 arg(s), received 0", FailureCause.BAD_VALUE),
        ("ConnectionRefusedError: [Errno 111] Connection refused", FailureCause.WORKER_LOST),
        (
            "aiohttp.client_exceptions.ClientConnectorError: Cannot connect to host 127.0.0.1:8000 ssl:default "
            "[Connect call failed ('127.0.0.1', 8000)]",
            FailureCause.WORKER_LOST,
        ),
        (
            "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:12345",
            FailureCause.WORKER_LOST,
        ),
        ("RuntimeError: Did not receive response from front-end process within 5 minutes", FailureCause.WORKER_LOST),
        (
            "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
            FailureCause.WORKER_LOST,
        ),
        (
            "spark-1:100:200 [0] NCCL WARN socketStartConnect: Connect to 10.0.0.2<45678> failed : Connection refused",
            FailureCause.NCCL,
        ),
        (
            "[1700000000.000000] [spark-1:100  :0]       ib_device.c:1000 UCX  ERROR ibv_create_cq failed",
            FailureCause.NCCL,
        ),
        ("[spark-1:100] *** An error occurred in MPI_Init_thread", FailureCause.NCCL),
        (
            "Primary job  terminated normally, but 1 process returned\na non-zero exit code.",
            FailureCause.WORKER_LOST,
        ),
        ("socket.gaierror: [Errno -3] Temporary failure in name resolution", FailureCause.HUB_UNREACHABLE),
        ("httpx.ReadTimeout: The read operation timed out", FailureCause.HUB_UNREACHABLE),
        (
            "openai_harmony.HarmonyError: error downloading or loading vocab file: failed to download or load vocab file",
            FailureCause.HUB_UNREACHABLE,
        ),
        ("TypeError: not a string", FailureCause.MODEL_FILES),
        ("Error: invalid file magic", FailureCause.MODEL_FILES),
        ("RuntimeError: Model type foo not supported", FailureCause.MODEL_UNSUPPORTED),
        ("RuntimeError: cuda is not available", FailureCause.GPU_RUNTIME_MISSING),
        (
            'OCI runtime exec failed: exec failed: unable to start container process: exec: "nvidia-smi": executable file not found in '
            "$PATH: unknown",
            FailureCause.GPU_RUNTIME_MISSING,
        ),
        ("Failed to initialize NVML: Insufficient Permissions", FailureCause.PERMISSION),
        ("grpc: Failed to bind to address 0.0.0.0:8001", FailureCause.PORT_IN_USE),
        ("tar: model.tar: Wrote only 4096 of 10240 bytes", FailureCause.DISK_FULL),
        ("libgomp: Thread creation failed: Resource temporarily unavailable", FailureCause.DOCKER_REFUSED),
        ("/usr/bin/python3: No module named vllm.entrypoints", FailureCause.BROKEN_IMAGE),
        ("/usr/bin/python3: No module named vllm", FailureCause.BROKEN_IMAGE),
        # github.com/DartSteven/Nutify/issues/138
        (
            f"{_DAEMON}driver failed programming external connectivity on endpoint Nutify (4a): failed to bind host port "
            "0.0.0.0:8000/tcp: address already in use",
            FailureCause.PORT_IN_USE,
        ),
        (
            f"{_DAEMON}failed to bind host port for 0.0.0.0:80:172.17.0.2:80/tcp: cannot assign requested address",
            FailureCause.DOCKER_REFUSED,
        ),
        # The macros by which CUDA's samples and many programs check each call.
        (
            "GPUassert: no kernel image is available for execution on the device x.cu 44",
            FailureCause.KERNEL_UNSUPPORTED,
        ),
        ("GPUassert: an illegal memory access was encountered x.cu 44", FailureCause.GPU_FAULT),
        ("GPUassert: out of memory x.cu 44", FailureCause.CUDA_OUT_OF_MEMORY),
        ('CUDA error at x.cu:44 code=700(cudaErrorIllegalAddress) "cudaDeviceSynchronize()"', FailureCause.GPU_FAULT),
        (
            'CUDA error at x.cu:44 code=209(cudaErrorNoKernelImageForDevice) "cudaGetLastError()"',
            FailureCause.KERNEL_UNSUPPORTED,
        ),
        (
            'CUDA error at x.cu:44 code=2(cudaErrorMemoryAllocation) "cudaMalloc((void **)&d, size)"',
            FailureCause.CUDA_OUT_OF_MEMORY,
        ),
        (
            "CUDA Runtime Error at: x.cu:44\nan illegal memory access was encountered cudaDeviceSynchronize()",
            FailureCause.GPU_FAULT,
        ),
        (
            "NotImplementedError: gemm is not implemented for this GPU architecture (12, 1)",
            FailureCause.KERNEL_UNSUPPORTED,
        ),
        ("KeyError: 'sm_121'", FailureCause.KERNEL_UNSUPPORTED),
        (
            "tvm.error.InternalError: Check failed: (target_arch == 100) is false: TileLang kernel mla_decode wants sm_100a",
            FailureCause.KERNEL_UNSUPPORTED,
        ),
        (
            "RuntimeError: cuDNN Frontend error: [cudnn_frontend] Error: No valid execution plans built.",
            FailureCause.KERNEL_UNSUPPORTED,
        ),
        (
            "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling `cublasLtMatmul`",
            FailureCause.KERNEL_UNSUPPORTED,
        ),
        # docker inspect, docker ps -a
        ('[\n {\n  "State": {\n   "OOMKilled": true,\n   "ExitCode": 137\n  }\n }\n]', FailureCause.HOST_OOM_KILL),
        ('"State": {"Status": "exited", "OOMKilled": true, "ExitCode": 137}', FailureCause.HOST_OOM_KILL),
        ('{"Status":"exited","OOMKilled":false,"ExitCode":137}', FailureCause.KILLED),
        ('[\n {\n  "State": {\n   "OOMKilled": false,\n   "ExitCode": 139\n  }\n }\n]', FailureCause.CRASHED),
        (
            '4a1b   vllm:latest   "vllm serve x"   5 minutes ago   Exited (139) 4 minutes ago   vllm',
            FailureCause.CRASHED,
        ),
        ("/entrypoint.sh: line 3:    77 Segmentation fault      (core dumped) python3 -m server", FailureCause.CRASHED),
        ("Illegal instruction (core dumped)", FailureCause.BROKEN_IMAGE),
        ("terminate called after throwing an instance of 'std::runtime_error'", FailureCause.CRASHED),
        (
            "ValueError: Initial test run failed - Please make sure benchmark arguments are correctly specified. Error: Not Found",
            FailureCause.BAD_VALUE,
        ),
        # Another program passes it on.
        ("launcher: vllm exited: OSError: [Errno 28] No space left on device", FailureCause.DISK_FULL),
        # kubectl describe pod
        (
            "Events:\n  Type     Reason            Age   From               Message\n"
            "  Warning  FailedScheduling  2m    default-scheduler  0/1 nodes are available: 1 Insufficient\n"
            "nvidia.com/gpu. preemption: 0/1 nodes are available: 1 No preemption victims found",
            FailureCause.GPU_RUNTIME_MISSING,
        ),
        (
            "    State:          Waiting\n    Last State:     Terminated\n      Reason:       OOMKilled\n      Exit Code:    137",
            FailureCause.HOST_OOM_KILL,
        ),
        (
            "  Normal  Killing  2m  kubelet  Container vllm failed startup probe, will be restarted",
            FailureCause.TIMED_OUT,
        ),
        (
            '  Warning  FailedMount  3s (x8 over 1m)  kubelet  MountVolume.SetUp failed for volume "m" : hostPath type check failed',
            FailureCause.DOCKER_REFUSED,
        ),
    ],
)
def test_a_sentence_of_a_library_or_a_shell_names_its_cause(paste: str, cause: FailureCause) -> None:
    verdict = _diagnose_paste(paste).verdict
    assert verdict is not None
    assert verdict.cause is cause
    assert "(not said)" not in verdict.summary + verdict.remedy


@pytest.mark.parametrize(
    "paste",
    [
        # github.com/mudler/LocalAI/issues/4354
        "2:32AM DBG GRPC(hermes-3-llama-3.1-8b_128k-127.0.0.1:43767): stderr llm_load_tensors: tensor 'token_embd.weight' (q8_0) (and 0 "
        "others) cannot be used with preferred buffer type CPU_AARCH64, using CPU instead",
        # FlashInfer's compilation_context.py logs it as a warning, and goes on
        "Failed to get device capability: SM 12.x requires CUDA >= 12.9.",
        # the entrypoint of NVIDIA's images; a container of a GB10 works behind it
        "WARNING: Detected NVIDIA GB10 GPU, which is not yet supported in this version of the container\n"
        "ERROR: No supported GPU(s) detected to run this container",
        "(raylet) [2026-04-21 06:58:41,790 E 51 51] (raylet) file_system_monitor.cc:116: /tmp/ray/session_1 is over 95% full, available "
        "space: 387712345678; capacity: 7756000000000. Object creation will fail if spilling is required.",
        '{"Status":"running","OOMKilled":false,"ExitCode":0}',
        '4a1b   vllm:latest   "vllm serve x"   5 minutes ago   Exited (0) 4 minutes ago   vllm',
        "Could not find a tuned configuration for the fused MoE kernel. Using default config. Performance might be sub-optimal!",
        "error: XDG_RUNTIME_DIR is invalid or not set in the environment.",
        "bash: cannot set terminal process group (-1): Inappropriate ioctl for device\nbash: no job control in this shell",
        "load_backend: failed to find ggml_backend_init in /app/libggml-cuda.so",
        "============ Serving Benchmark Result ============\nSuccessful requests:                     98\n"
        "Failed requests:                         2\nBenchmark duration (s):                  5.78",
        "[c10d] The client socket cannot be initialized to connect to [spark-1]:29500 (errno: 97 - Address family not supported by "
        "protocol).",
    ],
)
def test_a_line_of_a_program_that_goes_on_is_no_failure(paste: str) -> None:
    assert _diagnose_paste(paste).verdict is None


def test_flashinfers_warning_explains_nothing_but_an_end_without_words() -> None:
    warning = "Failed to get device capability: SM 12.x requires CUDA >= 12.9."
    verdict = _diagnose_paste(f"{warning}\nRuntimeError: FlashInfer requires GPUs with sm75 or higher").verdict
    assert verdict is not None
    assert (verdict.cause, "sm75" in verdict.summary) == (FailureCause.KERNEL_UNSUPPORTED, True)
    other = _diagnose_paste(f"{warning}\nValueError: the rope is odd").verdict
    assert other is not None
    assert other.cause is FailureCause.CRASHED


def test_a_driver_and_a_library_that_do_not_belong_together_are_no_old_driver() -> None:
    for line in (
        "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling NumCudaDevices() that "
        "might have already set an error? Error 803: system has unsupported display driver / cuda driver combination",
        "CUDA error 803: system has unsupported display driver / cuda driver combination",
        "ggml_cuda_init: failed to initialize CUDA: system has unsupported display driver / cuda driver combination",
        "/src/ggml-cuda.cu:88: CUDA error: system has unsupported display driver / cuda driver combination",
        "cudaErrorSystemDriverMismatch",
    ):
        verdict = _diagnose_paste(line).verdict
        assert verdict is not None, line
        assert (verdict.cause, verdict.field) == (FailureCause.DRIVER_MISMATCH, "env.LD_LIBRARY_PATH")
        assert "--runtime nvidia" in verdict.remedy
        assert "too old for this image" not in verdict.summary


def test_an_error_of_the_gpus_memory_is_one_of_its_hardware_whoever_tells_it() -> None:
    drafts = "[2026-05-02 10:13:09] server_args=ServerArgs(model_path='/m', speculative_algorithm='EAGLE')\n"
    for line in (
        "RuntimeError: CUDA error: uncorrectable ECC error encountered",
        "CUDA_ERROR_ECC_UNCORRECTABLE",
        "NVRM: Xid (PCI:000f:01:00): 48, pid=77, name=python3, DBE",
    ):
        for log in (line, drafts + line):
            verdict = _diagnose_paste(log).verdict
            assert verdict is not None
            assert verdict.cause is FailureCause.GPU_FAULT
            assert verdict.remedy.startswith("Restart the Spark.")
            assert "image" not in verdict.remedy


@pytest.mark.parametrize(
    ("line", "quoted"),
    [
        ("ValueError: The x is 3. Please increase --max-foo to at least 17 or set VLLM_BAR=1.", "or set VLLM_BAR=1."),
        (
            "ValueError: To serve at least one request, try increasing `gpu_memory_utilization` or decreasing `max_model_len`",
            "try increasing `gpu_memory_utilization` or decreasing `max_model_len`",
        ),
        ("ValueError: Consider decreasing the batch size", "Consider decreasing the batch size"),
        ("RuntimeError: X_BASE is not writable; set it to another directory", "set it to another directory"),
        ("ValueError: some_flag expects one of ['a','b'] but got 'c'", "the setting that the message names"),
        ("AssertionError: page size must be a multiple of 64", "the setting that the message names"),
    ],
)
def test_what_a_message_says_to_do_is_the_remedy(line: str, quoted: str) -> None:
    log = f'Traceback (most recent call last):\n  File "/x.py", line 3, in f\n    a()\n{line}'
    verdict = _diagnose_paste(log, "vllm").verdict
    assert verdict is not None
    assert verdict.cause is FailureCause.BAD_VALUE
    assert quoted in verdict.remedy


@pytest.mark.parametrize(
    ("log", "engine", "version"),
    [
        ("[TensorRT-LLM] TensorRT LLM version: 1.3.0rc5", "trtllm", "1.3.0rc5"),
        ("[TensorRT-LLM] TensorRT-LLM version: 1.2.0", "trtllm", "1.2.0"),
        ("NVIDIA TensorRT LLM Release 1.3.0rc5 (build 1234)", "trtllm", "1.3.0rc5"),
        ("Successfully installed tensorrt_llm-1.3.0 torch-2.9.0\n[TRT-LLM] [I] Using LLM", "trtllm", "1.3.0"),
        ("vllm                     0.24.0", "vllm", "0.24.0"),
        ("Name: vllm\nVersion: 0.24.0\nSummary: x", "vllm", "0.24.0"),
        ("Requirement already satisfied: vllm==0.24.0 in /usr/lib (0.24.0)", "vllm", "0.24.0"),
        ("Requirement already satisfied: sglang in /usr/lib (0.5.20)", "sglang", "0.5.20"),
        ("vLLM version: 0.24.0", "vllm", "0.24.0"),
        ("SGLang version: 0.5.12", "sglang", "0.5.12"),
        ("Name: torch\nVersion: 2.9.0", "vllm", None),
        ("sglang 0.5.22", "sglang", "0.5.22"),
        (">>> import sglang; print(sglang.__version__)\n0.5.22", "sglang", "0.5.22"),
        ('$ python -c "import vllm; print(vllm.__version__)"\n0.31.0\n$ vllm serve x', "vllm", "0.31.0"),
        ('$ python -c "import torch; print(torch.__version__)"\n2.9.0', "vllm", None),
        ("$ pip --version\n0.31.0", "vllm", None),
        ("vllm 0.24.0 is loaded", "vllm", None),
    ],
)
def test_what_pip_and_an_image_print_tells_the_version(log: str, engine: str, version: str | None) -> None:
    assert _diagnose_paste(log, engine).version == version


@pytest.mark.parametrize(
    "log",
    [
        "Collecting vllm==0.28.0\nSuccessfully installed torch-2.11.0 vllm-0.28.0",
        "vllm 0.28.0",
        '$ python -c "import vllm; print(vllm.__version__)"\n0.28.0',
    ],
)
def test_a_version_tells_whose_it_is_where_nothing_else_does(log: str) -> None:
    found = _diagnose_paste(f"{log}\nTraceback (most recent call last):\nZogError: nope")
    assert (found.engine, found.version) == ("vllm", "0.28.0")


@pytest.mark.parametrize(
    "line",
    [
        "/run.sh: line 3:     7 Killed                  vllm serve /m",
        "/run.sh: line 3:     7 Killed                  python3 train.py",
        "!!!!!!! Segfault encountered !!!!!!!",
    ],
)
def test_what_every_program_may_print_gets_no_advice_for_another_engine(line: str) -> None:
    verdict = _diagnose_paste(line).verdict
    assert verdict is not None
    assert verdict.field is None
    assert "TensorRT" not in verdict.summary + verdict.remedy
    own = _diagnose_paste(line, "trtllm").verdict
    assert own is not None
    assert own.field is not None


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (
            '/opt/flashinfer/include/vec_dtypes.cuh(117): error: no suitable conversion function from "A" to "float" exists',
            'no suitable conversion function from "A" to "float" exists (vec_dtypes.cuh(117))',
        ),
        (
            "/tmp/tmp1/main.c:3:10: fatal error: stddef.h: No such file or directory",
            "lacks a part that it needs to compile kernels at the start: fatal error: stddef.h",
        ),
    ],
)
def test_the_compilers_own_error_proves_a_build_that_failed(error: str, what: str) -> None:
    log = f"RuntimeError: Ninja build failed. Ninja output:\nninja: Entering directory `/x'\n{error}\nninja: build stopped: subcommand failed."
    verdict = _diagnose_paste(log, "sglang").verdict
    assert verdict is not None
    assert (verdict.cause, verdict.evidence[0].line) == (FailureCause.JIT_FAILED, 3)
    assert what in verdict.summary


@pytest.mark.parametrize(
    ("line", "summary", "remedy"),
    [
        (
            "RuntimeError: The NVIDIA driver on your system is too old (found version 12080).",
            "the driver supports CUDA 12.8",
            "Update the node",
        ),
        ('"State": {"OOMKilled": true, "ExitCode": 137}', "by the word of Docker", "container.options.memory"),
        (
            "(raylet) file_system_monitor.cc:116: /tmp/ray is over 95% full, available space: 12582912; capacity: 67108864.",
            "(95 %, 12 MiB left)",
            "container.shm_size",
        ),
        (
            "llama_model_load: error loading model: unknown model architecture: ''",
            "The GGUF file names no architecture",
            "A newer image does not help",
        ),
        (
            'Traceback (most recent call last):\n  File "/opt/vllm/vllm/config.py", line 2543, in from_dict\n    return cls(**dict_value)\n'
            "pydantic_core._pydantic_core.ValidationError: 1 validation error for SpeculativeConfig\n  Value error, num_speculative_tokens "
            "must be provided with speculative model unless the draft model config contains an n_predict parameter. [type=value_error]",
            "an n_predict parameter.",
            "Add num_speculative_tokens to args.speculative-config",
        ),
    ],
)
def test_a_verdict_tells_what_the_line_means_and_the_step_that_helps(line: str, summary: str, remedy: str) -> None:
    verdict = _diagnose_paste(line).verdict
    assert verdict is not None
    assert summary in verdict.summary
    assert remedy in verdict.remedy


@pytest.mark.parametrize(
    ("engine", "own", "other"),
    [("vllm", "args.enforce-eager", "disable-cuda-graph"), ("sglang", "args.disable-cuda-graph", "enforce-eager")],
)
@pytest.mark.parametrize(
    "error", ["an illegal memory access was encountered", "operation not permitted when stream is capturing"]
)
def test_a_known_engine_is_told_its_own_flags_alone(engine: str, own: str, other: str, error: str) -> None:
    remedy = read_engine_log(engine, f"RuntimeError: CUDA error: {error}").root.remedy
    assert own in remedy
    assert other not in remedy
