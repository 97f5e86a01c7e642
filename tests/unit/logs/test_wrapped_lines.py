"""A log whose lines a terminal or a paste cut at one width tells the same as before; nothing else is joined."""

from __future__ import annotations

import io
from collections.abc import Iterator
from functools import cache

import pytest

from sparkctl.commands.diagnose_file import diagnose_bytes
from sparkctl.logs.analyzer import LogDiagnosis
from sparkctl.logs.diagnosis import read_line_header
from sparkctl.logs.log_file import join_wrapped_lines
from tests.tools.diagnosis_table import load_posted_logs
from tests.unit.engines import failed_start_logs, test_good_starts

PREFIXES = {
    "docker logs -t": "2026-11-20T10:00:{at:02}.123456789Z ",
    "compose": "vllm-1  | ",
    "journald": "Nov 20 10:00:{at:02} spark-1 docker[123]: ",
    "kubectl --prefix": "[pod/vllm-abc/vllm] ",
    "ts": "Nov 20 10:00:{at:02} ",
}
LAST_WORDS = {"g02", "g12"}  # an error counts by how few lines follow it; the pieces of cut lines are counted
ALREADY_CUT = {"h33", "o09", "m115", "q57"}  # posted as a terminal showed them


def list_logs() -> Iterator[tuple[str, str]]:
    every = (*failed_start_logs.ANY, *failed_start_logs.VLLM)
    for death in (one for one in every[::4] if one.where != "bare"):
        yield f"vllm {death.text[:60]}", failed_start_logs.build_vllm_log("0.19.1", death)
    for death in (one for one in failed_start_logs.SGLANG[::4] if one.where != "bare"):
        yield f"sglang {death.text[:60]}", failed_start_logs.build_sglang_log("0.5.12", death)
    yield "a good vLLM", test_good_starts.VLLM
    yield "a good SGLang", test_good_starts.SGLANG


def list_long_logs(width: int) -> list[tuple[str, str]]:
    """Return the logs that are cut in so many places that it shows."""
    posted = [(one.name, one.log.decode()) for one in load_posted_logs() if one.name not in ALREADY_CUT | LAST_WORDS]
    logs = [*list_logs(), *posted]
    return [(name, log) for name, log in logs if len({ln for ln in log.splitlines() if len(ln) > width}) >= 4]


def cut_lines(log: str, width: int) -> str:
    lines = log.removesuffix("\n").split("\n")
    return "".join(line[at : at + width] + "\n" for line in lines for at in range(0, max(1, len(line)), width))


def add_prefix(log: str, prefix: str) -> str:
    return "".join(f"{prefix.format(at=at % 60)}{line}\n" for at, line in enumerate(log.split("\n")[:-1]))


def diagnose(log: str) -> LogDiagnosis:
    return diagnose_bytes(io.BytesIO(log.encode()), "it", None).diagnosis


@cache
def tell(log: str) -> tuple[object, ...]:
    found = diagnose(log)
    return found.engine, found.version, found.ready, found.verdict and (found.verdict.cause, found.verdict.summary)


def join(log: str) -> str:
    return b"".join(join_wrapped_lines([log.encode()], read_line_header)).decode()


@pytest.mark.parametrize("width", [80, 100])
def test_a_cut_log_tells_the_same(width: int) -> None:
    logs = list_long_logs(width)
    assert len(logs) >= 40
    for name, log in logs:
        assert tell(cut_lines(log, width)) == tell(log), name


@pytest.mark.parametrize("collector", PREFIXES)
def test_a_prefix_may_stand_before_each_piece_or_be_cut_with_its_line(collector: str) -> None:
    for name, log in [*list_logs()][::4]:
        result = tell(add_prefix(log, PREFIXES[collector]))
        assert tell(add_prefix(cut_lines(log, 80), PREFIXES[collector])) == result, name
        assert tell(cut_lines(add_prefix(log, PREFIXES[collector]), 80)) == result, name


def test_lines_keep_their_numbers_wherever_a_block_ends() -> None:
    cut = cut_lines(test_good_starts.VLLM, 80)
    pieces = [line + b"\n" for line in cut.encode().split(b"\n")[:-1]]
    whole = join(cut)
    assert whole.count("\n") == len(pieces)
    assert [line for line in whole.split("\n") if line] == [line for line in test_good_starts.VLLM.split("\n") if line]
    first, rest = b"".join(pieces[:20]) * 200, pieces  # more than the sample
    long = b"".join(join_wrapped_lines([first, *rest], read_line_header))
    assert long == b"".join(join_wrapped_lines([first + b"".join(rest)], read_line_header))
    death = next(one for one in failed_start_logs.ANY if one.where != "bare")
    log = cut_lines(failed_start_logs.build_vllm_log("0.19.1", death), 80)
    verdict = diagnose(log).verdict
    assert verdict is not None
    evidence = verdict.evidence[0]
    assert evidence.line is not None
    assert evidence.text[:20] in log.split("\n")[evidence.line - 1]


def test_a_longer_line_ends_it() -> None:
    cut = cut_lines(test_good_starts.VLLM, 80)
    sample = cut * 40  # more than what shows the width
    assert join(sample + cut) == join(cut) * 41
    joined = join(f"{sample}{'z' * 81}\n{cut}")
    assert joined.removeprefix(join(cut) * 40) == f"{'z' * 81}\n{cut}"


TABLE = "".join(
    f"|   {at}  NVIDIA GB10                    On  |   0000000F:01:00.0 Off |              N/A |\n" for at in range(9)
)
BARS = "".join(f"Loading checkpoint shards: {at:3}% Completed | {at:3}/100 [00:{at % 60:02}<00:40,  2.5s/it]\n" for at in range(90))  # fmt: skip
PANEL = "".join(f"{'╭─ memory ─'}{'─' * 66}{at:3}╮\n│ Part {at}\n" for at in range(9))
KEYS = "".join(f"llama_model_loader: - kv {at:3}:                tokenizer.ggml.key_{at:03} str = value\n" for at in range(50))  # fmt: skip
RULES = "".join("=" * 80 + f"\nPart {at}\n" for at in range(9))


@pytest.mark.parametrize(
    "log", [TABLE, PANEL, BARS, KEYS, RULES, TABLE + KEYS, test_good_starts.VLLM, test_good_starts.SGLANG]
)
def test_lines_of_one_length_are_no_cut_lines(log: str) -> None:
    assert join(log) == log


def test_only_posted_logs_that_were_cut_are_joined() -> None:
    logs = {one.name: one.log.decode() for one in load_posted_logs()}
    assert {name for name, log in logs.items() if join(log) != log} == ALREADY_CUT
    assert all(join(log) == log for _, log in list_logs())


@pytest.mark.parametrize("prefix", ["", "vllm-1  | "])
@pytest.mark.parametrize("cut", ["Runtim", "RuntimeE", "RuntimeErro"])
def test_an_exception_whose_class_is_cut_is_whole_again_in_a_short_log(cut: str, prefix: str) -> None:
    error = "RuntimeError: Cannot find any model weights with `meta-llama/CodeLlama-7b-Instruct-hf`"
    first = "(EngineCore pid=7) ERROR 06-01 10:00:00 [core.py:7] model loading failed; root cause: "
    log = f"{prefix}starts\n{prefix}{first}{cut}\n{prefix}{error[len(cut) :]}\n"
    verdict = diagnose(log).verdict
    assert verdict is not None
    assert error in verdict.evidence[0].text


def test_a_word_at_the_end_of_the_longest_line_is_no_class() -> None:
    lines = "the start failed, and this is the longest line that there is; it ends with Runtime\nerror: no such file\n"
    assert b"".join(join_wrapped_lines([lines.encode()], read_line_header)) == lines.encode()
