"""``sparkctl init``: write the config."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from sparkctl.cli import verb_runner
from sparkctl.cli.options import create_context

if TYPE_CHECKING:
    from collections.abc import Collection

    from sparkctl.commands.doctor_checks import ConnectionCheck
    from sparkctl.model.node import Node

_NAME_RULE = "letters, digits, dot, dash and underscore"


@click.command("init", short_help="Ask for each Spark's address, test it, write the config.")
@click.option(
    "-n", "--node", "entries", multiple=True, metavar="NAME=[USER@]HOST[:PORT]",
    help="Add a node without a question (repeatable); HOST may be an alias of ~/.ssh/config, or `local`.",
)  # fmt: skip
@click.option("--identity", metavar="FILE", help="Private key for all nodes given by --node.")
@click.option("--models", metavar="DIR", help="Directory of the models on the nodes, e.g. /home/milo/models.")
@click.option("--no-test", is_flag=True, help="Write the config without connecting to the nodes.")
@click.option("--replace", is_flag=True, help="Replace an existing config.")
def command(entries: tuple[str, ...], identity: str | None, models: str | None, no_test: bool, replace: bool) -> int:
    """Set up sparkctl for your Sparks: ask for each address, test the connection, and write the config.

    \b
    sparkctl init --node spark1=milo@spark-2a60.local \\
                  --node spark2=milo@spark-77f1.local
    """
    from sparkctl import paths
    from sparkctl.cli import stderr, stdout
    from sparkctl.config import write_config
    from sparkctl.errors import ExitCode, InvalidInput

    _check_paths(identity, models)
    nodes = [_parse_node_entry(entry, identity, models) for entry in entries]
    _check_duplicates(nodes)
    path = paths.config_file()
    if path.exists() and not replace:
        raise InvalidInput(f"a config exists already ({path}); it is unchanged", "edit it, or: sparkctl init --replace")
    nodes = nodes or _ask_for_nodes(identity, models)
    tested = [] if no_test else verb_runner.run_async(_test_nodes(nodes))
    for visit in tested:
        stderr.print_message(f"{visit.node.name}  {visit.words}")
        if visit.problem:
            stderr.print_warning(visit.node.name, visit.problem, visit.remedy)
    stdout.print_line(str(write_config(nodes, path, replace=replace)))
    bad = [visit for visit in tested if visit.problem]
    if bad:
        stderr.print_message("the config is written; fix the problems above, then: sparkctl doctor")
        return int(ExitCode.UNREACHABLE)
    stderr.print_message("next: sparkctl doctor, then sparkctl up qwen36 --node " + nodes[0].name)
    return int(ExitCode.DONE)


async def _test_nodes(nodes: list[Node]) -> list[ConnectionCheck]:
    """Test one node after the other, because each may ask the operator a question."""
    from sparkctl.commands.doctor_checks import check_connection

    context = create_context()
    return [await check_connection(context, node) for node in nodes]


def _parse_node_entry(entry: str, identity: str | None, models: str | None) -> Node:
    """Read NAME=[USER@]HOST[:PORT]; without NAME= the node is named after the host."""
    from dataclasses import replace as changed

    from sparkctl.config import NODE_NAME_PATTERN, parse_node_address
    from sparkctl.errors import InvalidInput
    from sparkctl.model.node import NodeName

    name, equals, address = entry.partition("=")
    if not equals:
        address, name = entry, entry.rpartition("@")[2].split(".")[0].split(":")[0]
    if not NODE_NAME_PATTERN.fullmatch(name):
        raise InvalidInput(f"{name!r} cannot be a node's name: {_NAME_RULE}", "--node spark1=HOST")
    return changed(parse_node_address(address), name=NodeName(name), identity=identity, models=models)


def _ask_for_nodes(identity: str | None, models: str | None) -> list[Node]:
    from sparkctl.cli import stderr
    from sparkctl.errors import InvalidInput

    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InvalidInput(
            "stdin is not a terminal: name the nodes", "sparkctl init --node spark1=milo@spark-2a60.local"
        )
    stderr.print_message(
        "The address of each Spark, as ssh takes it: milo@spark-2a60.local, or an alias of ~/.ssh/config."
    )
    stderr.print_message("`local` is this machine. An empty answer ends the list.")
    nodes: list[Node] = []
    while (address := _ask_address(f"spark{len(nodes) + 1}")) is not None:
        name = _ask_name(f"spark{len(nodes) + 1}", {node.name for node in nodes})
        nodes.append(_parse_node_entry(f"{name}={address}", identity, models))
    if not nodes:
        raise InvalidInput("no node was named; nothing was written", None)
    return nodes


def _ask_address(name: str) -> str | None:
    """Ask until the answer is a valid address; return None for an empty answer."""
    from sparkctl.cli import stderr
    from sparkctl.config import parse_node_address
    from sparkctl.errors import InvalidInput

    while address := str(click.prompt(f"address of {name}", default="", show_default=False, err=True)).strip():
        try:
            parse_node_address(address)
        except InvalidInput as wrong:
            stderr.print_message(f"  {wrong.message}")
        else:
            return address
    return None


def _ask_name(default: str, taken: Collection[str]) -> str:
    from sparkctl.cli import stderr
    from sparkctl.config import NODE_NAME_PATTERN

    while True:
        name = str(click.prompt("its name here", default=default, err=True)).strip()
        if name in taken:
            stderr.print_message(f"  {name} is taken by another node")
        elif not NODE_NAME_PATTERN.fullmatch(name):
            stderr.print_message(f"  {name!r} cannot be a node's name: {_NAME_RULE}")
        else:
            return name


def _check_paths(identity: str | None, models: str | None) -> None:
    from pathlib import Path

    from sparkctl.errors import InvalidInput

    if identity is not None and not Path(identity).expanduser().is_file():
        raise InvalidInput(f"--identity {identity}: no such file", "ls ~/.ssh")
    if models is not None and not models.startswith(("/", "~/")):
        raise InvalidInput(f"--models {models}: the directory is on the nodes: begin it with / or ~/", None)


def _check_duplicates(nodes: list[Node]) -> None:
    from sparkctl.errors import InvalidInput

    names = [node.name for node in nodes]
    twins = sorted({name for name in names if names.count(name) > 1})
    if twins:
        raise InvalidInput(f"two nodes are called {twins[0]}", "give each its own NAME=")
