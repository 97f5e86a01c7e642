"""`bench` on simulated Sparks, with a stand-in that makes real requests in llama-benchy's place."""

from __future__ import annotations

import json
import shlex
import sys

import pytest

from tests.support import load_generator_stand_in
from tests.support.run_command import parse_result, run_demo

GENERATOR = shlex.join([sys.executable, load_generator_stand_in.__file__])
SIZES = ("--pp", "64", "--tg", "8", "--runs", "2", "--command", GENERATOR)


def test_a_cell_has_the_generators_figures_and_ours() -> None:
    ran = run_demo("bench", "qwen36-ngram", *SIZES, "--concurrency", "1,2", "--json", scenario="two-stacks", speed="1")
    assert parse_result(ran)["outcome"] == "done", ran
    cells = [event for line in ran.stdout.splitlines() if (event := json.loads(line))["event"] == "cell"]
    assert [cell["cell"]["concurrency"] for cell in cells] == [1, 2]
    assert (cells[-1]["number"], cells[-1]["total"], cells[-1]["remaining"]) == (2, 2, 0.0)
    for cell in cells:
        assert cell["tokens_per_second"] > 0
        assert cell["memory_peak"] > 50 << 30
        assert cell["power"] > 0
        assert len(cell["result"]["generation_rate"]["values"]) == 2 * cell["cell"]["concurrency"]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("bench", "qwen36-vlm", *SIZES), 2, "did you mean `qwen36-vllm`"),
        (("bench", "qwen36-ngram", *SIZES, "--depth", "900000"), 6, "takes"),
        (("bench", "qwen36-ngram", "--preset", "owners"), 2, "none of quick, owner, full"),
        (("bench", "qwen36-ngram", "--pp", "many"), 2, "list of numbers"),
        (("bench", "qwen36-ngram", "--command", "no-such-program"), 6, "is not there"),
        (("bench", "qwen36-ngram", *SIZES, "--book", "/nowhere.txt"), 2, "/nowhere.txt"),
        (("bench", "--resume", "99"), 2, "no benchmark 99"),
        (("bench",), 2, "Usage"),
    ],
)
def test_what_cannot_be_measured_is_refused_before(words: tuple[str, ...], code: int, says: str) -> None:
    ran = run_demo(*words, scenario="two-stacks")
    assert ran.returncode == code, ran
    assert says in ran.stderr + ran.stdout


def test_a_generator_that_fails_costs_its_cell_and_says_its_last_words() -> None:
    broken = shlex.join(
        [sys.executable, "-c", "import sys; print('HTTP 400: no such field', file=sys.stderr); sys.exit(1)"]
    )
    ran = run_demo("bench", "qwen36-ngram", "--pp", "64", "--command", broken, "--json", scenario="two-stacks")
    result = parse_result(ran)
    assert (result["outcome"], result["exit_code"]) == ("failed", 1)
    assert "HTTP 400: no such field" in result["message"]
    assert "--resume" in result["hint"]


def test_what_does_not_run_is_started_measured_and_stopped() -> None:
    ran = run_demo("bench", "qwen36", "qwen36-vllm", *SIZES, "--node", "spark1", "--start", "--json")
    seen = [
        (event["event"], event["instance"])
        for line in ran.stdout.splitlines()
        if (event := json.loads(line))["event"] in ("cell", "released")
    ]
    names = ("qwen36", "qwen36-vllm")
    assert seen == [pair for name in names for pair in (("cell", name), ("released", name))], ran
    assert parse_result(ran)["outcome"] == "done"


def test_a_model_that_does_not_start_is_told_and_the_other_is_measured() -> None:
    words = ("qwen36", "qwen36-ngram", *SIZES, "--node", "spark1", "--start", "--json")
    ran = run_demo("bench", *words, scenario="two-stacks")  # qwen36-ngram runs there, and leaves no room for another
    cells = [event for line in ran.stdout.splitlines() if (event := json.loads(line))["event"] == "cell"]
    assert [cell["instance"] for cell in cells] == ["qwen36-ngram"]
    assert "qwen36: " in parse_result(ran)["message"]
    assert parse_result(ran)["exit_code"] == 6
