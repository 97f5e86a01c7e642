"""The night's runner: what a job comes to, the table, the exit code; its jobs are not run here."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.tools.nightly import __main__ as command
from tests.tools.nightly import flags, job_runner
from tests.tools.nightly.engines.install import Install
from tests.tools.nightly.job_runner import Outcome, Result
from tests.tools.nightly.jobs import ROOT, Job, list_jobs

JOB = Job("ray", "something", (sys.executable, "-c", "print('3 passed')"), r"\d+ passed", 30.0)


def make_job_that_runs(code: str) -> Job:
    return replace(JOB, words=(sys.executable, "-c", code))


@pytest.mark.parametrize(
    ("code", "said", "result", "why"),
    [
        (0, "begun\n3 passed in 2 s\n", Result.OK, ""),
        (0, "SKIPPED [2] tests/x.py:3: no root\n3 passed, 2 skipped\n", Result.OK, "without: tests/x.py:3: no root"),
        (
            0,
            "SKIPPED: Ray over two nodes, the lab needs root\n",
            Result.SKIPPED,
            "Ray over two nodes, the lab needs root",
        ),
        (
            0,
            "all is well, believe me\n",
            Result.FAILED,
            "exit 0 without a sign that it was done: all is well, believe me",
        ),
        (0, "", Result.FAILED, "exit 0 without a sign that it was done: it said nothing"),
        (1, "3 passed\n\nWRONG: two halves\n\n", Result.FAILED, "exit 1: WRONG: two halves"),
        (-9, "3 passed\n", Result.FAILED, "exit -9: 3 passed"),
        (None, "waiting\n", Result.FAILED, "not done within 0 min: waiting"),
    ],
)
def test_what_a_job_comes_to(code: int | None, said: str, result: Result, why: str) -> None:
    found = job_runner.judge_outcome(JOB, code, said, 1.0)
    assert (found.result, found.why) == (result, why)


def test_an_informing_job_does_not_fail_the_night() -> None:
    informs = replace(JOB, informs=True)
    assert job_runner.judge_outcome(informs, 1, "goal: short\n", 1.0).result is Result.NOTED
    assert (
        job_runner.compute_exit_code(
            [job_runner.judge_outcome(informs, 1, "", 1.0), Outcome("a", Result.SKIPPED, 0.0, "why")]
        )
        == 0
    )
    assert job_runner.compute_exit_code([Outcome("a", Result.OK, 1.0), Outcome("b", Result.FAILED, 1.0)]) == 1


def test_the_table() -> None:
    found = (
        Outcome("ray", Result.SKIPPED, 0.0, "the lab needs root"),
        Outcome("engines", Result.OK, 725.4, "", Path("/l/engines.log")),
        Outcome("bench", Result.FAILED, 12.0, "x" * 200, Path("/l/bench.log")),
    )
    assert list(job_runner.format_table(found)) == [
        "job      result   seconds  why",
        "ray      skipped        0  the lab needs root",
        "engines  ok           725",
        f"bench    failed        12  {'x' * 109}…",
        "bench: /l/bench.log",
    ]
    assert list(job_runner.format_table(())) == ["job  result   seconds  why"]


def test_a_job_is_done_with_its_output_in_a_file(tmp_path: Path) -> None:
    found = job_runner.run_job(
        replace(make_job_that_runs("import os; print(os.environ['NAME'], '3 passed')"), env=(("NAME", "ada"),)),
        tmp_path,
    )
    assert (found.result, found.log) == (Result.OK, tmp_path / "ray.log")
    assert (tmp_path / "ray.log").read_text() == "ada 3 passed\n"
    assert (
        job_runner.run_job(make_job_that_runs("print('3 passed'); raise SystemExit(4)"), tmp_path).why
        == "exit 4: 3 passed"
    )


def test_a_job_that_cannot_run_is_not_begun(tmp_path: Path) -> None:
    found = job_runner.run_job(replace(JOB, why_not=lambda: "no root"), tmp_path)
    assert (found.result, found.why) == (Result.SKIPPED, "no root")
    assert not list(tmp_path.iterdir())


def test_a_job_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    began = time.monotonic()
    found = job_runner.run_job(
        replace(make_job_that_runs("print('begun', flush=True); import time; time.sleep(60)"), limit=0.5), tmp_path
    )
    assert found.result is Result.FAILED
    assert found.why.startswith("not done within")
    assert time.monotonic() - began < 30


def test_the_command_lists_refuses_and_ends_with_what_came_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = JOB, replace(make_job_that_runs("raise SystemExit('broken')"), name="engines")
    monkeypatch.setattr(command, "list_jobs", lambda *_: (good, bad))

    def ran(*words: str) -> int:
        monkeypatch.setattr(sys, "argv", [".ci/nightly", "--cache", str(tmp_path), *words])
        return command.main()

    assert ran("--list") == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["ray", "engines"]
    assert not (tmp_path / "logs").exists(), "nothing was run"
    assert ran("--only", "ray") == 0
    assert "engines" not in capsys.readouterr().out
    assert ran() == 1
    out = capsys.readouterr().out
    assert "engines  failed         0  exit 1: broken\n" in out, out
    with pytest.raises(SystemExit) as refused:
        ran("--only", "ray", "--only", "rey")
    assert refused.value.code == 2
    assert "no such job: rey (there are ray, engines)" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["--list", "--help"])
def test_a_fresh_clone_says_what_there_is_without_installing_anything(tmp_path: Path, word: str) -> None:
    (tmp_path / ".ci").mkdir()
    script = tmp_path / ".ci" / "nightly"
    script.write_text((ROOT / ".ci" / "nightly").read_text())
    script.chmod(0o755)
    for name in ("tests", "sparkctl"):
        (tmp_path / name).symlink_to(ROOT / name)
    bare = tmp_path / "python"  # without what is installed beside it
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    bare.chmod(0o755)
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHON": str(bare)}
    ran = subprocess.run([script, word], env=env, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "mpirun" in ran.stdout if word == "--list" else "--only JOB" in ran.stdout
    assert sorted(one.name for one in tmp_path.iterdir()) == [".ci", "python", "sparkctl", "tests"]


def test_every_job_has_a_name_of_its_own_and_runs_what_is_there(tmp_path: Path) -> None:
    found = list_jobs(tmp_path, [])
    assert len({job.name for job in found}) == len(found)
    modules = [job.words[job.words.index("-m") + 1] for job in found if "-m" in job.words]
    for module in modules:
        if module != "pytest":
            path = ROOT / module.replace(".", "/")
            assert path.with_suffix(".py").exists() or (path / "__main__.py").exists(), module
    assert {job.name for job in found if job.informs} == {"bench"}
    assert all(job.proof for job in found if not job.informs)
    reasons = {job.name: job.why_not() for job in found}
    assert reasons["recipes"] == "no directory of recipes was named (--recipes DIRECTORY)"
    assert reasons["parsers"] == "python of the job engines is not there"


def test_every_program_of_the_night_is_run_by_a_job(tmp_path: Path) -> None:
    words = {word for job in list_jobs(tmp_path, []) for word in job.words}
    files = [*(ROOT / "tests/tools/nightly").rglob("*.py")]
    programs = {
        one.relative_to(ROOT).with_suffix("").as_posix().removesuffix("/__main__")
        for one in files
        if 'if __name__ == "__main__"' in one.read_text(encoding="utf-8")
    }
    assert len(programs) > 5
    alone = {one for one in programs if not words & {one.replace("/", "."), str(ROOT / f"{one}.py")}}
    assert alone == {
        "tests/tools/nightly",
        "tests/tools/nightly/acceptance",  # wants an engine with traffic
        "tests/tools/nightly/engines/benchy_spy",  # stands in llama-benchy's place in another
    }


def test_catalogues_are_held_against_each_other(tmp_path: Path) -> None:
    text = "usage: x\n-c,    --ctx-size N           size\n-m,    --model FNAME          model\n"
    (tmp_path / "help.txt").write_text(text)
    words = [sys.executable, flags.__file__, "llamacpp", "--help-text", str(tmp_path / "help.txt"), "--version", "1"]
    made = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    (tmp_path / "old.json").write_text(made)
    against = [*words, "--against", str(tmp_path / "old.json")]
    same = subprocess.run(against, capture_output=True, text=True)
    assert (same.returncode, same.stdout) == (0, "2 flags, none differs\n"), same
    (tmp_path / "help.txt").write_text(text.replace("--model FNAME ", "--models FNAME"))
    other = subprocess.run(against, capture_output=True, text=True)
    assert other.returncode == 1
    assert other.stdout.splitlines()[0].startswith("--model: {"), other
    assert other.stdout.splitlines()[-1] == "2 flags, 2 differ"


def test_engines_below_a_link_are_named_by_their_own_place(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "cache").symlink_to(tmp_path / "disk")
    assert Install(tmp_path / "cache").root == tmp_path / "disk", "a node of the lab has no such link"
