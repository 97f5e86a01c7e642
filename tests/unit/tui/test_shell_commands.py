"""A shell on a node is the operator's own ssh, told what our config says and nothing else."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from sparkctl.model.node import Node, NodeName
from sparkctl.transport.node_connection import build_container_command, build_ssh_command

NAME = NodeName("spark1")


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (Node(name=NAME, host="spark1.local"), ["ssh", "--", "spark1.local"]),
        (
            Node(name=NAME, host="192.0.2.7", user="milo", port=2222),
            ["ssh", "-p", "2222", "-l", "milo", "--", "192.0.2.7"],
        ),
        (Node(name=NAME, host="s", jump="milo@gate:22"), ["ssh", "-J", "milo@gate:22", "--", "s"]),
        (Node(name=NAME, host="s", identity="/keys/100%"), ["ssh", "-i", "/keys/100%%", "--", "s"]),
        (Node(name=NAME, host="s", known_hosts="/a b"), ["ssh", "-o", 'UserKnownHostsFile="/a b"', "--", "s"]),
        (Node(name=NAME, host="local"), ["/bin/zsh"]),
    ],
)
def test_what_the_config_says_is_what_ssh_is_told(node: Node, words: list[str]) -> None:
    assert build_ssh_command(node, {"SHELL": "/bin/zsh"}) == words


def test_a_home_is_found_and_without_a_shell_there_is_the_usual_one() -> None:
    assert build_ssh_command(Node(name=NAME, host="s", identity="~/.ssh/spark"), {})[2] == str(
        Path.home() / ".ssh/spark"
    )
    assert build_ssh_command(Node(name=NAME, host="local"), {}) == ["/bin/sh"]


def test_a_shell_inside_of_a_container_is_told_its_name_and_nothing_that_a_shell_would_read() -> None:
    here = build_container_command(Node(name=NAME, host="local"), "sglang-qwen36")
    assert here[:5] == ["docker", "exec", "-it", "--", "sglang-qwen36"]
    away = build_container_command(Node(name=NAME, host="s", user="milo"), "a; rm -rf $HOME")
    assert away[:-1] == ["ssh", "-l", "milo", "-t", "--", "s"]
    assert shlex.split(away[-1]) == ["docker", "exec", "-it", "--", "a; rm -rf $HOME", *here[5:]]
