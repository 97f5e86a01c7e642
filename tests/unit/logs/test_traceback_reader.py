"""Exceptions are found by the shape of a traceback, whatever their class is called, where the log is cut, wrapped or framed."""

from __future__ import annotations

import pytest

from sparkctl.logs.diagnosis import LogDiagnoser
from sparkctl.logs.line_patterns import TracebackReader, strip_group_frame
from sparkctl.model.verdict import FailureCause, Verdict

HEADER = "Traceback (most recent call last):"
FRAME = ('  File "/usr/lib/python3/x.py", line 12, in run', "    work()", "    ^^^^^^")


def read_lines(*lines: str) -> tuple[list[str], TracebackReader]:
    reader = TracebackReader()
    return [line for number, line in enumerate(lines, 1) if reader.read_line(number, line)], reader


def diagnose(text: str) -> Verdict | None:
    reading = LogDiagnoser()
    for line in text.splitlines():
        reading.feed_raw_line(line)
    return reading.build_diagnosis().verdict


@pytest.mark.parametrize(
    "exception",
    [
        "triton.runtime.errors.OutOfResources: out of resource",
        "OutOfResources: out of resource",
        "TimeoutError",
        "zmq.error.Again: Resource temporarily unavailable",
        "RuntimeError: x",
        "zlib.error: Error -3 while decompressing data",
        "socket.gaierror: [Errno -3] Temporary failure in name resolution",
        "socket.timeout",
        "cuda.E: x",
        "flux.ERR: x",
        "flux.make.<locals>.Inner: x",
        "flux.Bär: übel",
        "custom_error: x",
        "ray.exceptions.RayTaskError(flux.Gone): ray::f()",
    ],
)
def test_the_last_line_is_the_exception_whatever_its_class_is_called(exception: str) -> None:
    assert read_lines(f"Scheduler hit an exception: {HEADER}", *FRAME, exception, "INFO: next")[0] == [exception]


@pytest.mark.parametrize(
    "line",
    [
        *(
            "INFO: 10.0.0.1 - GET /health",
            "WARNING: x",
            "loading weights",
            "Killed by us: no",
            "config.json: not there",
        ),
        *("Loading: 100%|##########| 10/10 [00:10<00:00]", "Downloading: 3it [00:01,  2.30it/s]"),
    ],
)
def test_a_line_of_another_process_within_it_is_not_the_exception(line: str) -> None:
    assert read_lines(HEADER, *FRAME, line, *FRAME, "ValueError: y")[0] == ["ValueError: y"]


def test_what_looked_like_the_exception_is_none_if_its_traceback_goes_on() -> None:
    reader = TracebackReader()
    lines = (HEADER, *FRAME, "Warmup: pass 3 of 9", *FRAME, "flux.Gone: y")
    mistaken = []
    for number, line in enumerate(lines, 1):
        reader.read_line(number, line)
        mistaken += [] if reader.mistaken is None else [reader.mistaken]
    assert mistaken == [5]
    verdict = diagnose("\n".join(lines))
    assert verdict is not None
    assert verdict.evidence[0].text == "flux.Gone: y"


CORE, SERVER = "(EngineCore pid=88) ", "(APIServer pid=1) "
RECORD = f"{SERVER}INFO 11-20 10:00:00 [x.py:3] Using: triton"


@pytest.mark.parametrize(
    "lines",
    [
        (f"{CORE}{HEADER}", f"{CORE}{FRAME[0]}", RECORD, f"{CORE}{FRAME[0]}", f"{CORE}flux.Gone: y"),
        (f"{CORE}{HEADER}", f"{CORE}{FRAME[0]}", f"{CORE}{FRAME[1]}", f"{SERVER}Using: triton", f"{CORE}flux.Gone: y"),
        (HEADER, *FRAME, "INFO 11-20 10:00:00 [x.py:3] Using: triton", "flux.Gone: y"),
        (f"[2026-11-20 10:00:10 TP0] Scheduler hit an exception: {HEADER}", *FRAME,
         "[2026-11-20 10:00:10 TP1] Ignored: nothing", *FRAME, "flux.Gone: y"),
        (f"{CORE}{HEADER}", f"{CORE}{FRAME[0]}", f"Loading:  10%|# | 1/10\rLoading: 100%|##| 10/10\r{CORE}flux.Gone: y"),
    ],
)  # fmt: skip
def test_a_record_or_another_process_within_a_traceback_is_not_its_exception(lines: tuple[str, ...]) -> None:
    verdict = diagnose("\n".join(lines))
    assert verdict is not None
    assert verdict.evidence[0].text == "flux.Gone: y"


def test_tracebacks_of_two_ranks_line_by_line_in_turn_are_both_read() -> None:
    text = "\n".join(f"[rank{rank}]: {line}" for line in (HEADER, *FRAME, "flux.Gone: {}") for rank in (0, 1))
    reading = LogDiagnoser()
    for line in text.splitlines():
        reading.feed_raw_line(line)
    result = reading.build_diagnosis().reading
    assert result is not None
    assert [block.last for block in result.tracebacks] == [9, 10]


def test_the_message_of_an_unusual_class_may_be_known() -> None:
    verdict = diagnose(f"{HEADER}\n{FRAME[0]}\nsocket.gaierror: [Errno -3] Temporary failure in name resolution")
    assert verdict is not None
    assert verdict.cause is FailureCause.HUB_UNREACHABLE


DURING = "\n\nDuring handling of the above exception, another exception occurred:\n\n"
DIRECT = "\n\nThe above exception was the direct cause of the following exception:\n\n"
LOST_FILE = "FileNotFoundError: [Errno 2] No such file or directory: '/models/m/config.json'"
CUDA_OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
DISK_FULL = "OSError: [Errno 28] No space left on device"
NO_MODULE = "ModuleNotFoundError: No module named 'fast_thing'"


@pytest.mark.parametrize(
    ("first", "link", "last", "root", "confidence", "contributing"),
    [
        (LOST_FILE, DURING, CUDA_OOM, CUDA_OOM, "certain", [FailureCause.MODEL_FILES]),
        (LOST_FILE, DIRECT, CUDA_OOM, LOST_FILE, "certain", [FailureCause.CUDA_OUT_OF_MEMORY]),
        (NO_MODULE, DURING, "ValueError: Unknown rope type: yarn9", "ValueError: Unknown rope type: yarn9", "likely",
         [FailureCause.BROKEN_IMAGE]),
        (NO_MODULE, DIRECT, "ValueError: x", NO_MODULE, "certain", []),
        ("KeyError: 'rope'", DURING, "flux.NoRope: none", "flux.NoRope: none", "likely", []),
        # A message that retells what was handled, and a part of the engine that only says that it ended.
        (LOST_FILE, DURING, f"RuntimeError: bad model: {LOST_FILE}", LOST_FILE, "certain", []),
        # What cleans up after a known cause may fail, too.
        (CUDA_OOM, DURING, "AttributeError: 'Worker' object has no attribute 'model_runner'", CUDA_OOM, "certain", []),
        (DISK_FULL, DURING, "RuntimeError: cannot schedule new futures after shutdown", DISK_FULL, "certain", []),
        (CUDA_OOM, DURING, "RuntimeError: Engine core initialization failed. See root cause above.", CUDA_OOM, "certain", []),
    ],
)  # fmt: skip
def test_of_exceptions_one_during_the_other_the_last_counts_of_a_cause_the_first(
    first: str, link: str, last: str, root: str, confidence: str, contributing: list[FailureCause]
) -> None:
    head = f"{HEADER}\n{FRAME[0]}\n"
    log = f"(APIServer pid=1) INFO 11-20 09:59:00 [api_server.py:1400] vLLM API server version 0.24.0\n{head}{first}{link}{head}{last}"
    verdict = diagnose(log)
    assert verdict is not None
    assert (verdict.evidence[0].text, verdict.confidence) == (root, confidence)
    assert [one.cause for one in verdict.contributing] == contributing


def test_of_a_group_a_cancellation_is_not_the_root() -> None:
    verdict = diagnose(
        "  + Exception Group Traceback (most recent call last):\n"
        '  |   File "/x/a.py", line 3, in main\n'
        "  | ExceptionGroup: two (2 sub-exceptions)\n"
        "  +-+---------------- 1 ----------------\n"
        "    | Traceback (most recent call last):\n"
        '    |   File "/x/a.py", line 9, in load\n'
        "    | asyncio.exceptions.CancelledError: cancelled\n"
        "    +---------------- 2 ----------------\n"
        "    | Traceback (most recent call last):\n"
        '    |   File "/x/a.py", line 9, in load\n'
        "    | flux.DeepDown: valve 7\n"
        "    +------------------------------------\n"
    )
    assert verdict is not None
    assert verdict.evidence[0].text == "flux.DeepDown: valve 7"


@pytest.mark.parametrize("exception", ["BudgetExceeded: budget 3, wanted 4", "ValueError: x"])
def test_the_exception_below_a_box_of_rich_is_read_whatever_its_class(exception: str) -> None:
    box = (
        f"╭{'─' * 20} Traceback (most recent call last) {'─' * 20}╮",
        *(f"│ /usr/lib/python3.12/x{at}.py:10 in main{' ' * 30}│" for at in range(30)),
        f"│ ❱ 10     go(){' ' * 50}│",
        f"╰{'─' * 75}╯",
    )
    start = ("INFO 11-20 10:00:01 [__init__.py:220] Automatically detected platform cuda.",)
    lines = (*start, *box, exception)
    verdict = diagnose("\n".join(lines))
    assert verdict is not None
    assert verdict.evidence[0].text == exception
    reading = LogDiagnoser()
    reading.feed_block("".join(f"{line}\n" for line in lines).encode())
    assert reading.build_diagnosis().verdict == verdict


def test_a_group_in_a_group_is_proved_by_its_leaf() -> None:
    verdict = diagnose(
        "  + Exception Group Traceback (most recent call last):\n"
        '  |   File "/x/a.py", line 3, in main\n'
        "  |     await run()\n"
        "  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)\n"
        "  +-+---------------- 1 ----------------\n"
        "    | Exception Group Traceback (most recent call last):\n"
        '    |   File "/x/a.py", line 9, in load\n'
        "    | ExceptionGroup: nested (2 sub-exceptions)\n"
        "    +-+---------------- 1 ----------------\n"
        "      | Traceback (most recent call last):\n"
        '      |   File "/x/a.py", line 9, in load\n'
        "      | widget.FluxLost: gone\n"
        "      +------------------------------------"
    )
    assert verdict is not None
    assert verdict.evidence[0].text == "widget.FluxLost: gone"


def test_without_a_traceback_there_is_no_exception() -> None:
    assert read_lines("ValueError: y", "Config: x")[0] == []


def test_a_chain_gives_each_of_its_exceptions_the_first_is_the_cause() -> None:
    direct = "The above exception was the direct cause of the following exception:"
    found, _ = read_lines(HEADER, *FRAME, "KeyError: 'a'", "", direct, "", HEADER, *FRAME, "RuntimeError: b")
    assert found == ["KeyError: 'a'", "RuntimeError: b"]


def test_a_cut_traceback_is_known_by_its_raise_statement() -> None:
    _, reader = read_lines(
        FRAME[0],
        '    raise ValueError("No available memory for the cache blocks. "',
        '                     "Try increasing `gpu_memory_utilization`.")',
    )
    assert (
        reader.cut_exception
        == "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`."
    )
    assert reader.raise_line == 2


@pytest.mark.parametrize(
    ("framed", "plain"),
    [
        ("  | ValueError: x", "ValueError: x"),
        ("    +---------------- 1 ----------------", ""),
        ('  |   File "/x.py", line 3, in f', '  File "/x.py", line 3, in f'),
        ("  + Exception Group Traceback", "Exception Group Traceback"),
        ("| table |", "table |"),
        ("- a list", "- a list"),
        ("text", "text"),
    ],
)
def test_the_frame_of_an_exception_group_goes(framed: str, plain: str) -> None:
    assert strip_group_frame(framed) == plain


def test_a_message_that_a_terminal_has_wrapped_is_read_whole() -> None:
    verdict = diagnose(
        "ValueError: Free memory on device cuda:0 (109.53/121.69 GiB) on startup is\n"
        "less than desired GPU memory utilization (0.91, 110.74 GiB)"
    )
    assert verdict is not None
    assert (verdict.cause, verdict.evidence[0].line) == (FailureCause.STARTUP_MEMORY_CHECK, 1)


# Lines of public reports, with their source.
@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (  # github.com/sgl-project/sglang/issues/2384
            f"{HEADER}\n{FRAME[0]}\ntriton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 131072, "
            "Hardware limit: 65536. Reducing block sizes or `num_stages` may help.",
            FailureCause.KERNEL_UNSUPPORTED,
        ),
        (  # github.com/NVIDIA/nccl/issues/1405
            "kp-ddp-worker-0:3468:3905 [4] ib_plugin.c:1615 NCCL WARN NET/IB : Got completion from peer 10.216.210.236<54862> "
            "with status=12 opcode=0 len=0 vendor err 129 (Recv)",
            FailureCause.NCCL,
        ),
        (  # github.com/vllm-project/vllm/issues/11366
            "2024-12-19 21:40:35 ERROR 56542 [async_llm_engine.py:64] RuntimeError: Error in model execution: CUDA error: an "
            "illegal memory access was encountered^M",
            FailureCause.GPU_FAULT,
        ),
        (  # github.com/vllm-project/vllm/issues/1953
            "(raylet) [2023-12-07 03:27:39,873 E 101250 101275] (raylet) file_system_monitor.cc:111: /tmp/ray/session_1 is over "
            "95% full, available space: 0; capacity: 67108864. Object creation will fail if spilling is required.",
            FailureCause.DISK_FULL,
        ),
        (  # github.com/sgl-project/sglang/issues/22511
            "May 16, 2026 @ 20:46:57.892    [rank8]:[W516 12:46:57.499514954 ProcessGroupNCCL.cpp:1826] [PG ID 0 PG GUID 0 Rank "
            '8] Failed to check the "should dump" flag on TCPStore, (maybe TCPStore server has shut down too early), with error:',
            FailureCause.WORKER_LOST,
        ),
        (  # github.com/ggml-org/llama.cpp/issues/17327
            "clip_init: failed to load model '/m/mmproj.gguf': operator(): unable to find tensor v.blk.0.attn_out.weight",
            FailureCause.MODEL_FILES,
        ),
        (  # github.com/opendatalab/MinerU/issues/4350: --gpu-name is no flag of the engine
            "subprocess.CalledProcessError: Command '['/usr/lib/triton/backends/nvidia/bin/ptxas', '-v', '--gpu-name=sm_121a', "
            "'/tmp/x.ptx']' returned non-zero exit status 255.",
            FailureCause.JIT_FAILED,
        ),
        (  # github.com/ruipeterpan/specreason/issues/10
            f"{HEADER}\n{FRAME[0]}\n    assert all(vocab_sizes[0] == vocab_size for vocab_size in vocab_sizes)\n"
            "           ^^^^^^^^^^^\nAssertionError",
            FailureCause.DRAFT_MISMATCH,
        ),
        (  # github.com/ggml-org/llama.cpp/pull/3812
            "main: error: draft model vocab must match target model to use speculation but target vocab size 152064 does not "
            "match draft vocab size 32002",
            FailureCause.DRAFT_MISMATCH,
        ),
        (  # github.com/ariG23498/gemma3-object-detection/issues/5
            "Access to model google/gemma-3-4b-pt is restricted and you are not in the authorized list.",
            FailureCause.MODEL_GATED,
        ),
        (  # github.com/vllm-project/vllm/issues/45661
            "NotImplementedError: No NvFp4 MoE backend supports the deployment configuration.",
            FailureCause.KERNEL_UNSUPPORTED,
        ),
        (  # github.com/sgl-project/sglang/issues/4584
            "[rank14]:[E319 05:16:21.789822241 ProcessGroupNCCL.cpp:1595] [PG ID 2 PG GUID 3 Rank 14] Process group watchdog "
            "thread terminated with exception: CUDA error: an illegal memory access was encountered",
            FailureCause.GPU_FAULT,
        ),
        (  # github.com/llama-farm/llamafarm/issues/268
            "error: failed to create directory `/.cache/uv`: Permission denied (os error 13)",
            FailureCause.PERMISSION,
        ),
    ],
)
def test_the_libraries_own_words_are_known_whoever_prints_them(text: str, cause: FailureCause) -> None:
    verdict = diagnose(text)
    assert verdict is not None
    assert verdict.cause is cause


@pytest.mark.parametrize("count", [2, 3])
def test_standing_still_is_said_when_nothing_else_is(count: int) -> None:
    line = (
        "(EngineCore pid=2025) INFO 08-13 11:27:02 [shm_broadcast.py:802] No available shared memory broadcast block found in 60 "
        "seconds. This typically happens when some processes are hanging"
    )
    verdict = diagnose("\n".join([line] * count))
    assert (verdict is not None) is (count >= 3)
    assert verdict is None or verdict.cause is FailureCause.WEDGED


@pytest.mark.parametrize(
    "text",
    [
        # github.com/vllm-project/vllm-ascend/issues/3819
        'WARNING 10-28 03:24:22 [_custom_ops.py:20] Failed to import from vllm._C with ModuleNotFoundError("No module named '
        "'vllm._C'\")",
        # github.com/vllm-project/vllm/issues/20409: a client asked for too much
        "ERROR 07-03 03:19:15 [serving_chat.py:200] Error in preprocessing prompt inputs\n"
        f"ERROR 07-03 03:19:15 [serving_chat.py:200] {HEADER}\n"
        f"ERROR 07-03 03:19:15 [serving_chat.py:200] {FRAME[0]}\n"
        "ERROR 07-03 03:19:15 [serving_chat.py:200] ValueError: This model's maximum context length is 16384 tokens. However, "
        "you requested 122946 tokens",
        # github.com/vllm-project/vllm: an answer of the model that is no JSON
        "ERROR 12-02 05:59:06 hermes_tool_parser.py:108] Error in extracting tool call from response.\n"
        f"ERROR 12-02 05:59:06 hermes_tool_parser.py:108] {HEADER}\n"
        f"ERROR 12-02 05:59:06 hermes_tool_parser.py:108] {FRAME[0]}\n"
        "ERROR 12-02 05:59:06 hermes_tool_parser.py:108] json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
    ],
)
def test_a_warning_and_a_refused_request_are_no_failures(text: str) -> None:
    assert diagnose(text) is None


def test_the_next_record_and_a_command_are_no_rest_of_a_message() -> None:
    # The shape of a paste of SGLang's terminal: a start that failed, and the command of the next one.
    found = diagnose(
        f"{HEADER}\n{FRAME[0]}\nAttributeError: 'NoneType' object has no attribute 'server_args'\n\n"
        "[2026-02-25 15:04:39] ERROR:    Application startup failed. Exiting.\n\nexport NCCL_DEBUG=WARN\n"
        "python3 -m sglang.launch_server \\\n  --model-path /models/m \\\n"
    )
    assert found is not None
    assert found.cause is FailureCause.CRASHED
    assert "launch_server" not in found.evidence[0].text


@pytest.mark.parametrize(
    ("file", "exception", "cause"),
    [
        ("vllm/config/vllm.py", "ValueError: HiSparse needs one stage.", FailureCause.BAD_VALUE),
        ("sglang/srt/server_args.py", "NotImplementedError: flux", FailureCause.BAD_VALUE),
        ("sglang/srt/arg_groups/overrides.py", "AssertionError", FailureCause.BAD_VALUE),
        ("vllm/platforms/cuda.py", "RuntimeError: flux", FailureCause.BAD_VALUE),
        (
            "vllm/config/vllm.py",
            "UnboundLocalError: flux",
            FailureCause.CRASHED,
        ),  # a fault of that code, not its refusal
        ("vllm/config/vllm.py", "IndexError: list index out of range", FailureCause.CRASHED),
        ("vllm/worker/flux.py", "ValueError: HiSparse needs one stage.", FailureCause.CRASHED),
    ],
)
def test_what_the_code_that_checks_settings_raises_is_a_refused_setting(
    file: str, exception: str, cause: FailureCause
) -> None:
    outer = '  File "/x/server_args.py", line 12, in parse\n    check()\n'
    inner = f'  File "/usr/lib/python3.12/{file}", line 7, in check\n    assert self.ranks == 1\n           ^^^^^^^\n'
    verdict = diagnose(f"{HEADER}\n{outer}{inner}{exception}\n")
    assert verdict is not None
    assert verdict.cause is cause
    deeper = diagnose(f'{HEADER}\n{outer}{inner}  File "/x/json.py", line 3, in load\n    x()\n{exception}\n')
    assert deeper is not None
    assert deeper.cause is FailureCause.CRASHED


@pytest.mark.parametrize(
    ("writer", "cause"),
    [
        ("[2026-05-01 10:00:00 PP0 TP1] ", FailureCause.MODEL_FILES),
        ("[2026-05-01 10:00:00 PP3 TP1] ", FailureCause.ENGINE_BUG),  # vroomfondel/dgxarley
        ("(Worker_PP1_TP0 pid=77) ", FailureCause.ENGINE_BUG),
        ("(Worker_TP1 pid=77) ", FailureCause.MODEL_FILES),
    ],
)
def test_a_weight_without_a_place_in_a_later_stage_of_a_pipeline_is_the_engines_fault(
    writer: str, cause: FailureCause
) -> None:
    log = (HEADER, *FRAME, "KeyError: 'model.layers.37.mlp.experts.w2_weight'")
    verdict = diagnose("".join(f"{writer}{line}\n" for line in log))
    assert verdict is not None
    assert verdict.cause is cause
    record = diagnose("".join(f"{line}\n" for line in (f"{writer}Scheduler hit an exception: {HEADER}", *log[1:])))
    assert record is not None
    assert record.cause is cause
    first = "".join(f"{writer.replace('PP3', 'PP0').replace('PP1', 'PP0')}{line}\n" for line in log)
    both = diagnose("".join(f"{writer}{line}\n" for line in log) + first)
    assert both is not None
    assert both.cause is FailureCause.MODEL_FILES


@pytest.mark.parametrize("ranks", [("TP0", "TP1"), ("TP1", "TP0"), ("TP0",)])
def test_a_weight_that_is_not_split_is_the_engines_fault_on_the_first_rank_too(ranks: tuple[str, ...]) -> None:
    # As SGLang prints it of each rank (mattbucci/2x-R9700-RDNA4-GFX1201-sglang-inference, other figures).
    size = (
        "RuntimeError: The size of tensor a (2048) must match the size of tensor b (4096) at non-singleton dimension 1"
    )
    log = "".join(
        f"{line}\n"
        for rank in ranks
        for line in (f"[2026-05-01 10:00:00 {rank}] Scheduler hit an exception: {HEADER}", *FRAME, size)
    )
    begins = "[2026-05-01 09:59:00] server_args=ServerArgs(model_path='/m')\n[2026-05-01 09:59:30 TP0] Load weight begin. avail mem=90.0 GB\n"
    verdict = diagnose(begins + log)
    assert verdict is not None
    assert verdict.cause is (FailureCause.ENGINE_BUG if len(ranks) > 1 else FailureCause.MODEL_FILES)


@pytest.mark.parametrize(
    ("frame", "exception", "cause"),
    [
        # github.com/sgl-project/sglang/issues/1058, shortened
        ("backends/nvidia/compiler.py", "IndexError: map::at", FailureCause.JIT_FAILED),
        ("backends/nvidia/compiler.py", "RuntimeError: something of LLVM", FailureCause.JIT_FAILED),
        ("backends/nvidia/compiler.py", "OSError: [Errno 28] No space left on device", FailureCause.DISK_FULL),
        ("runtime/jit.py", "IndexError: map::at", FailureCause.CRASHED),
    ],
)
def test_what_fails_in_tritons_compiler_is_a_kernel_that_cannot_be_compiled(
    frame: str, exception: str, cause: FailureCause
) -> None:
    lines = (HEADER, *FRAME, f'  File "/usr/lib/triton/{frame}", line 216, in make_llir', "    pm.run(mod)", exception)
    verdict = diagnose("\n".join(lines))
    assert verdict is not None
    assert verdict.cause is cause
    assert verdict.evidence[0].text == exception
