"""What the command does with its streams: a reader that goes, a disk that is full, a script that waits for a result."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from sparkctl.cli.invocation import invoke_command_line
from tests.support.run_command import QUICK, SPARK_URL, parse_result, run_demo, run_in_process

DEMO = [sys.executable, "-m", "sparkctl", "demo", "--speed", QUICK, "--scenario", "two-stacks"]


@pytest.mark.parametrize(
    "words",
    [
        ["status", "--watch"],
        ["status", "--watch", "--json"],
        ["logs", "qwen36-ngram", "--node", "spark1", "--tail", "1", "-f"],
    ],
)
def test_a_reader_that_goes_ends_the_command_quietly(words: list[str]) -> None:
    process = subprocess.Popen([*DEMO, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline()
    process.stdout.close()
    assert process.wait(30) == 141
    assert process.stderr.read() == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("words", [["status"], ["status", "--json"], ["profiles", "list"], ["--help"], ["profiles"]])
def test_a_full_disk_is_told_in_one_sentence(words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run([*DEMO, *words], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert ran.returncode == 74
    assert ran.stderr == "sparkctl: cannot write to stdout: No space left on device\n"


@pytest.mark.parametrize(("verb", "code"), [("status", 74), ("status --json", 74), ("--scenario empty status -q", 0)])
def test_only_what_prints_needs_its_stdout(verb: str, code: int) -> None:
    words = ["sh", "-c", '"$@" >&-', "sh", *DEMO, *verb.split()]
    ran = subprocess.run(words, stderr=subprocess.PIPE, text=True, timeout=60)
    assert (ran.returncode, "cannot write to stdout: Bad file descriptor" in ran.stderr) == (code, code == 74), (
        ran.stderr
    )


@pytest.mark.parametrize("closed", ["2>&-", "2>/dev/full"])
def test_talk_that_nobody_can_hear_does_not_end_the_work(closed: str) -> None:
    words = [sys.executable, "-m", "sparkctl", "demo", "--speed", QUICK, "up", "qwen36", "--node", "spark1"]
    ran = subprocess.run(["sh", "-c", f'"$@" {closed}', "sh", *words], stdout=subprocess.PIPE, text=True, timeout=60)
    assert ran.returncode == 0
    assert re.fullmatch(f"{SPARK_URL}8003\n", ran.stdout)


@pytest.mark.parametrize("verb", ["status", "top --once", "metrics", "plan qwen36 --node spark1"])
def test_a_closed_stdin_is_an_empty_one(verb: str) -> None:
    words = [*DEMO[:-2], *verb.split()]
    ran = subprocess.run(["sh", "-c", '"$@" <&-', "sh", *words], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, "defect" in ran.stderr) == (0, False), ran.stderr
    assert "spark1" in ran.stdout


def test_no_room_for_temporary_files_is_no_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/tmp/x")

    monkeypatch.setattr("tempfile.mkdtemp", full)
    result: list[tuple[object, ...]] = []
    monkeypatch.setattr("sparkctl.cli.stderr.print_error", lambda *words: result.append(words))
    assert invoke_command_line(["demo", "status"]) == 2
    assert "is full" in str(result)
    assert "TMPDIR" in str(result)


EARLY = [
    (["up", "no-such-profile"], "no profile is called"),
    (["up", "qwen36", "--node", "no-such-node"], "no node is called"),
    (["up", "qwen36", "--set", "port=many"], "port"),
    (["up", "qwen36", "-n", "spark1", "-n", "spark2"], "qwen36 is for one Spark, but spark1 and spark2 are named"),
    (["up", "qwen36", "--no-such-option"], "--no-such-option"),
    (["status", "--node", "no-such-node"], "no node is called"),
    (["profiles", "show", "no-such-profile"], "no profile is called"),
    (["stpo", "qwen36"], "unknown command: stpo"),
]


@pytest.mark.parametrize(("words", "message"), EARLY)
def test_a_script_gets_its_result_line_also_where_nothing_began(words: list[str], message: str) -> None:
    ran = run_demo(*words, "--json")
    ended = parse_result(ran)
    assert (ended["exit_code"], ended["outcome"], ended["schema"]) == (2, "refused", 1)
    assert message in ended["message"]
    assert message in ran.stderr
    assert "\n" not in ran.stdout.rstrip("\n")


USAGE = [
    (["up", "qwen36", "--format", "docker"], "--format needs --dry-run"),
    (["up", "qwen36", "--dry-run", "--format", "json", "--json"], "not both"),
    (["down", "--all", "qwen36"], "either INSTANCE or --all, not both"),
    (["completion"], "for which shell? bash, zsh or fish"),
    (["ps"], "no config exists yet"),
    (["restart"], "Missing argument 'INSTANCE'"),
    (["help", "statsu"], "did you mean `status`?"),
    (["dwon"], "did you mean `down`?"),
]


@pytest.mark.parametrize(("words", "message"), USAGE)
def test_a_slip_of_the_fingers_gets_one_clear_line(words: list[str], message: str, tmp_path: Path) -> None:
    ran = run_in_process(
        *words, env={"XDG_CACHE_HOME": str(tmp_path)}
    )  # what ran when others of these tests looked is not known
    assert ran.returncode == 2
    first = ran.stderr.splitlines()[0]
    assert first.startswith("sparkctl: ")
    assert message in first


def test_profiles_alone_lists_them_as_models_and_images_do() -> None:
    ran = run_in_process("profiles")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == run_in_process("profiles", "list").stdout


def test_a_page_is_found_by_its_title() -> None:
    page = run_in_process("help", "first-evening").stdout
    assert page.startswith("# Quick start\n")
    assert run_in_process("help", "quick-start").stdout == run_in_process("help", "Quick", "start").stdout == page


def test_a_profile_is_checked_by_its_name_too(tmp_path: Path) -> None:
    good = run_demo("profiles", "check", "qwen36")
    assert good.returncode == 0
    assert good.stdout.splitlines()[-1] == "qwen36: good, 4 infos (flags of SGLang 0.5.12)"
    mine = tmp_path / "sparkctl/profiles/mine.yaml"
    mine.parent.mkdir(parents=True)
    mine.write_text("schema: 1\nname: mine\nextends: qwen36\nport: many\n")
    env = {"XDG_CONFIG_HOME": str(tmp_path)}
    bad = run_demo("profiles", "check", "mine", "--json", env=env)
    assert bad.returncode == 2
    assert json.loads(bad.stdout)["faults"][0]["place"]["file"] == str(mine)
    kept = mine.read_bytes()
    refused = run_demo("profiles", "check", "--fix", "mine", env=env)
    assert (refused.returncode, mine.read_bytes()) == (2, kept)
    assert "the demo does not change it" in refused.stderr
    assert run_demo("profiles", "check", "nobodys", env=env).returncode == 2


def begin_start(*, stderr: int) -> tuple[subprocess.Popen[str], IO[str]]:
    """Begin a start that loads for a while; return it once it loads, with its stdout."""
    process = subprocess.Popen(
        [sys.executable, "-m", "sparkctl", "demo", "--speed", "1", "up", "qwen36-vllm", "--node", "spark1", "--json"],
        stdout=subprocess.PIPE, stderr=stderr, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    for line in process.stdout:
        if '"phase":"loading"' in line:
            return process, process.stdout
    raise AssertionError("it ended before it loaded")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGHUP, 129), (signal.SIGTERM, 130)])
def test_a_closed_terminal_interrupts_as_ctrl_c_does(number: signal.Signals, code: int) -> None:
    process, out = begin_start(stderr=subprocess.DEVNULL)
    process.send_signal(number)
    ended = json.loads(out.read().splitlines()[-1])
    assert (ended["event"], ended["outcome"], ended["exit_code"]) == ("result", "interrupted", code)
    assert "keeps starting" in ended["message"]
    assert process.wait(20) == code


def test_a_closed_terminal_whose_output_is_gone_too_gets_no_traceback() -> None:
    process, out = begin_start(stderr=subprocess.PIPE)
    os.kill(process.pid, signal.SIGSTOP)  # so that it writes nothing between the two
    out.close()
    process.send_signal(signal.SIGHUP)
    os.kill(process.pid, signal.SIGCONT)
    assert process.stderr is not None
    said = process.stderr.read()
    assert process.wait(20) == 128 + signal.SIGHUP, said
    assert "Traceback" not in said
    assert "bug in sparkctl" not in said
