"""Lines that change nothing are skipped by their shape: the diagnosis is the same as line by line, of any log."""

from __future__ import annotations

import random

import pytest

from sparkctl.engines import load_engine
from sparkctl.logs.analyzer import LogDiagnosis
from sparkctl.logs.diagnosis import LogDiagnoser
from sparkctl.logs.line_effects import EffectTable, LineEffect, choose_effects
from tests.tools.diagnosis_table import load_posted_logs
from tests.unit.engines import failed_start_logs
from tests.unit.logs.test_log_diagnosis import FAILED, NO_SHARE, SERVING, SGLANG, STOPPED, VLLM

LOGS = {
    **{one.name: one.log for one in load_posted_logs()},
    "healthy": "\n".join((*VLLM, SERVING, "")).encode(),
    "failed": "\n".join((*VLLM[:4], NO_SHARE, FAILED, "")).encode(),
    "sglang": "\n".join((*SGLANG, "")).encode(),
    "stopped": "\n".join((*VLLM, SERVING, *((STOPPED,) if isinstance(STOPPED, str) else STOPPED), "")).encode(),
    **{
        name: text.encode()
        for name, text in vars(failed_start_logs).items()
        if isinstance(text, str) and text.count("\n") > 3
    },
}
dice = random.Random(15)
SERIES = [dice.sample(sorted(LOGS), 5) for _ in range(40)]


def diagnose_blocks(log: bytes, size: int) -> LogDiagnosis:
    diagnoser, lines = LogDiagnoser(), log.splitlines(keepends=True)
    for at in range(0, len(lines), size):
        diagnoser.feed_block(b"".join(lines[at : at + size]))
    return diagnoser.build_diagnosis()


def diagnose_lines(log: bytes) -> LogDiagnosis:
    diagnoser = LogDiagnoser()
    for line in log.split(b"\n")[:-1]:
        diagnoser.feed_raw_line(line.decode("utf-8", "replace"))
    return diagnoser.build_diagnosis()


@pytest.mark.parametrize("names", SERIES, ids=lambda names: "+".join(names))
def test_a_log_of_many_runs_reads_the_same_by_blocks_and_by_lines(names: list[str]) -> None:
    log = b"\n".join(LOGS[name] for name in (*names, *names)) + b"\n"
    expected = diagnose_lines(log)
    for size in (7, 10_000):
        assert diagnose_blocks(log, size) == expected


@pytest.mark.parametrize(
    ("line", "effect"),
    [
        (b"(EngineCore pid=7) INFO 05-01 10:00:00 [a.py:1] Using cuDNN 9", LineEffect.REMEMBERED),
        (b"(EngineCore pid=7) INFO 05-01 10:00:00 [a.py:1] failed to find a tuned config", LineEffect.REMEMBERED),
        (b"(APIServer pid=1)   ", LineEffect.INVISIBLE),
        (b'INFO:     10.0.0.7:4 - "GET /health?by=sparkctl HTTP/1.1" 200 OK', LineEffect.INVISIBLE),
        (b'INFO:     10.0.0.7:4 - "GET /metrics HTTP/1.1" 200 OK', LineEffect.REQUEST),
        (b'INFO:     10.0.0.7:4 - "POST /v1/completions HTTP/1.1" 400 Bad Request', LineEffect.WORK),
        (b"(APIServer pid=1) INFO 05-01 10:15:21 [loggers.py:259] Engine 000: Avg prompt throughput: 1.0", LineEffect.WORK),
        (b"(APIServer pid=1) INFO 05-01 10:15:21 [logger.py:39] Received request 7: prompt: '%s'" % (b"x" * 400), LineEffect.WORK),
        (b"(EngineCore pid=7) ERROR 05-01 10:00:00 [a.py:1] something else", LineEffect.MATTERS),
        (b"RuntimeError: CUDA driver version is insufficient", LineEffect.MATTERS),
        (b"INFO 05-01 10:00:00 [a.py:1] Error 905 of the retry", LineEffect.MATTERS),  # as 804, of which a rule knows
        (b"sglang serve: error: unrecognized arguments: --x", LineEffect.OPENS),
    ],
)  # fmt: skip
def test_the_effect_of_a_line(line: bytes, effect: LineEffect) -> None:
    table = EffectTable(load_engine("vllm"), None)
    shape = line.translate(bytes.maketrans(b"123456789", b"000000000"))
    assert table.find_effect(shape, line, in_traceback=False) is effect
    stored = LineEffect.UNKNOWN if b"Received request" in line else effect  # a line with a client's text has no like
    assert choose_effects(table.list_effects([shape, b"another"]), in_traceback=False)[0] == stored
