"""The command line for the tests: in this process, or in one of its own where the process is what is tested."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager, nullcontext
from pathlib import Path
from typing import Any

QUICK = "40"  # how fast the demo's time goes here
SPARK_URL = r"http://127\.0\.0\.\d+:"  # of a simulated Spark: each demo takes addresses that are free


def run_sparkctl(
    *words: str, env: Mapping[str, str] | None = None, stdin: str = "", timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own: for signals, streams, exit codes, and beside a running event loop."""
    return subprocess.run(
        [sys.executable, "-m", "sparkctl", *words], input=stdin, capture_output=True, text=True, timeout=timeout,
        env={**os.environ, **(env or {})},
    )  # fmt: skip


def run_in_process(
    *words: str, env: Mapping[str, str] | None = None, stdin: str = "", cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command in this process, without the second that a new one takes to start.

    Its environment and directory are as they were afterwards. A defect is raised, where a process would end with 70.
    """
    from sparkctl.cli.invocation import invoke_command_line

    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    with _replaced_environment(env or {}), chdir(cwd) if cwd else nullcontext(), _replaced_streams(stdin, out, err):
        code = invoke_command_line(list(words))
    return subprocess.CompletedProcess(
        args=words, returncode=code, stdout=_read_written(out), stderr=_read_written(err)
    )


def run_demo(
    *words: str, scenario: str = "empty", env: Mapping[str, str] | None = None, speed: str = QUICK
) -> subprocess.CompletedProcess[str]:
    """Run a verb on two simulated Sparks, in this process."""
    return run_in_process("demo", "--scenario", scenario, "--speed", speed, *words, env=env)


def parse_result(ran: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Return the last JSON line, which is the only result and has the exit code of the command."""
    lines = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [line["event"] for line in lines].count("result") == 1, ran
    assert lines[-1]["event"] == "result"
    assert lines[-1]["exit_code"] == ran.returncode
    return lines[-1]


@contextmanager
def _replaced_environment(changes: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(changes)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def _replaced_streams(stdin: str, out: io.TextIOWrapper, err: io.TextIOWrapper) -> Iterator[None]:
    before = sys.stdin, sys.stdout, sys.stderr
    sys.stdin, sys.stdout, sys.stderr = io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8"), out, err
    try:
        yield
    finally:
        sys.stdin, sys.stdout, sys.stderr = before


def _read_written(stream: io.TextIOWrapper) -> str:
    stream.flush()
    written = stream.buffer
    assert isinstance(written, io.BytesIO)
    return written.getvalue().decode()
