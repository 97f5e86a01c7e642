"""``switch --dry-run`` on the simulated Sparks."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from sparkctl.model.text.units import GIB
from tests.support.run_command import run_demo


def test_the_big_model_gives_way_on_one_spark_and_the_other_is_free() -> None:
    ran = run_demo("switch", "qwen36", "--node", "spark1", "--dry-run", "--json", scenario="big-model")
    events = [json.loads(line) for line in ran.stdout.splitlines()]
    assert ran.returncode == 0
    assert events[-1]["event"] == "result"
    (plan,) = [event["plan"] for event in events if event["event"] == "switch-plan"]
    first, second = plan["changes"]
    assert [change["node"] for change in (first, second)] == ["spark1", "spark2"]
    assert first["tenants"][0]["conflicts"] == ["memory"]
    assert second["tenants"][0]["conflicts"] == ["nodes"]
    assert (first["starts"], second["starts"]) == ("qwen36", None)
    assert second["available_after"] > 110 * GIB
    assert plan["stops"] == [first["tenants"][0]["instance"]]


def test_the_picture_says_what_stops_what_starts_and_what_is_free() -> None:
    ran = run_demo("switch", "qwen36", "--node", "spark1", "--dry-run", scenario="big-model")
    assert ran.returncode == 0
    first, second = ran.stdout.split("\nspark2\n")
    assert re.search(r"- minimax-m27 +rank 0 of 2 +\S+ GiB  stops\n +no room for both\n", first)
    assert re.search(r"\+ qwen36 +≈ \S+ GiB est\.  starts\n", first)
    assert re.search(r"rank 1 of 2 +\S+ GiB  stops\n +its other half stops too\n", second)
    assert "nothing: it is free" in second


PULL = "sparkctl pull qwen36-vllm --node spark1"


@pytest.mark.parametrize(
    ("change", "ways"),
    [
        ("port=8001", [f"{PULL} --set port=8001"] * 2),
        ("build=https://example.org/vllm.git", [f"{PULL} --set build=https://example.org/vllm.git"] * 2),
        (
            "made_by=./make-it.sh",
            [
                "nobody publishes it; make it there, then repeat the command: ./make-it.sh",
                f"{PULL} --set made_by=./make-it.sh",
            ],
        ),
        (
            "model.source=null",
            [
                f"{PULL} --set model.source=null",
                "put it there, or set model.source in the profile for `sparkctl pull`",
            ],
        ),
    ],
)
def test_what_is_missing_comes_with_the_way_to_get_it(change: str, ways: list[str]) -> None:
    words = ("switch", "qwen36-vllm", "--node", "spark1", "--set", change, "--dry-run", "--json")
    ran = run_demo(*words, scenario="fresh")
    (plan,) = [json.loads(line)["plan"] for line in ran.stdout.splitlines() if '"switch-plan"' in line]
    assert len(plan["obstacles"]) == 2
    assert plan["hints"] == list(dict.fromkeys(ways))


def test_the_way_to_get_what_is_missing_names_the_profile_as_it_was_typed(tmp_path: Path) -> None:
    file = tmp_path / "out.yaml"
    file.write_text("schema: 1\nname: llm\nengine: vllm\nimage: missing/vllm:v1\nmodel: {path: acme/m}\nport: 8010\n")
    ran = run_demo("switch", str(file), "--node", "spark2", scenario="two-stacks")
    assert ran.returncode == 6
    assert f"try: sparkctl pull {file} --node spark2\n" in ran.stderr
    assert ran.stderr.count("does not have the image") == 1, "the error alone names it"


def test_a_flag_that_the_engine_lacks_is_refused_before_the_plan_is_shown() -> None:
    words = ("switch", "qwen36", "--node", "spark1", "--dry-run", "--set", "args.mem-fraction-statc=0.5")
    refused = run_demo(*words, scenario="big-model")
    assert (refused.returncode, refused.stdout) == (6, "")
    assert "starts" not in refused.stderr
    assert "to start it as it is: --force" in refused.stderr
    assert "try: correct it; if it stands in a file, its line: sparkctl profiles check qwen36" in refused.stderr
    assert "; ;" not in refused.stderr
    forced = run_demo(*words, "--force", scenario="big-model")
    assert (forced.returncode, "--mem-fraction-statc" in forced.stderr) == (0, True)
    assert re.search(r"\+ qwen36 .* starts\n", forced.stdout)
