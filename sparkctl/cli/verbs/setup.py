"""``sparkctl init`` and ``setup``: write the config, and put in place what `doctor` finds missing."""

from __future__ import annotations

import os
import sys
from dataclasses import replace as changed
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sparkctl.cli import stderr, stdout, verb_runner
from sparkctl.cli.options import (
    PreparedVerb,
    RequestCommand,
    complete_nodes,
    complete_profiles,
    create_context,
    json_option,
    parse_duration_option,
    select_configured_nodes,
)
from sparkctl.errors import ExitCode, InvalidInput, SparkctlError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from sparkctl.cli.verb_runner import EventPrinter
    from sparkctl.commands.doctor_checks import ConnectionCheck
    from sparkctl.model.node import Node


_NAME_RULE = "letters, digits, dot, dash and underscore"


@click.command("init", short_help="Ask for each Spark's address, test it, write the config.")
@click.option(
    "-n",
    "--node",
    "entries",
    multiple=True,
    metavar="NAME=[USER@]HOST[:PORT]",
    help="Add a node without a question (repeatable); HOST may be an alias of ~/.ssh/config, or `local`.",
)
@click.option("--identity", metavar="FILE", help="Private key for all nodes given by --node.")
@click.option("--models", metavar="DIR", help="Directory of the models on the nodes, e.g. /home/milo/models.")
@click.option("--no-test", is_flag=True, help="Write the config without connecting to the nodes.")
@click.option("--replace", is_flag=True, help="Replace an existing config.")
def init_command(
    entries: tuple[str, ...], identity: str | None, models: str | None, no_test: bool, replace: bool
) -> int:
    """Set up sparkctl for your Sparks: ask for each address, test the connection, and write the config.

    \b
    sparkctl init                         asks for each address
    sparkctl init --node spark1=milo@spark-2a60.local \\
                  --node spark2=milo@spark-77f1.local

    On a terminal it asks for a key file where no key opens a node, and offers to put your public key there. Then it shows
    what `sparkctl setup` would change, asks, and names a profile that fits.
    """
    from sparkctl.config import write_config
    from sparkctl.files import config_file

    _check_paths(identity, models)
    nodes = [_parse_node_entry(entry, identity, models) for entry in entries]
    _check_duplicates(nodes)
    path = config_file()
    if path.exists() and not replace:
        raise InvalidInput(f"a config exists already ({path}); it is unchanged", "edit it, or: sparkctl init --replace")
    nodes = nodes or _ask_for_nodes(identity, models)
    tested = [] if no_test else verb_runner.run_async(_test_nodes(nodes))
    nodes = [visit.node for visit in tested] or nodes  # with the key files that were named meanwhile
    stdout.print_line(str(write_config(nodes, path, replace=replace)))
    if any(visit.problem and not visit.is_reached for visit in tested):
        stderr.print_message("the config is written; fix the problems above, then: sparkctl doctor")
        return int(ExitCode.UNREACHABLE)
    if not tested or not _has_terminal():
        stderr.print_message("next: sparkctl setup, then sparkctl up qwen36 --node " + nodes[0].name)
        return _judge_visits(tested)
    from sparkctl.commands.setup.setup_nodes import SetUpNodes

    stderr.print_message("what a start needs on the Sparks (sparkctl setup):")
    request = SetUpNodes(nodes=nodes, names_nodes=False)
    code = verb_runner.run_verb(create_context(), request.run, create_setup_printer())
    verb_runner.run_async(_offer_profile(nodes))
    return _judge_visits(tested) if code else int(ExitCode.DONE)


def _judge_visits(tested: list[ConnectionCheck]) -> int:
    """Return the exit code of the connections alone: a set-up that was declined is no failure."""
    return int(ExitCode.UNREACHABLE if any(visit.problem for visit in tested) else ExitCode.DONE)


def _has_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


async def _offer_profile(nodes: list[Node]) -> None:
    """Print the command that starts a profile that fits, or that first gets what it lacks."""
    from sparkctl.commands.start.check_fit import suggest_profile

    stderr.print_message("looking for a profile that fits ...")
    words = await suggest_profile(create_context(may_ask=False), nodes, os.environ)
    stderr.print_message(f"next: {words}" if words else "no profile fits as it is: sparkctl plan qwen36 shows why")


async def _test_nodes(nodes: list[Node]) -> list[ConnectionCheck]:
    """Test one node after the other, because each may ask the operator a question; print what was found."""
    from sparkctl.commands.doctor_checks import check_connection

    context = create_context()
    tested: list[ConnectionCheck] = []
    for node in nodes:
        keys = [one.node.identity for one in tested if one.is_reached]  # a key that opened another Spark may open this
        visit = await check_connection(context, node)
        if visit.is_login_refused and node.identity is None and keys and keys[-1] is not None:
            visit = await check_connection(context, changed(node, identity=keys[-1]))
        while visit.is_login_refused and _has_terminal():
            stderr.print_warning(node.name, visit.problem or "", None)
            opened = await _ask_for_key(visit.node)
            if opened is None:
                break
            visit = await check_connection(context, opened)
        stderr.print_message(f"{visit.node.name}  {visit.words}")
        if visit.problem:
            stderr.print_warning(visit.node.name, visit.problem, visit.remedy)
        tested.append(visit)
    return tested


async def _ask_for_key(node: Node) -> Node | None:
    """Ask for a key file, else offer to put the operator's public key on the node. None: neither."""
    from sparkctl.cli.terminal_prompter import confirm, read_line
    from sparkctl.transport.ssh.ssh_connection import find_public_key, install_public_key

    while answer := (await read_line(f"key file for {node.name} (empty: none works): ")).strip():
        if _is_file(answer):
            return changed(node, identity=answer)
        stderr.print_message(f"  {answer}: no such file")
    public = find_public_key(node)
    if public is None:
        stderr.print_message("there is no public key here to put on it; make one: ssh-keygen -t ed25519")
        return None
    if not await confirm(f"put {public} on {node.name}, with your password there?"):
        return None
    password = await read_line(f"password on {node.name}: ", echo=False)
    if not password:
        return None
    try:
        await install_public_key(node, public, password, create_context().prompter)
    except SparkctlError as error:
        stderr.print_warning(node.name, error.message, error.hint)
        return None
    return node if node.identity is not None else changed(node, identity=str(public.with_suffix("")))


def _is_file(path: str) -> bool:
    return Path(path).expanduser().is_file()


def _parse_node_entry(entry: str, identity: str | None, models: str | None) -> Node:
    """Read NAME=[USER@]HOST[:PORT]; without NAME= the node is named after the host."""
    from sparkctl.config import NODE_NAME_PATTERN, parse_node_address
    from sparkctl.model.node import NodeName

    name, equals, address = entry.partition("=")
    if not equals:
        address, name = entry, entry.rpartition("@")[2].split(".")[0].split(":")[0]
    if not NODE_NAME_PATTERN.fullmatch(name):
        raise InvalidInput(f"{name!r} cannot be a node's name: {_NAME_RULE}", "--node spark1=HOST")
    return changed(parse_node_address(address), name=NodeName(name), identity=identity, models=models)


def _ask_for_nodes(identity: str | None, models: str | None) -> list[Node]:
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
    from sparkctl.config import parse_node_address

    while address := str(click.prompt(f"address of {name}", default="", show_default=False, err=True)).strip():
        try:
            parse_node_address(address)
        except InvalidInput as wrong:
            stderr.print_message(f"  {wrong.message}")
        else:
            return address
    return None


def _ask_name(default: str, taken: Collection[str]) -> str:
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
    if identity is not None and not _is_file(identity):
        raise InvalidInput(f"--identity {identity}: no such file", "ls ~/.ssh")
    if models is not None and not models.startswith(("/", "~/")):
        raise InvalidInput(f"--models {models}: the directory is on the nodes: begin it with / or ~/", None)


def _check_duplicates(nodes: list[Node]) -> None:
    names = [node.name for node in nodes]
    twins = sorted({name for name in names if names.count(name) > 1})
    if twins:
        raise InvalidInput(f"two nodes are called {twins[0]}", "give each its own NAME=")


_LEAST_CABLE_SECONDS = 10.0  # a node is asked to keep the cable until 6 s before the limit


def _parse_cable_timeout(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    seconds = parse_duration_option(ctx, param, value)
    if seconds is not None and seconds < _LEAST_CABLE_SECONDS:
        raise click.BadParameter(f"{value} is too short for a cable to come up; at least 10s", ctx, param)
    return seconds


@click.command(
    "setup",
    cls=RequestCommand,
    short_help="Set up Docker's group, the right to drop the page cache, and the cable; or undo it.",
)
@click.argument("nodes", nargs=-1, metavar="[NODE]...", shell_complete=complete_nodes)
@click.option("--dry-run", is_flag=True, help="Show what would change; change nothing.")
@click.option("--undo", is_flag=True, help="Put back what was there before, byte for byte.")
@click.option("--yes", is_flag=True, help="Make the changes without asking.")
@click.option(
    "--cable-timeout",
    callback=_parse_cable_timeout,
    metavar="TIME",
    help="How long the cable may take to come up before the old settings return (60s).",
)
@click.option(
    "--for",
    "profile",
    metavar="PROFILE",
    shell_complete=complete_profiles,
    help="Also set up SSH between the Sparks, if this profile needs it.",
)
@json_option
def setup_command(
    nodes: tuple[str, ...],
    dry_run: bool,
    undo: bool,
    yes: bool,
    cable_timeout: float | None,
    profile: str | None,
    as_json: bool,
) -> PreparedVerb:
    """Set up the nodes (default: all): what `doctor` finds missing and a start needs.

    \b
    sparkctl setup --dry-run      show the changes
    sparkctl setup                show them, ask, make them
    sparkctl setup --undo         take them back
    sparkctl setup --for trtllm-qwen3-235b    with SSH between the Sparks, which this profile needs

    It lets your user use Docker (group docker) and drop the page cache (one line for sudo, checked by visudo), and it gives
    the cable between two Sparks addresses: a netplan file on each, MTU 9000, both functions of the port. If the cable does
    not come up in time, or the Spark loses the connection to sparkctl, it returns to its old file by itself.

    Every file is shown as a diff first. sudo's password is asked for once, and not kept. Running it again changes nothing.
    """
    from sparkctl.commands.setup.setup_nodes import CABLE_LIMIT_SECONDS, SetUpNodes

    if profile is not None and undo:
        raise click.UsageError("--undo undoes everything: leave out --for", click.get_current_context())
    chosen = select_configured_nodes(nodes)
    request = SetUpNodes(
        nodes=chosen,
        ssh_profile=_check_ssh_profile(profile, chosen),
        names_nodes=bool(nodes),
        dry_run=dry_run,
        undo=undo,
        is_confirmed=yes,
        cable_limit=cable_timeout or CABLE_LIMIT_SECONDS,
    )
    return PreparedVerb(request=request, printer=lambda: create_setup_printer(plan_only=dry_run))


def create_setup_printer(*, plan_only: bool = False) -> EventPrinter:
    """Return the printer of diffs: on stdout for ``plan_only``, else on stderr."""
    from sparkctl.cli.event_printers import TextPrinter
    from sparkctl.model.events import Event, SetupPlanned
    from sparkctl.views.event_text import render_fine_part, render_setup_step

    class SetupPrinter(TextPrinter):
        """Prints what will change, then each step that is done."""

        def print_event(self, event: Event) -> None:
            if not isinstance(event, SetupPlanned):
                return super().print_event(event)
            self.live.clear()
            rows = [render_fine_part(event.node, sentence) for sentence in event.fine]
            rows += [row for step in event.steps for row in render_setup_step(event.node, step)]
            if plan_only:
                stdout.print_rows(rows)
            else:
                for row in rows:
                    stderr.print_message(row)
            return None

    return SetupPrinter()


def _check_ssh_profile(name: str | None, nodes: Sequence[Node]) -> str | None:
    """Return the profile if its ranks log in at each other by SSH, else None. Raises `InvalidInput`."""
    from sparkctl.engines import load_engine
    from sparkctl.engines.base import EngineRank
    from sparkctl.profiles.profile_library import ProfileLibrary

    if name is None:
        return None
    profile = ProfileLibrary().load_profile(name)
    if profile.nodes < 2 or not load_engine(profile.engine).list_ssh_key_mounts(EngineRank(0, ("", ""))):
        stderr.print_message(f"{profile.name} needs no SSH between Sparks")
        return None
    if len(nodes) < 2:
        raise InvalidInput(
            f"{profile.name} runs on {profile.nodes} Sparks", "name them all: sparkctl setup spark1 spark2"
        )
    return profile.name
