"""The docker run line: the seed's, argument for argument; every character kept; no secret in it."""

from __future__ import annotations

import shlex
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from sparkctl.model.launch_plan import LaunchPlan, Mount, PhaseTimeouts, ReadinessRule
from sparkctl.model.node import Node, NodeName
from sparkctl.profiles.exporters.docker_command import format_docker_run
from sparkctl.profiles.launch_planning import build_launch_plan
from sparkctl.profiles.profile_library import ProfileLibrary

SEED = """docker run -d --name sglang-qwen36 --gpus all --shm-size 16g --network host -v /home/milo/models:/models
scitrera/dgx-spark-sglang:0.5.12 python -m sglang.launch_server --model-path /models/Qwen3.6-27B-FP8 --host 0.0.0.0
--port 8003 --served-model-name qwen3.6-27b --tp 1 --speculative-algorithm NEXTN --speculative-num-steps 5
--speculative-eagle-topk 4 --mem-fraction-static 0.82 --trust-remote-code"""


def split_shell_line(line: str) -> list[str]:
    """A line as a shell reads it."""
    return shlex.split(line.replace(" \\\n  ", " "))


def test_the_seed_argument_for_argument() -> None:
    profile = ProfileLibrary(Path("/nonexistent")).load_profile("qwen36-as-posted")
    node = Node(name=NodeName("spark1"), host="h")
    made = build_launch_plan(profile, node, home="/home/milo", operator="milo", environ={})
    assert split_shell_line(format_docker_run(made, with_labels=False)) == SEED.split()
    labelled = split_shell_line(format_docker_run(made))
    assert [word for word in labelled if word.startswith("dev.sparkctl.")] == [f"{k}={v}" for k, v in made.labels]


def make_plan(**changes: object) -> LaunchPlan:
    fields: dict[str, object] = {
        "node": NodeName("n"), "instance": "i", "profile": "p", "profile_hash": "h", "engine": "container",
        "container_name": "c1", "image": "img", "entrypoint": None, "command": (), "env": (), "mounts": (),
        "gpus": None, "shm_size": None, "ipc": None, "network": None, "ulimits": (), "devices": (), "options": (),
        "labels": (), "port": None, "served_model": None, "api_key": None, "ready": ReadinessRule(line=None, health=None),
        "timeouts": PhaseTimeouts(), "drop_caches": True, "stop_grace": 30.0, "expected_memory": None,
        "floor_memory": None,
    }  # fmt: skip
    return LaunchPlan(**{**fields, **changes})  # type: ignore[arg-type]


def test_every_option_has_its_flag() -> None:
    made = make_plan(
        entrypoint="/bin/sh", ipc="host", ulimits=(("memlock", "-1"), ("nofile", "1:2")), devices=("/dev/x",),
        options=(("cap-add", "A"), ("init", "true"), ("memory", "true")), mounts=(Mount("/a b", "/c", read_only=True),),
        env=(("A", "1"),), command=("x",),
    )  # fmt: skip
    assert split_shell_line(format_docker_run(made)) == [
        "docker", "run", "-d", "--name", "c1", "--ipc", "host", "--entrypoint", "/bin/sh", "--ulimit", "memlock=-1",
        "--ulimit", "nofile=1:2", "--device", "/dev/x", "--cap-add", "A", "--init", "--memory", "true",
        "-v", "/a b:/c:ro", "-e", "A=1", "img", "x",
    ]  # fmt: skip


def test_secrets_are_not_in_it() -> None:
    secret = "correct-horse-battery"
    made = make_plan(
        env=(("HF_TOKEN", secret), ("COPY", f"x{secret}"), ("SHAPED", "hf_" + "a" * 20), ("PLAIN", "p")),
        command=("serve", "--api-key", "short", f"--admin-api-key={secret}", "--note", f"is {secret}", "--max-tokens", "5"),
    )  # fmt: skip
    line = format_docker_run(made)
    assert secret not in line
    assert "short" not in line
    assert "hf_aaa" not in line
    shown = split_shell_line(line)
    assert [shown[i + 1] for i, word in enumerate(shown) if word == "-e"] == ["HF_TOKEN", "COPY", "SHAPED", "PLAIN=p"]
    assert shown[-2:] == ["--max-tokens", "5"]
    assert split_shell_line(format_docker_run(made, mask=False))[-7:] == list(made.command[1:])[-7:]


TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=30)
NASTY = st.one_of(
    TEXT, st.sampled_from(["$(id)", "`id`", "a'b", 'a"b', "a;b", "a|b", "&& x", "*", "~", "\\", "#", "!x"])
)


@settings(max_examples=200, deadline=None)
@given(command=st.lists(NASTY, max_size=5), value=NASTY, name=NASTY, option=NASTY)
def test_every_character_survives_a_shell(command: list[str], value: str, name: str, option: str) -> None:
    made = make_plan(
        container_name=name, image=name, command=tuple(command), env=(("V", value),), mounts=(Mount(value, name),),
        entrypoint=value, gpus=value, network=value, options=(("user", option),), labels=(("l", value),),
    )  # fmt: skip
    line = format_docker_run(made, mask=False).replace(" \\\n  ", " ")
    assert shlex.split(line) == [
        "docker", "run", "-d", "--name", name, "--gpus", value, "--network", value, "--entrypoint", value,
        "--user", option, "-v", f"{value}:{name}", "-e", f"V={value}", "--label", f"l={value}", name, *command,
    ]  # fmt: skip
