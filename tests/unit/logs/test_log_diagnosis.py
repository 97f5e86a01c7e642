"""A log read a block of bytes at a time tells what it tells line by line; and it tells the truth."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkctl import engines
from sparkctl.engines.line_preparer import LinePreparer
from sparkctl.logs.analyzer import LogDiagnosis
from sparkctl.logs.diagnosis import LogDiagnoser
from sparkctl.model.engine_metrics import EngineFactName
from sparkctl.model.phase import Phase
from sparkctl.model.verdict import Confidence, FailureCause
from sparkctl.monitor.engine_probe import mark_request_path
from sparkctl.views.diagnosis_view import format_diagnosis
from tests.unit.engines.test_failed_start_logs import DEATHS, VERSIONS, build_death_log

DECODE = "[2026-05-01 10:09:00] Decode batch, #running-req: 3, #token: 422, token usage: 0.00, gen throughput (token/s): 14.7"
PREFILL = "[2026-05-01 10:09:00 TP0] Prefill batch, #new-seq: 1, #new-token: 9, #cached-token: 0, token usage: 0.00"
SERVING = "(APIServer pid=1) INFO 05-01 10:09:00 [loggers.py:259] Engine 000: Avg prompt throughput: 7.1 tokens/s, Avg "\
    "generation throughput: 132.3 tokens/s, Running: 3 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.7%"  # fmt: skip
POLL = '(APIServer pid=1) INFO:     127.0.0.1:40676 - "GET /metrics HTTP/1.1" 200 OK'
USED = 'INFO:     10.0.0.7:40676 - "POST /v1/chat/completions HTTP/1.1" 200 OK'
REFUSED = 'INFO:     10.0.0.7:40676 - "POST /v1/chat/completions HTTP/1.1" 400 Bad Request'
SGLANG = (
    "[2026-05-01 10:00:00] server_args=ServerArgs(model_path='/models/qwen36', mem_fraction_static=0.8)",
    "[2026-05-01 10:00:10] Init torch distributed begin.",
    "[2026-05-01 10:00:12] Load weight begin. avail mem=111.87 GB",
    "Multi-thread loading shards:  25% Completed | 1/4 [00:00<00:00,  4.44it/s]\r"
    "Multi-thread loading shards: 100% Completed | 4/4 [00:01<00:00,  4.44it/s]",
    "[2026-05-01 10:03:12] Load weight end. elapsed=180.42 s, type=Qwen3, avail mem=78.67 GB, mem usage=30.13 GB.",
    "[2026-05-01 10:03:20] KV Cache is allocated. #tokens: 100000, K size: 8.00 GB, V size: 8.00 GB",
    "[2026-05-01 10:03:21] Capture cuda graph begin. This can take up to several minutes. avail mem=27.40 GB",
    "[2026-05-01 10:03:40] INFO:     Application startup complete.",
    "[2026-05-01 10:03:50] The server is fired up and ready to roll!",
)
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.25 GiB. GPU 0 has a total capacity of 119.64 GiB of "
    "which 1.18 GiB is free."
)
DYING = "[2026-05-01 10:10:00] Scheduler hit an exception: Traceback (most recent call last):"
AFTER = "[2026-05-01 10:10:01] Received sigquit from a child process. It usually means the child failed."
CLIENTS = (
    "ERROR:    Exception in ASGI application",
    "Traceback (most recent call last):",
    "ValueError: too many tokens asked",
)
VLLM = (
    "(APIServer pid=1) INFO 05-01 10:00:00 [utils.py:233] non-default args: {'model': '/models/q', 'oom': 'out of memory'}",
    "(EngineCore pid=9) INFO 05-01 10:00:05 [core.py:105] Initializing a V1 LLM engine (v0.19.1) with config: model='q'",
    "(EngineCore pid=9) INFO 05-01 10:00:14 [gpu_model_runner.py:71] Starting to load model /models/q...",
    "(EngineCore pid=9) INFO 05-01 10:01:35 [default_loader.py:384] Loading weights took 84.31 seconds",
    "(EngineCore pid=9) INFO 05-01 10:01:40 [kv_cache_utils.py:1319] GPU KV cache size: 174,720 tokens",
    "(APIServer pid=1) INFO 05-01 10:02:00 [api_server.py:596] Starting vLLM server on http://0.0.0.0:8000",
    "(APIServer pid=1) INFO:     Application startup complete.",
)
NO_SHARE = (
    "ValueError: Free memory on device cuda:0 (84.12/119.64 GiB) on startup is less than desired GPU memory utilization "
    "(0.8, 95.71 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes."
)
FAILED = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"


def diagnose_lines(*lines: str, engine: str | None = None) -> LogDiagnosis:
    reading = LogDiagnoser(engine)
    for line in lines:
        reading.feed_raw_line(line)
    return reading.build_diagnosis()


def diagnose_bytes(log: bytes, cut: int = 1 << 18) -> LogDiagnosis:
    reading, rest = LogDiagnoser(), b""
    for at in range(0, len(log), cut):
        whole, newline, rest = (rest + log[at : at + cut]).rpartition(b"\n")
        reading.feed_block(whole + newline)
    if rest:
        reading.feed_block(rest + b"\n")
    return reading.build_diagnosis()


# what it tells


def test_a_healthy_log_has_no_verdict_and_tells_how_long_each_part_took() -> None:
    found = diagnose_lines(*SGLANG, *[DECODE] * 5, *CLIENTS, DECODE, REFUSED)
    assert (found.engine, found.phase, found.ready, found.verdict) == ("sglang", Phase.READY, True, None)
    taken = {part.step: part.seconds for part in found.parts}
    assert taken["weights"] == 180
    assert taken["warm-up"] == 10
    assert sum(taken.values()) == 230 - 0
    assert any(took.seconds == 180.42 for took in found.took)


def test_the_first_cause_wins_over_what_follows_from_it() -> None:
    found = diagnose_lines(*SGLANG[:4], OOM, DYING, AFTER)
    assert found.verdict is not None
    assert (found.ready, found.phase, found.verdict.cause) == (False, Phase.LOADING, FailureCause.CUDA_OUT_OF_MEMORY)
    assert (found.verdict.evidence[0].line, found.verdict.evidence[0].text) == (5, OOM)
    assert found.verdict.summary.startswith("At the start (weights): ")
    assert found.verdict.contributing == ()


def test_a_failure_after_ready_is_said_to_be_while_serving() -> None:
    found = diagnose_lines(*SGLANG, DECODE, DECODE, OOM, DYING, AFTER)
    assert found.verdict is not None
    assert found.ready
    assert found.verdict.cause is FailureCause.CUDA_OUT_OF_MEMORY
    assert found.verdict.summary.startswith("While serving: ")


def test_an_error_that_was_survived_is_no_verdict() -> None:
    assert diagnose_lines(*SGLANG, OOM, *[DECODE] * 60).verdict is None
    assert diagnose_lines(*SGLANG, *CLIENTS, *[USED] * 4).verdict is None
    early = "[2026-05-01 10:00:11] requests.exceptions.HTTPError: 401 Client Error: Unauthorized for url: https://hub.example/x"
    assert diagnose_lines(*SGLANG[:2], early, *SGLANG[2:]).verdict is None


def test_another_cause_contributes() -> None:
    disk = "OSError: [Errno 28] No space left on device: '/root/.cache'"
    found = diagnose_lines(*SGLANG[:3], OOM, disk, AFTER)
    assert found.verdict is not None
    assert [one.cause for one in found.verdict.contributing] == [FailureCause.DISK_FULL]
    assert found.verdict.contributing[0].evidence[0].line == 5


def test_what_a_program_says_before_its_settings_is_of_the_same_run() -> None:
    # from jethac/dgx-spark-hijinks (a GB10)
    banner = (
        "SGLang Version 0.5.11+05fb6a52",
        "ERROR: This container was built for NVIDIA Driver Release 595.58 or later, but",
        "       version 580.159.03 was detected and compatibility mode is UNAVAILABLE.",
        "[2026-05-01 09:59:59] Hybrid swa model: self.hf_config.architectures=['Gemma4ForConditionalGeneration']",
    )
    found = diagnose_lines(*banner, *SGLANG)
    assert (found.runs, found.before, found.ready, found.verdict) == (1, None, True, None)
    alone = diagnose_lines(*banner[:3])
    assert alone.verdict is not None
    assert alone.verdict.cause is FailureCause.DRIVER_MISMATCH
    # vLLM in a server of one's own, whose HTTP server starts first
    own = diagnose_lines("INFO:     Started server process [2163909]", *VLLM)
    assert (own.runs, own.ready) == (1, True)
    assert diagnose_lines(NO_SHARE, *VLLM).runs == 2


@pytest.mark.parametrize(
    ("engine", "line"),
    [
        ("vllm", "INFO 07-04 11:32:50 [engine.py:317] Added request chatcmpl-0ff807c9e8744e56b2e69fb3687499a6."),
        (
            "vllm",
            "2025-04-03 17:38:52,710 - vllm.v1.metrics.loggers - INFO - Avg prompt throughput: 0.0 tokens/s, Avg generation "
            "throughput: 0.0 tokens/s, Running: 1 reqs",
        ),
        ("vllm", "ERROR 06-04 11:39:38 [serving_chat.py:199] Error in preprocessing prompt inputs"),
        # github.com/vllm-project/vllm, the engine before V1
        ("vllm", "ERROR 02-21 08:05:44 async_llm_engine.py:68] Engine background task failed"),
        # github.com/sgl-project/sglang
        (
            "sglang",
            "[2025-06-06 10:23:32 TP0] Prefill batch. #new-seq: 2, #new-token: 8191, #cached-token: 0, token usage: 0.01, "
            "#running-req: 1, #queue-req: 7",
        ),
        ("llamacpp", "slot update_slots: id  0 | task 0 | kv cache rm [0, end)"),
        ("llamacpp", "srv  params_from_: Chat format: DeepSeek R1"),
        # github.com/ikawrakow/ik_llama.cpp
        (
            "llamacpp",
            'INFO [   launch_slot_with_task] slot is processing task | tid="139638925832192" id_slot=0 id_task=3',
        ),
        ("llamacpp", 'INFO [            update_slots] all slots are idle | tid="133287468544000" timestamp=1746695910'),
    ],
)
def test_a_request_at_work_shows_that_the_engine_was_ready(engine: str, line: str) -> None:
    found = diagnose_lines(line, engine=engine)
    assert (found.ready, found.parts) == (True, ())


def test_what_served_and_lost_its_engine_was_not_asked_to_stop() -> None:
    # vLLM before V1
    found = diagnose_lines(
        "INFO 07-04 11:32:50 [engine.py:317] Added request chatcmpl-0ff807c9e8744e56b2e69fb3687499a6.",
        "ERROR 07-04 11:33:12 [client.py:307] RuntimeError('Engine process (pid 3607156) died.')",
        "INFO:     Shutting down",
    )
    assert found.verdict is not None
    assert found.verdict.cause is FailureCause.WORKER_LOST


def test_a_warm_up_does_not_show_that_the_engine_was_ready() -> None:
    assert not diagnose_lines(
        *SGLANG[:-1], PREFILL.replace("token usage", "#running-req: 0, #queue-req: 0, token usage")
    ).ready
    new_slot = 'INFO [                    init] new slot | tid="133287468544000" timestamp=1746695910 id_slot=0'
    assert not diagnose_lines(
        "slot   load_model: id  0 | task -1 | new slot, n_ctx = 4096", new_slot, engine="llamacpp"
    ).ready


def test_graphs_took_as_long_as_the_engine_says() -> None:
    # vLLM 0.8.4, of two ranks; the record of the second one changes nothing
    worker = "(VllmWorker rank=1 pid=12436) INFO 07-09 14:3"
    tokens = "INFO 07-09 14:35:11 [kv_cache_utils.py:634] GPU KV cache size: 69,904 tokens"
    captured = "5:42 [gpu_model_runner.py:1626] Graph capturing finished in 31 secs, took 1.74 GiB"
    made = "INFO 07-09 14:35:43 [core.py:163] init engine (profile, create kv cache, warmup model) took 67.19 seconds"
    found = diagnose_lines(
        "INFO 07-09 14:34:15 [core.py:61] Initializing a V1 LLM engine (v0.8.4) with config: model='m'",
        f"{worker}4:31 [gpu_model_runner.py:1276] Starting to load model m...",
        f"{worker}4:34 [loader.py:458] Loading weights took 1.21 seconds",
        tokens,
        *(f"{worker}{captured}",) * 2,
        made,
    )
    taken = {part.step: part.seconds for part in found.parts}
    assert taken == {None: 16, "weights": 3, "profiling": 37, "kv-cache": 0, "graphs": 32, "http": 0}
    # vLLM 0.25.1 on a GB10: a bar without a time, kernels before it
    core = "(EngineCore pid=30070) "
    found = diagnose_lines(
        f"{core}INFO 08-01 23:22:41 [kv_cache_utils.py:2146] GPU KV cache size: 950,420 tokens",
        f"{core}INFO 08-01 23:22:44 [kernel_warmup.py:118] Warming up FlashInfer attention.",
        f"{core}Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):   0%|          | 0/51 [00:00<?, ?it/s]",
        f"{core}INFO 08-01 23:25:15 [gpu_model_runner.py:6707] Graph capturing finished in 8 secs, took 1.02 GiB",
    )
    taken = {part.step: part.seconds for part in found.parts}
    assert (taken["autotune"], taken["graphs"]) == (143, 8)


def test_an_excerpt_without_a_start_tells_no_duration_of_one() -> None:
    compiled = "(Worker_TP0 pid=7) INFO 05-01 10:00:0{} [monitor.py:33] torch.compile takes 13.0 s in total"
    found = diagnose_lines(compiled.format(0), compiled.format(1))
    assert (found.engine, found.parts) == ("vllm", ())
    http = "2026-01-01T00:00:00Z INFO:     Started server process [1]"
    assert diagnose_lines(http, "2026-01-01T06:37:00Z connected").parts == ()


def test_a_model_that_llama_server_loads_after_it_was_ready_is_of_a_new_run() -> None:
    load = "load_tensors: loading model tensors, this can take a while... (mmap = true)"
    ready = "main: server is listening on http://127.0.0.1:8081 - starting the main loop"
    first = (
        "build: 5894 (33f1bb9f) with cc 13.3.0 for x86_64-linux-gnu",
        load,
        "llama_context: n_ctx         = 4096",
        load,
        ready,
    )
    failed = "graph_reserve: failed to allocate compute buffers"
    found = diagnose_lines(*first, load, "llama_context: n_ctx         = 16384", failed)
    assert (found.runs, found.run_began, found.ready, found.version) == (2, 6, False, "b5894")
    assert [one.value for one in found.facts if one.name is EngineFactName.KV_CACHE_TOKENS] == ["16384"]
    assert diagnose_lines(*first).runs == 1  # a draft model
    asked = '[GIN] 2026/01/28 - 01:19:02 | 200 |  3.68s | 127.0.0.1 | POST "/api/chat"'
    ollama = diagnose_lines(load, asked, load, engine="llamacpp")
    assert (ollama.ready, ollama.runs) == (True, 1)
    assert (
        diagnose_lines("build: 1 (ebbf544) with GNU 14.3.0 for Linux x86_64", ready, engine="llamacpp").version is None
    )


def test_a_check_that_fails_at_work_begins_no_run() -> None:
    # llama.cpp b5080, an embedding model
    check = (
        'src/llama-context.cpp:1220: GGML_ASSERT((cparams.causal_attn || cparams.n_ubatch >= n_tokens_all) && "non-causal attention '
        'requires n_ubatch >= n_tokens") failed'
    )
    ready = "main: server is listening on http://192.168.0.2:8080 - starting the main loop"
    found = diagnose_lines(ready, "slot launch_slot_: id  0 | task 0 | processing task", check)
    assert (found.ready, found.runs) == (True, 1)
    assert found.verdict is not None


def test_a_word_of_a_model_s_class_is_no_engine() -> None:
    # ComfyUI
    assert (
        diagnose_lines("You are using the <class 'transformers.models.llama.tokenization_llama_fast.X'>.").engine
        is None
    )


def test_two_records_in_one_line_tell_no_duration() -> None:
    # vLLM 0.8.0 under Ray
    mixed = (
        "(RayWorkerWrapper pid=3178) INFO 03-25 08:34:23 [gpu_model_runner.(RayWorkerWrapper pid=3178) INFO 03-25 08:34:23 "
        "[loader.py:429] Loading weights took 41.61 seconds"
    )
    assert diagnose_lines(mixed, engine="vllm").took == ()


def test_what_follows_from_a_failure_is_no_other_cause() -> None:
    # github.com/sgl-project/sglang: its own server, which did not get its port
    port = "[2024-12-05 17:27:24] ERROR:    [Errno 98] error while attempting to bind on address ('::', 31000, 0, 0): address already in use"
    asked = (
        "requests.exceptions.ConnectionError: HTTPConnectionPool(host='0.0.0.0', port=31000): Max retries exceeded with url: "
        "/get_model_info (Caused by NewConnectionError('Failed to establish a new connection: [Errno 111] Connection refused'))"
    )
    late = "TimeoutError: Timed out waiting for engine core processes to start."
    for engine, lines in (("sglang", (port, asked)), ("vllm", (NO_SHARE, late))):
        verdict = diagnose_lines(*lines, engine=engine).verdict
        assert verdict is not None
        assert verdict.contributing == ()


def test_the_acceptance_of_drafts_is_that_of_many_intervals() -> None:
    record = (
        "INFO 11-22 10:00:10 [metrics.py:101] SpecDecoding metrics: Mean acceptance length: {}, Accepted: {} tokens, "
        "Drafted: {} tokens, Avg Draft acceptance rate: {}%"
    )
    lines = (record.format("2.50", 150, 300, "50.0"), record.format("1.10", 1, 30, "3.3"))
    by_block = LogDiagnoser("vllm")
    by_block.feed_block("".join(f"{line}\n" for line in lines).encode())
    for found in (diagnose_lines(*lines, engine="vllm"), by_block.build_diagnosis()):
        assert [fact.value for fact in found.facts] == ["2.37 tokens a step, 46% of the drafts accepted"]


def test_of_several_runs_the_last_one_counts() -> None:
    found = diagnose_lines(*SGLANG[:4], OOM, AFTER, *SGLANG)
    assert (found.runs, found.run_began, found.ready, found.verdict) == (2, 7, True, None)
    assert found.before is not None
    assert found.before.cause is FailureCause.CUDA_OUT_OF_MEMORY
    thrice = diagnose_lines(*(*VLLM[:3], NO_SHARE, FAILED) * 3)
    assert thrice.verdict is not None
    assert (thrice.runs, thrice.verdict.cause, thrice.verdict.evidence[0].line) == (
        3,
        FailureCause.STARTUP_MEMORY_CHECK,
        14,
    )


def test_the_end_of_a_log_alone_shows_that_it_served() -> None:
    assert diagnose_lines(*[PREFILL, DECODE] * 3).ready
    assert diagnose_lines(*[SERVING, POLL] * 3).ready
    assert not diagnose_lines(*[POLL] * 30).ready


@pytest.mark.parametrize("frame", [
    "2026-05-01T10:00:00.123456789Z ", "engine-1  | ", "engine-1  | 2026-05-01T10:00:00.123456789Z ",
    "2026-05-01T10:00:00.1Z stdout F ",
    "[pod/qwen-0/engine] ", "May  1 10:00:00 spark1 docker[912]: ", "2026-05-01T10:00:00+0000 spark1 vllm[9]: ",
    "llm_vllm.1.k2j3h4k5j6h7@spark1    | ",
])  # fmt: skip
@pytest.mark.parametrize("log", [(*VLLM, SERVING), (*VLLM[:4], NO_SHARE, FAILED), (*SGLANG[:4], OOM, AFTER)])
def test_what_others_put_before_a_line_changes_nothing(frame: str, log: tuple[str, ...]) -> None:
    plain, framed = diagnose_lines(*log), diagnose_lines(*(frame + line for line in log))
    assert (framed.engine, framed.phase, framed.ready) == (plain.engine, plain.phase, plain.ready)
    assert framed.verdict == plain.verdict
    assert (plain.verdict is None) is plain.ready


def test_colours_carriage_returns_and_colours_that_lost_their_escape() -> None:
    coloured = [line.replace("(APIServer pid=1)", "\x1b[0;36m(APIServer pid=1)\x1b[0;0m") + "\r" for line in VLLM]
    for log in (coloured, [line.replace("\x1b", "") for line in coloured]):
        assert diagnose_lines(*log).ready, log
        assert diagnose_bytes("\n".join([*log, SERVING, ""]).encode()).ready


def test_a_secret_is_masked_wherever_it_turns_up() -> None:
    token, key = "hf_" + "a" * 30, "sesame-" + "9" * 9
    lines = [
        f"vllm serve: error: unrecognized arguments: --api-key {key} --howl {token}",
        f"OSError: 401 Client Error for url https://user:{key}@hub.example/x with HF_TOKEN={token}",
    ]
    for line in lines:
        text = repr(diagnose_lines(VLLM[0], line))
        assert token not in text
        assert key not in text


def test_a_log_of_an_unknown_engine() -> None:
    empty = LogDiagnoser().build_diagnosis()
    assert (empty.engine, empty.verdict, empty.lines) == (None, None, 0)
    alien = diagnose_lines("widget made", "widget 2 failed: no such thing", "    at widget 2")
    assert (alien.engine, alien.ready) == (None, False)
    assert alien.verdict is not None
    assert (alien.verdict.cause, alien.verdict.evidence[0].line) == (FailureCause.CRASHED, 2)
    assert diagnose_lines("widget made").verdict is None


@pytest.mark.parametrize(
    "log",
    [
        "[    1.200000] ACPI BIOS Error (bug): Could not resolve symbol [PC00], AE_NOT_FOUND\n[    2.300000] r8127: Link is Up",
        "Nov 20 10:00:01 spark kernel: Bluetooth: hci0: Failed to load firmware, using default\n"
        "Nov 20 10:00:02 spark systemd[1]: Finished daily apt",
        'time="2026-11-20T10:00:00Z" level=info msg="starting"\n'
        'time="2026-11-20T10:00:00Z" level=warning msg="failed to load plugin, skipping" error="skip plugin"',
        'time="2026-11-20T10:00:00Z" level=error msg="failed to load cni during init" error="cni config load failed"\n'
        'time="2026-11-20T10:00:00Z" level=info msg="containerd successfully booted in 0.05s"',
        '2026/11/20 10:00:01 [error] 7#7: *1 open() "/usr/share/favicon.ico" failed (2: No such file or directory)\n'
        '127.0.0.1 - - [20/Nov/2026:10:00:09 +0000] "GET / HTTP/1.1" 200 12',
        "Step 3/9 : RUN make\n cc -Werror -c error.c\nSuccessfully built abc",
        "open-webui  | INFO  [open_webui] ERROR connecting to vector db, retrying\nopen-webui  | INFO ready",
    ],
)
def test_a_program_that_is_no_engine_and_goes_on_has_not_failed(log: str) -> None:
    assert diagnose_lines(*log.split("\n")).verdict is None
    assert diagnose_bytes(f"{log}\n".encode()).verdict is None


@pytest.mark.parametrize(
    "end",
    [
        'time="2026-11-20T10:00:00Z" level=error msg="failed to load cni" error="cni config load failed"',
        'level=ERROR source=server.go:303 msg="runner terminated" error="exit status 2"\n[GIN] | 500 | POST "/api/generate"',
        "make: *** [all] Error 2: cannot build it",
    ],
)
def test_the_last_words_of_a_program_that_is_no_engine_are_its_end(end: str) -> None:
    found = diagnose_lines("widget made", *end.split("\n")).verdict
    assert found is not None
    assert (found.cause, found.evidence[0].line) == (FailureCause.CRASHED, 2)


def test_a_log_that_is_told_to_be_an_engines_is_read_as_that() -> None:
    assert diagnose_lines("hello", engine="vllm").engine == "vllm"


@pytest.mark.parametrize("engine", sorted(VERSIONS))
def test_every_death_that_is_known_is_told_of_a_log_that_nobody_named(engine: str) -> None:
    """Of each engine version, in whichever wrapping, and in a restart loop of three."""
    wrong = []
    for version in VERSIONS[engine]:
        for death in DEATHS[engine]:
            log = build_death_log(engine, version, death)
            found = diagnose_bytes(log.encode())
            by_line = diagnose_lines(*log.removesuffix("\n").split("\n"))
            framed = diagnose_bytes(
                "".join(f"engine-1  | 2026-05-01T10:00:00.1Z {line}\r\n" for line in log.splitlines()).encode()
            )
            loop = diagnose_bytes(log.encode() * 3)
            for name, one in (("whole", found), ("by line", by_line), ("framed", framed), ("loop", loop)):
                verdict = one.verdict
                if verdict is None or (verdict.cause, verdict.field) != (death.cause, death.field):
                    wrong.append(
                        (name, version, death.text[:90], death.cause, None if verdict is None else verdict.cause)
                    )
            is_anothers = found.engine not in (engine, None) and death.where != "bare"  # the kernel names processes
            if found != by_line or is_anothers or found.ready:
                wrong.append(("alike", version, death.text[:90], found.engine, found.ready))
    assert not wrong


# how an engine ends that served


CORE = "(EngineCore pid=9) ERROR 05-01 10:10:00 [core.py:1108] "
DEAD = (
    "(APIServer pid=1) ERROR 05-01 10:10:01 [async_llm.py:707] vllm.v1.engine.exceptions.EngineDeadError: EngineCore "
    "encountered an issue. See stack trace (above) for the root cause."
)
STOPPED = (
    "(APIServer pid=1) INFO 05-01 10:11:00 [launcher.py:137] Shutting down FastAPI HTTP server.",
    "(APIServer pid=1) INFO:     Application shutdown complete.",
)
ODD = (
    "KeyError: 'req-17'",
    "AssertionError",
    "AssertionError: slots",
    "torch.AcceleratorError: CUDA error: initialization error",
)


@pytest.mark.parametrize("odd", ODD)
def test_an_engine_that_dies_at_work_of_what_no_rule_knows_has_crashed(odd: str) -> None:
    trace = "Traceback (most recent call last):"
    vllm = (*VLLM, SERVING, CORE + "EngineCore encountered a fatal error.", CORE + trace, CORE + odd, DEAD, *STOPPED)
    sglang = (
        *SGLANG,
        DECODE,
        DYING,
        '  File "scheduler.py", line 3, in run',
        odd,
        "",
        AFTER.replace("Received sig", "SIG"),
    )
    for log, number in ((vllm, 11), (sglang, 13), ((*sglang[:-1], AFTER), 13)):
        for found in (diagnose_lines(*log), diagnose_bytes("\n".join([*log, ""]).encode())):
            assert found.verdict is not None, log
            assert (found.ready, found.verdict.cause, found.stopped_at is not None) == (
                True,
                FailureCause.CRASHED,
                False,
            )
            assert (found.verdict.evidence[0].line, found.verdict.evidence[0].text) == (number, odd)
            assert found.verdict.summary.startswith("While serving: ")


def test_what_its_parts_say_of_each_other_while_a_server_stops_is_no_end() -> None:
    found = diagnose_lines(*VLLM, SERVING, *STOPPED, DEAD)
    assert (found.verdict, found.ready, found.stopped_at is not None) == (None, True, True)
    assert (
        diagnose_lines(*VLLM, SERVING, STOPPED[0], DEAD, CORE + "EngineCore encountered a fatal error.").verdict is None
    )
    assert diagnose_lines(*VLLM, SERVING).stopped_at is None


def test_an_error_in_a_models_own_text_is_none_of_the_engine() -> None:
    assert diagnose_lines(*VLLM, SERVING, OOM, SERVING, SERVING).verdict is None
    idle = SERVING.replace("132.3", "0.0")
    for log in (
        [OOM, idle, idle, idle],
        [OOM, SERVING],
        [CORE + "EngineCore encountered a fatal error.", OOM, *[SERVING] * 3],
    ):
        result = diagnose_lines(*VLLM, SERVING, *log).verdict
        assert result is not None
        assert result.cause is FailureCause.CUDA_OUT_OF_MEMORY


# several runs in one log

BANNER = "(APIServer pid=1) INFO 05-02 10:11:12 [utils.py:299]  ▄▄ ▄█ █     █     █ ▀▄▀▀ █  version "
HOWL = "error: unrecognized arguments: --howl"
NO_CONFIG = (
    "Traceback (most recent call last):",
    "ValueError: Unrecognized model in /models/x. Should have a `model_type` key in its config.json.",
)


def test_a_run_of_another_engine_is_a_run() -> None:
    found = diagnose_lines(*SGLANG, DECODE, DECODE, BANNER + "0.19.1", *VLLM[:4], NO_SHARE, FAILED)
    assert (found.engine, found.version, found.runs, found.run_began, found.ready) == ("vllm", "0.19.1", 2, 12, False)
    assert found.verdict is not None
    assert (found.verdict.cause, found.verdict.evidence[0].line) == (FailureCause.STARTUP_MEMORY_CHECK, 17)
    back = diagnose_lines(*VLLM[:4], NO_SHARE, FAILED, *SGLANG, DECODE)
    assert (back.engine, back.runs, back.run_began, back.ready, back.verdict) == ("sglang", 2, 7, True, None)
    assert back.before is not None
    assert back.before.cause is FailureCause.STARTUP_MEMORY_CHECK


@pytest.mark.parametrize("is_stopped", [False, True])
@pytest.mark.parametrize(
    ("served", "words", "engine", "cause"),
    [
        (VLLM, ("usage: vllm serve [-h]", f"vllm serve: {HOWL}"), "vllm", FailureCause.UNKNOWN_FLAG),
        (SGLANG, ("usage: launch_server.py [-h]", f"launch_server.py: {HOWL}"), "sglang", FailureCause.UNKNOWN_FLAG),
        (SGLANG, ("usage: vllm serve [-h]", f"vllm serve: {HOWL}"), "vllm", FailureCause.UNKNOWN_FLAG),
        (VLLM, NO_CONFIG, "vllm", FailureCause.MODEL_FILES),
        (SGLANG, NO_CONFIG, "sglang", FailureCause.MODEL_FILES),
    ],
)
def test_what_only_a_start_can_say_is_never_while_serving(
    served: tuple[str, ...], words: tuple[str, ...], engine: str, cause: FailureCause, is_stopped: bool
) -> None:
    work = SERVING if served is VLLM else DECODE
    ends = (STOPPED if served is VLLM else ("[2026-05-01 10:11:00] INFO:     Shutting down",)) if is_stopped else ()
    log = (*served, work, work, *ends, *words)
    found = diagnose_lines(*log)
    assert found == diagnose_bytes("\n".join([*log, ""]).encode())
    assert found.verdict is not None
    assert (found.engine, found.ready, found.runs, found.verdict.cause) == (engine, False, 2, cause)
    assert found.run_began == len(log) - 1
    assert "While serving" not in found.verdict.summary
    if words is NO_CONFIG:
        assert diagnose_lines(*served, work, *words, POLL, work, work).ready  # a client's nonsense: it went on


def test_a_llama_server_that_refuses_a_flag_after_a_good_run() -> None:
    good = ("0.00.100.000 I build_info: b7001-abc", "0.24.777.216 I main: server is listening on http://0.0.0.0:8080")
    found = diagnose_lines(*good, "error: invalid argument: --howl")
    assert found.verdict is not None
    assert (found.ready, found.runs, found.verdict.cause) == (False, 2, FailureCause.UNKNOWN_FLAG)


def test_a_run_begins_at_its_banner_with_its_own_version() -> None:
    old = (BANNER + "0.11.0", VLLM[0], *VLLM[2:4], NO_SHARE, FAILED)
    found = diagnose_lines(*old, BANNER + "0.19.1", *VLLM, SERVING)
    assert (found.version, found.runs, found.run_began, found.ready) == ("0.19.1", 2, 7, True)
    bare = diagnose_lines(*old, *VLLM)  # without a banner the engine says it later
    assert (bare.version, bare.run_began) == ("0.19.1", 7)


# an end that no rule knows


@pytest.mark.parametrize(
    "log",
    [
        (*VLLM[:4], CORE + "Something odd came to pass"),
        (*VLLM[:4], CORE + "Something odd came to pass", "(APIServer pid=1) INFO:     Finished server process [1]"),
        ("[12/20/2025-04:21:10] [TRT-LLM] [I] Using LLM with PyTorch backend", "[TensorRT-LLM][ERROR] Something odd"),
        ("0.00.100.000 I build_info: b7001-abc", "0.24.777.216 E something odd came to pass"),
    ],
)
def test_a_log_that_ends_on_an_error_without_a_name_has_crashed(log: tuple[str, ...]) -> None:
    found = diagnose_lines(*log)
    assert found.verdict is not None
    assert (found.ready, found.verdict.cause) == (False, FailureCause.CRASHED)
    assert "omething odd" in found.verdict.evidence[0].text
    assert diagnose_lines(*log, *[VLLM[2]] * 9).verdict is None or log[0] != VLLM[0]  # it went on


def test_a_validation_error_is_proved_by_its_first_line() -> None:
    error = (
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for SpeculativeConfig",
        "method",
        "  Input should be 'ngram' [type=literal_error, input_value='howl', input_type=str]",
        "    For further information visit https://errors.example/2/v/literal_error",
    )
    result = diagnose_lines(VLLM[0], *error).verdict
    assert result is not None
    assert result.evidence[0].line == 2
    assert result.evidence[0].text.startswith("1 validation error for SpeculativeConfig: method: Input should")


def test_a_client_s_request_that_is_refused_is_no_end() -> None:
    error = (
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for ChatCompletionRequest",
        "messages",
        "  Field required [type=missing, input_value={}, input_type=dict]",
        "    For further information visit https://errors.example/2/v/missing",
    )
    found = diagnose_lines(*VLLM, SERVING, *error)
    assert (found.verdict, found.ready, found.runs) == (None, True, 1)


def test_a_late_bar_is_no_step_back() -> None:
    bar = "Loading safetensors checkpoint shards: 100% Completed | 2/2 [00:20<00:00, 10.1s/it]"
    found = diagnose_lines(
        *VLLM[:4], "(EngineCore pid=9) INFO 05-01 10:01:39 [g.py:1] Available KV cache memory: -3.1 GiB", bar
    )
    assert (found.phase, found.step) == (Phase.LOADING, "kv-cache")


@pytest.mark.parametrize("quoting", ["    ", "> ", ">", "\t", "> > ", "        "])
def test_a_paste_is_read_though_each_line_is_quoted(quoting: str) -> None:
    for log in ((*VLLM[:4], NO_SHARE, FAILED), (*VLLM[:4], *ODD[:1], "", NO_SHARE, FAILED), (*VLLM, *[SERVING] * 20)):
        quoted = [quoting + line if line else quoting.rstrip() for line in log]
        assert diagnose_lines(*quoted) == diagnose_lines(*log)
        assert diagnose_bytes("\n".join([*quoted, ""]).encode()) == diagnose_lines(*log)


_GATED = "OSError: You are trying to access a gated repo."
_HEADED = f"(EngineCore pid=164) ERROR 03-17 07:16:07 [core.py:1108] {_GATED}"


@pytest.mark.parametrize(
    "line",
    [
        f"  Line 118: {_HEADED}",
        f"118:{_HEADED}",
        f"- `{_GATED}`",
        f"`{_HEADED}",
        f"[VLLM LOG] {_HEADED}",
        f"[2025-12-18T16:24:02+08:00] run-8b-3da56 >> {_HEADED}",
        f"ERROR [multiproc_executor.py:912] {_GATED}",
        f"(Worker_TP0) ERROR [multiproc_executor.py:912] {_GATED}",
        f"[TP0 EP0] {_GATED}",
        f"    {_HEADED}",
        f" {_GATED}",
    ],
)
def test_a_line_is_read_whatever_stands_before_it(line: str) -> None:
    for log in ((line,), ("a note above it", line)):
        found = diagnose_lines(*log).verdict
        assert found is not None, log
        assert found.cause is FailureCause.MODEL_GATED, log
        assert diagnose_bytes("\n".join([*log, ""]).encode()).verdict == found


def test_an_indented_line_in_an_excerpt_of_a_traceback_is_source_code() -> None:
    assert diagnose_lines('  File "/x/hub.py", line 3, in get', f"  {_GATED}", "    pass").verdict is None


@pytest.mark.parametrize("end", ["", "```", "$ ", "</details>"])
def test_what_ends_a_paste_hides_no_raise_statement_at_which_it_was_cut(end: str) -> None:
    cut = (
        '  File "/x/kv_cache_utils.py", line 699, in check_enough_kv_cache_memory',
        '    raise ValueError("No available memory for the cache blocks. "',
        '                     "Try increasing `gpu_memory_utilization`.")',
    )
    log = (*(f"{CORE}ERROR 10-25 13:08:43 [core.py:708] {line}" for line in cut), end)
    found = diagnose_bytes("\n".join([*log, ""]).encode()).verdict
    assert found is not None
    assert found.cause is FailureCause.KV_CACHE_TOO_SMALL
    assert diagnose_lines(*log).verdict == found


# that it is the same, whichever way it is read


@pytest.mark.parametrize("name", engines.engine_names())
def test_an_engine_at_work_says_nothing_else_with_such_a_line(name: str) -> None:
    engine = engines.load_engine(name)
    for start in engine.signs.serving:
        for rest in ("", "0: ", " RuntimeError: CUDA out of memory", ": 12% Completed | 1/2 [00:01<"):
            assert engine.classify_line(start + rest) is None, start
    for start in engine.signs.begins:
        assert not start.startswith(engine.signs.serving)


DYING_LOGS = st.sampled_from(
    [build_death_log(engine, VERSIONS[engine][0], death) for engine in DEATHS for death in DEATHS[engine]]
)
PARTS = DYING_LOGS | st.sampled_from(
    [
        *SGLANG, *VLLM, OOM, DYING, AFTER, *CLIENTS, NO_SHARE, FAILED, DECODE, PREFILL, SERVING, POLL, USED, REFUSED, "",
        " ", "\t", DECODE + "\r", "\x1b[32m" + POLL + "\x1b[0m", "engine-1  | " + DECODE, SERVING[:90], "é " + DECODE,
        "2026-05-01T10:00:00.1Z " + SERVING, "[0;36m" + POLL, DECODE[:21] + "Decode batches failed: no such thing",
        "Decode batch" + chr(0x9B) + "31m", "pydantic_core.ValidationError: 1 validation error for SpeculativeConfig",
        POLL.replace("metrics", "metrics?by=sparkctl"), USED.replace("completions", "completions?by=sparkctl"),
        *STOPPED, DEAD, BANNER + "0.19.1", f"vllm serve: {HOWL}", *NO_CONFIG, "usage: vllm serve [-h]", CORE + "odd", *ODD,
        "    indented", "> quoted", "(APIServer pid=41) usage: vllm serve", f"launch_server.py: {HOWL}",
        '    raise ValueError("No available memory for the cache blocks. "', '  File "/x/kv_cache.py", line 3, in check', "```",
        "method", "  Input should be 'ngram' [type=literal_error, input_value='howl', input_type=str]",
        "    For further information visit https://errors.example/2/v/literal_error", "widget failed: no such thing",
        "(EngineCore pid=9) " * 2 + DECODE, "(Worker_TP0 pid=1) (Worker_TP1 pid=2) " + NO_SHARE, "| " + POLL, "x" * 9000,
    ]
)  # fmt: skip
LOGS = st.lists(st.tuples(PARTS, st.sampled_from([1, 1, 1, 2, 60])), max_size=40).map(
    lambda some: "\n".join(line for line, times in some for _ in range(times))
)


@settings(max_examples=40 if settings.default.derandomize else 300, deadline=None)
@given(LOGS, st.sampled_from([64, 1000, 1 << 18]), st.binary(max_size=12))
def test_blocks_and_lines_tell_the_same(log: str, cut: int, noise: bytes) -> None:
    raw = log.encode() + noise.replace(b"\n", b"") + b"\n"
    by_line = LogDiagnoser()
    for line in raw[:-1].split(b"\n"):
        by_line.feed_raw_line(line.decode("utf-8", "replace"))
    assert diagnose_bytes(raw, cut) == by_line.build_diagnosis()


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=400))
def test_anything_can_be_read(raw: bytes) -> None:
    found = diagnose_bytes(raw + b"\n")
    assert found.lines == raw.count(b"\n") + 1


def test_the_preparer_says_whether_the_next_line_belongs_to_an_error() -> None:
    preparer = LinePreparer()
    assert preparer.joining is None
    preparer.prepare_lines("pydantic_core.ValidationError: 1 validation error for SpeculativeConfig")
    assert preparer.joining is not None


def test_one_line_of_a_refused_flag_is_a_whole_log_of_llama_server() -> None:
    result = diagnose_lines("error: invalid argument: --no-such-flag")
    assert result.engine == "llamacpp"
    assert result.verdict is not None
    assert result.verdict.cause is FailureCause.UNKNOWN_FLAG


def test_our_own_questions_after_the_end_are_not_its_last_word() -> None:
    asked = f'(APIServer pid=1) INFO:     127.0.0.1:4 - "GET {mark_request_path("/metrics")} HTTP/1.1" 500 Internal Server Error'
    assert diagnose_lines(*VLLM, asked, asked).verdict == diagnose_lines(*VLLM).verdict
    dead = diagnose_lines(*SGLANG[:5], OOM)
    assert dead.verdict is not None
    assert diagnose_lines(*SGLANG[:5], OOM, asked).verdict == dead.verdict


@pytest.mark.parametrize(
    ("engine", "line", "said"),
    [
        (
            "vllm",
            "(APIServer pid=1) INFO 11-22 10:00:10 [metrics.py:101] SpecDecoding metrics: Mean acceptance length: 2.31, "
            "Accepted throughput: 13.10 tokens/s, Drafted throughput: 30.00 tokens/s, Accepted: 131 tokens, Drafted: 300 tokens, "
            "Per-position acceptance rate: 0.700, 0.400, 0.210, Avg Draft acceptance rate: 43.7%",
            "2.31 tokens a step, 44% of the drafts accepted",
        ),
        (
            "sglang",
            "[2026-11-20 16:34:09] Decode batch, #running-req: 1, #token: 130, token usage: 0.00, accept len: 2.50, "
            "accept rate: 0.50, cuda graph: True, gen throughput (token/s): 41.20, #queue-req: 0",
            "2.50 tokens a step, 50% of the drafts accepted",
        ),
    ],
)
def test_the_acceptance_of_drafts_is_a_fact(engine: str, line: str, said: str) -> None:
    by_block, by_line = LogDiagnoser(engine), LogDiagnoser(engine)
    by_block.feed_block(f"{line}\n".encode())
    by_line.feed_raw_line(line)
    for found in (by_block.build_diagnosis(), by_line.build_diagnosis()):
        assert {one.name: one.value for one in found.facts}[EngineFactName.DRAFT_ACCEPTANCE] == said


def test_ranks_that_talk_over_sockets_are_a_fact_with_advice_and_no_failure() -> None:
    """From nccl's ncclNetInit, as in a container without /dev/infiniband."""
    text = (
        "(APIServer pid=1) INFO 07-21 10:00:02 [utils.py:325] vLLM API server version 0.25.1\n"
        "spark1:88:88 [0] NCCL INFO NET/IB : No device found.\n"
        "spark1:88:88 [0] NCCL INFO NET/Socket : Using [0]enP7s7:192.168.1.20<0>\n"
        "spark1:88:88 [0] NCCL INFO Using network Socket\n"
        "(APIServer pid=1) INFO:     Application startup complete.\n"
    )
    by_block, by_line = LogDiagnoser(), LogDiagnoser()
    by_block.feed_block(text.encode())
    for line in text.splitlines():
        by_line.feed_raw_line(line)
    for found in (by_block.build_diagnosis(), by_line.build_diagnosis()):
        assert found.verdict is None
        assert {one.name: one.value for one in found.facts}[EngineFactName.NETWORK] == "plain sockets, not RDMA"
        assert any("/dev/infiniband" in line for line in format_diagnosis(found, str, None))


@pytest.mark.parametrize(
    ("engine", "lines", "name", "said", "advised"),
    [
        # vLLM's loggers.py, with a request that fits into no cache (model-serving-minefield, lead L003)
        (
            "vllm",
            "(APIServer pid=1) INFO 11-20 09:30:10 [loggers.py:257] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation "
            "throughput: 0.0 tokens/s, Running: 0 reqs, Waiting: 1 reqs, GPU KV cache usage: 0.0%, Prefix cache hit rate: 0.0%\n",
            EngineFactName.WAITING_REQUESTS,
            "1, and none runs",
            "never admitted",
        ),
        # NVIDIA/dgx-spark-playbooks, nemotron: a client's `model` is not the served name
        (
            "vllm",
            '(APIServer pid=1) INFO:     172.17.0.1:51234 - "POST /v1/chat/completions HTTP/1.1" 404 Not Found\n',
            EngineFactName.REFUSED_REQUEST,
            "/v1/chat/completions: 404",
            "served name",
        ),
        # model-serving-minefield, trap 84
        (
            "llamacpp",
            'got exception: {"error":{"code":400,"message":"Unable to generate parser for this template. Automatic parser generation '
            'failed: \\nError: Jinja Exception: After the optional system message, conversation roles must alternate",'
            '"type":"invalid_request_error"}}\n',
            EngineFactName.REFUSED_REQUEST,
            "400: After the optional system message, conversation roles must alternate",
            "the request has to be another",
        ),
        (
            "llamacpp",
            "slot update_slots: id  0 | task 2 | forcing full prompt re-processing due to lack of cache data (likely due to SWA)\n",
            EngineFactName.PREFIX_CACHE,
            "not used: a prompt was read again from its beginning",
            "each turn of a long conversation",
        ),
        # trap 43
        (
            "vllm",
            "(APIServer pid=1) ERROR 11-20 09:31:20 [serving_chat.py:256] TypeError: Can only get item pairs from a mapping.\n"
            '(APIServer pid=1) INFO:     172.17.0.1:51234 - "POST /v1/chat/completions HTTP/1.1" 400 Bad Request\n',
            EngineFactName.CHAT_TEMPLATE,
            "it takes a tool call's arguments as an object only, and got text",
            "made for this engine",
        ),
        # llama.cpp's common/chat.cpp (trap 24)
        (
            "llamacpp",
            "common_chat_templates_init: failed to parse chat template (defaulting to chatml): Unknown filter 'items' at row 12\n",
            EngineFactName.CHAT_TEMPLATE,
            "defaulting to chatml",
            "chat-template-file",
        ),
    ],
)
def test_what_a_serving_engine_says_of_its_requests_is_a_fact_with_advice_and_no_failure(
    engine: str, lines: str, name: EngineFactName, said: str, advised: str
) -> None:
    ready = {
        "vllm": "(APIServer pid=1) INFO:     Application startup complete.\n",
        "llamacpp": "main: server is listening on http://0.0.0.0:8080 - starting the main loop\n",
    }[engine]
    by_block, by_line = LogDiagnoser(engine), LogDiagnoser(engine)
    by_block.feed_block((ready + lines).encode())
    for line in (ready + lines).splitlines():
        by_line.feed_raw_line(line)
    for found in (by_block.build_diagnosis(), by_line.build_diagnosis()):
        assert found.verdict is None
        assert {one.name: one.value for one in found.facts}[name] == said
        assert any("to do: " in line and advised in line for line in format_diagnosis(found, str, None))


def test_the_gpu_s_own_arithmetic_is_named_for_number_formats_only() -> None:
    """Layers on the CPU and an engine without flash attention are slow in another way, which the value says."""
    found = LogDiagnoser("llamacpp")
    found.feed_block(
        b"load_tensors: offloaded 0/37 layers to GPU\nllama_context: flash_attn    = 0\n"
        b"main: server is listening on http://0.0.0.0:8080 - starting the main loop\n"
    )
    shown = "\n".join(format_diagnosis(found.build_diagnosis(), str, None))
    assert "0 of 37 layers on the GPU\n" in shown
    assert "no flash attention\n" in shown


def test_few_accepted_drafts_say_what_to_do() -> None:
    found = LogDiagnoser("vllm")
    found.feed_block(
        b"(APIServer pid=1) INFO 08-20 10:10:11 [metrics.py:100] SpecDecoding metrics: Mean acceptance length: 1.29, "
        b"Accepted throughput: 22.70 tokens/s, Drafted throughput: 154.41 tokens/s, Accepted: 227 tokens, Drafted: 1544 tokens, "
        b"Per-position acceptance rate: 0.210, 0.084, Avg Draft acceptance rate: 14.7%\n"
    )
    shown = format_diagnosis(found.build_diagnosis(), str, None)
    assert any("to do: if it stays so low, drafts cost more than they give" in line for line in shown)


LLAMACPP = "llama_model_loader: loaded meta data with 40 key-value pairs and 579 tensors from /m.gguf (version GGUF V3 (latest))"
PROGRAM_DEATHS = [
    ("free(): invalid pointer", FailureCause.CRASHED),
    ("double free or corruption (!prev)", FailureCause.CRASHED),
    ("malloc_consolidate(): unaligned fastbin chunk detected", FailureCause.CRASHED),
    ("*** stack smashing detected ***: terminated", FailureCause.CRASHED),
    ("*** buffer overflow detected ***: terminated", FailureCause.CRASHED),
    ("Segmentation fault (core dumped)", FailureCause.CRASHED),
    ("/run.sh: line 3:     7 Segmentation fault      (core dumped) vllm serve", FailureCause.CRASHED),
    ("/run.sh: line 3:     7 Killed                  vllm serve /m", FailureCause.KILLED),
    ("zsh: segmentation fault (core dumped)  vllm serve", FailureCause.CRASHED),
    ("Illegal instruction (core dumped)", FailureCause.BROKEN_IMAGE),
    ("Trace/breakpoint trap (core dumped)", FailureCause.CRASHED),
    ("Floating point exception (core dumped)", FailureCause.CRASHED),
    ("Aborted (core dumped)", FailureCause.CRASHED),
    ("Bus error (core dumped)", FailureCause.DISK_FULL),
    ("python3: /src/foo.cpp:33: void foo(): Assertion `x > 3' failed.", FailureCause.CRASHED),
    ("Assertion failed: check () (src/msg.cpp:414)", FailureCause.CRASHED),
    ("thread 'main' panicked at src/server.rs:88:14:", FailureCause.CRASHED),
    ("thread '<unnamed>' panicked at 'the len is 3 but the index is 9', src/lib.rs:22:5", FailureCause.CRASHED),
    ("terminate called without an active exception", FailureCause.CRASHED),
    ("!!!!!!! Segfault encountered !!!!!!!", FailureCause.CRASHED),
    ("*** SIGSEGV received at time=17000 on cpu 3 ***", FailureCause.CRASHED),
    ("engine-1 exited with code 139", FailureCause.CRASHED),
    ("engine-1 exited with code 134", FailureCause.CRASHED),
    ("engine-1 exited with code 1", FailureCause.CRASHED),
    ("Process EngineCore died unexpectedly with exit code -11", FailureCause.CRASHED),
    ("vllm.service: Main process exited, code=killed, status=11/SEGV", FailureCause.CRASHED),
    ("vllm.service: Main process exited, code=killed, status=9/KILL", FailureCause.KILLED),
    ("vllm.service: Main process exited, code=exited, status=1/FAILURE", FailureCause.CRASHED),
    ("      Reason:       OOMKilled", FailureCause.HOST_OOM_KILL),
    (
        "E1120 10:00:00.123000 11 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: -9) local_rank: 0 (pid: 11) of "
        "binary: /usr/bin/python",
        FailureCause.KILLED,
    ),
    (
        "E1120 10:00:00.123000 11 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: 1) local_rank: 0 (pid: 11) of "
        "binary: /usr/bin/python",
        FailureCause.WORKER_LOST,
    ),
    ("  traceback : Signal 9 (SIGKILL) received by PID 11", FailureCause.KILLED),
    ("  traceback : Signal 11 (SIGSEGV) received by PID 11", FailureCause.CRASHED),
    ("      Exit Code:    134", FailureCause.CRASHED),
    ("      Exit Code:    137", FailureCause.KILLED),
    ("      Exit Code:    1", FailureCause.CRASHED),
    ("[spark1:1234] Signal: Segmentation fault (11)", FailureCause.CRASHED),
]


@pytest.mark.parametrize("head", [(), VLLM[:2], SGLANG[:3], (LLAMACPP,)], ids=["none", "vllm", "sglang", "llamacpp"])
def test_what_a_program_says_at_its_death_is_a_proof_whichever_engine_runs(head: tuple[str, ...]) -> None:
    for line, cause in PROGRAM_DEATHS:
        found = diagnose_lines(*head, line)
        verdict = found.verdict
        assert verdict is not None, line
        if (
            "Bus error" in line and found.step == "weights"
        ):  # a file that is too short, a disk, a share, or shared memory
            cause = FailureCause.CRASHED
        assert (verdict.cause, verdict.evidence[0].text.strip()) == (cause, line.strip())
        assert verdict.confidence == ("certain" if line.strip().startswith(("Reason: ", "Illegal ")) else "likely"), (
            line
        )
        assert diagnose_bytes("".join(f"{one}\n" for one in (*head, line)).encode()).verdict == verdict


def test_torchrun_tells_of_a_process_on_the_line_that_says_how_it_ended() -> None:
    head = (
        "Traceback (most recent call last):",
        '  File "/usr/local/bin/torchrun", line 8, in <module>',
        "    sys.exit(main())",
    )
    error = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: "
    found = diagnose_lines(*head, error, "=" * 60, "train.py FAILED", "-" * 60, "[0]:", "  exitcode  : -9 (pid: 11)",
                           "  traceback : Signal 9 (SIGKILL) received by PID 11", "=" * 60)  # fmt: skip
    assert found.verdict is not None
    assert (found.verdict.cause, found.verdict.evidence[0].line) == (FailureCause.KILLED, 10)


def test_where_a_log_breaks_off_in_the_traceback_that_names_the_reason_it_says_so() -> None:
    frames = ('  File "/x/scheduler.py", line 2683, in run_scheduler_process', "    scheduler.event_loop_normal()")
    found = diagnose_lines(*SGLANG[:2], DYING, *frames)
    assert found.verdict is not None
    assert "breaks off in a traceback, at line 5" in found.verdict.remedy
    assert (
        diagnose_bytes("".join(f"{one}\n" for one in (*SGLANG[:2], DYING, *frames)).encode()).verdict == found.verdict
    )
    announced = diagnose_lines(
        *VLLM[:2], "(EngineCore pid=9) ERROR 05-01 10:05:00 [core.py:710] EngineCore failed to start."
    )
    assert announced.verdict is not None
    assert "breaks off, or was cut" in announced.verdict.remedy


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("-11", "SIGSEGV"),
        ("-4", "SIGILL"),
        ("-6", "SIGABRT"),
        ("-7", "SIGBUS"),
        ("-9", "as a killed process does"),
        ("1", "with exit code 1"),
    ],
)
def test_how_a_process_of_an_engine_ended_is_told_by_its_exit_code(code: str, said: str) -> None:
    engine_core = diagnose_lines(*VLLM[:2], FAILED.replace("{}", f"{{'EngineCore_DP0': {code}}}"))
    assert engine_core.verdict is not None
    assert said in engine_core.verdict.summary
    assert ("grep -i oom" in engine_core.verdict.remedy) is (code == "-9")
    dead = "[2026-05-01 10:00:12] Rank 0 scheduler is dead. Please check if there are relevant logs."
    end = ("Traceback (most recent call last):", '  File "/x.py", line 3, in recv', "EOFError")
    scheduler = diagnose_lines(*SGLANG[:2], dead, f"[2026-05-01 10:00:12] Exit code: {code}", *end)
    assert scheduler.verdict is not None
    assert scheduler.verdict.evidence[0].line == (3 if code == "1" else 4)
    assert {"-9": "killed", "1": "ended"}.get(code, said) in scheduler.verdict.summary


def test_the_message_of_a_panic_of_rust_is_on_the_line_after_its_place() -> None:
    place, message = (
        "thread '<unnamed>' panicked at src/bpe/mod.rs:321:17:",
        "index out of bounds: the len is 9 but the index is 9",
    )
    note = "note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace"
    python = (
        "Traceback (most recent call last):",
        '  File "/x.py", line 3, in f',
        f"pyo3_runtime.PanicException: {message}",
    )
    found = diagnose_lines(*VLLM[:2], *(f"(APIServer pid=1) {one}" for one in (place, message, note, *python)))
    assert found.verdict is not None
    assert found.verdict.summary == f"A thread of the program panicked at src/bpe/mod.rs:321:17: {message}"
    assert (found.verdict.evidence[0].text, found.verdict.evidence[0].line) == (f"{place} {message}", 3)
    assert not found.verdict.contributing

    main = diagnose_lines(
        "thread 'main' (12345) panicked at src/loader.rs:88:9:", "tensor x has an unsupported dtype", note
    )
    assert main.verdict is not None
    assert main.verdict.summary.endswith("at src/loader.rs:88:9: tensor x has an unsupported dtype")
    known = diagnose_lines(place, 'called `unwrap()` on an `Err` value: Os { code: 98, kind: AddrInUse, message: "x" }')
    assert known.verdict is not None
    assert known.verdict.cause is FailureCause.PORT_IN_USE
    cut = diagnose_lines(place, note)
    assert cut.verdict is not None
    assert (cut.verdict.evidence[0].text, "RUST_BACKTRACE" in cut.verdict.summary) == (place, False)


@pytest.mark.parametrize(
    "line",
    [
        *("engine-1 exited with code 0", "engine-1 exited with code 143", "engine-1 exited with code 130"),
        "vllm.service: Main process exited, code=exited, status=0/SUCCESS",
        "vllm.service: Main process exited, code=killed, status=15/TERM",
        *("No segmentation fault was seen so far", "Upload: Aborted", "Request: Killed"),
        "Assertions are on: x",
        "      Reason:       ContainerCreating",
    ],
)
def test_a_program_that_ended_well_or_was_stopped_did_not_die(line: str) -> None:
    assert diagnose_lines(*VLLM[:2], line).verdict is None


def test_a_crash_while_serving_is_told_and_one_after_an_exception_is_not_its_cause() -> None:
    served = diagnose_lines(*VLLM, "Segmentation fault (core dumped)").verdict
    assert served is not None
    assert served.summary.startswith("While serving: ")
    exception = ("Traceback (most recent call last):", '  File "/x.py", line 3, in f', "flux.Gone: x")
    ended = diagnose_lines(*VLLM[:2], *exception, "Segmentation fault (core dumped)").verdict
    assert ended is not None
    assert ended.evidence[0].text == "flux.Gone: x"


SGLANG_START = "[2026-08-01 22:25:35] server_args=ServerArgs(model_path='m')\n"
VLLM_START = "(APIServer pid=1) INFO 07-17 13:34:01 [api_utils.py:34] vLLM API server version 0.23.1\n"


@pytest.mark.parametrize(
    ("log", "cause", "proof"),
    [
        # Lines that owners published: sostrowsk/dgx-spark-local-llm, alint77/jupiter-glm52-vllm-worklog, shun8686/for_debug,
        # b3rgundy/local-llama, parallelworks/activate-rag-vllm, jethac/dgx-spark-hijinks
        (
            f"{SGLANG_START}Multi-thread loading shards:  96% Completed | 47/49 [02:10<00:05,  2.85s/it]\n"
            "  warnings.warn('resource_tracker: There appear to be %d '\n",
            "killed",
            "resource_tracker",
        ),
        (
            f"{VLLM_START}(EngineCore pid=7) ERROR 07-17 13:44:01 [core.py:1330] Traceback (most recent call last):\n"
            '(EngineCore pid=7) ERROR 07-17 13:44:01 [core.py:1330]   File "core.py", line 1, in run\n'
            "(EngineCore pid=7) ERROR 07-17 13:44:01 [core.py:1330] ValueError: Tiered GLM requires 78 main specs\n"
            "(EngineCore pid=7) ERROR 07-17 13:44:12 [multiproc_executor.py:284] Worker proc VllmWorker-2 died unexpectedly "
            "(exit code: None), shutting down executor.\n",
            "crashed",
            "Tiered GLM",
        ),
        (
            f"{SGLANG_START}ValueError: port_base at 21234 is not available in 30 seconds. port_base is used by a process already.\n",
            "port-in-use",
            "21234",
        ),
        ("gguf_init_from_file_impl: failed to read magic\n", "model-files", "magic"),
        ("openai_harmony.HarmonyError: invalid tiktoken vocab file: expected token and rank\n", "model-files", "vocab"),
        (
            f"{VLLM_START}ImportError: vllm.vllm_flash_attn requires the CUDA flash attention extensions (_vllm_fa2_C or _vllm_fa3_C).\n"
            "ValidationError: 1 validation error for ModelConfig: Value error, Model architectures ['G'] failed to be inspected.\n",
            "broken-image",
            "flash attention extensions",
        ),
    ],
)
def test_the_root_is_told_and_not_what_follows_it(log: str, cause: str, proof: str) -> None:
    verdict = diagnose_bytes(log.encode()).verdict
    assert verdict is not None
    assert (str(verdict.cause), proof in verdict.evidence[0].text) == (cause, True)


def test_a_server_that_answers_after_a_second_one_found_its_port_taken_works() -> None:
    # jack-tsao/jetson-copilot
    log = "Error: listen tcp 0.0.0.0:11434: bind: address already in use\n"
    assert diagnose_bytes(log.encode()).verdict is not None
    served = '[GIN] 2025/04/16 - 00:47:10 | 200 |  3.682967745s |       127.0.0.1 | POST     "/api/embeddings"\n'
    assert diagnose_bytes(f"{log}llama_context: n_ctx = 4096\n{served * 40}".encode()).verdict is None


def test_an_engine_that_was_stopped_leaves_semaphores_and_was_not_killed() -> None:
    stop = "[2026-08-01 22:25:40] SIGTERM received. signum=15 frame=None. Draining requests and shutting down...\n"
    found = diagnose_bytes(f"{SGLANG_START}{stop}  warnings.warn('resource_tracker: There appear to be %d '\n".encode())
    assert found.verdict is None or str(found.verdict.cause) != "killed"


def test_a_restart_loop_whose_last_run_is_cut_off_ends_as_the_run_before_did() -> None:
    found = diagnose_lines(*VLLM[:4], NO_SHARE, FAILED, *VLLM[:4], NO_SHARE, FAILED, *VLLM[:4])
    assert (found.runs, found.ready) == (3, False)
    assert found.verdict is not None
    assert (found.verdict.cause, found.verdict.confidence) == (FailureCause.STARTUP_MEMORY_CHECK, Confidence.LIKELY)
    assert found.verdict.evidence[0].line == 11
    second = diagnose_lines(*VLLM[:4], NO_SHARE, FAILED, *VLLM[:4])
    assert (second.runs, second.verdict) == (2, None)  # a second start is no loop: it may succeed


@pytest.mark.parametrize(
    ("asked", "free", "rest", "words"),
    [
        ("20.00 MiB", "70.20 GiB is free.", "", "sparkctl drop-caches"),
        ("2.00 GiB", "5.00 GiB is free.", "", "NV_ERR_NO_MEMORY"),
        ("20.00 MiB", "70.20 GiB is free.", " 8.00 GiB allowed;", "may hold 8.00 GiB only"),
        ("2.25 GiB", "1.18 GiB is free.", "", "Lower args.gpu-memory-utilization"),
        ("20.00 MiB", "512.00 MiB is free.", "", "Lower args.gpu-memory-utilization"),
    ],
)
def test_memory_that_was_refused_although_it_was_free_is_not_too_large_a_share(
    asked: str, free: str, rest: str, words: str
) -> None:
    found = diagnose_lines(
        "INFO 06-01 10:00:00 [api_server.py:1000] vLLM API server version 0.11.0",
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {asked}. GPU 0 has a total capacity of 119.64 GiB of "
        f"which {free}{rest} Including non-PyTorch memory, this process has 40.00 GiB memory in use.",
    ).verdict
    assert found is not None
    assert found.cause is FailureCause.CUDA_OUT_OF_MEMORY
    assert words in found.remedy
    is_refused = "Lower" not in words
    assert found.confidence is (Confidence.LIKELY if is_refused else Confidence.CERTAIN)
    assert (f"refused {asked} although" in found.summary) == is_refused
    assert (found.field is None) == is_refused


def test_an_engine_that_refused_its_flags_loaded_nothing() -> None:
    # github.com/containers/ramalama/issues/758
    found = diagnose_lines(
        "WARNING 04-10 22:41:05 [argparse_utils.py:191] With `vllm serve`, you should provide the model as a positional argument",
        "usage: vllm [-h] [-v]",
        "            {chat,complete,serve,launch,bench,collect-env,run-batch} ...",
        "vllm: error: unrecognized arguments: --temperature 0.8",
    )
    assert found.verdict is not None
    assert (found.verdict.cause, found.phase) == (FailureCause.UNKNOWN_FLAG, Phase.STARTING)


def test_the_buffers_of_an_older_llama_cpp_are_reserved_after_its_kv_cache() -> None:
    # github.com/ikawrakow/ik_llama.cpp/issues/749
    found = diagnose_lines(
        "llama_kv_cache_init:      CUDA0 KV buffer size =   379.23 MiB",
        "llama_new_context_with_model: KV self size  = 1005.79 MiB, c^KV (f16): 1005.79 MiB, kv^T (f16):    0.00 MiB",
        "llama_new_context_with_model:  CUDA_Host  output buffer size =     0.99 MiB",
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 279356.51 MiB on device 0: cudaMalloc failed: out of memory",
        "ggml_gallocr_reserve_n: failed to allocate CUDA0 buffer of size 292926534144",
    )
    assert found.verdict is not None
    assert (found.step, found.verdict.cause) == ("compute buffers", FailureCause.CUDA_OUT_OF_MEMORY)


def test_what_vllm_dumps_of_its_requests_shows_that_it_served() -> None:
    core = "(EngineCore pid=176) ERROR 04-23 21:09:12 "  # the excerpt begins here
    log = (
        f"{core}[dump_input.py:79] Dumping scheduler output for model execution: SchedulerOutput(scheduled_new_reqs=[])",
        f"{core}[core.py:1134] EngineCore encountered a fatal error.",
        f"{core}[core.py:1134] torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
    )
    diagnoser = LogDiagnoser()
    for line in log:
        diagnoser.feed_raw_line(line)
    found = diagnoser.build_diagnosis()
    assert found.ready
    assert found.verdict is not None
    assert found.verdict.summary.startswith("While serving: ")
