"""How often `diagnose` is right about logs that owners posted: the table of ``python -m tests.tools.diagnosis_table`` has a floor."""

from __future__ import annotations

import io
from collections import Counter

import pytest

from sparkctl.commands.diagnose_file import diagnose_bytes
from sparkctl.model.verdict import FailureCause
from sparkctl.views.diagnosis_view import build_diagnosis_json
from tests.tools.diagnosis_table import JudgedLog, LabelledLog, format_table, judge_log, load_posted_logs
from tests.tools.docs.words import CAUSE_EXAMPLES


@pytest.fixture(scope="module")
def judged() -> list[JudgedLog]:
    """The posted logs with what `diagnose` says of them."""
    return [judge_log(one) for one in load_posted_logs()]


def test_posted_logs_are_read_right(judged: list[JudgedLog]) -> None:
    counts = Counter(one.judgement for one in judged)
    table = "\n".join(format_table(judged))
    assert len(judged) >= 265
    assert counts["right"] >= 0.95 * len(judged), table
    assert counts["wrong"] + counts["missed"] == 0, table
    assert counts["false alarm"] == 0, table


def test_a_log_of_a_crash_says_which_line_proves_it() -> None:
    assert [one.name for one in load_posted_logs() if "crashed" in one.right and not one.proof] == []


def test_a_right_cause_with_another_line_as_its_proof_is_vague() -> None:
    log = b'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\nFrobError: it fell over\n'
    for proof, judgement in (("FrobError: it fell over", "right"), ("Traceback (most recent call last)", "vague")):
        labelled = LabelledLog(name="mine", log=log, right=("crashed",), vague=(), source="here", proof=proof)
        assert judge_log(labelled).judgement == judgement


def test_a_certain_verdict_is_right(judged: list[JudgedLog]) -> None:
    certain = [one for one in judged if one.confidence == "certain"]
    assert len(certain) >= 60
    assert {one.judgement for one in certain} == {"right"}


# The same failures as in the posted logs in other words, of other engines and runtimes: a cause, what the proof says, and a log.
_VLLM = (
    "(APIServer pid=1) INFO 05-01 10:00:00 [utils.py:233] non-default args: {'model': '/m'}",
    "(EngineCore_DP0 pid=7) INFO 05-01 10:00:05 [core.py:65] Initializing a V1 LLM engine (v0.11.0) with config: model='/m'",
)
_VLLM_READY = (*_VLLM, "(APIServer pid=1) INFO:     Application startup complete.")
_VLLM_STATS = (
    "(APIServer pid=1) INFO 05-01 10:07:00 [loggers.py:208] Engine 000: Avg prompt throughput: {0} tokens/s, "
    "Avg generation throughput: {0} tokens/s, Running: 0 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.0%"
)
_SGLANG = (
    "[2026-05-01 10:00:00] server_args=ServerArgs(model_path='/m', tp_size=2)",
    "[2026-05-01 10:00:06 TP0] Load weight begin.",
)
_SGLANG_READY = (
    *_SGLANG,
    "[2026-05-01 10:01:03] The server is fired up and ready to roll!",
    "[2026-05-01 10:01:10 TP0] Decode batch, #running-req: 1, #token: 100, token usage: 0.01, gen throughput (token/s): 30.0, #queue-req: 0",
)
_LLAMA = (
    "build: 5255 (abc) with cc for x86_64-linux-gnu",
    "llama_model_loader: loaded meta data with 36 key-value pairs and 434 tensors from /m/a.gguf (version GGUF V3 (latest))",
)
_LLAMA_READY = (
    *_LLAMA,
    "main: server is listening on http://0.0.0.0:8080 - starting the main loop",
    "srv  update_slots: all slots are idle",
)
_CORE = "(EngineCore_DP0 pid=7) ERROR 05-01 10:05:00 [core.py:710] "
_SCHEDULER = "[2026-05-01 10:02:00 TP0] Scheduler hit an exception: "
_SELF_KILL = "[2026-05-01 10:02:01] Received sigquit from a child process. It usually means the child failed."
_FATAL_SIGNAL = "(APIServer pid=1) CRITICAL 05-01 10:05:01 [core_client.py:361] Got fatal signal from worker processes, shutting down."
_HEALTH = '(APIServer pid=1) INFO:     10.0.0.1:5 - "GET /health HTTP/1.1" 200 OK'
_RAY_DEATH = (
    "(raylet) A worker died or was killed while executing a task. Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly "
    "exits with a connection error code 2. End of file. There are some potential root causes. (1) The process is killed by SIGKILL by OOM killer"
)


def _raise(exception: str, prefix: str = "", source: str = "x()", before: str = "") -> tuple[str, ...]:
    lines = (
        "Traceback (most recent call last):",
        '  File "/a/b.py", line 7, in run',
        f"    {source}",
        *exception.split("\n"),
    )
    return tuple(f"{'' if at else before}{prefix}{line}" for at, line in enumerate(lines))


_SCRIPT_MODULE = "RuntimeError: The following operation failed in the TorchScript interpreter.\n" + "\n".join(
    _raise("{}")
)

# The router of text-embeddings-inference (Rust), as its source prints: github.com/huggingface/text-embeddings-inference.
_TEI = (
    '2026-07-24T10:00:00.123456Z  INFO text_embeddings_router: router/src/main.rs:216: Args { model_id: "BAA*/***-****-**-v1.5" }',
    "2026-07-24T10:00:01.123456Z  INFO download_artifacts: text_embeddings_core::download: core/src/download.rs:20: Starting download",
)
_TEI_BACKEND = (
    "2026-07-24T10:00:02.123456Z ERROR text_embeddings_backend: backends/src/lib.rs:567: Could not start Candle backend: "
    "Could not start backend: "
)
_TEI_END = (
    "Error: Could not create backend",
    "",
    "Caused by:",
    "    Could not start backend: Could not start a suitable backend",
)
# github.com/ollama/ollama: server/routes.go, server/sched.go.
_OLLAMA = (
    'time=2026-08-21T10:00:00.100Z level=INFO source=routes.go:1288 msg="Listening on [::]:11434 (version 0.14.2)"',
    'time=2026-08-21T10:00:00.400Z level=INFO source=types.go:121 msg="inference compute" id=GPU-1 library=cuda compute=12.1',
)
_OLLAMA_REFUSED = '[GIN] 2026/08/21 - 10:01:01 | 500 | 1.2s | 172.17.0.1 | POST     "/api/chat"'


def _ollama(error: str) -> tuple[str, ...]:
    record = 'time=2026-08-21T10:01:00.400Z level=ERROR source=sched.go:734 msg="error loading llama server" error='
    return (*_OLLAMA, f'{record}"{error}"', _OLLAMA_REFUSED)


OTHER_WORDS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    # mystous/vllm_hybrid, eval/results: a batch of prompts on eight GPUs, neo_on.log
    "ranks that lose their store after an exception of their own": (
        "crashed",
        "batch_size must be equal to batch_size_k",
        (
            *_VLLM,
            *_raise(
                "RuntimeError: batch_size must be equal to batch_size_k",
                "(Worker_TP1 pid=2008628) ERROR 05-04 22:55:59 [multiproc_executor.py:962] ",
            ),
            "(Worker_TP1 pid=2008628) INFO 05-04 22:55:59 [multiproc_executor.py:872] WorkerProc shutting down.",
            "[rank1]:[W504 22:56:00.728749225 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=100, addr=[localhost]:38180, "
            "remote=[localhost]:39071): Failed to recv, got 0 bytes. Connection was likely closed. Did the remote server shutdown or crash?",
            "Exception raised from recvBytes at /pytorch/torch/csrc/distributed/c10d/Utils.hpp:682 (most recent call first):",
        ),
    ),
    "Rust's causes, the innermost last": (
        "disk-full",
        "No space left on device",
        (
            *_TEI,
            "Error: Could not download model artifacts",
            "",
            "Caused by:",
            "    0: request error: cannot write the file",
            "    1: I/O error: No space left on device (os error 28)",
        ),
    ),
    "Rust's causes, none with a name": (
        "crashed",
        "Backend is unhealthy",
        (*_TEI, "Error: Model backend is not healthy", "", "Caused by:", "    Backend is unhealthy"),
    ),
    "Rust's causes that are no more than the error": (
        "model-files",
        "`config.json` not found",
        (*_TEI, "Error: `config.json` not found", "", "Caused by:", "    No such file or directory (os error 2)"),
    ),
    "Rust's client of the hub, refused": (
        "model-gated",
        "401",
        (
            *_TEI,
            "Error: Could not download model artifacts",
            "",
            "Caused by:",
            "    request error: HTTP status client error (401 Unauthorized) for url (https://huggingface.co/x/y/resolve/main/config.json)",
        ),
    ),
    "Rust's client without a network": (
        "hub-unreachable",
        "error sending request",
        (
            *_TEI,
            "Error: Could not download model artifacts",
            "",
            "Caused by:",
            "    request error: error sending request for url (https://huggingface.co/x/y/resolve/main/config.json)",
        ),
    ),
    "Rust's record before the end: a tensor": (
        "model-files",
        "embeddings.word_embeddings.weight",
        (*_TEI, f"{_TEI_BACKEND}cannot find tensor embeddings.word_embeddings.weight", *_TEI_END),
    ),
    "Rust's record before the end: built without CUDA": (
        "broken-image",
        "feature is not enabled",
        (*_TEI, f"{_TEI_BACKEND}`cuda` feature is not enabled", *_TEI_END),
    ),
    "Rust's record before the end: a model": (
        "model-unsupported",
        "absolute position",
        (*_TEI, f"{_TEI_BACKEND}Bert only supports absolute position embeddings", *_TEI_END),
    ),
    "a runner that is not in the image": (
        "broken-image",
        "binary not found",
        _ollama("llama-server binary not found (checked: /usr/lib/ollama/llama-server)"),
    ),
    "a runner that may not be run": (
        "permission",
        "fork/exec",
        _ollama("error starting llama-server: fork/exec /usr/lib/ollama/llama-server: permission denied "),
    ),
    "a runner that ends": (
        "crashed",
        "exit status 127",
        _ollama("llama-server process has terminated: exit status 127"),
    ),
    "a runner that is not ready in time": (
        "timed-out",
        "timed out waiting",
        _ollama("timed out waiting for llama-server to start: context deadline exceeded"),
    ),
    "a client that did not wait for the runner": (
        "none",
        "",
        _ollama("timed out waiting for llama-server to start: context canceled"),
    ),
    # github.com/BerriAI/litellm: proxy/utils.py; github.com/RobertCraigie/prisma-client-py, and what Prisma's own program prints.
    "a database that does not answer": (
        "worker-lost",
        "P1001",
        (
            "Prisma schema loaded from schema.prisma",
            'Datasource "client": PostgreSQL database "litellm", schema "public" at "db:5432"',
            "Error: P1001: Can't reach database server at `db:5432`",
            "Please make sure your database server is running at `db:5432`.",
        ),
    ),
    "an error with its advice": (
        "crashed",
        "P1000",
        (
            "Prisma schema loaded from schema.prisma",
            "Error: P1000: Authentication failed against database server, the provided database credentials for `llmproxy` are not valid.",
            "Please make sure to provide valid database credentials for the database server at the configured address.",
        ),
    ),
    "a package that is not there": (
        "broken-image",
        "prisma package",
        (
            "INFO:     Waiting for application startup.",
            *_raise(
                "Exception: Unable to connect to DB. DATABASE_URL found in environment, but prisma package not found.",
                before="ERROR:    ",
            ),
            "ERROR:    Application startup failed. Exiting.",
        ),
    ),
    "a client that was not generated": (
        "broken-image",
        "prisma generate",
        _raise(
            "RuntimeError: The Client hasn't been generated yet, you must run `prisma generate` before you can use the client."
        ),
    ),
    "a flag of a program in click": (
        "unknown-flag",
        "--configg",
        (
            "Usage: litellm [OPTIONS]",
            "Try 'litellm --help' for help.",
            "",
            "Error: No such option: --configg Did you mean --config?",
        ),
    ),
    # github.com/comfyanonymous/ComfyUI: app/frontend_management.py
    "a program that says what is not installed": (
        "broken-image",
        "comfyui-frontend-package",
        (
            "** ComfyUI startup time: 2026-10-01 10:00:00.000",
            "********** ERROR ***********",
            "",
            "comfyui-frontend-package is not installed. ",
            "",
            "Please install the updated requirements.txt file by running:",
            "/usr/bin/python3 -m pip install -r /app/requirements.txt",
            "********** ERROR **********",
        ),
    ),
    "a program that goes on without it": (
        "none",
        "",
        (
            "** ComfyUI startup time: 2026-10-01 10:00:00.000",
            "xformers is not installed.",
            "Using pytorch attention",
            *(f"   0.{at} seconds: /app/custom_nodes/n{at}" for at in range(10)),
            "Starting server",
            "To see the GUI go to: http://0.0.0.0:8188",
        ),
    ),
    # github.com/NVIDIA/TensorRT-LLM: kernels/trtllmGenKernels/fmha/fmhaKernels.h, runtime/engine.py
    "kernels that are not there": (
        "kernel-unsupported",
        "FMHA kernels",
        _raise(
            "RuntimeError: [TensorRT-LLM][ERROR] Assertion failed: FMHA kernels are not found (kernel meta info: 1 128)"
        ),
    ),
    "an engine's file that is not there": (
        "model-files",
        "rank0.engine",
        _raise("FileNotFoundError: [Errno 2] No such file or directory: '/engines/rank0.engine'"),
    ),
    "one model of many, behind a launcher": (
        "none",
        "",
        tuple(
            f"[ollama] {line}"
            for line in (
                *_ollama("llama-server process has terminated: exit status 127"),
                *(
                    f'[GIN] 2026/08/21 - 10:02:{at} | 200 | 1.2s | 172.17.0.1 | POST     "/api/chat"'
                    for at in range(10, 40)
                ),
            )
        ),
    ),
    "the same without a server": (
        "crashed",
        "exit status 2",
        (*_OLLAMA, "Error: llama-server process has terminated: exit status 2"),
    ),
    "watchdog behind loguru": (
        "wedged",
        "atchdog timeout",
        tuple(
            f"2026-05-01 10:00:00.123 | INFO     | launcher:run:10 - {line}"
            for line in (
                *_SGLANG_READY,
                "[2026-05-01 10:10:00 TP0] Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)",
            )
        ),
    ),
    "time-out behind a launcher, every second line": (
        "wedged",
        "Engine iteration timed out",
        tuple(
            said
            for line in (
                *_VLLM_READY,
                "ERROR 05-01 10:05:00 async_llm_engine.py:663] Engine iteration timed out. This should never happen!",
            )
            for said in (f"2026-05-01 10:00:00,123 - INFO - vLLM: {line}", "another service writes here, too")
        ),
    ),
    "CUDA memory behind a launcher": (
        "cuda-out-of-memory",
        "CUDA out of memory",
        tuple(
            said
            for line in (
                *_VLLM,
                *_raise("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", _CORE),
            )
            for said in (f"2026-05-01 10:00:00.000 INFO [worker-1] stdout: {line}", "another service writes here, too")
        ),
    ),
    "a traceback behind a launcher, each line": (
        "broken-image",
        "No module named 'x9'",
        tuple(
            f"2026-05-01 10:00:00,123 - INFO - vLLM: {line}"
            for line in (*_VLLM, *_raise("ModuleNotFoundError: No module named 'x9'"))
        ),
    ),
    "compose within a collector's time": (
        "kernel-unsupported",
        "op not supported",
        tuple(
            f"2026-05-01T10:00:{at:02}.123Z backend-1  | {line}"
            for at, line in enumerate(
                (
                    *_LLAMA,
                    "ggml_backend_sycl_graph_compute: error: op not supported node_1586 (FLASH_ATTN_EXT)",
                    "x.cpp:1: GGML_ASSERT(ok) failed",
                )
            )
        ),
    ),
    "dead engine, healthy server": (
        "broken-image",
        "No module named 'flash_attn'",
        (
            *_VLLM_READY,
            f"{_CORE}EngineCore hit an exception: Traceback (most recent call last):",
            *_raise("ModuleNotFoundError: No module named 'flash_attn'", _CORE)[1:],
            _FATAL_SIGNAL,
            *(_HEALTH, _VLLM_STATS.format("0.0")) * 70,
        ),
    ),
    "dead scheduler, healthy server": (
        "crashed",
        "ZeroDivisionError",
        (
            *_SGLANG_READY,
            *_raise("ZeroDivisionError: division by zero", before=_SCHEDULER),
            _SELF_KILL,
            *(_HEALTH,) * 9,
        ),
    ),
    "older engine that is dead": (
        "crashed",
        "AttributeError",
        (
            "INFO 05-01 10:00:00 api_server.py:585] vLLM API server version 0.6.4",
            "INFO:     Application startup complete.",
            *_raise("AttributeError: 'Foo' object has no attribute 'x9'", "ERROR 05-01 10:05:00 engine.py:135] "),
            "CRITICAL 05-01 10:05:01 launcher.py:99] MQLLMEngine is already dead, terminating server process",
            "INFO:     Shutting down",
        ),
    ),
    "dead engine that was started again": (
        "none",
        "",
        (
            *_VLLM_READY,
            f"{_CORE}EngineCore hit an exception: Traceback (most recent call last):",
            *_raise("ModuleNotFoundError: No module named 'outlines'", _CORE)[1:],
            _FATAL_SIGNAL,
            _VLLM_READY[-1],
            _VLLM_STATS.format("5.0"),
        ),
    ),
    "SYCL memory": (
        "cuda-out-of-memory",
        "can't allocate 4294967296 Bytes",
        (
            *_LLAMA,
            "ggml_backend_sycl_buffer_type_alloc_buffer: can't allocate 4294967296 Bytes of memory on device",
            "/app/ggml/src/ggml-sycl/common.hpp:100: SYCL error",
            "/app/ggml/src/ggml-backend.cpp:1455: GGML_ASSERT(buffer != NULL) failed",
        ),
    ),
    "HIP memory": (
        "cuda-out-of-memory",
        "ROCm error: out of memory",
        (
            *_LLAMA,
            "ROCm error: out of memory",
            "  current device: 0, in function alloc at ggml-cuda.cu:483",
            "ggml-cuda.cu:88: ROCm error",
        ),
    ),
    "Metal memory": (
        "cuda-out-of-memory",
        "8192.00 MiB",
        (
            *_LLAMA,
            "ggml_backend_metal_buffer_type_alloc_buffer: error: failed to allocate buffer, size =  8192.00 MiB",
            "GGML_ASSERT: ggml/src/ggml-backend.cpp:1455: buffer != NULL",
        ),
    ),
    "Vulkan memory while serving": (
        "cuda-out-of-memory",
        "ErrorOutOfDeviceMemory",
        (
            *_LLAMA_READY,
            "terminate called after throwing an instance of 'vk::OutOfDeviceMemoryError'",
            "  what():  vk::Device::allocateMemory: ErrorOutOfDeviceMemory",
        ),
    ),
    "Vulkan without pinned memory": (
        "none",
        "",
        (
            *_LLAMA,
            "ggml_vulkan: Failed to allocate pinned memory (vk::Device::allocateMemory: ErrorOutOfDeviceMemory)",
            *_LLAMA_READY[2:],
        ),
    ),
    "compute buffer that a second try got": (
        "none",
        "",
        (
            *_LLAMA,
            "ggml_gallocr_reserve_n: failed to allocate CUDA0 buffer of size 9437184000",
            "llama_context: compute buffer allocation failed, retrying without pipeline parallelism",
            *_LLAMA_READY[2:],
        ),
    ),
    "XPU memory": (
        "cuda-out-of-memory",
        "XPU",
        (*_VLLM, *_raise("RuntimeError: XPU out of memory. Tried to allocate 2.00 GiB.", _CORE)),
    ),
    "MPS memory": (
        "cuda-out-of-memory",
        "MPS",
        _raise("RuntimeError: MPS backend out of memory (MPS allocated: 8.00 GB, max allowed: 9 GB)."),
    ),
    "TPU memory": (
        "cuda-out-of-memory",
        "RESOURCE_EXHAUSTED",
        (
            *_VLLM,
            *_raise(
                "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Attempting to allocate 4.00G. There are 3.2G free.",
                _CORE,
            ),
        ),
    ),
    "a message that is too large": (
        "crashed",
        "Received message",
        _raise("RuntimeError: RESOURCE_EXHAUSTED: Received message larger than max (5 vs. 4)"),
    ),
    "Neuron memory": (
        "cuda-out-of-memory",
        "status=4",
        (*_VLLM, *_raise("RuntimeError: Failed to load the model status=4 message=Allocation Failure", _CORE)),
    ),
    "front end whose engine is gone": (
        "worker-lost",
        "Engine process failed to start",
        (
            *_VLLM,
            *_raise("zmq.error.Again: Resource temporarily unavailable"),
            *_raise("RuntimeError: Engine process failed to start. See stack trace."),
        ),
    ),
    "front end whose core is gone": (
        "worker-lost",
        "died unexpectedly",
        (
            *_VLLM,
            *_raise("zmq.error.ContextTerminated: Context was terminated"),
            "(APIServer pid=1) ERROR 05-01 10:05:00 [core_client.py:600] Engine core proc EngineCore_DP0 died unexpectedly, shutting down client.",
        ),
    ),
    "a port of ZeroMQ": (
        "port-in-use",
        "already in use",
        (*_VLLM, *_raise("zmq.error.ZMQError: Address already in use (addr='tcp://127.0.0.1:5555')")),
    ),
    "rsyslog, a library that was not built": (
        "jit-failed",
        "file too short",
        (
            *(
                f"May  1 10:00:00 spark vllm[7]: #033[1;36m(Worker_TP1 pid=9)#033[0;0m {line}"
                for line in (
                    "ERROR 05-01 10:05:00 [multiproc_executor.py:600] WorkerProc hit an exception.",
                    *_raise(
                        "OSError: /root/.cache/flashinfer/0.3.1/121a/cached_ops/sampling/sampling.so: file too short"
                    ),
                )
            ),
            "May  1 10:00:00 spark vllm[7]: /run.sh: line 2: 139935 Killed                  vllm serve /m",
        ),
    ),
    "an exception before its own kill": (
        "crashed",
        "KeyError",
        (
            *_VLLM,
            *_raise("KeyError: 'foo.bar'", "(Worker_TP1 pid=9) ERROR 05-01 10:05:00 [multiproc_executor.py:600] "),
            _FATAL_SIGNAL,
            "Killed",
        ),
    ),
    "killed without a word": (
        "killed",
        "Killed",
        (*_VLLM, "/run.sh: line 3:     7 Killed                  vllm serve /m"),
    ),
    "Triton's assertion": (
        "gpu-fault",
        "Assertion `index out of bounds",
        (
            *_VLLM_READY,
            "/tmp/torchinductor_root/ab/cab.py:39: unknown: block: [3,0,0], thread: [64,0,0] Assertion `index out of bounds: 0 <= tmp4 < 15` failed.",
            f"{_CORE}EngineCore encountered a fatal error.",
            *_raise("torch.AcceleratorError: CUDA error: device-side assert triggered", _CORE),
        ),
    ),
    "SYCL's assertion": (
        "gpu-fault",
        "Assertion",
        (
            *_VLLM,
            "/build/aten/src/ATen/native/xpu/sycl/Indexing.cpp:123: operator(): global id: [5,0,0], local id: [5,0,0] Assertion `i < n` failed.",
            *_raise("RuntimeError: Native API failed. Native API returns: 20 (UR_RESULT_ERROR_DEVICE_LOST)", _CORE),
        ),
    ),
    "a worker's fault by Ray's word": (
        "gpu-fault",
        "Memory access fault",
        (
            "(RayWorkerWrapper pid=77) Memory access fault by GPU node-2 (Agent handle: 0x55) on address 0x7f. Reason: Unknown.",
            _RAY_DEATH,
        ),
    ),
    "a worker's end by Ray's word alone": (
        "ray",
        "exit detail",
        (_RAY_DEATH, *_raise("ray.exceptions.RayActorError: The actor died unexpectedly.")),
    ),
    "TorchScript's wrapper, CUDA memory": (
        "cuda-out-of-memory",
        "out of memory",
        (*_VLLM, *_raise(_SCRIPT_MODULE.format("RuntimeError: CUDA error: out of memory"), _CORE)),
    ),
    "TorchScript's wrapper, Neuron": (
        "gpu-fault",
        "NRT_EXEC",
        (
            *_VLLM,
            *_raise(
                _SCRIPT_MODULE.format(
                    "RuntimeError: Failed to execute the model status=1003 message=NRT_EXEC_SW_NQ_OVERFLOW"
                ),
                _CORE,
            ),
        ),
    ),
    "torch's wrapper of a process": (
        "crashed",
        "IndexError",
        _raise(
            "torch.multiprocessing.spawn.ProcessRaisedException: \n\n-- Process 1 terminated with the following error:\n"
            + "\n".join(_raise("IndexError: x"))
        ),
    ),
    "a file that is not there": (
        "model-not-found",
        "No such file",
        (
            "gguf_init_from_file: failed to open 'models/x.gguf': 'No such file or directory'",
            "llama_model_load: error loading model: llama_model_loader: failed to load model from models/x.gguf",
        ),
    ),
    "a binding's wrapper": (
        "model-files",
        "failed to load model from",
        (
            "llama_model_load: error loading model: llama_model_loader: failed to load model from /m/x.gguf",
            "ValueError: Failed to load model from file: /m/x.gguf",
        ),
    ),
    "no architecture in a list": (
        "model-files",
        "IndexError",
        (*_SGLANG, *_raise("IndexError: list index out of range", source="arch = config.architectures[0]")),
    ),
    "no architectures to go through": (
        "model-files",
        "NoneType",
        (*_VLLM, *_raise("TypeError: 'NoneType' object is not iterable", _CORE, "for arch in config.architectures:")),
    ),
    "no config": (
        "model-files",
        "NoneType",
        (*_SGLANG, *_raise("AttributeError: 'NoneType' object has no attribute 'architectures'")),
    ),
    "no architectures by name": (
        "model-files",
        "None",
        (*_VLLM, *_raise("ValueError: Model architectures None are not supported for now.", _CORE)),
    ),
    "HIP's kernel": (
        "kernel-unsupported",
        "invalid device function",
        (*_LLAMA, "ROCm error: invalid device function", "ggml-cuda.cu:72: ROCm error"),
    ),
    "rocBLAS": (
        "kernel-unsupported",
        "TensileLibrary",
        (
            *_LLAMA,
            "rocBLAS error: Cannot read /opt/rocm/lib/rocblas/library/TensileLibrary.dat: Illegal seek for GPU arch : gfx1103",
            "Aborted (core dumped)",
        ),
    ),
    "no HIP GPU": (
        "gpu-runtime-missing",
        "HIP GPUs",
        (*_VLLM, *_raise("RuntimeError: No HIP GPUs are available", _CORE)),
    ),
    "HIP's fault": (
        "gpu-fault",
        "illegal",
        (
            *_SGLANG,
            *_raise("torch.AcceleratorError: HIP error: an illegal memory access was encountered", before=_SCHEDULER),
        ),
    ),
    "MUSA's fault": (
        "gpu-fault",
        "illegal",
        (*_LLAMA, "MUSA error: an illegal memory access was encountered", "ggml-cuda.cu:72: MUSA error"),
    ),
    "Vulkan's fault": (
        "gpu-fault",
        "ErrorDeviceLost",
        (
            *_LLAMA_READY,
            "terminate called after throwing an instance of 'vk::DeviceLostError'",
            "  what():  vk::Queue::submit: ErrorDeviceLost",
        ),
    ),
    "ROCm's fault": (
        "gpu-fault",
        "APERTURE_VIOLATION",
        (
            *_VLLM,
            ":0:rocdevice.cpp            :2984: 1 us: [pid:7 tid:0x7] Callback: Queue 0x7 Aborting with error : "
            "HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION: The agent attempted to access memory beyond the largest legal address. code: 0x29",
            "Fatal Python error: Aborted",
        ),
    ),
    "Neuron's runtime": (
        "gpu-runtime-missing",
        "Neuron",
        (*_VLLM, *_raise("RuntimeError: The PyTorch Neuron Runtime could not be initialized.", _CORE)),
    ),
    "ROCm's device": (
        "gpu-runtime-missing",
        "ROCm-capable",
        (*_VLLM, *_raise("RuntimeError: HIP error: no ROCm-capable device is detected", _CORE)),
    ),
    "AMD's driver": (
        "gpu-runtime-missing",
        "DRIVER_NOT_LOADED",
        _raise("amdsmi.amdsmi_exception.AmdSmiLibraryException: Error code: 34 | AMDSMI_STATUS_DRIVER_NOT_LOADED"),
    ),
    "Vulkan's device": (
        "gpu-runtime-missing",
        "ErrorInitializationFailed",
        (*_LLAMA, "llama_model_load: error loading model: vk::PhysicalDevice::createDevice: ErrorInitializationFailed"),
    ),
    "the node's memory": (
        "host-memory",
        "mmap failed",
        (*_LLAMA, "llama_model_load: error loading model: mmap failed: Cannot allocate memory"),
    ),
    "Ascend's memory": (
        "cuda-out-of-memory",
        "aclrtMalloc",
        (*_VLLM, *_raise("RuntimeError: NPU function error: aclrtMalloc, error code is 207001", _CORE)),
    ),
    "Gaudi's memory": (
        "cuda-out-of-memory",
        "PT_DEVMEM",
        _raise("RuntimeError: FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::4194304 (4)MB"),
    ),
    "AMD's kernel": ("kernel-unsupported", "gfx1201", _raise("RuntimeError: aiter: no kernel found for gfx1201")),
    "Triton's call": (
        "kernel-unsupported",
        "not supported",
        (*_VLLM, *_raise("RuntimeError: Triton Error [CUDA]: operation not supported", _CORE)),
    ),
    "a forked process": (
        "bad-value",
        "forked",
        (*_VLLM, *_raise("RuntimeError: Cannot re-initialize CUDA in forked subprocess.", _CORE)),
    ),
    "a config of another version": (
        "broken-image",
        "rope_theta",
        (*_VLLM, *_raise("AttributeError: 'Qwen3Config' object has no attribute 'rope_theta'", _CORE)),
    ),
    "ranks that did not come": (
        "worker-lost",
        "store based",
        _raise("RuntimeError: Timed out initializing process group in store based barrier on rank: 1"),
    ),
    "a runner that was killed": (
        "killed",
        "signal: killed",
        (
            'time=2025-08-01T10:00:01.000Z level=ERROR source=server.go:300 msg="llama runner terminated" error="signal: killed"',
        ),
    ),
    "a message that begins on the next line": (
        "broken-image",
        "requires the SentencePiece library",
        _raise(
            "ImportError: \nLlamaTokenizer requires the SentencePiece library but it was not found in your environment."
        ),
    ),
    "no rule, and a message that begins on the next line": (
        "crashed",
        "x9.errors.BadThing: There are no blips",
        _raise("x9.errors.BadThing: \n\nThere are no blips for this model."),
    ),
    "what a Rust thread could not do": (
        "hub-unreachable",
        "name resolution",
        (
            "thread 'tokio-runtime-worker' panicked at src/hub.rs:12:5:",
            'called `Result::unwrap()` on an `Err` value: ConnectError("dns error", Custom { kind: Uncategorized, '
            'error: "failed to lookup address information: Temporary failure in name resolution" })',
        ),
    ),
    "what Rust could not read": (
        "model-files",
        "missing field",
        (
            "thread 'main' panicked at src/main.rs:88:14:",
            'called `Result::unwrap()` on an `Err` value: Error("missing field `eos_token_id`", line: 31, column: 1)',
        ),
    ),
    "a file of weights, as safetensors has it": (
        "model-files",
        "model-00003-of-00014",
        _raise('FileNotFoundError: No such file or directory: "/m/model-00003-of-00014.safetensors"'),
    ),
    "torch's own attention": (
        "attention-backend",
        "kernel",
        _raise("RuntimeError: No available kernel. Aborting execution."),
    ),
    "CUDA memory, no figures": ("cuda-out-of-memory", "CUDA out", _raise("RuntimeError: CUDA out of memory")),
    "a worker of torch's that was killed": (
        "killed",
        "DataLoader",
        _raise("RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed. "),
    ),
    "an uncaught exception while serving": (
        "crashed",
        "grammar stack",
        (
            *_LLAMA_READY,
            "libc++abi: terminating due to uncaught exception of type std::runtime_error: Unexpected empty grammar stack",
        ),
    ),
    "an uncaught exception by its two lines": (
        "crashed",
        "grammar stack",
        (
            *_LLAMA_READY,
            "terminate called after throwing an instance of 'std::runtime_error'",
            "  what():  Unexpected empty grammar stack",
        ),
    ),
}


@pytest.mark.parametrize(("cause", "proof", "lines"), OTHER_WORDS.values(), ids=OTHER_WORDS.keys())
def test_the_same_failure_in_other_words(cause: str, proof: str, lines: tuple[str, ...]) -> None:
    log = "".join(f"{line}\n" for line in lines).encode()
    judged = judge_log(LabelledLog(name="it", log=log, right=(cause,), vague=(), source="", proof=proof))
    assert (judged.cause, judged.judgement) == (cause, "right")


@pytest.mark.parametrize(
    ("line", "remedy", "not_for_it"),
    [
        (
            "Error: No such option: --max-len (Possible options: --max-length)",
            "Correct or remove args.max-len",
            "TensorRT",
        ),
        ("nvcc fatal   : Unsupported gpu architecture 'compute_121'", "CUDA 13", "TRITON_PTXAS_PATH"),
    ],
)
def test_the_remedy_is_for_the_program_that_said_it(line: str, remedy: str, not_for_it: str) -> None:
    found = diagnose_bytes(io.BytesIO(f"x9 0.3.1 starting\n{line}\n".encode()), "it", None).diagnosis
    assert found.verdict is not None
    assert remedy in found.verdict.remedy
    assert not_for_it not in found.verdict.remedy + found.verdict.summary


def test_a_line_that_ends_a_sentence_brings_its_own_period() -> None:
    log = "\n".join(
        _raise("ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.")
    ).encode()
    verdict = diagnose_bytes(io.BytesIO(log), "it", None).diagnosis.verdict
    assert verdict is not None
    assert verdict.summary.endswith("this task.")
    assert not verdict.summary.endswith("..")


def test_a_port_that_uvicorn_could_not_bind_is_told_of_its_start() -> None:
    log = "INFO:     Application startup complete.\nERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): "
    verdict = diagnose_bytes(io.BytesIO(f"{log}address already in use\n".encode()), "it", None).diagnosis.verdict
    assert verdict is not None
    assert verdict.summary == "The port 8000 is in use by another process."


def test_every_cause_that_a_log_shows_has_an_example_and_is_read_from_it() -> None:
    read = {}
    for cause, line in CAUSE_EXAMPLES.items():
        verdict = diagnose_bytes(io.BytesIO(f"{line}\n".encode()), "it", None).diagnosis.verdict
        read[cause] = None if verdict is None else verdict.cause
    assert read == {cause: cause for cause in CAUSE_EXAMPLES}
    assert set(FailureCause) - set(CAUSE_EXAMPLES) == {FailureCause.GUARD_STOPPED, FailureCause.EXITED}


@pytest.mark.parametrize(
    "told", ["Name: sglang\nVersion: 0.5.14", "sglang==0.5.14", "Successfully installed sglang-0.5.14 torch-2.9.0"]
)
def test_a_version_that_pip_told_counts_more_than_what_the_first_lines_look_like(told: str) -> None:
    log = f"{told}\n" + "".join(f"{line}\n" for line in _SGLANG)
    found = diagnose_bytes(io.BytesIO(log.encode()), "it", None).diagnosis
    assert found.version == "0.5.14"
    assert build_diagnosis_json(found, "it", None, None)["fallbacks"] == []
