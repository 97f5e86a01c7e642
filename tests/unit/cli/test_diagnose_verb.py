"""The verb on files and pipes: what a script gets, what people read, and what cannot be read."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sparkctl.engines import engine_names, load_engine
from sparkctl.model.verdict import FailureCause
from sparkctl.views.diagnosis_view import format_remedy_as_flags
from tests.support.run_command import run_in_process
from tests.unit.logs.test_log_diagnosis import FAILED, NO_SHARE, SERVING, SGLANG, STOPPED, VLLM

BROKEN = "\n".join((*VLLM[:4], NO_SHARE, FAILED, ""))
HEALTHY = "\n".join((*VLLM, SERVING, ""))


def run_diagnose(*words: str, cwd: Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    env = {"HOME": str(cwd), "XDG_CONFIG_HOME": str(cwd), "XDG_STATE_HOME": str(cwd)}
    return run_in_process("diagnose", *words, stdin=stdin, env=env, cwd=cwd)


def parse_document(ran: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert ran.returncode == 0, ran
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def test_the_json_document(tmp_path: Path) -> None:
    (tmp_path / "vllm.log").write_text(BROKEN)
    found = parse_document(run_diagnose("vllm.log", "--json", cwd=tmp_path))
    keys = ["schema", "engine", "version", "phase", "ready", "verdict", "contributing", "facts"]
    assert [key for key in found if key in keys] == keys
    assert (found["schema"], found["engine"], found["version"], found["phase"], found["ready"]) == (
        1, "vllm", "0.19.1", "loading", False,
    )  # fmt: skip
    verdict = found["verdict"]
    assert verdict["cause"] == "startup-memory-check"
    assert verdict["evidence"] == [{"line": 5, "text": NO_SHARE, "origin": "log"}]
    assert isinstance(verdict["remedy"], list)
    assert verdict["summary"]
    assert isinstance(found["facts"], dict)


def test_a_healthy_log_from_a_pipe_with_and_without_its_dash(tmp_path: Path) -> None:
    for words in (("-", "--json"), ("--json",), ("--engine", "vllm", "--json")):
        found = parse_document(run_diagnose(*words, stdin=HEALTHY, cwd=tmp_path))
        assert (found["engine"], found["ready"], found["phase"], found["verdict"]) == ("vllm", True, "ready", None)


def test_words_for_people(tmp_path: Path) -> None:
    ran = run_diagnose("-", stdin=BROKEN, cwd=tmp_path)
    assert ran.stderr == ""
    assert ran.stdout.startswith("vLLM 0.19.1   not ready, it reached: loading")
    assert f"  proof   line 5: {NO_SHARE}" in ran.stdout
    assert "..." not in ran.stdout.replace(NO_SHARE, "")
    twice = run_diagnose("-", stdin=BROKEN + HEALTHY, cwd=tmp_path).stdout
    assert "2 in this log; this is the last one, from line 7 on" in twice
    assert "The run before it ended with:" in twice
    loop = run_diagnose("-", stdin=f"{BROKEN}{BROKEN}{VLLM[0]}\n", cwd=tmp_path).stdout
    assert "3 in this log; the last one, from line 13 on, breaks off: this is how the one before it ended" in loop
    assert "  proof   line 11: " in loop


def test_what_cannot_be_read_is_exit_2_and_says_why(tmp_path: Path) -> None:
    (tmp_path / "noise.log").write_bytes(os.urandom(1 << 16))
    for word, why in ((str(tmp_path), "is a directory"), (".", ". is a directory"), ("none.log", "there is no file none.log"),
                      ("noise.log", "noise.log is not a log"), ("howl", "no file howl, no instance howl")):  # fmt: skip
        ran = run_diagnose(word, "--json", cwd=tmp_path)
        assert ran.returncode == 2, word
        assert why in ran.stderr
        assert json.loads(ran.stdout)["exit_code"] == 2


@pytest.mark.parametrize("log", ["", "hello\n", "\n\n\n"])
def test_a_log_of_an_unknown_engine_is_read(log: str, tmp_path: Path) -> None:
    found = parse_document(run_diagnose("-", "--json", stdin=log, cwd=tmp_path))
    assert (found["engine"], found["verdict"], found["lines"]) == (None, None, log.count("\n"))


def test_the_closed_set_is_printed_with_its_meanings(tmp_path: Path) -> None:
    lines = run_diagnose("--causes", cwd=tmp_path).stdout.splitlines()
    assert [line.split()[0] for line in lines] == [str(cause) for cause in FailureCause]
    assert len(parse_document(run_diagnose("--causes", "--json", cwd=tmp_path))["causes"]) == len(FailureCause)


def test_nothing_of_a_log_reaches_the_terminal_as_it_is(tmp_path: Path) -> None:
    hostile = BROKEN + "RuntimeError: \x1b]0;owned\x07 \x1b[2J [/red] \u202e hf_" + "a" * 30 + "\n"
    for words in (("-",), ("-", "--json")):
        output = run_diagnose(*words, stdin=hostile, cwd=tmp_path).stdout
        assert "\x1b" not in output
        assert "hf_aaaa" not in output


def test_how_a_log_without_a_failure_ends_is_said(tmp_path: Path) -> None:
    stopped = "\n".join((*VLLM, SERVING, *STOPPED, ""))
    for log, says in (
        (HEALTHY, "No failure found. The log ends while it was serving."),
        (stopped, "No failure found. The log ends with an orderly shutdown."),
        ("\n".join(VLLM[:3]), "the log breaks off, or it was still starting"),
        ("Dear diary\n", "This does not look like an engine's log."),
        ("\0" * 100_000, "The log holds no text: it is empty, or contains only zeros"),
    ):
        assert says in run_diagnose("-", stdin=log, cwd=tmp_path).stdout
    assert "it was looked for in" in run_diagnose("nofile.log", cwd=tmp_path).stderr


def test_a_log_without_a_profile_is_told_flags_as_they_are_typed(tmp_path: Path) -> None:
    typed = "--gpu-memory-utilization (in a profile: args.gpu-memory-utilization)"
    assert typed in " ".join(run_diagnose("-", stdin=BROKEN, cwd=tmp_path).stdout.split())
    result = parse_document(run_diagnose("-", "--json", stdin=BROKEN, cwd=tmp_path))["verdict"]
    assert typed in result["remedy"][0]
    assert result["again"] is None


def test_flags_in_a_remedy_as_they_are_typed() -> None:
    assert (
        format_remedy_as_flags("Lower args.a-b to 5, or args.a-b.")
        == "Lower --a-b (in a profile: args.a-b) to 5, or --a-b."
    )
    assert format_remedy_as_flags("set args.tp: 1, or") == "set --tp 1 (in a profile: args.tp: 1), or"
    assert (
        format_remedy_as_flags("Remove args.no-such: this image")
        == "Remove --no-such (in a profile: args.no-such): this image"
    )
    assert (
        format_remedy_as_flags("Lower args.a-b (it is a share). Stop it.")
        == "Lower --a-b (in a profile: args.a-b; it is a share). Stop it."
    )
    assert format_remedy_as_flags("Raise container.shm_size.") == "Raise container.shm_size."
    assert format_remedy_as_flags("Set args.x-y: true.") == "Set --x-y (in a profile: args.x-y: true)."
    assert format_remedy_as_flags("or args.quant: modelopt_fp4, and args.fa: off.") == (
        "or --quant modelopt_fp4 (in a profile: args.quant: modelopt_fp4), and --fa off."
    )


@pytest.mark.parametrize("engine", engine_names())
def test_no_remedy_has_a_value_that_nobody_can_type(engine: str) -> None:
    remedies = {format_remedy_as_flags(rule.remedy) for rule in load_engine(engine).log_rules.rules}
    torn = re.compile(
        r"(?:--[\w-]+|\(in a profile: args\.[\w-]+\)): (?:\d|true\b|false\b|on\b|off\b|none\b|\S+[,.;)]|\S+$)"
    )
    assert [one for one in remedies if torn.search(one)] == []


def test_a_fallback_says_what_to_do_about_it_and_a_guessed_version_is_none(tmp_path: Path) -> None:
    marlin = "WARNING 05-02 10:13:09 [marlin.py:200] Your GPU does not have native support for FP4 computation but"
    output = run_diagnose("-", stdin=f"Successfully installed vllm-0.19.1\n{marlin}\n", cwd=tmp_path).stdout
    assert output.count("not with the GPU's own arithmetic") == 1
    assert "  to do: nothing, unless you measure that it is slower" in output


def test_facts_have_units(tmp_path: Path) -> None:
    output = run_diagnose("-", stdin="\n".join(SGLANG), cwd=tmp_path).stdout
    assert "available at load: 111.87 GiB" in output
    assert "kv cache tokens: 100,000" in output
    assert "0.0 s" not in output


def test_how_a_log_was_read(tmp_path: Path) -> None:
    (tmp_path / "vllm.log").write_text(BROKEN)
    said = run_diagnose("vllm.log", "--explain", cwd=tmp_path).stdout.partition("how it was read")[2]
    assert "engine    vllm, by line 1: " in said
    assert "version   0.19.1, by line" in said
    assert 'line 5, startup-memory-check: it names the cause ("is less than desired")' in said
    assert said.rstrip().endswith("choice    line 5, it tells more than the others; certain")
    assert not re.search(r"\b(weight|rule)\b", said), "an owner knows neither"
    reading = parse_document(run_diagnose("vllm.log", "--explain", "--json", cwd=tmp_path))["reading"]
    assert (reading["chosen"], reading["candidates"][0]["rule"]) == (5, "is less than desired")


def test_a_guess_says_that_it_is_one(tmp_path: Path) -> None:
    lost = "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}\n"
    assert "Likely: The engine core ended" in run_diagnose("-", stdin=lost, cwd=tmp_path).stdout
    assert parse_document(run_diagnose("-", "--json", stdin=lost, cwd=tmp_path))["verdict"]["confidence"] == "likely"
    assert parse_document(run_diagnose("-", "--json", stdin=BROKEN, cwd=tmp_path))["verdict"]["confidence"] == "certain"


def test_explain_tells_which_exception_another_one_came_after(tmp_path: Path) -> None:
    frame = 'Traceback (most recent call last):\n  File "/a/b.py", line 7, in run\n    x()\n'
    between = "\nDuring handling of the above exception, another exception occurred:\n\n"
    log = f"{frame}ModuleNotFoundError: No module named 'x9'\n{between}{frame}RuntimeError: worker 0 failed\n"
    said = run_diagnose("-", "--explain", stdin=log, cwd=tmp_path).stdout
    assert "line 4, broken-image: another error came up while it was handled" in said
    assert "lost process" not in said


def test_a_log_is_stored_without_its_secrets_and_never_overwritten(tmp_path: Path) -> None:
    asked = (
        "INFO 05-01 10:00:00 [logger.py:39] Received request cmpl-1: prompt: 'I\\'m in Gartenweg 9\\nand \"x\"', params: SamplingParams(n=1), "
        'prompt_token_ids: [11, 12].\nINFO 05-01 10:00:00 [x.py:1] {"role": "user", "content": "my \\"Gartenweg\\", text"}\n'
        "[2026-05-01 10:00:00] Receive: obj=GenerateReqInput(rid='1', text='Gartenweg, cut here\n"
    )
    (tmp_path / "vllm.log").write_text(f"HF_TOKEN=hf_{'a1B2' * 9}\n{asked}{BROKEN}")
    (tmp_path / "store").mkdir()
    ran = run_diagnose("vllm.log", "--submit", "store", cwd=tmp_path)
    log, about = sorted((tmp_path / "store").iterdir(), key=lambda file: file.suffix, reverse=True)
    assert (ran.returncode, log.name.startswith("vllm-startup-memory-check-"), about.suffix) == (0, True, ".json")
    assert NO_SHARE in log.read_text()
    assert "a1B2" not in log.read_text()
    assert "Gartenweg" not in log.read_text()
    assert (log.read_text().count("params: SamplingParams(n=1)"), "[11, 12]" in log.read_text()) == (1, False)
    document = json.loads(about.read_text())
    assert (document["engine"], document["version"], document["cause"], document["confidence"], document["line"]) == (
        "vllm", "0.19.1", "startup-memory-check", "certain", 9,
    )  # fmt: skip
    again = run_diagnose("vllm.log", "--submit", "store", cwd=tmp_path)
    assert (again.returncode, "already stored" in again.stderr) == (2, True)
    assert f"rm store/{log.name} store/{about.name}" in again.stderr
    for words in (("vllm.log", "--submit", "nowhere"), ("-", "--submit", "store"), ("qwen36", "--submit", "store")):
        assert run_diagnose(*words, stdin=BROKEN, cwd=tmp_path).returncode == 2
    assert len(list((tmp_path / "store").iterdir())) == 2
