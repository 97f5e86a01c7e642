"""Reading a serving log and logs of failed starts for `diagnose`, against a bare loop that only splits and decodes them; and
what a long stream holds."""

from __future__ import annotations

import io
import random
import resource
import time
from collections.abc import Callable, Iterator

from sparkctl.logs.diagnosis import LogDiagnoser
from sparkctl.logs.log_file import BLOCK_BYTES, ByteSource, read_line_blocks
from tests.tools.bench.bench_report import Goal, LoadMeter, Report, Series, measure_interleaved
from tests.unit.engines.failed_start_logs import ANY, SGLANG, VLLM, build_sglang_log, build_vllm_log

ROUNDS, LINES, STREAM = 7, 200_000, 2 << 30  # bytes
STARTS = 10  # how often each of the failed starts is read
ENOUGH = 400.0  # k lines a second
BARE = "split and decode"
_START = {
    "sglang": "[2026-05-01 10:00:00] server_args=ServerArgs(model_path='/models/q')\n"
    "[2026-05-01 10:05:00] The server is fired up and ready to roll!\n",
    "vllm": "(APIServer pid=1) INFO 05-01 10:00:00 [utils.py:233] non-default args: {'model': '/models/q'}\n"
    "(APIServer pid=1) INFO:     Application startup complete.\n",
}  # fmt: skip
_STAMP = "2026-05-01 10:%02d:%02d"
_DECODE = (
    "[{at}] Decode batch, #running-req: {n}, #token: {many}, token usage: 0.75, accept len: 2.88, accept rate: 0.63, "
    "cuda graph: True, gen throughput (token/s): 71.{n}, #queue-req: 0\n"
)
_PREFILL = (
    "[{at}] Prefill batch, #new-seq: 1, #new-token: {many}, #cached-token: 0, token usage: 0.00, #running-req: {n}, "
    "#queue-req: 0, #pending-token: 0, cuda graph: False, input throughput (token/s): 155.17\n"
)
_ENGINE = (
    "(APIServer pid=1) INFO 05-01 10:15:21 [loggers.py:259] Engine 000: Avg prompt throughput: 71.8 tokens/s, Avg generation "
    "throughput: 132.{n} tokens/s, Running: {n} reqs, Waiting: 0 reqs, GPU KV cache usage: 0.7%, Prefix cache hit rate: 0.0%\n"
)
_SPECULATION = (
    "(APIServer pid=1) INFO 05-01 10:15:21 [metrics.py:120] SpecDecoding metrics: Mean acceptance length: 3.54, Accepted "
    "throughput: 387.76 tokens/s, Drafted throughput: 542.95 tokens/s, Accepted: {many} tokens, Drafted: 5430 tokens, "
    "Per-position acceptance rate: 0.840, 0.652, 0.551, 0.502, Avg Draft acceptance rate: 71.4%\n"
)
_ASKED = 'INFO:     10.0.0.7:{many} - "GET /metrics HTTP/1.1" 200 OK\n'
_USED = 'INFO:     10.0.0.7:{many} - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
_FAILED = ((build_vllm_log, "0.19.1", VLLM), (build_sglang_log, "0.5.12", SGLANG))
_SHAPES = {
    "sglang": (_DECODE, _DECODE, _DECODE, _PREFILL, "[{at}] " + _USED, "[{at}] " + _ASKED),
    "vllm": (_ENGINE, _SPECULATION, "(APIServer pid=1) " + _USED, "(APIServer pid=1) " + _ASKED, _USED),
}  # fmt: skip


def run(rounds: int = ROUNDS) -> Report:
    """Measure thousands of lines a second of one core's time, and MiB that a stream of 2 GiB adds."""
    load = LoadMeter()
    logs = {f"diagnose, {engine}": _serving_log(engine) for engine in _SHAPES}
    # one container that was started again and again, each time in vain
    starts = (build(version, death) for build, version, deaths in _FAILED for death in (*ANY, *deaths))
    failed = "".join(starts).encode() * STARTS
    measures: dict[str, Callable[[], float]] = {name: _rate_of(log, _diagnose) for name, log in logs.items()}
    measures |= {f"{BARE}, {name.rpartition(' ')[2]}": _rate_of(log, _read_bare_loop) for name, log in logs.items()}
    measures |= {
        "diagnose, failed starts": _rate_of(failed, _diagnose_failure),
        f"{BARE}, failed starts": _rate_of(failed, _read_bare_loop),
    }
    taken = measure_interleaved(rounds, measures)
    series = tuple(Series(name, "k lines/s", values) for name, values in taken.items())
    median = {one.name: one.median for one in series}
    kinds = (*_SHAPES, "failed starts")
    ratios = (
        Goal(f"diagnose / {BARE}, {kind}", median[f"diagnose, {kind}"] / median[f"{BARE}, {kind}"]) for kind in kinds
    )
    enough = (
        Goal(f"diagnose, {kind}", median[f"diagnose, {kind}"], ENOUGH, at_most=False, unit="k lines/s")
        for kind in kinds
    )
    memory = Series("held by a stream", "MiB", (_measure_growth(next(iter(logs.values()))),))
    flat = Goal(f"memory that {STREAM >> 30} GiB of log add", memory.median, 8, unit="MiB")
    title = f"{LINES:,} lines of an engine at work, in processor time"
    return Report("diagnose", title, (*series, memory), (*ratios, *enough, flat), load.read())


def _serving_log(engine: str) -> bytes:
    dice = random.Random(5)
    lines = [
        dice.choice(_SHAPES[engine]).format(at=_STAMP % (at // 60 % 60, at % 60), n=at % 9 + 1, many=at % 60_000 + 1)
        for at in range(LINES)
    ]
    return (_START[engine] + "".join(lines)).encode()


def _rate_of(log: bytes, read: Callable[[bytes], int]) -> Callable[[], float]:
    wanted = log.count(b"\n")

    def measure() -> float:
        begun = time.process_time()
        lines = read(log)
        taken = time.process_time() - begun
        if lines != wanted:
            raise RuntimeError(f"{lines} of {wanted} lines were read")
        return wanted / taken / 1000

    return measure


def _diagnose_failure(log: bytes) -> int:
    found = _diagnose_source(io.BytesIO(log)).build_diagnosis()
    if found.verdict is None:
        raise RuntimeError("the log of a failed start is told to be healthy")
    return found.lines


def _diagnose(log: bytes) -> int:
    found = _diagnose_source(io.BytesIO(log)).build_diagnosis()
    if not found.ready or found.verdict is not None:
        raise RuntimeError(f"a healthy log is told to be none: {found.verdict}")
    return found.lines


def _read_bare_loop(log: bytes) -> int:
    """The least that anybody does who reads a log line by line."""
    source, rest, lines = io.BytesIO(log), b"", 0
    while piece := source.read(BLOCK_BYTES):
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            line.decode("utf-8", "replace")
        lines += len(whole)
    return lines


def _diagnose_source(source: ByteSource) -> LogDiagnoser:
    reading = LogDiagnoser()
    for block in read_line_blocks(source, "bench"):
        reading.feed_block(block)
    return reading


def _measure_growth(log: bytes) -> float:
    """Return by how much this process is larger after a long stream than early in it, in MiB."""
    sizes: list[int] = []
    _diagnose_source(_Endless(log, sizes))
    return (max(sizes) - sizes[1]) / (1 << 20)


class _Endless:
    """The log over and over; the process's size is noted with each."""

    def __init__(self, log: bytes, sizes: list[int]) -> None:
        self._pieces = self._over_and_over(log, sizes)

    def read(self, _: int, /) -> bytes:
        return next(self._pieces, b"")

    @staticmethod
    def _over_and_over(log: bytes, sizes: list[int]) -> Iterator[bytes]:
        page = resource.getpagesize()
        for _ in range(STREAM // len(log)):
            with open("/proc/self/statm", "rb") as file:  # noqa: PTH123
                sizes.append(int(file.read().split()[1]) * page)
            for at in range(0, len(log), BLOCK_BYTES):
                yield log[at : at + BLOCK_BYTES]
