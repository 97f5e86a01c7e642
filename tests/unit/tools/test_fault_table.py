"""The table of faults: its rows and the page's are the same, and a run's results are kept on the page. The lab is not needed."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.lab.bed.lab import Lab
from tests.lab.bed.shell import BedError
from tests.lab.faults import page
from tests.lab.faults.rows import ROWS
from tests.lab.faults.tested import TESTED_FAULTS, FaultUnderTest
from tests.lab.faults.trial import Failure, Result, Row, Trial, Verdict, judge_row
from tests.lab.support.sparkctl_process import StillRunning
from tests.tools.nightly.jobs import list_jobs

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "what-was-tried.md"


def play_nothing(trial: Trial) -> None:
    del trial


A = Row("a-fault", "one group", "something | is done", "exit 3", play_nothing, lambda: None)
B = Row("b-fault", "another", "much is done", "exit 0", play_nothing, lambda: None)


def test_the_page_has_the_rows_of_the_code_with_what_was_seen_of_each() -> None:
    text = PAGE.read_text("utf-8")
    assert page.format_page(ROWS, [], text) == text, "python -m tests.lab.faults --markdown docs/what-was-tried.md"
    names = re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)
    assert names == [row.name for row in ROWS]
    assert "not run yet" not in text


def test_every_row_says_what_is_done_and_what_is_expected_under_a_name_of_its_own() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert not {row.name for row in ROWS} & {row.group for row in ROWS}
    for row in ROWS:
        assert re.fullmatch(r"[a-z0-9.-]+", row.name), row.name
        assert row.fault, row.name
        assert row.expected, row.name


@pytest.mark.parametrize("one", TESTED_FAULTS, ids=lambda one: one.test)
def test_what_ci_causes_is_on_the_page_with_a_test_that_is_there(one: FaultUnderTest) -> None:
    assert re.search(rf"^(async )?def {one.test}\(", (ROOT / one.file).read_text("utf-8"), re.MULTILINE)
    assert f"| `{one.file}::{one.test}` |" in PAGE.read_text("utf-8")


def test_results_go_into_the_page_and_those_of_other_rows_stay() -> None:
    first = page.format_page(
        (A, B), [Result(A, Verdict.SURVIVED, "3 | 4", 1.0), Result(B, Verdict.LOST, "a line", 1.0)]
    )
    assert "| `a-fault` | something \\| is done | exit 3 | 3 \\| 4 | survived |" in first
    assert "| `b-fault` | much is done | exit 0 | a line | **lost** |" in first
    second = page.format_page((A, B), [Result(B, Verdict.SURVIVED, "all lines", 1.0)], first)
    assert "| `a-fault` | something \\| is done | exit 3 | 3 \\| 4 | survived |" in second
    assert "| all lines | survived |" in second
    assert "not run yet" in page.format_page((A, B), [], "")


def test_the_table_counts_and_a_row_that_was_not_tried_is_told_to_the_night() -> None:
    results = [Result(A, Verdict.SURVIVED, "ready after 3 s", 3.2), Result(B, Verdict.NOT_TRIED, "no Python 3.8", 0.0)]
    assert list(page.format_table(results)) == [
        "fault    verdict    seconds  seen",
        "a-fault  survived         3  ready after 3 s",
        "b-fault  not tried        0  no Python 3.8",
        "SKIPPED: b-fault, no Python 3.8",
        "2 faults: 1 survived, 1 not tried",
    ]
    assert Result(A, Verdict.LIED, "", 0.0).is_good is False
    assert Result(A, Verdict.NOT_TRIED, "the lab failed", 0.0, "waited 30 s").is_good is False


@pytest.mark.parametrize(
    ("raised", "verdict", "is_good"),
    [
        (None, Verdict.SURVIVED, True),
        (Failure(Verdict.LOST, "a line\nexit 0"), Verdict.LOST, False),
        (Failure(Verdict.NOT_TRIED, "no zram"), Verdict.NOT_TRIED, True),
        (StillRunning("did not end in 60 s"), Verdict.HUNG, False),
        (AssertionError("ended without it"), Verdict.LIED, False),
        (BedError("waited 15 s for dockerd"), Verdict.NOT_TRIED, False),
        (KeyError("verdict"), Verdict.NOT_TRIED, False),
    ],
    ids=str,
)
def test_what_a_row_raises_is_its_verdict(raised: Exception | None, verdict: Verdict, is_good: bool) -> None:
    undone: list[str] = []

    def play(trial: Trial) -> None:
        trial.faults._mend.append(lambda: undone.append("mended"))
        trial.note("as it should be")
        if raised is not None:
            raise raised

    found = judge_row(replace(A, play=play), Lab({}), 1)
    assert (found.verdict, found.is_good) == (verdict, is_good), found
    assert "\n" not in found.seen
    assert undone == ["mended"]


def test_a_row_that_this_machine_cannot_play_is_not_begun() -> None:
    found = judge_row(replace(A, why_not=lambda: "there is no Python 3.8"), Lab({}), 1)
    assert (found.verdict, found.seen, found.is_good) == (Verdict.NOT_TRIED, "there is no Python 3.8", True)


def test_one_command_lists_them_and_a_night_runs_them(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "tests.lab.faults", "--list", "--only", "races"]
    listed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    assert [line.split()[0] for line in listed] == [row.name for row in ROWS if row.group == "races"]
    (job,) = [job for job in list_jobs(tmp_path, []) if job.name == "faults"]
    assert job.words[-1] == "tests.lab.faults"
    assert re.search(job.proof, "26 faults: 26 survived")
