"""Plans: what the profile says, what the engine adds, and the operator's environment only here."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from sparkctl import engines
from sparkctl.errors import InvalidInput
from sparkctl.model.launch_plan import ContainerLabel, GuardRule, LaunchPlan, Mount, ReadinessRule
from sparkctl.model.node import Node, NodeName
from sparkctl.model.profile import Profile
from sparkctl.profiles.env_references import check_env_file_permissions, list_literal_values, parse_env_file
from sparkctl.profiles.launch_planning import build_launch_plan, choose_container_name
from sparkctl.profiles.profile_library import ProfileLibrary
from sparkctl.profiles.yaml_reader import InvalidFile

NODE = Node(name=NodeName("spark1"), host="h")
HEAD = "schema: 1\nname: mine\nengine: sglang\nimage: x/y:1\n"


def plan_profile(profile: Profile, home: str = "/home/milo", **environ: str) -> LaunchPlan:
    return build_launch_plan(profile, NODE, home=home, operator="milo@laptop", environ=environ)


def load_profile_text(tmp_path: Path, body: str) -> Profile:
    path = tmp_path / "mine.yaml"
    path.write_text(HEAD + body)
    return ProfileLibrary(tmp_path / "u", tmp_path / "s").load_profile(str(path))


def test_labels_are_the_whole_state(tmp_path: Path) -> None:
    profile = load_profile_text(tmp_path, "port: 8003\n")
    made = plan_profile(profile)
    labels = dict(made.labels)
    assert labels[ContainerLabel.PROFILE] == labels[ContainerLabel.INSTANCE] == "mine"
    assert labels[ContainerLabel.HASH] == profile.digest == made.profile_hash
    assert labels[ContainerLabel.OPERATOR] == "milo@laptop"
    assert labels[ContainerLabel.PORT] == "8003"
    assert ReadinessRule(**json.loads(labels[ContainerLabel.READY])) == made.ready
    assert choose_container_name(profile) == made.container_name == "sglang-mine"


def test_labels_say_what_a_step_reads_and_what_is_held(tmp_path: Path) -> None:
    made = plan_profile(load_profile_text(tmp_path, ""))
    assert not {ContainerLabel.PER_STEP, ContainerLabel.EXPECTED} & dict(made.labels).keys()
    body = "model: {weights: 27GB}\nmemory: {expected: 96GiB}\nargs: {tp: '${RANKS}', speculative-algorithm: NGRAM}\n"
    labels = dict(plan_profile(load_profile_text(tmp_path, body), RANKS="2").labels)
    assert json.loads(labels[ContainerLabel.PER_STEP]) == {"weights": 27 * 10**9, "draft_passes": 0, "ranks": 2}
    assert labels[ContainerLabel.EXPECTED] == str(96 << 30)


def test_the_engine_fills_in_and_the_profile_overrules(tmp_path: Path) -> None:
    own = engines.load_engine("sglang").defaults
    made = plan_profile(load_profile_text(tmp_path, ""))
    assert (made.port, made.gpus, made.ready.line, made.ready.health) == (own.port, "all", own.ready_line, "/health")
    made = plan_profile(
        load_profile_text(
            tmp_path,
            "container: {name: other, gpus: none}\n"
            "start: {ready_line: none, health: none, probe: none, prompt: hi, drop_caches: false}\n",
        )
    )
    assert made.ready == ReadinessRule(line=None, health=None, probe="none", prompt="hi")
    assert (made.gpus, made.container_name, made.drop_caches) == (None, "other", False)


def test_mounts_are_on_the_node(tmp_path: Path) -> None:
    profile = load_profile_text(tmp_path, "mounts: [~:/h, ~/m:/m:ro, /abs:/a:rw, vol:/v]\n")
    assert plan_profile(profile).mounts == (
        Mount("/home/milo", "/h"),
        Mount("/home/milo/m", "/m", read_only=True),
        Mount("/abs", "/a"),
        Mount("vol", "/v"),
    )
    assert plan_profile(profile, home="/").mounts[:2] == (Mount("/", "/h"), Mount("/m", "/m", read_only=True))
    with pytest.raises(InvalidInput, match="home directory on the node is not known"):
        plan_profile(profile, home="")
    with pytest.raises(InvalidInput, match="begin it with / or ~/"):
        plan_profile(replace(profile, mounts=("./x/y:/z",)))


def test_variables_are_the_operators(tmp_path: Path) -> None:
    profile = load_profile_text(
        tmp_path, "env: {A: '${A}-${B:-b}', C: '$${A} $A $$', D: '${EMPTY:-d}', E: '${EMPTY}', F: '${X:-}'}\n"
    )
    made = plan_profile(profile, A="1 ${B}", EMPTY="")
    assert made.env == (("A", "1 ${B}-b"), ("C", "${A} $A $$"), ("D", "d"), ("E", ""), ("F", ""))
    with pytest.raises(InvalidFile) as caught:
        plan_profile(profile)
    assert [str(fault).removeprefix(str(tmp_path)) for fault in caught.value.faults] == [
        "/mine.yaml:5:10: env.A: ${A} is not set in your environment",
        "/mine.yaml:5:65: env.E: ${EMPTY} is not set in your environment",
    ]
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("export A=")


def test_an_env_file_is_read_beside_the_profile_and_env_wins(tmp_path: Path) -> None:
    (tmp_path / "secrets.env").write_text("# mine\nHF_TOKEN=abc=def \nB=file\n\n  # more\nC=\n")
    profile = load_profile_text(tmp_path, "env_file: secrets.env\nenv: {B: profile}\n")
    assert dict(plan_profile(profile).env) == {"HF_TOKEN": "abc=def ", "B": "profile", "C": ""}
    (tmp_path / "secrets.env").chmod(0o644)
    assert "chmod 600" in check_env_file_permissions(profile)[0]
    (tmp_path / "secrets.env").chmod(0o600)
    assert check_env_file_permissions(profile) == ()
    (tmp_path / "secrets.env").unlink()
    with pytest.raises(InvalidInput, match="the env_file of mine cannot be read: No such file"):
        plan_profile(profile)


def test_values_of_an_env_file_that_compose_reads_otherwise_are_named(tmp_path: Path) -> None:
    text = 'A="a b"\nB= \'q\' # x\nC=1 # comment\nD=${HOME}/x\nE=$HOME\nF=a#b\nG=it\'s\nH={"a": 1}\nI=pa$$\n'
    (tmp_path / "own.env").write_text(text)
    profile = load_profile_text(tmp_path, "env_file: own.env\n")
    found = [str(one).removeprefix(f"{tmp_path}/").partition(": sparkctl")[0] for one in list_literal_values(profile)]
    assert found == [
        "own.env:1:1: A gets the quotes too",
        "own.env:2:1: B gets the quotes too",
        "own.env:2:1: B gets the `#` and what follows it too",
        "own.env:3:1: C gets the `#` and what follows it too",
        "own.env:4:1: D gets the `$` and the name as they stand",
        "own.env:5:1: E gets the `$` and the name as they stand",
    ]


def test_a_broken_env_file_says_where_and_never_what() -> None:
    with pytest.raises(InvalidFile) as caught:
        parse_env_file(b"A=1\nsecret-without-equals\nB-C=hush\n\xff=1\nD=\x00\n", "s.env")
    assert caught.value.message.splitlines() == [
        "s.env:2:1: write KEY=VALUE",
        "s.env:3:1: `B-C` is not a variable's name",
        "s.env:4:1: this is not UTF-8 text",
        "s.env:5:1: a NUL is not allowed here",
    ]


@pytest.mark.parametrize("name", ProfileLibrary(Path("/nonexistent")).list_names())
def test_every_shipped_profile_is_valid_complete_and_plans(name: str) -> None:
    library = ProfileLibrary(Path("/nonexistent"))
    profile = library.load_profile(name)
    made = plan_profile(profile)
    assert profile.shipped
    assert profile.notes
    assert profile.source
    assert profile.title
    assert profile.expected_memory is not None
    assert profile.floor_memory is not None
    assert made.port == profile.port
    assert made.ready.line
    assert made.ready.health


def test_variants_say_what_they_are_for() -> None:
    library = ProfileLibrary(Path("/nonexistent"))
    ngram = dict(library.load_profile("qwen36-ngram").args)
    assert ngram["speculative-algorithm"] == "NGRAM"
    assert not {"speculative-num-steps", "speculative-eagle-topk"} & ngram.keys()
    vllm = plan_profile(library.load_profile("qwen36-vllm"))
    assert '{"method":"mtp","num_speculative_tokens":3}' in vllm.command
    assert vllm.command[:3] == ("vllm", "serve", "/models/Qwen3.6-27B-NVFP4")
    speech = plan_profile(library.load_profile("orpheus-tts"))
    assert (speech.ready.health, speech.ready.probe, speech.port) == ("/docs", "speech", 5005)


def test_liveness_is_a_label_only_where_it_is_off(tmp_path: Path) -> None:
    assert dict(plan_profile(load_profile_text(tmp_path, "liveness: none\n")).labels)[ContainerLabel.LIVENESS] == "none"
    assert ContainerLabel.LIVENESS not in dict(plan_profile(load_profile_text(tmp_path, "")).labels)


def test_a_start_is_guarded_unless_the_profile_says_off(tmp_path: Path) -> None:
    usual = plan_profile(load_profile_text(tmp_path, "start: {timeouts: {loading: 10m}}\n")).guard
    assert usual == GuardRule(512 << 20, None, 120.0 + 300.0 + 600.0 + 900.0)
    own = plan_profile(
        load_profile_text(tmp_path, "start: {guard: {floor: 2GiB, cache_below: 4g, limit: 20m}}\n")
    ).guard
    assert own == GuardRule(2 << 30, 4 << 30, 1200.0)
    for off in ("off", "false"):
        assert plan_profile(load_profile_text(tmp_path, f"start: {{guard: {off}}}\n")).guard is None


def test_a_profile_that_leaves_the_page_cache_alone_means_the_guard_too(tmp_path: Path) -> None:
    made = plan_profile(load_profile_text(tmp_path, "start: {drop_caches: false}\n")).guard
    assert made is not None
    assert made.cache_below == 0
    made = plan_profile(load_profile_text(tmp_path, "start: {drop_caches: false, guard: {cache_below: 1g}}\n")).guard
    assert made is not None
    assert made.cache_below == 1 << 30


def test_the_guard_is_part_of_the_hash_only_where_it_is_not_the_usual_one(tmp_path: Path) -> None:
    usual = load_profile_text(tmp_path, "").digest
    assert load_profile_text(tmp_path, "start: {guard: {floor: 512MiB}}\n").digest == usual
    assert load_profile_text(tmp_path, "start: {guard: off}\n").digest != usual
