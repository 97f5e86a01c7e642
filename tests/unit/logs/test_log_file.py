"""Bytes of a log become blocks of whole lines, whatever they lie in; what is no log is refused."""

from __future__ import annotations

import gzip
import io
import json
import os
import threading
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkctl.commands.diagnose_file import diagnose_bytes
from sparkctl.errors import InvalidInput
from sparkctl.logs.diagnosis import LogDiagnoser, read_line_header
from sparkctl.logs.line_effects import TracebackPrefix
from sparkctl.logs.log_file import (
    BLOCK_BYTES,
    open_log,
    put_oldest_first,
    read_line_blocks,
    strip_wrapping,
)
from sparkctl.model.text.log_line import LogLine
from tests.tools.diagnosis_table import load_posted_logs


class SlowReader:
    """A pipe that gives so many bytes at a time."""

    def __init__(self, raw: bytes, most: int) -> None:
        self.file = io.BytesIO(raw)
        self.most = most

    def read(self, size: int, /) -> bytes:
        return self.file.read(min(size, self.most))


def read_all_blocks(raw: bytes, most: int = BLOCK_BYTES) -> bytes:
    return b"".join(read_line_blocks(SlowReader(raw, most), "it"))


@given(st.lists(st.sampled_from(["a", "line two", "é█", "", "\r", "x" * 300])).map("\n".join), st.integers(1, 400))
def test_every_block_ends_with_a_line_and_nothing_is_lost(log: str, most: int) -> None:
    raw = log.encode()
    found = list(read_line_blocks(SlowReader(raw, most), "it"))
    assert all(block.endswith(b"\n") for block in found)
    assert b"".join(found) == raw + (b"" if not raw or raw.endswith(b"\n") else b"\n")


@pytest.mark.parametrize("packed", [
    gzip.compress(b"one\ntwo\n", mtime=0), "one\ntwo\n".encode("utf-16"), b"\xef\xbb\xbfone\ntwo", b"\0" * 300_000 + b"one\ntwo\n",
    "one\ntwo\n".encode("utf-16-le"), "one\ntwo\n".encode("utf-16-be"), gzip.compress("one\ntwo\n".encode("utf-16-le"), mtime=0),
    b"one\ntwo\n" + b"\0" * 445, b"one\n" + b"\0" * 5000 + b"two\n",
])  # fmt: skip
def test_a_compressed_or_padded_log_is_read(packed: bytes) -> None:
    assert read_all_blocks(packed) == b"one\ntwo\n"


def test_what_a_power_cut_left_between_two_lines_is_a_gap() -> None:
    assert read_all_blocks(b"one" + b"\0" * 200_000 + b"two\nthree" + b"\0" * 4096).split() == [
        b"one",
        b"two",
        b"three",
    ]


def test_a_line_without_end_is_kept_by_its_head_and_its_tail() -> None:
    whole = read_all_blocks(b"head" + b"-" * (5 << 20) + b"tail\nnext\n")
    long, after = whole.splitlines()
    assert len(long) <= 3 * BLOCK_BYTES
    assert (long[:4], long[-4:], after) == (b"head", b"tail", b"next")


@pytest.mark.parametrize(
    "raw",
    [os.urandom(1 << 16), gzip.compress(os.urandom(1 << 16)), gzip.compress(b"one\n" * 9, mtime=0)[:-9]],
    ids=["binary", "binary, packed", "packed, cut off"],
)
def test_what_is_no_log_is_refused(raw: bytes) -> None:
    with pytest.raises(InvalidInput) as refused:
        read_all_blocks(raw)
    assert "it " in refused.value.message


def test_colours_and_bars_make_no_binary_of_a_log() -> None:
    raw = b"\x1b[32mINFO\x1b[0m \x1b[1m67%\x1b[0m|##| 1/3 [00:01<00:03]\r" * 99 + b"\n"
    assert read_all_blocks(raw) == raw


def test_a_directory_or_a_missing_file_is_refused(tmp_path: Path) -> None:
    for path, word in ((tmp_path, "directory"), (tmp_path / "none.log", "no file")):
        with pytest.raises(InvalidInput, match=word), open_log(path):
            pass
    with open_log(Path(os.devnull)) as source:
        assert list(read_line_blocks(source, "null")) == []


def test_a_missing_file_in_a_directory_that_was_removed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(InvalidInput, match=r"there is no file x\.log") as refused, open_log(Path("x.log")):
        pass
    assert "directory was removed" in (refused.value.hint or "")


def test_what_a_file_grows_by_meanwhile_is_left(tmp_path: Path) -> None:
    path = tmp_path / "grows.log"
    path.write_bytes(b"old\n" * 10)
    with open_log(path) as source, path.open("ab") as writer:
        writer.write(b"new\n" * 10)
        writer.flush()
        assert b"".join(read_line_blocks(source, "it")) == b"old\n" * 10


def test_a_pipe_is_read_until_its_writer_closes(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writing = threading.Thread(target=lambda: path.write_bytes(b"through\na pipe\n"))
    writing.start()
    with open_log(path) as source:
        assert b"".join(read_line_blocks(source, "it")) == b"through\na pipe\n"
    writing.join()


PREFIXES = {
    "journalctl -o short-full": "Fri 2026-11-20 10:00:{at:02} UTC spark-1 vllm[123]: ",
    "journalctl -o short-monotonic": "[ 1234.{at:06}] spark-1 vllm[123]: ",
    "journalctl -o short-unix": "1795168801.{at:06} spark-1 vllm[123]: ",
    "ts": "Nov 20 10:00:{at:02} ",
    "docker service logs": "llm_engine.1.abcdefghij@spark-1    | ",
    "stern": "vllm-6c4-abc vllm ",
    "gh run view --log": "build\tRun step {at}\t2026-11-20T10:00:{at:02}.1234567Z ",
    "mpirun --tag-output": "[1,{at}]<stderr>:",
    "GitLab": "2026-11-20T10:00:{at:02}.123456Z 01O ",
    "pm2": "0|vllm  | ",
    "srun -l": "{at}: ",
    "fluentd": "vllm: ",
    "Ray Data": "  | 2026-11-20 10:00:{at:02} | ",
    "a launcher's log": "2026-11-20 10:00:{at:02} | INFO | ",
    "logcli": '{{app="vllm", pod="vllm-0"}} ',
    "CloudWatch": "2026-11-20T10:00:{at:02}.123Z vllm/vllm/0a1b2c3d ",
    "supervisord": "2026-11-20 10:00:{at:02},123 DEBG 'vllm' stderr output: ",
    "a launcher in Go": 'time="2026-11-20T10:00:{at:02}Z" level=info msg=',
    "a tag": "[worker] ",
    "loki in Go": "ts=2026-11-20T10:00:{at:02}Z caller=pump.go:7 level=info msg=",
}  # before each line; ``at``: a number that changes


@cache  # a posted log is compared with itself in many wrappings
def diagnose_text(raw: bytes) -> tuple[str | None, str | None]:
    found = diagnose_bytes(io.BytesIO(raw), "it", None).diagnosis
    return found.engine, found.verdict and str(found.verdict.cause)


@pytest.mark.parametrize("collector", PREFIXES)
def test_what_a_collector_writes_before_each_line_hides_nothing(collector: str) -> None:
    logs = [one for one in load_posted_logs() if one.log.count(b"\n") >= 12]
    logs = [one for one in logs if any(read_line_header(line) is not None for line in one.log.decode().splitlines())]
    assert len(logs) >= 25
    for one in logs:
        lines = one.log.decode().splitlines()
        if "msg=" in PREFIXES[collector]:
            lines = [json.dumps(line, ensure_ascii=False) for line in lines]
        wrapped = "".join(f"{PREFIXES[collector].format(at=at % 60)}{line}\n" for at, line in enumerate(lines))
        assert diagnose_text(wrapped.encode()) == diagnose_text(one.log), one.name


def test_a_first_line_that_lost_its_prefix_and_blanks_of_a_browser_hide_nothing() -> None:
    (log,) = [one.log.decode().splitlines() for one in load_posted_logs() if one.log.count(b"\n") >= 30][:1]
    rest = "".join(f"\u00a0 | 2025-03-07T05:56:13.{at % 1000:03}Z | {line}\n" for at, line in enumerate(log[1:]))
    assert diagnose_text(f"{log[0]}\n{rest}".encode()) == diagnose_text("\n".join(log).encode())


_ONE_LINE = "RuntimeError: Cannot find any model weights with `/m`"
# As their collectors write them; of one line nothing is shared.
SHAPES = {
    "  | 2025-11-02 10:11:12 | ": "Ray Data",
    "2025-11-02 10:11:12,345 - launcher - INFO - ": "a launcher in Python",
    "2025-11-02 10:11:12.345 | INFO     | launcher:pump:42 - ": "loguru",
    "Nov 02 10:11:12 ": "ts",
    "Nov 02 10:11:12 spark-2a60 docker[1234]: vllm-1  | ": "journalctl, of what compose printed",
    "[10:11:12] ": "ts, in brackets",
    "1762078272.123456 spark-2a60 vllm[1234]: ": "journalctl -o short-unix",
    "vllm-7d9f8b6c5-x2z4z vllm ": "stern",
    "[1,0]<stderr>: ": "mpirun --tag-output",
    "0|vllm     | ": "pm2",
    "llm_vllm.1.k2j3h4k5j6h7m8n9p0q1r2s3t@spark1    | ": "docker service logs",
    "10:11:12 INFO run.py:33 ": "a launcher that names its source",
    "     7\t": "cat -n",
    "test\tRun vllm\t2025-11-02T10:11:12.1234567Z ": "gh run view --log",
    '2025-11-02T10:11:12Z {app="vllm", pod="vllm-0"} ': "logcli",
    "2025-11-02 10:11:12,123 DEBG 'vllm' stderr output: ": "supervisord",
    "2025-11-02T10:11:12.123Z [INFO]  vllm: ": "nomad",
}


@pytest.mark.parametrize("prefix", SHAPES, ids=SHAPES.values())
def test_a_collectors_columns_are_known_by_their_shape_before_a_single_line(prefix: str) -> None:
    for line, cause in ((_ONE_LINE, "model-files"), ("sglang: error: unrecognized arguments: --x", "unknown-flag")):
        if "INFO" not in prefix or line is _ONE_LINE:
            assert diagnose_text(f"{prefix}{line}\n".encode())[1] == cause


_BEFORE_TRACEBACK = [
    "(APIServer pid=1) INFO 06-01 10:00:00 [api_server.py:1000] vLLM API server version 0.11.0",
    "(APIServer pid=1) INFO 06-01 10:00:01 [model.py:1] Resolved architecture: Qwen3ForCausalLM",
] + [f"(APIServer pid=1) INFO 06-01 10:00:{at:02} [utils.py:7] step {at}" for at in range(2, 20)]
_FRAMES = ["Traceback (most recent call last):", '  File "/app/x.py", line 10, in <module>', "    main()"]
TRACEBACKS = {
    "unknown": [*_FRAMES, '  File "/app/x.py", line 5, in main', "    run()", "KeyError: 'weights'"],
    "memory": [*_FRAMES, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."],
    "chain": [
        *_FRAMES,
        "ImportError: libcudart.so.12: cannot open shared object file: No such file or directory",
        "",
        "The above exception was the direct cause of the following exception:",
        "",
        *_FRAMES,
        "RuntimeError: Failed to import it",
    ],
}
# Before the lines of one writer among others; ``at``: a number that changes.
WRITERS = [
    "[2026-06-01 10:00:{at:02}] ERROR ",
    "[2026-06-01 10:00:{at:02},123] [ERROR] ",
    "[ERROR] ",
    "ERROR ",
    "ERROR: ",
    "ERROR - ",
    "ERROR | ",
    "\x1b[31mERROR\x1b[0m ",
    "[spark1] ",
    "(spark1) ",
    "spark1: ",
    "spark1> ",
    "vllm-0 ",
    "#12 {at}.123 ",
    "[1,{at}]<stderr>: ",
    "[1,{at}]<stderr>:",
    "{at}: ",
    "[worker-1] stderr: ",
    "[10:00:{at:02}] ",
    "[E] ",
    "<3>",
    "2026-06-01T10:00:{at:02}.123Z spark1 | ",
    "[spark1] (EngineCore pid=7) ERROR 06-01 10:00:{at:02} [core.py:7] ",
]


@pytest.mark.parametrize("writer", WRITERS)
def test_what_stands_before_each_line_of_a_traceback_alone_hides_nothing(writer: str) -> None:
    for own, after in (((), ()), (("it starts", "loads 3 files"), ("bye",))):
        for name, traceback in TRACEBACKS.items():
            plain = [*_BEFORE_TRACEBACK, *own, *traceback, *after]
            at = len(_BEFORE_TRACEBACK)
            told = plain[:at] + [writer.format(at=at) + line for at, line in enumerate(plain[at:])]
            expected, found = (
                diagnose_bytes(
                    io.BytesIO("".join(f"{line}\n" for line in lines).encode()), "it", None
                ).diagnosis.verdict
                for lines in (plain, told)
            )
            container = LogDiagnoser()
            for number, line in enumerate(told, 1):
                container.feed_line(LogLine(when="", text=line, number=number))
            assert expected is not None, name
            assert found == expected, name
            assert container.build_diagnosis().verdict == expected, name


def test_what_stands_before_a_traceback_is_removed_from_nothing_else() -> None:
    frame = '  File "/x.py", line 1, in f'
    log = [
        "[a] x",
        "[a] Traceback (most recent call last):",
        f"[a] {frame}",
        "else",
        "[a]     g()",
        "[a] KeyError: 1",
        "",
        "[a] y",
    ]
    prefix = TracebackPrefix()
    assert [*map(prefix.strip_line, log)] == [*log[:2], frame, "else", "    g()", "KeyError: 1", "", "[a] y"]
    assert prefix.pattern is None
    for other in ("[WARNING] ", "2026-06-01 [info] ", "    ", "> ", "(EngineCore pid=7) "):
        same = [line.replace("[a] ", other) for line in log]
        assert [*map(TracebackPrefix().strip_line, same)] == same
    endless = TracebackPrefix()
    assert [endless.strip_line(line) for line in (f"[a] {frame}", *["[a] y"] * 99)].count("y") < 30


@pytest.mark.parametrize("prefix", ["", "[worker-1] ", "spark1: ", "run 7 >> "])
def test_a_traceback_whose_header_was_lost_is_read_by_its_frames(prefix: str) -> None:
    lines = ['  File "/v1/executor.py", line 5, in run', "    work()", "flux.OutOfPatience: the worker gave up"]
    log = "".join(f"{prefix}{line}\n" for line in [*["a word", "and another"] * 3, *lines])
    verdict = diagnose_bytes(io.BytesIO(log.encode()), "it", None).diagnosis.verdict
    assert verdict is not None
    assert verdict.evidence[0].text == lines[-1]


def test_the_frames_of_a_traceback_may_have_lost_their_indentation() -> None:
    log = 'File "/v1/executor.py", line 5, in run\nwork()\nflux.OutOfPatience: the worker gave up\n'
    assert diagnose_text(log.encode()) == (None, "crashed")


@pytest.mark.parametrize(
    "log",
    [
        "2025-11-02 10:11:12 INFO  server: failed 0 requests\n2025-11-02 10:11:13 INFO  server: all failed requests were sent again\n",
        "[12345.678901] pcieport 0007:00:00.0: AER: Error of this Agent is reported first\n",
    ],
)
def test_a_programs_own_level_stays_with_its_line(log: str) -> None:
    assert diagnose_text(log.encode())[1] is None


def test_what_a_service_of_logs_writes_as_json_is_read() -> None:
    exports = (
        [{"line": _ONE_LINE, "timestamp": "1", "fields": {"app": "vllm"}}],
        [{"textPayload": _ONE_LINE, "severity": "INFO"}],
        [{"jsonPayload": {"message": _ONE_LINE}, "severity": "INFO"}],
        [{"_source": {"message": _ONE_LINE}, "_index": "k"}],
    )
    for objects in exports:
        lines = "".join(json.dumps(one) + "\n" for one in objects * 3)
        assert diagnose_text(lines.encode())[1] == "model-files"
        assert diagnose_text((json.dumps(objects * 3, indent=2) + "\n").encode())[1] == "model-files"
    fluentd = json.dumps({"log": _ONE_LINE, "stream": "stderr"})
    assert diagnose_text(f"2025-11-02 10:11:12 +0000 kube.vllm: {fluentd}\n".encode())[1] == "model-files"


@pytest.mark.parametrize("key", ["log", "message", "MESSAGE"])
def test_a_log_of_json_objects_is_read_as_its_text(key: str) -> None:
    for one in list(load_posted_logs())[::5]:
        end = "\n" if key == "log" else ""
        objects = (
            {key: line + end, "stream": "stderr", "time": "2026-11-20T10:00:00Z"}
            for line in one.log.decode().splitlines()
        )
        assert diagnose_text("".join(json.dumps(each) + "\n" for each in objects).encode()) == diagnose_text(one.log), (
            one.name
        )


def test_a_line_that_docker_cut_into_objects_is_one_and_an_exception_beside_the_message_is_read() -> None:
    docker = [
        {"log": "torch.OutOf", "stream": "stderr"},
        {"log": "MemoryError: CUDA out of memory.\n", "stream": "stderr"},
    ]
    logger = [{"level": "error", "msg": "failed", "exc_info": "Traceback (most recent call last):\nKeyError: 'x'"}]
    blocks = [json.dumps(one).encode() + b"\n" for one in (*docker, *logger)] * 2
    blocks.append(b'{"log": "cut by the end", "stream": "stderr"}\n')
    whole = list(strip_wrapping(blocks, read_line_header))
    assert all(not block or block.endswith(b"\n") for block in whole)
    found = b"".join(whole).decode().splitlines()
    assert found.pop() == "cut by the end"
    assert found[4:] == found[:4]
    found = found[:4]
    assert found == [
        "torch.OutOfMemoryError: CUDA out of memory.",
        "failed",
        "Traceback (most recent call last):",
        "KeyError: 'x'",
    ]


def test_a_record_of_a_logger_among_plain_lines_is_read_as_its_text() -> None:
    record = {"msg": "exec container process: Exec format error", "level": "error"}
    answer = {"text": "a model's own answer", "tokens": 5}
    lines = ["WARNING: image platform", json.dumps(record), json.dumps(answer)]
    found = b"".join(strip_wrapping(["".join(f"{line}\n" for line in lines).encode()], read_line_header))
    assert found.decode().splitlines()[:2] == [lines[0], record["msg"]]
    only_answers = f"INFO a\n{lines[2]}\n".encode()
    assert b"".join(strip_wrapping([only_answers], read_line_header)) == only_answers


def test_nothing_is_taken_from_lines_that_are_understood_as_they_are() -> None:
    for one in load_posted_logs():
        if one.log.startswith(b"> ") or one.name in {
            "q39",
            "q44",
            "q59",
            "kf07",
            "kf40",
            "blind10-26",
            "blind11-18",
            "blind11-20",
        }:
            continue  # quoted in an answer; a launcher's name and a collector's level and time before each line; a logger's record among plain lines
        assert b"".join(strip_wrapping([one.log], read_line_header)) == one.log, one.name


_FAILED_START = (
    "INFO {} [api_server.py:1] vLLM API server version 0.19.1",
    "INFO {} [model.py:1] Resolved architecture: Qwen3ForCausalLM",
    "INFO {} [core.py:2] Initializing a V1 LLM engine (v0.19.1) with config: model='/m'",
    "ERROR {} [core.py:3] Traceback (most recent call last):",
    'ERROR {} [core.py:3]   File "/usr/lib/a.py", line 1, in run',
    "ERROR {} [core.py:3] ValueError: first",
    "ERROR {} [core.py:3] ",
    "ERROR {} [core.py:4] RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {{}}",
)


@pytest.mark.parametrize(
    "time",
    [
        "05-01 10:00:{:02}",
        "2026-05-01T10:00:{:02}.123Z INFO 05-01 10:00:{:02}",
        "Apr  3 10:00:{:02} host app[7]: INFO 05-01 10:00:{:02}",
    ],
)
def test_a_log_whose_newest_line_stands_first_is_read_turned_round(time: str) -> None:
    lines = [line.format(time.format(at, at)) for at, line in enumerate(_FAILED_START)]
    if not time.startswith("05"):
        lines = [line.partition(" ")[2].replace("INFO", line.split(" ")[0], 1) for line in lines]
    straight, turned = (
        diagnose_bytes(io.BytesIO("\n".join([*some, ""]).encode()), "it", None).diagnosis
        for some in (lines, lines[::-1])
    )
    assert straight.verdict is not None
    assert turned.verdict is not None
    assert straight.reading is not None
    assert turned.reading is not None
    assert straight.verdict.evidence[0].text == turned.verdict.evidence[0].text == "ValueError: first"
    assert (straight.verdict.evidence[0].line, turned.verdict.evidence[0].line) == (6, 3)
    assert (straight.reading.is_turned, turned.reading.is_turned) == (False, True)


def test_a_message_of_several_lines_keeps_its_order_where_the_newest_stands_first() -> None:
    records = [f"2026-05-01 10:00:{at:02} a\n  b\n  c\n" for at in range(9)]
    blocks, numbers = put_oldest_first([("".join(reversed(records))).encode()])
    assert b"".join(blocks).decode() == "".join(records)
    assert list(numbers[:4]) == [25, 26, 27, 22]


def test_no_posted_log_is_turned_round_that_stands_as_it_was_written() -> None:
    assert {one.name for one in load_posted_logs() if put_oldest_first([one.log])[1]} == {"q39"}


ENGINE_OF_COMPOSE = """\
vllm-1   | INFO 11-20 10:00:00 [api_utils.py:347] version 0.32.0
vllm-1   | INFO 11-20 10:00:05 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: model='/m'
"""
# A web interface beside the engine, as `docker compose up` prints it.
OTHER_OF_COMPOSE = """\
webui-1  | Traceback (most recent call last):
webui-1  |   File "/app/main.py", line 3, in <module>
webui-1  | ModuleNotFoundError: No module named 'peewee'
webui-1 exited with code 1
"""


@pytest.mark.parametrize("first", [ENGINE_OF_COMPOSE, OTHER_OF_COMPOSE])
def test_another_service_of_a_compose_file_is_not_the_engine(first: str) -> None:
    log = (
        "Attaching to vllm-1, webui-1\n"
        + first
        + (OTHER_OF_COMPOSE if first is ENGINE_OF_COMPOSE else ENGINE_OF_COMPOSE)
    )
    assert diagnose_text(log.encode()) == ("vllm", None)
    own = "vllm-1   | ERROR 11-20 10:00:07 [core.py:1] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    found = diagnose_bytes(io.BytesIO(f"{log}{own}vllm-1 exited with code 1\n".encode()), "log", None).diagnosis
    assert found.verdict is not None
    assert (found.verdict.cause.value, found.verdict.evidence[0].line) == ("cuda-out-of-memory", 8)


def test_of_a_compose_log_without_an_engine_all_services_are_read() -> None:
    log = OTHER_OF_COMPOSE + "db-1     | LOG:  database system is ready to accept connections\n"
    assert diagnose_text(log.encode()) == (None, "broken-image")


KERNEL_STAMPS = (
    "kernel: ",
    "<4>[   12.{at:06}] ",
    "kern  :warn  : [   12.{at:06}] ",
    "[   12.{at:06}] ",
    "[Thu Nov 27 10:00:{at:02} 2026] ",
    "Nov 28 10:00:{at:02} spark kernel: ",
    "Nov 28 10:00:{at:02} spark kernel: [   12.{at:06}] ",
    "2026-11-28T10:00:{at:02}+0100 spark kernel: ",
)


@pytest.mark.parametrize("stamp", KERNEL_STAMPS)
def test_a_kernel_s_word_for_a_failure_ends_no_program_but_its_kill_does(stamp: str) -> None:
    said = [
        "usb 1-1: new high-speed USB device number 2 using xhci_hcd",
        r"ACPI BIOS Error (bug): Could not resolve symbol [\_SB.PCI0.XHC.RHUB.HS05], AE_NOT_FOUND (20230628/psargs-330)",
        "r8169 0000:02:00.0: vpd r/w failed.  This is likely a firmware bug on this device.",
    ]
    for last in (1, 2):
        log = "".join(f"{stamp.format(at=at)}{line}\n" for at, line in enumerate(said[: last + 1]))
        assert diagnose_text(log.encode())[1] is None
    killed = f"{stamp.format(at=9)}Out of memory: Killed process 4242 (python3) total-vm:1kB, anon-rss:1kB\n"
    assert diagnose_text(f"{log}{killed}".encode())[1] == "host-oom-kill"
    hot = f"{stamp.format(at=9)}thermal thermal_zone0: acpitz: critical temperature reached, shutting down\n"
    assert diagnose_text(f"{log}{hot}".encode())[1] == "crashed"


@pytest.mark.parametrize(
    "summary",
    [
        "=================== 3 failed, 17 passed, 2 warnings in 2.31s ===================",
        "FAILED tests/test_a.py::test_x - assert 1 == 2",
        "FAILED (failures=2)",
        "test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
        "--- FAIL: TestServer (0.01s)",
        "Tests:       1 failed, 12 passed, 13 total",
        "not ok 3 - the server answers",
    ],
)
def test_how_tests_went_says_nothing_of_a_server(summary: str) -> None:
    assert diagnose_text(f"collected 20 items\n{summary}\n".encode()) == (None, None)
