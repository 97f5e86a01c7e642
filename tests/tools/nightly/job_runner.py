"""One job after the other, each in a process of its own with its output in a file, and the table of what came of them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tests.tools.nightly.jobs import ROOT, Job

_TIDYING = 120.0  # seconds to clear away after Ctrl-C: pytest takes the lab down
_WIDE = 110


class Result(StrEnum):
    """What came of a job."""

    OK = "ok"
    FAILED = "failed"
    SKIPPED = "skipped"
    NOTED = "noted"  # it did not end well, and only informs


@dataclass(frozen=True, slots=True)
class Outcome:
    """``why``: why it failed or was skipped, or what a job that went well had to leave out; ``log`` is its whole output."""

    job: str
    result: Result
    seconds: float
    why: str = ""
    log: Path | None = None


def run_job(job: Job, logs: Path) -> Outcome:
    """Do a job, its output below ``logs``."""
    if reason := job.why_not():
        return Outcome(job.name, Result.SKIPPED, 0.0, reason)
    log, began = logs / f"{job.name}.log", time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            job.words, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **dict(job.env)}, start_new_session=True,
        )  # fmt: skip
        try:
            code: int | None = process.wait(job.limit)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            end_job(process)
    return judge_outcome(job, code, log.read_text("utf-8", "replace"), time.monotonic() - began, log)


def end_job(process: subprocess.Popen[bytes]) -> None:
    """End a job that still runs: as Ctrl-C does, later with all of its processes."""
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGINT)
    try:
        process.wait(_TIDYING)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def judge_outcome(job: Job, code: int | None, said: str, seconds: float, log: Path | None = None) -> Outcome:
    """Return what an exit status (None: it was not done in time) and an output come to.

    A job that ends with 0 has not done well for that alone: without its proof it was skipped where it says so, else it failed.
    """
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    left_out = "; ".join(re.sub(r"^SKIPPED:? *(\[\d+\] *)?", "", line) for line in lines if line.startswith("SKIPPED"))
    if code == 0 and re.search(job.proof, said):
        return Outcome(job.name, Result.OK, seconds, f"without: {left_out}" if left_out else "", log)
    if code == 0 and left_out:
        return Outcome(job.name, Result.SKIPPED, seconds, left_out, log)
    last = lines[-1] if lines else "it said nothing"
    why = {None: f"not done within {job.limit / 60:.0f} min", 0: "exit 0 without a sign that it was done"}
    words = f"{why.get(code, f'exit {code}')}: {last}"
    return Outcome(job.name, Result.NOTED if job.informs else Result.FAILED, seconds, words, log)


def format_table(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Yield the table's lines: job, result, seconds, why; below it where the output of what failed is."""
    wide = max((len(one.job) for one in outcomes), default=3)
    yield f"{'job':{wide}}  {'result':7}  {'seconds':>7}  why"
    for one in outcomes:
        why = one.why if len(one.why) <= _WIDE else f"{one.why[: _WIDE - 1]}…"
        yield f"{one.job:{wide}}  {one.result:7}  {one.seconds:7.0f}  {why}".rstrip()
    for one in outcomes:
        if one.result in (Result.FAILED, Result.NOTED):
            yield f"{one.job}: {one.log}"


def compute_exit_code(outcomes: Sequence[Outcome]) -> int:
    """Return 1 where a job failed, else 0."""
    return int(any(one.result is Result.FAILED for one in outcomes))
