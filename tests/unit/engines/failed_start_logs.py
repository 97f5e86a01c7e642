"""Whole logs of failed starts, composed here from what the engines are known to say: how they begin, one death, its echo."""

from __future__ import annotations

from dataclasses import dataclass

from sparkctl.model.verdict import FailureCause


@dataclass(frozen=True)
class EngineDeath:
    """What kills, in the engine's words. ``where``: ``core`` (in the engine process, after the load began), ``api`` (before
    it), ``bare`` (before any of the engine's own lines)."""

    cause: FailureCause
    text: str
    field: str | None = None
    value: str | None = None
    where: str = "core"
    says: str = ""


# What a traceback quotes was never said: each of these would be a cause of its own.
_TRACEBACK = """\
Traceback (most recent call last):
  File "/usr/local/lib/python3.12/dist-packages/engine/core.py", line 88, in run
    raise RuntimeError("CUDA error: out of memory")
  File "/usr/local/lib/python3.12/dist-packages/engine/loader.py", line 12, in load
    raise OSError("[Errno 98] Address already in use")"""

_V19_CORE, _V19_API = "(EngineCore pid=77) ", "(APIServer pid=41) "


def build_vllm_log(version: str, death: EngineDeath) -> str:
    """Return the log of a vLLM that dies of this. 0.19 prefixes every line of a child, 0.32 and later only log records."""
    if death.where == "bare":
        return death.text + "\n"
    old = version.startswith("0.19")
    core, api = (_V19_CORE, _V19_API) if old else ("", "")
    head = [
        f"(APIServer pid=41) INFO 05-02 10:11:12 [utils.py:299]  ▄▄ ▄█ █     █     █ ▀▄▀▀ █  version {version}",
        "(APIServer pid=41) INFO 05-02 10:11:12 [utils.py:233] non-default args: {'model': '/models/m', 'note': 'no oom, no "
        "error: CUDA out of memory'}",
        "(APIServer pid=41) INFO 05-02 10:11:13 [model.py:549] Resolved architecture: Qwen3ForCausalLM",
    ]
    if death.where == "api":
        return "\n".join([*head, *_indent_lines(api, _TRACEBACK), *_indent_lines(api, death.text)]) + "\n"
    record = "(EngineCore pid=77) ERROR 05-02 10:13:09 [core.py:1108] "
    head += [
        f"(EngineCore pid=77) INFO 05-02 10:11:20 [core.py:105] Initializing a V1 LLM engine (v{version}) with config: "
        "model='/models/m', speculative_config=None, dtype=torch.bfloat16, max_seq_len=131072, quantization=fp8, "
        "kv_cache_dtype=auto, note='error out of memory'",
        "(EngineCore pid=77) INFO 05-02 10:11:31 [gpu_model_runner.py:3] Starting to load model /models/m...",
        f"\r{core}Loading safetensors checkpoint shards:  50% Completed | 1/2 [00:20<00:20, 20.1s/it]",
    ]
    body = [
        f"{record}EngineCore failed to start.",
        *_indent_lines(record, _TRACEBACK),
        *_indent_lines(record, death.text),
    ]
    echo = [*_indent_lines(core, _TRACEBACK), *_indent_lines(core, death.text)]
    last = [
        *_indent_lines(api, _TRACEBACK),
        f"{api}RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {{}}",
    ]
    return "\n".join([*head, *body, *echo, *last]) + "\n"


def build_sglang_log(version: str, death: EngineDeath) -> str:
    """Return the log of an SGLang that dies of this; its settings are told as ServerArgs(...) or, from 0.5.2x on, as a dict."""
    if death.where == "bare":
        return death.text + "\n"
    settings = {
        "model_path": "/models/m",
        "attention_backend": "triton",
        "disaggregation_bootstrap_port": 8998,
        "oom": 1,
    }
    result = (
        "ServerArgs(" + ", ".join(f"{key}={value!r}" for key, value in settings.items()) + ")"
        if version == "0.5.12"
        else repr(settings)
    )
    head = [f"[2026-05-02 10:11:12] server_args={result}"]
    if death.where == "api":
        return "\n".join([*head, *_TRACEBACK.split("\n"), death.text]) + "\n"
    head += [
        "[2026-05-02 10:11:15] Ignore import error when loading sglang.srt.models.x: No module named 'y'",
        "[2026-05-02 10:11:20] Load weight begin. avail mem=111.87 GB",
        "Multi-thread loading shards:  50% Completed | 1/2 [00:20<00:20, 20.1s/it]",
    ]
    first, *rest = _TRACEBACK.split("\n")
    body = [f"[2026-05-02 10:13:09] Scheduler hit an exception: {first}", *rest, death.text, ""]
    last = [
        "[2026-05-02 10:13:10] Received sigquit from a child process. It usually means the child failed.",
        "RuntimeError: Initialization failed. Please see the error messages above.",
    ]
    return "\n".join([*head, *body, *last]) + "\n"


def _indent_lines(prefix: str, text: str) -> list[str]:
    return [prefix + line for line in text.split("\n")]


_HUB = "https://huggingface.co"
_IMAGE = "nvcr.io/nvidia/vllm:99.1"

# Worded by torch, the hub, Docker, the kernel: the same in every engine.
ANY = (
    EngineDeath(
        FailureCause.HOST_MEMORY,
        "OSError: [Errno 12] Cannot allocate memory",
        says="own process",
    ),
    EngineDeath(
        FailureCause.DRAFT_MISMATCH,
        "ValueError: The draft model's vocab size 32000 and the target's 151936 do not match",
        says="32000",
    ),
    EngineDeath(
        FailureCause.BROKEN_IMAGE,
        "ImportError: libnvrtc.so.12: cannot open shared object file: No such file or directory",
        "image",
        where="api",
        says="libnvrtc.so.12",
    ),
    EngineDeath(
        FailureCause.JIT_FAILED,
        "RuntimeError: Ninja build failed. Ninja output:\nninja: build stopped: subcommand failed.",
        "image",
        says="Ninja build failed",
    ),
    EngineDeath(
        FailureCause.GPU_FAULT,
        "torch.AcceleratorError: CUDA error: device-side assert triggered",
        says="device-side assert",
    ),
    EngineDeath(
        FailureCause.KERNEL_UNSUPPORTED,
        "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 131072, Hardware limit: 101376. "
        "Reducing block sizes or `num_stages` may help.",
        "args.attention-backend",
        says="a GB10's 99 KiB",
    ),
    EngineDeath(
        FailureCause.HOST_OOM_KILL,
        "[Sat May  2 10:13:09 2026] Out of memory: Killed process 4711 (VLLM::EngineCore) total-vm:9kB, "
        "anon-rss:4100kB, file-rss:0kB",
        where="bare",
        says="4711",
    ),
    EngineDeath(
        FailureCause.HOST_OOM_KILL,
        "May 02 10:13:09 spark1 kernel: oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),global_oom,"
        "task=sglang::schedul,pid=4711,uid=0",
        where="bare",
        says="sglang::schedul",
    ),
    EngineDeath(
        FailureCause.MODEL_NOT_FOUND,
        "huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name' or "
        "'namespace/repo_name': '/models/gone'. Use `repo_type` argument if needed.",
        "model.path",
        where="api",
        says="/models/gone",
    ),
    EngineDeath(
        FailureCause.MODEL_NOT_FOUND,
        f"requests.exceptions.HTTPError: 401 Client Error: Unauthorized for url: {_HUB}/api/models/x/y\n"
        f"huggingface_hub.errors.RepositoryNotFoundError: 401 Client Error. Repository Not Found for url: {_HUB}/api/models/x/y.",
        "model.path",
        where="api",
    ),
    EngineDeath(
        FailureCause.HUB_UNREACHABLE,
        "huggingface_hub.errors.LocalEntryNotFoundError: Cannot find the requested files in the disk "
        f"cache and outgoing traffic has been disabled.\nOSError: We couldn't connect to '{_HUB}' to load the files, and "
        "couldn't find them in the cached files.",
        "model.path",
        where="api",
    ),
    EngineDeath(
        FailureCause.MODEL_GATED,
        f"requests.exceptions.HTTPError: 403 Client Error: Forbidden for url: {_HUB}/x/y/resolve/main/config."
        "json\nhuggingface_hub.errors.GatedRepoError: 403 Client Error.\nOSError: You are trying to access a gated repo.",
        "env.HF_TOKEN",
        where="api",
    ),
    EngineDeath(
        FailureCause.MODEL_FILES,
        "RuntimeError: Cannot find any model weights with `/models/m`",
        "model.path",
        says="/models/m",
    ),
    EngineDeath(
        FailureCause.MODEL_FILES,
        "ValueError: Unrecognized model in /models/m. Should have a `model_type` key in its config.json.",
        "model.path",
        where="api",
    ),
    EngineDeath(
        FailureCause.MODEL_FILES,
        "OSError: /models/m does not appear to have a file named config.json. Checkout the tree.",
        "model.path",
        where="api",
        says="config.json",
    ),
    EngineDeath(
        FailureCause.MODEL_FILES,
        "safetensors_rust.SafetensorError: Error while deserializing header: header too large",
        "model.path",
    ),
    EngineDeath(
        FailureCause.TRUNCATED_WEIGHTS,
        "safetensors_rust.SafetensorError: Error while deserializing header: MetadataIncompleteBuffer",
        "model.path",
    ),
    EngineDeath(
        FailureCause.TRUNCATED_WEIGHTS,
        "safetensors._safetensors_rust.SafetensorError: Error while deserializing header: incomplete "
        "metadata, file not fully covered",
        "model.path",
        says="not fully covered",
    ),
    EngineDeath(
        FailureCause.TRUST_REMOTE_CODE,
        "ValueError: The repository m contains custom code which must be executed to correctly load "
        "the model. You can inspect it. Please pass the argument `trust_remote_code=True`.",
        "args.trust-remote-code",
        "true",
        where="api",
    ),
    EngineDeath(
        FailureCause.MODEL_UNSUPPORTED,
        "ValueError: The checkpoint you are trying to load has model type `qwen9` but Transformers "
        "does not recognize this architecture.",
        "image",
        where="api",
        says="qwen9",
    ),
    EngineDeath(
        FailureCause.MODEL_UNSUPPORTED,
        "ValueError: Model architectures ['Qwen9ForCausalLM'] are not supported for now. Supported "
        "architectures: dict_keys([])",
        "image",
        where="api",
        says="Qwen9ForCausalLM",
    ),
    EngineDeath(
        FailureCause.IMAGE_MISSING,
        f"docker: Error response from daemon: manifest for {_IMAGE} not found: manifest unknown.",
        "image",
        where="bare",
        says=_IMAGE,
    ),
    EngineDeath(
        FailureCause.IMAGE_MISSING,
        "Error response from daemon: pull access denied for vllm-node, repository does not exist or may "
        "require 'docker login'",
        "image",
        where="bare",
        says="vllm-node",
    ),
    EngineDeath(
        FailureCause.IMAGE_ARCH, "exec /usr/local/bin/vllm: exec format error", "image", where="bare", says="arm64"
    ),
    EngineDeath(
        FailureCause.IMAGE_ARCH,
        "docker: no matching manifest for linux/arm64/v8 in the manifest list entries.",
        "image",
        where="bare",
    ),
    EngineDeath(
        FailureCause.GPU_RUNTIME_MISSING,
        'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].',
        where="bare",
    ),
    EngineDeath(
        FailureCause.GPU_RUNTIME_MISSING,
        "docker: Error response from daemon: unknown or invalid runtime name: nvidia.",
        where="bare",
    ),
    EngineDeath(FailureCause.GPU_RUNTIME_MISSING, "RuntimeError: No CUDA GPUs are available", "container.gpus"),
    EngineDeath(
        FailureCause.DRIVER_MISMATCH,
        "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=13.2, please update your "
        "driver to a newer version",
        "image",
        where="bare",
        says="cuda>=13.2",
    ),
    EngineDeath(
        FailureCause.DRIVER_MISMATCH,
        "RuntimeError: The NVIDIA driver on your system is too old (found version 12080).",
        "image",
    ),
    EngineDeath(
        FailureCause.KERNEL_UNSUPPORTED,
        "torch.AcceleratorError: CUDA error: no kernel image is available for execution on the device",
        "image",
    ),
    EngineDeath(
        FailureCause.KERNEL_UNSUPPORTED, "RuntimeError: CUDA error: an illegal instruction was encountered", "image"
    ),
    EngineDeath(
        FailureCause.KERNEL_UNSUPPORTED,
        "ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'",
        "env.TRITON_PTXAS_PATH",
        "/usr/local/cuda/bin/ptxas",
        says="sm_121a",
    ),
    EngineDeath(FailureCause.DISK_FULL, "OSError: [Errno 28] No space left on device", "container.shm_size"),
    EngineDeath(
        FailureCause.PERMISSION,
        "PermissionError: [Errno 13] Permission denied: '/root/.cache/huggingface'",
        "mounts",
        says="/root/.cache/huggingface",
    ),
    EngineDeath(FailureCause.PORT_IN_USE, "OSError: [Errno 98] Address already in use", "port", where="api"),
    EngineDeath(
        FailureCause.NCCL,
        "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/NCCLUtils.cpp:77, unhandled system error, "
        "NCCL version 2.29.7\nncclSystemError: System call failed",
    ),
    EngineDeath(
        FailureCause.NCCL,
        "[rank0]:[E502 10:13:09.1 ProcessGroupNCCL.cpp:685] [Rank 0] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=9, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600001 milliseconds",
        says="ALLREDUCE",
    ),
    EngineDeath(
        FailureCause.WORKER_LOST,
        "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined.",
        says="1 of 2",
    ),
    EngineDeath(FailureCause.CRASHED, "KeyError: 'layers.0.mlp.gate'", says="layers.0.mlp.gate"),
)

VLLM = (
    EngineDeath(
        FailureCause.STARTUP_MEMORY_CHECK,
        "ValueError: Free memory on device cuda:0 (84.12/119.64 GiB) on startup is less than desired "
        "GPU memory utilization (0.8, 95.71 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.",
        "args.gpu-memory-utilization",
        "0.70",
        says="84.12 of 119.64 GiB",
    ),
    EngineDeath(
        FailureCause.WEIGHTS_DO_NOT_FIT,
        "Available KV cache memory: -2.26 GiB\nValueError: No available memory for the cache blocks. "
        "Try increasing `gpu_memory_utilization` when initializing the engine.",
        "args.gpu-memory-utilization",
        says="2.26 GiB",
    ),
    EngineDeath(
        FailureCause.MEMORY_CHANGED_DURING_START,
        "AssertionError: Error in memory profiling. Initial free memory 96.11 GiB, current "
        "free memory 97.80 GiB. This happens when other processes sharing the same container release GPU memory.",
        says="97.80 GiB",
    ),
    EngineDeath(
        FailureCause.KV_CACHE_TOO_SMALL,
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` "
        "when initializing the engine.",
        "args.gpu-memory-utilization",
    ),
    EngineDeath(
        FailureCause.KV_CACHE_TOO_SMALL,
        "ValueError: To serve at least one request with the models's max seq len (131072), (6.12 GiB "
        "KV cache is needed, which is larger than the available KV cache memory (3.47 GiB). Based on the available memory, the "
        "estimated maximum model length is 74208. Try increasing `gpu_memory_utilization`.",
        "args.max-model-len",
        "74208",
        says="6.12 GiB",
    ),
    EngineDeath(
        FailureCause.KV_CACHE_TOO_SMALL,
        "ValueError: Cannot auto-fit max_model_len: not enough GPU memory available to serve even a single token.",
        "args.max-model-len",
    ),
    EngineDeath(
        FailureCause.CUDA_OUT_OF_MEMORY,
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.25 GiB. GPU 0 has a total "
        "capacity of 119.64 GiB of which 1.18 GiB is free.",
        "args.gpu-memory-utilization",
        says="2.25 GiB",
    ),
    EngineDeath(
        FailureCause.CUDA_OUT_OF_MEMORY,
        "torch.AcceleratorError: CUDA error: out of memory",
        "args.gpu-memory-utilization",
    ),
    EngineDeath(
        FailureCause.CUDA_OUT_OF_MEMORY,
        "RuntimeError: CUDA out of memory occurred when warming up sampler with 256 dummy requests.",
        "args.max-num-seqs",
        says="256",
    ),
    EngineDeath(
        FailureCause.UNKNOWN_FLAG,
        "vllm: error: unrecognized arguments: --enable-metrics",
        "args.enable-metrics",
        where="bare",
        says="--enable-metrics",
    ),
    EngineDeath(
        FailureCause.BAD_VALUE,
        "vllm serve: error: argument --kv-cache-dtype: invalid choice: 'fp9' (choose from 'auto')",
        "args.kv-cache-dtype",
        where="bare",
    ),
    EngineDeath(
        FailureCause.BAD_VALUE,
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for CacheConfig\n"
        "gpu_memory_utilization\n  Input should be less than or equal to 1 [type=less_than_equal, input_value=85.0, "
        "input_type=float]\n    For further information visit https://errors.pydantic.dev/2.12/v/less_than_equal",
        "args.gpu-memory-utilization",
        where="api",
        says="85.0",
    ),
    EngineDeath(
        FailureCause.BAD_VALUE,
        "NotImplementedError: Unsupported speculative method: 'mtp'",
        "args.speculative-config",
        where="api",
    ),
    EngineDeath(
        FailureCause.MODEL_UNSUPPORTED,
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig\n"
        "  Value error, Model architectures ['Qwen9ForCausalLM'] are not supported for now. [type=value_error, input_value=A]\n"
        "    For further information visit https://errors.pydantic.dev/2.12/v/value_error",
        "image",
        where="api",
    ),
    EngineDeath(
        FailureCause.ATTENTION_BACKEND,
        "ValueError: No valid attention backend found for cuda with AttentionSelectorConfig(head_size="
        "576, use_sparse=True). Reasons: {FLASHMLA: [compute capability not supported]}.",
        "args.attention-backend",
        says="FLASHMLA",
    ),
    EngineDeath(
        FailureCause.ATTENTION_BACKEND,
        "ValueError: Selected backend AttentionBackendEnum.FLASH_ATTN is not valid for this "
        "configuration. Reason: ['kv_cache_dtype not supported']",
        "args.attention-backend",
        says="FLASH_ATTN",
    ),
    EngineDeath(
        FailureCause.RAY,
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
        "env.RAY_memory_monitor_refresh_ms",
        "0",
    ),
    EngineDeath(
        FailureCause.RAY,
        "ValueError: Ray does not allocate any GPUs on the driver node.",
    ),
    EngineDeath(
        FailureCause.WEDGED,
        "TimeoutError: RPC call to sample_tokens timed out.",
        None,
        says="sample_tokens",
    ),
    EngineDeath(
        FailureCause.ENGINE_BUG, "RuntimeError: Triton Error [CUDA]: an illegal memory access was encountered", "image"
    ),
)

SGLANG = (
    EngineDeath(
        FailureCause.STARTUP_MEMORY_CHECK,
        "RuntimeError: The memory capacity is unbalanced. Some GPUs may be occupied by other "
        "processes. pre_model_load_memory=90.1",
    ),
    EngineDeath(
        FailureCause.WEIGHTS_DO_NOT_FIT,
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: "
        "mem_fraction_static=0.2",
        "args.mem-fraction-static",
        says="0.2",
    ),
    EngineDeath(
        FailureCause.WEIGHTS_DO_NOT_FIT,
        "ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static="
        "0.4. Raise --mem-fraction-static above 0.613 (minimum viable = 1 - available/pre = 0.6121).",
        "args.mem-fraction-static",
        "0.64",
        says="0.4",
    ),
    EngineDeath(
        FailureCause.KV_CACHE_TOO_SMALL,
        "Prefill out of memory. Try to lower your batch size.",
        "args.max-running-requests",
    ),
    EngineDeath(
        FailureCause.KV_CACHE_TOO_SMALL,
        "ValueError: SWA pool cap (8192 tokens, 1.2 GiB) leaves no room for the full KV pool within "
        "the available 0.9 GiB. Reduce --max-running-requests.",
        "args.max-running-requests",
        says="0.9 GiB",
    ),
    EngineDeath(
        FailureCause.DRAFT_WORKSPACE,
        "Exception: Capture draft cuda graph failed: CUDA out of memory. Tried to allocate 1.00 GiB",
        "args.mem-fraction-static",
    ),
    EngineDeath(
        FailureCause.CUDA_OUT_OF_MEMORY,
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.25 GiB. GPU 0 has a total "
        "capacity of 119.64 GiB of which 1.18 GiB is free.",
        "args.mem-fraction-static",
        says="1.18 GiB",
    ),
    EngineDeath(
        FailureCause.CUDA_OUT_OF_MEMORY,
        "Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate 1.00 GiB",
        "args.mem-fraction-static",
        says="graphs",
    ),
    EngineDeath(
        FailureCause.CUDA_OUT_OF_MEMORY, "RuntimeError: Triton Error [CUDA]: out of memory", "args.mem-fraction-static"
    ),
    EngineDeath(
        FailureCause.UNKNOWN_FLAG,
        "sglang serve: error: unrecognized arguments: --enable-prefix-caching",
        "args.enable-prefix-caching",
        where="bare",
    ),
    # its flags by the audit of forums.developer.nvidia.com/t/362200
    EngineDeath(
        FailureCause.UNKNOWN_FLAG,
        "train_drafter.py: error: unrecognized arguments: --drafter_arch lstm --use_marlin True",
        None,
        where="bare",
        says="train_drafter.py is a training script",
    ),
    EngineDeath(
        FailureCause.UNKNOWN_FLAG,
        "sglang serve: error: ambiguous option: --cuda-graph-max-bs could match --cuda-graph-max-bs-decode, "
        "--cuda-graph-max-bs-prefill",
        "args.cuda-graph-max-bs",
        where="bare",
        says="--cuda-graph-max-bs-decode",
    ),
    EngineDeath(
        FailureCause.BAD_VALUE,
        "launch_server.py: error: argument --kv-cache-dtype: invalid choice: 'fp8' (choose from 'auto')",
        "args.kv-cache-dtype",
        where="bare",
    ),
    EngineDeath(
        FailureCause.BAD_VALUE,
        "ValueError: Unknown speculative algorithm name: HOWL",
        "args.speculative-algorithm",
        where="api",
        says="HOWL",
    ),
    EngineDeath(
        FailureCause.BAD_VALUE,
        "AssertionError: --swa-full-tokens-ratio should be in range (0, 1.0].",
        "args.swa-full-tokens-ratio",
        where="api",
    ),
    EngineDeath(
        FailureCause.ATTENTION_BACKEND,
        "AssertionError: Only {'triton', 'fa4'} backends are supported on Blackwell GPUs for hybrid GDN "
        "models. Got attention_backend=flashinfer.",
        "args.attention-backend",
        says="flashinfer",
    ),
    EngineDeath(
        FailureCause.ATTENTION_BACKEND,
        "RuntimeError: EAGLE is not supported in attention backend flex_attention",
        "args.attention-backend",
    ),
    EngineDeath(
        FailureCause.ENGINE_BUG,
        'Traceback (most recent call last):\n  File "/opt/sglang/srt/server_args.py", line 3838, in check\n'
        "TypeError: '>' not supported between instances of 'NoneType' and 'int'",
        "args.speculative-num-draft-tokens",
        "20",
        where="bare",
    ),
    EngineDeath(
        FailureCause.PORT_IN_USE,
        "[2026-05-02 10:13:09] ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', "
        "30000): address already in use",
        "port",
        where="api",
    ),
    EngineDeath(
        FailureCause.WORKER_LOST,
        "[2026-05-02 10:13:09] Subprocess scheduler_0 (pid=9) crashed with exit code -9. Triggering SIGQUIT "
        "for cleanup...",
        "args.mem-fraction-static",
        says="scheduler_0",
    ),
    EngineDeath(
        FailureCause.WEDGED,
        "[2026-05-02 10:13:09] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)",
        "args.watchdog-timeout",
        says="300",
    ),
    EngineDeath(
        FailureCause.RAY,
        "ValueError: Current node has no GPU available. resource={}",
    ),
)
