"""init: flags that cannot be are refused before anything else, and a slip in the dialogue costs one answer."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.run_command import run_in_process, run_sparkctl

INIT = [sys.executable, "-m", "sparkctl", "init", "--no-test"]


def build_environment(home: Path) -> dict[str, str]:
    return {**os.environ, "HOME": str(home), "SPARKCTL_CONFIG": str(home / "config.yaml")}


def run_init(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return run_in_process("init", "--no-test", *words, env=build_environment(home))


def run_init_on_terminal(home: Path, *answers: str) -> tuple[int, str]:
    """Type the answers ahead, as a terminal lets one, and return the code and what was shown."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(INIT, stdin=theirs, stdout=theirs, stderr=theirs, env=build_environment(home))
    os.close(theirs)
    os.write(ours, "".join(f"{answer}\n" for answer in answers).encode())
    seen = b""
    while True:
        try:
            seen += os.read(ours, 65536)
        except OSError:  # the other side is closed
            break
    os.close(ours)
    return process.wait(30), seen.decode()


FAULTS = [
    (["--node", "spark1=milo@a", "--identity", "/no/such/key"], "no such file"),
    (["--node", "spark1=milo@a", "--models", "models"], "begin it with / or ~/"),
    (["--node", "spark 1=milo@a"], "cannot be a node's name"),
    (["--node", "spark1=milo@a", "--node", "spark1=milo@b"], "two nodes are called spark1"),
]


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize(("words", "message"), FAULTS)
def test_flags_are_judged_before_the_config_that_is_there(
    tmp_path: Path, words: list[str], message: str, there: bool
) -> None:
    config = tmp_path / "config.yaml"
    if there:
        config.write_text("nodes: []\n")
    ran = run_init(tmp_path, *words)
    assert ran.returncode == 2
    assert message in ran.stderr
    assert config.exists() is there


def test_a_config_is_kept_and_its_path_is_told_from_home(tmp_path: Path) -> None:
    assert run_init(tmp_path, "--node", "spark1=milo@a").stdout == f"{tmp_path}/config.yaml\n"
    # a process of its own: the home directory that messages shorten to ~ is that of the start
    again = run_sparkctl("init", "--no-test", "--node", "spark1=milo@b", env=build_environment(tmp_path))
    assert again.returncode == 2
    assert "a config exists already (~/config.yaml)" in again.stderr


def test_without_a_terminal_nodes_must_be_named(tmp_path: Path) -> None:
    ran = run_init(tmp_path)
    assert ran.returncode == 2
    assert ran.stderr.splitlines() == [
        "sparkctl: stdin is not a terminal: name the nodes",
        "  try: sparkctl init --node spark1=milo@spark-2a60.local",
    ]


def test_a_slip_in_the_dialogue_is_asked_again(tmp_path: Path) -> None:
    code, seen = run_init_on_terminal(
        tmp_path, "milo@a@b", "milo@spark-2a60.local", "my spark", "one", "milo@spark-77f1.local", "one", "two", ""
    )
    assert code == 0, seen
    assert "--node" not in seen.partition("next:")[0]
    assert seen.count("address of spark1") == 2
    assert seen.count("its name here") == 4
    assert "taken" in seen
    written = (tmp_path / "config.yaml").read_text()
    assert [line.split(": ")[1] for line in written.splitlines() if "name: " in line and "#" not in line] == [
        "one",
        "two",
    ]
