"""What ends a log that somebody stopped, and what only sounds like a failure: no harmless warning is the reason of a death."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from sparkctl.engines import load_engine
from sparkctl.logs.analyzer import LogAnalyzer
from sparkctl.logs.diagnosis import LogDiagnoser
from sparkctl.logs.line_patterns import looks_like_error, says_it_goes_on
from sparkctl.model.launch_plan import ReadinessRule
from sparkctl.model.text.log_line import LogLine
from sparkctl.model.verdict import Confidence, FailureCause

API, CORE = "(APIServer pid=1) ", "(EngineCore pid=77) "
ULIMIT = (
    f"{API}WARNING 11-22 10:00:01 [system_utils.py:265] Found ulimit of 20000 and failed to automatically increase with "
    "error current limit exceeds maximum limit. This can cause fd limit errors like `OSError: [Errno 24] Too many open files`."
)
VLLM_START = (
    f"{API}INFO 11-22 10:00:00 [api_utils.py:347]  ▄▄ ▄█ █     █     █ ▀▄▀▀ █  version 0.32.0",
    f"{API}INFO 11-22 10:00:00 [api_utils.py:286] non-default args: {{'model': '/models/m'}}",
    ULIMIT,
    f"{CORE}INFO 11-22 10:00:09 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: model='/models/m'",
    f"{CORE}INFO 11-22 10:00:12 [gpu_model_runner.py:3] Starting to load model /models/m...",
)
VLLM_READY = (
    *VLLM_START,
    "INFO:     Application startup complete.",
    'INFO:     10.0.0.9:5 - "POST /v1/completions HTTP/1.1" 200 OK',
)
# vLLM 0.32.0 by `docker stop` while it loads: its own signal handler raises this, until uvicorn's takes over.
INTERRUPTED = (
    "Traceback (most recent call last):",
    '  File "/usr/bin/vllm", line 8, in <module>',
    "    sys.exit(main())",
    '  File "/x/vllm/entrypoints/launchers/api_server/entry.py", line 172, in _interrupt_init',
    '    raise KeyboardInterrupt("terminated")',
    "KeyboardInterrupt: terminated",
)
# The same while it serves: the first line is always first, the others race.
SHUTDOWN = (
    f"{API}INFO 11-22 10:05:00 [launcher.py:254] [shutdown] API server: shutdown triggered",
    f"{API}ERROR 11-22 10:05:00 [async_llm.py:742] AsyncLLM output_handler failed.",
    f"{API}ERROR 11-22 10:05:00 [async_llm.py:742] Traceback (most recent call last):",
    f"{API}ERROR 11-22 10:05:00 [async_llm.py:742] vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. "
    "See stack trace (above) for the root cause.",
    "INFO:     Shutting down",
    "INFO:     Waiting for connections to close. (CTRL+C to force quit)",
)


def analyze_lines(engine: str, *lines: str, whole: bool = False) -> LogAnalyzer:
    found = load_engine(engine)
    log = LogAnalyzer(engine=found, ready=ReadinessRule(line=found.defaults.ready_line, health="/health"), whole=whole)
    log.feed_lines(
        [
            LogLine(when=f"2026-11-22T10:00:{at % 60:02}.000000000Z", text=text, number=at + 1)
            for at, text in enumerate(lines)
        ]
    )
    return log


def diagnose_lines(lines: Iterable[str], engine: str | None = None) -> LogDiagnoser:
    reading = LogDiagnoser(engine)
    for at, text in enumerate(lines):
        reading.feed_line(LogLine(when="", text=text, number=at + 1))
    return reading


@pytest.mark.parametrize(
    "line",
    [
        "Found ulimit of 20000 and failed to automatically increase with error current limit exceeds maximum limit.",
    ],
)
@pytest.mark.parametrize("level", ["DEBUG", "INFO", "WARNING"])
def test_lines_below_error_level_are_no_error(line: str, level: str) -> None:
    head = f"{API}{level} 11-22 10:00:01 [system_utils.py:265] "
    assert analyze_lines("vllm", head + line).last_error is None
    kept = analyze_lines("vllm", head.replace(level, "ERROR") + line).last_error
    assert kept is not None


@pytest.mark.parametrize(
    "line",
    [
        "/usr/lib/python3.12/site-packages/torch/x.py:63: FutureWarning: this failed before and is an error now",
        "UserWarning: Failed to initialize NumPy: cannot import it",
        "[rank0]:[W1122 10:00:01.123456789 ProcessGroupNCCL.cpp:1538] Warning: destroy failed",
        "[W1122 10:00:01.123456789 socket.cpp:200] The client socket has failed to connect to [::]:25000",
        "W1122 10:00:01.123456 77 cache.cc:3] cannot open it",
        "2026-11-22 10:00:01,123 - WARNING - could not import flash_attn",
        "WARNING:root:error while reading the config",
        "[2026-11-22 10:00:01] WARNING server_args.py:900: it failed",
        "[2026-05-01 22:04:12,114 W 1 1] gcs_client.cc:172: Failed to connect to GCS",
        "[11/22/2026-10:00:01] [TRT-LLM] [W] Failed to get device capability",
        "[TensorRT-LLM][WARNING] cannot find it",
        "0.24.777.216 W common: failed to lock",
        "    raise RuntimeError('failed')",
        '  File "/x/error.py", line 3, in failed',
    ],
)
@pytest.mark.parametrize("engine", ["vllm", "sglang", "llamacpp", "trtllm", "container"])
def test_a_warning_is_never_an_error_whoever_writes_it(line: str, engine: str) -> None:
    assert analyze_lines(engine, "hello", line).last_error is None


@pytest.mark.parametrize(
    "line",
    [
        "frobnication failed: widget",
        "ERROR: ignoring a WARNING is an error",
        "FATAL: cannot go on",
        "[2026-11-22 10:00:01] ERROR server.py:9: it failed",
        "[2026-05-01 22:04:12,114 E 1 1] gcs_client.cc:172: Failed to connect to GCS",
        "the Warner node failed",
    ],
)
def test_an_error_line_looks_like_an_error(line: str) -> None:
    assert looks_like_error(line)


def test_a_stop_while_it_loads_is_no_failure() -> None:
    log = analyze_lines("vllm", *VLLM_START, *INTERRUPTED)
    assert log.stopped is not None
    assert (log.stopped.text, log.fatal_line, log.root_failure, log.final_error) == (
        "KeyboardInterrupt: terminated",
        None,
        None,
        None,
    )
    found = diagnose_lines([*VLLM_START, *INTERRUPTED]).build_diagnosis()
    assert (found.verdict, found.stopped_at is not None, found.ready) == (None, True, False)


def test_what_its_parts_say_of_each_other_while_it_stops_is_no_failure() -> None:
    found = diagnose_lines([*VLLM_READY, *SHUTDOWN, "INFO:     Application shutdown complete."]).build_diagnosis()
    assert (found.verdict, found.stopped_at is not None, found.ready) == (None, True, True)
    tail = analyze_lines("vllm", *VLLM_READY[-1:], *SHUTDOWN)  # of which the ready line was cut off
    assert tail.stopped is not None
    assert tail.fatal_line is None


@pytest.mark.parametrize(
    "death",
    [
        f"{API}WARNING 11-22 10:05:00 [core_client.py:818] [shutdown] MPClient: engine core exited unexpectedly; starting cleanup",
        f"{API}ERROR 11-22 10:05:00 [core_client.py:667] Engine core proc EngineCore died unexpectedly, shutting down client.",
    ],
)
def test_a_core_that_was_killed_is_lost_though_the_front_shuts_down_then(death: str) -> None:
    found = diagnose_lines(
        [*VLLM_READY, death, *SHUTDOWN, "INFO:     Application shutdown complete."]
    ).build_diagnosis()
    assert found.verdict is not None
    assert found.verdict.cause is FailureCause.WORKER_LOST
    assert found.stopped_at is None


def test_uvicorns_words_before_it_is_ready_are_no_stop() -> None:
    """SGLang whose port is taken prints them, and so may any start that fails."""
    log = analyze_lines(
        "sglang", "Load weight begin.", "INFO:     Shutting down", "INFO:     Application shutdown complete."
    )
    assert log.stopped is None


@pytest.mark.parametrize(
    ("engine", "word"),
    [
        (
            "sglang",
            "[2026-11-22 10:05:00] SIGTERM received. signum=None frame=None. Draining requests and shutting down...",
        ),
        ("vllm", f"{CORE}INFO 11-22 10:05:00 [core.py:1210] Shutdown initiated (timeout=0)"),
        ("llamacpp", "0.11.657.474 I srv    operator(): operator(): cleaning up before exit..."),
    ],
)
def test_each_engine_has_its_words_for_a_stop(engine: str, word: str) -> None:
    ready = {
        "sglang": "[2026-11-22 10:00:00] The server is fired up and ready to roll!",
        "vllm": "INFO:     Application startup complete.",
        "llamacpp": "0.01.657.474 I srv  llama_server: listening on http://127.0.0.1:8080",
    }[engine]
    assert analyze_lines(engine, ready, word).stopped is not None


def test_a_restarted_engine_is_not_stopping() -> None:
    again = analyze_lines("vllm", *VLLM_READY, *SHUTDOWN, *VLLM_START)
    assert again.stopped is None


KILLED_WORKER = (
    *VLLM_START,
    f"{CORE}ERROR 11-22 10:00:40 [core.py:1180] EngineCore failed to start.",
    f"{CORE}ERROR 11-22 10:00:40 [core.py:1180] Traceback (most recent call last):",
    f'{CORE}ERROR 11-22 10:00:40 [core.py:1180]   File "/x/vllm/v1/executor/multiproc_executor.py", line 700, in wait_for_ready',
    f"{CORE}ERROR 11-22 10:00:40 [core.py:1180]     raise e from None",
    f"{CORE}ERROR 11-22 10:00:40 [core.py:1180] Exception: WorkerProc initialization failed due to an exception in a background "
    "process. See stack trace for root cause.",
    "Traceback (most recent call last):",
    "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
)


def test_a_worker_that_was_killed_while_it_loaded_is_lost() -> None:
    found = diagnose_lines(KILLED_WORKER).build_diagnosis().verdict
    assert found is not None
    assert found.cause is FailureCause.WORKER_LOST
    assert "killed" in found.summary
    assert "lines after" not in found.remedy


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        # an error that no rule knows: where it stands is said
        ((f"{CORE}ERROR 11-22 10:00:39 [w.py:1] WorkerProc failed to start.", "AssertionError"), FailureCause.CRASHED),
        # one that names itself, and one that a rule knows
        (
            (f"{CORE}ERROR 11-22 10:00:39 [w.py:1] WorkerProc failed to start.", "ZeroDivisionError: no"),
            FailureCause.CRASHED,
        ),
        (
            (
                f"{CORE}ERROR 11-22 10:00:39 [w.py:1] WorkerProc failed to start.",
                "OSError: [Errno 98] Address already in use",
            ),
            FailureCause.PORT_IN_USE,
        ),
    ],
)
def test_a_worker_that_failed_on_an_error_is_not_called_lost(lines: tuple[str, ...], cause: FailureCause) -> None:
    found = diagnose_lines([*VLLM_START, *lines, *KILLED_WORKER[len(VLLM_START) :]]).build_diagnosis().verdict
    assert found is not None
    assert found.cause is cause


def read_verdict(*lines: str) -> FailureCause | None:
    diagnoser = LogDiagnoser()
    diagnoser.feed_block("".join(f"{line}\n" for line in lines).encode())
    verdict = diagnoser.build_diagnosis().verdict
    return None if verdict is None else verdict.cause


def test_a_line_below_the_error_level_is_no_failure_whatever_it_says() -> None:
    words = "Unsupported architecture: DeepGEMM has no kernels for sm_121"
    for level in ("INFO", "WARNING", "DEBUG"):
        assert read_verdict(*VLLM_START, f"{CORE}{level} 11-22 10:00:13 [deep_gemm.py:3] {words}") is None
    assert read_verdict(*VLLM_START, f"{CORE}ERROR 11-22 10:00:13 [deep_gemm.py:3] {words}") is (
        FailureCause.KERNEL_UNSUPPORTED
    )


def test_a_program_that_tries_again_has_not_failed() -> None:
    failed = (
        "0.06.520.077 E ggml_backend_cuda_buffer_type_alloc_buffer: allocating 5 MiB on device 0: cudaMalloc failed: out of memory",
        "0.06.520.086 E graph_reserve: failed to allocate compute buffers",
    )
    again = "0.06.520.107 W sched_reserve: compute buffer allocation failed, retrying without pipeline parallelism"
    assert read_verdict(*failed) is FailureCause.CUDA_OUT_OF_MEMORY
    assert read_verdict(*failed, again) is None
    assert read_verdict(*failed, again, *failed) is FailureCause.CUDA_OUT_OF_MEMORY


@pytest.mark.parametrize("done", ["Attempt 2 succeeded", "the download succeeded on attempt 2"])
def test_an_attempt_that_succeeded_forgives_the_one_before(done: str) -> None:
    failed = (
        f"{CORE}ERROR 11-22 10:00:40 [dl.py:1] Traceback (most recent call last):",
        f'{CORE}ERROR 11-22 10:00:40 [dl.py:1]   File "/x.py", line 3, in y',
        f"{CORE}ERROR 11-22 10:00:40 [dl.py:1] ConnectionResetError: [Errno 104] Connection reset by peer",
    )
    assert read_verdict(*VLLM_START, *failed) is FailureCause.CRASHED
    assert read_verdict(*VLLM_START, *failed, f"{CORE}INFO 11-22 10:00:41 [dl.py:1] {done}") is None


def test_a_line_that_only_says_that_the_program_ends_is_no_proof_where_the_one_before_names_the_reason() -> None:
    records = (
        "2026-11-20 10:00:45.123 | ERROR    | vllm.x:main:12 - boot failed: no seat for rank 4",
        "2026-11-20 10:00:45.124 | CRITICAL | vllm.x:main:13 - giving up",
    )
    verdict = diagnose_lines(records, "vllm").build_diagnosis().verdict
    assert verdict is not None
    assert verdict.evidence[0].line == 1


def test_an_error_over_several_lines_that_the_end_cuts_is_read() -> None:
    cut = (
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig",
        "  Value error, User-specified max_model_len (513) is greater than the derived max_model_len (max_position_embeddings=512)",
    )
    assert read_verdict(*cut) is FailureCause.BAD_VALUE


OOM = (
    f"{CORE}ERROR 11-22 10:00:40 [core.py:708] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
)
NO_MODULE = f"{CORE}ERROR 11-22 10:00:40 [core.py:708] ModuleNotFoundError: No module named 'flashinfer'"
RETRY = "WARNING 11-22 10:00:41 [connectionpool.py:868] Retrying (Retry(total=0)) after connection broken: /usage"
FALLBACK = "WARNING 11-22 10:00:41 [topk.py:52] FlashInfer is not enabled. Falling back to the native implementation."


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        ((OOM, API + RETRY), FailureCause.CUDA_OUT_OF_MEMORY),
        ((OOM, CORE + FALLBACK), FailureCause.CUDA_OUT_OF_MEMORY),
        ((NO_MODULE, API + RETRY), FailureCause.BROKEN_IMAGE),
        ((NO_MODULE, CORE + FALLBACK), None),
    ],
)
def test_only_the_process_that_goes_on_forgives_what_it_said_and_nothing_fatal(
    lines: tuple[str, ...], cause: FailureCause | None
) -> None:
    assert read_verdict(*VLLM_START, *lines) is cause
    live = analyze_lines("vllm", *VLLM_START, *lines)
    assert (live.fatal_line is not None) is (cause is FailureCause.CUDA_OUT_OF_MEMORY)


def test_a_kernels_kill_is_not_forgiven_by_who_tries_again() -> None:
    kill = "[ 100.0] Out of memory: Killed process 123 (VLLM::EngineCor) total-vm:1kB, anon-rss:200kB"
    assert read_verdict(kill, "Retrying in 5 s") is FailureCause.HOST_OOM_KILL


@pytest.mark.parametrize(
    ("line", "is_error"),
    [
        ("Error: 0 GPUs are visible to this process", True),
        ("ERROR: 0 of 2 ranks joined", True),
        ("FATAL: error code: 0, cannot allocate", True),
        ("Failed to start: no error handler is known", True),
        ("RuntimeError failed: 0 devices", True),
        ("Failed requests:                         0", False),
        ("done: errors=0, killed=0", False),
        ("12 passed, 0 failed", False),
        ("exit error: 0", False),
        ("the check found no errors", False),
    ],
)
def test_a_count_of_none_is_no_error_and_a_message_that_begins_with_it_is_one(line: str, is_error: bool) -> None:
    assert looks_like_error(line) is is_error


@pytest.mark.parametrize(
    "warning",
    [
        "NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin.",
        "Call to ibv_query_port_speed failed with error Operation not supported",
    ],
)
def test_a_warning_of_nccl_alone_is_no_end(warning: str) -> None:
    line = f"spark1:7:7 [0] misc/ibvwrap.cc:122 NCCL WARN {warning}"
    assert read_verdict(*VLLM_START, line) is None
    end = f"{API}RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {{}}"
    wanted = FailureCause.WORKER_LOST if "Using internal" in warning else FailureCause.NCCL
    assert read_verdict(*VLLM_START, line, end) is wanted


@pytest.mark.parametrize(
    "exception",
    [
        "requests.exceptions.ReadTimeout: HTTPSConnectionPool(host='huggingface.co', port=443): Read timed out.",
        "aiohttp.ClientConnectorError: Cannot connect to host huggingface.co:443 [Temporary failure in name resolution]",
        "requests.exceptions.HTTPError: 503 Server Error: Service Unavailable for url: https://huggingface.co/x.jpg",
        "FileNotFoundError: [Errno 2] No such file or directory: '/data/pic.json'",
        "OSError: [Errno 28] No space left on device",
    ],
)
def test_a_request_that_failed_is_no_new_start_and_no_end(exception: str) -> None:
    frame = '  File "/usr/lib/x.py", line 1, in f'
    head = f"{API}ERROR 11-22 10:03:00 [serving_chat.py:274] "
    lines = ("Error in preprocessing prompt inputs", "Traceback (most recent call last):", frame, exception)
    asgi = ("ERROR:    Exception in ASGI application", *lines[1:])
    group = (
        asgi[0],
        "  + Exception Group Traceback (most recent call last):",
        f"  | {frame}",
        "  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)",
        "  +-+---------------- 1 ----------------",
        "    | Traceback (most recent call last):",
        f"    | {frame}",
        f"    | {exception}",
        "    +------------------------------------",
        "",
        "During handling of the above exception, another exception occurred:",
        "",
        *lines[1:],
    )
    for error in ([head + line for line in lines], asgi, group):
        for found in (diagnose_lines([*VLLM_READY, *error]), LogDiagnoser()):
            if not found.lines:
                found.feed_block("".join(f"{line}\n" for line in [*VLLM_READY, *error]).encode())
            result = found.build_diagnosis()
            assert (result.verdict, result.ready, result.runs) == (None, True, 1), error
    if "Errno 28" in exception or "ClientConnectorError" in exception:
        return
    again = diagnose_lines([*VLLM_READY, *asgi, *lines[1:]]).build_diagnosis()  # and then a start of which this is all
    assert again.verdict is None or not again.ready


def test_a_message_of_a_log_keeps_its_words_and_loses_its_secrets() -> None:
    for words in ("unexpected key: rope_scaling in config", "cache key: abc not found", "no signature: (a, b)"):
        found = diagnose_lines([*VLLM_START, f"{CORE}ERROR 11-22 10:00:40 [core.py:708] Traceback (most recent call last):",
            f"{CORE}ERROR 11-22 10:00:40 [core.py:708] ValueError: {words}"]).build_diagnosis()  # fmt: skip
        assert found.verdict is not None
        assert words in found.verdict.evidence[0].text
        assert words in found.verdict.summary
    secret = diagnose_lines([*VLLM_START, f"{CORE}ERROR 11-22 10:00:40 [core.py:7] ValueError: HF_TOKEN=Zq7v9Kx2Lm"])
    assert "Zq7v9" not in str(secret.build_diagnosis())


FULL = "OSError: [Errno 28] No space left on device"
LOGGING = (
    "--- Logging error ---",
    "Traceback (most recent call last):",
    '  File "/usr/lib/x.py", line 1, in emit',
    FULL,
    "Call stack:",
)
USAGE = (
    "Exception in thread Thread-4 (_report_usage_worker):",
    "Traceback (most recent call last):",
    '  File "/x.py", line 1, in f',
    FULL,
)
DEAD = f"{CORE}ERROR 11-22 10:05:00 [core.py:742] vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue."


def test_a_disk_that_is_full_for_the_logging_ends_no_engine() -> None:
    assert diagnose_lines([*VLLM_READY, *LOGGING]).build_diagnosis().verdict is None


def test_a_full_disk_is_certain_only_where_the_engine_says_that_it_ended() -> None:
    beside = diagnose_lines([*VLLM_READY, *USAGE]).build_diagnosis().verdict
    ended = diagnose_lines([*VLLM_READY, *USAGE, DEAD]).build_diagnosis().verdict
    assert beside is not None
    assert ended is not None
    assert (beside.cause, beside.confidence) == (FailureCause.DISK_FULL, Confidence.LIKELY)
    assert (ended.cause, ended.confidence) == (FailureCause.DISK_FULL, Confidence.CERTAIN)


REFUSED = 'INFO:     10.0.0.9:5 - "POST /v1/load_lora_adapter HTTP/1.1" 400 Bad Request'
ANSWERED = VLLM_READY[-1]
HEALTH = 'INFO:     10.0.0.9:5 - "GET /health HTTP/1.1" 200 OK'


@pytest.mark.parametrize(
    "error",
    [
        f"{API}ERROR 11-22 10:03:00 [serving_models.py:1] Failed to load LoRA adapter x: torch.OutOfMemoryError: CUDA out of memory. Tried to "
        "allocate 1.00 GiB.",
        f"{API}ERROR 11-22 10:03:00 [files.py:1] upload failed: {FULL}: '/tmp/up'",
    ],
)
@pytest.mark.parametrize(
    ("after", "is_failure"),
    [
        ([REFUSED, ANSWERED, ANSWERED], False),
        ([REFUSED, ANSWERED], True),
        ([REFUSED, HEALTH, HEALTH, HEALTH], True),
        ([ANSWERED, ANSWERED], True),
        ([REFUSED, ANSWERED, ANSWERED, DEAD], True),
    ],
)
def test_what_a_request_was_refused_for_ends_no_engine_that_answers_the_next(
    error: str, after: list[str], is_failure: bool
) -> None:
    lines = [*VLLM_READY, error, *after]
    whole = LogDiagnoser()
    whole.feed_block("".join(f"{line}\n" for line in lines).encode())
    for found in (diagnose_lines(lines), whole):
        assert (found.build_diagnosis().verdict is not None) is is_failure


@pytest.mark.parametrize(
    "said",
    ["client: error: Connection closed by peer [10.0.0.9]", "RuntimeError: Connection closed by peer [10.0.0.9]"],
)
def test_a_client_that_left_loses_no_worker(said: str) -> None:
    assert diagnose_lines([*VLLM_READY, said]).build_diagnosis().verdict is None


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        (
            "nvcc fatal   : Unsupported gpu architecture 'compute_121a', using nvcc 12.4",
            FailureCause.KERNEL_UNSUPPORTED,
        ),
        (
            "ERROR: CUDA error: no kernel image is available for execution on the device, using device 0",
            FailureCause.KERNEL_UNSUPPORTED,
        ),
        (
            f"{API}ERROR 11-22 10:00:01 [x.py:3] Failed to bind, using port 8000: [Errno 98] Address already in use",
            FailureCause.PORT_IN_USE,
        ),
    ],
)
def test_what_a_fatal_line_used_is_no_way_to_go_on(line: str, cause: FailureCause) -> None:
    assert read_verdict(line) is cause


def test_a_line_that_goes_on_with_another_thing_is_still_no_failure() -> None:
    assert says_it_goes_on("Failed to get device capability, using fallback")
    assert not says_it_goes_on("ptxas fatal   : Value 'sm_121a' is not defined, using /usr/bin/ptxas")


_GH = "https://github.com/"
# Of programs that no rule knows: the failure, and lines of the many that follow it; where it was posted.
WENT_ON = [
    (
        "ModuleNotFoundError: No module named 'google.generativeai'",
        "2025-05-04 11:53:20,041 - DIDVideoGenerator - INFO - Video already exists: news_videos/Three_babies.mp4",
        f"{_GH}fatima-tuz-zahra-123/BlueBlack/blob/HEAD/did_video.log",
    ),
    (
        "ImportError: cannot import name 'query_ollama' from 'api.insights' (/app/api/insights.py)",
        'INFO:     172.19.0.1:40280 - "GET /metrics/traffic?tenants=nexabank,safexbank&range=7d HTTP/1.1" 200 OK',
        f"{_GH}Omesh2004/nucleus/blob/HEAD/analytics-api.txt",
    ),
    (
        "socket.gaierror: [Errno 11004] getaddrinfo failed",
        "[2024-07-03 20:53] Requested to load SD1ClipModel",
        f"{_GH}jike589/yxcl_06/blob/HEAD/comfyui.log",
    ),
]


@pytest.mark.parametrize(("failure", "later", "source"), WENT_ON, ids=[one[2] for one in WENT_ON])
def test_a_program_that_no_rule_knows_has_survived_what_many_records_follow(
    failure: str, later: str, source: str
) -> None:
    assert source.startswith(_GH)
    failed = ["Traceback (most recent call last):", '  File "/app/api/main.py", line 3, in f', "    g()", failure]
    assert diagnose_lines([*failed, *[later] * 2]).build_diagnosis().verdict is not None
    assert diagnose_lines([*failed, *[later] * 40]).build_diagnosis().verdict is None
    again = diagnose_lines([*failed, *[later] * 40, *failed]).build_diagnosis().verdict
    assert again is not None
    assert again.evidence[0].line == len(failed) + 40 + len(failed)


@pytest.mark.parametrize(
    ("lines", "source"),
    [
        (
            [
                "[2025-10-28 14:16:41.242] Warning: Could not load sageattention: No module named 'sageattention'",
                "[2025-10-28 14:16:41.242] sageattention package is not installed, sageattention will not be available",
            ],
            f"{_GH}WenerSantos3/ComfyUI/blob/HEAD/user/comfyui_8188.log",
        ),
        (
            [
                "[cache @ 0x63323ab1e780] Inner protocol failed to seekback end : -38",
                "2025-09-06 19:46:56 | INFO     | voice_assistant.tts | synthesize_tts:327 | Converting audio to SLIN format...",
            ],
            f"{_GH}Kushalsharma0702/voice-localenv/blob/HEAD/logs/tts.log",
        ),
        (
            [
                "   [Captions] Pushed frame: 'YouTube killed your stream and now you'r' (12 words)",
                "   [Captions] Broadcast OK to 2/2 client(s).",
            ],
            f"{_GH}JonathanDunkleberger/Kira_AI/tree/HEAD/docs/soak-reports/20260730_090514",
        ),
        (
            [
                "Requesting API: 100%|██████████| 1/1 [00:00<00:00,  1.74it/s]",
                "fatal: not a git repository (or any of the parent directories): .git",
            ],
            f"{_GH}spped2000/thaillm-nvfp4-dgx-spark/blob/HEAD/results/ref_qwen3-8b-nvfp4/ppl200.log",
        ),
        (
            [
                "output.error='Traceback (most recent call last):\\n  File \"/usr/local/aiohttp/client_proto.py\", line 144'",
                "============ Serving Benchmark Result ============",
                "Backend:                                 sglang    ",
            ],
            f"{_GH}shun8686/for_debug/tree/HEAD/performance/metrics/CANN8.5/20260124",
        ),
        (
            [
                "(raylet) [2026-04-21 06:58:41,790 E 514749 514780] (raylet) file_system_monitor.cc:116: /tmp/ray/session_1 is over "
                "95% full, available space: 51.515 GB; capacity: 1757.87 GB. Object creation will fail if spilling is required.",
            ],
            f"{_GH}2215860382/VedioSifter/blob/HEAD/train_run_20260421_065709.log",
        ),
        (
            [
                "(APIServer pid=1) INFO 07-16 17:58:01 [api_server.py:1272] vLLM API server version 0.20.0",
                "slurmstepd: error: *** STEP 954640.8 ON jpbo-021-29 CANCELLED AT 2026-07-16T17:59:04 ***",
            ],
            f"{_GH}alint77/jupiter-glm52-vllm-worklog/blob/HEAD/baseline/attempt-32g-server.err",
        ),
        (
            [
                "0.06.867.637 I log_info: verbosity = 3 (adjust with the `-lv N` CLI arg)",
                "0.21.711.688 I srv          main: server is listening on http://127.0.0.1:8080",
                "Received second interrupt, terminating immediately.",
                "ggml-metal-device.m:618: GGML_ASSERT([rsets->data count] == 0) failed",
            ],
            f"{_GH}ddmanyes/Evo_PRISM/blob/HEAD/logs/llama_server.log",
        ),
        (
            [
                "2023-11-04T14:37:55.401684Z  INFO generate{parameters=GenerateParameters { best_of: None }}: Success",
                "2023-11-04T14:37:55.404893Z ERROR generate{parameters=GenerateParameters { best_of: None }}:validation: Input "
                "validation error: `inputs` tokens + `max_new_tokens` must be <= 2048",
            ],
            f"{_GH}RajdeepBorgohain/vllm_code_llama/blob/HEAD/container_logs.txt",
        ),
    ],
)
def test_what_only_sounds_like_a_failure_gives_no_verdict(lines: list[str], source: str) -> None:
    assert source.startswith(_GH)
    assert diagnose_lines(lines).build_diagnosis().verdict is None


def test_a_call_that_is_refused_while_it_serves_does_not_end_an_engine_that_is_stopped_later() -> None:
    # github.com/WaroonRagwongsiri/SuperAi-SS6-Level2-Hack4/blob/HEAD/llm.log
    refused = (
        "CUDA Error: out of memory at /workspace/csrc/cumem_allocator.cpp:139",
        f"{CORE}ERROR 06-02 14:31:01 [core.py:1365] RuntimeError: CUDA Error: out of memory at /workspace/csrc/cumem_allocator.cpp:139",
        f'{API}INFO:     127.0.0.1:39984 - "POST /wake_up HTTP/1.1" 500 Internal Server Error',
    )
    stop = (f"{API}INFO 06-02 14:32:58 [launcher.py:137] Shutting down FastAPI HTTP server.", "INFO:     Shutting down")
    assert diagnose_lines([*VLLM_READY, *refused, *stop]).build_diagnosis().verdict is None
    found = diagnose_lines([*VLLM_READY, *refused]).build_diagnosis().verdict
    assert found is not None
    assert found.cause is FailureCause.CUDA_OUT_OF_MEMORY


def test_a_server_that_starts_again_after_each_edit_is_read_from_its_last_start() -> None:
    # github.com/khairililmi2468gmailcom/TTS_Coqui_Full/blob/HEAD/bark.log
    found = diagnose_lines(
        [
            "ERROR:    [Errno 98] Address already in use",
            "INFO:     Started server process [1125704]",
            "INFO:     Application startup complete.",
            "WARNING:  StatReload detected changes in 'app_bark.py'. Reloading...",
            "Process SpawnProcess-9:",
            "Traceback (most recent call last):",
            '  File "/w/app_bark.py", line 85, in <module>',
            "    async def tts_websocket(websocket: WebSocket, _: None = Depends(check_model_active)):",
            "NameError: name 'Depends' is not defined",
            "INFO:     Stopping reloader process [1120528]",
        ]
    ).build_diagnosis()
    assert found.verdict is not None
    assert (found.verdict.cause, found.verdict.evidence[0].line) == (FailureCause.CRASHED, 9)


def test_a_start_that_went_on_after_a_long_wait_does_not_hang() -> None:
    # github.com/fpolica91/triton-example/blob/HEAD/vllm.log
    wait = (
        f"{CORE}INFO 03-10 20:12:48 [shm_broadcast.py:542] No available shared memory broadcast block found in 60 seconds. "
        "This typically happens when some processes are hanging or doing some time-consuming work (e.g. compilation, weight/kv cache "
        "quantization)."
    )
    build = "(Worker_TP2 pid=54564) [2026-03-10 20:16:30] INFO core.py:694: start build [module_quant] under /x/aiter/jit/build"
    hangs = diagnose_lines([*VLLM_START, *[wait] * 4]).build_diagnosis()
    assert hangs.verdict is not None
    assert hangs.verdict.cause is FailureCause.WEDGED
    assert diagnose_lines([*VLLM_START, *[wait] * 4, *[build] * 60]).build_diagnosis().verdict is None


def _read_figures(tokens: str, running: int) -> str:
    return (
        f"{API}INFO 07-15 15:32:57 [loggers.py:273] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: {tokens} "
        f"tokens/s, Running: {running} reqs, Waiting: 0 reqs, GPU KV cache usage: 0.7%, Prefix cache hit rate: 0.0%"
    )


STANDS = (
    f"{CORE}INFO 07-15 15:33:47 [shm_broadcast.py:705] No available shared memory broadcast block found in 60 seconds."
)
SCRAPE = 'INFO:     10.0.0.9:6 - "GET /metrics HTTP/1.1" 200 OK'


def test_an_engine_that_stands_still_while_requests_run_is_wedged() -> None:
    # github.com/vllm-project/vllm/issues/48752
    stands = [*VLLM_READY, _read_figures("20.5", 3), _read_figures("0.0", 3), SCRAPE, STANDS]
    found = diagnose_lines([*stands, SCRAPE]).build_diagnosis().verdict
    assert found is not None
    assert (found.cause, found.confidence, found.evidence[0].line) == (
        FailureCause.WEDGED,
        Confidence.LIKELY,
        len(stands),
    )


@pytest.mark.parametrize(
    "lines",
    [
        (_read_figures("0.0", 0), STANDS),
        (_read_figures("20.5", 3), STANDS),
        (_read_figures("0.0", 3), STANDS, _read_figures("20.5", 3)),
        (_read_figures("0.0", 3), *(STANDS, _read_figures("20.5", 3)) * 3),
    ],
)
def test_an_engine_that_said_that_it_waits_is_not_wedged_for_that_alone(lines: tuple[str, ...]) -> None:
    assert diagnose_lines([*VLLM_READY, *lines]).build_diagnosis().verdict is None


COMFYUI = [
    "[2024-02-03 17:03] Starting server",
    "[2024-02-03 17:03] To see the GUI go to: http://0.0.0.0:8188",
    *["[2024-02-03 17:04] got prompt", "[2024-02-03 17:04] Prompt executed in 10.24 seconds"] * 6,
]  # github.com/godovasik/cannybot, comfyui.log
OLLAMA = [
    'time=2025-04-16T00:46:59Z level=INFO source=routes.go:1237 msg="Listening on [::]:11434 (version 0.6.2)"'
] * 9


@pytest.mark.parametrize(
    "error",
    [
        "[2024-02-03 17:50] [Crystools ERROR] For some reason, pynvml is not working in a laptop with only battery, the monitor failed",
        "[ERROR] An error occurred while retrieving information for the 'LoadImage' node.",
        "2026-05-01 10:00:00,123 - app - ERROR - ValueError: no face in this picture",
    ],
)
def test_an_error_of_a_program_at_work_that_does_not_say_that_it_ends_is_no_failed_start(error: str) -> None:
    for up in (COMFYUI, OLLAMA):
        assert diagnose_lines([*up, error]).build_diagnosis().verdict is None
        assert diagnose_lines([*up, f"{error} Exiting with code 1"]).build_diagnosis().verdict is not None
    assert diagnose_lines(["Starting server", error]).build_diagnosis().verdict is not None


def test_a_place_that_ray_never_gave_is_why_somebody_ended_the_start() -> None:
    # ThomasVuNguyen/agent-distillation, vllm.log
    def wait(seconds: int) -> str:
        return (
            f"INFO 05-26 18:55:03 [ray_utils.py:233] Waiting for creating a placement group of specs for {seconds} seconds. "
            "specs=[{'node:10.0.0.175': 0.001, 'GPU': 1.0}, {'GPU': 1.0}]. Check `ray status` and `ray list nodes` to see if you have enough"
        )

    start = (
        "INFO 05-26 18:53:43 [config.py:585] This model supports multiple tasks.",
        "INFO 05-26 18:53:43 [api_server.py:1] vLLM API server version 0.8.2",
    )
    end = ("*** SIGTERM received at time=1748300290 on cpu 8 ***", *INTERRUPTED, "KeyboardInterrupt")
    verdict = diagnose_lines([*start, wait(10), wait(30), wait(70), *end]).build_diagnosis().verdict
    assert verdict is not None
    assert verdict.cause is FailureCause.RAY
    assert "70 seconds" in verdict.summary
    assert diagnose_lines([*start, wait(10), wait(30), *end]).build_diagnosis().verdict is None


# Alvee0033/public:ollama.log: a model that it does not know was answered with 500, another one served.
_ONE_MODEL_OF_MANY = (
    "llama_model_loader: loaded meta data with 55 key-value pairs and 2012 tensors from /m",
    "llama_model_load: error loading model: error loading model architecture: unknown model architecture: 'gemma4'",
    "llama_model_load_from_file_impl: failed to load model",
    '[GIN] 2026/04/27 - 00:30:11 | 500 |  2.056923482s |       127.0.0.1 | POST     "/api/generate"',
    '[GIN] 2026/04/27 - 00:31:05 | 200 |    1.331229ms |       127.0.0.1 | HEAD     "/"',
    '[GIN] 2026/04/27 - 00:31:06 | 200 |  512.482585ms |       127.0.0.1 | POST     "/api/show"',
    "llama_model_load: error loading model: error loading model architecture: unknown model architecture: 'gemma4'",
    "llama_model_load_from_file_impl: failed to load model",
    '[GIN] 2026/04/27 - 00:31:08 | 500 |   1.67260561s |       127.0.0.1 | POST     "/api/generate"',
    '[GIN] 2026/04/27 - 00:31:17 | 200 |    1.287082ms |       127.0.0.1 | HEAD     "/"',
    '[GIN] 2026/04/27 - 00:31:17 | 200 |  324.623997ms |       127.0.0.1 | POST     "/api/show"',
    '[GIN] 2026/04/27 - 00:31:24 | 200 |    6.7401021s |       127.0.0.1 | POST     "/api/generate"',
    '[GIN] 2026/04/27 - 00:34:17 | 200 |    2.120204ms |       127.0.0.1 | HEAD     "/"',
    '[GIN] 2026/04/27 - 00:34:18 | 200 |  239.846823ms |       127.0.0.1 | POST     "/api/show"',
    '[GIN] 2026/04/27 - 00:34:20 | 200 |  2.373993847s |       127.0.0.1 | POST     "/api/generate"',
    '[GIN] 2026/04/27 - 00:35:10 | 200 |  9.494894298s |       127.0.0.1 | POST     "/api/generate"',
)


def test_a_model_that_a_server_cannot_load_is_no_failure_once_it_serves_others() -> None:
    for count, is_failure in ((len(_ONE_MODEL_OF_MANY), False), (len(_ONE_MODEL_OF_MANY) - 5, True)):
        reading = LogDiagnoser()
        reading.feed_block("".join(f"{line}\n" for line in _ONE_MODEL_OF_MANY[:count]).encode())
        assert (reading.build_diagnosis().verdict is not None) is is_failure


_BOUND = "INFO:     Uvicorn running on http://0.0.0.0:8080 (Press CTRL+C to quit)"
_PORT_TAKEN = (
    "INFO:     Started server process [746870]",
    "INFO:     Waiting for application startup.",
    "INFO:     Application startup complete.",
    "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 8080): address already in use",
    "INFO:     Waiting for application shutdown.",
    "INFO:     Application shutdown complete.",
)
_ANSWERED = ('INFO:     127.0.0.1:50046 - "GET /health HTTP/1.1" 200 OK',) * 2
_NO_SYNTAX = (
    '  File "/mnt/d/api/server.py", line 204',
    "    payload = JSONResponse(content=json_loads := 1)",
    "                                   ^^",
    "SyntaxError: invalid syntax",
)
_IMPORT_FAILED = (
    "[2024-09-13 18:38] Traceback (most recent call last):",
    '  File "urllib3\\connection.py", line 179, in _new_conn',
    "    raise ConnectTimeoutError(",
    "urllib3.exceptions.ConnectTimeoutError: 'Connection to huggingface.co timed out. (connect timeout=None)'",
    "",
    "During handling of the above exception, another exception occurred:",
    "",
    "Traceback (most recent call last):",
    '  File "D:\\comfyui\\nodes.py", line 1993, in load_custom_node',
    *["    module_spec.loader.exec_module(module)"] * 12,
    "huggingface_hub.utils._errors.LocalEntryNotFoundError: An error happened while trying to locate the files on the Hub",
    "",
)
_PROMPT_FAILED = (
    "[2024-09-13 18:43] !!! Exception during processing !!! Sizes of tensors must match except in dimension 1.",
    "[2024-09-13 18:43] Traceback (most recent call last):",
    '  File "D:\\comfyui\\execution.py", line 323, in execute',
    "    output_data = get_output_data(obj)",
    "RuntimeError: Sizes of tensors must match except in dimension 1. Expected size 24 but got size 23",
    "",
)
_PADDED = (
    "2026-04-21 18:04:19  ERROR     [main]  RAG could not be made:",
    "Traceback (most recent call last):",
    '  File "/root/Chatbot/main.py", line 31, in lifespan',
    "    rag = Rag()",
    "OSError: Error no file named pytorch_model.bin, model.safetensors, tf_model.h5, model.ckpt.index or flax_model.msgpack found in "
    "directory /root/Chatbot/modules/Text2Vec.",
    "",
)
_TRAINER = "(TaskRunner pid=525716) "
_TEARDOWN = (
    f"{_TRAINER}Training Progress: 100%|██████████| 6/6 [20:33<00:00, 205.58s/it]",
    f"{_TRAINER}Traceback (most recent call last):",
    f'{_TRAINER}  File "/x/torch/utils/data/_utils/signal_handling.py", line 73, in handler',
    f"{_TRAINER}    _error_if_any_worker_fails()",
    f"{_TRAINER}RuntimeError: DataLoader worker (pid 563735) is killed by signal: Killed. ",
)
_UNREACHED = (
    "Could not fetch URL https://pypi.example/simple/pip/: connection error: Failed to resolve IP address for 'pypi.example' "
    "([Errno -2] Name or service not known)"
)


@pytest.mark.parametrize(
    ("failed", "later"),
    [
        # B664577/DocAvatar, start_dev.log: a program of its own beside vLLM
        ((*VLLM_READY, *_PORT_TAKEN), (_BOUND,)),
        ((*VLLM_READY, _BOUND, *_ANSWERED, *_NO_SYNTAX), (_BOUND,)),
        (_PORT_TAKEN, (_BOUND,)),
        # shungyan/genai-desktop-app, logs/ubuntu/adk.log
        (_PORT_TAKEN, ('INFO:     127.0.0.1:42306 - "POST /run HTTP/1.1" 200 OK',)),
        # wxk1998/comfyui-minmicmotion, comfyui.log
        (
            _IMPORT_FAILED,
            ("[2024-09-13 18:38] Cannot import D:\\comfyui\\custom_nodes\\Mimic module for custom nodes: the hub",),
        ),
        (_IMPORT_FAILED, COMFYUI[:2]),
        (
            (*COMFYUI[:3], *_PROMPT_FAILED),
            (
                "[2024-09-13 18:43] Prompt executed in 280.66 seconds",
                *("[2024-09-13 18:52] got prompt", "[2024-09-13 18:54] num_frames:  582"),
            ),
        ),
        # xs-H/Chatbot, logs/app.log
        (_PADDED, ("2026-04-21 18:45:32  INFO      [main]  Chat   ready",) * 10),
        # 2215860382/VedioSifter, train_run_20260421_065709.log: Ray ends the training's processes
        ((*VLLM_START, *_TEARDOWN), (f"{_TRAINER}(\"Final validation metrics: {{'val-core/acc/mean@1': \"",)),
        # zjpzhao/vllm-qwen3vl-cu118-t4, logs/vllm-build.log
        ((_UNREACHED,), ("Successfully built vllm",)),
    ],
)
def test_what_the_program_overcame_is_no_verdict(failed: tuple[str, ...], later: tuple[str, ...]) -> None:
    assert diagnose_lines(failed).build_diagnosis().verdict is not None
    assert diagnose_lines([*failed, *later]).build_diagnosis().verdict is None
    reading = LogDiagnoser()
    reading.feed_block("".join(f"{line}\n" for line in (*failed, *later)).encode())
    assert reading.build_diagnosis().verdict is None


def test_an_address_that_pip_skips_is_no_failure() -> None:
    lines = [f"{_UNREACHED} - skipping", "Looking in indexes: https://pypi.example/simple/"]
    assert diagnose_lines(lines).build_diagnosis().verdict is None


def test_a_second_address_of_one_start_is_no_second_start() -> None:
    # Flask's words at its start
    flask = (" * Running on http://127.0.0.1:5000", " * Running on http://10.0.0.9:5000")
    assert diagnose_lines([*VLLM_READY, flask[0], *_NO_SYNTAX, flask[1]]).build_diagnosis().verdict is not None


@pytest.mark.parametrize("other", ["8081", "80"])
def test_another_port_does_not_free_the_one_in_use(other: str) -> None:
    found = diagnose_lines([*VLLM_READY, *_PORT_TAKEN, _BOUND.replace("8080", other)]).build_diagnosis().verdict
    assert found is not None
    assert found.cause is FailureCause.PORT_IN_USE


def test_a_program_goes_on_in_a_log_of_many_lines_as_in_a_short_one() -> None:
    # jack-tsao/jetson-copilot, logs/container.log: 28,000 lines
    taken = "Error: listen tcp 0.0.0.0:11434: bind: address already in use\n"
    before, after = "INFO:root:1 files found!\n" * 21_000, "INFO:root:is_name_ready: 43\n" * 60
    for log, is_failure in ((f"{before}{taken}", True), (f"{before}{taken}{after}", False)):
        reading = LogDiagnoser()
        reading.feed_block(log.encode())
        assert (reading.build_diagnosis().verdict is not None) is is_failure


def test_a_worker_of_ray_that_joined_at_last_had_no_failure_before() -> None:
    tried = "[2026-05-01 10:00:00,114 E 1 1] gcs_client.cc:172: Failed to connect to GCS at address 192.168.200.11:46379 within 5 seconds."
    found = diagnose_lines([tried]).build_diagnosis().verdict
    assert found is not None
    assert found.cause is FailureCause.RAY
    joined = "2026-05-01 10:00:05,482\tSUCC scripts.py:951 -- Ray runtime started."
    assert diagnose_lines([tried, tried, joined]).build_diagnosis().verdict is None


def test_a_program_that_logs_the_traceback_of_a_prompt_goes_on() -> None:
    """github.com/comfyanonymous/ComfyUI: one prompt failed, then it was stopped."""
    up = ("To see the GUI go to: http://127.0.0.1:8188", *["got prompt"] * 9)
    frames = (
        '  File "/ComfyUI/execution.py", line 154, in recursive_execute',
        "    output_data, output_ui = get_output_data(obj, input_data_all)",
        "RuntimeError: Conv3D is not supported on MPS",
    )
    head = "Traceback (most recent call last):"
    assert (
        read_verdict(*up, f"ERROR:root:{head}", *frames, "", "Prompt executed in 68.67 seconds", "", "Stopped server")
        is None
    )
    assert read_verdict(*up, head, *frames) is FailureCause.CRASHED


def test_the_end_is_read_after_more_messages_of_a_compiler_than_are_kept() -> None:
    """github.com/jethac/dgx-spark-hijinks: FlashInfer for sm_120, nvcc refuses each of eleven files."""
    refused = ['/root/flashinfer/fastdiv.cuh(39): error: expected a ";"'] * 80
    end = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"
    assert read_verdict(*refused, end) is FailureCause.JIT_FAILED
