"""The profiles that sparkctl comes with: every one whole, told of by its source, and started by the words that it says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from sparkctl import engines
from sparkctl.engines.lint import LintRule, LintSeverity
from sparkctl.engines.memory_estimate import map_path_to_node
from sparkctl.engines.simulation.engine_launch import list_model_files
from sparkctl.model.node import Node, NodeName
from sparkctl.model.reference import select_comparable
from sparkctl.profiles import profile_lint
from sparkctl.profiles.fit_evaluation import find_model_paths
from sparkctl.profiles.launch_planning import build_launch_plan
from sparkctl.profiles.profile_library import ProfileLibrary

LIBRARY = ProfileLibrary(Path("/nonexistent"))
NAMES = LIBRARY.list_names()
TWO_SPARKS = {"qwen36-tp2", "minimax-m27", "trtllm-qwen3-235b"}
WANTED = {
    "qwen36", "qwen36-as-posted", "qwen36-ngram", "qwen36-vllm", "qwen36-tp2", "minimax-m27", "qwen35-35b-awq", "qwen35-35b-mtp",
    "qwen35-35b-dflash", "qwen3-coder-next-dflash", "qwen35-122b", "qwen35-122b-tq", "gpt-oss-120b", "orpheus-tts",
}  # fmt: skip
FIGURE = re.compile(r"\d+(?:\.\d+)? (?:tok/s|min\b)")
SEED = (
    "python -m sglang.launch_server --model-path /models/Qwen3.6-27B-FP8 --host 0.0.0.0 --port 8003 "
    "--served-model-name qwen3.6-27b --tp 1 --speculative-algorithm NEXTN --speculative-num-steps 5 "
    "--speculative-eagle-topk 4 --mem-fraction-static 0.82 --trust-remote-code"
)


def read_start_command(name: str) -> tuple[str, ...]:
    profile = LIBRARY.load_profile(name)
    return engines.load_engine(profile.engine).build_command(profile)


def test_all_shipped_profiles_are_found() -> None:
    assert set(NAMES) >= WANTED
    assert {name for name in NAMES if LIBRARY.load_profile(name).nodes == 2} == TWO_SPARKS


@pytest.mark.parametrize("name", NAMES)
def test_a_profile_says_what_it_is_and_where_it_comes_from(name: str) -> None:
    profile = LIBRARY.load_profile(name)
    assert profile.title
    assert len(profile.title) <= 60, "it stands in a list"
    assert profile.notes
    assert profile.source
    assert profile.source.startswith("https://")
    assert "/" in profile.image or profile.build or profile.made_by, "no registry has it: say what makes it"
    if (profile.model.path or "/").startswith("/") and profile.engine != "container":
        assert profile.model.source or profile.made_by, "say where the model comes from"
    text = LIBRARY.find_profile_file(name).read_text()
    assert "source:" in text, "a variant has a source of its own"
    if FIGURE.search(profile.notes):
        assert re.search(r"source|author|post|thread|https://", profile.notes), (
            "no figure without the one who measured it"
        )


@pytest.mark.parametrize("name", NAMES)
def test_what_a_source_measured_is_data_and_not_prose(name: str) -> None:
    profile = LIBRARY.load_profile(name)
    assert profile.notes is not None
    assert re.findall(r"\d (?:tok|tokens)/s", profile.notes) == []
    assert all(one.source.startswith("https://") for one in profile.reference)
    assert all(one.figures or one.ready_cold or one.ready_warm for one in profile.reference)
    own = LIBRARY.find_profile_file(name).read_text()
    assert not profile.reference or "\nreference:\n" in own, "a variant has figures of its own"


def test_the_figures_of_the_posts() -> None:
    """The across-posts table: tok/s of one request and of eight together."""
    found = {
        name: {count: (rate.low, rate.high) for count, rate in comparable.rates_by_concurrency.items() if count != 4}
        for name in ("qwen36-as-posted", "qwen36-vllm", "qwen36-ngram", "qwen36-tp2", "minimax-m27")
        if (comparable := select_comparable(LIBRARY.load_profile(name).reference))
    }
    assert found == {
        "qwen36-as-posted": {1: (18.7, 22.6), 8: (95.3, 97.8)},
        "qwen36-vllm": {1: (23.3, 23.3), 8: (61.0, 61.0)},
        "qwen36-ngram": {1: (12.7, 12.7), 8: (43.1, 43.1)},
        "qwen36-tp2": {1: (8.1, 8.7), 8: (40.9, 41.7)},
        "minimax-m27": {1: (12.4, 12.4), 8: (65.0, 65.0)},
    }


def test_the_accept_rate_of_other_drafts_is_not_compared() -> None:
    """The post's 20 % are of about 4 drafts a step; this profile has 11, of which the same accept length is 7 %."""
    result = select_comparable(LIBRARY.load_profile("qwen36-ngram").reference)
    assert result is not None
    assert result.accept_length is not None
    assert result.accept_rate is None


@pytest.mark.parametrize("name", NAMES)
def test_a_profile_is_checked_without_errors(name: str) -> None:
    checked = profile_lint.lint_profile_file(LIBRARY, LIBRARY.find_profile_file(name))
    assert [str(one) for one in checked.list_by_level(LintSeverity.ERROR)] == []
    warned = {one.kind for one in checked.list_by_level(LintSeverity.WARNING)}
    assert warned == ({LintRule.KNOWN_TRAP} if name == "qwen36-as-posted" else set())


@pytest.mark.parametrize("name", NAMES)
def test_each_shipped_profile_makes_a_launch_plan(name: str) -> None:
    profile = LIBRARY.load_profile(name)
    engine = engines.load_engine(profile.engine)
    made = build_launch_plan(profile, Node(name=NodeName("s"), host="h"), home="/home/me", operator="o", environ={})
    assert made.image == profile.image
    assert made.port
    assert not [word for word in made.command if "${" in word or word == "None"]
    if profile.engine != "container":
        assert profile.model.path in made.command
    assert engine.read_decoding_settings(made.command).ranks == profile.nodes


@pytest.mark.parametrize("name", NAMES)
def test_what_a_simulated_spark_has_is_as_large_as_the_profile_says(name: str) -> None:
    profile = LIBRARY.load_profile(name)
    made = build_launch_plan(
        profile, Node(name=NodeName("s"), host="h"), home="/home/me", operator="o", environ={},
        )  # fmt: skip
    result = (profile.model.weights, profile.model.draft_weights, None)  # no profile tells a tokenizer's size
    for path, size in zip(find_model_paths(profile, made), result, strict=True):
        place = map_path_to_node(path, made)
        if place is not None and size is not None:
            there = sum(int(line.split()[1]) for line in list_model_files(place) if line.startswith("file "))
            assert there == pytest.approx(size, rel=1e-3)


def test_the_post_s_command_is_kept_argument_for_argument() -> None:
    assert read_start_command("qwen36-as-posted") == tuple(shlex.split(SEED))


def test_the_flagship_has_all_flags_of_nextn() -> None:
    said = read_start_command("qwen36")
    given = {flag: said[said.index(flag) + 1] for flag in said if flag.startswith("--speculative")}
    assert given == {
        "--speculative-algorithm": "NEXTN", "--speculative-num-steps": "5", "--speculative-eagle-topk": "4",
        "--speculative-num-draft-tokens": "20",
    }  # fmt: skip


def test_the_trap_of_the_post_s_command_has_two_ways_out() -> None:
    (said,) = profile_lint.list_start_warnings(LIBRARY.load_profile("qwen36-as-posted"), LIBRARY)
    assert said.message.endswith("dies of that with a TypeError")
    assert said.setting == "args.speculative-num-draft-tokens=20"
    assert said.instead == ("qwen36", "qwen36-ngram"), "and not the one that wants both Sparks"
    assert profile_lint.list_start_warnings(LIBRARY.load_profile("qwen36-as-posted", [said.setting]), LIBRARY) == ()
    checked = profile_lint.lint_profile_file(LIBRARY, LIBRARY.find_profile_file("qwen36-as-posted"))
    (trap,) = (one for one in checked.diagnostics if one.kind is LintRule.KNOWN_TRAP)
    assert str(trap).endswith("(--set args.speculative-num-draft-tokens=20 --set args.mem-fraction-static=0.7)")
    for name in said.instead:
        assert profile_lint.list_start_warnings(LIBRARY.load_profile(name), LIBRARY) == ()


def test_what_only_another_profile_asks_is_open_to_nobody_else() -> None:
    profiles = [LIBRARY.load_profile(name) for name in LIBRARY.list_names()]
    needed = {need.profile.name: need.profile for one in profiles for need in LIBRARY.load_needs(one)}
    assert "orpheus-llm" in needed
    for name, profile in needed.items():
        assert profile.api_key is not None or dict(profile.args).get("host") == "127.0.0.1", name


def test_four_agents_at_150k() -> None:
    said = dict(LIBRARY.load_profile("qwen35-35b-awq").args)
    assert said["context-length"] == "196608"
    assert said["kv-cache-dtype"] == "fp8_e5m2"
    assert said["chunked-prefill-size"] == "4096"
    assert said["max-running-requests"] == "4"
    assert said["mem-fraction-static"] == "0.75"
