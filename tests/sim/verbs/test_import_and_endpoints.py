"""Containers of the simulated Sparks as profiles, and what they serve as clients read it."""

from __future__ import annotations

import json
import re
from pathlib import Path

from sparkctl.engines import load_engine
from sparkctl.profiles.profile_library import ProfileLibrary
from tests.support.run_command import SPARK_URL, run_demo


def test_a_running_container_becomes_the_profile_it_came_from(tmp_path: Path) -> None:
    out = tmp_path / "again.yaml"
    name = "sglang-qwen36-ngram"
    ran = run_demo(
        "profiles", "import", "--from-container", name, "--node", "spark1", "-o", str(out), scenario="two-stacks"
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == f"{out}\n"
    library = ProfileLibrary()
    found, shipped = library.load_profile(str(out)), library.load_profile("qwen36-ngram")
    assert load_engine("sglang").build_command(found) == load_engine("sglang").build_command(shipped)
    assert (found.image, found.container.shm_size, found.container.network) == (shipped.image, "16g", "host")
    again = run_demo(
        "profiles", "import", "--from-container", name, "--node", "spark1", "-o", str(out), scenario="two-stacks"
    )
    assert again.returncode == 6
    assert "--force" in again.stderr


def test_a_container_that_is_not_there_is_said() -> None:
    ran = run_demo(
        "profiles", "import", "--from-container", "sglang-qwen36-ngrm", "--node", "spark1", scenario="two-stacks"
    )
    assert ran.returncode == 2
    assert "did you mean `sglang-qwen36-ngram`" in ran.stderr


def test_who_answers_is_told_with_what_it_serves() -> None:
    ran = run_demo("endpoints", "--as", "json", scenario="two-stacks")
    assert ran.returncode == 0, ran.stderr
    document = json.loads(ran.stdout)["endpoints"]
    assert [(one["node"], one["instance"], one["models"]) for one in document] == [
        ("spark1", "qwen36-ngram", [{"name": "qwen3.6-27b", "context": 32768}]),
        ("spark2", "qwen36-vllm", [{"name": "qwen3.6-27b", "context": 8192}]),
    ]
    assert re.fullmatch(f"{SPARK_URL}8003/v1", document[0]["base_url"])


def test_the_second_rank_of_a_model_is_no_endpoint() -> None:
    ran = run_demo("endpoints", scenario="big-model")
    assert ran.returncode == 0
    assert re.match(f"# minimax-m27 on spark1\nexport OPENAI_BASE_URL={SPARK_URL}8000/v1\n", ran.stdout)
    assert "spark2" not in ran.stdout
    assert "does not say" not in ran.stderr


def test_no_endpoint_is_listed_when_none_answers() -> None:
    ran = run_demo("endpoints")
    assert (ran.returncode, ran.stdout) == (0, "")
    assert "no model answers" in ran.stderr


def test_a_client_for_language_models_is_told_that_there_is_none() -> None:
    ran = run_demo("endpoints", "--as", "continue", scenario="speech")
    assert (ran.returncode, "no language model answers" in ran.stderr) == (0, True), ran
