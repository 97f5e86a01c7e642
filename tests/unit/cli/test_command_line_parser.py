"""A line of the panel is parsed once, by click, into the request that the verb would run; its command says the same."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from sparkctl.cli.command_line_parser import CommandLineParser
from sparkctl.cli.main import sparkctl_command
from sparkctl.commands.request import Request
from sparkctl.errors import InvalidInput
from sparkctl.model.node import NodeName

PARSER = CommandLineParser(sparkctl_command)


@pytest.fixture(autouse=True)
def _two_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("nodes: [{name: spark1, host: 192.0.2.1}, {name: spark2, host: 192.0.2.2}]\n")
    monkeypatch.setenv("SPARKCTL_CONFIG", str(config))
    monkeypatch.setenv("SPARKCTL_STATE", str(tmp_path / "state"))


def parse_line(line: str) -> Request:
    request = PARSER.parse_request(shlex.split(line), (NodeName("spark2"), NodeName("spark1")))
    assert isinstance(request, Request)
    return request


@pytest.mark.parametrize(
    ("line", "command", "named"),
    [
        ("down busy -n spark2", "down busy --node spark2", ["spark2"]),
        ("down -nspark2 busy", "down busy --node spark2", ["spark2"]),
        ("down --node=spark2 busy", "down busy --node spark2", ["spark2"]),
        ("down busy", "down busy", []),
        ("down --grace 5s busy -n spark1", "down busy --node spark1 --grace=5s", ["spark1"]),
        ("down --all --kill --node spark2", "down --all --node spark2 --kill", ["spark2"]),
        ("free spark2 spark1 --dry-run", "free spark2 spark1 --dry-run", ["spark2", "spark1"]),
        ("up qwen36 --replace -n spark1", "up qwen36 --node spark1 --replace", ["spark1"]),
        ("up --set port=8001 qwen36 -d -n spark1", "up qwen36 --node spark1 --detach --set port=8001", ["spark1"]),
        ("up minimax-m27 --timeout 90s", "up minimax-m27 --timeout=90s", []),
        ("switch qwen36", "switch qwen36 --node spark2", ["spark2"]),
        ("switch minimax-m27 --keep-going", "switch minimax-m27 --node spark2 --node spark1 --keep-going", ["spark2", "spark1"]),
        ("resume", "resume", []),
        ("abort --give-up -n spark1", "abort --node spark1 --give-up", ["spark1"]),
        ("drop-caches", "drop-caches", []),
        ("plan qwen36 --set port=8001", "plan qwen36 --set port=8001", []),
        ("sync qwen36 --to spark2 --from spark1 --image-only", "sync qwen36 --from spark1 --to spark2 --image-only", []),
        ("doctor --fabric", "doctor --fabric", []),
        ("setup spark1 spark2 --cable-timeout 2m", "setup spark1 spark2 --cable-timeout=120s", ["spark1", "spark2"]),
    ],
)  # fmt: skip
def test_a_line_becomes_a_request_and_the_request_a_command(line: str, command: str, named: list[str]) -> None:
    request = parse_line(line)
    assert shlex.join(request.format_as_command()) == command
    assert list(request.named_nodes) == named
    assert parse_line(command).format_as_command() == request.format_as_command()


def test_a_request_without_nodes_is_for_those_of_the_config() -> None:
    assert [node.name for node in parse_line("down busy").nodes] == ["spark1", "spark2"]
    assert [node.name for node in parse_line("drop-caches").nodes] == ["spark1", "spark2"]


def test_a_verb_of_the_command_line_alone_does_nothing_here(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InvalidInput, match="for the command line: sparkctl profiles new"):
        parse_line("profiles new mine")
    assert capsys.readouterr().out == ""
